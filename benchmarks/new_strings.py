"""Measures memory, disk and step time of a stream of ever new strings over few live rows.

Claim: memory and disk follow the live rows, not the strings that have ever occurred, and the time
of a step does not grow.

Inputs: each step inserts rows with new strings into two joined relations, and deletes those that
were inserted a fixed number of steps ago. At the end, the state is compared with that of a circuit
that has received only the live rows, in steps of the same size.

With ``--memory-limit``, rows and dictionaries of both circuits that exceed the limit are in maps of
files (`streaming.state.mapped`). Then the table of the stream also has the bytes in memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from benchmarks.cost import Clock
from benchmarks.result import Result, Row
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from streaming.state.local_files import LocalFiles
from streaming.state.store import Store

CLAIM: Final = "Memory and disk follow the live rows, not the strings that have ever occurred"
STREAM: Final = "Stream"
FINAL: Final = "Final size"
TARGET_RATIO: Final = 2.0
SAMPLES: Final = 10
STRINGS_PER_ROW: Final = 2  # the key and the text of a row
SQL: Final = "SELECT a.k, a.v, b.n FROM a JOIN b ON a.k = b.k"
SCHEMAS: Final = {"a": "k text, v text", "b": "k text, n int"}
MEGABYTE: Final = 10**6


class Stream:
    """A circuit with a state directory, and the steps that it has received.

    Args:
        folder: The state directory.
        first: The number of the first row.
        memory_limit: The bytes of the state that may be in memory; None for no limit.

    Attributes:
        joined: The sum of the weights of all rows that the view has emitted.
    """

    def __init__(self, folder: Path, first: int = 0, memory_limit: int | None = None) -> None:
        self.circuit: Circuit = compile_sql(SQL, SCHEMAS, threads=1)
        self.joined = 0
        self._folder = folder
        self._store = Store(LocalFiles(folder), self.circuit, memory_limit=memory_limit)
        self._next_row = first
        self._batch_id = 0

    def step(self, rows: int, window: int | None) -> float:
        """Insert new rows, delete those from ``window`` rows ago; return the CPU seconds."""
        parts = [tables_of(self._next_row, rows, 1)]
        if window is not None and self._next_row >= window:
            parts.append(tables_of(self._next_row - window, rows, -1))
        self._next_row += rows
        tables = {name: pa.concat_tables([part[name] for part in parts]) for name in SCHEMAS}
        clock = Clock()
        self._store.find(self._batch_id, None)
        step = self.circuit.prepare(tables)
        self._store.write(self._batch_id, None, step, outputs={}, digests=step.digests)
        step.commit()
        self._store.confirm_commit()
        seconds = clock.read().cpu
        self._batch_id += 1
        self.joined += pc.sum(step.outputs["view"]["weight"]).as_py() or 0
        return seconds

    def sizes(self) -> Row:
        """Return the megabytes of the state."""
        dictionaries = self.circuit.graph.registry.dictionaries.values()
        traces = self.circuit.graph.traces.values()
        runs = sum(entry.spine.nbytes for trace in traces for entry in trace.arrangements)
        files = sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())
        return {
            "dictionaries MB": sum(entry.nbytes for entry in dictionaries) / MEGABYTE,
            "rows MB": runs / MEGABYTE,
            "disk MB": files / MEGABYTE,
        }

    def memory(self) -> Row:
        """Return the megabytes of the state in memory and in maps; nothing without a limit."""
        use = self._store.memory
        if use is None:
            return {}
        return {"in memory MB": use.heap_bytes / MEGABYTE, "mapped MB": use.mapped_bytes / MEGABYTE}

    def close(self) -> None:
        """Stop the compaction."""
        self._store.close()


def tables_of(first: int, rows: int, weight: int) -> dict[str, pa.Table]:
    """Return rows with these numbers, each with strings of its own."""
    numbers = np.arange(first, first + rows)
    keys = pa.array(np.char.add("key-", numbers.astype(str)))
    texts = pa.array(np.char.add("some value ", numbers.astype(str)))
    weights = np.full(rows, weight)
    return {
        "a": pa.table({"k": keys, "v": texts, "weight": weights}),
        "b": pa.table({"k": keys, "n": (numbers % 100).astype(np.int32), "weight": weights}),
    }


def measure(
    verdict: Verdict,
    folder: Path,
    strings: int,
    live: int,
    batch: int,
    memory_limit: int | None = None,
) -> tuple[list[Row], list[Row]]:
    """Run the stream and the fresh load; return the tables `STREAM` and `FINAL`."""
    stream, rows = Stream(folder / "stream", memory_limit=memory_limit), []
    steps = -(-strings // (STRINGS_PER_ROW * batch))
    seconds: list[float] = []
    for step in range(steps):
        seconds.append(stream.step(batch, live))
        if (step + 1) * SAMPLES // steps > step * SAMPLES // steps:
            row: Row = {
                "strings": (step + 1) * batch * STRINGS_PER_ROW,
                "median step CPU ms": 1000 * median(seconds),
                "largest step CPU ms": 1000 * max(seconds),
            }
            rows.append(row | stream.sizes() | stream.memory())
            seconds.clear()
    fresh = Stream(folder / "fresh", steps * batch - live, memory_limit)
    for _ in range(live // batch):
        fresh.step(batch, None)
    finals = []
    for name, expected in fresh.sizes().items():
        actual = stream.sizes()[name]
        assert isinstance(expected, float) and isinstance(actual, float)
        ratio = actual / expected
        finals.append(
            {"size": name, "after the stream": actual, "fresh": expected, "ratio": ratio}
            | {"target": TARGET_RATIO, "met": ratio <= TARGET_RATIO}
        )
    for circuit in (stream, fresh):
        circuit.close()
    verdict.set_truth("joined rows of the fresh load", fresh.joined, live)
    verdict.compare("joined rows", "joined rows of the fresh load", stream.joined)
    return rows, finals


def main(
    strings: Annotated[int, typer.Option(help="The new strings of the stream.")] = 1_000_000,
    live: Annotated[int, typer.Option(help="The live rows of each relation.")] = 100_000,
    batch: Annotated[int, typer.Option(help="The rows that a step inserts.")] = 1_000,
    memory_limit: Annotated[
        float | None,
        typer.Option(help="The memory limit of the state in MB; by default there is none."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure the stream; exit status 1 if the view is wrong."""
    result, verdict = Result("new_strings", CLAIM, {}), Verdict()
    limit = None if memory_limit is None else round(memory_limit * MEGABYTE)
    with tempfile.TemporaryDirectory() as folder:
        rows, finals = measure(verdict, Path(folder), strings, live, batch, limit)
    result.tables.update({STREAM: rows, FINAL: finals})
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
