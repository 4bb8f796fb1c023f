"""Offline compaction: the state becomes as small as a fresh load, and the query continues."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming import StateError, StateLockedError, ViewSink
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.offline_compaction import compact_state
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.state.test_removed_values import (
    ROWS,
    WINDOW,
    circuit,
    content,
    open_sink,
    rows_after,
    stored_values,
    tables_of_step,
)
from tests.support.tables import bag_of

STEPS = 60


def run_steps(state_dir, first, last):
    """Feed the micro-batches ``first`` to ``last - 1``; return the rows and the last output."""
    sink = open_sink(LocalFiles(state_dir))
    for number in range(first, last):
        sink(Frame(tables_of_step(number)["r"], "q"), number)
    rows, output = bag_of(sink.table("e")), bag_of(sink.last.outputs["view"])
    sink.close()
    return rows, output


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A state directory of which most rows and values were removed, and the last output."""
    state_dir = tmp_path_factory.mktemp("grown") / "state"
    return state_dir, run_steps(state_dir, 0, STEPS)[1]


@pytest.fixture
def state_dir(grown, tmp_path):
    return shutil.copytree(grown[0], tmp_path / "state")


def test_only_live_rows_and_values_remain_and_the_query_continues(grown, state_dir):
    files = LocalFiles(state_dir)
    lengths = read_manifest(files, STEPS - 1).dictionary_lengths
    result = compact_state(files)
    before, after = result.before, result.after
    live = ROWS * WINDOW
    orders = read_manifest(files, STEPS - 1).traces
    assert after.rows == live * sum(map(len, orders.values())) < before.rows
    assert after.values <= 3 * live < before.values  # strings, and row ids of the texts
    assert after.bytes < before.bytes / 2
    assert after.bytes == sum(
        path.stat().st_size
        for folder in ("data", "manifests", "outputs")
        for path in (state_dir / folder).iterdir()
    )
    assert list_batch_ids(files) == [result.batch_id] == [STEPS - 1]
    assert read_manifest(files, STEPS - 1).dictionary_lengths == lengths
    assert run_steps(state_dir, STEPS - 1, STEPS) == (rows_after(STEPS)["r"], grown[1])
    fresh = run_steps(state_dir.parent / "fresh", 0, STEPS + 5)
    assert run_steps(state_dir, STEPS, STEPS + 5) == fresh


def test_as_many_values_of_each_dictionary_remain_as_after_a_load_of_the_live_rows(tmp_path):
    def feed(name, numbers):
        sink = ViewSink(circuit(), state_dir=tmp_path / name)
        for batch_id, number in enumerate(numbers):
            tables = tables_of_step(number)
            if name == "fresh":  # without the rows that were inserted before
                tables = {r: table.filter(pc.field("weight") > 0) for r, table in tables.items()}
            sink(Frame(batch_of(tables), "q"), batch_id)
        return sink

    grown, fresh = feed("grown", range(30)), feed("fresh", range(20, 30))
    for sink in (grown, fresh):
        sink.close()
    files = LocalFiles(tmp_path / "grown")
    result = compact_state(files)
    compacted = stored_values(files)
    assert compact_state(LocalFiles(tmp_path / "fresh")).after.rows == result.after.rows
    assert compacted == stored_values(LocalFiles(tmp_path / "fresh"))
    opened = ViewSink(circuit(), state_dir=tmp_path / "grown")
    opened(Frame(batch_of(tables_of_step(30)), "q"), 30)
    assert content({name: opened.table(name) for name in ("r", "s")}) == rows_after(31)
    opened.close()


def batch_of(tables):
    """Return the rows of both relations as one table, with a column ``relation``."""
    return pa.concat_tables(
        [
            table.append_column("relation", pa.array([name] * table.num_rows, pa.string()))
            for name, table in tables.items()
        ],
        promote_options="default",
    )


def test_compacting_again_changes_no_size(state_dir):
    first = compact_state(LocalFiles(state_dir)).after
    second = compact_state(LocalFiles(state_dir))
    assert (second.before.rows, second.before.values) == (first.rows, first.values)
    assert second.after == second.before


def test_no_code_is_used_again_after_all_rows_are_gone(state_dir):
    sink = open_sink(LocalFiles(state_dir))
    rows = rows_after(STEPS)["r"]
    keys, values = zip(*rows, strict=True)
    deleted = pa.table({"k": keys, "v": values, "weight": [-1] * len(rows)})
    sink(Frame(deleted, "q"), STEPS)
    sink.close()
    result = compact_state(LocalFiles(state_dir))
    assert (result.after.rows, result.after.values) == (0, 0)
    length = read_manifest(LocalFiles(state_dir), STEPS).dictionary_lengths["text"]
    sink = open_sink(LocalFiles(state_dir))
    sink(Frame(pa.table({"k": ["new"], "v": ["newer"]}), "q"), STEPS + 1)
    assert bag_of(sink.table("e")) == {("new", "newer"): 1}
    sink.close()
    manifest = read_manifest(LocalFiles(state_dir), STEPS + 1)
    assert manifest.dictionary_lengths["text"] == length + 2


class ProcessEnds(BaseException):
    """Stands for the end of the process."""


class EndingFiles(LocalFiles):
    """Files of a process that ends before one of the calls that change them."""

    def __init__(self, path, calls):
        super().__init__(path)
        self.calls_left = calls

    def _count(self):
        if not self.calls_left:
            raise ProcessEnds
        self.calls_left -= 1

    def write(self, name, chunks):
        self._count()
        super().write(name, chunks)

    def sync(self, name):
        self._count()
        super().sync(name)

    def rename(self, old, new):
        self._count()
        super().rename(old, new)

    def sync_folder(self, folder):
        self._count()
        super().sync_folder(folder)

    def remove(self, name):
        self._count()
        super().remove(name)


def test_the_process_may_end_before_any_change_of_a_file(grown, tmp_path):
    expected = rows_after(STEPS)["r"], grown[1]
    calls, is_complete = 0, False
    while not is_complete:
        state_dir = shutil.copytree(grown[0], tmp_path / f"state{calls}")
        try:
            files = EndingFiles(state_dir, calls)
            files.mode = 0o700  # without a mode, `compact_state` opens the directory itself
            compact_state(files)
            is_complete = True
        except ProcessEnds:
            files.unlock()
        assert run_steps(state_dir, STEPS - 1, STEPS) == expected
        names = {file.name for file in LocalFiles(state_dir).list_files("data")}
        referenced = {
            name
            for batch_id in list_batch_ids(LocalFiles(state_dir))
            for name in read_manifest(LocalFiles(state_dir), batch_id).data_files
        }
        assert names == referenced
        calls += 1
    assert calls > 8


@pytest.mark.parametrize("call", ["rename", "sync_folder"])
def test_the_files_of_both_versions_remain_if_the_outcome_of_the_commit_is_unknown(
    grown, state_dir, call
):
    class FailingCommit(LocalFiles):
        def rename(self, old, new):
            if new.startswith("manifests/") and call == "rename":
                raise OSError("no connection")
            super().rename(old, new)

        def sync_folder(self, folder):
            if folder == "manifests":
                raise OSError("no connection")
            super().sync_folder(folder)

    files = FailingCommit(state_dir)
    files.mode = 0o700
    with pytest.raises(StateError, match="unknown: no connection"):
        compact_state(files)
    assert run_steps(state_dir, STEPS - 1, STEPS) == (rows_after(STEPS)["r"], grown[1])


def test_a_state_without_a_version_or_in_use_is_not_compacted(state_dir, tmp_path):
    with pytest.raises(StateError, match="nothing to compact"):
        compact_state(LocalFiles(tmp_path / "none"))
    sink = open_sink(LocalFiles(state_dir))
    sink(Frame(tables_of_step(STEPS)["r"], "q"), STEPS)
    with pytest.raises(StateLockedError):
        compact_state(LocalFiles(state_dir))
    sink.close()
