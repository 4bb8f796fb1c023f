"""``python -m streaming rescale`` changes the form of the state, and nothing that is published."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from circuits import Circuit, compile_sql
from streaming import ReplayError, StateLockedError, ViewSink
from streaming.cli.app import app
from streaming.distributed import stage_cells
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.rescaling import rescale_state
from streaming.state.manifest import Manifest, manifest_name
from streaming.state.open_files import open_files
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_engine import (
    Frame,
    batch_of,
    batches,
    circuit_spec,
    distributed,
    outputs,
)


def rescale(state_dir: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["rescale", str(state_dir), *arguments])
    return result.exit_code, (result.stdout + result.stderr).strip()


def sink_of(state_dir: Path, cells: int | None) -> ViewSink:
    if cells is None:
        return ViewSink(Circuit(circuit_spec()), state_dir=state_dir)
    return distributed(state_dir, cells=cells)


@pytest.mark.spark
def test_a_state_moves_to_cells_to_other_cells_and_back_and_gives_the_same_deltas(spark, tmp_path):
    never_moved = ViewSink(Circuit(circuit_spec()))
    forms: list[int | None] = [None, 4, 3, None]
    sink, number = sink_of(tmp_path, None), 0
    for number, table in enumerate(batches(8, "rescale")):
        if number % 2 == 0 and number:
            sink.close()
            form = forms[number // 2]
            option = ["--embedded"] if form is None else ["--cells", str(form)]
            status, message = rescale(tmp_path, *option)
            assert (status, message.split(":")[0]) == (0, f"version {number - 1}"), message
            sink = sink_of(tmp_path, form)
            replayed = batches(8, "rescale")[number - 1]
            sink(Frame(spark, replayed), number - 1)  # as after a crash of the driver
            assert outputs(sink) == outputs(never_moved)
            with pytest.raises(ReplayError):
                other = batch_of({"relation": "p", "id": 1, "name": "other", "at": 99})
                sink(Frame(spark, other), number - 1)
        never_moved(Frame(spark, table), number)
        sink(Frame(spark, table), number)
        assert outputs(sink) == outputs(never_moved)
    sink.close()
    status, message = rescale(tmp_path, "--embedded")
    assert (status, message) == (0, f"version {number}: embedded already; nothing was changed")


def write_state(state_dir: Path) -> None:
    """Write an embedded state of two versions."""
    sink = sink_of(state_dir, None)
    for number, table in enumerate(batches(2, "cli")):
        sink(Frame(None, table), number)
    sink.close()


def test_a_failed_rescale_is_one_line_and_does_not_change_the_directory(tmp_path, monkeypatch):
    assert rescale(tmp_path / "no", "--cells", "4")[1].endswith("start the query first")
    assert not (tmp_path / "no").exists()
    state_dir = tmp_path / "state"
    write_state(state_dir)
    before = {path: path.read_bytes() for path in state_dir.glob("*/*")}
    for options, words in (
        ((), "give either --cells with a number, or --embedded"),
        (("--cells", "2", "--embedded"), "give either --cells with a number, or --embedded"),
    ):
        status, message = rescale(state_dir, *options)
        assert status == 2 and words in message and "\n" not in message
    busy = sink_of(state_dir, None)
    busy(Frame(None, batches(2, "cli")[1]), 1)
    status, message = rescale(state_dir, "--cells", "4")
    assert status == 2 and "written to by another sink" in message
    busy.close()

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(stage_cells, "check_written", full)
        status, message = rescale(state_dir, "--cells", "4")
    assert status == 2 and "no room; it was not changed" in message
    assert {path: path.read_bytes() for path in state_dir.glob("*/*")} == before


def test_a_directory_of_an_earlier_version_says_what_to_do_and_its_pickle_is_not_read(tmp_path):
    write_state(tmp_path)
    (tmp_path / "views.json").unlink()
    (tmp_path / "views.pickle").write_bytes(pickle.dumps(PrintsWhenUnpickled()))
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "views.json is missing" in message and "start the query once" in message
    assert "views.pickle, of an earlier version, is not read" in message and "never" not in message
    (tmp_path / "views.json").write_bytes(pickle.dumps(PrintsWhenUnpickled()))
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "does not have the checksum" in message and "never" not in message
    sink = sink_of(tmp_path, None)  # which writes the file again
    sink(Frame(None, batches(2, "cli")[1]), 1)
    sink.close()
    assert rescale(tmp_path, "--cells", "4")[0] == 0


class PrintsWhenUnpickled:
    def __reduce__(self) -> Any:
        return print, ("never",)


def test_views_of_plans_are_rescaled_with_their_definition_and_not_by_the_command(tmp_path):
    circuit = Circuit(circuit_spec())
    plain = Circuit(replace(circuit.spec, source=None))
    sink = ViewSink(plain, state_dir=tmp_path)
    for number, table in enumerate(batches(2, "cli")):
        sink(Frame(None, table), number)
    sink.close()
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "the views were built from plans" in message
    moved = rescale_state(open_files(tmp_path), cells=4, spec=plain.spec)
    assert (moved.before, moved.after) == (None, 4)


def test_a_running_sink_without_its_lock_fails_after_a_rescale(tmp_path):
    write_state(tmp_path)
    running = sink_of(tmp_path, None)
    running(Frame(None, batches(2, "cli")[1]), 1)
    (tmp_path / "lock").unlink()
    assert rescale(tmp_path, "--cells", "4")[0] == 0
    with pytest.raises(StateLockedError, match="taken over by another sink"):
        running(Frame(None, batches(3, "cli")[2]), 2)


def test_rescaling_to_the_same_number_of_cells_chooses_the_grid_again(tmp_path):
    write_state(tmp_path)
    assert rescale(tmp_path, "--cells", "8")[0] == 0
    name = tmp_path / manifest_name(1)
    first = Manifest.decode(name.read_bytes(), name.name)
    assert first.cells is not None and first.cells.count == 8
    status, message = rescale(tmp_path, "--cells", "8")
    assert (status, message) == (0, "version 1: 8 cells already; nothing was changed")
    assert Manifest.decode(name.read_bytes(), name.name) == first


CYCLES = "SELECT r.a, s.b, t.c FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c AND r.a = t.a"
CYCLE_SCHEMAS = {
    "r": pa.schema([("a", pa.int64()), ("b", pa.int64())]),
    "s": pa.schema([("b", pa.int64()), ("c", pa.int64())]),
    "t": pa.schema([("c", pa.int64()), ("a", pa.int64())]),
}


def shares_after_rescale(state_dir: Path) -> list[int]:
    cells = read_newest_cells(open_files(state_dir))
    assert cells is not None
    return [share for _, share in cells.layout[0]["parts"]]


def test_relations_that_are_empty_now_are_planned_as_if_they_grew(tmp_path):
    circuit = compile_sql(CYCLES, CYCLE_SCHEMAS)
    sink = ViewSink(circuit, state_dir=tmp_path)
    frame: Any = Frame(
        None,
        pa.table({"relation": ["r"] * 2000, "a": range(2000), "b": range(2000)}).append_column(
            "c", pa.nulls(2000, pa.int64())
        ),
    )
    sink(frame, 0)
    sink.close()
    rescale_state(open_files(tmp_path), cells=8)
    assert shares_after_rescale(tmp_path) == [2, 2, 2]  # not of the size of r alone
    rescale_state(open_files(tmp_path), cells=27)
    assert shares_after_rescale(tmp_path) == [3, 3, 3]


def test_a_join_that_stays_in_place_is_not_moved(tmp_path):
    circuit = compile_sql(CYCLES, CYCLE_SCHEMAS)
    cluster = LocalCluster()
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=8)
    for number, counts in enumerate(((3000, 3000, 3000), (900, 1000, 1100))):
        tables = []
        for (name, schema), count in zip(CYCLE_SCHEMAS.items(), counts, strict=True):
            values = range(number * 10_000, number * 10_000 + count)
            columns = dict.fromkeys(schema.names, values)
            tables.append(pa.table({"relation": [name] * count} | columns))
        sink(cluster.frame(pa.concat_tables(tables, promote_options="default")), number)
    sink.close()
    before = read_newest_cells(open_files(tmp_path))
    result = rescale_state(open_files(tmp_path), cells=8)
    assert (result.moved, result.bytes_written) == (0, 0)
    assert read_newest_cells(open_files(tmp_path)) == before
