"""Truth of a predicate for each row of a batch, computed from the int64 codes where possible.

The logic is three-valued as in SQL. The result is two masks, of the rows where the predicate is
TRUE and of those where it is FALSE; it is NULL for all other rows. Some predicates are computed in
numpy from codes: ``and``, ``or`` and ``not``, NULL tests, equality, and comparisons of columns and
constants whose codes have the order of the values. Codes order NaN as the greatest number, as SQL
does. All other expressions are evaluated in Arrow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, reduce, wraps
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime.code_arithmetic import columns_that_make_null
from circuits.runtime.evaluation import evaluate
from circuits.runtime.row_batch import RowBatch, keeps_codes
from circuits.types.codecs.arrow_buffers import bits_of, valid_of
from circuits.types.codecs.codec import NULL, Codec, Codecs
from circuits.types.codecs.decimals import WideDecimals
from dbsp_wcoj.values.interner import ABSENT
from dbsp_wcoj.zset import Int64Array

__all__ = [
    "CodeComparison",
    "Side",
    "Truth",
    "cached_by_codecs",
    "compares_codes",
    "comparison_of",
    "equalities_of",
    "true_rows",
    "truth",
]

Mask = npt.NDArray[np.bool_]
Codes = Int64Array | np.int64
E = TypeVar("E", bound=Expression)
T = TypeVar("T")


class Truth(NamedTuple):
    """Masks of the rows where a predicate is TRUE, and where it is FALSE."""

    true: Mask
    false: Mask


#: The most literals of an ``in`` that are compared one by one; Arrow looks up more of them at once.
MAX_EQUALITIES: Final = 16
OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

#: The comparisons for which the left side and the right side are checked for NULL.
CHECKED_FOR_NULL: Final = (frozenset({"lt", "le", "eq", "ne"}), frozenset({"gt", "ge", "ne"}))


def cached_by_codecs(function: Callable[[E, Codecs], T]) -> Callable[[E, Codecs], T]:
    """Return a function that computes its result once for each expression and each `Codecs`.

    A circuit has one `Codecs`, and the results for its expressions are freed with it.
    """

    @wraps(function)
    def cached(expression: E, codecs: Codecs) -> T:
        results: dict[E, T] | None = codecs.memos.get(function)
        if results is None:
            results = codecs.memos[function] = {}
        if expression not in results:
            results[expression] = function(expression, codecs)
        return results[expression]

    return cached


def truth(predicate: Expression, batch: RowBatch) -> Truth:
    """Compute the truth of a boolean expression for each row, once per batch.

    Raises:
        EvaluationError: Some expression has no value for a row.
    """
    result: Truth | None = batch.truths.get(predicate)
    if result is None:
        result = batch.truths[predicate] = _compute_truth(predicate, batch)
    return result


def true_rows(predicate: Expression, batch: RowBatch) -> Mask:
    """Return the mask of the rows where a boolean expression is TRUE, as `truth` does.

    Filters do not distinguish FALSE from NULL. This takes one pass over the codes for most
    comparisons, and `truth` takes six.

    Raises:
        EvaluationError: Some expression has no value for a row.
    """
    if not isinstance(predicate, Call):
        return truth(predicate, batch).true
    mask: Mask | None = batch.true_masks.get(predicate)
    if mask is None:
        mask = batch.true_masks[predicate] = _compute_true_rows(predicate, batch)
    return mask


def _compute_true_rows(predicate: Call, batch: RowBatch) -> Mask:
    function = predicate.function
    if function == "and" or function == "or":
        try:
            masks = [true_rows(argument, batch) for argument in predicate.arguments]
        except EvaluationError:  # the other arguments may decide the rows that fail
            return _evaluate_in_arrow(predicate, batch).true
        return _all(masks) if function == "and" else _any(masks)
    if function in OPERATORS:
        comparison = comparison_of(predicate, batch.codecs)
        if comparison is not None and comparison.can_compare(batch):
            return _compare_true(function, comparison, batch)
    elif function == "in":
        equalities = equalities_of(predicate, batch.codecs)
        if equalities is not None:
            return _any([_compare_true("eq", equality, batch) for equality in equalities])
    return truth(predicate, batch).true


def _compute_truth(predicate: Expression, batch: RowBatch) -> Truth:
    if isinstance(predicate, Call):
        arguments = predicate.arguments
        match predicate.function:
            case "and" | "or":
                try:
                    parts = [truth(a, batch) for a in arguments]
                except EvaluationError:  # the other arguments may decide the rows that fail
                    return _evaluate_in_arrow(predicate, batch)
                true, false = [p.true for p in parts], [p.false for p in parts]
                is_and = predicate.function == "and"
                return Truth(_all(true), _any(false)) if is_and else Truth(_any(true), _all(false))
            case "not":
                inner = truth(arguments[0], batch)
                return Truth(inner.false, inner.true)
            case "is_true":
                inner = truth(arguments[0], batch)
                return Truth(inner.true, ~inner.true)
            case "is_null":
                columns = columns_that_make_null(arguments[0])
                if columns:
                    null = _any([batch.codes(column) == NULL for column in columns])
                    return Truth(null, ~null)
            case "in":
                equalities = equalities_of(predicate, batch.codecs)
                if equalities is not None:
                    parts = [_compare(operator.eq, equality, batch) for equality in equalities]
                    return Truth(_any([p.true for p in parts]), _all([p.false for p in parts]))
            case "same":  # IS NOT DISTINCT FROM: never NULL
                comparison = comparison_of(predicate, batch.codecs)
                if comparison is not None:
                    same = comparison.left.codes(batch) == comparison.right.codes(batch)
                    return Truth(same, ~same)
            case function if function in OPERATORS:
                comparison = comparison_of(predicate, batch.codecs)
                if comparison is not None and comparison.can_compare(batch):
                    return _compare(OPERATORS[function], comparison, batch)
    return _evaluate_in_arrow(predicate, batch)


@cached_by_codecs
def compares_codes(predicate: Expression, codecs: Codecs) -> bool:
    """Return whether `truth` computes a predicate from codes alone, so that it cannot fail."""
    if not isinstance(predicate, Call):
        return False
    arguments = predicate.arguments
    match predicate.function:
        case "and" | "or" | "not" | "is_true":
            return all(compares_codes(argument, codecs) for argument in arguments)
        case "is_null":
            return bool(columns_that_make_null(arguments[0]))
        case "in":
            return equalities_of(predicate, codecs) is not None
        case function if function == "same" or function in OPERATORS:
            comparison = comparison_of(predicate, codecs)
            return comparison is not None and comparison.is_always_by_codes
    return False


class Side(NamedTuple):
    """A side of a comparison: a column, a constant code, or a value that may have no code yet.

    A string gets its code when a row first has it, which may be in a later step. Then ``lookup``
    returns the code.
    """

    column: int | None = None
    code: np.int64 | None = None
    lookup: Callable[[], int | None] = lambda: None

    def codes(self, batch: RowBatch) -> Codes:
        """Return the codes of a column, or the constant code."""
        return self.constant() if self.column is None else batch.codes(self.column)

    def constant(self) -> np.int64:
        """Return the code of a side that is not a column; `ABSENT` if no row has the value."""
        if self.code is not None:
            return self.code
        code = self.lookup()
        return np.int64(ABSENT if code is None else code)


class CodeComparison(NamedTuple):
    """A comparison by codes; at least one side is a column.

    Attributes:
        left: The first side.
        right: The second side.
        wide: The coding of both sides if it is that of wide decimals and the comparison is of their
            order. Then the codes are compared if they have the order of the values; else None.
    """

    left: Side
    right: Side
    wide: WideDecimals | None = None

    @property
    def is_always_by_codes(self) -> bool:
        """True if the comparison never needs the values."""
        return self.wide is None

    def can_compare(self, batch: RowBatch) -> bool:
        """Return whether the codes decide the comparison for these rows."""
        if self.wide is None:
            return True
        # A constant code is inline, or NULL.
        codes = (np.atleast_1d(s.codes(batch)) for s in (self.left, self.right) if s.code is None)
        return all(map(self.wide.are_ordered, codes))


def _compare(
    compare: Callable[[Any, Any], Any], comparison: CodeComparison, batch: RowBatch
) -> Truth:
    left, right = comparison.left.codes(batch), comparison.right.codes(batch)
    result = compare(left, right)
    if comparison.left.column is None:
        present = (right != NULL) & bool(left != NULL)
    elif comparison.right.column is None:
        present = (left != NULL) & bool(right != NULL)
    else:
        present = (left != NULL) & (right != NULL)
    return Truth(present & result, present & ~result)


def _compare_true(function: str, comparison: CodeComparison, batch: RowBatch) -> Mask:
    """Return the rows where a comparison is TRUE.

    NULL has the least code. So if the greater side of ``<`` or ``<=`` is NULL, the codes compare as
    FALSE or the other side is NULL, too; and equal codes are both NULL or both not.
    """
    sides = comparison.left, comparison.right
    left, right = (side.codes(batch) for side in sides)
    mask: Mask = OPERATORS[function](left, right)
    for side, codes, functions in zip(sides, (left, right), CHECKED_FOR_NULL, strict=True):
        if side.column is None:
            if codes == NULL:
                return np.zeros(batch.rows, np.bool_)
        elif function in functions and not (function == "eq" and sides[1].column is None):
            mask &= codes != NULL
    return mask


@cached_by_codecs
def comparison_of(predicate: Call, codecs: Codecs) -> CodeComparison | None:
    """Return how codes decide a comparison; None if it must be evaluated in Arrow.

    The sides must be columns or constants of one code space, that is, equal values of their types
    have equal codes. For ``<``, ``<=``, ``>`` and ``>=`` the codes must also have the order of the
    values.
    """
    left, right = (_without_casts(a, codecs) for a in predicate.arguments)
    if not (isinstance(left, Column) or isinstance(right, Column)):
        return None
    left_codec, right_codec = codecs.codec(left.type), codecs.codec(right.type)
    is_ordering = predicate.function not in ("same", "eq", "ne")
    if left_codec.code_space != right_codec.code_space:
        return None
    wide = None
    if is_ordering and not left_codec.ordered:
        if not isinstance(left_codec.coding, WideDecimals):
            return None
        wide = left_codec.coding
    left_side, right_side = _side(left, left_codec), _side(right, right_codec)
    if left_side is None or right_side is None:
        return None
    return CodeComparison(left_side, right_side, wide)


@cached_by_codecs
def equalities_of(predicate: Call, codecs: Codecs) -> tuple[CodeComparison, ...] | None:
    """Return the comparisons of ``in``; None if it must be evaluated in Arrow."""
    value, *others = predicate.arguments
    if len(others) > MAX_EQUALITIES:
        return None
    equalities = [comparison_of(Call("eq", (value, other), pa.bool_()), codecs) for other in others]
    found = [equality for equality in equalities if equality is not None]
    return tuple(found) if len(found) == len(others) else None


def _side(side: Expression, codec: Codec) -> Side | None:
    if isinstance(side, Column):
        return Side(column=side.index)
    if not isinstance(side, Literal):
        return None
    if side.value is None:
        return Side(code=np.int64(NULL))
    if not codec.ordered:
        code = inline_code(side) if isinstance(codec.coding, WideDecimals) else None
        return Side(lookup=codec.lookup(side.value)) if code is None else Side(code=np.int64(code))
    code = ordered_code(side)
    return None if code is None else Side(code=np.int64(code))


@lru_cache(maxsize=4096)
def ordered_code(literal: Literal) -> int | None:
    """Return the code of a literal of a type with ordered codes; None if it has none."""
    return Codecs().codec(literal.type).code_of(literal.value)


@lru_cache(maxsize=4096)
def inline_code(literal: Literal) -> int | None:
    """Return the code of a wide decimal; None if it is a code of a dictionary."""
    codecs = Codecs()  # its dictionaries are empty
    return codecs.codec(literal.type).code_of(literal.value)


def _without_casts(expression: Expression, codecs: Codecs) -> Expression:
    while (
        isinstance(expression, Call)
        and expression.function == "cast"
        and keeps_codes(expression.arguments[0].type, expression.type, codecs)
    ):
        (expression,) = expression.arguments
    return expression


def _evaluate_in_arrow(predicate: Expression, batch: RowBatch) -> Truth:
    values = evaluate(predicate, batch, batch.rows, batch.names)
    if pa.types.is_null(values.type):
        no_rows = np.zeros(batch.rows, bool)
        return Truth(no_rows, no_rows)
    true, valid = bits_of(values), valid_of(values)
    if valid is None:
        return Truth(true, ~true)
    return Truth(true & valid, ~true & valid)


def _all(masks: list[Mask]) -> Mask:
    return reduce(np.logical_and, masks)


def _any(masks: list[Mask]) -> Mask:
    return reduce(np.logical_or, masks)
