"""From a block to one N-way join.

::

    block  =  outputs(residual(Σ over S ⊆ absent of (-1)^|S| · ⋈ (atoms, S)))

- A condition on one atom filters it before it is stored.
- An equality between expressions of two atoms makes them one variable; columns that are computed
  for it are computed before the join. Its sides are not NULL.
- An order or inequality between two atoms' expressions is checked inside the join, by codes, where
  codes have the order of the values.
- What is left over (it reads three atoms, or computes over two) filters the result.
- An antijoin on keys of one atom is made before the join; one on keys of several atoms is a second
  join, subtracted.

Of each atom only the columns that are joined, compared or asked for are kept; several that are
only asked for travel as one, the payload of their row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Final

from circuits.codec import Codecs
from circuits.expression import (
    Call,
    Column,
    Expression,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.functions import call
from circuits.lowering.block import Absent, Block
from circuits.lowering.nullable import is_nullable
from circuits.lowering.project import filtered, projected
from circuits.relational import Between, Join, Negate, Pack, Plan, Union, Unpack, columns

__all__ = ["finish"]

COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!="}

# Column k of atom i, as the join sees it.
Slot = tuple[int, int]
# The column that holds all the columns that an atom carries along.
PAYLOAD: Final = -1
# Fewer columns than this are columns of the join themselves.
PAYLOAD_MINIMUM: Final = 2

# Only asked for the types' codes, never for those of values.
_CODECS: Final = Codecs()


def finish(block: Block) -> Plan:
    """The plan of a block."""
    shape = _Shape(block)
    if len(block.atoms) == 1:
        return projected(shape.atoms[0], block.outputs)
    wanted = [*block.outputs, *shape.residual]
    types = {c.index: c for e in wanted for c in _columns(e)}
    slots = {index: shape.slot(types[index]) for index in sorted(types)}
    shape.pack(slots.values())
    joins: list[Plan] = []
    for size in range(len(shape.absent) + 1):
        for chosen in combinations(shape.absent, size):
            join = shape.join(chosen, slots.values())
            joins.append(Negate(join) if size % 2 else join)
    result = shape.unpacked(joins[0] if len(joins) == 1 else Union(tuple(joins)), slots.values())
    place = shape.places(slots.values())

    def moved(column: Column) -> Expression:
        at = place[slots[column.index]]
        found = Column(at, result.fields[at].type)
        return found if found.type == column.type else call("cast", found, type=column.type)

    rows = reduce(filtered, (substitute(p, moved) for p in shape.residual), result)
    return projected(rows, [substitute(e, moved) for e in block.outputs])


class _Shape:
    """A block, sorted into filtered atoms, links between slots, comparisons and the rest."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.residual: list[Expression] = []
        self.absent: list[tuple[Absent, list[Slot]]] = []
        self._links: list[tuple[Slot, Slot]] = []
        self._compared: list[tuple[Slot, str, Slot]] = []
        self._owner = [i for i, atom in enumerate(block.atoms) for _ in atom.fields]
        self._starts = block.starts
        self._slots: list[dict[Expression, int]] = [{} for _ in block.atoms]
        # Per atom the slots that travel as its payload.
        self._packed: list[tuple[Slot, ...]] = [() for _ in block.atoms]
        self._filters: list[list[Expression]] = [[] for _ in block.atoms]
        self._present: list[set[Expression]] = [set() for _ in block.atoms]
        for predicate in conjuncts(block.predicates):
            self._sort(predicate)
        before: list[list[Absent]] = [[] for _ in block.atoms]
        for absent in block.absent:
            holders = block.atoms_of(absent.keys)
            if len(holders) == 1 or len(block.atoms) == 1:
                atom = min(holders, default=0)
                keys = tuple(self._local(key) for key in absent.keys)
                before[atom].append(replace(absent, keys=keys))
            else:
                self.absent.append((absent, [self.slot(key) for key in absent.keys]))
        self.atoms = [self._atom(i, before[i]) for i in range(len(block.atoms))]

    def slot(self, expression: Expression) -> Slot:
        """The slot of an expression over one atom, new if need be."""
        (atom,) = self.block.atoms_of([expression])
        slots = self._slots[atom]
        return atom, slots.setdefault(self._local(expression), len(slots))

    def pack(self, head: Iterable[Slot]) -> None:
        """Let slots that are only asked for travel as the payload of their atom's row."""
        joined = {slot for link in self._links for slot in link}
        joined |= {slot for left, _, right in self._compared for slot in (left, right)}
        joined |= {slot for _, keys in self.absent for slot in keys}
        for atom in range(len(self.atoms)):
            carried = [slot for slot in head if slot[0] == atom and slot not in joined]
            if len(carried) >= PAYLOAD_MINIMUM:
                self._packed[atom] = tuple(carried)

    def join(self, chosen: Sequence[tuple[Absent, list[Slot]]], head: Iterable[Slot]) -> Join:
        """The join of all atoms and the chosen sets of keys."""
        variables = self.variables([keys for _, keys in chosen])
        inputs: list[Plan] = []
        bound: list[tuple[int, ...]] = []
        for i in range(len(self.atoms)):
            plan, slots = self._input(i)
            inputs.append(plan)
            bound.append(tuple(variables[slot] for slot in slots))
        for i, (absent, keys) in enumerate(chosen, len(inputs)):
            inputs.append(absent.plan)
            bound.append(tuple(variables[i, k] for k in range(len(keys))))
        return Join(
            tuple(inputs),
            tuple(bound),
            tuple(Between(variables[a], op, variables[b]) for a, op, b in self._compared),
            tuple(dict.fromkeys(variables[self._carrier(slot)] for slot in head)),
        )

    def unpacked(self, joined: Plan, head: Iterable[Slot]) -> Plan:
        """The join's columns with payloads taken apart."""
        payloads = []
        for column, slots in enumerate(self._head(head)):
            atom, k = slots[0]
            if k == PAYLOAD:
                pack, _ = self._input(atom)
                assert isinstance(pack, Pack)
                payloads.append((column, pack))
        return Unpack(joined, tuple(payloads)) if payloads else joined

    def places(self, head: Iterable[Slot]) -> dict[Slot, int]:
        """The column of each slot after `unpacked`."""
        place: dict[Slot, int] = {}
        at = 0
        for slots in self._head(head):
            atom, k = slots[0]
            columns = self._packed[atom] if k == PAYLOAD else ()
            for slot in columns:
                place[slot] = at
                at += 1
            if not columns:
                place.update(dict.fromkeys(slots, at))
                at += 1
        return place

    def _head(self, head: Iterable[Slot]) -> list[list[Slot]]:
        """Per column of the join the slots that it holds."""
        variables = self.variables(())
        columns: dict[int, list[Slot]] = {}
        for slot in head:
            carrier = self._carrier(slot)
            columns.setdefault(variables[carrier], []).append(carrier)
        return list(columns.values())

    def _carrier(self, slot: Slot) -> Slot:
        return (slot[0], PAYLOAD) if slot in self._packed[slot[0]] else slot

    def _input(self, atom: int) -> tuple[Plan, list[Slot]]:
        """An atom as the join reads it, and the slot of each column.

        Columns come in their own order, so that atoms over one relation can be one input.
        """
        slots = self._slots[atom]
        ordered = sorted(slots, key=lambda e: (sorted(columns_of(e)), str(e)))
        packed = self._packed[atom]
        if not packed:
            return projected(self.atoms[atom], ordered), [(atom, slots[e]) for e in ordered]
        kept = [e for e in ordered if (atom, slots[e]) not in packed]
        expressions = {(atom, k): e for e, k in slots.items()}
        rows = projected(self.atoms[atom], [*kept, *(expressions[slot] for slot in packed)])
        return Pack(rows, len(kept)), [*((atom, slots[e]) for e in kept), (atom, PAYLOAD)]

    def variables(self, keys: Sequence[Sequence[Slot]]) -> dict[Slot, int]:
        """The variable of each slot; set ``s`` of ``keys`` is atom ``len(atoms) + s``."""
        atoms = len(self.atoms)
        links = list(self._links)
        slots = [(i, k) for i, columns in enumerate(self._slots) for k in range(len(columns))]
        slots += [(i, PAYLOAD) for i, packed in enumerate(self._packed) if packed]
        for s, listed in enumerate(keys):
            links += [(slot, (atoms + s, k)) for k, slot in enumerate(listed)]
            slots += [(atoms + s, k) for k in range(len(listed))]
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

    def _sort(self, predicate: Expression) -> None:
        holders = self.block.atoms_of([predicate])
        if len(holders) <= 1:
            atom = min(holders, default=0)
            if not self._is_presence(predicate, atom):
                self._filters[atom].append(self._local(predicate))
            return
        sides = self._sides(predicate)
        if sides is None or not isinstance(predicate, Call):
            self.residual.append(predicate)
            return
        left, right = sides
        if predicate.function != "same":
            self._require(left)
            self._require(right)
        if predicate.function in ("eq", "same"):
            self._links.append((self.slot(left), self.slot(right)))
        else:
            op = COMPARISONS[predicate.function]
            self._compared.append((self.slot(left), op, self.slot(right)))

    def _sides(self, predicate: Expression) -> tuple[Expression, Expression] | None:
        """The two sides of a comparison of two atoms that can be made on codes."""
        if not isinstance(predicate, Call):
            return None
        if predicate.function not in ("eq", "same", *COMPARISONS):
            return None
        left, right = map(_plain, predicate.arguments)
        holders = [self.block.atoms_of([side]) for side in (left, right)]
        if any(len(atoms) != 1 for atoms in holders) or holders[0] == holders[1]:
            return None
        codecs = [_CODECS.codec(side.type) for side in (left, right)]
        if codecs[0].space != codecs[1].space:
            return None
        ordered = codecs[0].ordered or predicate.function in ("eq", "same", "ne")
        return (left, right) if ordered else None

    def _require(self, expression: Expression) -> None:
        (atom,) = self.block.atoms_of([expression])
        self._present[atom].add(self._local(expression))

    def _is_presence(self, predicate: Expression, atom: int) -> bool:
        """Take up ``x IS NOT NULL``; conditions of this kind are made in one order, first."""
        if isinstance(predicate, Call) and predicate.function == "not":
            (inner,) = predicate.arguments
            if isinstance(inner, Call) and inner.function == "is_null" and columns_of(inner):
                self._present[atom].add(self._local(inner.arguments[0]))
                return True
        return False

    def _local(self, expression: Expression) -> Expression:
        """The expression over the columns of its only atom."""
        return substitute(
            expression, lambda c: Column(c.index - self._starts[self._owner[c.index]], c.type)
        )

    def _atom(self, index: int, absent: Sequence[Absent]) -> Plan:
        plan = self.block.atoms[index]
        present = sorted(self._present[index], key=lambda e: (sorted(columns_of(e)), str(e)))
        needed = [e for e in present if is_nullable(plan, e)]
        filters = [call("not", call("is_null", e)) for e in needed] + self._filters[index]
        return reduce(_without, absent, reduce(filtered, filters, plan))


def _without(plan: Plan, absent: Absent) -> Plan:
    """The rows of a plan whose keys are not there: ``plan - plan ⋈ keys``."""
    width = len(plan.fields)
    computed = [key for key in absent.keys if not isinstance(key, Column)]
    keyed = projected(plan, (*columns(plan), *computed)) if computed else plan
    place = {key: width + k for k, key in enumerate(computed)}
    bound = tuple(key.index if isinstance(key, Column) else place[key] for key in absent.keys)
    every = tuple(range(len(keyed.fields)))
    present = Join((keyed, absent.plan), (every, bound), (), every[:width])
    return Union((plan, Negate(present)))


def _plain(expression: Expression) -> Expression:
    """The expression without casts that do not change the code."""
    while isinstance(expression, Call) and expression.function == "cast":
        (inner,) = expression.arguments
        if _CODECS.codec(inner.type).space != _CODECS.codec(expression.type).space:
            break
        expression = inner
    return expression


def _columns(expression: Expression) -> list[Column]:
    if isinstance(expression, Column):
        return [expression]
    arguments = expression.arguments if isinstance(expression, Call) else ()
    return [column for argument in arguments for column in _columns(argument)]
