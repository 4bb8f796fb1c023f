"""The changes of a view, for callbacks and async iterators."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from threading import Thread

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import MissingRowError
from dbsp_wcoj import WeightOverflowError
from streaming import Database, DatabaseError, StateError, StateLockedError
from streaming.database.subscriptions import MAX_WAITING_TABLES, ChangeStream
from tests.support.simulated_files import Fault, SimulatedDisk, SimulatedFiles

TEXT = """
    CREATE TABLE t (a INT);
    CREATE VIEW v AS SELECT a FROM t;
    CREATE VIEW big AS SELECT a FROM t WHERE a > 9;
"""


@pytest.fixture
def db():
    with Database(TEXT) as db:
        yield db


def test_a_callback_gets_the_changes_of_its_view_until_it_is_closed(db):
    seen = []
    subscription = db.subscribe("big", lambda changes: seen.append(changes.to_pylist()))
    db.insert("t", [{"a": 1}])
    db.insert("t", [{"a": 10}])
    subscription.close()
    subscription.close()
    db.insert("t", [{"a": 11}])
    assert seen == [[{"a": 10, "weight": 1}]]


def test_a_callback_can_begin_with_all_rows(db):
    db.insert("t", [{"a": 10}] * 2)
    seen = []
    with db.subscribe("big", lambda changes: seen.append(changes.to_pylist()), initial=True):
        db.delete("t", [{"a": 10}])
    assert seen == [[{"a": 10, "weight": 2}], [{"a": 10, "weight": -1}]]


def test_a_callback_that_subscribes_to_another_view_gets_each_change_once(db):
    seen, errors = [], []

    def callback(changes):
        if not seen:
            db.subscribe("big", lambda changes: seen.append(changes.to_pylist()), initial=True)
        try:
            db.insert("t", [{"a": 12}])
        except DatabaseError as error:
            errors.append(str(error))

    db.subscribe("v", callback)
    db.insert("t", [{"a": 10}])
    assert seen == [[{"a": 10, "weight": 1}]]
    assert len(errors) == 1
    db.insert("t", [{"a": 11}])
    assert seen[1:] == [[{"a": 11, "weight": 1}]]
    assert len(errors) == 2


def test_a_subscription_that_another_callback_closes_gets_nothing_more(db):
    seen = []
    db.subscribe("v", lambda changes: second.close())
    second = db.subscribe("big", seen.append)
    db.insert("t", [{"a": 10}])
    assert seen == []


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_step_whose_commit_raised_an_error_is_delivered_if_it_took_effect(when):
    for calls in range(60):
        disk = SimulatedDisk(calls)
        db = Database(TEXT, path=disk.files())
        first, second = Counter(), Counter()

        def subscribe(total, db=db):
            def add(changes):
                for row in changes.to_pylist():
                    total[row["a"]] += row["weight"]

            db.subscribe("v", add, initial=True)

        db.insert("t", [{"a": 1}])
        subscribe(first)
        disk.plan(Fault(calls, "error", when))
        with contextlib.suppress(StateError):
            db.insert("t", [{"a": 2}])
        has_struck = not disk.has_planned_fault
        disk.plan(None)
        subscribe(second)
        db.insert("t", [{"a": 3}])
        rows = Counter(row["a"] for row in db.view("v").to_pylist())
        assert first == second == rows
        db.close()
        if not has_struck:
            break
    else:
        pytest.fail("the step makes more than 60 calls")


class FilesWithoutLock(SimulatedFiles):
    """Files of a file system without locks, such as HDFS."""

    def lock(self) -> None:
        pass

    def unlock(self) -> None:
        pass


def collect(db, view="v"):
    """Return a counter to which a subscription adds the changes of a view."""
    total = Counter()

    def add(changes):
        for row in changes.to_pylist():
            total[row["a"]] += row["weight"]

    db.subscribe(view, add, initial=True)
    return total


@pytest.mark.parametrize("is_unconfirmed", [False, True])
def test_the_steps_of_another_process_are_delivered_when_the_directory_is_taken_back(
    is_unconfirmed, monkeypatch
):
    disk = SimulatedDisk(0)
    db = Database(TEXT, path=FilesWithoutLock(disk, 1))
    db.insert("t", [{"a": 1}])
    seen, expected = collect(db), {1, 2, 3, 4}
    if is_unconfirmed:
        sync = SimulatedFiles.sync_folder

        def fail(files, folder):
            if folder == "manifests":
                raise OSError("disk error")
            sync(files, folder)

        monkeypatch.setattr(SimulatedFiles, "sync_folder", fail)
        with pytest.raises(StateError, match="outcome"):
            db.insert("t", [{"a": 9}])
        monkeypatch.setattr(SimulatedFiles, "sync_folder", sync)
        expected |= {9}
    other = Database(path=FilesWithoutLock(disk, 2))
    other.insert("t", [{"a": 2}])
    if not is_unconfirmed:
        other.insert("t", [{"a": 3}])
        with pytest.raises(StateLockedError):
            db.insert("t", [{"a": 8}])
    expected -= {3} if is_unconfirmed else set()
    db.insert("t", [{"a": 4}])
    assert seen == Counter(expected) == Counter(row["a"] for row in db.view("v").to_pylist())
    with pytest.raises(StateLockedError):
        other.insert("t", [{"a": 8}])
    db.close()


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans()), max_size=10))
def test_subscriptions_of_two_processes_get_the_steps_of_both(steps):
    disk = SimulatedDisk(0)
    databases, totals = [], []
    for process in (1, 2):
        db = Database(TEXT, path=FilesWithoutLock(disk, process), keep=99)
        db.insert("t", [{"a": 0}])
        databases.append(db)
        totals.append(collect(db))

    def retry(change, *arguments):
        with contextlib.suppress(MissingRowError):
            try:
                change(*arguments)
            except StateLockedError:  # the other process has the directory
                change(*arguments)

    for process, a, is_insertion in steps:
        db = databases[process]
        retry(db.insert if is_insertion else db.delete, "t", [{"a": a}])
    for db, total in zip(databases, totals, strict=True):
        retry(db.apply, {})
        rows = Counter(row["a"] for row in db.view("v").to_pylist())
        assert +total == rows
        assert min(total.values()) >= 0
        db.close()


def test_subscriptions_end_with_an_error_if_steps_of_another_process_are_lost(caplog):
    disk = SimulatedDisk(0)
    db = Database(TEXT, path=FilesWithoutLock(disk, 1))
    db.insert("t", [{"a": 1}])
    seen, stream = collect(db), db.changes("v")
    other = Database(path=FilesWithoutLock(disk, 2))
    for number in range(2, 8):
        other.insert("t", [{"a": number}])
    with pytest.raises(StateLockedError):
        db.insert("t", [{"a": 8}])
    db.insert("t", [{"a": 8}])
    assert len(db.view("v")) == 8
    assert seen == {1: 1}
    assert "this subscription lacks changes and has ended" in caplog.text

    async def read():
        with pytest.raises(DatabaseError, match="subscribe again with initial=True"):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(read())
    again = collect(db)
    db.insert("t", [{"a": 9}])
    assert again == Counter(range(1, 10))
    db.close()


def test_a_view_that_two_processes_change_publishes_the_difference_to_the_second_one():
    disk = SimulatedDisk(0)
    db = Database(TEXT, path=FilesWithoutLock(disk, 1), keep=99)
    db.insert("t", [{"a": number} for number in range(6)])
    total = collect(db)
    other = Database(path=FilesWithoutLock(disk, 2), keep=99)
    other.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a < 4")
    with pytest.raises(StateLockedError):
        db.insert("t", [{"a": 7}])
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a > 1")
    assert sorted(row["a"] for row in db.view("v").to_pylist()) == [2, 3, 4, 5]
    assert +total == Counter({2: 1, 3: 1, 4: 1, 5: 1})
    db.close()
    other.close()


def test_an_interrupted_callback_leaves_the_others_their_changes(db):
    seen = []

    def interrupt(changes):
        raise KeyboardInterrupt

    db.subscribe("v", interrupt)
    db.subscribe("v", lambda changes: seen.append(changes.num_rows))
    db.subscribe("big", lambda changes: seen.append(changes.num_rows))
    with pytest.raises(KeyboardInterrupt):
        db.insert("t", [{"a": 10}])
    assert seen == [1, 1]


def test_a_view_that_another_thread_drops_has_no_subscription(db, monkeypatch):
    check, threads = Database._check_view, []

    def drop_after_the_check(self, view):
        check(self, view)
        threads.append(Thread(target=db.execute, args=("DROP VIEW big",)))
        threads[0].start()
        threads[0].join(0.5)  # it waits for the lock, which this thread has

    monkeypatch.setattr(Database, "_check_view", drop_after_the_check)
    db.subscribe("big", lambda changes: None)
    threads[0].join()
    assert "big" not in db.circuit.outputs
    assert "big" not in db._subscriptions


def test_an_error_of_a_callback_is_logged_and_the_others_are_called(db, caplog):
    seen = []
    db.subscribe("v", lambda changes: 1 / 0)
    db.subscribe("v", seen.append)
    db.insert("t", [{"a": 1}])
    assert len(seen) == 1
    assert db.version == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_can_read_but_not_change_the_database(db):
    seen = []

    def callback(changes):
        seen.append(len(db.view("v")))
        with pytest.raises(DatabaseError, match="callback"):
            db.insert("t", [{"a": 2}])
        with pytest.raises(DatabaseError, match="callback"), db.transaction():
            db.insert("t", [{"a": 2}])

    db.subscribe("v", callback)
    db.insert("t", [{"a": 1}])
    assert seen == [1]
    assert db.version == 1


def test_a_callback_can_end_its_subscription(db):
    seen = []

    def callback(changes):
        seen.append(changes)
        subscription.close()

    subscription = db.subscribe("v", callback)
    db.insert("t", [{"a": 1}])
    db.insert("t", [{"a": 2}])
    assert len(seen) == 1


def test_a_callback_that_closes_the_database_ends_all_subscriptions(db):
    calls = []
    db.subscribe("v", lambda changes: (calls.append("first"), db.close()))
    db.subscribe("v", lambda changes: calls.append("second"))
    db.insert("t", [{"a": 1}])
    assert calls == ["first"]
    with pytest.raises(DatabaseError):
        db.insert("t", [{"a": 2}])


def test_an_async_iterator_ends_when_the_database_is_closed(db):
    async def read():
        stream = db.changes("v", initial=True)
        thread = Thread(target=change)
        thread.start()
        seen = [row async for changes in stream for row in changes.to_pylist()]
        thread.join()
        return seen

    def change():
        for a in range(5):
            db.insert("t", [{"a": a}])
        db.close()

    db.insert("t", [{"a": 7}])
    seen = asyncio.run(read())
    assert sorted(row["a"] for row in seen) == [0, 1, 2, 3, 4, 7]


def test_a_slow_reader_gets_the_sum_of_the_changes(db):
    stream = db.changes("v")
    for _ in range(3 * MAX_WAITING_TABLES):
        db.insert("t", [{"a": 1}])
        assert stream.waiting < MAX_WAITING_TABLES
    db.insert("t", [{"a": 2}])
    db.delete("t", [{"a": 2}])

    async def read():
        changes = await anext(stream)
        stream.close()
        return changes, [changes async for changes in stream]

    changes, rest = asyncio.run(read())
    assert changes.to_pylist() == [{"a": 1, "weight": 3 * MAX_WAITING_TABLES}]
    assert rest == []


@pytest.mark.parametrize("count", [2, 3 * MAX_WAITING_TABLES])
def test_changes_that_cannot_be_added_up_end_the_iterator_with_the_error(count):
    closed = []
    stream = ChangeStream("v", lambda: closed.append(True))
    for _ in range(count):
        if not closed:  # `close` removes the stream from the database
            stream.put(pa.table({"a": [1], "weight": [2**62]}))
        assert stream.waiting < MAX_WAITING_TABLES

    async def read():
        with pytest.raises(WeightOverflowError):
            await anext(stream)
        return [changes async for changes in stream]

    assert asyncio.run(read()) == []
    assert closed == [True]


def test_changes_that_cancel_are_no_item(db):
    stream = db.changes("v")
    db.insert("t", [{"a": 2}])
    db.delete("t", [{"a": 2}])
    db.insert("t", [{"a": 3}])
    db.close()

    async def read():
        return [row async for changes in stream for row in changes.to_pylist()]

    assert asyncio.run(read()) == [{"a": 3, "weight": 1}]


def test_closing_one_iterator_leaves_the_other(db):
    first, second = db.changes("v"), db.changes("v")
    first.close()
    db.insert("t", [{"a": 1}])

    async def read():
        ended = [changes async for changes in first]
        changes = await anext(second)
        await second.aclose()
        return ended, changes.num_rows

    assert asyncio.run(read()) == ([], 1)
