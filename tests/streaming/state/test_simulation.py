"""Schedules of crashes, errors and damage, each a function of its seed
(`tests.support.simulation`).

A schedule that fails prints its seed. `DBSP_WCOJ_SEED=17 pytest
tests/streaming/state/test_simulation.py` runs that one in every kind, `python -m
tests.support.simulation 17` prints its calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from circuits.circuit import Circuit
from streaming import BatchOrderError, ReplayError, StateDamagedError, StateLockedError
from streaming.state import store as store_module
from streaming.state import verified_files as verified_module
from streaming.state.manifest import MANIFESTS, manifest_name
from streaming.state.versions import Versions
from streaming.state.writer import Writer
from tests.generators.simulated_streams import stream
from tests.support.simulated_files import Crash, SimulatedDisk, SimulatedFiles
from tests.support.simulation import Frame, Schedule, Target, play, seeds, sink_of, spec_of

QUICK = 1500
DAMAGED = 400
MANY = 20_000


@pytest.mark.parametrize("part", range(3))
def test_no_crash_and_no_error_loses_or_doubles_a_row(part):
    for seed in list(seeds(QUICK))[part::3]:
        assert play(seed).outcome == "done"


def test_damage_is_recovered_from_or_named_and_never_gives_a_wrong_delta():
    outcomes = Counter(play(seed, damage=True).outcome for seed in seeds(DAMAGED))
    assert sum(outcomes.values()) == 1 or outcomes["done"] > outcomes["refused"] > 0


@pytest.mark.parametrize("case", ["triangles", "cities", "reached", "recent"])
def test_no_crash_loses_or_doubles_a_row_of_a_long_stream(case):
    played = 0
    for seed in seeds(200):
        if Schedule(seed, long=True).stream.name == case:
            assert play(seed, long=True).outcome == "done"
            played += 1
        if played == 8:
            break


@pytest.mark.slow
def test_no_crash_and_no_error_loses_or_doubles_a_row_in_many_schedules():
    for seed in range(QUICK, MANY):
        play(seed)


@pytest.mark.slow
def test_many_long_schedules_and_many_damages():
    for seed in range(MANY, MANY + 1500):
        play(seed, long=True)
        play(seed, damage=True)
        play(seed, damage=True, long=True)


def test_a_seed_plays_the_same_schedule_in_another_process():
    seed = 19
    mine = play(seed, long=True).disk.log
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.simulation", str(seed), "long"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert run.stdout.splitlines() == [*mine, "done"]


# What the simulation is worth: it finds each of these.


def fails(*, damage=False, number=300):
    for seed in range(number):
        try:
            play(seed, damage=damage)
        except Exception as error:
            assert f"seed={seed}" in error.__notes__[-1]
            return True
    return False


def done_without(call):
    """A call of a file system that does nothing, but takes its time."""
    return lambda self, *given: self.point(call)


def test_bytes_that_are_not_synced_are_found():
    with patch.object(SimulatedFiles, "sync", done_without("no sync")):
        assert fails()


def test_names_that_are_not_synced_are_found():
    with patch.object(SimulatedFiles, "sync_folder", done_without("no sync_folder")):
        assert fails()


@pytest.mark.parametrize("left_out", ["", "data", "outputs", MANIFESTS])
def test_a_folder_that_is_not_synced_is_found(left_out):
    real = SimulatedFiles.sync_folder

    def partly(self, folder):
        if folder != left_out:
            real(self, folder)

    with patch.object(SimulatedFiles, "sync_folder", partly):
        assert fails()


def test_a_manifest_that_is_written_in_place_is_found():
    real = SimulatedFiles.rename

    def copied(self, old, new):
        self.write(new, [bytes(self._disk.content(old))])
        real(self, old, f"{old}.done")

    with patch.object(SimulatedFiles, "rename", copied):
        assert fails()


def test_versions_that_are_dropped_too_early_are_found():
    real = Versions.add

    def hasty(self, manifest):
        real(self, manifest)
        self._remove(sorted(set(manifest.files))[:1])

    with patch.object(Versions, "add", hasty):
        assert fails()


def test_files_that_are_never_removed_are_found():
    with patch.object(Versions, "_remove_unreferenced", lambda self: None):
        assert fails()


def test_a_piece_that_is_forgotten_is_found():
    real = Writer._add_dictionary

    def forgetful(self, name, offsets, data):
        real(self, name, offsets, data)
        if len(self._references[name, None]) > 2:
            self._references[name, None].pop(0)

    with patch.object(Writer, "_add_dictionary", forgetful):
        assert fails()


# What belongs together: checkpoint and state directory.


@pytest.fixture
def given():
    return stream("cities", 1)


class Query:
    """Sinks of one circuit on one disk, fed by hand."""

    def __init__(self, given):
        self.given = given
        self.disk = SimulatedDisk(1)
        self.target = Target(given)

    def sink(self):
        files = self.target.files = self.disk.files()
        return sink_of(Circuit(spec_of(self.given.name)), self.target, files, keep=2)

    def feed(self, sink, batch_id, *, query="query", table=None):
        frame = Frame(self.given.tables[batch_id] if table is None else table, self.target.files)
        frame.sparkSession.sparkContext.getLocalProperty = lambda key: query
        sink(frame, batch_id)


def test_a_deleted_checkpoint_with_a_state_that_was_kept_is_refused(given):
    query = Query(given)
    sink = query.sink()
    for batch_id in range(3):
        query.feed(sink, batch_id)
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="micro-batch 0 is older than the oldest version"):
        query.feed(query.sink(), 0, query="another")
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="is from query another"):
        query.feed(query.sink(), 3, query="another")
    query.disk.kill()
    query.feed(query.sink(), 3)


def test_a_new_checkpoint_whose_first_id_the_state_still_has_is_refused(given):
    query = Query(given)
    query.feed(query.sink(), 0)
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="is from query another"):
        query.feed(query.sink(), 0, query="another")


def test_a_deleted_state_with_a_checkpoint_that_was_kept_is_refused(given):
    query = Query(given)
    sink = query.sink()
    for batch_id in range(2):
        query.feed(sink, batch_id)
    query.disk = SimulatedDisk(2)
    with pytest.raises(BatchOrderError, match="first micro-batch has id 2, not 0"):
        query.feed(query.sink(), 2)


def test_a_checkpoint_that_is_ahead_of_the_state_is_refused(given):
    query = Query(given)
    query.feed(query.sink(), 0)
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="micro-batch 2 follows 0"):
        query.feed(query.sink(), 2)


def test_a_second_sink_on_a_directory_is_refused_until_the_first_lets_go(given):
    query = Query(given)
    first = query.sink()
    query.feed(first, 0)
    second = query.sink()
    with pytest.raises(StateLockedError, match="in process 1"):
        query.feed(second, 1)
    first.close()
    query.feed(second, 1)
    with pytest.raises(StateLockedError, match="in process 2"):
        query.feed(first, 2)
    second.close()
    query.feed(first, 2)


def test_a_replayed_micro_batch_with_different_rows_is_refused(given):
    query = Query(given)
    sink = query.sink()
    query.feed(sink, 0)
    query.feed(sink, 1)
    for one in (sink, None):
        if one is None:
            query.disk.kill()
            one = query.sink()
        other = given.tables[1].slice(0, given.tables[1].num_rows - 1)
        with pytest.raises(ReplayError, match="micro-batch 1 was replayed with different rows"):
            query.feed(one, 1, table=other)
        query.feed(one, 1)


def test_a_dead_process_does_nothing_more(given):
    query = Query(given)
    sink = query.sink()
    query.feed(sink, 0)
    query.disk.kill()
    before = {name: query.disk.content(name) for name in query.disk.names()}
    with pytest.raises(Crash):
        sink.close()
    assert {name: query.disk.content(name) for name in query.disk.names()} == before


def test_without_checksums_damage_would_be_found_by_wrong_deltas_or_strange_errors(given):
    def trusting(files, name, mark):
        return files.read(name)

    with (
        patch.object(store_module, "read_verified", trusting),
        patch.object(verified_module, "read_verified", trusting),
    ):
        assert fails(damage=True)


def test_a_damaged_identity_is_named_if_there_is_no_manifest_to_tell_it(given):
    query = Query(given)
    query.feed(query.sink(), 0)
    query.disk.kill()
    query.disk.replace("state.json", b"{}")
    query.disk.replace(manifest_name(0), b"{}")
    with pytest.raises(StateDamagedError, match=r"state\.json"):
        query.feed(query.sink(), 1)
