"""Iceberg tables as sources: the rows at a snapshot and the changes after it are the next rows."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.errors import SourceTableError
from streaming.pipeline.tables.iceberg_table import IcebergSourceTable, table_names
from streaming.targets.iceberg_catalog import IcebergCatalog
from tests.support.iceberg import delete_positions, expire_snapshots, new_catalog, rewrite_files
from tests.support.tables import bag_of
from tests.support.tables import table_of as table_with_schema

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
pyiceberg = pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install -e '.[iceberg]'")

LAW = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
NUMBERS = itertools.count()
SCHEMA = pa.schema({"a": pa.int64(), "p": pa.string()})

rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", None])), max_size=4)
commits = st.one_of(
    st.tuples(st.just("append"), rows),
    st.tuples(st.just("overwrite"), rows),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("delete positions"), st.integers(0, 5)),
    st.tuples(st.just("delete by vector"), st.integers(0, 5)),
    st.tuples(st.just("rewrite"), st.none()),
    st.tuples(st.just("roll back"), st.integers(1, 3)),
    st.tuples(st.just("refresh"), st.none()),
)


def table_of(values):
    return table_with_schema(SCHEMA, values)


def rows_of(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def no_kept_rows(items):
    raise AssertionError("this table keeps no rows")


@pytest.fixture
def catalog(tmp_path):
    """Properties of a catalog in a file, with the namespace ``shop``."""
    return new_catalog(tmp_path)


def load_catalog(properties):
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **properties)


def create(catalog, *, is_partitioned=False, schema=SCHEMA):
    """Create a table; return its name and the table."""
    name = f"shop.t{next(NUMBERS)}"
    table = load_catalog(catalog).create_table(name, schema, properties={"format-version": "2"})
    if is_partitioned:
        with table.update_spec() as update:
            update.add_identity("p")
    return name, table


def source(catalog, name):
    return IcebergSourceTable(name, IcebergCatalog("", catalog))


def commit(table, kind, value):
    table.refresh()
    if kind == "append":
        table.append(table_of(value))
    elif kind == "overwrite":
        table.overwrite(table_of(value))
    elif kind == "delete":
        table.delete(f"a = {value}")
    elif kind == "delete positions":
        delete_positions(table, value)
    elif kind == "delete by vector":
        delete_positions(table, value, as_vector=True)
    elif kind == "rewrite":
        rewrite_files(table)
    elif kind == "roll back":
        history = table.history()[:-1]
        ancestors = {entry.snapshot_id for entry in history[-value:]}
        if ancestors:
            table.manage_snapshots().set_current_snapshot(min(ancestors)).commit()


class ExpiringCatalog(IcebergCatalog):
    """A catalog in which only the current snapshot of a table is not expired."""

    def find_table(self, name):
        table = super().find_table(name)
        expire_snapshots(table)
        return table


@given(history=st.lists(commits, max_size=8), first=rows, is_partitioned=st.booleans())
@LAW
def test_changes_of_an_iceberg_table_add_up_to_its_rows(catalog, history, first, is_partitioned):
    name, created = create(catalog, is_partitioned=is_partitioned)
    table, position, total = source(catalog, name), {}, Counter()
    for kind, value in [("append", first), *history, ("refresh", None)]:
        commit(created, kind, value)
        if kind != "refresh":
            continue
        change = table.changes(position, no_kept_rows)
        if change is not None:
            assert change.rows.drop_columns(["weight"]).schema == table.schema()
            for row, weight in bag_of(change.rows).items():
                total[row] += weight
            position = change.position
        current = rows_of(created.refresh().scan().to_arrow())
        assert {row: n for row, n in total.items() if n} == current
        assert rows_of(table.rows_at(position)) == current
        assert table.changes(position, no_kept_rows) is None


def test_a_refresh_reads_the_files_that_have_changed(catalog, monkeypatch):
    from pyiceberg.io.pyarrow import ArrowScan

    files_read = []
    to_table = ArrowScan.to_table

    def count_files(self, tasks):
        files_read.append(len(tasks))
        return to_table(self, tasks)

    monkeypatch.setattr(ArrowScan, "to_table", count_files)
    name, created = create(catalog)
    for number in range(3):
        created.append(table_of([(number, "x"), (number + 10, "x")]))
    table = source(catalog, name)
    position = table.changes({}, no_kept_rows).position
    assert files_read == [3]
    for kind, value, method, files, rows in [
        ("append", [(5, "y")], "appended files", [1], {(5, "y"): 1}),
        ("rewrite", None, "no change", [], {}),
        ("append", [(6, "y")], "appended files", [1], {(6, "y"): 1}),
        ("delete positions", 1, "difference of the files", [1, 1], None),
        ("delete by vector", 3, "difference of the files", [1, 1], None),
        ("delete", 10, "difference of the files", [1, 1], {(10, "x"): -1}),
    ]:
        commit(created, kind, value)
        files_read.clear()
        change = table.changes(position, no_kept_rows)
        assert (change.method, files_read) == (method, files)
        if rows is None:
            assert sum(bag_of(change.rows).values()) == -1
        else:
            assert {row: n for row, n in bag_of(change.rows).items() if n} == rows
        position = change.position


def test_a_refresh_reads_each_delete_file_once(catalog, monkeypatch):
    from pyiceberg.io.pyarrow import PyArrowFileIO

    files_read = Counter()
    new_input = PyArrowFileIO.new_input

    def count_reads(self, location):
        if "-deletes." in location:
            files_read[location] += 1
        return new_input(self, location)

    name, created = create(catalog)
    for number in range(3):
        created.append(table_of([(number, "x"), (number + 10, "x")]))
    table = source(catalog, name)
    for number in range(3):
        commit(created, "delete positions", number)
    position = table.changes({}, no_kept_rows).position
    for kind, number in itertools.product(["delete positions", "delete by vector"], range(3)):
        commit(created, kind, number)
    monkeypatch.setattr(PyArrowFileIO, "new_input", count_reads)
    change = table.changes(position, no_kept_rows)
    assert change.method == "difference of the files"
    assert len(files_read) == 9
    assert set(files_read.values()) == {1}


def test_the_snapshot_of_the_last_refresh_may_expire_if_rows_are_only_appended(catalog):
    name, created = create(catalog)
    created.append(table_of([(1, "x")]))
    position = source(catalog, name).changes({}, no_kept_rows).position
    table = IcebergSourceTable(name, ExpiringCatalog("", catalog))
    created.append(table_of([(2, "x")]))
    assert bag_of(table.changes(position, no_kept_rows).rows) == {(2, "x"): 1}
    with pytest.raises(SourceTableError, match="which the last refresh has read, is expired"):
        table.rows_at(position)
    for kind, value in [("append", [(3, "x")]), ("delete", 1)]:
        commit(created, kind, value)
        with pytest.raises(SourceTableError, match="refresh more often than snapshots expire"):
            table.changes(position, no_kept_rows)


def test_an_iceberg_table_that_was_created_again_is_refused(catalog):
    name, created = create(catalog)
    created.append(table_of([(1, "x")]))
    table = source(catalog, name)
    position = table.changes({}, no_kept_rows).position
    load_catalog(catalog).drop_table(name)
    with pytest.raises(SourceTableError, match=rf"{name!r} of the default catalog does not exist"):
        table.changes(position, no_kept_rows)
    load_catalog(catalog).create_table(name, SCHEMA)
    for other in (position, {"day=1/a.parquet": "1:2"}):
        with pytest.raises(SourceTableError, match="deleted and created again, or the pipeline"):
            table.changes(other, no_kept_rows)


def test_rows_are_read_with_the_current_columns(catalog):
    from pyiceberg.types import LongType

    name, created = create(catalog, schema=pa.schema({"a": pa.int32(), "p": pa.string()}))
    created.append(table_of([(1, "x")]).cast(pa.schema({"a": pa.int32(), "p": pa.string()})))
    table = source(catalog, name)
    position = table.changes({}, no_kept_rows).position
    with created.update_schema() as update:
        update.rename_column("p", "q").update_column("a", LongType()).add_column("n", LongType())
    assert table.schema().names == ["a", "q", "n"]
    assert table.schema().field("a").type == pa.int64()
    assert rows_of(table.rows_at(position)) == {(1, "x", None): 1}
    change = table.changes(position, no_kept_rows)
    assert (change.method, change.rows.num_rows) == ("no change", 0)
    position = change.position
    assert table.changes(position, no_kept_rows) is None
    created.refresh().overwrite(pa.table({"a": [1, 2], "q": ["x", "y"], "n": [None, 3]}))
    changed = bag_of(table.changes(position, no_kept_rows).rows)
    assert {row: n for row, n in changed.items() if n} == {(2, "y", 3): 1}


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
def test_another_column_of_a_name_is_refused(catalog, is_nested, is_written):
    from pyiceberg.types import StringType

    schema = pa.schema({"a": pa.int64(), "p": pa.string(), "s": pa.struct({"f": pa.string()})})
    name, created = create(catalog, schema=schema)
    created.append(pa.table([[1, 2], ["x", "y"], [{"f": "x"}] * 2], schema=schema))
    table, path = source(catalog, name), ("s", "f") if is_nested else "p"
    position = table.changes({}, no_kept_rows).position
    with created.update_schema() as update:
        update.add_column("n", StringType())
    position = table.changes(position, no_kept_rows).position
    for column in (path, "n"):
        with created.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(column)
        with created.update_schema() as update:
            update.add_column(column, StringType())
        if is_written:
            created.delete("a = 1")
        with pytest.raises(SourceTableError, match="belong to other columns than at the last"):
            table.changes(position, no_kept_rows)
        with pytest.raises(SourceTableError, match="rename the columns, or, to read the whole"):
            table.rows_at(position)
        with created.update_schema() as update:
            update.rename_column(column, "other" + ".".join(column))
        position = table.changes(position, no_kept_rows).position


def test_columns_that_swap_their_names_are_refused(catalog):
    name, created = create(catalog, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))
    created.append(pa.table({"a": [1], "b": [2]}))
    table = source(catalog, name)
    position = table.changes({}, no_kept_rows).position
    for names in [("a", "c"), ("b", "a"), ("c", "b")]:
        with created.update_schema() as update:
            update.rename_column(*names)
    with pytest.raises(SourceTableError, match="at the last refresh: 'a', 'b'; rename"):
        table.changes(position, no_kept_rows)


def test_a_data_file_that_was_added_twice_counts_twice(catalog, tmp_path):
    name, created = create(catalog)
    table, file = source(catalog, name), str(tmp_path / "rows.parquet")
    pq.write_table(table_of([(1, "x"), (2, "y")]), file)
    position, total = {}, Counter()
    for kind in ["add", "add", "refresh", "delete", "refresh", "add", "overwrite", "refresh"]:
        if kind == "add":
            created.add_files([file], check_duplicate_files=False)
        elif kind != "refresh":
            commit(created, kind, 1 if kind == "delete" else [(3, "z")])
        else:
            change = table.changes(position, no_kept_rows)
            for row, weight in bag_of(change.rows).items():
                total[row] += weight
            position = change.position
            current = rows_of(created.refresh().scan().to_arrow())
            assert {row: n for row, n in total.items() if n} == current


@pytest.mark.parametrize("refreshes", [*itertools.product([False, True], repeat=3)])
def test_a_delete_file_does_not_delete_rows_of_a_file_that_is_added_again(
    catalog, tmp_path, refreshes
):
    name, created = create(catalog)
    table, file = source(catalog, name), str(tmp_path / "rows.parquet")
    pq.write_table(table_of([(1, "x"), (2, "y")]), file)
    position, total = {}, Counter()
    for kind, is_refreshed, rows in [
        ("add", refreshes[0], {(1, "x"): 1, (2, "y"): 1}),
        ("delete positions", refreshes[1], {(2, "y"): 1}),
        ("add", refreshes[2], {(1, "x"): 1, (2, "y"): 2}),
        ("overwrite", True, {(3, "z"): 1}),
    ]:
        if kind == "add":
            created.add_files([file], check_duplicate_files=False)
        else:
            commit(created, kind, 0 if kind == "delete positions" else [(3, "z")])
        if is_refreshed:
            change = table.changes(position, no_kept_rows)
            for row, weight in bag_of(change.rows).items():
                total[row] += weight
            position = change.position
            assert {row: n for row, n in total.items() if n} == rows
            assert rows_of(table.rows_at(position)) == rows


def test_an_empty_table_has_no_rows_until_its_first_snapshot(catalog):
    name, created = create(catalog)
    table = source(catalog, name)
    change = table.changes({}, no_kept_rows)
    assert change.rows.num_rows == 0
    assert table.changes(change.position, no_kept_rows) is None
    assert table.rows_at(change.position).num_rows == 0
    created.append(table_of([(1, "x")]))
    assert bag_of(table.changes(change.position, no_kept_rows).rows) == {(1, "x"): 1}


def test_errors_of_a_catalog_are_errors_of_the_table(catalog, tmp_path):
    table = IcebergSourceTable("shop.t", IcebergCatalog("lake", {"type": "none"}))
    with pytest.raises(SourceTableError, match=r"'shop.t' of catalog 'lake' cannot be read"):
        table.schema()
    with pytest.raises(SourceTableError, match="namespace 'none' of the default catalog"):
        table_names(IcebergCatalog("", catalog), "none")
    name, created = create(catalog)
    created.append(table_of([(1, "x")]))
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(SourceTableError, match=f"{name!r} of the default catalog cannot be read"):
        source(catalog, name).changes({}, no_kept_rows)
