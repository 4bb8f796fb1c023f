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
        checkpoint: Its checkpoint directory; without it there are no watermarks, and in Spark
            Connect no id.
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
        found = context.getLocalProperty(QUERY_ID)
        return None if found is None else str(found)

    def watermarks(
        self, inputs: Mapping[str, Schema], rules: Mapping[str, InputOptions], batch_id: int
    ) -> dict[str, datetime]:
        """Return Spark's watermark for the inputs that retain rows by a timestamp.

        Raises:
            StateError: The checkpoint has no entry for this micro-batch.
        """
        retained = {
            name: next(f.type for f in inputs[name].fields if f.name == one.retain.column)
            for name, one in rules.items()
            if one.retain is not None
        }
        timed = {name: type for name, type in retained.items() if pa.types.is_timestamp(type)}
        watermark = self._checkpoint.watermark(batch_id) if self._checkpoint and timed else None
        if watermark is None:
            return {}
        return {
            name: watermark if type.tz else watermark.replace(tzinfo=None)
            for name, type in timed.items()
        }
