"""Computes the transitive closure of a graph, to check the engine's recursive view.

All nodes of a strongly connected component reach the same nodes. So the closure is computed for
components. The nodes that a component reaches are a bit set: the union of the bit sets of the
components to which its edges lead, and of the nodes of these components.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

NODES = 1 << 32  # a pair (x, z) is the number x * NODES + z


def closure(edges: pa.Table) -> NDArray[np.int64]:
    """Return all pairs of nodes with a path from the first to the second, as sorted numbers.

    >>> ring = pa.table({"src": [1, 2], "dst": [2, 1]})
    >>> [divmod(int(pair), NODES) for pair in closure(ring)]
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    source, target = (column.to_numpy() for column in edges.columns)
    nodes, node_numbers = np.unique(np.concatenate((source, target)), return_inverse=True)
    source, target = node_numbers.reshape(2, -1)
    size = len(nodes)
    graph = csr_array((np.ones(len(source)), (source, target)), shape=(size, size))
    components, component_of = connected_components(graph, connection="strong")
    # Bit sets of nodes, one row for each component: bit i % 8 of byte i // 8 is node i.
    reached = np.zeros((components, -(-size // 8)), np.uint8)
    from_component, to_component = component_of[source], component_of[target]
    # `members` has the nodes of each component; it reaches them itself if it has an inner edge.
    members = np.zeros_like(reached)
    bit = (1 << (np.arange(size) % 8)).astype(np.uint8)
    np.bitwise_or.at(members, (component_of, np.arange(size) // 8), bit)
    cyclic = np.zeros(components, bool)
    cyclic[from_component[from_component == to_component]] = True
    reached[cyclic] = members[cyclic]
    outer_edges = np.flatnonzero(from_component != to_component)
    outer_edges = outer_edges[np.argsort(from_component[outer_edges], kind="stable")]
    starts, ends = from_component[outer_edges].tolist(), to_component[outer_edges].tolist()
    previous = None
    # SciPy labels the components in topological order, so the second pass changes nothing.
    while previous is None or (previous != reached).any():
        previous = reached.copy()
        for start, end in zip(starts, ends, strict=True):
            reached[start] |= reached[end] | members[end]
    bits = np.unpackbits(reached[component_of], axis=1, count=size, bitorder="little")
    x, z = np.nonzero(bits)
    return np.sort(nodes[x] * NODES + nodes[z])
