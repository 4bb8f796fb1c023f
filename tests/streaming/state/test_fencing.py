"""A state directory has one writer, even without its lock; a deleted directory is detected."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from circuits import compile_sql
from streaming import (
    BatchOrderError,
    ChangeOptions,
    StateDamagedError,
    StateLockedError,
    ViewSink,
)
from streaming.distributed.rescaling import rescale_state
from streaming.state.arrow_files import ArrowFiles
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, manifest_name, read_manifest
from streaming.state.offline_compaction import compact_state
from streaming.state.ownership import EPOCH_FILE, Owner, check_owner, take_over
from streaming.state.program_change import definition_name, program_file, read_program
from streaming.state.verified_files import read_verified
from tests.streaming.sink.test_replays import bad, letter_files
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import LINK, VIEWS, batch, check, feed, sink_on, views, write_state

LAST = 4


@pytest.fixture
def state_dir(tmp_path):
    write_state(tmp_path / "state", LAST + 1)
    return tmp_path / "state"


def published_by(sink) -> list[int]:
    """Return the micro-batches that the target received; it received one delta for each view."""
    batches = sink.outputs[0].target.batches
    assert batches == sorted(batches)
    return batches[::2]


def epochs(state_dir: Path) -> list[int]:
    files = LocalFiles(state_dir)
    return [read_manifest(files, number).epoch for number in list_batch_ids(files)]


def test_a_sink_without_its_lock_fails_once_another_one_writes(state_dir):
    first, second = sink_on(state_dir), sink_on(state_dir)
    feed(first, LAST + 1)
    (state_dir / "lock").unlink()
    feed(second, LAST + 2)
    for _ in range(2):
        with pytest.raises(StateLockedError):
            feed(first, LAST + 2)
    assert (published_by(first), published_by(second)) == ([LAST + 1], [LAST + 2])
    feed(second, LAST + 3)
    second.close()
    feed(first, LAST + 3, LAST + 4)
    check(first, LAST + 5)


def test_a_second_sink_fences_the_first_before_it_has_written_anything(state_dir):
    first, second = sink_on(state_dir), sink_on(state_dir)
    feed(first, LAST + 1)
    (state_dir / "lock").unlink()
    feed(second, LAST + 1)  # again, so nothing is written
    with pytest.raises(StateLockedError, match=r"taken over by another sink \(epoch 3, .* has 2"):
        feed(first, LAST + 2)
    assert published_by(first) == [LAST + 1]
    feed(second, LAST + 2)
    check(second, LAST + 3)


class InterruptedFiles(LocalFiles):
    """Calls a function right before, or right after, a manifest is renamed to its final name."""

    before = after = staticmethod(lambda: None)

    def rename_new(self, old, new):
        self.before()
        super().rename_new(old, new)
        self.after()


@pytest.mark.parametrize("position", ["before", "after"])
def test_a_sink_that_is_taken_over_while_it_commits_does_not_publish(state_dir, position):
    files = InterruptedFiles(state_dir)
    first, second = sink_on(files), sink_on(state_dir)
    feed(first, LAST + 1)

    def write_with_second_sink() -> None:
        (state_dir / "lock").unlink()
        feed(second, LAST + 1)

    setattr(files, position, write_with_second_sink)
    with pytest.raises(StateLockedError):
        feed(first, LAST + 2)
    assert published_by(first) == [LAST + 1]
    # The new sink has removed the temporary manifest, or has read the committed version.
    assert (LAST + 2 in list_batch_ids(files)) == (position == "after")
    try:
        feed(second, LAST + 2)
    except StateLockedError:
        assert position == "after"
        feed(second, LAST + 2)
    feed(second, LAST + 3)
    check(second, LAST + 4)


def test_an_existing_version_is_never_replaced(state_dir):
    files = InterruptedFiles(state_dir)
    first = sink_on(files)
    feed(first, LAST + 1)

    def create_version() -> None:
        shutil.copy(state_dir / manifest_name(LAST), state_dir / manifest_name(LAST + 2))

    files.before = create_version
    with pytest.raises(StateLockedError, match=f"version {LAST + 2} .* was written by another"):
        feed(first, LAST + 2)


def test_each_start_writes_a_greater_epoch_to_its_manifests(state_dir):
    for number in range(LAST + 1, LAST + 4):
        sink = sink_on(state_dir)
        feed(sink, number)
        sink.close()
    assert epochs(state_dir) == [2, 3, 4]
    (state_dir / EPOCH_FILE).unlink()
    sink = sink_on(state_dir)
    feed(sink, LAST + 4)
    assert epochs(state_dir)[-1] == 5


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 99, None])
def test_a_damaged_epoch_is_an_error_for_the_writer_and_is_rewritten_at_a_restart(
    state_dir, content, caplog
):
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    (state_dir / EPOCH_FILE).unlink()
    if content is not None:
        (state_dir / EPOCH_FILE).write_bytes(content)
    with pytest.raises(StateDamagedError, match=EPOCH_FILE):
        feed(sink, LAST + 2)
    assert published_by(sink) == [LAST + 1]
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST + 2)
    check(sink, LAST + 3)


def test_an_owner_is_identified_by_its_epoch_and_its_token(tmp_path):
    files = LocalFiles(tmp_path)
    first = take_over(files)
    check_owner(files, first)
    with pytest.raises(StateLockedError):
        check_owner(files, Owner(first.epoch, "another"))
    assert take_over(files, 17).epoch == 18


def test_a_deleted_directory_is_detected_at_the_next_micro_batch(state_dir):
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    shutil.rmtree(state_dir)
    for number in (LAST + 2, LAST + 2, 0):
        with pytest.raises(StateDamagedError, match="deleted or replaced while"):
            feed(sink, number)
    assert published_by(sink) == [LAST + 1]
    sink.close()
    for restarted in (sink, sink_on(state_dir)):
        with pytest.raises(BatchOrderError, match="is empty"):
            feed(restarted, LAST + 2)
        restarted.close()
    feed(sink, 0)  # start from empty: the checkpoint was deleted as well
    check(sink, 1)


def test_a_replaced_directory_is_detected_at_the_next_micro_batch(state_dir, tmp_path):
    write_state(tmp_path / "other", LAST + 2)
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    shutil.rmtree(state_dir)
    shutil.move(tmp_path / "other", state_dir)
    for _ in range(2):
        with pytest.raises((StateDamagedError, StateLockedError)):
            feed(sink, LAST + 2)
    assert published_by(sink) == [LAST + 1]


@pytest.mark.parametrize("folder", ["data", "manifests", "outputs"])
def test_a_deleted_folder_neither_duplicates_nor_loses_rows(state_dir, folder):
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    shutil.rmtree(state_dir / folder)
    if folder == "data":
        with pytest.raises(StateDamagedError, match="deleted while this sink was using them"):
            feed(sink, LAST + 2)
        assert published_by(sink) == [LAST + 1]
        return
    feed(sink, LAST + 2)
    sink.close()
    restarted = sink_on(state_dir)
    feed(restarted, LAST + 2, LAST + 3)
    check(restarted, LAST + 4)


def test_an_older_manifest_under_the_newest_name_is_refused(state_dir):
    newest = state_dir / manifest_name(LAST)
    for older in (LAST - 1, LAST - 2):
        intact = newest.read_bytes()
        newest.write_bytes((state_dir / manifest_name(older)).read_bytes())
        sink = sink_on(state_dir)
        with pytest.raises(StateDamagedError, match=f"is the manifest of micro-batch {older}"):
            sink.table("paths")
        with pytest.raises(StateDamagedError, match=f"is the manifest of micro-batch {older}"):
            feed(sink, LAST + 1)
        sink.close()
        newest.write_bytes(intact)
    newest.write_bytes((state_dir / manifest_name(LAST - 1)).read_bytes())
    sink = sink_on(state_dir)
    feed(sink, LAST, LAST + 1)  # Spark replays it: the step runs from the previous version
    check(sink, LAST + 2)


def test_a_manifest_of_another_directory_is_refused(state_dir, tmp_path):
    write_state(tmp_path / "other", LAST + 1)
    shutil.copy(tmp_path / "other" / manifest_name(LAST), state_dir / manifest_name(LAST))
    with pytest.raises(StateDamagedError, match="belongs to another state directory"):
        feed(sink_on(state_dir), LAST + 1)
    (state_dir / "state.json").write_bytes((tmp_path / "other" / "state.json").read_bytes())
    with pytest.raises(StateDamagedError):
        sink_on(state_dir).table("paths")


def test_a_version_of_another_history_is_not_restored(state_dir, tmp_path):
    """The directory was copied, both continued, and a manifest of the copy was moved back."""
    shutil.copytree(state_dir, tmp_path / "copy")
    for path in (state_dir, tmp_path / "copy"):
        sink = sink_on(path)
        feed(sink, LAST + 1, LAST + 2)
        sink.close()
    name = manifest_name(LAST + 1)
    shutil.copy(tmp_path / "copy" / name, state_dir / name)
    (state_dir / manifest_name(LAST + 2)).write_bytes(b"")
    for number in (LAST + 2, LAST + 3):
        sink = sink_on(state_dir)
        with pytest.raises(StateDamagedError):
            feed(sink, number)
        sink.close()


def test_a_version_that_is_not_the_parent_of_the_newest_is_recomputed(state_dir, tmp_path, caplog):
    shutil.copytree(state_dir, tmp_path / "copy")
    sink = sink_on(tmp_path / "copy")
    feed(sink, LAST + 1)
    sink.close()
    sink = sink_on(state_dir)
    feed(sink, LAST + 1, LAST + 2)
    sink.close()
    shutil.copy(tmp_path / "copy" / manifest_name(LAST + 1), state_dir / manifest_name(LAST + 1))
    sink = sink_on(state_dir)
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST + 1, LAST + 2, LAST + 3)
    assert f"is not the parent of version {LAST + 2}" in caplog.text
    check(sink, LAST + 4)


class UnlockedFiles(ArrowFiles):
    """A file system without locks; a function is called once, right before a call of a name."""

    def __init__(self, location, function=lambda: None, name="") -> None:
        super().__init__(LocalFileSystem(), str(location))
        self._function, self._name = function, name

    def _point(self, name: str) -> None:
        if self._name and name.startswith(self._name):
            self._name = ""
            self._function()

    def read(self, name):
        self._point(f"read {name}")
        return super().read(name)

    def names(self, folder):
        self._point(f"names {folder}")
        return super().names(folder)

    def rename_new(self, old, new):
        self._point(f"rename_new {new}")
        super().rename_new(old, new)

    def remove(self, name):
        self._point(f"remove {name}")
        super().remove(name)


@pytest.mark.parametrize("call", ["read data/", "read outputs/", "names outputs", "remove data/"])
def test_a_sink_that_is_taken_over_while_it_loads_removes_no_file_of_the_new_one(state_dir, call):
    second = sink_on(UnlockedFiles(state_dir))
    first = sink_on(UnlockedFiles(state_dir, lambda: feed(second, LAST - 1, LAST), call))
    (state_dir / manifest_name(LAST)).unlink()  # its files are removed by a start
    with pytest.raises(StateLockedError):
        # Removing the unused files does not harm the new sink, so only the next write fails.
        feed(first, *([LAST - 1, LAST] if call.startswith("remove") else [LAST - 1]))
    feed(second, LAST + 1)
    check(second, LAST + 2)
    files = LocalFiles(state_dir)
    for number in list_batch_ids(files):
        for name, checksum in read_manifest(files, number).files.items():
            read_verified(files, name, checksum)
    assert published_by(second) == [LAST - 1, LAST, LAST + 1]
    check(sink_on(UnlockedFiles(state_dir)), LAST + 2)


@pytest.mark.parametrize("has_dead_letters", [True, False])
def test_a_sink_that_was_replaced_leaves_the_dead_letters_of_the_new_one(
    tmp_path, has_dead_letters
):
    first, second = (
        ViewSink(views(), state_dir=tmp_path, bad_rows="dead_letter") for _ in range(2)
    )
    first(Frame(bad(), "q"), 0)
    (tmp_path / "lock").unlink()
    for batch_id in range(2):
        second(Frame(bad(), "q"), batch_id)
    before = {path: path.read_bytes() for path in letter_files(tmp_path)}
    with pytest.raises(StateLockedError):
        first(Frame(bad() if has_dead_letters else batch(1), "q"), 1)
    assert len(before) == 2
    assert {path: path.read_bytes() for path in letter_files(tmp_path)} == before


def test_two_sinks_that_start_at_once_in_a_new_directory_use_one_id(tmp_path):
    first = sink_on(UnlockedFiles(tmp_path))
    second = sink_on(UnlockedFiles(tmp_path, lambda: feed(first, 0), "rename_new state.json"))
    feed(second, 0, 1)
    restarted = sink_on(tmp_path)
    feed(restarted, 1, 2)
    check(restarted, 3)


def test_a_sink_that_was_replaced_leaves_the_text_of_the_changed_views(state_dir):
    """A sink with other views takes over while the first one starts."""
    change = ChangeOptions(allow_drop=True)
    new_views = compile_sql("CREATE VIEW cities AS SELECT DISTINCT city FROM link", {"link": LINK})

    def change_views() -> None:
        sink = ViewSink(new_views, state_dir=UnlockedFiles(state_dir), change=change)
        sink(Frame(batch(LAST + 1), "q"), LAST + 1)

    first = sink_on(UnlockedFiles(state_dir, change_views, "names programs"))
    with pytest.raises(StateLockedError):
        feed(first, LAST + 1)
    newest = read_manifest(LocalFiles(state_dir), LAST + 1)
    assert read_program(LocalFiles(state_dir), newest, {}).fingerprint == newest.fingerprint
    assert definition_name(LocalFiles(state_dir), newest) == program_file(newest.fingerprint)


def test_the_files_of_a_version_remain_while_its_manifest_cannot_be_removed(state_dir, caplog):
    class FailingRemovals(LocalFiles):
        fails = True

        def remove(self, name):
            if self.fails and name == manifest_name(oldest):
                raise OSError("no permission")
            super().remove(name)

    files = FailingRemovals(state_dir)
    oldest = list_batch_ids(files)[0]
    manifest = read_manifest(files, oldest)
    sink = sink_on(files)
    for number in range(LAST + 1, LAST + 4):
        feed(sink, number)
        assert list_batch_ids(files)[0] == oldest and "no permission" in caplog.text
        for name, checksum in manifest.files.items():
            read_verified(files, name, checksum)
    files.fails = False
    feed(sink, LAST + 4)
    assert list_batch_ids(files) == [LAST + 2, LAST + 3, LAST + 4]
    check(sink, LAST + 5)


def test_a_rewritten_version_keeps_what_its_micro_batch_wrote(tmp_path):
    """Otherwise the next start takes its dead letters for those of an uncommitted attempt."""
    circuit = compile_sql(VIEWS, {"link": LINK})
    sink = ViewSink(circuit, state_dir=tmp_path, bad_rows="dead_letter")
    feed(sink, 0)
    sink(Frame(bad(), "q"), 1)
    sink.close()
    files = LocalFiles(tmp_path)
    before = read_manifest(files, 1)
    assert before.dead_letter_file is not None and before.changes
    for cells in (2, 3, None):
        rescale_state(files, cells=cells)
        after = read_manifest(files, 1)
        assert after.dead_letter_file == before.dead_letter_file
        assert after.changes == before.changes
    compact_state(files)
    assert read_manifest(files, 1).dead_letter_file == before.dead_letter_file
    assert len(letter_files(tmp_path)) == 1
