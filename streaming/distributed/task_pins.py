"""Pin the tasks of jobs to executors, so that a task finds the cells that it stepped last time.

Spark runs a task on any executor, and a worker that does not have the last version of a cell in
memory reads its newer files and builds its dictionaries again
(`streaming.distributed.execution.executor_cache`). ::

    packets -> exchange by task -> join with the marker by task -> tasks

The *marker* is a table with one row and one partition for each task, in the memory of the
executors. The left join with it changes no packet and needs no further exchange. But Spark prefers
to run a task where its partition of the marker is, if the exchange has no preference of its own: so
the setting `LOCALITY` must be off. Spark waits for a busy executor up to ``spark.locality.wait``
(3 s by default), and then runs the task elsewhere, with the same result.

Spark spreads tasks evenly over idle executors, and so the marker. If executors are added or lost,
the marker is placed again before the next job. Partitions of the marker that are lost during a job
are computed again elsewhere.

All sinks of an application share the markers, of a few bytes for each task. Closing the last sink
that uses a marker frees it.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming.errors import StreamingError

__all__ = ["LOCALITY", "TaskPins", "check_locality"]

log = logging.getLogger(__name__)

#: The setting of the application by which an exchange prefers the executors with most of its rows.
LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
#: How often a marker is placed that is not spread evenly, because executors were busy.
MAX_PLACEMENTS: Final = 3


@dataclass
class _Marker:
    """The marker for a number of tasks.

    Attributes:
        application: The id of the application that has it in memory.
        tasks: The number of tasks.
        table: One row and one partition for each task.
        executors: The addresses of driver and executors when it was placed.
        users: The pins that use it.
    """

    application: str
    tasks: int
    table: DataFrame
    executors: tuple[str, ...] = ()
    users: WeakSet[TaskPins] = field(default_factory=WeakSet)

    def place(self, executors: tuple[str, ...]) -> None:
        """Compute the marker on the given executors."""
        limit = -(-self.tasks // max(1, len(executors) - 1))  # without the driver
        most = 0
        for _ in range(MAX_PLACEMENTS):
            self.table.unpersist(blocking=True)
            self.table.persist().count()
            most = max(_count_partitions(self.table, self.tasks).values())
            if most <= limit:
                break
        else:
            log.warning(
                "an executor has %d of %d tasks of cells instead of at most %d, because others "
                "were busy; this remains until an executor is added or lost",
                most,
                self.tasks,
                limit,
            )
        self.executors = executors


_MARKERS: Final[dict[int, _Marker]] = {}  # by the number of tasks
_LOCK: Final = Lock()


class TaskPins:
    """Pins the tasks of the jobs of a sink, with `check_locality` of its session."""

    def pin(self, packets: DataFrame, tasks: int) -> DataFrame:
        """Return packets whose tasks prefer the same executors in each job.

        Args:
            packets: The packets after their exchange by ``task``.
            tasks: The number of tasks.

        Complexity:
            O(1), and a job of O(tasks) bytes if executors were added or lost.
        """
        session = packets.sparkSession
        with _LOCK:
            marker = _find_marker(session, tasks)
            marker.users.add(self)
            executors = _list_executors(session)
            if marker.executors != executors:
                marker.place(executors)
            table = marker.table
        return packets.join(table.hint("shuffle_hash"), "task", "left")

    def release(self) -> None:
        """Free the markers that no other sink uses."""
        with _LOCK:
            for marker in [*_MARKERS.values()]:
                marker.users.discard(self)
                if marker.users:
                    continue
                del _MARKERS[marker.tasks]
                if _is_running(marker.application):
                    marker.table.unpersist()


def check_locality(session: SparkSession) -> None:
    """Check that exchanges prefer no executors.

    Raises:
        StreamingError: The setting `LOCALITY` is on.
    """
    value = session.sparkContext.getConf().get(LOCALITY, "true")
    if value != "false":
        raise StreamingError(
            f"pin_cells=True with {LOCALITY}={value}: Spark would run tasks where most of their "
            f"rows are; start the application with {LOCALITY}=false, or omit pin_cells"
        )


def _count_partitions(marker: DataFrame, tasks: int) -> Counter[str]:
    """Return the number of partitions of a marker in the memory of each executor."""
    query = marker.select("task")  # that of the table itself stays at the first placement
    partitions, session = query._jdf.queryExecution().toRdd(), marker.sparkSession
    context: Any = session._jsparkSession.sparkContext()
    return Counter(
        context.getPreferredLocs(partitions, task).mkString(" ") for task in range(tasks)
    )


def _find_marker(session: SparkSession, tasks: int) -> _Marker:
    """Return the marker of this application, which is placed when it is used first."""
    application, marker = _application_of(session), _MARKERS.get(tasks)
    if marker is None or marker.application != application:
        numbers = session.range(tasks).select(f.col("id").cast("int").alias("task"))
        marker = _Marker(application, tasks, numbers.repartitionById(tasks, "task"))
        _MARKERS[tasks] = marker
    return marker


def _application_of(session: SparkSession) -> str:
    return str(session.sparkContext.applicationId)


def _is_running(application: str) -> bool:
    """Return whether the application of this id has not ended."""
    try:
        return _application_of(SparkSession.active()) == application
    except PySparkException:  # there is none
        return False


def _list_executors(session: SparkSession) -> tuple[str, ...]:
    """Return the addresses of driver and executors."""
    addresses: Any = session._jsparkSession.sparkContext().getExecutorMemoryStatus().keySet()
    return tuple(sorted(addresses.mkString(" ").split(" ")))
