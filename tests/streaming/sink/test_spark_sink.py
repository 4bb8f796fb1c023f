"""The durable sink in queries of Spark: sources, several streams, event time, bad rows, targets."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from circuits import InputOptions, Retention, compile_sql
from streaming import (
    ChangeOptions,
    Output,
    ParquetTarget,
    SqlTarget,
    ViewSink,
    merge,
    observe,
)
from tests.oracles.naive_plan import sum_weights
from tests.support.spark_queries import start_query
from tests.support.tables import bag_of, table_of

pytestmark = pytest.mark.spark

ORDERS = pa.schema([("nr", pa.int64()), ("item", pa.string()), ("price", pa.int64())])
SHIPMENTS = pa.schema([("nr", pa.int64()), ("carrier", pa.string())])
COLUMNS = {
    "orders": "nr long, item string, price long, weight long",
    "shipments": "nr long, carrier string, weight long",
}
SCHEMAS = {"orders": ORDERS, "shipments": SHIPMENTS}
SHOP = """
    CREATE VIEW sent AS SELECT nr, item, carrier FROM orders JOIN shipments USING (nr);
    CREATE VIEW open AS SELECT nr, item, price FROM orders LEFT JOIN shipments USING (nr)
        WHERE carrier IS NULL;
    CREATE VIEW carriers AS SELECT carrier, count(*) AS n, sum(price) AS worth
        FROM orders JOIN shipments USING (nr) GROUP BY carrier;
"""
# The changes (relation, row, weight) of each micro-batch.
CHANGES = [
    [("orders", (1, "pen", 2), 1), ("orders", (2, "ink", 5), 1)],
    [("shipments", (1, "post"), 1), ("orders", (3, "pen", 7), 1)],
    [("shipments", (3, "post"), 1), ("shipments", (2, "bike"), 1)],
    [("shipments", (1, "post"), -1), ("orders", (2, "ink", 5), -1), ("orders", (2, "ink", 6), 1)],
    [("shipments", (4, "bike"), 1)],
    [("orders", (1, "pen", 2), -1), ("orders", (4, "cap", 9), 1), ("shipments", (1, "bike"), 1)],
]


def shop_after(batches: int) -> dict[str, Counter]:
    """Compute the views by loops over rows."""
    rows = sum_weights(((r, *row), n) for batch in CHANGES[:batches] for r, row, n in batch)
    orders = [row[1:] for row in rows if row[0] == "orders"]
    shipments = [row[1:] for row in rows if row[0] == "shipments"]
    sent = [(nr, item, price, c) for nr, item, price in orders for at, c in shipments if at == nr]
    groups: dict[str, list[int]] = {}
    for *_, price, carrier in sent:
        groups.setdefault(carrier, []).append(price)
    shipped = {nr for nr, _ in shipments}
    return {
        "sent": Counter((nr, item, carrier) for nr, item, _, carrier in sent),
        "open": Counter(row for row in orders if row[0] not in shipped),
        "carriers": Counter((c, len(prices), sum(prices)) for c, prices in groups.items()),
    }


@pytest.fixture
def shop(spark, tmp_path):
    """Return a function that writes a micro-batch and runs a new query over all files so far."""
    for name in SCHEMAS:
        (tmp_path / name).mkdir()

    def run(sink, batch):
        for name, schema in SCHEMAS.items():
            rows = [(row, n) for relation, row, n in CHANGES[batch] if relation == name]
            if rows:
                table = table_of(schema, [row for row, _ in rows], [n for _, n in rows])
                pq.write_table(table, tmp_path / name / f"{batch}.parquet")
        streams = {
            name: spark.readStream.schema(columns).parquet(str(tmp_path / name))
            for name, columns in COLUMNS.items()
        }
        start_query(merge(streams), sink, tmp_path / "checkpoint").awaitTermination()

    return run


def test_two_streams_are_one_sink_with_three_kinds_of_output_over_restarts(shop, spark, tmp_path):
    frames: list[tuple[int, Counter]] = []

    def sent(frame, batch_id):
        rows = [(tuple(row)[:-1], row["weight"]) for row in frame.collect()]
        frames.append((batch_id, Counter(dict(rows))))
        assert len(frames[-1][1]) == len(rows), "a row has both +1 and -1"

    open_orders = SqlTarget(lambda: sqlite3.connect(tmp_path / "shop.db"), "open_orders")

    def durable():
        return ViewSink(
            compile_sql(SHOP, SCHEMAS, materialize=True),
            [
                Output("sent", sent),
                Output("open", open_orders, mode="upsert", keys=["nr"]),
                Output("carriers", ParquetTarget(tmp_path / "lake" / "{view}"), mode="complete"),
            ],
            state_dir=tmp_path / "state",
        )

    for batch in range(len(CHANGES)):
        sink = durable()  # a new sink for each micro-batch, which loads the state directory
        shop(sink, batch)
        now = shop_after(batch + 1)
        for view, bag in now.items():
            rows = sink.view(view, spark).collect()
            assert Counter({tuple(row)[:-1]: row["weight"] for row in rows}) == bag, view
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop_db:
            result = shop_db.execute("SELECT nr, item, price FROM open_orders").fetchall()
        assert Counter(result) == now["open"]
        (metrics,) = sink.metrics
        assert (metrics.batch_id, metrics.replayed) == (batch, False)
        assert sum(metrics.rows_in.values()) == len(CHANGES[batch])
        sink.close()
    views = [shop_after(n)["sent"] for n in range(len(CHANGES) + 1)]
    deltas = [
        sum_weights([*new.items(), *((row, -n) for row, n in old.items())])
        for old, new in pairwise(views)
    ]
    assert frames == list(enumerate(deltas))
    last = pq.read_table(tmp_path / "lake" / "carriers").to_pylist()
    whole = {tuple(row.values())[:-1]: row["weight"] for row in last}
    assert Counter(whole) == shop_after(len(CHANGES))["carriers"]
    lines = (tmp_path / "state" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch_id"] for line in lines] == list(range(len(CHANGES)))


def test_the_rate_source_is_counted_exactly_over_a_stop_in_the_middle(spark, tmp_path):
    circuit_of = lambda: compile_sql(  # noqa: E731
        "CREATE VIEW n AS SELECT value % 3 AS remainder, count(*) AS n, sum(value) AS total "
        "FROM rate GROUP BY value % 3;"
        "CREATE VIEW twice AS SELECT value FROM rate GROUP BY value HAVING count(*) > 1;",
        {"rate": pa.schema([("value", pa.int64())])},
        materialize=True,
    )
    for goal in (3, 6):
        sink = ViewSink(circuit_of(), state_dir=tmp_path / "state")
        query = (
            spark.readStream.format("rate")
            .option("rowsPerSecond", 500)
            .load()
            .select("value")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        deadline = time.monotonic() + 120
        while sink.last is None or sink.last.batch_id < goal:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        query.stop()
        sink.close()
    sink = ViewSink(circuit_of(), state_dir=tmp_path / "state")
    rows = {remainder: (n, total) for remainder, n, total in bag_of(sink.table("n"))}
    count = sum(n for n, _ in rows.values())
    assert count > 0
    for remainder in range(3):
        values = range(remainder, count, 3)
        assert rows[remainder] == (len(values), sum(values))
    assert sink.table("twice").num_rows == 0
    text = (tmp_path / "state" / "metrics.jsonl").read_text()
    metrics = [json.loads(line) for line in text.splitlines()]
    assert sum(m["rows_in"]["rate"] for m in metrics if not m["replayed"]) == count


def lines(folder, number, *events):
    folder.mkdir(exist_ok=True)
    text = "".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in events)
    (folder / f"{number}.txt").write_text(text)


@pytest.fixture
def texts(spark, tmp_path):
    """Return a function that runs a query over all text files so far."""

    def run(sink, with_metrics=False):
        stream = spark.readStream.text(str(tmp_path / "in"))
        stream = observe(stream) if with_metrics else stream
        query = start_query(stream, sink, tmp_path / "checkpoint")
        query.awaitTermination()
        return query

    return run


def change(op, before, after, lsn):
    source = {"schema": "public", "table": "orders", "lsn": lsn}
    return {"op": op, "before": before, "after": after, "source": source}


def test_debezium_events_with_bad_ones_among_them_keep_a_view_and_dead_letters(texts, tmp_path):
    pen, ink = {"nr": 1, "item": "pen", "price": 2}, {"nr": 2, "item": "ink", "price": 5}

    def durable(bad_rows):
        return ViewSink(
            compile_sql(
                "SELECT item, sum(price) AS s FROM orders GROUP BY item",
                {"orders": ORDERS},
                name="sums",
                materialize=True,
            ),
            state_dir=tmp_path / "state",
            feed="debezium",
            bad_rows=bad_rows,
        )

    lines(tmp_path / "in", 0, change("r", None, pen, 1), change("c", None, ink, 2))
    sink = durable("fail")
    texts(sink)
    sink.close()
    lines(
        tmp_path / "in",
        1,
        change("u", ink, ink | {"price": 8}, 3),
        "{no json",
        change("c", None, pen | {"price": "much!"}, 4),
        change("d", pen, None, 5),
    )
    sink = durable("fail")
    with pytest.raises(StreamingQueryException, match="micro-batch 1") as raised:
        texts(sink)
    assert "{no json" in str(raised.value) or "much!" in str(raised.value)
    assert bag_of(sink.table("sums")) == {("pen", 2): 1, ("ink", 5): 1}  # nothing half applied
    sink.close()
    sink = durable("dead_letter")
    query = texts(sink, with_metrics=True)
    assert bag_of(sink.table("sums")) == {("ink", 8): 1}
    (metrics,) = sink.metrics
    assert (metrics.dead_letters, metrics.dead_letters_total) == (2, 2)
    letters = pq.read_table(tmp_path / "state" / "dead_letters").to_pylist()
    assert {letter["batch_id"] for letter in letters} == {1}
    reasons = " ".join(letter["reason"] for letter in letters)
    assert "JSON" in reasons
    assert "much!" in " ".join(letter["row"] for letter in letters)
    observed = query.lastProgress["observedMetrics"]["dbsp_wcoj"]
    assert observed["rows"] == 4


VISITS = pa.schema(
    [("person", pa.string()), ("page", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
)


def test_the_watermark_of_spark_and_the_newest_time_delete_old_rows(spark, tmp_path):
    def durable():
        return ViewSink(
            compile_sql(
                "SELECT page, count(*) AS n FROM visits GROUP BY page",
                {"visits": VISITS},
                name="pages",
                materialize=True,
                input_options={"visits": InputOptions(retain=Retention("ts", "10 minutes"))},
            ),
            state_dir=tmp_path / "state",
            checkpoint=tmp_path / "checkpoint",
        )

    def run(number, *visits):
        (tmp_path / "in").mkdir(exist_ok=True)
        lines(tmp_path / "in", number, *(",".join(visit) for visit in visits))
        stream = (
            spark.readStream.schema("person string, page string, ts timestamp")
            .csv(str(tmp_path / "in"))
            .withWatermark("ts", "5 minutes")
        )
        sink = durable()
        start_query(stream, sink, tmp_path / "checkpoint").awaitTermination()
        result = bag_of(sink.table("pages"))
        letters = sink.metrics[-1].dead_letters_total
        sink.close()
        return result, letters

    day = "2024-01-01T12:"
    first = run(0, ("ann", "home", f"{day}00:00Z"), ("bob", "home", f"{day}06:00Z"))
    assert first == ({("home", 2): 1}, 0)
    # Spark's watermark is 5 minutes behind the newest event, from the next micro-batch on; rows
    # within 10 minutes of the newest are kept, as long as the watermark has not passed them.
    result, letters = run(1, ("eve", "shop", f"{day}20:00Z"), ("old", "home", f"{day}01:00Z"))
    assert result == {("shop", 1): 1}
    assert letters == 0
    result, letters = run(2, ("joe", "shop", f"{day}21:00Z"), ("old", "home", f"{day}02:00Z"))
    assert result == {("shop", 2): 1}
    assert letters == 1
    rows = pq.read_table(tmp_path / "state" / "dead_letters").to_pylist()
    assert [row["row"] for row in rows if '"old"' not in row["row"]] == []


def test_two_queries_in_one_driver_have_a_sink_each_and_do_not_mix(spark, tmp_path):
    sinks, queries = {}, []
    for name, factor in (("a", 1), ("b", 10)):
        (tmp_path / name).mkdir()
        for number in range(3):
            rows = [(i * factor, number) for i in range(5)]
            schema = pa.schema([("value", pa.int64()), ("number", pa.int64())])
            pq.write_table(table_of(schema, rows), tmp_path / name / f"{number}.parquet")
        circuit = compile_sql(
            "SELECT number, sum(value) AS s FROM r GROUP BY number",
            {"r": schema},
            name="sums",
            materialize=True,
        )
        sinks[name] = ViewSink(circuit, state_dir=tmp_path / f"state-{name}")
        files = spark.readStream.schema("value long, number long").option("maxFilesPerTrigger", 1)
        stream = files.parquet(str(tmp_path / name))
        queries.append(start_query(stream, sinks[name], tmp_path / f"checkpoint-{name}"))
    for query in queries:
        query.awaitTermination()
    for name, factor in (("a", 1), ("b", 10)):
        assert bag_of(sinks[name].table("sums")) == {(n, 10 * factor): 1 for n in range(3)}
    # A sink refuses the state of another query.
    sinks["a"].close()
    other = ViewSink(
        compile_sql(
            "SELECT number, sum(value) AS s FROM r GROUP BY number",
            {"r": schema},
            name="sums",
            materialize=True,
        ),
        state_dir=tmp_path / "state-a",
    )
    pq.write_table(table_of(schema, [(1, 9)]), tmp_path / "b" / "9.parquet")
    stream = spark.readStream.schema("value long, number long").parquet(str(tmp_path / "b"))
    with pytest.raises(StreamingQueryException, match="one state serves one checkpoint"):
        start_query(stream, other, tmp_path / "checkpoint-b").awaitTermination()


def test_views_change_in_another_thread_while_the_query_runs(spark, tmp_path):
    batches, rows_per_batch = 14, 5
    folder = tmp_path / "orders"
    folder.mkdir()
    rows = [(nr, f"item {nr % 3}", nr) for nr in range(batches * rows_per_batch)]
    for number in range(batches):
        part = rows[number * rows_per_batch : (number + 1) * rows_per_batch]
        pq.write_table(table_of(ORDERS, part, [1] * len(part)), folder / f"{number:02}.parquet")
    stream = (
        spark.readStream.schema(COLUMNS["orders"])
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    circuit = compile_sql(
        "CREATE VIEW items AS SELECT item, count(*) AS n FROM orders GROUP BY item",
        {"orders": ORDERS},
        input_options={"orders": InputOptions(keep="all")},
    )
    sink = ViewSink(circuit, ParquetTarget(tmp_path / "{view}"), state_dir=tmp_path / "state")
    query = start_query(stream, sink, tmp_path / "checkpoint")
    while len(sink.metrics) < 2:
        assert query.isActive
        time.sleep(0.01)
    change = ChangeOptions(rows_per_batch=30)
    target = ParquetTarget(tmp_path / "{view}")
    text = "CREATE VIEW worth AS SELECT item, sum(price) AS s FROM orders GROUP BY item"
    sliced = sink.add_view(text, target, change=change)
    sink.drop_view("items")
    query.awaitTermination()
    assert sliced.result(0) > 2
    expected = Counter((f"item {k}", sum(range(k, len(rows), 3))) for k in range(3))
    table = pq.read_table(tmp_path / "worth", partitioning=None)
    changes = ((row["item"], row["s"]) for row in table.to_pylist())
    weights = (row["weight"] for row in table.to_pylist())
    assert sum_weights(zip(changes, weights, strict=True)) == expected
    assert list(sink.circuit.plans) == ["worth"]
