"""A clone of a state directory goes on by itself, with other views and new targets."""

from __future__ import annotations

import os

import pytest

from streaming import StateError, StateLockedError
from streaming.state.clone import clone_state
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from tests.streaming.state.test_program_change import COUNTS, PATHS, Job, expected, feed, run


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path / "state")
    run(job, PATHS, 0, 1, materialize=["paths"])
    return job


def test_a_clone_publishes_all_rows_to_its_new_targets_and_both_go_on(job, tmp_path):
    result = clone_state(job.state_dir, tmp_path / "copy")
    assert (result.batch_id, result.copied_bytes) == (1, 0)
    assert result.linked_bytes > 0
    copy = Job(tmp_path / "copy")
    run(copy, PATHS + COUNTS, 2, materialize=["paths"])
    run(job, PATHS, 2, 3, materialize=["paths"])
    run(copy, PATHS + COUNTS, 3, 4, materialize=["paths"])
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2, 3, 4).items():
        assert copy.rows(view) == bag, view
    assert copy.batches["paths"].keys() == {2, 3, 4}
    assert job.rows("paths") == expected(PATHS, 0, 1, 2, 3)["paths"]


def test_a_clone_with_the_same_views_publishes_all_rows(job, tmp_path):
    clone_state(job.state_dir, tmp_path / "copy")
    copy = Job(tmp_path / "copy")
    run(copy, PATHS, 2, materialize=["paths"])
    run(copy, PATHS, 2, 3, materialize=["paths"])
    assert copy.rows("paths") == expected(PATHS, 0, 1, 2, 3)["paths"]


def test_a_clone_has_an_id_of_its_own_and_shares_files(job, tmp_path):
    (job.state_dir / "checkpoint").mkdir()
    (job.state_dir / "checkpoint" / "metadata").write_text("{}")
    result = clone_state(job.state_dir, tmp_path / "copy", folders=["checkpoint", "none"])
    original, copy = (
        read_manifest(LocalFiles(str(p)), 1) for p in (job.state_dir, tmp_path / "copy")
    )
    assert copy.state_id == result.id != original.state_id
    assert copy.traces == original.traces
    assert not copy.outputs
    for name in copy.data_files:
        assert os.path.samefile(job.state_dir / name, tmp_path / "copy" / name)
    assert (tmp_path / "copy" / "checkpoint" / "metadata").read_text() == "{}"
    assert not (tmp_path / "copy" / "none").exists()


def test_files_are_copied_where_links_are_impossible(job, tmp_path, monkeypatch):
    def fail(source, target, **options):
        if options:  # inside of one directory
            return link(source, target, **options)
        raise OSError(18, "Invalid cross-device link")

    durable, fsync, link = set(), os.fsync, os.link

    def record(file):
        durable.add(os.fstat(file).st_ino)
        fsync(file)

    (job.state_dir / "checkpoint").mkdir()
    (job.state_dir / "checkpoint" / "metadata").write_text("{}")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        patched.setattr(os, "fsync", record)
        result = clone_state(job.state_dir, tmp_path / "copy", folders=["checkpoint"])
    assert (result.linked_bytes, result.copied_bytes > 0) == (0, True)
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert {path.stat().st_ino for path in copied} <= durable
    copy = Job(tmp_path / "copy")
    run(copy, PATHS, 2, materialize=["paths"])
    assert copy.rows("paths") == expected(PATHS, 0, 1, 2)["paths"]


def test_what_cannot_be_cloned_is_refused(job, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StateError, match="not an empty folder"):
        clone_state(job.state_dir, tmp_path / "full")
    (tmp_path / "full" / "data").mkdir()
    with pytest.raises(StateError, match="interrupted clone: delete it and try again"):
        clone_state(job.state_dir, tmp_path / "full")
    with pytest.raises(StateError, match="is inside of"):
        clone_state(job.state_dir, job.state_dir / "copy")
    with pytest.raises(StateError, match="is not a folder"):
        clone_state(tmp_path / "missing", tmp_path / "copy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError, match="has no version"):
        clone_state(tmp_path / "empty", tmp_path / "copy")
    sink = job.sink(PATHS, materialize=["paths"])
    feed(sink, 2)
    with pytest.raises(StateLockedError):
        clone_state(job.state_dir, tmp_path / "copy")
    sink.close()
