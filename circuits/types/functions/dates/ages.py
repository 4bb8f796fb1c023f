"""The difference of two timestamps in years, months, days and time: age().

``age(a, b)`` of DuckDB and PostgreSQL subtracts the fields of the earlier timestamp from those of
the later one. A negative time borrows a day; a negative number of days borrows the month of the
earlier timestamp. The result is negative if a is before b.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import Int64Array, valid_of
from circuits.types.codecs.intervals import INTERVAL, interval_array
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.dates.date_fields import as_date_or_timestamp
from circuits.types.functions.function import Arguments, Function, TypedArguments, require
from circuits.types.functions.signatures import column_kernel

__all__ = ["FUNCTIONS"]

_DAY = 86_400_000_000  # microseconds


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    values = (as_date_or_timestamp(name, arguments, argument) for argument in arguments)
    return tuple(cast_to(value, pa.timestamp("us")) for value in values), INTERVAL


def _fields(micros: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return the month since 1970, the day from 0, the time and the length of the month in days."""
    days, time = np.divmod(micros, _DAY)
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    first, following = (
        part.astype("datetime64[D]").astype(np.int64) for part in (months, months + 1)
    )
    return months.astype(np.int64), days - first, time, following - first


def _age(ends: pa.Array, starts: pa.Array) -> pa.Array:
    columns = ends, starts
    end, start = (column.cast(pa.int64()).fill_null(0).to_numpy() for column in columns)
    months, days, time, _ = _fields(np.maximum(end, start))
    earlier_months, earlier_days, earlier_time, month_length = _fields(np.minimum(end, start))
    months, days, time = months - earlier_months, days - earlier_days, time - earlier_time
    borrows_day = time < 0
    time, days = time + borrows_day * _DAY, days - borrows_day
    borrows_month = days < 0
    days, months = days + borrows_month * month_length, months - borrows_month
    sign = np.where(end < start, -1, 1)
    valid = [part for part in map(valid_of, columns) if part is not None]
    both = np.logical_and.reduce(valid) if valid else None
    return interval_array(sign * months, sign * days, sign * time * 1000, both)


FUNCTIONS = (
    Function(
        "age",
        "the years, months, days and time from b to a",
        _rule,
        column_kernel(_age),
    ),
)
