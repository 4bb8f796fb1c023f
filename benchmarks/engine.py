"""Counts triangles once with the engine under test, from arrays in memory to the number.

The time includes everything that a user pays for: the sort that makes a `ZSet` of the arrays, the
runs (tries), and the join. The index (the sorted tries) is then built again alone, so that its time
can be shown separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import dbsp_wcoj
from benchmarks.cost import Clock, Cost
from benchmarks.graph import Graph
from dbsp_wcoj import DeltaQuery, Trace, ZSet, generic_join
from dbsp_wcoj.workers import Workers, working_with

QUERY = "n() :- e(a, b), e(b, c), e(a, c)"


@dataclass(frozen=True)
class TimedCount:
    """A count, the cost of counting, and the cost to sort the edges and build their tries alone."""

    answer: int
    total: Cost
    index: Cost


def count_once(graph: Graph, threads: int) -> TimedCount:
    """Count the triangles of a graph, the rows of `QUERY`."""
    with open_workers(threads):
        clock = Clock()
        edges = ZSet.from_columns([graph.source, graph.target])
        sorting = clock.read()
        result = generic_join(QUERY, {"e": edges})
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
    with open_workers(threads):
        generic_join(QUERY, {"e": edges})
        view = DeltaQuery(QUERY)
        for delta in (edges, ZSet.from_rows([(1, 9)]), ZSet.from_rows([(1, 9)], [-1]), -edges):
            view.step({"e": delta})


def count_of(count: ZSet) -> int:
    """Return the count in the result of a query with an empty head: the weight of its one row."""
    return count.to_dict().get((), 0)


@contextmanager
def open_workers(threads: int) -> Iterator[None]:
    """Let the code in this thread use so many threads, itself included."""
    with ThreadPoolExecutor(threads) as executor, working_with(Workers(executor, threads)):
        yield
