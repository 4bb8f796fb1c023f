"""This engine, measured by the same driver as its peers.

BULK begins with arrays in random order and pays for sorting and for its index; ``index`` gives
the cost of both, measured once more alone. The binary plan is the ``recursive`` formula on one step
with all edges: it joins two relations at a time and stores the intermediate rows, as such plans do.

An LSQB query is a circuit of its SQL views.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost import Clock, Cost
from benchmarks.engine import count_of, open_workers, warm_up
from benchmarks.lsqb import Relations
from benchmarks.maintained import MaintainedQuery, with_weight
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources
from dbsp_wcoj import DeltaQuery, Trace, ZSet, generic_join

# Edges to load, and to change, in order to load the kernels.
_WARM_UP_LOAD, _WARM_UP_STEP = 1_000, 10


class _Counter:
    plan = "generic join"

    def __init__(self, pattern: Pattern, edges: Edges, threads: int) -> None:
        self._query, self._threads = pattern.datalog, threads
        self._edges = edges[:, np.random.default_rng(1).permutation(edges.shape[1])]

    def count(self) -> int:
        with open_workers(self._threads):
            edges = ZSet.from_columns(list(self._edges))
            return count_of(generic_join(self._query, {"e": edges}))

    def index(self) -> Cost:
        """Return the cost to sort the edges and to build the tries of both directions."""
        clock = Clock()
        Trace(2).update(ZSet.from_columns(list(self._edges)))
        return clock.read()


class _BinaryCounter:
    plan = "recursive"

    def __init__(self, pattern: Pattern, edges: Edges, threads: int) -> None:
        self._query, self._threads, self._edges = pattern.datalog, threads, edges

    def count(self) -> int:
        with open_workers(self._threads):
            view = DeltaQuery(self._query, formula="recursive")
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
        self._view = MaintainedQuery(query, relations)
        self._count = self._view.step(relations)

    def change(self, rows: Relations, weight: int) -> None:
        self._count = self._view.step(with_weight(rows, weight))

    def count(self) -> int:
        return self._count


@contextmanager
def counter(
    pattern: Pattern, edges: Edges, resources: Resources, *, plan: str = "generic join"
) -> Iterator[_Counter | _BinaryCounter]:
    counter_class = _BinaryCounter if plan == "binary" else _Counter
    counter_class(pattern, edges[:, :_WARM_UP_LOAD], resources.threads).count()
    yield counter_class(pattern, edges, resources.threads)


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    warm_up(resources.threads)
    with open_workers(resources.threads):

        def load(loaded: Edges) -> _Maintainer:
            loaded_view = _Maintainer(DeltaQuery(pattern.datalog))
            loaded_view.step(loaded, np.ones(loaded.shape[1], np.int64))
            return loaded_view

        # A small view loads the kernels of this pattern, so that no step that is timed does.
        small = load(edges[:, :_WARM_UP_LOAD])
        for sign in (-1, 1):
            small.step(edges[:, :_WARM_UP_STEP], np.full(_WARM_UP_STEP, sign))
        yield load(edges)


def prepare(query: str, relations: Relations, resources: Resources) -> None:
    """Load the kernels of this query, before steps are timed."""
    warm_up(resources.threads)
    loaded = {name: rows.slice(0, _WARM_UP_LOAD) for name, rows in relations.items()}
    small = _View(query, loaded)
    for sign in (-1, 1):
        small.change({name: rows.slice(0, _WARM_UP_STEP) for name, rows in loaded.items()}, sign)


@contextmanager
def view(query: str, relations: Relations, resources: Resources) -> Iterator[_View]:
    yield _View(query, relations)
