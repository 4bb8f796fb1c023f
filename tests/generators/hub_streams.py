"""Streams of edges with a hub, over dense and sparse values, that leave several runs in a trace.

The property tests use domains that are too small for the code paths of a join that begin at lists
of 8 values. Here degrees are around 20, and the values are such that a bitmap can represent them,
or cannot.
"""

from __future__ import annotations

import numpy as np

from dbsp_wcoj import DeltaQuery, ZSet
from dbsp_wcoj.kernels.join import join_layout

LOWEST, HIGHEST = -(2**63), 2**63 - 1
NODES = 90
LAYOUTS = {
    "dense": lambda v: v,
    "negative": lambda v: v - 45,
    "lowest": lambda v: LOWEST + v,
    "below the highest": lambda v: HIGHEST - NODES + v,
    "too wide for a bitmap": lambda v: v * (1 << 21),
    "over all of int64": lambda v: (v - NODES // 2) * (1 << 57),
}
WEIGHTS = {
    "one": lambda rng, size: np.ones(size, np.int64),
    "uniform in each step": lambda rng, size: np.full(size, rng.choice([-2, -1, 1, 3])),
    "mixed": lambda rng, size: rng.integers(-2, 4, size),
}


def steps(
    seed: int, layout: str, weights: str, names: set[str], *, size: int = 1_800
) -> list[dict[str, ZSet]]:
    """Generate steps of falling size: the spine keeps two runs, and the last step adds another."""
    rng = np.random.default_rng(seed)
    generated = []
    for rows in (size, 140, 12, 1):
        step = {}
        for name in sorted(names):
            source, target = LAYOUTS[layout](rng.integers(0, NODES, (2, rows)))
            source[: rows // 12] = source[0]  # a hub with enough targets for a bitmap
            step[name] = ZSet.from_columns([source, target], WEIGHTS[weights](rng, rows))
        generated.append(step)
    return generated


def sum_kinds(view: DeltaQuery) -> set[int]:
    """Return the kinds of sums (``join_layout.SUM_KIND``) of all levels of the view's terms."""
    kinds = set()
    for term in view.terms:
        program = term.physical._program
        for level in range(int(program[join_layout.LEVELS])):
            block = int(program[int(program[join_layout.BLOCKS]) + level])
            kinds.add(int(program[block + join_layout.SUM_KIND]))
    return kinds
