"""The benchmark of scale at tiny sizes; a wrong count ends it with status 1."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer

from benchmarks.graph import Graph, generate_graph
from benchmarks.parts import PartsRun
from benchmarks.scale import __main__ as scale
from benchmarks.scale import shuffled_bytes, speed
from benchmarks.scale.cells import (
    CLIQUES,
    TRIANGLES,
    build_grids,
    expected_copies,
    generate_hub_graph,
)
from benchmarks.scale.edges import EdgeSizes, Generator
from streaming.distributed.execution.placement import place_rows

NO_SPARK = [part for part in scale.PARTS if part not in ("batches", "driver")]


def refuse_session(log: Path):
    raise AssertionError("no part needs Spark")


def run_without_spark(folder: Path, *parts: str, json: Path | None = None) -> PartsRun:
    return PartsRun(folder, parts, seed=0, json=json, open_session=refuse_session)


def test_every_part_without_spark_is_measured_and_compared_with_its_target(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    real = replace(generate_graph(9, 4_000, 1), name="real")

    scale.measure(run_without_spark(tmp_path, *NO_SPARK, json=path), scale.QUICK, real)

    tables = json.loads(path.read_text())["tables"]
    cells = tables["Cells"]
    graphs_with_target = {row["graph"] for row in cells if row["met"] is not None}
    assert graphs_with_target == {"real", "hub-11-600"}
    assert all(row["copies met"] for row in cells)
    assert all(row["met"] for row in cells if row["graph"] == "hub-11-600" and row["target"])
    groups = {row["aggregates"]: row for row in tables["Groups of aggregates"]}
    assert groups["count, sum, avg"]["rows sent"] < groups["min, max"]["rows sent"]
    recursions = tables["Recursive views"]
    assert len(recursions) == 3 and all(row["rows"] and row["cells"] == 4 for row in recursions)
    shuffled = tables["Bytes shuffled for a changed row"]
    assert len(shuffled) == 4 and all(row["HyperCube"] < row["broadcast"] for row in shuffled)
    hubs = [row for row in tables["Speed-up, simulated"] if row["graph"] == "hub-11-600"]
    assert hubs and all(0 < row["of ideal"] <= 1 for row in hubs)


@pytest.mark.spark
def test_distributed_micro_batches_give_the_counts_of_embedded_ones(spark, tmp_path: Path) -> None:
    path = tmp_path / "scale.json"

    run = PartsRun(
        tmp_path, ["batches", "driver"], seed=0, json=path, open_session=lambda log: spark
    )
    scale.measure(run, scale.QUICK, real=None)

    rows = json.loads(path.read_text())["tables"]["Micro-batches on two cores"]
    assert [row["cells"] for row in rows] == [None, 2]
    assert rows[1]["stages"] == 2 and rows[1]["target s"] == 0.4
    received = json.loads(path.read_text())["tables"]["Bytes that reach the driver"]
    assert [row["rows/batch"] for row in received] == [20, 2_000]
    assert all(row["bytes met"] for row in received)


def test_a_wrong_count_ends_with_status_1(tmp_path: Path, monkeypatch) -> None:
    count = speed.COUNTERS[TRIANGLES.name]
    monkeypatch.setitem(speed.COUNTERS, TRIANGLES.name, lambda a, b: count(a, b) + len(a) % 7)

    with pytest.raises(typer.Exit) as stop:
        scale.measure(run_without_spark(tmp_path, "speed"), scale.QUICK, real=None)

    assert stop.value.exit_code == 1


def test_half_of_all_edges_of_a_hub_graph_leave_one_node() -> None:
    graph = generate_hub_graph(11, 600, 1)

    assert 0.5 <= (graph.source == 0).mean() < 0.55
    assert len({*zip(graph.source.tolist(), graph.target.tolist(), strict=True)}) == graph.edges
    with pytest.raises(ValueError, match="need more than 64 nodes"):
        generate_hub_graph(6, 600, 1)


@pytest.mark.parametrize("cells", [8, 27, 64, 512])
def test_copies_of_rows_with_heavy_values_are_as_many_as_in_theory(cells: int) -> None:
    graph = generate_hub_graph(13, 3_000, 2)

    grid = build_grids(TRIANGLES, graph, cells)["spread"]
    placed = place_rows("e", [pa.array(graph.source), pa.array(graph.target)], grid)

    assert grid.heavy
    assert len(placed.rows) / graph.edges == pytest.approx(expected_copies(grid, graph), rel=0.02)


def test_intermediate_rows_are_those_of_the_best_join_order_of_each_term() -> None:
    edges = Graph("small", np.array([1, 1, 2, 2, 3]), np.array([2, 3, 3, 4, 4]))
    new = edges.take(slice(0, 1))  # 1 -> 2; triangles: 1 2 3 and 2 3 4

    size = shuffled_bytes._intermediate_bytes(TRIANGLES, edges, new)

    # Rows after the first join of each term, for the changed edge 1 -> 2. At (a, b) there are 2:
    # both nodes have two successors. At (b, c) there are 0: node 1 has no predecessor. At (a, c)
    # there is 1: node 2 has one predecessor, node 1 two successors. A row has 3 columns, a weight.
    assert size == (2 + 0 + 1) * 8 * 4


def test_a_pattern_has_an_atom_for_each_edge() -> None:
    assert TRIANGLES.query == "n() :- e0(a, b), e1(b, c), e2(a, c)"
    assert len(CLIQUES.atoms) == 6


def test_the_edges_of_a_task_are_the_same_in_each_attempt_and_differ_from_others() -> None:
    sizes = EdgeSizes(edges=8_000, rows=4_000, cells=8)
    assert sizes.scale == 10

    def edges_of(task: int, batch_id: int = 0) -> pa.Table:
        return pa.Table.from_batches(Generator(0, batch_id, 2_000, sizes.scale).tables_of(task))

    edges = edges_of(0)
    assert 1_800 < edges.num_rows <= 2_000
    assert edges == edges_of(0) and edges not in (edges_of(1), edges_of(0, batch_id=1))
    source, target = (edges.column(name).to_numpy() for name in ("src", "dst"))
    assert (source != target).all() and max(source.max(), target.max()) < 1 << sizes.scale
