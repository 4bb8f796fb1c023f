"""Replays to a sink with other options, and dead letters of failed attempts."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming import Output, RowError, StateError, TargetError, ViewSink
from streaming.state.local_files import LocalFiles
from streaming.targets.output_mode import OutputMode
from tests.streaming.sink.test_view_sink import Frame, RecordingTarget
from tests.support.fed_sink import LINK, ROWS, CheckingTarget, batch, check, feed, views
from tests.support.tables import table_of


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
    kept = tmp_path / "dead_letters" / f"{2:020}.parquet"
    files.fails = True
    with pytest.raises(ProcessEnds):
        sink(Frame(bad(), "q"), 2)
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
