"""Measures a durable sink against a function that only fetches the rows of each micro-batch.

In one stream and one session, the functions take turns: of n functions, function i gets the
micro-batches i, i + n, i + 2n ... So other work on the machine affects all of them alike. Each sink
has its own state directory, and gets the batch ids 0, 1, 2 ... The view keeps one row in a hundred,
or every second one, and has no state. So the figures show the cost of reading and writing rows and
files.

Two times of a micro-batch are shown: that of the function alone, and that of Spark's whole trigger,
which calls it. The target is for the function alone, because Spark's own work would hide the
sink's.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.result import Row
from benchmarks.verdict import Verdict
from circuits import compile_sql
from streaming import ViewSink

SCHEMA = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])
#: For each view, named by the share of the rows that it keeps: it keeps the multiples of a divisor.
DIVISORS = {"1 %": 100, "50 %": 2}
PHASES = ("read", "decode", "step", "write", "publish")
#: The target of a sink: at most TARGET_FACTOR times the time of the bare function, plus TARGET_MS.
TARGET_FACTOR, TARGET_MS = 1.5, 30.0


@dataclass
class MeasuredFunction:
    """One of the functions, with the seconds and the ids of its micro-batches.

    ``on_delta`` describes the sink's callback for deltas; None if it has none.
    """

    name: str
    function: Callable[[DataFrame, int], object]
    sink: ViewSink | None = None
    on_delta: str | None = None
    seconds: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


def measure_overhead(
    session: SparkSession,
    folder: Path,
    *,
    rows: int,
    rounds: int,
    warm_up_rounds: int,
    verdict: Verdict,
) -> list[Row]:
    """Return a row for each sink, at one size of micro-batches; a warm-up is not timed."""
    functions = [MeasuredFunction("bare", lambda df, _: df.toArrow())]
    counted_rows: list[int] = []
    for name, divisor in DIVISORS.items():
        functions.append(_sink(name, divisor, folder / name.replace(" ", "")))
    functions.append(_sink("50 %", 2, folder / "counted", counted_rows))
    triggers = _run(session, functions, folder, rows=rows, rounds=rounds + warm_up_rounds)
    bare = functions[0]
    results: list[Row] = []
    for function in functions[1:]:
        assert function.sink is not None
        divisor = DIVISORS[function.name]
        case = f"{rows:,} rows, a view of {function.name}"
        verdict.set_truth(case, sum(_count_kept(rows, b, divisor) for b in function.batches))
        delta_rows = [metrics.rows_out["view"] for metrics in function.sink.metrics]
        verdict.compare("its deltas", case, sum(delta_rows))
        if function.on_delta:
            verdict.compare("the frames given to on_delta", case, sum(counted_rows))
        results.append(_row(rows, bare, function, triggers, warm_up_rounds))
        function.sink.close()
    return results


def _sink(
    name: str, divisor: int, folder: Path, counted_rows: list[int] | None = None
) -> MeasuredFunction:
    """Return a sink whose view keeps the multiples of a divisor.

    Its callback appends the rows of each delta to ``counted_rows``; there is none without it.
    """
    circuit = compile_sql(
        f"SELECT timestamp, value FROM r WHERE value % {divisor} = 0", {"r": SCHEMA}, name="view"
    )

    def count(frame: DataFrame, batch_id: int) -> None:
        assert counted_rows is not None
        counted_rows.append(frame.count())

    sink = ViewSink(circuit, None if counted_rows is None else count, state_dir=folder)
    return MeasuredFunction(name, sink, sink, None if counted_rows is None else "counts")


def _run(
    session: SparkSession,
    functions: Sequence[MeasuredFunction],
    folder: Path,
    *,
    rows: int,
    rounds: int,
) -> list[float]:
    """Stream until every function has had ``rounds`` turns; return the seconds of each trigger."""
    batches = rounds * len(functions)
    done = threading.Event()

    def process_batch(df: DataFrame, batch_id: int) -> None:
        round_number, position = divmod(batch_id, len(functions))
        if batch_id >= batches:
            done.set()
            return
        function = functions[position]
        start = time.perf_counter()
        function.function(df, round_number)
        function.seconds.append(time.perf_counter() - start)
        function.batches.append(batch_id)

    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", max(rows, 1))
    stream = source.load() if rows else source.load().where("value < 0")
    query = (
        stream.writeStream.foreachBatch(process_batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        while not done.wait(0.1):
            failure = query.exception()
            if failure is not None:
                raise failure
    finally:
        progress = {p["batchId"]: p["durationMs"] for p in query.recentProgress}
        query.stop()
    return [progress[batch]["triggerExecution"] / 1000 for batch in range(batches)]


def _count_kept(rows: int, batch: int, divisor: int) -> int:
    """Count the multiples of ``divisor`` in a micro-batch; the stream counts up from 0."""
    first, end = batch * rows, (batch + 1) * rows
    return -(-end // divisor) - -(-first // divisor)


def _row(
    rows: int,
    bare: MeasuredFunction,
    function: MeasuredFunction,
    triggers: list[float],
    warm_up_rounds: int,
) -> Row:
    assert function.sink is not None
    metrics = list(function.sink.metrics)[warm_up_rounds:]
    sink_ms, bare_ms = (
        _median(function.seconds[warm_up_rounds:]),
        _median(bare.seconds[warm_up_rounds:]),
    )
    # Counting the rows in ``on_delta`` runs a Spark job, so such a sink has no target.
    target = None if function.on_delta else TARGET_FACTOR * bare_ms + TARGET_MS
    return {
        "rows/batch": rows,
        "view keeps": function.name,
        "on_delta": function.on_delta,
        "batches": len(metrics),
        "bare ms": bare_ms,
        "sink ms": sink_ms,
        "times bare": sink_ms / bare_ms,
        "target ms": target,
        "met": None if target is None else sink_ms <= target,
        **{
            f"{phase} ms": _median([batch.seconds.get(phase, 0.0) for batch in metrics])
            for phase in PHASES
        },
        "bare trigger ms": _median([triggers[batch] for batch in bare.batches[warm_up_rounds:]]),
        "sink trigger ms": _median(
            [triggers[batch] for batch in function.batches[warm_up_rounds:]]
        ),
    }


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
