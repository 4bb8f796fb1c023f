"""Adaptive formula selection: measure the work of two delta formulas and run the cheaper one.

The first candidate is `collapsed`, the second a recursive formula over partial deltas
(`dbsp_wcoj.planning.formula_candidates`). Statistics predict the work of a step poorly when the
data is skewed, but the engine counts the work of each step. So the selection keeps the average work
per changed row of each candidate, separately for each magnitude of the delta, and runs the
candidate with the lower average. It runs the recursion if

::

    (work of collapsed - work of the recursion) * rows
        > partial deltas * (WORK_PER_PARTIAL + WORK_PER_ROW * rows)

The right side is the overhead of the recursion: each partial delta is summed, sorted and built into
a run, which is not counted as work. A candidate without an average is tried if it may be cheaper.
The recursion is always safe to try, because its work is bounded. The work of `collapsed` is bounded
only by the number of rows of the join; so if a delta has more than a few rows, a sample of them
is joined first.

A measurement takes a microsecond per term. So once both averages are known, only one step in
`MEASURE_EVERY_N` is measured; if all the work of `collapsed` is less than the overhead of the
recursion, only one in `MEASURE_CHEAP_EVERY_N`.

The selection is deterministic: the same steps lead to the same choices; there is no clock. If the
average of one candidate has changed by `DRIFT_FACTOR`, the average of the other one is out of date
too, and the selection measures it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dbsp_wcoj.errors import WeightOverflowError
from dbsp_wcoj.execution.bound_terms import BoundTerm, BoundTerms
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.storage.run import value_ranges
from dbsp_wcoj.storage.trace import TraceStep

__all__ = ["AdaptiveFormula"]

# The overhead of one partial delta, and of each of its rows, as the number of proposals and
# intersections that take as long.
WORK_PER_PARTIAL: Final = 1000
WORK_PER_ROW: Final = 0.75
# The weight of one step in the averages, and the change after which the other average is out of
# date.
STEP_WEIGHT: Final = 1 / 8
DRIFT_FACTOR: Final = 4.0
MEASURE_EVERY_N: Final = 4
MEASURE_CHEAP_EVERY_N: Final = 16
# `collapsed` is tried if the sample predicts less than this multiple of the recursion's work. The
# sample predicts too much: the join of all rows reuses more memoized results than that of a sample.
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
        averages: The measured work of each candidate per changed row; None if not measured.
        first_averages: The first value of each average; after a change by `DRIFT_FACTOR`, the value
            at that change.
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


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step that is being measured.

    Attributes:
        cost: The measurements of its magnitude.
        rows: The number of changed rows.
        candidate: The candidate that runs.
        work_before: The work of the candidate's terms before the step.
    """

    cost: MeasuredCost
    rows: int
    candidate: int
    work_before: int


class AdaptiveFormula:
    """The candidates for steps that change certain relations, and their measured costs.

    Args:
        candidates: The terms of each formula; one or two formulas.

    Attributes:
        is_measuring: True if `record_cost` has to be called after the current step.
        fixed_terms: The terms of every step, if there is no choice; else None.
        costs: The measurements, by the number of binary digits of the number of changed rows.
    """

    __slots__ = (
        "_candidates",
        "_measured_step",
        "_partial_count",
        "costs",
        "fixed_terms",
        "is_measuring",
    )

    def __init__(self, candidates: Sequence[BoundTerms]) -> None:
        self._candidates = candidates
        self.is_measuring = False
        is_fixed = len(candidates) == 1 or candidates[0].terms == candidates[1].terms
        self.fixed_terms = candidates[0] if is_fixed else None
        self._partial_count = sum(term.partial_slot is not None for term in candidates[-1].terms)
        self.costs: dict[int, MeasuredCost] = {}
        self._measured_step: MeasuredStep | None = None

    def choose(
        self, rows: int, steps: Mapping[str, TraceStep], budget: Budget | None = None
    ) -> BoundTerms:
        """Choose the terms of a step.

        The addresses of the step's delta runs are already in their slots
        (`dbsp_wcoj.execution.plan_cache`). If `is_measuring` is true afterwards, call `record_cost`
        after the step, unless the step fails.

        Args:
            rows: The number of changed rows.
            steps: The staged delta of each changed relation.
            budget: Limits the time of the sample; rows of the sample are not counted.

        Raises:
            LimitError: The step has taken too long.
        """
        self.is_measuring = False
        cost = self.costs.get(rows.bit_length())
        if cost is None:
            is_large = rows > SAMPLE_RANGES * SAMPLE_ROWS
            sampled_work = 0.0
            if is_large:
                sampled_work = _sample_work(self._candidates[0].terms, steps, budget)
            cost = self.costs[rows.bit_length()] = MeasuredCost(sampled_work / rows)
        elif cost.skip_count:
            cost.skip_count -= 1
            cost.step_counts[cost.cheaper] += 1
            return self._candidates[cost.cheaper]
        chosen = self._cheaper(cost, rows)
        bound_terms = self._candidates[chosen]
        cost.step_counts[chosen] += 1
        self._measured_step = MeasuredStep(cost, rows, chosen, _work(bound_terms.terms))
        self.is_measuring = True
        return bound_terms

    def record_cost(self) -> None:
        """Record the measured cost of the step that was just run."""
        step = self._measured_step
        if step is None:
            return
        self._measured_step, self.is_measuring = None, False
        cost, rows, candidate = step.cost, step.rows, step.candidate
        work_per_row = (_work(self._candidates[candidate].terms) - step.work_before) / rows
        average = cost.averages[candidate]
        if average is None:
            cost.averages[candidate] = cost.first_averages[candidate] = work_per_row
        else:
            average += STEP_WEIGHT * (work_per_row - average)
            cost.averages[candidate] = average
            first = cost.first_averages[candidate]
            if not first / DRIFT_FACTOR <= average <= first * DRIFT_FACTOR:
                cost.first_averages[candidate] = average
                cost.sampled_work *= average / first if first else 1.0
                cost.averages[1 - candidate] = None
        collapsed, recursive = cost.averages
        if collapsed is not None:
            is_cheap = collapsed * rows <= self._overhead(rows)
            if is_cheap or recursive is not None:
                cost.cheaper = self._cheaper(cost, rows)
                cost.skip_count = (MEASURE_CHEAP_EVERY_N if is_cheap else MEASURE_EVERY_N) - 1

    def _cheaper(self, cost: MeasuredCost, rows: int) -> int:
        """The number of the candidate to run: 0 for `collapsed`, 1 for the recursion."""
        collapsed, recursive = cost.averages
        if collapsed is None:
            # The recursion runs if the sample predicts more work of `collapsed` than this.
            max_work = self._overhead(rows)
            if recursive is not None:
                max_work = TRY_FACTOR * (recursive * rows + max_work)
            return int(cost.sampled_work * rows > max_work)
        return int((collapsed - (recursive or 0.0)) * rows > self._overhead(rows))

    def _overhead(self, rows: int) -> float:
        """The cost of the partial deltas, in proposals and intersections."""
        return self._partial_count * (WORK_PER_PARTIAL + WORK_PER_ROW * rows)


def _work(terms: Sequence[BoundTerm]) -> int:
    """Proposals and intersections of the terms since they were bound."""
    return sum([sum(map(sum, term.physical.counters.tolist())) for term in terms])


class _SampleEnd(Exception):
    """A sample has taken `WORK_LIMIT` work."""


class _SampleBudget(Budget):
    """Ends the sample of a term when it has taken enough work; checks the time of the step.

    Args:
        term: The term.
        max_work: The work after which the sample ends.
        budget: The budget of the step.
    """

    __slots__ = ("_max_work", "_step_budget", "_term")

    def __init__(self, term: BoundTerm, max_work: int, budget: Budget | None) -> None:
        super().__init__(StepLimits.off())
        self._term = term
        self._max_work = max_work + _work([term])
        self._step_budget = budget

    def add_rows(self, rows: int, columns: int) -> None:
        self.check_time()

    def check_time(self) -> None:
        if self._step_budget is not None:
            self._step_budget.check_time()
        if _work([self._term]) > self._max_work:
            raise _SampleEnd


def _sample_work(
    terms: Sequence[BoundTerm], steps: Mapping[str, TraceStep], budget: Budget | None
) -> float:
    """Estimate the work of terms that read no partial delta, from a sample of the changed rows.

    If the sample itself takes too much work, it ends early, and the estimate is a lower bound.

    Raises:
        LimitError: The step has taken too long.
    """
    estimate = 0.0
    measured = 0
    for term in terms:
        if term.split is None or term.is_zero(steps, None):
            continue
        run = steps[term.split.name].run(term.split.order)
        ranges = value_ranges(run, max(1, run.rows // SAMPLE_ROWS))
        stride = -(-len(ranges) // SAMPLE_RANGES)
        for value_range in ranges[stride // 2 :: stride]:
            work_before = _work([term])
            sample_budget = _SampleBudget(term, WORK_LIMIT - measured, budget)
            try:
                if term.physical.plan.head:
                    for _ in term.physical.chunks([value_range], sample_budget):
                        pass
                else:
                    term.physical.total([value_range], sample_budget)
            except _SampleEnd:
                pass
            except WeightOverflowError:
                # The step itself raises the error, or does not compute this sum.
                return float(WORK_LIMIT * len(ranges))
            work = _work([term]) - work_before
            estimate += stride * work
            measured += work
            if measured > WORK_LIMIT:
                return estimate
    return estimate
