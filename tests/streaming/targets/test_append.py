"""Mode ``append``: a target receives the new rows of a view that loses none, without weights."""

from __future__ import annotations

from collections import Counter

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from streaming import Output, ViewSink
from streaming.errors import TargetError
from streaming.targets.delta import DeltaTarget
from streaming.targets.memory import MemoryTarget
from streaming.targets.output_mode import OutputMode
from streaming.targets.parquet import ParquetTarget
from streaming.targets.sql import SqlTarget
from streaming.targets.target import NO_BATCH, ViewDelta
from tests.generators.view_histories import table_of
from tests.support.databases import new_table_name

FIRST = table_of([((1, "a", 0.5), 2), ((2, None, None), 1)])
SECOND = table_of([((1, "a", 0.5), 1), ((None, "", 1.5), 3)])
ROWS_OF_FIRST = Counter({(1, "a", 0.5): 2, (2, None, None): 1})
ALL_ROWS = ROWS_OF_FIRST + Counter({(1, "a", 0.5): 1, (None, "", 1.5): 3})


def deltas(state_id=""):
    return (
        ViewDelta("v", 0, FIRST, "append", state_id=state_id, previous=NO_BATCH),
        ViewDelta("v", 1, SECOND, "append", state_id=state_id, previous=0),
    )


def write_all(target, read):
    for delta, expected in zip(deltas(), (ROWS_OF_FIRST, ALL_ROWS), strict=True):
        for _ in range(2):  # the second write changes nothing
            target.write(delta)
            assert read() == expected


def test_a_database_has_each_row_as_often_as_the_view(database):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    write_all(target, lambda: Counter(database.rows(f'SELECT * FROM "{table}"')))
    target.close()


def rows_of(table, names=("k", "s", "x")):
    assert set(table.column_names) <= {*names, "batch_id"}
    return Counter(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_a_delta_table_has_each_row_as_often_as_the_view(tmp_path):
    target = DeltaTarget(str(tmp_path / "t"))
    write_all(target, lambda: rows_of(deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table()))


def test_parquet_files_have_each_row_as_often_as_the_view(tmp_path):
    write_all(ParquetTarget(tmp_path / "t"), lambda: rows_of(pq.read_table(tmp_path / "t")))


def test_a_view_in_memory_adds_the_rows():
    target = MemoryTarget()

    def read():
        rows = target.table("v").to_pylist()
        return Counter({(row["k"], row["s"], row["x"]): row["weight"] for row in rows})

    write_all(target, read)


@pytest.mark.parametrize("kind", ["delta", "parquet", "sqlite"])
def test_a_whole_view_replaces_earlier_rows(tmp_path, kind):
    """A view that was dropped and added again comes as a whole, and no row is there twice."""
    path = tmp_path / "t"
    if kind == "delta":
        target, read = DeltaTarget(str(path)), lambda: deltalake.DeltaTable(path).to_pyarrow_table()
    elif kind == "parquet":
        target, read = ParquetTarget(path), lambda: pq.read_table(path)
    else:
        import sqlite3

        def read():
            rows = sqlite3.connect(path).execute("SELECT k, s, x FROM v").fetchall()
            return pa.table(dict(zip("ksx", map(list, zip(*rows, strict=True)), strict=True)))

        target = SqlTarget(lambda: sqlite3.connect(path), "v")
    target.write(deltas()[0])
    whole = pa.concat_tables([FIRST, SECOND])
    target.write(ViewDelta("v", 5, whole, "append", previous=NO_BATCH))
    assert rows_of(read()) == ALL_ROWS


def test_parquet_files_that_have_rows_which_the_whole_view_lacks_are_refused(tmp_path):
    target = ParquetTarget(tmp_path / "t")
    target.write(deltas()[0])
    with pytest.raises(TargetError, match=r"mode 'append' only adds rows, .* removes"):
        target.write(ViewDelta("v", 5, SECOND, "append", previous=NO_BATCH))
    assert rows_of(pq.read_table(tmp_path / "t")) == ROWS_OF_FIRST


def test_a_step_that_removes_a_row_is_an_error_that_shows_it():
    removed = table_of([((1, "a", 0.5), -1)])
    message = (
        r"view 'v': mode 'append' only adds rows, but this step removes \{k: 1, s: 'a', x: 0.5\}"
    )
    with pytest.raises(TargetError, match=message):
        OutputMode("append").changes("v", removed)


def test_a_micro_batch_that_removes_a_row_changes_neither_state_nor_target(spark, tmp_path):
    frames = []
    sink = ViewSink(
        compile_sql("CREATE VIEW big AS SELECT k FROM t WHERE k > 1", {"t": "k BIGINT"}),
        [Output("big", lambda frame, batch_id: frames.append(frame.collect()), "append")],
        state_dir=tmp_path / "state",
    )
    sink(spark.createDataFrame([(1, 1), (2, 2)], "k BIGINT, weight BIGINT"), 0)
    assert [tuple(row) for row in frames.pop()] == [(2,), (2,)]
    with pytest.raises(TargetError, match="mode 'append' only adds rows"):
        sink(spark.createDataFrame([(2, -1)], "k BIGINT, weight BIGINT"), 1)
    sink(spark.createDataFrame([(3, 1)], "k BIGINT, weight BIGINT"), 1)
    assert [tuple(row) for row in frames.pop()] == [(3,)]
    assert not frames
    sink.close()
