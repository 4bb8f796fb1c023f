"""What a task leaves in its worker and in the state directory."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import EvaluationError, compile_sql
from streaming import ViewSink
from streaming.distributed.execution import task
from streaming.distributed.execution.task import MAX_TASKS_PER_FREEZE, cheap_collection
from streaming.state.local_files import LocalFiles
from streaming.state.versions import DATA
from tests.streaming.distributed.local_job import LocalCluster

SCHEMA = {"r": pa.schema([("k", pa.int64()), ("x", pa.int64())])}
SUMS = "SELECT k, sum(x) AS total FROM r GROUP BY k"


def open_sink(place: Any) -> ViewSink:
    return ViewSink(compile_sql(SUMS, SCHEMA), state_dir=place, mode="distributed", cells=8)


def rows_of(keys: range, x: int) -> pa.Table:
    return pa.table({"k": keys, "x": [x] * len(keys)})


class Cycle:
    """An object that only the garbage collection can free."""

    def __init__(self) -> None:
        self.own = self


def test_objects_that_exist_are_excluded_from_collections_after_tasks_1_2_3_5_9_and_so_on():
    alive, kept, freed = [], [], []
    with patch.object(task, "_FINISHED_TASKS", itertools.count()):
        for number in range(2 * MAX_TASKS_PER_FREEZE + 1):
            with cheap_collection():
                kept.append(Cycle())
                alive.append(weakref.ref(kept[-1]))
            garbage = weakref.ref(Cycle())
            gc.collect()  # by the worker
            freed.append(garbage() is None)
            assert gc.get_freeze_count() > 0
            if number == MAX_TASKS_PER_FREEZE:
                kept.clear()
                gc.collect()
                assert all(cycle() is not None for cycle in alive)
    gc.unfreeze()
    assert all(freed)
    assert not any(cycle() is not None for cycle in alive[: MAX_TASKS_PER_FREEZE + 1])


def test_a_task_syncs_the_files_of_its_cells_and_views_together(tmp_path):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    sink(cluster.frame(rows_of(range(40), 1)), 0)
    calls: list[list[str]] = []

    def sync_all(files: LocalFiles, names: list[str], folders: list[str]) -> None:
        calls.append([name for name in names if name.startswith(DATA)])
        original(files, names, folders)

    original = LocalFiles.sync_all
    with patch.object(LocalFiles, "sync_all", sync_all):
        sink(cluster.frame(rows_of(range(40), 2)), 1)
    of_tasks = [names for names in calls if names]
    assert len(of_tasks) == cluster.defaultParallelism
    assert sum(map(len, of_tasks)) == 8


def test_a_task_that_fails_removes_the_files_of_all_its_cells(tmp_path):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    files = LocalFiles(tmp_path)
    sink(cluster.frame(rows_of(range(40), 2**62)), 0)
    before = files.names(DATA)
    with pytest.raises(EvaluationError, match="beyond int64"):
        sink(cluster.frame(rows_of(range(40), 2**62)), 1)
    assert files.names(DATA) == before
    sink(cluster.frame(rows_of(range(40), -1)), 1)
    assert sink.metrics[-1].rows_out["view"] == 80
