"""Query identity: the Spark query that a micro-batch belongs to, and its watermark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from circuits.inputs.input_options import InputOptions
from circuits.schema import Schema
from streaming.sink.checkpoint import Checkpoint

__all__ = ["QueryIdentity"]

QUERY_ID: Final = "sql.streaming.queryId"  # set by Spark for the thread that runs the micro-batch


class QueryIdentity:
    """The query of a sink.

    Args:
        checkpoint: The checkpoint directory of the query. Without it no watermark is known, and in
            Spark Connect no id.
    """

    def __init__(self, checkpoint: str | None) -> None:
        self._checkpoint = None if checkpoint is None else Checkpoint(checkpoint)

    def query_of(self, df: DataFrame) -> str | None:
        """Return the id that Spark keeps in the checkpoint; None if it is unknown.

        Raises:
            StateError: The directory is not a checkpoint.
        """
        if self._checkpoint is not None:
            return self._checkpoint.query_id
        try:
            context = df.sparkSession.sparkContext
        except (PySparkException, AttributeError):  # Spark Connect has no context
            return None
        query_id = context.getLocalProperty(QUERY_ID)
        return None if query_id is None else str(query_id)

    def watermarks(
        self, inputs: Mapping[str, Schema], options: Mapping[str, InputOptions], batch_id: int
    ) -> dict[str, datetime]:
        """Return Spark's watermark for the inputs with lateness or retention by a timestamp.

        Raises:
            StateError: The checkpoint has no entry for this micro-batch.
        """
        types = {
            name: inputs[name].arrow.field(input_options.time_column).type
            for name, input_options in options.items()
            if input_options.time_column in inputs[name].columns  # others are computed
        }
        timestamp_types = {
            name: type for name, type in types.items() if pa.types.is_timestamp(type)
        }
        if self._checkpoint is None or not timestamp_types:
            return {}
        watermark = self._checkpoint.watermark(batch_id)
        if watermark is None:
            return {}
        return {
            name: watermark if type.tz else watermark.replace(tzinfo=None)
            for name, type in timestamp_types.items()
        }
