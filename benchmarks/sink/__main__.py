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

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

import dbsp_wcoj
from benchmarks.options import check_names
from benchmarks.result import Result, Row, terminal
from benchmarks.sink.overhead import measure_overhead
from benchmarks.sink.restart import measure_restart
from benchmarks.sink.stream import generate_stream, measure_stream, read_stream
from benchmarks.sink.writes import measure_writes
from benchmarks.verdict import Verdict
from streaming import start_session

CLAIM = (
    "The durable sink takes at most 1.5 times as long as a function that only fetches the rows, "
    "plus 30 ms. It restores 10 million rows of state and completes the next micro-batch in under "
    "2 seconds. It writes at most 12 bytes for a byte of change"
)
OVERHEAD, STREAM = "Overhead of a durable sink", "Triangles of a stream, durably"
RESTART, WRITES = "Restart", "Bytes written for a byte of change"
PARTS = ("overhead", "stream", "restart", "writes")

_SHARED = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[3] / "shared"))
_EVENTS = _SHARED / "data" / "sx-mathoverflow" / "sx-mathoverflow-window-events.parquet"


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts."""

    overhead: dict[int, int]  # rows of a micro-batch: rounds
    warm: int  # rounds before them that are not timed
    stream: dict[int, int]  # events of a micro-batch: maximum number of micro-batches
    generated: int  # edges of the generated stream
    restart: tuple[int, ...]  # rows of state
    texts: int  # rows of state with strings
    writes: dict[int, int]  # rows of a micro-batch: micro-batches
    target_rows: int  # the rows of a micro-batch that ``writes`` has a target for


FULL = Sizes(
    overhead={0: 40, 1_000: 40, 100_000: 40, 1_000_000: 20},
    warm=8,
    stream={100: 200, 1_000: 200, 10_000: 30},
    generated=200_000,
    restart=(100_000, 1_000_000, 10_000_000),
    texts=1_000_000,
    writes={1_000: 1_000, 100: 1_000, 10: 1_000},
    target_rows=1_000,
)
QUICK = Sizes(
    overhead={0: 2, 100: 2},
    warm=1,
    stream={50: 4},
    generated=1_000,
    restart=(2_000,),
    texts=500,
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
    with tempfile.TemporaryDirectory(prefix="dbsp-wcoj-sink-", dir=folder) as name:
        measure(
            Path(name),
            QUICK if quick else FULL,
            part=part,
            events=events,
            seed=seed,
            json=json,
            start=lambda log: start_session("benchmarks.sink", log=log),
        )


def measure(
    folder: Path,
    sizes: Sizes,
    *,
    part: list[str],
    events: Path,
    seed: int,
    json: Path | None,
    start: Callable[[Path], SparkSession],
) -> None:
    """Run the parts; those without Spark run before its session starts."""
    verdict = Verdict()
    tables: dict[str, list[Row]] = {OVERHEAD: [], STREAM: [], RESTART: [], WRITES: []}
    result = Result("sink", CLAIM, tables)
    progress = terminal()
    if "restart" in part:
        for rows, texts in [*((rows, False) for rows in sizes.restart), (sizes.texts, True)]:
            progress.print(f"restart, {rows:,} rows{' of strings' if texts else ''} ...")
            state = folder / f"restart-{rows}-{texts}"
            tables[RESTART].append(
                measure_restart(state, rows=rows, texts=texts, seed=seed, verdict=verdict)
            )
    if "writes" in part:
        for rows, batches in sizes.writes.items():
            progress.print(f"writes, {batches:,} micro-batches of {rows:,} rows ...")
            has_target = rows == sizes.target_rows
            tables[WRITES] += measure_writes(
                folder / f"writes-{rows}",
                rows=rows,
                batches=batches,
                deletes=has_target,
                target=has_target,
                seed=seed,
                verdict=verdict,
            )
    if {"overhead", "stream"} & set(part):
        session = start(folder / "spark.log")
        session.sparkContext.setLogLevel("ERROR")
        if "overhead" in part:
            for rows, rounds in sizes.overhead.items():
                progress.print(f"overhead, micro-batches of {rows:,} rows ...")
                state = folder / f"overhead-{rows}"
                tables[OVERHEAD] += measure_overhead(
                    session, state, rows=rows, rounds=rounds, warm=sizes.warm, verdict=verdict
                )
        if "stream" in part:
            if events.is_file():
                stream = read_stream(events)
            else:
                progress.print(f"no stream at {events}: a generated one is used instead")
                stream = generate_stream(sizes.generated, folder, seed)
            for size, max_batches in sizes.stream.items():
                progress.print(f"stream, {size:,} events in a micro-batch ...")
                tables[STREAM].append(
                    measure_stream(
                        session,
                        folder,
                        stream,
                        size=size,
                        max_batches=max_batches,
                        verdict=verdict,
                    )
                )
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
