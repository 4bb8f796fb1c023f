"""SqlTarget while its database does not answer: what it retries, and the messages of errors."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sqlite3
import threading
from collections import Counter

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
ONE = table_of([((1, "a", 0.5), 1)])
TWO = table_of([((2, "b", 1.5), 1)])
PASSWORD = "hunter2"


@pytest.fixture
def lose(database):
    """Have a call fail with the driver's error of a lock or lost server, before or after it."""
    if database.name == "sqlite":
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        kind = lambda *_: error  # noqa: E731
    else:
        from psycopg import errors

        kind = lambda *_: errors.AdminShutdown("terminating connection")  # noqa: E731

    def plan(call: int, *, after: bool) -> None:
        database.faults.plan(call, after=after, error=kind)

    return plan


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_a_loss_at_any_call_before_or_after_it_writes_each_micro_batch_once(database, lose, mode):
    keys = ("k",) if mode == "upsert" else ()
    columns = "k, s, x" if mode == "upsert" else "k, s, x, weight"
    for call, after in itertools.product(range(9), (False, True)):
        table = new_table_name()
        target = SqlTarget(database.connect, table, retry=AT_ONCE)
        target.write(ViewDelta("v", 0, ONE, mode, keys))
        lose(call, after=after)
        target.write(ViewDelta("v", 1, TWO, mode, keys))
        database.faults.plan(None)
        target.write(ViewDelta("v", 1, TWO, mode, keys))  # as Spark does after a restart

        rows = Counter(row[:3] for row in database.rows(f'SELECT {columns} FROM "{table}"'))
        expected = [(2, "b", 1.5)] + [(1, "a", 0.5)] * (mode != "complete")
        assert rows == Counter(expected), (call, after)
        target.close()


def test_the_first_micro_batch_may_be_lost_while_it_commits(database, lose):
    for call, after in itertools.product(range(9), (False, True)):
        table = new_table_name()
        target = SqlTarget(database.connect, table, batches=f"b_{table}", retry=AT_ONCE)
        lose(call, after=after)
        target.write(ViewDelta("v", 0, ONE))
        database.faults.plan(None)
        assert database.rows(f'SELECT count(*) FROM "{table}"') == [(1,)], (call, after)
        target.close()


def test_an_error_that_time_does_not_mend_is_not_tried_again(database):
    table, opened = new_table_name(), []

    def connect():
        opened.append(database.connect())
        return opened[-1]

    database.run(f"CREATE TABLE {table} (k BIGINT, s TEXT, x REAL, CHECK (k > 1), UNIQUE (k))")
    target = SqlTarget(connect, table, retry=AT_ONCE)
    with pytest.raises(TargetError, match="refused to write it to table") as raised:
        target.write(ViewDelta("v", 0, ONE, "upsert", ("k",)))
    assert len(opened) == 1
    assert "none of its rows is in the table" in str(raised.value)
    target.close()


def test_a_locked_sqlite_is_waited_for_and_its_file_named(tmp_path, caplog):
    path = str(tmp_path / "shop.db")
    connect = lambda: sqlite3.connect(path, timeout=0)  # noqa: E731
    target = SqlTarget(connect, "t", retry=Retry(max_attempts=2, first_pause_seconds=0))
    target.write(ViewDelta("v", 0, ONE))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TargetError, match="locked; gave up after 2 attempts") as raised:
            target.write(ViewDelta("v", 1, TWO))
        assert f"SQLite at {path}" in str(raised.value)
        assert "attempt 2 of 2" in caplog.text

        patient = SqlTarget(connect, "t", retry=Retry(first_pause_seconds=0.01))
        writing = threading.Thread(target=patient.write, args=(ViewDelta("v", 1, TWO),))
        writing.start()
        other.execute("COMMIT")
        writing.join(60)
        assert not writing.is_alive()
        assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_a_wait_for_the_database_can_be_interrupted():
    waits = threading.Event()

    def connect():
        waits.set()
        raise ConnectionRefusedError(111, "Connection refused")

    slow = Retry(max_seconds=9000, first_pause_seconds=600, max_pause_seconds=600)
    target = SqlTarget(connect, "t", retry=slow)
    failures = []

    def write():
        try:
            target.write(ViewDelta("v", 0, ONE))
        except TargetError as error:
            failures.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    assert waits.wait(60)
    target.interrupt()
    writing.join(60)
    assert not writing.is_alive()
    assert "ConnectionRefusedError: Connection refused" in str(failures[0])


def test_a_restarted_server_gets_the_missed_rows(postgres_server, caplog):
    import psycopg

    server = postgres_server
    target = SqlTarget(
        lambda: psycopg.connect(server.address), "t", retry=Retry(first_pause_seconds=0.05)
    )
    target.write(ViewDelta("v", 0, ONE))
    server.stop()
    short = SqlTarget(lambda: psycopg.connect(server.address), "t", retry=AT_ONCE)
    with pytest.raises(TargetError, match=r"PostgreSQL at .*:5432, database postgres: .*gave up"):
        short.write(ViewDelta("v", 1, TWO))

    writing = threading.Thread(target=target.write, args=(ViewDelta("v", 1, TWO),))
    writing.start()
    server.start()
    writing.join(120)

    assert not writing.is_alive()
    assert ":5432, database postgres: AdminShutdown: " in caplog.text
    target.write(ViewDelta("v", 1, TWO))
    with psycopg.connect(server.address) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    target.close()
    short.close()


def test_a_password_that_is_wrong_is_not_retried_and_not_shown(postgres):
    import psycopg

    opened = []

    def nobody():
        opened.append(1)
        return psycopg.connect(postgres, user="nobody", password=PASSWORD)

    with pytest.raises(TargetError, match='role "nobody" does not exist') as raised:
        SqlTarget(nobody, "t", retry=AT_ONCE).write(ViewDelta("v", 0, ONE))
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
        target.write(ViewDelta("v", 0, ONE))
    text = str(raised.value)
    if dsn in UNREACHABLE[:2]:
        assert "PostgreSQL at 127.0.0.1:1, database shop" in text
        assert "Connection refused" in text and "gave up after 3 attempts" in text
    assert PASSWORD not in text + caplog.text
    assert raised.value.__suppress_context__ and raised.value.__cause__ is None


def test_an_error_of_no_driver_is_named_by_its_type_only():
    def failing():
        raise OSError(f"alice:{PASSWORD}@db.internal")

    with pytest.raises(TargetError, match="the database: it cannot be reached: OSError;") as raised:
        SqlTarget(failing, "t").write(ViewDelta("v", 0, ONE))
    assert PASSWORD not in str(raised.value)


def test_a_password_is_in_no_file_of_the_state_and_in_no_explanation(tmp_path, caplog):
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
    attempts=st.integers(1, 30),
    seconds=st.floats(0, 100),
    first=st.floats(0, 5),
    most=st.floats(0, 20),
    chance=st.floats(0, 1),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_attempts_and_pauses_keep_within_their_bounds(attempts, seconds, first, most, chance):
    retry = Retry(attempts, seconds, first, most)
    now = [0.0]
    created = RetryAttempts(retry, clock=lambda: now[0], chance=lambda: chance)
    pauses = []
    while (pause := created.next_pause()) is not None:
        pauses.append(pause)
        now[0] += pause
    assert created.count == len(pauses) + 1 <= attempts
    assert all(0 <= pause <= most for pause in pauses)
    assert pauses == sorted(pauses)
    assert sum(pauses) <= seconds + 1e-6
    assert created.count == attempts or now[0] + retry.pause(created.count, chance) > seconds - 1e-6


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"max_seconds": -1}, {"max_pause_seconds": float("inf")}]
)
def test_bounds_that_are_none_are_refused(wrong):
    with pytest.raises(TargetError, match="give"):
        Retry(**wrong)


@given(
    password=st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=6),
)
@settings(max_examples=60)
def test_a_quoted_password_never_remains_in_a_message(password):
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    text = redact(f"no: host=db password='{quoted}' dbname=shop, next")
    assert text == "no: host=db password=*** dbname=shop, next"
