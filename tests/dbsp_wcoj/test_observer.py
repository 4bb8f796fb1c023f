"""An observer receives the phases of its own thread only, each with its begin and end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, WeightOverflowError, ZSet
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.observer import current_observer, observed, observing
from dbsp_wcoj.zset import MAX_INT64

COUNTED = "n() :- e(a, b), e(b, c), e(a, c)"
LISTED = "tri(a, b, c) :- e(a, b), e(b, c), e(a, c)"


class Recorder:
    """Records the calls, and checks that they are properly nested."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.ended: list[tuple[str, int]] = []
        self.terms = 0
        self.kernels = 0

    def begin_phase(self, phase: str) -> None:
        self.open.append(phase)

    def end_phase(self, rows: int) -> None:
        self.ended.append((self.open.pop(), rows))

    def begin_term(self, term: object, *, resumed: bool) -> None:
        assert isinstance(term, PhysicalTerm)
        self.open.append("term")
        self.terms += not resumed

    def end_term(self) -> None:
        assert self.open.pop() == "term"

    def begin_kernel(self, state: object) -> None:
        assert self.open[-1] == "term"
        self.kernels += 1

    def end_kernel(self) -> None:
        assert self.open[-1] == "term"

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.ended}


def triangle(nodes: int = 3) -> ZSet:
    return ZSet.from_rows([(a, b) for a in range(nodes) for b in range(a + 1, nodes)])


@pytest.mark.parametrize("query", [COUNTED, LISTED])
def test_each_term_of_a_step_is_observed_and_every_phase_ends(query: str) -> None:
    recorder, view = Recorder(), DeltaQuery(query)
    view.step({"e": triangle()})

    with observing(recorder):
        view.step({"e": ZSet.from_rows([(2, 3), (1, 3)])})

    assert recorder.open == []
    assert (recorder.terms, recorder.kernels) == (3, 3)
    assert {"sort", "build runs", "plan", "merge"} <= recorder.names
    assert ("build runs", 4) in recorder.ended  # two rows in two column orders


def test_phases_end_after_an_error() -> None:
    recorder, view = Recorder(), DeltaQuery(LISTED)
    view.step({"e": triangle()})
    large = ZSet.from_rows([(0, 1)], [MAX_INT64])

    with observing(recorder), pytest.raises(WeightOverflowError):
        view.step({"e": large})

    assert recorder.open == []
    assert view.step({"e": ZSet.from_rows([(7, 8)])}) == ZSet.empty(3)


def test_two_threads_with_different_observers_do_not_see_each_others_phases() -> None:
    barrier = Barrier(2)

    def run(query: str, nodes: int, steps: int) -> Recorder:
        recorder, view = Recorder(), DeltaQuery(query)
        with observing(recorder):
            for step in range(steps):
                barrier.wait()
                delta = triangle(nodes)
                view.step({"e": delta if step % 2 == 0 else -delta})
                assert current_observer() is recorder
        return recorder

    with ThreadPoolExecutor(2) as executor:
        small = executor.submit(run, COUNTED, 3, 40)
        large = executor.submit(run, LISTED, 20, 40)
        recorders = small.result(), large.result()

    alone = run_alone(COUNTED, 3, 40), run_alone(LISTED, 20, 40)
    assert [recorder.ended for recorder in recorders] == [recorder.ended for recorder in alone]
    for recorder, recorder_alone in zip(recorders, alone, strict=True):
        assert recorder.terms == recorder_alone.terms
        assert recorder.kernels == recorder_alone.kernels


def run_alone(query: str, nodes: int, steps: int) -> Recorder:
    recorder, view = Recorder(), DeltaQuery(query)
    with observing(recorder):
        for step in range(steps):
            delta = triangle(nodes)
            view.step({"e": delta if step % 2 == 0 else -delta})
    return recorder


def test_a_thread_without_an_observer_is_not_observed() -> None:
    recorder = Recorder()

    with observing(recorder), ThreadPoolExecutor(1) as executor:
        observer_of_thread = executor.submit(current_observer).result()
        executor.submit(lambda: DeltaQuery(LISTED).step({"e": triangle()})).result()

    assert observer_of_thread is None
    assert recorder.ended == []


def test_an_inner_observer_replaces_the_outer_one_until_it_ends() -> None:
    outer, inner = Recorder(), Recorder()
    unsorted = np.array([2, 1])

    with observing(outer):
        with observing(inner):
            ZSet.from_columns([unsorted])
        ZSet.from_columns([unsorted, unsorted])

    assert (outer.ended, inner.ended) == ([("sort", 2)], [("sort", 2)])
    assert current_observer() is None


def test_a_decorated_function_reports_rows_unless_it_fails() -> None:
    @observed("halve", lambda arguments, result: arguments[0] + result)
    def halve(number: int) -> int:
        """Halve an even number."""
        if number % 2:
            raise ValueError(number)
        return number // 2

    recorder = Recorder()
    with observing(recorder):
        assert halve(4) == 2
        with pytest.raises(ValueError, match="5"):
            halve(5)

    assert recorder.ended == [("halve", 6), ("halve", 0)]
    assert halve(4) == 2
    assert (halve.__name__, halve.__doc__) == ("halve", "Halve an even number.")


def test_chunks_of_a_step_are_parts_of_one_execution_of_a_term() -> None:
    recorder, view = Recorder(), DeltaQuery("q(a, c) :- e(a, b), f(b, c)")
    hub = ZSet.from_rows([(node, 0) for node in range(400)])
    view.step({"f": ZSet.from_rows([(0, node) for node in range(400)])})

    with observing(recorder):
        sizes = [len(chunk) for chunk in view.step_chunks({"e": hub})]

    assert sum(sizes) == 160_000 and len(sizes) > 2
    assert recorder.terms == 1
    assert recorder.kernels == len(sizes)
    assert recorder.open == []
