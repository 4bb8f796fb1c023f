"""Sink observers: receive the events of a sink, as the live page and the dashboard do.

::

    class Log(SinkObserver):
        def batch_completed(self, published, metrics):
            print(metrics.to_json())

    sink = ViewSink(circuit, target, observers=[Log()])

For each micro-batch a sink sends ``batch_started``, a ``phase_completed`` for each of its phases,
and then ``batch_completed`` or ``batch_failed``. When the views change while the sink runs, it
sends ``views_changed``. The sink calls the observer in the thread of the micro-batch, or of the
change, and waits for it. An exception of an observer is logged and has no other effect. A pickled
sink does not contain its observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from circuits import Circuit
from streaming.sink.metrics import BatchMetrics

__all__ = ["Published", "SinkObserver", "notify"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The tables that the views published for one micro-batch.

    Attributes:
        query_id: The query of the micro-batch, if it is known.
        batch_id: The micro-batch.
        outputs: The table of each view, in its output mode, with ``weight``.
    """

    query_id: str | None
    batch_id: int
    outputs: Mapping[str, pa.Table]


class SinkObserver:
    """Receives the events of a sink; a subclass overrides the events that it needs."""

    def batch_started(self, batch_id: int) -> None:
        """The sink begins to apply a micro-batch."""

    def phase_completed(self, batch_id: int, phase: str, seconds: float) -> None:
        """A phase of the micro-batch has ended, also if it raised an error.

        The phases are those of `BatchMetrics.seconds` except ``encode`` and ``output``, which are
        parts of ``step``.
        """

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """A micro-batch is part of the state, and the targets have its tables.

        A replayed micro-batch sends the event again, with ``metrics.replayed``.
        """

    def views_changed(self, circuit: Circuit) -> None:
        """The sink goes on with other views; the next micro-batch commits the change.

        Args:
            circuit: The new views. The old circuit is not used any more.
        """

    def batch_failed(self, batch_id: int, error: BaseException) -> None:
        """A micro-batch raised an error, which the sink raises after this event."""


def notify(observer: SinkObserver, send: Callable[[SinkObserver], object], batch_id: int) -> None:
    """Send an event to an observer; log what it raises."""
    try:
        send(observer)
    except Exception:
        log.warning(
            "observer %s failed on micro-batch %d", type(observer).__name__, batch_id, exc_info=True
        )
