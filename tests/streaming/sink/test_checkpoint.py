"""The checkpoint of a query: its id, and the watermark of each micro-batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from circuits import InputOptions, Retention, compile_sql
from streaming import StateError, ViewSink
from streaming.sink.checkpoint import Checkpoint
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

SIGHTINGS = pa.schema([("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
DAY = 86_400_000


@pytest.fixture
def checkpoint(tmp_path):
    """Return a function that writes what Spark writes before a micro-batch."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "some-query"}))

    def write(batch_id, watermark):
        settings = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1})
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{settings}\n{{"logOffset":0}}')

    write.directory = tmp_path
    return write


def sightings(*rows):
    columns = list(zip(*rows, strict=True)) or [[], []]
    return Frame(pa.table(list(map(list, columns)), schema=SIGHTINGS), "some-query")


def at(day):
    return datetime(1970, 1, day, tzinfo=UTC)


def test_the_watermark_and_the_query_are_those_of_the_checkpoint(checkpoint):
    checkpoint(3, 5 * DAY)
    checkpoint(4, 0)
    read_back = Checkpoint(str(checkpoint.directory))
    assert read_back.query_id == "some-query"
    assert read_back.watermark(3) == at(6)
    assert read_back.watermark(4) is None


def test_a_directory_that_is_not_a_checkpoint_is_an_error(tmp_path):
    with pytest.raises(StateError, match="checkpointLocation"):
        Checkpoint(str(tmp_path / "none")).watermark(0)


@pytest.mark.parametrize("type", [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.int64()])
def test_the_watermark_of_spark_deletes_expired_rows(checkpoint, type):
    schema = SIGHTINGS.set(1, pa.field("at", type))
    duration = 2 * 86_400_000_000 if type == pa.int64() else "2 days"
    circuit = compile_sql(
        "SELECT name FROM seen",
        {"seen": schema},
        name="names",
        input_options={"seen": InputOptions(retain=Retention("at", duration))},
    )
    sink = ViewSink(circuit, checkpoint=checkpoint.directory)

    def step(batch_id, *rows):
        table = sightings(*rows).table
        values = table.column("at").cast(pa.timestamp("us", "UTC"))
        values = values.cast(pa.int64()) if type == pa.int64() else values.cast(pa.timestamp("ns"))
        sink(Frame(table.set_column(1, "at", values.cast(type)), "some-query"), batch_id)
        return bag_of(sink.last.outputs["names"])

    checkpoint(0, 0)
    assert step(0, ("ann", at(3)), ("bob", at(5))) == {("ann",): 1, ("bob",): 1}
    checkpoint(1, 6 * DAY)  # the seventh day, so rows before the fifth expire
    expected = {} if type == pa.int64() else {("ann",): -1}
    assert step(1) == expected
