"""Min, max, first rows and top-k of hot groups in two stages: as embedded, and evenly divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_sql
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution.cell import group_by_destination, source_spec
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import pack_relations, replicate_rows
from streaming.distributed.planning.first_rows import MAX_FIRST_ROWS
from streaming.distributed.planning.grid_planning import stage_grid
from tests.streaming.distributed.test_migration import Cells, check_migration
from tests.support.tables import bag_of

ROWS = {
    "r": pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.string()), ("d", pa.float64())])
}
VIEWS = """
    CREATE VIEW extremes AS SELECT k, count(*) AS n, min(x) AS a, max(x) AS b, max(t) AS c,
        min(d) AS e, min(x) AS a2 FROM r GROUP BY k;
    CREATE VIEW firsts AS SELECT k, arg_max(t, x) AS a, arg_min(x, t) AS b, any_value(d) AS c,
        first(x ORDER BY d DESC NULLS FIRST, x) AS f, max(k) AS m,
        max(x) FILTER (WHERE d > 0) AS g FROM r GROUP BY k;
    CREATE VIEW whole AS SELECT min(t) AS a, max(d) AS b, count(*) AS n FROM r;
    CREATE VIEW of_groups AS SELECT max(n) AS most, arg_max(k, n) AS k
        FROM (SELECT k, count(*) AS n FROM r GROUP BY k) g;
    CREATE VIEW best AS SELECT k, x, t FROM r
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY t DESC, x) <= 2;
    CREATE VIEW numbered AS SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY d) AS n FROM r
        QUALIFY n <= 3;
    CREATE VIEW page AS SELECT x, d FROM r ORDER BY d DESC, x LIMIT 2 OFFSET 1;
    CREATE VIEW joined AS SELECT y.k, max(y.x) AS a, min(z.t) AS b FROM r y JOIN r z ON y.x = z.k
        GROUP BY y.k;
"""
# Texts with a common beginning have equal sort columns.
TEXTS = ["", "same beginning, one end", "same beginning, other", "same beginning, third", None]
ROW = st.tuples(
    st.sampled_from([1, 1, 1, 2, None]),
    st.sampled_from([-1, 0, 1, 2, None]),
    st.sampled_from(TEXTS),
    st.sampled_from([-0.5, 0.0, 1.5, float("nan"), None]),
    st.sampled_from([-2, -1, 1, 1, 1, 2]),
)
CHANGES = st.lists(st.lists(ROW, max_size=12), min_size=2, max_size=4)
LAW = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def to_changes(batches: list[list[Any]]) -> list[dict[str, pa.Table]]:
    schema = pa.schema([*ROWS["r"], ("weight", pa.int64())])
    return [
        {
            "r": pa.table(
                [pa.array([row[n] for row in batch], f.type) for n, f in enumerate(schema)], schema
            )
        }
        for batch in batches
    ]


@pytest.mark.parametrize("view", [part.split()[0] for part in VIEWS.split("CREATE VIEW ")[1:]])
@settings(LAW, max_examples=5)
@given(batches=CHANGES, data=st.data())
def test_hot_groups_give_the_same_in_cells_and_embedded_with_moves(view, batches, data):
    check(view, batches, data)


@pytest.mark.slow
@pytest.mark.parametrize("view", [part.split()[0] for part in VIEWS.split("CREATE VIEW ")[1:]])
@settings(LAW, max_examples=100)
@given(batches=CHANGES, data=st.data())
def test_many_hot_groups_give_the_same_in_cells_and_embedded_with_moves(view, batches, data):
    check(view, batches, data)


def check(view: str, batches: list[list[Any]], data: st.DataObject) -> None:
    (text,) = (part for part in VIEWS.split("CREATE VIEW ")[1:] if part.split()[0] == view)
    spec = compile_sql(f"CREATE VIEW {text}", ROWS).spec
    counts = [data.draw(st.sampled_from([0, 1, 2, 3, 5])) for _ in batches]
    check_migration(spec, to_changes(batches), counts)


def test_deleted_first_rows_are_found_again_after_moves():
    spec = compile_sql(VIEWS, ROWS).spec
    inserted = [(1, x, f"same beginning, {x}", float(x), 1) for x in range(40)]
    batches = [inserted] + [
        [(k, x, t, d, -w) for k, x, t, d, w in inserted if x % 10 == step or 39 - x == step]
        for step in range(6)
    ]
    check_migration(spec, to_changes(batches), [0, 4, 3, 3, 0, 2, 5])


def test_a_group_exists_if_the_sum_of_its_weights_over_all_cells_is_positive():
    """Rows of positive weight are in one cell, those of negative weight in another one."""
    circuit = compile_sql("SELECT k, max(x) AS m FROM r GROUP BY k", ROWS)
    for weights in ([2, -1, -1], [3, -1, -1], [1, -1, 1]):
        batch = [(1, x, None, None, weight) for x, weight in enumerate(weights)]
        (changes,) = to_changes([batch])
        expected = {v: bag_of(t) for v, t in Circuit(circuit.spec).step(changes).items()}
        assert Cells(Circuit(circuit.spec), 4).step(changes) == expected


def loads(text: str, rows: pa.Table, cells: int) -> dict[int, np.ndarray]:
    """Return the number of rows that each cell of each stage receives, by stage."""
    circuit = compile_sql(text, ROWS)
    stages = circuit_stages(circuit)
    sent = group_by_destination(Circuit(source_spec(circuit.spec, stages)).step({"r": rows}))
    received = {}
    for stage in stages.stages:
        tables = {r.name: sent.get(f"relation {r.name}", []) for r in stage.relations}
        placed = replicate_rows(stage, pack_relations(stage, tables), stage_grid(stage, cells))
        received[stage.number] = np.bincount(placed.column(CELL).to_numpy(), minlength=cells)
    return received


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, max(x) AS m, count(*) AS n FROM r GROUP BY k",
        "SELECT max(x) AS m FROM r",
        "SELECT k, arg_min(t, x) AS m FROM r GROUP BY k",
        "SELECT k, x FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY x) <= 3",
        "SELECT x, t FROM r ORDER BY x LIMIT 5",
    ],
)
def test_the_rows_of_a_hot_group_are_divided_among_all_cells(text):
    n = 4000
    keys = np.where(np.arange(n) % 2, 0, np.arange(n))
    rows = pa.table([keys, np.arange(n), ["t"] * n, np.ones(n)], ROWS["r"])
    received = loads(text, rows, 8)
    assert received[0].sum() == n and received[0].max() < 1.2 * received[0].mean()
    # Of the rows, the final stage receives at most counts by key: one row for the hot group.
    assert received[1].max() < 1.2 * n / 2 / 8 + 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, max(x) AS m, sum(x) AS s FROM r GROUP BY k",
        "SELECT k, count(DISTINCT x) AS m FROM r GROUP BY k",
        "SELECT k, quantile_disc(x, 0.5) AS m FROM r GROUP BY k",
        f"SELECT x FROM r ORDER BY x LIMIT {MAX_FIRST_ROWS + 1}",
        "SELECT x FROM r ORDER BY x OFFSET 2",
    ],
)
def test_other_aggregates_and_large_limits_have_one_stage(text):
    (stage,) = circuit_stages(compile_sql(text, ROWS)).stages
    assert not stage.is_partial and not stage.partial_stages
