"""Targets in this process (memory, console, functions), and properties that all targets share."""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import pickle
import sqlite3
import threading
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import TargetError
from streaming.targets.console import ConsoleTarget, format_delta
from streaming.targets.delta import DeltaTarget
from streaming.targets.frame import FrameTarget, frame_of
from streaming.targets.memory import MemoryTarget
from streaming.targets.output_mode import OutputMode, PostStepTable
from streaming.targets.parquet import ParquetTarget
from streaming.targets.sql import SqlTarget
from streaming.targets.sqlite import Sqlite
from streaming.targets.target import ViewDelta, address_of, expand_template
from tests.generators.view_histories import NAN, counted, histories, table_of

HISTORIES = st.sampled_from(["delta", "upsert", "complete"]).flatmap(histories)
ROW_1 = table_of([((1, "a", 0.5), 1)])


@given(HISTORIES, st.integers(1, 3), st.data())
def test_memory_holds_the_view_and_its_latest_deltas(history, keep, data):
    target = MemoryTarget(keep)
    for written_count, delta in enumerate(history.deltas, start=1):
        for _ in range(data.draw(st.integers(1, 2))):
            target.write(delta)
        if data.draw(st.booleans()):
            assert counted(target.table("v")) == history.contents[written_count - 1]
        latest = history.deltas[max(0, written_count - keep) : written_count]
        assert list(target.deltas("v")) == list(latest)
    if history.deltas:
        assert counted(target.table("v")) == history.contents[-1]
        assert target.views == ["v"]


def test_many_rows_in_memory_are_summed_while_they_are_written():
    target = MemoryTarget()
    for batch_id in range(50):
        rows = [((n % 3, "a", None), 1 if batch_id % 2 == 0 else -1) for n in range(500)]
        target.write(ViewDelta("v", batch_id, table_of(rows)))

    assert sum(table.num_rows for table in target._views["v"].pending) < 3000
    assert target.table("v").num_rows == 0


def test_a_view_in_memory_can_be_read_while_it_is_written():
    target = MemoryTarget()
    target.write(ViewDelta("v", 0, ROW_1))
    is_written = threading.Event()
    weights = []

    def reading():
        while not is_written.is_set():
            weights.append(counted(target.table("v"))[(1, "a", 0.5)])

    thread = threading.Thread(target=reading)
    thread.start()
    for batch_id in range(1, 200):
        target.write(ViewDelta("v", batch_id, ROW_1))
    is_written.set()
    thread.join()

    assert weights == sorted(weights)
    assert counted(target.table("v")) == Counter({(1, "a", 0.5): 200})


def test_memory_names_the_views_it_has_and_refuses_another_state():
    target = MemoryTarget()
    target.write(ViewDelta("v", 0, ROW_1, state_id="one"))

    with pytest.raises(TargetError, match=r"of view 'w' has been written .* views are: v"):
        target.table("w")
    with pytest.raises(TargetError, match="are not from view 'v'"):
        target.write(ViewDelta("v", 1, ROW_1, state_id="two"))
    with pytest.raises(TargetError, match="give 1 or more"):
        MemoryTarget(0)


def test_writers_that_share_a_database_target_do_not_share_transactions(tmp_path, monkeypatch):
    monkeypatch.setattr(Sqlite, "keeps_connection", True)  # as for PostgreSQL
    file, errors = tmp_path / "db", []
    target = SqlTarget(lambda: sqlite3.connect(file, check_same_thread=False))

    def write(view):
        try:
            for batch_id in range(30):
                target.write(ViewDelta(view, batch_id, ROW_1, state_id=view))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(view,)) for view in ("v", "w")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    target.close()

    assert not errors
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for view in ("v", "w"):
            result = connection.execute(f"SELECT batch_id FROM {view} ORDER BY 1").fetchall()
            assert result == [(batch_id,) for batch_id in range(30)]


def test_the_console_shows_aligned_rows_once():
    stream = io.StringIO()
    target = ConsoleTarget(stream, rows=3, width=8)
    table = pa.table(
        {
            "nr": pa.array([5, 10, None, 4]),
            "item": ["lamp", "a\nb", "a very long text", "x"],
            "worth": pa.array([Decimal("1.50"), None, Decimal("20.00"), None]),
            "weight": [1, -12, 1, 1],
        }
    )

    for batch_id in (7, 7, 8):
        target.write(ViewDelta("waiting", batch_id, table if batch_id == 7 else table[:0]))

    assert stream.getvalue().splitlines() == [
        "waiting, micro-batch 7: 4 rows (delta)",
        " weight    nr  item      worth",
        "     +1     5  lamp       1.50",
        r"    -12    10  a\nb       NULL",
        "     +1  NULL  a very …  20.00",
        " and 1 more",
    ]


def test_the_console_shows_values_that_python_cannot_represent():
    table = pa.table(
        {
            "t": pa.array([2**60], pa.int64()).view(pa.timestamp("s")),
            "d": pa.array([-800_000], pa.int32()).view(pa.date32()),
            "n": pa.array([1], pa.timestamp("ns")),
            "p": pa.array([2**62], pa.int64()).view(pa.duration("s")),
            "v": pa.array(["x"], pa.string_view()),
            "weight": [1],
        }
    )

    text = format_delta(ViewDelta("v", 0, table))

    assert "out of range" in text and "-0221-09-04" in text and "00.000000001" in text


def test_an_empty_delta_is_printed_only_with_the_option(capsys):
    ConsoleTarget().write(ViewDelta("v", 0, table_of([])))
    assert capsys.readouterr().out == ""

    ConsoleTarget(empty=True).write(ViewDelta("v", 0, table_of([])))
    assert capsys.readouterr().out == "v, micro-batch 0: 0 rows (delta)\n"


@pytest.mark.parametrize(
    "target",
    [
        ParquetTarget("p"),
        DeltaTarget("d"),
        SqlTarget(print),
        MemoryTarget(),
        ConsoleTarget(),
    ],
    ids=lambda target: type(target).__name__,
)
def test_an_unused_target_can_be_pickled_and_copied(target):
    assert type(pickle.loads(pickle.dumps(target))) is type(copy.deepcopy(target))


def test_templates_take_the_view_and_addresses_hide_credentials():
    assert expand_template("out/{view}", "..") == "out/%2E."
    assert expand_template("{view}", "a/b", quoted=False) == "a/b"
    assert address_of("abfss://box@account.host/lake?sig=secret") == "abfss://account.host/lake"


SPARK_VALUES = {
    "i": (pa.int64(), [1, None]),
    "u": (pa.uint64(), [2**64 - 2, None]),
    "s": (pa.string(), ["a", None]),
    "l": (pa.large_string(), ["b", None]),
    "c": (pa.dictionary(pa.int8(), pa.string()), ["c", None]),
    "x": (pa.float64(), [0.5, None]),
    "f": (pa.decimal128(9, 2), [Decimal("1.50"), None]),
    "d": (pa.date32(), [datetime.date(2024, 2, 29), None]),
    "n": (pa.timestamp("us"), [datetime.datetime(2024, 2, 29, 1), None]),
    "z": (pa.timestamp("us", "Europe/Vienna"),
          [datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC), None]),
    "b": (pa.bool_(), [True, None]),
    "y": (pa.binary(), [b"\0", None]),
    "t": (pa.time64("us"), [datetime.time(1, 2), None]),
}  # fmt: skip
FILE_COLUMNS = [name for name in SPARK_VALUES if name not in "ut"]


def spark_table(names):
    """Return a row of values with weight 1 and a row of NULLs with weight -1."""
    columns = {}
    for name in names:
        type_, values = SPARK_VALUES[name]
        is_dictionary = pa.types.is_dictionary(type_)
        columns[name] = (
            pa.array(values).dictionary_encode().cast(type_)
            if is_dictionary
            else pa.array(values, type_)
        )
    return pa.table({**columns, "weight": pa.array([1, -1])})


@pytest.mark.spark
@pytest.mark.parametrize("names", [FILE_COLUMNS, list(SPARK_VALUES)], ids=["files", "no files"])
def test_a_function_gets_the_delta_as_a_frame(spark, tmp_path, names):
    table = spark_table(names)
    pq.write_table(table.slice(0, 1), tmp_path / "a.parquet")
    pq.write_table(table.slice(1), tmp_path / "b.parquet")
    files = (str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"))
    calls = []
    target = FrameTarget(lambda frame, batch_id: calls.append((frame, batch_id)), spark)

    target.write(ViewDelta("v", 3, table, files=files))
    target.write(ViewDelta("v", 4, table))

    assert [batch_id for _, batch_id in calls] == [3, 4]
    for frame, _ in calls:
        assert frame.columns == table.column_names
        actual = {row["weight"]: row for row in frame.toArrow().to_pylist()}
        assert actual[-1] == dict.fromkeys(names) | {"weight": -1}
        expected = {name: SPARK_VALUES[name][1][0] for name in names} | {"weight": 1}
        expected |= {"u": Decimal(2**64 - 2), "t": "01:02:00.000000"} if "u" in names else {}
        assert actual[1] == expected
    is_from_files = "u" not in names
    assert bool(calls[0][0].inputFiles()) == is_from_files


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", ["a[1]", "a{b,c}", "x{", "[z", "what?", "a*b", "back\\slash", "50%25 ü:é"]
)
def test_a_path_with_characters_of_a_pattern_is_read_literally(spark, tmp_path, name):
    file = tmp_path / name / "a.parquet"
    file.parent.mkdir()
    pq.write_table(ROW_1, file)

    frame = frame_of(spark, ViewDelta("v", 0, ROW_1, files=(str(file),)))

    assert frame.toArrow().to_pylist() == ROW_1.to_pylist()


@pytest.mark.spark
def test_a_frame_of_no_rows_has_the_columns_of_the_view(spark):
    frame = frame_of(spark, ViewDelta("v", 0, table_of([])))

    assert frame.dtypes == [("k", "bigint"), ("s", "string"), ("x", "double"), ("weight", "bigint")]
    assert frame.count() == 0


@pytest.mark.spark
def test_spark_reads_the_directory_of_a_parquet_target(spark, tmp_path):
    target = ParquetTarget(str(tmp_path / "out"))
    target.write(ViewDelta("v", 0, table_of([])))
    target.write(ViewDelta("v", 1, table_of([((1, "a", NAN), 2)])))
    (tmp_path / "out" / ".v.parquet.tmp").write_bytes(b"half")

    rows = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()

    assert [(row["batch_id"], row["k"], row["s"], row["weight"]) for row in rows] == [
        (1, 1, "a", 2)
    ]


def nested_columns() -> list[pa.Array]:
    """Return a list, a struct and a map of a date that Python cannot represent."""
    days = pa.array([10**8], pa.int32()).view(pa.date32())
    return [
        pa.ListArray.from_arrays([0, 1], days),
        pa.StructArray.from_arrays([days], ["d"]),
        pa.MapArray.from_arrays([0, 1], pa.array(["d"]), days),
    ]


@pytest.mark.parametrize("column", nested_columns(), ids=lambda column: str(column.type)[:6])
def test_a_nested_date_that_python_lacks_is_shown_and_named_in_errors(column):
    table = pa.table({"a": column, "weight": [1]})
    assert "100000000" in format_delta(ViewDelta("v", 0, table))
    view = PostStepTable(pa.concat_tables([table, table]))
    with pytest.raises(TargetError, match=r"needs one row for every.*100000000"):
        OutputMode("upsert", ["a"]).changes("v", table, view)
