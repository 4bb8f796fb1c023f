"""Runs the cells of a distributed sink in this process, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from streaming.distributed.execution.executor_cache import CACHE

#: Takes the place of a Spark session; the number is that of the tasks of a stage.
SESSION: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(
        defaultParallelism=2,
        getLocalProperty=lambda name: None,
        parallelize=lambda parts, count: SimpleNamespace(
            mapPartitions=lambda run: SimpleNamespace(collect=lambda: list(run(parts)))
        ),
    )
)


class LocalFrame:
    """Stands for the DataFrame of a micro-batch, whose rows are an Arrow table."""

    sparkSession = SESSION  # Spark's name

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    def toArrow(self) -> Any:  # Spark's name
        return self._table


@contextmanager
def local_cells() -> Iterator[None]:
    """Run all stages on rows that the driver places, as tasks of Spark would; empty the cache."""
    CACHE.clear()
    with patch("streaming.distributed.pipeline.MAX_DRIVER_ROWS", 1 << 40):
        yield
    CACHE.clear()
