"""Join planning: plan a block as one N-way join.

A block is a flat SELECT … FROM … WHERE (`circuits.plan.rewrite.select_block`): its atoms are the
relations that are joined. Its antijoins are subtracted: the term for a set S of antijoins joins the
atoms with the keys of all antijoins in S::

    block  =  outputs(residual(Σ over S ⊆ antijoins of (-1)^|S| · ⋈ (atoms, S)))

`circuits.plan.rewrite.conditions` decides where each predicate is evaluated. An antijoin whose keys
read one atom is applied to that atom before the join. An antijoin whose keys read several atoms is
a second join, which is subtracted, so each of them doubles the number of joins. Beyond
`MAX_SUBTRACTED_ANTIJOINS` of them, the others are applied to the result of the join, which is then
stored.

Expressions that the join reads are computed before the join. Of each atom, only the columns that
are joined, compared or output are kept. Those that are only output are the payload. One column, the
row id, replaces a payload of several columns (late materialization). In a join with comparisons, it
does so only if the payload has many columns, or several column orders would repeat them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, islice
from typing import Final

from circuits.plan.expressions import Call, Column, Expression, columns_of, substitute
from circuits.plan.nodes import Negate, PlanNode, Union, columns
from circuits.plan.physical_nodes import Join, RowIdDecode, RowIdEncode, VariableComparison
from circuits.plan.rewrite.conditions import Conditions
from circuits.plan.rewrite.iterated_rows import is_recursive
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock
from circuits.types.functions import call

__all__ = ["plan_block"]

# Slot (i, k) is expression k of atom i, among the expressions that the join reads. The columns of
# the join's inputs are slots, sorted by `_JoinPlanner._input`.
Slot = tuple[int, int]
# The column number of the row id of an atom.
ROW_ID: Final = -1
# A payload has at least this many columns.
MIN_PAYLOAD_COLUMNS: Final = 2
# A row id saves all but one column of the payload in each column order in which joins read the
# atom. In a join with comparisons, it replaces the payload only if it saves at least this many
# columns. With fewer, it costs more than it saves: the dictionary takes the payload and four words
# for each row, and a lookup in it takes longer than to sort and merge a few columns. Joins without
# comparisons always use row ids, because the states that earlier versions stored have them.
MIN_SAVED_COLUMNS: Final = 7
# Antijoins with keys of several atoms that become subtracted joins; further ones are applied to the
# result of the join.
MAX_SUBTRACTED_ANTIJOINS: Final = 4


def plan_block(block: SelectBlock) -> PlanNode:
    """Return the plan of a block."""
    subtracted = [
        antijoin for antijoin in block.antijoins if len(block.atoms_of(antijoin.keys)) != 1
    ]
    if len(block.atoms) > 1 and len(subtracted) > MAX_SUBTRACTED_ANTIJOINS:
        return plan_block(_postpone_antijoins(block, subtracted[MAX_SUBTRACTED_ANTIJOINS:]))
    conditions = Conditions(block)
    if len(block.atoms) == 1 and not block.antijoins:
        return push_projection(conditions.atom(0), block.outputs)
    planner = _JoinPlanner(block, conditions)
    result = planner.result()

    def result_column(column: Column) -> Expression:
        position = planner.position(column)
        value = Column(position, result.fields[position].type)
        return value if value.type == column.type else call("cast", value, type=column.type)

    residual = (substitute(predicate, result_column) for predicate in conditions.residual)
    outputs = [substitute(expression, result_column) for expression in block.outputs]
    return push_projection(reduce(push_filter, residual, result), outputs)


def _postpone_antijoins(block: SelectBlock, postponed: Sequence[AntijoinOperand]) -> SelectBlock:
    """Return a block of one atom, the joined block, with the ``postponed`` antijoins."""
    ids = set(map(id, postponed))
    remaining = tuple(operand for operand in block.antijoins if id(operand) not in ids)
    keys = [key for operand in postponed for key in operand.keys]
    joined = SelectBlock.of(
        plan_block(replace(block, antijoins=remaining, outputs=(*block.outputs, *keys)))
    )
    width = len(block.outputs)
    joined_keys = iter(joined.outputs[width:])
    antijoins = tuple(
        replace(operand, keys=tuple(islice(joined_keys, len(operand.keys))))
        for operand in postponed
    )
    return replace(joined, antijoins=antijoins, outputs=joined.outputs[:width])


class _JoinPlanner:
    """Plans the join of one block: its inputs with their columns, its variables and its head."""

    def __init__(self, block: SelectBlock, conditions: Conditions) -> None:
        self._block = block
        self._conditions = conditions
        self._slots: list[dict[Expression, int]] = [{} for _ in block.atoms]
        self._equalities = [(self._slot(a), self._slot(b)) for a, b in conditions.equalities]
        self._comparisons = [
            (self._slot(a), op, self._slot(b), shift) for a, op, b, shift in conditions.comparisons
        ]
        # For each atom, the antijoins that are applied to it before the join.
        self._atom_antijoins: list[list[AntijoinOperand]] = [[] for _ in block.atoms]
        # The antijoins that become subtracted joins, with the slots of their keys.
        self._subtracted: list[tuple[AntijoinOperand, list[Slot]]] = []
        for antijoin in block.antijoins:
            atoms = block.atoms_of(antijoin.keys)
            if len(atoms) == 1 or len(block.atoms) == 1:
                keys = tuple(conditions.local(key) for key in antijoin.keys)
                operand = AntijoinOperand(antijoin.plan, keys)
                self._atom_antijoins[min(atoms, default=0)].append(operand)
            else:
                self._subtracted.append((antijoin, [self._slot(key) for key in antijoin.keys]))
        results = [*block.outputs, *conditions.residual]
        result_columns = {column for result in results for column in _columns_in(result)}
        self._result_slots = {
            column.index: self._slot(column)
            for column in sorted(result_columns, key=lambda column: column.index)
        }
        self._payloads = [self._payload_slots(atom) for atom in range(len(block.atoms))]
        self._encoded = [self._encoded_slots(atom) for atom in range(len(block.atoms))]
        self._inputs = [self._input(atom) for atom in range(len(block.atoms))]
        self._head = self._head_slots()

    def result(self) -> PlanNode:
        """Return the join minus the joins with antijoin keys, with row ids decoded."""
        if len(self._block.atoms) == 1:
            joined = self._inputs[0][0]
        else:
            joins: list[PlanNode] = []
            for size in range(len(self._subtracted) + 1):
                for chosen in combinations(self._subtracted, size):
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

    def position(self, column: Column) -> int:
        """Return the position of a column of the block in the result."""
        slot = self._result_slots[column.index]
        position = 0
        for slots in self._head:
            atom, k = slots[0]
            encoded = self._encoded[atom] if k == ROW_ID else ()
            if slot in encoded:
                return position + encoded.index(slot)
            if slot in slots:
                return position
            position += len(encoded) or 1
        raise AssertionError(f"{column} is not in the result")

    def _slot(self, expression: Expression) -> Slot:
        """Return the slot of an expression over one atom; add it if it is new.

        A constant reads no atom and is added to the first one.
        """
        atom = min(self._block.atoms_of([expression]), default=0)
        slots = self._slots[atom]
        return atom, slots.setdefault(self._conditions.local(expression), len(slots))

    def _encoded_slots(self, atom: int) -> tuple[Slot, ...]:
        """Return the slots of an atom that its row id replaces."""
        payload = self._payloads[atom]
        if not self._comparisons:
            return payload
        saved_columns = (len(payload) - 1) * self._count_orders(atom)
        return payload if saved_columns >= MIN_SAVED_COLUMNS else ()

    def _count_orders(self, atom: int) -> int:
        """Return in how many column orders joins look up rows of an atom; an estimate.

        There is one for each set of its columns that are equal to those of one other atom.
        """
        slots: dict[int, set[Slot]] = {}
        for pair in self._equalities:
            for slot, other in (pair, pair[::-1]):
                if slot[0] == atom and other[0] != atom:
                    slots.setdefault(other[0], set()).add(slot)
        return max(len(set(map(frozenset, slots.values()))), 1)

    def _payload_slots(self, atom: int) -> tuple[Slot, ...]:
        """Return the slots of an atom that the join only passes on; none if there are too few."""
        if len(self._block.atoms) == 1 or is_recursive(self._block.atoms[atom]):
            # The dictionary of row ids would get an entry for every iteration that a row ever had.
            return ()
        join_slots = {slot for pair in self._equalities for slot in pair}
        join_slots |= {slot for left, _, right, _ in self._comparisons for slot in (left, right)}
        join_slots |= {slot for _, keys in self._subtracted for slot in keys}
        results = dict.fromkeys(self._result_slots.values())
        payload = tuple(slot for slot in results if slot[0] == atom and slot not in join_slots)
        return payload if len(payload) >= MIN_PAYLOAD_COLUMNS else ()

    def _input(self, atom: int) -> tuple[PlanNode, tuple[Slot, ...]]:
        """Return an atom as the join reads it, and the slot of each of its columns.

        The columns are sorted by their expressions, so that atoms over one relation can share one
        input. The payload is last, because joins look up rows by the other columns: the input is
        then in the order that most joins read.
        """
        expressions = {(atom, k): expression for expression, k in self._slots[atom].items()}

        def sort_key(slot: Slot) -> tuple[list[int], str]:
            return sorted(columns_of(expressions[slot])), str(expressions[slot])

        payload = self._payloads[atom]
        kept_slots = [slot for slot in sorted(expressions, key=sort_key) if slot not in payload]
        rows = self._conditions.atom(atom)
        outputs = [expressions[slot] for slot in (*kept_slots, *payload)]
        plan = _apply_antijoins(rows, outputs, self._atom_antijoins[atom])
        if self._encoded[atom]:
            return RowIdEncode(plan, len(kept_slots)), (*kept_slots, (atom, ROW_ID))
        return plan, (*kept_slots, *payload)

    def _join(self, chosen: Sequence[tuple[AntijoinOperand, list[Slot]]]) -> Join:
        """Return the join of all atoms with the key sets of the chosen antijoins."""
        variables = self._variables([keys for _, keys in chosen])
        input_variables = [tuple(variables[slot] for slot in slots) for _, slots in self._inputs]
        for atom, (_, keys) in enumerate(chosen, len(self._inputs)):
            input_variables.append(tuple(variables[atom, k] for k in range(len(keys))))
        return Join(
            (*(plan for plan, _ in self._inputs), *(antijoin.plan for antijoin, _ in chosen)),
            tuple(input_variables),
            tuple(
                VariableComparison(variables[a], op, variables[b], shift)
                for a, op, b, shift in self._comparisons
            ),
            tuple(variables[slots[0]] for slots in self._head),
        )

    def _head_slots(self) -> list[list[Slot]]:
        """Return, for each column of the join's head, the slots that are bound to it."""
        variables = self._variables(())
        head: dict[int, list[Slot]] = {}
        for slot in self._result_slots.values():
            atom, _ = slot
            input_slot = (atom, ROW_ID) if slot in self._encoded[atom] else slot
            head.setdefault(variables[input_slot], []).append(input_slot)
        if len(self._block.atoms) == 1:
            return [[slot] for slot in self._inputs[0][1]]
        return list(head.values())

    def _variables(self, keys: Iterable[Sequence[Slot]]) -> dict[Slot, int]:
        """Return the variable of each slot: equal slots have the same variable (union-find).

        Key ``k`` of the subtracted antijoin ``s`` has the slot ``(len(atoms) + s, k)``.

        Args:
            keys: For each subtracted antijoin, the slots that its keys are equal to.
        """
        equalities = list(self._equalities)
        slots = [slot for _, slots in self._inputs for slot in slots]
        for atom, key_slots in enumerate(keys, len(self._inputs)):
            equalities += [(slot, (atom, k)) for k, slot in enumerate(key_slots)]
            slots += [(atom, k) for k in range(len(key_slots))]
        parent = {slot: slot for slot in slots}

        def find(slot: Slot) -> Slot:
            while parent[slot] != slot:
                slot = parent[slot]
            return slot

        for left, right in equalities:
            first, second = sorted((find(left), find(right)))
            parent[second] = first
        numbers: dict[Slot, int] = {}
        return {slot: numbers.setdefault(find(slot), len(numbers)) for slot in slots}


def _apply_antijoins(
    rows: PlanNode, outputs: Sequence[Expression], antijoins: Sequence[AntijoinOperand]
) -> PlanNode:
    """Return ``outputs`` of the rows that no antijoin removes: ``rows - rows ⋈ keys``."""
    keys = [key for antijoin in antijoins for key in antijoin.keys if key not in outputs]
    expressions = [*outputs, *dict.fromkeys(keys)]
    plan = push_projection(rows, expressions)
    variables = tuple(range(len(expressions)))
    for number, antijoin in enumerate(antijoins, 1):
        key_variables = tuple(expressions.index(key) for key in antijoin.keys)
        # After the last difference no keys are needed. A head without them lets the join count rows
        # instead of enumerating them.
        head = variables[: len(outputs)] if number == len(antijoins) else variables
        minuend = push_projection(plan, columns(plan)[: len(head)])
        matched = Join((plan, antijoin.plan), (variables, key_variables), (), head)
        plan = Union((minuend, Negate(matched)))
    return plan


def _columns_in(expression: Expression) -> list[Column]:
    if isinstance(expression, Column):
        return [expression]
    arguments = expression.arguments if isinstance(expression, Call) else ()
    return [column for argument in arguments for column in _columns_in(argument)]
