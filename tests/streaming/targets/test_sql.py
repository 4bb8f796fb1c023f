"""SqlTarget on SQLite and on a real PostgreSQL server, with the connection failing at any call."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sqlite3
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.errors import TargetError
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
ONE = table_of([((1, "a", 0.5), 1)])


def back(row):
    """A row as it comes from the database; SQLite has NaN as text."""
    return canonical(float("nan") if value == "NaN" else value for value in row)


def contents(database, table, mode):
    if mode == "upsert":
        return Counter(back(row) for row in database.rows(f'SELECT k, s, x FROM "{table}"'))
    counts = Counter()
    for *row, weight in database.rows(f'SELECT k, s, x, weight FROM "{table}"'):
        counts[back(row)] += weight
    return Counter({row: weight for row, weight in counts.items() if weight})


@given(history=HISTORIES, again=st.lists(st.integers(1, 3), min_size=6, max_size=6))
@LAW
def test_a_table_holds_each_micro_batch_once_however_often_it_is_written(database, history, again):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    for delta, content, times in zip(history.deltas, history.contents, again, strict=False):
        for _ in range(times):
            target.write(delta)
        assert contents(database, table, history.mode) == content
    target.close()
    if history.mode == "delta" and history.deltas:
        result = database.rows(f'SELECT batch_id, k, s, x, weight FROM "{table}"')
        log = {(row[0], *back(row[1:-1])): row[-1] for row in result}
        assert log == history.contents_by_batch
        assert len(log) == len(result)


@given(
    history=HISTORIES,
    faults=st.lists(st.none() | st.integers(0, 9), min_size=6, max_size=6),
    after=st.booleans(),
)
@settings(LAW, max_examples=80)
def test_a_crash_at_any_call_and_the_same_micro_batch_again_leave_it_there_once(
    database, history, faults, after
):
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    before = None
    for delta, content, fault in zip(history.deltas, history.contents, faults, strict=False):
        database.faults.plan(fault, after=after)
        try:
            target.write(delta)
        except Crash:
            if before is not None:  # the table is there
                assert contents(database, table, history.mode) in (before, content)
            database.faults.plan(None)
            target = SqlTarget(database.connect, table)  # another process
            target.write(delta)
        assert contents(database, table, history.mode) == content
        before = content
    target.close()


def test_an_error_at_any_call_leaves_the_table_as_it_was(database):
    for mode, calls in itertools.product(("delta", "upsert", "complete"), range(8)):
        table, keys = new_table_name(), ("k",) if mode == "upsert" else ()
        target = SqlTarget(database.connect, table)
        target.write(ViewDelta("v", 0, ONE, mode, keys))
        database.faults.plan(calls, error=ValueError)
        second = ViewDelta("v", 1, table_of([((2, "b", 1.5), 1)]), mode, keys)
        with contextlib.suppress(TargetError):
            target.write(second)
            assert calls > 5
        failed = database.faults.left == -1 or calls <= 5
        database.faults.plan(None)
        if failed and calls < 5:
            assert contents(database, table, mode) == Counter({(1, "a", 0.5): 1})
        target.write(second)
        assert contents(database, table, mode)[(2, "b", 1.5)] == 1
        assert contents(database, table, mode)[(1, "a", 0.5)] == (mode != "complete")
        target.close()


def test_a_connection_that_died_is_opened_again_and_not_for_ever(database):
    table = new_table_name()
    opened = []

    def connect():
        opened.append(database.connect())
        if 1 < len(opened) < limit:
            opened[-1].close()
        return opened[-1]

    target = SqlTarget(connect, table, retry=Retry(max_attempts=3, first_pause_seconds=0))
    limit = 0
    target.write(ViewDelta("v", 0, ONE))
    opened[-1].close()
    target.write(ViewDelta("v", 1, ONE))
    assert contents(database, table, "delta") == Counter({(1, "a", 0.5): 2})

    limit = 99
    opened[-1].close()
    before = len(opened)
    with pytest.raises(TargetError, match="gave up after 3 attempts in 0 s; none of its rows"):
        target.write(ViewDelta("v", 2, ONE))
    assert len(opened) - before in (2, 3)  # SQLite keeps no connection
    target.close()


def test_a_server_that_ended_the_session_is_recomputed(postgres):
    import psycopg

    table = new_table_name()
    target = SqlTarget(lambda: psycopg.connect(postgres), table)
    target.write(ViewDelta("v", 0, ONE))
    with psycopg.connect(postgres) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )

    target.write(ViewDelta("v", 1, ONE))

    with psycopg.connect(postgres) as other:
        assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)
    target.close()


def test_two_writers_of_one_micro_batch_apply_it_once(postgres):
    import threading

    import psycopg

    table = new_table_name()
    first = SqlTarget(lambda: psycopg.connect(postgres), table)
    first.write(ViewDelta("v", 0, ONE))
    first.close()
    targets = [SqlTarget(lambda: psycopg.connect(postgres), table) for _ in range(4)]
    threads = [
        threading.Thread(target=target.write, args=(ViewDelta("v", 1, ONE),)) for target in targets
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
def test_names_of_all_kinds_are_quoted(database, mode):
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
    (count,) = database.rows(f'SELECT count(*) FROM "{quoted}"')[0]
    assert count == (4 if mode == "delta" else 2)


def test_a_schema_may_be_given(database):
    schema = "main" if database.name == "sqlite" else "public"
    table = new_table_name()
    target = SqlTarget(database.connect, table, schema=schema)

    for batch_id in (0, 1, 1):
        target.write(ViewDelta("v", batch_id, ONE))
    target.close()

    assert database.rows(f"SELECT count(*) FROM {schema}.{table}") == [(2,)]


def test_one_view_may_go_to_several_tables_and_several_views_to_one_database(database):
    suffix = new_table_name()
    targets = [SqlTarget(database.connect, f"{{view}}_{kind}_{suffix}") for kind in ("a", "b")]
    for target in targets:
        for view in ("v", "w"):
            target.write(ViewDelta(view, 0, ONE))
            assert len(database.rows(f'SELECT * FROM "{target.name_for(view)}"')) == 1
        target.close()


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_rows_of_another_state_directory_are_not_mixed_with(database, mode):
    table, keys = new_table_name(), ("k",) if mode == "upsert" else ()
    target = SqlTarget(database.connect, table)
    target.write(ViewDelta("v", 0, ONE, mode, keys, "one"))

    with pytest.raises(TargetError, match="are not from view 'v' of this state directory"):
        target.write(ViewDelta("v", 0, ONE, mode, keys, "two"))
    target.close()
    assert contents(database, table, mode) == Counter({(1, "a", 0.5): 1})


def test_the_table_may_be_the_users_own(database):
    table = new_table_name()
    database.run(
        f"CREATE TABLE {table} (k BIGINT PRIMARY KEY, s TEXT, x REAL, note TEXT DEFAULT 'n')"
    )
    target = SqlTarget(database.connect, table)

    target.write(ViewDelta("v", 0, ONE, "upsert", ("k",)))
    target.write(ViewDelta("v", 1, table_of([((1, "b", 0.5), 1)]), "upsert", ("k",)))
    target.close()

    assert database.rows(f"SELECT * FROM {table}") == [(1, "b", 0.5, "n")]


def test_a_table_that_does_not_fit_is_an_error_and_can_be_mended(database):
    table = new_table_name()
    database.run(f"CREATE TABLE {table} (k BIGINT)")
    target = SqlTarget(database.connect, table)

    with pytest.raises(TargetError, match=f"to table '{table}'.*unique constraint"):
        target.write(ViewDelta("v", 0, ONE, "upsert", ("k",)))
    database.run(f"DROP TABLE {table}")
    target.write(ViewDelta("v", 0, ONE, "upsert", ("k",)))
    target.close()
    assert contents(database, table, "upsert") == Counter({(1, "a", 0.5): 1})


def test_a_target_can_be_pickled_with_its_connection_open(tmp_path):
    target = SqlTarget(_Connect(str(tmp_path / "t.db")))
    target.write(ViewDelta("v", 0, ONE))

    pickle.loads(pickle.dumps(target)).write(ViewDelta("v", 1, ONE))

    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert connection.execute("SELECT count(*) FROM v").fetchone() == (2,)


class _Connect:
    def __init__(self, path):
        self.path = path

    def __call__(self):
        return sqlite3.connect(self.path)


def test_a_connection_of_another_driver_is_refused():
    class Foreign:
        def close(self): ...

    with pytest.raises(TargetError, match="supported are sqlite3, psycopg"):
        SqlTarget(Foreign, "t").write(ViewDelta("v", 0, ONE))


def test_columns_that_the_log_adds_are_refused(tmp_path):
    delta = ViewDelta("v", 0, pa.table({"row_number": [1], "weight": [1]}))

    with pytest.raises(TargetError, match="'row_number'"):
        SqlTarget(_Connect(str(tmp_path / "t.db"))).write(delta)


def test_many_upserts_and_tombstones_are_applied_like_few(database):
    columns = {"nr": pa.int64(), "s": pa.string(), "per%cent": pa.float64(), "weight": pa.int64()}
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    random = np.random.default_rng(3)
    view = {}
    for batch_id in range(6):
        size = (3000, 2000, 10, 1200)[batch_id % 4]
        keys = {(int(n) if n % 50 else None, f"s{n % 7}") for n in random.integers(0, 3000, size)}
        rows = [(*key, random.random(), -1 if random.random() < 0.4 else 1) for key in keys]
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
