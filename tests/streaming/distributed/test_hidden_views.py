"""Views that only other views read: cells do not return their rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from streaming import StreamingError, ViewSink
from streaming.distributed.batch_job import find_driver_reason
from streaming.distributed.cell_state import circuit_stages, divide_circuit
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_batch_job import SCHEMAS, UnreadFrame, rows_of
from tests.support.tables import bag_of

VIEWS = """
    CREATE VIEW targets AS SELECT src, list(dst ORDER BY dst) AS dsts FROM e GROUP BY src;
    CREATE VIEW sources AS SELECT src, count(*) AS n FROM e GROUP BY src;
    CREATE VIEW copies AS SELECT src, dst FROM e;
    CREATE VIEW counts AS SELECT n, count(*) AS m FROM sources GROUP BY n;
"""
OUTPUTS = ["counts"]


def test_a_hidden_view_of_nested_values_leaves_rows_on_executors(tmp_path):
    hidden = compile_sql(VIEWS, SCHEMAS, outputs=OUTPUTS)
    assert find_driver_reason(hidden, circuit_stages(hidden)) is None
    shown = compile_sql(VIEWS, SCHEMAS)
    assert "'dsts' of view 'targets'" in str(find_driver_reason(shown, circuit_stages(shown)))
    sink = ViewSink(hidden, state_dir=tmp_path, mode="distributed", cells=3)
    edges = [{"relation": "e", "src": src, "dst": dst} for src in range(4) for dst in range(src)]
    sink(UnreadFrame(LocalCluster().frame(rows_of(*edges))), 0)
    assert bag_of(sink.last.outputs["counts"]) == {(1, 1): 1, (2, 1): 1, (3, 1): 1}
    sink.close()


def test_cells_return_no_rows_of_hidden_views_and_have_the_same_state():
    hidden, shown = compile_sql(VIEWS, SCHEMAS, outputs=OUTPUTS), compile_sql(VIEWS, SCHEMAS)
    driver, cells = divide_circuit(hidden)
    all_driver, all_cells = divide_circuit(shown)
    views = {
        name.split()[1] for spec in (driver, *cells) for name in spec.outputs if "view" in name
    }
    assert views == {"counts"}
    all_views = {
        name.split()[1]
        for spec in (all_driver, *all_cells)
        for name in spec.outputs
        if "view" in name
    }
    assert all_views == {"targets", "sources", "copies", "counts"}
    assert [spec.fingerprint for spec in cells] == [spec.fingerprint for spec in all_cells]
    assert driver.fingerprint == all_driver.fingerprint


def test_the_outputs_can_change_between_two_starts(tmp_path):
    cluster = LocalCluster()
    views = VIEWS.replace("list(dst ORDER BY dst)", "max(dst)")
    for number, outputs in enumerate((OUTPUTS, None, ["sources"])):
        circuit = compile_sql(views, SCHEMAS, outputs=outputs)
        embedded = Circuit(circuit.spec)
        for before in range(number):
            embedded.step({"e": _edges(before)})
        sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=3)
        rows = [{"relation": "e"} | row for row in _edges(number).to_pylist()]
        sink(UnreadFrame(cluster.frame(rows_of(*rows))), number)
        expected = embedded.step({"e": _edges(number)})
        actual = {view: bag_of(table) for view, table in sink.last.outputs.items()}
        assert actual == {view: bag_of(table) for view, table in expected.items()}
        sink.close()


def _edges(number: int) -> pa.Table:
    return pa.table({"src": [number, 1, 2], "dst": [5, number, 2]}, SCHEMAS["e"])


def test_columns_that_cannot_be_sent_are_refused_when_the_sink_is_created(tmp_path):
    schemas = {"e": "src BIGINT, dst BIGINT, tags ARRAY<STRING>"}
    for select, words in (
        ("SELECT tags, count(*) AS n FROM e GROUP BY tags", "'tags' of type list<.*> *, which a"),
        ("SELECT DISTINCT src, tags FROM e", "'tags' of type list<.*>, which a distinct reads"),
        ("SELECT a.src, b.tags FROM e a JOIN e b ON a.dst = b.src", "which a join reads"),
    ):
        views = f"CREATE VIEW first AS SELECT src FROM e; CREATE VIEW v AS {select};"
        circuit = compile_sql(views, schemas)
        with pytest.raises(StreamingError, match=f"view 'v': column .*{words}"):
            ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)
    assert not any(tmp_path.iterdir())
    kept = compile_sql("SELECT src, tags FROM e", schemas, materialize=["view"])
    with pytest.raises(StreamingError, match="'view' is materialized, and its column 'tags'"):
        ViewSink(kept, state_dir=tmp_path, mode="distributed", cells=2)
