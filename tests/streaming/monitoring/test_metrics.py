"""Metrics, health and readiness of a sink, and the server that shows them."""

from __future__ import annotations

import socket
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import Row
from pyspark.sql.streaming.listener import StreamingQueryProgress

from circuits import InputOptions, Lateness, compile_sql
from circuits.runtime.state_names import arrangement_sizes
from streaming import BatchOrderError, MonitoringError, SinkObserver, ViewSink
from streaming.monitoring import MetricsServer, SinkMonitor, serve_metrics
from streaming.monitoring.prometheus import metrics_text, registry_of
from streaming.monitoring.server import MAX_CONNECTIONS
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import feed, sink_on, views, write_state


def samples(monitor: SinkMonitor) -> dict[tuple[str, ...], float]:
    """Return the samples by name and values of labels, in the order of the names of labels."""
    text, _ = metrics_text(registry_of(monitor))
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


RESULTS = ("applied", "replayed", "failed")


def test_rows_micro_batches_and_phases_are_those_of_the_sink(tmp_path) -> None:
    sink = sink_on(tmp_path)
    monitor = SinkMonitor(sink)
    feed(sink, 0, 1, 1)
    with pytest.raises(BatchOrderError):
        feed(sink, 7)
    values = samples(monitor)
    assert [values["dbsp_wcoj_micro_batches_total", result] for result in RESULTS] == [2, 1, 1]
    applied = [metrics for metrics in sink.metrics if not metrics.replayed]
    rows_in = sum(metrics.rows_in["link"] for metrics in applied)
    assert values["dbsp_wcoj_input_rows_total", "link"] == rows_in
    for view in ("paths", "cities"):
        rows_out = sum(metrics.rows_out[view] for metrics in applied)
        assert values["dbsp_wcoj_output_rows_total", view] == rows_out
    assert values["dbsp_wcoj_micro_batch_seconds_bucket", "+Inf"] == 3
    assert values["dbsp_wcoj_micro_batch_seconds_count",] == 3
    seconds = sum(metrics.seconds["all"] for metrics in sink.metrics)
    assert values["dbsp_wcoj_micro_batch_seconds_sum",] == pytest.approx(seconds)
    step = sum(metrics.seconds.get("step", 0.0) for metrics in sink.metrics)
    assert values["dbsp_wcoj_phase_seconds_total", "step"] == pytest.approx(step)
    assert values["dbsp_wcoj_written_bytes_total",] == sum(m.bytes_written for m in sink.metrics)
    added = sum(m.bytes_added for m in sink.metrics)
    assert values["dbsp_wcoj_added_bytes_total",] == added > 0
    amplification = values["dbsp_wcoj_written_bytes_total",] / added
    assert values["dbsp_wcoj_write_amplification",] == amplification > 1
    assert values["dbsp_wcoj_dead_letter_bytes",] == 0
    assert values["dbsp_wcoj_dead_letter_files_removed_total",] == 0
    assert values["dbsp_wcoj_last_batch_id",] == 1
    sink.close()


def test_a_memory_limit_has_gauges_of_the_bytes_in_memory_and_in_maps(tmp_path) -> None:
    sink = sink_on(tmp_path, memory_limit=1)
    monitor = SinkMonitor(sink)
    feed(sink, 0, 1, 2)
    values = samples(monitor)
    metrics = sink.metrics[-1]
    assert values["dbsp_wcoj_state_mapped_bytes",] == metrics.mapped_bytes > 0
    assert values["dbsp_wcoj_state_heap_bytes",] == metrics.heap_bytes > 0
    sink.close()


def test_the_state_has_the_names_sizes_and_views_of_the_plan(tmp_path) -> None:
    sink = sink_on(tmp_path)
    monitor = SinkMonitor(sink)
    feed(sink, 0, 1, 2)
    values = samples(monitor)
    plan = sink.explain()
    sizes = arrangement_sizes(sink.circuit.committed)
    assert len(sizes) > 3
    for size in sizes:
        labels = (size.name, size.part.kind, size.part.operator)
        assert values["dbsp_wcoj_arrangement_bytes", *labels] == size.bytes > 0
        assert values["dbsp_wcoj_arrangement_rows", *labels] == sum(size.runs)
        assert values["dbsp_wcoj_arrangement_runs", *labels] == len(size.runs)
        for view in size.views:
            assert values["dbsp_wcoj_arrangement_needed_by", size.name, view] == 1
        assert f"  {size.name} for {', '.join(size.views)}  {len(size.runs)} run" in plan
        assert values["dbsp_wcoj_disk_bytes", size.name] > 0
    assert values["dbsp_wcoj_dictionary_values", "text"] == 4  # three cities and Ulm
    assert values["dbsp_wcoj_dictionary_codes", "text"] == 4
    assert values["dbsp_wcoj_dictionary_remaining_ratio", "text"] == 1
    assert values["dbsp_wcoj_dictionary_bytes", "text"] > 0
    emitted = {key[-1]: n for key, n in values.items() if key[0] == "dbsp_wcoj_operator_rows_total"}
    assert emitted["link"] == sum(metrics.rows_in["link"] for metrics in sink.metrics)
    # The values are in the order of the labels kind, operator, views, work.
    work = {key[2]: key[4] for key in values if key[0] == "dbsp_wcoj_operator_info"}
    assert work["link"] == "input link(src, dst, city)"
    for name, text in work.items():
        if f"─ {name} " in plan:
            assert f"─ {name} {text}  [" in plan
    sink.close()


def test_watermarks_lag_behind_the_clock_and_late_rows_are_counted() -> None:
    columns = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    options = {"clicks": InputOptions(lateness=Lateness("ts", "5 minutes"))}
    circuit = compile_sql("SELECT k FROM clicks", {"clicks": columns}, input_options=options)
    sink = ViewSink(circuit)
    clock = Clock()
    monitor = SinkMonitor(sink, clock=clock)
    start = datetime(1970, 1, 1, 1)

    def rows(*minutes: int) -> Frame:
        times = [start + timedelta(minutes=minute) for minute in minutes]
        return Frame(pa.table({"k": range(len(times)), "ts": times}, schema=columns), "q")

    sink(rows(0, 10), 0)
    clock.now = 3600 + 8 * 60
    sink(rows(2, 7, 11), 1)
    values = samples(monitor)
    assert values["dbsp_wcoj_watermark_timestamp_seconds", "clicks"] == 3600 + 6 * 60
    assert values["dbsp_wcoj_watermark_lag_seconds", "clicks"] == 120
    assert values["dbsp_wcoj_late_rows_total", "clicks"] == 1
    assert sink.metrics[-1].late_rows == {"clicks": 1}
    assert values["dbsp_wcoj_dead_letters_total",] == 1


def test_dead_letters_are_counted_from_0_after_a_restart(tmp_path) -> None:
    """If the counter continued that of the state, its increase at a restart would be an alarm."""
    for batch_id, text, dead_letters in ((0, "x", 1), (1, "7", 0)):
        circuit = compile_sql("SELECT CAST(s AS INT) AS n FROM texts", {"texts": "s STRING"})
        sink = ViewSink(circuit, state_dir=tmp_path, bad_rows="dead_letter")
        monitor = SinkMonitor(sink)
        sink(Frame(pa.table({"s": [text]}), "q"), batch_id)
        assert samples(monitor)["dbsp_wcoj_dead_letters_total",] == dead_letters
        assert sink.metrics[-1].dead_letters_total == 1
        sink.close()


def test_a_sink_is_healthy_until_its_last_commit_is_too_old() -> None:
    clock = Clock()
    sink = ViewSink(views())
    monitor = SinkMonitor(sink, max_commit_age=60, clock=clock)
    assert monitor.health().ok
    clock.now += 61
    assert monitor.health().reason == (
        "the start was 61 s ago, and the maximum is 60 s; no micro-batch runs"
    )
    feed(sink, 0)
    assert monitor.health().ok
    clock.now += 61
    feed(sink, 0)  # a replay commits nothing
    assert not monitor.health().ok
    feed(sink, 1)
    assert monitor.health().ok
    assert SinkMonitor(sink, clock=clock).health().ok


def test_a_failed_micro_batch_is_neither_healthy_nor_ready_until_the_next_one() -> None:
    sink = ViewSink(views())
    monitor = SinkMonitor(sink)
    feed(sink, 0)
    assert (monitor.health().ok, monitor.readiness().ok) == (True, True)
    with pytest.raises(BatchOrderError):
        feed(sink, 5)
    reason = "micro-batch 5 failed: BatchOrderError; see the log"
    assert monitor.health().reason == monitor.readiness().reason == reason
    assert (monitor.health().ok, monitor.readiness().ok) == (False, False)
    feed(sink, 1)
    assert (monitor.health().ok, monitor.readiness().ok) == (True, True)


def test_a_sink_whose_query_has_ended_is_neither_healthy_nor_ready() -> None:
    sink = ViewSink(views())
    monitor = SinkMonitor(sink)
    feed(sink, 0)
    monitor.end()
    assert (monitor.health().ok, monitor.readiness().ok) == (False, False)
    assert monitor.health().reason == monitor.readiness().reason == "the query has ended"
    assert samples(monitor)["dbsp_wcoj_healthy",] == 0
    feed(sink, 1)  # the query was started again
    assert (monitor.health().ok, monitor.readiness().ok) == (True, True)
    with pytest.raises(BatchOrderError):
        feed(sink, 5)
    monitor.end("the query has failed")
    reason = "micro-batch 5 failed: BatchOrderError; see the log"
    assert monitor.health().reason == monitor.readiness().reason == reason  # the first cause


def test_a_sink_is_not_ready_while_it_loads_its_state(tmp_path) -> None:
    write_state(tmp_path, 1)
    checks: dict[str, bool] = {}

    class PhaseRecorder(SinkObserver):
        def batch_started(self, batch_id):
            checks["start"] = monitor.readiness().ok

        def phase_completed(self, batch_id, phase, seconds):
            checks.setdefault(phase, monitor.readiness().ok)

        def batch_completed(self, published, metrics):
            checks["completed"] = monitor.readiness().ok

    sink = sink_on(tmp_path, observers=[])
    monitor = SinkMonitor(sink)
    sink.add_observer(PhaseRecorder())
    feed(sink, 1)
    assert checks.pop("start")  # no micro-batch runs yet
    assert not checks.pop("load")
    assert set(checks) >= {"read", "decode", "step", "write", "merge", "publish", "completed"}
    assert all(checks.values())
    sink.close()


def progress_of(batch_id: int) -> StreamingQueryProgress:
    source = type("Source", (), {"description": "Kafka[orders]", "numInputRows": 7})
    observed = {"dbsp_wcoj": Row(rows=7, retractions=None)}
    fields = {"batchId": batch_id, "durationMs": {"addBatch": 250, "triggerExecution": 300}}
    return type("Progress", (), {**fields, "sources": [source], "observedMetrics": observed})


def test_the_progress_events_of_spark_are_metrics() -> None:
    monitor = SinkMonitor(ViewSink(views()))
    for batch_id in range(2):
        monitor.spark_progressed(progress_of(batch_id))
    values = samples(monitor)
    assert values["dbsp_wcoj_spark_seconds_total", "addBatch"] == 0.5
    assert values["dbsp_wcoj_spark_input_rows_total", "Kafka[orders]"] == 14
    assert values["dbsp_wcoj_observed_total", "rows"] == 14
    assert values["dbsp_wcoj_observed_total", "retractions"] == 0


def get(server: MetricsServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(server.address.replace("/metrics", path), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_server_answers_three_paths_and_no_others() -> None:
    sink = ViewSink(views())
    with serve_metrics(sink, port=0) as server:
        feed(sink, 0)
        status, text = get(server, "/metrics")
        assert status == 200
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"dbsp_wcoj_micro_batch_seconds", "process_resident_memory_bytes"} <= names
        assert get(server, "/healthz")[0] == get(server, "/readyz")[0] == 200
        server.monitor.end("stopped")
        assert get(server, "/readyz") == (503, "stopped\n")
        assert get(server, "/")[0] == get(server, "/metrics/x")[0] == 404
        with pytest.raises(MonitoringError, match=rf"port {server.port}: Address already in use"):
            serve_metrics(sink, port=server.port)
        assert len(sink._observers) == 1
    assert sink._observers == []
    assert not server.monitor.readiness().ok


def test_silent_clients_cannot_use_up_the_server() -> None:
    sink = ViewSink(views())
    with serve_metrics(sink, port=0) as server:
        silent = [socket.create_connection((server.host, server.port)) for _ in range(20)]
        try:
            for connection in silent:
                connection.settimeout(10)
            # The server has closed all connections beyond its limit.
            closed = [
                connection for connection in silent[MAX_CONNECTIONS:] if not connection.recv(1)
            ]
            assert len(closed) == 20 - MAX_CONNECTIONS
        finally:
            for connection in silent:
                connection.close()
        end = time.monotonic() + 30  # the threads of the silent clients end in the meantime
        while True:
            try:
                assert get(server, "/healthz")[0] == 200
                break
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < end
                time.sleep(0.01)


def test_a_missing_package_is_named_with_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "streaming.monitoring.prometheus", raising=False)
    with pytest.raises(MonitoringError, match=r"prometheus_client.*dbsp-wcoj\[metrics\]"):
        serve_metrics(ViewSink(views()), port=0)
