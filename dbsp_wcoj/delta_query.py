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

from dbsp_wcoj.errors import ArityError, DbspWcojError, UnknownRelationError
from dbsp_wcoj.explanation import explain
from dbsp_wcoj.formulas import Formula
from dbsp_wcoj.generic_join import PARALLEL_MINIMUM, check_constants, exact_scalar, stored
from dbsp_wcoj.planner import body_of
from dbsp_wcoj.product import WHOLE, Product, Ranges, accumulate, value_ranges
from dbsp_wcoj.query import Query
from dbsp_wcoj.schedule import Partial, Schedule
from dbsp_wcoj.trace import TraceStep
from dbsp_wcoj.zset import ZSet

__all__ = ["DeltaQuery", "PreparedStep", "Stats"]


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
        self._view._commit(self._steps)


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
        body = body_of(self.query)
        self._never = body.never
        self._executor = executor
        self._parts = parts
        self._version = 0
        self._joins = 0
        self._arity = self.query.relations
        self._schedule = Schedule(self.query, body, self.formula)
        self._traces = self._schedule.traces

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
        steps = self._stage(deltas)
        delta = self._delta(steps)
        self._commit(steps)
        return delta

    def prepare(self, deltas: Mapping[str, ZSet]) -> PreparedStep:
        """Compute a step without making it happen; see `step`."""
        steps = self._stage(deltas)
        return PreparedStep(self, self._delta(steps), steps)

    def step_chunks(self, deltas: Mapping[str, ZSet]) -> Iterator[ZSet]:
        """As `step`, in Z-sets of at most 65,536 rows whose sum is the delta of the view.

        For steps whose output may be larger than memory. The step happens when the iterator is
        exhausted; if it is dropped before, nothing has changed.
        """
        steps = self._stage(deltas)
        version = self._version
        if not self.query.head:
            yield exact_scalar(self._total(steps))
        else:
            for chunk in self._chunks(steps):
                yield chunk
                if self._version != version:
                    raise DbspWcojError("another step happened while chunks were being taken")
        self._commit(steps)

    def explain(self) -> str:
        """The plan that runs, as text: terms, variable orders, arrangements, bounds and counts."""
        return explain(self.query, self.formula, self._schedule.terms, self._traces)

    @property
    def stats(self) -> Stats:
        """Counters since the view was made, and the state that it holds now."""
        products = [term.product for term in self._schedule.terms]
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
                steps[name] = self._traces[name].prepare(stored(delta))
        self._schedule.place(steps)
        return steps

    def _commit(self, steps: Mapping[str, TraceStep]) -> None:
        for step in steps.values():
            step.commit()
        self._version += 1

    def _delta(self, steps: Mapping[str, TraceStep]) -> ZSet:
        """The delta of the view."""
        if not self.query.head:
            return exact_scalar(self._total(steps))
        return accumulate(self._chunks(steps), len(self.query.head))

    def _total(self, steps: Mapping[str, TraceStep]) -> int:
        """The weight of the empty row."""
        return sum([product.total(ranges, pool) for product, ranges, pool in self._products(steps)])

    def _chunks(self, steps: Mapping[str, TraceStep]) -> Iterator[ZSet]:
        """The rows of the view's delta, chunk by chunk."""
        for product, ranges, executor in self._products(steps):
            yield from product.chunks(ranges, executor)

    def _products(
        self, steps: Mapping[str, TraceStep]
    ) -> Iterator[tuple[Product, Ranges, Executor | None]]:
        """The products of the step that are not zero and add to ``D_n``, ready to run.

        Products for the partial deltas of a recursion are run here, on the way.
        """
        if self._never:
            return
        atoms = len(self.query.body)
        partials: dict[int, list[ZSet]] = {}
        partial: Partial | None = None
        target = 0
        for term in self._schedule.terms_for(tuple(steps)):
            if term.target != target:
                target = term.target
                pieces = partials.get(target - 1)
                partial = Partial(accumulate(pieces, 0)) if pieces else None
            if term.is_zero(steps, partial):
                continue
            self._joins += term.joins
            product = term.product
            ranges, executor = WHOLE, None
            if term.partial is not None and partial is not None:
                self._schedule.deltas[term.partial] = partial.run(product.plan.factors[0].order)
            elif self._parts > 1 and term.split is not None:
                name, order = term.split
                run = steps[name].run(order)
                if run.rows >= PARALLEL_MINIMUM:
                    ranges, executor = value_ranges(run, self._parts), self._executor
            if target == atoms:
                yield product, ranges, executor
            elif product.plan.head:
                partials.setdefault(target, []).extend(product.chunks(ranges, executor))
            else:
                total = exact_scalar(product.total(ranges, executor))
                partials.setdefault(target, []).append(total)
