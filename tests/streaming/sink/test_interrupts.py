"""After an interrupt of a micro-batch at any point, as by Ctrl-C, memory and disk agree."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager

import pytest

from streaming import BatchOrderError
from streaming.state.local_files import LocalFiles
from tests.support.fed_sink import check, feed, sink_on, write_state

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


class Interrupted(KeyboardInterrupt):
    pass


@contextmanager
def interrupted(line):
    """Raise `Interrupted` before the line of this number in `FILES`; yield the counted lines."""
    counted = [0]

    def trace_call(frame, event, argument):
        return trace_line if frame.f_code.co_filename.endswith(FILES) else None

    def trace_line(frame, event, argument):
        if event == "line":
            counted[0] += 1
            if counted[0] == line:
                raise Interrupted
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield counted
    except Interrupted:
        pass
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Return the numbers of the lines of a micro-batch at which to interrupt it."""
    sink = sink_on(tmp_path_factory.mktemp("state"), keep=2)
    feed(sink, *range(BATCH))
    with interrupted(None) as counted:
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
        with interrupted(line):
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
        with interrupted(line):
            feed(sink, BATCH)
        try:
            feed(sink, BATCH, BATCH + 1)
        except BatchOrderError as error:
            assert "failed during its commit" in str(error)
        else:
            check(sink, BATCH + 2)
            applied += 1
    assert applied > len(lines) / 2


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
