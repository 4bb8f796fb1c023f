"""A maintained N-way join: it maps deltas of the relations to the delta of the view.

::

    delta_query.step({"e": delta})
        for each term of the formula that is not zero:     formulas.terms
            run it as one generic join over old, delta and new views
        sum the terms; then add the delta to the traces

Old, delta and new are chosen per atom and are lists of immutable runs, so a self-join reads exactly
the versions that its formula names. Everything that can fail happens before the first change of
state: a step happens as a whole or not at all. Terms with an empty view are skipped, so a backfill
(all rows in the first step) is one generic join.

State: the relations' traces in the column orders that the terms need, and nothing else; no
intermediate result is kept from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.execution.bound_terms import BoundTerm, BoundTerms, Partial
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.execution.small_steps import SmallSteps
from dbsp_wcoj.formulas import DeltaTerm, Formula
from dbsp_wcoj.generic_join import MIN_PARALLEL_ROWS, parse_query
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.observer import COLLECT, OBSERVERS, current_observer, observed
from dbsp_wcoj.planning.explain import explain
from dbsp_wcoj.planning.formula_candidates import FormulaName, parse_formula
from dbsp_wcoj.planning.planner import check_constants, normalize_body
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.relations import Relations, RelationsStep
from dbsp_wcoj.storage.run import WHOLE, Ranges, value_ranges
from dbsp_wcoj.storage.trace import Staged, Trace, TraceStep
from dbsp_wcoj.zset import ZSet, accumulate

__all__ = ["DeltaQuery", "PreparedStep", "Stats"]


# Sums the pieces of a partial delta.
_collect = observed(COLLECT)(accumulate)


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a view, and the size of its state.

    Attributes:
        joins: Binary joins run so far: a product of k views counts k - 1.
        proposals: Values that were proposed, or passed to an innermost intersection, so far.
        intersections: Look-ups of proposed values in other atoms so far.
        rows_by_run: Rows of each run, oldest first, by arrangement.
        bytes: Bytes of all runs.
    """

    joins: int
    proposals: int
    intersections: int
    rows_by_run: dict[str, tuple[int, ...]]
    bytes: int


class PreparedStep(Staged):
    """A step that is computed and not committed.

    Attributes:
        delta: The view's delta.
    """

    __slots__ = ("_step", "delta")

    def __init__(self, delta: ZSet, step: RelationsStep) -> None:
        """Store the staged step and its delta."""
        self.delta = delta
        self._step = step

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of the relations."""
        return self._step.changes

    def commit(self) -> None:
        """Commit the step; only a lack of memory can still fail.

        Raises:
            DbspWcojError: This step or a later one has already been committed.
        """
        self._step.commit()


class DeltaQuery:
    """A maintained conjunctive query.

    A view computes one step at a time: a second thread gets an error, not a wrong answer. A view
    has no other protection against concurrent threads; `circuits.Circuit` has.

    Args:
        query: The query, or its text.
        formula: Name of the delta formula (`Formula`); or "auto", which chooses one for each step
            by counted work (`dbsp_wcoj.planning.formula_candidates`); or a list of terms, which is
            accepted if it is exact (`dbsp_wcoj.formulas.CustomFormula`).
        executor: Runs parts of large steps in parallel; the engine creates no threads.
        parts: The number of parts of a large step; a few per thread balance the load.
        relations: Traces that the view shares with others; the view then only has `evaluate`,
            and the caller commits the shared step once.

    Raises:
        QuerySyntaxError, UnsafeVariableError, ArityError: As `Query.parse`.
        ColumnTypeError: A constant of the query is not an int64.
        FormulaError: There is no such formula, or the terms do not add up to the delta.

    >>> view = DeltaQuery("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")
    >>> view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    ZSet({(1, 2, 3): 1})
    >>> view.step({"e": ZSet.from_rows([(1, 2)], [-1])})
    ZSet({(1, 2, 3): -1})
    >>> path = DeltaQuery("q(a, c) :- e(a, b), f(b, c)", formula=["D2 += d1 N2", "D2 += O1 d2"])
    >>> path.step({"e": ZSet.from_rows([(1, 2)]), "f": ZSet.from_rows([(2, 3)])})
    ZSet({(1, 3): 1})
    """

    def __init__(
        self,
        query: Query | str,
        *,
        formula: FormulaName | str | Sequence[DeltaTerm | str] = Formula.collapsed,
        executor: Executor | None = None,
        parts: int = 1,
        relations: Relations | None = None,
    ) -> None:
        check_type("parts", parts, int, "a number of parts")
        self.query = parse_query(query)
        self.formula = parse_formula(formula)
        check_constants(self.query)
        body = normalize_body(self.query)
        self._is_never_true = body.is_never_true
        self._executor = executor
        self._parts = parts
        self._joins = 0
        self._shared = relations is not None
        self._lock = Lock()
        self._relations = relations or Relations()
        self._plan_cache = PlanCache(self.query, body, self.formula, self._relations)
        self._small = None
        if not (self._shared or self._is_never_true or self.query.head):
            self._small = SmallSteps(self._plan_cache, self._relations)

    def step(self, deltas: Mapping[str, ZSet]) -> ZSet:
        """Apply the deltas of one step and return the delta of the view.

        Args:
            deltas: A delta for each changed relation; the others do not change.

        Returns:
            Z-set of arity ``len(query.head)``; its sum over all steps is the view.

        Raises:
            UnknownRelationError: A name is not a relation of the query.
            ArityError: A delta has another arity than its relation.
            WeightOverflowError: A weight, or a sum or product on the way to it, leaves int64.
                Formulas compute different sums: close to the limit one may raise, another not.
            DbspWcojError: Another step of the view is being computed.
            After an error the state is as before the step.

        Complexity:
            O(terms * AGM(query with the delta as one atom) * log N), independent of earlier steps;
            plus the amortised maintenance of the traces.
        """
        self._acquire()
        try:
            if self._small is not None:
                found = self._small.step(deltas)
                if found is not None:
                    self._joins += found[1]
                    return ZSet.scalar(found[0])
            step = self._stage(deltas)
            delta = self._evaluate(step)
            step.commit()
        finally:
            self._lock.release()
        return delta

    def prepare(self, deltas: Mapping[str, ZSet]) -> PreparedStep:
        """Compute a step without committing it, for callers with more work before the commit.

        Args:
            deltas: As `step`.

        Raises:
            As `step`.
        """
        step = self._stage(deltas)
        return PreparedStep(self.evaluate(step), step)

    def evaluate(self, step: RelationsStep, budget: Budget | None = None) -> ZSet:
        """Compute the view's delta of a staged step of its relations, without a change of state.

        For views that share their relations: `Relations.stage`, evaluate each view, commit.

        Args:
            step: The staged step.
            budget: Limits the step; without it there is no limit.

        Raises:
            WeightOverflowError: A weight of the result leaves int64.
            LimitError: The step uses more than the budget allows.
            DbspWcojError: The step is of other relations or of an earlier version of them, or
                another step of the view is being computed.
        """
        check_type("step", step, RelationsStep, "the result of Relations.stage")
        step.check(self._relations)
        self._acquire()
        try:
            return self._evaluate(step, budget)
        finally:
            self._lock.release()

    def step_chunks(self, deltas: Mapping[str, ZSet]) -> Iterator[ZSet]:
        """As `step`, in Z-sets of at most 65,536 rows whose sum is the delta of the view.

        For steps whose output may be larger than memory; one thread computes it. The step is
        committed when the iterator is exhausted; if the caller closes it earlier, nothing changes.
        Until then the view cannot run another step.

        Args:
            deltas: As `step`.

        Raises:
            As `step`; wrong deltas in this call, an overflow while the caller iterates.
        """
        return self._step_chunks(self._stage(deltas))

    def _step_chunks(self, step: RelationsStep) -> Iterator[ZSet]:
        self._acquire()
        try:
            if self.query.head:
                yield from self._chunks(step.by_name, None, parallel=False)
            else:
                yield self._evaluate(step)
            step.commit()
        finally:
            self._lock.release()

    def explain(self, traces: Mapping[str, Trace] | None = None) -> str:
        """Describe the plan that runs: terms, variable orders, arrangements, bounds and counts.

        The counts include all work so far, even of a step that is being computed.

        Args:
            traces: The relations to describe, by name; by default those that the view reads now,
                which is safe only in the thread that runs its steps.
        """
        plan_cache = self._plan_cache
        known = plan_cache.traces if traces is None else {n: traces[n] for n in plan_cache.traces}
        return explain(self.query, plan_cache.formula, plan_cache.terms, known)

    @property
    def terms(self) -> tuple[BoundTerm, ...]:
        """The terms planned so far, for observers; any thread may ask while another one plans."""
        return self._plan_cache.terms

    @property
    def stats(self) -> Stats:
        """Counters since the view was created, and the size of its current state."""
        counted = self._plan_cache.retired_counters.copy()
        for term in self._plan_cache.terms:
            counted += term.physical.counters.sum(axis=0)
        proposals, intersections = counted.tolist()
        rows = {}
        size = 0
        for name, trace in self._plan_cache.traces.items():
            for arrangement in trace.arrangements:
                columns = ",".join(map(str, arrangement.order))
                rows[f"{name}[{columns}]"] = tuple(run.rows for run in arrangement.spine.runs)
                size += arrangement.spine.nbytes
        return Stats(
            joins=self._joins,
            proposals=proposals,
            intersections=intersections,
            rows_by_run=rows,
            bytes=size,
        )

    @property
    def plans(self) -> dict[str, Any] | None:
        """The variable orders of the terms as lists and dicts, for `resume`; None as in a new view.

        The same object until a term is planned again.
        """
        return self._plan_cache.plans

    def resume(self, plans: dict[str, Any] | None) -> None:
        """Plan the terms again after the relations have been loaded (`Trace.load`).

        Args:
            plans: The `plans` of the view whose rows were stored, of the same query and formula;
                None to plan with statistics of the relations.

        Complexity:
            That of planning; and O(rows) for each arrangement that was not loaded.
        """
        self._plan_cache.resume(plans)

    def _stage(self, deltas: Mapping[str, ZSet]) -> RelationsStep:
        if self._shared:
            raise DbspWcojError(
                "the view shares its relations: stage the step there, evaluate all views, commit"
            )
        return self._relations.stage(deltas)

    def _acquire(self) -> None:
        # The join buffers and the delta slots serve one step at a time.
        if not self._lock.acquire(blocking=False):
            raise DbspWcojError(
                "another step of this view is being computed, or read in chunks; one at a time: "
                "wait for it, or exhaust or close its chunks"
            )

    def _evaluate(self, step: RelationsStep, budget: Budget | None = None) -> ZSet:
        if not self.query.head:
            return ZSet.scalar(self._total(step.by_name, budget))
        chunks = self._chunks(step.by_name, budget)
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(COLLECT)
        try:
            return accumulate(chunks, len(self.query.head))
        finally:
            if observer is not None:
                observer.end_phase(0)

    def _total(self, steps: Mapping[str, TraceStep], budget: Budget | None) -> int:
        """The weight of the empty row."""
        if self._is_never_true:
            return 0
        bound_terms = self._plan_cache.bind_step(steps)
        # The call that runs all terms does not pause to check the time.
        in_one_call = budget is None or not budget.has_deadline
        if bound_terms.is_sum and in_one_call and (self._parts == 1 or not _is_large(steps)):
            found = bound_terms.total()
            if found is not None:
                self._joins += found[1]
                self._plan_cache.record_cost()
                return found[0]
        products = self._products(bound_terms, steps, budget)
        return sum([physical.total(ranges, pool, budget) for physical, ranges, pool in products])

    def _chunks(
        self, steps: Mapping[str, TraceStep], budget: Budget | None, *, parallel: bool = True
    ) -> Iterator[ZSet]:
        """The rows of the view's delta, chunk by chunk."""
        if self._is_never_true:
            return
        bound_terms = self._plan_cache.bind_step(steps)
        for physical, ranges, executor in self._products(
            bound_terms, steps, budget, parallel=parallel
        ):
            yield from physical.chunks(ranges, executor, budget)

    def _products(
        self,
        bound_terms: BoundTerms,
        steps: Mapping[str, TraceStep],
        budget: Budget | None,
        *,
        parallel: bool = True,
    ) -> Iterator[tuple[PhysicalTerm, Ranges, Executor | None]]:
        """Yield the products of the step that are not zero and add to ``D_n``, ready to run.

        The products of partial deltas run here, before the terms that read them.
        """
        atoms = len(self.query.body)
        partials: dict[int, list[ZSet]] = {}
        partial: Partial | None = None
        target = 0
        for term in bound_terms.terms:
            if term.target != target:
                target = term.target
                pieces = partials.get(target - 1)
                partial = Partial(_collect(pieces, 0)) if pieces else None
            if term.is_zero(steps, partial):
                continue
            self._joins += term.joins
            physical = term.physical
            ranges, executor = WHOLE, None
            if term.partial is not None and partial is not None:
                self._plan_cache.deltas[term.partial] = partial.address(
                    physical.plan.factors[0].order
                )
            elif parallel and self._parts > 1 and term.split is not None:
                name, order = term.split
                run = steps[name].run(order)
                if run.rows >= MIN_PARALLEL_ROWS:
                    parts = min(self._parts, -(-run.rows // MIN_PARALLEL_ROWS))
                    ranges, executor = value_ranges(run, parts), self._executor
            if target == atoms:
                yield physical, ranges, executor
            elif physical.plan.head:
                partials.setdefault(target, []).extend(physical.chunks(ranges, executor, budget))
            else:
                total = ZSet.scalar(physical.total(ranges, executor, budget))
                partials.setdefault(target, []).append(total)
        self._plan_cache.record_cost()


def _is_large(steps: Mapping[str, TraceStep]) -> bool:
    """Return whether a delta of the step is large enough to be split."""
    return any(len(step.delta) >= MIN_PARALLEL_ROWS for step in steps.values())
