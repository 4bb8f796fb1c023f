"""ParquetTarget on a real disk, and on one that loses unsynced data at a crash."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.errors import TargetError
from streaming.targets.parquet import ParquetTarget
from streaming.targets.target import ViewDelta
from tests.generators.arrow_columns import VALUES, array
from tests.generators.view_histories import History, counted, histories, table_of
from tests.support.simulated_files import Crash, Fault, SimulatedDisk

MODES = ("delta", "upsert", "complete")
HISTORIES = st.sampled_from(MODES).flatmap(histories)
LAW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def contents(tables: list[pa.Table], mode: str) -> Counter:
    """Return the view that the files contain: a sum, the last row of each key, or all rows."""
    if mode != "upsert":
        names = [name for name in tables[0].column_names if name != "batch_id"] if tables else []
        return total(table.select(names) for table in tables)
    latest: dict = {}  # of a key: its row and weight
    rows = [row for table in tables for row in counted(table).items()]
    for (_, *row), weight in sorted(rows, key=lambda item: item[0][0]):
        latest[tuple(row[:2])] = (tuple(row), weight)
    return Counter({row: 1 for row, weight in latest.values() if weight > 0})


def total(tables: Iterable[pa.Table]) -> Counter:
    counts: Counter = Counter()
    for table in tables:
        counts.update(counted(table))
    return Counter({row: weight for row, weight in counts.items() if weight})


def check_files(history: History, tables: list[pa.Table], batch_count: int) -> None:
    """Check that the files contain exactly the first ``batch_count`` micro-batches."""
    expected = history.contents[batch_count - 1] if batch_count else Counter()
    assert contents(tables, history.mode) == expected
    if history.mode == "delta" and batch_count == len(history.deltas):
        assert total(tables) == history.contents_by_batch


def read_visible(directory: Path) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted(directory.glob("[!._]*.parquet"))]


@given(HISTORIES, st.data())
@LAW
def test_each_micro_batch_is_stored_once_however_often_it_is_written(history, data):
    disk = SimulatedDisk(0)
    target = ParquetTarget(disk.files())
    for batch_count, delta in enumerate(history.deltas, start=1):
        for _ in range(data.draw(st.integers(1, 3))):
            target.write(delta)
            check_files(history, read_simulated(disk), batch_count)
            if data.draw(st.booleans()):
                target = ParquetTarget(disk.files())  # another process


def read_simulated(disk: SimulatedDisk) -> list[pa.Table]:
    """Read the files that a reader of the directory does not skip."""
    names = [name for name in disk.names() if name[0] not in "._" and name.endswith(".parquet")]
    return [pq.read_table(pa.BufferReader(disk.content(name))) for name in names]


FAULTS = st.builds(
    Fault,
    st.integers(0, 12),
    st.sampled_from(["power", "kill", "error", "full"]),
    st.sampled_from(["before", "during", "after"]),
)


@given(HISTORIES, st.lists(st.none() | FAULTS, min_size=6, max_size=6), st.integers(0, 99))
@settings(LAW, max_examples=300)
def test_a_micro_batch_written_again_after_a_crash_is_stored_once(history, faults, seed):
    disk = SimulatedDisk(seed)
    target = ParquetTarget(disk.files())
    for batch_count, (delta, fault) in enumerate(
        zip(history.deltas, faults, strict=False), start=1
    ):
        disk.plan(fault)
        while True:
            try:
                target.write(delta)
                break
            except Crash:
                target = ParquetTarget(disk.files())
            except TargetError:
                disk.tidy()
            actual = contents(read_simulated(disk), history.mode)  # each file is complete
            before = history.contents[batch_count - 2] if batch_count > 1 else Counter()
            assert actual in (before, history.contents[batch_count - 1])
        disk.plan(None)
        disk.lose_power()
        target = ParquetTarget(disk.files())
        check_files(history, read_simulated(disk), batch_count)


def test_a_file_with_a_second_name_after_a_power_loss_is_never_written_in_place():
    disk = SimulatedDisk(0)
    rows = table_of([((1, "a", 0.5), 2)])
    ParquetTarget(disk.files()).write(ViewDelta("v", 0, rows, mode="complete"))
    (published,) = disk.names()
    disk.link(f".{published}.tmp", disk.inode(published))  # the rename was half undone

    ParquetTarget(disk.files()).write(ViewDelta("v", 1, table_of([]), mode="complete"))

    assert read_simulated(disk)[0].num_rows == 0


def test_a_directory_can_be_read_at_any_time(tmp_path):
    target = ParquetTarget(tmp_path / "out")
    empty = table_of([])

    target.write(ViewDelta("v", 0, empty))
    assert pq.read_table(tmp_path / "out").num_rows == 0

    target.write(ViewDelta("v", 1, table_of([((1, "a", 0.5), 2)])))
    target.write(ViewDelta("v", 2, empty))
    (tmp_path / "out" / ".v-3.parquet.tmp").write_bytes(b"half a file")
    assert pq.read_table(tmp_path / "out").to_pylist() == [
        {"batch_id": 1, "k": 1, "s": "a", "x": 0.5, "weight": 2}
    ]
    assert len(read_visible(tmp_path / "out")) == 2


def test_each_view_has_its_directory_for_any_name(tmp_path):
    target = ParquetTarget(f"{tmp_path}/out/{{view}}", batch_id=False)
    for view in ("a", "../b", ".hidden", "_c", "über alles"):
        target.write(ViewDelta(view, 0, table_of([((1, view, None), 1)])))

    written = sorted((tmp_path / "out").iterdir())
    assert len(written) == 5 == len(list(tmp_path.rglob("*.parquet")))
    assert {pq.read_table(path).column("s")[0].as_py() for path in written} == {
        "a", "../b", ".hidden", "_c", "über alles",
    }  # fmt: skip
    assert all(path.name[0] not in "._" for path in written)


@pytest.mark.parametrize("mode", ["delta", "complete"])
def test_rows_of_another_state_directory_or_view_are_refused(tmp_path, mode):
    rows = table_of([((1, "a", None), 1)])
    ParquetTarget(tmp_path).write(ViewDelta("v", 4, rows, "delta", state_id="one"))

    for delta in [ViewDelta("v", 0, rows, mode, state_id="two"), ViewDelta("w", 0, rows, mode)]:
        with pytest.raises(TargetError, match=r"views begin empty.*\{view\}"):
            ParquetTarget(tmp_path).write(delta)
    assert len(read_visible(tmp_path)) == 1


def test_views_whose_names_look_like_file_names_are_distinguished(tmp_path):
    rows = table_of([((1, "a", None), 1)])
    ParquetTarget(tmp_path).write(ViewDelta("v-00000000000000000001-s", 0, rows, state_id="s"))

    with pytest.raises(TargetError, match="are not from view 'v'"):
        ParquetTarget(tmp_path).write(ViewDelta("v", 0, rows, state_id="s"))


def test_an_older_complete_view_does_not_replace_a_newer_one(tmp_path):
    target = ParquetTarget(tmp_path)
    for batch_id in (3, 2):
        rows = table_of([((batch_id, "a", None), 1)])
        target.write(ViewDelta("v", batch_id, rows, "complete"))

    assert read_visible(tmp_path)[0].column("k").to_pylist() == [3]


def test_an_open_reader_of_a_complete_view_is_not_disturbed_by_a_new_one(tmp_path):
    target = ParquetTarget(tmp_path)
    target.write(ViewDelta("v", 0, table_of([((0, "a", None), 1)]), "complete"))
    with pq.ParquetFile(next(tmp_path.glob("*.parquet"))) as reader:
        target.write(ViewDelta("v", 1, table_of([((1, "b", None), 1)]), "complete"))

        assert reader.read().column("k").to_pylist() == [0]
    assert read_visible(tmp_path)[0].column("k").to_pylist() == [1]


def test_a_column_batch_id_of_the_view_is_refused(tmp_path):
    delta = ViewDelta("v", 0, pa.table({"batch_id": [1], "weight": [1]}))

    with pytest.raises(TargetError, match=r"SELECT .* AS"):
        ParquetTarget(tmp_path).write(delta)
    ParquetTarget(tmp_path, batch_id=False).write(delta)
    assert pq.read_table(tmp_path).to_pylist() == [{"batch_id": 1, "weight": 1}]


def test_an_unwritable_directory_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(TargetError, match=r"micro-batch 0: .*file cannot be written to"):
        ParquetTarget(tmp_path / "file").write(ViewDelta("v", 0, table_of([])))


def test_other_file_systems_of_pyarrow_can_be_used(tmp_path):
    system = arrow_fs.SubTreeFileSystem(os.fspath(tmp_path), arrow_fs.LocalFileSystem())
    target = ParquetTarget((system, "lake/{view}"))

    target.write(ViewDelta("v", 0, table_of([((1, "a", 0.5), 1)])))

    assert pq.read_table(tmp_path / "lake" / "v").num_rows == 1


@pytest.mark.parametrize("type_", VALUES, ids=str)
@given(data=st.data())
@settings(LAW, max_examples=10)
def test_every_type_is_read_back_with_its_values(tmp_path_factory, type_, data):
    value = VALUES[type_] if type_ != pa.timestamp("s") else st.integers(-(10**9), 10**9)
    values = data.draw(st.lists(st.none() | value, min_size=1, max_size=4))
    column = array(values, type_)
    directory = tmp_path_factory.mktemp("types")

    ParquetTarget(directory, batch_id=False).write(
        ViewDelta("v", 0, pa.table({"a": column, "weight": pa.array([1] * len(values))}))
    )

    read = pq.read_table(directory).column("a")
    if pa.types.is_temporal(type_):
        expected = [None if v is None else str(v) for v in column.cast(read.type).cast(pa.string())]
        assert [None if v is None else str(v) for v in read.cast(pa.string())] == expected
    else:
        assert [comparable(v) for v in read.to_pylist()] == [
            comparable(v) for v in column.to_pylist()
        ]


def test_a_timestamp_that_parquet_cannot_store_is_refused(tmp_path):
    table = pa.table({"t": pa.array([2**62], pa.timestamp("s")), "weight": [1]})

    with pytest.raises(TargetError, match="column 't' of type timestamp"):
        ParquetTarget(tmp_path).write(ViewDelta("v", 0, table))
    assert not read_visible(tmp_path)


def comparable(value):
    """Return a number as a float, and NaN as a text that equals itself."""
    if isinstance(value, Decimal | int | str | bytes) or value is None:
        return value
    return "nan" if math.isnan(value) else float(value)
