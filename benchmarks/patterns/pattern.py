"""Patterns: small undirected graphs whose vertices may have labels, as queries of each system.

The answer to a pattern is its number of homomorphisms: the assignments of vertices of the graph to
the vertices of the pattern that keep edges and labels. Two vertices of the pattern may be assigned
the same vertex. The relation ``e`` has each undirected edge in both directions, and ``l2`` has the
vertices with label 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.patterns.labelled_graph import LabelledGraph

Shape = Literal["dense", "sparse", "tree"]
SHAPES: tuple[Shape, ...] = ("dense", "sparse", "tree")

_MIN_DENSE_EDGES = 1.5  # edges per vertex of a dense pattern: an average degree of 3
_ATTEMPTS = 1_000


@dataclass(frozen=True)
class Pattern:
    """An undirected pattern.

    Attributes:
        name: Its name in the tables and of its file.
        edges: Its edges, as pairs of vertices, which are numbered from 0.
        labels: The label of each vertex; empty if labels do not matter.

    >>> wedge = Pattern("wedge", ((0, 1), (1, 2)), (0, 1, 0))
    >>> wedge.query
    'n() :- e(v0, v1), e(v1, v2), l0(v0), l1(v1), l0(v2)'
    >>> wedge.sql
    'SELECT count(*) FROM e0, e1 WHERE e1.src = e0.dst'
    >>> print(wedge.text)
    v 0 0
    v 1 1
    v 2 0
    e 0 1 0
    e 1 2 0
    <BLANKLINE>
    """

    name: str
    edges: tuple[tuple[int, int], ...]
    labels: tuple[int, ...] = ()

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return 1 + max(max(edge) for edge in self.edges)

    @property
    def query(self) -> str:
        """The query of this engine."""
        atoms = [f"e(v{a}, v{b})" for a, b in self.edges]
        atoms += [f"l{label}(v{vertex})" for vertex, label in enumerate(self.labels)]
        return f"n() :- {', '.join(atoms)}"

    @property
    def sql(self) -> str:
        """The query in SQL over the tables ``e0``, ``e1``, ...

        Each has the edges that one edge of the pattern can be assigned.
        """
        tables: list[str] = []
        cells: dict[int, str] = {}
        equalities: list[str] = []
        for position, edge in enumerate(self.edges):
            tables.append(f"e{position}")
            for vertex, column in zip(edge, ("src", "dst"), strict=True):
                cell = f"e{position}.{column}"
                if vertex in cells:
                    equalities.append(f"{cell} = {cells[vertex]}")
                cells.setdefault(vertex, cell)
        return f"SELECT count(*) FROM {', '.join(tables)} WHERE {' AND '.join(equalities)}"

    @property
    def text(self) -> str:
        """The pattern in the text format of `LabelledGraph.write`."""
        labels = self.labels or (0,) * self.vertices
        lines = [f"v {vertex} {label}" for vertex, label in enumerate(labels)]
        lines += [f"e {a} {b} 0" for a, b in self.edges]
        return "\n".join(lines) + "\n"


_TRIANGLE = ((0, 1), (1, 2), (0, 2))
_CLIQUE = (*_TRIANGLE, (0, 3), (1, 3), (2, 3))

#: Vertex i has label i, so no two vertices of a labelled pattern can be assigned the same vertex.
NAMED = (
    Pattern("triangle", _TRIANGLE, (0, 1, 2)),
    Pattern("4-clique", _CLIQUE, (0, 1, 2, 3)),
    Pattern("diamond", ((0, 1), (1, 2), (0, 2), (1, 3), (2, 3)), (0, 1, 2, 3)),
    Pattern("square", ((0, 1), (1, 2), (2, 3), (0, 3)), (0, 1, 2, 3)),
    Pattern("path of 4", ((0, 1), (1, 2), (2, 3)), (0, 1, 2, 3)),
    Pattern("house", ((0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)), (0, 1, 2, 3, 4)),
    Pattern("tree of 5", ((0, 1), (0, 2), (1, 3), (1, 4)), (0, 1, 2, 3, 4)),
    Pattern("triangle, no labels", _TRIANGLE),
    Pattern("4-clique, no labels", _CLIQUE),
)


def generate_pattern(graph: LabelledGraph, vertices: int, shape: Shape, seed: int) -> Pattern:
    """Generate a pattern that has an answer in a graph.

    A random walk collects the vertices. A tree has the edges by which the walk reached them. A
    dense pattern has all edges of the graph among them, at least 1.5 per vertex. A sparse one has
    the edges of the tree and one more.

    Raises:
        ValueError: No walk found enough edges.
    """
    generator = np.random.default_rng([seed, vertices, SHAPES.index(shape)])
    neighbours = graph.neighbours()
    starts = np.flatnonzero(neighbours.degrees)
    for _ in range(_ATTEMPTS):
        current = int(generator.choice(starts))
        walk, tree = [current], []
        for _ in range(10 * vertices):
            following = int(generator.choice(neighbours.of(current)))
            if following not in walk:
                tree.append((walk.index(current), len(walk)))
                walk.append(following)
            if len(walk) == vertices:
                break
            current = following
        if len(walk) < vertices:
            continue
        edges = [
            (i, j)
            for j, node in enumerate(walk)
            for i in range(j)
            if walk[i] in neighbours.of(node)
        ]
        if shape == "dense" and len(edges) < _MIN_DENSE_EDGES * vertices:
            continue
        others = [edge for edge in edges if edge not in tree]
        if shape == "sparse" and not others:
            continue
        if shape != "dense":
            edges = tree
        if shape == "sparse":
            edges = [*tree, others[generator.integers(len(others))]]
        labels = tuple(int(graph.labels[node]) for node in walk)
        return Pattern(f"{shape} {vertices}", tuple(edges), labels)
    raise ValueError(
        f"{_ATTEMPTS} random walks found no {shape} pattern of {vertices} vertices; "
        "use a graph with more edges"
    )
