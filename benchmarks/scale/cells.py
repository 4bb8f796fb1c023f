"""Measures the load of the cells of a grid, and the copies of a row, and compares with theory.

The load of a cell is the number of rows that it keeps, for all atoms together. Copies are counted
as sent: an edge is sent once to a cell, even if several atoms need it there. The theory is
`Shares.copies`; for rows with heavy values, it depends on which values are heavy. Copies are
measured on a random sample, the load on all edges.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.graph import Graph, generate_graph
from benchmarks.result import Row
from streaming.distributed.execution.placement import Integers, find_cells, hash_values, place_rows
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import JoinAtom, choose_shares
from streaming.distributed.planning.skew import count_values, skew_grid

TARGET = 1.3  # largest load divided by the mean, on real graphs with TARGET_CELLS cells
TARGET_CELLS = 8
HUB_TARGET = 2.0  # largest load divided by the mean, on graphs with a hub whose rows are spread
COPIES_TARGET_PERCENT = 5.0  # largest difference from theory
SAMPLE = 50_000  # edges whose copies are counted
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Pattern:
    """A pattern of edges; each atom is named by the two nodes of its edge."""

    name: str
    edges: tuple[str, ...]

    @property
    def atoms(self) -> list[JoinAtom]:
        """The atoms of the join, all over the relation ``e``."""
        return [JoinAtom("e", {x: 0, y: 1}) for x, y in self.edges]

    @property
    def query(self) -> str:
        """The query that counts the pattern, with a relation of its own for each atom."""
        atoms = (f"e{number}({x}, {y})" for number, (x, y) in enumerate(self.edges))
        return f"n() :- {', '.join(atoms)}"


TRIANGLES = Pattern("triangles", ("ab", "bc", "ac"))
CLIQUES = Pattern("4-cliques", ("ab", "bc", "ac", "ad", "bd", "cd"))


def generate_hub_graph(scale: int, samples: int, seed: int) -> Graph:
    """Generate an RMAT graph, and add as many edges again that all leave one node."""
    graph = generate_graph(scale, samples, seed)
    nodes = np.setdiff1d(np.arange(1 << scale), graph.target[graph.source == 0])
    chosen = nodes[nodes > 0][: graph.edges]
    if len(chosen) < graph.edges:
        raise ValueError(f"{graph.edges} edges of a hub need more than {1 << scale} nodes")
    source = np.concatenate([graph.source, np.zeros(len(chosen), np.int64)])
    return Graph(f"hub-{scale}-{samples}", source, np.concatenate([graph.target, chosen]))


def build_grids(pattern: Pattern, graph: Graph, cells: int) -> dict[str, Grid]:
    """Build two grids: all values hashed, and heavy values spread over several cells."""
    shares = choose_shares(pattern.atoms, cells)
    counts_by_column = [count_values([pa.array(ends)]) for ends in (graph.source, graph.target)]
    counts = {
        (number, name): counts_by_column[column]
        for number, atom in enumerate(pattern.atoms)
        for name, column in atom.columns.items()
    }
    return {"hashed": Grid(shares), "spread": skew_grid(shares, counts)}


def measure_cells(pattern: Pattern, graph: Graph, cells: int, *, kind: str, seed: int) -> list[Row]:
    """Return a row of the table for each of the two grids.

    Args:
        pattern: The join.
        graph: Its edges.
        cells: Maximum number of cells.
        kind: Kind of graph; "real" and "hub" have targets.
        seed: Seed of the sample.
    """
    rows: list[Row] = []
    sample = graph.shuffled(seed).take(slice(0, SAMPLE))
    for grid_kind, grid in build_grids(pattern, graph, cells).items():
        load = count_cell_rows(pattern, graph, grid)
        copies = len(place_rows("e", _columns(sample), grid).rows) / sample.edges
        theory = expected_copies(grid, sample)
        difference_percent = 100 * abs(copies / theory - 1)
        balance = float(load.max() / load.mean())
        target = TARGET if kind == "real" and cells == TARGET_CELLS else None
        if kind == "hub" and grid_kind == "spread":
            target = HUB_TARGET
        rows.append(
            {
                "query": pattern.name,
                "graph": graph.name,
                "cells": grid.cells,
                "shares": " × ".join(str(part) for part in grid.shares.by_variable.values()),
                "heavy values": grid_kind,
                "values spread": sum(len(heavy.hashes) for heavy in grid.heavy),
                "rows/cell": float(load.mean()),
                "max/mean": balance,
                "target": target,
                "met": None if target is None else balance <= target,
                "copies": copies,
                "theory": theory,
                "difference %": difference_percent,
                "copies met": difference_percent <= COPIES_TARGET_PERCENT,
            }
        )
    return rows


def count_cell_rows(pattern: Pattern, graph: Graph, grid: Grid) -> Integers:
    """Count the rows that each cell keeps."""
    load = np.zeros(grid.cells, np.int64)
    for start in range(0, graph.edges, _CHUNK):
        columns = _columns(graph.take(slice(start, start + _CHUNK)))
        for atom in range(len(pattern.edges)):
            load += np.bincount(find_cells(atom, columns, grid)[1], minlength=grid.cells)
    return load


def expected_copies(grid: Grid, graph: Graph) -> float:
    """Return the mean number of copies of an edge by theory.

    The theory depends on which values of the edge are heavy, and in which group of heavy values
    each one is. So the edges are counted by the group numbers of their values, from 1 on; 0 is a
    value that is not heavy.
    """
    shares, columns = grid.shares, _columns(graph)
    group_of_edge: dict[tuple[str, tuple[int, ...]], Integers] = {}
    for heavy in grid.heavy:
        for atom in shares.atoms:
            if heavy.variable in atom.columns:
                key = heavy.variable, shares.columns(atom, heavy.variable)
                values = [columns[column] for column in key[1]]
                hashes = hash_values(values, grid.variable_numbers[heavy.variable])
                is_heavy = np.isin(hashes, np.array(heavy.hashes))
                number = 1 + grid.groups(heavy.variable).index(heavy)
                group_of_edge.setdefault(key, np.zeros(graph.edges, np.int64))[is_heavy] = number
    combinations = Counter(
        zip(*(numbers.tolist() for numbers in group_of_edge.values()), strict=True)
    )
    if not combinations:
        return shares.copies("e")
    total = 0.0
    for numbers, edges in combinations.items():
        spread = {
            key: grid.groups(key[0])[number - 1].splits
            for key, number in zip(group_of_edge, numbers, strict=True)
            if number
        }
        total += edges * shares.copies("e", spread)
    return total / graph.edges


def _columns(graph: Graph) -> list[pa.Array]:
    return [pa.array(graph.source), pa.array(graph.target)]
