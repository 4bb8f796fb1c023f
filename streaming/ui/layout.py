"""Layout: positions for the nodes of an acyclic graph, in layers.

After Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures",
1981: the layer of a node is the length of the longest path to it; an edge over several layers gets
a bend in each layer between; the order within a layer is improved by barycentres, down and up a few
times, as long as the number of crossings decreases. The layout is deterministic, so the drawing of
a circuit is always the same.

Alternatives considered: a JavaScript library in the page. dagre 3.1 has 49 kB (minified), and all
assets of the page together have 62 kB; it would replace only this module, of about 100 lines, and
compute the layout in every browser instead of once. uPlot 1.6 has 53 kB and would replace the
9 kB of ``chart.js``, but it draws on a canvas. Keyboards and screen readers do not reach a canvas,
but they reach the SVG of ``chart.js``.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Layout", "lay_out_graph"]

MAX_SWEEPS = 12


@dataclass(frozen=True)
class Layout:
    """Positions in layers.

    Attributes:
        places: (layer, place) of each node; places in a layer are 0, 1, 2, …
        bends: For each edge, the places that it passes between its ends.
        widths: The number of positions of each layer, bends included.
    """

    places: Mapping[int, tuple[int, int]]
    bends: Mapping[tuple[int, int], Sequence[tuple[int, int]]]
    widths: Sequence[int]


def lay_out_graph(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out a graph.

    Args:
        nodes: The nodes in topological order.
        edges: Pairs (start, end), without duplicates.

    Complexity:
        O(MAX_SWEEPS · edges log edges), bends counted as nodes.

    >>> layout = lay_out_graph([0, 1, 2], [(0, 1), (1, 2), (0, 2)])
    >>> layout.places, layout.bends[0, 2]
    ({0: (0, 0), 1: (1, 0), 2: (2, 0)}, [(1, 1)])
    """
    layer = dict.fromkeys(nodes, 0)
    below: dict[int, list[int]] = {node: [] for node in nodes}
    for start, end in edges:
        below[start].append(end)
    for node in nodes:
        for end in below[node]:
            layer[end] = max(layer[end], layer[node] + 1)
    layers: list[list[int]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        layers[layer[node]].append(node)
    chains: dict[tuple[int, int], list[int]] = {}
    short: list[tuple[int, int]] = []
    bend = -1
    for start, end in edges:
        chain = [start]
        for between in range(layer[start] + 1, layer[end]):
            layers[between].append(bend)
            chain.append(bend)
            bend -= 1
        chains[start, end] = [*chain, end]
        short += pairwise(chains[start, end])
    layers = _ordered(layers, short)
    at = {node: (i, j) for i, one in enumerate(layers) for j, node in enumerate(one)}
    return Layout(
        {node: at[node] for node in nodes},
        {edge: [at[bend] for bend in chain[1:-1]] for edge, chain in chains.items()},
        [len(one) for one in layers],
    )


def _ordered(layers: list[list[int]], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Reorder the nodes of each layer so that few edges cross."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for start, end in edges:
        below.setdefault(start, []).append(end)
        above.setdefault(end, []).append(start)
    best, fewest = layers, _crossings(layers, below)
    now = [list(one) for one in layers]
    for sweep in range(MAX_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        neighbours = above if down else below
        order = range(1, len(now)) if down else range(len(now) - 2, -1, -1)
        for i in order:
            fixed = now[i - 1] if down else now[i + 1]
            place = {node: j for j, node in enumerate(fixed)}
            now[i] = _by_barycentre(now[i], neighbours, place)
        found = _crossings(now, below)
        if found < fewest:
            best, fewest = [list(one) for one in now], found
    return best


def _by_barycentre(
    layer: list[int], neighbours: Mapping[int, list[int]], place: Mapping[int, int]
) -> list[int]:
    centre: dict[int, float] = {}
    for j, node in enumerate(layer):
        met = [place[n] for n in neighbours.get(node, []) if n in place]
        centre[node] = sum(met) / len(met) if met else j
    return sorted(layer, key=lambda node: centre[node])


def _crossings(layers: Sequence[Sequence[int]], below: Mapping[int, list[int]]) -> int:
    """Count the pairs of edges between neighbouring layers that cross."""
    count = 0
    for one, other in pairwise(layers):
        place = {node: j for j, node in enumerate(other)}
        ends: list[int] = []
        for node in one:
            targets = sorted(place[n] for n in below.get(node, []) if n in place)
            count += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return count
