"""Phases: the names under which a step of a circuit reports its parts to an observer.

The phases of the core (`dbsp_wcoj.observer`) are inside these::

    encode                    values to codes
    graph                     the work between operators
      plan                    a join operator: planning and binding terms (its terms are `join`)
      distinct, top k, …      any other operator, by the name of its class
    decode                    codes to values
    commit                    the staged step becomes the state
"""

from __future__ import annotations

from typing import Final

__all__ = ["COMMIT", "DECODE", "ENCODE", "GRAPH"]

ENCODE: Final = "encode"
GRAPH: Final = "graph"
DECODE: Final = "decode"
COMMIT: Final = "commit"
