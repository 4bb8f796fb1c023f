"""Counts triangles and other patterns independently, to check the engine and its peers.

It shares no code and no algorithm with the engine: it uses adjacency arrays and one flag per node.
To count triangles, it marks the successors of a. For each successor b it counts the successors of
b that are marked or, if b has many more successors than a, searches a's successors among b's. Tests
compare it with a product of sparse matrices.

>>> count(np.array([1, 2, 1]), np.array([2, 3, 3]))
1
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.rmat import Column

_LOOKUPS_PER_SEARCH = 16  # the look-ups of flags that cost as much as a binary search


def count(source: Column, target: Column) -> int:
    """Count the rows of ``e(a, b), e(b, c), e(a, c)`` over distinct edges in any order.

    Nodes are small integers from 0 on, because arrays have an entry for each node.
    """
    if not len(source):
        return 0
    return int(_count(*_adjacency(source, target)))


@njit(nogil=True)
def _count_common(candidates, nodes, marked):  # type: ignore[no-untyped-def]
    """Count the candidates that are among ``nodes``.

    Both arrays ascend; ``marked`` has a flag for each node of the graph, true for those in
    ``nodes``.
    """
    total = 0
    if len(candidates) <= _LOOKUPS_PER_SEARCH * len(nodes):
        for node in candidates:
            total += marked[node]
    else:
        for node in nodes:
            position = np.searchsorted(candidates, node)
            total += position < len(candidates) and candidates[position] == node
    return total


@njit(cache=True, nogil=True)
def _count(offsets, successors):  # type: ignore[no-untyped-def]
    node_count = len(offsets) - 1
    marked = np.zeros(node_count, np.bool_)
    total = 0
    for a in range(node_count):
        first, last = offsets[a], offsets[a + 1]
        for i in range(first, last):
            marked[successors[i]] = True
        for i in range(first, last):
            b = successors[i]
            total += _count_common(
                successors[offsets[b] : offsets[b + 1]], successors[first:last], marked
            )
        for i in range(first, last):
            marked[successors[i]] = False
    return total


def count_cliques(source: Column, target: Column) -> int:
    """Count the rows of ``e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)``.

    >>> count_cliques(np.array([1, 1, 1, 2, 2, 3]), np.array([2, 3, 4, 3, 4, 4]))
    1
    """
    return int(_count_cliques(*_adjacency(source, target))) if len(source) else 0


def count_diamonds(source: Column, target: Column) -> int:
    """Count the pairs of paths ``a -> b -> c``, ``a -> d -> c`` with ``b < d`` and ``a != c``.

    >>> count_diamonds(np.array([1, 1, 2, 3]), np.array([2, 3, 4, 4]))
    1
    """
    return int(_count_diamonds(*_adjacency(source, target))) if len(source) else 0


def count_rings(source: Column, target: Column, length: int) -> int:
    """Count the directed cycles over ``length`` different nodes, each once.

    >>> count_rings(np.array([1, 2, 3, 4]), np.array([2, 3, 4, 1]), 4)
    1
    """
    return int(_count_rings(*_adjacency(source, target), length)) if len(source) else 0


def _adjacency(source: Column, target: Column) -> tuple[Column, NDArray[np.int32]]:
    """Return the adjacency arrays (offsets, successors) of a graph.

    The successors of node i are ``successors[offsets[i]:offsets[i + 1]]``, ascending.
    """
    node_count = int(max(source.max(), target.max())) + 1
    order = np.argsort(source * node_count + target)
    offsets = np.zeros(node_count + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=node_count), out=offsets[1:])
    return offsets, target[order].astype(np.int32)


@njit(cache=True, nogil=True)
def _count_cliques(offsets, successors):  # type: ignore[no-untyped-def]
    # `of_a` flags the successors of a, `of_both` those that are also successors of b.
    node_count = len(offsets) - 1
    of_a, of_both = np.zeros(node_count, np.bool_), np.zeros(node_count, np.bool_)
    common = np.empty(node_count, np.int32)
    total = 0
    for a in range(node_count):
        first, last = offsets[a], offsets[a + 1]
        for i in range(first, last):
            of_a[successors[i]] = True
        for i in range(first, last):
            b = successors[i]
            low, high = offsets[b], offsets[b + 1]
            size = 0
            for j in range(low, high):
                if of_a[successors[j]]:
                    common[size] = successors[j]
                    of_both[successors[j]] = True
                    size += 1
            for j in range(size):
                c = common[j]
                total += _count_common(
                    successors[offsets[c] : offsets[c + 1]], common[:size], of_both
                )
            for j in range(size):
                of_both[common[j]] = False
        for i in range(first, last):
            of_a[successors[i]] = False
    return total


@njit(cache=True, nogil=True)
def _count_diamonds(offsets, successors):  # type: ignore[no-untyped-def]
    node_count = len(offsets) - 1
    paths = np.zeros(node_count, np.int64)
    total = 0
    for a in range(node_count):
        for i in range(offsets[a], offsets[a + 1]):
            for j in range(offsets[successors[i]], offsets[successors[i] + 1]):
                c = successors[j]
                if c != a:
                    total += paths[c]  # pairs of this path with each earlier path to c
                    paths[c] += 1
        for i in range(offsets[a], offsets[a + 1]):
            for j in range(offsets[successors[i]], offsets[successors[i] + 1]):
                paths[successors[j]] = 0
    return total


@njit(cache=True, nogil=True)
def _count_rings(offsets, successors, length):  # type: ignore[no-untyped-def]
    # Walk depth-first from each node over larger nodes, so each ring is counted once.
    node_count = len(offsets) - 1
    on_path = np.zeros(node_count, np.bool_)
    path, next_edge = np.zeros(length, np.int64), np.zeros(length, np.int64)
    total = 0
    for start in range(node_count):
        depth = 0
        path[0], next_edge[0] = start, offsets[start]
        while depth >= 0:
            node = path[depth]
            if next_edge[depth] == offsets[node + 1]:
                on_path[node] = False
                depth -= 1
                continue
            following = successors[next_edge[depth]]
            next_edge[depth] += 1
            if depth == length - 1:
                total += following == start
            elif following > start and not on_path[following]:
                depth += 1
                path[depth], next_edge[depth] = following, offsets[following]
                on_path[following] = True
    return total
