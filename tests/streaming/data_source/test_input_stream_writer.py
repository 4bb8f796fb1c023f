"""A stream of Spark is written into an input, each micro-batch once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import SchemaError
from streaming import Database, ViewDataSource
from streaming.data_source import query_positions
from streaming.data_source.input_stream_writer import InputStreamWriter, WriteOptions
from streaming.data_source.stored_views import StoredViews
from streaming.database.positions import POSITIONS, read_positions
from streaming.errors import BatchOrderError, StateError
from tests.support.writer_kills import VIEWS, options_of, rows_of

ROOT = Path(__file__).parents[3]
A, B = (1, "a"), (2, "b")


def commit(options, batch_id, changes, planned_ms=None):
    plan(options, batch_id, planned_ms)
    writer = InputStreamWriter(options)
    messages = [writer.write(iter(rows_of([change]).to_batches())) for change in changes]
    writer.commit([*messages, writer.write(iter([]))], batch_id)


def plan(options, batch_id, planned_ms=None):
    """Write what Spark writes into the checkpoint when it plans a micro-batch."""
    time = 1000 + batch_id if planned_ms is None else planned_ms
    lines = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time}), "{}"]
    file = Path(options.checkpoint) / "offsets" / str(batch_id)
    if not file.exists():  # a micro-batch that is repeated is not planned again
        file.write_text("\n".join(lines))


def cities(options):
    stored = StoredViews(options.state)
    return {row["city"]: row["n"] for row in stored.newest_rows("cities").to_pylist()}


def test_a_repeated_micro_batch_is_applied_once(tmp_path):
    options = options_of(tmp_path)
    for batch_id in (0, 0, 1, 1):
        commit(options, batch_id, [(A, 1), (B, 1)] if batch_id == 0 else [(A, -1)])
    assert cities(options) == {"b": 1}
    commit(options, 4, [])
    commit(options, 5, [(A, 1)])
    assert cities(options) == {"a": 1, "b": 1}
    with pytest.raises(BatchOrderError, match=r"micro-batch 4 .* older than the last one, 5"):
        commit(options, 4, [(A, 1)])


def test_a_query_with_a_new_checkpoint_is_added_on_request_only(tmp_path):
    options = options_of(tmp_path)
    commit(options, 0, [(A, 1)])
    (tmp_path / "checkpoint" / "metadata").write_text('{"id": "other"}')
    with pytest.raises(BatchOrderError, match="newQuery=true"):
        commit(options, 0, [(A, 1)])
    accepting = WriteOptions(options.state, options.checkpoint, accepts_new_query=True)
    commit(accepting, 0, [(A, 1)])
    commit(options, 0, [(A, 1)])
    assert cities(options) == {"a": 2}


def test_two_live_queries_write_one_input_and_each_is_applied_once(tmp_path):
    queries = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        options = options_of(tmp_path / name)
        (tmp_path / name / "checkpoint" / "metadata").write_text(json.dumps({"id": name}))
        state = str(tmp_path / "state")
        queries.append(WriteOptions(state, options.checkpoint, views=VIEWS, accepts_new_query=True))
    for query, batch_id in [(0, 0), (1, 0), (0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 1), (1, 2)]:
        commit(queries[query], batch_id, [(A, 1)])
    assert cities(queries[0]) == {"a": 5}
    with pytest.raises(BatchOrderError, match=r"micro-batch 1 .* older than the last one, 2"):
        commit(queries[1], 1, [(A, 1)])


def test_an_input_remembers_a_bounded_number_of_queries(tmp_path, monkeypatch):
    monkeypatch.setattr(query_positions, "MAX_QUERIES", 2)
    options = options_of(tmp_path)
    options = replace(options, accepts_new_query=True)

    def write(query, batch_id, planned_ms, changes):
        shutil.rmtree(tmp_path / "checkpoint")
        options_of(tmp_path)
        (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": query}))
        commit(options, batch_id, changes, planned_ms)

    for number in range(6):
        for _ in range(2):
            write(f"q{number}", 0, number, [(A, 1)])
    assert cities(options) == {"a": 6}
    for batch_id in (0, 1):
        with pytest.raises(BatchOrderError, match=rf"input 'orders' .*micro-batch {batch_id} of"):
            write("q3", batch_id, 3 + batch_id, [(A, 1)])
    write("q4", 0, 4, [(A, 1)])
    write("q4", 1, 8, [(A, 1)])
    write("late", 0, 9, [])
    write("late", 1, 10, [(A, 1)])
    assert cities(options) == {"a": 8}
    with Database(path=options.state) as database:
        positions = read_positions(database.view(POSITIONS).to_arrow())
    assert positions == {"orders": {"": "5", "q4": "1@8", "late": "1@10"}}


def test_a_micro_batch_that_fails_changes_nothing(tmp_path):
    options = options_of(tmp_path)
    commit(options, 0, [(A, 1)])
    writer = InputStreamWriter(options)
    plan(options, 1)
    with pytest.raises(SchemaError, match="town"):
        writer.commit([writer.write(iter(pa.table({"nr": [1], "town": ["a"]}).to_batches()))], 1)
    commit(options, 1, [(A, 1)])
    assert cities(options) == {"a": 2}
    message = writer.write(iter(rows_of([(A, 1)]).to_batches()))
    assert list(tmp_path.glob("state/incoming-*/*"))
    writer.abort([message, None], 2)
    assert not list(tmp_path.glob("state/incoming-*/*"))


def test_two_queries_write_two_inputs(tmp_path):
    views = "CREATE TABLE a (x INT); CREATE TABLE b (x INT); CREATE VIEW v AS SELECT a.x FROM a, b"
    checkpoint = options_of(tmp_path).checkpoint
    for batch_id, name in [(0, "a"), (0, "b"), (0, "a"), (1, "a")]:
        options = WriteOptions(str(tmp_path / "two"), checkpoint, name, views)
        writer = InputStreamWriter(options)
        plan(options, batch_id)
        batch = pa.RecordBatch.from_pydict({"x": pa.array([batch_id], pa.int32())})
        writer.commit([writer.write(iter([batch]))], batch_id)
    stored = StoredViews(str(tmp_path / "two"))
    assert stored.newest_rows("v").column("x").to_pylist() == [0, 1]
    with pytest.raises(StateError, match="name one of the inputs a, b"):
        InputStreamWriter(WriteOptions(str(tmp_path / "two"), checkpoint)).commit([], 2)


def test_a_state_without_positions_is_refused(tmp_path):
    options = options_of(tmp_path)
    Database(VIEWS, path=options.state).close()
    with Database(VIEWS, path=options.state) as database:
        database.insert("orders", [{"nr": 1, "city": "a"}])
    with pytest.raises(StateError, match="made by another program"):
        commit(WriteOptions(options.state, options.checkpoint), 0, [(A, 1)])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"state": "s"}, "needs the option 'checkpointLocation'"),
        ({"checkpointLocation": "c"}, "needs the option 'state'"),
        ({"state": "s", "path": "p", "checkpointLocation": "c"}, "differ"),
        ({"state": "s", "checkpointLocation": "c", "view": "v"}, "unknown option 'view'"),
        ({"state": "s", "checkpointLocation": "c", "keep": "1"}, "whole number from 2"),
        ({"state": "s", "checkpointLocation": "c", "newQuery": "1"}, "true or false"),
    ],
)
def test_options_are_checked(given, problem):
    with pytest.raises(StateError, match=problem):
        WriteOptions.of(given)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["first", "second"])
def test_kills_of_commits_lose_and_double_no_row(seed, tmp_path):
    arguments = ["tests.support.writer_kills", str(tmp_path), seed, "8"]
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert json.loads(finished.stdout.splitlines()[-1])["kills"] >= 5


@pytest.mark.spark
def test_a_stream_of_spark_goes_into_the_state_and_continues_after_a_restart(spark, tmp_path):
    spark.dataSource.register(ViewDataSource)
    (tmp_path / "in").mkdir()
    state = str(tmp_path / "state")
    columns = "nr long, city string, weight long"
    for number, changes in enumerate([[(A, 1), (B, 1)], [(A, -1), ((3, "b"), 1)]]):
        pq.write_table(rows_of(changes), tmp_path / "in" / f"{number}.parquet")
        writer = spark.readStream.schema(columns).parquet(str(tmp_path / "in")).writeStream
        writer = writer.format("dbsp_wcoj").option("state", state).option("views", VIEWS)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.queryName("orders").trigger(availableNow=True).start()
        query.awaitTermination()
        read = spark.read.format("dbsp_wcoj").option("state", state).option("view", "cities")
        expected = {("a", 1), ("b", 1)} if number == 0 else {("b", 2)}
        assert {tuple(row) for row in read.load().collect()} == expected
    changes = read.option("readChangeFeed", "true").option("startingVersion", "1").load()
    assert {tuple(row)[:3] for row in changes.collect()} == {
        ("a", 1, -1),
        ("b", 1, -1),
        ("b", 2, 1),
    }
