"""From a block to one N-way join.

::

    block  =  outputs(residual(Σ over S ⊆ absent of (-1)^|S| · ⋈ (atoms, S)))

- A condition on one atom filters it before it is stored.
- An equality between expressions of two atoms makes them one variable; columns that are computed
  for it are computed before the join. Its sides are not NULL.
- An order or inequality between two atoms' expressions is checked inside the join, by codes, where
  codes have the order of the values.
- What is left over (it reads three atoms, or computes over two) filters the result.
- An antijoin on keys of one atom of several is made before the join; one on keys of more atoms is a
  second join, subtracted.

Of each atom only the columns that are joined, compared or asked for are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from circuits.relational import Between, Join, Negate, Plan, Union, columns

__all__ = ["finish"]

COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!="}

# Column k of atom i, as the join sees it.
Slot = tuple[int, int]

# Only asked for the types' codes, never for those of values.
_CODECS: Final = Codecs()


def finish(block: Block) -> Plan:
    """The plan of a block."""
    shape = _Shape(block)
    if len(block.atoms) == 1 and not block.absent:
        return projected(shape.atoms[0], block.outputs)
    wanted = [*block.outputs, *shape.residual]
    head = sorted({c for e in wanted for c in columns_of(e)})
    types = {c.index: c.type for e in wanted for c in _columns(e)}
    slots = {c: shape.slot(Column(c, types[c])) for c in head}
    joins: list[Plan] = []
    for size in range(len(shape.absent) + 1):
        for chosen in combinations(shape.absent, size):
            join = shape.join(chosen, [slots[c] for c in head])
            joins.append(Negate(join) if size % 2 else join)
    # Two columns that are one variable are one column of the join.
    variables = shape.variables(())
    order = list(dict.fromkeys(variables[slots[c]] for c in head))
    place = {c: order.index(variables[slots[c]]) for c in head}
    result = joins[0] if len(joins) == 1 else Union(tuple(joins))

    def moved(column: Column) -> Expression:
        at = place[column.index]
        found = Column(at, joins[0].fields[at].type)
        return found if found.type == column.type else call("cast", found, type=column.type)

    for predicate in shape.residual:
        result = filtered(result, substitute(predicate, moved))
    return projected(result, [substitute(e, moved) for e in block.outputs])


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
        self._filters: list[list[Expression]] = [[] for _ in block.atoms]
        self._present: list[set[Expression]] = [set() for _ in block.atoms]
        for predicate in conjuncts(block.predicates):
            self._sort(predicate)
        before: list[list[Absent]] = [[] for _ in block.atoms]
        for absent in block.absent:
            holders = block.atoms_of(absent.keys)
            if len(holders) == 1 and len(block.atoms) > 1:
                (atom,) = holders
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

    def join(self, chosen: Sequence[tuple[Absent, list[Slot]]], head: Sequence[Slot]) -> Join:
        """The join of all atoms and the chosen sets of keys."""
        inputs = [
            projected(atom, list(slots))
            for atom, slots in zip(self.atoms, self._slots, strict=True)
        ]
        inputs.extend(absent.plan for absent, _ in chosen)
        variables = self.variables([keys for _, keys in chosen])
        return Join(
            tuple(inputs),
            tuple(
                tuple(variables[i, k] for k in range(len(plan.fields)))
                for i, plan in enumerate(inputs)
            ),
            tuple(Between(variables[a], op, variables[b]) for a, op, b in self._compared),
            tuple(dict.fromkeys(variables[slot] for slot in head)),
        )

    def variables(self, keys: Sequence[Sequence[Slot]]) -> dict[Slot, int]:
        """The variable of each slot; set ``s`` of ``keys`` is atom ``len(atoms) + s``."""
        atoms = len(self.atoms)
        links = list(self._links)
        slots = [(i, k) for i, columns in enumerate(self._slots) for k in range(len(columns))]
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
        plan = reduce(filtered, filters, plan)
        if absent:
            plan = finish(Block((plan,), (), tuple(absent), columns(plan)))
        return plan


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
