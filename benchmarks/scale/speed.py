"""Counts the work of each cell of a grid, and computes the speed-up that it allows.

A tenth or a hundredth of the edges is inserted into the rest. The engine of each cell gets the
rows of the cell, and its work is counted: proposals, intersections, and the rows that it received.
The speed-up of p cells is the work of one engine with all rows, divided by the work of the busiest
cell. Spark's own cost is in the table of micro-batches. The changes of the count that the cells
compute must add up to the change that one engine computes; unless it would take too long, the sum
is also compared with an independent count.
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
class RowsByCell:
    """The rows of one atom, sorted by cell: cell k has rows ``bounds[k]`` to ``bounds[k + 1]``."""

    source: Integers
    target: Integers
    bounds: Integers

    def rows_of(self, cell: int) -> ZSet:
        """Return the rows of a cell."""
        rows = slice(self.bounds[cell], self.bounds[cell + 1])
        return ZSet.from_columns([self.source[rows], self.target[rows]])

    def size(self, cell: int) -> int:
        """Return the number of rows of a cell."""
        return int(self.bounds[cell + 1] - self.bounds[cell])


@dataclass(frozen=True)
class Scaling:
    """The measurements of one pattern on one graph.

    Attributes:
        cells: The numbers of cells.
        one_in: One in so many edges is inserted; the others are loaded before.
        is_counted: Whether to check by an independent count.
    """

    cells: tuple[int, ...]
    one_in: int = 10
    is_counted: bool = True


def measure_speed_ups(
    pattern: Pattern, graph: Graph, scaling: Scaling, *, seed: int, verdict: Verdict
) -> list[Row]:
    """Return a row of the table for each number of cells, with heavy values spread and hashed."""
    shuffled = graph.shuffled(seed)
    new_edges = shuffled.edges // scaling.one_in
    inserted, loaded = shuffled.take(slice(0, new_edges)), shuffled.take(slice(new_edges, None))
    single_work, change = count_work(
        pattern, Grid(choose_shares(pattern.atoms, 1)), loaded, inserted
    )
    counted_change = None
    if scaling.is_counted:
        counter = COUNTERS[pattern.name]
        before = counter(loaded.source, loaded.target)
        counted_change = counter(shuffled.source, shuffled.target) - before
    truth = f"new {pattern.name} of {graph.name}"
    verdict.set_truth(truth, counted_change, change)
    rows: list[Row] = []
    for max_cells in scaling.cells:
        work, spread = {}, 0
        for placement, grid in build_grids(pattern, graph, max_cells).items():
            work[placement], change = count_work(pattern, grid, loaded, inserted)
            verdict.compare(f"{grid.cells} cells, {placement}", truth, change)
            spread = sum(len(heavy.hashes) for heavy in grid.heavy)
        speed_up = {
            name: float(single_work.sum() / by_cell.max()) for name, by_cell in work.items()
        }
        skew = {name: float(by_cell.max() / by_cell.mean()) for name, by_cell in work.items()}
        rows.append(
            {
                "query": pattern.name,
                "graph": graph.name,
                "rows": new_edges,
                "cells": len(work["spread"]),
                "values spread": spread,
                "speed-up": speed_up["spread"],
                "not spread": speed_up["hashed"],
                "of ideal": speed_up["spread"] / len(work["spread"]),
                "work max/mean": skew["spread"],
                "max/mean, not spread": skew["hashed"],
                "work in all": float(work["spread"].sum() / single_work.sum()),
                "in all, not spread": float(work["hashed"].sum() / single_work.sum()),
            }
        )
    return rows


def count_work(
    pattern: Pattern, grid: Grid, loaded: Graph, inserted: Graph
) -> tuple[Integers, int]:
    """Count the work of each cell; also return the change of the count, summed over all cells."""
    before, changed = (
        [_sort_by_cell(atom, graph, grid) for atom in range(len(pattern.edges))]
        for graph in (loaded, inserted)
    )

    def step(cell: int) -> tuple[int, int]:
        relations = Relations()
        view = DeltaQuery(pattern.query, relations=relations)
        relations.stage({f"e{n}": rows.rows_of(cell) for n, rows in enumerate(before)}).commit()
        deltas = {f"e{n}": rows.rows_of(cell) for n, rows in enumerate(changed)}
        change = count_of(view.evaluate(relations.stage(deltas)))
        received = sum(rows.size(cell) for rows in changed)
        return view.stats.proposals + view.stats.intersections + received, change

    with ThreadPoolExecutor(cpu_count()) as threads:
        results = list(threads.map(step, range(grid.cells)))
    return np.array([work for work, _ in results]), sum(change for _, change in results)


def _sort_by_cell(atom: int, graph: Graph, grid: Grid) -> RowsByCell:
    rows, cells = find_cells(atom, [pa.array(graph.source), pa.array(graph.target)], grid)
    order = np.argsort(cells.astype(np.int16), kind="stable")
    rows, cells = rows[order], cells[order]
    bounds = np.searchsorted(cells, np.arange(grid.cells + 1))
    return RowsByCell(graph.source[rows], graph.target[rows], bounds)
