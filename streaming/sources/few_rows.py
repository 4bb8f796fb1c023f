"""Few rows: collect a frame only if it has few and small rows."""

from __future__ import annotations

import functools
import operator
from enum import Enum, auto

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

__all__ = ["Refusal", "collect_few_rows"]

_NESTED = ArrayType, MapType, StructType, VariantType


class Refusal(Enum):
    """Why a frame was not collected.

    Attributes:
        MANY: It has too many rows.
        LARGE: It has few rows, but a large one.
    """

    MANY = auto()
    LARGE = auto()


def collect_few_rows(frame: DataFrame, max_rows: int, max_row_bytes: int) -> pa.Table | Refusal:
    """Collect a frame, unless it has more than ``max_rows`` rows or a larger row.

    Executors replace all values of a row of more than ``max_row_bytes`` by NULL, so the driver
    receives little data.

    Args:
        frame: The frame; its caller limits the rows that are computed.
        max_rows: The greatest number of rows.
        max_row_bytes: The greatest size of the texts, binaries and nested values of a row, the
            latter as texts.
    """
    sized = [
        (str(number), field.dataType)
        for number, field in enumerate(frame.schema.fields)
        if isinstance(field.dataType, (StringType, BinaryType, *_NESTED))
    ]
    if not sized:
        table = frame.toArrow()
        return table if table.num_rows <= max_rows else Refusal.MANY
    names = frame.schema.names
    numbers = [str(number) for number in range(len(names))]
    numbered = frame.toDF(*numbers)  # two columns may have one name, or differ only in case
    sizes = [F.coalesce(_size_of(type, F.col(number)), F.lit(0)) for number, type in sized]
    is_large = functools.reduce(operator.add, sizes) > max_row_bytes
    columns = [F.when(~is_large, F.col(number)).alias(number) for number in numbers]
    table = numbered.select(*columns, is_large).toArrow()
    if table.num_rows > max_rows:
        return Refusal.MANY
    if True in table.column(len(names)).to_pylist():
        return Refusal.LARGE
    return table.remove_column(len(names)).rename_columns(names)


def _size_of(type: DataType, column: Column) -> Column:
    return F.octet_length(column.cast("string") if isinstance(type, _NESTED) else column)
