"""Cost of a step by the size of the state, at the same average degree.

Claim: it grows by at most 2 times from 0.1 to 8 million edges.

Inputs: random graphs of 7.6 samples per node. Uniform ones keep everything but the state's size
alike. On RMAT graphs hubs grow with the graph, so that the values which the smallest proposers
hold grow as well; they are given beside the cost, for no join can do with less than them in
order to list, and few with much less in order to count. Steps insert edges that are then deleted,
and the changes of the count must cancel.
"""

from __future__ import annotations

from benchmarks.engine import QUERY
from benchmarks.graph import generated
from benchmarks.result import Row
from benchmarks.rmat import candidates
from benchmarks.stream import delete, insert
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery

SCALES = (14, 17, 20)
_SAMPLES = 8_000_000  # at scale 20; in proportion below
_STEPS = {1: 4_000, 1_000: 40}


def scaling(seed: int, verdict: Verdict, scales: tuple[int, ...] = SCALES) -> list[Row]:
    """One row for each kind of graph, size and batch."""
    rows: list[Row] = []
    for uniform in (True, False):
        first: dict[int, tuple[float, float]] = {}
        for scale in scales:
            samples = _SAMPLES >> (20 - scale)
            graph = generated(scale, samples, seed, uniform=uniform).shuffled(seed + 1)
            streamed = min(max(batch * steps for batch, steps in _STEPS.items()), graph.edges // 4)
            view = DeltaQuery(QUERY)
            kept = graph.take(slice(streamed, None))
            insert(view, kept, kept.edges)
            for batch, steps in _STEPS.items():
                changed = graph.take(slice(0, min(batch * steps, streamed)))
                insert(view, changed, batch)
                delete(view, changed, batch)
                there, back = insert(view, changed, batch), delete(view, changed, batch)
                verdict.truth("nothing left", 0)
                verdict.compare(
                    f"{graph.name}, {batch}", "nothing left", there.change + back.change
                )
                middle = (there.quantile(0.5) + back.quantile(0.5)) / 2
                mean = 1000 * (there.cost.cpu + back.cost.cpu) / (2 * len(there.steps))
                first.setdefault(batch, (middle, mean))
                rows.append(
                    {
                        "graph": "uniform" if uniform else "rmat",
                        "edges": kept.edges,
                        "candidates/edge": candidates(graph.source, graph.target),
                        "batch": batch,
                        "steps": 2 * len(there.steps),
                        "p50 ms": middle,
                        "p99 ms": max(there.quantile(0.99), back.quantile(0.99)),
                        "mean CPU ms": mean,
                        "p50 growth": middle / first[batch][0],
                        "mean growth": mean / first[batch][1],
                    }
                )
    return rows
