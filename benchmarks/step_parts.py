"""Measures which parts of a step take its time: joins, merges, and the rest.

A small step is one kernel call, which builds the runs of the delta, joins, and adds the runs to the
tails; later merges are apart (`dbsp_wcoj.execution.small_steps`). The parts of larger steps are the
phases of `dbsp_wcoj.execution.profiler`; they take the same path without it. So in steps of up to
256 edges, "joins" is the one kernel call, which also builds the runs of the delta; in larger steps,
building runs counts as "merges".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import process_time
from typing import Any
from unittest.mock import patch

from benchmarks.graph import Graph
from benchmarks.result import Row
from benchmarks.stream import delete, insert
from dbsp_wcoj import DeltaQuery
from dbsp_wcoj.execution import small_steps
from dbsp_wcoj.execution.profiler import Profiler
from dbsp_wcoj.kernels.storage.arena import MAX_SMALL_ROWS
from dbsp_wcoj.observer import BUILD_RUNS, COLLECT, JOIN, MERGE
from dbsp_wcoj.storage.arena import Arena

BATCHES = (1, 100, 10_000)
_REPETITIONS = 3


class _Timed:
    """A function that adds up the CPU seconds of its calls; other attributes are the function's."""

    def __init__(self, function: Any) -> None:
        self.seconds = 0.0
        self._function = function

    def __call__(self, *args: Any) -> Any:
        start = process_time()
        try:
            return self._function(*args)
        finally:
            self.seconds += process_time() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def measure_parts(view: DeltaQuery, graph: str, edges: Graph, batch: int) -> Row:
    """Insert and delete edges in steps, and return the CPU time of the parts for each edge.

    The view is then as before.

    Args:
        view: A count over the relation ``e``.
        graph: The name of the graph.
        edges: Edges that are not in the relation.
        batch: The edges of a step.
    """
    rows = 2 * _REPETITIONS * edges.edges
    measure = _measure_small_steps if batch <= MAX_SMALL_ROWS else _measure_phases
    candidates = -view.stats.proposals
    seconds = 0.0

    def run() -> None:
        nonlocal seconds
        for change in (insert, delete) * _REPETITIONS:
            seconds += change(view, edges, batch).cost.cpu

    joins, merges = measure(run)
    candidates += view.stats.proposals
    return {
        "graph": graph,
        "batch": batch,
        "us/edge": 1e6 * seconds / rows,
        "joins": 1e6 * joins / rows,
        "merges": 1e6 * merges / rows,
        "rest": 1e6 * (seconds - joins - merges) / rows,
        "candidates/edge": candidates / rows,
        "joins, ns/candidate": 1e9 * joins / candidates if candidates else None,
    }


def _measure_small_steps(run: Callable[[], None]) -> tuple[float, float]:
    """Run steps of one kernel call; return the seconds of this kernel and of merges."""
    kernel, settle = _Timed(small_steps.small_step), _Timed(Arena.settle)
    with ExitStack() as patches:
        patches.enter_context(patch.object(small_steps, "small_step", kernel))
        patches.enter_context(patch.object(Arena, "settle", lambda arena: settle(arena)))
        run()
    return kernel.seconds, settle.seconds


def _measure_phases(run: Callable[[], None]) -> tuple[float, float]:
    """Run large steps; return the seconds of joins and of building and merging runs."""
    with Profiler(process_time) as profiler:
        run()
    seconds = {name: phase.seconds for name, phase in profiler.phases.items()}
    joins = seconds.get(JOIN, 0.0) + seconds.get(COLLECT, 0.0)
    return joins, seconds.get(BUILD_RUNS, 0.0) + seconds.get(MERGE, 0.0)
