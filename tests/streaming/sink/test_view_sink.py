"""ViewSink: micro-batches are applied once, in order, and published; mistakes are refused."""

from __future__ import annotations

import shutil
import time
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQueryListener

from circuits import UnknownInputError, compile_datalog, compile_sql
from streaming import BatchOrderError, ReplayError, RowError, UntaggedBatchError, ViewSink
from tests.support.spark_queries import start_query
from tests.support.tables import bag_of, not_null_integers

EDGE_SCHEMA = not_null_integers("src", "dst")  # a schema of integers
NODE_SCHEMA = not_null_integers("node")
TRIANGLES = """
    SELECT count(*) AS n
    FROM link ab JOIN link bc ON bc.src = ab.dst JOIN link ac ON ac.src = ab.src AND ac.dst = bc.dst
"""


class Frame:
    """A micro-batch that counts how often it is read."""

    def __init__(self, table, query_id="q"):
        self.table = table
        self.reads = 0
        context = SimpleNamespace(getLocalProperty=lambda key: query_id)
        self.sparkSession = SimpleNamespace(sparkContext=context)

    @property
    def columns(self):
        return self.table.column_names

    def toArrow(self):  # Spark's name
        self.reads += 1
        return self.table


def edges(*rows, weight=1):
    return pa.table(
        {"src": [a for a, _ in rows], "dst": [b for _, b in rows], "weight": [weight] * len(rows)}
    )


class RecordingTarget:
    """A target that records all deltas; its first ``fails`` writes raise an error."""

    def __init__(self, fails=0):
        self.deltas = []
        self.fails = fails

    def write(self, delta):
        self.deltas.append(delta)
        if len(self.deltas) <= self.fails:
            raise OSError("downstream is away")

    @property
    def totals(self):
        return [(delta.batch_id, change(delta.table)) for delta in self.deltas]


def triangles(on_delta=None):
    return ViewSink(compile_sql(TRIANGLES, {"link": EDGE_SCHEMA}, name="triangles"), on_delta)


def change(table):
    """Return the change of the count."""
    return sum(n * weight for (n,), weight in bag_of(table).items())


def total(outputs):
    return change(outputs["triangles"])


def test_a_micro_batch_is_read_exactly_once_and_its_delta_is_published():
    target = RecordingTarget()
    sink = triangles(target)
    frame = Frame(edges((1, 2), (2, 3), (1, 3)))
    sink(frame, 0)
    sink(Frame(edges((1, 3), weight=-1)), 1)
    assert frame.reads == 1
    assert target.totals == [(0, 1), (1, -1)]
    assert sink.last.batch_id == 1


def test_a_replayed_micro_batch_publishes_the_same_delta_and_changes_nothing():
    target = RecordingTarget()
    sink = triangles(target)
    sink(Frame(edges((1, 2), (2, 3), (1, 3))), 0)
    replayed = Frame(edges((1, 2), (2, 3), (1, 3)))
    sink(replayed, 0)
    sink(Frame(edges((1, 3), weight=-1)), 1)
    assert target.totals == [(0, 1), (0, 1), (1, -1)]
    assert replayed.reads == 1


def test_a_replayed_micro_batch_with_different_rows_is_refused():
    sink = triangles()
    sink(Frame(edges((1, 2), (2, 3), (1, 3))), 0)
    for rows in ([(1, 2), (2, 3)], [(1, 2), (2, 3), (1, 4)]):
        with pytest.raises(ReplayError, match="different rows of relation 'link'"):
            sink(Frame(edges(*rows)), 0)
    sink(Frame(edges((2, 3), (1, 3), (1, 2))), 0)
    assert total(sink.last.outputs) == 1


def test_a_replay_of_a_micro_batch_without_rows_has_no_rows():
    circuit = compile_sql("SELECT a.src FROM a, b", {"a": EDGE_SCHEMA, "b": EDGE_SCHEMA})
    sink = ViewSink(circuit)
    rows = edges((1, 2)).append_column("relation", pa.array(["b"]))
    sink(Frame(rows), 0)
    sink(Frame(rows[:0]), 1)
    with pytest.raises(ReplayError, match="different rows of relation 'b'"):
        sink(Frame(rows), 1)
    sink(Frame(rows[:0]), 1)


@pytest.mark.parametrize("batch_id", [0, 3, 100])
def test_an_older_batch_id_or_a_gap_is_an_error_and_changes_nothing(batch_id):
    sink = triangles()
    sink(Frame(edges((1, 2))), 0)
    sink(Frame(edges((2, 3))), 1)
    with pytest.raises(BatchOrderError, match=f"micro-batch {batch_id} follows 1"):
        sink(Frame(edges((7, 8))), batch_id)
    sink(Frame(edges((1, 3))), 2)
    assert total(sink.last.outputs) == 1


def test_a_first_micro_batch_that_is_not_the_first_of_its_checkpoint_is_refused():
    with pytest.raises(BatchOrderError, match="delete the checkpoint"):
        triangles()(Frame(edges((1, 2))), 57)


def test_a_second_query_on_one_sink_is_refused():
    sink = triangles()
    sink(Frame(edges((1, 2))), 0)
    with pytest.raises(BatchOrderError, match="one sink serves one query"):
        sink(Frame(edges((1, 2)), query_id="other"), 0)


def test_after_a_refused_micro_batch_the_corrected_one_gives_the_right_delta():
    sink = triangles()
    sink(Frame(edges((1, 2), (2, 3))), 0)
    with pytest.raises(RowError, match=r"micro-batch 1: .*'dst' is NULL"):
        sink(Frame(pa.table({"src": [1], "dst": pa.array([None], pa.int64())})), 1)
    sink(Frame(edges((1, 3))), 1)
    assert total(sink.last.outputs) == 1


def test_when_publishing_fails_the_replay_publishes_again_without_a_second_step():
    target = RecordingTarget(fails=1)
    sink = triangles(target)
    with pytest.raises(OSError, match="downstream"):
        sink(Frame(edges((1, 2), (2, 3), (1, 3))), 0)
    sink(Frame(edges((1, 2), (2, 3), (1, 3))), 0)
    sink(Frame(edges((1, 3), weight=-1)), 1)
    assert target.totals == [(0, 1), (0, 1), (1, -1)]


def two_inputs():
    return compile_datalog(
        "both(a, b) :- link(a, b), mark(b).", {"link": EDGE_SCHEMA, "mark": NODE_SCHEMA}
    )


def test_a_tagged_union_feeds_several_relations_in_one_micro_batch():
    sink = ViewSink(two_inputs())
    table = pa.table(
        {
            "relation": ["link", "mark", "link"],
            "src": [1, None, 1],
            "dst": [2, None, 3],
            "node": [None, 2, None],
            "weight": [2, 1, 1],
        }
    )
    sink(Frame(table), 0)
    assert sink.last.outputs["both"].to_pylist() == [{"a": 1, "b": 2, "weight": 1}]
    sink(Frame(table.slice(0, 0)), 1)
    assert sink.last.outputs["both"].num_rows == 0


def test_columns_of_other_types_and_null_pass_through():
    schema = pa.schema([("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    sink = ViewSink(compile_sql("SELECT name, max(at) AS at FROM r GROUP BY name", {"r": schema}))
    at = [pa.scalar(n, pa.timestamp("us", "UTC")).as_py() for n in (5, 7)]
    rows = {"name": ["ann", None, "ann"], "at": pa.array([at[1], at[0], at[0]], schema[1].type)}
    sink(Frame(pa.table(rows)), 0)
    assert bag_of(sink.last.outputs["view"]) == {("ann", at[1]): 1, (None, at[0]): 1}
    sink(Frame(pa.table({**rows, "weight": [-1, 0, 0]})), 1)
    assert bag_of(sink.last.outputs["view"]) == {("ann", at[1]): -1, ("ann", at[0]): 1}


@pytest.mark.parametrize(
    ("tags", "error", "words"),
    [
        (["link", None], RowError, "relation is NULL; inputs are link, mark"),
        ([1, 2], UntaggedBatchError, "of type int64"),
        (["link", "edges"], RowError, "unknown relation edges; inputs are link, mark"),
    ],
)
def test_rows_that_do_not_name_a_relation_are_refused(tags, error, words):
    table = pa.table({"relation": tags, "src": [1, 1], "dst": [2, 3], "node": [4, 4]})
    with pytest.raises(error, match=words):
        ViewSink(two_inputs())(Frame(table), 0)


def test_untagged_rows_need_a_circuit_of_one_input_or_the_name_of_the_relation():
    with pytest.raises(UntaggedBatchError, match="add a column 'relation'"):
        ViewSink(two_inputs())(Frame(edges((1, 2))), 0)
    ViewSink(two_inputs(), relation="link")(Frame(edges((1, 2))), 0)
    with pytest.raises(UnknownInputError, match="'edges' is not an input"):
        ViewSink(two_inputs(), relation="edges")


def write(directory, number, table):
    directory.mkdir(exist_ok=True)
    pq.write_table(table, directory / f"{number}.parquet")


@pytest.fixture
def stream(spark, tmp_path):
    """Run the files of a directory through a sink, as a new query with the old checkpoint."""

    def start(sink, columns="src long, dst long, weight long"):
        source = spark.readStream.schema(columns)
        files = source.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        start_query(files, sink, tmp_path / "checkpoint").awaitTermination()

    return start


SPARK_TYPES = """
    SELECT 'a' AS s, CAST(NULL AS string) AS n, X'00ff' AS y, NULL AS v, true AS b,
        1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64, float('1.5') AS f32, double('-Infinity') AS f64,
        CAST('-1.25' AS decimal(10, 2)) AS m, CAST('12345678901234567890.5' AS decimal(38, 4)) AS w,
        DATE '2024-01-02' AS d, TIMESTAMP '2024-01-02 03:04:05.000006' AS ts,
        TIMESTAMP_NTZ '1969-12-31 23:59:59.999999' AS tn, INTERVAL '1' DAY AS iv
"""


@pytest.mark.spark
def test_scalars_of_spark_pass_through_a_view_and_out_again(spark):
    table = spark.sql(SPARK_TYPES).toArrow()
    sink = ViewSink(compile_sql("SELECT * FROM r", {"r": table.schema}))
    sink(Frame(table), 0)
    assert sink.last.outputs["view"].drop_columns("weight").equals(table)


@pytest.mark.spark
def test_texts_dates_decimals_and_null_are_joined_and_summed_in_a_query_of_spark(stream, tmp_path):
    columns = {
        "relation": pa.string(),
        "person": pa.string(),
        "city": pa.string(),
        "day": pa.date32(),
        "amount": pa.decimal128(9, 2),
        "weight": pa.int64(),
    }
    views = """
        SELECT city, max(day) AS day, sum(amount) AS amount
        FROM payment LEFT JOIN resident USING (person) WHERE day >= DATE '2024-01-01' GROUP BY city
    """
    schemas = {
        "resident": pa.schema({name: columns[name] for name in ("person", "city")}),
        "payment": pa.schema({name: columns[name] for name in ("person", "day", "amount")}),
    }
    first, second, old = date(2024, 1, 5), date(2024, 2, 7), date(2023, 12, 31)
    target = RecordingTarget()
    sink = ViewSink(compile_sql(views, schemas), target)
    for number, rows in enumerate(
        [
            [
                ("resident", "ann", "Köln", None, None, 1),
                ("resident", None, "Rome", None, None, 1),
                ("payment", "ann", None, first, Decimal("10.10"), 1),
                ("payment", "ann", None, second, None, 1),
                ("payment", None, None, first, Decimal("0.30"), 1),
                ("payment", "ann", None, old, Decimal("99.00"), 1),
            ],
            [("payment", "ann", None, second, None, -1)],
            [("resident", "ann", "Köln", None, None, -1)],
        ]
    ):
        arrays = [
            pa.array(c, t) for c, t in zip(zip(*rows, strict=True), columns.values(), strict=True)
        ]
        write(tmp_path / "in", number, pa.table(arrays, names=list(columns)))
        stream(
            sink,
            "relation string, person string, city string, day date, amount decimal(9, 2), "
            "weight long",
        )
    assert [bag_of(delta.table) for delta in target.deltas] == [
        {("Köln", second, Decimal("10.10")): 1, (None, first, Decimal("0.30")): 1},
        {("Köln", second, Decimal("10.10")): -1, ("Köln", first, Decimal("10.10")): 1},
        {
            ("Köln", first, Decimal("10.10")): -1,
            (None, first, Decimal("0.30")): -1,
            (None, first, Decimal("10.40")): 1,
        },
    ]


@pytest.mark.spark
def test_a_query_restarted_in_the_process_continues(stream, tmp_path):
    target = RecordingTarget()
    sink = triangles(target)
    write(tmp_path / "in", 0, edges((1, 2), (2, 3), (1, 3)))
    stream(sink)
    write(tmp_path / "in", 1, edges((1, 3), weight=-1))
    stream(sink)
    assert target.totals == [(0, 1), (1, -1)]


@pytest.mark.spark
def test_a_micro_batch_whose_commit_spark_forgot_is_not_applied_twice(stream, tmp_path):
    target = RecordingTarget()
    sink = triangles(target)
    write(tmp_path / "in", 0, edges((1, 2), (2, 3), (1, 3)))
    stream(sink)
    for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        file.unlink()  # as after a crash between the function and the commit log
    write(tmp_path / "in", 1, edges((1, 3), weight=-1))
    stream(sink)
    assert target.totals == [(0, 1), (0, 1), (1, -1)]


@pytest.mark.spark
def test_a_new_sink_on_an_old_checkpoint_and_an_old_sink_on_a_new_one_are_refused(stream, tmp_path):
    sink = triangles()
    write(tmp_path / "in", 0, edges((1, 2)))
    stream(sink)
    write(tmp_path / "in", 1, edges((2, 3)))
    with pytest.raises(StreamingQueryException, match="delete the checkpoint"):
        stream(triangles())
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="one sink serves one query"):
        stream(sink)


@pytest.mark.spark
def test_spark_reads_each_row_of_a_micro_batch_once(spark, stream, tmp_path):
    rows = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event): ...
        def onQueryProgress(self, event):
            rows.append(event.progress.numInputRows)

        def onQueryIdle(self, event): ...
        def onQueryTerminated(self, event):
            rows.append("end")

    listener = Listener()
    write(tmp_path / "in", 0, edges(*((i, i + 1) for i in range(1000))))
    spark.streams.addListener(listener)
    try:
        stream(triangles())
        for _ in range(100):
            if "end" in rows:
                break
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert sum(row for row in rows if row != "end") == 1000
