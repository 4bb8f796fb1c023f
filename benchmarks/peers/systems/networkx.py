"""networkx: a graph library in Python; undirected triangles and cliques, recounted.

As in igraph, the library's functions count undirected patterns, each once. There is no function for
cliques of one size; the library enumerates cliques by size, so the count stops after size 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import networkx
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources


class _Graph:
    plan = "library"

    def __init__(self, edges: Edges, pattern: Pattern) -> None:
        self._pattern = pattern
        self._graph = networkx.DiGraph(_pairs(edges))

    def count(self) -> int:
        graph = self._graph.to_undirected(as_view=False)
        if self._pattern.name == "triangles":
            return sum(networkx.triangles(graph).values()) // 3
        total = 0
        for clique in networkx.enumerate_all_cliques(graph):
            if len(clique) > 4:
                break
            total += len(clique) == 4
        return total

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        self._graph.remove_edges_from(_pairs(edges[:, weights < 0]))
        self._graph.add_edges_from(_pairs(edges[:, weights > 0]))
        return self.count()


def _pairs(edges: Edges) -> list[tuple[int, int]]:
    return list(zip(*edges.tolist(), strict=True))


@contextmanager
def counter(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Graph]:
    yield _Graph(edges, pattern)


maintainer = counter
