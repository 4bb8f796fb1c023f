"""Counts the rows of a pattern by code that shares nothing with any system, to check answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks import counter
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges

# The number of undirected 4-cliques, each counted once, that is published with a graph.
CLIQUES_PUBLISHED = {"NR-ca-HepPh": 150_280_879}

_COUNTERS: dict[str, Callable[[Edges], int]] = {
    "triangles": lambda edges: counter.count(*edges),
    "4-cliques": lambda edges: counter.count_cliques(*edges),
    "diamonds": lambda edges: counter.count_diamonds(*edges),
    **{
        f"{length}-rings": lambda edges, length=length: counter.count_rings(*edges, length)
        for length in (3, 4, 5, 6)
    },
}


def count_rows(pattern: Pattern, edges: Edges, *, undirected: bool = False) -> int:
    """Count the rows of the pattern over the edges; ``undirected`` counts each clique once."""
    if undirected:
        # Oriented from the smaller to the larger node, each undirected clique is one row.
        edges = np.unique(np.sort(edges, axis=0), axis=1)
    _, codes = np.unique(edges, return_inverse=True)
    return _COUNTERS[pattern.name](codes.reshape(2, -1).astype(np.int64))
