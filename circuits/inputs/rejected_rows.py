"""Refused: rows that an input's rules did not take, and why; the rest of the step goes on.

=============  =====================================================================================
``late``       the time is before the horizon that there was before the step
``untimed``    the time is NULL, so that it is not known how long to keep the row
``missing``    strict: the row, or the key, to be deleted is not there
=============  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array

__all__ = ["LATE", "MISSING", "UNTIMED", "RejectedCodes", "RejectedRows", "first_row"]

LATE = "late"
MISSING = "missing"
UNTIMED = "untimed"


@dataclass(frozen=True)
class RejectedRows:
    """Rows of one input that were refused for one reason.

    Attributes:
        reason: "late", "untimed" or "missing".
        message: How many, the first of them, and what to do.
        table: The rows, with ``weight``: what was given of them and not applied. Of the deletion of
            a key the other columns are NULL (but for a time that was looked at).
    """

    reason: str
    message: str
    table: pa.Table


@dataclass(frozen=True)
class RejectedCodes:
    """As `RejectedRows`, in codes: rows in the columns of the schema, and their weights."""

    reason: str
    rows: ZSet
    had: Int64Array | None = None


def first_row(rows: pa.Table) -> dict[str, object]:
    """The first row, for a message; a time as a text, as Python has none after the year 9999.

    >>> first_row(pa.table({"n": [1], "t": pa.array([3 * 10**17], pa.timestamp("us"))}))
    {'n': 1, 't': '11476-08-15 05:20:00.000000'}
    """
    return {name: _shown(rows.column(name).slice(0, 1)) for name in rows.column_names}


def _shown(value: pa.ChunkedArray) -> object:
    type = value.type.value_type if types.is_dictionary(value.type) else value.type
    if not types.is_temporal(type):
        return value[0].as_py()
    if types.is_timestamp(type) and type.tz is not None:
        type = pa.timestamp(type.unit, "UTC")  # which needs no data base of zones
    return value.cast(type).cast(pa.string())[0].as_py()
