"""Time isolation: rewrite a comparison so that the current time is alone on one side.

A `TemporalFilter` compares a value of the row with a function of the time of the step. In SQL, the
time and a column are often on the same side. Here t is the time of the step, ts a timestamp and v a
duration of the row, d a constant duration, and k a constant number::

    SQL                          rewritten
    t - ts < d                   ts + d > t
    t - v < ts                   ts + v > t
    today - d < n                day(d) + n > day(today)       d a date, n a number of days
    epoch(t - ts) < k            ts + k seconds > t
    date_diff(unit, ts, t) < k   trunc(ts) + k units > trunc(t)
    whole seconds of t - ts < k  ts + k seconds > t                for k > 0
    epoch(ts) * 1000 + k > ms    ts + k milliseconds > trunc(t)    for ms = epoch_millisecond(t)

Each rewritten comparison is equivalent: timestamps are whole microseconds, and adding a duration of
days or shorter units can be undone. Adding months cannot be undone (January 31 and one month is
February 28), so durations with months are not moved.

A moved sum must not leave the range of its type where the original difference does not. So dates
are compared by ``day``, their number of days since 1970, and a number of days beyond all dates is
replaced by `_MAX_DAYS`. A constant duration longer than `_MAX_DURATION` is not moved; an amount
that differs by row is not checked, so the sum of a timestamp may leave its range, which is an
error. ``date_diff`` of an infinite timestamp is NULL, so infinite timestamps are replaced by NULL
before the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Final

import pyarrow as pa
from pyarrow import types

from circuits.plan.expressions import Call, Expression, Literal
from circuits.types.functions import call

__all__ = ["FLIPPED_COMPARISONS", "isolate_time"]

#: Each comparison with its sides exchanged.
FLIPPED_COMPARISONS: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

_UNITS: Final = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
_DURATION: Final = pa.duration("us")
_MICROSECOND: Final = timedelta(microseconds=1)
_INT: Final = pa.int64()
_EPOCH: Final = Literal(date(1970, 1, 1), pa.date32())
#: More days than there are between any two dates, which have 32 bits.
_MAX_DAYS: Final = 2**33
#: A sum with any timestamp of the years 1 to 9999 is in the range of 64 bits of microseconds.
_MAX_DURATION: Final = timedelta(days=100_000_000)

# The left side, which does not read the time; the comparison; the right side, which reads it.
_Comparison = tuple[Expression, str, Expression]


def isolate_time(
    value: Expression, comparison: str, bound: Expression, reads_time: Callable[[Expression], bool]
) -> _Comparison:
    """Return an equivalent comparison with the time alone on one side, if possible.

    Args:
        value: The left side, which does not read the time.
        comparison: A function of `FLIPPED_COMPARISONS`.
        bound: The right side, which reads the time.
        reads_time: Returns whether an expression reads the time.

    Returns:
        The left side, the comparison and the right side; the arguments if nothing can be moved.

    >>> from circuits.plan.expressions import Column
    >>> ts, now = (Column(index, pa.timestamp("us")) for index in (0, 9))
    >>> second = Literal(timedelta(seconds=1), _DURATION)
    >>> result = isolate_time(second, "gt", call("subtract", now, ts), now.__eq__)
    >>> print(*result)
    add(#0, datetime.timedelta(seconds=1)) gt #9
    """
    current: _Comparison = value, comparison, bound
    while (moved := _move_one(*current, reads_time)) is not None:
        current = moved
    return current


def _move_one(
    value: Expression, comparison: str, bound: Expression, reads_time: Callable[[Expression], bool]
) -> _Comparison | None:
    """Move the outermost operation of the right side to the left; None if it cannot be moved."""
    match bound:
        case Call("cast", (inner,)) if types.is_integer(inner.type) and types.is_integer(
            bound.type
        ):
            return value, comparison, inner
        case Call("epoch_millisecond", (time,)) | Call(
            "cast", (Call("epoch_millisecond", (time,)),)
        ):
            moment = _moment_of_milliseconds(value)
            if moment is None:
                return None
            # ms is a whole number, so it is that of the time without a part of a millisecond.
            unit = Literal("millisecond", pa.string())
            return moment, comparison, call("date_trunc", unit, time)
        case Call("subtract", (left, right)) if reads_time(left) and not reads_time(right):
            # value < t - right
            if isinstance(right, Literal):
                return None
            if types.is_date(left.type) and types.is_date(right.type):
                return _move_date(right, "add", value, comparison, left)
            if not _can_add(right, value):
                return None
            return call("add", right, value), comparison, left
        case Call("subtract", (left, right)) if reads_time(right) and not reads_time(left):
            # value < left - t
            if types.is_date(left.type) and types.is_date(right.type):
                return _move_date(left, "subtract", value, FLIPPED_COMPARISONS[comparison], right)
            if not _can_add(left, value):
                return None
            return call("subtract", left, value), FLIPPED_COMPARISONS[comparison], right
        case Call("shift_timestamp", (time, months, days, micros)) if reads_time(time):
            # value < t + amounts
            if not _is_zero(months) or any(map(reads_time, (days, micros))):
                return None
            amounts = call("negate", days), call("negate", micros)
            return call("shift_timestamp", value, months, *amounts), comparison, time
        case Call("interval_epoch", (Call("cast", (Call("subtract") as distance,)),)):
            if not isinstance(value, Literal) or value.value is None:
                return None
            length = _duration(value.value, timedelta(seconds=1))
            if length is None or length.value / timedelta(seconds=1) != value.value:
                return None
            return length, comparison, distance
        case Call("date_diff", (Literal(str() as unit), start, end)):
            return _replace_date_diff(value, comparison, unit, start, end, reads_time)
        case Call("elapsed_units", (end, start, Literal(str() as unit))) if unit in _UNITS:
            elapsed = call("subtract", *(_finite(time, reads_time) for time in (end, start)))
            return _replace_elapsed_units(value, comparison, _UNITS[unit], elapsed)
    return None


def _move_date(
    date: Expression, function: str, days: Expression, comparison: str, bound: Expression
) -> _Comparison | None:
    """Return the comparison of ``date + days`` or ``date - days`` with a date, as day numbers."""
    if not types.is_signed_integer(days.type):
        return None
    if isinstance(days, Literal):
        if days.value is not None:
            days = Literal(max(-_MAX_DAYS, min(days.value, _MAX_DAYS)), _INT)
    else:
        days = days if days.type == _INT else call("cast", days, type=_INT)
        low, high = Literal(-_MAX_DAYS, _INT), Literal(_MAX_DAYS, _INT)
        days = call("case", call("lt", days, low), low, call("gt", days, high), high, days)
    day = call(function, call("subtract", date, _EPOCH), days)
    return day, comparison, call("subtract", bound, _EPOCH)


def _duration(number: float, unit: timedelta) -> Literal | None:
    """Return a number of units, rounded to microseconds; None if longer than `_MAX_DURATION`."""
    if not abs(number) <= _MAX_DURATION // unit:
        return None
    return Literal(round(number * (unit // _MICROSECOND)) * _MICROSECOND, _DURATION)


def _moment_of_milliseconds(number: Expression) -> Expression | None:
    """Return the timestamp with a number of milliseconds; None if it is not computed from one."""
    match number:
        case Call("cast", (inner,)) if _has_microseconds(number.type):
            return _moment_of_milliseconds(inner)
        case Call("multiply", (Call("epoch", (time,)), Literal(factor))) | Call(
            "multiply", (Literal(factor), Call("epoch", (time,)))
        ):
            is_exact = types.is_timestamp(time.type) and time.type.unit != "ns"
            return time if is_exact and factor == 1000 else None
        case Call("add" | "subtract" as function, (inner, Literal(shift))):
            moment = _moment_of_milliseconds(inner)
            if moment is None or shift is None:
                return None
            length = _duration(shift, timedelta(milliseconds=1))
            if length is None or shift != round(shift):
                return None
            return call(function, moment, length)
    return None


def _has_microseconds(type: pa.DataType) -> bool:
    """Return whether a number of milliseconds keeps its microseconds when it is cast to a type."""
    return bool(types.is_float64(type) or (types.is_decimal(type) and type.scale >= 3))


def _can_add(time: Expression, amount: Expression) -> bool:
    """Return whether adding an amount to a time is exact, and can be undone."""
    if not (isinstance(amount, Literal) and isinstance(amount.value, timedelta)):
        return False
    return bool(types.is_timestamp(time.type)) and abs(amount.value) <= _MAX_DURATION


def _is_zero(months: Expression) -> bool:
    """Return whether a number of months is 0, or NULL."""
    match months:
        case Literal(0):
            return True
        case Call("multiply", arguments):
            return any(map(_is_zero, arguments))
    return False


def _replace_date_diff(
    value: Expression,
    comparison: str,
    unit: str,
    start: Expression,
    end: Expression,
    reads_time: Callable[[Expression], bool],
) -> _Comparison | None:
    """Replace a number of unit boundaries by the difference of the two times, both truncated."""
    if unit not in _UNITS or not isinstance(value, Literal) or not isinstance(value.value, int):
        return None
    length = _duration(value.value, _UNITS[unit])
    if length is None:
        return None
    starts = [
        call("date_trunc", Literal(unit, pa.string()), _finite(time, reads_time))
        for time in (start, end)
    ]
    distance = call("subtract", starts[1], starts[0])
    return length, comparison, distance


def _replace_elapsed_units(
    value: Expression, comparison: str, unit: timedelta, distance: Expression
) -> _Comparison | None:
    """Replace a number of elapsed units, the quotient q = distance / unit rounded towards 0."""
    if not isinstance(value, Literal) or not isinstance(value.value, int):
        return None
    # Only two comparisons remain, because value < q is equivalent to value + 1 <= q, and
    # value >= q to value + 1 > q: least <= q (is_at_least), and its negation least > q.
    least = value.value + (comparison in ("lt", "ge"))
    is_at_least = comparison in ("lt", "le")
    # If least > 0, least <= q is equivalent to least * unit <= distance. Otherwise the rounding
    # towards 0 makes it equivalent to (least - 1) * unit < distance.
    length = _duration(least if least > 0 else least - 1, unit)
    if length is None:
        return None
    if least > 0:
        return length, "le" if is_at_least else "gt", distance
    return length, "lt" if is_at_least else "ge", distance


def _finite(time: Expression, reads_time: Callable[[Expression], bool]) -> Expression:
    """Return a time of the row as a timestamp, with NULL instead of an infinite one."""
    if reads_time(time):
        return time
    if types.is_date(time.type):
        time = call("cast", time, type=pa.timestamp("us"))
    tests = (
        call("eq", time, call("cast", Literal(text, pa.string()), type=time.type))
        for text in ("infinity", "-infinity")
    )
    return call("case", call("or", *tests), Literal(None, time.type), time)
