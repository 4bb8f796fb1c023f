"""Recursive views that are divided among cells by columns that no rule changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog, compile_sql
from circuits.state.migration import export_recursion
from streaming import ViewSink
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.explain import explain_stages
from streaming.distributed.migration import gather_state, scatter_state
from streaming.distributed.planning.grid_planning import stage_grid
from streaming.distributed.planning.job_layout import plan_job
from streaming.distributed.planning.stages import Stage
from streaming.distributed.rescaling import rescale_state
from streaming.errors import StateDamagedError
from streaming.state.open_files import open_files
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_batch_job import LAW, UnreadFrame
from tests.streaming.distributed.test_engine import Frame, outputs
from tests.streaming.distributed.test_recursive_stages import check_views, distributed
from tests.support.tables import bag_of

INT, TEXT = pa.int64(), pa.string()
INPUTS = {
    "e": pa.schema([("src", INT), ("dst", INT), ("note", TEXT), ("cost", INT)]),
    "s": pa.schema([("id", pa.int32()), ("name", TEXT), ("x", pa.float64())]),
    "n": pa.schema([("a", TEXT), ("b", TEXT)]),
}
STEP = "tc.a, e.dst FROM tc JOIN e ON e.src = tc.b"

#: Recursions by the columns that divide them, and what is special about them.
QUERIES = {
    "a closure": f"tc(a, b) AS (SELECT src, dst FROM e UNION SELECT {STEP})",
    "a closure to the left": "tc(a, b) AS (SELECT src, dst FROM e "
    "UNION SELECT e.src, tc.b FROM e JOIN tc ON e.dst = tc.a)",
    "a closure of texts": "tc(a, b) AS (SELECT a, b FROM n "
    "UNION SELECT tc.a, n.b FROM tc JOIN n ON n.a = tc.b)",
    "a join begins": "tc(a, b) AS (SELECT s.id, e.dst FROM s JOIN e ON e.src = s.id "
    f"UNION SELECT {STEP})",
    "a semijoin begins": "tc(a, b) AS (SELECT src, dst FROM e WHERE src IN (SELECT id FROM s) "
    f"UNION SELECT {STEP})",
    "an aggregate begins": "tc(a, c, b) AS (SELECT src, count(*), max(dst) FROM e GROUP BY src "
    "UNION SELECT tc.a, tc.c, e.dst FROM tc JOIN e ON e.src = tc.b)",
    "a union begins": "tc(a, b) AS ((SELECT src, dst FROM e UNION ALL SELECT dst, src FROM e) "
    f"UNION SELECT {STEP})",
    "a distinct begins": f"tc(a, b) AS (SELECT DISTINCT src, dst FROM e UNION SELECT {STEP})",
    "a constant begins": f"tc(a, b) AS (SELECT 1, CAST(1 AS BIGINT) UNION SELECT {STEP})",
    "several columns": "tc(a, n, x, b) AS (SELECT id, name, x, CAST(id AS BIGINT) FROM s "
    "UNION SELECT tc.a, tc.n, tc.x, e.dst FROM tc JOIN e ON e.src = tc.b)",
    "row ids": "tc(a, b, note, cost) AS (SELECT src, dst, note, cost FROM e "
    "UNION SELECT tc.a, e.dst, e.note, e.cost FROM tc JOIN e ON e.src = tc.b)",
    "an antijoin with an input": "tc(a, b) AS (SELECT src, dst FROM e "
    f"UNION SELECT {STEP} WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.id = e.dst))",
    "an antijoin with both": "tc(a, b) AS (SELECT src, dst FROM e "
    f"UNION SELECT {STEP} WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.id = e.dst AND s.x < tc.a))",
    "a left join": "tc(a, b, n) AS (SELECT src, dst, note FROM e UNION SELECT tc.a, e.dst, s.name "
    "FROM tc JOIN e ON e.src = tc.b LEFT JOIN s ON s.id = e.dst)",
    "a recursion reads another": "u(a, b) AS (SELECT src, dst FROM e UNION "
    "SELECT u.a, e.dst FROM u JOIN e ON e.src = u.b), tc(a, b) AS (SELECT a, b FROM u UNION "
    "SELECT tc.a, u.b FROM tc JOIN u ON u.a = tc.b JOIN s ON s.id = tc.a)",
    "all derivations": "tc(a, b, d) AS (SELECT src, dst, 1 FROM e UNION ALL "
    "SELECT tc.a, e.dst, d + 1 FROM tc JOIN e ON e.src = tc.b WHERE d < 3)",
    "a minimum": "tc(a, b, d) USING KEY (a, b, min(d)) AS (SELECT id, CAST(id AS BIGINT), "
    "CAST(0 AS BIGINT) FROM s "
    "UNION SELECT tc.a, e.dst, tc.d + 1 FROM tc JOIN e ON e.src = tc.b)",
    "a minimum before the keys": "tc(d, a, b) USING KEY (min(d), a, b) AS (SELECT CAST(0 AS "
    "BIGINT), name, CAST(id AS BIGINT) FROM s "
    "UNION SELECT tc.d + 1, tc.a, e.dst FROM tc JOIN e ON e.src = tc.b)",
}


def compile_query(query: str) -> Circuit:
    return compile_sql(f"WITH RECURSIVE {query} SELECT * FROM tc", INPUTS)


def recursion_of(circuit: Circuit) -> Stage:
    """Return the last recursion."""
    return [stage for stage in circuit_stages(circuit).stages if stage.is_recursive][-1]


@pytest.mark.parametrize("name", QUERIES)
def test_these_recursions_are_divided(name):
    stage = recursion_of(compile_query(QUERIES[name]))
    assert stage.carried and not stage.one_cell_reason
    assert stage_grid(stage, 4).cells == 4


@LAW
@given(name=st.sampled_from(sorted(QUERIES)), data=st.data())
def test_divided_recursions_give_the_same_as_one_process(name, data):
    check_views(compile_query(QUERIES[name]).spec, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@LAW
@given(data=st.data())
def test_each_divided_recursion_gives_the_same_as_one_process(name, data):
    check_views(compile_query(QUERIES[name]).spec, data)


@st.composite
def linear_rules(draw: st.DrawFn) -> str:
    """Draw rules of two relations that use each other, each rule with at most one of them.

    The columns that stay the same, if there are any, may have different positions.
    """
    variables = ["x", "y", "z"]
    rules = []
    for head, other in (("p", "q"), ("q", "p")):
        rules.append(f"{head}(x, y) :- {draw(st.sampled_from(['e(x, y)', 'f(y, x)']))}.")
        for _ in range(draw(st.integers(1, 2))):
            used = draw(st.sampled_from([head, other]))
            a, b = draw(st.permutations(variables))[:2]
            c = next(v for v in variables if v not in (a, b))
            edge = draw(
                st.sampled_from([f"e({b}, {c})", f"f({c}, {b})", f"e({b}, {c}), f({a}, _)"])
            )
            columns = draw(st.sampled_from([(a, c), (c, a), (a, b)]))
            rules.append(f"{head}({', '.join(columns)}) :- {used}({a}, {b}), {edge}.")
    return " ".join(rules)


PAIRS = {name: pa.schema([("src", INT), ("dst", INT)]) for name in "ef"}


@LAW
@given(rules=linear_rules(), data=st.data())
def test_random_linear_recursions_give_the_same_as_one_process(rules, data):
    check_views(compile_datalog(rules, PAIRS).spec, data)


@pytest.mark.parametrize(
    ("rules", "carried"),
    [
        ("p(x, y) :- e(x, y). p(x, z) :- p(x, y), e(y, z).", ((0,),)),
        ("p(x, y) :- e(x, y). p(x, z) :- e(x, y), p(y, z).", ((1,),)),
        # Both columns, at any position.
        ("p(x, y, z) :- e(x, y), f(y, z). p(x, y, z) :- p(x, y, w), e(w, z).", ((0, 1),)),
        ("p(x, y) :- e(x, y). q(z, x) :- p(x, y), f(y, z). p(x, z) :- q(y, x), e(y, z).",
         ((0,), (1,))),
        # No column stays the same.
        ("p(x, y) :- e(x, y). p(x, z) :- p(x, y), p(y, z).", ()),
        ("p(x, y) :- e(x, y). p(y, x) :- p(x, y), e(y, x).", ()),
        ("p(x) :- e(x, x). p(y) :- p(x), e(x, y).", ()),
        # A value that is computed may differ from the one that it is computed from.
        ("p(x, y) :- e(x, y). p(x + 0, z) :- p(x, y), e(y, z).", ()),
        # The carried column is the value of the minimum.
        ("p(min(x), y) :- e(x, y). p(min(x), z) :- p(x, y), e(y, z).", ()),
        # The value of one rule is that of another row.
        ("p(x, y) :- e(x, y). p(x, z) :- p(x, y), p(x, w), e(w, z).", ((0,),)),
        ("p(x, y) :- e(x, y). p(x, z) :- p(x, y), p(w, y), e(w, z).", ()),
    ],
)  # fmt: skip
def test_the_columns_that_no_rule_changes_are_found(rules, carried):
    assert recursion_of(compile_datalog(rules, PAIRS)).carried == carried


def test_explain_says_how_a_recursion_is_divided_or_why_not():
    circuit = compile_datalog(
        "p(x, y) :- e(x, y). p(x, z) :- p(x, y), e(y, z). t(x, y) :- f(x, y). "
        "t(x, z) :- t(x, y), t(y, z).",
        PAIRS,
    )
    stages = circuit_stages(circuit)
    grids = [stage_grid(stage, 4) for stage in stages.stages]
    text = explain_stages(stages, grids)
    assert "stage 0: recursion of p by x, which no iteration changes\n  r0      from e" in text
    assert "  grid    4 cells: x 4\n  sent    r0: 1 copy of a changed row" in text
    assert "  sent    r1: 4 copies of a changed row, " in text
    reason = "no column has the same value in a row and in the rows that derive it"
    assert f"stage 1: recursion of t in one cell, because {reason}" in text
    # Its cells have no rows in common, so they write the view themselves.
    assert plan_job(stages, tuple(grids)).local_views == {"p", "t"}


CLOSURE = "p(x, y) :- e(x, y). p(x, z) :- p(x, y), e(y, z)."
E = {"e": PAIRS["e"]}


def test_the_cells_of_a_divided_recursion_have_equal_loads_at_a_hub(tmp_path):
    """Half of all edges leave one node."""
    circuit = compile_datalog(CLOSURE, E)
    edges = [(0, n) for n in range(1, 200)] + [(n, n + 1) for n in range(199)]
    table = pa.table([list(column) for column in zip(*edges, strict=True)], ["src", "dst"])
    cluster, embedded = LocalCluster(), ViewSink(Circuit(circuit.spec))
    sink = distributed(tmp_path, circuit, 4)
    embedded(Frame(None, table), 0)
    sink(UnreadFrame(cluster.frame(table)), 0)
    assert outputs(sink) == outputs(embedded)
    (line,) = (line for line in sink.explain().splitlines() if line.startswith("  kept"))
    assert float(line.split()[-4]) < 1.5, line
    sink.close()


def test_a_divided_recursion_is_moved_between_numbers_of_cells(tmp_path):
    circuit = compile_datalog(CLOSURE, E)
    cluster, embedded = LocalCluster(), ViewSink(Circuit(circuit.spec))
    sink = distributed(tmp_path, circuit, 4)
    for number, cells in enumerate((4, 2, 7, 1, None, 3)):
        if number:
            sink.close()
            rescale_state(open_files(tmp_path), cells=cells)
            options: Any = {"mode": "distributed", "cells": cells} if cells else {}
            sink = ViewSink(Circuit(circuit.spec), state_dir=tmp_path, **options)
        changes = [(3 * n + number, 5 * n, 1) for n in range(4)]
        if number:
            changes += [(3 * n + number - 1, 5 * n, -1) for n in (1, 2)]
        rows = [{"src": a % 7, "dst": b % 7, "weight": weight} for a, b, weight in changes]
        table = pa.Table.from_pylist(rows)
        embedded(Frame(None, table), number)
        sink(cluster.frame(table) if cells else Frame(None, table), number)
        assert outputs(sink) == outputs(embedded)
    sink.close()


@pytest.mark.parametrize("name", QUERIES)
def test_state_is_divided_and_merged_and_rows_in_wrong_cells_are_found(name):
    circuit = compile_query(QUERIES[name])
    rows = {"src": [1, 2, 3, 3, 5], "dst": [2, 3, 1, 4, None], "note": ["a", None, "a", "b", "c"]}
    names = {"a": ["a", "b", "c", "b"], "b": ["b", "c", "a", "d"]}
    starts = {"id": [1, 2, 5, None], "name": ["u", "v", None, "w"], "x": [0.5, -0.0, None, 2.0]}
    for table, columns in (("e", rows | {"cost": [1, 2, 3, None, 5]}), ("n", names), ("s", starts)):
        circuit.step({table: pa.table(columns, INPUTS[table])})
    stage = recursion_of(circuit)
    state = export_recursion(circuit, stage.recursion_nodes)
    grid = stage_grid(stage, 3)
    cells = dict(enumerate(scatter_state(stage, grid, state)))
    gathered = gather_state(stage, grid, cells)
    assert [table and bag_of(table) for table in gathered] == [
        table and bag_of(table) for table in state
    ]
    divided = [part for part, columns in enumerate(stage.state_columns) if columns is not None]
    assert any(cells[0][part] != cells[1][part] for part in divided)
    with pytest.raises(StateDamagedError, match="are in the wrong cells"):
        gather_state(stage, grid, {0: cells[1], 1: cells[0], 2: cells[2]})
    copies = [
        part
        for part, columns in enumerate(stage.state_columns)
        if columns is None and state[part] is not None and state[part].num_rows
    ]
    damaged = [*cells[1]]
    damaged[copies[0]] = damaged[copies[0]].slice(1)
    with pytest.raises(StateDamagedError, match="different rows of a relation"):
        gather_state(stage, grid, {**cells, 1: tuple(damaged)})
