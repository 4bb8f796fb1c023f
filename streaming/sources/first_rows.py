"""Take the first rows of each partition of a frame, in the tasks that compute its partitions.

``DataFrame.limit`` sends the first rows of all partitions to one task: a further Spark stage, which
takes longer than to read a few rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

__all__ = ["take_from_partitions"]

#: The bits of ``monotonically_increasing_id()`` with the number of a row in its partition.
ROW_BITS: Final = (1 << 33) - 1


def take_from_partitions(frame: DataFrame, count: int) -> DataFrame:
    """Return the first rows of each partition, at most ``count``; all rows are computed."""
    return frame.where(f"(monotonically_increasing_id() & {ROW_BITS}) < {count}")
