"""The time of a micro-batch: one value, stored for replays and restarts; heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import StreamingError, ViewSink, heartbeat
from tests.streaming.sink.test_view_sink import Frame

NOON = datetime(2024, 2, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
QUERY = "SELECT id FROM r WHERE ts > now() - INTERVAL '5 minutes'"


def rows(*minutes: int) -> Frame:
    times = [(NOON + n * MINUTE).replace(tzinfo=None) for n in minutes]
    return Frame(pa.table({"id": list(minutes), "ts": times}, SCHEMA))


class SinkWithClock:
    """A sink with a state directory and a clock that tests set; it can be restarted."""

    def __init__(self, folder):
        self.folder, self.now, self.published = folder, NOON, []
        self.restart()

    def restart(self):
        self.sink = ViewSink(
            compile_sql(QUERY, {"r": SCHEMA}),
            self._publish,
            state_dir=str(self.folder),
            clock=lambda: self.now,
        )

    def _publish(self, frame, batch_id):
        raise AssertionError("outputs are read from `last`")

    def run(self, batch_id: int, *minutes: int) -> list[tuple[int, int]]:
        self.sink(rows(*minutes), batch_id)
        table = self.sink.last.outputs["view"]
        return sorted(zip(table["id"].to_pylist(), table["weight"].to_pylist(), strict=True))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(ViewSink, "_publish", lambda *_, **__: None)
    return SinkWithClock(tmp_path / "state")


def test_rows_are_deleted_in_a_micro_batch_without_rows(world):
    assert world.run(0, 0, 3) == [(0, 1), (3, 1)]
    world.now += 6 * MINUTE
    assert world.run(1) == [(0, -1)]


def test_a_replay_has_the_results_of_the_recorded_time(world):
    world.run(0, 0, 3)
    world.now += 6 * MINUTE
    first = world.run(1, 4)
    world.now += 60 * MINUTE
    world.restart()
    assert world.run(1, 4) == first == [(0, -1), (4, 1)]
    assert world.run(2) == [(3, -1), (4, -1)]


def test_time_does_not_go_back_after_a_restart(world):
    world.run(0, 0, 3)
    world.now += 6 * MINUTE
    world.run(1)
    world.now -= 6 * MINUTE
    world.restart()
    assert world.run(2, 1, 2) == [(2, 1)]


def test_a_view_that_reads_now_cannot_be_distributed(tmp_path):
    with pytest.raises(StreamingError, match=r"compares with now\(\)"):
        ViewSink(
            compile_sql(QUERY, {"r": SCHEMA}),
            mode="distributed",
            cells=2,
            state_dir=str(tmp_path / "state"),
        )


@pytest.mark.spark
def test_a_heartbeat_starts_micro_batches_without_rows(spark, tmp_path):
    source = tmp_path / "in"
    spark.createDataFrame([(1,)], "id long").write.parquet(str(source))
    stream = spark.readStream.schema("id long").parquet(str(source))
    seen = []
    query = (
        heartbeat(stream)
        .writeStream.foreachBatch(lambda frame, batch_id: seen.append((batch_id, frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        for _ in range(120):
            if len(seen) >= 4:
                break
            query.awaitTermination(0.5)
    finally:
        query.stop()
    assert sum(len(rows) for _, rows in seen) == 1
    assert [batch_id for batch_id, _ in seen[:4]] == [0, 1, 2, 3]
