"""The settings that the jobs of cells rely on, whatever the session of a query has.

Adaptive execution would merge the partitions of an exchange, and run each exchange as a job of its
own. The other settings keep Arrow data as it is, in few and large batches, and a table of rows
outside of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "use_settings"]

SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 26),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}


@contextmanager
def use_settings(session: SparkSession) -> Iterator[None]:
    """Use `SETTINGS` in the context; restore those of the session after it."""
    before: dict[str, str | None] = {}  # each call is a request to the JVM
    try:
        for name, value in SETTINGS.items():
            old = session.conf.get(name, None)
            if old != value:
                before[name] = old
                session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
