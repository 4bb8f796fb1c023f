"""The settings that the jobs of cells rely on, whatever the session of a query has.

Adaptive execution would merge the partitions of an exchange, and run each exchange as a job of its
own. The other settings keep Arrow data as it is, and a table of rows outside of the plan.

Batches of rows for Python are limited by their number of rows only. With a limit of their bytes,
Spark adds up the sizes of all columns again after each row, which takes more time than to copy the
row. `MAX_BATCH_ROWS` is so small that a batch of usual rows remains small. A batch of packets
(`streaming.distributed.execution.packets`) has at most `MAX_BATCH_ROWS` · `MAX_PACKET_BYTES` bytes,
if no row is larger than a packet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession

__all__ = ["MAX_BATCH_ROWS", "SETTINGS", "use_settings"]

#: The number of rows that Spark sends to Python at once. Rows of more than 2 MiB on average are too
#: large for a batch, whose columns have at most 2 GiB each.
MAX_BATCH_ROWS: Final = 1 << 10
SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),  # Spark's "no limit"
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_BATCH_ROWS),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}


@dataclass
class _Use:
    """The use of one session.

    Attributes:
        before: The settings of the session that have other values; None if they are not set.
        jobs: The number of jobs that run.
    """

    before: dict[str, str | None] = field(default_factory=dict)
    jobs: int = 0


#: The sessions of running jobs. Each micro-batch may have another Python object for a session of
#: the JVM, which has the settings.
_USES: Final[dict[Any, _Use]] = {}
_LOCK: Final = Lock()


@contextmanager
def use_settings(session: SparkSession) -> Iterator[None]:
    """Use `SETTINGS` in the context; restore those of the session after it.

    If several threads run jobs in a session, its settings are restored after the last job.
    """
    session_id: Any = session._jsparkSession
    with _LOCK:
        use = _USES.setdefault(session_id, _Use())
        use.jobs += 1
    try:
        with _LOCK:
            for name, value in SETTINGS.items():  # each call is a request to the JVM
                old = session.conf.get(name, None)
                if old != value:
                    use.before.setdefault(name, old)
                    session.conf.set(name, value)
        yield
    finally:
        with _LOCK:
            use.jobs -= 1
            if not use.jobs:
                del _USES[session_id]
                _restore(session, use.before)


def _restore(session: SparkSession, before: Mapping[str, str | None]) -> None:
    for name, old in before.items():
        if old is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, old)
