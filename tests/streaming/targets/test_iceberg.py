"""IcebergTarget on real tables of a catalog in SQLite, also when a call of pyiceberg fails."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import pickle
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
from streaming.targets import iceberg
from streaming.targets.iceberg import IcebergTarget
from streaming.targets.target import NO_BATCH, ViewDelta
from tests.generators.view_histories import KEYS, SCHEMA, counted, histories, table_of
from tests.support.databases import Crash

pyiceberg = pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install -e '.[iceberg]'")

HISTORIES = st.sampled_from(["delta", "upsert", "complete"]).flatmap(histories)
LAW = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
TABLE_NUMBERS = itertools.count()
ROW_1 = table_of([((1, "a", 0.5), 1)])


@pytest.fixture
def catalog(tmp_path):
    """Properties of a catalog in a file."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }


def new_name():
    return f"shop.t{next(TABLE_NUMBERS)}"


def load(catalog, name):
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **catalog).load_table(name)


def read(catalog, name):
    return load(catalog, name).scan().to_arrow()


def contents(catalog, name, mode):
    """Return the rows of a table with their weights."""
    table = read(catalog, name)
    if mode == "upsert":
        assert table.column_names == SCHEMA.names
    return counted(table, None if mode == "upsert" else "weight")


@given(history=HISTORIES, write_counts=st.lists(st.integers(1, 2), min_size=6, max_size=6))
@LAW
def test_each_micro_batch_is_stored_once_however_often_it_is_written(
    catalog, history, write_counts
):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    for delta, content, times in zip(history.deltas, history.contents, write_counts, strict=False):
        for _ in range(times):
            target.write(delta)
        assert contents(catalog, name, history.mode) == content


def test_other_rows_with_null_in_their_keys_stay(catalog):
    """Another row's key makes a condition NULL for them, for which pyiceberg deletes rows."""
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    rows = [(None, None, 0.5), (None, "a", 1.5), (1, "a", 2.5), (2, None, 3.5)]
    target.write(ViewDelta("v", 0, table_of([(row, 1) for row in rows]), "upsert", KEYS))
    for batch_id, gone in enumerate([rows[0], rows[2], rows[3]], 1):
        target.write(ViewDelta("v", batch_id, table_of([(gone, -1)]), "upsert", KEYS))
        rows.remove(gone)
        assert contents(catalog, name, "upsert") == Counter(rows)


@given(history=histories("upsert"))
@LAW
def test_many_changed_keys_rewrite_the_table(catalog, history):
    name = new_name()
    with mock.patch.object(iceberg, "MAX_KEYS_IN_CONDITION", 0):
        for delta, content in zip(history.deltas, history.contents, strict=True):
            IcebergTarget(name, properties=catalog).write(delta)
            assert contents(catalog, name, "upsert") == content


@pytest.mark.parametrize("first_value", [1.0, float("nan")])
def test_keys_that_are_floats_may_be_nan(catalog, first_value):
    """Statistics of Iceberg do not count NaN, so a condition would delete too many rows."""
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    rows = pa.table({"x": [1.0, float("nan")], "n": [1, 2], "weight": [1, 1]})
    target.write(ViewDelta("v", 0, rows, "upsert", ("x",)))
    gone = pa.table({"x": [first_value], "n": [1], "weight": [-1]})
    target.write(ViewDelta("v", 1, gone, "upsert", ("x",)))
    (row,) = read(catalog, name).to_pylist()
    assert (row["x"] == 1.0) == (first_value != 1.0)


DAY, DAY_US = 20_000, 86_400_000_000


@pytest.mark.parametrize(
    ("type", "keys"),
    [
        (pa.date32(), [DAY, -1, -719_162, 2_932_896]),
        (pa.timestamp("us"), [DAY * DAY_US + 1, -1, -719_162 * DAY_US, 2_932_897 * DAY_US - 1]),
        (pa.timestamp("us", "UTC"), [DAY * DAY_US + 1, -1, -719_162 * DAY_US, 0]),
    ],
    ids=str,
)
def test_an_upsert_by_times_rewrites_only_the_files_of_the_changed_keys(catalog, type, keys):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    integers = pa.int32() if type == pa.date32() else pa.int64()

    def write(batch_id, changed, n, weight=1):
        columns = {"t": pa.array(changed, integers).cast(type), "n": [n] * len(changed)}
        rows = pa.table(columns | {"weight": [weight] * len(changed)})
        target.write(ViewDelta("v", batch_id, rows, "upsert", ("t",)))

    write(0, [*keys[1:], None], 0)
    (first,) = load(catalog, name).inspect.files()["file_path"].to_pylist()
    write(1, [keys[0]], 1)
    write(2, [keys[0]], 2)
    files = load(catalog, name).inspect.files()["file_path"].to_pylist()
    assert first in files and len(files) == 2
    for batch_id, key in enumerate((keys[1], keys[2], None), 3):
        write(batch_id, [key], 9, -1)
    rows = read(catalog, name)
    found = dict(zip(rows["t"].cast(integers).to_pylist(), rows["n"].to_pylist(), strict=True))
    assert found == {keys[0]: 2, keys[3]: 0}


# A call, and if it fails after its effect instead of before.
CALLS = ("Catalog.load_table", "Catalog.create_table", "Catalog.commit_table")
FAULT = st.none() | st.tuples(st.sampled_from(CALLS), st.booleans())


@given(history=HISTORIES, faults=st.lists(FAULT, min_size=6, max_size=6))
@settings(LAW, max_examples=8)
def test_a_micro_batch_written_again_after_a_crash_is_stored_once(catalog, history, faults):
    from pyiceberg.catalog.sql import SqlCatalog

    name = new_name()
    for delta, content, fault in zip(history.deltas, history.contents, faults, strict=False):
        try:
            if fault is None:
                IcebergTarget(name, properties=catalog).write(delta)
            else:
                function = fault[0].partition(".")[2]
                replacement = crashing(getattr(SqlCatalog, function), after=fault[1])
                with mock.patch.object(SqlCatalog, function, replacement):
                    IcebergTarget(name, properties=catalog).write(delta)
        except Crash:
            IcebergTarget(name, properties=catalog).write(delta)
        assert contents(catalog, name, history.mode) == content


def crashing(original, *, after):
    """Return a replacement of a function that crashes before or after its effect."""

    def call(*args, **kwargs):
        if after:
            original(*args, **kwargs)
        raise Crash

    return call


def test_many_writers_of_one_micro_batch_commit_it_once(catalog):
    name = new_name()
    IcebergTarget(name, properties=catalog).write(ViewDelta("v", 0, ROW_1))
    barrier, failures = threading.Barrier(4), []
    original = iceberg._change_rows

    def change_together(*args, **kwargs):
        with_others(barrier)
        original(*args, **kwargs)

    def write():
        try:
            IcebergTarget(name, properties=catalog).write(ViewDelta("v", 1, ROW_1))
        except TargetError as error:  # SQLite was locked; the query starts again
            failures.append(error)

    with mock.patch.object(iceberg, "_change_rows", change_together):
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failures) < 4
    assert read(catalog, name).num_rows == 2


def with_others(barrier):
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait(timeout=5)


def test_the_table_has_no_settings_but_those_of_the_target(catalog):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    for batch_id in (0, 1, 1):
        target.write(ViewDelta("v", batch_id, ROW_1, state_id="s"))
    properties = load(catalog, name).properties
    assert {key: value for key, value in properties.items() if "dbsp" in key or "retry" in key} == {
        "dbsp_wcoj.view": "v",
        "dbsp_wcoj.state": "s",
        "dbsp_wcoj.batch.s/v": "1",
    }
    assert target.last_batch(ViewDelta("v", 5, ROW_1, state_id="s")) == 1
    assert target.last_batch(ViewDelta("v", 5, ROW_1, state_id="other")) == NO_BATCH


@pytest.mark.parametrize("mode", ["delta", "append", "upsert"])
def test_rows_of_another_state_directory_are_refused(catalog, mode):
    name, keys = new_name(), ("k",) if mode == "upsert" else ()
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, ROW_1, mode, keys, "one"))
    for action in (target.write, target.check):
        with pytest.raises(TargetError, match="are not from view 'v'"):
            action(ViewDelta("v", 0, ROW_1, mode, keys, "two"))
    assert read(catalog, name).num_rows == 1


@pytest.mark.parametrize("mode", ["delta", "append", "upsert"])
def test_a_table_that_was_emptied_for_another_job_refuses_the_first_one(catalog, mode):
    name, keys = new_name(), ("k",) if mode == "upsert" else ()
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, ROW_1, mode, keys, "one", previous=NO_BATCH))
    load(catalog, name).delete()
    target.write(ViewDelta("v", 0, ROW_1, mode, keys, "two", previous=NO_BATCH))
    for previous in (0, NO_BATCH):
        with pytest.raises(TargetError, match=r"another state directory \(two\)"):
            target.write(ViewDelta("v", 1, ROW_1, mode, keys, "one", previous=previous))
    assert read(catalog, name).num_rows == 1


def test_rows_of_another_view_are_refused(catalog):
    target = IcebergTarget(new_name(), properties=catalog)
    target.write(ViewDelta("v", 0, ROW_1))
    with pytest.raises(TargetError, match=r"receives view 'v', and two views .* \{view\}"):
        target.write(ViewDelta("w", 0, ROW_1))


def test_a_missed_micro_batch_is_refused_and_a_whole_view_replaces_the_rows(catalog):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, ROW_1, "append"))
    with pytest.raises(TargetError, match="holds the micro-batches up to 0"):
        target.write(ViewDelta("v", 2, ROW_1, "append", previous=1))
    whole = table_of([((7, "b", None), 2)])
    target.write(ViewDelta("v", 3, whole, "append", previous=NO_BATCH))
    assert counted(read(catalog, name), None) == Counter({(7, "b", None): 2})
    target.write(ViewDelta("v", 4, whole.slice(0, 0), "append", previous=NO_BATCH))
    assert read(catalog, name).num_rows == 0


NAMES = ["a b", "tick`s", 'qu"ote', "do.ts", "Größe", "source", "Select", "it's"]


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
@pytest.mark.parametrize("key_count", [3, 4])
def test_names_with_special_characters(catalog, mode, key_count):
    columns = {name: [number, None] for number, name in enumerate(NAMES)}
    rows = pa.table({**columns, "weight": [1, 1]})
    keys = tuple(NAMES[:key_count]) if mode == "upsert" else ()
    target = IcebergTarget("shop.{view}", properties=catalog)
    for batch_id in (0, 1):
        target.write(ViewDelta("a view", batch_id, rows, mode, keys))
    table = read(catalog, "shop.a view")
    assert table.column_names[: len(NAMES)] == NAMES
    assert table.num_rows == (4 if mode == "delta" else 2)


VALUES = [
    (pa.int8(), 1, 1),
    (pa.uint64(), 2**63, Decimal(2**63)),
    (pa.float32(), 0.5, 0.5),
    (pa.decimal128(12, 2), Decimal("1.50"), Decimal("1.50")),
    (pa.string(), "ä", "ä"),
    (pa.binary(), b"\0", b"\0"),
    (pa.bool_(), True, True),
    (pa.date32(), datetime.date(2020, 1, 2), datetime.date(2020, 1, 2)),
    (pa.timestamp("us"), datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 2)),
    (pa.list_(pa.int16()), [1, None], [1, None]),
    (pa.struct({"a": pa.int8()}), {"a": 1}, {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 1)]),
    (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
    (pa.null(), None, None),
]


@pytest.mark.parametrize(("type_", "value", "stored"), VALUES)
def test_values_of_all_types(catalog, type_, value, stored):
    name = new_name()
    rows = pa.table({"k": [1, 2], "x": pa.array([value, None], type_), "weight": [1, 1]})
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, rows, "upsert", ("k",)))
    again = rows.slice(0, 1)
    target.write(ViewDelta("v", 1, again, "upsert", ("k",)))
    target.check(ViewDelta("v", 2, rows, "upsert", ("k",)))
    assert read(catalog, name).sort_by("k").column("x").to_pylist() == [stored, None]


def test_a_table_with_other_columns_or_narrower_types_is_refused(catalog):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, pa.table({"k": pa.array([1], pa.int32()), "weight": [1]})))
    wider = pa.table({"k": pa.array([1], pa.int64()), "weight": [1]})
    with pytest.raises(TargetError, match=r"column 'k' of Iceberg table .* is int32, and the view"):
        target.write(ViewDelta("v", 1, wider))
    other = pa.table({"k": pa.array([1], pa.int32()), "n": [1], "weight": [1]})
    with pytest.raises(TargetError, match="its columns are k, weight, and those of the view k, n"):
        target.check(ViewDelta("v", 1, other))
    assert read(catalog, name).num_rows == 1


def test_a_catalog_that_does_not_answer_is_an_error_without_secrets(tmp_path):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/c.db", "warehouse": "file:///no"}
    target = IcebergTarget("shop.v", properties=catalog | {"password": "geheim"})
    for action in (target.write, target.check, target.last_batch):
        with pytest.raises(
            TargetError, match=r"Iceberg table 'shop\.v' of the default catalog"
        ) as e:
            action(ViewDelta("v", 0, ROW_1))
        assert "geheim" not in str(e.value)
    assert "geheim" not in repr(target)


def test_a_table_needs_a_namespace():
    with pytest.raises(TargetError, match=r"give its namespace, too, as in 'shop\.v'"):
        IcebergTarget("v")


def test_a_target_can_be_pickled(catalog):
    name = new_name()
    target = IcebergTarget(name, properties=catalog)
    target.write(ViewDelta("v", 0, ROW_1))
    pickle.loads(pickle.dumps(target)).write(ViewDelta("v", 1, ROW_1))
    assert read(catalog, name).num_rows == 2


def test_a_missing_package_is_named(catalog):
    with (
        mock.patch.dict(sys.modules, {"pyiceberg": None}),
        pytest.raises(TargetError, match=r"pip install 'dbsp-wcoj\[iceberg\]'"),
    ):
        IcebergTarget("shop.v", properties=catalog).write(ViewDelta("v", 0, ROW_1))


def test_keys_are_those_of_histories():
    assert KEYS == ("k", "s")  # the laws above delete by conditions, so no key is a float
