"""The closure of a graph by strongly connected components and sets of bits: a truth that is fast.

All nodes of a component reach the same. Components are taken in an order in which those that are
reached come first, so each is one union of sets of bits per edge.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

NODES = 1 << 32  # a pair (x, z) is the number x * NODES + z


def closure(edges: pa.Table) -> NDArray[np.int64]:
    """All pairs with a way from one to the other, as sorted numbers.

    >>> ring = pa.table({"src": [1, 2], "dst": [2, 1]})
    >>> [divmod(int(pair), NODES) for pair in closure(ring)]
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    source, target = (column.to_numpy() for column in edges.columns)
    nodes, places = np.unique(np.concatenate((source, target)), return_inverse=True)
    source, target = places.reshape(2, -1)
    size = len(nodes)
    graph = csr_array((np.ones(len(source)), (source, target)), shape=(size, size))
    components, of = connected_components(graph, connection="strong")
    reached = np.zeros((components, -(-size // 8)), np.uint8)
    ends, starts = of[target], of[source]
    # What a component has of itself: its nodes, which it reaches if there is an edge within.
    own = np.zeros_like(reached)
    np.bitwise_or.at(own, (of, np.arange(size) // 8), (1 << (np.arange(size) % 8)).astype(np.uint8))
    cyclic = np.zeros(components, bool)
    cyclic[starts[starts == ends]] = True
    reached[cyclic] = own[cyclic]
    apart = np.flatnonzero(starts != ends)
    order = apart[np.argsort(starts[apart], kind="stable")]
    before = None
    # Once, if the labels are in topological order, as those of SciPy are; else until all is known.
    while before is None or (before != reached).any():
        before = reached.copy()
        for start, end in zip(starts[order].tolist(), ends[order].tolist(), strict=True):
            reached[start] |= reached[end] | own[end]
    bits = np.unpackbits(reached[of], axis=1, count=size, bitorder="little")
    x, z = np.nonzero(bits)
    return np.sort(nodes[x] * NODES + nodes[z])
