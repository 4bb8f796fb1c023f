"""Generates RMAT graphs: random graphs with the skew of real graphs.

An edge is sampled in rounds. Each round chooses a quadrant of the adjacency matrix with
probabilities (a, b, c, d), which determines one bit of the source and one bit of the target [1].
Loops and duplicates are dropped, so there are fewer edges than samples: 8,000,000 samples at scale
20 leave about 7.80 million edges, 2,000,000 at scale 18 leave about 1.93 million.

`candidates` measures how hard a graph is for a triangle view: the number of values that the atoms
with the fewest extensions propose in the three delta terms. At scale 20 it is 401 per edge.

Memory: at most four bytes for each end of each sample, plus one packed int64 key per sample.

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

_CHUNK = 1 << 20  # samples drawn at once: the random numbers then stay in the cache


def rmat(
    scale: int,
    samples: int,
    *,
    seed: int = 0,
    quadrants: tuple[float, float, float, float] = SKEWED,
) -> tuple[Column, Column]:
    """Generate distinct loop-free edges among ``2**scale`` nodes, sorted, from ``samples`` samples.

    Deterministic for a seed. Raises ValueError if a packed pair of nodes would not fit 62 bits.
    """
    if not 1 <= scale <= 31:
        raise ValueError(f"scale {scale} is outside 1..31: a pair of nodes must fit one int64")
    generator = np.random.default_rng(seed)
    keys = np.empty(samples, np.int64)
    for start in range(0, samples, _CHUNK):
        part = keys[start : start + _CHUNK]
        part[:] = sample_edges(generator, scale, len(part), quadrants)
    keys.sort()
    source, target = keys >> scale, keys & ((1 << scale) - 1)
    keep = source != target
    keep[1:] &= keys[1:] != keys[:-1]
    return source[keep], target[keep]


def candidates(source: Column, target: Column) -> float:
    """Return how many values the three delta terms propose for an edge, on average.

    For a changed edge at ``e(a, b)`` these are the successors of a or of b, whichever are fewer; at
    ``e(b, c)`` the predecessors of b or of c; at ``e(a, c)`` a's successors or c's predecessors.
    """
    nodes = int(max(source.max(), target.max())) + 1
    out_degree, in_degree = (
        np.bincount(source, minlength=nodes),
        np.bincount(target, minlength=nodes),
    )
    terms = ((out_degree, out_degree), (in_degree, in_degree), (out_degree, in_degree))
    return float(sum(np.minimum(left[source], right[target]).mean() for left, right in terms))


def sample_edges(
    generator: np.random.Generator,
    scale: int,
    count: int,
    quadrants: tuple[float, float, float, float],
) -> Column:
    """Sample ``count`` edges as keys: the source in the high bits, the target in the low ones."""
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
