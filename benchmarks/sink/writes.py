"""Measures the bytes that a sink writes for each byte of change, and its longest micro-batches.

The view of triangles gets a thousand micro-batches with new edges of an RMAT graph. Then it gets a
thousand micro-batches in which half of the rows are inserts and half are deletes. The sink gets the
rows as tables, without Spark.

Every byte written to the file system is counted: files of the state (``data``), deltas of the view
(``outputs``), ``manifests``, and all others (metrics, the identity of the directory). A changed row
has 24 bytes: two columns and a weight, eight bytes each.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.counter import count
from benchmarks.result import Row
from benchmarks.rmat import rmat
from benchmarks.sink.graph import (
    Integers,
    changes_table,
    count_change,
    micro_batch_of,
    triangles_circuit,
)
from benchmarks.verdict import Verdict
from streaming import ViewSink
from streaming.state.files import Bytes
from streaming.state.local_files import LocalFiles

ROW_BYTES = 24
TARGET = 12.0  # bytes written for a byte of change


class CountedFiles:
    """Files on the local disk; counts the bytes written to each folder."""

    def __init__(self, folder: Path) -> None:
        self._files = LocalFiles(folder)
        self.written: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        self.written[_top_folder(name)] += sum(memoryview(chunk).nbytes for chunk in chunks)
        self._files.write(name, chunks)

    def append(self, name: str, text: str) -> None:
        self.written[_top_folder(name)] += len(text.encode())
        self._files.append(name, text)


def measure_writes(
    folder: Path,
    *,
    rows: int,
    batches: int,
    deletes: bool,
    has_target: bool,
    seed: int,
    verdict: Verdict,
) -> list[Row]:
    """Return a row for the inserts, and with ``deletes`` one for the mixed micro-batches."""
    # Draw twice as many edges as are inserted, because duplicates and loops are dropped.
    inserts = rows * batches + (rows // 2) * batches * deletes
    scale = max(6, int(inserts / 8).bit_length())
    source, target = rmat(scale, 2 * inserts + 100, seed=seed)
    chosen = np.random.default_rng(seed).permutation(len(source))[:inserts]
    source, target = source[chosen], target[chosen]
    files = CountedFiles(folder)
    sink = ViewSink(triangles_circuit(), state_dir=files)
    live = np.arange(rows * batches)  # the numbers of the edges that exist
    change_total = 0
    results = []
    for kind in ("inserts", "50 % deletes") if deletes else ("inserts",):
        files.written.clear()
        if kind == "inserts":
            steps = _inserts(source, target, rows, batches)
        else:
            inserted, deleted, live = _draw_exchanges(live, len(source), rows, batches, seed)
            steps = _mix(source, target, inserted, deleted)
        first = 0 if kind == "inserts" else batches
        for number, table in enumerate(steps, first):
            sink(micro_batch_of(table), number)
            assert sink.last is not None
            change_total += count_change(sink.last.outputs["triangles"])
        truth = f"triangles after {batches:,} micro-batches of {rows:,} rows, {kind}"
        verdict.set_truth(truth, count(source[live], target[live]))
        verdict.compare("the sum of the deltas", truth, change_total)
        results.append(_row(kind, rows, batches, list(sink.metrics), files.written, has_target))
    sink.close()
    return results


def _inserts(source: Integers, target: Integers, rows: int, batches: int) -> Iterator[pa.Table]:
    for first in range(0, rows * batches, rows):
        yield changes_table(source[first : first + rows], target[first : first + rows])


def _draw_exchanges(
    live: Integers, edge_count: int, rows: int, batches: int, seed: int
) -> tuple[Integers, Integers, Integers]:
    """Return the inserted and deleted edges of each micro-batch, and the live edges at the end.

    Edges are given by their numbers; those that are inserted are the last of ``edge_count``.
    """
    half = rows // 2
    inserted = np.arange(edge_count - half * batches, edge_count).reshape(batches, half)
    random = np.random.default_rng(seed + 1)
    # Any live edge may be deleted, even one that an earlier micro-batch of the mix inserted.
    pool = np.concatenate([live, np.empty(half * batches, np.int64)])
    size = len(live)
    deleted = np.empty_like(inserted)
    for number in range(batches):
        positions = np.sort(random.choice(size, half, replace=False))
        deleted[number] = pool[positions]
        pool[positions] = inserted[number]  # an inserted edge replaces each deleted one
    return inserted, deleted, pool[:size]


def _mix(
    source: Integers, target: Integers, insertions: Integers, deletions: Integers
) -> Iterator[pa.Table]:
    for inserted, deleted in zip(insertions, deletions, strict=True):
        edges = np.concatenate([inserted, deleted])
        weight = np.repeat([1, -1], [len(inserted), len(deleted)])
        yield changes_table(source[edges], target[edges], weight)


def _row(
    kind: str,
    rows: int,
    batches: int,
    metrics: Sequence[Any],
    written: Counter[str],
    has_target: bool,
) -> Row:
    changed_bytes = rows * batches * ROW_BYTES
    factor = sum(written.values()) / changed_bytes
    phases = [batch.seconds for batch in metrics[-batches:]]
    batch_ms = [1000 * (batch["step"] + batch["write"] + batch["merge"]) for batch in phases]
    return {
        "changes": kind,
        "rows/batch": rows,
        "batches": batches,
        "MB in": changed_bytes / 1e6,
        "MB written": sum(written.values()) / 1e6,
        "bytes/byte": factor,
        "target": TARGET if has_target else None,
        "met": factor <= TARGET if has_target else None,
        **{
            folder: written[folder] / changed_bytes
            for folder in ("data", "outputs", "manifests", "other")
        },
        "step ms": statistics.median(batch["step"] for batch in phases) * 1000,
        "write ms": statistics.median(batch["write"] for batch in phases) * 1000,
        "batch ms": statistics.median(batch_ms),
        "p99 ms": float(np.percentile(batch_ms, 99)),
        "max ms": max(batch_ms),
    }


def _top_folder(name: str) -> str:
    """Return the first folder of a path; "other" for a file that is in none."""
    folder, slash, _ = name.partition("/")
    return folder if slash else "other"
