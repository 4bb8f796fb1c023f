"""Spark reads views as tables, and their changes as tables and streams."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import MemoryTarget, ViewDataSource, ViewSink
from streaming.data_source.view_data_source import MAX_ROWS_TO_SPARK
from tests.streaming.data_source.test_stored_views import COUNTS, batch, sink_of
from tests.streaming.sink.test_view_sink import Frame

pytestmark = pytest.mark.spark

A, B = (1, 2, "a"), (1, 2, "b")


@pytest.fixture(scope="module")
def session(spark):
    spark.dataSource.register(ViewDataSource)
    return spark


@pytest.fixture
def sink(tmp_path):
    sink = sink_of(tmp_path / "state", COUNTS, keep=3)
    sink(Frame(batch([A, B])), 0)
    sink(Frame(batch([A])), 1)
    yield sink
    sink.close()


def options(tmp_path, **others):
    return {"state": str(tmp_path / "state"), "view": "counts", **others}


def read(session, tmp_path, **others):
    frame = session.read.format("dbsp_wcoj").options(**options(tmp_path, **others)).load()
    return Counter(tuple(row) for row in frame.collect())


def start(session, tmp_path, name, **others):
    """Start a stream that counts the weights of each row in the table ``name``."""
    settings = options(tmp_path, readChangeFeed="true", **others)
    frame = session.readStream.format("dbsp_wcoj").options(**settings).load()
    folder = str(tmp_path / "checkpoint")

    def add(rows, batch_id):
        for *row, weight, version in (tuple(row) for row in rows.collect()):
            RECEIVED[name].append((*row, weight, version))
        BATCHES[name].append(batch_id)

    RECEIVED.setdefault(name, []), BATCHES.setdefault(name, [])
    return frame.writeStream.foreachBatch(add).option("checkpointLocation", folder).start()


RECEIVED: dict[str, list[tuple]] = {}
BATCHES: dict[str, list[int]] = {}


def test_a_view_is_a_table(session, sink, tmp_path):
    assert read(session, tmp_path) == {("a", 2): 1, ("b", 1): 1}
    assert read(session, tmp_path, version="0") == {("a", 1): 1, ("b", 1): 1}
    place = options(tmp_path)
    session.sql(
        "CREATE OR REPLACE TEMPORARY VIEW live_counts USING dbsp_wcoj "
        f"OPTIONS (state '{place['state']}', view 'counts')"
    )
    query = "SELECT sum(n) AS n FROM live_counts"
    assert session.sql(query).first().n == 3
    sink(Frame(batch([B])), 2)
    assert session.sql(query).first().n == 4


def test_changes_are_a_table(session, sink, tmp_path):
    changes = {("a", 1, 1, 0): 1, ("b", 1, 1, 0): 1, ("a", 1, -1, 1): 1, ("a", 2, 1, 1): 1}
    assert read(session, tmp_path, readChangeFeed="true") == changes
    later = read(session, tmp_path, readChangeFeed="true", startingVersion="1")
    assert later == {row: n for row, n in changes.items() if row[-1] == 1}
    first = read(session, tmp_path, readChangeFeed="true", endingVersion="0")
    assert first == {row: n for row, n in changes.items() if row[-1] == 0}


def test_a_row_that_occurs_often_is_read_often(session, tmp_path):
    text = "SELECT name FROM e"
    circuit = compile_sql(text, {"e": "name string"}, name="counts", materialize=True)
    sink = ViewSink(circuit, MemoryTarget(), state_dir=tmp_path / "state")
    number = MAX_ROWS_TO_SPARK + 3
    sink(Frame(pa.table({"name": ["a", "b"], "weight": [number, 2]})), 0)
    assert read(session, tmp_path) == {("a",): number, ("b",): 2}
    sink(Frame(pa.table({"name": ["b"], "weight": [-3]})), 1)
    with pytest.raises(Exception, match="1 rows with a negative weight"):
        read(session, tmp_path)
    sink(Frame(pa.table({"name": ["a", "b"], "weight": [-number, 1]})), 2)
    assert read(session, tmp_path) == {}


def test_values_of_all_kinds_are_read(session, tmp_path):
    time = datetime(2024, 1, 2, 3, 4, 5, 6, UTC)
    row = {
        "small": 1,
        "price": Decimal("1.50"),
        "at": time,
        "local": time.replace(tzinfo=None),
        "day": time.date(),
        "raw": b"x",
        "names": ["a", None],
        "part": {"n": 1, "s": "x"},
        "nothing": None,
    }
    schema = pa.schema(
        {
            "small": pa.uint8(),
            "price": pa.decimal128(9, 2),
            "at": pa.timestamp("us", "Europe/Berlin"),
            "local": pa.timestamp("us"),
            "day": pa.date32(),
            "raw": pa.large_binary(),
            "names": pa.list_(pa.string()),
            "part": pa.struct({"n": pa.int32(), "s": pa.string()}),
            "nothing": pa.float64(),
        }
    )
    circuit = compile_sql("SELECT * FROM e", {"e": schema}, name="counts", materialize=True)
    sink = ViewSink(circuit, MemoryTarget(), state_dir=tmp_path / "state")
    sink(Frame(pa.Table.from_pylist([row], schema)), 0)
    frame = session.read.format("dbsp_wcoj").options(**options(tmp_path)).load()
    result = frame.selectExpr("*", "unix_micros(at) AS micros").toArrow().to_pylist()
    micros = int(time.timestamp()) * 1_000_000 + 6
    expected = {**row, "at": result[0]["at"], "micros": micros}
    assert result == [expected]
    assert result[0]["at"].timestamp() == time.timestamp()


def test_a_stream_has_the_whole_view_and_then_its_changes(session, sink, tmp_path):
    query = start(session, tmp_path, "whole")
    query.processAllAvailable()
    assert sorted(RECEIVED["whole"]) == [("a", 2, 1, 1), ("b", 1, 1, 1)]
    sink(Frame(batch([B])), 2)
    query.processAllAvailable()
    query.stop()
    sink(Frame(batch([A])), 3)
    query = start(session, tmp_path, "whole")  # continues from its checkpoint
    query.processAllAvailable()
    query.stop()
    later = [("a", 2, -1, 3), ("a", 3, 1, 3), ("b", 1, -1, 2), ("b", 2, 1, 2)]
    assert sorted(RECEIVED["whole"][2:]) == later
    for number in range(4, 9):
        sink(Frame(batch([A])), number)
    query = start(session, tmp_path, "whole")
    with pytest.raises(Exception, match=r"does not keep version \d, it keeps versions 6 to 8"):
        query.processAllAvailable()
    query.stop()


def test_a_stream_begins_at_a_version_and_reads_some_versions_at_a_time(session, sink, tmp_path):
    query = start(session, tmp_path, "some", startingVersion="0", maxVersionsPerTrigger="1")
    query.processAllAvailable()
    query.stop()
    assert [version for *_, version in RECEIVED["some"]] == [0, 0, 1, 1]
    assert len(BATCHES["some"]) == 2
    later = tmp_path / "later"
    later.mkdir()
    (later / "state").symlink_to(tmp_path / "state")
    query = start(session, later, "later", startingVersion="latest")
    query.processAllAvailable()
    sink(Frame(batch([B])), 2)
    query.processAllAvailable()
    query.stop()
    assert sorted(RECEIVED["later"]) == [("b", 1, -1, 2), ("b", 2, 1, 2)]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"view": "none"}, "'none' is no input or view of the circuit; known are e, counts"),
        ({"version": "7"}, "does not keep version 7, it keeps versions 0 to 1"),
        ({"startingVersion": "1"}, "startingVersion is for changes"),
        ({"readChangeFeed": "true", "startingVersion": "latest"}, "'latest' is for streams"),
        ({"readChangeFeed": "true", "startingVersion": "1", "endingVersion": "0"}, "is after"),
    ],
)
def test_an_error_reaches_the_reader(session, sink, tmp_path, others, message):
    with pytest.raises(Exception, match=message):
        read(session, tmp_path, **others)


def test_a_stream_without_weights_is_an_error(session, sink, tmp_path):
    frame = session.readStream.format("dbsp_wcoj").options(**options(tmp_path))
    with pytest.raises(Exception, match="set the option readChangeFeed to true"):
        frame.load().writeStream.format("noop").start().processAllAvailable()
