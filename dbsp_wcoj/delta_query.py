"""An N-way join, maintained: deltas of the relations in, the delta of the view out.

::

    delta_query.step({"e": delta})
        for each term of the formula that is not zero:     formulas.terms
            run it as one generic join over old, delta and new views
        add the terms up; then make the delta part of the traces

Old, delta and new are chosen per atom and are lists of immutable runs, so a self-join sees exactly
the versions that its formula names. Everything that can fail comes before the first change of
state: a step happens as a whole or not at all. Terms with an empty view are skipped, so a backfill
(everything in the first step) is one generic join.

State: the relations' traces in the column orders that the terms need, and nothing else; no
intermediate result is kept from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

import numpy as np

from dbsp_wcoj.errors import ArityError, DbspWcojError, UnknownRelationError
from dbsp_wcoj.explanation import explain
from dbsp_wcoj.formulas import PARTIAL, Formula, Term, View, joins, terms
from dbsp_wcoj.generic_join import PARALLEL_MINIMUM, check_constants, exact_scalar, stored
from dbsp_wcoj.planner import body_of, plan_term
from dbsp_wcoj.product import Product, Source, accumulate, value_ranges, whole_range
from dbsp_wcoj.query import Query
from dbsp_wcoj.run import Run
from dbsp_wcoj.trace import ColumnOrder, Trace, TraceStep, run_in_order
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["DeltaQuery", "PreparedStep", "Stats"]

# Formulas with more terms (expanded over many atoms) are planned as their terms come up.
PLANNED_AHEAD: Final = 512
_PARTIAL_NAME: Final = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a view has done and what it holds.

    Attributes:
        joins: Binary joins run so far: a product of k views counts k - 1.
        proposals: Values proposed, or handed to an innermost intersection, so far.
        intersections: Look-ups of a proposed value in another atom so far.
        rows_by_run: Rows of each run, oldest first, by arrangement.
        bytes: Bytes of all runs.
    """

    joins: int
    proposals: int
    intersections: int
    rows_by_run: dict[str, tuple[int, ...]]
    bytes: int


class PreparedStep:
    """A step that is computed but has not happened; ``delta`` is the view's delta."""

    __slots__ = ("_done", "_steps", "_version", "_view", "delta")

    def __init__(self, view: DeltaQuery, delta: ZSet, steps: Mapping[str, TraceStep]) -> None:
        """Stage the traces' steps beside the delta that they give."""
        self.delta = delta
        self._view = view
        self._steps = steps
        self._version = view._version

    def commit(self) -> None:
        """Make the step happen; it cannot fail.

        Raises:
            DbspWcojError: Another step has happened since this one was prepared, or this one has.
        """
        if self._view._version != self._version:
            raise DbspWcojError(
                f"step prepared at version {self._version}, but the view is at version "
                f"{self._view._version}; prepare it again"
            )
        for step in self._steps.values():
            step.commit()
        self._view._version += 1


class DeltaQuery:
    """A maintained conjunctive query.

    Args:
        query: The query, or its text.
        formula: Name of the delta formula (`Formula`).
        executor: Where parts of large steps run at the same time; the engine makes no threads.
        parts: How many parts a large step is cut into; a few per thread balance the load.

    Raises:
        QuerySyntaxError, UnsafeVariableError, ArityError: As `Query.parse`.
        ColumnTypeError: A constant of the query is not an int64.
        FormulaError: There is no such formula.

    >>> view = DeltaQuery("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")
    >>> view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    ZSet({(1, 2, 3): 1})
    >>> view.step({"e": ZSet.from_rows([(1, 2)], [-1])})
    ZSet({(1, 2, 3): -1})
    """

    def __init__(
        self,
        query: Query | str,
        *,
        formula: Formula | str = Formula.collapsed,
        executor: Executor | None = None,
        parts: int = 1,
    ) -> None:
        self.query = Query.parse(query) if isinstance(query, str) else query
        self.formula = Formula.of(formula)
        check_constants(self.query)
        self._body = body_of(self.query)
        self._executor = executor
        self._parts = parts
        self._version = 0
        self._joins = 0
        self._traces: dict[str, Trace] = {}
        self._deltas: Int64Array = np.zeros(4096, np.int64)
        self._delta_index: dict[tuple[str, ColumnOrder], int] = {}
        self._products: dict[Term, Product] = {}
        self._arity = self.query.relations
        atoms = len(self.query.body)
        # With every term planned, the arrangements are known; else rows are kept to build them.
        self._planned_ahead = joins(self.formula, atoms) <= PLANNED_AHEAD * atoms
        for term in terms(self.formula, atoms) if self._planned_ahead else ():
            self._product(term)

    def step(self, deltas: Mapping[str, ZSet]) -> ZSet:
        """Apply the deltas of one step and return the delta of the view.

        Args:
            deltas: A delta for each relation that changed; others have an empty one.

        Returns:
            Z-set of arity ``len(query.head)``; its sum over all steps is the view.

        Raises:
            UnknownRelationError: A name that is no relation of the query.
            ArityError: A delta of another arity.
            WeightOverflowError: A weight leaves int64.
            After an error the state is as before the step.

        Complexity:
            O(terms * AGM(query with the delta in one place) * log N), independent of how the
            relations came to be; plus the amortised upkeep of the traces.
        """
        prepared = self.prepare(deltas)
        prepared.commit()
        return prepared.delta

    def prepare(self, deltas: Mapping[str, ZSet]) -> PreparedStep:
        """Compute a step without making it happen; see `step`."""
        steps = self._stage(deltas)
        if not self.query.head:
            delta = exact_scalar(sum(self._totals(steps)))
        else:
            delta = accumulate(self._chunks(steps), len(self.query.head))
        return PreparedStep(self, delta, steps)

    def step_chunks(self, deltas: Mapping[str, ZSet]) -> Iterator[ZSet]:
        """As `step`, in Z-sets of at most 65,536 rows whose sum is the delta of the view.

        For steps whose output may be larger than memory. The step happens when the iterator is
        exhausted; if it is dropped before, nothing has changed.
        """
        steps = self._stage(deltas)
        version = self._version
        if not self.query.head:
            yield exact_scalar(sum(self._totals(steps)))
        else:
            for chunk in self._chunks(steps):
                yield chunk
                if self._version != version:
                    raise DbspWcojError("another step happened while chunks were being taken")
        PreparedStep(self, ZSet.empty(len(self.query.head)), steps).commit()

    def explain(self) -> str:
        """The plan that runs, as text: terms, variable orders, arrangements, bounds and counts."""
        return explain(self.query, self.formula, self._products, self._traces)

    @property
    def stats(self) -> Stats:
        """Counters since the view was made, and the state that it holds now."""
        products = self._products.values()
        rows = {}
        size = 0
        for name, trace in self._traces.items():
            for arrangement in trace.arrangements:
                columns = ",".join(map(str, arrangement.order))
                rows[f"{name}[{columns}]"] = tuple(run.rows for run in arrangement.spine.runs)
                size += arrangement.spine.nbytes
        return Stats(
            joins=self._joins,
            proposals=sum(int(product.counters[0]) for product in products),
            intersections=sum(int(product.counters[1]) for product in products),
            rows_by_run=rows,
            bytes=size,
        )

    def _stage(self, deltas: Mapping[str, ZSet]) -> dict[str, TraceStep]:
        """Check the deltas and stage them, empty ones left out."""
        steps = {}
        for name, delta in deltas.items():
            arity = self._arity.get(name)
            if arity is None:
                raise UnknownRelationError(
                    f"unknown relation {name!r}; the query has {sorted(self._arity)}"
                )
            if delta.arity != arity:
                raise ArityError(
                    f"the delta of {name!r} has arity {delta.arity}, the relation has {arity}"
                )
            if len(delta):
                steps[name] = self._trace(name).prepare(stored(delta))
        for key, index in self._delta_index.items():
            step = steps.get(key[0])
            self._deltas[index] = 0 if step is None else step.run(key[1]).address
        return steps

    def _totals(self, steps: Mapping[str, TraceStep]) -> Iterator[int]:
        """The weight of the empty row, term by term."""
        for product, ranges, executor in self._run(steps):
            yield product.total(ranges, executor)

    def _chunks(self, steps: Mapping[str, TraceStep]) -> Iterator[ZSet]:
        """The rows of the last target, chunk by chunk."""
        for product, ranges, executor in self._run(steps):
            yield from product.chunks(ranges, executor)

    def _run(
        self, steps: Mapping[str, TraceStep]
    ) -> Iterator[tuple[Product, list[tuple[int, int]], Executor | None]]:
        """The products of the step that are not zero and add to ``D_n``, ready to run.

        Products for earlier targets are run here, on the way.
        """
        body = self.query.body
        if self._body.never:
            return
        changed = [i for i, atom in enumerate(body) if atom.relation in steps]
        partials: dict[int, list[ZSet]] = {}
        partial, partial_runs = ZSet.empty(0), dict[ColumnOrder, Run]()
        target = 0
        for term in terms(self.formula, len(body), changed=changed):
            if term.target != target:
                target = term.target
                partial = accumulate(partials.get(target - 1, []), 0)
                partial_runs = {}
            if self._is_zero(term, steps, partial):
                continue
            product = self._product(term)
            self._joins += term.joins
            if term.factors[0] == PARTIAL:
                order = product.plan.factors[0].order
                if order not in partial_runs:
                    partial_runs[order] = run_in_order(stored(partial), order)
                index = self._delta_index[f"{_PARTIAL_NAME}{target - 1}", order]
                self._deltas[index] = partial_runs[order].address
            ranges, executor = self._ranges(product, term, steps)
            if target == len(body):
                yield product, ranges, executor
            elif product.plan.head:
                partials.setdefault(target, []).extend(product.chunks(ranges, executor))
            else:
                total = exact_scalar(product.total(ranges, executor))
                partials.setdefault(target, []).append(total)

    def _is_zero(self, term: Term, steps: Mapping[str, TraceStep], partial: ZSet) -> bool:
        for factor in term.factors:
            if factor == PARTIAL:
                if not len(partial):
                    return True
                continue
            name = self.query.body[factor.atom].relation
            present = name in self._traces and not self._traces[name].is_empty
            if factor.view is View.old and not present:
                return True
            if factor.view is View.new and not present and name not in steps:
                return True
        return False

    def _ranges(
        self, product: Product, term: Term, steps: Mapping[str, TraceStep]
    ) -> tuple[list[tuple[int, int]], Executor | None]:
        """Cut a term along its delta, when it is large enough to be worth it."""
        if self._parts > 1:
            for factor, plan in zip(term.factors, product.plan.factors, strict=True):
                if factor.view is View.delta and factor != PARTIAL and product.plan.splits(plan):
                    run = steps[self.query.body[factor.atom].relation].run(plan.order)
                    if run.rows >= PARALLEL_MINIMUM:
                        return value_ranges(run, self._parts), self._executor
        return whole_range(), None

    def _trace(self, name: str) -> Trace:
        trace = self._traces.get(name)
        if trace is None:
            orders = () if self._planned_ahead else None
            trace = self._traces[name] = Trace(max(self._arity[name], 1), orders)
        return trace

    def _product(self, term: Term) -> Product:
        """The product of a term, planned and bound the first time."""
        product = self._products.get(term)
        if product is None:
            product = self._products[term] = self._plan(term)
        return product

    def _plan(self, term: Term) -> Product:
        body = self.query.body
        names = []
        factors = []
        first = []
        for position, factor in enumerate(term.factors):
            if factor == PARTIAL:
                names.append(f"{_PARTIAL_NAME}{term.target - 1}")
                factors.append(self._kept(term.target - 1) or (f"#partial{term.target}",))
                first.append(position)
            else:
                names.append(body[factor.atom].relation)
                factors.append(self._body.columns[factor.atom])
                if factor.view is View.delta:
                    first.append(position)
        last = term.target == len(body)
        seen_before = set()
        if term.factors[0] == PARTIAL:
            seen_before = {v for columns in self._body.columns[: term.target - 1] for v in columns}
        bound = {v for columns in factors for v in columns} | seen_before
        comparisons = [
            c
            for c in self._body.comparisons
            if set(c.variables) <= bound and not set(c.variables) <= seen_before
        ]
        plan = plan_term(
            factors,
            comparisons,
            self.query.head if last else self._kept(term.target),
            first=first,
            arranged=lambda i, order: (names[i], order) in self._delta_index
            or (names[i] in self._traces and self._traces[names[i]].has(order)),
        )
        sources: list[Source] = []
        for name, factor, planned in zip(names, term.factors, plan.factors, strict=True):
            spine = None
            index = -1
            if factor.view is not View.delta:
                spine = self._trace(name).arrange(planned.order).spine
            if factor.view is not View.old:
                key = (name, planned.order)
                index = self._delta_index.setdefault(key, len(self._delta_index))
            sources.append((spine, index))
        return Product(plan, sources, self._deltas)

    def _kept(self, target: int) -> tuple[str, ...]:
        """The variables of ``D_target``: those bound so far that the head, a later atom or a
        comparison with a later variable needs."""
        columns = self._body.columns
        bound = list(dict.fromkeys(v for names in columns[:target] for v in names))
        needed = set(self.query.head) | {v for names in columns[target:] for v in names}
        for comparison in self._body.comparisons:
            if not set(comparison.variables) <= set(bound):
                needed |= set(comparison.variables)
        return tuple(v for v in bound if v in needed)
