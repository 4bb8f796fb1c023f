"""The profiler measures the time of each phase, counts exactly, and patches no code."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import pytest

import dbsp_wcoj
from dbsp_wcoj import DeltaQuery, Query, ZSet
from dbsp_wcoj.execution.profiler import Profiler
from dbsp_wcoj.observer import current_observer
from dbsp_wcoj.planning.level_profile import level_profiles
from dbsp_wcoj.workers import current_workers
from tests.oracles import naive
from tests.support.working_threads import working_threads

TRIANGLES = "tri(a, b, c) :- e(a, b), e(b, c), e(a, c)"


class TickingClock:
    """A clock that advances by one second at each call."""

    seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


def edges(rows: int, nodes: int, seed: int) -> ZSet:
    generator = np.random.default_rng(seed)
    return ZSet.from_columns(list(generator.integers(0, nodes, (2, rows))))


def definitions() -> dict[str, object]:
    """Return all functions and classes of the core, and all attributes of its classes."""
    objects: dict[str, object] = {}
    for module in pkgutil.walk_packages(dbsp_wcoj.__path__, "dbsp_wcoj."):
        for name, value in vars(sys.modules.get(module.name, object)).items():
            if callable(value):
                objects[f"{module.name}.{name}"] = value
            if inspect.isclass(value) and value.__module__.startswith("dbsp_wcoj"):
                objects |= {
                    f"{module.name}.{name}.{attribute}": member
                    for attribute, member in vars(value).items()
                    if callable(member) or not attribute.startswith("__")
                }
    return objects


def test_nothing_is_patched_while_a_profiler_is_active() -> None:
    view = DeltaQuery(TRIANGLES)
    view.step({"e": edges(300, 30, 0)})
    objects_before = definitions()

    with Profiler(TickingClock()):
        view.step({"e": edges(40, 30, 1)})
        objects_during = definitions()

    assert len(objects_before) > 500
    assert {
        "dbsp_wcoj.storage.run.Run.merged",
        "dbsp_wcoj.zset.consolidate",
    } <= objects_before.keys()
    assert objects_before.keys() == objects_during.keys()
    replaced = [name for name in objects_before if objects_before[name] is not objects_during[name]]
    assert replaced == []


def test_the_profiler_is_removed_after_an_error() -> None:
    with pytest.raises(KeyError), Profiler(TickingClock()) as profiler:
        assert current_observer() is profiler
        raise KeyError

    assert current_observer() is None


@pytest.mark.parametrize("query", [TRIANGLES, "n() :- e(a, b), e(b, c), e(a, c)"])
def test_a_profiled_view_returns_and_counts_the_same(query: str) -> None:
    plain, profiled = DeltaQuery(query), DeltaQuery(query)
    deltas = [edges(300, 30, 0), edges(20, 30, 1), -edges(20, 30, 1)]

    expected = [plain.step({"e": delta}) for delta in deltas]
    with Profiler(perf_counter) as profiler:
        profiled_deltas = [profiled.step({"e": delta}) for delta in deltas]

    counted = sum(term.counters for term in profiler.terms.values()).sum(axis=0)
    assert profiled_deltas == expected
    assert profiled.stats == plain.stats
    assert counted.tolist() == [plain.stats.proposals, plain.stats.intersections]


def test_the_times_of_phases_add_up_to_at_most_the_time_of_the_steps() -> None:
    clock = TickingClock()
    view = DeltaQuery(TRIANGLES)
    view.step({"e": edges(300, 30, 0)})

    with Profiler(clock) as profiler:
        start = clock.seconds
        view.step({"e": edges(40, 30, 1)})
    total = clock.seconds - start

    phases = profiler.phases
    assert {"build runs", "plan", "join", "collect", "merge"} <= set(phases)
    assert all(phase.seconds > 0 for phase in phases.values())
    assert sum(phase.seconds for phase in phases.values()) <= total
    assert sum(term.seconds for term in profiler.terms.values()) <= phases["join"].seconds + 1e-9


def test_the_rows_of_a_phase_are_its_input_rows() -> None:
    view = DeltaQuery(TRIANGLES)
    delta = edges(50, 1000, 1)

    with Profiler(perf_counter) as profiler:
        view.step({"e": delta})
        view.step({"e": delta})

    orders = len(view.stats.rows_by_run)
    assert profiler.phases["build runs"].rows == orders * 2 * len(delta)
    assert profiler.phases["merge"].rows == orders * 2 * len(delta)


def test_proposals_of_a_level_are_within_the_agm_bound_of_its_prefix() -> None:
    view = DeltaQuery(TRIANGLES)
    view.step({"e": edges(2_000, 40, 0)})
    view._relations.traces["e"].arrangements[0].spine.compact()
    view._relations.traces["e"].arrangements[1].spine.compact()

    with Profiler(perf_counter) as profiler:
        view.step({"e": edges(30, 40, 1)})

    levels = [level_profiles(profiler, term) for term in profiler.terms.values()]
    assert [[level.variable for level in term] for term in levels] == [
        list(term.physical.plan.order) for term in profiler.terms.values()
    ]
    for term in levels:
        assert all(level.is_listed for level in term)
        # The bound is for one relation, but its rows are in two runs: of the state and of the
        # delta.
        assert all(0 < level.proposals <= 2 * level.bound for level in term)


def test_most_of_the_time_is_attributed_to_the_slow_level() -> None:
    """An edge between two hubs has two short levels, then a long list to intersect."""
    hub = [(node, 10 + 2 * k + node) for node in (1, 2) for k in range(40_000)]
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_rows([*hub, (3, 4), (4, 5)])})
    insertion, deletion = ZSet.from_rows([(1, 2)]), ZSet.from_rows([(1, 2)], [-1])

    with ThreadPoolExecutor(1) as executor, Profiler(perf_counter, executor) as profiler:
        for _ in range(150):
            view.step({"e": insertion})
            view.step({"e": deletion})

    (longest,) = [term for term in profiler.terms.values() if term.counters[2, 0] > 1000]
    seconds = profiler.seconds_by_level(longest)
    assert seconds is not None
    assert sum(seconds) == pytest.approx(longest.seconds)
    assert seconds[2] > 10 * (seconds[0] + seconds[1])


def test_an_observed_thread_works_alone() -> None:
    delta = edges(12_000, 2_000, 0)
    expected = naive.evaluate(Query.parse(TRIANGLES), {"e": delta.to_dict()})

    with working_threads(2), Profiler(perf_counter) as profiler:
        assert current_workers() is None
        assert DeltaQuery(TRIANGLES).step({"e": delta}).to_dict() == expected

    (term,) = profiler.terms.values()
    assert 0 < term.seconds == profiler.phases["join"].seconds
