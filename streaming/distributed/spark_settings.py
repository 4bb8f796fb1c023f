"""The settings that the jobs of cells rely on, whatever the session of a query has.

Adaptive execution would merge the partitions of an exchange, and run each exchange as a job of its
own. Other settings neither compress Arrow data nor copy the rows of a table into the plan.

Spark can hash all exchanged rows, to repeat tasks if two attempts of an earlier task have sent
different rows. Packets name their attempt, so the hashes of two attempts always differ. The driver
compares attempts itself (`streaming.distributed.batch_job`), so Spark does not.

Batches for Python are limited by their rows and their bytes. With a limit of the bytes, Spark adds
up the sizes of all columns again after each row, which takes more time than to copy a small row. So
jobs whose columns all have values of at most 16 bytes have no such limit. What they exchange are
packets of at most `MAX_PACKET_BYTES` (`streaming.distributed.execution.packets`), so a batch of
packets has at most about `MAX_ROWS_TO_PYTHON` · `MAX_PACKET_BYTES` bytes: 256 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, DatetimeType, NumericType, StructType

__all__ = [
    "MAX_BYTES_TO_PYTHON",
    "MAX_ROWS_TO_PYTHON",
    "SETTINGS",
    "has_small_columns",
    "use_settings",
]

#: The most rows that Spark sends to Python at once.
MAX_ROWS_TO_PYTHON: Final = 1 << 10
#: The bytes after which Spark sends rows to Python; a batch exceeds them by one row at most.
MAX_BYTES_TO_PYTHON: Final = 1 << 26
_MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str((1 << 31) - 1)  # Spark does not look at the bytes
#: The settings, for jobs whose rows may be large.
SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    _MAX_BYTES: str(MAX_BYTES_TO_PYTHON),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_ROWS_TO_PYTHON),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


@dataclass
class _Use:
    """The use of one session.

    Attributes:
        before: The settings of the session that have other values; None if they are not set.
        jobs: The number of jobs that run.
        is_limited: True if the rows of one of these jobs, or of an earlier one, may be large.
    """

    before: dict[str, str | None] = field(default_factory=dict)
    jobs: int = 0
    is_limited: bool = False


#: By session of the JVM, which has the settings. Micro-batches may have different Python objects
#: for one session.
_USES: Final[dict[Any, _Use]] = {}
_LOCK: Final = Lock()


def has_small_columns(schema: StructType) -> bool:
    """Return whether all columns have values of at most 16 bytes, whatever the rows.

    >>> has_small_columns(StructType().add("x", "long").add("at", "timestamp"))
    True
    >>> has_small_columns(StructType().add("x", "long").add("name", "string"))
    False
    """
    types = (field.dataType for field in schema.fields)
    return all(isinstance(type, (NumericType, BooleanType, DatetimeType)) for type in types)


@contextmanager
def use_settings(session: SparkSession, *, has_small_rows: bool = False) -> Iterator[None]:
    """Use `SETTINGS` in the context; restore those of the session after it.

    If several threads run jobs in a session, its settings are restored after the last job.

    Args:
        session: The session.
        has_small_rows: True if no row of the job can be large. Then batches have no limit of their
            bytes, unless another job of the session needs one.
    """
    session_id: Any = session._jsparkSession
    with _LOCK:
        use = _USES.setdefault(session_id, _Use())
        use.jobs += 1
        use.is_limited |= not has_small_rows
    try:
        with _LOCK:
            settings = SETTINGS if use.is_limited else {**SETTINGS, _MAX_BYTES: _NO_LIMIT}
            for name, value in settings.items():  # each call is a request to the JVM
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
