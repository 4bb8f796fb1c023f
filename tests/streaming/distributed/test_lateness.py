"""Inputs with lateness in mode "distributed": their state moves between cells and one process.

The views read them without row ids, so the graph has other nodes than without lateness.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import Circuit, InputOptions, Lateness, compile_sql
from streaming import ViewSink
from streaming.cli.state_inspection import inspect_state
from streaming.distributed.rescaling import rescale_state
from streaming.state.open_files import open_files
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_engine import Frame, outputs

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
def test_the_state_of_inputs_with_lateness_moves_between_cells_and_one_process(batches, data):
    spec = compile_sql(VIEWS, SCHEMAS, input_options=OPTIONS).spec
    cluster, unmoved = LocalCluster(), ViewSink(Circuit(spec))
    cells: int | None = None
    with TemporaryDirectory() as place:
        for number, rows in enumerate(batches):
            frame: Any = Frame(
                cluster.frame(pa.table({"x": [1]})).sparkSession, batch(number, rows)
            )
            options: Any = {} if cells is None else {"mode": "distributed", "cells": cells}
            sink = ViewSink(Circuit(spec), state_dir=place, **options)
            sink(frame, number)
            unmoved(frame, number)
            assert outputs(sink) == outputs(unmoved)
            sink.close()
            cells = data.draw(st.sampled_from([2, 3] if cells is None else [None, 1, 3]), "cells")
            rescale_state(open_files(place), cells=cells)


def test_the_cells_of_inputs_with_lateness_are_inspected_with_the_operators_of_the_plan(tmp_path):
    spec = compile_sql(VIEWS, SCHEMAS, input_options=OPTIONS).spec
    sink = ViewSink(Circuit(spec), state_dir=tmp_path)
    frame: Any = Frame(None, batch(0, [(1, 1, 1, "u")] * 4))
    sink(frame, 0)
    sink.close()
    rescale_state(open_files(tmp_path), cells=2)
    arrangements = inspect_state(tmp_path)["arrangements"]
    views = {a["stored"].split()[1]: a["views"] for a in arrangements if "stage" in a["stored"]}
    assert sorted(views.values()) == [["pairs"], ["reach"], ["ticks"]]


def test_a_sink_warns_that_cells_drop_no_rows_by_lateness(tmp_path, caplog):
    circuit = compile_sql(VIEWS, SCHEMAS, input_options=OPTIONS)
    ViewSink(circuit, state_dir=tmp_path / "cells", mode="distributed", cells=2).close()
    (message,) = (m for m in caplog.messages if "lateness" in m)
    assert "input 'a' has lateness" in message and "retain" in message
    caplog.clear()
    plain = compile_sql(VIEWS, SCHEMAS)
    ViewSink(plain, state_dir=tmp_path / "plain", mode="distributed", cells=2).close()
    assert not any("lateness" in m for m in caplog.messages)
