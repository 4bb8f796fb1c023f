"""One writer at a time, whatever becomes of the lock, and a directory that is gone is missed."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from streaming import BatchOrderError, StateDamagedError, StateLockedError
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, manifest_name, read_manifest
from streaming.state.ownership import EPOCH_FILE, Owner, check_owner, take_over
from tests.support.fed_sink import check, feed, sink_on, write_state

LAST = 4


@pytest.fixture
def place(tmp_path):
    write_state(tmp_path / "state", LAST + 1)
    return tmp_path / "state"


def seen(sink) -> list[int]:
    """The micro-batches that targets were given, of both views."""
    batches = sink.outputs[0].target.batches
    assert batches == sorted(batches)
    return batches[::2]


def epochs(place: Path) -> list[int]:
    files = LocalFiles(place)
    return [read_manifest(files, number).epoch for number in list_batch_ids(files)]


def test_a_sink_whose_lock_was_removed_fails_before_it_publishes_once_another_one_writes(place):
    first, second = sink_on(place), sink_on(place)
    feed(first, LAST + 1)
    (place / "lock").unlink()
    feed(second, LAST + 2)
    for _ in range(2):
        with pytest.raises(StateLockedError):
            feed(first, LAST + 2)
    assert (seen(first), seen(second)) == ([LAST + 1], [LAST + 2])
    feed(second, LAST + 3)
    second.close()
    feed(first, LAST + 3, LAST + 4)
    check(first, LAST + 5)


def test_a_second_sink_fences_the_first_before_it_has_written_anything(place):
    first, second = sink_on(place), sink_on(place)
    feed(first, LAST + 1)
    (place / "lock").unlink()
    feed(second, LAST + 1)  # again, so nothing is written
    with pytest.raises(StateLockedError, match=r"taken over by another sink \(epoch 3, .* has 2"):
        feed(first, LAST + 2)
    assert seen(first) == [LAST + 1]
    feed(second, LAST + 2)
    check(second, LAST + 3)


class Meddled(LocalFiles):
    """Calls a function right before, or right after, a manifest gets its name."""

    before = after = staticmethod(lambda: None)

    def rename_new(self, old, new):
        self.before()
        super().rename_new(old, new)
        self.after()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sink_that_is_taken_over_while_it_commits_does_not_publish(place, moment):
    files = Meddled(place)
    first, second = sink_on(files), sink_on(place)
    feed(first, LAST + 1)

    def meddle() -> None:
        (place / "lock").unlink()
        feed(second, LAST + 1)

    setattr(files, moment, meddle)
    with pytest.raises(StateLockedError):
        feed(first, LAST + 2)
    assert seen(first) == [LAST + 1]
    # If the version is there it is that of just these rows.
    try:
        feed(second, LAST + 2)
    except StateLockedError:
        assert moment == "after"
        feed(second, LAST + 2)
    feed(second, LAST + 3)
    check(second, LAST + 4)


def test_a_version_that_is_there_is_never_replaced(place):
    files = Meddled(place)
    first = sink_on(files)
    feed(first, LAST + 1)

    def meddle() -> None:
        shutil.copy(place / manifest_name(LAST), place / manifest_name(LAST + 2))

    files.before = meddle
    with pytest.raises(StateLockedError, match=f"version {LAST + 2} .* was written by another"):
        feed(first, LAST + 2)


def test_each_start_has_a_greater_epoch_and_manifests_have_it(place):
    for number in range(LAST + 1, LAST + 4):
        sink = sink_on(place)
        feed(sink, number)
        sink.close()
    assert epochs(place) == [2, 3, 4]
    (place / EPOCH_FILE).unlink()
    sink = sink_on(place)
    feed(sink, LAST + 4)
    assert epochs(place)[-1] == 5


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 99, None])
def test_an_epoch_that_is_damaged_is_noticed_by_the_writer_and_made_again_at_a_start(
    place, content, caplog
):
    sink = sink_on(place)
    feed(sink, LAST + 1)
    (place / EPOCH_FILE).unlink()
    if content is not None:
        (place / EPOCH_FILE).write_bytes(content)
    with pytest.raises(StateDamagedError, match=EPOCH_FILE):
        feed(sink, LAST + 2)
    assert seen(sink) == [LAST + 1]
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST + 2)
    check(sink, LAST + 3)


def test_a_writer_is_known_by_its_token_and_not_by_its_number_alone(tmp_path):
    files = LocalFiles(tmp_path)
    first = take_over(files)
    check_owner(files, first)
    with pytest.raises(StateLockedError):
        check_owner(files, Owner(first.epoch, "another"))
    assert take_over(files, 17).epoch == 18


def test_a_directory_that_is_deleted_under_a_sink_is_missed_at_the_next_micro_batch(place):
    sink = sink_on(place)
    feed(sink, LAST + 1)
    shutil.rmtree(place)
    for number in (LAST + 2, LAST + 2, 0):
        with pytest.raises(StateDamagedError, match="deleted or replaced while"):
            feed(sink, number)
    assert seen(sink) == [LAST + 1]
    sink.close()
    for again in (sink, sink_on(place)):
        with pytest.raises(BatchOrderError, match="is empty"):
            feed(again, LAST + 2)
        again.close()
    feed(sink, 0)  # begin again: the checkpoint was deleted as well
    check(sink, 1)


def test_a_directory_that_is_replaced_under_a_sink_is_missed(place, tmp_path):
    write_state(tmp_path / "other", LAST + 2)
    sink = sink_on(place)
    feed(sink, LAST + 1)
    shutil.rmtree(place)
    shutil.move(tmp_path / "other", place)
    for _ in range(2):
        with pytest.raises((StateDamagedError, StateLockedError)):
            feed(sink, LAST + 2)
    assert seen(sink) == [LAST + 1]


@pytest.mark.parametrize("folder", ["data", "manifests", "outputs"])
def test_a_folder_that_is_deleted_under_a_sink_doubles_and_loses_nothing(place, folder):
    sink = sink_on(place)
    feed(sink, LAST + 1)
    shutil.rmtree(place / folder)
    if folder == "data":
        with pytest.raises(StateDamagedError, match="deleted while this sink was using them"):
            feed(sink, LAST + 2)
        assert seen(sink) == [LAST + 1]
        return
    feed(sink, LAST + 2)
    sink.close()
    again = sink_on(place)
    feed(again, LAST + 2, LAST + 3)
    check(again, LAST + 4)


def test_an_older_manifest_under_the_newest_name_does_not_move_the_state_back(place):
    newest = place / manifest_name(LAST)
    for older in (LAST - 1, LAST - 2):
        whole = newest.read_bytes()
        newest.write_bytes((place / manifest_name(older)).read_bytes())
        sink = sink_on(place)
        with pytest.raises(StateDamagedError, match=f"is the manifest of micro-batch {older}"):
            sink.table("paths")
        with pytest.raises(StateDamagedError, match=f"is the manifest of micro-batch {older}"):
            feed(sink, LAST + 1)
        sink.close()
        newest.write_bytes(whole)
    newest.write_bytes((place / manifest_name(LAST - 1)).read_bytes())
    sink = sink_on(place)
    feed(sink, LAST, LAST + 1)  # Spark gives it again: done again from the version before
    check(sink, LAST + 2)


def test_a_manifest_of_another_directory_is_refused(place, tmp_path):
    write_state(tmp_path / "other", LAST + 1)
    shutil.copy(tmp_path / "other" / manifest_name(LAST), place / manifest_name(LAST))
    with pytest.raises(StateDamagedError, match="belongs to another state directory"):
        feed(sink_on(place), LAST + 1)
    (place / "state.json").write_bytes((tmp_path / "other" / "state.json").read_bytes())
    with pytest.raises(StateDamagedError):
        sink_on(place).table("paths")


def test_a_version_of_another_history_is_not_gone_back_to(place, tmp_path):
    """A copy was taken, both went on, and a file of one was put into the other."""
    shutil.copytree(place, tmp_path / "copy")
    for one in (place, tmp_path / "copy"):
        sink = sink_on(one)
        feed(sink, LAST + 1, LAST + 2)
        sink.close()
    name = manifest_name(LAST + 1)
    shutil.copy(tmp_path / "copy" / name, place / name)
    (place / manifest_name(LAST + 2)).write_bytes(b"")
    for number in (LAST + 2, LAST + 3):
        sink = sink_on(place)
        with pytest.raises(StateDamagedError):
            feed(sink, number)
        sink.close()


def test_the_version_before_is_made_again_if_the_newest_was_not_made_from_it(
    place, tmp_path, caplog
):
    shutil.copytree(place, tmp_path / "copy")
    sink = sink_on(tmp_path / "copy")
    feed(sink, LAST + 1)
    sink.close()
    sink = sink_on(place)
    feed(sink, LAST + 1, LAST + 2)
    sink.close()
    shutil.copy(tmp_path / "copy" / manifest_name(LAST + 1), place / manifest_name(LAST + 1))
    sink = sink_on(place)
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST + 1, LAST + 2, LAST + 3)
    assert f"is not the parent of version {LAST + 2}" in caplog.text
    check(sink, LAST + 4)
