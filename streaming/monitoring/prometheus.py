"""The metrics of a sink in the format of Prometheus; the page "Monitor" of the docs lists them.

All names begin with ``dbsp_wcoj_``. Counters count since the process began. Labels are names of
inputs, views, operators and arrangements as ``explain`` shows them
(`circuits.runtime.state_names`); there is no label with a value of a row, so the number of time
series depends only on the views.

Register a `SinkCollector` in a registry of your own, or call `metrics_text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.operator_names import operator_kind
from circuits.runtime.state_names import StateNames, arrangement_sizes, node_label
from streaming.monitoring.monitor import BUCKETS, SinkMonitor, Totals

__all__ = ["SinkCollector", "metrics_text", "registry_of"]

PREFIX: Final = "dbsp_wcoj"
PROCESS_COLLECTORS: Final = (ProcessCollector, PlatformCollector, GCCollector)


class SinkCollector(Collector):
    """Collects the metrics of a sink when Prometheus asks for them.

    Args:
        monitor: The monitor of the sink.

    Complexity:
        A collection takes O(operators · views + arrangements · log rows).
    """

    def __init__(self, monitor: SinkMonitor) -> None:
        self._monitor = monitor

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that a registry does not collect when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        monitor = self._monitor
        totals = monitor.totals
        circuit = monitor.sink.circuit
        yield InfoMetricFamily(PREFIX, "The version of the package", {"version": _version()})
        yield from _batch_metrics(totals)
        yield from self._current_metrics(totals)
        yield from _state_metrics(circuit.committed)
        yield from _disk_metrics(totals)
        yield from _spark_metrics(totals)

    def _current_metrics(self, totals: Totals) -> Iterator[Metric]:
        """Yield the gauges of this moment: health, the running micro-batch, watermarks."""
        monitor = self._monitor
        yield _gauge("healthy", "1 if /healthz succeeds", float(monitor.health().ok))
        yield _gauge("ready", "1 if /readyz succeeds", float(monitor.readiness().ok))
        progress = monitor.sink.progress
        running = GaugeMetricFamily(
            f"{PREFIX}_running_seconds",
            "Seconds since the start of the micro-batch that runs now, by its phase",
            labels=["phase"],
        )
        if progress is not None:
            running.add_metric([progress.phase], progress.seconds)
        yield running
        if totals.last_commit is not None:
            yield _gauge(
                "last_commit_timestamp_seconds", "Time of the last commit", totals.last_commit
            )
        if totals.last is not None:
            text = "Number of the last completed micro-batch"
            yield _gauge("last_batch_id", text, totals.last.batch_id)
        watermarks = monitor.watermark_times()
        now = monitor.clock()
        yield _gauges("watermark_timestamp_seconds", "Watermark of an input", "input", watermarks)
        yield _gauges(
            "watermark_lag_seconds",
            "Seconds between now and the watermark of an input",
            "input",
            {name: now - time for name, time in watermarks.items()},
        )


def registry_of(monitor: SinkMonitor) -> CollectorRegistry:
    """Return a registry with the metrics of a sink and of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SinkCollector(monitor))
    for collector in PROCESS_COLLECTORS:
        collector(registry=registry)
    return registry


def metrics_text(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics, in the format that the header ``Accept`` asks for, and its media type."""
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _batch_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield the counters of micro-batches and rows."""
    batches = {result: totals.results[result] for result in ("applied", "replayed", "failed")}
    yield _counters("micro_batches", "Micro-batches by result", "result", batches)
    counts = [totals.buckets[index] for index in range(len(BUCKETS) + 1)]
    bounds = [*map(str, BUCKETS), "+Inf"]
    yield HistogramMetricFamily(
        f"{PREFIX}_micro_batch_seconds",
        "Seconds of a completed micro-batch",
        buckets=list(zip(bounds, accumulate(counts), strict=True)),
        sum_value=totals.all_seconds,
    )
    text = "Seconds of completed micro-batches by phase"
    yield _counters("phase_seconds", text, "phase", totals.seconds)
    yield _counters("input_rows", "Accepted rows", "input", totals.rows_in)
    text = "Published rows, insertions and deletions"
    yield _counters("output_rows", text, "view", totals.rows_out)
    yield _counters("late_rows", "Rows older than the watermark", "input", totals.late_rows)
    text = "Deletions of rows that do not exist"
    yield _counters("missing_deletions", text, "input", totals.missing_deletions)
    text = "Rows kept as dead letters"
    yield CounterMetricFamily(f"{PREFIX}_dead_letters", text, totals.dead_letters)
    text, removed = "Old files of dead letters, removed", totals.dead_letter_files_removed
    yield CounterMetricFamily(f"{PREFIX}_dead_letter_files_removed", text, removed)
    text = "Bytes written to the state directory"
    yield CounterMetricFamily(f"{PREFIX}_written_bytes", text, totals.bytes_written)
    text = "Bytes of new rows and values in the state directory"
    yield CounterMetricFamily(f"{PREFIX}_added_bytes", text, totals.bytes_added)
    text = "Steps of cells in micro-batches that executors read"
    yield CounterMetricFamily(f"{PREFIX}_cell_steps", text, totals.cell_steps)
    text = "Steps of cells whose worker had their circuit in memory, at its current version"
    yield CounterMetricFamily(f"{PREFIX}_open_cell_steps", text, totals.open_cell_steps)


def _spark_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield the metrics of Spark's progress events."""
    text = "Seconds of Spark's micro-batches by part; triggerExecution is the whole"
    yield _counters("spark_seconds", text, "part", totals.spark_seconds)
    yield _counters("spark_input_rows", "Rows read by Spark", "source", totals.spark_rows)
    text = "Sums of Spark's observed metrics (streaming.observe)"
    yield _counters("observed", text, "metric", totals.observed)


def _state_metrics(state: CircuitVersion) -> Iterator[Metric]:
    """Yield the sizes of arrangements and dictionaries in memory, and the work of operators."""
    labels = ["arrangement", "operator", "kind"]
    rows = _family("arrangement_rows", "Rows of an arrangement in memory", labels)
    sizes = _family("arrangement_bytes", "Bytes of an arrangement in memory", labels)
    runs = _family("arrangement_runs", "Sorted runs (levels) of an arrangement", labels)
    needed = _family(
        "arrangement_needed_by", "1 if the view needs the arrangement", ["arrangement", "view"]
    )
    # A circuit that this process has never stepped has its state elsewhere, on executors.
    for size in arrangement_sizes(state) if state.steps else ():
        values = [size.name, size.part.operator, size.part.kind]
        rows.add_metric(values, sum(size.runs))
        sizes.add_metric(values, size.bytes)
        runs.add_metric(values, len(size.runs))
        for view in size.views:
            needed.add_metric([size.name, view], 1)
    yield from (rows, sizes, runs, needed)
    yield from _dictionary_metrics(state)
    yield from _operator_metrics(state)


def _dictionary_metrics(state: CircuitVersion) -> Iterator[Metric]:
    names = StateNames(state.graph)
    dictionaries = state.graph.registry.dictionaries
    values = {names.name(name): shared.size for name, shared in state.shared.items()}
    yield _gauges("dictionary_values", "Values of a dictionary", "dictionary", values)
    codes = {names.name(name): length for name, length in state.lengths.items()}
    text = "Values that a dictionary has ever had"
    yield _gauges("dictionary_codes", text, "dictionary", codes)
    text = "Values of a dictionary, as a share of those that it has ever had"
    shares = {name: values[name] / count if count else 1.0 for name, count in codes.items()}
    yield _gauges("dictionary_remaining_ratio", text, "dictionary", shares)
    swept = GaugeMetricFamily(
        f"{PREFIX}_values_after_sweep", "Values of all dictionaries after the last sweep"
    )
    swept.add_metric([], state.graph.values_after_sweep)
    yield swept
    sizes = {names.name(name): dictionary.nbytes for name, dictionary in dictionaries.items()}
    yield _gauges("dictionary_bytes", "Bytes of a dictionary in memory", "dictionary", sizes)


def _operator_metrics(state: CircuitVersion) -> Iterator[Metric]:
    labels = ["operator", "kind"]
    rows = CounterMetricFamily(
        f"{PREFIX}_operator_rows", "Rows emitted by an operator", labels=labels
    )
    seconds = CounterMetricFamily(
        f"{PREFIX}_operator_seconds", "Seconds of an operator", labels=labels
    )
    info = _family("operator", "The work of an operator", ["operator", "kind", "work", "views"])
    info.name = f"{PREFIX}_operator_info"
    views = state.graph.views_of()
    for position, node in enumerate(state.graph.nodes):
        kind = operator_kind(node.plan)
        if state.rows:
            rows.add_metric([node.name, kind], state.rows[position])
            seconds.add_metric([node.name, kind], state.seconds[position])
        work = node_label(state.graph, node)
        info.add_metric([node.name, kind, work, ",".join(views[position])], 1)
    yield from (rows, seconds, info)


def _disk_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield the sizes of arrangements and dictionaries on disk, also those of cells."""
    last = totals.last
    if totals.bytes_added:
        text = "Bytes written to the state directory per byte of new rows and values"
        yield _gauge("write_amplification", text, totals.bytes_written / totals.bytes_added)
    if last is not None:
        text = "Bytes of the files of dead letters"
        yield _gauge("dead_letter_bytes", text, last.dead_letter_bytes)
    if last is not None and last.heap_bytes + last.mapped_bytes:
        text = "Bytes of the state in memory, with a memory limit"
        yield _gauge("state_heap_bytes", text, last.heap_bytes)
        text = "Bytes of the state that are memory maps of files, with a memory limit"
        yield _gauge("state_mapped_bytes", text, last.mapped_bytes)
    rows = _family("disk_rows", "Rows of a part of the state on disk", ["part"])
    sizes = _family("disk_bytes", "Bytes of a part of the state on disk", ["part"])
    for part, (count, size) in ({} if totals.last is None else totals.last.arrangements).items():
        rows.add_metric([part], count)
        sizes.add_metric([part], size)
    yield from (rows, sizes)


def _family(name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = _family(name, text, [label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _version() -> str:
    try:
        return version("dbsp-wcoj")
    except PackageNotFoundError:  # the package is not installed, but on the path
        return "unknown"
