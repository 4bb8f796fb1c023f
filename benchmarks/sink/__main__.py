"""Measures the cost of durable state in time and bytes, through Spark and without it.

Claim: a `ViewSink` with its state on the local disk takes at most 1.5 times as long as a function
that only fetches the rows of each micro-batch, plus 30 ms. With 10 million rows of state it
restarts and completes its next micro-batch in under 2 seconds. Over 1,000 micro-batches of 1,000
rows it writes at most 12 bytes for each byte of change.

Parts, each in a module of its own:

overhead   `benchmarks.sink.overhead`: both functions take turns on one stream
stream     `benchmarks.sink.stream`: live triangles of real messages, in events per second
restart    `benchmarks.sink.restart`: restart time, by rows of state
writes     `benchmarks.sink.writes`: bytes written, and micro-batches that take long

Every delta, count and state is compared with an independent one. ``--quick`` runs all parts at
small sizes, to check that they work; its figures mean little.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

import dbsp_wcoj
from benchmarks.options import check_names
from benchmarks.parts import PartsRun, open_run
from benchmarks.result import Result, Row
from benchmarks.shared_data import SHARED
from benchmarks.sink.overhead import measure_overhead
from benchmarks.sink.restart import measure_restart
from benchmarks.sink.stream import generate_stream, measure_stream, read_stream
from benchmarks.sink.writes import measure_writes

CLAIM = (
    "The durable sink takes at most 1.5 times as long as a function that only fetches the rows, "
    "plus 30 ms. It restores 10 million rows of state and completes the next micro-batch in under "
    "2 seconds. It writes at most 12 bytes for a byte of change"
)
OVERHEAD, STREAM = "Overhead of a durable sink", "Triangles of a stream, durably"
RESTART, WRITES = "Restart", "Bytes written for a byte of change"
PARTS = ("overhead", "stream", "restart", "writes")

_EVENTS = SHARED / "data" / "sx-mathoverflow" / "sx-mathoverflow-window-events.parquet"


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts."""

    overhead: dict[int, int]  # rows of a micro-batch: rounds
    warm_up_rounds: int  # rounds before them that are not timed
    stream: dict[int, int]  # events of a micro-batch: maximum number of micro-batches
    generated_edges: int  # edges of the generated stream
    restart: tuple[int, ...]  # rows of state
    restart_strings: int  # rows of state with strings
    writes: dict[int, int]  # rows of a micro-batch: micro-batches
    target_rows: int  # the rows of a micro-batch that ``writes`` has a target for


FULL = Sizes(
    overhead={0: 40, 1_000: 40, 100_000: 40, 1_000_000: 20},
    warm_up_rounds=8,
    stream={100: 200, 1_000: 200, 10_000: 30},
    generated_edges=200_000,
    restart=(100_000, 1_000_000, 10_000_000),
    restart_strings=1_000_000,
    writes={1_000: 1_000, 100: 1_000, 10: 1_000},
    target_rows=1_000,
)
QUICK = Sizes(
    overhead={0: 2, 100: 2},
    warm_up_rounds=1,
    stream={50: 4},
    generated_edges=1_000,
    restart=(2_000,),
    restart_strings=500,
    writes={40: 12, 4: 6},
    target_rows=40,
)


def main(
    part: Annotated[
        list[str], typer.Option(help=f"Parts, of {', '.join(PARTS)}; all by default.")
    ] = list(PARTS),  # noqa: B006
    events: Annotated[Path, typer.Option(help="The stream; its oracle lies beside it.")] = _EVENTS,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder on the disk to measure; a temporary folder by default."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small sizes.")] = False,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    check_names(part, PARTS, "part")
    dbsp_wcoj.warm_up()
    with open_run("sink", part, seed=seed, json=json, parent_folder=folder) as run:
        measure(run, QUICK if quick else FULL, events)


def measure(run: PartsRun, sizes: Sizes, events: Path) -> None:
    """Run the parts, and write the result; ``events`` is the file of the stream."""
    tables: dict[str, list[Row]] = {OVERHEAD: [], STREAM: [], RESTART: [], WRITES: []}
    result = Result("sink", CLAIM, tables)
    if "restart" in run.parts:
        tables[RESTART] = _measure_restarts(run, sizes)
    if "writes" in run.parts:
        tables[WRITES] = _measure_writes(run, sizes)
    if {"overhead", "stream"} & set(run.parts):
        session = run.start_spark()
        if "overhead" in run.parts:
            tables[OVERHEAD] = _measure_overhead(session, run, sizes)
        if "stream" in run.parts:
            tables[STREAM] = _measure_streams(session, run, sizes, events)
    run.verdict.close(result, run.json)


def _measure_restarts(run: PartsRun, sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    cases = [*((size, False) for size in sizes.restart), (sizes.restart_strings, True)]
    for size, strings in cases:
        run.report(f"restart, {size:,} rows{' of strings' if strings else ''} ...")
        state = run.folder / f"restart-{size}-{strings}"
        rows.append(
            measure_restart(state, rows=size, strings=strings, seed=run.seed, verdict=run.verdict)
        )
    return rows


def _measure_writes(run: PartsRun, sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    for size, batches in sizes.writes.items():
        run.report(f"writes, {batches:,} micro-batches of {size:,} rows ...")
        has_target = size == sizes.target_rows
        rows += measure_writes(
            run.folder / f"writes-{size}",
            rows=size,
            batches=batches,
            deletes=has_target,
            has_target=has_target,
            seed=run.seed,
            verdict=run.verdict,
        )
    return rows


def _measure_overhead(session: SparkSession, run: PartsRun, sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    for size, rounds in sizes.overhead.items():
        run.report(f"overhead, micro-batches of {size:,} rows ...")
        rows += measure_overhead(
            session,
            run.folder / f"overhead-{size}",
            rows=size,
            rounds=rounds,
            warm_up_rounds=sizes.warm_up_rounds,
            verdict=run.verdict,
        )
    return rows


def _measure_streams(session: SparkSession, run: PartsRun, sizes: Sizes, events: Path) -> list[Row]:
    """Return the rows of the stream in the file, or of a generated one if there is no file."""
    if events.is_file():
        stream = read_stream(events)
    else:
        run.report(f"no stream at {events}: a generated one is used instead")
        stream = generate_stream(sizes.generated_edges, run.folder, run.seed)
    rows: list[Row] = []
    for size, max_batches in sizes.stream.items():
        run.report(f"stream, {size:,} events in a micro-batch ...")
        rows.append(
            measure_stream(
                session,
                run.folder,
                stream,
                size=size,
                max_batches=max_batches,
                verdict=run.verdict,
            )
        )
    return rows


if __name__ == "__main__":
    typer.run(main)
