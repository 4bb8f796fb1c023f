"""Truth of a predicate for each row of a batch, computed from the int64 codes where possible.

The logic is three-valued as in SQL. The result is two masks, of the rows where the predicate is
TRUE and of those where it is FALSE; it is NULL for all other rows. These are computed in numpy from
codes: ``and``, ``or`` and ``not``, NULL tests, equality, and comparisons of columns and constants
whose codes have the order of the values. Codes order NaN as the greatest number, as SQL does. All
other expressions are evaluated in Arrow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime.evaluation import evaluate
from circuits.runtime.row_batch import RowBatch, keeps_codes
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj.values.interner import ABSENT
from dbsp_wcoj.zset import Int64Array

__all__ = ["Truth", "compares_codes", "truth"]

Mask = npt.NDArray[np.bool_]
Codes = Int64Array | np.int64


class Truth(NamedTuple):
    """Masks of the rows where a predicate is TRUE, and where it is FALSE."""

    true: Mask
    false: Mask


OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def truth(predicate: Expression, batch: RowBatch) -> Truth:
    """Compute the truth of a boolean expression for each row.

    Raises:
        EvaluationError: Some expression has no value for a row.
    """
    if isinstance(predicate, Call):
        arguments = predicate.arguments
        match predicate.function:
            case "and":
                parts = [truth(a, batch) for a in arguments]
                return Truth(_all([p.true for p in parts]), _any([p.false for p in parts]))
            case "or":
                parts = [truth(a, batch) for a in arguments]
                return Truth(_any([p.true for p in parts]), _all([p.false for p in parts]))
            case "not":
                inner = truth(arguments[0], batch)
                return Truth(inner.false, inner.true)
            case "is_true":
                inner = truth(arguments[0], batch)
                return Truth(inner.true, ~inner.true)
            case "is_null" if isinstance(arguments[0], Column):
                null = batch.codes(arguments[0].index) == NULL
                return Truth(null, ~null)
            case "same":
                sides = _code_pair(arguments, batch, ordered=False)
                if sides is not None:
                    same = np.broadcast_to(sides[0] == sides[1], batch.rows)
                    return Truth(same, ~same)
            case function if function in OPERATORS:
                sides = _code_pair(arguments, batch, ordered=function not in ("eq", "ne"))
                if sides is not None:
                    return _compare(OPERATORS[function], *sides, batch.rows)
    return _evaluate_in_arrow(predicate, batch)


def compares_codes(predicate: Expression, batch: RowBatch) -> bool:
    """Return whether `truth` computes a predicate from codes alone, so that it cannot fail."""
    if not isinstance(predicate, Call):
        return False
    arguments = predicate.arguments
    match predicate.function:
        case "and" | "or" | "not" | "is_true":
            return all(compares_codes(argument, batch) for argument in arguments)
        case "is_null":
            return isinstance(arguments[0], Column)
        case "same":
            return _code_pair(arguments, batch, ordered=False) is not None
        case function if function in OPERATORS:
            ordered = function not in ("eq", "ne")
            return _code_pair(arguments, batch, ordered=ordered) is not None
    return False


def _compare(compare: Callable[[Any, Any], Any], left: Codes, right: Codes, rows: int) -> Truth:
    present = (left != NULL) & (right != NULL)
    result = compare(left, right)
    return Truth(np.broadcast_to(present & result, rows), np.broadcast_to(present & ~result, rows))


def _code_pair(
    arguments: tuple[Expression, ...], batch: RowBatch, *, ordered: bool
) -> tuple[Codes, Codes] | None:
    """Return the codes of both sides of a comparison; None if it must be evaluated in Arrow.

    The sides must be columns or constants of one code space, that is, equal values of their types
    have equal codes. If ``ordered``, the codes must also have the order of the values.
    """
    left, right = (_without_casts(a, batch) for a in arguments)
    if not (isinstance(left, Column) or isinstance(right, Column)):
        return None
    codecs = [batch.codecs.codec(side.type) for side in (left, right)]
    if codecs[0].space != codecs[1].space or (ordered and not codecs[0].ordered):
        return None
    codes = [_codes(side, codec, batch) for side, codec in zip((left, right), codecs, strict=True)]
    return None if codes[0] is None or codes[1] is None else (codes[0], codes[1])


def _codes(side: Expression, codec: Codec, batch: RowBatch) -> Codes | None:
    if isinstance(side, Column):
        return batch.codes(side.index)
    if not isinstance(side, Literal):
        return None
    if side.value is None:
        return np.int64(NULL)
    code = _ordered_code(side) if codec.ordered else codec.code_of(side.value)
    if code is None and not codec.ordered:
        code = ABSENT  # no row has this value, so it differs from the value of every row
    return None if code is None else np.int64(code)


@lru_cache(maxsize=4096)
def _ordered_code(literal: Literal) -> int | None:
    """Return the code of a literal of a type with ordered codes, which need no dictionary."""
    return Codecs().codec(literal.type).code_of(literal.value)


def _without_casts(expression: Expression, batch: RowBatch) -> Expression:
    while (
        isinstance(expression, Call)
        and expression.function == "cast"
        and keeps_codes(expression.arguments[0].type, expression.type, batch.codecs)
    ):
        (expression,) = expression.arguments
    return expression


def _evaluate_in_arrow(predicate: Expression, batch: RowBatch) -> Truth:
    values = evaluate(predicate, batch, batch.rows)
    if pa.types.is_null(values.type):
        no_rows = np.zeros(batch.rows, bool)
        return Truth(no_rows, no_rows)
    true = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    false = pc.fill_null(pc.invert(values), False).to_numpy(zero_copy_only=False)
    return Truth(true, false)


def _all(masks: list[Mask]) -> Mask:
    return reduce(np.logical_and, masks)


def _any(masks: list[Mask]) -> Mask:
    return reduce(np.logical_or, masks)
