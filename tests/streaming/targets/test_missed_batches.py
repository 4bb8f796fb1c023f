"""Targets that lack micro-batches, or that hold rows of another view or mode, refuse new ones."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from streaming.errors import MissedBatchesError, TargetError
from streaming.targets.delta import DeltaTarget
from streaming.targets.memory import MemoryTarget
from streaming.targets.parquet import ParquetTarget
from streaming.targets.sql import SqlTarget
from streaming.targets.target import NO_BATCH, ViewDelta
from tests.generators.view_histories import counted, table_of

ONE, TWO, THREE = (table_of([((n, "a", 0.5), 1)]) for n in (1, 2, 3))
NOTHING = ONE.slice(0, 0)


class Place:
    """A place that a target writes to, and that can be copied, restored and removed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder / kind
        self.copy = folder / "copy"

    def target(self, name: str = "{view}"):
        if self.kind == "parquet":
            return ParquetTarget(f"{self.folder}/{name}")
        if self.kind == "delta":
            pytest.importorskip("deltalake")
            return DeltaTarget(f"{self.folder}/{name}")
        self.folder.mkdir(exist_ok=True)
        return SqlTarget(lambda: sqlite3.connect(self.folder / "t.db"), name)

    def rows(self, name: str = "v") -> Counter:
        if self.kind == "parquet":
            table = pq.read_table(self.folder / name)
        elif self.kind == "delta":
            import deltalake

            table = deltalake.DeltaTable(str(self.folder / name)).to_pyarrow_table()
        else:
            with contextlib.closing(sqlite3.connect(self.folder / "t.db")) as connection:
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
                weight = "weight" if "weight" in names else "1"
                rows = connection.execute(f"SELECT k, s, x, {weight} FROM {name}").fetchall()
            return Counter(dict((tuple(row[:3]), row[3]) for row in rows))
        names = [name for name in table.column_names if name != "batch_id"]
        return counted(table.select(names), "weight" if "weight" in names else None)

    def save(self) -> None:
        shutil.copytree(self.folder, self.copy)

    def restore(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)

    def drop(self) -> None:
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.folder / "t.db")) as connection:
                connection.execute("DROP TABLE v")
        else:
            shutil.rmtree(self.folder)


@pytest.fixture(params=["parquet", "delta", "sqlite"])
def place(request, tmp_path):
    return Place(request.param, tmp_path)


def change(batch_id, table, previous, mode="delta", view="v"):
    keys = ("k",) if mode == "upsert" else ()
    return ViewDelta(view, batch_id, table, mode, keys, "s", previous=previous)


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_a_target_that_was_restored_from_an_older_copy_is_refused(place, mode):
    place.target().write(change(0, ONE, NO_BATCH, mode))
    place.save()
    place.target().write(change(1, TWO, 0, mode))
    place.target().write(change(2, NOTHING, 1, mode))
    place.restore()

    with pytest.raises(
        MissedBatchesError, match=r"micro-batch 3: .* holds .* up to 0, and must hold .* up to 1"
    ):
        place.target().write(change(3, THREE, 1, mode))
    assert place.rows() == Counter({(1, "a", 0.5): 1})
    # Spark replays micro-batch 1, for instance from an older copy of the checkpoint as well.
    for delta in (change(1, TWO, 0, mode), change(3, THREE, 1, mode)):
        place.target().write(delta)
    assert place.rows() == Counter({(n, "a", 0.5): 1 for n in (1, 2, 3)})


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_a_target_without_the_earlier_micro_batches_is_refused(place, mode):
    with pytest.raises(MissedBatchesError, match=r"holds no micro-batch, and must hold .* up to 1"):
        place.target().write(change(3, THREE, 1, mode))
    place.target().write(change(3, THREE, NO_BATCH, mode))  # the whole view
    assert place.rows() == Counter({(3, "a", 0.5): 1})


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_a_dropped_target_holds_nothing_and_accepts_the_whole_view(place, mode):
    empty = change(0, NOTHING, None, mode)
    assert place.target().last_batch(empty) == NO_BATCH
    place.target().write(change(0, NOTHING, NO_BATCH, mode))
    assert place.target().last_batch(empty) == NO_BATCH
    place.target().write(change(1, ONE, NO_BATCH, mode))
    assert place.target().last_batch(empty) == 1
    if place.kind != "parquet":  # which refuses files of another state directory
        assert place.target().last_batch(replace(empty, state_id="other")) == NO_BATCH
    place.drop()
    assert place.target().last_batch(empty) == NO_BATCH
    with pytest.raises(MissedBatchesError, match="drop the table or the files of this view"):
        place.target().write(change(2, TWO, 1, mode))
    place.target().write(change(3, THREE, NO_BATCH, mode))
    assert place.rows() == Counter({(3, "a", 0.5): 1})
    assert place.target().last_batch(empty) == 3


@pytest.mark.parametrize("mode", ["delta", "append", "upsert"])
@pytest.mark.parametrize("is_new", [False, True])
def test_after_a_whole_view_that_equals_what_the_target_holds_it_goes_on(place, mode, is_new):
    target = place.target()
    target.write(change(0, ONE, NO_BATCH, mode))
    target = place.target() if is_new else target
    target.write(change(4, ONE, NO_BATCH, mode))
    target = place.target() if is_new else target
    target.write(change(5, TWO, 4, mode))
    assert place.target().last_batch(change(6, NOTHING, 5, mode)) == 5
    if (place.kind, mode) != ("parquet", "upsert"):  # whose files repeat the row
        assert place.rows() == Counter({(1, "a", 0.5): 1, (2, "a", 0.5): 1})


@pytest.mark.parametrize("mode", ["delta", "upsert"])
@pytest.mark.parametrize("table", [TWO, NOTHING], ids=["rows", "no rows"])
def test_a_whole_view_replaces_the_rows_that_a_target_holds(place, mode, table):
    place.target().write(change(0, ONE, NO_BATCH, mode))
    whole = change(4, table, NO_BATCH, mode)
    for _ in range(2):
        place.target().write(whole)
        assert place.rows() == Counter({row: 1 for row in counted(table)})
    place.target().write(change(5, THREE, 4 if table.num_rows else NO_BATCH, mode))
    assert place.rows()[3, "a", 0.5] == 1


def test_a_complete_view_needs_no_earlier_micro_batches(place):
    place.target().write(change(3, ONE, 1, "complete"))
    place.target().write(change(9, TWO, 7, "complete"))
    assert place.rows() == Counter({(2, "a", 0.5): 1})


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_two_views_cannot_write_to_one_place(place, mode):
    place.target("v").write(change(0, ONE, NO_BATCH, mode))
    for delta in (change(0, TWO, NO_BATCH, mode, "w"), change(1, TWO, NO_BATCH, mode, "w")):
        with pytest.raises(TargetError, match=r"\{view\} in the"):
            place.target("v").write(delta)
    place.target("v").write(change(1, TWO, 0, mode))
    assert place.rows()[2, "a", 0.5] == 1


def test_an_emptied_table_of_one_view_does_not_accept_another(tmp_path):
    place = Place("sqlite", tmp_path)
    place.target("v").write(change(0, ONE, NO_BATCH, "upsert"))
    deletion = table_of([((1, "a", 0.5), -1)])
    place.target("v").write(change(1, deletion, 0, "upsert"))

    with pytest.raises(TargetError, match=r"receives view 'v'.*drop the table"):
        place.target("v").write(change(2, TWO, NO_BATCH, "upsert", "w"))
    place.drop()
    place.target("v").write(change(2, TWO, NO_BATCH, "upsert", "w"))
    assert place.rows() == Counter({(2, "a", 0.5): 1})


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_names_that_differ_in_case_are_one_table(tmp_path, kind, mode):
    def target(name):
        connect = sqlite3.connect if kind == "sqlite" else duckdb.connect
        return SqlTarget(lambda: connect(str(tmp_path / "t.db")), name)

    target("Cities").write(change(0, ONE, NO_BATCH, mode))
    with pytest.raises(TargetError, match=r"\{view\} in the"):
        target("cities").write(change(1, TWO, NO_BATCH, mode, "w"))
    for batch in (1, 1, 2):
        target("CITIES").write(change(batch, TWO, batch - 1, mode))
    assert target("cities").last_batch(change(3, TWO, 2, mode)) == 2


MODES = [("delta", ()), ("upsert", ("k",)), ("upsert", ("s",)), ("complete", ())]


@pytest.mark.parametrize("old", MODES, ids=str)
@pytest.mark.parametrize("new", MODES, ids=str)
@pytest.mark.parametrize("folder_kind", ["parquet", "memory"])
def test_another_mode_or_other_keys_are_refused(tmp_path, old, new, folder_kind):
    memory = MemoryTarget()

    def target():
        return memory if folder_kind == "memory" else ParquetTarget(tmp_path)

    target().write(ViewDelta("v", 0, ONE, *old, "s", previous=NO_BATCH))
    second = ViewDelta("v", 1, TWO, *new, "s", previous=0)
    if old == new:
        target().write(second)
        return
    with pytest.raises(TargetError, match=r"name another directory|new MemoryTarget|empty target"):
        target().write(second)
    if folder_kind == "parquet":
        for check in (ParquetTarget(tmp_path).check, ParquetTarget(tmp_path).last_batch):
            with pytest.raises(TargetError):
                check(replace(second, table=NOTHING))


def test_a_parquet_directory_of_an_earlier_release_has_any_mode(tmp_path):
    ParquetTarget(tmp_path).write(ViewDelta("v", 0, ONE))
    (path,) = tmp_path.iterdir()
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)

    ParquetTarget(tmp_path).write(ViewDelta("v", 1, TWO, "upsert", ("k",)))


def test_memory_that_begins_with_a_later_micro_batch_has_deltas_but_no_view():
    target = MemoryTarget()
    target.write(change(5, ONE, 3))
    target.write(change(6, TWO, 5))
    assert [delta.batch_id for delta in target.deltas("v")] == [5, 6]
    with pytest.raises(MissedBatchesError, match=r"only the deltas since micro-batch 5.*table"):
        target.table("v")
    with pytest.raises(MissedBatchesError, match="up to 6, and must hold those up to 8"):
        target.write(change(9, TWO, 8))
    target.write(change(9, THREE, NO_BATCH))
    assert counted(target.table("v")) == Counter({(3, "a", 0.5): 1})


@pytest.mark.parametrize("damage", [b"", b"PAR1 half a file"])
def test_a_damaged_parquet_file_is_an_error_that_names_it(tmp_path, damage):
    ParquetTarget(tmp_path).write(change(0, ONE, NO_BATCH, "complete"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)

    with pytest.raises(TargetError, match=r"v-complete.parquet is not a Parquet file.*remove"):
        ParquetTarget(tmp_path).write(change(1, TWO, 0, "complete"))
    path.unlink()
    ParquetTarget(tmp_path).write(change(1, TWO, 0, "complete"))


def test_a_view_name_may_contain_a_batch_id(tmp_path):
    view = f"a-{0:020}-b"
    for batch_id in (0, 1):
        delta = change(batch_id, ONE, NO_BATCH if batch_id == 0 else 0, view=view)
        ParquetTarget(tmp_path).check(replace(delta, table=NOTHING))
        ParquetTarget(tmp_path).write(delta)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", ["parquet", "delta", "sqlite"])
def test_two_state_directories_that_replace_one_view_in_turns_are_detected(kind, tmp_path, caplog):
    place = Place(kind, tmp_path)

    def write(state_id, batch_id, rows, previous):
        delta = ViewDelta("v", batch_id, rows, "complete", state_id=state_id, previous=previous)
        place.target().write(delta)  # as another process

    write("a", 0, ONE, NO_BATCH)
    write("a", 1, TWO, 0)
    assert caplog.messages == []
    write("b", 0, THREE, NO_BATCH)  # a new state directory replaces the view
    (warning,) = caplog.messages
    assert "last written by another state directory (a), and this one (b) replaces" in warning
    write("b", 1, ONE, 0)
    assert caplog.messages == [warning]
    for _ in range(2):
        with pytest.raises(TargetError, match=r"another state directory \(b\)"):
            write("a", 2, TWO, 1)
    write("b", 2, THREE, 1)
    assert place.rows() == counted(THREE, "weight")
    place.drop()
    write("a", 2, TWO, 1)
    assert place.rows() == counted(TWO, "weight")
    with pytest.raises(TargetError, match=r"another state directory \(a\)"):
        write("b", 3, ONE, 2)


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_a_table_that_was_emptied_for_another_job_refuses_the_first_one(mode, tmp_path):
    place = Place("sqlite", tmp_path)

    def write(state_id, batch_id, rows, previous):
        delta = replace(change(batch_id, rows, previous, mode), state_id=state_id)
        place.target().write(delta)

    write("a", 0, ONE, NO_BATCH)
    with pytest.raises(TargetError, match="are not from view 'v' of this state directory"):
        write("b", 0, TWO, NO_BATCH)
    with contextlib.closing(sqlite3.connect(place.folder / "t.db")) as connection:
        connection.execute("DELETE FROM v")
        connection.commit()
    write("b", 0, TWO, NO_BATCH)
    with pytest.raises(MissedBatchesError, match="holds no micro-batch"):
        write("a", 1, THREE, 0)
    with pytest.raises(TargetError, match="are not from view 'v' of this state directory"):
        write("a", 1, THREE, NO_BATCH)
    write("b", 1, ONE, 0)
    assert place.rows() == Counter({(n, "a", 0.5): 1 for n in (1, 2)})


@pytest.mark.parametrize("mode", ["delta", "append", "upsert"])
@pytest.mark.parametrize("previous", [0, NO_BATCH])
def test_a_delta_table_refuses_the_first_of_two_jobs_after_the_second(mode, previous, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    target = DeltaTarget(str(tmp_path / "v"))

    def write(state_id, batch_id, rows, previous):
        target.write(replace(change(batch_id, rows, previous, mode), state_id=state_id))

    write("a", 0, ONE, NO_BATCH)
    deltalake.DeltaTable(str(tmp_path / "v")).delete()
    write("b", 0, TWO, NO_BATCH)
    with pytest.raises(TargetError, match=r"another state directory \(b\).* rows would mix"):
        write("a", 1, THREE, previous)
    write("b", 1, ONE, 0)
    assert deltalake.DeltaTable(str(tmp_path / "v")).to_pyarrow_table().num_rows == 2


def test_a_delta_table_knows_its_writer_after_other_commits(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    target = DeltaTarget(str(tmp_path / "v"))
    target.write(ViewDelta("v", 0, ONE, "complete", state_id="a", previous=NO_BATCH))
    for _ in range(3):
        rows = deltalake.DeltaTable(str(tmp_path / "v")).to_pyarrow_table()
        deltalake.write_deltalake(str(tmp_path / "v"), rows, mode="overwrite")
    with pytest.raises(TargetError, match="another state directory"):
        target.write(ViewDelta("v", 5, TWO, "complete", state_id="b", previous=4))
