"""Damaged files of a state directory on the real disk."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from streaming import StateDamagedError, ViewSink
from streaming.state.manifest import Manifest, manifest_name
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import LINK, ROWS, check, feed, sink_on, views, write_state
from tests.support.tables import table_of

LAST = 5  # the newest version in these tests


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


ALL_KINDS_OF_DAMAGE = pytest.mark.parametrize("damage", [truncate, flip_bit, empty, delete])


@pytest.fixture
def state_dir(tmp_path):
    write_state(tmp_path / "state", LAST + 1)
    return tmp_path / "state"


def read_manifest(state_dir: Path, number: int) -> Manifest:
    name = manifest_name(number)
    return Manifest.decode((state_dir / name).read_bytes(), name)


def files_only_in_newest(state_dir: Path) -> list[str]:
    """Return the data files that the newest version added."""
    older = read_manifest(state_dir, LAST - 1).files
    return [name for name in read_manifest(state_dir, LAST).data_files if name not in older]


def files_of_both_versions(state_dir: Path) -> list[str]:
    older = read_manifest(state_dir, LAST - 1).files
    return [name for name in read_manifest(state_dir, LAST).data_files if name in older]


@ALL_KINDS_OF_DAMAGE
def test_a_damaged_data_file_of_the_newest_version_is_recreated_when_spark_replays(
    state_dir, damage, caplog
):
    (name,) = files_only_in_newest(state_dir)
    damage(state_dir / name)
    sink = sink_on(state_dir)
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST, LAST + 1)
    assert name in caplog.text
    assert f"continuing from version {LAST - 1}" in caplog.text
    check(sink, LAST + 2)


def test_a_damaged_first_version_is_recreated_from_the_empty_state(tmp_path, caplog):
    write_state(tmp_path, 1)
    truncate(tmp_path / read_manifest(tmp_path, 0).data_files[0])
    sink = sink_on(tmp_path)
    with caplog.at_level(logging.WARNING):
        feed(sink, 0, 1)
    assert "continuing from the empty state, because micro-batch 0 is replayed" in caplog.text
    check(sink, 2)


@ALL_KINDS_OF_DAMAGE
def test_a_damaged_data_file_of_the_newest_version_is_named_when_spark_continues(state_dir, damage):
    (name,) = files_only_in_newest(state_dir)
    damage(state_dir / name)
    sink = sink_on(state_dir)
    for _ in range(2):
        with pytest.raises(StateDamagedError, match=name) as raised:
            feed(sink, LAST + 1)
        assert "restore the state directory from a copy, or delete it" in str(raised.value)
    with pytest.raises(StateDamagedError, match=name):
        sink.table("paths")


@ALL_KINDS_OF_DAMAGE
def test_a_damaged_data_file_of_every_version_is_named_also_when_spark_replays(state_dir, damage):
    name = files_of_both_versions(state_dir)[0]
    damage(state_dir / name)
    sink = sink_on(state_dir)
    for number in (LAST, LAST + 1):
        with pytest.raises(StateDamagedError, match=name):
            feed(sink, number)


@pytest.mark.parametrize("damage", [truncate, flip_bit, empty])
def test_a_damaged_manifest_is_recreated_when_spark_replays_and_otherwise_named_in_an_error(
    state_dir, damage, caplog
):
    name = manifest_name(LAST)
    damage(state_dir / name)
    sink = sink_on(state_dir)
    with pytest.raises(StateDamagedError, match=name):
        feed(sink, LAST + 1)
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST, LAST + 1)
    assert name in caplog.text
    check(sink, LAST + 2)


def test_an_old_manifest_may_be_damaged(state_dir):
    empty(state_dir / manifest_name(LAST - 1))
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    check(sink, LAST + 2)


@ALL_KINDS_OF_DAMAGE
def test_damaged_outputs_are_recreated_when_spark_replays_and_otherwise_ignored(state_dir, damage):
    (name,) = read_manifest(state_dir, LAST).outputs["paths"]
    damage(state_dir / name)
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    check(sink, LAST + 2)
    sink.close()
    (name,) = read_manifest(state_dir, LAST + 1).outputs["paths"]
    damage(state_dir / name)
    sink = sink_on(state_dir)
    feed(sink, LAST + 1, LAST + 2)
    check(sink, LAST + 3)


@ALL_KINDS_OF_DAMAGE
def test_a_damaged_identity_is_recreated_from_a_manifest_of_the_same_circuit(
    state_dir, damage, caplog
):
    path = state_dir / "state.json"
    intact = path.read_bytes()
    damage(path)
    damage(state_dir / manifest_name(LAST - 1))
    sink = sink_on(state_dir)
    with caplog.at_level(logging.WARNING):
        feed(sink, LAST, LAST + 1)
    assert "state.json" in caplog.text
    check(sink, LAST + 2)
    assert path.read_bytes() == intact


@ALL_KINDS_OF_DAMAGE
def test_a_damaged_identity_is_named_where_the_newest_manifest_is_of_another_circuit(
    state_dir, damage
):
    damage(state_dir / "state.json")
    other = compile_sql("SELECT src FROM link", {"link": LINK})
    with pytest.raises(StateDamagedError, match=r"state\.json"):
        sink_on(state_dir, other).table("paths")
    feed(sink_on(state_dir), LAST + 1)


@pytest.mark.parametrize("damage", [truncate, flip_bit, empty])
def test_a_damaged_identity_is_named_where_no_manifest_is_intact(state_dir, damage):
    for path in (state_dir / "state.json", *(state_dir / "manifests").iterdir()):
        damage(path)
    with pytest.raises(StateDamagedError, match=r"state\.json"):
        feed(sink_on(state_dir), LAST)


def test_a_state_directory_restored_from_a_copy_continues(state_dir, tmp_path):
    (name,) = files_only_in_newest(state_dir)
    intact = (state_dir / name).read_bytes()
    flip_bit(state_dir / name)
    sink = sink_on(state_dir)
    with pytest.raises(StateDamagedError, match=name):
        feed(sink, LAST + 1)
    (state_dir / name).write_bytes(intact)
    feed(sink, LAST + 1)
    check(sink, LAST + 2)


@ALL_KINDS_OF_DAMAGE
def test_damaged_metrics_and_locks_do_not_matter(state_dir, damage):
    damage(state_dir / "metrics.jsonl")
    damage(state_dir / "lock")
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    check(sink, LAST + 2)
    line = (state_dir / "metrics.jsonl").read_text().splitlines()[-1]
    assert line.endswith("}")
    assert '"batch_id":6' in line


def test_lines_of_metrics_after_a_truncated_line_are_complete(state_dir):
    truncate(state_dir / "metrics.jsonl")
    feed(sink_on(state_dir), LAST + 1)
    lines = (state_dir / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["batch_id"] == LAST + 1


def test_metrics_that_cannot_be_written_are_a_warning(state_dir, caplog):
    path, other = state_dir / "metrics.jsonl", state_dir / "elsewhere"
    path.rename(other)
    size = other.stat().st_size
    path.symlink_to(other)
    sink = sink_on(state_dir)
    feed(sink, LAST + 1)
    assert f"the metrics of micro-batch {LAST + 1} were not written" in caplog.text
    assert other.stat().st_size == size
    check(sink, LAST + 2)


def test_rejected_rows_are_logged_with_the_file_of_dead_letters(tmp_path, caplog):
    sink = ViewSink(views(), state_dir=tmp_path, bad_rows="dead_letter")
    rows = table_of(LINK, ROWS[0]).append_column("weight", pa.array(["1", "no"]))
    with caplog.at_level(logging.WARNING):
        sink(Frame(rows, "q"), 0)
    (letters,) = (tmp_path / "dead_letters").glob("*.parquet")
    assert (
        "micro-batch 0: rows that were not accepted: 1; they are stored with the reasons in "
        f"{letters}"
    ) in caplog.text


def test_damaged_dead_letters_do_not_stop_the_sink_and_are_an_error_for_their_reader(tmp_path):
    sink = ViewSink(views(), state_dir=tmp_path, bad_rows="dead_letter")
    rows = table_of(LINK, ROWS[0]).append_column("weight", pa.array(["1", "no"]))
    sink(Frame(rows, "q"), 0)
    (letters,) = (tmp_path / "dead_letters").glob("*.parquet")
    assert pq.read_table(letters).num_rows == 1
    data = letters.read_bytes()
    letters.write_bytes(data.replace(b"Ulm", b"Rom"))
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(letters, page_checksum_verification=True)
    sink.close()
    sink = ViewSink(views(), state_dir=tmp_path, bad_rows="dead_letter")
    sink(Frame(rows, "q"), 0)
    sink(Frame(rows, "q"), 1)
    assert sink.metrics[-1].dead_letters_total == 2
