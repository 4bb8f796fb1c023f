"""Plan cache: the terms of a query, planned and bound to the data that they read, for all steps.

A term is one product of a delta formula: a join of old, new and delta versions of the relations. A
step runs the terms that read a changed relation. For each set of changed relations the cache keeps
the list of these terms, so a step only makes decisions that depend on its data.

The terms read the relations in several column orders. A trace stores a relation; an arrangement is
the trace in one column order. The cache requests the arrangements that its terms need. It also owns
the array with the addresses of the delta runs of a step. A slot is an index of this array.

Terms are planned first without statistics of the relations, and again with statistics each time the
number of changed rows has grown eightfold: O(log rows) times. New plans may read arrangements that
do not exist. These are built a slice at a time, and the old plans run until all are complete. Then
arrangements that no plan reads any more are dropped. Results do not depend on the plans. When
relations are loaded from storage, terms are planned as they were when the relations were stored
(`PlanCache.plans`, `PlanCache.resume`), so that they need exactly the stored arrangements.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.execution.bound_terms import (
    BoundTerm,
    BoundTerms,
    CycleFactor,
    RelationFactor,
    SplitDelta,
)
from dbsp_wcoj.execution.join_buffers import JoinBuffers
from dbsp_wcoj.execution.physical_term import PhysicalTerm, Source
from dbsp_wcoj.formulas import (
    PARTIAL,
    CustomFormula,
    DeltaTerm,
    Formula,
    SymmetricFormula,
    Version,
    count_joins,
    delta_terms,
)
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.observer import OBSERVERS, PLAN, current_observer
from dbsp_wcoj.planning.adaptive_formula import AdaptiveFormula
from dbsp_wcoj.planning.formula_candidates import FormulaName, describe_choice, formula_candidates
from dbsp_wcoj.planning.planner import Body, TermPlan
from dbsp_wcoj.planning.statistics import Statistics, sample_largest_run
from dbsp_wcoj.planning.symmetry import find_symmetries
from dbsp_wcoj.planning.term_planner import TermPlanner
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.storage.trace import ColumnOrder, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["PlanCache"]

# If a formula has more joins per atom (`expanded` with many atoms), its terms are planned only when
# a step needs them.
MAX_JOINS_PER_ATOM_AHEAD: Final = 512
MAX_DELTA_SLOTS: Final = 4096
# Changed rows before the first plan with statistics, and the growth before the next one.
FIRST_REPLAN_ROWS: Final = 1024
REPLAN_GROWTH_FACTOR: Final = 8
# If there are more terms, they are not planned again, because it takes too long.
MAX_REPLAN_TERMS: Final = 128
NEVER: Final = 1 << 62
# The most sets of changed relations whose terms are kept; n relations have 2^n sets.
MAX_CACHED_CHANGES: Final = 1024


class PlanCache:
    """All terms of a query under one formula, or under the candidates of ``auto``.

    Attributes:
        deltas: The addresses of the delta runs of the current step, by slot.
        traces: The trace of each relation of the query.
        retired_counters: The number of proposals and intersections that terms had counted when they
            were planned again, which sets their own counters to zero.
    """

    def __init__(
        self, query: Query, body: Body, formula: FormulaName, relations: Relations
    ) -> None:
        """Plan the terms, and request the arrangements that they read."""
        self._query = query
        self._body = body
        self._formula = formula
        self._planner = planner = TermPlanner(query, body)
        self._formulas, self._reason = formula_candidates(
            formula,
            body.columns,
            planner.partial_columns,
            find_symmetries([atom.relation for atom in query.body], body, query.head),
        )
        # The terms planned so far, and the formula selection for each set of changed relations.
        self._bound: dict[DeltaTerm, BoundTerm] = {}
        # Those used last are at the end.
        self._by_change: OrderedDict[tuple[str, ...], AdaptiveFormula] = OrderedDict()
        # The formula selection that measures the current step; None if the step is not measured.
        self._measuring: AdaptiveFormula | None = None
        # The slot in `deltas` for each (relation or partial delta, column order); and the same by
        # relation or partial delta. A partial delta is the result of a term that is an input of
        # other terms; its name is a number, not a text.
        self._slots: dict[tuple[str | int, ColumnOrder], int] = {}
        self._slots_of: dict[str | int, list[tuple[ColumnOrder, int]]] = {}
        self._buffers = JoinBuffers()
        # The relations whose delta addresses are in their slots.
        self._filled: tuple[str, ...] = ()
        self.deltas: Int64Array = np.zeros(MAX_DELTA_SLOTS, np.int64)
        atoms = len(query.body)
        is_planned_ahead = count_joins(self._formulas[0], atoms) <= MAX_JOINS_PER_ATOM_AHEAD * atoms
        # Arrangements for terms that are planned later are built from the rows of the trace.
        names = [atom.relation for atom in query.body]
        self.traces = {
            name: relations.declare(
                name,
                arity,
                keep_rows=not is_planned_ahead,
                occurrences=names.count(name),
            )
            for name, arity in query.relations.items()
        }
        self._statistics: Statistics | None = None
        self._changes = 0
        # With two atoms, statistics would not change a plan.
        self._replan_at = FIRST_REPLAN_ROWS if atoms > 2 else NEVER
        self._is_planned_ahead = is_planned_ahead
        # The cached value of `plans`; and whether the plans differ from those of a new cache.
        self._plans: dict[str, Any] | None = None
        self._has_own_plans = False
        # The plans that take the place of the current ones when their arrangements are built.
        self._next_plans: dict[DeltaTerm, TermPlan] = {}
        # While terms are planned again: what the plans made so far will read.
        self._expected_orders: set[tuple[str | int, ColumnOrder]] = set()
        # Variable orders that `resume` prescribes while it binds the terms.
        self._prescribed_orders: dict[DeltaTerm, tuple[str, ...]] = {}
        self.retired_counters: Int64Array = np.zeros(2, np.int64)
        relations.add_reader(self.column_orders)
        self._relations = relations
        for candidate in self._formulas:
            for term in self._terms_ahead(candidate):
                self._bind(term)
        # A copy for other threads, replaced whenever terms have been planned.
        self._published_terms: tuple[BoundTerm, ...] = tuple(self._bound.values())

    @property
    def terms(self) -> tuple[BoundTerm, ...]:
        """The terms planned so far; any thread may read this while another one plans."""
        return self._published_terms

    @property
    def formula(self) -> str:
        """The formula, or the candidates and the reason for them; for `explain`."""
        # A copy, because another thread may be planning.
        selections = tuple(self._by_change.items())
        return describe_choice(self._formula, self._formulas, self._reason, selections)

    @property
    def plans(self) -> dict[str, Any] | None:
        """The variable orders of the terms, as JSON values; the argument of `resume`.

        None while all terms are planned as in a new cache. The same object is returned until a term
        is planned again.
        """
        if self._plans is None and self._has_own_plans:
            positions = {name: position for position, name in enumerate(self._variables)}
            orders = {
                str(term): [positions[name] for name in order]
                for term, order in self._variable_orders().items()
            }
            # "again": the number of changed rows at which terms are planned again. After a restart
            # this is soon, if the next plans are waiting for their arrangements.
            replan_at = self._changes if self._next_plans else self._replan_at
            self._plans = {"again": replan_at, "orders": orders}
        return self._plans

    def has_orders_of(self, plans: object) -> bool:
        """Return whether `resume` with these plans, if they are valid, keeps all terms.

        Other plans, of which some may be invalid, can fail.
        """
        own = self.plans
        if own is None or not isinstance(plans, dict):
            return plans is own
        return plans.get("orders") == own["orders"] and isinstance(plans.get("again"), int)

    def resume(self, plans: Mapping[str, Any] | None) -> None:
        """Plan the terms again after the relations' traces have been loaded.

        If the variable orders and the arrangements stay the same, so do the compiled terms.

        Args:
            plans: The `plans` of the cache whose relations were stored, of the same query and
                formula; or None.

        Complexity:
            That of planning, plus O(rows) for each arrangement that was not loaded.
        """
        if not self._is_planned_ahead:
            # Each trace needs an arrangement from which those of later terms are built.
            for trace in self.traces.values():
                trace.arrange(tuple(range(trace.arity)))
        # All arrangements of a trace have the same rows, so the first one is counted.
        self._changes = sum(
            arrangement.spine.rows
            for trace in self.traces.values()
            for arrangement in trace.arrangements[:1]
        )
        replanned = list(self._bound)
        current_orders = self._variable_orders()
        self._next_plans = {}
        self._plans, self._has_own_plans = None, plans is not None
        if plans is not None:
            self._replan_at = plans["again"]
            names = self._variables
            stored_orders = {
                DeltaTerm.parse(text): tuple(names[position] for position in order)
                for text, order in plans["orders"].items()
            }
            replanned += [term for term in stored_orders if term not in self._bound]
            self._prescribed_orders = current_orders | stored_orders
        elif self._changes < self._replan_at:
            self._prescribed_orders = current_orders  # too few rows for statistics
        elif len(replanned) <= MAX_REPLAN_TERMS:
            self._replan_at = REPLAN_GROWTH_FACTOR * self._changes
            self._collect_statistics({})
            self._has_own_plans = True
        if self._prescribed_orders != current_orders or not self._reads_arrangements():
            self._rebind(replanned)
        else:
            self._clear_slots()
        self._prescribed_orders = {}

    def bind_step(self, steps: Mapping[str, TraceStep], budget: Budget | None = None) -> BoundTerms:
        """Return the terms of a step in the order in which they run, bound to the step's deltas.

        Args:
            steps: The staged deltas of the changed relations, none empty.
            budget: Limits the time of the step; selecting a formula may join a sample of its rows.

        Raises:
            LimitError: The step has taken too long.
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(PLAN)
        try:
            with self._relations.planning:
                return self._bind_step(steps, budget)
        finally:
            if observer is not None:
                observer.end_phase(0)

    def _bind_step(self, steps: Mapping[str, TraceStep], budget: Budget | None) -> BoundTerms:
        self._measuring = None
        changed = tuple([name for name in self.traces if name in steps])
        rows = 0
        for name in changed:
            rows += steps[name].rows
        self._changes += rows
        if self._changes >= self._replan_at:
            self._replan(steps)
        if self._next_plans:
            self._use_next_plans(rows)
        selection = self._by_change.get(changed) or self._plan_change(changed)
        deltas = self.deltas
        if changed != self._filled:
            self._switch_slots(changed)
        for name in changed:
            run = steps[name].run
            for order, slot in self._slots_of.get(name, ()):
                deltas[slot] = run(order).address
        if selection.fixed_terms is not None:
            return selection.fixed_terms
        chosen = selection.choose(rows, steps, budget)
        if selection.is_measuring:
            self._measuring = selection
        return chosen

    def is_due(self, rows: int) -> bool:
        """Return whether a step that changes ``rows`` rows plans terms again, if it runs any."""
        return self._changes + rows >= self._replan_at or bool(self._next_plans)

    def plan_step(self, changed: tuple[str, ...], rows: int) -> None:
        """Plan the terms of a step that changes ``rows`` rows of these relations but runs no term.

        Nothing is planned again because of its rows before the next step that runs terms.
        """
        self._changes += rows
        if changed not in self._by_change:
            with self._relations.planning:
                self._plan_change(changed)

    def bind_group(self, changed: tuple[str, ...], rows: int) -> BoundTerms | None:
        """Return the terms of a step that changes ``rows`` rows of these relations.

        The caller writes the addresses of the delta runs to the slots of the relations; some of the
        deltas may be empty.

        Returns:
            The terms; None if the caller must use `bind_step`, because terms must be planned or a
            formula must be selected.
        """
        if self.is_due(rows):
            return None
        selection = self._by_change.get(changed) or self._plan_change(changed)
        if selection.fixed_terms is None:
            return None
        if self._filled != changed:
            self._switch_slots(changed)
        return selection.fixed_terms

    def record_rows(self, rows: int) -> None:
        """Record that a step with ``rows`` changed rows has run the terms of `bind_group`."""
        self._changes += rows

    def slots_of(self, name: str) -> Mapping[ColumnOrder, int]:
        """Return the slot of a relation's delta in each column order."""
        return dict(self._slots_of.get(name, ()))

    def record_cost(self) -> None:
        """Record the cost of the step of `bind_step`, after all of its terms have run."""
        if self._measuring is not None:
            self._measuring.record_cost()
            self._measuring = None
        self.build_list_bitmaps()

    def build_list_bitmaps(self) -> None:
        """Build the bitmaps of a run whose long lists the joins have read often enough.

        Complexity:
            O(rows of the run), once for each run.
        """
        address = self._buffers.take_run_without_bitmaps()
        if address:
            for trace in self.traces.values():
                for arrangement in trace.arrangements:
                    arrangement.spine.build_list_bitmaps(address)

    def _terms_ahead(
        self, formula: Formula | CustomFormula | SymmetricFormula
    ) -> Iterator[DeltaTerm]:
        """Yield the terms to plan before the first step.

        These are all terms, unless there are too many. If there are too many, or if the query is a
        ring (a cycle of more than four variables), the terms of a step that changes one relation
        are planned, for each relation that only one atom reads. They read the unchanged relations
        as old, not as new (`DeltaTerm.simplify_for`).
        """
        relations = [atom.relation for atom in self._query.body]
        if self._is_planned_ahead:
            yield from delta_terms(formula, len(relations))
        if self._planner.is_ring or not self._is_planned_ahead:
            for i, name in enumerate(relations):
                if relations.count(name) == 1:
                    for term in delta_terms(formula, len(relations), changed=[i]):
                        yield term.simplify_for([i])

    def _switch_slots(self, changed: tuple[str, ...]) -> None:
        """Clear the slots of the last step, because other relations change in this one."""
        for name in self._filled:
            for _, slot in self._slots_of.get(name, ()):
                self.deltas[slot] = 0
        self._filled = changed
        self._by_change.move_to_end(changed)

    def _plan_change(self, changed: tuple[str, ...]) -> AdaptiveFormula:
        """Plan steps that change these relations; of too many plans, forget the least recent one.

        Its terms remain, so it is made again quickly; the costs that were measured are lost.
        """
        selection = self._adaptive_formula(changed)
        if len(self._by_change) >= MAX_CACHED_CHANGES:
            self._by_change.popitem(last=False)
        self._by_change[changed] = selection
        return selection

    def _adaptive_formula(self, changed: tuple[str, ...]) -> AdaptiveFormula:
        """Bind the terms of each candidate for steps that change these relations."""
        body = self._query.body
        atoms = [i for i, atom in enumerate(body) if atom.relation in changed]
        candidates = []
        term_count = len(self._bound)
        for formula in self._formulas:
            terms = delta_terms(formula, len(body), changed=atoms)
            if self._planner.is_ring:
                terms = tuple(term.simplify_for(atoms) for term in terms)
            bound_terms = [self._bind(term) for term in terms]
            candidates.append(BoundTerms(bound_terms, self.deltas, self._buffers))
        if len(self._bound) > term_count:
            self._plans, self._has_own_plans = None, True
            self._published_terms = tuple(self._bound.values())
        return AdaptiveFormula(candidates)

    def _replan(self, steps: Mapping[str, TraceStep]) -> None:
        """Plan all terms with current statistics."""
        self._replan_at = REPLAN_GROWTH_FACTOR * self._changes
        if len(self._bound) <= MAX_REPLAN_TERMS:
            self._collect_statistics(steps)
            self._next_plans = {}
            plans = self._plan_again()
            orders = self._variable_orders()
            if any(plan.order != orders[term] for term, plan in plans.items()):
                self._next_plans = plans
        self._plans, self._has_own_plans = None, True

    def _plan_again(self) -> dict[DeltaTerm, TermPlan]:
        """Plan all terms; a term prefers the column orders that the terms before it will need."""
        plans: dict[DeltaTerm, TermPlan] = {}
        slots, self._slots = self._slots, {}  # those of the current plans do not count
        try:
            for term in self._bound:
                plan = plans[term] = self._term_plan(term)
                names, _ = self._planner.resolve_factors(term)
                for name, planned in zip(names, plan.factors, strict=True):
                    self._expected_orders.add((name, planned.order))
        finally:
            self._slots = slots
            self._expected_orders.clear()
        return plans

    def _use_next_plans(self, rows: int) -> None:
        """Build a part of the arrangements of the next plans; use these if all are complete."""
        needed = dict.fromkeys(
            pair
            for term, plan in self._next_plans.items()
            for pair in self._orders_read(term, plan)
        )
        is_complete = [self.traces[name].build_arrangement(order, rows) for name, order in needed]
        if all(is_complete):
            self._rebind(list(self._bound))
            self._next_plans = {}
            self._plans = None
            self._relations.drop_unread()

    def _orders_read(self, term: DeltaTerm, plan: TermPlan) -> Iterator[tuple[str, ColumnOrder]]:
        """Yield the relations that a term reads, with the column order of each."""
        for factor, planned in zip(term.factors, plan.factors, strict=True):
            if factor != PARTIAL and factor.version is not Version.delta:
                yield self._query.body[factor.atom].relation, planned.order

    def _collect_statistics(self, steps: Mapping[str, TraceStep]) -> None:
        """Collect statistics of the relations."""
        self._statistics = Statistics(
            {
                name: sample_largest_run(trace, steps.get(name))
                for name, trace in self.traces.items()
            }
        )

    def _rebind(self, terms: Sequence[DeltaTerm]) -> None:
        """Plan and bind these terms, and discard all others."""
        self._measuring = None
        for bound in self._bound.values():
            self.retired_counters += bound.physical.counters.sum(axis=0)
        self._clear_slots()
        self._slots.clear()
        self._slots_of.clear()
        self._by_change.clear()
        self._bound.clear()
        self._buffers.forget_programs()
        for term in terms:
            self._bind(term)
        self._published_terms = tuple(self._bound.values())

    def _clear_slots(self) -> None:
        """Forget the delta runs of the last step."""
        self.deltas[: len(self._slots)] = 0
        self._filled = ()

    def _reads_arrangements(self) -> bool:
        """Return whether the terms read the present arrangements of the relations."""
        return all(
            self.traces[name].has_arrangement(order)
            and self.traces[name].arrange(order).spine is spine
            for bound in self._bound.values()
            for _, name, order, spine in (*bound.old, *bound.new)
        )

    def _variable_orders(self) -> dict[DeltaTerm, tuple[str, ...]]:
        """Return the variable orders of the terms planned so far."""
        return {term: bound.physical.plan.order for term, bound in self._bound.items()}

    @property
    def _variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for columns in self._body.columns for name in columns))

    def column_orders(self) -> dict[str, set[ColumnOrder]]:
        """Return the column orders in which the terms read each relation; for any thread."""
        orders: dict[str, set[ColumnOrder]] = {name: set() for name in self.traces}
        # Another thread may be planning: it replaces these, and does not change them.
        current = [(bound.term, bound.physical.plan) for bound in self._published_terms]
        for term, plan in [*current, *self._next_plans.items()]:
            for name, order in self._orders_read(term, plan):
                orders[name].add(order)
        return orders

    def _bind(self, term: DeltaTerm) -> BoundTerm:
        """Return a bound term; plan and bind it on the first call."""
        bound = self._bound.get(term)
        if bound is None:
            bound = self._bound[term] = self._bind_new(term)
        return bound

    def _term_plan(self, term: DeltaTerm) -> TermPlan:
        return self._planner.plan(
            term,
            is_arranged=self._is_arranged,
            order=self._prescribed_orders.get(term),
            statistics=self._statistics,
        )

    def _bind_new(self, term: DeltaTerm) -> BoundTerm:
        """Plan a term, request the arrangements and slots that it needs, and bind it to them."""
        names, _ = self._planner.resolve_factors(term)
        plan = self._next_plans.get(term) or self._term_plan(term)
        sources: list[Source] = []
        old: list[RelationFactor] = []
        new: list[RelationFactor] = []
        partial_slot = None
        split = None
        for name, factor, planned in zip(names, term.factors, plan.factors, strict=True):
            spine = None
            slot = -1
            if isinstance(name, str) and factor.version is not Version.delta:
                spine = self.traces[name].arrange(planned.order).spine
            if factor.version is not Version.old:
                slot = self._slot(name, planned.order)
            sources.append(Source(spine, slot))
            if isinstance(name, int):
                partial_slot = slot
            elif factor.version is Version.old and spine is not None:
                old.append(RelationFactor(len(sources) - 1, name, planned.order, spine))
            elif factor.version is Version.new and spine is not None:
                new.append(RelationFactor(len(sources) - 1, name, planned.order, spine))
            elif plan.is_split_factor(planned):
                split = SplitDelta(name, planned.order)
        deltas = [i for i, factor in enumerate(term.factors) if factor.version is Version.delta]
        physical = PhysicalTerm(
            plan, sources, self.deltas, self._buffers, delta_factors=deltas, times=term.times
        )
        driver = None
        if physical.driver is not None:
            name = names[physical.driver]
            if isinstance(name, str):
                driver = SplitDelta(name, plan.factors[physical.driver].order)
        cycle: list[CycleFactor | None] = []
        for index in physical.cycle_factors or ():
            if index is None:
                continue
            name = names[index]
            is_changed = term.factors[index].version is not Version.old
            order, spine = plan.factors[index].order, sources[index].spine
            is_read = is_changed and isinstance(name, str)
            cycle.append(CycleFactor(str(name), order, spine) if is_read else None)
        closing, fixed = (*cycle, None, None)[:2]
        return BoundTerm(
            term=term,
            physical=physical,
            target=term.target,
            joins=term.joins,
            old=tuple(old),
            new=tuple(new),
            partial_slot=partial_slot,
            split=split,
            driver=driver,
            closing=closing,
            fixed=fixed,
        )

    def _is_arranged(self, name: str | int, order: ColumnOrder) -> bool:
        """Return whether a relation or partial delta is already available in a column order."""
        if (name, order) in self._slots or (name, order) in self._expected_orders:
            return True
        return isinstance(name, str) and self.traces[name].has_arrangement(order)

    def _slot(self, name: str | int, order: ColumnOrder) -> int:
        """Return the slot of a delta or partial delta in a column order; assign one if needed."""
        slot = self._slots.get((name, order))
        if slot is None:
            slot = len(self._slots)
            if slot == MAX_DELTA_SLOTS:
                raise FormulaError(
                    f"the terms of the formula need more than {MAX_DELTA_SLOTS} arranged deltas; "
                    "use formula='collapsed'"
                )
            self._slots[name, order] = slot
            self._slots_of.setdefault(name, []).append((order, slot))
        return slot
