"""Tests of `streaming.distributed.execution.loaded_cell`: large runs of cells are maps of files."""

from __future__ import annotations

from collections import Counter
from math import log2
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from streaming.distributed.execution import loaded_cell
from streaming.distributed.execution.executor_cache import ExecutorCache
from streaming.errors import StateDamagedError
from streaming.state import writer
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_cell_manifest
from streaming.state.mapped.mapped_file import MappedFile
from tests.streaming.distributed.test_attempts import Context, EngineRun
from tests.support.tables import bag_of

SCHEMA = {"e": "src BIGINT NOT NULL, dst BIGINT NOT NULL"}
VIEW = "SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src"
#: The rows of a step whose runs are larger than `MIN_BYTES`; those of a small step are smaller.
MANY, FEW = 3_000, 20
MIN_BYTES = 10_000
MAPS: Counter[str] = Counter()


class CountingFiles(LocalFiles):
    """A directory that counts the maps of each file in `MAPS`."""

    def map(self, name: str, size: int) -> MappedFile:
        MAPS[name] += 1
        return super().map(name, size)


class UnmappableFiles(LocalFiles):
    """A directory whose files cannot be mapped."""

    def map(self, name: str, size: int) -> MappedFile:
        raise OSError("too many open files")


@pytest.fixture(autouse=True)
def _map_small_runs(monkeypatch):
    monkeypatch.setattr(loaded_cell, "MIN_MAPPED_BYTES", MIN_BYTES)
    MAPS.clear()


def edges(number: int, rows: int, weight: int = 1) -> dict[str, pa.Table]:
    """Return a path of other edges for each number; their number is that of the rows."""
    first = 10_000 * number
    src = [*range(first, first + rows)]
    columns = {"src": src, "dst": [node + 1 for node in src], "weight": [weight] * rows}
    return {"e": pa.table(columns)}


def one_worker(workers: int = 1) -> Context:
    context = Context(0)
    context.workers, context.attempts = [ExecutorCache() for _ in range(workers)], (1,)
    return context


def runs_of(cache: ExecutorCache) -> list[Any]:
    return [
        run
        for cell in cache._cells.values()
        for trace in cell.circuit.graph.traces.values()
        for arrangement in trace.arrangements
        for run in arrangement.spine.runs
    ]


def merged_in_files(folder: Path) -> bool:
    return any("-merged-" in path.name for path in folder.rglob("*.arrow"))


class Comparison:
    """Steps an engine with one cell, and compares it with an embedded circuit."""

    def __init__(self, files: LocalFiles, context: Context) -> None:
        circuit = compile_sql(VIEW, SCHEMA)
        self.run, self.embedded = EngineRun(circuit, files, 1), Circuit(circuit.spec)
        self.context, self.number = context, 0

    def step(self, tables: dict[str, pa.Table]) -> None:
        expected = {name: bag_of(table) for name, table in self.embedded.step(tables).items()}
        assert self.run.step(tables, self.number, self.context) == expected
        self.number += 1


def test_large_runs_are_mapped_and_small_ones_are_in_memory(tmp_path):
    context = one_worker()
    (cache,) = context.workers
    run = Comparison(CountingFiles(tmp_path), context)
    run.step(edges(0, MANY))
    assert {run.is_mapped for run in runs_of(cache)} == {True}
    run.step(edges(1, FEW))
    maps = MAPS.total()
    assert {run.is_mapped for run in runs_of(cache)} == {True, False}
    assert 0 < sum(cell.heap_bytes for cell in cache._cells.values()) < MIN_BYTES
    run.step(edges(2, FEW))
    assert MAPS.total() == maps  # small steps map nothing again
    run.step(edges(3, MANY))
    assert MAPS.total() > maps and set(MAPS.values()) == {1}
    assert sum(run.nbytes for run in runs_of(cache) if not run.is_mapped) < MIN_BYTES
    run.step(edges(0, MANY, -1))
    run.step(edges(3, MANY, -1))
    run.run.engine.versions.close()


def test_workers_that_take_turns_map_the_same_files(tmp_path):
    context = one_worker(2)
    first, second = context.workers
    run = Comparison(CountingFiles(tmp_path), context)
    for number in range(6):
        context.workers = [first if number % 2 else second]
        run.step(edges(number, MANY if number < 2 else FEW))
    assert set(MAPS.values()) <= {1, 2}
    for worker in (first, second):
        large = [run for run in runs_of(worker) if run.nbytes >= MIN_BYTES]
        assert large and all(run.is_mapped for run in large)
    run.run.engine.versions.close()


def test_workers_that_take_turns_build_the_operators_of_a_cell_once_each(tmp_path):
    context = one_worker(2)
    first, second = context.workers
    run, versions = Comparison(LocalFiles(tmp_path), context), 7
    with patch.object(Circuit, "build_graph", autospec=True, side_effect=Circuit.build_graph) as b:
        for number in range(versions):
            context.workers = [first if number % 2 else second]
            run.step(edges(number, FEW))
    # The first version has no state to load: each worker builds the circuit when it begins.
    assert b.call_count == 2
    run.run.engine.versions.close()


def test_a_worker_that_cannot_map_files_keeps_the_rows_in_memory(tmp_path, caplog):
    context = one_worker()
    run = Comparison(UnmappableFiles(tmp_path), context)
    run.step(edges(0, MANY))
    run.step(edges(1, FEW))
    assert {run.is_mapped for run in runs_of(context.workers[0])} == {False}
    (cell,) = context.workers[0]._cells.values()
    assert cell.heap_bytes > MIN_BYTES
    context.workers = [ExecutorCache()]  # another worker loads the cell
    run.step(edges(2, FEW))
    assert {run.is_mapped for run in runs_of(context.workers[0])} == {False}
    assert "too many open files" in caplog.text
    run.run.engine.versions.close()


def test_a_damaged_file_is_found_before_it_is_mapped(tmp_path):
    context = one_worker()
    run = Comparison(LocalFiles(tmp_path), context)
    run.step(edges(0, MANY))
    path = max(Path(tmp_path).rglob("*.arrow"), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    context.workers = [ExecutorCache()]
    with pytest.raises(StateDamagedError, match="checksum"):
        run.run.step(edges(1, FEW), 1, context)
    run.run.engine.versions.close()


@pytest.mark.parametrize("min_file_merge_bytes", [0, 1 << 26])
def test_large_mapped_runs_are_merged_early(tmp_path, monkeypatch, min_file_merge_bytes):
    monkeypatch.setattr(writer, "MIN_FILE_MERGE_BYTES", min_file_merge_bytes)
    monkeypatch.setattr(writer, "MIN_OWN_FILE_BYTES", MIN_BYTES)
    monkeypatch.setattr(writer, "MAX_SMALL_MERGE_ROWS", MANY)
    context, steps = one_worker(), 40
    (cache,) = context.workers
    run, counts, merged = Comparison(LocalFiles(tmp_path), context), [], 0
    before: dict[Any, Any] = {}
    for number in range(steps):
        run.step(edges(number, MANY, 1 if number % 9 else 2))
        (cell,) = cache._cells.values()
        parts = {
            (name, order): references
            for name, orders in read_cell_manifest(cell.manifest_bytes).traces.items()
            for order, references in orders.items()
        }
        counts.append(max(map(len, parts.values())))
        large_merges = 0
        for key, references in parts.items():
            rows = sum(part.rows for part in before.get(key, ()) if part not in references)
            merged += rows
            large_merges += rows > writer.SMALL_MERGE_ROWS_PER_NEW_ROW * MANY
        assert large_merges <= 1
        before = parts
    assert merged_in_files(tmp_path) == (min_file_merge_bytes == 0)
    runs = runs_of(cache)
    assert {each.is_mapped for each in runs} == {True}
    assert len(runs) <= sum(map(len, parts.values()))
    # Few runs, but no row is merged much more often than the logarithm of the steps says.
    assert max(counts) <= log2(steps) + 2 and sum(counts) / steps <= log2(steps)
    assert merged <= len(parts) * steps * MANY * log2(steps)
    context.workers = [ExecutorCache()]  # another worker loads the cell
    run.step(edges(3, MANY, -1))
    run.run.engine.versions.close()
