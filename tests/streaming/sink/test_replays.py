"""Replays to a sink with other options, and dead letters of failed attempts."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming import (
    DeadLetterRetention,
    Output,
    RowError,
    StateError,
    TargetError,
    ViewSink,
)
from streaming.state.local_files import LocalFiles
from streaming.state.records.dead_letter_files import MIN_FILE_BYTES
from streaming.targets.output_mode import OutputMode
from tests.streaming.sink.test_view_sink import Frame, RecordingTarget
from tests.support.fed_sink import LINK, ROWS, CheckingTarget, batch, check, feed, views
from tests.support.tables import table_of

UNLIMITED = DeadLetterRetention(max_age=None, max_bytes=None)


def sink_of(state_dir, target, **options):
    return ViewSink(views(), target, state_dir=state_dir, **options)


def outputs_of(target, cities):
    return [
        Output(view, target, *((cities.mode, cities.keys) if view == "cities" else ()))
        for view in views().outputs
    ]


MODES = [OutputMode(), OutputMode("complete"), OutputMode("upsert", ["city"])]


@pytest.mark.parametrize("now", MODES, ids=str)
@pytest.mark.parametrize("before", MODES, ids=str)
def test_a_replayed_micro_batch_is_not_published_in_another_mode(tmp_path, before, now):
    sink = ViewSink(views(), outputs_of(RecordingTarget(), before), state_dir=tmp_path)
    feed(sink, 0, 1)
    sink.close()
    target = RecordingTarget()
    sink = ViewSink(views(), outputs_of(target, now), state_dir=tmp_path)
    modes = [str(before), str(now)]
    if modes[0] != modes[1]:
        with pytest.raises(
            TargetError, match=r"'cities': micro-batch 1 was published as"
        ) as raised:
            feed(sink, 1)
        assert all(mode in str(raised.value) for mode in modes)
        assert [delta.view for delta in target.deltas] == ["paths"]
    else:
        feed(sink, 1)
    feed(sink, 2)
    assert str(target.deltas[-1].mode) == modes[1].partition("(")[0]
    assert target.deltas[-1].table.schema.metadata is None
    check(sink, 3)


def bad():
    return table_of(LINK, ROWS[0]).append_column("weight", pa.array(["1", "no"]))


def test_a_committed_micro_batch_is_not_checked_for_bad_rows_again(tmp_path):
    sink = sink_of(tmp_path, None, bad_rows="dead_letter")
    sink(Frame(bad(), "q"), 0)
    sink.close()
    sink = sink_of(tmp_path, None)
    sink(Frame(bad(), "q"), 0)
    with pytest.raises(RowError, match="micro-batch 1: "):
        sink(Frame(bad(), "q"), 1)
    assert sink.metrics[-1].replayed and sink.metrics[-1].dead_letters_total == 1


def letter_files(state_dir):
    return sorted((state_dir / "dead_letters").glob("*.parquet"))


def letter_batches(state_dir):
    return [int(path.stem[:20]) for path in letter_files(state_dir)]


def test_the_oldest_dead_letters_are_removed_when_all_files_are_larger_than_the_limit(tmp_path):
    limit = DeadLetterRetention(max_bytes=3 * MIN_FILE_BYTES)
    options = {"bad_rows": "dead_letter", "dead_letters": limit}
    sink = sink_of(tmp_path, None, **options)
    for batch_id in range(5):
        sink(Frame(bad(), "q"), batch_id)
    assert letter_batches(tmp_path) == [2, 3, 4]
    assert [m.dead_letter_bytes // MIN_FILE_BYTES for m in sink.metrics] == [1, 2, 3, 3, 3]
    sink.close()
    (tmp_path / "dead_letters" / "notes.parquet").write_bytes(b"of a user")
    sink = sink_of(tmp_path, None, **options)
    sink(Frame(bad(), "q"), 5)
    sink.close()
    (tmp_path / "dead_letters" / "notes.parquet").unlink()
    assert letter_batches(tmp_path) == [3, 4, 5]
    assert sink.metrics[-1].dead_letter_files_removed == 1
    assert sink.metrics[-1].dead_letters_total == 6


def test_dead_letters_are_removed_when_they_are_too_old_also_without_new_ones(tmp_path):
    sink = sink_of(tmp_path, None, bad_rows="dead_letter")
    for batch_id in range(3):
        sink(Frame(bad(), "q"), batch_id)
    sink.close()
    # The name that earlier releases gave the file.
    old = letter_files(tmp_path)[0].rename(tmp_path / "dead_letters" / f"{0:020}.parquet")
    month = 31 * 24 * 3600
    os.utime(old, (time.time() - month,) * 2)
    sink = sink_of(tmp_path, None, bad_rows="dead_letter", dead_letters=UNLIMITED)
    feed(sink, 3)
    sink.close()
    assert letter_batches(tmp_path) == [0, 1, 2]
    with old.open("rb") as reader:
        sink = sink_of(tmp_path, None, bad_rows="dead_letter")
        feed(sink, 4)
        assert letter_batches(tmp_path) == [1, 2]
        assert pq.read_table(reader).num_rows == 1
    assert sink.metrics[-1].dead_letter_files_removed == 1
    feed(sink, 5)
    assert sink.metrics[-1].dead_letter_files_removed == 0


def test_the_dead_letters_of_the_committed_micro_batch_remain(tmp_path):
    limit = DeadLetterRetention(max_bytes=1)
    sink = sink_of(tmp_path, None, bad_rows="dead_letter", dead_letters=limit)
    for batch_id in range(3):
        sink(Frame(bad(), "q"), batch_id)
        assert letter_batches(tmp_path) == [batch_id]


def test_a_failure_to_remove_dead_letters_does_not_fail_the_micro_batch(tmp_path, caplog):
    class FailingRemovals(LocalFiles):
        def remove(self, name):
            if name.startswith("dead_letters/"):
                raise OSError("no permission")
            super().remove(name)

    limit = DeadLetterRetention(max_bytes=1)
    files = FailingRemovals(tmp_path)
    sink = sink_of(files, None, bad_rows="dead_letter", dead_letters=limit)
    for batch_id in range(2):
        sink(Frame(bad(), "q"), batch_id)
    assert letter_batches(tmp_path) == [0, 1]
    assert "could not be removed: no permission" in caplog.text
    assert sink.metrics[-1].dead_letter_files_removed == 0


@pytest.mark.parametrize("limit", [{"max_age": timedelta(0)}, {"max_bytes": 0}])
def test_a_limit_of_dead_letters_is_positive_or_none(limit):
    with pytest.raises(StateError, match="positive"):
        DeadLetterRetention(**limit)


def test_dead_letters_need_a_state_directory():
    with pytest.raises(StateError, match="state_dir"):
        ViewSink(views(), bad_rows="dead_letter")


class ProcessEnds(BaseException):
    """Stands for the end of the process."""


class FailingCommit(LocalFiles):
    """Files whose commit fails while ``fails`` is True, as if the process ended."""

    fails = False

    def rename_new(self, old, new):
        if self.fails:
            raise ProcessEnds
        super().rename_new(old, new)

    def remove(self, name):
        if not self.fails:
            super().remove(name)


def test_dead_letters_of_an_uncommitted_micro_batch_are_removed_if_its_replay_has_none(tmp_path):
    files = FailingCommit(tmp_path)
    sink = sink_of(files, CheckingTarget(), bad_rows="dead_letter")
    feed(sink, 0, 1)
    files.fails = True
    with pytest.raises(ProcessEnds):
        sink(Frame(bad(), "q"), 2)
    (kept,) = letter_files(tmp_path)
    assert pq.read_table(kept).num_rows == 1
    sink.close()
    sink = ViewSink(views(), state_dir=tmp_path)
    sink(Frame(batch(2), "q"), 2)  # the query was corrected meanwhile
    assert not kept.exists()
    assert sink.metrics[-1].dead_letters_total == 0


class FailingAppends(LocalFiles):
    """A file system that cannot append to a file."""

    def append(self, name, text):
        raise OSError("not here")


def test_metrics_that_cannot_be_written_do_not_fail_a_micro_batch(tmp_path, caplog):
    sink = sink_of(FailingAppends(tmp_path), CheckingTarget())
    with caplog.at_level(logging.WARNING):
        feed(sink, 0, 1)
    assert "metrics of micro-batch 1 were not written: not here" in caplog.text
