"""Measures a durable sink against a function that only fetches the rows of each micro-batch.

In one stream and one session, the functions take turns: micro-batch ``b`` is passed to function ``b
% functions``, so that other work on the machine affects all of them alike. Each sink has its own
state directory, and gets the batch ids 0, 1, 2 ... The view keeps one row in a hundred, or every
second one, and has no state. So the figures show the cost of reading and writing rows and files.

Two times of a micro-batch are shown: the function alone, and Spark's whole trigger around it. The
target is for the function alone, because Spark's own work would hide the sink's.
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
#: The share of the rows that a view keeps, and the divisor of their values.
EVERY = {"1 %": 100, "50 %": 2}
PHASES = ("read", "decode", "step", "write", "publish")
FACTOR, MILLISECONDS = 1.5, 30.0  # the target


@dataclass
class Turn:
    """One of the functions, with the seconds and the ids of its micro-batches."""

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
    warm: int,
    verdict: Verdict,
) -> list[Row]:
    """Return a row for each sink, at one size of micro-batches; the first rounds are a warm-up."""
    turns = [Turn("bare", lambda df, _: df.toArrow())]
    counted: list[int] = []
    for name, every in EVERY.items():
        turns.append(_sink(name, every, folder / name.replace(" ", "")))
    turns.append(_sink("50 %", 2, folder / "counted", counted))
    triggers = _run(session, turns, folder, rows=rows, rounds=rounds + warm)
    bare = turns[0]
    results: list[Row] = []
    for number, turn in enumerate(turns[1:], 1):
        assert turn.sink is not None
        every = EVERY[turn.name]
        what = f"{rows:,} rows, a view of {turn.name}"
        verdict.set_truth(what, sum(_kept(rows, batch, every) for batch in turn.batches))
        given = [metrics.rows_out["view"] for metrics in turn.sink.metrics]
        verdict.compare("its deltas", what, sum(given))
        if turn.on_delta:
            verdict.compare("the frames given to on_delta", what, sum(counted))
        results.append(_row(rows, bare, turn, triggers, number, warm))
        turn.sink.close()
    return results


def _sink(name: str, every: int, folder: Path, counted: list[int] | None = None) -> Turn:
    circuit = compile_sql(
        f"SELECT timestamp, value FROM r WHERE value % {every} = 0", {"r": SCHEMA}, name="view"
    )

    def count(frame: DataFrame, batch_id: int) -> None:
        assert counted is not None
        counted.append(frame.count())

    sink = ViewSink(circuit, None if counted is None else count, state_dir=folder)
    return Turn(name, sink, sink, None if counted is None else "counts")


def _run(
    session: SparkSession, turns: Sequence[Turn], folder: Path, *, rows: int, rounds: int
) -> list[float]:
    """Stream until every function has had ``rounds`` turns; return the seconds of each trigger."""
    wanted = rounds * len(turns)
    done = threading.Event()

    def take(df: DataFrame, batch_id: int) -> None:
        number, position = divmod(batch_id, len(turns))
        if batch_id >= wanted:
            done.set()
            return
        turn = turns[position]
        begun = time.perf_counter()
        turn.function(df, number)
        turn.seconds.append(time.perf_counter() - begun)
        turn.batches.append(batch_id)

    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(wanted + 10))
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", max(rows, 1))
    stream = source.load() if rows else source.load().where("value < 0")
    query = (
        stream.writeStream.foreachBatch(take)
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
    return [progress[batch]["triggerExecution"] / 1000 for batch in range(wanted)]


def _kept(rows: int, batch: int, every: int) -> int:
    """Count the values of a micro-batch that ``every`` divides; values count up from 0."""
    first, end = batch * rows, (batch + 1) * rows
    return -(-end // every) - -(-first // every)


def _row(rows: int, bare: Turn, turn: Turn, triggers: list[float], number: int, warm: int) -> Row:
    assert turn.sink is not None
    metrics = list(turn.sink.metrics)[warm:]
    mine, other = _median(turn.seconds[warm:]), _median(bare.seconds[warm:])
    # Counting the rows in ``on_delta`` runs a Spark job, so such a sink has no target.
    target = None if turn.on_delta else FACTOR * other + MILLISECONDS
    return {
        "rows/batch": rows,
        "view keeps": turn.name,
        "on_delta": turn.on_delta,
        "batches": len(metrics),
        "bare ms": other,
        "sink ms": mine,
        "times": mine / other,
        "target ms": target,
        "met": None if target is None else mine <= target,
        **{
            f"{phase} ms": _median([one.seconds.get(phase, 0.0) for one in metrics])
            for phase in PHASES
        },
        "bare trigger ms": _median([triggers[batch] for batch in bare.batches[warm:]]),
        "sink trigger ms": _median([triggers[batch] for batch in turn.batches[warm:]]),
    }


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
