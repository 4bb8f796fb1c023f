"""This engine, measured by the same driver as its peers.

BULK begins with arrays in random order and pays for sorting and for its index; ``index`` gives
the cost of both apart, built once more by itself. The binary plan is the ``recursive`` formula on
one step with all edges: it joins two at a time and keeps what is in between, as any such plan does.

An LSQB query is a circuit of its SQL views.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost import Clock, Cost
from benchmarks.engine import count_of, part_count, thread_pool, warm_up
from benchmarks.lsqb import Relations
from benchmarks.maintained import Maintained, with_weight
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources
from dbsp_wcoj import DeltaQuery, Trace, ZSet, generic_join

_WARM, _FEW = 1_000, 10  # edges that are enough to load the kernels


class _Counter:
    plan = "generic join"

    def __init__(self, pattern: Pattern, edges: Edges, threads: int) -> None:
        self._query, self._threads = pattern.datalog, threads
        self._edges = edges[:, np.random.default_rng(1).permutation(edges.shape[1])]

    def count(self) -> int:
        with thread_pool(self._threads) as executor:
            edges = ZSet.from_columns(list(self._edges), executor=executor)
            used = part_count(self._threads)
            return count_of(generic_join(self._query, {"e": edges}, executor=executor, parts=used))

    def index(self) -> Cost:
        """The cost to sort the edges and to build the tries of both directions."""
        clock = Clock()
        Trace(2).update(ZSet.from_columns(list(self._edges)))
        return clock.read()


class _Binary:
    plan = "recursive"

    def __init__(self, pattern: Pattern, edges: Edges, threads: int) -> None:
        self._query, self._threads, self._edges = pattern.datalog, threads, edges

    def count(self) -> int:
        with thread_pool(self._threads) as executor:
            view = DeltaQuery(
                self._query, formula="recursive", executor=executor, parts=part_count(self._threads)
            )
            return count_of(view.step({"e": ZSet.from_columns(list(self._edges))}))


class _Maintainer:
    def __init__(self, view: DeltaQuery) -> None:
        self._view, self._count = view, 0

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        delta = self._view.step({"e": ZSet.from_columns(list(edges), weights)})
        self._count += count_of(delta)
        return self._count


class _View:
    def __init__(self, query: str, relations: Relations) -> None:
        self._view = Maintained(query, relations)
        self._count = self._view.step(relations)

    def change(self, rows: Relations, weight: int) -> None:
        self._count = self._view.step(with_weight(rows, weight))

    def count(self) -> int:
        return self._count


@contextmanager
def counter(
    pattern: Pattern, edges: Edges, resources: Resources, *, plan: str = "generic join"
) -> Iterator[_Counter | _Binary]:
    kind = _Binary if plan == "binary" else _Counter
    kind(pattern, edges[:, :_WARM], resources.threads).count()
    yield kind(pattern, edges, resources.threads)


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    warm_up(resources.threads)
    with thread_pool(resources.threads) as executor:
        used = part_count(resources.threads)

        def view(loaded: Edges) -> _Maintainer:
            one = _Maintainer(DeltaQuery(pattern.datalog, executor=executor, parts=used))
            one.step(loaded, np.ones(loaded.shape[1], np.int64))
            return one

        # Steps of its own on another view: kernels of this pattern are loaded before any is timed.
        small = view(edges[:, :_WARM])
        for sign in (-1, 1):
            small.step(edges[:, :_FEW], np.full(_FEW, sign))
        yield view(edges)


def prepare(query: str, relations: Relations, resources: Resources) -> None:
    """Kernels of this query are loaded before any is timed."""
    warm_up(resources.threads)
    few = {name: rows.slice(0, _WARM) for name, rows in relations.items()}
    small = _View(query, few)
    for sign in (-1, 1):
        small.change({name: rows.slice(0, _FEW) for name, rows in few.items()}, sign)


@contextmanager
def view(query: str, relations: Relations, resources: Resources) -> Iterator[_View]:
    yield _View(query, relations)
