"""The benchmark of scale at tiny sizes; a wrong count must be fatal to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer

from benchmarks.graph import Graph, generate_graph
from benchmarks.scale import __main__ as scale
from benchmarks.scale import shuffled_bytes as scale_bytes
from benchmarks.scale import speed as scale_speed
from benchmarks.scale.cells import (
    CLIQUES,
    TRIANGLES,
    build_grids,
    expected_copies,
    generate_hub_graph,
)
from streaming.distributed.execution.placement import place_rows

NO_SPARK = [part for part in scale.PARTS if part != "batches"]


def started(path: Path):
    raise AssertionError("no part needs Spark")


def test_every_part_without_spark_is_measured_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    real = replace(generate_graph(9, 4_000, 1), name="real")

    scale.measure(tmp_path, scale.QUICK, part=NO_SPARK, real=real, seed=0, json=path, start=started)

    tables = json.loads(path.read_text())["tables"]
    cells = tables["Cells"]
    judged = {row["graph"] for row in cells if row["met"] is not None}
    assert judged == {"real", "hub-11-600"}
    assert all(row["copies met"] for row in cells)
    assert all(row["met"] for row in cells if row["graph"] == "hub-11-600" and row["target"])
    sent = tables["Bytes shuffled for a changed row"]
    assert len(sent) == 4 and all(row["HyperCube"] < row["broadcast"] for row in sent)
    hubs = [row for row in tables["Speed-up, simulated"] if row["graph"] == "hub-11-600"]
    assert hubs and all(0 < row["of ideal"] <= 1 for row in hubs)


@pytest.mark.spark
def test_distributed_micro_batches_give_what_embedded_ones_do(spark, tmp_path: Path) -> None:
    path = tmp_path / "scale.json"

    scale.measure(
        tmp_path,
        scale.QUICK,
        part=["batches"],
        real=None,
        seed=0,
        json=path,
        start=lambda log: spark,
    )

    rows = json.loads(path.read_text())["tables"]["Micro-batches on two cores"]
    assert [row["cells"] for row in rows] == [None, 2]
    assert rows[1]["stages"] == 2 and rows[1]["target s"] == 0.4


def test_a_wrong_count_ends_with_status_1(tmp_path: Path, monkeypatch) -> None:
    right = scale_speed.COUNTERS[TRIANGLES.name]
    monkeypatch.setitem(scale_speed.COUNTERS, TRIANGLES.name, lambda a, b: right(a, b) + len(a) % 7)

    with pytest.raises(typer.Exit) as stop:
        scale.measure(
            tmp_path, scale.QUICK, part=["speed"], real=None, seed=0, json=None, start=started
        )

    assert stop.value.exit_code == 1


def test_half_of_all_edges_of_a_hub_graph_leave_one_node() -> None:
    graph = generate_hub_graph(11, 600, 1)

    assert 0.5 <= (graph.source == 0).mean() < 0.55
    assert len({*zip(graph.source.tolist(), graph.target.tolist(), strict=True)}) == graph.edges
    with pytest.raises(ValueError, match="need more than 64 nodes"):
        generate_hub_graph(6, 600, 1)


@pytest.mark.parametrize("cells", [8, 27, 64, 512])
def test_copies_of_rows_with_heavy_values_are_what_theory_says(cells: int) -> None:
    graph = generate_hub_graph(13, 3_000, 2)

    grid = build_grids(TRIANGLES, graph, cells)["spread"]
    found = place_rows("e", [pa.array(graph.source), pa.array(graph.target)], grid)

    assert grid.heavy
    assert len(found.rows) / graph.edges == pytest.approx(expected_copies(grid, graph), rel=0.02)


def test_intermediate_rows_are_those_of_the_best_order_of_each_term() -> None:
    """Paths over one new edge of a small graph, counted by hand."""
    edges = Graph("small", np.array([1, 1, 2, 2, 3]), np.array([2, 3, 3, 4, 4]))
    new = edges.take(slice(0, 1))  # 1 -> 2; triangles: 1 2 3 and 2 3 4

    found = scale_bytes._intermediate_bytes(TRIANGLES, edges, new)

    # d(a, b): 2 rows after either join; d(b, c): none before 1; d(a, c): a's successors, 2, or
    # c's predecessors, 1.
    assert found == (2 + 0 + 1) * 8 * 4


def test_patterns_say_what_they_are_over() -> None:
    assert TRIANGLES.query == "n() :- e0(a, b), e1(b, c), e2(a, c)"
    assert len(CLIQUES.atoms) == 6
