"""Monotone functions: find the column in which an expression is non-decreasing.

``date_trunc('hour', at)`` never decreases when ``at`` increases; ``month(at)`` does, in January.
Only a non-decreasing function of the event time divides the rows of an input into groups whose rows
expire together (`circuits.inputs.finality`), and has a frontier (`circuits.plan.frontier`). A
function that is not in the table below is treated as if it could decrease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.arrow_types import NUMBERS, Family, family_of

__all__ = [
    "AddedDuration",
    "ConstantShift",
    "added_duration",
    "adds_months_to_times",
    "constant_shift",
    "monotone_argument",
]

_TICKS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def monotone_argument(expression: Expression) -> Column | None:
    """Return the only column that an expression reads, if the expression is non-decreasing in it.

    None if it reads several columns, or is not known to be non-decreasing.

    >>> monotone_argument(Call("year", (Column(2, pa.date32()),), pa.int64()))
    Column(index=2, type=DataType(date32[day]))
    """
    if isinstance(expression, Column):
        return expression
    if isinstance(expression, Call):
        for find_argument in _MONOTONE.get(expression.function, ()):
            argument = find_argument(expression)
            column = None if argument is None else monotone_argument(argument)
            if column is not None:
                return column
    return None


class ConstantShift(NamedTuple):
    """``column + number``, in codes; the codes of a timestamp are its ticks."""

    column: Column
    number: int


def constant_shift(expression: Expression) -> ConstantShift | None:
    """Return the column and the number of an expression ``column + number``; None for others.

    >>> us = Column(0, pa.timestamp("us"))
    >>> amounts = (Literal(part, pa.int64()) for part in (0, 1, 5))
    >>> constant_shift(Call("date_add", (us, *amounts), us.type)).number
    86400000005
    """
    match expression:
        case Column():
            return ConstantShift(expression, 0)
        case Call("add" | "subtract" as function, (inner, Literal(int() as number))):
            if not types.is_integer(expression.type) or inner.type != expression.type:
                return None
            shift = constant_shift(inner)
            signed = number if function == "add" else -number
            return None if shift is None else ConstantShift(shift.column, shift.number + signed)
    duration = added_duration(expression)
    shift = None if duration is None else constant_shift(duration.time)
    if duration is None or shift is None:
        return None
    return ConstantShift(shift.column, shift.number + duration.ticks)


class AddedDuration(NamedTuple):
    """``time + ticks``, where ``time`` is a timestamp and a tick is one unit of its type."""

    time: Expression
    ticks: int


def added_duration(expression: Expression) -> AddedDuration | None:
    """Return the parts of a sum of a timestamp and a constant duration; None for others.

    None also for a duration with months or with a part of a tick, and for local times, that is,
    timestamps of a time zone other than UTC.

    >>> us = Column(0, pa.timestamp("us"))
    >>> amounts = (Literal(part, pa.int64()) for part in (0, 1, 5))
    >>> added_duration(Call("date_add", (us, *amounts), us.type)).ticks
    86400000005
    """
    match expression:
        case Call(
            "date_add", (inner, Literal(0), Literal(int() as days), Literal(int() as micros))
        ):
            data_type = expression.type
            if not types.is_timestamp(data_type) or inner.type != data_type or _is_local(data_type):
                return None
            all_micros = days * 86_400_000_000 + micros
            ticks, remainder = divmod(all_micros * _TICKS_PER_SECOND[data_type.unit], 10**6)
            return None if remainder else AddedDuration(inner, ticks)
    return None


def adds_months_to_times(expression: Expression) -> bool:
    """Return True if an expression adds months to values that are not whole days.

    Such a sum can decrease: one month after 30 January 23:00 is 29 February 23:00, but one month
    after 31 January 01:00 is 29 February 01:00.
    """
    if not isinstance(expression, Call):
        return False
    match expression:
        case Call("date_add", (inner, months, *_)) if not _is_whole_day(inner):
            if not (isinstance(months, Literal) and months.value == 0):
                return True
    return any(map(adds_months_to_times, expression.arguments))


def _is_constant(expression: Expression) -> bool:
    """Return True for a constant other than NULL."""
    return isinstance(expression, Literal) and expression.value is not None


def _is_positive(expression: Expression) -> bool:
    """Return True for a constant number greater than 0."""
    return (
        isinstance(expression, Literal)
        and expression.value is not None
        and _is_number(expression.type)
        and expression.value > 0
    )


def _is_number(type: pa.DataType) -> bool:
    return family_of(type) in NUMBERS


def _is_ordered(type: pa.DataType) -> bool:
    return _is_number(type) or family_of(type) in (Family.TIMESTAMP, Family.DATE)


def _is_local(type: pa.DataType) -> bool:
    """Return True for zones other than UTC: local time is set back when summer time ends."""
    return bool(types.is_timestamp(type) and type.tz not in (None, "UTC"))


# Each function below with a parameter ``call`` returns the argument in which the call is
# non-decreasing; None if there is none.


def _cast(call: Call) -> Expression | None:
    (inner,) = call.arguments
    for type in (inner.type, call.type):
        if not _is_ordered(type) or _is_local(type):
            return None
    return inner


def _date_trunc(call: Call) -> Expression | None:
    unit, inner = call.arguments
    return inner if _is_constant(unit) and not _is_local(inner.type) else None


def _part_of_time(call: Call) -> Expression | None:
    (inner,) = call.arguments
    return None if _is_local(inner.type) else inner


def _interval_sum(call: Call) -> Expression | None:
    """The time of ``date_add`` or of a bucket function, if the other arguments are constants."""
    inner, *amounts = call.arguments
    if adds_months_to_times(call) or _is_local(inner.type):
        return None
    return inner if all(map(_is_constant, amounts)) else None


def _is_whole_day(expression: Expression) -> bool:
    """Return True if the values are dates, or timestamps at midnight."""
    if types.is_date(expression.type):
        return True
    match expression:
        case Call("cast", (inner,)):
            return bool(types.is_date(inner.type))
        case Call("date_trunc", (Literal(unit), _)):
            return unit in ("day", "week", "month", "quarter", "year")
    return False


def _sum(call: Call) -> Expression | None:
    left, right = call.arguments
    if _is_constant(right):
        return left
    return right if _is_constant(left) else None


def _difference(call: Call) -> Expression | None:
    left, right = call.arguments
    return left if _is_constant(right) else None


def _round_down(call: Call) -> Expression | None:
    """``t - t % 60``, where both ``t`` are the same expression."""
    match call.arguments:
        case inner, Call("modulo", (dividend, size)) if dividend == inner and _is_positive(size):
            return inner if types.is_integer(inner.type) and types.is_integer(call.type) else None
    return None


def _scale(call: Call) -> Expression | None:
    value, factor = call.arguments
    return value if _is_positive(factor) else None


def _round(call: Call) -> Expression | None:
    inner, *digits = call.arguments
    return inner if all(map(_is_constant, digits)) else None


#: Non-decreasing functions by name, each with the functions above that find the argument.
_MONOTONE: Final[Mapping[str, tuple[Callable[[Call], Expression | None], ...]]] = {
    "cast": (_cast,),
    "date_trunc": (_date_trunc,),
    "time_bucket": (_interval_sum,),
    "month_bucket": (_interval_sum,),
    "year": (_part_of_time,),
    "epoch": (_part_of_time,),
    "epoch_second": (_part_of_time,),
    "epoch_millisecond": (_part_of_time,),
    "epoch_microsecond": (_part_of_time,),
    "date_add": (_interval_sum,),
    "add": (_sum,),
    "subtract": (_difference, _round_down),
    "multiply": (_scale,),
    "divide": (_scale,),
    "int_divide": (_scale,),
    "floor": (_round,),
    "ceil": (_round,),
    "round": (_round,),
}
