"""Published figures of dogsdogsdogs, and how to scale them to this machine.

dogsdogsdogs is differential dataflow's delta query with count, propose and validate, in Rust. It is
the fastest incremental peer. It was measured on another machine (release build, one worker), on
the same inputs and in the same phases: load 90 %, insert the other edges in steps, delete them. It
is not run here. To compare the machines, Kùzu counts ``e(a, b), e(b, c), e(a, c)`` on an RMAT graph
of scale 18 with one thread. This took 10.2 CPU seconds on the other machine, and is measured again
here. The edges and counts of the graphs are those of `benchmarks.graph`.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 10, 100, 1_000, 10_000, 100_000)

# CPU seconds of Kùzu 0.11.3 on one thread of the machine of the published figures, for the RMAT
# graph with the scale and the number of samples in `KUZU_GRAPH`. With Kùzu's time here, it says how
# many times faster this machine is.
KUZU_SECONDS = 10.2
KUZU_GRAPH = (18, 2_000_000)


@dataclass(frozen=True)
class Published:
    """Edges per CPU second by batch size, and CPU seconds to load 90 % of the edges."""

    rates: dict[int, float]
    backfill: float


def _published(backfill: float, *thousands_per_second: float) -> Published:
    """Return figures from rates in thousands of edges per CPU second, one for each batch size."""
    rates = dict(zip(BATCHES, thousands_per_second, strict=True))
    return Published({batch: 1000 * thousands for batch, thousands in rates.items()}, backfill)


PUBLISHED = {
    "rmat-20-8000000": _published(282, 2.5, 4.3, 7.1, 9.9, 11.8, 12.8),
    "rmat-18-2000000": _published(44, 3.5, 7.6, 12.5, 18.1, 22.2, 21.5),
    "uk-2007-05-100000": _published(46, 2.9, 6.6, 11.3, 20.2, 28.7, 31.9),
    "cnr-2000": _published(25, 3.3, 8.1, 12.7, 25.9, 45.4, 63.6),
    "soc-Epinions1": _published(6.6, 3.8, 11.7, 17.6, 28.2, 43.3, 41.4),
    "wiki-Vote": _published(0.9, 4.6, 14.1, 24.2, 48.2, 60.4, 65.8),
}


def relative_speed(kuzu_seconds: float) -> float:
    """Return how many times faster this machine is, from Kùzu's CPU seconds here.

    >>> relative_speed(5.1)
    2.0
    """
    return KUZU_SECONDS / kuzu_seconds
