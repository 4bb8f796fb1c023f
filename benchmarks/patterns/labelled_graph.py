"""Labelled graphs: undirected edges in random order, and one label per vertex.

The text files have the format that engines of continuous subgraph matching read: a line
``v vertex label`` for each vertex, then a line ``e vertex vertex 0`` for each edge, whose label is
always 0. A file of a stream has the lines of edges only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.graph import Graph
from benchmarks.rmat import Column
from dbsp_wcoj import ZSet

LABELS = 6
_LOADED_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The neighbours of each vertex."""

    offsets: Column
    vertices: Column

    @property
    def degrees(self) -> Column:
        """The number of neighbours of each vertex."""
        return np.diff(self.offsets)

    def of(self, vertex: int) -> Column:
        """Return the neighbours of a vertex."""
        return self.vertices[self.offsets[vertex] : self.offsets[vertex + 1]]


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """A graph with labels.

    Attributes:
        name: Its name in the tables and of its files.
        edges: Each undirected edge once, in random order.
        labels: The label of each vertex.
    """

    name: str
    edges: Graph
    labels: Column

    @property
    def loaded(self) -> Graph:
        """The edges before the stream, in both directions."""
        return both_directions(self.edges.take(slice(0, self.loaded_count)))

    @property
    def loaded_count(self) -> int:
        """The number of edges before the stream."""
        return int(self.edges.edges * _LOADED_SHARE)

    def stream(self, limit: int | None = None) -> Graph:
        """The edges of the stream in both directions, at most ``limit`` edges."""
        edges = self.edges.take(slice(self.loaded_count, None))
        return both_directions(edges.take(slice(0, limit)))

    def vertices_by_label(self, labels: Sequence[int]) -> dict[str, ZSet]:
        """Return the unary relations of these labels."""
        return {
            f"l{label}": ZSet.from_columns([np.flatnonzero(self.labels == label)])
            for label in dict.fromkeys(labels)
        }

    def neighbours(self) -> Neighbours:
        """Return the neighbours of each vertex."""
        both = both_directions(self.edges)
        offsets = np.zeros(len(self.labels) + 1, np.int64)
        np.cumsum(np.bincount(both.source, minlength=len(self.labels)), out=offsets[1:])
        return Neighbours(offsets, both.target[np.argsort(both.source, kind="stable")])

    def core(self, vertices: int) -> LabelledGraph:
        """Return the graph of the vertices with most neighbours and the edges among them."""
        degrees = self.neighbours().degrees
        kept = np.zeros(len(degrees), np.bool_)
        kept[np.argsort(-degrees, kind="stable")[:vertices]] = True
        rows = np.flatnonzero(kept[self.edges.source] & kept[self.edges.target])
        return LabelledGraph(f"{self.name}, core", self.edges.take(rows), self.labels)

    def write(self, folder: Path, name: str) -> None:
        """Write the loaded graph as ``name.graph`` and the stream as ``name.stream``."""
        edges = [
            f"e {a} {b} 0\n"
            for a, b in zip(self.edges.source.tolist(), self.edges.target.tolist(), strict=True)
        ]
        vertices = [f"v {vertex} {label}\n" for vertex, label in enumerate(self.labels.tolist())]
        folder.mkdir(parents=True, exist_ok=True)
        loaded, streamed = edges[: self.loaded_count], edges[self.loaded_count :]
        (folder / f"{name}.graph").write_text("".join(vertices + loaded))
        (folder / f"{name}.stream").write_text("".join(streamed))


def label_graph(graph: Graph, seed: int, labels: int = LABELS) -> LabelledGraph:
    """Drop the directions of the edges of a graph, shuffle them, and draw a label per vertex."""
    ends = np.stack([graph.source, graph.target])
    low, high = np.unique(np.stack([ends.min(axis=0), ends.max(axis=0)]), axis=1)
    edges = Graph(graph.name, low, high).shuffled(seed)
    drawn = np.random.default_rng(seed + 1).integers(0, labels, int(high.max()) + 1)
    return LabelledGraph(graph.name, edges, drawn)


def both_directions(edges: Graph) -> Graph:
    """Return each edge and, after it, its reverse.

    >>> both_directions(Graph("", np.array([1, 3]), np.array([2, 4]))).source.tolist()
    [1, 2, 3, 4]
    """
    ends = np.stack([edges.source, edges.target], axis=1)
    reversed_ends = np.ascontiguousarray(ends[:, ::-1])
    return Graph(edges.name, ends.reshape(-1), reversed_ends.reshape(-1))
