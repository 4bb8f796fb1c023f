"""A micro-batch in one Spark job: the deltas of one process, and no row in the driver."""

from __future__ import annotations

import itertools
import re
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from circuits import Circuit, EvaluationError, InputOptions, SchemaError, compile_sql
from dbsp_wcoj import DbspWcojError
from streaming import (
    Output,
    ReplayError,
    RowError,
    StreamingError,
    TargetError,
    ViewSink,
)
from streaming.distributed import batch_job, engine
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.execution import job_tasks, stage_rows, view_deltas
from streaming.distributed.execution import packets as packets_module
from streaming.distributed.execution.packets import (
    OF_EXCHANGE,
    Kind,
    Packet,
    pack_rows,
    slice_rows,
)
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import (
    divide_by_cell,
    pack_relations,
    replicate_rows,
    split_relations,
)
from streaming.distributed.execution.transport import read_table
from streaming.distributed.execution.view_deltas import find_tasks
from streaming.distributed.planning import grid_planning, load_balance
from streaming.distributed.planning.grid_planning import stage_grid
from streaming.distributed.rescaling import rescale_state
from streaming.distributed.task_errors import format_error
from streaming.sink import view_sink
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.few_rows import Refusal
from streaming.state.local_files import LocalFiles
from streaming.state.open_files import open_files
from streaming.state.version_summary import StoredTable
from streaming.targets.frame import FrameTarget
from streaming.targets.parquet import ParquetTarget
from tests.circuits.sql.test_sql_circuits import SCHEMAS as SQL_SCHEMAS
from tests.circuits.sql.test_sql_circuits import World
from tests.generators.sql_generator import selects
from tests.streaming.distributed.local_job import LocalCluster, LocalFrame
from tests.streaming.distributed.test_engine import (
    HUBS,
    Frame,
    batch_of,
    batches,
    hub,
    load_ratios,
    outputs,
)
from tests.streaming.distributed.test_engine import SCHEMAS as GRAPH
from tests.streaming.distributed.test_task import unnamed_files
from tests.support.tables import bag_of

SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int32()), ("name", pa.string())]),
}
VIEWS = """
    CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW names AS SELECT p.name, count(*) AS n, min(e.dst) AS least
        FROM e LEFT JOIN p ON e.src = p.id GROUP BY p.name;
    CREATE VIEW loops AS SELECT src FROM e WHERE src = dst;
    CREATE VIEW pairs AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;
    CREATE VIEW named AS SELECT e.src, e.dst, p.name FROM e JOIN p ON e.dst = p.id;
    CREATE VIEW sources AS SELECT DISTINCT src FROM e;
"""
LAW = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class UnreadFrame:
    """Fails if the driver reads the rows of the frame."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.sparkSession, self.columns = frame.sparkSession, frame.columns
        self.schema = frame.schema

    def mapInArrow(self, run: Any, schema: Any) -> Any:  # Spark's name
        return self._frame.mapInArrow(run, schema)


class LimitedFrame(UnreadFrame):
    """A frame of which the driver may read the first rows.

    Attributes:
        limits: The numbers of rows that were asked for.
    """

    def __init__(self, frame: Any) -> None:
        super().__init__(frame)
        self.limits: list[int] = []

    def limit(self, count: int) -> Any:
        self.limits.append(count)
        return SimpleNamespace(
            schema=StructType(), toArrow=lambda: self._frame.toArrow().slice(0, count)
        )


def distributed(place: Any, views: str = VIEWS, *, cells: int = 4, **options: Any) -> ViewSink:
    circuit = compile_sql(views, SCHEMAS)
    return ViewSink(circuit, state_dir=place, mode="distributed", cells=cells, **options)


@pytest.mark.spark
def test_executors_publish_what_the_embedded_sink_publishes_in_one_job_per_micro_batch(
    spark, tmp_path
):
    embedded, sink = ViewSink(compile_sql(VIEWS, SCHEMAS)), distributed(tmp_path)
    context = spark.sparkContext
    for number, table in enumerate(graph_batches(5, "jobs")):
        frame = spark.createDataFrame(table)
        embedded(frame, number)
        context.setJobGroup(f"batch {number}", "a micro-batch")
        sink(UnreadFrame(frame), number)
        jobs = context.statusTracker().getJobIdsForGroup(f"batch {number}")
        assert len(jobs) == (1 if number else 2)  # the first one counts values for the grids
        assert outputs(sink) == outputs(embedded)
        assert sink.metrics[-1].rows_in == embedded.metrics[-1].rows_in
        if number == 2:
            sink.close()
            sink = distributed(tmp_path)
            sink(UnreadFrame(frame), number)
            assert sink.metrics[-1].replayed
            assert outputs(sink) == outputs(embedded)
    context.setLocalProperty("spark.jobGroup.id", None)
    assert "rows: read by executors" in sink.explain()


@pytest.mark.spark
def test_a_function_receives_the_rows_that_executors_wrote_as_a_frame_of_their_files(
    spark, tmp_path
):
    received: list[tuple[int, pa.Table]] = []
    target = Output("named", lambda frame, batch_id: received.append((batch_id, frame.toArrow())))
    sink = distributed(tmp_path, outputs=[target])
    for number, table in enumerate(graph_batches(3, "frames")):
        frame = spark.createDataFrame(table)
        with patch.object(StoredTable, "read", None):  # no row is read in the driver
            sink(UnreadFrame(frame), number)
        assert received[-1][0] == number
        assert bag_of(received[-1][1]) == outputs(sink)["named"]


def test_the_bytes_that_reach_the_driver_do_not_depend_on_the_number_of_rows(tmp_path):
    cluster = LocalCluster(attempts=(1,))
    sink = distributed(tmp_path, cells=8)
    people = {"id": pa.array(range(100), pa.int32()), "name": [f"name of {n}" for n in range(100)]}
    sink(UnreadFrame(cluster.frame(tagged({"p": pa.table(people)}))), 0)
    received = []
    for number, rows in enumerate((1_000, 10_000, 100_000), 1):
        edges = pa.table({"src": range(rows), "dst": [n % 100 for n in range(rows)]})
        sink(UnreadFrame(cluster.frame(tagged({"e": edges}))), number)
        assert sink.metrics[-1].rows_out["named"] == rows
        cells = read_newest_cells(LocalFiles(tmp_path))
        assert cells is not None
        received.append(cluster.bytes_to_driver - sum(map(len, cells.manifests.values())))
    assert cluster.frame_jobs == 2 + 3
    assert max(received) < 64_000


def test_rows_that_cannot_be_decoded_are_dead_letters_or_an_error_as_in_the_driver(tmp_path):
    cluster = LocalCluster()
    sink = distributed(tmp_path, bad_rows="dead_letter")
    edge, bad = {"relation": "e", "src": 1, "dst": 1}, {"relation": "f", "src": 1, "dst": 1}
    sink(UnreadFrame(cluster.frame(rows_of(edge))), 0)
    sink(UnreadFrame(cluster.frame(rows_of(edge, bad, edge))), 1)
    assert sink.metrics[-1].dead_letters == 1
    assert outputs(sink)["loops"] == {(1,): 2}
    sink.close()
    sink = distributed(tmp_path)
    with pytest.raises(RowError, match=r"micro-batch 2: .*unknown relation f"):
        sink(cluster.frame(rows_of(edge, bad)), 2)
    with pytest.raises(SchemaError, match="column 'dst' is missing"):
        sink(cluster.frame(rows_of(edge).drop_columns(["dst"])), 2)
    sink(UnreadFrame(cluster.frame(rows_of(edge))), 2)
    assert outputs(sink)["loops"] == {(1,): 1}


def test_rows_for_the_driver_are_sent_in_packets_of_few_bytes_or_one_row(tmp_path):
    embedded = ViewSink(
        compile_sql(VIEWS, SCHEMAS), state_dir=tmp_path / "e", bad_rows="dead_letter"
    )
    sink, cluster = distributed(tmp_path / "d", bad_rows="dead_letter"), LocalCluster()
    bad = rows_of(*({"relation": "f", "src": n, "dst": n} for n in range(9)))
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    read_result = batch_job._read_result

    def record(packets: Any, *args: Any) -> batch_job.JobResult:
        for kind in (Kind.DEAD_LETTERS, Kind.STAGE):
            tables[kind] += [read_table(packet.content) for packet in packets[kind]]
        return read_result(packets, *args)

    with (
        patch.object(job_tasks, "MAX_PACKET_BYTES", 64),
        patch.object(batch_job, "_read_result", record),
    ):
        for number, rows in enumerate(graph_batches(3, "packets")):
            table = pa.concat_tables([rows, bad], promote_options="permissive")
            embedded(Frame(None, table), number)
            sink(UnreadFrame(cluster.frame(table)), number)
            assert outputs(sink) == outputs(embedded)
            assert sink.metrics[-1].dead_letters == embedded.metrics[-1].dead_letters == 9
    sink.close()
    assert len(tables[Kind.DEAD_LETTERS]) > 3 and tables[Kind.STAGE]
    sent = itertools.chain(*tables.values())
    assert all(table.num_rows == 1 or table.nbytes <= 64 for table in sent)


def test_a_replay_is_not_compared_with_a_version_whose_failing_rows_were_isolated(tmp_path):
    schema = {"r": pa.schema([("k", pa.int64()), ("s", pa.string())])}
    text = "CREATE VIEW ns AS SELECT k, CAST(s AS BIGINT) AS n FROM r"
    cluster = LocalCluster()

    def new_sink() -> ViewSink:
        circuit = compile_sql(text, schema)
        options: Any = {"mode": "distributed", "cells": 2, "bad_rows": "dead_letter"}
        return ViewSink(circuit, state_dir=tmp_path, **options)

    sink = new_sink()
    sink(cluster.frame(pa.table({"k": [1], "s": ["1"]})), 0)
    failing = cluster.frame(pa.table({"k": [2, 3, 4], "s": ["2", "x", "4"]}))
    sink(failing, 1)
    assert sink.metrics[-1].dead_letters == 1
    sink.close()
    sink = new_sink()
    sink(failing, 1)
    assert sink.metrics[-1].replayed
    sink(UnreadFrame(cluster.frame(pa.table({"k": [5], "s": ["5"]}))), 2)
    assert outputs(sink) == {"ns": {(5, 5): 1}}
    sink.close()


def test_after_rows_that_only_the_driver_can_decode_it_reads_further_micro_batches(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(compile_sql(VIEWS, SCHEMAS))
    sink, decode = distributed(tmp_path), FeedReader.decode

    def decode_in_driver(reader: FeedReader, table: pa.Table, session: Any) -> Any:
        if session is None:
            raise StreamingError("needs a session")
        return decode(reader, table, session)

    jobs = []
    tables = graph_batches(5, "driver")
    with (
        patch.object(FeedReader, "decode", decode_in_driver),
        patch.object(engine, "BATCHES_WITHOUT_JOB", 2),
    ):
        for number, table in enumerate(tables):
            frame = cluster.frame(table)
            with patch.object(frame, "mapInArrow", wraps=frame.mapInArrow) as begin_job:
                sink(frame, number)
            jobs.append(begin_job.called)
            embedded(Frame(object(), table), number)
            assert outputs(sink) == outputs(embedded)
    assert jobs == [True, False, True, True, False]  # the third one has no rows to decode


def test_of_several_errors_of_a_job_the_first_cause_is_raised():
    packets = [
        Packet(0, 1, Kind.ERROR, name, cell, "", format_error(error))
        for name, cell, error in [
            ("view", -1, TargetError("of a view")),
            ("1", 0, EvaluationError("of a later stage")),
            ("0", 2, EvaluationError("of a cell")),
            ("exchange", OF_EXCHANGE, StreamingError("of the exchange")),
            ("", 0, SchemaError("of the source")),
        ]
    ]
    messages = ["view", "later", "of a cell", "of the exchange", "of the source"]
    for count, message in enumerate(messages, 1):
        by_kind: defaultdict[str, list[Packet]] = defaultdict(list)
        by_kind[Kind.ERROR] += packets[:count]
        with pytest.raises(DbspWcojError, match=message):
            batch_job._raise_errors(by_kind)


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=2)), max_size=6)))
def test_rows_are_divided_by_their_cells_in_their_order(batches):
    schema = pa.schema([(CELL, pa.int32()), ("x", pa.string())])
    parts = [pa.table([*zip(*rows, strict=True)], schema) for rows in batches if rows]
    table = pa.concat_tables([schema.empty_table(), *parts])
    divided = divide_by_cell(table)
    assert divided.keys() == {*table.column(CELL).to_pylist()}
    for cell, rows in divided.items():
        assert rows.equals(table.filter(pc.equal(table.column(CELL), cell)))


@given(st.lists(st.one_of(st.none(), st.text(max_size=9)), max_size=20), st.integers(1, 90))
def test_slices_have_few_bytes_or_one_row(texts, most):
    table = pa.table({"x": pa.array(texts, pa.string())})
    slices = [*slice_rows(table, most)]
    assert pa.concat_tables(slices).equals(table)
    assert all(part.num_rows == 1 or part.nbytes <= most for part in slices if table.num_rows)


def test_tasks_copy_rows_in_slices_with_the_same_result(tmp_path):
    embedded, cluster = ViewSink(compile_sql(VIEWS, SCHEMAS)), LocalCluster(3)
    sink = distributed(tmp_path)
    copied: list[tuple[pa.Table, int]] = []

    def replicate(stage: Any, rows: pa.Table, grid: Any) -> pa.Table:
        copied.append((rows, grid.most_copies))
        return replicate_rows(stage, rows, grid)

    with (
        patch.object(job_tasks, "replicate_rows", replicate),
        patch.object(job_tasks, "MAX_TABLE_BYTES", 400),
        patch.object(packets_module, "MAX_TABLE_BYTES", 100),
    ):
        for number, table in enumerate(graph_batches(2, "slices")):
            embedded(Frame(None, table), number)
            sink(cluster.frame(table), number)
            assert outputs(sink) == outputs(embedded)
    sink.close()
    assert len({copies for _, copies in copied}) > 1
    assert all(rows.num_rows == 1 or rows.nbytes * copies <= 400 for rows, copies in copied)


def test_rows_in_many_small_batches_are_encoded_as_one_array(tmp_path):
    sink, cluster = distributed(tmp_path), LocalCluster(5)
    chunks: Counter[str] = Counter()
    decode, prepare = FeedReader.decode, Circuit.prepare

    def count(where: str, tables: Iterable[pa.Table]) -> None:
        for column in itertools.chain.from_iterable(table.columns for table in tables):
            chunks[where] = max(chunks[where], column.num_chunks)

    def decode_counted(reader: FeedReader, table: pa.Table, session: Any) -> Any:
        count("source", [table])
        return decode(reader, table, session)

    def prepare_counted(circuit: Circuit, tables: dict[str, pa.Table], *args: Any) -> Any:
        count("cells", tables.values())
        return prepare(circuit, tables, *args)

    embedded = ViewSink(compile_sql(VIEWS, SCHEMAS))
    for number, table in enumerate(graph_batches(2, "small batches")):
        embedded(Frame(None, table), number)
        frame = cluster.frame(pa.concat_tables([table.slice(n, 1) for n in range(len(table))]))
        with (
            patch.object(packets_module, "MAX_PACKET_BYTES", 64),
            patch.object(FeedReader, "decode", decode_counted),
            patch.object(Circuit, "prepare", prepare_counted),
        ):
            sink(frame, number)
        assert outputs(sink) == outputs(embedded)
    sink.close()
    assert chunks == {"source": 1, "cells": 1}


@pytest.mark.parametrize("most", [(1, 1 << 28), (1 << 18, 1)], ids=["rows", "bytes"])
def test_a_source_decodes_few_rows_or_bytes_at_once(tmp_path, most):
    sink, cluster = distributed(tmp_path), LocalCluster(attempts=(1,))
    table = rows_of(*({"relation": "e", "src": n, "dst": n} for n in range(6)))
    frame = cluster.frame(pa.concat_tables([table.slice(n, 1) for n in range(6)]))
    rows: list[int] = []
    decode = FeedReader.decode

    def decode_counted(reader: FeedReader, table: pa.Table, session: Any) -> Any:
        rows.append(table.num_rows)
        return decode(reader, table, session)

    with (
        patch.object(job_tasks, "MAX_SOURCE_ROWS", most[0]),
        patch.object(job_tasks, "MAX_SOURCE_BYTES", most[1]),
        patch.object(FeedReader, "decode", decode_counted),
    ):
        sink(frame, 0)
    assert set(rows) == {1}
    assert outputs(sink)["loops"] == {(n,): 1 for n in range(6)}
    sink.close()


def test_rows_of_a_view_that_only_one_cell_can_compute_are_not_added_up_again(tmp_path):
    view = "CREATE VIEW named AS SELECT e.src, e.dst, p.name FROM e JOIN p ON e.dst = p.id"
    embedded, sink = ViewSink(compile_sql(view, SCHEMAS)), distributed(tmp_path, view, cells=8)
    cluster, added = LocalCluster(7), []
    for number, table in enumerate(graph_batches(4, "local views")):
        embedded(Frame(None, table), number)
        with patch.object(view_deltas, "sum_tables", lambda *args: added.append(args)):
            sink(cluster.frame(table), number)
        assert outputs(sink) == outputs(embedded)
    sink.close()
    assert not added


@given(st.lists(st.integers(0, 11), min_size=1, max_size=40), st.integers(1, 4), st.booleans())
def test_the_rows_of_packets_are_sorted_by_their_cells_and_are_not_sorted_again(cells, tasks, wide):
    numbers = np.array(cells) * (10_000 if wide else 1)  # wide numbers have no radix sort
    table = pa.table({CELL: pa.array(numbers, pa.int32()), "x": [*range(len(cells))]})
    packets = [
        *pack_rows(table, numbers % tasks, 1, Kind.STAGE, "0", cell_of_row=numbers.astype(np.int64))
    ]
    sent = [(packet.task, read_table(packet.content)) for packet in packets]
    assert all((part.column(CELL).to_numpy() % tasks == task).all() for task, part in sent)
    with patch.object(stage_rows, "sort_positions", side_effect=AssertionError):
        divided = [divide_by_cell(part) for _, part in sent]
    expected = divide_by_cell(table)
    assert {cell for cells in divided for cell in cells} == expected.keys()
    assert all(rows.equals(expected[cell]) for cells in divided for cell, rows in cells.items())


def test_rows_that_all_belong_to_one_relation_and_one_cell_are_not_copied():
    circuit = compile_sql("SELECT DISTINCT x FROM r", {"r": pa.schema([("x", pa.int64())])})
    (stage,) = circuit_stages(circuit).stages
    grid = stage_grid(stage, 1)
    values = pa.array([3, 1, 2])
    weights = pa.array([1, -1, 2])
    delta = pa.table([values, weights], ["c0", "weight"])
    rows = pack_relations(stage, {stage.relations[0].name: [delta]})
    sent = replicate_rows(stage, rows, grid)
    (cell,) = divide_by_cell(sent).values()
    (table,) = split_relations(stage, cell).values()
    assert table.to_pydict() == {"c0": [3, 1, 2], "weight": [1, -1, 2]}
    (chunk,) = table.column("weight").chunks
    assert chunk.buffers()[1].address == weights.buffers()[1].address


@given(st.lists(st.text(max_size=40), max_size=20), st.integers(1, 60))
def test_packets_have_few_bytes_or_one_row(texts, most):
    table = pa.table({"x": pa.array(texts, pa.string())})
    with patch.object(packets_module, "MAX_PACKET_BYTES", most):
        packets = [*pack_rows(table, np.arange(len(texts)) % 2, 0, Kind.VIEW, "v")]
    assert all(packet.task in (0, 1) for packet in packets)
    tables = [read_table(packet.content) for packet in packets]
    assert sorted(value for t in tables for value in t["x"].to_pylist()) == sorted(texts)
    sizes = [[len(value.encode()) + 4 for value in t["x"].to_pylist()] for t in tables]
    assert all(sum(rows) <= most or len(rows) == 1 for rows in sizes)
    for one, two in itertools.pairwise(zip(packets, sizes, strict=True)):
        assert one[0].task != two[0].task or sum(one[1]) + two[1][0] > most  # none is too small


def test_a_large_row_does_not_make_the_packets_of_others_large_or_small():
    texts = ["x" * 5000, *["y"] * 4000, "z" * 5000]
    table = pa.table({"x": texts, "n": range(len(texts))})
    with patch.object(packets_module, "MAX_PACKET_BYTES", 1300):
        packets = [*pack_rows(table, np.zeros(len(texts), np.int64), 0, Kind.VIEW, "v")]
    rows = [read_table(packet.content).num_rows for packet in packets]
    assert rows == [1, *[100] * 40, 1]  # of 13 bytes


def test_small_batches_of_a_source_are_freed_while_their_copy_is_used():
    references: list[Any] = []

    def small_batches() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            batch = pa.record_batch({"x": [number]})
            references.append(weakref.ref(batch))
            yield batch
            del batch

    with patch.object(job_tasks, "MAX_SOURCE_ROWS", 6):
        for table, rows in zip(job_tasks._chunks(small_batches()), (6, 4), strict=True):
            assert table.num_rows == rows
            assert sum(reference() is not None for reference in references) <= 1


def test_an_error_of_a_cell_or_of_an_output_mode_changes_nothing(tmp_path):
    schema = {"r": pa.schema([("k", pa.int64()), ("x", pa.int64())])}
    circuit = compile_sql(
        "CREATE VIEW t AS SELECT k, sum(x) AS total FROM r GROUP BY k;"
        "CREATE VIEW ks AS SELECT DISTINCT k FROM r",
        schema,
    )
    cluster = LocalCluster(attempts=(1,))
    outputs_of_sink = [Output("ks", mode="append")]
    options: Any = {"state_dir": tmp_path, "mode": "distributed", "cells": 2}
    sink = ViewSink(circuit, outputs_of_sink, **options)

    def frame_of(*rows: tuple[int, int, int]) -> Any:
        k, x, weight = zip(*rows, strict=True)
        return cluster.frame(pa.table({"k": k, "x": x, "weight": weight}))

    sink(UnreadFrame(frame_of((1, 2**62, 1), (2, 5, 1))), 0)
    failing = frame_of((1, 2**62, 1), (2, 5, 1), (3, 5, 1), (4, 5, 1))
    table = pa.table({"k": [1, 2, 3, 4], "x": [2**62, 5, 5, 5], "weight": [1] * 4})
    for frame in (UnreadFrame(failing), Frame(failing.sparkSession, table)):
        with pytest.raises(EvaluationError, match="beyond int64"):
            sink(frame, 1)
        assert not unnamed_files(tmp_path)
    with pytest.raises(TargetError, match="mode 'append' only adds rows"):
        sink(UnreadFrame(frame_of((2, 5, -1))), 1)
    sink(UnreadFrame(frame_of((3, 5, 1))), 1)
    assert outputs(sink) == {"t": {(3, 5): 1}, "ks": {(3,): 1}}


@pytest.mark.spark
def test_spark_computes_few_rows_of_each_partition_to_find_out_that_a_micro_batch_is_large(
    spark, tmp_path
):
    view = "CREATE VIEW sources AS SELECT DISTINCT src FROM e"
    session, sink = spark.newSession(), distributed(tmp_path, view)
    session.conf.set("spark.sql.adaptive.enabled", "false")  # else the plan has no metrics
    read: list[tuple[Any, int]] = []
    frame_class = type(session.range(0))
    collect = frame_class.toArrow

    def collect_recorded(frame: Any) -> pa.Table:
        table = collect(frame)
        read.append((frame, table.num_rows))
        return table

    with patch.object(frame_class, "toArrow", collect_recorded):
        for number, rows in enumerate((10, 200_000)):
            frame = session.range(0, rows, 1, 4).where("id % 2 = 0")
            sink(frame.selectExpr("'e' AS relation", "id % 7 AS src", "id AS dst"), number)
    _, (few, received), _ = read  # between two jobs
    assert received == engine.MAX_FEW_ROWS + 1
    source = few._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert source.metrics().apply("numOutputRows").value() < 20_000
    assert outputs(sink) == {"sources": {(3,): 1, (5,): 1}}  # the others were in the small one
    sink.close()


@pytest.mark.parametrize(
    ("query", "is_fixed"),
    [
        ("SELECT DISTINCT k FROM r", True),
        ("SELECT k, count(*) AS n FROM r GROUP BY k", True),
        ("SELECT DISTINCT repeat('x', k) AS t FROM r", False),
        ("SELECT count(*) AS n FROM (SELECT DISTINCT repeat('x', k) AS t FROM r) AS texts", False),
    ],
)
@pytest.mark.parametrize("type", [pa.int64(), pa.string()], ids=str)
def test_the_rows_of_a_job_have_a_fixed_size_if_no_relation_or_view_has_texts(
    tmp_path, query, is_fixed, type
):
    circuit = compile_sql(
        f"CREATE VIEW v AS {query}", {"r": pa.schema([("k", pa.int64()), ("x", type)])}
    )
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)
    with patch.object(batch_job, "SourceTask", wraps=batch_job.SourceTask) as source_task:
        sink(LocalCluster().frame(pa.table({"k": [1, 2], "x": pa.array([None, None], type)})), 0)
    sink.close()
    (plan,) = source_task.call_args.args
    assert plan.exchanges_small_rows == (is_fixed and type == pa.int64())


@LAW
@given(
    sizes=st.lists(st.integers(0, 6), min_size=2, max_size=6),
    most=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_the_driver_reads_a_micro_batch_if_it_and_the_one_before_have_few_rows(sizes, most, seed):
    cluster, embedded = LocalCluster(seed), ViewSink(compile_sql(VIEWS, SCHEMAS))
    changes = pa.concat_tables(graph_batches(12, f"few {seed}"))
    ends = list(itertools.accumulate(sizes))
    with TemporaryDirectory() as place, patch.object(engine, "MAX_FEW_ROWS", most):
        sink = distributed(place)
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            table = changes.slice(end - size, size)
            frame = LimitedFrame(cluster.frame(table))
            sink(frame, number)
            is_expected_few = number > 0 and sizes[number - 1] <= most
            assert frame.limits == ([most + 1] if is_expected_few else [])
            embedded(Frame(None, table), number)
            assert outputs(sink) == outputs(embedded)
            sink(LimitedFrame(cluster.frame(table)), number)
            assert sink.metrics[-1].replayed
        sink.close()


def test_after_a_large_row_the_driver_does_not_try_to_read_the_next_micro_batches(tmp_path):
    cluster, sink, limits = LocalCluster(), distributed(tmp_path), []
    with (
        patch.object(view_sink, "collect_few_rows", return_value=Refusal.LARGE),
        patch.object(view_sink, "BATCHES_WITHOUT_FEW", 2),
    ):
        for number, table in enumerate(graph_batches(6, "large")):
            frame = LimitedFrame(cluster.frame(table))
            sink(frame, number)
            limits.append(len(frame.limits))
    assert limits == [0, 1, 0, 0, 1, 0]
    sink.close()


@pytest.mark.spark
def test_executors_read_a_micro_batch_of_few_rows_with_a_large_one(spark, tmp_path):
    schema = {"r": pa.schema([("k", pa.int64()), ("s", pa.string())])}
    views = "CREATE VIEW v AS SELECT s, count(*) AS n FROM r GROUP BY s"
    embedded = ViewSink(compile_sql(views, schema))
    sink = ViewSink(compile_sql(views, schema), state_dir=tmp_path, mode="distributed", cells=2)
    for number, text in enumerate(("a", "b" * 40 * 1024)):
        frame = spark.createDataFrame([(number, text)], "k long, s string")
        embedded(frame, number)
        with patch.object(batch_job, "SourceTask", wraps=batch_job.SourceTask) as source_task:
            sink(frame, number)
        assert source_task.call_count == 1
        assert outputs(sink) == outputs(embedded)
        assert sink.metrics[-1].cell_steps > 0
    sink.close()


def test_a_replay_with_other_rows_is_refused_without_reading_them_in_the_driver(tmp_path):
    cluster, sink = LocalCluster(), distributed(tmp_path)
    tables = graph_batches(2, "replay")
    for number, table in enumerate(tables):
        sink(UnreadFrame(cluster.frame(table)), number)
    sink.close()
    sink = distributed(tmp_path)
    sink(UnreadFrame(cluster.frame(tables[1].take(list(range(tables[1].num_rows))[::-1]), 3)), 1)
    assert sink.metrics[-1].replayed
    with pytest.raises(ReplayError, match="different rows of relation"):
        sink(UnreadFrame(cluster.frame(pa.concat_tables([tables[1], tables[0]]))), 1)


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_replay_of_an_empty_micro_batch_is_compared(tmp_path, is_empty):
    cluster, sink = LocalCluster(), distributed(tmp_path)
    (full,) = graph_batches(1, "replay")
    tables = [full, full[:0] if is_empty else full]
    for number, table in enumerate(tables):
        sink(UnreadFrame(cluster.frame(table)), number)
    sink.close()
    sink = distributed(tmp_path)
    sink(UnreadFrame(cluster.frame(tables[1])), 1)
    assert sink.metrics[-1].replayed
    with pytest.raises(ReplayError, match="different rows of relation"):
        sink(UnreadFrame(cluster.frame(full if is_empty else full[:0])), 1)


def test_a_job_whose_tasks_received_rows_of_two_attempts_runs_again(tmp_path):
    """The first exchange of a job sends each task the rows of another attempt."""
    cluster, embedded = LocalCluster(attempts=(1,)), ViewSink(compile_sql(VIEWS, SCHEMAS))
    sink = distributed(tmp_path)
    original, mixed_jobs = LocalFrame.repartitionById, []

    def repartition(frame: LocalFrame, count: int, column: Any) -> LocalFrame:
        if len(mixed_jobs) == is_mixed[0]:
            return original(frame, count, column)
        mixed_jobs.append(count)
        first, second = (original(frame, count, column)._parts() for _ in range(2))
        return LocalFrame(cluster, lambda: [first[0], *second[1:]])

    is_mixed = [0]
    for number, table in enumerate(graph_batches(2, "attempts")):
        embedded(Frame(None, table), number)
        is_mixed[0] = number
        jobs = cluster.frame_jobs
        with patch.object(LocalFrame, "repartitionById", repartition):
            sink(cluster.frame(table), number)
        assert cluster.frame_jobs == jobs + 2
        assert outputs(sink) == outputs(embedded)
        assert not unnamed_files(tmp_path)
    is_mixed[0] = 99
    with (
        patch.object(LocalFrame, "repartitionById", repartition),
        pytest.raises(StreamingError, match="micro-batch 2: in 3 runs"),
    ):
        sink(UnreadFrame(cluster.frame(rows_of({"relation": "e", "src": 1, "dst": 1}))), 2)


def run_with_mixed_attempts(
    cluster: LocalCluster, views: str, attempts: list[pa.Table], receivers: list[int], place: Any
) -> ViewSink:
    """Run a micro-batch whose source differs in each attempt.

    Args:
        cluster: Runs the tasks.
        views: The views.
        attempts: The rows of the source in its first attempts; the last one repeats.
        receivers: The attempt of the source that each task after the first exchange receives.
        place: The state directory.
    """
    pending, mixed_jobs, original = list(attempts), [], LocalFrame.repartitionById

    def read() -> list[list[pa.RecordBatch]]:
        return [(pending.pop(0) if len(pending) > 1 else pending[0]).to_batches()]

    def repartition(frame: LocalFrame, count: int, column: Any) -> LocalFrame:
        if mixed_jobs:
            return original(frame, count, column)
        mixed_jobs.append(count)
        results = [original(frame, count, column)._parts() for _ in range(max(receivers) + 1)]
        parts = [results[attempt][task] for task, attempt in enumerate(receivers[:count])]
        return LocalFrame(cluster, lambda: parts)

    sink = distributed(place, views, cells=3)
    sink(UnreadFrame(cluster.frame(rows_of())), 0)  # chooses the grids
    frame = LocalFrame(cluster, read, attempts[0].schema)
    with patch.object(LocalFrame, "repartitionById", repartition):
        sink(UnreadFrame(frame), 1)
    assert mixed_jobs
    return sink


MIXED_VIEWS = """
    CREATE VIEW edges AS SELECT src, dst FROM e;
    CREATE VIEW sources AS SELECT src, count(*) AS n FROM e GROUP BY src;
    CREATE VIEW counts AS SELECT n, count(*) AS m FROM sources GROUP BY n;
"""


def test_merged_partitions_are_an_error_that_spark_does_not_retry(tmp_path):
    cluster, original = LocalCluster(attempts=(1,)), LocalFrame.repartitionById

    def merge(frame: LocalFrame, count: int, column: Any) -> LocalFrame:
        parts = original(frame, count, column)._parts
        return LocalFrame(cluster, lambda: [[batch for part in parts() for batch in part]])

    sink = distributed(tmp_path, MIXED_VIEWS, cells=3)
    rows = [{"relation": "e", "src": src, "dst": 0} for src in range(9)]
    with (
        patch.object(LocalFrame, "repartitionById", merge),
        pytest.raises(StreamingError, match=r"merged the partitions.*adaptive\.enabled to false"),
    ):
        sink(UnreadFrame(cluster.frame(rows_of(*rows))), 0)
    assert cluster.frame_jobs == 1 and not unnamed_files(tmp_path)
    sink(UnreadFrame(cluster.frame(rows_of(*rows))), 0)


def test_a_row_that_one_attempt_sends_to_another_task_is_not_lost(tmp_path):
    """Each task receives the attempt in which the row goes to another task, so nobody gets it."""
    cluster = LocalCluster(attempts=(1,))
    tables = [rows_of({"relation": "e", "src": src, "dst": 0}) for src in range(9)]
    edges = [
        table.select(["src", "dst"]).append_column("weight", pa.array([1])) for table in tables
    ]
    first, second = (
        next(
            table for table, edge in zip(tables, edges, strict=True) if find_tasks(edge, 3) == task
        )
        for task in (1, 0)
    )
    views = (
        "CREATE VIEW edges AS SELECT src, dst FROM e; CREATE VIEW ids AS SELECT DISTINCT id FROM p"
    )
    sink = run_with_mixed_attempts(cluster, views, [first, second], [0, 1, 1], tmp_path)
    assert sum(outputs(sink)["edges"].values()) == sink.metrics[-1].rows_in["e"] == 1


EDGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([1, 1, -1])))


@LAW
@given(
    attempts=st.lists(EDGES, min_size=2, max_size=3),
    receivers=st.lists(st.integers(0, 1), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_a_micro_batch_has_the_rows_of_one_attempt_of_its_source(attempts, receivers, seed):
    schema = SCHEMAS["e"].append(pa.field("weight", pa.int64()))
    names = schema.names
    tables = [
        tagged(
            {
                "e": pa.Table.from_pylist(
                    [dict(zip(names, edge, strict=True)) for edge in edges], schema
                )
            }
        )
        for edges in attempts
    ]
    expected = []
    for table in tables:
        embedded = ViewSink(compile_sql(MIXED_VIEWS, SCHEMAS))
        embedded(Frame(None, table), 0)
        expected.append(outputs(embedded))
    with TemporaryDirectory() as place:
        cluster = LocalCluster(seed, attempts=(1,))
        sink = run_with_mixed_attempts(cluster, MIXED_VIEWS, tables, receivers, place)
        assert outputs(sink) in expected
        sink.close()


def test_the_first_micro_batch_chooses_grids_that_spread_hubs_without_the_driver(tmp_path):
    embedded, cluster = ViewSink(compile_sql(HUBS, GRAPH)), LocalCluster(attempts=(1,))
    options: Any = {"state_dir": tmp_path, "mode": "distributed", "cells": 8}
    sink = ViewSink(compile_sql(HUBS, GRAPH), **options)
    rows = batch_of(*hub(2400), *({"relation": "p", "id": number} for number in range(40)))
    for number in range(2):
        embedded(Frame(None, rows), number)
        sink(UnreadFrame(cluster.frame(rows, 3)), number)
        assert outputs(sink) == outputs(embedded)
    assert all(1 < ratio <= 2 for ratio in load_ratios(tmp_path).values())
    assert sink.explain().count("heavy   v") >= 2


def test_an_empty_first_micro_batch_gives_the_rows_of_aggregates_without_groups(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(compile_sql(VIEWS, SCHEMAS))
    sink = distributed(tmp_path)
    for number in range(2):
        table = rows_of()
        embedded(Frame(None, table), number)
        sink(UnreadFrame(cluster.frame(table)), number)
        assert outputs(sink) == outputs(embedded)
    assert outputs(embedded)["triangles"] == {}


def test_the_views_of_jobs_can_change_and_their_state_can_be_rescaled(tmp_path):
    """The driver has not seen the strings of the state."""
    cluster, embedded = LocalCluster(), ViewSink(compile_sql(VIEWS, SCHEMAS))
    sink = distributed(tmp_path)
    tables = graph_batches(6, "changes")
    for number, table in enumerate(tables):
        embedded(Frame(None, table), number)
        if number == 2:
            sink.add_view("CREATE VIEW again AS SELECT name, n FROM names WHERE n > 0")
        frame: Any = UnreadFrame(cluster.frame(table))
        if number == 2:
            frame = cluster.frame(table)  # the driver reads the rows that commit the change
        if number == 5:
            frame = Frame(None, table)
        sink(frame, number)
        published = outputs(sink)
        again = published.pop("again", None)
        assert number < 2 or again is not None
        assert published == outputs(embedded)
        if number == 3:
            spec = sink.circuit.spec
            sink.close()
            rescale_state(open_files(tmp_path), cells=3)
            sink = ViewSink(Circuit(spec), state_dir=tmp_path, mode="distributed", cells=3)
        if number == 4:
            sink.close()
            rescale_state(open_files(tmp_path), cells=None)
            sink = ViewSink(Circuit(spec), state_dir=tmp_path)
            sink(Frame(None, table), number)  # a replay in another mode
            assert sink.metrics[-1].replayed


def test_the_rows_of_some_circuits_are_read_by_the_driver_and_the_plan_says_so(tmp_path):
    text = "SELECT id, count(*) AS n FROM p GROUP BY id"
    reasons = {
        "input 'p' has options": {"input_options": {"p": InputOptions(keys=("id",))}},
        "input 'p' is materialized": {"materialize": ["p"]},
    }
    for number, (reason, options) in enumerate(reasons.items()):
        circuit = compile_sql(text, {"p": SCHEMAS["p"]}, **options)
        sink = ViewSink(circuit, state_dir=tmp_path / str(number), mode="distributed", cells=2)
        assert f"\nrows: read by the driver, because {reason}\njobs: " in sink.explain()


def test_the_plan_shows_the_exchanges_of_a_job_and_the_rows_that_they_moved(tmp_path):
    cluster, sink = LocalCluster(attempts=(1,)), distributed(tmp_path)
    assert "moved" not in sink.explain()
    edges = [{"relation": "e", "src": n, "dst": n} for n in range(3)]
    sink(UnreadFrame(cluster.frame(rows_of(*edges), 1)), 0)
    text = sink.explain()
    assert re.search(r"\njob: 5 exchanges: before stages 0, .* and view loops; before ", text)
    assert "; in the driver: stage 9\n" in text
    assert "1 cell, in the driver\n" in text
    assert re.search(r"view loops: from e\n  moved   3 rows and \d+ bytes in the last job", text)
    assert re.search(r"aggregate .*\n.*\n.*\n.*\n.*\n.*\n  moved   ", text)
    assert re.search(r"partial topk .* by name, dst\n", text)


@pytest.mark.parametrize("is_job", [True, False], ids=["in one job", "in the driver"])
def test_the_changed_rows_of_a_relation_that_two_stages_read_count_once(tmp_path, is_job):
    cluster, sink = LocalCluster(attempts=(1,)), distributed(tmp_path)
    edges = tagged({"e": pa.table({"src": range(1000), "dst": range(1000)})})
    changed_rows: Counter[str] = Counter()
    with patch.object(
        load_balance.LoadBalance, "record", lambda _, rows: changed_rows.update(rows)
    ):
        for number in range(2):  # the rows of the first micro-batch are those that are stored
            frame: Any = cluster.frame(edges)
            sink(UnreadFrame(frame) if is_job else Frame(frame.sparkSession, edges), number)
    stages = circuit_stages(sink.circuit).stages
    relations = [r for stage in stages for r in stage.relations]
    of_input = [r.name for r in relations if {part.source for part in r.parts} == {"e"}]
    assert len(of_input) > len(set(of_input))
    assert {changed_rows[name] for name in of_input} == {1000}


def test_the_plan_of_changed_views_is_explained_before_their_first_micro_batch(tmp_path):
    cluster, sink = LocalCluster(), distributed(tmp_path)
    table = graph_batches(1, "explain")[0]
    sink(UnreadFrame(cluster.frame(table)), 0)
    again = "CREATE VIEW again AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
    sink.add_view(again)
    assert re.search(r"kept .*\n(.*\n)*view again: from stage", sink.explain())
    sink.close()
    sink = distributed(tmp_path, VIEWS + again)
    text = sink.explain()
    assert "view again: from stage" in text and "  kept " not in text
    assert text.endswith("\nstate: of other views; the next micro-batch changes it and its grids")
    sink(cluster.frame(table), 1)
    assert "  kept " in sink.explain()
    sink.close()


def test_views_that_are_not_outputs_are_not_written(tmp_path):
    circuit = compile_sql(VIEWS, SCHEMAS, outputs=["names"])
    cluster, embedded = LocalCluster(), ViewSink(Circuit(circuit.spec))
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=3)
    for number, table in enumerate(graph_batches(2, "outputs")):
        embedded(Frame(None, table), number)
        sink(UnreadFrame(cluster.frame(table)), number)
        assert outputs(sink) == outputs(embedded)


def test_a_replay_passes_files_to_a_function_and_reads_no_row_in_the_driver(tmp_path):
    cluster, deltas = LocalCluster(attempts=(1,)), []
    text = "CREATE VIEW t AS SELECT dst, src FROM e WHERE src >= 0"

    def open_sink() -> ViewSink:
        circuit = compile_sql(text, {"e": SCHEMAS["e"]})
        target = Output("t", lambda frame, batch_id: None)
        return ViewSink(circuit, [target], state_dir=tmp_path, mode="distributed", cells=3)

    edges = pa.table({"src": range(3_000), "dst": [1] * 3_000})
    with (
        patch.object(FrameTarget, "write", lambda target, delta: deltas.append(delta)),
        patch.object(StoredTable, "read", side_effect=AssertionError),
    ):
        sink = open_sink()
        sink(UnreadFrame(cluster.frame(edges)), 0)
        sink.close()
        sink = open_sink()
        sink(UnreadFrame(cluster.frame(edges)), 0)
        assert sink.metrics[-1].replayed and sink.metrics[-1].rows_out["t"] == 3_000
        expected = Counter({(1, n): 1 for n in range(3_000)})
    assert bag_of(sink.last.outputs["t"]) == expected
    first, again = deltas
    assert first.files == again.files and first.table.schema == again.table.schema
    assert not again.table.num_rows
    sink.close()
    damaged = next(tmp_path.glob("outputs/*"))
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)
    with patch.object(FrameTarget, "write"):
        sink = open_sink()
        sink(UnreadFrame(cluster.frame(edges)), 0)
    assert not sink.metrics[-1].replayed  # the version with the damaged file is computed again
    assert bag_of(sink.last.outputs["t"]) == expected
    sink.close()


def test_a_target_that_holds_the_last_micro_batch_does_not_read_it_again_after_a_restart(tmp_path):
    cluster = LocalCluster(5)
    text = "CREATE VIEW t AS SELECT dst, src FROM e WHERE src >= 0"

    def open_sink() -> ViewSink:
        circuit = compile_sql(text, {"e": SCHEMAS["e"]})
        target = ParquetTarget(tmp_path / "lake")
        return ViewSink(circuit, target, state_dir=tmp_path / "state", mode="distributed", cells=3)

    edges = pa.table({"src": range(3_000), "dst": [1] * 3_000})
    sink = open_sink()
    sink(UnreadFrame(cluster.frame(edges)), 0)
    sink.close()
    sink = open_sink()
    with patch.object(StoredTable, "read", side_effect=AssertionError):
        sink(UnreadFrame(cluster.frame(edges)), 0)
    assert sink.metrics[-1].replayed
    sink.close()
    (file,) = (tmp_path / "lake").glob("*.parquet")
    file.unlink()  # as if the job had stopped between the commit and the write
    sink = open_sink()
    sink(UnreadFrame(cluster.frame(edges)), 0)
    sink.close()
    assert pq.read_table(file).num_rows == 3_000


def check_random_sql(data: st.DataObject) -> None:
    """Compare random SQL, with a join that reads no other stage, with one process."""
    cells = data.draw(st.sampled_from([1, 2, 3, 4, 8]), "cells")
    spec = compile_sql(data.draw(selects()), SQL_SCHEMAS).spec
    cluster = LocalCluster(data.draw(st.integers(0, 99), "seed"))
    embedded, world = Circuit(spec), World()
    with (
        TemporaryDirectory() as place,
        patch.object(grid_planning, "MIN_KNOWN_ROWS", 1),
        patch.object(load_balance, "MIN_MEAN_ROWS", 1),
        patch.object(load_balance, "MAX_LOAD_RATIO", 1.0),
    ):

        def open_sink() -> ViewSink:
            return ViewSink(Circuit(spec), state_dir=place, mode="distributed", cells=cells)

        sink = open_sink()
        for number in range(data.draw(st.integers(2, 4), "steps")):
            tables = world.change(data.draw)
            expected = {name: bag_of(table) for name, table in embedded.step(tables).items()}
            frame: Any = cluster.frame(tagged(tables), data.draw(st.integers(1, 3), "partitions"))
            if number and data.draw(st.integers(0, 3), "restart") == 0:
                sink.close()
                sink = open_sink()
            sink(UnreadFrame(frame) if number else frame, number)
            assert outputs(sink) == expected
        sink.close()


ASOF_SCHEMAS = {
    "o": pa.schema([("k", pa.string()), ("j", pa.int32()), ("ts", pa.int64())]),
    "p": pa.schema([("k", pa.string()), ("at", pa.timestamp("us")), ("x", pa.int64())]),
    "q": pa.schema([("j", pa.int32()), ("ts", pa.int64()), ("x", pa.int64())]),
}
ASOF_VIEWS = """
    CREATE VIEW next AS SELECT o.k, q.x FROM o ASOF LEFT JOIN q ON o.ts < q.ts;
    CREATE VIEW previous AS SELECT a.k, a.ts, b.ts AS before FROM o a ASOF JOIN o b
        ON a.k = b.k AND a.ts > b.ts;
    CREATE VIEW twice AS SELECT o.k, q.x FROM o ASOF JOIN q
        ON o.j = q.j AND o.j = q.x AND o.ts >= q.ts;
    CREATE VIEW priced AS SELECT o.k, o.ts, p.x FROM (SELECT k, make_timestamp(ts) AS ts FROM o) o
        JOIN p FOR SYSTEM_TIME AS OF o.ts ON o.k = p.k;
"""


def asof_changes(data: st.DataObject, present: dict[str, Counter]) -> dict[str, pa.Table]:
    """Draw changes of tiny relations; no weight in ``present`` becomes negative."""
    small, keys = st.integers(0, 2), st.sampled_from(["a", "b", None])
    values = {
        "o": st.tuples(keys, st.one_of(small, st.none()), st.integers(0, 3)),
        "p": st.tuples(keys, small, small),
        "q": st.tuples(st.one_of(small, st.none()), st.integers(0, 3), small),
    }
    tables = {}
    for name, rows in values.items():
        changes = []
        for row in data.draw(st.lists(rows, max_size=4), name):
            weight = -1 if present[name][row] and data.draw(st.booleans()) else 1
            present[name][row] += weight
            changes.append((*row, weight))
        schema = ASOF_SCHEMAS[name].append(pa.field("weight", pa.int64()))
        columns = zip(*changes, strict=True) if changes else [[]] * len(schema)
        tables[name] = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
    return tables


@settings(LAW, max_examples=4)
@given(data=st.data())
def test_asof_and_temporal_joins_give_the_same_in_cells_and_in_one_process(data):
    spec = compile_sql(ASOF_VIEWS, ASOF_SCHEMAS, dialect="duckdb").spec
    cluster, embedded = LocalCluster(data.draw(st.integers(0, 99), "seed")), Circuit(spec)
    present: dict[str, Counter] = defaultdict(Counter)
    with TemporaryDirectory() as place:
        cells = data.draw(st.integers(1, 4), "cells")
        for number in range(3):
            tables = asof_changes(data, present)
            expected = {name: bag_of(table) for name, table in embedded.step(tables).items()}
            sink = ViewSink(Circuit(spec), state_dir=place, mode="distributed", cells=cells)
            sink(UnreadFrame(cluster.frame(tagged(tables, ASOF_SCHEMAS))), number)
            assert outputs(sink) == expected
            plan = sink.explain()
            assert re.search(r"latesttime r\d+ by k and r\d+ by k\n", plan), plan
            assert re.search(r"latesttime r\d+ by nothing and r\d+ by nothing\n", plan), plan
            sink.close()
            moved_to = data.draw(st.sampled_from([None, 1, 2, 3, 5]), "moved to")
            rescale_state(open_files(place), cells=moved_to)
            if moved_to is None:
                rescale_state(open_files(place), cells=cells)
            cells = moved_to or cells


@LAW
@given(data=st.data())
def test_random_sql_gives_the_same_in_one_job_and_in_one_process(data):
    check_random_sql(data)


@pytest.mark.slow
@settings(LAW, max_examples=200)
@given(data=st.data())
def test_much_random_sql_gives_the_same_in_one_job_and_in_one_process(data):
    check_random_sql(data)


def graph_batches(count: int, seed: str) -> list[pa.Table]:
    """Return changes of both relations; the third micro-batch is empty."""
    return [table.drop_columns(["at"]) for table in batches(count, seed)]


def rows_of(*rows: dict[str, Any]) -> pa.Table:
    return batch_of(*rows).drop_columns(["at"])


def tagged(tables: dict[str, pa.Table], schemas: dict[str, pa.Schema] | None = None) -> pa.Table:
    """Return the rows of relations as one table with the column ``relation``."""
    parts = [
        table.append_column("relation", pa.array([name] * table.num_rows, pa.string()))
        for name, table in tables.items()
    ]
    schemas = schemas or (SCHEMAS if tables.keys() <= SCHEMAS.keys() else SQL_SCHEMAS)
    empty = [
        schema.append(pa.field("weight", pa.int64())).empty_table() for schema in schemas.values()
    ]
    table = pa.concat_tables([*empty, *parts], promote_options="permissive")
    if not tables:
        return table.append_column("relation", pa.array([], pa.string()))
    weights = pc.fill_null(table.column("weight"), 1)
    return table.set_column(table.column_names.index("weight"), "weight", weights)
