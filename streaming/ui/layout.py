"""Layout: positions for the nodes of an acyclic graph, in layers.

After Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures",
1981: the layer of a node is the length of the longest path to it; an edge over several layers gets
a bend in each layer between; the order within a layer is improved by barycentres, in up to 12
sweeps, alternately down and up, and the order with the fewest crossings is kept. The layout is
deterministic, so the drawing of a circuit is always the same.

Alternatives considered: a JavaScript library in the page. dagre 3.1 has 49 kB (minified), and all
assets of the page together have 62 kB; it would replace only this module and compute the layout in
every browser instead of once. For the charts of the page, which our own ``chart.js`` (9 kB) draws
as SVG, uPlot 1.6 has 53 kB and draws on a canvas, which keyboards and screen readers do not reach.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Layout", "lay_out_graph"]

MAX_SWEEPS = 12

#: The number of a layer, and an index in the layer.
Position: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Positions in layers.

    Attributes:
        positions: The layer of each node, and its index in the layer.
        bends: For each edge, the positions that it passes between its ends.
        widths: The number of positions of each layer, bends included.
    """

    positions: Mapping[int, Position]
    bends: Mapping[tuple[int, int], Sequence[Position]]
    widths: Sequence[int]


def lay_out_graph(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out a graph.

    Args:
        nodes: The nodes in topological order.
        edges: Pairs (start, end), without duplicates.

    Complexity:
        O(MAX_SWEEPS · e log e) for e edges; an edge over k layers counts as k edges.

    >>> layout = lay_out_graph([0, 1, 2], [(0, 1), (1, 2), (0, 2)])
    >>> layout.positions, layout.bends[0, 2]
    ({0: (0, 0), 1: (1, 0), 2: (2, 0)}, [(1, 1)])
    """
    layer = dict.fromkeys(nodes, 0)
    successors: dict[int, list[int]] = {node: [] for node in nodes}
    for start, end in edges:
        successors[start].append(end)
    for node in nodes:
        for end in successors[node]:
            layer[end] = max(layer[end], layer[node] + 1)
    # The nodes of each layer; a negative number is a bend of an edge.
    layers: list[list[int]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        layers[layer[node]].append(node)
    chains: dict[tuple[int, int], list[int]] = {}
    short_edges: list[tuple[int, int]] = []  # the parts of edges between neighbouring layers
    bend = -1
    for start, end in edges:
        chain = [start]
        for between in range(layer[start] + 1, layer[end]):
            layers[between].append(bend)
            chain.append(bend)
            bend -= 1
        chains[start, end] = [*chain, end]
        short_edges += pairwise(chains[start, end])
    layers = _order_layers(layers, short_edges)
    position_of = {
        node: (i, j) for i, layer_nodes in enumerate(layers) for j, node in enumerate(layer_nodes)
    }
    return Layout(
        {node: position_of[node] for node in nodes},
        {edge: [position_of[bend] for bend in chain[1:-1]] for edge, chain in chains.items()},
        [len(layer_nodes) for layer_nodes in layers],
    )


def _order_layers(layers: list[list[int]], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Reorder the nodes of each layer so that few edges cross."""
    predecessors: dict[int, list[int]] = {}
    successors: dict[int, list[int]] = {}
    for start, end in edges:
        successors.setdefault(start, []).append(end)
        predecessors.setdefault(end, []).append(start)
    best_layers, fewest_crossings = layers, _crossings(layers, successors)
    current = [list(layer) for layer in layers]
    for sweep in range(MAX_SWEEPS):
        if not fewest_crossings:
            break
        is_down = sweep % 2 == 0
        neighbours = predecessors if is_down else successors
        order = range(1, len(current)) if is_down else range(len(current) - 2, -1, -1)
        for i in order:
            fixed = current[i - 1] if is_down else current[i + 1]
            index_of = {node: j for j, node in enumerate(fixed)}
            current[i] = _by_barycentre(current[i], neighbours, index_of)
        crossings = _crossings(current, successors)
        if crossings < fewest_crossings:
            best_layers, fewest_crossings = [list(layer) for layer in current], crossings
    return best_layers


def _by_barycentre(
    layer: list[int], neighbours: Mapping[int, list[int]], index_of: Mapping[int, int]
) -> list[int]:
    """Sort the nodes of a layer by their barycentre: the mean index of their neighbours."""
    barycentre: dict[int, float] = {}
    for j, node in enumerate(layer):
        indices = [index_of[n] for n in neighbours.get(node, []) if n in index_of]
        barycentre[node] = sum(indices) / len(indices) if indices else j
    return sorted(layer, key=lambda node: barycentre[node])


def _crossings(layers: Sequence[Sequence[int]], successors: Mapping[int, list[int]]) -> int:
    """Count the pairs of edges between neighbouring layers that cross."""
    count = 0
    for layer, next_layer in pairwise(layers):
        index_of = {node: j for j, node in enumerate(next_layer)}
        ends: list[int] = []
        for node in layer:
            targets = sorted(index_of[n] for n in successors.get(node, []) if n in index_of)
            # The edges of earlier nodes that end to the right of a target cross the edge to it.
            count += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return count
