"""Measures the cost and the benefit of dividing joins into the cells of a HyperCube.

A cell is a circuit on an executor that has a part of the rows. Claim: with 8 cells, no cell has
more than 1.3 times the mean load on the real graph, and no more than twice the mean load on a graph
in which half of all edges leave one node (a hub). Rows are sent as often as the theory says, within
5 %. A micro-batch without rows takes at most 0.4 s with 2 cells. Distributed views publish the same
deltas as embedded views.

Parts, each in a module of its own:

cells      `benchmarks.scale.cells`: load of cells, and copies of a row against theory
bytes      `benchmarks.scale.shuffled_bytes`: bytes shuffled, against plans of binary joins
speed      `benchmarks.scale.speed`: the counted work of every cell, and the speed-up it allows
batches    `benchmarks.scale.batches`: micro-batches on Spark with this machine's cores

Inputs: a real graph, RMAT graphs, and a graph with a hub. Patterns are directed triangles and
4-cliques. If the real graph is missing, the run says so and leaves it out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from benchmarks.engine import warm_up
from benchmarks.graph import Graph, generate_graph, read_graph
from benchmarks.options import check_names
from benchmarks.result import Result, Row, copy_missing_tables, terminal
from benchmarks.scale.batches import micro_batches
from benchmarks.scale.cells import CLIQUES, TRIANGLES, Pattern, generate_hub_graph, measure_cells
from benchmarks.scale.shuffled_bytes import measure_shuffled_bytes
from benchmarks.scale.speed import Scaling, measure_speed_ups
from benchmarks.verdict import Verdict
from streaming import start_session

CLAIM = (
    "HyperCube: with 8 cells, no cell has more than 1.3 times the mean load on the real graph, nor "
    "more than twice the mean load where half of all edges leave one node. Rows are sent as often "
    "as theory says, within 5 %. A micro-batch without rows takes at most 0.4 s with 2 cells. "
    "Distributed views publish what embedded ones do"
)
CELLS, BYTES = "Cells", "Bytes shuffled for a changed row"
SPEED, BATCHES = "Speed-up, simulated", "Micro-batches on two cores"
PARTS = ("cells", "bytes", "speed", "batches")

_SHARED = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[3] / "shared"))
_GRAPH = _SHARED / "data" / "graphs" / "uk-2007-05-100000.parquet"

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts.

    Attributes:
        rmat, large, fewer: Scale and edges of RMAT graphs: the usual one, a large one for the part
            ``cells``, and a small one for the part ``speed``.
        hub: Scale and edges of the graph with a hub.
        cells: The numbers of cells by pattern, for the part ``cells``.
        bytes: The numbers of cells for the part ``bytes``.
        sampled: The number of sampled rows of the part ``bytes``.
        speed: By kind of graph and pattern, for the part ``speed``.
        batches: The numbers of cells by pattern, for the part ``batches``.
        rows: New edges in a micro-batch.
        rounds: The number of timed micro-batches.
        warm: The number of micro-batches before them that are not timed.
    """

    rmat: tuple[int, int]
    large: tuple[int, int]
    hub: tuple[int, int]
    cells: dict[str, Numbers]
    bytes: Numbers
    sampled: int
    fewer: tuple[int, int]
    speed: dict[tuple[str, str], Scaling]
    batches: dict[str, Numbers]
    rows: int
    rounds: int
    warm: int


FULL = Sizes(
    rmat=(14, 120_000),
    large=(18, 2_000_000),
    hub=(17, 60_000),
    cells={TRIANGLES.name: (2, 4, 8, 64, 512), CLIQUES.name: (2, 4, 8, 64)},
    bytes=(2, 8, 64, 512),
    sampled=1_000,
    fewer=(13, 50_000),
    speed={
        ("real", TRIANGLES.name): Scaling((1, 2, 4, 8, 64)),
        ("real", CLIQUES.name): Scaling((1, 2, 4, 8), edges=100, is_counted=False),
        ("rmat", TRIANGLES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
        ("fewer", CLIQUES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
        ("hub", TRIANGLES.name): Scaling((1, 2, 4, 8, 64, 512, 4096)),
    },
    batches={TRIANGLES.name: (1, 2, 4, 8), CLIQUES.name: (1, 2, 4, 8)},
    rows=1_000,
    rounds=8,
    warm=2,
)
QUICK = Sizes(
    rmat=(8, 1_500),
    large=(9, 3_000),
    hub=(11, 600),
    cells={TRIANGLES.name: (8, 64), CLIQUES.name: (8,)},
    bytes=(8,),
    sampled=50,
    fewer=(7, 400),
    speed={
        ("rmat", TRIANGLES.name): Scaling((8,)),
        ("fewer", CLIQUES.name): Scaling((4,), edges=5, is_counted=False),
        ("hub", TRIANGLES.name): Scaling((8,)),
    },
    batches={TRIANGLES.name: (2,)},
    rows=20,
    rounds=2,
    warm=1,
)


def main(
    part: Annotated[
        list[str], typer.Option(help=f"Parts to run, of {', '.join(PARTS)}; all by default.")
    ] = list(PARTS),  # noqa: B006
    graph: Annotated[Path, typer.Option(help="The real graph.")] = _GRAPH,
    quick: Annotated[bool, typer.Option(help="Small sizes, no real graph.")] = False,
    seed: int = 0,
    json: Annotated[
        Path | None,
        typer.Option(help="Write the result here; existing tables of other parts are kept."),
    ] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    check_names(part, PARTS, "part")
    real = None
    if not quick and graph.is_file():
        real = read_graph(graph)
    else:
        reason = "--quick is set" if quick else f"there is no {graph.name}"
        terminal().print(f"the real graph is left out: {reason}")
    warm_up(1)
    with tempfile.TemporaryDirectory(prefix="dbsp-wcoj-scale-") as folder:
        measure(
            Path(folder),
            QUICK if quick else FULL,
            part=part,
            real=real,
            seed=seed,
            json=json,
            start=lambda log: start_session("benchmarks.scale", log=log),
        )


def measure(
    folder: Path,
    sizes: Sizes,
    *,
    part: list[str],
    real: Graph | None,
    seed: int,
    json: Path | None,
    start: Callable[[Path], SparkSession],
) -> None:
    """Run the parts; those without Spark run before its session starts."""
    verdict = Verdict()
    titles = zip(PARTS, (CELLS, BYTES, SPEED, BATCHES), strict=True)
    tables: dict[str, list[Row]] = {title: [] for name, title in titles if name in part}
    result = Result("scale", CLAIM, tables)
    report = terminal().print
    patterns = {pattern.name: pattern for pattern in (TRIANGLES, CLIQUES)}
    small = generate_graph(*sizes.rmat, seed)
    graphs = {"real": real, "rmat": small, "hub": generate_hub_graph(*sizes.hub, seed)}
    if "cells" in part:
        large = generate_graph(*sizes.large, seed)
        for kind, graph in {**graphs, "rmat": large}.items():
            if graph is None:
                continue
            for name, cells in sizes.cells.items():
                report(f"cells of {name} of {graph.name} ...")
                for max_cells in cells:
                    tables[CELLS] += measure_cells(
                        patterns[name], graph, max_cells, kind=kind, seed=seed
                    )
    if "bytes" in part:
        for kind in ("real", "rmat"):
            for pattern in patterns.values():
                tables[BYTES] += _bytes(pattern, graphs[kind], sizes, seed)
    if "speed" in part:
        kinds = {**graphs, "fewer": generate_graph(*sizes.fewer, seed)}
        for (kind, name), scaling in sizes.speed.items():
            graph = kinds[kind]
            if graph is not None:
                report(f"speed-up of {name} of {graph.name} ...")
                tables[SPEED] += measure_speed_ups(
                    patterns[name], graph, scaling, seed=seed, verdict=verdict
                )
    if "batches" in part:
        session = start(folder / "spark.log")
        session.sparkContext.setLogLevel("ERROR")
        for name, cells in sizes.batches.items():
            report(f"micro-batches of {name} of {small.name} ...")
            tables[BATCHES] += micro_batches(
                session,
                folder,
                patterns[name],
                small,
                cells,
                rows=sizes.rows,
                rounds=sizes.rounds,
                warm=sizes.warm,
                seed=seed,
                verdict=verdict,
            )
    if json is not None and json.exists():
        copy_missing_tables(result, Result.read(json))
    verdict.close(result, json)


def _bytes(pattern: Pattern, graph: Graph | None, sizes: Sizes, seed: int) -> list[Row]:
    if graph is None:
        return []
    return measure_shuffled_bytes(pattern, graph, sizes.bytes, rows=sizes.sampled, seed=seed)


if __name__ == "__main__":
    typer.run(main)
