"""A maintained N-way join: it maps deltas of the relations to the delta of the view.

::

    delta_query.step({"e": delta})
        for each term of the formula that is not zero:     formulas.delta_terms
            run it as one generic join over old relations, deltas and new relations
        sum the results; then add the deltas to the traces

A term names a version (old, delta or new) for each atom, not for each relation. So a self-join can
read the old version of a relation in one atom and the new one in another. Everything that can fail
happens before the first change of state: a step takes effect completely or not at all. Terms with
an empty factor are skipped, so a backfill (all rows in the first step) is one generic join.

State: only the traces of the relations, which are their rows in the column orders that the terms
need. No intermediate result is kept from one step to the next.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.execution.bound_terms import BoundTerm, BoundTerms, Partial
from dbsp_wcoj.execution.chain_product import Chain, ChainProducts, find_chain
from dbsp_wcoj.execution.physical_term import TermPart, rows_of_parts, total_of_parts
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.execution.semijoin_steps import SemijoinSteps
from dbsp_wcoj.execution.semijoins import SemijoinCandidates, SemijoinReduction
from dbsp_wcoj.execution.small_steps import SmallSteps
from dbsp_wcoj.execution.term_division import divide_term
from dbsp_wcoj.formulas import DeltaTerm, Formula
from dbsp_wcoj.generic_join import parse_query
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.observer import COLLECT, OBSERVERS, current_observer, observed
from dbsp_wcoj.planning.explain import arrangement_name, explain
from dbsp_wcoj.planning.formula_candidates import FormulaName, parse_formula
from dbsp_wcoj.planning.planner import check_constants, normalize_body
from dbsp_wcoj.query import Query
from dbsp_wcoj.row_parts import RowParts
from dbsp_wcoj.storage.relations import Relations, RelationsStep
from dbsp_wcoj.storage.trace import ColumnOrder, Staged, Trace, TraceStep
from dbsp_wcoj.workers import (
    MIN_DIVIDED_ROWS,
    MIN_DIVIDED_WORK,
    MIN_PARALLEL_ROWS,
    current_workers,
)
from dbsp_wcoj.zset import ZSet, accumulate

__all__ = ["DeltaQuery", "PreparedStep", "Stats"]


# Sums the chunks of a partial delta.
_collect = observed(COLLECT)(accumulate)


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a view, and the size of its state.

    Attributes:
        joins: The number of binary joins so far; a term of k factors counts as k - 1.
        proposals: The number of values that were proposed. At the innermost level, where lists are
            intersected without a proposal, the values of the shortest list count.
        intersections: The number of look-ups of proposed values in other atoms. A test of a bit in
            the bitmap of an atom of one column is not counted.
        rows_by_run: The number of rows of each run, oldest first, by arrangement.
        bytes: The bytes of all runs.
    """

    joins: int
    proposals: int
    intersections: int
    rows_by_run: dict[str, tuple[int, ...]]
    bytes: int


class PreparedStep(Staged):
    """A step that is computed, but not committed.

    Attributes:
        delta: The view's delta.
    """

    __slots__ = ("_commit", "_step", "delta")

    def __init__(
        self, delta: ZSet, step: RelationsStep, commit: Callable[[RelationsStep], None]
    ) -> None:
        """Store the staged step, its delta and the function of the view that commits it."""
        self.delta = delta
        self._step = step
        self._commit = commit

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of the relations."""
        return self._step.changes

    def commit(self) -> None:
        """Commit the step; only a lack of memory can still fail.

        Raises:
            DbspWcojError: This step or a later one has already been committed, or another step of
                the view is being computed or read in chunks.
        """
        self._commit(self._step)


class DeltaQuery:
    """A maintained conjunctive query.

    One thread at a time may compute a step; a second thread gets an error. A large step shares its
    work with other threads if the caller lends them (`dbsp_wcoj.workers`). For concurrent readers
    use `circuits.Circuit`.

    Args:
        query: The query, or its text.
        formula: The name of the delta formula (`Formula`); or "auto", which chooses one for each
            step by counted work (`dbsp_wcoj.planning.formula_candidates`); or a list of terms,
            which is accepted if it is exact (`dbsp_wcoj.formulas.CustomFormula`).
        relations: Relations that several views share. Such a view only evaluates steps
            (`evaluate`); the caller stages and commits each step once for all views.

    Raises:
        QuerySyntaxError, UnsafeVariableError, ArityError: As `Query.parse`.
        ColumnTypeError: A constant of the query is not an int64.
        FormulaError: The formula is unknown, or its terms do not add up to the delta.

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
        relations: Relations | None = None,
    ) -> None:
        self.query = parse_query(query)
        self.formula = parse_formula(formula)
        check_constants(self.query)
        body = normalize_body(self.query)
        self._is_never_true = body.is_never_true
        self._joins = 0
        # The work for each changed row in the last step that could be divided.
        self._work_per_row = 0.0
        self._shares_relations = relations is not None
        self._lock = Lock()
        self._relations = relations or Relations()
        self._plan_cache = PlanCache(self.query, body, self.formula, self._relations)
        # The query as a chain, by the relation that changes; None if it is not one.
        self._chains: dict[str, Chain | None] = {}
        # The relations that the view may reduce, and the reduction that it uses now, if any.
        self._semijoin_candidates: SemijoinCandidates | None = None
        self._reduction: SemijoinReduction | None = None
        # A fast path, only for a result of one weight; None if the view cannot use it.
        self._small_steps: SmallSteps | SemijoinSteps | None = None
        if not (self._shares_relations or self._is_never_true):
            self._semijoin_candidates = SemijoinCandidates(self.query) or None
            self._small_steps = self._new_small_steps(self._plan_cache, self._relations, None)

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
                The intermediate sums depend on the formula, so close to the limit only some
                formulas raise this error.
            DbspWcojError: Another step of the view is being computed; or an earlier one was
                interrupted, or had no memory, while it was committed.
            An error before the commit leaves the state as it was. If the commit is interrupted or
            has no memory, the state is undefined and all later steps raise an error.

        Complexity:
            O(terms * AGM(query with the delta as one atom) * log N), independent of earlier steps;
            plus the amortised maintenance of the traces.
        """
        if self._lock.locked():  # for the smallest steps, a call less
            self._check_free()
        candidates = self._semijoin_candidates
        with self._lock:
            if candidates is not None:
                self._choose_reduction()
            if self._small_steps is not None:
                result = self._small_steps.step(deltas)
                if result is not None:  # the step was small, and is done
                    total, joins = result
                    self._joins += joins
                    if candidates is not None:
                        candidates.count(sum([len(delta) for delta in deltas.values()]))
                    return ZSet.scalar(total)
            step = self._stage(deltas)
            delta = self._evaluate(step)
            self._commit_step(step)
        return delta

    def prepare(self, deltas: Mapping[str, ZSet]) -> PreparedStep:
        """Compute a step without committing it.

        Args:
            deltas: As for `step`.

        Raises:
            The errors of `step`.
        """
        step = self._stage_alone(deltas)
        return PreparedStep(self.evaluate(step), step, self._commit)

    def evaluate(
        self,
        step: RelationsStep,
        budget: Budget | None = None,
        chain_products: ChainProducts | None = None,
    ) -> ZSet:
        """Compute the view's delta in a staged step of its relations, without a change of state.

        For views that share relations: call `Relations.stage`, `evaluate` each view, and commit the
        step.

        Args:
            step: The staged step.
            budget: Limits the step; without it there is no limit.
            chain_products: Computes large deltas of queries whose atoms form a path
                (`dbsp_wcoj.execution.chain_product`).

        Raises:
            WeightOverflowError: A weight of the result leaves int64.
            LimitError: The step uses more than the budget allows.
            DbspWcojError: The step was staged for other relations or for an earlier version of
                them, or another step of the view is being computed.
        """
        check_type("step", step, RelationsStep, "the result of Relations.stage")
        step.check(self._relations)
        self._check_free()
        with self._lock:
            return self._evaluate(step, budget, chain_products)

    def evaluate_chain(
        self, step: RelationsStep, budget: Budget | None, chain_products: ChainProducts
    ) -> RowParts | None:
        """Compute the view's delta as a chain product, in any order; None if it is not one.

        The arguments and errors are those of `evaluate`.
        """
        check_type("step", step, RelationsStep, "the result of Relations.stage")
        step.check(self._relations)
        self._check_free()
        with self._lock:
            return self._multiply_chain(step.by_name, budget, chain_products)

    def step_chunks(self, deltas: Mapping[str, ZSet]) -> Iterator[ZSet]:
        """Like `step`, but yield Z-sets of at most 65,536 rows whose sum is the delta of the view.

        For steps whose output may be larger than memory; one thread computes it. The step is
        committed when the iterator is exhausted. If the caller closes the iterator earlier, nothing
        changes. From the first chunk until then, the view cannot run another step.

        Args:
            deltas: As for `step`.

        Raises:
            The errors of `step`: for wrong deltas at once, for an overflow during the iteration.
            DbspWcojError: Another step was committed before the first chunk was read.
        """
        return self._step_chunks(self._stage_alone(deltas))

    def _step_chunks(self, step: RelationsStep) -> Iterator[ZSet]:
        self._check_free()
        with self._lock:
            step.check(self._relations)
            if self.query.head:
                yield from self._chunks(step.by_name, step.rows, None, among_threads=False)
            else:
                yield self._evaluate(step)
            self._commit_step(step)

    def explain(
        self, traces: Mapping[str, Trace] | None = None, *, arrangements: bool = True
    ) -> str:
        """Describe the plan that runs: terms, variable orders, arrangements, bounds and counts.

        The counts include all work so far, even of a step that is being computed.

        Args:
            traces: The relations to describe, by name; by default those that the view reads now,
                which is safe only in the thread that runs its steps.
            arrangements: False to leave out the arrangements and their sizes.
        """
        plan_cache = self._plan_cache
        if traces is None:
            traces = plan_cache.traces
        else:
            traces = {name: traces[name] for name in plan_cache.traces}
        if arrangements:
            traces = {**traces, **self._full_traces}
        return explain(
            self.query,
            plan_cache.formula,
            plan_cache.terms,
            traces,
            names=[atom.relation for atom in self._planned_query.body],
            arrangements=arrangements,
        )

    def column_orders(self) -> Mapping[str, Collection[ColumnOrder]]:
        """Return the column orders in which the view reads each relation now; for any thread."""
        return self._plan_cache.column_orders()

    @property
    def terms(self) -> tuple[BoundTerm, ...]:
        """The terms planned so far; any thread may read them while another one plans."""
        return self._plan_cache.terms

    @property
    def stats(self) -> Stats:
        """Counters since the view was created, and the size of its current state."""
        counters = self._plan_cache.retired_counters.copy()
        for term in self._plan_cache.terms:
            counters += term.physical.counters.sum(axis=0)
        proposals, intersections = counters.tolist()
        rows = {}
        size = 0
        for name, trace in {**self._plan_cache.traces, **self._full_traces}.items():
            for arrangement in trace.arrangements:
                runs = arrangement.spine.runs
                rows[arrangement_name(name, arrangement.order)] = tuple(run.rows for run in runs)
                size += arrangement.spine.nbytes
        if self._reduction is not None:
            size += sum([full.log_bytes for full in self._reduction.full.values()])
        return Stats(
            joins=self._joins,
            proposals=proposals,
            intersections=intersections,
            rows_by_run=rows,
            bytes=size,
        )

    @property
    def plans(self) -> dict[str, Any] | None:
        """The variable orders of the terms as lists and dicts, for `resume`.

        None if a new view would plan the same orders. The result is the same object until a term is
        planned again.
        """
        return self._plan_cache.plans

    def has_orders_of(self, plans: object) -> bool:
        """Return whether the terms have the variable orders of a value of `plans`."""
        return self._plan_cache.has_orders_of(plans)

    def resume(self, plans: dict[str, Any] | None) -> None:
        """Plan the terms again after the relations have been loaded (`Trace.load`).

        Terms whose variable orders stay the same are not compiled again.

        Args:
            plans: The value of `plans` when the relations were stored, with the same query and
                formula; None to plan with statistics of the relations.

        Raises:
            DbspWcojError: A step of the view is being computed or read in chunks.

        Complexity:
            That of planning; and O(rows) for each arrangement that was not loaded.
        """
        self._check_free()
        with self._lock:
            self._plan_cache.resume(plans)

    @property
    def _planned_query(self) -> Query:
        """The query over the relations that are planned: the reduced ones, if there are any."""
        return self.query if self._reduction is None else self._reduction.query

    @property
    def _full_traces(self) -> dict[str, Trace]:
        """The full relations behind the reduced ones, without the newest rows."""
        if self._reduction is None:
            return {}
        return {name: full.unread_trace for name, full in self._reduction.full.items()}

    def _new_small_steps(
        self, plan_cache: PlanCache, relations: Relations, reduction: SemijoinReduction | None
    ) -> SmallSteps | SemijoinSteps | None:
        if self.query.head:
            return None
        if reduction is not None:
            return SemijoinSteps(plan_cache, relations, reduction)
        return SmallSteps(plan_cache, relations)

    def _choose_reduction(self) -> None:
        """Reduce other relations if the changed rows have doubled since the last choice.

        Call this before a step is staged. The choice is due after a commit, so no other step that
        is staged can still be committed. After an error the view is as it was, and the next step
        does not try again.

        Complexity:
            O(n) if the choice is due.
        """
        candidates = self._semijoin_candidates
        if candidates is None or not candidates.is_due:
            return
        self._relations.check_committed()
        candidates.set_next_choice()
        if self._reduction is None:
            chosen = candidates.choose(self._plan_cache.traces)
            if chosen:
                self._reduce(SemijoinReduction(self.query, candidates.by_atom, chosen))
        elif not self._reduction.is_worthwhile:
            self._reduce(None)

    def _reduce(self, reduction: SemijoinReduction | None) -> None:
        """Plan and store the query over reduced relations, or over the full ones.

        Complexity:
            O(n).
        """
        full = dict(self._plan_cache.traces)
        if self._reduction is not None:
            full |= {name: deferred.read() for name, deferred in self._reduction.full.items()}
        query = self.query if reduction is None else reduction.query
        stats = self.stats
        relations = Relations()
        plan_cache = PlanCache(query, normalize_body(query), self.formula, relations)
        for name, trace in relations.traces.items():
            if name in full:
                trace.load({a.order: a.spine.runs for a in full[name].arrangements})
        if reduction is not None:
            reduction.bind(relations, full)
        plan_cache.resume(None)
        plan_cache.retired_counters += np.array([stats.proposals, stats.intersections])
        small_steps = self._new_small_steps(plan_cache, relations, reduction)
        # No interrupt arrives between these assignments, because they call nothing.
        self._relations, self._plan_cache, self._reduction = relations, plan_cache, reduction
        self._small_steps = small_steps
        if reduction is not None:
            reduction.drop_unread()

    def _stage_alone(self, deltas: Mapping[str, ZSet]) -> RelationsStep:
        """Stage a step that is evaluated later."""
        if self._semijoin_candidates is not None and self._semijoin_candidates.is_due:
            self._check_free()
            with self._lock:
                self._choose_reduction()
        return self._stage(deltas)

    def _stage(self, deltas: Mapping[str, ZSet]) -> RelationsStep:
        if self._shares_relations:
            raise DbspWcojError(
                "the view shares its relations: stage the step there, evaluate all views, commit"
            )
        if self._reduction is not None:
            return self._reduction.stage(deltas)
        return self._relations.stage(deltas)

    def _commit(self, step: RelationsStep) -> None:
        # A join that pauses between two chunks reads the runs that a commit replaces.
        self._check_free()
        with self._lock:
            self._commit_step(step)

    def _commit_step(self, step: RelationsStep) -> None:
        step.commit()
        if self._semijoin_candidates is not None:
            self._semijoin_candidates.count(step.rows)

    def _check_free(self) -> None:
        # All steps write to the same join buffers and the same array of delta addresses. The lock
        # is then taken by a ``with`` statement: an interrupt after `Lock.acquire` would leave it
        # held. A thread that is between the two waits for the other one.
        if self._lock.locked():
            raise DbspWcojError(
                "another step of this view is being computed or read in chunks; a view runs one "
                "at a time: wait for it, or exhaust or close its chunks"
            )

    def _evaluate(
        self,
        step: RelationsStep,
        budget: Budget | None = None,
        chain_products: ChainProducts | None = None,
    ) -> ZSet:
        rows = self._count_changed_rows(step.by_name)
        if rows < MIN_DIVIDED_ROWS:
            return self._evaluate_rows(step, rows, budget, chain_products)
        before = self._count_work()
        delta = self._evaluate_rows(step, rows, budget, chain_products)
        self._work_per_row = (self._count_work() - before) / rows
        return delta

    def _evaluate_rows(
        self,
        step: RelationsStep,
        rows: int,
        budget: Budget | None,
        chain_products: ChainProducts | None,
    ) -> ZSet:
        """Return the delta of a step, given the number of its rows that the view reads."""
        if not self.query.head:
            return ZSet.scalar(self._total(step.by_name, rows, budget))
        if chain_products is not None:
            product = self._multiply_chain(step.by_name, budget, chain_products)
            if product is not None:
                return product.sorted()
        if self._plan_cache.is_due(rows) and self._is_zero(step.by_name):
            changed = tuple(name for name in self._plan_cache.traces if name in step.by_name)
            self._plan_cache.plan_step(changed, rows)
            return ZSet.empty(len(self.query.head))
        chunks = self._chunks(step.by_name, rows, budget, among_threads=self._can_be_shared(rows))
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(COLLECT)
        try:
            return accumulate(chunks, len(self.query.head))
        finally:
            # If the sum has failed, an error may keep the generator alive. Until it ends, the terms
            # read what they read in this step.
            chunks.close()
            if observer is not None:
                observer.end_phase(0)

    def _is_zero(self, steps: Mapping[str, TraceStep]) -> bool:
        """Return whether a relation has no rows before and after the step, and so has the view."""
        if self._reduction is not None:
            return False
        traces = self._plan_cache.traces.items()
        return any(name not in steps and trace.is_empty for name, trace in traces)

    def _multiply_chain(
        self,
        steps: Mapping[str, TraceStep],
        budget: Budget | None,
        chain_products: ChainProducts,
    ) -> RowParts | None:
        """Return the view's delta as a chain product; None if it is not one."""
        changed = [name for name in self._plan_cache.traces if name in steps]
        if len(changed) != 1 or not chain_products.is_large(steps[changed[0]]):
            return None
        (name,) = changed
        if name not in self._chains:
            self._chains[name] = find_chain(self.query, name)
        chain = self._chains[name]
        if chain is None:
            return None
        # The traces get the column orders of later steps all the same.
        self._plan_cache.plan_step((name,), steps[name].rows)
        return chain_products.multiply_parts(chain, steps[name], self._plan_cache.traces, budget)

    def _total(self, steps: Mapping[str, TraceStep], rows: int, budget: Budget | None) -> int:
        """The weight of the empty row in the view's delta."""
        if self._is_never_true:
            return 0
        bound_terms = self._plan_cache.bind_step(steps, budget)
        # One kernel call can run all terms, but it does not check the time.
        has_deadline = budget is not None and budget.has_deadline
        among_threads = self._can_be_shared(rows)
        in_parts = among_threads or (rows >= MIN_DIVIDED_ROWS and _reads_maps(bound_terms))
        with bound_terms.prepared_lists(steps), bound_terms.merged_runs(steps):
            if bound_terms.is_sum and not has_deadline and not in_parts:
                result = bound_terms.total()
                if result is not None:
                    total, joins = result
                    self._joins += joins
                    self._plan_cache.record_cost()
                    return total
            terms = self._runnable_terms(bound_terms, steps, budget, parallel=among_threads)
            if among_threads and not bound_terms.reads_partial:
                total = total_of_parts(list(chain.from_iterable(terms)), budget)
            else:
                total = sum([_total_of(parts, budget) for parts in terms])
            self._plan_cache.record_cost()
            return total

    def _chunks(
        self,
        steps: Mapping[str, TraceStep],
        rows: int,
        budget: Budget | None,
        *,
        among_threads: bool,
    ) -> Generator[ZSet, None, None]:
        """The rows of the view's delta, chunk by chunk, given the number of rows of the step."""
        if self._is_never_true:
            return
        bound_terms = self._plan_cache.bind_step(steps, budget)
        if not among_threads and rows < MIN_DIVIDED_ROWS and bound_terms.run_as_they_are(rows):
            for term in bound_terms.terms:
                if not term.is_zero(steps, None):
                    self._joins += term.joins
                    yield from term.physical.chunks(budget=budget)
            self._plan_cache.record_cost()
            return
        with bound_terms.prepared_lists(steps), bound_terms.merged_runs(steps):
            terms = self._runnable_terms(bound_terms, steps, budget, parallel=among_threads)
            # The run of a partial delta exists only until its readers have run.
            if among_threads and not bound_terms.reads_partial:
                yield from rows_of_parts(list(chain.from_iterable(terms)), budget)
            else:
                for parts in terms:
                    yield from _chunks_of(parts, budget)
            self._plan_cache.record_cost()

    def _can_be_shared(self, rows: int) -> bool:
        """Return whether workers are to share the joins of a step of so many rows."""
        work = rows * self._work_per_row
        is_worth_it = rows >= MIN_DIVIDED_ROWS and work >= MIN_DIVIDED_WORK
        return (rows >= MIN_PARALLEL_ROWS or is_worth_it) and current_workers() is not None

    def _count_changed_rows(self, steps: Mapping[str, TraceStep]) -> int:
        """Return the number of changed rows that the view reads.

        The steps are not iterated over: another thread may add those of other relations.
        """
        changed = [steps.get(name) for name in self._plan_cache.traces]
        return sum([step.rows for step in changed if step is not None])

    def _count_work(self) -> int:
        """Return how many values were proposed or looked up so far."""
        counters = self._plan_cache.retired_counters.sum()
        return int(counters + sum(term.physical.counters.sum() for term in self._plan_cache.terms))

    def _runnable_terms(
        self,
        bound_terms: BoundTerms,
        steps: Mapping[str, TraceStep],
        budget: Budget | None,
        *,
        parallel: bool,
    ) -> Iterator[Sequence[TermPart]]:
        """Yield the terms of the step that are not zero and add to ``D_n``, ready to run.

        The terms of partial deltas run here, before the terms that read them.

        Yields:
            The parts of a term that is bound to runs; one part if this thread computes it alone.
        """
        atoms = len(self.query.body)
        # The chunks of each partial delta, and the one that the terms of `target` read.
        partials: dict[int, list[ZSet]] = {}
        partial: Partial | None = None
        target = 0
        for term in bound_terms.terms:
            if term.target != target:
                target = term.target
                chunks = partials.pop(target - 1, None)
                partial = Partial(_collect(chunks, 0)) if chunks else None
            if term.is_zero(steps, partial):
                continue
            self._joins += term.joins
            physical = term.physical
            if term.partial_slot is not None and partial is not None:
                self._plan_cache.deltas[term.partial_slot] = partial.address(
                    physical.plan.factors[0].order
                )
            for parts in divide_term(term, steps, parallel=parallel):
                if target == atoms:
                    yield parts
                elif physical.plan.head:
                    partials.setdefault(target, []).extend(_chunks_of(parts, budget))
                else:
                    total = ZSet.scalar(_total_of(parts, budget))
                    partials.setdefault(target, []).append(total)


def _total_of(parts: Sequence[TermPart], budget: Budget | None) -> int:
    if len(parts) > 1:
        return total_of_parts(parts, budget)
    return parts[0].term.total(budget=budget)


def _chunks_of(parts: Sequence[TermPart], budget: Budget | None) -> Iterable[ZSet]:
    if len(parts) > 1:
        return rows_of_parts(parts, budget)
    return parts[0].term.chunks(budget=budget)


def _reads_maps(bound_terms: BoundTerms) -> bool:
    """Return whether a term reads a memory map of a file."""
    return any(spine.mapped_bytes for term in bound_terms.terms for spine in term.physical.spines)
