"""From a block to one N-way join.

::

    block  =  outputs(residual(Σ over S ⊆ absent of (-1)^|S| · ⋈ (atoms, S)))

Predicates go where `circuits.plan.rewrite.conditions` says. An antijoin on keys of one atom is made
on that atom, before the join; one on keys of several atoms is a second join, subtracted, so that
several of them double the joins each: beyond a few the rest are made on the result, which is kept
for it. Expressions that are joined are computed before. Of each atom only the columns that are
joined, compared or asked for are kept; several that are only asked for become one column, the row
id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, islice
from typing import Final

from circuits.plan.expressions import Call, Column, Expression, columns_of, substitute
from circuits.plan.nodes import (
    Join,
    Negate,
    Plan,
    RowIdDecode,
    RowIdEncode,
    Union,
    VariableComparison,
    columns,
)
from circuits.plan.rewrite.conditions import Conditions
from circuits.plan.rewrite.iterated_rows import is_recursive
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock
from circuits.types.functions import call

__all__ = ["plan_block"]

# Column k of atom i, as the join sees it.
Slot = tuple[int, int]
# The column that holds the row id of an atom.
ROW_ID: Final = -1
# Fewer columns than this are columns of the join themselves.
MIN_ENCODED_COLUMNS: Final = 2
# More antijoins on keys of several atoms than this are made on the result of the join.
MOST_SUBTRACTED: Final = 4


def plan_block(block: SelectBlock) -> Plan:
    """The plan of a block."""
    across = [absent for absent in block.absent if len(block.atoms_of(absent.keys)) != 1]
    if len(block.atoms) > 1 and len(across) > MOST_SUBTRACTED:
        return plan_block(_divided(block, across[MOST_SUBTRACTED:]))
    conditions = Conditions(block)
    if len(block.atoms) == 1 and not block.absent:
        return push_projection(conditions.atom(0), block.outputs)
    shape = _Shape(block, conditions)
    result = shape.result()

    def moved(column: Column) -> Expression:
        at = shape.place(column)
        found = Column(at, result.fields[at].type)
        return found if found.type == column.type else call("cast", found, type=column.type)

    residual = (substitute(predicate, moved) for predicate in conditions.residual)
    return push_projection(
        reduce(push_filter, residual, result), [substitute(e, moved) for e in block.outputs]
    )


def _divided(block: SelectBlock, later: Sequence[AntijoinOperand]) -> SelectBlock:
    """The block as one atom, joined already, which the ``later`` antijoins are to take rows of."""
    now = [absent for absent in block.absent if not any(absent is one for one in later)]
    keys = [key for absent in later for key in absent.keys]
    whole = SelectBlock.of(
        plan_block(replace(block, absent=tuple(now), outputs=(*block.outputs, *keys)))
    )
    width = len(block.outputs)
    places = iter(whole.outputs[width:])
    absent = tuple(replace(one, keys=tuple(islice(places, len(one.keys)))) for one in later)
    return replace(whole, absent=absent, outputs=whole.outputs[:width])


class _Shape:
    """The slots of a block's join: what of each atom is joined, and what becomes of it."""

    def __init__(self, block: SelectBlock, conditions: Conditions) -> None:
        self._block = block
        self._conditions = conditions
        self._slots: list[dict[Expression, int]] = [{} for _ in block.atoms]
        self._links = [(self._slot(a), self._slot(b)) for a, b in conditions.links]
        self._compared = [(self._slot(a), op, self._slot(b)) for a, op, b in conditions.compared]
        # Antijoins by atom, and those that are made on the join.
        self._before: list[list[AntijoinOperand]] = [[] for _ in block.atoms]
        self._absent: list[tuple[AntijoinOperand, list[Slot]]] = []
        for absent in block.absent:
            holders = block.atoms_of(absent.keys)
            if len(holders) == 1 or len(block.atoms) == 1:
                keys = tuple(conditions.local(key) for key in absent.keys)
                self._before[min(holders, default=0)].append(AntijoinOperand(absent.plan, keys))
            else:
                self._absent.append((absent, [self._slot(key) for key in absent.keys]))
        wanted = [*block.outputs, *conditions.residual]
        read = sorted({c for e in wanted for c in _columns(e)}, key=lambda c: c.index)
        self._read = {column.index: self._slot(column) for column in read}
        self._encoded = [self._encoded_slots(atom) for atom in range(len(block.atoms))]
        self._inputs = [self._input(atom) for atom in range(len(block.atoms))]
        self._head = self._by_column()

    def result(self) -> Plan:
        """The join, minus those with absent keys; row ids decoded."""
        if len(self._block.atoms) == 1:
            joined = self._inputs[0][0]
        else:
            joins: list[Plan] = []
            for size in range(len(self._absent) + 1):
                for chosen in combinations(self._absent, size):
                    join = self._join(chosen)
                    joins.append(Negate(join) if size % 2 else join)
            joined = joins[0] if len(joins) == 1 else Union(tuple(joins))
        row_ids = []
        for column, slots in enumerate(self._head):
            atom, k = slots[0]
            if k == ROW_ID:
                encode = self._inputs[atom][0]
                assert isinstance(encode, RowIdEncode)
                row_ids.append((column, encode))
        return RowIdDecode(joined, tuple(row_ids)) if row_ids else joined

    def place(self, column: Column) -> int:
        """Where a column of the block is in the result."""
        wanted = self._read[column.index]
        at = 0
        for slots in self._head:
            atom, k = slots[0]
            carried = self._encoded[atom] if k == ROW_ID else ()
            if wanted in carried:
                return at + carried.index(wanted)
            if wanted in slots:
                return at
            at += len(carried) or 1
        raise AssertionError(f"{column} is not in the result")

    def _slot(self, expression: Expression) -> Slot:
        """The slot of an expression over one atom, new if need be; constants go with the first."""
        atom = min(self._block.atoms_of([expression]), default=0)
        slots = self._slots[atom]
        return atom, slots.setdefault(self._conditions.local(expression), len(slots))

    def _encoded_slots(self, atom: int) -> tuple[Slot, ...]:
        """The slots of an atom that its row id stands for."""
        if len(self._block.atoms) == 1 or is_recursive(self._block.atoms[atom]):
            return ()  # a code for each iteration that a row ever had would stay for ever
        joined = {slot for link in self._links for slot in link}
        joined |= {slot for left, _, right in self._compared for slot in (left, right)}
        joined |= {slot for _, keys in self._absent for slot in keys}
        asked = dict.fromkeys(self._read.values())
        carried = tuple(slot for slot in asked if slot[0] == atom and slot not in joined)
        return carried if len(carried) >= MIN_ENCODED_COLUMNS else ()

    def _input(self, atom: int) -> tuple[Plan, tuple[Slot, ...]]:
        """An atom as the join reads it, and the slot of each column.

        Columns come in their own order, so that atoms over one relation can be one input.
        """
        found = {(atom, k): e for e, k in self._slots[atom].items()}
        ordered = sorted(
            found, key=lambda slot: (sorted(columns_of(found[slot])), str(found[slot]))
        )
        encoded = self._encoded[atom]
        kept = [slot for slot in ordered if slot not in encoded]
        rows = self._conditions.atom(atom)
        wanted = [found[slot] for slot in (*kept, *encoded)]
        plan = _selected(rows, wanted, self._before[atom])
        if encoded:
            return RowIdEncode(plan, len(kept)), (*kept, (atom, ROW_ID))
        return plan, tuple(kept)

    def _join(self, chosen: Sequence[tuple[AntijoinOperand, list[Slot]]]) -> Join:
        """The join of all atoms and the chosen sets of keys."""
        variables = self._variables([keys for _, keys in chosen])
        bound = [tuple(variables[slot] for slot in slots) for _, slots in self._inputs]
        sets = range(len(bound), len(bound) + len(chosen))
        bound += [
            tuple(variables[i, k] for k in range(len(keys)))
            for i, (_, keys) in zip(sets, chosen, strict=True)
        ]
        return Join(
            (*(plan for plan, _ in self._inputs), *(absent.plan for absent, _ in chosen)),
            tuple(bound),
            tuple(
                VariableComparison(variables[a], op, variables[b]) for a, op, b in self._compared
            ),
            tuple(variables[slots[0]] for slots in self._head),
        )

    def _by_column(self) -> list[list[Slot]]:
        """Per column of the join the slots that it holds."""
        variables = self._variables(())
        columns: dict[int, list[Slot]] = {}
        for slot in self._read.values():
            carrier = (slot[0], ROW_ID) if slot in self._encoded[slot[0]] else slot
            columns.setdefault(variables[carrier], []).append(carrier)
        if len(self._block.atoms) == 1:
            return [[slot] for slot in self._inputs[0][1]]
        return list(columns.values())

    def _variables(self, keys: Iterable[Sequence[Slot]]) -> dict[Slot, int]:
        """The variable of each slot; set ``s`` of ``keys`` is atom ``len(atoms) + s``."""
        links = list(self._links)
        slots = [slot for _, slots in self._inputs for slot in slots]
        for atom, listed in enumerate(keys, len(self._inputs)):
            links += [(slot, (atom, k)) for k, slot in enumerate(listed)]
            slots += [(atom, k) for k in range(len(listed))]
        leader = {slot: slot for slot in slots}

        def find(slot: Slot) -> Slot:
            while leader[slot] != slot:
                slot = leader[slot]
            return slot

        for left, right in links:
            first, second = sorted((find(left), find(right)))
            leader[second] = first
        numbers: dict[Slot, int] = {}
        return {slot: numbers.setdefault(find(slot), len(numbers)) for slot in slots}


def _selected(rows: Plan, wanted: Sequence[Expression], absent: Sequence[AntijoinOperand]) -> Plan:
    """The wanted expressions of the rows whose keys are not there: ``rows - rows ⋈ keys``."""
    keys = [key for one in absent for key in one.keys if key not in wanted]
    every = [*wanted, *dict.fromkeys(keys)]
    plan = push_projection(rows, every)
    bound = tuple(range(len(every)))
    for left, one in enumerate(absent, 1 - len(absent)):
        at = tuple(every.index(key) for key in one.keys)
        # The last difference needs no keys any more, and counts where it need not list.
        head = bound[: len(wanted)] if left == 0 else bound
        kept = push_projection(plan, columns(plan)[: len(head)])
        plan = Union((kept, Negate(Join((plan, one.plan), (bound, at), (), head))))
    return plan


def _columns(expression: Expression) -> list[Column]:
    if isinstance(expression, Column):
        return [expression]
    arguments = expression.arguments if isinstance(expression, Call) else ()
    return [column for argument in arguments for column in _columns(argument)]
