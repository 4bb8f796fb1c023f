"""``python -m streaming rescale``: the state goes on in another form, and nobody can tell."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from circuits import Circuit, compile_sql
from streaming import ReplayError, StateLockedError, ViewSink
from streaming.cli.app import app
from streaming.distributed.rescaling import rescale_state
from streaming.distributed.stage_cells import StageCells
from streaming.state.manifest import Manifest, manifest_name
from streaming.state.open_files import open_files
from tests.streaming.distributed.test_engine import (
    SCHEMAS,
    VIEWS,
    Frame,
    batch_of,
    batches,
    definition,
    distributed,
    outputs,
)


def rescale(place: Path, *arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["rescale", str(place), *arguments])
    return found.exit_code, (found.stdout + found.stderr).strip()


def sink_of(place: Path, cells: int | None) -> ViewSink:
    if cells is None:
        return ViewSink(Circuit(definition()), state_dir=place)
    return distributed(place, cells=cells)


@pytest.mark.spark
def test_a_state_moves_to_cells_to_other_cells_and_back_and_gives_the_same_deltas(spark, tmp_path):
    steady = ViewSink(Circuit(definition()))
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
            assert outputs(sink) == outputs(steady)
            with pytest.raises(ReplayError):
                other = batch_of({"relation": "p", "id": 1, "name": "other", "at": 99})
                sink(Frame(spark, other), number - 1)
        steady(Frame(spark, table), number)
        sink(Frame(spark, table), number)
        assert outputs(sink) == outputs(steady)
    sink.close()
    status, message = rescale(tmp_path, "--embedded")
    assert (status, message) == (0, f"version {number}: embedded already; nothing was changed")


def started(place: Path) -> None:
    """An embedded state of two versions."""
    sink = sink_of(place, None)
    for number, table in enumerate(batches(2, "cli")):
        sink(Frame(None, table), number)
    sink.close()


def test_what_cannot_be_moved_is_one_line_and_the_directory_is_as_it_was(tmp_path, monkeypatch):
    assert rescale(tmp_path / "no", "--cells", "4")[1].endswith("query in the wanted mode")
    assert not (tmp_path / "no").exists()
    place = tmp_path / "state"
    started(place)
    before = {path: path.read_bytes() for path in place.glob("*/*")}
    for options, words in (
        ((), "give either --cells with a number, or --embedded"),
        (("--cells", "2", "--embedded"), "give either --cells with a number, or --embedded"),
    ):
        status, message = rescale(place, *options)
        assert status == 2 and words in message and "\n" not in message
    busy = sink_of(place, None)
    busy(Frame(None, batches(2, "cli")[1]), 1)
    status, message = rescale(place, "--cells", "4")
    assert status == 2 and "written to by another sink" in message
    busy.close()

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(StageCells, "_check", full)
        status, message = rescale(place, "--cells", "4")
    assert status == 2 and "no room; it was not changed" in message
    assert {path: path.read_bytes() for path in place.glob("*/*")} == before


def test_a_directory_of_an_earlier_version_says_what_to_do_and_its_pickle_is_not_read(tmp_path):
    started(tmp_path)
    (tmp_path / "views.json").unlink()
    (tmp_path / "views.pickle").write_bytes(pickle.dumps(Evil()))
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "views.json is missing" in message and "start the query once" in message
    assert "views.pickle, of an earlier version, is not read" in message and "never" not in message
    (tmp_path / "views.json").write_bytes(pickle.dumps(Evil()))
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "does not have the checksum" in message and "never" not in message
    sink = sink_of(tmp_path, None)  # which writes the file again
    sink(Frame(None, batches(2, "cli")[1]), 1)
    sink.close()
    assert rescale(tmp_path, "--cells", "4")[0] == 0


class Evil:
    def __reduce__(self) -> Any:
        return print, ("never",)


def test_views_of_plans_are_rescaled_with_their_definition_and_not_by_the_command(tmp_path):
    circuit = Circuit(definition())
    plain = Circuit(replace(circuit.spec, source=None))
    sink = ViewSink(plain, state_dir=tmp_path)
    for number, table in enumerate(batches(2, "cli")):
        sink(Frame(None, table), number)
    sink.close()
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "the views were built from plans" in message
    moved = rescale_state(open_files(tmp_path), cells=4, spec=plain.spec)
    assert (moved.before, moved.after) == (None, 4)


def test_a_running_sink_is_fenced_by_a_rescale_that_it_did_not_keep_out(tmp_path):
    started(tmp_path)
    running = sink_of(tmp_path, None)
    running(Frame(None, batches(2, "cli")[1]), 1)
    (tmp_path / "lock").unlink()
    assert rescale(tmp_path, "--cells", "4")[0] == 0
    with pytest.raises(StateLockedError, match="taken over by another sink"):
        running(Frame(None, batches(3, "cli")[2]), 2)


def test_views_that_are_kept_whole_cannot_be_distributed(tmp_path):
    circuit = compile_sql(VIEWS, SCHEMAS, materialize=["names"])
    sink = ViewSink(circuit, state_dir=tmp_path)
    sink(Frame(None, batches(1, "whole")[0]), 0)
    sink.close()
    status, message = rescale(tmp_path, "--cells", "4")
    assert status == 2 and "names: materialized views are not available" in message


def test_the_same_number_of_cells_is_chosen_anew_by_what_is_there(tmp_path):
    started(tmp_path)
    assert rescale(tmp_path, "--cells", "8")[0] == 0
    name = tmp_path / manifest_name(1)
    first = Manifest.decode(name.read_bytes(), name.name)
    assert first.cells is not None and first.cells.count == 8
    status, message = rescale(tmp_path, "--cells", "8")
    assert (status, message) == (0, "version 1: 8 cells already; nothing was changed")
    assert Manifest.decode(name.read_bytes(), name.name) == first
