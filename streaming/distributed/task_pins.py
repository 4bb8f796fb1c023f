"""Pin the tasks of jobs to executors, so that a task finds the cells that it stepped last time.

Spark runs a task on any executor, and a worker that does not have the last version of a cell in
memory reads its newer files and builds its dictionaries again
(`streaming.distributed.execution.executor_cache`). ::

    packets -> exchange by task -> join with the marker by task -> tasks

The *marker* is a table with one row and one partition for each task, in the memory of the
executors. The left join with it changes no packet and needs no further exchange. Only the place of
the marker matters: Spark prefers to run a task where its partition of the marker is, unless the
exchange has a preference of its own, which the setting `LOCALITY` turns off. Spark waits for a busy
executor up to ``spark.locality.wait`` (3 s by default), and then runs the task elsewhere, with the
same result.

Spark spreads tasks evenly over idle executors, and therefore also the partitions of the marker. If
executors are added or lost, the lost partitions are computed elsewhere before the next job; all of
them, if an executor then has more than its share. Partitions that are lost during a job are
computed again elsewhere.

All sinks of an application with as many tasks share a marker, of a few bytes for each task. Closing
the last of them frees it.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming.distributed.spark_settings import use_settings
from streaming.errors import StreamingError

__all__ = ["LOCALITY", "TaskPins", "check_locality"]

log = logging.getLogger(__name__)

#: The setting of the application by which an exchange prefers the executors with most of its rows.
LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
#: The most attempts to place a marker evenly.
MAX_PLACEMENTS: Final = 3


@dataclass
class _Marker:
    """The marker for a number of tasks.

    Attributes:
        application: The id of the application that has it in memory.
        tasks: The number of tasks.
        table: One row and one partition for each task.
        processes: The addresses of driver and executors when it was placed.
        users: The pins that use it.
    """

    application: str
    tasks: int
    table: DataFrame
    processes: tuple[str, ...] = ()
    users: WeakSet[TaskPins] = field(default_factory=WeakSet)

    def place(self, processes: tuple[str, ...]) -> None:
        """Compute the marker while these processes, driver and executors, are there.

        Partitions that an executor has stay there, unless it has more than its share.
        """
        self.processes = ()  # after an error, the next job places it again
        limit = -(-self.tasks // max(1, len(processes) - 1))  # without the driver
        most = 0
        for attempt in range(MAX_PLACEMENTS):
            if attempt:
                self.table.unpersist()
            with use_settings(self.table.sparkSession, has_small_rows=True):
                self.table.persist().count()
            counts = _count_partitions(self.table, self.tasks)
            most = max(counts.values(), default=0)
            if most <= limit and sum(counts.values()) == self.tasks:
                break
        else:
            log.warning(
                "an executor has %d of %d tasks of cells instead of at most %d: the executors "
                "differ in cores, or some were busy; it stays so until one is added or lost",
                most,
                self.tasks,
                limit,
            )
        self.processes = processes

    def free(self) -> None:
        """Free the memory of the executors, if their application still runs."""
        try:
            if _application_of(SparkSession.active()) == self.application:
                self.table.unpersist()
        except Exception as error:  # the session or its JVM has ended, and with it the memory
            log.debug("the marker of %d tasks was not freed: %s", self.tasks, error)


_MARKERS: Final[dict[int, _Marker]] = {}  # by the number of tasks
_LOCK: Final = Lock()


class TaskPins:
    """Pins the tasks of the jobs of a sink."""

    def __init__(self) -> None:
        self._checked = ""  # the application whose setting was checked last

    def check(self, session: SparkSession) -> None:
        """Check the setting `LOCALITY` of the application, once.

        Raises:
            StreamingError: It is on.
        """
        application = _application_of(session)
        if application != self._checked:
            check_locality(session)
            self._checked = application

    def pin(self, packets: DataFrame, tasks: int) -> DataFrame:
        """Return packets whose tasks prefer the same executors in each job.

        If the marker cannot be placed, as when an executor is lost at this moment, the tasks of
        this job run anywhere.

        Args:
            packets: The packets after their exchange by ``task``.
            tasks: The number of tasks.

        Complexity:
            O(executors); at the first use, and if executors were added or lost, also up to
            `MAX_PLACEMENTS` jobs of O(tasks) bytes.
        """
        session = packets.sparkSession
        with _LOCK:
            marker = _get_or_create_marker(session, tasks)
            marker.users.add(self)
            processes = _list_processes(session)
            if marker.processes != processes:
                try:
                    marker.place(processes)
                except (PySparkException, Py4JError) as error:
                    log.warning("the tasks of a job of cells are not pinned: %s", error)
                    return packets
            table = marker.table
        return packets.join(table.hint("shuffle_hash"), "task", "left")

    def release(self) -> None:
        """Free the markers that no other sink uses."""
        with _LOCK:
            for marker in [*_MARKERS.values()]:
                marker.users.discard(self)
                if not marker.users:
                    del _MARKERS[marker.tasks]
                    marker.free()


def check_locality(session: SparkSession) -> None:
    """Check that exchanges prefer no executors.

    Raises:
        StreamingError: The setting `LOCALITY` is on.
    """
    value = session.sparkContext.getConf().get(LOCALITY, "true")
    if value.strip().lower() != "false":
        raise StreamingError(
            f"pin_cells=True with {LOCALITY}={value}: Spark would run tasks where most of their "
            f"rows are; start the application with {LOCALITY}=false, or omit pin_cells"
        )


def _count_partitions(marker: DataFrame, tasks: int) -> Counter[str]:
    """Return the number of partitions of a marker in the memory of each executor.

    A partition that has just been lost has no place and is not counted.
    """
    query = marker.select("task")  # a new query, because an old one knows an earlier placement
    partitions, session = query._jdf.queryExecution().toRdd(), marker.sparkSession
    context: Any = session._jsparkSession.sparkContext()
    places = [context.getPreferredLocs(partitions, task).mkString(" ") for task in range(tasks)]
    return Counter(place for place in places if place)


def _get_or_create_marker(session: SparkSession, tasks: int) -> _Marker:
    """Return the marker of this application; a new one is not placed yet."""
    application, marker = _application_of(session), _MARKERS.get(tasks)
    if marker is None or marker.application != application:
        numbers = session.range(tasks).select(f.col("id").cast("int").alias("task"))
        marker = _Marker(application, tasks, numbers.repartitionById(tasks, "task"))
        _MARKERS[tasks] = marker
    return marker


def _application_of(session: SparkSession) -> str:
    return str(session.sparkContext.applicationId)


def _list_processes(session: SparkSession) -> tuple[str, ...]:
    """Return the addresses of driver and executors."""
    addresses: Any = session._jsparkSession.sparkContext().getExecutorMemoryStatus().keySet()
    return tuple(sorted(addresses.mkString(" ").split(" ")))
