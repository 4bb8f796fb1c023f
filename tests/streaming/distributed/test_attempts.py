"""Cells give the deltas of one process, whatever tasks fail and whichever values are heavy.

A class of this file stands for Spark's context: it runs tasks in this process, in any order, and
some of them several times, of which it takes one result. Each task runs on one of several workers,
whose caches have different cells. So random circuits run through the whole distributed engine,
with its files and commits.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_sql
from streaming import ViewSink
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.engine import DistributedEngine, read_newest_cells
from streaming.distributed.execution import loaded_cell, task
from streaming.distributed.execution.executor_cache import ExecutorCache, Key
from streaming.distributed.execution.loaded_cell import LoadedCell
from streaming.distributed.planning import grid_planning, load_balance
from streaming.distributed.planning.load_balance import count_loads
from streaming.engine.engine import MicroBatch
from streaming.sources.dead_letters import DeadLetters
from streaming.sources.envelope import Changes
from streaming.state import writer
from streaming.state.local_files import LocalFiles
from tests.circuits.sql.test_sql_circuits import SCHEMAS, World
from tests.generators.sql_generator import selects
from tests.streaming.distributed.test_engine import HUBS, Frame, batch_of, hub, load_ratios, outputs
from tests.streaming.distributed.test_engine import SCHEMAS as GRAPH
from tests.support.tables import bag_of

LAW = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

#: A number of finished tasks after which a worker collects no garbage.
NO_COLLECTION = 3


class Tasks:
    """The tasks of one job, run in this process."""

    def __init__(self, context: Context, parts: list[Any]) -> None:
        self._context, self._parts = context, parts

    def mapPartitions(self, run: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:  # Spark's name
        self._run = pickle.dumps(run)
        return self

    def collect(self) -> list[Any]:
        rng, result = self._context.rng, []
        rng.shuffle(self._parts)
        for part in self._parts:
            attempts = []
            for _ in range(rng.choice(self._context.attempts)):
                with self._context.worker():
                    attempts.append([*pickle.loads(self._run)([part])])
            result += rng.choice(attempts)
        self._context.collected_bytes += len(pickle.dumps(result))
        return result


class Context:
    """Stands for Spark's context: two workers, one of which caches only two cells.

    Attributes:
        attempts: The possible numbers of attempts at a task.
        collected_bytes: The bytes of all results that the driver has collected.
    """

    defaultParallelism = 3
    attempts: tuple[int, ...] = (1, 1, 2, 3)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.workers = [ExecutorCache(), ExecutorCache(max_cells=2)]
        self.jobs = 0
        self.collected_bytes = 0

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Choose the worker that runs a task.

        Workers collect garbage after some tasks. A collection in this process would visit the
        objects of all tests; together they took an eighth of the time of the tests of cells.
        """
        with (
            patch.object(task, "CACHE", self.rng.choice(self.workers)),
            patch.object(task, "_FINISHED_TASKS", repeat(NO_COLLECTION)),
        ):
            yield

    def getLocalProperty(self, name: str) -> None:  # Spark's name
        return None

    def parallelize(self, parts: list[Any], number: int) -> Tasks:
        assert number == len(parts) <= self.defaultParallelism
        self.jobs += 1
        return Tasks(self, list(parts))


class EngineRun:
    """A distributed engine on a state directory, driven as a sink drives it."""

    def __init__(self, circuit: Circuit, files: LocalFiles, cells: int) -> None:
        self.engine = DistributedEngine(circuit, cells=cells, files=files, keep=2)

    def step(self, tables: dict[str, pa.Table], batch_id: int, context: Context) -> dict:
        engine = self.engine
        assert engine.versions.find(batch_id, None) is None
        step = engine.circuit.prepare(tables)
        frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
        batch = MicroBatch(batch_id, None, Changes({}, DeadLetters.empty()), frame)
        answer = engine.evaluate(step, batch)
        engine.versions.write(
            batch_id, None, step, outputs=answer.deltas, digests={}, cells=answer.cells
        )
        step.commit()
        engine.versions.confirm_commit()
        return {name: bag_of(table) for name, table in answer.deltas.items()}


#: `MIN_MAPPED_BYTES`: the runs of all sizes are mapped, those of some rows, or none.
MAPPED_BYTES = st.sampled_from([0, 200, 1 << 20])


def check_random_sql(data: st.DataObject) -> None:
    """Compare random SQL in cells with one process; the grids change as often as possible."""
    cells = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12]), "cells")
    spec = compile_sql(data.draw(selects()), SCHEMAS).spec
    context = Context(data.draw(st.integers(0, 99), "seed"))
    embedded, world = Circuit(spec), World()
    min_mapped_bytes = data.draw(MAPPED_BYTES, "mapped")
    with (
        TemporaryDirectory() as name,
        patch.object(grid_planning, "MIN_KNOWN_ROWS", 1),
        patch.object(load_balance, "MIN_MEAN_ROWS", 1),
        patch.object(load_balance, "MAX_LOAD_RATIO", 1.0),
        patch.object(loaded_cell, "MIN_MAPPED_BYTES", min_mapped_bytes),
        patch.object(writer, "MIN_OWN_FILE_BYTES", min_mapped_bytes),
        patch.object(writer, "MIN_FILE_MERGE_BYTES", data.draw(MAPPED_BYTES, "merged in files")),
        patch.object(writer, "MAX_SMALL_MERGE_ROWS", data.draw(st.sampled_from([0, 4]), "merged")),
    ):
        run = EngineRun(Circuit(spec), LocalFiles(name), cells)
        for number in range(data.draw(st.integers(2, 4), "steps")):
            tables = world.change(data.draw)
            if number and data.draw(st.integers(0, 3), "restart") == 0:
                run.engine.versions.close()
                run = EngineRun(Circuit(spec), LocalFiles(name), cells)
            expected = {name: bag_of(table) for name, table in embedded.step(tables).items()}
            assert run.step(tables, number, context) == expected
        run.engine.versions.close()


@LAW
@given(data=st.data())
def test_random_sql_gives_the_same_in_cells_and_in_one_process(data):
    check_random_sql(data)


@pytest.mark.slow
@settings(LAW, max_examples=200)
@given(data=st.data())
def test_much_random_sql_gives_the_same_in_cells_and_in_one_process(data):
    check_random_sql(data)


def distributed(folder: Path) -> ViewSink:
    circuit = compile_sql(HUBS, GRAPH)
    return ViewSink(circuit, state_dir=folder, mode="distributed", cells=8)


def test_a_hub_that_grows_while_the_query_runs_is_spread(tmp_path):
    context: Any = SimpleNamespace(sparkContext=Context(1))
    rng = random.Random("later")
    others = [
        {"relation": "e", "src": rng.randrange(900), "dst": rng.randrange(900)} for _ in range(500)
    ]
    rows = [*others, *hub(2500)]
    embedded, sink, layouts = ViewSink(compile_sql(HUBS, GRAPH)), distributed(tmp_path), []
    for number in range(6):
        frame = Frame(context, batch_of(*rows[500 * number : 500 * (number + 1)]))
        embedded(frame, number)
        sink(frame, number)
        assert outputs(sink) == outputs(embedded)
        cells = read_newest_cells(LocalFiles(tmp_path))
        assert cells is not None
        layouts.append(str(cells.layout))
        if number == 4:
            sink.close()
            sink = distributed(tmp_path)
    assert max(load_ratios(tmp_path).values()) <= 1.5
    assert 2 <= len(set(layouts)) <= 4
    sink.close()


READ_COUNTS: Counter[str] = Counter()


class CountingFiles(LocalFiles):
    """A directory that counts the reads of each file in `READ_COUNTS`."""

    def read(self, name: str) -> memoryview:
        READ_COUNTS[name] += 1
        return super().read(name)


class CountingCache(ExecutorCache):
    """Counts the files that are read to bring a cell to a version, in ``read_counts``."""

    def take(self, *arguments: Any) -> Any:
        before = Counter(READ_COUNTS)
        result = super().take(*arguments)
        self.__dict__.setdefault("read_counts", Counter()).update(READ_COUNTS - before)
        return result


def test_workers_that_take_turns_read_only_the_later_rows(tmp_path):
    schema = {"e": GRAPH["e"]}
    circuit = compile_sql("SELECT src, max(dst) AS m FROM e GROUP BY src", schema)
    run = EngineRun(Circuit(circuit.spec), CountingFiles(tmp_path), 1)
    workers, context = [CountingCache(), CountingCache()], Context(0)
    context.attempts = (1,)
    READ_COUNTS.clear()
    for number in range(12):
        context.workers = [workers[number % 2]]
        tables = {"e": pa.table({"src": [*range(40)], "dst": [number] * 40})}
        expected = {name: bag_of(table) for name, table in circuit.step(tables).items()}
        assert run.step(tables, number, context) == expected
    for worker in workers:
        read = worker.__dict__["read_counts"]
        assert len(read) >= 6 and set(read.values()) == {1}
    run.engine.versions.close()


def test_a_worker_keeps_two_circuits_of_a_cell():
    cache = ExecutorCache()
    circuit = compile_sql("SELECT src FROM e", {"e": GRAPH["e"]})
    for cell in range(2):
        for program in "abcd":
            cache.keep(Key("id", program, 0, cell), LoadedCell(circuit))
        assert len(cache) == 2 * (cell + 1)


def test_a_worker_with_more_cells_than_it_keeps_finds_some_of_them():
    cache = ExecutorCache(max_cells=4)
    circuit = compile_sql("SELECT src FROM e", {"e": GRAPH["e"]})
    found = 0
    for cell in [*range(6)] * 20:
        key = Key("id", "program", 0, cell)
        found += key in cache._cells
        cache.keep(key, LoadedCell(circuit))
        assert len(cache) <= 4
    assert found > 20


def test_a_worker_forgets_cells_of_too_many_bytes():
    cache = ExecutorCache(max_heap_bytes=100)
    circuit = compile_sql("SELECT src FROM e", {"e": GRAPH["e"]})
    for cell, size, kept in [
        (0, 40, 1),
        (1, 60, 2),
        (2, 60, 2),
        (3, 150, 1),
        (4, 10, 1),
        (5, 5, 2),
    ]:
        key = Key("id", "program", 0, cell)
        cache.keep(key, LoadedCell(circuit, heap_bytes=size))
        assert key in cache._cells and len(cache) == kept
        assert kept == 1 or sum(cell.heap_bytes for cell in cache._cells.values()) <= 100


def test_loads_are_the_rows_of_the_cells(tmp_path):
    run = EngineRun(compile_sql(HUBS, GRAPH), LocalFiles(tmp_path), 4)
    edges = pa.table({"src": [*range(100)], "dst": [*range(1, 101)]})
    run.step({"e": edges}, 0, Context(3))
    cells = read_newest_cells(LocalFiles(tmp_path))
    assert cells is not None
    stages = circuit_stages(compile_sql(HUBS, GRAPH)).stages
    for stage, grid in zip(stages, cells.layout, strict=True):
        loads = count_loads(stage, cells.stage_manifests(stage.number))
        assert len(loads) == 4 if stage.atoms else loads
        if len(stage.atoms) == 3:
            assert sorted(parts for _, parts in grid["parts"]) == [1, 2, 2]
            assert sum(loads) == 100 * (1 + 2 + 2)
    run.engine.versions.close()


def test_a_count_of_all_rows_is_summed_by_the_driver_without_a_job(tmp_path):
    text = "SELECT count(*) AS n, sum(src) AS s FROM e"
    circuit, context = compile_sql(text, {"e": GRAPH["e"]}), Context(4)
    run = EngineRun(Circuit(circuit.spec), LocalFiles(tmp_path), 4)
    for number in range(3):
        tables = {"e": pa.table({"src": [*range(9 * number)], "dst": [number] * 9 * number})}
        expected = {name: bag_of(table) for name, table in circuit.step(tables).items()}
        assert run.step(tables, number, context) == expected
    assert context.jobs == 0
    assert "1 cell, in the driver if it reads the rows\n" in run.engine.explain()
    run.engine.versions.close()
