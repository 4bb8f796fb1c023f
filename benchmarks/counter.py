"""An independent count of ``e(a, b), e(b, c), e(a, c)``: what the engine is checked against.

Plain adjacency arrays and one mark per node; it shares no code and no idea with the engine: no
tries, no galloping, no delta. Successors of a are marked, then for each successor b either b's
successors are looked up among the marks or, when there are many more of them, a's are searched
in b's. Tests compare it with a product of sparse matrices.

>>> count(np.array([1, 2, 1]), np.array([2, 3, 3]))
1
"""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.rmat import Column

_MUCH_LONGER = 16  # a binary search costs about as much as so many look-ups among the marks


def count(source: Column, target: Column) -> int:
    """Rows of the query over distinct edges with node numbers from 0; any order of the edges."""
    if not len(source):
        return 0
    nodes = int(max(source.max(), target.max())) + 1
    order = np.argsort(source * nodes + target)
    offsets = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=nodes), out=offsets[1:])
    return int(_count(offsets, target[order].astype(np.int32)))


@njit(cache=True, nogil=True)
def _count(offsets, heads):  # type: ignore[no-untyped-def]
    nodes = len(offsets) - 1
    marked = np.zeros(nodes, np.bool_)
    total = 0
    for a in range(nodes):
        first, last = offsets[a], offsets[a + 1]
        for i in range(first, last):
            marked[heads[i]] = True
        for i in range(first, last):
            b = heads[i]
            low, high = offsets[b], offsets[b + 1]
            if high - low <= _MUCH_LONGER * (last - first):
                for j in range(low, high):
                    total += marked[heads[j]]
            else:
                successors = heads[low:high]
                for j in range(first, last):
                    c = heads[j]
                    k = np.searchsorted(successors, c)
                    total += k < len(successors) and successors[k] == c
        for i in range(first, last):
            marked[heads[i]] = False
    return total
