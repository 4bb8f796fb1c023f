"""Source tables: the rows at a position and the changes after it are the rows at the next one."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.errors import SourceTableError
from streaming.pipeline.tables.delta_table import DeltaSourceTable
from streaming.pipeline.tables.parquet_folder import ParquetFolder
from tests.support.tables import bag_of
from tests.support.tables import table_of as table_with_schema

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")

LAW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
NUMBERS = itertools.count()
SCHEMA = pa.schema({"a": pa.int64(), "p": pa.string()})

rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", None])), max_size=4)
delta_commits = st.one_of(
    st.tuples(st.just("append"), rows),
    st.tuples(st.just("overwrite"), rows),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("update"), st.integers(0, 3)),
    st.tuples(st.just("optimize"), st.none()),
    st.tuples(st.just("feed"), st.booleans()),
    st.tuples(st.just("refresh"), st.none()),
)


def table_of(values):
    return table_with_schema(SCHEMA, values)


def rows_of(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def no_kept_rows(items):
    raise AssertionError("this table keeps no rows")


def commit(path, kind, value):
    table = deltalake.DeltaTable(path)
    if kind in ("append", "overwrite"):
        deltalake.write_deltalake(path, table_of(value), mode=kind)
    elif kind == "delete":
        table.delete(f"a = {value}")
    elif kind == "update":
        table.update(predicate=f"a = {value}", updates={"a": "a + 1"})
    elif kind == "feed":
        table.alter.set_table_properties({"delta.enableChangeDataFeed": str(value).lower()})
    elif kind == "optimize":
        table.optimize.compact()


@given(
    commits=st.lists(delta_commits, max_size=8),
    first=rows,
    has_feed=st.booleans(),
    is_partitioned=st.booleans(),
)
@LAW
def test_changes_of_a_delta_table_add_up_to_its_rows(
    tmp_path, commits, first, has_feed, is_partitioned
):
    path = str(tmp_path / f"t{next(NUMBERS)}")
    deltalake.write_deltalake(
        path,
        table_of(first),
        partition_by=["p"] if is_partitioned else None,
        configuration={"delta.enableChangeDataFeed": "true"} if has_feed else None,
    )
    table, position, total = DeltaSourceTable(path), {}, Counter()
    for kind, value in [*commits, ("refresh", None)]:
        commit(path, kind, value)
        if kind != "refresh":
            continue
        change = table.changes(position, no_kept_rows)
        if change is not None:
            assert change.rows.drop_columns(["weight"]).schema == table.schema()
            for row, weight in bag_of(change.rows).items():
                total[row] += weight
            position = change.position
        current = rows_of(deltalake.DeltaTable(path).to_pyarrow_table())
        assert {row: n for row, n in total.items() if n} == current
        assert rows_of(table.rows_at(position)) == current
        assert table.changes(position, no_kept_rows) is None


def test_the_change_data_feed_is_read_if_there_is_one(tmp_path):
    for has_feed, method, count in [(True, "change data feed", 2), (False, "difference of", 5)]:
        path = str(tmp_path / str(has_feed))
        feed = {"delta.enableChangeDataFeed": str(has_feed).lower()}
        deltalake.write_deltalake(path, table_of([(0, "x"), (1, "x"), (2, "x")]))
        deltalake.DeltaTable(path).alter.set_table_properties(feed)
        table = DeltaSourceTable(path)
        position = table.changes({}, no_kept_rows).position
        deltalake.DeltaTable(path).delete("a = 1")
        deltalake.write_deltalake(path, table_of([(5, "y")]), mode="append")
        for log in (tmp_path / str(has_feed) / "_delta_log").glob("*.json"):
            log.write_text(log.read_text().replace("delta-rs:", "Apache-Spark/4.0.0 "))
        change = table.changes(position, no_kept_rows)
        assert change.method.startswith(method)
        assert change.rows.num_rows == count + (not has_feed)


def test_a_feed_that_lacks_equal_rows_is_not_read(tmp_path):
    """The package deltalake records one of several equal rows of an update."""
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, table_of([(0, "x"), (0, "x"), (1, "x")]))
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.DeltaTable(path).alter.set_table_properties(feed)
    table = DeltaSourceTable(path)
    position = table.changes({}, no_kept_rows).position
    deltalake.DeltaTable(path).update(predicate="a = 0", updates={"a": "1"})
    change = table.changes(position, no_kept_rows)
    assert bag_of(change.rows) == {(0, "x"): -2, (1, "x"): 2}
    deltalake.write_deltalake(path, table_of([(7, "x")]), mode="append")
    assert table.changes(change.position, no_kept_rows).method == "change data feed"


def test_commits_that_are_not_all_known_are_compared_by_their_files(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, table_of([(0, "x")]))
    table = DeltaSourceTable(path)
    position = table.changes({}, no_kept_rows).position
    deltalake.write_deltalake(path, table_of([(1, "x")]), mode="append")
    deltalake.DeltaTable(path).optimize.compact()
    history = deltalake.DeltaTable.history
    monkeypatch.setattr(deltalake.DeltaTable, "history", lambda self, limit: history(self, 1))
    assert bag_of(table.changes(position, no_kept_rows).rows) == {(1, "x"): 1}


def test_appended_rows_are_read_without_opening_a_table_again(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, table_of([(0, "x")]))
    table = DeltaSourceTable(path)
    position = table.changes({}, no_kept_rows).position
    original, opened = deltalake.DeltaTable.__init__, []
    for number in range(1, 4):
        deltalake.write_deltalake(path, table_of([(number, "x")]), mode="append")
        with monkeypatch.context() as patched:
            patched.setattr(
                deltalake.DeltaTable,
                "__init__",
                lambda *args, **options: (opened.append(args), original(*args, **options))[0],
            )
            change = table.changes(position, no_kept_rows)
        assert bag_of(change.rows) == {(number, "x"): 1}
        position = change.position
    assert opened == []


def test_changes_since_an_older_position_are_read_again(tmp_path):
    """The state is at an older position if the last refresh was not committed."""
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, table_of([(0, "x")]))
    table = DeltaSourceTable(path)
    first = table.changes({}, no_kept_rows).position
    deltalake.write_deltalake(path, table_of([(1, "x")]), mode="append")
    table.changes(first, no_kept_rows)
    deltalake.DeltaTable(path).delete("a = 0")
    assert bag_of(table.changes(first, no_kept_rows).rows) == {(0, "x"): -1, (1, "x"): 1}


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_table_that_gets_a_feature_that_cannot_be_read_is_refused(tmp_path, feature):
    """A commit with a deletion vector changes no name of a file."""
    path = tmp_path / "t"
    deltalake.write_deltalake(path, table_of([(0, "x")]))
    table = DeltaSourceTable(str(path))
    position = table.changes({}, no_kept_rows).position
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    commit_file = path / "_delta_log" / f"{1:020}.json"
    commit_file.write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(SourceTableError, match=feature):
        table.changes(position, no_kept_rows)


def test_a_delta_table_that_was_created_again_is_refused(tmp_path):
    path = tmp_path / "t"
    deltalake.write_deltalake(path, table_of([(1, "x")]))
    table = DeltaSourceTable(str(path))
    position = table.changes({}, no_kept_rows).position
    path.rename(tmp_path / "old")
    deltalake.write_deltalake(path, table_of([(1, "x")]))
    with pytest.raises(SourceTableError, match="deleted and created again"):
        table.changes(position, no_kept_rows)


def test_a_position_of_another_kind_of_table_is_refused(tmp_path):
    deltalake.write_deltalake(tmp_path / "t", table_of([(1, "x")]))
    (tmp_path / "in").mkdir()
    pq.write_table(table_of([(1, "x")]), tmp_path / "in" / "1.parquet")
    delta = DeltaSourceTable(str(tmp_path / "t"))
    folder = ParquetFolder(str(tmp_path / "in"), removed_files="ignore")
    file = ParquetFolder(str(tmp_path / "in" / "1.parquet"), removed_files="ignore")
    for table, other, problem in [
        (delta, folder, "is not the table of the last refresh"),
        (delta, file, "is not the table of the last refresh"),
        (folder, delta, "is not the table of the last refresh"),
        (folder, file, "is not the table of the last refresh"),
        (file, delta, "files were replaced"),
    ]:
        position = other.changes({}, no_kept_rows).position
        with pytest.raises(SourceTableError, match=problem):
            table.changes(position, no_kept_rows)
        with pytest.raises(SourceTableError):
            table.rows_at(position)


def test_an_old_version_whose_files_are_gone_is_refused(tmp_path):
    path = tmp_path / "t"
    deltalake.write_deltalake(path, table_of([(1, "x")]))
    table = DeltaSourceTable(str(path))
    position = table.changes({}, no_kept_rows).position
    deltalake.write_deltalake(path, table_of([(2, "x")]), mode="overwrite")
    deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceTableError, match="cannot be read"):
        table.changes(position, no_kept_rows)


def test_a_missing_table_is_refused(tmp_path):
    for table in (DeltaSourceTable(f"{tmp_path}/no"), ParquetFolder(f"{tmp_path}/no")):
        with pytest.raises(SourceTableError, match="no"):
            table.schema()


folder_changes = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), rows),
    st.tuples(st.just("replace"), st.integers(0, 3), rows),
    st.tuples(st.just("remove"), st.integers(0, 3), st.none()),
    st.tuples(st.just("refresh"), st.just(0), st.none()),
)


class Folder:
    """A folder whose files have distinct times."""

    def __init__(self, path):
        self.path = path
        self.path.mkdir()
        self.files = {}
        self._time = itertools.count(1)

    def change(self, kind, number, value):
        file = self.path / f"day=2026-01-0{1 + number % 2}" / f"{number}.parquet"
        if kind == "remove":
            file.unlink(missing_ok=True)
            self.files.pop(file, None)
        elif kind in ("add", "replace"):
            file.parent.mkdir(exist_ok=True)
            pq.write_table(table_of(value), file)
            os.utime(file, (second := next(self._time), second))
            self.files[file] = [(*row, str(file.parent.name)[4:]) for row in value]

    def rows(self):
        return Counter(row for rows in self.files.values() for row in rows)


PARTITIONED = SCHEMA.append(pa.field("day", pa.string()))


@given(changes=st.lists(folder_changes, max_size=8))
@LAW
def test_changes_of_a_folder_add_up_to_its_rows(tmp_path, changes):
    folder = Folder(tmp_path / f"f{next(NUMBERS)}")
    (folder.path / "_temporary").mkdir()
    (folder.path / "_temporary" / "half.parquet").write_bytes(b"")
    table = ParquetFolder(str(folder.path), declared=PARTITIONED, removed_files="delete")
    position, total = {}, Counter()
    item = len(PARTITIONED)

    def kept_rows(items):
        kept = {row: n for row, n in total.items() if n and row[item] in items}
        schema = PARTITIONED.append(pa.field("source_file", pa.string()))
        return table_with_schema(schema, kept, kept.values())

    for kind, number, value in [*changes, ("refresh", 0, None)]:
        folder.change(kind, number, value)
        if kind != "refresh":
            continue
        change = table.changes(position, kept_rows)
        if change is not None:
            for row, weight in bag_of(change.rows).items():
                total[row] += weight
            position = change.position
        current = Counter()
        for row, n in total.items():
            current[row[:item]] += n
        assert +current == folder.rows()
        assert not -current
        assert rows_of(table.rows_at(position).drop_columns(["source_file"])) == folder.rows()


def test_removed_and_replaced_files_are_refused_or_ignored(tmp_path):
    folder = Folder(tmp_path / "in")
    folder.change("add", 0, [(1, "x")])
    folder.change("add", 1, [(2, "x")])
    refusing = ParquetFolder(str(folder.path))
    ignoring = ParquetFolder(str(folder.path), removed_files="ignore")
    position = refusing.changes({}, no_kept_rows).position
    folder.change("remove", 1, None)
    with pytest.raises(SourceTableError, match=r"files were removed .*: day=2026-01-02/1.parquet"):
        refusing.changes(position, no_kept_rows)
    assert ignoring.changes(position, no_kept_rows) is None
    folder.change("add", 2, [(3, "x")])
    change = ignoring.changes(position, no_kept_rows)
    assert change.rows.column("a").to_pylist() == [3]
    folder.change("add", 1, [(9, "x")])
    with pytest.raises(SourceTableError, match="files were replaced"):
        ignoring.changes(change.position, no_kept_rows)
