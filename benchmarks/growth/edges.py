"""Generates up to hundreds of millions of edges: distinct, loop-free, as sorted packed keys.

A key is ``source << 32 | target``, so distinct rows need one sort of one column in place: 10⁸ keys
take 0.8 GB and some ten seconds. The ends of edges are nodes whose ranks follow Zipf's law;
they are drawn by inverting its continuous form. Ranks are scattered over the node numbers, because
hubs with successive numbers would share cache lines.

>>> keys = generate_keys(1_000, exponent=0.0, seed=1)
>>> len(keys), bool((keys[1:] > keys[:-1]).all())
(1000, True)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]

DEGREE: Final = 8  # edges per node
BITS: Final = 32  # of a node in a key

_CHUNK: Final = 1 << 20  # samples drawn at once
# A prime beyond every number of nodes, so that multiplying by it permutes them.
_SCATTER: Final = 2_147_483_647


def generate_keys(rows: int, *, exponent: float, seed: int) -> Keys:
    """Generate ``rows`` distinct edges of a graph of `DEGREE` edges per node, sorted.

    Samples are drawn until there are enough; surplus edges are dropped at random.
    """
    nodes = max(rows // DEGREE, 2)
    generator = np.random.default_rng(seed)
    keys = np.empty(0, np.int64)
    while len(keys) < rows:
        missing = rows - len(keys)
        # After the first round, most samples hit edges of hubs that exist, so draw twice as many.
        spare = missing if len(keys) else missing // 50
        samples = np.empty(len(keys) + missing + spare + 64, np.int64)
        samples[: len(keys)] = keys
        for start in range(len(keys), len(samples), _CHUNK):
            part = samples[start : start + _CHUNK]
            part[:] = _ends(generator, len(part), nodes, exponent) << BITS
            part |= _ends(generator, len(part), nodes, exponent)
        keys = sort_distinct(samples)
    surplus = generator.choice(len(keys), len(keys) - rows, replace=False, shuffle=False)
    return np.delete(keys, surplus) if len(surplus) else keys


def sort_distinct(keys: Keys) -> Keys:
    """Sort the keys in place; return them without loops and duplicates."""
    keys.sort()
    keep = (keys >> BITS) != (keys & ((1 << BITS) - 1))
    keep[1:] &= keys[1:] != keys[:-1]
    return keys[keep]


def split_keys(keys: Keys, streamed: int, seed: int) -> tuple[Keys, Keys]:
    """Split off ``streamed`` random keys; return the other keys, sorted, and these, shuffled."""
    chosen = np.random.default_rng(seed).choice(len(keys), streamed, replace=False)
    return np.delete(keys, chosen), keys[chosen]


def columns(keys: Keys) -> list[Keys]:
    """Return the sources and the targets of the keys."""
    return [keys >> BITS, keys & ((1 << BITS) - 1)]


def _ends(generator: np.random.Generator, count: int, nodes: int, exponent: float) -> Keys:
    """Draw ``count`` nodes."""
    draw = generator.random(count)
    if exponent == 0.0:
        rank = (draw * nodes).astype(np.int64)
    elif exponent == 1.0:
        rank = (np.power(float(nodes), draw) - 1.0).astype(np.int64)
    else:
        power = 1.0 - exponent
        rank = (np.power(1.0 + draw * (nodes**power - 1.0), 1.0 / power) - 1.0).astype(np.int64)
    scattered: Keys = np.minimum(rank, nodes - 1) * _SCATTER % nodes
    return scattered
