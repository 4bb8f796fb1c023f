"""RMAT: random graphs with the skew of real ones, one bit of both ends per round.

Each round chooses a quadrant of the adjacency matrix with probabilities (a, b, c, d) and so
fixes one bit of the source and one of the target [1]. Loops are dropped, duplicates removed,
nodes not renamed. ``edges`` counts samples before that: 8,000,000 samples at scale 20 leave
about 7.80 million edges, 2,000,000 at scale 18 leave about 1.93 million.

`candidates` says how hard a graph is for a triangle view: the values that the smallest proposers
of the three delta terms hold. At scale 20 it is 401 per edge (134 for each term).

Memory: the largest moment is four bytes for each end and sample plus one packed int64 key.

References:
    [1] Chakrabarti, Zhan, Faloutsos. R-MAT: a recursive model for graph mining. SDM 2004.

>>> source, target = rmat(10, 5_000, seed=0)
>>> bool((source != target).all()), len(set(zip(source.tolist(), target.tolist()))) == len(source)
(True, True)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

SKEWED = (0.57, 0.19, 0.19, 0.05)
UNIFORM = (0.25, 0.25, 0.25, 0.25)

_ROUND = 1 << 20  # samples drawn at once: the random numbers then stay in the cache


def rmat(
    scale: int,
    edges: int,
    *,
    seed: int = 0,
    quadrants: tuple[float, float, float, float] = SKEWED,
) -> tuple[Column, Column]:
    """Distinct loop-free edges among ``2**scale`` nodes, sorted, from ``edges`` samples.

    Deterministic for a seed. Raises ValueError where a packed pair of nodes would not fit 62 bits.
    """
    if not 1 <= scale <= 31:
        raise ValueError(f"scale {scale} is outside 1..31: a pair of nodes must fit one int64")
    generator = np.random.default_rng(seed)
    keys = np.empty(edges, np.int64)
    for start in range(0, edges, _ROUND):
        part = keys[start : start + _ROUND]
        part[:] = _sample(generator, scale, len(part), quadrants)
    keys.sort()
    source, target = keys >> scale, keys & ((1 << scale) - 1)
    keep = source != target
    keep[1:] &= keys[1:] != keys[:-1]
    return source[keep], target[keep]


def candidates(source: Column, target: Column) -> float:
    """Values held by the smallest proposers of the three delta terms, mean per edge.

    With the delta at ``e(a, b)`` it is the smaller of b's and a's successors, at ``e(b, c)`` of
    b's and c's predecessors, at ``e(a, c)`` of a's successors and c's predecessors.
    """
    nodes = int(max(source.max(), target.max())) + 1
    out, into = np.bincount(source, minlength=nodes), np.bincount(target, minlength=nodes)
    terms = ((out, out), (into, into), (out, into))
    return float(sum(np.minimum(left[source], right[target]).mean() for left, right in terms))


def _sample(
    generator: np.random.Generator,
    scale: int,
    count: int,
    quadrants: tuple[float, float, float, float],
) -> Column:
    a, b, c, _ = quadrants
    source, target = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for _ in range(scale):
        draw = generator.random(count, dtype=np.float32)
        low = draw >= a + b
        right = ((draw >= a) & ~low) | (draw >= a + b + c)
        source <<= 1
        target <<= 1
        source |= low
        target |= right
    return (source.astype(np.int64) << scale) | target
