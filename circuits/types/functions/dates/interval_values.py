"""Intervals with months: their parts, sums, products, and the keys that compare them.

The parts are months, days and nanoseconds (`circuits.types.codecs.intervals`). A comparison counts
a month as 30 days and a day as 24 hours, as DuckDB does, so it compares the results of the function
``interval_key``. Sums and products are computed part by part. If a product has a fraction of a
month, the fraction becomes days; a fraction of a day becomes nanoseconds. Functions of one interval
also take a duration: it is cast to an interval, in which its whole days are the part ``days``.

All computations are exact, except products and quotients with doubles. An overflow of a part is an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.codecs.arrow_buffers import Int64Array, valid_of
from circuits.types.codecs.intervals import (
    DAYS_PER_MONTH,
    INTERVAL,
    NANOSECONDS_PER_DAY,
    IntervalParts,
    interval_array,
    interval_keys,
    interval_parts,
)
from circuits.types.functions import exact_integers
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, column_kernel
from circuits.types.functions.type_rules import is_interval, is_number

__all__ = [
    "FUNCTIONS",
    "add_interval_parts",
    "divide_parts",
    "interval_rule",
    "interval_sum_rule",
    "multiply_parts",
    "negate_parts",
    "scaling_rule",
]

_SECOND: Final = 10**9  # nanoseconds
#: For each field of an interval: the index of its part, the size of its unit, the modulus (the
#: number of units in the next longer unit; 0 for no modulus), and the number of the first unit.
_FIELDS: Final = {
    "months": (0, 1, 0, 0),
    "days": (1, 1, 0, 0),
    "microseconds": (2, 1000, 0, 0),
    "year": (0, 12, 0, 0),
    "quarter": (0, 3, 4, 1),
    "month": (0, 1, 12, 0),
    "decade": (0, 120, 0, 0),
    "century": (0, 1200, 0, 0),
    "millennium": (0, 12_000, 0, 0),
    "day": (1, 1, 0, 0),
    "hour": (2, 3600 * _SECOND, 0, 0),
    "minute": (2, 60 * _SECOND, 60, 0),
    "second": (2, _SECOND, 60, 0),
    "millisecond": (2, 10**6, 60_000, 0),
    "microsecond": (2, 1000, 60_000_000, 0),
}


def interval_rule(result: pa.DataType, *, fields: bool = False) -> Callable[..., TypedArguments]:
    """Return the type rule of a function of an interval.

    Args:
        result: The type of the result.
        fields: True if the function has a second argument, the name of a field.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        count = 2 if fields else 1
        require(name, arguments, count, count)
        interval, *field = arguments
        if arrow.is_null(interval.type):
            interval = cast_to(interval, INTERVAL)
        if not is_interval(interval.type):
            raise argument_error(name, arguments, "it takes an interval")
        if field and not (isinstance(field[0], Literal) and field[0].value in _FIELDS):
            raise argument_error(name, arguments, f"the fields are {', '.join(_FIELDS)}")
        return (cast_to(interval, INTERVAL), *field), result

    return rule


def interval_sum_rule(name: str, arguments: Arguments) -> TypedArguments:
    """Type rule of the sum or difference of two intervals, at least one of them with months."""
    return tuple(cast_to(argument, INTERVAL) for argument in arguments), INTERVAL


def scaling_rule(name: str, arguments: Arguments) -> TypedArguments:
    """Type rule of products and quotients of an interval with months and a number."""
    interval, number = arguments
    if not is_interval(interval.type) or not (is_number(number.type) or arrow.is_null(number.type)):
        raise argument_error(name, arguments, "it takes an interval and a number")
    is_exact = arrow.is_integer(number.type) and name == "multiply_interval"
    target = pa.int64() if is_exact else pa.float64()
    return (cast_to(interval, INTERVAL), cast_to(number, target)), INTERVAL


def add_interval_parts(sign: int, left: Values, right: Values) -> pa.Array:
    """Return sums (sign 1) or differences (sign -1) of intervals."""
    rows = row_count((left, right))
    sides = [fill_rows(values, rows) for values in (left, right)]
    combine = exact_integers.add if sign > 0 else exact_integers.subtract
    pairs = zip(*map(interval_parts, sides), strict=True)
    months, days, nanoseconds = (combine(*pair) for pair in pairs)
    return interval_array(months, days, nanoseconds, _valid(sides))


def negate_parts(values: pa.Array) -> pa.Array:
    """Return intervals with all parts negated."""
    parts = interval_parts(values)
    months, days, nanoseconds = (exact_integers.multiply(part, -1) for part in parts)
    return interval_array(months, days, nanoseconds, valid_of(values))


def multiply_parts(arguments: Sequence[Values]) -> pa.Array:
    """Return the products of intervals and integers or doubles."""
    intervals, numbers = _columns(arguments)
    if not arrow.is_integer(numbers.type):
        return _scale(intervals, numbers)
    factors = pc.fill_null(numbers, 0)
    months, days, nanoseconds = (
        pc.multiply_checked(pa.array(part), factors).to_numpy()
        for part in interval_parts(intervals)
    )
    return interval_array(months, days, nanoseconds, _valid([intervals, numbers]))


def divide_parts(arguments: Sequence[Values]) -> pa.Array:
    """Return the quotients of intervals and doubles; NULL where the double is zero."""
    intervals, numbers = _columns(arguments)
    numbers = pc.if_else(pc.equal(numbers, 0.0), None, numbers)
    return _scale(intervals, numbers, divides=True)


def _scale(intervals: pa.Array, numbers: pa.Array, *, divides: bool = False) -> pa.Array:
    """Return the products of intervals and doubles, or the quotients if ``divides``."""
    factors = pc.fill_null(numbers, 1.0).to_numpy(zero_copy_only=False)
    parts = interval_parts(intervals)
    with np.errstate(over="ignore", invalid="ignore"):
        months, days, nanoseconds = (
            part / factors if divides else part * factors for part in parts
        )
        whole_months = np.trunc(months)
        days = days + (months - whole_months) * DAYS_PER_MONTH
        whole_days = np.trunc(days)
        # DuckDB has no unit below a microsecond.
        micros = np.rint(nanoseconds / 1000 + (days - whole_days) * (NANOSECONDS_PER_DAY // 1000))
    for part, limit in ((whole_months, 2**31), (whole_days, 2**31), (micros, 2**63 // 1000)):
        if not (np.abs(part) < limit).all():  # also for NaN
            raise pa.ArrowInvalid("the interval is out of range")
    scaled = (whole_months, whole_days, micros)
    months, days, micros = (part.astype(np.int64) for part in scaled)
    return interval_array(months, days, micros * 1000, _valid([intervals, numbers]))


def _columns(arguments: Sequence[Values]) -> list[pa.Array]:
    rows = row_count(arguments)
    return [fill_rows(values, rows) for values in arguments]


def _valid(columns: Sequence[pa.Array]) -> np.ndarray[Any, Any] | None:
    """Return a mask of the rows without NULL; None if no row has one."""
    masks = [mask for mask in map(valid_of, columns) if mask is not None]
    return np.logical_and.reduce(masks) if masks else None


def _null_where_invalid(numbers: np.ndarray[Any, Any], values: pa.Array) -> pa.Array:
    valid = valid_of(values)
    return pa.array(numbers, mask=None if valid is None else ~valid)


def _field(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    values, name = arguments
    index, size, limit, added = _FIELDS[name.as_py()]
    numbers = interval_parts(values)[index]
    fields = _quotient(numbers, size)
    if limit:
        fields = np.sign(fields) * (np.abs(fields) % limit)
    return _null_where_invalid(fields + added, values)


def _quotient(numbers: Int64Array, size: int) -> Int64Array:
    """Return numbers divided by a size, truncated towards zero."""
    return np.asarray(np.sign(numbers) * (np.abs(numbers) // size))


def _seconds(values: pa.Array) -> pa.Array:
    """Return intervals in seconds. Twelve months count 365.25 days, each further month 30 days."""
    months, days, nanoseconds = interval_parts(values)
    years = _quotient(months, 12)
    quarter_days = years * 1461 + (months - years * 12) * (4 * DAYS_PER_MONTH) + days * 4
    seconds = quarter_days * 21_600 + _quotient(nanoseconds, 1000) / 1e6
    return _null_where_invalid(seconds.astype(np.float64), values)


def _normalize(values: pa.Array) -> pa.Array:
    """Return, for each interval, the representative of all intervals of equal length.

    Its days are from 0 to 29, and its nanoseconds are at least 0 and less than a day.
    """
    parts: IntervalParts = interval_parts(values)
    whole_days, nanoseconds = np.divmod(parts.nanoseconds, NANOSECONDS_PER_DAY)
    total_days = parts.months * DAYS_PER_MONTH + parts.days + whole_days
    months, days = np.divmod(total_days, DAYS_PER_MONTH)
    return interval_array(months, days, nanoseconds, valid_of(values))


def _build(months: pa.Array, days: pa.Array, micros: pa.Array) -> pa.Array:
    columns = [months, days, micros]
    parts = [pc.fill_null(column, 0).to_numpy() for column in columns]
    nanoseconds = exact_integers.multiply(parts[2], 1000)
    return interval_array(parts[0], parts[1], nanoseconds, _valid(columns))


FUNCTIONS = (
    Function(
        "interval_key",
        "bytes in the order of the lengths of intervals, with 30 days for each month",
        interval_rule(pa.binary()),
        column_kernel(interval_keys),
    ),
    Function(
        "normalized_interval",
        "the interval of the same length with 0 to 29 days and a time from 0 to less than 24 hours",
        interval_rule(INTERVAL),
        column_kernel(_normalize),
    ),
    Function(
        "interval_field",
        "a field of an interval, such as 'year'; 'months', 'days' and 'microseconds' are its parts",
        interval_rule(pa.int64(), fields=True),
        _field,
    ),
    Function(
        "interval_epoch",
        "an interval in seconds: 12 months count 365.25 days, each further month 30 days",
        interval_rule(pa.float64()),
        column_kernel(_seconds),
    ),
    Function(
        "make_interval",
        "the interval of a months, b days and c microseconds",
        Signature("iii", INTERVAL),
        column_kernel(_build),
    ),
)
