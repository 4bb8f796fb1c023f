"""Block: a select-from-where, flat: atoms, predicates over all their columns, outputs.

Nested Cross, Filter, Map, Semi and left Outer become one block, and a block becomes one N-way join
(`circuits.plan.rewrite.join_planning`). The columns of all atoms are numbered through, so that
adding an atom at the end changes no expression. Anything else (Aggregate, Distinct, Union, TopK) is
an atom.

``absent`` are antijoins, each a set of keys that must not be there::

    block ▷ D  =  block - block ⋈ D        D distinct, its columns compared with keys of the block
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from circuits.plan.expressions import Column, Expression, columns_of, conjuncts, substitute
from circuits.plan.nodes import Plan, columns
from circuits.plan.rewrite.nullability import is_nullable

__all__ = ["AntijoinOperand", "SelectBlock"]


@dataclass(frozen=True)
class AntijoinOperand:
    """Rows whose ``keys`` (over the block's columns) are a row of ``plan``, a set, do not stay."""

    plan: Plan
    keys: tuple[Expression, ...]


@dataclass(frozen=True)
class SelectBlock:
    """Rows of ``outputs`` for all combinations of the atoms' rows for which the predicates hold."""

    atoms: tuple[Plan, ...]
    predicates: tuple[Expression, ...]
    absent: tuple[AntijoinOperand, ...]
    outputs: tuple[Expression, ...]

    @classmethod
    def of(cls, plan: Plan) -> SelectBlock:
        """The block of one atom."""
        return cls((plan,), (), (), columns(plan))

    @property
    def width(self) -> int:
        """The number of columns of all atoms."""
        return sum(len(atom.fields) for atom in self.atoms)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the columns of each atom begin."""
        starts, at = [], 0
        for atom in self.atoms:
            starts.append(at)
            at += len(atom.fields)
        return tuple(starts)

    def is_nullable(self, output: int) -> bool:
        """Whether an output may be NULL."""
        expression = self.outputs[output]
        if not isinstance(expression, Column):
            return True
        (atom,) = self.atoms_of([expression])
        local = Column(expression.index - self.starts[atom], expression.type)
        return is_nullable(self.atoms[atom], local)

    def where(self, *predicates: Expression) -> SelectBlock:
        """The block with further predicates, over its outputs."""
        added = [substitute(p, self.outputs) for p in conjuncts(predicates)]
        return replace(self, predicates=(*self.predicates, *added))

    def select(self, expressions: Sequence[Expression]) -> SelectBlock:
        """The block with other outputs, over its outputs."""
        return replace(self, outputs=tuple(substitute(e, self.outputs) for e in expressions))

    def times(self, other: SelectBlock) -> SelectBlock:
        """All combinations with another block; its outputs follow."""
        width = self.width

        def shifted(expression: Expression) -> Expression:
            return substitute(expression, lambda c: Column(c.index + width, c.type))

        return SelectBlock(
            self.atoms + other.atoms,
            self.predicates + tuple(map(shifted, other.predicates)),
            self.absent
            + tuple(AntijoinOperand(a.plan, tuple(map(shifted, a.keys))) for a in other.absent),
            self.outputs + tuple(map(shifted, other.outputs)),
        )

    def atoms_of(self, expressions: Sequence[Expression]) -> frozenset[int]:
        """The atoms whose columns the expressions read."""
        owner = [i for i, atom in enumerate(self.atoms) for _ in atom.fields]
        return frozenset(owner[c] for e in expressions for c in columns_of(e))

    def part(self, atoms: frozenset[int], outputs: Sequence[Expression]) -> SelectBlock:
        """Some of the atoms, with the predicates that are about them only.

        Every row of the block gives one of the part; so its keys contain those of the block.
        """
        chosen = sorted(atoms)
        place: dict[int, int] = {}
        for atom in chosen:
            for column in range(len(self.atoms[atom].fields)):
                place[self.starts[atom] + column] = len(place)

        def moved(expression: Expression) -> Expression:
            return substitute(expression, lambda c: Column(place[c.index], c.type))

        return SelectBlock(
            tuple(self.atoms[i] for i in chosen),
            tuple(moved(p) for p in self.predicates if columns_of(p) <= place.keys()),
            (),
            tuple(map(moved, outputs)),
        )
