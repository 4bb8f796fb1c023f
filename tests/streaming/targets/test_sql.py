"""SqlTarget on SQLite and on a real PostgreSQL server, also when any call of the driver fails."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sqlite3
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.types.arrow_types import EnumType
from streaming.errors import StateDamagedError, TargetError
from streaming.targets.retry import Retry
from streaming.targets.sql import SqlTarget
from streaming.targets.target import ViewDelta
from tests.generators.view_histories import canonical, histories, table_of
from tests.support.databases import Crash, new_table_name

LAW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
HISTORIES = st.sampled_from(["delta", "upsert", "complete"]).flatmap(histories)
ROW_1 = table_of([((1, "a", 0.5), 1)])


def row_of(values):
    """Return a row that the database returned; SQLite stores NaN as text."""
    return canonical(float("nan") if value == "NaN" else value for value in values)


def contents(database, table, mode):
    if mode == "upsert":
        return Counter(row_of(row) for row in database.rows(f'SELECT k, s, x FROM "{table}"'))
    counts = Counter()
    for *row, weight in database.rows(f'SELECT k, s, x, weight FROM "{table}"'):
        counts[row_of(row)] += weight
    return Counter({row: weight for row, weight in counts.items() if weight})


@given(history=HISTORIES, write_counts=st.lists(st.integers(1, 3), min_size=6, max_size=6))
@LAW
def test_each_micro_batch_is_stored_once_however_often_it_is_written(
    database, history, write_counts
):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    for delta, content, times in zip(history.deltas, history.contents, write_counts, strict=False):
        for _ in range(times):
            target.write(delta)
        assert contents(database, table, history.mode) == content
    target.close()
    if history.mode == "delta" and history.deltas:
        result = database.rows(f'SELECT batch_id, k, s, x, weight FROM "{table}"')
        log = {(row[0], *row_of(row[1:-1])): row[-1] for row in result}
        assert log == history.contents_by_batch
        assert len(log) == len(result)
    database.run(f'DROP TABLE IF EXISTS "{table}"')  # SQLite reads the schema of all tables


def in_parts(delta, rows=2):
    """Return a delta whose rows are read in several tables."""
    table = delta.table
    starts = range(0, table.num_rows, rows)
    parts = [table.slice(start, rows) for start in starts]
    return replace(delta, table=table.slice(0, 0), read_parts=lambda: iter(parts))


@given(history=HISTORIES)
@LAW
def test_rows_that_are_read_in_parts_are_stored_as_those_of_one_table(database, history):
    table, whole = new_table_name(), new_table_name()
    target, other = SqlTarget(database.connect, table), SqlTarget(database.connect, whole)
    for delta in history.deltas:
        for _ in range(2):
            target.write(in_parts(delta) if delta.table.num_rows else delta)
        other.write(delta)
        query = 'SELECT * FROM "{}"'
        stored = [Counter(map(row_of, database.rows(query.format(n)))) for n in (table, whole)]
        assert stored[0] == stored[1]
    target.close()
    other.close()
    for name in (table, whole):
        database.run(f'DROP TABLE IF EXISTS "{name}"')


def test_a_part_that_cannot_be_read_leaves_no_row(database):
    name, is_damaged = new_table_name(), True
    rows = [table_of([((k, "a", 0.5), 1)]) for k in range(3)]

    def read():
        yield from rows[:2]
        if is_damaged:
            raise StateDamagedError("a file is damaged")
        yield rows[2]

    target = SqlTarget(database.connect, name)
    delta = ViewDelta("v", 0, rows[0].slice(0, 0), state_id="s", read_parts=read)
    with pytest.raises(StateDamagedError):
        target.write(delta)
    is_damaged = False
    target.write(delta)
    target.close()
    assert contents(database, name, "delta") == {(k, "a", 0.5): 1 for k in range(3)}
    database.run(f'DROP TABLE IF EXISTS "{name}"')


@given(
    history=HISTORIES,
    faults=st.lists(st.none() | st.integers(0, 9), min_size=6, max_size=6),
    after=st.booleans(),
)
@settings(LAW, max_examples=80)
def test_a_micro_batch_written_again_after_a_crash_is_stored_once(database, history, faults, after):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    before = None
    for delta, content, fault in zip(history.deltas, history.contents, faults, strict=False):
        database.faults.plan(fault, after=after)
        try:
            target.write(delta)
        except Crash:
            if before is not None:  # the table exists
                assert contents(database, table, history.mode) in (before, content)
            database.faults.plan(None)
            target = SqlTarget(database.connect, table)  # another process
            target.write(delta)
        assert contents(database, table, history.mode) == content
        before = content
    target.close()
    database.run(f'DROP TABLE IF EXISTS "{table}"')


def test_an_error_at_any_call_leaves_the_table_as_it_was(database):
    for mode, call in itertools.product(("delta", "upsert", "complete"), range(8)):
        table, keys = new_table_name(), ("k",) if mode == "upsert" else ()
        target = SqlTarget(database.connect, table)
        target.write(ViewDelta("v", 0, ROW_1, mode, keys))
        database.faults.plan(call, error=ValueError)
        second = ViewDelta("v", 1, table_of([((2, "b", 1.5), 1)]), mode, keys)
        with contextlib.suppress(TargetError):
            target.write(second)
            assert call > 5
        failed = database.faults.remaining_calls == -1 or call <= 5
        database.faults.plan(None)
        if failed and call < 5:
            assert contents(database, table, mode) == Counter({(1, "a", 0.5): 1})
        target.write(second)
        assert contents(database, table, mode)[(2, "b", 1.5)] == 1
        assert contents(database, table, mode)[(1, "a", 0.5)] == (mode != "complete")
        target.close()


def test_a_lost_connection_is_reopened_a_limited_number_of_times(database):
    table = new_table_name()
    opened = []

    def connect():
        opened.append(database.connect())
        if 1 < len(opened) < closed_until:
            opened[-1].close()
        return opened[-1]

    target = SqlTarget(connect, table, retry=Retry(max_attempts=3, first_pause_seconds=0))
    closed_until = 0
    target.write(ViewDelta("v", 0, ROW_1))
    opened[-1].close()
    target.write(ViewDelta("v", 1, ROW_1))
    assert contents(database, table, "delta") == Counter({(1, "a", 0.5): 2})

    closed_until = 99  # each new connection is already closed
    opened[-1].close()
    before = len(opened)
    with pytest.raises(TargetError, match="gave up after 3 attempts in 0 s; none of its rows"):
        target.write(ViewDelta("v", 2, ROW_1))
    assert len(opened) - before in (2, 3)  # SQLite keeps no connection
    target.close()


class CursorThatFailsToCommit(sqlite3.Cursor):
    """Its database refuses to commit, or is lost meanwhile, as ``failures`` says."""

    failures: ClassVar[list[str]] = []

    def execute(self, statement, *arguments):
        if statement == "COMMIT" and self.failures:
            failure = self.failures.pop(0)
            if failure == "lost after it":
                super().execute("COMMIT")
                self.connection.close()
            elif failure == "lost":
                super().execute("ROLLBACK")
                self.connection.close()
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(statement, *arguments)


class ConnectionThatFailsToCommit(sqlite3.Connection):
    def cursor(self):
        return super().cursor(CursorThatFailsToCommit)


@pytest.mark.parametrize(
    ("failures", "outcome"),
    [
        (["refused", "refused"], "none of its rows is in the table"),
        (["lost", "lost"], "the outcome of the commit is not known"),
        # The second attempt reads that the first one has not committed.
        (["lost", "refused"], "none of its rows is in the table"),
        # The second attempt finds that the first one has committed, and has nothing to write.
        (["lost after it", "refused"], "; its rows are in the table"),
    ],
)
def test_an_error_says_what_is_known_of_the_commit(tmp_path, failures, outcome):
    def connect():
        return sqlite3.connect(tmp_path / "t.db", factory=ConnectionThatFailsToCommit)

    target = SqlTarget(connect, "t", retry=Retry(max_attempts=2, first_pause_seconds=0))
    target.write(ViewDelta("v", 0, ROW_1))
    CursorThatFailsToCommit.failures = list(failures)
    with pytest.raises(TargetError, match=outcome):
        target.write(ViewDelta("v", 1, ROW_1))


def test_rows_with_many_keys_are_deleted(tmp_path):
    """More than 64, which the bits of a number do not distinguish."""
    names = [f"k{i}" for i in range(70)]
    values = [*range(69), None]
    target = SqlTarget(lambda: sqlite3.connect(tmp_path / "t.db"), "t")
    for batch_id, weight in enumerate((1, -1)):
        rows = pa.table(
            {name: pa.array([v], pa.int64()) for name, v in zip(names, values, strict=True)}
        )
        rows = rows.append_column("weight", pa.array([weight]))
        target.write(ViewDelta("v", batch_id, rows, "upsert", tuple(names)))
        with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
        assert count == (weight > 0)


def test_an_error_of_a_read_is_not_reported_as_one_of_a_write(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t (k INTEGER)")
        connection.execute("CREATE VIEW dbsp_wcoj_batches AS SELECT * FROM missing")
    target = SqlTarget(lambda: sqlite3.connect(tmp_path / "t.db"), "t")
    message = r"refused to read its last micro-batch from table 't': .*no such table: .*missing"
    with pytest.raises(TargetError, match=message + "$"):
        target.last_batch(ViewDelta("v", 0, ROW_1))


def test_names_that_postgresql_would_cut_off_are_refused(postgres):
    import psycopg

    start = f"{new_table_name()}_{'ä' * 20}"
    longest = start + "x" * (63 - len(start.encode()))
    target = SqlTarget(lambda: psycopg.connect(postgres))
    target.write(ViewDelta(longest, 0, ROW_1))
    for view, columns in ((longest + "y", ("k",)), ("v", ("k", longest + "y"))):
        rows = pa.table({name: [1] for name in (*columns, "weight")})
        for action in (target.check, target.write, target.last_batch):
            if action == target.last_batch and view == "v":
                continue
            with pytest.raises(TargetError, match="has 64 bytes, and PostgreSQL keeps the first"):
                action(ViewDelta(view, 0, rows))
    target.close()
    with psycopg.connect(postgres) as connection:
        assert connection.execute(f'SELECT count(*) FROM "{longest}"').fetchone() == (1,)


def test_a_role_that_may_not_create_tables_writes_to_existing_ones(postgres):
    import psycopg

    table, role = new_table_name(), f"writer_{new_table_name()}"
    owner = SqlTarget(lambda: psycopg.connect(postgres), table)
    owner.write(ViewDelta("v", 0, ROW_1))
    owner.close()
    with psycopg.connect(postgres) as connection:
        connection.execute(f"CREATE ROLE {role}")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE ON {table}, dbsp_wcoj_batches TO {role}")

    target = SqlTarget(lambda: psycopg.connect(postgres, options=f"-c role={role}"), table)
    target.write(ViewDelta("v", 1, ROW_1))
    target.close()
    with psycopg.connect(postgres) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)


def test_a_session_that_the_server_ended_is_opened_again(postgres):
    import psycopg

    table = new_table_name()
    target = SqlTarget(lambda: psycopg.connect(postgres), table)
    target.write(ViewDelta("v", 0, ROW_1))
    with psycopg.connect(postgres) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )

    target.write(ViewDelta("v", 1, ROW_1))

    with psycopg.connect(postgres) as other:
        assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)
    target.close()


def test_two_writers_of_one_micro_batch_apply_it_once(postgres):
    import threading

    import psycopg

    table = new_table_name()
    first = SqlTarget(lambda: psycopg.connect(postgres), table)
    first.write(ViewDelta("v", 0, ROW_1))
    first.close()
    targets = [SqlTarget(lambda: psycopg.connect(postgres), table) for _ in range(4)]
    threads = [
        threading.Thread(target=target.write, args=(ViewDelta("v", 1, ROW_1),))
        for target in targets
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with psycopg.connect(postgres) as other:
        assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)
    for target in targets:
        target.close()


NAMES = ["a b", 'qu"ote', "per%cent", "select", "Größe", "view", "%s", "?"]


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_names_with_special_characters_are_quoted(database, mode):
    table = f'T {new_table_name()} % "x"'
    columns = {name: [number, None] for number, name in enumerate(NAMES)}
    rows = pa.table({**columns, "weight": [1, 1]})
    keys = tuple(NAMES[:3]) if mode == "upsert" else ()
    target = SqlTarget(database.connect, table, batches='no"tes %')

    target.write(ViewDelta("v'v", 0, rows, mode, keys))
    target.write(ViewDelta("v'v", 1, rows, mode, keys))
    target.close()

    quoted = table.replace('"', '""')
    assert [name for name in database.columns(quoted) if name in NAMES] == NAMES
    (row_count,) = database.rows(f'SELECT count(*) FROM "{quoted}"')[0]
    assert row_count == (4 if mode == "delta" else 2)


def test_a_schema_may_be_given(database):
    schema = "public" if database.name == "postgres" else "main"
    table = new_table_name()
    target = SqlTarget(database.connect, table, schema=schema)

    for batch_id in (0, 1, 1):
        target.write(ViewDelta("v", batch_id, ROW_1))
    target.close()

    assert database.rows(f"SELECT count(*) FROM {schema}.{table}") == [(2,)]


def test_one_view_may_go_to_several_tables_and_several_views_to_one_database(database):
    suffix = new_table_name()
    targets = [SqlTarget(database.connect, f"{{view}}_{kind}_{suffix}") for kind in ("a", "b")]
    for target in targets:
        for view in ("v", "w"):
            target.write(ViewDelta(view, 0, ROW_1))
            assert len(database.rows(f'SELECT * FROM "{target.name_for(view)}"')) == 1
        target.close()


@pytest.mark.parametrize(("mode", "keys"), [("delta", ()), ("upsert", ("k",))])
def test_rows_of_another_state_are_refused_after_a_micro_batch_without_rows(database, mode, keys):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    for state in ("one", "two"):
        target.write(ViewDelta("v", 0, ROW_1.slice(0, 0), mode, keys, state))
    target.write(ViewDelta("v", 1, ROW_1, mode, keys, "one"))

    with pytest.raises(TargetError, match="are not from view 'v' of this state directory"):
        target.write(ViewDelta("v", 2, ROW_1, mode, keys, "two"))
    target.close()
    assert contents(database, table, mode) == Counter({(1, "a", 0.5): 1})


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_rows_of_another_state_directory_are_refused(database, mode):
    table, keys = new_table_name(), ("k",) if mode == "upsert" else ()
    target = SqlTarget(database.connect, table)
    target.write(ViewDelta("v", 0, ROW_1, mode, keys, "one"))

    with pytest.raises(TargetError, match="are not from view 'v' of this state directory"):
        target.write(ViewDelta("v", 0, ROW_1, mode, keys, "two"))
    target.close()
    assert contents(database, table, mode) == Counter({(1, "a", 0.5): 1})


def test_the_user_may_create_the_table(database):
    table = new_table_name()
    database.run(
        f"CREATE TABLE {table} (k BIGINT PRIMARY KEY, s TEXT, x REAL, note TEXT DEFAULT 'n')"
    )
    target = SqlTarget(database.connect, table)

    target.write(ViewDelta("v", 0, ROW_1, "upsert", ("k",)))
    target.write(ViewDelta("v", 1, table_of([((1, "b", 0.5), 1)]), "upsert", ("k",)))
    target.close()

    assert database.rows(f"SELECT * FROM {table}") == [(1, "b", 0.5, "n")]


def test_after_an_error_for_an_unsuitable_table_a_suitable_one_is_written(database):
    table = new_table_name()
    database.run(f"CREATE TABLE {table} (k BIGINT)")
    target = SqlTarget(database.connect, table)

    with pytest.raises(TargetError, match=f"to table '{table}'.*unique constraint"):
        target.write(ViewDelta("v", 0, ROW_1, "upsert", ("k",)))
    database.run(f"DROP TABLE {table}")
    target.write(ViewDelta("v", 0, ROW_1, "upsert", ("k",)))
    target.close()
    assert contents(database, table, "upsert") == Counter({(1, "a", 0.5): 1})


def test_a_target_can_be_pickled_with_its_connection_open(tmp_path):
    target = SqlTarget(ConnectSqlite(str(tmp_path / "t.db")))
    target.write(ViewDelta("v", 0, ROW_1))

    pickle.loads(pickle.dumps(target)).write(ViewDelta("v", 1, ROW_1))

    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert connection.execute("SELECT count(*) FROM v").fetchone() == (2,)


class ConnectSqlite:
    """A function that connects to a file, and can be pickled."""

    def __init__(self, path):
        self.path = path

    def __call__(self):
        return sqlite3.connect(self.path)


def test_a_connection_of_another_driver_is_refused():
    class UnknownConnection:
        def close(self): ...

    with pytest.raises(TargetError, match="supported are sqlite3, psycopg, duckdb"):
        SqlTarget(UnknownConnection, "t").write(ViewDelta("v", 0, ROW_1))


def test_a_view_with_a_column_of_the_log_table_is_refused(tmp_path):
    delta = ViewDelta("v", 0, pa.table({"row_number": [1], "weight": [1]}))

    with pytest.raises(TargetError, match="'row_number'"):
        SqlTarget(ConnectSqlite(str(tmp_path / "t.db"))).write(delta)


def test_many_upserts_and_deletions_are_applied_like_few(database):
    columns = {"nr": pa.int64(), "s": pa.string(), "per%cent": pa.float64(), "weight": pa.int64()}
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    rng = np.random.default_rng(3)
    view = {}
    for batch_id in range(6):
        size = (3000, 2000, 10, 1200)[batch_id % 4]
        keys = {(int(n) if n % 50 else None, f"s{n % 7}") for n in rng.integers(0, 3000, size)}
        rows = [(*key, rng.random(), -1 if rng.random() < 0.4 else 1) for key in keys]
        target.write(
            ViewDelta(
                "v",
                batch_id,
                pa.table(list(map(list, zip(*rows, strict=True))), pa.schema(columns)),
                "upsert",
                ("nr", "s"),
            )
        )
        for nr, s, x, weight in rows:
            view.pop((nr, s), None)
            if weight > 0:
                view[nr, s] = (nr, s, x)
        result = database.rows(f'SELECT * FROM "{table}"')
        assert len(result) == len(view)
        assert set(result) == set(view.values())
    target.close()


@pytest.mark.parametrize("type_", [pa.struct({"n": pa.int8()}), pa.map_(pa.string(), pa.int8())])
def test_a_struct_or_map_is_stored_by_duckdb_and_refused_by_others_before_the_first_micro_batch(
    database, type_
):
    part = [{"n": 5}] if pa.types.is_struct(type_) else [[("x", 5)]]
    rows = pa.table({"k": pa.array([1]), "part": pa.array(part, type_), "weight": [1]})
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    for call in (target.check, target.write):
        if database.name == "duckdb":
            call(ViewDelta("v", 0, rows, "upsert", ("k",)))
        else:
            with pytest.raises(TargetError, match=r"column 'part' cannot be written: .*to_json"):
                call(ViewDelta("v", 0, rows, "upsert", ("k",)))
    target.close()
    if database.name == "duckdb":
        assert database.rows(f"SELECT part FROM {table}") == [(dict(part[0]),)]


def test_a_list_is_an_array_or_a_list_and_refused_by_sqlite(database):
    rows = pa.table({"part": [[1, 2]], "weight": [1]})
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    if database.name == "sqlite":
        with pytest.raises(TargetError, match=r"SQLite has no type for list.*to_json"):
            target.check(ViewDelta("v", 0, rows))
    else:
        target.write(ViewDelta("v", 0, rows))
        part = "{1,2}" if database.name == "postgres" else [1, 2]
        assert database.rows(f'SELECT part FROM "{table}"') == [(part,)]
    target.close()


def test_nested_durations_and_texts_of_labels_are_stored_by_duckdb():
    columns = {
        "waits": pa.array([[1_000_001]], pa.list_(pa.duration("ns"))),
        "moods": pa.array([["sad"]]).cast(pa.list_(EnumType(["sad", "ok"]))),
        "sums": pa.array([[Decimal("1E+4")]], pa.list_(pa.decimal128(5, -2))),
        "weight": pa.array([1]),
    }
    name = f":memory:{new_table_name()}"
    with duckdb.connect(name) as connection:
        SqlTarget(lambda: duckdb.connect(name)).write(ViewDelta("v", 0, pa.table(columns)))
        rows = connection.execute("SELECT waits, moods, sums FROM v").fetchall()
    assert rows == [([1_000_001], ["sad"], [Decimal(10_000)])]


def test_a_unique_index_of_duckdb_is_a_constraint():
    name = f":memory:{new_table_name()}"
    rows = pa.table({"a b": [1], "n": [2], "weight": [1]})
    with duckdb.connect(name) as connection:
        connection.execute('CREATE TABLE v ("a b" BIGINT, n BIGINT)')
        connection.execute("CREATE UNIQUE INDEX i ON v((n + 1))")
        target = SqlTarget(lambda: duckdb.connect(name))
        with pytest.raises(TargetError, match=r"no unique constraint on \(a b\)"):
            target.check(ViewDelta("v", 0, rows, "upsert", ("a b",)))
        connection.execute('CREATE UNIQUE INDEX j ON v("a b")')
        target.check(ViewDelta("v", 0, rows, "upsert", ("a b",)))
        for batch_id in (0, 1):
            target.write(ViewDelta("v", batch_id, rows, "upsert", ("a b",)))
        assert connection.execute("SELECT * FROM v").fetchall() == [(1, 2)]
