"""igraph: a graph library in C; undirected triangles and cliques, listed or recounted.

igraph counts no directed triangles (its triad census visits every two-path). So here it counts the
undirected ones, each once; these are fewer than the rows of a directed join, and the tables say so.
igraph lists the cliques before it can count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import igraph
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources


class _Counter:
    plan = "library"

    def __init__(self, graph: igraph.Graph, pattern: Pattern) -> None:
        self._graph, self._pattern = graph, pattern

    def count(self) -> int:
        if self._pattern.name == "triangles":
            return len(self._graph.list_triangles())
        return len(self._graph.cliques(min=4, max=4))


class _Maintainer:
    """Keeps the directed edges; for a count, two directions become one edge."""

    def __init__(self, edges: Edges, pattern: Pattern) -> None:
        self._graph = igraph.Graph(n=int(edges.max()) + 1, edges=_pairs(edges), directed=True)
        self._pattern = pattern

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        deleted, inserted = edges[:, weights < 0], edges[:, weights > 0]
        if deleted.size:
            self._graph.delete_edges(_pairs(deleted))
        if inserted.size:
            missing = int(inserted.max()) + 1 - self._graph.vcount()
            self._graph.add_vertices(max(missing, 0))
            self._graph.add_edges(_pairs(inserted))
        undirected = self._graph.as_undirected(mode="collapse")
        return _Counter(undirected, self._pattern).count()


def _pairs(edges: Edges) -> list[tuple[int, int]]:
    return list(zip(*edges.tolist(), strict=True))


@contextmanager
def counter(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Counter]:
    nodes, ends = np.unique(edges, return_inverse=True)
    pairs = np.unique(np.sort(ends.reshape(2, -1), axis=0), axis=1)
    yield _Counter(igraph.Graph(n=len(nodes), edges=pairs.T), pattern)


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    yield _Maintainer(edges, pattern)
