"""Edges per second of C++ engines of continuous subgraph matching on the named patterns.

They were measured in another run, on a busy machine with the same two cores, one thread, wall time:
the undirected edges of soc-Epinions1 (405,740), one of 6 random labels per vertex, the last 10 % of
the edges inserted one at a time, homomorphisms counted. The labels and the order of the edges were
drawn by another seed. All counts were equal to those of this engine.
"""

from __future__ import annotations

from typing import NamedTuple

GRAPH = "soc-Epinions1"
ORIGIN = "measured in another run on a busy machine, one edge at a time"


class Best(NamedTuple):
    """The fastest of Graphflow, TurboFlux and SymBi on a pattern."""

    engine: str
    rate: float


BEST = {
    "triangle": Best("SymBi", 720_000),
    "4-clique": Best("Graphflow", 242_000),
    "diamond": Best("Graphflow", 96_000),
    "square": Best("Graphflow", 43_000),
    "path of 4": Best("Graphflow", 112_000),
    "house": Best("Graphflow", 11_800),
    "tree of 5": Best("TurboFlux", 2_900),
    "triangle, no labels": Best("Graphflow", 25_500),
    "4-clique, no labels": Best("Graphflow", 1_000),
}
