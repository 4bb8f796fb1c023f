"""Inputs with lateness in mode "distributed": cells drop rows, and state moves between cells.

The views read them without row ids, so the graph has other nodes than without lateness.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import Circuit, InputOptions, Lateness, compile_sql
from circuits.circuit_spec import CircuitSpec
from circuits.plan.time_windows import SessionBound
from streaming import ChangeOptions, StreamingError, ViewSink
from streaming.cli.state_inspection import inspect_state
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.planning.load_balance import count_loads
from streaming.distributed.rescaling import rescale_state
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from streaming.state.open_files import open_files
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_engine import Frame, outputs
from tests.support.local_cells import LocalFrame, local_cells

SCHEMAS = {
    "a": pa.schema({"k": pa.int64(), "ts": pa.int64(), "p": pa.int64(), "q": pa.string()}),
    "b": pa.schema({"k": pa.int64(), "x": pa.int64(), "y": pa.string()}),
}
VIEWS = """
    CREATE VIEW pairs AS SELECT a.k, a.p, a.q, b.x, b.y FROM a JOIN b ON a.k = b.k;
    CREATE VIEW ticks AS SELECT ts, count(*) AS n, sum(p) AS p FROM a GROUP BY ts;
    CREATE VIEW reach AS WITH RECURSIVE r(k, x) AS (SELECT k, x FROM b
        UNION SELECT r.k, a.p FROM r JOIN a ON r.x = a.k) SELECT k, x FROM r;
"""
OPTIONS = {"a": InputOptions(lateness=Lateness("ts", 2))}
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.sampled_from(["u", "v", None])
    ),
    max_size=5,
)


def step_and_compare(
    spec: CircuitSpec, place: str, cells: int | None, frame: Any, number: int, unmoved: ViewSink
) -> None:
    """Run a micro-batch in cells, or in one process if there are none, and in another sink."""
    options: Any = {} if cells is None else {"mode": "distributed", "cells": cells}
    sink = ViewSink(Circuit(spec), state_dir=place, **options)
    sink(frame, number)
    unmoved(frame, number)
    assert outputs(sink) == outputs(unmoved)
    sink.close()


LAW = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def batch(number: int, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows of both relations; their times are near the number of the micro-batch."""
    a = [
        {"relation": "a", "k": k, "ts": number + t % 2, "p": p, "q": q} for k, t, p, q in rows[::2]
    ]
    b = [{"relation": "b", "k": k, "x": t, "y": q} for k, t, _, q in rows[1::2]]
    schema = pa.unify_schemas([pa.schema({"relation": pa.string()}), *SCHEMAS.values()])
    return pa.Table.from_pylist(a + b, schema)


@LAW
@given(batches=st.lists(ROWS, min_size=3, max_size=3), data=st.data())
def test_the_state_of_inputs_with_lateness_moves_between_cells_and_one_process(
    batches: list[list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    spec = compile_sql(VIEWS, SCHEMAS, input_options=OPTIONS).spec
    cluster, unmoved = LocalCluster(), ViewSink(Circuit(spec))
    cells: int | None = None
    with TemporaryDirectory() as place:
        for number, rows in enumerate(batches):
            frame: Any = Frame(
                cluster.frame(pa.table({"x": [1]})).sparkSession, batch(number, rows)
            )
            step_and_compare(spec, place, cells, frame, number, unmoved)
            cells = data.draw(st.sampled_from([2, 3] if cells is None else [None, 1, 3]), "cells")
            rescale_state(open_files(place), cells=cells)


def test_the_cells_of_inputs_with_lateness_are_inspected_with_the_operators_of_the_plan(
    tmp_path: Path,
) -> None:
    spec = compile_sql(VIEWS, SCHEMAS, input_options=OPTIONS).spec
    sink = ViewSink(Circuit(spec), state_dir=tmp_path)
    frame: Any = Frame(None, batch(0, [(1, 1, 1, "u")] * 4))
    sink(frame, 0)
    sink.close()
    rescale_state(open_files(tmp_path), cells=2)
    arrangements = inspect_state(tmp_path)["arrangements"]
    views = {a["stored"].split()[1]: a["views"] for a in arrangements if "stage" in a["stored"]}
    assert sorted(views.values()) == [["pairs"], ["reach"], ["ticks"]]


TIMED = {
    "a": pa.schema({"k": pa.int64(), "ts": pa.int64(), "p": pa.int64(), "q": pa.string()}),
    "b": pa.schema({"k": pa.int64(), "ts": pa.int64(), "x": pa.int64(), "q": pa.string()}),
}
TIMED_VIEWS = """
    CREATE VIEW pairs AS SELECT a.k, a.ts, b.x, b.q FROM a JOIN b
        ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 2;
    CREATE VIEW later AS SELECT y.k, z.ts FROM a y JOIN a z ON y.k = z.p AND z.ts = y.ts + 1;
    CREATE VIEW missing AS SELECT a.k, a.ts, b.x FROM a LEFT JOIN b
        ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 1;
    CREATE VIEW ticks AS SELECT ts, count(*) AS n, sum(p) AS p FROM a GROUP BY ts;
    CREATE VIEW extremes AS SELECT ts // 2 AS t, max(p) AS p, min(q) AS q FROM a GROUP BY 1;
    CREATE VIEW best AS SELECT * FROM (SELECT k, ts, p,
        row_number() OVER (PARTITION BY ts ORDER BY p, k) AS n FROM a) WHERE n <= 2;
    CREATE VIEW matched AS SELECT ts, count(*) AS n FROM pairs GROUP BY ts;
    CREATE VIEW visits AS SELECT k, SESSION_START(ts, 2) AS s, count(*) AS n FROM a
        GROUP BY k, SESSION(ts, 2);
    CREATE VIEW long_visits AS SELECT v.k, v.s, a.p FROM visits v JOIN a
        ON v.k = a.k AND a.ts = v.s;
    CREATE VIEW keys AS SELECT DISTINCT k, q FROM b;
"""
LATE = {
    "a": InputOptions(lateness=Lateness("ts", 2)),
    "b": InputOptions(lateness=Lateness("ts", 1)),
}
TIMED_ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 2),
        st.integers(-3, 2),
        st.integers(0, 2),
        st.sampled_from(["u", "v", None]),
        st.sampled_from([1, 1, -1, 2]),
    ),
    max_size=6,
)
TIMED_SCHEMA = pa.unify_schemas(
    [pa.schema({"relation": pa.string(), "weight": pa.int64()}), *TIMED.values()]
)


def timed_batch(number: int, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows of both inputs; the times advance by 2 in each micro-batch."""
    return pa.Table.from_pylist(
        [
            {"relation": r, "k": k, "ts": 2 * number + t, "p": p, "x": p, "q": q, "weight": w}
            for r, k, t, p, q, w in rows
        ],
        TIMED_SCHEMA,
    )


def trace_sizes(circuit: Circuit) -> dict[str, int]:
    """Return the numbers of rows of each trace of a circuit."""
    traces = circuit.graph.traces
    return {name: len(trace.to_zset()) for name, trace in traces.items() if trace.orders}


@settings(LAW, max_examples=4)
@given(batches=st.lists(TIMED_ROWS, min_size=6, max_size=6), data=st.data())
def test_cells_that_drop_rows_publish_what_one_process_publishes(
    batches: list[list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    spec = compile_sql(TIMED_VIEWS, TIMED, input_options=LATE).spec
    unmoved = ViewSink(Circuit(spec))
    cells: int | None = 3
    with TemporaryDirectory() as place, local_cells():
        for number, rows in enumerate(batches):
            frame: Any = LocalFrame(timed_batch(number, rows))
            step_and_compare(spec, place, cells, frame, number, unmoved)
            if data.draw(st.booleans(), "is_rescaled"):
                cells = data.draw(st.sampled_from([2, 3] if cells is None else [None, 1, 4]))
                rescale_state(open_files(place), cells=cells)
        # In one process, the next step drops what cells without rows still have. Then the state is
        # that of a query that was never in cells, without the fronts of first rows, a cache.
        if cells is not None:
            rescale_state(open_files(place), cells=None)
        circuit = Circuit(spec)
        sink = ViewSink(circuit, state_dir=place)
        last: Any = LocalFrame(timed_batch(len(batches), [("a", 0, 2, 0, None, 1)] * 2))
        sink(last, len(batches))
        unmoved(last, len(batches))
        assert outputs(sink) == outputs(unmoved)
        expected = trace_sizes(unmoved.circuit)
        for name, size in trace_sizes(circuit).items():
            assert size == expected[name] or (size == 0 and name.startswith("operator")), name
        sink.close()


def test_the_state_of_cells_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    text = TIMED_VIEWS.replace("CREATE VIEW keys AS SELECT DISTINCT k, q FROM b;", "")
    spec = compile_sql(text, TIMED, input_options=LATE).spec
    stages = circuit_stages(Circuit(spec)).stages
    assert all(stage.bounds for stage in stages)
    assert [type(stage.plan) for stage in stages if stage.reports_sessions] == [SessionBound]
    random, sizes = Random(5), []

    def open_sink() -> ViewSink:
        return ViewSink(Circuit(spec), state_dir=tmp_path, mode="distributed", cells=3)

    with local_cells():
        sink = open_sink()
        for number in range(24):
            rows = [
                (r, random.randrange(3), random.randrange(-1, 2), random.randrange(3), "u", 1)
                for r in "ab" * 6
            ]
            frame: Any = LocalFrame(timed_batch(number, rows))
            sink(frame, number)
            cells = read_manifest(LocalFiles(tmp_path), number).cells
            assert cells is not None
            loads = {s.number: count_loads(s, cells.stage_manifests(s.number)) for s in stages}
            sizes.append(sum(map(sum, loads.values())))
            if number % 7 == 0:
                sink.close()
                sink = open_sink()
        text = sink.explain()
        sink.close()
    assert max(sizes[14:]) <= 2 * max(sizes[5:14])
    assert text.count("  drops   all rows ") == sum(len(stage.bounds) for stage in stages)
    assert f"jobs: a Spark job for each of {len(stages)} stages that has rows" in text


def test_cells_that_have_dropped_rows_do_not_go_on_beside_a_view_that_needs_them(
    tmp_path: Path,
) -> None:
    columns = "SELECT x.k, x.ts, x.p, y.k AS l, y.ts AS t FROM a x JOIN a y ON x.k = y.p"
    first = f"CREATE VIEW near AS {columns} AND x.ts = y.ts;"
    second = f"CREATE VIEW every AS {columns};"
    kept = {"a": InputOptions(lateness=Lateness("ts", 2), keep="all")}
    schemas = {"a": "k bigint not null, ts bigint not null, p bigint not null"}
    spec = compile_sql(first, schemas, input_options=kept).spec
    both = compile_sql(first + second, schemas, input_options=kept)
    stages = [circuit_stages(Circuit(s)).stages for s in (spec, both.spec)]
    assert [len(stage.bounds) for stage in stages[0]] == [2]
    assert all(len(stage.bounds) < 2 for stage in stages[1])
    unmoved = ViewSink(Circuit(spec))
    with local_cells():
        sink = ViewSink(Circuit(spec), state_dir=tmp_path, mode="distributed", cells=3)
        for number in range(6):
            rows = [("a", k % 3, k % 2, (k + number) % 3, "u", 1) for k in range(5)]
            frame: Any = LocalFrame(timed_batch(number, rows))
            sink(frame, number)
            unmoved(frame, number)
        with pytest.raises(StreamingError, match="cells cannot go on"):
            sink.add_view(second, change=ChangeOptions(rows_per_batch=4))
        # At once, the rows of the input replace those that the cells have dropped.
        sink.add_view(second)
        unmoved.add_view(second)
        for number in range(6, 9):
            frame = LocalFrame(timed_batch(number, [("a", k, 0, k, "u", 1) for k in range(3)]))
            sink(frame, number)
            unmoved(frame, number)
            assert outputs(sink) == outputs(unmoved)
        sink.close()
