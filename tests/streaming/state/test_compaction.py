"""Compaction: no step merges many rows, every full level is merged, and no result depends on when.

`PolledThread` decides when a compaction runs, so that the tests are deterministic; one test uses
threads.
"""

from __future__ import annotations

import logging
import statistics
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import StateDamagedError, StateError, ViewSink
from streaming.state import compaction, writer
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.segment_references import find_full_level, find_large_neighbours
from tests.streaming.sink.test_view_sink import Frame
from tests.support.polled_thread import PolledThread
from tests.support.tables import bag_of

EDGE = pa.schema([pa.field("src", pa.int64(), False), pa.field("name", pa.string(), False)])
SQL = "SELECT x.name, y.name AS other FROM e x JOIN e y ON y.src = x.src + 1"
LOADS, LOAD_ROWS = 9, 1_000
STEPS, STEP_ROWS = 120, 5


class CountedFiles(LocalFiles):
    """Files on the disk; counts the bytes that steps and compactions read and write.

    Attributes:
        step_bytes: The bytes of the step since the last reset.
        compaction_bytes: The bytes of each compaction.
        fails: True to let the writes of compactions fail.
    """

    def __init__(self, location):
        super().__init__(location)
        self.step_bytes = 0
        self.compaction_bytes = []
        self.fails = False
        self._is_compaction = False

    @contextmanager
    def threads(self, polls):
        """Run each compaction when it is polled for the n-th time."""

        def start(function):
            def run():
                self._is_compaction = True
                self.compaction_bytes.append(0)
                try:
                    function()
                finally:
                    self._is_compaction = False

            return PolledThread(run, polls)

        with (
            patch.object(compaction, "start_thread", start),
            patch.object(writer, "MAX_MERGED_BYTES", 1 << 11),
            patch.object(writer, "MIN_OWN_FILE_BYTES", 1 << 12),
        ):
            yield

    def write(self, name, chunks):
        if self._is_compaction and self.fails:
            raise OSError("no space left on this device")
        chunks = list(chunks)
        self._count(sum(memoryview(chunk).nbytes for chunk in chunks))
        super().write(name, chunks)

    def read(self, name):
        data = super().read(name)
        self._count(len(data))
        return data

    def _count(self, size):
        if self._is_compaction:
            self.compaction_bytes[-1] += size
        else:
            self.step_bytes += size


def batches():
    """Yield the rows of each step: a few loads, then many small steps."""
    random = np.random.default_rng(0)
    first = 0
    for rows in [LOAD_ROWS] * LOADS + [STEP_ROWS] * STEPS:
        numbers = random.permutation(np.arange(first, first + rows))
        yield pa.table({"src": numbers, "name": [f"node {number}" for number in numbers]})
        first += rows


def rows_after(steps):
    rows = LOAD_ROWS * min(steps, LOADS) + STEP_ROWS * max(steps - LOADS, 0)
    return {(number, f"node {number}"): 1 for number in range(rows)}


def open_sink(files, **options):
    circuit = compile_sql(SQL, {"e": EDGE}, materialize=["e"])
    return ViewSink(circuit, state_dir=files, **options)


def newest_parts(files):
    """Return the parts of each arrangement and dictionary in the newest version."""
    manifest = read_manifest(files, list_batch_ids(files)[-1])
    parts = {(name, o): p for name, orders in manifest.traces.items() for o, p in orders.items()}
    return parts | {(name, None): p for name, p in manifest.dictionaries.items()}


def assert_state(files, steps):
    """Assert that a new sink loads all rows, and that no file is left over."""
    sink = open_sink(files)
    assert bag_of(sink.table("e")) == rows_after(steps)
    versions = [read_manifest(files, number) for number in list_batch_ids(files)]
    named = {name for version in versions for name in version.files}
    assert named == set(files.names("data")) | set(files.names("outputs"))


@pytest.mark.parametrize("polls", [0, 3, 20])
def test_no_step_reads_or_writes_more_than_in_proportion_to_its_rows(tmp_path, polls):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    sizes, most_parts = [], 0
    with files.threads(polls):
        for number, table in enumerate(batches()):
            files.step_bytes = 0
            sink(Frame(table, "q"), number)
            sizes.append(files.step_bytes)
            most_parts = max(most_parts, *map(len, newest_parts(files).values()))
        sink.close()
    loads, steps = sizes[:LOADS], sizes[LOADS:]
    assert max(loads) <= 1.5 * statistics.median(loads)
    assert max(steps) <= 5 * statistics.median(steps)
    assert max(files.compaction_bytes) > 3 * statistics.median(loads)
    assert len(files.compaction_bytes) > 5
    assert most_parts < 7 * 4 + polls
    assert_state(files, LOADS + STEPS)


def test_every_full_level_is_merged(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(1):
        for number, table in enumerate(batches()):
            sink(Frame(table, "q"), number)
        for number in range(LOADS + STEPS, LOADS + STEPS + 20):
            sink(Frame(EDGE.empty_table(), "q"), number)
        sink.close()
    assert len(newest_parts(files)) > 2
    for key, parts in newest_parts(files).items():
        assert find_full_level([part.rows for part in parts]) is None, key
    assert_state(files, LOADS + STEPS)


def test_with_a_memory_limit_few_parts_have_almost_all_rows(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files, memory_limit=1)
    with files.threads(1), patch.object(compaction, "MIN_LARGE_PART_BYTES", 1 << 12):
        for number, table in enumerate(batches()):
            sink(Frame(table, "q"), number)
        for number in range(LOADS + STEPS, LOADS + STEPS + 40):
            sink(Frame(EDGE.empty_table(), "q"), number)
        sink.close()
    traces = {key: parts for key, parts in newest_parts(files).items() if key[1] is not None}
    assert len(traces) > 1
    for key, parts in traces.items():
        rows = [part.rows for part in parts]
        assert find_large_neighbours(rows) is None, key
        assert sum(rows[:2]) > 0.9 * sum(rows), key
    # A byte of the state is written again a few times, not once for each load.
    written = sum(files.compaction_bytes) / 2  # it is read as well
    state = sum(part.size for parts in newest_parts(files).values() for part in parts)
    assert written < 6 * state
    assert_state(files, LOADS + STEPS)


@pytest.mark.parametrize("memory_limit", [None, 1])
def test_a_slow_compaction_does_not_let_a_step_merge_all_parts(tmp_path, memory_limit):
    files = CountedFiles(tmp_path)
    sink = open_sink(files, memory_limit=memory_limit)
    sizes, parts, table = [], [], next(batches())
    with (
        files.threads(1000),
        patch.object(writer, "MAX_STORED_PARTS", 24),
        patch.object(compaction, "FileMerge", wraps=compaction.FileMerge) as file_merges,
    ):
        for number in range(60):
            files.step_bytes = 0
            sink(Frame(table, "q"), number)
            sizes.append(files.step_bytes)
            parts.append(newest_parts(files))
        assert not files.compaction_bytes
        assert bool(file_merges.call_count) == (memory_limit is not None)
        sink.close()
    assert 24 <= max(len(p) for step in parts for p in step.values()) <= 25
    # A step reads and writes at most eight parts again, each of at most some loads.
    assert max(sizes) < 18 * statistics.median(sizes)
    sink = open_sink(files)
    assert set(bag_of(sink.table("e")).values()) == {60}


def test_a_step_goes_on_if_its_parts_cannot_be_merged(tmp_path, caplog):
    files = CountedFiles(tmp_path)
    sink, table = open_sink(files), next(batches())
    full = OSError(28, "No space left on device")
    with (
        files.threads(1000),
        patch.object(writer, "MAX_STORED_PARTS", 4),
        patch.object(compaction.Compactor, "merge_now", side_effect=full),
    ):
        for number in range(12):
            sink(Frame(table, "q"), number)
        sink.close()
    assert "were not merged: [Errno 28] No space left" in caplog.text
    assert set(bag_of(open_sink(files).table("e")).values()) == {12}


def test_rows_that_cancel_leave_no_part(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(1), patch.object(writer, "MAX_MERGED_BYTES", 0):
        for number in range(24):
            table = next(batches()).append_column("weight", [[1 - 2 * (number % 2)] * LOAD_ROWS])
            sink(Frame(table, "q"), number)
        sink.close()
    arrangements = [parts for key, parts in newest_parts(files).items() if key[1] is not None]
    assert all(len(parts) < 10 for parts in arrangements)
    assert sum(part.rows for parts in arrangements for part in parts) < 8 * LOAD_ROWS * 3
    assert_state(files, 0)


def test_a_compaction_that_fails_fails_no_step_and_is_tried_again(tmp_path, caplog):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(1), caplog.at_level(logging.WARNING):
        files.fails = True
        for number, table in enumerate(batches()):
            files.fails = number < 30
            sink(Frame(table, "q"), number)
        sink.close()
    failures = [record for record in caplog.records if "were not merged" in record.message]
    assert len(failures) == 1
    assert "no space left on this device" in failures[0].message
    assert max(part.rows for parts in newest_parts(files).values() for part in parts) > LOAD_ROWS
    assert_state(files, LOADS + STEPS)


def test_only_the_files_that_remain_are_removed_again(tmp_path):
    removed = []

    class StuckFiles(LocalFiles):
        def remove(self, name):
            removed.append(name)
            if name == "data/stuck":
                raise OSError("busy")
            super().remove(name)

    files = StuckFiles(tmp_path)
    compactor = compaction.Compactor(files)
    for n in range(5):
        for name in ("data/stuck", f"data/{n}"):
            files.write(name, [b"old"])
            compactor.remove([name] if n == 0 or name != "data/stuck" else [])
        compactor.stop()
    assert files.names("data") == ["data/stuck"]
    assert [removed.count(f"data/{n}") for n in range(4)] == [1] * 4


def test_a_file_that_could_not_be_removed_is_removed_later(tmp_path, caplog):
    class BusyFiles(LocalFiles):
        is_busy = True

        def remove(self, name):
            if self.is_busy:
                raise OSError("busy")
            super().remove(name)

    files = BusyFiles(tmp_path)
    compactor = compaction.Compactor(files)
    for name in ("data/a", "data/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"old")
    compactor.remove(["data/a"])
    compactor.remove(["data/b"])
    compactor.stop()
    assert "could not be removed: busy" in caplog.text
    assert sorted(files.names("data")) == ["data/a", "data/b"]
    files.is_busy = False
    compactor.remove([])
    compactor.stop()
    assert not [*files.names("data")]


def test_a_result_that_was_removed_is_not_used(tmp_path, caplog):
    reported = "was removed or cut short"
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(0), caplog.at_level(logging.WARNING):
        for number, table in enumerate(batches()):
            sink(Frame(table, "q"), number)
            if reported in caplog.text:
                continue
            named = {part.file for parts in newest_parts(files).values() for part in parts}
            for name in set(files.names("data")) - named:
                if len(list_batch_ids(files)) > 2 and files.size(name) > 4 * LOAD_ROWS * 24:
                    files.remove(name)
        sink.close()
    assert reported in caplog.text
    assert_state(files, LOADS + STEPS)


def test_a_damaged_part_is_not_merged(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(3):
        tables = batches()
        for number in range(8):
            sink(Frame(next(tables), "q"), number)
        largest = max(files.names("data"), key=files.size)
        content = bytearray((tmp_path / largest).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / largest).write_bytes(content)
        with pytest.raises(StateDamagedError, match="has the checksum"):
            for number in range(8, 60):
                sink(Frame(next(tables), "q"), number)
    sink.close()


class UncertainFiles(CountedFiles):
    """Fails right after a manifest that names the result of a compaction was renamed."""

    def __init__(self, location):
        super().__init__(location)
        self.named = set()

    def rename_new(self, old, new):
        super().rename_new(old, new)
        if not list_batch_ids(self):
            return
        manifest = read_manifest(self, list_batch_ids(self)[-1])
        new = set(manifest.data_files) - self.named
        if any(int(name.removeprefix("data/")[:20]) < manifest.batch_id for name in new):
            raise OSError("the connection was lost")
        self.named |= new


def test_a_file_remains_if_it_is_unknown_whether_the_manifest_that_names_it_was_committed(tmp_path):
    files = UncertainFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(0), pytest.raises(StateError, match="the outcome of the commit"):
        for number, table in enumerate(batches()):
            sink(Frame(table, "q"), number)
    sink.close()
    manifest = read_manifest(files, number)
    assert not manifest.files.keys() - {*files.names("data"), *files.names("outputs")}
    assert_state(LocalFiles(tmp_path), number + 1)


def test_closing_a_sink_stops_its_compaction(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(1000):
        for number, table in zip(range(LOADS), batches(), strict=False):
            sink(Frame(table, "q"), number)
        assert not files.compaction_bytes
        sink.close()
        assert len(files.compaction_bytes) == 1
    assert_state(files, LOADS)


def test_a_compaction_of_a_dropped_arrangement_is_stopped(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(1000):
        for number, table in zip(range(LOADS), batches(), strict=False):
            sink(Frame(table, "q"), number)
        sink.close()
        manifest = read_manifest(files, list_batch_ids(files)[-1])
        compactor = compaction.Compactor(files)
        compactor.check_all(manifest)
        compactor.after_commit(manifest, (), "data/first-0.arrow")
        assert compactor.group is not None
        without_state = replace(manifest, traces={}, dictionaries={})
        compactor.after_commit(without_state, (), "data/second-0.arrow")
    assert compactor.group is None
    assert not [name for name in files.names("data") if "first" in name or "second" in name]


def test_compactions_in_threads_keep_all_rows(tmp_path):
    files = LocalFiles(tmp_path)
    sink = open_sink(files)
    with (
        patch.object(writer, "MAX_MERGED_BYTES", 1 << 9),
        patch.object(compaction, "ROWS_PER_SLICE", 100),
    ):
        for number, table in enumerate(batches()):
            sink(Frame(table, "q"), number)
        sink.close()
    assert_state(files, LOADS + STEPS)
