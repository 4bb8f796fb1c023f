"""Files that killed attempts of tasks have left are removed while the sink runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.state import store, versions
from streaming.state.versions import DATA, OUTPUTS
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_task import open_sink, rows_of, unnamed_files


@pytest.fixture
def short_age(monkeypatch):
    for module in (store, versions):
        monkeypatch.setattr(module, "ABANDONED_BATCHES", 3)


def leave(place: Path, folder: str, name: str) -> str:
    (place / folder / name).write_bytes(b"left")
    return f"{folder}/{name}"


def test_files_of_killed_attempts_are_removed_after_some_micro_batches(tmp_path, short_age):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    sink(cluster.frame(rows_of(range(40), 1)), 0)
    old = {
        leave(tmp_path, DATA, f"{0:020}-0123456789ab-0.3-0.arrow"),
        leave(tmp_path, OUTPUTS, f"{1:020}-0123456789ab-0-0.parquet"),
    }
    kept = {
        leave(tmp_path, DATA, f"{3:020}-0123456789ab-0.3-0.arrow"),  # a younger attempt
        leave(tmp_path, DATA, f"{0:020}-0123456789ab-0.arrow"),  # not of a cell
    }
    for number in range(1, 6):
        assert unnamed_files(tmp_path) == old | kept
        sink(cluster.frame(rows_of(range(40), 1)), number)
    assert unnamed_files(tmp_path) == kept
    for number in range(6, 9):
        sink(cluster.frame(rows_of(range(40), 1)), number)
    assert len(unnamed_files(tmp_path)) == 1
    sink.close()


def test_files_that_no_version_names_yet_are_kept(tmp_path, short_age):
    cluster, sink = LocalCluster(attempts=(1,)), open_sink(tmp_path)
    sink(cluster.frame(rows_of(range(40), 1)), 0)
    name = leave(tmp_path, DATA, f"{0:020}-0123456789ab-0.3-0.arrow")
    sink._engine._store.directory_versions.unnamed_files = {name}  # of a backfill in cells
    for number in range(1, 7):
        sink(cluster.frame(rows_of(range(40), 1)), number)
    assert unnamed_files(tmp_path) == {name}
    sink.close()
