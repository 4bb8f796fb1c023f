"""The terms of a view: planned, bound to the arrangements that they read, and put in order.

A schedule asks for the arrangements of the relations' traces that its terms need, and has the
places where a step puts the addresses of its delta runs. For each set of changed relations it keeps
the list of terms to run, so that a step decides nothing that does not depend on its data.

Terms are planned before anything is known of the relations, and again, with statistics, whenever so
many rows have come that the last time there was an eighth of them: O(log rows) times. Arrangements
that no plan reads any more are dropped. Results do not depend on it. Where relations are loaded as
they were stored, terms are planned as they were then (`PlanCache.plans`, `PlanCache.resume`), so
that they need the arrangements that were stored and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.execution.bound_terms import BoundTerm, BoundTerms
from dbsp_wcoj.execution.join_buffers import JoinBuffers
from dbsp_wcoj.execution.physical_term import PhysicalTerm, Source
from dbsp_wcoj.formulas import PARTIAL, CustomFormula, Formula, Term, View, joins, terms
from dbsp_wcoj.planning.adaptive_formula import AdaptiveFormula
from dbsp_wcoj.planning.formula_candidates import FormulaName, describe_choice, formula_candidates
from dbsp_wcoj.planning.planner import Body, TermPlan
from dbsp_wcoj.planning.statistics import Statistics, sample_of_largest
from dbsp_wcoj.planning.term_planner import TermPlanner
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import ColumnOrder, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["PlanCache"]

# Formulas with more joins per atom (expanded over many atoms) are planned as their terms come up.
PLANNED_AHEAD: Final = 512
MOST_DELTAS: Final = 4096
# Changed rows before the first plan by statistics, and how many times more before the next.
PLANNED_AGAIN: Final = 1024
PLANNED_AFTER_GROWTH: Final = 8
# Two atoms leave nothing to choose, and planning many terms again takes too long.
MOST_TERMS_AGAIN: Final = 128
NEVER: Final = 1 << 62


class PlanCache:
    """All terms of a query under a formula, or under those that a step may choose."""

    def __init__(
        self, query: Query, body: Body, formula: FormulaName, relations: Relations
    ) -> None:
        """Plan the terms, and with them decide on the arrangements."""
        self._query = query
        self._body = body
        self._formula = formula
        self._planner = planner = TermPlanner(query, body)
        self._formulas, self._reason = formula_candidates(formula, body.columns, planner.kept)
        self._bound: dict[Term, BoundTerm] = {}
        self._by_change: dict[tuple[str, ...], AdaptiveFormula] = {}
        # What is to learn from the step that runs.
        self._counting: AdaptiveFormula | None = None
        # The place of each (relation or partial delta, order) among the addresses.
        self._places: dict[tuple[str | int, ColumnOrder], int] = {}
        self._places_of: dict[str | int, list[tuple[ColumnOrder, int]]] = {}
        self._buffers = JoinBuffers()
        # The relations whose deltas have their addresses in their places.
        self._placed: tuple[str, ...] = ()
        self.deltas: Int64Array = np.zeros(MOST_DELTAS, np.int64)
        atoms = len(query.body)
        planned_ahead = joins(self._formulas[0], atoms) <= PLANNED_AHEAD * atoms
        # With every term planned the arrangements are known; else rows are kept to build them.
        self.traces = {
            name: relations.declare(name, arity, keep_rows=not planned_ahead)
            for name, arity in query.relations.items()
        }
        self._statistics: Statistics | None = None
        self._changes = 0
        self._planned_again = PLANNED_AGAIN if atoms > 2 else NEVER
        self._planned_ahead = planned_ahead
        # What `plans` gave, and whether there is something to tell.
        self._plans: dict[str, Any] | None = None
        self._telling = False
        # Variable orders that were decided elsewhere, while terms are bound by them.
        self._decided: dict[Term, tuple[str, ...]] = {}
        # What terms that were planned again had counted until then.
        self.retired_counters: Int64Array = np.zeros(2, np.int64)
        relations.add_reader(self._orders)
        self._relations = relations
        for one in self._formulas:
            for term in self._ahead(one):
                self._bind(term)
        # The terms when planning last ended, for other threads.
        self._shown: tuple[BoundTerm, ...] = tuple(self._bound.values())

    @property
    def terms(self) -> tuple[BoundTerm, ...]:
        """The terms planned so far; any thread may ask, while another one plans."""
        return self._shown

    @property
    def formula(self) -> str:
        """The formula, or which ones steps choose from and why; for `explain`."""
        chosen = tuple(self._by_change.items())  # at once: another thread may be planning
        return describe_choice(self._formula, self._formulas, self._reason, chosen)

    @property
    def plans(self) -> dict[str, Any] | None:
        """How the terms are planned, of plain lists, dicts, numbers and texts; for `resume`.

        None while they are all planned as those of a new schedule are. The same object until a
        term is planned anew.
        """
        if self._plans is None and self._telling:
            places = {name: place for place, name in enumerate(self._variables)}
            orders = {
                str(term): [places[name] for name in order]
                for term, order in self._planned_orders().items()
            }
            self._plans = {"again": self._planned_again, "orders": orders}
        return self._plans

    def resume(self, plans: Mapping[str, Any] | None) -> None:
        """Go on after the relations' traces have been loaded.

        Args:
            plans: What `plans` of the schedule was that they come from, which has the same query
                and formula; or None.

        Complexity:
            That of planning; and O(rows) for each arrangement that was not loaded.
        """
        if not self._planned_ahead:
            for trace in self.traces.values():
                trace.arrange(tuple(range(trace.arity)))
        self._changes = sum(
            arrangement.spine.rows
            for trace in self.traces.values()
            for arrangement in trace.arrangements[:1]
        )
        again = list(self._bound)
        self._plans, self._telling = None, plans is not None
        if plans is not None:
            self._planned_again = plans["again"]
            names = self._variables
            found = {
                Term.parse(text): tuple(names[place] for place in order)
                for text, order in plans["orders"].items()
            }
            again += [term for term in found if term not in self._bound]
            self._decided = self._planned_orders() | found
        elif self._changes < self._planned_again:
            self._decided = self._planned_orders()
        elif len(again) <= MOST_TERMS_AGAIN:
            self._planned_again = PLANNED_AFTER_GROWTH * self._changes
            self._look_at({})
            self._telling = True
        self._bind_again(again)
        self._decided = {}

    def ready(self, steps: Mapping[str, TraceStep]) -> BoundTerms:
        """The terms of a step, in the order to run them in; they read the step's deltas from now.

        Args:
            steps: The staged deltas of the relations that change, none empty.
        """
        self._counting = None
        changed = tuple([name for name in self.traces if name in steps])
        rows = 0
        for name in changed:
            rows += len(steps[name].delta)
        self._changes += rows
        if self._changes >= self._planned_again:
            self._plan_again(steps)
        found = self._by_change.get(changed)
        if found is None:
            found = self._by_change[changed] = self._alternatives(changed)
        deltas = self.deltas
        if changed != self._placed:
            self._place_for(changed)
        for name in changed:
            run = steps[name].run
            for order, place in self._places_of.get(name, ()):
                deltas[place] = run(order).address
        if found.only is not None:
            return found.only
        chosen = found.choose(rows, steps)
        if found.counting:
            self._counting = found
        return chosen

    def only(self, name: str, rows: int) -> BoundTerms | None:
        """The terms to run when so many rows of one relation change, for who places their runs.

        None if the step is to be made `ready`: terms are to be planned, or chosen.
        """
        found = self._by_change.get((name,))
        if found is None or found.only is None or self._changes + rows >= self._planned_again:
            return None
        if self._placed != (name,):
            self._place_for((name,))
        return found.only

    def count(self, rows: int) -> None:
        """Take up that a step of so many rows has happened whose terms were the `only` ones."""
        self._changes += rows

    def places_of(self, name: str) -> Mapping[ColumnOrder, int]:
        """The place of the address of a relation's delta, by column order."""
        return dict(self._places_of.get(name, ()))

    def learn(self) -> None:
        """Learn from the step that `ready` gave the terms of, when all of them have run."""
        if self._counting is not None:
            self._counting.learn()
            self._counting = None

    def _ahead(self, formula: Formula | CustomFormula) -> Iterator[Term]:
        """The terms to plan before anything changes: all of them; and those of steps in which one
        relation changes that one atom reads, where these are others or all are too many.
        """
        readers = [atom.relation for atom in self._query.body]
        if self._planned_ahead:
            yield from terms(formula, len(readers))
        if self._planner.ring or not self._planned_ahead:
            for i, name in enumerate(readers):
                if readers.count(name) == 1:
                    for term in terms(formula, len(readers), changed=[i]):
                        yield term.when([i])

    def _place_for(self, changed: tuple[str, ...]) -> None:
        """Clear the places of other relations than those that change now."""
        for name in self._placed:
            for _, place in self._places_of.get(name, ()):
                self.deltas[place] = 0
        self._placed = changed

    def _alternatives(self, changed: tuple[str, ...]) -> AdaptiveFormula:
        """The terms of each candidate when these relations change."""
        body = self._query.body
        atoms = [i for i, atom in enumerate(body) if atom.relation in changed]
        batches = []
        known = len(self._bound)
        for formula in self._formulas:
            own = terms(formula, len(body), changed=atoms)
            if self._planner.ring:
                own = tuple(term.when(atoms) for term in own)
            bound = [self._bind(term) for term in own]
            batches.append(BoundTerms(bound, self.deltas, self._buffers))
        if len(self._bound) > known:
            self._plans, self._telling = None, True
            self._shown = tuple(self._bound.values())
        return AdaptiveFormula(batches)

    def _plan_again(self, steps: Mapping[str, TraceStep]) -> None:
        """Plan all terms by what is known of the relations now."""
        self._planned_again = PLANNED_AFTER_GROWTH * self._changes
        if len(self._bound) <= MOST_TERMS_AGAIN:
            self._look_at(steps)
            plans = {term: self._planned(term) for term in self._bound}
            orders = self._planned_orders()
            if any(plan.order != orders[term] for term, plan in plans.items()):
                self._bind_again(list(self._bound))
                self._relations.drop_unread()
        self._plans, self._telling = None, True

    def _look_at(self, steps: Mapping[str, TraceStep]) -> None:
        """Take statistics of the relations."""
        self._statistics = Statistics(
            {name: sample_of_largest(trace, steps.get(name)) for name, trace in self.traces.items()}
        )

    def _bind_again(self, terms: Sequence[Term]) -> None:
        """Plan and bind these terms, and no others."""
        self._counting = None
        for bound in self._bound.values():
            self.retired_counters += bound.physical.counters.sum(axis=0)
        self.deltas[: len(self._places)] = 0
        self._placed = ()
        self._places.clear()
        self._places_of.clear()
        self._by_change.clear()
        self._bound.clear()
        for term in terms:
            self._bind(term)
        self._shown = tuple(self._bound.values())

    def _planned_orders(self) -> dict[Term, tuple[str, ...]]:
        """The variable orders of the terms planned so far."""
        return {term: bound.physical.plan.order for term, bound in self._bound.items()}

    @property
    def _variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for columns in self._body.columns for name in columns))

    def _orders(self) -> dict[str, set[ColumnOrder]]:
        """The arrangements that the terms read."""
        orders: dict[str, set[ColumnOrder]] = {name: set() for name in self.traces}
        for term, bound in self._bound.items():
            for factor, planned in zip(term.factors, bound.physical.plan.factors, strict=True):
                if factor != PARTIAL and factor.view is not View.delta:
                    orders[self._query.body[factor.atom].relation].add(planned.order)
        return orders

    def _bind(self, term: Term) -> BoundTerm:
        """Plan a term and bind it, the first time."""
        bound = self._bound.get(term)
        if bound is None:
            bound = self._bound[term] = self._plan(term)
        return bound

    def _planned(self, term: Term) -> TermPlan:
        return self._planner.plan(
            term,
            arranged=self._is_arranged,
            order=self._decided.get(term),
            statistics=self._statistics,
        )

    def _plan(self, term: Term) -> BoundTerm:
        names, _ = self._planner.factors(term)
        plan = self._planned(term)
        sources: list[Source] = []
        old: list[Spine] = []
        new: list[tuple[Spine, str]] = []
        partial = None
        split = None
        for name, factor, planned in zip(names, term.factors, plan.factors, strict=True):
            spine = None
            place = -1
            if isinstance(name, str) and factor.view is not View.delta:
                spine = self.traces[name].arrange(planned.order).spine
            if factor.view is not View.old:
                place = self._place(name, planned.order)
            sources.append((spine, place))
            if isinstance(name, int):
                partial = place
            elif factor.view is View.old and spine is not None:
                old.append(spine)
            elif factor.view is View.new and spine is not None:
                new.append((spine, name))
            elif plan.splits(planned):
                split = (name, planned.order)
        deltas = [i for i, factor in enumerate(term.factors) if factor.view is View.delta]
        physical = PhysicalTerm(plan, sources, self.deltas, self._buffers, driven_by=deltas)
        return BoundTerm(
            term, physical, term.target, term.joins, tuple(old), tuple(new), partial, split
        )

    def _is_arranged(self, name: str | int, order: ColumnOrder) -> bool:
        return (name, order) in self._places or (
            isinstance(name, str) and self.traces[name].has(order)
        )

    def _place(self, name: str | int, order: ColumnOrder) -> int:
        place = self._places.get((name, order))
        if place is None:
            place = len(self._places)
            if place == MOST_DELTAS:
                raise FormulaError(
                    f"the terms need more than {MOST_DELTAS} arranged deltas; use 'collapsed'"
                )
            self._places[name, order] = place
            self._places_of.setdefault(name, []).append((order, place))
        return place
