"""Rows in a database after the retention time, across restarts; warnings and errors of a sink."""

from __future__ import annotations

import logging
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import Circuit, InputOptions, Retention, compile_sql
from streaming import StreamingError, ViewSink
from streaming.distributed.cell_state import distributable_stages
from streaming.sink.output import Output
from streaming.targets.sql import SqlTarget
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

SHIPMENTS = pa.schema([("nr", pa.int64()), ("at", pa.timestamp("s"))])
DAY = 86_400


def circuit(**options) -> Circuit:
    return compile_sql(
        "SELECT nr, at FROM shipments WHERE nr > 0",
        {"shipments": SHIPMENTS},
        name="shipped",
        input_options={"shipments": InputOptions(retain=Retention("at", "7 days", **options))},
        materialize=["shipped", "shipments"],
    )


def batch(*rows: tuple[int, int]) -> Frame:
    numbers, days = zip(*rows, strict=True)
    times = pa.array([day * DAY for day in days], pa.int64()).cast(pa.timestamp("s"))
    return Frame(pa.table({"nr": list(numbers), "at": times}))


@pytest.mark.parametrize(("on_expiry", "left"), [("keep", {1, 2, 3, 4}), ("retract", {3, 4})])
@pytest.mark.parametrize("mode", ["delta", "upsert"])
def test_expired_rows_are_kept_in_a_table_or_deleted_by_on_expiry(tmp_path, on_expiry, left, mode):
    target = SqlTarget(lambda: sqlite3.connect(tmp_path / "shop.db"))

    def sink() -> ViewSink:
        return ViewSink(
            circuit(on_expiry=on_expiry),
            [Output("shipped", target, mode, ["nr"] if mode == "upsert" else [])],
            state_dir=tmp_path / "state",
        )

    steps = [batch((1, 0)), batch((2, 3), (9, 1)), batch((3, 20), (4, 21)), batch((5, 2))]
    running = sink()
    for number, rows in enumerate(steps):
        running(rows, number)
        running(rows, number)  # a replay, as after a crash before Spark recorded the commit
        last = running.last
        running.close()
        running = sink()
        running(rows, number)
        assert bag_of(running.last.outputs["shipped"]) == bag_of(last.outputs["shipped"])
    assert running.table("shipments").column("nr").to_pylist() == [3, 4]
    letters = pq.read_table(tmp_path / "state" / "dead_letters").to_pylist()
    assert [letter["batch_id"] for letter in letters] == [3]
    assert (
        "before 1970-01-15 00:00:00, the greatest time or watermark of earlier steps minus"
        in (letters[0]["reason"])
    )
    running.close()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        weight = "sum(weight)" if mode == "delta" else "count(*)"
        query = f"SELECT nr FROM shipped GROUP BY nr HAVING {weight} > 0"
        expected = {*left, 9} if on_expiry == "keep" else left
        assert {nr for (nr,) in database.execute(query)} == expected


def test_a_sink_warns_once_about_the_default_of_on_expiry(caplog):
    with caplog.at_level(logging.WARNING):
        ViewSink(circuit(), lambda frame, number: None)
    (notice,) = [r.getMessage() for r in caplog.records if "on_expiry" in r.getMessage()]
    assert "input 'shipments': a row expires when 'at' of the newest row is 7 days ahead" in notice
    assert "deleted from the views and from their targets (on_expiry=retract" in notice
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for on_expiry in ("keep", "retract"):
            ViewSink(circuit(on_expiry=on_expiry), lambda frame, number: None)
    assert not caplog.records


def test_on_expiry_keep_cannot_be_distributed(tmp_path):
    kept = compile_sql(
        "SELECT nr FROM shipments",
        {"shipments": SHIPMENTS},
        input_options={
            "shipments": InputOptions(retain=Retention("at", "7 days", on_expiry="keep"))
        },
    )
    words = "input 'shipments' has on_expiry='keep', and cells cannot drop .* use mode='embedded'"
    with pytest.raises(StreamingError, match=words):
        distributable_stages(kept)
    with pytest.raises(StreamingError, match=words):
        ViewSink(kept, lambda frame, number: None, state_dir=tmp_path, mode="distributed", cells=2)
    assert not any(tmp_path.iterdir())
