"""Counts triangles once with the engine under test, from arrays in memory to the number.

The time includes everything that a user pays for: the sort that makes a `ZSet` of the arrays, the
runs (tries), and the join. The index (the sorted tries) is then built again alone, so that its time
can be shown separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import dbsp_wcoj
from benchmarks.cost import Clock, Cost
from benchmarks.graph import Graph
from dbsp_wcoj import DeltaQuery, Trace, ZSet, generic_join

QUERY = "n() :- e(a, b), e(b, c), e(a, c)"

# The work is divided into many small parts for each thread, because hubs make parts uneven.
PARTS_PER_THREAD = 16


@dataclass(frozen=True)
class TimedCount:
    """A count, the cost of counting, and the cost to sort the edges and build their tries alone."""

    answer: int
    total: Cost
    index: Cost


def count_once(graph: Graph, threads: int) -> TimedCount:
    """Count the triangles of a graph, the rows of `QUERY`."""
    with thread_pool(threads) as executor:
        clock = Clock()
        edges = ZSet.from_columns([graph.source, graph.target], executor=executor)
        sorting = clock.read()
        result = generic_join(QUERY, {"e": edges}, executor=executor, parts=part_count(threads))
        answer = count_of(result)
        total = clock.read()
    clock = Clock()
    Trace(2).update(edges)
    return TimedCount(answer, total, sorting + clock.read())


def warm_up(threads: int) -> None:
    """Compile or load every kernel, and run it on enough rows to be divided into parts."""
    dbsp_wcoj.warm_up()
    rows = [(i, i + k) for i in range(5_000) for k in (1, 2, 3)]
    edges = ZSet.from_rows(rows)
    with thread_pool(threads) as executor:
        generic_join(QUERY, {"e": edges}, executor=executor, parts=part_count(threads))
        view = DeltaQuery(QUERY, executor=executor, parts=part_count(threads))
        for delta in (edges, ZSet.from_rows([(1, 9)]), ZSet.from_rows([(1, 9)], [-1]), -edges):
            view.step({"e": delta})


def count_of(count: ZSet) -> int:
    """Return the count in the result of a query with an empty head: the weight of its one row."""
    return count.to_dict().get((), 0)


def part_count(threads: int) -> int:
    """Return the number of parts that the work is divided into."""
    return 1 if threads == 1 else threads * PARTS_PER_THREAD


@contextmanager
def thread_pool(threads: int) -> Iterator[Executor | None]:
    """Open a pool of threads; None for one thread."""
    with nullcontext() if threads == 1 else ThreadPoolExecutor(threads) as executor:
        yield executor
