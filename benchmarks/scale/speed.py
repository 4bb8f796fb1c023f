"""Counts the work of each cell of a grid, and computes the speed-up that it allows.

A tenth or a hundredth of the edges is inserted into the others. The engine of each cell gets the
rows of the cell, and its work is counted: proposals, intersections, and the rows that it received.
The speed-up of p cells is the work of one engine with all rows, divided by the work of the busiest
cell. Spark's own cost is in the table of micro-batches. The changes that the cells find must add up
to the change that one engine finds; unless it would take too long, that is compared with an
independent count.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count

import numpy as np
import pyarrow as pa

from benchmarks.counter import count, count_cliques
from benchmarks.engine import count_of
from benchmarks.graph import Graph
from benchmarks.result import Row
from benchmarks.scale.cells import CLIQUES, TRIANGLES, Pattern, build_grids
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery, Relations, ZSet
from streaming.distributed.execution.placement import Integers, find_cells
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import choose_shares

COUNTERS: dict[str, Callable[[Integers, Integers], int]] = {
    TRIANGLES.name: count,
    CLIQUES.name: count_cliques,
}


@dataclass(frozen=True, eq=False)
class Sorted:
    """The rows of one atom by cell: those of cell k from ``bounds[k]`` to ``bounds[k + 1]``."""

    source: Integers
    target: Integers
    bounds: Integers

    def of(self, cell: int) -> ZSet:
        """The rows of a cell."""
        rows = slice(self.bounds[cell], self.bounds[cell + 1])
        return ZSet.from_columns([self.source[rows], self.target[rows]])

    def rows(self, cell: int) -> int:
        """How many these are."""
        return int(self.bounds[cell + 1] - self.bounds[cell])


@dataclass(frozen=True)
class Scaling:
    """Numbers of cells, edges for each new edge, and whether to check by an independent count."""

    cells: tuple[int, ...]
    edges: int = 10
    counted: bool = True


def measure_speed_ups(
    pattern: Pattern, graph: Graph, scaling: Scaling, *, seed: int, verdict: Verdict
) -> list[Row]:
    """Return a row of the table for each number of cells, with heavy values spread and hashed."""
    mixed = graph.shuffled(seed)
    new = mixed.edges // scaling.edges
    delta, kept = mixed.take(slice(0, new)), mixed.take(slice(new, None))
    alone, found = count_work(pattern, Grid(choose_shares(pattern.atoms, 1)), kept, delta)
    whole = None
    if scaling.counted:
        counted = COUNTERS[pattern.name]
        whole = counted(mixed.source, mixed.target) - counted(kept.source, kept.target)
    truth = f"{pattern.name} that come to {graph.name}"
    verdict.set_truth(truth, whole, found)
    rows: list[Row] = []
    for most in scaling.cells:
        work, spread = {}, 0
        for way, grid in build_grids(pattern, graph, most).items():
            work[way], found = count_work(pattern, grid, kept, delta)
            verdict.compare(f"{grid.cells} cells, {way}", truth, found)
            spread = sum(len(heavy.hashes) for heavy in grid.heavy)
        times = {way: float(alone.sum() / one.max()) for way, one in work.items()}
        uneven = {way: float(one.max() / one.mean()) for way, one in work.items()}
        rows.append(
            {
                "query": pattern.name,
                "graph": graph.name,
                "rows": new,
                "cells": len(work["spread"]),
                "values spread": spread,
                "speed-up": times["spread"],
                "not spread": times["hashed"],
                "of ideal": times["spread"] / len(work["spread"]),
                "work max/mean": uneven["spread"],
                "max/mean, not spread": uneven["hashed"],
                "work in all": float(work["spread"].sum() / alone.sum()),
                "in all, not spread": float(work["hashed"].sum() / alone.sum()),
            }
        )
    return rows


def count_work(pattern: Pattern, grid: Grid, kept: Graph, delta: Graph) -> tuple[Integers, int]:
    """Return the work of each cell, and the change of the count summed over all cells."""
    before, changed = (
        [_sorted(atom, graph, grid) for atom in range(len(pattern.edges))]
        for graph in (kept, delta)
    )

    def step(cell: int) -> tuple[int, int]:
        relations = Relations()
        view = DeltaQuery(pattern.query, relations=relations)
        relations.stage({f"e{n}": rows.of(cell) for n, rows in enumerate(before)}).commit()
        given = {f"e{n}": rows.of(cell) for n, rows in enumerate(changed)}
        change = count_of(view.evaluate(relations.stage(given)))
        sent = sum(rows.rows(cell) for rows in changed)
        return view.stats.proposals + view.stats.intersections + sent, change

    with ThreadPoolExecutor(cpu_count()) as threads:
        found = list(threads.map(step, range(grid.cells)))
    return np.array([work for work, _ in found]), sum(change for _, change in found)


def _sorted(atom: int, graph: Graph, grid: Grid) -> Sorted:
    rows, cells = find_cells(atom, [pa.array(graph.source), pa.array(graph.target)], grid)
    order = np.argsort(cells.astype(np.int16), kind="stable")
    rows, cells = rows[order], cells[order]
    bounds = np.searchsorted(cells, np.arange(grid.cells + 1))
    return Sorted(graph.source[rows], graph.target[rows], bounds)
