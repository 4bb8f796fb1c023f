"""Adaptive formula selection: measure the work of two delta formulas and run the cheaper one.

The first candidate is `collapsed`, the second a recursion over partial deltas. Numbers of distinct
values predict the work of a step poorly when the data is skewed, but the engine counts the work as
it runs. So for each magnitude of the delta the selection keeps the average work per changed row of
each candidate, and runs the candidate with the lower average. It tries the other candidate where
that could pay and is safe. The recursion is always safe, because its work is bounded
(`dbsp_wcoj.planning.formula_candidates`). The work of `collapsed` is bounded only by the number of
walks: where a delta has more than a few rows, a sample of it is joined first.

    run the recursion  where  (collapsed - recursion) * rows
                              > partial deltas * (WORK_PER_PARTIAL + WORK_PER_ROW * rows)

because a partial delta has to be summed, sorted and built into a run, which is not counted. A
measurement takes a microsecond per term. So where both averages are known, the cheaper candidate
runs without measurement, and one step in `MEASURE_EVERY_N` is measured; where all the work of
`collapsed` is less than the overhead of the recursion, one in `MEASURE_CHEAP_EVERY_N`.

The selection is deterministic: the same steps lead to the same choices; there is no clock. When the
average of a candidate drifts by `DRIFT_FACTOR`, the average of the other one is out of date, and
the selection tries it again.
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

# Proposals and intersections that take as long as one partial delta, and as one changed row of it.
WORK_PER_PARTIAL: Final = 1000
WORK_PER_ROW: Final = 0.75
# The weight of one step in the averages, and the change after which the other average is old.
STEP_WEIGHT: Final = 1 / 8
DRIFT_FACTOR: Final = 4.0
MEASURE_EVERY_N: Final = 4
MEASURE_CHEAP_EVERY_N: Final = 16
# `collapsed` is tried where the sample predicts less than this multiple of the recursion's work: a
# sample memoizes less than all rows do.
TRY_FACTOR: Final = 4
# The sample: this many ranges of about this many rows; it ends after this much work (about 0.03 s).
SAMPLE_RANGES: Final = 8
SAMPLE_ROWS: Final = 4
WORK_LIMIT: Final = 1 << 20


@dataclass(slots=True)
class MeasuredCost:
    """The measurements of steps of one magnitude.

    Attributes:
        sampled_work: The work of `collapsed` per changed row, predicted by a sample.
        averages: The measured work of each candidate per changed row; None if it has to be tried.
        first_averages: The averages when they were new.
        skip_count: The number of following steps that run `cheaper` without measurement.
        cheaper: The candidate with the lower cost.
        step_counts: The number of steps of each candidate.
    """

    sampled_work: float
    averages: list[float | None] = field(default_factory=lambda: [None, None])
    first_averages: list[float] = field(default_factory=lambda: [0.0, 0.0])
    skip_count: int = 0
    cheaper: int = 0
    step_counts: list[int] = field(default_factory=lambda: [0, 0])


class AdaptiveFormula:
    """The candidates for steps that change certain relations, and their measured costs.

    Args:
        candidates: The terms of each formula; one or two formulas.

    Attributes:
        is_measuring: True if `record_cost` has to be called after the current step.
        only: The terms of every step, if there is no choice; else None.
        costs: The measurements, by the number of binary digits of the number of changed rows.
    """

    __slots__ = ("_candidates", "_partials", "_running", "costs", "is_measuring", "only")

    def __init__(self, candidates: Sequence[BoundTerms]) -> None:
        self._candidates = candidates
        self.is_measuring = False
        is_fixed = len(candidates) == 1 or candidates[0].terms == candidates[1].terms
        self.only = candidates[0] if is_fixed else None
        self._partials = sum(term.partial is not None for term in candidates[-1].terms)
        self.costs: dict[int, MeasuredCost] = {}
        # The measured step: its costs, rows, candidate, and the work before it.
        self._running: tuple[MeasuredCost, int, int, int] | None = None

    def choose(self, rows: int, steps: Mapping[str, TraceStep]) -> BoundTerms:
        """Choose the terms for a step of ``rows`` rows, whose deltas are in their slots.

        If `is_measuring`, call `record_cost` after the step, unless the step fails.
        """
        self.is_measuring = False
        cost = self.costs.get(rows.bit_length())
        if cost is None:
            is_large = rows > SAMPLE_RANGES * SAMPLE_ROWS
            sampled = _sample_work(self._candidates[0].terms, steps) if is_large else 0.0
            cost = self.costs[rows.bit_length()] = MeasuredCost(sampled / rows)
        elif cost.skip_count:
            cost.skip_count -= 1
            cost.step_counts[cost.cheaper] += 1
            return self._candidates[cost.cheaper]
        chosen = self._cheaper(cost, rows)
        bound_terms = self._candidates[chosen]
        cost.step_counts[chosen] += 1
        self._running = (cost, rows, chosen, _work(bound_terms.terms))
        self.is_measuring = True
        return bound_terms

    def record_cost(self) -> None:
        """Record the measured cost of the step that was just run."""
        if self._running is None:
            return
        cost, rows, ran, before = self._running
        self._running, self.is_measuring = None, False
        rate = (_work(self._candidates[ran].terms) - before) / rows
        average = cost.averages[ran]
        if average is None:
            cost.averages[ran] = cost.first_averages[ran] = rate
        else:
            rate = average + STEP_WEIGHT * (rate - average)
            cost.averages[ran] = rate
            first = cost.first_averages[ran]
            if not first / DRIFT_FACTOR <= rate <= first * DRIFT_FACTOR:
                cost.first_averages[ran] = rate
                cost.sampled_work *= rate / first if first else 1.0
                cost.averages[1 - ran] = None
        collapsed, recursive = cost.averages
        if collapsed is not None:
            is_cheap = collapsed * rows <= self._overhead(rows)
            if is_cheap or recursive is not None:
                cost.cheaper = self._cheaper(cost, rows)
                cost.skip_count = (MEASURE_CHEAP_EVERY_N if is_cheap else MEASURE_EVERY_N) - 1

    def _cheaper(self, cost: MeasuredCost, rows: int) -> int:
        """The candidate to run: the cheaper one, as far as known."""
        collapsed, recursive = cost.averages
        if collapsed is None:
            limit = self._overhead(rows)
            if recursive is not None:
                limit = TRY_FACTOR * (recursive * rows + limit)
            return int(cost.sampled_work * rows > limit)
        return int((collapsed - (recursive or 0.0)) * rows > self._overhead(rows))

    def _overhead(self, rows: int) -> float:
        """The cost of the partial deltas, in proposals and intersections."""
        return self._partials * (WORK_PER_PARTIAL + WORK_PER_ROW * rows)


def _work(terms: Sequence[BoundTerm]) -> int:
    """Proposals and intersections of the terms since they were bound."""
    return sum([sum(map(sum, term.physical.counters.tolist())) for term in terms])


def _sample_work(terms: Sequence[BoundTerm], steps: Mapping[str, TraceStep]) -> float:
    """Estimate the work of terms that read no partial delta; a lower bound if the work is large."""
    estimate = 0.0
    measured = 0
    for term in terms:
        if term.split is None or term.is_zero(steps, None):
            continue
        name, order = term.split
        run = steps[name].run(order)
        ranges = value_ranges(run, max(1, run.rows // SAMPLE_ROWS))
        stride = -(-len(ranges) // SAMPLE_RANGES)
        for one in ranges[stride // 2 :: stride]:
            before = _work([term])
            try:
                if term.physical.plan.head:
                    for _ in term.physical.chunks([one]):
                        pass
                else:
                    term.physical.total([one])
            except WeightOverflowError:
                # The step itself raises the error, or does not compute this sum.
                return float(WORK_LIMIT * len(ranges))
            work = _work([term]) - before
            estimate += stride * work
            measured += work
            if measured > WORK_LIMIT:
                return estimate
    return estimate
