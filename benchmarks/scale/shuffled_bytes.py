"""Computes the bytes shuffled for a changed row, by HyperCube and by plans of binary joins.

::

    HyperCube    copies of the row, each with its cell and the atoms that read it there (its
                 roles); no intermediate rows
    broadcast    the row once to each of p workers; intermediate rows to the next join
    partitioned  the row once for each delta term, by the key of its first join; intermediate rows
                 to the next join

A plan of binary joins has a delta term for each atom. Each term next joins the atom that gives the
fewest rows, as counted by the engine; an optimizer has only estimates. The state is assumed to be
where each join needs it. The rows of the result are not counted, in any plan. A row has 8 bytes for
each column and for its weight; a cell number and the roles of a row have 4 bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from benchmarks.engine import count_of
from benchmarks.graph import Graph
from benchmarks.result import Row
from benchmarks.scale.cells import Pattern, build_grids
from dbsp_wcoj import ZSet, generic_join
from streaming.distributed.execution.placement import place_rows

EDGE_BYTES = 24
ADDRESS_BYTES = 8  # a cell number and roles


def measure_shuffled_bytes(
    pattern: Pattern, graph: Graph, cells: tuple[int, ...], *, rows: int, seed: int
) -> list[Row]:
    """Return a row of the table for each number of cells, over a sample of changed rows."""
    sample = graph.shuffled(seed).take(slice(0, rows))
    intermediate = _intermediate_bytes(pattern, graph, sample)
    table: list[Row] = []
    for max_cells in cells:
        grid = build_grids(pattern, graph, max_cells)["spread"]
        columns = [pa.array(sample.source), pa.array(sample.target)]
        copies = len(place_rows("e", columns, grid).rows) / sample.edges
        hypercube = copies * (EDGE_BYTES + ADDRESS_BYTES)
        broadcast = grid.cells * EDGE_BYTES + intermediate
        partitioned = len(pattern.edges) * EDGE_BYTES + intermediate
        table.append(
            {
                "query": pattern.name,
                "graph": graph.name,
                "cells": grid.cells,
                "HyperCube": hypercube,
                "broadcast": broadcast,
                "partitioned": partitioned,
                "of which intermediate": intermediate,
                "broadcast/HyperCube": broadcast / hypercube,
                "partitioned/HyperCube": partitioned / hypercube,
            }
        )
    return table


def _intermediate_bytes(pattern: Pattern, graph: Graph, sample: Graph) -> float:
    """Return the bytes of intermediate rows for a changed row, over all delta terms."""
    relations = {name: _rows(edges) for name, edges in (("e", graph), ("d", sample))}
    total = 0
    for first in pattern.edges:
        joined, remaining = [first], [edge for edge in pattern.edges if edge != first]
        while remaining:
            nodes = set("".join(joined))
            sizes = {
                edge: _count([*joined, edge], relations) for edge in remaining if nodes & set(edge)
            }
            best = min(sizes, key=lambda edge: sizes[edge])
            joined.append(best)
            remaining.remove(best)
            if remaining:
                total += sizes[best] * 8 * (len(set("".join(joined))) + 1)
    return total / sample.edges


def _count(edges: list[str], relations: Mapping[str, ZSet]) -> int:
    """Count the rows of a join of edges whose first edge is a changed row."""
    atoms = [f"{'e' if position else 'd'}({x}, {y})" for position, (x, y) in enumerate(edges)]
    return count_of(generic_join(f"n() :- {', '.join(atoms)}", relations))


def _rows(graph: Graph) -> ZSet:
    return ZSet.from_columns([graph.source, graph.target])
