"""After an interrupt of a micro-batch at any point, as by Ctrl-C, memory and disk agree."""

from __future__ import annotations

import shutil

import pytest

from circuits import compile_sql
from streaming import BatchOrderError, ChangeOptions, ViewSink
from streaming.state.local_files import LocalFiles
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import BATCHES, COUNTS, KEEP, SCHEMA, E, Target
from tests.support.changing_sink import table_of as edges
from tests.support.fed_sink import check, feed, sink_on, write_state
from tests.support.interrupts import interrupted
from tests.support.tables import bag_of

BATCH = 3
SAMPLES = 50
#: The files whose lines are interrupted: those that change the state in memory or on disk.
FILES = (
    "streaming/state/store.py",
    "streaming/state/writable_directory.py",
    "streaming/state/records/unpublished.py",
    "streaming/state/versions.py",
    "streaming/state/memory_store.py",
    "streaming/engine/engine.py",
    "streaming/sink/view_sink.py",
    "streaming/sink/metrics_recorder.py",
    "circuits/circuit.py",
    "circuits/state/current_state.py",
)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Return the numbers of the lines of a micro-batch at which to interrupt it."""
    sink = sink_on(tmp_path_factory.mktemp("state"), keep=2)
    feed(sink, *range(BATCH))
    with interrupted(None, FILES) as counted:
        feed(sink, BATCH)
    sink.close()
    return range(1, counted[0] + 1, max(counted[0] // SAMPLES, 1))


def test_an_interrupted_micro_batch_is_applied_once_by_its_replay(lines, tmp_path):
    write_state(tmp_path / "before", BATCH, keep=2)
    for line in lines:
        state_dir = tmp_path / "state"
        shutil.copytree(tmp_path / "before", state_dir)
        sink = sink_on(state_dir, keep=2)
        feed(sink, BATCH - 1)
        with interrupted(line, FILES):
            feed(sink, BATCH)
        feed(sink, BATCH, BATCH + 1)
        check(sink, BATCH + 2)
        sink.close()
        sink = sink_on(state_dir, keep=2)
        feed(sink, BATCH + 1, BATCH + 2)
        check(sink, BATCH + 3)
        sink.close()
        shutil.rmtree(state_dir)


def test_without_a_directory_it_is_applied_once_or_the_sink_reports_its_lost_state(lines):
    applied = 0
    for line in lines:
        sink = sink_on(None)
        feed(sink, *range(BATCH))
        with interrupted(line, FILES):
            feed(sink, BATCH)
        try:
            feed(sink, BATCH, BATCH + 1)
        except BatchOrderError as error:
            assert "failed during its commit" in str(error)
        else:
            check(sink, BATCH + 2)
            applied += 1
    assert applied > len(lines) / 2


#: The files whose lines are interrupted while views change.
CHANGE_FILES = (
    "streaming/uninterrupted.py",
    "streaming/sink/view_changes.py",
    "streaming/state/program_change.py",
    "circuits/state/program_change.py",
    "circuits/state/sliced_backfill.py",
)
EDGES = "CREATE VIEW edges AS SELECT src, dst FROM e"


class AddingTarget(Target):
    """A target that adds a view in micro-batch 2, so that micro-batch 3 makes the change."""

    def __init__(self, rows_per_batch):
        super().__init__()
        self.change = ChangeOptions(rows_per_batch=rows_per_batch)
        self.sink = self.committed = None
        self.edges = Target()

    def write(self, delta):
        super().write(delta)
        if self.committed is None and delta.batch_id == 2:
            self.committed = self.sink.add_view(EDGES, self.edges, change=self.change)


@pytest.mark.parametrize("rows_per_batch", [None, 100])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_an_interrupt_while_views_change_loses_neither_the_change_nor_the_state(
    rows_per_batch, is_on_disk, tmp_path
):
    def start(name):
        target = AddingTarget(rows_per_batch)
        circuit = compile_sql(COUNTS, E, input_options=KEEP)
        sink = ViewSink(circuit, target, state_dir=tmp_path / name if is_on_disk else None)
        target.sink = sink
        feed_edges(sink, 0, 1, 2)
        return sink, target

    sink, target = start("count")
    with interrupted(None, CHANGE_FILES) as counted:
        feed_edges(sink, 3)
    sink.close()
    assert counted[0] > SAMPLES
    for line in range(1, counted[0] + 1, max(counted[0] // SAMPLES, 1)):
        sink, target = start(f"line {line}")
        with interrupted(line, CHANGE_FILES):
            feed_edges(sink, 3)
        feed_edges(sink, 3)
        number = 4
        while not target.committed.done():
            assert number < 9, line
            feed_edges(sink, number)
            number += 1
        assert target.committed.result(0) == number - 1, line
        feed_edges(sink, number)
        (table,) = compile_sql(EDGES, E).step({"e": edges(*range(5))}).values()
        assert target.edges.rows == bag_of(table), line
        sink.close()


def feed_edges(sink, *numbers):
    for number in numbers:
        sink(Frame(edges(number) if number < len(BATCHES) else SCHEMA.empty_table()), number)


class FailingRemovals(LocalFiles):
    """Files whose removal raises an error that is not an OSError, while ``fails`` is True."""

    fails = False

    def remove(self, name):
        if self.fails:
            raise RuntimeError("no right to delete")
        super().remove(name)


def test_an_error_after_the_commit_loses_nothing(tmp_path):
    files = FailingRemovals(tmp_path)
    sink = sink_on(files, keep=2)
    feed(sink, *range(BATCH))
    files.fails = True
    with pytest.raises(RuntimeError, match="no right"):
        feed(sink, BATCH)
    files.fails = False
    feed(sink, BATCH, BATCH + 1)
    check(sink, BATCH + 2)
