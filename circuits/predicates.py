"""Truth of a predicate for each row of a batch, on codes where they suffice.

Three-valued as in SQL: a row is TRUE, FALSE or, in neither mask, NULL. Comparisons of columns and
constants whose codes order as the values do, equality, NULL tests and the connectives are numpy on
codes; everything else is evaluated in Arrow. Codes order NaN as the greatest number, as SQL does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.batch import Batch, keeps_codes
from circuits.codec import NULL, Codec
from circuits.evaluation import evaluate
from circuits.expression import Call, Column, Expression, Literal

__all__ = ["Truth", "truth"]

Mask = npt.NDArray[np.bool_]


class Truth(NamedTuple):
    """Where a predicate is TRUE and where it is FALSE."""

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


def truth(predicate: Expression, batch: Batch) -> Truth:
    """The truth of a boolean expression for each row.

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
                sides = _coded(arguments, batch, ordered=False)
                if sides is not None:
                    same = np.broadcast_to(sides[0] == sides[1], batch.rows)
                    return Truth(same, ~same)
            case function if function in OPERATORS:
                sides = _coded(arguments, batch, ordered=function not in ("eq", "ne"))
                if sides is not None:
                    return _compared(OPERATORS[function], *sides, batch.rows)
    return _evaluated(predicate, batch)


def _compared(compare: Callable[[Any, Any], Any], left: Any, right: Any, rows: int) -> Truth:
    present = (left != NULL) & (right != NULL)
    holds = compare(left, right)
    return Truth(np.broadcast_to(present & holds, rows), np.broadcast_to(present & ~holds, rows))


def _coded(arguments: tuple[Expression, ...], batch: Batch, *, ordered: bool) -> Any:
    """The codes of both sides, columns or constants of one code space; None if they have none."""
    sides = [_plain(a, batch) for a in arguments]
    if not any(isinstance(side, Column) for side in sides):
        return None
    if not all(isinstance(side, Column | Literal) for side in sides):
        return None
    codecs: list[Codec] = [batch.codecs.codec(side.type) for side in sides]
    if codecs[0].space != codecs[1].space or (ordered and not codecs[0].ordered):
        return None
    found = []
    for side, codec in zip(sides, codecs, strict=True):
        if isinstance(side, Column):
            found.append(batch.codes(side.index))
            continue
        code = NULL if side.value is None else codec.code_of(side.value)  # type: ignore[union-attr]
        if code is None:
            return None
        found.append(np.int64(code))
    return found


def _plain(expression: Expression, batch: Batch) -> Expression:
    while (
        isinstance(expression, Call)
        and expression.function == "cast"
        and keeps_codes(expression.arguments[0].type, expression.type, batch.codecs)
    ):
        (expression,) = expression.arguments
    return expression


def _evaluated(predicate: Expression, batch: Batch) -> Truth:
    values = evaluate(predicate, batch, batch.rows)
    if pa.types.is_null(values.type):
        none = np.zeros(batch.rows, bool)
        return Truth(none, none)
    true = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    false = pc.fill_null(pc.invert(values), False).to_numpy(zero_copy_only=False)
    return Truth(true, false)


def _all(masks: list[Mask]) -> Mask:
    return reduce(np.logical_and, masks)


def _any(masks: list[Mask]) -> Mask:
    return reduce(np.logical_or, masks)
