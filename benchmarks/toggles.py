"""Measures steps of one edge between two hubs, and between two nodes of low degree.

An edge between hubs makes a join intersect the longest lists of the graph. Target: such a step
takes at most 10 µs more than one between nodes of low degree.
"""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks.cost import Clock
from benchmarks.engine import count_of
from benchmarks.graph import Graph
from benchmarks.result import Row
from benchmarks.rmat import Column
from dbsp_wcoj import DeltaQuery, ZSet

TARGET_MICROSECONDS = 10.0
_WARM_UP_STEPS = 2_000
_STEPS = 500  # of each kind, in each round
_ROUNDS = 9


def toggle_edges(view: DeltaQuery, graph: Graph) -> Row:
    """Toggle an edge between two hubs, and one between two nodes of low degree.

    Each is inserted and deleted many times, and the view is then as before.

    Args:
        view: A count over the relation ``e``, which holds the edges of the graph.
        graph: The edges.

    Returns:
        The median CPU microseconds of a step of either kind, and whether the target is met.
    """
    nodes, degrees = np.unique(np.concatenate([graph.source, graph.target]), return_counts=True)
    by_degree = nodes[np.argsort(degrees, kind="stable")]
    few, hubs = by_degree[:2], by_degree[-2:]
    for ends in (few, hubs):
        _toggle(view, graph, ends, _WARM_UP_STEPS)
    rounds = [[_toggle(view, graph, ends, _STEPS) for ends in (few, hubs)] for _ in range(_ROUNDS)]
    few_time, hub_time = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {
        "low degree us": few_time,
        "hubs us": hub_time,
        "difference us": hub_time - few_time,
        "target us": TARGET_MICROSECONDS,
        "hubs met": hub_time - few_time <= TARGET_MICROSECONDS,
    }


def _toggle(view: DeltaQuery, graph: Graph, ends: Column, steps: int) -> float:
    """Return the CPU microseconds of a step, over an even number of steps."""
    source, target = ends[:1], ends[1:]
    exists = bool(((graph.source == source) & (graph.target == target)).any())
    weights = [np.full(1, sign, np.int64) for sign in ((-1, 1) if exists else (1, -1))]
    change = 0
    clock = Clock()
    for step in range(steps):
        delta = ZSet.from_columns([source, target], weights[step % 2])
        change += count_of(view.step({"e": delta}))
    cpu = clock.read().cpu
    if change:
        raise AssertionError(f"toggling an edge changed the count by {change}")
    return 1e6 * cpu / steps
