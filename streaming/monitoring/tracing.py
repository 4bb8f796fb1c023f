"""Tracing: a span of OpenTelemetry for each micro-batch, and one for each of its phases.

::

    sink = ViewSink(circuit, target, observers=[TracingObserver()])

    micro-batch                         batch_id, rows of each input and view, replayed
    ├─ load, read, decode, step         the phases of `streaming.sink.metrics.BatchMetrics.seconds`
    ├─ cells, write, merge
    └─ publish

The span of the micro-batch is current in its thread, so spans of instrumented database drivers that
a target uses become its children. Without an SDK in the process, or with one that is switched off,
the API of OpenTelemetry records nothing.

A span has names and numbers, but neither rows nor the message of an error, which may show a value
of a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver

__all__ = ["TracingObserver"]

NAMESPACE: Final = "dbsp_wcoj"


@dataclass(frozen=True)
class _OpenSpan:
    """The span of the micro-batch that runs.

    Attributes:
        span: The span.
        context: The context in which it is the current span.
        token: Restores the context before the micro-batch.
    """

    span: Span
    context: Context
    token: object


class TracingObserver(SinkObserver):
    """Traces the micro-batches of one sink.

    Args:
        tracer: Creates the spans; by default the tracer ``dbsp_wcoj`` of the process.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = trace.get_tracer(NAMESPACE) if tracer is None else tracer
        self._open: _OpenSpan | None = None

    def batch_started(self, batch_id: int) -> None:
        """Begin the span of a micro-batch."""
        attributes = {f"{NAMESPACE}.batch_id": batch_id}
        span = self._tracer.start_span("micro-batch", attributes=attributes)
        span_context = trace.set_span_in_context(span)
        self._open = _OpenSpan(span, span_context, context.attach(span_context))

    def phase_completed(self, batch_id: int, phase: str, seconds: float) -> None:
        """Add the span of a phase."""
        if self._open is not None:
            end = time.time_ns()
            start = end - round(seconds * 1e9)
            child = self._tracer.start_span(phase, context=self._open.context, start_time=start)
            child.end(end)

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """End the span, with the rows of the micro-batch."""
        attributes: dict[str, int | bool | str] = {f"{NAMESPACE}.replayed": metrics.replayed}
        for name, rows in metrics.rows_in.items():
            attributes[f"{NAMESPACE}.rows_in.{name}"] = rows
        for name, rows in metrics.rows_out.items():
            attributes[f"{NAMESPACE}.rows_out.{name}"] = rows
        attributes[f"{NAMESPACE}.bytes_written"] = metrics.bytes_written
        attributes[f"{NAMESPACE}.dead_letters"] = metrics.dead_letters
        self._end(attributes, None)

    def batch_failed(self, batch_id: int, error: BaseException) -> None:
        """End the span with the kind of the error."""
        name = type(error).__name__
        self._end({"error.type": name}, Status(StatusCode.ERROR, name))

    def _end(self, attributes: Mapping[str, int | bool | str], status: Status | None) -> None:
        if self._open is None:
            return
        span, token = self._open.span, self._open.token
        self._open = None
        span.set_attributes(attributes)
        if status is not None:
            span.set_status(status)
        span.end()
        context.detach(token)  # type: ignore[arg-type]
