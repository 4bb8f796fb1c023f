"""Query listener: adds Spark's progress events to the metrics of a sink.

::

    monitor = SinkMonitor(sink)
    spark.streams.addListener(QueryListener(monitor, name="rings"))

Spark sends an event after each micro-batch. It has the rows that Spark read from each source, the
time of each part of Spark's own work, and the metrics that the stream observes
(`streaming.observe`). In the other direction, ``sink.metrics`` has a `BatchMetrics` for each event:
its ``batch_id`` is the event's ``progress.batchId``.
"""

from __future__ import annotations

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streaming.monitoring.monitor import SinkMonitor

__all__ = ["QueryListener"]


class QueryListener(StreamingQueryListener):
    """Receives the events of the queries of a Spark session.

    Args:
        monitor: The monitor of the sink.
        name: The name of the query of the sink; None if the session has no other query.
    """

    def __init__(self, monitor: SinkMonitor, name: str | None = None) -> None:
        self._monitor = monitor
        self._name = name
        self._run_id: str | None = None  # of the current run of the query

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the run of the query."""
        if self._name in (None, event.name):
            self._run_id = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add the progress of a micro-batch."""
        if self._name in (None, event.progress.name):
            self._monitor.spark_progressed(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Ignore that there are no new rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record that the query has ended, so that the sink is neither healthy nor ready."""
        if str(event.runId) == self._run_id:
            self._monitor.end("the query has failed" if event.exception else "the query has ended")
