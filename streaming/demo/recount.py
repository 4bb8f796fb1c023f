"""Recount the demo's counts from scratch, by products of sparse matrices.

This module shares no code with the engine. With the 0/1 matrix A of distinct loop-free edges, the
matrix W of summed weights, the symmetric U = [A + Aᵀ > 0], and ∘ the elementwise product::

    directed triangles    sum((A A) ∘ A)               weighted    sum((W W) ∘ W)
    3-cycles              sum((A A) ∘ Aᵀ) / 3          undirected  sum((U U) ∘ U) / 6
    3-cycles of node x    row sums of (A A) ∘ Aᵀ

    triangles e(a,b), e(b,c), e(a,c) of node x: the sum of those with
        x = a    row sums of (A A) ∘ A
        x = b    row sums of (Aᵀ A) ∘ A
        x = c    column sums of (A A) ∘ A
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

__all__ = ["Recount", "recount"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recount:
    """The expected counts; ``undirected`` counts undirected triangles.

    ``corners`` and ``cycle_corners`` are the triangles and the 3-cycles of each node: pairs of
    ascending nodes and their counts, without zeros.
    """

    links: int
    edges: int
    triangles: int
    weighted: int
    cycles: int
    undirected: int
    corners: tuple[Integers, Integers]
    cycle_corners: tuple[Integers, Integers]


def recount(source: Integers, target: Integers, weight: Integers) -> Recount:
    """Compute all counts of the graph of these links; the weights of equal links are added."""
    nodes, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
    shape = (len(nodes), len(nodes))
    sources, targets = ends[: len(source)], ends[len(source) :]
    all_links = sparse.csr_array((weight, (sources, targets)), shape=shape)
    all_links.sum_duplicates()
    all_links.eliminate_zeros()
    edges = int((all_links.data > 0).sum())
    weights = all_links - sparse.diags_array(all_links.diagonal(), dtype=np.int64).tocsr()
    weights.eliminate_zeros()
    adjacency = (weights > 0).astype(np.int64)
    symmetric = ((adjacency + adjacency.T) > 0).astype(np.int64)
    triangles = (adjacency @ adjacency) * adjacency
    cycles = (adjacency @ adjacency) * adjacency.T
    triangles_by_b = (adjacency.T @ adjacency) * adjacency
    corners = triangles.sum(axis=1) + triangles_by_b.sum(axis=1) + triangles.sum(axis=0)
    return Recount(
        links=int(weight.sum()),
        edges=edges,
        triangles=int(triangles.sum()),
        weighted=int(((weights @ weights) * weights).sum()),
        cycles=int(cycles.sum()) // 3,
        undirected=int(((symmetric @ symmetric) * symmetric).sum()) // 6,
        corners=_without_zeros(nodes, corners),
        cycle_corners=_without_zeros(nodes, cycles.sum(axis=1)),
    )


def _without_zeros(nodes: Integers, counts: Integers) -> tuple[Integers, Integers]:
    nonzero = np.flatnonzero(counts)
    return nodes[nonzero], counts[nonzero]
