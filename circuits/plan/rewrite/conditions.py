"""Conditions: the predicates of a block, sorted by where they are checked.

- A condition on one atom filters it before it is stored. Those that say that something is not NULL
  come first and in one order, so that atoms filtered alike are one relation.
- An equality between expressions of two atoms makes them one variable; its sides are not NULL.
- An order or inequality between expressions of two atoms is checked inside the join, by codes,
  where codes have the order of the values; its sides are not NULL either.
- What is left over (it reads three atoms, or computes over two) filters the result.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from circuits.plan.expressions import Call, Column, Expression, columns_of, conjuncts, substitute
from circuits.plan.nodes import Plan
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.rewrite.projection import push_filter
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.runtime.row_batch import keeps_codes
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call

__all__ = ["Conditions"]

COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!="}

# Only asked for the codes of types, never for those of values.
_CODECS: Final = Codecs()

Pair = tuple[Expression, Expression]


class Conditions:
    """The predicates of a block.

    Attributes:
        links: Pairs of expressions, each over one atom, that are the same.
        compared: Pairs of such expressions with the operator between them.
        residual: Predicates over the block's columns that filter the result.
    """

    def __init__(self, block: SelectBlock) -> None:
        self.block = block
        self.links: list[Pair] = []
        self.compared: list[tuple[Expression, str, Expression]] = []
        self.residual: list[Expression] = []
        self._owner = [i for i, atom in enumerate(block.atoms) for _ in atom.fields]
        self._filters: list[list[Expression]] = [[] for _ in block.atoms]
        self._present: list[set[Expression]] = [set() for _ in block.atoms]
        for predicate in conjuncts(block.predicates):
            self._sort(predicate)

    def local(self, expression: Expression) -> Expression:
        """An expression of one atom, over that atom's own columns."""
        starts = self.block.starts
        return substitute(
            expression, lambda c: Column(c.index - starts[self._owner[c.index]], c.type)
        )

    def atom(self, index: int) -> Plan:
        """An atom with its filters."""
        plan = self.block.atoms[index]
        present = sorted(self._present[index], key=lambda e: (sorted(columns_of(e)), str(e)))
        there = [call("not", call("is_null", e)) for e in present if is_nullable(plan, e)]
        if len(there) > 1:
            there = [call("and", *there)]
        return reduce(push_filter, [*there, *self._filters[index]], plan)

    def _sort(self, predicate: Expression) -> None:
        holders = self.block.atoms_of([predicate])
        if len(holders) <= 1:
            atom = min(holders, default=0)
            subject = _present(predicate)
            if subject is not None:
                self._present[atom].add(self.local(subject))
            else:
                self._filters[atom].append(self.local(predicate))
            return
        sides = self._sides(predicate)
        if sides is None or not isinstance(predicate, Call):
            self.residual.append(predicate)
            return
        if predicate.function != "same":
            for side in sides:
                (atom,) = self.block.atoms_of([side])
                self._present[atom].add(self.local(side))
        if predicate.function in ("eq", "same"):
            self.links.append(sides)
        else:
            self.compared.append((sides[0], COMPARISONS[predicate.function], sides[1]))

    def _sides(self, predicate: Expression) -> Pair | None:
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


def _present(predicate: Expression) -> Expression | None:
    """What a predicate says is not NULL, if that is all it says."""
    if isinstance(predicate, Call) and predicate.function == "not":
        (inner,) = predicate.arguments
        if isinstance(inner, Call) and inner.function == "is_null" and columns_of(inner):
            return inner.arguments[0]
    return None


def _plain(expression: Expression) -> Expression:
    """The expression without casts that do not change the code."""
    while isinstance(expression, Call) and expression.function == "cast":
        (inner,) = expression.arguments
        if not keeps_codes(inner.type, expression.type, _CODECS):
            break
        expression = inner
    return expression
