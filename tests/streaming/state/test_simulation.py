"""Schedules of crashes, errors and damage, each a function of its seed
(`tests.support.simulation`).

A schedule that fails prints its seed, such as 17. To repeat it in all tests, run
`DBSP_WCOJ_SEED=17 pytest tests/streaming/state/test_simulation.py`; to print its calls, run
`python -m tests.support.simulation 17`.
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
from circuits.state import dictionary_sweep
from dbsp_wcoj.values import sweep
from streaming import BatchOrderError, ReplayError, StateDamagedError, StateLockedError
from streaming.state import compaction
from streaming.state import verified_files as verified_module
from streaming.state import version_summary as summary_module
from streaming.state.manifest import MANIFESTS, manifest_name
from streaming.state.versions import Versions
from streaming.state.writer import Writer
from tests.generators.simulated_streams import stream
from tests.support.simulated_files import Crash, SimulatedDisk, SimulatedFiles
from tests.support.simulation import Frame, Schedule, Target, play, seeds, sink_of, spec_of

# Numbers of schedules.
QUICK = 900
WITH_DAMAGE = 250
MANY = 20_000


@pytest.mark.parametrize("part", range(3))
def test_no_crash_or_error_loses_or_duplicates_a_row(part):
    for seed in list(seeds(QUICK))[part::3]:
        assert play(seed).outcome == "done"


def test_damage_is_repaired_or_named_and_never_gives_a_wrong_delta():
    outcomes = Counter(play(seed, damage=True).outcome for seed in seeds(WITH_DAMAGE))
    assert sum(outcomes.values()) == 1 or outcomes["done"] > outcomes["refused"] > 0


def test_no_crash_or_error_loses_or_duplicates_a_row_on_an_object_store():
    for seed in seeds(240):
        assert play(seed, objects=True).outcome == "done"


def test_damage_on_an_object_store_is_repaired_or_named():
    outcomes = Counter(play(seed, damage=True, objects=True).outcome for seed in seeds(120))
    assert sum(outcomes.values()) == 1 or outcomes["done"] > outcomes["refused"] > 0


@pytest.mark.parametrize("case", ["triangles", "cities", "reached", "recent"])
def test_no_crash_loses_or_duplicates_a_row_of_a_long_stream(case):
    played = 0
    for seed in seeds(120):
        if Schedule(seed, long=True).stream.name == case:
            assert play(seed, long=True).outcome == "done"
            played += 1
        if played == 8:
            break


@pytest.mark.parametrize("min_work", [1, 10, 300])
def test_no_crash_loses_or_duplicates_a_row_while_dictionaries_are_swept(min_work, monkeypatch):
    monkeypatch.setattr(dictionary_sweep, "MIN_NEW_VALUES", 0)
    monkeypatch.setattr(dictionary_sweep, "MAX_NEW_SHARE", 0)
    monkeypatch.setattr(dictionary_sweep, "MARKS_PER_NEW_VALUE", 10**9)
    monkeypatch.setattr(dictionary_sweep, "MIN_WORK", min_work)
    monkeypatch.setattr(sweep, "_MIN_REMOVED_SHARE", 10**9)
    monkeypatch.setattr(compaction, "MIN_REMOVED_ROWS", 0)
    for seed in seeds(30):
        assert play(seed).outcome == "done"
    for seed in seeds(6):
        assert play(seed, long=True).outcome == "done"


@pytest.mark.slow
def test_no_crash_or_error_loses_or_duplicates_a_row_in_many_schedules():
    for seed in range(QUICK, MANY):
        play(seed)


@pytest.mark.slow
def test_many_long_schedules_with_and_without_damage():
    for seed in range(MANY, MANY + 1500):
        play(seed, long=True)
        play(seed, damage=True)
        play(seed, damage=True, long=True)
        play(seed, long=True, objects=True)
        play(seed, damage=True, objects=True)


def test_a_seed_gives_the_same_schedule_in_another_process():
    seed = 19
    log = play(seed, long=True).disk.log
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.simulation", str(seed), "long"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert run.stdout.splitlines() == [*log, "done"]


# Mutation tests: the simulation detects each of these defects.


def is_detected(*, damage=False, schedules=300):
    """Return whether a schedule fails, with its seed in a note of the error."""
    for seed in range(schedules):
        try:
            play(seed, damage=damage)
        except Exception as error:
            assert f"seed={seed}" in error.__notes__[-1]
            return True
    return False


def skipped(call):
    """Return a method of a file system that does nothing, except that it may crash."""
    return lambda self, *args: self.point(call)


def test_missing_syncs_of_files_are_detected():
    with patch.object(SimulatedFiles, "sync", skipped("no sync")):
        assert is_detected()


def test_missing_syncs_of_folders_are_detected():
    with patch.object(SimulatedFiles, "sync_folder", skipped("no sync_folder")):
        assert is_detected()


@pytest.mark.parametrize("skipped_folder", ["", "data", "outputs", MANIFESTS])
def test_a_missing_sync_of_one_folder_is_detected(skipped_folder):
    original = SimulatedFiles.sync_folder

    def sync_others(self, folder):
        if folder != skipped_folder:
            original(self, folder)

    with patch.object(SimulatedFiles, "sync_folder", sync_others):
        assert is_detected()


def test_a_manifest_written_in_place_is_detected():
    original = SimulatedFiles.rename

    def copy(self, old, new):
        self.write(new, [bytes(self._disk.content(old))])
        original(self, old, f"{old}.done")

    with patch.object(SimulatedFiles, "rename", copy):
        assert is_detected()


def test_a_version_dropped_too_early_is_detected():
    original = Versions.add

    def add_and_remove(self, manifest):
        large = original(self, manifest)
        self._remove(sorted(set(manifest.files))[:1])
        return large

    with patch.object(Versions, "add", add_and_remove):
        assert is_detected()


def test_files_that_are_never_removed_are_detected():
    with patch.object(Versions, "remove_unreferenced", lambda self, check_owner: None):
        assert is_detected()


def test_a_lost_reference_to_a_segment_is_detected():
    original = Writer._add_dictionary

    def add_and_forget(self, name, offsets, data):
        original(self, name, offsets, data)
        if len(self._references[name, None]) > 2:
            self._references[name, None].pop(0)

    with patch.object(Writer, "_add_dictionary", add_and_forget):
        assert is_detected()


# A checkpoint and a state directory that do not belong together.


@pytest.fixture
def cities_stream():
    return stream("cities", 1)


class Query:
    """Sinks of one circuit on one disk, which a test feeds."""

    def __init__(self, stream):
        self.stream = stream
        self.disk = SimulatedDisk(1)
        self.target = Target(stream)

    def sink(self):
        files = self.target.files = self.disk.files()
        return sink_of(Circuit(spec_of(self.stream.name)), self.target, files, keep=2)

    def feed(self, sink, batch_id, *, query="query", table=None):
        frame = Frame(self.stream.tables[batch_id] if table is None else table, self.target.files)
        frame.sparkSession.sparkContext.getLocalProperty = lambda key: query
        sink(frame, batch_id)


def test_a_deleted_checkpoint_with_a_state_that_was_kept_is_refused(cities_stream):
    query = Query(cities_stream)
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


def test_a_new_checkpoint_whose_first_id_the_state_still_has_is_refused(cities_stream):
    query = Query(cities_stream)
    query.feed(query.sink(), 0)
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="is from query another"):
        query.feed(query.sink(), 0, query="another")


def test_a_deleted_state_with_a_checkpoint_that_was_kept_is_refused(cities_stream):
    query = Query(cities_stream)
    sink = query.sink()
    for batch_id in range(2):
        query.feed(sink, batch_id)
    query.disk = SimulatedDisk(2)
    with pytest.raises(BatchOrderError, match="first micro-batch has id 2, not 0"):
        query.feed(query.sink(), 2)


def test_a_checkpoint_that_is_ahead_of_the_state_is_refused(cities_stream):
    query = Query(cities_stream)
    query.feed(query.sink(), 0)
    query.disk.kill()
    with pytest.raises(BatchOrderError, match="micro-batch 2 follows 0"):
        query.feed(query.sink(), 2)


def test_a_second_sink_on_a_directory_is_refused_until_the_first_is_closed(cities_stream):
    query = Query(cities_stream)
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


def test_a_replayed_micro_batch_with_different_rows_is_refused(cities_stream):
    query = Query(cities_stream)
    sink = query.sink()
    query.feed(sink, 0)
    query.feed(sink, 1)
    table = cities_stream.tables[1]
    for is_restarted in (False, True):
        if is_restarted:
            query.disk.kill()
            sink = query.sink()
        with pytest.raises(ReplayError, match="micro-batch 1 was replayed with different rows"):
            query.feed(sink, 1, table=table.slice(0, table.num_rows - 1))
        query.feed(sink, 1)


def test_a_killed_process_changes_no_file(cities_stream):
    query = Query(cities_stream)
    sink = query.sink()
    query.feed(sink, 0)
    query.disk.kill()
    before = {name: query.disk.content(name) for name in query.disk.names()}
    with pytest.raises(Crash):
        sink.close()
    assert {name: query.disk.content(name) for name in query.disk.names()} == before


def test_missing_checksums_are_detected():
    def read_unverified(files, name, checksum):
        return files.read(name)

    with (
        patch.object(summary_module, "read_verified", read_unverified),
        patch.object(verified_module, "read_verified", read_unverified),
    ):
        assert is_detected(damage=True)


def test_a_damaged_identity_is_named_if_there_is_no_intact_manifest(cities_stream):
    query = Query(cities_stream)
    query.feed(query.sink(), 0)
    query.disk.kill()
    query.disk.replace("state.json", b"{}")
    query.disk.replace(manifest_name(0), b"{}")
    with pytest.raises(StateDamagedError, match=r"state\.json"):
        query.feed(query.sink(), 1)
