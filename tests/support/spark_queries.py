"""Runs Spark queries that process the existing input and end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery


def start_query(
    stream: DataFrame, function: Callable[[Any, int], None], checkpoint: Path
) -> StreamingQuery:
    """Start a query that gives each micro-batch to a function, until all input is read."""
    return (
        stream.writeStream.foreachBatch(function)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
