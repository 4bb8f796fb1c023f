"""Measures the cost and the benefit of dividing joins into the cells of a HyperCube.

A cell is a circuit on an executor that has a part of the rows. Claim: with 8 cells, no cell has
more than 1.3 times the mean load on the real graph, and no more than twice the mean load on a graph
in which half of all edges leave one node (a hub). Rows are sent as often as the theory says, within
5 %. A micro-batch without rows takes at most 0.4 s with 2 cells. The driver receives less than
64 kB and the manifests of a micro-batch of any size. Distributed views publish the same deltas as
embedded views.

Parts, each in a module of its own:

cells      `benchmarks.scale.cells`: load of cells, and copies of a row against theory
groups     `benchmarks.scale.groups`: rows that cells receive and keep for aggregates
bytes      `benchmarks.scale.shuffled_bytes`: bytes shuffled, against plans of binary joins
speed      `benchmarks.scale.speed`: the counted work of every cell, and the speed-up it allows
batches    `benchmarks.scale.batches`: micro-batches on Spark with this machine's cores
driver     `benchmarks.scale.driver`: bytes that reach the driver, CPU seconds, fixed cost
recursion  `benchmarks.scale.recursion`: load and CPU seconds of the cells of recursive views
edges      `benchmarks.scale.edges`: the memory of executors that keep a large graph; only if named

Inputs: a real graph, RMAT graphs, and a graph with a hub. Patterns are directed triangles and
4-cliques. If the real graph is missing, the run says so and leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.engine import warm_up
from benchmarks.graph import Graph, generate_graph, read_graph
from benchmarks.history import History, generate_history, read_history
from benchmarks.options import check_names
from benchmarks.parts import PartsRun, open_run
from benchmarks.result import Result, Row, copy_missing_tables, terminal
from benchmarks.scale.batches import BatchSizes, measure_batches
from benchmarks.scale.cells import CLIQUES, TRIANGLES, generate_hub_graph, measure_cells
from benchmarks.scale.driver import DriverSizes, measure_driver
from benchmarks.scale.edges import EdgeSizes, measure_edges
from benchmarks.scale.groups import QUERIES, measure_groups
from benchmarks.scale.recursion import RecursionSizes, measure_recursions
from benchmarks.scale.shuffled_bytes import measure_shuffled_bytes
from benchmarks.scale.speed import Scaling, measure_speed_ups
from benchmarks.shared_data import SHARED

CLAIM = (
    "HyperCube: with 8 cells, no cell has more than 1.3 times the mean load on the real graph, nor "
    "more than twice the mean load where half of all edges leave one node. Rows are sent as often "
    "as theory says, within 5 %. A micro-batch without rows takes at most 0.4 s with 2 cells. "
    "The driver receives less than 64 kB and the manifests of a micro-batch of any size. "
    "Distributed views publish what embedded ones do"
)
CELLS, BYTES = "Cells", "Bytes shuffled for a changed row"
SPEED, BATCHES = "Speed-up, simulated", "Micro-batches on two cores"
DRIVER = "Bytes that reach the driver"
GROUPS = "Groups of aggregates"
RECURSION = "Recursive views"
EDGES = "Memory of executors"
PARTS = ("cells", "groups", "bytes", "speed", "batches", "driver", "recursion")
#: The parts that run only if they are named.
LONG_PARTS = ("edges",)
DEFAULT_EDGES = EdgeSizes(edges=1_000_000, rows=1_000_000, cells=8)
PATTERNS = {pattern.name: pattern for pattern in (TRIANGLES, CLIQUES)}

_GRAPH = SHARED / "data" / "graphs" / "uk-2007-05-100000.parquet"
_HISTORY = SHARED / "data" / "git-imports-kafka"

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts.

    Attributes:
        rmat: Scale and edges of the RMAT graph of the parts ``bytes``, ``speed`` and ``batches``.
        large_rmat: The same for the part ``cells``.
        small_rmat: The same for cliques in the part ``speed``.
        hub: Scale and edges of the graph with a hub.
        cells: For the part ``cells``: the numbers of cells by pattern.
        group_cells: For the part ``groups``: the numbers of cells.
        shuffle_cells: For the part ``bytes``: the numbers of cells.
        sampled_rows: For the part ``bytes``: the number of sampled rows.
        speed: For the part ``speed``: the measurements by kind of graph and pattern.
        batch_cells: For the part ``batches``: the numbers of cells by pattern.
        batches: For the part ``batches``: rows and numbers of micro-batches.
        driver: For the part ``driver``: rows of micro-batches.
        recursion: For the part ``recursion``: its sizes.
    """

    rmat: tuple[int, int]
    large_rmat: tuple[int, int]
    small_rmat: tuple[int, int]
    hub: tuple[int, int]
    cells: dict[str, Numbers]
    group_cells: Numbers
    shuffle_cells: Numbers
    sampled_rows: int
    speed: dict[tuple[str, str], Scaling]
    batch_cells: dict[str, Numbers]
    batches: BatchSizes
    driver: DriverSizes
    recursion: RecursionSizes


FULL = Sizes(
    rmat=(14, 120_000),
    large_rmat=(18, 2_000_000),
    hub=(17, 60_000),
    cells={TRIANGLES.name: (4, 8, 64, 512), CLIQUES.name: (4, 8, 64)},
    group_cells=(8, 64),
    shuffle_cells=(2, 8, 64, 512),
    sampled_rows=1_000,
    small_rmat=(13, 50_000),
    speed={
        ("real", TRIANGLES.name): Scaling((1, 2, 4, 8, 64)),
        ("real", CLIQUES.name): Scaling((1, 2, 4, 8), one_in=100, is_counted=False),
        ("rmat", TRIANGLES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
        ("small rmat", CLIQUES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
        ("hub", TRIANGLES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
    },
    batch_cells={TRIANGLES.name: (1, 2, 4, 8), CLIQUES.name: (1, 2, 4, 8)},
    batches=BatchSizes(rows=1_000, timed=8, warm_up=2),
    driver=DriverSizes(rows=(1_000, 100_000, 1_000_000), repeats=5),
    recursion=RecursionSizes(cells=(8, 64), steps=200, starts=256, hub=(12, 4_000)),
)
QUICK = Sizes(
    rmat=(8, 1_500),
    large_rmat=(9, 3_000),
    hub=(11, 600),
    cells={TRIANGLES.name: (8, 64), CLIQUES.name: (8,)},
    group_cells=(8,),
    shuffle_cells=(8,),
    sampled_rows=50,
    small_rmat=(7, 400),
    speed={
        ("rmat", TRIANGLES.name): Scaling((8,)),
        ("small rmat", CLIQUES.name): Scaling((4,), one_in=5, is_counted=False),
        ("hub", TRIANGLES.name): Scaling((8,)),
    },
    batch_cells={TRIANGLES.name: (2,)},
    batches=BatchSizes(rows=20, timed=2, warm_up=1),
    driver=DriverSizes(rows=(20, 2_000), repeats=1),
    recursion=RecursionSizes(cells=(4,), steps=5, starts=20, hub=(9, 200)),
)


def main(
    part: Annotated[
        list[str],
        typer.Option(
            help=f"Parts to run, of {', '.join(PARTS + LONG_PARTS)}; all but the last by default."
        ),
    ] = list(PARTS),  # noqa: B006
    graph: Annotated[Path, typer.Option(help="The real graph.")] = _GRAPH,
    history: Annotated[Path, typer.Option(help="Folder of a history, for recursion.")] = _HISTORY,
    quick: Annotated[bool, typer.Option(help="Small sizes, no real graph.")] = False,
    seed: int = 0,
    edges: Annotated[int, typer.Option(help="Part edges: the edges of the graph.")] = 1_000_000,
    edges_per_batch: Annotated[int, typer.Option(help="Part edges: those of a micro-batch.")] = (
        DEFAULT_EDGES.rows
    ),
    edge_cells: Annotated[int, typer.Option(help="Part edges: the maximum number of cells.")] = (
        DEFAULT_EDGES.cells
    ),
    json: Annotated[
        Path | None,
        typer.Option(help="Write the result here; existing tables of other parts are kept."),
    ] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    check_names(part, PARTS + LONG_PARTS, "part")
    real = None
    if not quick and graph.is_file():
        real = read_graph(graph)
    else:
        reason = "--quick is set" if quick else f"there is no {graph.name}"
        terminal().print(f"the real graph is left out: {reason}")
    warm_up(1)
    changes = None if quick or not history.is_dir() else read_history(history)
    with open_run("scale", part, seed=seed, json=json) as run:
        large = EdgeSizes(edges, edges_per_batch, edge_cells)
        measure(run, QUICK if quick else FULL, real, changes, large)


def measure(
    run: PartsRun,
    sizes: Sizes,
    real: Graph | None,
    history: History | None = None,
    edges: EdgeSizes = DEFAULT_EDGES,
) -> None:
    """Run the parts, and write the result.

    Args:
        run: The parts.
        sizes: Their sizes.
        real: The real graph, if there is one.
        history: A history for the part ``recursion``; by default a generated one.
        edges: The size of the part ``edges``.
    """
    tables: dict[str, list[Row]] = {}
    result = Result("scale", CLAIM, tables)
    graphs = {
        "rmat": generate_graph(*sizes.rmat, run.seed),
        "hub": generate_hub_graph(*sizes.hub, run.seed),
    }
    if real is not None:
        graphs = {"real": real, **graphs}
    if "cells" in run.parts:
        tables[CELLS] = _measure_cells(run, sizes, graphs)
    if "groups" in run.parts:
        run.report("groups of aggregates ...")
        tables[GROUPS] = [
            measure_groups(query, graph, cells, run.verdict)
            for graph in graphs.values()
            for query in QUERIES
            for cells in sizes.group_cells
        ]
    if "bytes" in run.parts:
        tables[BYTES] = _measure_bytes(run, sizes, graphs)
    if "speed" in run.parts:
        tables[SPEED] = _measure_speed(run, sizes, graphs)
    if "batches" in run.parts:
        tables[BATCHES] = _measure_batches(run, sizes, graphs["rmat"])
    if "driver" in run.parts:
        run.report("bytes that reach the driver ...")
        tables[DRIVER] = measure_driver(run.start_spark(), run, sizes.driver)
    if "recursion" in run.parts:
        changes = history or generate_history(300, 300, run.seed)
        tables[RECURSION] = measure_recursions(run, sizes.recursion, changes, real)
    if "edges" in run.parts:
        run.report("memory of executors ...")
        tables[EDGES] = measure_edges(run, edges)
    if run.json is not None and run.json.exists():
        copy_missing_tables(result, Result.read(run.json))
    run.verdict.close(result, run.json)


def _measure_cells(run: PartsRun, sizes: Sizes, graphs: Mapping[str, Graph]) -> list[Row]:
    """Return the rows of all graphs; the RMAT graph is the large one."""
    rows: list[Row] = []
    large = generate_graph(*sizes.large_rmat, run.seed)
    for kind, graph in {**graphs, "rmat": large}.items():
        for name, cells in sizes.cells.items():
            run.report(f"cells of {name} of {graph.name} ...")
            for max_cells in cells:
                rows += measure_cells(PATTERNS[name], graph, max_cells, kind=kind, seed=run.seed)
    return rows


def _measure_bytes(run: PartsRun, sizes: Sizes, graphs: Mapping[str, Graph]) -> list[Row]:
    """Return the rows of the real graph and of the RMAT graph."""
    return [
        row
        for kind in ("real", "rmat")
        if kind in graphs
        for pattern in PATTERNS.values()
        for row in measure_shuffled_bytes(
            pattern, graphs[kind], sizes.shuffle_cells, rows=sizes.sampled_rows, seed=run.seed
        )
    ]


def _measure_speed(run: PartsRun, sizes: Sizes, graphs: Mapping[str, Graph]) -> list[Row]:
    """Return the rows of all graphs, and of a small RMAT graph for cliques."""
    graphs = {**graphs, "small rmat": generate_graph(*sizes.small_rmat, run.seed)}
    rows: list[Row] = []
    for (kind, name), scaling in sizes.speed.items():
        if kind in graphs:
            graph = graphs[kind]
            run.report(f"speed-up of {name} of {graph.name} ...")
            rows += measure_speed_ups(
                PATTERNS[name], graph, scaling, seed=run.seed, verdict=run.verdict
            )
    return rows


def _measure_batches(run: PartsRun, sizes: Sizes, graph: Graph) -> list[Row]:
    """Return the rows of micro-batches on Spark."""
    session = run.start_spark()
    rows: list[Row] = []
    for name, cells in sizes.batch_cells.items():
        run.report(f"micro-batches of {name} of {graph.name} ...")
        rows += measure_batches(session, run, PATTERNS[name], graph, cells, sizes.batches)
    return rows


if __name__ == "__main__":
    typer.run(main)
