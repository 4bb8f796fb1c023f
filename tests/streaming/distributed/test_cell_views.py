"""Materialized views in cells: reads, upserts and whole views are those of one process."""

from __future__ import annotations

from collections import Counter
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, InputOptions, UnknownViewError, compile_sql
from streaming import (
    Output,
    RowError,
    StateMismatchError,
    StreamingError,
    TargetError,
    ViewSink,
)
from streaming.data_source.stored_views import StoredViews
from streaming.distributed import batch_job, engine, pipeline
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.planning.load_balance import count_loads
from streaming.distributed.rescaling import rescale_state
from streaming.distributed.stage_cells import StageCells
from streaming.state.local_files import LocalFiles
from streaming.state.open_files import open_files
from streaming.state.store import Store
from streaming.state.writer import Writer
from tests.circuits.sql.test_sql_circuits import SCHEMAS as SQL_SCHEMAS
from tests.circuits.sql.test_sql_circuits import World
from tests.generators.sql_generator import selects
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_batch_job import (
    LAW,
    SCHEMAS,
    VIEWS,
    LimitedFrame,
    UnreadFrame,
    graph_batches,
    rows_of,
    tagged,
)
from tests.streaming.distributed.test_engine import Frame, outputs
from tests.streaming.distributed.test_task import unnamed_files
from tests.support.compacted_files import CompactedFiles
from tests.support.tables import bag_of

KEPT = ["names", "pairs", "sources", "triangles"]
OUTPUTS = [
    Output("names", mode="upsert", keys=["name"]),
    Output("sources", mode="upsert", keys="src"),
    Output("pairs", mode="complete"),
    Output("triangles", mode="complete"),
]


def make_circuit(**options: Any) -> Circuit:
    return compile_sql(VIEWS, SCHEMAS, **{"materialize": KEPT, **options})


def distributed(place: Any, circuit: Circuit, given_outputs: Any, cells: int = 4) -> ViewSink:
    return ViewSink(circuit, given_outputs, state_dir=place, mode="distributed", cells=cells)


def check_same(sink: ViewSink, embedded: ViewSink, place: Any) -> None:
    """Compare what two sinks have published, their views, and those that are stored."""
    assert outputs(sink) == outputs(embedded)
    assert sink.last is not None and embedded.last is not None
    for view, table in sink.last.outputs.items():
        assert table.schema.metadata == embedded.last.outputs[view].schema.metadata
    stored = StoredViews(str(place))
    for view in embedded.circuit.materialized:
        expected = embedded.table(view)
        assert sink.table(view).schema == expected.schema
        assert bag_of(sink.table(view)) == bag_of(expected)
        assert bag_of(stored.newest_rows(view)) == bag_of(expected)


@pytest.mark.parametrize("most", [500, 0], ids=["few rows", "in one job"])
@pytest.mark.parametrize("cells", [1, 4])
def test_upserts_whole_views_and_reads_are_those_of_one_process(tmp_path, cells, most):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit(), OUTPUTS)
    with patch.object(engine, "MAX_FEW_ROWS", most):
        sink = distributed(tmp_path, make_circuit(), OUTPUTS, cells)
        for number, table in enumerate(graph_batches(6, "views")):
            embedded(Frame(None, table), number)
            sink(cluster.frame(table), number)
            check_same(sink, embedded, tmp_path)
            if number in (1, 4):
                sink.close()
                sink = distributed(tmp_path, make_circuit(), OUTPUTS, cells)
                sink(cluster.frame(table), number)
                assert sink.metrics[-1].replayed
                check_same(sink, embedded, tmp_path)
    assert "rows of view 'names', r" in sink.explain()
    sink.close()


def test_another_sink_reads_the_newest_version_without_the_lock(tmp_path):
    options: Any = {"materialize": [*KEPT, "e"]}
    cluster, embedded = LocalCluster(), ViewSink(make_circuit(**options))
    sink = distributed(tmp_path, make_circuit(**options), [])
    reader = distributed(tmp_path, make_circuit(**options), [])
    assert reader.table("pairs").num_rows == 0
    for number, table in enumerate(graph_batches(3, "readers")):
        embedded(Frame(None, table), number)
        sink(cluster.frame(table), number)
        for view in [*KEPT, "e"]:
            assert bag_of(reader.table(view)) == bag_of(embedded.table(view))
    sink.close()
    for view in [*KEPT, "e"]:
        assert bag_of(sink.table(view)) == bag_of(embedded.table(view))
    with pytest.raises(StateMismatchError, match=r"over 4 cells, .* over 3 cells"):
        distributed(tmp_path, make_circuit(**options), [], 3).table("pairs")
    with pytest.raises(StateMismatchError, match="belongs to another circuit"):
        distributed(tmp_path, make_circuit(), []).table("pairs")


def test_a_view_in_cells_that_are_compacted_offline_while_it_is_read_is_read_again(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit())
    sink = distributed(tmp_path, make_circuit(), [])
    for number, table in enumerate(graph_batches(3, "readers")):
        embedded(Frame(None, table), number)
        sink(cluster.frame(table), number)
    sink.close()
    files = CompactedFiles(tmp_path)
    rows = distributed(files, make_circuit(), []).table("pairs")
    assert bag_of(rows) == bag_of(embedded.table("pairs"))
    assert files.is_compacted


@pytest.mark.spark
@pytest.mark.parametrize("most", [500, 0], ids=["few rows", "in one job"])
def test_executors_publish_upserts_whole_views_and_recursive_views(
    spark, tmp_path, monkeypatch, most
):
    monkeypatch.setattr(engine, "MAX_FEW_ROWS", most)
    monkeypatch.setattr(pipeline, "MAX_DRIVER_ROWS", -1)
    views = f"""{VIEWS} CREATE VIEW reach AS WITH RECURSIVE tc(src, dst) AS (
        SELECT src, dst FROM e WHERE src < dst
        UNION SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst WHERE e.src < e.dst
    ) SELECT src, dst FROM tc"""
    kept = [*KEPT, "reach"]
    given_outputs = [*OUTPUTS, Output("reach", mode="upsert", keys=["src", "dst"])]
    embedded = ViewSink(compile_sql(views, SCHEMAS, materialize=kept), given_outputs)
    sink = distributed(tmp_path, compile_sql(views, SCHEMAS, materialize=kept), given_outputs)
    for number, table in enumerate(graph_batches(3, "executors")):
        embedded(Frame(None, table), number)
        sink(spark.createDataFrame(table), number)
        check_same(sink, embedded, tmp_path)
    sink.close()


def test_the_rows_of_views_stay_on_executors(tmp_path):
    cluster = LocalCluster(attempts=(1,))
    text = "CREATE VIEW t AS SELECT dst, src FROM e WHERE src >= 0"
    circuit = compile_sql(text, {"e": SCHEMAS["e"]}, materialize=["t"])
    sink = distributed(tmp_path, circuit, [Output("t", mode="upsert", keys="src")], 8)
    received = []
    for number, rows in enumerate((8_000, 1_000, 20_000)):
        edges = pa.table({"src": range(10**6 * number, 10**6 * number + rows), "dst": [1] * rows})
        sink(UnreadFrame(cluster.frame(edges)), number)
        assert sink.metrics[-1].rows_out["t"] == rows
        cells = read_newest_cells(LocalFiles(tmp_path))
        assert cells is not None
        received.append(cluster.bytes_to_driver - sum(map(len, cells.manifests.values())))
    assert max(received) < 64_000
    (stage,) = circuit_stages(circuit).stages
    loads = count_loads(stage, cells.stage_manifests(stage.number))
    assert len(loads) == 8 and sum(loads) == 29_000
    assert max(loads) < 1.1 * sum(loads) / 8


def test_whole_views_stay_on_executors_in_small_micro_batches(tmp_path):
    cluster = LocalCluster()
    sink = distributed(tmp_path, make_circuit(), OUTPUTS)
    for number, table in enumerate(graph_batches(3, "small")):
        frame = LimitedFrame(cluster.frame(table))
        sink(frame, number)
        assert frame.limits == []
    sink.close()


def test_a_key_with_several_rows_is_an_error_and_changes_nothing(tmp_path):
    cluster = LocalCluster()
    circuit = compile_sql("SELECT src, dst FROM e", {"e": SCHEMAS["e"]}, materialize=True)
    sink = distributed(tmp_path, circuit, [Output("view", mode="upsert", keys="src")])

    def frame_of(*rows: tuple[int, int]) -> Any:
        return cluster.frame(pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]}))

    sink(frame_of((1, 5), (2, 6)), 0)
    for most in (500, 0):
        with (
            patch.object(engine, "MAX_FEW_ROWS", most),
            pytest.raises(TargetError, match="one row for every"),
        ):
            sink(frame_of((1, 7)), 1)
    sink(frame_of((3, 7)), 1)
    assert bag_of(sink.table("view")) == {(1, 5): 1, (2, 6): 1, (3, 7): 1}


@pytest.mark.parametrize("failure", ["rows", "commit", "source"])
@pytest.mark.parametrize("is_job", [True, False])
def test_the_moved_rows_of_a_micro_batch_that_is_not_committed_are_removed(
    tmp_path, failure, is_job
):
    cluster, tables = LocalCluster(attempts=(1,)), graph_batches(2, "moved")
    sink = distributed(tmp_path, make_circuit(), [])
    sink(cluster.frame(tables[0]), 0)
    sink.close()
    sink = distributed(tmp_path, make_circuit(), [Output("names", mode="upsert", keys="name")])

    def feed(table: pa.Table) -> None:
        frame: Any = cluster.frame(table)
        sink(frame if is_job else Frame(frame.sparkSession, table), 1)

    if failure == "rows":
        bad = rows_of({"relation": "f", "src": 1, "dst": 1})
        with pytest.raises(RowError):
            feed(pa.concat_tables([tables[1], bad], promote_options="permissive"))
    elif failure == "commit":
        with (
            patch.object(Writer, "stage", side_effect=OSError(28, "No space left on device")),
            pytest.raises(StreamingError, match="No space left"),
        ):
            feed(tables[1])
    else:
        error = batch_job.UnreadableSourceError("unreadable")
        with patch.object(pipeline, "run_job", side_effect=error):
            feed(tables[1])
    assert unnamed_files(tmp_path) == set()
    feed(tables[1])
    assert unnamed_files(tmp_path) == set()
    sink.close()


def test_a_read_during_a_change_of_the_views_has_the_cells_of_its_plan(tmp_path):
    cluster, sink = LocalCluster(), distributed(tmp_path, make_circuit(), [])
    sink(cluster.frame(graph_batches(1, "during")[0]), 0)
    expected, results = bag_of(sink.table("pairs")), []
    change_cells = Store.change_cells

    def read_after_change(store: Store, *arguments: Any) -> None:
        change_cells(store, *arguments)
        thread = Thread(target=lambda: results.append(bag_of(sink.table("pairs"))))
        thread.start()
        threads.append(thread)
        thread.join(0.3)

    threads: list[Thread] = []
    with patch.object(Store, "change_cells", read_after_change):
        text = "CREATE VIEW again AS SELECT dst, count(*) AS n FROM e GROUP BY dst"
        sink.add_view(text, materialize=["again"])
    for thread in threads:
        thread.join()
    assert results == [expected]
    sink.close()


def test_other_keys_of_an_output_move_the_rows_of_a_view(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit())
    tables = graph_batches(6, "keys")
    given_outputs: list[list[Output]] = [
        [],
        [Output("pairs", mode="complete")],
        [Output("names", mode="upsert", keys="name")],
        [Output("names", mode="upsert", keys=["n", "name"])],
        [Output("names", mode="upsert", keys=["name", "least"])],
        [],
    ]
    for number, (table, some) in enumerate(zip(tables, given_outputs, strict=True)):
        embedded.close()
        embedded = ViewSink(make_circuit(), some, state_dir=tmp_path / "embedded")
        embedded(Frame(None, table), number)
        sink = distributed(tmp_path / "cells", make_circuit(), some)
        sink(cluster.frame(table), number)
        check_same(sink, embedded, tmp_path / "cells")
        sink.close()


def test_a_change_of_the_views_leaves_the_rows_of_each_key_in_one_cell(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit(), OUTPUTS)
    sink, written = distributed(tmp_path, make_circuit(), OUTPUTS), Counter[str]()
    write = StageCells.write

    def count_and_write(cells: StageCells, *arguments: Any, **options: Any) -> Any:
        written[cells.stage.view] += 1
        return write(cells, *arguments, **options)

    for number, table in enumerate(graph_batches(4, "change")):
        with patch.object(StageCells, "write", count_and_write):
            if number == 2:
                for each in (embedded, sink):
                    each.add_view("CREATE VIEW again AS SELECT dst FROM e WHERE src > 0")
            embedded(Frame(None, table), number)
            sink(cluster.frame(table), number)
        check_same(sink, embedded, tmp_path)
    assert {view: written[view] for view in KEPT} == dict.fromkeys(KEPT, 1)
    sink.close()


def test_materialized_inputs_and_inputs_with_options_are_read_as_well(tmp_path):
    options: Any = {
        "materialize": [*KEPT, "e"],
        "input_options": {"p": InputOptions(keys=("id",))},
    }
    cluster = LocalCluster()
    embedded = ViewSink(make_circuit(**options), OUTPUTS)
    sink = distributed(tmp_path, make_circuit(**options), OUTPUTS)
    for number, table in enumerate(graph_batches(4, "inputs")):
        embedded(Frame(None, table), number)
        sink(cluster.frame(table), number)
        check_same(sink, embedded, tmp_path)
    with pytest.raises(UnknownViewError, match="'loops' is not materialized"):
        sink.table("loops")
    with pytest.raises(UnknownViewError, match="unknown view"):
        sink.table("other")
    sink.close()


def test_a_view_of_nested_values_is_refused():
    schema = {"r": pa.schema([("x", pa.list_(pa.int64()))])}
    circuit = compile_sql("SELECT x FROM r", schema, materialize=True)
    with pytest.raises(StreamingError, match="view 'view' is materialized, and its column 'x'"):
        distributed("state", circuit, [])


def test_materialized_views_are_rescaled_and_change_with_the_program(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit(), OUTPUTS)
    sink = distributed(tmp_path, make_circuit(), OUTPUTS)
    tables = graph_batches(8, "rescaled")
    for number, table in enumerate(tables):
        if number == 2:
            again = "CREATE VIEW again AS SELECT name, n FROM names WHERE n > 0"
            output = Output("again", mode="upsert", keys="name")
            for each in (embedded, sink):
                each.add_view(again, [output], materialize=["again"])
        if number == 3:
            spec, sized = sink.circuit.spec, [*OUTPUTS, output]
            sink.close()
            rescale_state(open_files(tmp_path), cells=3)
            sink = distributed(tmp_path, Circuit(spec), sized, 3)
        if number == 5:
            sink.close()
            rescale_state(open_files(tmp_path), cells=None)
            sink = ViewSink(Circuit(spec), sized, state_dir=tmp_path)
        if number == 6:
            sink.close()
            rescale_state(open_files(tmp_path), cells=2)
            sink = distributed(tmp_path, Circuit(spec), sized, 2)
        embedded(Frame(None, table), number)
        sink(cluster.frame(table) if number != 5 else Frame(None, table), number)
        check_same(sink, embedded, tmp_path)
    sink.close()


@LAW
@given(data=st.data())
def test_random_sql_is_kept_and_published_as_in_one_process(data):
    cells = data.draw(st.sampled_from([1, 2, 3, 5]), "cells")
    spec = compile_sql(data.draw(selects()), SQL_SCHEMAS, materialize=True).spec
    cluster = LocalCluster(data.draw(st.integers(0, 99), "seed"))
    columns = [name for name in Circuit(spec).schema("view").arrow.names if name != "weight"]
    keys = data.draw(st.lists(st.sampled_from(columns), unique=True, min_size=1), "keys")
    mode: Any = data.draw(st.sampled_from(["delta", "upsert", "complete"]), "mode")
    output = Output("view", mode=mode, keys=keys if mode == "upsert" else ())
    most = data.draw(st.sampled_from([0, 2, 500]), "rows that the driver reads")
    embedded, world = ViewSink(Circuit(spec), [output]), World()
    with TemporaryDirectory() as place, patch.object(engine, "MAX_FEW_ROWS", most):
        sink = distributed(place, Circuit(spec), [output], cells)
        for number in range(data.draw(st.integers(2, 4), "steps")):
            table = tagged(world.change(data.draw))
            frame: Any = cluster.frame(table)
            try:
                embedded(Frame(None, table), number)
            except TargetError:
                with pytest.raises(TargetError, match="one row for every"):
                    sink(frame, number)
                break
            if number and data.draw(st.integers(0, 3), "restart") == 0:
                sink.close()
                if data.draw(st.booleans(), "rescale"):
                    cells = data.draw(st.sampled_from([1, 2, 4, 6]), "new cells")
                    if data.draw(st.booleans(), "embedded between"):
                        rescale_state(open_files(place), cells=None, spec=spec)
                    session = data.draw(st.sampled_from([None, frame.sparkSession]))
                    rescale_state(open_files(place), cells=cells, spec=spec, session=session)
                sink = distributed(place, Circuit(spec), [output], cells)
            sink(frame, number)
            check_same(sink, embedded, place)
        sink.close()
