"""DeltaTarget on real Delta tables, also when a call of deltalake fails."""

from __future__ import annotations

import datetime
import itertools
import pickle
import shutil
import sys
import threading
from collections import Counter
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.errors import TargetError
from streaming.targets.delta import DeltaTarget
from streaming.targets.target import ViewDelta
from tests.generators.view_histories import SCHEMA, counted, histories, table_of
from tests.support.databases import Crash

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")

HISTORIES = st.sampled_from(["delta", "upsert", "complete"]).flatmap(histories)
LAW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
TABLE_NUMBERS = itertools.count()
ROW_1 = table_of([((1, "a", 0.5), 1)])


@pytest.fixture
def new_path(tmp_path):
    return lambda: str(tmp_path / f"t{next(TABLE_NUMBERS)}")


def read(path):
    return deltalake.DeltaTable(path).to_pyarrow_table()


def contents(path, mode):
    """Return the rows of a table with their weights."""
    if mode == "upsert":
        assert read(path).column_names == SCHEMA.names
    return counted(read(path), None if mode == "upsert" else "weight")


@given(history=HISTORIES, write_counts=st.lists(st.integers(1, 3), min_size=6, max_size=6))
@LAW
def test_each_micro_batch_is_stored_once_however_often_it_is_written(
    new_path, history, write_counts
):
    path, kept = new_path(), DeltaTarget(new_path())
    for delta, content, times in zip(history.deltas, history.contents, write_counts, strict=False):
        for _ in range(times):
            DeltaTarget(path).write(delta)
            kept.write(delta)
        assert contents(path, history.mode) == contents(kept.path, history.mode) == content


OTHER_COMMITS = st.sampled_from(["", "optimize", "checkpoint", "property", "commit"])


@given(history=HISTORIES, commits=st.lists(OTHER_COMMITS, min_size=6, max_size=6))
@settings(LAW, max_examples=20)
def test_a_target_that_stays_open_sees_the_commits_of_others(new_path, history, commits):
    path = new_path()
    target = DeltaTarget(path)
    for delta, content, other in zip(history.deltas, history.contents, commits, strict=False):
        if other == "commit":  # another process has written this micro-batch
            DeltaTarget(path).write(delta)
        target.write(delta)
        assert contents(path, history.mode) == content
        table = deltalake.DeltaTable(path)
        if other == "optimize":
            table.optimize.compact()
        elif other == "checkpoint":
            table.create_checkpoint()
        elif other == "property":
            table.alter.set_table_properties({"delta.appendOnly": "false"})


def count_opened(monkeypatch):
    """Return a list that grows with each table that is opened."""
    opened = []
    original = deltalake.DeltaTable.__init__

    def init(*args, **kwargs):
        opened.append(args)
        original(*args, **kwargs)

    monkeypatch.setattr(deltalake.DeltaTable, "__init__", init)
    return opened


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_a_table_is_opened_once_for_all_micro_batches(new_path, mode, monkeypatch):
    target, opened = DeltaTarget(new_path()), count_opened(monkeypatch)
    keys = ("k",) if mode == "upsert" else ()
    target.write(ViewDelta("v", 0, ROW_1, mode, keys))
    first = len(opened)
    for batch_id in range(1, 5):
        target.write(ViewDelta("v", batch_id, ROW_1, mode, keys))
    assert len(opened) == first


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_table_that_was_removed_meanwhile_is_opened_again(new_path, is_created_again):
    path = new_path()
    target = DeltaTarget(path)
    for batch_id in range(2):
        target.write(ViewDelta("v", batch_id, ROW_1))
    shutil.rmtree(path)
    if is_created_again:
        for batch_id in range(4):
            DeltaTarget(path).write(ViewDelta("v", batch_id, ROW_1))
        target.write(ViewDelta("v", 4, ROW_1))
        assert read(path).num_rows == 5
    else:
        target.write(ViewDelta("v", 0, ROW_1))
        assert read(path).num_rows == 1


def test_a_write_that_fails_leaves_no_open_table(new_path, monkeypatch):
    path = new_path()
    target = DeltaTarget(path)
    target.write(ViewDelta("v", 0, ROW_1))
    with mock.patch("deltalake.write_deltalake", side_effect=Crash), pytest.raises(Crash):
        target.write(ViewDelta("v", 1, ROW_1))
    opened = count_opened(monkeypatch)
    target.write(ViewDelta("v", 1, ROW_1))
    assert len(opened) == 1
    assert read(path).num_rows == 2


def test_a_copy_of_a_target_opens_its_tables_itself(new_path):
    path = new_path()
    target = DeltaTarget(path)
    target.write(ViewDelta("v", 0, ROW_1))
    pickle.loads(pickle.dumps(target)).write(ViewDelta("v", 1, ROW_1))
    target.write(ViewDelta("v", 2, ROW_1))
    assert read(path).num_rows == 3


CALLS = {
    "open": "deltalake.DeltaTable.__init__",
    "create": "deltalake.DeltaTable.create",
    "write": "deltalake.write_deltalake",
    "merge": "deltalake.table.TableMerger.execute",
    "version": "deltalake.DeltaTable.transaction_version",
}
# A call, and if it fails after its effect instead of before.
FAULT = st.none() | st.tuples(st.sampled_from(sorted(CALLS)), st.booleans())


@given(history=HISTORIES, faults=st.lists(FAULT, min_size=6, max_size=6))
@settings(LAW, max_examples=60)
def test_a_micro_batch_written_again_after_a_crash_is_stored_once(new_path, history, faults):
    path = new_path()
    for delta, content, fault in zip(history.deltas, history.contents, faults, strict=False):
        try:
            if fault is None:
                DeltaTarget(path).write(delta)
            else:
                with mock.patch(CALLS[fault[0]], crashing(CALLS[fault[0]], after=fault[1])):
                    DeltaTarget(path).write(delta)
        except Crash:
            DeltaTarget(path).write(delta)
        assert contents(path, history.mode) == content


def crashing(name, *, after):
    """Return a replacement of a function of deltalake that crashes before or after its effect."""
    module, _, function = name.rpartition(".")
    owner = deltalake
    for part in module.split(".")[1:]:
        owner = getattr(owner, part)
    original = getattr(owner, function)

    def call(*args, **kwargs):
        if after:
            original(*args, **kwargs)
        raise Crash

    return call


def test_the_log_names_the_micro_batch(new_path):
    path = new_path()
    for batch_id in (0, 1, 1):
        DeltaTarget(path).write(ViewDelta("v", batch_id, ROW_1, state_id="s"))

    table = deltalake.DeltaTable(path)

    assert table.transaction_version("s/v") == 1
    assert table.version() == 2  # version 0 is the empty table


def test_a_commit_that_conflicts_with_another_writer_is_retried(new_path):
    path = new_path()
    target = DeltaTarget(path)
    target.write(ViewDelta("v", 0, ROW_1, "upsert", ("k",)))
    original = deltalake.table.TableMerger.execute
    calls = []

    def execute(merger):
        calls.append(merger)
        if len(calls) < 3:
            raise deltalake.exceptions.CommitFailedError("a conflicting commit")
        return original(merger)

    with mock.patch("deltalake.table.TableMerger.execute", execute):
        target.write(ViewDelta("v", 1, table_of([((1, "b", 0.5), 1)]), "upsert", ("k",)))
    assert read(path).column("s").to_pylist() == ["b"]

    with (
        mock.patch("deltalake.table.TableMerger.execute", side_effect=calls.clear) as execute,
        mock.patch("time.sleep"),
        pytest.raises(TargetError, match=r"6 commits .* failed"),
    ):
        execute.side_effect = deltalake.exceptions.CommitFailedError("again")
        target.write(ViewDelta("v", 2, ROW_1, "upsert", ("k",)))


def test_many_writers_of_one_micro_batch_commit_it_once(new_path):
    path = new_path()
    DeltaTarget(path).write(ViewDelta("v", 0, ROW_1))
    threads = [
        threading.Thread(target=DeltaTarget(path).write, args=(ViewDelta("v", 1, ROW_1),))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read(path).num_rows == 2


@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_rows_of_another_state_directory_are_refused(new_path, mode):
    path, keys = new_path(), ("k",) if mode == "upsert" else ()
    DeltaTarget(path).write(ViewDelta("v", 0, ROW_1, mode, keys, "one"))

    with pytest.raises(TargetError, match="are not from view 'v'"):
        DeltaTarget(path).write(ViewDelta("v", 0, ROW_1, mode, keys, "two"))
    assert contents(path, mode) == Counter({(1, "a", 0.5): 1})


NAMES = ["a b", "tick`s", 'qu"ote', "do.ts", "Größe", "source", "Select", "it's"]


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_names_with_special_characters_are_quoted(new_path, mode):
    path = f"{new_path()}/{{view}}"
    columns = {name: [number, None] for number, name in enumerate(NAMES)}
    rows = pa.table({**columns, "weight": [1, 1]})
    keys = tuple(NAMES[:4]) if mode == "upsert" else ()
    for batch_id in (0, 1):
        DeltaTarget(path).write(ViewDelta("a view", batch_id, rows, mode, keys))

    table = read(path.replace("{view}", "a view"))

    assert table.column_names[: len(NAMES)] == NAMES
    assert table.num_rows == (4 if mode == "delta" else 2)


# Type, value, value that the Delta table has
VALUES = [
    (pa.uint8(), 255, 255),
    (pa.uint16(), 2**16 - 1, 2**16 - 1),
    (pa.uint32(), 2**32 - 1, 2**32 - 1),
    (pa.uint64(), 2**64 - 2, Decimal(2**64 - 2)),
    (pa.int8(), -128, -128),
    (pa.bool_(), True, True),
    (pa.float16(), 0.5, 0.5),
    (pa.float64(), float("inf"), float("inf")),
    (pa.decimal32(5, 2), Decimal("1.50"), Decimal("1.50")),
    (pa.decimal64(18, 0), Decimal(10**17), Decimal(10**17)),
    (pa.decimal256(60, 2), Decimal("1.25"), Decimal("1.25")),
    (pa.decimal256(60, 2), Decimal(10**50), TargetError),
    (pa.decimal128(5, -2), Decimal("1E+4"), Decimal(10000)),
    (pa.large_string(), "é", "é"),
    (pa.string_view(), "view", "view"),
    (pa.dictionary(pa.int8(), pa.string()), "word", "word"),
    (pa.binary_view(), b"\0", b"\0"),
    (pa.binary(2), b"\0\1", b"\0\1"),
    (pa.date64(), datetime.date(2024, 2, 29), datetime.date(2024, 2, 29)),
    (pa.time64("us"), datetime.time(1, 2, 3, 4), "01:02:03.000004"),
    (pa.duration("us"), datetime.timedelta(microseconds=-5), -5),
    (pa.timestamp("s"), 10**9, datetime.datetime(2001, 9, 9, 1, 46, 40)),
    (pa.timestamp("ns"), 10**18, datetime.datetime(2001, 9, 9, 1, 46, 40)),
    (pa.timestamp("ns"), 10**18 + 1, TargetError),
    (pa.timestamp("s"), 2**60, TargetError),
    (pa.timestamp("us", "Europe/Vienna"), 10**15,
     datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC)),
    (pa.null(), None, None),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
@pytest.mark.parametrize(("type_", "value", "expected"), VALUES, ids=lambda value: str(value)[:30])
def test_values_of_every_type_are_written(new_path, mode, type_, value, expected):
    if pa.types.is_timestamp(type_):
        column = pa.array([value], pa.int64()).view(type_)
    elif pa.types.is_dictionary(type_):
        column = pa.array([value]).dictionary_encode().cast(type_)
    else:
        column = (
            pa.array([value]).cast(type_) if type_ == pa.float16() else pa.array([value], type_)
        )
    rows = pa.table({"key": column, "weight": [1]})
    path = new_path()
    delta = ViewDelta("v", 0, rows, mode, ("key",) if mode == "upsert" else ())
    if expected is TargetError:
        with pytest.raises(TargetError, match="column 'key'"):
            DeltaTarget(path).write(delta)
        return

    DeltaTarget(path).write(delta)

    assert read(path).column("key").to_pylist() == [expected]


def test_a_table_with_other_columns_is_refused_and_the_columns_named(new_path):
    path = new_path()
    deltalake.write_deltalake(path, pa.table({"other": pa.array([], pa.int64())}))

    with pytest.raises(TargetError, match="k, s, x, weight"):
        DeltaTarget(path).write(ViewDelta("v", 0, ROW_1))


# The type of the table, the type of the view, and if the first one contains all values of the other
TYPES = [
    (pa.int64(), pa.float64(), False),
    (pa.int64(), pa.int32(), True),
    (pa.int32(), pa.int64(), False),
    (pa.float32(), pa.float64(), False),
    (pa.float64(), pa.float32(), True),
    (pa.float64(), pa.int64(), False),
    (pa.float64(), pa.int32(), True),
    (pa.decimal128(19, 0), pa.int64(), True),
    (pa.decimal128(10, 2), pa.decimal128(10, 4), False),
    (pa.decimal128(12, 4), pa.decimal128(10, 2), True),
    (pa.int64(), pa.decimal128(19, 0), False),
    (pa.int64(), pa.decimal128(18, 0), True),
    (pa.int32(), pa.decimal128(10, 0), False),
    (pa.int16(), pa.decimal128(4, 0), True),
    (pa.int8(), pa.decimal128(3, 0), False),
    (pa.date32(), pa.timestamp("us"), False),
    (pa.timestamp("us"), pa.timestamp("us"), True),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris"), True),
    (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    (pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.timestamp("us")), False),
    (pa.string(), pa.int64(), True),
    (pa.int64(), pa.string(), False),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), False),
    (pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(pa.int64()), True),
    (pa.struct([("q", pa.float32())]), pa.struct([("q", pa.float64())]), False),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32()), True),
]


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
@pytest.mark.parametrize(("table_type", "view_type", "is_accepted"), TYPES, ids=str)
def test_a_table_whose_types_would_change_values_is_refused(
    new_path, mode, table_type, view_type, is_accepted
):
    path = new_path()
    names = ["k", "x"] if mode == "upsert" else ["k", "x", "weight"]
    column_types = {"k": pa.int64(), "x": table_type, "weight": pa.int64()}
    deltalake.write_deltalake(
        path, pa.schema([(name, column_types[name]) for name in names]).empty_table()
    )
    rows = pa.table({"k": [1], "x": pa.array([None], view_type), "weight": [1]})
    delta = ViewDelta("v", 0, rows, mode, ("k",) if mode == "upsert" else ())

    for use in (DeltaTarget(path).check, DeltaTarget(path).write):
        if is_accepted:
            use(delta)
        else:
            with pytest.raises(TargetError, match=r"column 'x' of Delta table .* and the view has"):
                use(delta)


def test_columns_that_differ_only_in_case_are_a_target_error(new_path):
    rows = pa.table({"a": [1], "A": [1], "weight": [1]})

    with pytest.raises(TargetError, match="case-insensitive"):
        DeltaTarget(new_path()).write(ViewDelta("v", 0, rows))


def test_a_missing_package_is_an_error_that_names_its_installation(new_path):
    with (
        mock.patch.dict(sys.modules, {"deltalake": None}),
        pytest.raises(TargetError, match=r"pip install \"dbsp-wcoj\[sinks\]\""),
    ):
        DeltaTarget(new_path()).write(ViewDelta("v", 0, ROW_1))


def test_the_repr_of_a_target_has_no_credentials_of_its_store():
    target = DeltaTarget("s3://me:hunter2@bucket/t", storage_options={"secret": "hunter2"})

    assert "hunter2" not in repr(target)
    assert pickle.loads(pickle.dumps(target)).storage_options == {"secret": "hunter2"}
