"""Spans of OpenTelemetry: one for each micro-batch, with a child for each phase."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from streaming import BatchOrderError, ViewSink
from streaming.monitoring.tracing import TracingObserver
from streaming.sink.progress import PHASES
from tests.support.fed_sink import feed, views


class SpanTarget:
    """A target that opens a span of its own, as an instrumented database driver does."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def write(self, delta) -> None:
        with self._tracer.start_as_current_span(f"INSERT {delta.view}"):
            pass


def test_a_micro_batch_is_a_span_with_a_child_for_each_phase() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    sink = ViewSink(views(), SpanTarget(tracer), observers=[TracingObserver(tracer)])
    feed(sink, 0)
    with pytest.raises(BatchOrderError):
        feed(sink, 5)
    assert not trace.get_current_span().get_span_context().is_valid
    first, failed = [span for span in exporter.get_finished_spans() if span.name == "micro-batch"]
    children = [
        span
        for span in exporter.get_finished_spans()
        if span.parent is not None and span.parent.span_id == first.context.span_id
    ]
    assert {span.name for span in children} == {*PHASES} - {"start", "backfill"} | {
        "INSERT paths",
        "INSERT cities",
    }
    for span in children:
        assert first.start_time <= span.end_time <= first.end_time
        assert span.start_time <= span.end_time
    assert first.attributes["dbsp_wcoj.batch_id"] == 0
    assert first.attributes["dbsp_wcoj.rows_in.link"] == sink.metrics[0].rows_in["link"]
    assert first.attributes["dbsp_wcoj.rows_out.paths"] == sink.metrics[0].rows_out["paths"]
    assert first.status.status_code == StatusCode.UNSET
    assert failed.status.status_code == StatusCode.ERROR
    assert failed.attributes["error.type"] == "BatchOrderError"


def test_without_an_sdk_nothing_is_recorded_and_nothing_fails() -> None:
    sink = ViewSink(views(), observers=[TracingObserver()])
    feed(sink, 0, 1)
    assert len(sink.metrics) == 2
