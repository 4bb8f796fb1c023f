"""SqlTarget while its database is not available: retries and error messages."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections import Counter

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from streaming import ViewSink
from streaming.errors import TargetError
from streaming.redaction import redact
from streaming.targets.retry import Retry, RetryAttempts
from streaming.targets.sql import SqlTarget
from streaming.targets.target import ViewDelta
from tests.generators.view_histories import table_of
from tests.streaming.sink.test_view_sink import Frame
from tests.support.databases import new_table_name
from tests.support.tables import EDGE, edges

AT_ONCE = Retry(max_attempts=3, first_pause_seconds=0)
ROW_1 = table_of([((1, "a", 0.5), 1)])
ROW_2 = table_of([((2, "b", 1.5), 1)])
PASSWORD = "hunter2"


@pytest.fixture
def plan_outage(database):
    """Make the given call fail, before or after its effect, like a lost server."""
    if database.name == "sqlite":
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        make_error = lambda *_: error  # noqa: E731
    elif database.name == "duckdb":
        make_error = lambda *_: duckdb.IOException("Could not set lock on file")  # noqa: E731
    else:
        from psycopg import errors

        make_error = lambda *_: errors.AdminShutdown("terminating connection")  # noqa: E731

    def plan(call: int, *, after: bool) -> None:
        database.faults.plan(call, after=after, error=make_error)

    return plan


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_an_outage_at_any_call_stores_each_micro_batch_once(database, plan_outage, mode):
    keys = ("k",) if mode == "upsert" else ()
    columns = "k, s, x" if mode == "upsert" else "k, s, x, weight"
    for call, after in itertools.product(range(9), (False, True)):
        table = new_table_name()
        target = SqlTarget(database.connect, table, retry=AT_ONCE)
        target.write(ViewDelta("v", 0, ROW_1, mode, keys))
        plan_outage(call, after=after)
        target.write(ViewDelta("v", 1, ROW_2, mode, keys))
        database.faults.plan(None)
        target.write(ViewDelta("v", 1, ROW_2, mode, keys))  # as after a restart of Spark

        rows = Counter(row[:3] for row in database.rows(f'SELECT {columns} FROM "{table}"'))
        expected = [(2, "b", 1.5)] + [(1, "a", 0.5)] * (mode != "complete")
        assert rows == Counter(expected), (call, after)
        target.close()


def test_an_outage_at_any_call_stores_the_first_micro_batch_once(database, plan_outage):
    for call, after in itertools.product(range(9), (False, True)):
        table = new_table_name()
        target = SqlTarget(database.connect, table, batches=f"b_{table}", retry=AT_ONCE)
        plan_outage(call, after=after)
        target.write(ViewDelta("v", 0, ROW_1))
        database.faults.plan(None)
        assert database.rows(f'SELECT count(*) FROM "{table}"') == [(1,)], (call, after)
        target.close()


def test_a_permanent_error_is_not_retried(database):
    table, opened = new_table_name(), []

    def connect():
        opened.append(database.connect())
        return opened[-1]

    database.run(f"CREATE TABLE {table} (k BIGINT, s TEXT, x REAL, CHECK (k > 1), UNIQUE (k))")
    target = SqlTarget(connect, table, retry=AT_ONCE)
    with pytest.raises(TargetError, match="refused to write it to table") as raised:
        target.write(ViewDelta("v", 0, ROW_1, "upsert", ("k",)))
    assert len(opened) == 1
    assert "none of its rows is in the table" in str(raised.value)
    target.close()


def test_a_locked_sqlite_database_is_retried_and_its_file_named(tmp_path, caplog):
    path = str(tmp_path / "shop.db")
    connect = lambda: sqlite3.connect(path, timeout=0)  # noqa: E731
    target = SqlTarget(connect, "t", retry=Retry(max_attempts=2, first_pause_seconds=0))
    target.write(ViewDelta("v", 0, ROW_1))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TargetError, match="locked; gave up after 2 attempts") as raised:
            target.write(ViewDelta("v", 1, ROW_2))
        assert f"SQLite at {path}" in str(raised.value)
        assert "attempt 2 of 2" in caplog.text

        retrying = SqlTarget(connect, "t", retry=Retry(first_pause_seconds=0.01))
        writing = threading.Thread(target=retrying.write, args=(ViewDelta("v", 1, ROW_2),))
        writing.start()
        other.execute("COMMIT")
        writing.join(60)
        assert not writing.is_alive()
        assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_a_duckdb_file_that_another_process_has_open_is_retried_and_named(tmp_path, caplog):
    path = str(tmp_path / "shop.duckdb")
    connect = lambda: duckdb.connect(path)  # noqa: E731
    target = SqlTarget(connect, "t", retry=Retry(2, first_pause_seconds=0), address=path)
    target.write(ViewDelta("v", 0, ROW_1))
    reader = f"import duckdb; c = duckdb.connect({path!r}, read_only=True); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{reader}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(TargetError, match="gave up after 2 attempts") as raised:
            target.write(ViewDelta("v", 1, ROW_2))
        assert f"DuckDB at {path}" in str(raised.value)
        assert "attempt 2 of 2" in caplog.text
        other.communicate(b"\n")
    target.write(ViewDelta("v", 1, ROW_2))

    with duckdb.connect(path, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_two_writers_of_one_duckdb_database_both_write_all(tmp_path):
    path = str(tmp_path / "shop.duckdb")
    errors = []

    def write(view):
        target = SqlTarget(lambda: duckdb.connect(path), retry=Retry(100, first_pause_seconds=0.01))
        try:
            for batch_id in range(20):
                target.write(ViewDelta(view, batch_id, ROW_1, state_id=view))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(view,)) for view in ("v", "w")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    with duckdb.connect(path) as connection:
        for view in ("v", "w"):
            rows = connection.execute(f"SELECT batch_id FROM {view} ORDER BY 1").fetchall()
            assert rows == [(batch_id,) for batch_id in range(20)]


def test_a_wait_for_the_database_can_be_interrupted():
    is_connecting = threading.Event()

    def connect():
        is_connecting.set()
        raise ConnectionRefusedError(111, "Connection refused")

    long_pauses = Retry(max_seconds=9000, first_pause_seconds=600, max_pause_seconds=600)
    target = SqlTarget(connect, "t", retry=long_pauses)
    failures = []

    def write():
        try:
            target.write(ViewDelta("v", 0, ROW_1))
        except TargetError as error:
            failures.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    assert is_connecting.wait(60)
    target.interrupt()
    writing.join(60)
    assert not writing.is_alive()
    assert "ConnectionRefusedError: Connection refused" in str(failures[0])
    assert "interrupted before the next attempt" in str(failures[0])
    assert "gave up" not in str(failures[0])


def test_a_restarted_server_gets_the_missed_rows(postgres_server, caplog):
    import psycopg

    server = postgres_server
    target = SqlTarget(
        lambda: psycopg.connect(server.address), "t", retry=Retry(first_pause_seconds=0.05)
    )
    target.write(ViewDelta("v", 0, ROW_1))
    server.stop()
    short = SqlTarget(lambda: psycopg.connect(server.address), "t", retry=AT_ONCE)
    with pytest.raises(TargetError, match=r"PostgreSQL at .*:5432, database postgres: .*gave up"):
        short.write(ViewDelta("v", 1, ROW_2))

    writing = threading.Thread(target=target.write, args=(ViewDelta("v", 1, ROW_2),))
    writing.start()
    server.start()
    writing.join(120)

    assert not writing.is_alive()
    assert ":5432, database postgres: AdminShutdown: " in caplog.text
    target.write(ViewDelta("v", 1, ROW_2))
    with psycopg.connect(server.address) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    target.close()
    short.close()


def test_a_refused_login_is_not_retried_and_its_password_not_shown(postgres):
    import psycopg

    opened = []

    def connect():
        opened.append(1)
        return psycopg.connect(postgres, user="nobody", password=PASSWORD)

    with pytest.raises(TargetError, match='role "nobody" does not exist') as raised:
        SqlTarget(connect, "t", retry=AT_ONCE).write(ViewDelta("v", 0, ROW_1))
    assert len(opened) == 1
    assert PASSWORD not in str(raised.value)


UNREACHABLE = [
    f"host=127.0.0.1 port=1 user=alice password={PASSWORD} dbname=shop",
    f"postgresql://alice:{PASSWORD}@127.0.0.1:1/shop",
    f"postgresql://alice:x@{PASSWORD}@127.0.0.1:1/shop",
    f"host=127.0.0.1 {PASSWORD} port=1",
    f"postgresql://alice:{PASSWORD}%zz@127.0.0.1:1/shop",
]


@pytest.mark.parametrize("dsn", UNREACHABLE)
def test_an_unreachable_server_is_named_and_its_password_is_not(dsn, caplog):
    psycopg = pytest.importorskip("psycopg")
    caplog.set_level(logging.DEBUG)
    target = SqlTarget(lambda: psycopg.connect(dsn), "t", retry=AT_ONCE)
    with pytest.raises(TargetError, match="it cannot be reached") as raised:
        target.write(ViewDelta("v", 0, ROW_1))
    text = str(raised.value)
    if dsn in UNREACHABLE[:2]:
        assert "PostgreSQL at 127.0.0.1:1, database shop" in text
        assert "Connection refused" in text and "gave up after 3 attempts" in text
    assert PASSWORD not in text + caplog.text
    assert raised.value.__suppress_context__ and raised.value.__cause__ is None


def test_an_error_from_no_known_driver_is_named_by_its_type_only():
    def failing():
        raise OSError(f"alice:{PASSWORD}@db.internal")

    with pytest.raises(TargetError, match="the database: it cannot be reached: OSError;") as raised:
        SqlTarget(failing, "t").write(ViewDelta("v", 0, ROW_1))
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("secret", [f"host=db password={PASSWORD}", ""])
def test_a_password_in_the_error_of_a_statement_is_not_in_the_traceback(tmp_path, secret):
    target = SqlTarget(lambda: sqlite3.connect(tmp_path / "t.db"), "t", retry=AT_ONCE)
    target.write(ViewDelta("v", 0, ROW_1))
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        refusal = f"SELECT RAISE(ABORT, 'no: {secret}')"
        connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON t BEGIN {refusal}; END")
    with pytest.raises(TargetError, match="refused to write it to table 't': Integrity") as raised:
        target.write(ViewDelta("v", 1, ROW_1))
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    # Without a secret, the traceback has the error of the driver.
    assert isinstance(raised.value.__cause__, sqlite3.Error) == (not secret)


@pytest.mark.parametrize("place", ["cause", "context", "note", "group", ""])
def test_a_password_in_an_error_below_that_of_a_statement_is_not_in_the_traceback(place):
    class FailingConnection(sqlite3.Connection):
        """A connection whose statements fail with an error that refers to others."""

        def cursor(self):
            secret = ValueError(f"host=db password={PASSWORD}")
            error = RuntimeError("no")
            if place == "note":
                error.add_note(str(secret))
            elif place == "group":
                error.__cause__ = ExceptionGroup("several", [secret])
            elif place == "context":
                error.__context__ = secret
            elif place == "cause":
                error.__cause__ = TypeError("no")
                error.__cause__.__cause__ = secret
            raise error

    connect = functools.partial(sqlite3.connect, ":memory:", factory=FailingConnection)
    target = SqlTarget(connect, "t", retry=AT_ONCE)
    with pytest.raises(TargetError, match="RuntimeError: no") as raised:
        target.write(ViewDelta("v", 0, ROW_1))
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    assert isinstance(raised.value.__cause__, RuntimeError) == (not place)


def test_a_password_is_neither_in_the_state_nor_in_explain(tmp_path, caplog):
    psycopg = pytest.importorskip("psycopg")
    caplog.set_level(logging.DEBUG)
    views = compile_sql("CREATE VIEW v AS SELECT src FROM e", {"e": EDGE})
    target = SqlTarget(lambda: psycopg.connect(UNREACHABLE[0]), retry=AT_ONCE)
    sink = ViewSink(views, target, state_dir=tmp_path)
    with pytest.raises(TargetError, match="gave up"):
        sink(Frame(edges((1, 2))), 0)
    sink.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"SELECT" in written or len(written) > 1000
    assert PASSWORD.encode() not in written
    assert PASSWORD not in sink.explain() + repr(target) + repr(sink.metrics) + caplog.text


@given(
    max_attempts=st.integers(1, 30),
    max_seconds=st.floats(0, 100),
    first_pause=st.floats(0, 5),
    max_pause=st.floats(0, 20),
    random_value=st.floats(0, 1),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_attempts_and_pauses_keep_within_their_bounds(
    max_attempts, max_seconds, first_pause, max_pause, random_value
):
    retry = Retry(max_attempts, max_seconds, first_pause, max_pause)
    now = [0.0]
    attempts = RetryAttempts(retry, clock=lambda: now[0], chance=lambda: random_value)
    pauses = []
    while (pause := attempts.next_pause()) is not None:
        pauses.append(pause)
        now[0] += pause
    assert attempts.count == len(pauses) + 1 <= max_attempts
    assert all(0 <= pause <= max_pause for pause in pauses)
    assert pauses == sorted(pauses)
    assert sum(pauses) <= max_seconds + 1e-6
    next_end = now[0] + retry.pause(attempts.count, random_value)
    assert attempts.count == max_attempts or next_end > max_seconds - 1e-6


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"max_seconds": -1}, {"max_pause_seconds": float("inf")}]
)
def test_invalid_bounds_of_retries_are_refused(options):
    with pytest.raises(TargetError, match="give"):
        Retry(**options)


@given(
    password=st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=6),
)
@settings(max_examples=60)
def test_a_quoted_password_never_remains_in_a_message(password):
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    text = redact(f"no: host=db password='{quoted}' dbname=shop, next")
    assert text == "no: host=db password=*** dbname=shop, next"
