"""A clone of a state directory goes on by itself, with other views and new targets."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import closing
from itertools import count

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import (
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
    ViewSink,
)
from streaming.state import clone
from streaming.state.clone import clone_state
from streaming.state.directory_identity import read_identity
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.state.test_program_change import COUNTS, PATHS, Job, expected, feed, run
from tests.support.databases import Crash
from tests.support.tables import EDGE


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
    assert result.folders == ("checkpoint",)
    assert copy.traces == original.traces
    assert not copy.outputs
    for name in copy.data_files:
        assert os.path.samefile(job.state_dir / name, tmp_path / "copy" / name)
    assert (tmp_path / "copy" / "checkpoint" / "metadata").read_text() == "{}"
    assert not (tmp_path / "copy" / "none").exists()


def test_a_clone_counts_its_own_dead_letters(tmp_path):
    circuit = compile_sql("SELECT count(*) AS n FROM e", {"e": EDGE})
    with closing(ViewSink(circuit, state_dir=tmp_path / "state", bad_rows="dead_letter")) as sink:
        sink(Frame(pa.table({"src": pa.array([1, 2**63], pa.uint64()), "dst": [2, 3]})), 0)
    clone_state(tmp_path / "state", tmp_path / "copy")
    original, copy = (
        read_manifest(LocalFiles(str(tmp_path / name)), 0) for name in ("state", "copy")
    )
    assert (original.dead_letters, copy.dead_letters) == (1, 0)


def test_the_folders_of_a_clone_have_the_permissions_of_the_state(job, tmp_path):
    os.chmod(job.state_dir, 0o2770)  # new files get the group of the folder
    clone_state(job.state_dir, tmp_path / "copy")
    for folder in ("", "data", "manifests"):
        assert stat.S_IMODE((tmp_path / "copy" / folder).stat().st_mode) == 0o2770


def test_files_are_copied_where_links_are_impossible(job, tmp_path, monkeypatch):
    def fail(source, target, **options):
        if options:  # inside of one directory
            return link(source, target, **options)
        raise OSError(18, "Invalid cross-device link")

    durable, fsync, link = {}, os.fsync, os.link

    def record(file):
        status = os.fstat(file)
        durable[status.st_ino] = set(os.listdir(file)) if stat.S_ISDIR(status.st_mode) else None
        fsync(file)

    offsets = job.state_dir / "checkpoint" / "sources" / "0"
    offsets.mkdir(parents=True)
    (job.state_dir / "checkpoint" / "metadata").write_text("{}")
    (offsets / "0").write_text("{}")
    (offsets / "empty").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        patched.setattr(os, "fsync", record)
        result = clone_state(job.state_dir, tmp_path / "copy", folders=["checkpoint"])
    assert (result.linked_bytes, result.copied_bytes > 0) == (0, True)
    copied = [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]
    assert tmp_path / "copy" / "checkpoint" / "sources" / "0" / "empty" in copied
    for path in copied:  # the bytes of a file, and all names of a folder
        names = set(os.listdir(path)) if path.is_dir() else None
        assert durable.get(path.stat().st_ino, "not synced") == names, path
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
    with pytest.raises(StateError, match=r"empty has no version.*committed a micro-batch"):
        clone_state(tmp_path / "empty", tmp_path / "copy")
    sink = job.sink(PATHS, materialize=["paths"])
    feed(sink, 2)
    with pytest.raises(StateLockedError):
        clone_state(job.state_dir, tmp_path / "copy")
    sink.close()


@pytest.mark.parametrize("name", ["state.json", "views.json"])
def test_a_missing_description_of_the_source_is_named_and_its_job_writes_it_again(
    job, tmp_path, name
):
    (job.state_dir / name).unlink()
    message = rf"{job.state_dir} cannot be cloned: {name} is missing.* start its job"
    with pytest.raises(StateError, match=message):
        clone_state(job.state_dir, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    run(job, PATHS, 2, materialize=["paths"])  # the way that the message names
    clone_state(job.state_dir, tmp_path / "copy")
    copy = Job(tmp_path / "copy")
    run(copy, PATHS, 3, materialize=["paths"])
    assert copy.rows("paths") == expected(PATHS, 0, 1, 2, 3)["paths"]


def kill_at(call: int, monkeypatch) -> None:
    """End the process instead of a call to the file system, counted from 0."""
    calls = count()

    def killing(function):
        def call_or_die(*arguments, **options):
            if next(calls) >= call:
                raise Crash
            return function(*arguments, **options)

        return call_or_die

    for name in ("write", "rename", "rename_new", "remove", "sync", "sync_folder"):
        monkeypatch.setattr(LocalFiles, name, killing(getattr(LocalFiles, name)))
    monkeypatch.setattr(clone, "make_folder", killing(clone.make_folder))
    monkeypatch.setattr(clone, "_link", killing(clone._link))
    monkeypatch.setattr(shutil, "copytree", killing(shutil.copytree))


def test_a_clone_that_was_killed_is_complete_or_refused(job, tmp_path, monkeypatch):
    (job.state_dir / "checkpoint").mkdir()
    other_views = compile_sql("CREATE VIEW other AS SELECT x FROM r", {"r": "x BIGINT"})
    refused = 0
    for call in count():
        place = tmp_path / f"copy-{call}"
        try:
            with monkeypatch.context() as patch:
                kill_at(call, patch)
                clone_state(job.state_dir, place, folders=["checkpoint"])
        except Crash:
            if not (place / "state.json").exists():
                assert not (place / "data").exists()  # nothing was copied
                continue
            copy = Job(place)
            if list_batch_ids(LocalFiles(str(place))):
                with pytest.raises(StateMismatchError):
                    read_identity(LocalFiles(str(place)), other_views)
                clone_state(place, tmp_path / f"second-{call}")
                run(Job(tmp_path / f"second-{call}"), PATHS, 2, materialize=["paths"])
                run(copy, PATHS, 2, materialize=["paths"])
                assert copy.rows("paths") == expected(PATHS, 0, 1, 2)["paths"]
                continue
            refused += 1
            with pytest.raises(StateDamagedError, match="interrupted clone: delete it"):
                run(copy, PATHS, 0, materialize=["paths"])
            with pytest.raises(StateDamagedError, match="interrupted clone: delete it"):
                clone_state(place, tmp_path / "second")
            with pytest.raises(StateError, match="interrupted clone: delete it"):
                clone_state(job.state_dir, place)
            continue
        break
    assert refused > 5
    copy = Job(place)
    run(copy, PATHS, 2, materialize=["paths"])
    assert copy.rows("paths") == expected(PATHS, 0, 1, 2)["paths"]
