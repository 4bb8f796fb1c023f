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

from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array

__all__ = ["LATE", "MISSING", "UNTIMED", "Refused", "RefusedRows"]

LATE = "late"
MISSING = "missing"
UNTIMED = "untimed"


@dataclass(frozen=True)
class Refused:
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
class RefusedRows:
    """As `Refused`, in codes: rows in the columns of the schema, and the weights that they had."""

    reason: str
    rows: ZSet
    had: Int64Array | None = None
