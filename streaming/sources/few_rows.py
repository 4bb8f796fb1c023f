"""Few rows: collect a frame only if it has few and small rows."""

from __future__ import annotations

import functools
import operator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from streaming.sources.change_feeds.sql_expressions import quote_name

__all__ = ["collect_few_rows"]

_NESTED = ArrayType, MapType, StructType, VariantType


def collect_few_rows(frame: DataFrame, max_rows: int, max_row_bytes: int) -> pa.Table | None:
    """Collect a frame; None if it has more than ``max_rows`` rows or a larger row.

    Executors replace the values of larger rows by NULL, so the driver receives little data also if
    the rows are large.

    Args:
        frame: The frame; its caller limits the rows that are computed.
        max_rows: The greatest number of rows.
        max_row_bytes: The greatest size of the texts, binaries and nested values of a row, the
            latter as texts.
    """
    sizes = [
        F.coalesce(_size_of(field.dataType, F.col(quote_name(field.name))), F.lit(0))
        for field in frame.schema.fields
        if isinstance(field.dataType, (StringType, BinaryType, *_NESTED))
    ]
    if not sizes:
        table = frame.toArrow()
        return table if table.num_rows <= max_rows else None
    is_large = functools.reduce(operator.add, sizes) > max_row_bytes
    columns = [
        F.when(~is_large, F.col(quote_name(name))).alias(name) for name in frame.schema.names
    ]
    table = frame.select(*columns, is_large).toArrow()
    if table.num_rows > max_rows or True in table.column(len(columns)).to_pylist():
        return None
    return table.remove_column(len(columns))


def _size_of(type: DataType, column: Column) -> Column:
    return F.octet_length(column.cast("string") if isinstance(type, _NESTED) else column)
