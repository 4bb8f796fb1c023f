"""`dbsp-wcoj compact` makes the state of cells as small as a fresh load; the query continues."""

from __future__ import annotations

import json
import shutil
from unittest.mock import patch

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from streaming import StateError, StateMismatchError
from streaming.cli.app import app
from streaming.distributed.cell_state import divide_circuit
from streaming.distributed.execution.executor_cache import CACHE
from streaming.state import offline_compaction
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_cell_manifest, read_manifest
from streaming.state.offline_compaction import StoredSize, compact_state
from streaming.state.verified_files import read_state
from tests.streaming.distributed.test_program_change import COUNTS, PATHS, sink_of
from tests.support.local_cells import LocalFrame, local_cells
from tests.support.tables import bag_of

STEPS, WINDOW = 20, 2


@pytest.fixture(autouse=True)
def cells():
    with local_cells():
        yield


def edges_of(number):
    return [(f"{number} from {n}", f"{number} to {n % 3}") for n in range(12)] + [
        (f"{number} to {n}", f"{number} end") for n in range(3)
    ]


def table_of_step(number, *, deletes=True):
    """Insert the edges of a step, and delete those of the step ``WINDOW`` steps before."""
    old = edges_of(number - WINDOW) if number >= WINDOW and deletes else []
    rows = [(*edge, 1) for edge in edges_of(number)] + [(*edge, -1) for edge in old]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, ["src", "dst", "weight"])


def feed(state_dir, numbers, *, first_id=None, deletes=True):
    """Run the micro-batches of these steps; return the deltas of the views by micro-batch."""
    sink, _ = sink_of(state_dir, PATHS + COUNTS)
    deltas = []
    for position, number in enumerate(numbers):
        batch_id = number if first_id is None else first_id + position
        sink(LocalFrame(table_of_step(number, deletes=deletes)), batch_id)
        deltas.append({view: bag_of(table) for view, table in sink.last.outputs.items()})
    sink.close()
    CACHE.clear()
    return deltas


@pytest.fixture
def state_dir(tmp_path):
    feed(tmp_path / "state", range(STEPS))
    return tmp_path / "state"


def compact(state_dir):
    return compact_state(LocalFiles(state_dir), divide=divide_circuit)


def test_each_cell_keeps_only_live_rows_and_values_and_the_query_continues(state_dir, tmp_path):
    shutil.copytree(state_dir, tmp_path / "not compacted")
    files = LocalFiles(state_dir)
    before = read_manifest(files, STEPS - 1)
    output = CliRunner().invoke(app, ["compact", str(state_dir), "--json"])
    assert output.exit_code == 0, output.output
    result = json.loads(output.stdout)
    feed(tmp_path / "fresh", range(STEPS - WINDOW, STEPS), first_id=0, deletes=False)
    fresh = LocalFiles(tmp_path / "fresh")
    expected = StoredSize.of(fresh, read_manifest(fresh, WINDOW - 1))
    assert result["after"]["values"] == expected.values < result["before"]["values"]
    assert result["after"]["rows"] <= expected.rows  # a fresh load has not merged all of its parts
    assert result["after"]["parts"] < result["before"]["parts"]
    assert result["after"]["bytes"] < result["before"]["bytes"]
    assert list_batch_ids(files) == [STEPS - 1]
    after = read_manifest(files, STEPS - 1)
    assert after.cells.layout == before.cells.layout  # the rows stay in their cells
    assert after.cells.manifests.keys() == before.cells.manifests.keys()
    names = {file.name for folder in ("data", "outputs") for file in files.list_files(folder)}
    assert names == set(after.all_files)
    further = range(STEPS - 1, STEPS + 4)  # the first one is a replay
    assert feed(state_dir, further) == feed(tmp_path / "not compacted", further)


def test_compacting_again_changes_no_size(state_dir):
    first = compact(state_dir).after
    second = compact(state_dir)
    assert second.after == second.before
    assert (second.after.rows, second.after.values) == (first.rows, first.values)


def test_no_code_of_a_cell_is_used_again(state_dir):
    def lengths():
        newest = read_manifest(LocalFiles(state_dir), STEPS - 1)
        return {
            key: read_cell_manifest(data).dictionary_lengths
            for key, data in newest.cells.manifests.items()
        } | {"driver": newest.dictionary_lengths}

    before = lengths()
    compact(state_dir)
    assert lengths() == before


def test_an_error_in_a_later_cell_leaves_the_directory_as_it_was(state_dir):
    def content():
        return {
            path: path.read_bytes()
            for folder in ("data", "manifests", "outputs")
            for path in (state_dir / folder).iterdir()
        }

    before, calls = content(), []

    def read_three(files, version):
        calls.append(version)
        if len(calls) > 3:
            raise OSError("no room")
        return read_state(files, version)

    with (
        patch.object(offline_compaction, "read_state", read_three),
        pytest.raises(StateError, match="no room"),
    ):
        compact(state_dir)
    assert content() == before


def test_cells_of_other_stages_and_a_missing_division_are_named(state_dir):
    with pytest.raises(StateError, match=r"distributed over 3 cells.*divide="):
        compact_state(LocalFiles(state_dir))

    def divide_otherwise(circuit):
        driver, cells = divide_circuit(circuit)
        return driver, [*cells[1:], cells[0]]

    with pytest.raises(StateMismatchError, match="cell 0 of stage 0 belongs to another circuit"):
        compact_state(LocalFiles(state_dir), divide=divide_otherwise)
