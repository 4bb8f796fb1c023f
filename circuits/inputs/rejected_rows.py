"""RejectedRows: rows that the options of an input reject, and the reason.

The step is computed without them. The reasons are:

=============  =====================================================================================
``late``       the event time is before the watermark that the input had before the step
``untimed``    the event time is NULL, so it is unknown how long to keep the row
``missing``    with ``strict``: the row, or the key, to delete does not exist
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
    """Rows of one input that were rejected for one reason.

    Attributes:
        reason: "late", "untimed" or "missing".
        message: The number of rows, the first of them, and how to fix it.
        table: The rows with the ``weight`` that was not applied. The deletion of a key has only
            the columns of the key, and in a strict input the event time; the others are NULL.
    """

    reason: str
    message: str
    table: pa.Table


@dataclass(frozen=True)
class RejectedCodes:
    """Like `RejectedRows`, but rows are int64 codes in the columns of the schema, with weights.

    Attributes:
        reason: "late", "untimed" or "missing".
        rows: The rows.
        existing: With ``strict``, the weight that each row has in the relation.
    """

    reason: str
    rows: ZSet
    existing: Int64Array | None = None


def first_row(rows: pa.Table) -> dict[str, object]:
    """Return the first row for a message; times are texts, because Python has no year 10000.

    >>> first_row(pa.table({"n": [1], "t": pa.array([3 * 10**17], pa.timestamp("us"))}))
    {'n': 1, 't': '11476-08-15 05:20:00.000000'}
    """
    return {name: _message_value(rows.column(name).slice(0, 1)) for name in rows.column_names}


def _message_value(value: pa.ChunkedArray) -> object:
    type = value.type.value_type if types.is_dictionary(value.type) else value.type
    if not types.is_temporal(type):
        return value[0].as_py()
    if types.is_timestamp(type) and type.tz is not None:
        type = pa.timestamp(type.unit, "UTC")  # other zones need a database of time zones
    return value.cast(type).cast(pa.string())[0].as_py()
