"""The terms of a view: planned, bound to the arrangements that they read, and put in order.

A schedule asks for the arrangements of the relations' traces that its terms need, and has the
places where a step puts the addresses of its delta runs. For each set of changed relations it keeps
the list of terms to run, so that a step decides nothing that does not depend on its data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.formulas import PARTIAL, Formula, Term, View, joins, terms
from dbsp_wcoj.planner import Body, plan_term
from dbsp_wcoj.product import Product, Source
from dbsp_wcoj.query import Comparison, Query
from dbsp_wcoj.relations import Relations
from dbsp_wcoj.run import Run
from dbsp_wcoj.spine import Spine
from dbsp_wcoj.stack import Stack
from dbsp_wcoj.trace import ColumnOrder, TraceStep, run_in_order
from dbsp_wcoj.zset import Int64Array, ZSet, stored

__all__ = ["BoundTerm", "Partial", "Schedule"]

# Formulas with more joins per atom (expanded over many atoms) are planned as their terms come up.
PLANNED_AHEAD: Final = 512
MOST_DELTAS: Final = 4096


class Partial:
    """A complete partial delta ``D_i`` of a recursion, arranged as its terms ask for."""

    def __init__(self, rows: ZSet) -> None:
        """Take the rows, columns as `Schedule.kept` lists them."""
        self.rows = rows
        self._runs: dict[ColumnOrder, Run] = {}

    def address(self, order: ColumnOrder) -> int:
        """The address of the run in a column order; kept alive by this object."""
        if order not in self._runs:
            self._runs[order] = run_in_order(stored(self.rows), order)
        return self._runs[order].address


@dataclass(frozen=True, slots=True, eq=False)
class BoundTerm:
    """A term and what it takes to run it.

    Attributes:
        term: The term.
        product: Its plan, bound to runs.
        target: The partial delta that it adds to.
        joins: Binary joins of the product.
        old: Spines that have to hold something, or the product is zero.
        new: Spines that have to hold something unless their relation changes in the step.
        partial: The place of the partial delta's address, if the term has one.
        split: Relation and order of the delta along which the work can be cut.
    """

    term: Term
    product: Product
    target: int
    joins: int
    old: tuple[Spine, ...]
    new: tuple[tuple[Spine, str], ...]
    partial: int | None
    split: tuple[str, ColumnOrder] | None

    def is_zero(self, changed: Collection[str], partial: Partial | None) -> bool:
        """Whether a factor is empty."""
        for spine in self.old:
            if spine.is_empty:
                return True
        for spine, name in self.new:
            if spine.is_empty and name not in changed:
                return True
        return self.partial is not None and (partial is None or not len(partial.rows))


class Schedule:
    """All terms of a query under a formula."""

    def __init__(self, query: Query, body: Body, formula: Formula, relations: Relations) -> None:
        """Plan the terms, and with them decide on the arrangements."""
        self._query = query
        self._body = body
        self._formula = formula
        self._bound: dict[Term, BoundTerm] = {}
        self._by_change: dict[tuple[str, ...], tuple[BoundTerm, ...]] = {}
        # The place of each (relation or partial delta, order) among the addresses.
        self._places: dict[tuple[str | int, ColumnOrder], int] = {}
        self._places_of: dict[str | int, list[tuple[ColumnOrder, int]]] = {}
        self._stack = Stack()
        self._placed: list[int] = []
        self.deltas: Int64Array = np.zeros(MOST_DELTAS, np.int64)
        atoms = len(query.body)
        planned_ahead = joins(formula, atoms) <= PLANNED_AHEAD * atoms
        # With every term planned the arrangements are known; else rows are kept to build them.
        self.traces = {
            name: relations.declare(name, arity, keep_rows=not planned_ahead)
            for name, arity in query.relations.items()
        }
        for term in terms(formula, atoms) if planned_ahead else ():
            self._bind(term)

    @property
    def terms(self) -> tuple[BoundTerm, ...]:
        """The terms planned so far."""
        return tuple(self._bound.values())

    def ready(self, steps: Mapping[str, TraceStep]) -> tuple[BoundTerm, ...]:
        """The terms of a step, in the order to run them in; they read the step's deltas from now.

        Args:
            steps: The staged deltas of the relations that change, none empty.
        """
        changed = tuple([name for name in self.traces if name in steps])
        found = self._by_change.get(changed)
        if found is None:
            body = self._query.body
            atoms = [i for i, atom in enumerate(body) if atom.relation in changed]
            wanted = terms(self._formula, len(body), changed=atoms)
            found = self._by_change[changed] = tuple(map(self._bind, wanted))
        for place in self._placed:
            self.deltas[place] = 0
        self._placed.clear()
        for name in changed:
            step = steps[name]
            for order, place in self._places_of.get(name, ()):
                self.deltas[place] = step.run(order).address
                self._placed.append(place)
        return found

    def kept(self, target: int) -> tuple[str, ...]:
        """The variables of ``D_target``: those bound so far that the head, a later atom or a
        comparison with a later variable needs.
        """
        columns = self._body.columns
        bound = list(dict.fromkeys(v for names in columns[:target] for v in names))
        needed = set(self._query.head) | {v for names in columns[target:] for v in names}
        for comparison in self._body.comparisons:
            if not set(comparison.variables) <= set(bound):
                needed |= set(comparison.variables)
        return tuple(v for v in bound if v in needed)

    def _bind(self, term: Term) -> BoundTerm:
        """Plan a term and bind it, the first time."""
        bound = self._bound.get(term)
        if bound is None:
            bound = self._bound[term] = self._plan(term)
        return bound

    def _plan(self, term: Term) -> BoundTerm:
        atoms = self._query.body
        # A partial delta goes by its number, which is the name of no relation.
        names: list[str | int] = []
        columns: list[tuple[str, ...]] = []
        for factor in term.factors:
            if factor == PARTIAL:
                names.append(term.target - 1)
                columns.append(self.kept(term.target - 1) or ("#partial",))
            else:
                names.append(atoms[factor.atom].relation)
                columns.append(self._body.columns[factor.atom])
        last = term.target == len(atoms)
        plan = plan_term(
            columns,
            self._comparisons(term, columns),
            self._query.head if last else self.kept(term.target),
            first=[i for i, factor in enumerate(term.factors) if factor.view is View.delta],
            arranged=lambda i, order: self._is_arranged(names[i], order),
        )
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
        product = Product(plan, sources, self.deltas, self._stack)
        return BoundTerm(
            term, product, term.target, term.joins, tuple(old), tuple(new), partial, split
        )

    def _comparisons(self, term: Term, columns: list[tuple[str, ...]]) -> list[Comparison]:
        """The comparisons of a term: between bound variables, and not yet made in its partial."""
        made: set[str] = set()
        if term.factors[0] == PARTIAL:
            made = {v for names in self._body.columns[: term.target - 1] for v in names}
        bound = {v for names in columns for v in names}
        return [
            comparison
            for comparison in self._body.comparisons
            if set(comparison.variables) <= bound and not set(comparison.variables) <= made
        ]

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
