"""Clones of state directories on an object store, also if the process ends between two requests."""

from __future__ import annotations

import json
from itertools import count

import pytest
from typer.testing import CliRunner

from streaming import StateDamagedError, StateError
from streaming.cli.app import app
from streaming.state.clone import clone_state
from streaming.state.manifest import list_batch_ids
from streaming.state.object_store import object_files
from streaming.state.object_store.object_files import ObjectFiles
from tests.streaming.state.object_store.test_kills import KilledFiles, ProcessEnds
from tests.streaming.state.test_program_change import COUNTS, PATHS, Job, expected, run

FOLDERS = ("", "data", "manifests", "outputs", "programs", "dead_letters")


def contents(location):
    """Return the content of each object of a directory."""
    files = ObjectFiles(location)
    names = [name for folder in FOLDERS for name in files.names(folder)]
    return {name: bytes(files.read(name)) for name in names}


@pytest.fixture
def job(location):
    job = Job(location)
    run(job, PATHS, 0, 1, materialize=["paths"])
    return job


def check_copy(copy, *batches):
    """Check that a job goes on from a clone with one more view, and publishes all rows."""
    job = Job(copy)
    run(job, PATHS + COUNTS, *batches, materialize=["paths"])
    for view, bag in expected(PATHS + COUNTS, *range(batches[-1] + 1)).items():
        assert job.rows(view) == bag, view


class CountedFiles(ObjectFiles):
    """Counts the data files that are sent to this machine and from it."""

    transferred = 0

    def read(self, name):
        self.transferred += name.startswith("data/")
        return super().read(name)

    def write(self, name, chunks):
        self.transferred += name.startswith("data/")
        super().write(name, chunks)


def test_the_service_copies_the_files_of_a_clone_in_one_bucket(job, location):
    before = contents(location)
    files, copy = CountedFiles(location), CountedFiles(f"{location}-copy")
    result = clone_state(files, copy, folders=["checkpoint"])
    assert files.transferred == copy.transferred == 0
    assert (result.batch_id, result.linked_bytes, result.copied_bytes > 0) == (1, 0, True)
    assert contents(location) == before
    check_copy(f"{location}-copy", 2, 3)
    run(job, PATHS, 2, 3, materialize=["paths"])
    assert job.rows("paths") == expected(PATHS, 0, 1, 2, 3)["paths"]


def test_files_go_through_this_machine_where_the_service_cannot_copy_them(
    job, location, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(object_files, "MAX_COPIED_BYTES", 0)
        copy = CountedFiles(f"{location}-copy")
        clone_state(location, copy)
        assert copy.transferred > 0
    check_copy(f"{location}-copy", 2)
    clone_state(location, tmp_path / "local")
    check_copy(tmp_path / "local", 2)
    clone_state(tmp_path / "local", f"{location}-third")
    check_copy(f"{location}-third", 3)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_clone_that_is_killed_between_requests_is_refused_or_complete(job, location, is_answered):
    before = contents(location)
    for requests in count():
        copy = f"{location}-copy-{requests}"
        # Both directories count their own requests; the copies are requests of the source.
        files = KilledFiles(location, None, requests, is_answered=is_answered)
        target = KilledFiles(copy, None, requests, is_answered=is_answered)
        files.shared = target.shared = files
        try:
            clone_state(files, target)
        except ProcessEnds:
            assert contents(location) == before
            ids = list_batch_ids(ObjectFiles(copy))
            if ids:  # only its identity was not written again
                check_copy(copy, 2)
            elif contents(copy):
                with pytest.raises(StateDamagedError, match="interrupted clone: delete it"):
                    check_copy(copy, 0)
            continue
        assert requests > 10
        check_copy(copy, 2)
        break


def test_what_cannot_be_cloned_is_refused_before_anything_is_written(job, location, tmp_path):
    ObjectFiles(f"{location}-full").write("data/other", [b""])
    with pytest.raises(StateError, match="is not empty, it contains data/other"):
        clone_state(location, f"{location}-full")
    with pytest.raises(StateError, match="is inside of"):
        clone_state(location, f"{location}/copy")
    with pytest.raises(StateError, match="has no version"):
        clone_state(f"{location}-none", f"{location}-copy")
    local = Job(tmp_path / "state")
    run(local, PATHS, 0, materialize=["paths"])
    (tmp_path / "state" / "checkpoint").mkdir()
    with pytest.raises(StateError, match=r"checkpoint cannot be copied to .* --checkpoint"):
        clone_state(tmp_path / "state", f"{location}-copy", folders=["checkpoint"])
    assert not contents(f"{location}-copy")


def test_a_file_that_is_removed_during_the_clone_is_named(job, location):
    class RemovingFiles(ObjectFiles):
        def copy_to(self, other, name, size):
            self.remove(name)  # as the job of the source does, if it runs
            return super().copy_to(other, name, size)

    with pytest.raises(StateError, match=r"cannot be cloned .*data/.*stop the job"):
        clone_state(RemovingFiles(location), f"{location}-copy")
    assert not list_batch_ids(ObjectFiles(f"{location}-copy"))


def test_the_command_clones_between_two_uris(job, location):
    result = CliRunner().invoke(app, ["clone", location, f"{location}-copy", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["copied_bytes"] > 0
    result = CliRunner().invoke(app, ["clone", location, f"{location}-copy"])
    assert result.exit_code == 2 and "is not empty" in result.output
    result = CliRunner().invoke(app, ["clone", location, f"{location}-2"])
    assert "copy Spark's checkpoint, too" in result.output.replace("\n", " ")
    check_copy(f"{location}-copy", 2)
