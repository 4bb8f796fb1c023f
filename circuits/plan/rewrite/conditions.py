"""Conditions: the predicates of a block, classified by where they are evaluated.

A block is a flat SELECT … FROM … WHERE (`circuits.plan.rewrite.select_block`); an atom is one
relation in its FROM. There are four kinds of conditions:

- A condition on one atom, ``a.x > 0``, filters the atom before it is stored. IS NOT NULL conditions
  of columns are applied first and in a fixed order, so that atoms with the same filters share one
  relation. Conditions of columns and constants follow, then those of computed values: both
  ``a.s = '12' AND CAST(a.s AS INT) > 3`` and its reverse compute the cast only for the rows that
  the other condition keeps. IS NOT NULL conditions of computed values are applied last.
- An equality between expressions of two atoms, ``a.x = b.x``, makes them one variable. A filter on
  each atom removes the rows where its side is NULL.
- An inequality (``<``, ``<=``, ``>``, ``>=``, ``<>``) between expressions of two atoms is evaluated
  inside the join, on codes, if the order of the codes is the order of the values. NULLs on either
  side are filtered out in the same way. A constant duration is added there, too (the shift
  of the comparison). So ``a.t <= b.t + INTERVAL '1 hour'`` needs no stored column for the sum, and
  the join can start at either side: a value of one side limits the values of the other.
- Every other condition, ``a.x + b.x = 3``, filters the result of the join; these are the residual
  conditions.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.monotone_functions import added_duration
from circuits.plan.nodes import PlanNode
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.rewrite.projection import push_filter
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.runtime.row_batch import keeps_codes
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj.query import MAX_SHIFT

__all__ = ["Conditions", "computes_values"]

_SYMBOLS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!="}

# Used only for the properties of types, never to encode values.
_CODECS: Final = Codecs()

Pair = tuple[Expression, Expression]


class ShiftedComparison(NamedTuple):
    """``left op right + shift``; each side is over one atom.

    The shift is added to the code of the right side. For timestamps it is a number of ticks of
    their unit.
    """

    left: Expression
    op: str
    right: Expression
    shift: int


class Conditions:
    """The predicates of a block.

    Attributes:
        equalities: Pairs of expressions, each over one atom, that must have the same value.
        comparisons: Comparisons of such expressions.
        residual: Predicates over the block's columns that filter the result.
    """

    def __init__(self, block: SelectBlock) -> None:
        self.block = block
        self.equalities: list[Pair] = []
        self.comparisons: list[ShiftedComparison] = []
        self.residual: list[Expression] = []
        # For each column of the block, the position of its atom.
        self._atom_of_column = [i for i, atom in enumerate(block.atoms) for _ in atom.fields]
        self._filters: list[list[Expression]] = [[] for _ in block.atoms]
        # Expressions over each atom that must not be NULL.
        self._not_null: list[set[Expression]] = [set() for _ in block.atoms]
        for predicate in conjuncts(block.predicates):
            self._classify(predicate)
        self.comparisons = [self._shift(*compared) for compared in self.comparisons]
        self.equalities = [pair for pair in self.equalities if not self._is_implied(*pair)]

    def local(self, expression: Expression) -> Expression:
        """Return an expression with the column numbers of its atom instead of those of the block.

        All columns of the expression belong to one atom.
        """
        starts = self.block.starts
        return substitute(
            expression, lambda c: Column(c.index - starts[self._atom_of_column[c.index]], c.type)
        )

    def atom(self, index: int) -> PlanNode:
        """Return the plan of an atom with its filters."""
        plan = self.block.atoms[index]
        required = sorted(self._not_null[index], key=lambda e: (sorted(columns_of(e)), str(e)))
        required = [e for e in required if is_nullable(plan, e)]
        # A computed value may not exist for a row that the other conditions remove.
        columns = _not_null_checks([e for e in required if isinstance(e, Column)])
        computed = _not_null_checks([e for e in required if not isinstance(e, Column)])
        filters = sorted(self._filters[index], key=computes_values)  # keeps the order of equals
        return reduce(push_filter, [*columns, *filters, *computed], plan)

    def _classify(self, predicate: Expression) -> None:
        atoms = self.block.atoms_of([predicate])
        if len(atoms) <= 1:
            atom = min(atoms, default=0)
            subject = _not_null_operand(predicate)
            if subject is not None:
                self._not_null[atom].add(self.local(subject))
            else:
                self._filters[atom].append(self.local(predicate))
            return
        sides = self._sides(predicate)
        if sides is None or not isinstance(predicate, Call):
            self.residual.append(predicate)
            return
        if predicate.function != "same":  # IS NOT DISTINCT FROM
            for side in sides:
                (atom,) = self.block.atoms_of([side])
                self._not_null[atom].add(self.local(_without_duration(side)[0]))
        if predicate.function in ("eq", "same"):
            self.equalities.append(sides)
        else:
            operator = _SYMBOLS[predicate.function]
            self.comparisons.append(ShiftedComparison(sides[0], operator, sides[1], 0))

    def _shift(
        self, left: Expression, operator: str, right: Expression, shift: int
    ) -> ShiftedComparison:
        """Return a comparison with the constant durations of its sides moved to the shift.

        They remain in the sides if the conditions say that the sides without them are equal. Both
        sides would then be the same variable of the join, but a shift needs two variables.
        """
        (left_time, left_ticks), (right_time, right_ticks) = map(_without_duration, (left, right))
        all_ticks = shift + right_ticks - left_ticks
        if abs(all_ticks) > MAX_SHIFT or self._are_equal(left_time, right_time):
            return ShiftedComparison(left, operator, right, shift)
        return ShiftedComparison(left_time, operator, right_time, all_ticks)

    def _are_equal(self, left: Expression, right: Expression) -> bool:
        """Return whether the equalities imply that both are equal, as ``a = b and b = c``."""
        equal, size = {left}, 0
        while size < len(equal):
            size = len(equal)
            equal.update(e for pair in self.equalities if equal.intersection(pair) for e in pair)
        return right in equal

    def _is_implied(self, left: Expression, right: Expression) -> bool:
        """Return whether the other equalities imply that ``f(x, …)`` equals ``f(y, …)``."""
        if not (isinstance(left, Call) and isinstance(right, Call)):
            return False
        if (left.function, left.type) != (right.function, right.type):
            return False
        if len(left.arguments) != len(right.arguments):
            return False
        return all(
            (a == b and isinstance(a, Literal))
            or (a, b) in self.equalities
            or (b, a) in self.equalities
            or self._is_implied(a, b)
            for a, b in zip(left.arguments, right.arguments, strict=True)
        )

    def _sides(self, predicate: Expression) -> Pair | None:
        """Return both sides of a comparison of two atoms on codes; None for other predicates."""
        if not isinstance(predicate, Call):
            return None
        if predicate.function not in ("eq", "same", *_SYMBOLS):
            return None
        left, right = (_fold_durations(_without_casts(side)) for side in predicate.arguments)
        atoms = [self.block.atoms_of([side]) for side in (left, right)]
        if any(len(atoms_of_side) != 1 for atoms_of_side in atoms) or atoms[0] == atoms[1]:
            return None
        codecs = [_CODECS.codec(side.type) for side in (left, right)]
        if codecs[0].code_space != codecs[1].code_space:
            return None
        needs_order = predicate.function not in ("eq", "same", "ne")
        if needs_order and not codecs[0].ordered:
            return None
        return left, right


def computes_values(predicate: Expression) -> bool:
    """Return whether a predicate computes values, which may fail, before it compares them."""
    if not isinstance(predicate, Call):
        return False
    if predicate.function in ("and", "or", "not", "is_true", "is_null", "same", "eq", *_SYMBOLS):
        return any(map(computes_values, predicate.arguments))
    return not isinstance(_without_casts(predicate), Column)


def _not_null_checks(values: list[Expression]) -> list[Expression]:
    """Return the predicate that no value is NULL; none without values."""
    checks = [call("not", call("is_null", value)) for value in values]
    return [call("and", *checks)] if len(checks) > 1 else checks


def _not_null_operand(predicate: Expression) -> Expression | None:
    """Return ``e`` for the predicate ``e IS NOT NULL``, and None for other predicates."""
    if isinstance(predicate, Call) and predicate.function == "not":
        (inner,) = predicate.arguments
        if isinstance(inner, Call) and inner.function == "is_null" and columns_of(inner):
            return inner.arguments[0]
    return None


def _without_duration(expression: Expression) -> tuple[Expression, int]:
    """Return ``t`` and the ticks of ``d`` for ``t + d``; an expression and 0 for all others."""
    duration = added_duration(expression)
    return (expression, 0) if duration is None else duration


def _fold_durations(expression: Expression) -> Expression:
    """Return ``t + (a + b)`` for ``(t + a) + b``, and ``t`` for ``t + 0``, of durations."""
    match expression:
        case Call("date_add", (inner, Literal(0), Literal(0), Literal(last))):
            inner = _fold_durations(inner)
            match inner:
                case Call("date_add", (time, Literal(0), Literal(0), Literal(first))):
                    amounts = (Literal(part, pa.int64()) for part in (0, 0, first + last))
                    folded = call("date_add", time, *amounts)
                    return _fold_durations(folded) if folded.type == expression.type else expression
            return inner if last == 0 and inner.type == expression.type else expression
    return expression


def _without_casts(expression: Expression) -> Expression:
    """Return the expression without the outer casts that do not change the code."""
    while isinstance(expression, Call) and expression.function == "cast":
        (inner,) = expression.arguments
        if not keeps_codes(inner.type, expression.type, _CODECS):
            break
        expression = inner
    return expression
