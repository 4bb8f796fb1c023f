"""Stream columns: select and read the columns of a stream that a feed needs, in Arrow.

Spark needs several milliseconds to analyze a projection. Therefore a feed collects whole columns,
converts them in Arrow, and selects columns only if the stream has others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pyspark.sql import DataFrame

from streaming.errors import FeedError
from streaming.sources.change_feeds.sql_expressions import quote_name

__all__ = ["read_sequence", "read_texts", "select_columns", "sequence_column"]


def sequence_column(column: str | None, columns: Collection[str]) -> str | None:
    """Return the column that orders the rows of a stream; None if there is none.

    It is the named column, or else the offset of Kafka.

    >>> sequence_column(None, ["value", "partition", "offset"])
    'offset'
    """
    if column is None and {"partition", "offset"} <= set(columns):
        return "offset"
    return column


def select_columns(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return a DataFrame with only these columns; itself if it has no others."""
    if {*columns} == {*df.schema.names}:
        return df
    return df.select(*map(quote_name, dict.fromkeys(columns)))


def read_sequence(feed: object, table: pa.Table, column: str | None) -> pa.ChunkedArray:
    """Return the order of the rows as integers, NULL for a value outside 64 bits.

    A time is counted in microseconds, a date in days.

    Raises:
        FeedError: The type of the column is not an integer or a time, but for example a string.

    >>> times = pa.table({"at": pa.array([7], pa.timestamp("us"))})
    >>> read_sequence("upsert", times, "at").to_pylist()
    [7]
    """
    if column is None:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.int64())])
    values = table.column(column)
    type = values.type
    if types.is_signed_integer(type) or types.is_null(type):
        return values.cast(pa.int64())
    if types.is_timestamp(type):
        return values.cast(pa.timestamp("us", type.tz)).cast(pa.int64())
    if types.is_date32(type):
        return values.cast(pa.int32()).cast(pa.int64())
    if types.is_decimal(type) and type.scale == 0:
        low, high = (pa.scalar(limit, pa.decimal128(38, 0)) for limit in (-(2**63), 2**63 - 1))
        wide = values.cast(pa.decimal128(38, 0))
        fits = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
        return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(pa.int64())
    raise FeedError(
        f"{feed} orders the changes of a key by {column!r}, which is of type {type}: cast it to an "
        "integer, or use a time"
    )


def read_texts(feed: object, table: pa.Table, column: str) -> pa.ChunkedArray:
    """Return the texts of a column of strings or binaries; other values as Arrow prints them.

    Raises:
        FeedError: The column is nested.
    """
    values = table.column(column)
    type = values.type
    if any(
        test(type)
        for test in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    ):
        return values
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FeedError(
            f"{feed} reads the column {column!r} of type {type}: it must be a string or binary"
        ) from error
