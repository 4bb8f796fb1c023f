"""Buckets of equal length: the start of the bucket that contains a number, a date or a timestamp.

::

    time_bucket(t, size, offset)      offset + the greatest multiple of size at or below t - offset
    month_bucket(t, months, offset)   the same, in months since January 1970

All amounts are integer literals. Those of time_bucket have the unit of the values: days for dates,
ticks for timestamps. The buckets of timestamps with a time zone are those of UTC. An infinite value
remains infinite.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.time_units import (
    INFINITE,
    INFINITE_DAY,
    PER_SECOND,
    Bools,
    Int64s,
    from_ticks,
    is_infinite,
    ticks_of,
)
from circuits.types.functions.dates.date_fields import as_date_or_timestamp
from circuits.types.functions.exact_integers import multiply
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)

__all__ = ["FUNCTIONS"]


def _read_amounts(name: str, arguments: Arguments, count: int) -> tuple[Expression, ...]:
    """Return the arguments after the first, which must be ``count`` integer literals."""
    require(name, arguments, count + 1, count + 1)
    for amount in arguments[1:]:
        if not isinstance(amount, Literal) or not isinstance(amount.value, int):
            raise argument_error(name, arguments, "its amounts are integer literals")
    return tuple(cast_to(amount, pa.int64()) for amount in arguments[1:])


def _bucket_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    size, offset = _read_amounts(name, arguments, 2)
    if isinstance(size, Literal) and size.value <= 0:
        raise argument_error(name, arguments, "the size of a bucket is 1 or more")
    value = arguments[0]
    if arrow.is_integer(value.type):
        return (cast_to(value, pa.int64()), size, offset), pa.int64()
    value = as_date_or_timestamp(name, arguments, value)
    return (value, size, offset), value.type


def _month_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    size, offset = _read_amounts(name, arguments, 2)
    if isinstance(size, Literal) and size.value <= 0:
        raise argument_error(name, arguments, "the size of a bucket is 1 month or more")
    value = as_date_or_timestamp(name, arguments, arguments[0])
    return (value, size, offset), value.type


def _infinite_mask(values: pa.Array, ticks: Int64s) -> Bools:
    """Return a mask of the infinite dates or timestamps; numbers are finite."""
    if arrow.is_integer(values.type):
        return np.zeros(len(ticks), np.bool_)
    return is_infinite(ticks, values.type)


def _constants(arguments: Sequence[Values]) -> list[int]:
    return [(a[0] if isinstance(a, pa.Array) else a).as_py() for a in arguments]


def _replace_ticks(values: pa.Array, ticks: Int64s, original_ticks: Int64s) -> Values:
    """Return ticks as values of the type of ``values``; NULLs and infinities are unchanged.

    Args:
        values: The original values.
        ticks: The new ticks.
        original_ticks: The ticks of ``values``.
    """
    if not arrow.is_integer(values.type):
        ticks = np.where(_infinite_mask(values, original_ticks), original_ticks, ticks)
        limit = INFINITE_DAY if arrow.is_date32(values.type) else INFINITE
        if (np.abs(ticks) > limit).any():
            raise pa.ArrowInvalid(f"the result is out of range of {values.type}")
    return from_ticks(ticks, values.type, values)


def _bucket(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    values = fill_rows(arguments[0], row_count(arguments))
    size, offset = _constants(arguments[1:])
    ticks = ticks_of(values)
    is_infinite_value = _infinite_mask(values, ticks)
    finite_ticks = np.where(is_infinite_value, 0, ticks)
    # All differences are of numbers from 0 to size - 1, so none leaves int64.
    ticks_since_start = (finite_ticks % size - offset % size) % size
    if (finite_ticks < ticks_since_start - INFINITE).any():
        raise pa.ArrowInvalid(f"the start of a bucket is out of range of {values.type}")
    return _replace_ticks(values, finite_ticks - ticks_since_start, ticks)


def _month_bucket(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    values = fill_rows(arguments[0], row_count(arguments))
    size, offset = _constants(arguments[1:])
    ticks = ticks_of(values)
    is_infinite_value = _infinite_mask(values, ticks)
    unit = "D" if arrow.is_date32(values.type) else values.type.unit
    timestamps = np.where(is_infinite_value, 0, ticks).astype(f"datetime64[{unit}]")
    months = timestamps.astype("datetime64[M]").astype(np.int64)  # since January 1970
    months -= (months - offset) % size
    starts = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    if unit != "D":
        starts = multiply(starts, 86_400 * PER_SECOND[unit])
    return _replace_ticks(values, starts, ticks)


FUNCTIONS = (
    Function(
        "time_bucket",
        "the start of the bucket that contains a; buckets have length b, and one starts at c",
        _bucket_rule,
        _bucket,
    ),
    Function(
        "month_bucket",
        "as time_bucket, for a number of months b; c counts months since 1970",
        _month_rule,
        _month_bucket,
    ),
)
