"""Alternatives: the terms of the formulas that a step may run, and which of them cost less.

The first alternative is `collapsed`, the second a recursion over partial deltas. What a step will
walk cannot be told well from numbers of different values when data is skewed, but it is counted as
it runs. So for each magnitude of the delta the average of what each alternative counted per changed
row is kept, and the lesser one runs; the other one is tried where that could pay and is safe. The
recursion always is, its work is bounded (`dbsp_wcoj.planning.formula_candidates`). The work of
`collapsed` has no bound but the number of walks: where a delta has more than a few rows, a sample
of it is joined first.

    run the recursion  where  (collapsed - recursion) * rows
                              > partial deltas * (PER_PARTIAL + PER_ROW * rows)

because a partial delta has to be summed up, sorted and made a run, which is not counted. To count
takes a microsecond for each term. So where both are known the better one runs without further ado,
and one step in `OFTEN` is counted; where all that `collapsed` does is less than that overhead, one
in `REST`.

Deterministic: the same steps lead to the same choices; there is no clock. When what an alternative
counts drifts by `DRIFT`, the other one's figure is old, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dbsp_wcoj.errors import WeightOverflowError
from dbsp_wcoj.execution.bound_terms import BoundTerm, BoundTerms
from dbsp_wcoj.storage.run import value_ranges
from dbsp_wcoj.storage.trace import TraceStep

__all__ = ["AdaptiveFormula"]

# Proposals and intersections that take as long as a partial delta does, and a changed row in it.
PER_PARTIAL: Final = 1000
PER_ROW: Final = 0.75
# The weight of a step in the averages, and how much they may change before the other's is old.
WEIGHT: Final = 1 / 8
DRIFT: Final = 4.0
OFTEN: Final = 4
REST: Final = 16
# `collapsed` is tried where a sample says that it does less than so many times the recursion's
# work: a sample shares less of what is remembered than all rows do.
WORTH_TRYING: Final = 4
# The sample: so many ranges of about so many rows; no more after so much work (some 0.03 s).
RANGES: Final = 8
ROWS: Final = 4
ENOUGH: Final = 1 << 20


@dataclass(slots=True)
class MeasuredCost:
    """What is known of steps of one magnitude.

    Attributes:
        expected: What a sample says that `collapsed` counts, per changed row.
        average: What each alternative counted per changed row; None: it is to be tried.
        first: The averages when they were new.
        resting: Steps to go that run the `chosen` alternative and are not counted.
        chosen: The alternative that is known to cost less.
        ran: Steps of each alternative.
    """

    expected: float
    average: list[float | None] = field(default_factory=lambda: [None, None])
    first: list[float] = field(default_factory=lambda: [0.0, 0.0])
    resting: int = 0
    chosen: int = 0
    ran: list[int] = field(default_factory=lambda: [0, 0])


class AdaptiveFormula:
    """What may run when certain relations change.

    Args:
        batches: The terms of each formula; of two or of one.
    """

    __slots__ = ("_partials", "_running", "batches", "counting", "known", "only")

    def __init__(self, batches: Sequence[BoundTerms]) -> None:
        self.batches = batches
        # Whether the step that was chosen for is to be learned from.
        self.counting = False
        # The terms to run where there is nothing to choose.
        alike = len(batches) == 1 or batches[0].terms == batches[1].terms
        self.only = batches[0] if alike else None
        self._partials = sum(term.partial is not None for term in batches[-1].terms)
        # By the number of binary digits of the number of changed rows.
        self.known: dict[int, MeasuredCost] = {}
        # The step that is counted: what it adds to, rows, alternative, work before.
        self._running: tuple[MeasuredCost, int, int, int] | None = None

    def choose(self, rows: int, steps: Mapping[str, TraceStep]) -> BoundTerms:
        """The terms for a step of so many rows, whose deltas are in their places.

        Where `counting`, `learn` has to be called when the step has run; not if it failed.
        """
        self.counting = False
        counted = self.known.get(rows.bit_length())
        if counted is None:
            sampled = _sampled(self.batches[0].terms, steps) if rows > RANGES * ROWS else 0.0
            counted = self.known[rows.bit_length()] = MeasuredCost(sampled / rows)
        elif counted.resting:
            counted.resting -= 1
            counted.ran[counted.chosen] += 1
            return self.batches[counted.chosen]
        best = self._best(counted, rows)
        batch = self.batches[best]
        counted.ran[best] += 1
        self._running = (counted, rows, best, _work(batch.terms))
        self.counting = True
        return batch

    def learn(self) -> None:
        """Take up what the step has counted that was chosen for."""
        if self._running is None:
            return
        counted, rows, ran, before = self._running
        self._running, self.counting = None, False
        rate = (_work(self.batches[ran].terms) - before) / rows
        average = counted.average[ran]
        if average is None:
            counted.average[ran] = counted.first[ran] = rate
        else:
            rate = average + WEIGHT * (rate - average)
            counted.average[ran] = rate
            first = counted.first[ran]
            if not first / DRIFT <= rate <= first * DRIFT:
                counted.first[ran] = rate
                counted.expected *= rate / first if first else 1.0
                counted.average[1 - ran] = None
        plain, recursive = counted.average
        if plain is not None:
            cheap = plain * rows <= self._overhead(rows)
            if cheap or recursive is not None:
                counted.chosen = self._best(counted, rows)
                counted.resting = (REST if cheap else OFTEN) - 1

    def _best(self, counted: MeasuredCost, rows: int) -> int:
        plain, recursive = counted.average
        if plain is None:
            limit = self._overhead(rows)
            if recursive is not None:
                limit = WORTH_TRYING * (recursive * rows + limit)
            return int(counted.expected * rows > limit)
        return int((plain - (recursive or 0.0)) * rows > self._overhead(rows))

    def _overhead(self, rows: int) -> float:
        """What partial deltas cost, in proposals and intersections."""
        return self._partials * (PER_PARTIAL + PER_ROW * rows)


def _work(terms: Sequence[BoundTerm]) -> int:
    """Proposals and intersections of the terms since they were bound."""
    return sum([sum(map(sum, term.physical.counters.tolist())) for term in terms])


def _sampled(terms: Sequence[BoundTerm], steps: Mapping[str, TraceStep]) -> float:
    """About what terms will count that read no partial delta; the least that it may be where that
    is much.
    """
    work = 0.0
    counted = 0
    for term in terms:
        if term.split is None or term.is_zero(steps, None):
            continue
        name, order = term.split
        run = steps[name].run(order)
        ranges = value_ranges(run, max(1, run.rows // ROWS))
        every = -(-len(ranges) // RANGES)
        for one in ranges[every // 2 :: every]:
            before = _work([term])
            try:
                if term.physical.plan.head:
                    for _ in term.physical.chunks([one]):
                        pass
                else:
                    term.physical.total([one])
            except WeightOverflowError:
                # The step itself will say so, or not have this sum.
                return float(ENOUGH * len(ranges))
            more = _work([term]) - before
            work += every * more
            counted += more
            if counted > ENOUGH:
                return work
    return work
