"""FrameTarget: calls a function of the user with each delta as a DataFrame.

::

    def on_delta(frame, batch_id):
        frame.write.mode("overwrite").parquet(f"waiting/batch={batch_id}")

The frame reads the Parquet files of the delta with a given schema, so Spark infers nothing, and the
rows do not pass through the driver. Without files, or if Spark cannot read their types
(`streaming.targets.column_types`), the frame is created from the Arrow table.

If the function fails, Spark cannot know whether it had an effect. Spark repeats the micro-batch,
and the target calls the function again with the same rows and id. So the function must be
idempotent by batch id.

A function with a third parameter of the name ``is_whole`` can replace the rows of a view: if it is
True, the frame is the whole view, or the first slice of it, and the function removes all rows that
it wrote before (`streaming.targets.target.ReplacingTarget`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.output_mode import Mode
from streaming.targets.target import ViewDelta

__all__ = ["FrameTarget", "frame_of", "is_read_from_files", "takes_whole_views"]

IS_WHOLE: Final = "is_whole"

_GLOB_CHARACTERS = re.compile(r"[\\{}\[\]*?]")  # characters of a pattern of paths in Spark


@dataclass(frozen=True)
class FrameTarget:
    """Calls ``function(frame, batch_id)`` for each delta, at least once.

    Attributes:
        function: Idempotent by batch id; with a parameter ``is_whole`` it also receives
            `ViewDelta.is_whole`.
        session: The session of the micro-batch, ``df.sparkSession``.
    """

    function: Callable[..., object]
    session: SparkSession

    def write(self, delta: ViewDelta) -> None:
        """Call the function; its exceptions propagate to the caller."""
        options: dict[str, Any] = {}
        if takes_whole_views(self.function):
            options[IS_WHOLE] = delta.is_whole
        self.function(frame_of(self.session, delta), delta.batch_id, **options)


def takes_whole_views(function: Callable[..., object]) -> bool:
    """Return whether a function replaces the rows of a view, because it takes ``is_whole``.

    >>> takes_whole_views(lambda frame, batch_id, is_whole: None)
    True
    >>> takes_whole_views(print)
    False
    """
    try:
        parameter = inspect.signature(function).parameters.get(IS_WHOLE)
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return False
    return parameter is not None and parameter.kind is not parameter.POSITIONAL_ONLY


def frame_of(session: SparkSession, delta: ViewDelta) -> DataFrame:
    """Return the delta as a DataFrame: the columns of the view, and ``weight``.

    In mode ``append`` the rows have no weight.

    Raises:
        TargetError: No type of Spark contains one of the values.

    Complexity:
        If the delta has files, Spark reads them only when it evaluates the frame.
    """
    if delta.mode == "append":
        delta = replace(delta, table=delta.written_rows(), files=())
    fields = [pa.field(field.name, lake_type(field.type)) for field in delta.table.schema]
    schema: StructType = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
    if is_read_from_files(delta.table.schema, delta.mode, delta.files):
        paths = [_GLOB_CHARACTERS.sub(r"\\\g<0>", file) for file in delta.files]
        return session.read.schema(schema).parquet(*paths)
    table = convert_columns(delta.table, lake_type, subject=str(delta)).cast(pa.schema(fields))
    return session.createDataFrame(table, schema)


def is_read_from_files(schema: pa.Schema, mode: Mode, files: tuple[str, ...]) -> bool:
    """Return whether `frame_of` reads only the files of a delta, not its table.

    Args:
        schema: The columns of the delta.
        mode: Its output mode.
        files: Its Parquet files.
    """
    return mode != "append" and bool(files) and all(map(_is_readable_as_lake_type, schema.types))


def _is_readable_as_lake_type(type_: pa.DataType) -> bool:
    """Return whether Spark can read a Parquet column of this Arrow type as its `lake_type`."""
    type_ = type_.value_type if types.is_dictionary(type_) else type_
    if types.is_timestamp(type_):
        return bool(type_.unit == "us")  # with any zone, because Parquet stores UTC
    lake = lake_type(type_)
    if lake == pa.string():  # Parquet stores a time as a number, and a null column without a type
        return not types.is_time(type_) and not types.is_null(type_)
    return bool(lake in (type_, pa.binary()))  # Spark reads all types of bytes as binary
