"""After a task has ended: which objects of its worker, and which files of the state, are left."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import EvaluationError, compile_sql
from streaming import RowError, ViewSink
from streaming.distributed.execution import task
from streaming.distributed.execution.task import (
    MAX_UNUSED_BYTES,
    cheap_collection,
)
from streaming.monitoring import SinkMonitor
from streaming.monitoring.prometheus import metrics_text, registry_of
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.versions import DATA, OUTPUTS
from tests.streaming.distributed.local_job import LocalCluster

SCHEMA = {"r": pa.schema([("k", pa.int64()), ("x", pa.int64())])}
SUMS = "SELECT k, sum(x) AS total FROM r GROUP BY k"


def open_sink(place: Any) -> ViewSink:
    return ViewSink(compile_sql(SUMS, SCHEMA), state_dir=place, mode="distributed", cells=8)


def rows_of(keys: range, x: int) -> pa.Table:
    return pa.table({"k": keys, "x": [x] * len(keys)})


def unnamed_files(place: Any) -> set[str]:
    """Return the files of rows that no version names."""
    files = LocalFiles(place)
    named = {name for n in list_batch_ids(files) for name in read_manifest(files, n).all_files}
    return {*files.names(DATA), *files.names(OUTPUTS)} - named


class Cycle:
    """An object that only the garbage collection can free."""

    def __init__(self) -> None:
        self.own = self


def test_freed_memory_is_returned_after_tasks_that_need_much_more_memory_than_before():
    much, returns = MAX_UNUSED_BYTES + 1, []
    before_after = [(much, 10), (10 + much, 20), (20 + MAX_UNUSED_BYTES,), (5,), (5 + much, 7)]
    sizes = iter([size for sizes in before_after for size in sizes])
    with (
        patch.object(task, "_private_bytes", 0),
        patch.object(task, "private_bytes", lambda: next(sizes)),
        patch.object(task, "free_unused_memory") as free,
    ):
        for _ in before_after:
            with cheap_collection():
                pass
            returns.append(free.call_count)
    assert returns == [1, 2, 2, 2, 3]


def test_objects_that_exist_are_excluded_from_collections_after_tasks_1_2_3_5_9_and_so_on():
    alive, kept, freed, period = [], [], [], 8
    with (
        patch.object(task, "_FINISHED_TASKS", itertools.count()),
        patch.object(task, "MAX_TASKS_PER_FREEZE", period),
    ):
        for number in range(2 * period + 1):
            with cheap_collection():
                kept.append(Cycle())
                alive.append(weakref.ref(kept[-1]))
            garbage = weakref.ref(Cycle())
            gc.collect()  # by the worker
            freed.append(garbage() is None)
            assert gc.get_freeze_count() > 0
            if number == period:
                kept.clear()
                gc.collect()
                assert all(cycle() is not None for cycle in alive)
    gc.unfreeze()
    assert all(freed)
    assert not any(cycle() is not None for cycle in alive[: period + 1])


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
    sink(cluster.frame(rows_of(range(40), 2**62)), 0)
    with pytest.raises(EvaluationError, match="beyond int64"):
        sink(cluster.frame(rows_of(range(40), 2**62)), 1)
    assert not unnamed_files(tmp_path)
    sink(cluster.frame(rows_of(range(40), -1)), 1)
    assert sink.metrics[-1].rows_out["view"] == 80


def test_the_files_of_all_tasks_are_removed_if_one_of_them_fails_or_rows_are_refused(tmp_path):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    sink(cluster.frame(rows_of(range(40), 1)), 0)
    with pytest.raises(EvaluationError, match="beyond int64"):
        sink(cluster.frame(pa.table({"k": [*range(40), 7, 7], "x": [1] * 40 + [2**62] * 2})), 1)
    assert not unnamed_files(tmp_path)
    bad = pa.table({"k": range(41), "x": [1] * 41, "weight": [1] * 40 + [None]})
    with pytest.raises(RowError):
        sink(cluster.frame(bad), 1)
    assert not unnamed_files(tmp_path)
    sink(cluster.frame(rows_of(range(40), 1)), 1)
    assert sink.metrics[-1].rows_out["view"] == 80 and not unnamed_files(tmp_path)


def test_explain_and_metrics_say_how_many_steps_found_their_circuit_in_memory(tmp_path):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    cluster.workers = cluster.workers[:1]
    for number in range(3):
        sink(cluster.frame(rows_of(range(40), 1)), number)
    assert [(m.cell_steps, m.open_cell_steps) for m in sink.metrics] == [(8, 0), (8, 8), (8, 8)]
    monitor = SinkMonitor(sink)
    sink(cluster.frame(rows_of(range(40), 1)), 3)
    text = metrics_text(registry_of(monitor))[0].decode()
    assert (
        "dbsp_wcoj_cell_steps_total 8.0" in text and "dbsp_wcoj_open_cell_steps_total 8.0" in text
    )
    sink(cluster.frame(rows_of(range(40), 1)), 3)  # a replay steps no cell
    assert (sink.metrics[-1].replayed, sink.metrics[-1].cell_steps) == (True, 0)
    assert sink.explain().endswith(
        "workers: 24 of 32 steps (75 %) found the circuit of their cell in memory"
    )
