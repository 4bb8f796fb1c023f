"""The generic join of given relations: one function, two engines.

The compiled engine runs the kernel that delta terms run (`dbsp_wcoj.kernels.join.join`). The
reference engine is the readable one (`dbsp_wcoj.reference.join`); it shares no code with the
compiled engine and accepts any ordered Python values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Literal

import numpy as np

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import (
    ArityError,
    DbspWcojError,
    UnknownRelationError,
    WeightOverflowError,
)
from dbsp_wcoj.execution.join_buffers import JoinBuffers
from dbsp_wcoj.execution.physical_term import PhysicalTerm, Source
from dbsp_wcoj.kernels.join.join_layout import PROPOSALS
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.planning.planner import (
    TermPlan,
    check_constants,
    check_order,
    normalize_body,
    plan_term,
)
from dbsp_wcoj.query import Query
from dbsp_wcoj.reference.join import reference_join
from dbsp_wcoj.storage.run import WHOLE, Ranges, Run, value_ranges
from dbsp_wcoj.storage.trace import ColumnOrder, Trace, build_run
from dbsp_wcoj.zset import (
    MAX_INT64,
    Int64Array,
    ZSet,
    accumulate,
    consolidated_rows,
    to_storable,
)

__all__ = [
    "MIN_PARALLEL_ROWS",
    "Views",
    "generic_join",
    "generic_join_chunks",
    "parse_query",
    "view_to_zset",
]

View = ZSet | Trace
Views = Sequence[View] | Mapping[str, View]
Engine = Literal["compiled", "reference"]

# Fewer rows, in total or in one part, are not worth another thread.
MIN_PARALLEL_ROWS = 4096
# Neither is a join with fewer proposals (about a millisecond), or a part with fewer.
MIN_PARALLEL_PROPOSALS = 1 << 22
MIN_PART_PROPOSALS = 1 << 19


def generic_join(
    query: Query | str,
    views: Views,
    *,
    order: Sequence[str] | None = None,
    engine: Engine = "compiled",
    executor: Executor | None = None,
    parts: int = 1,
    budget: Budget | None = None,
) -> ZSet:
    """Join all atoms of ``query``, binding one variable at a time.

    For each prefix the atom with the fewest extensions proposes and every other atom intersects,
    so the work stays within the AGM bound regardless of skew [1].

    Args:
        query: Conjunctive query, or its text.
        views: One Z-set per atom in body order, or one per relation by name. A `Trace` is read
            as the sum of its deltas; it is not copied if it has the arrangement of the plan.
        order: A permutation of the query's variables; by default planned.
        engine: "compiled", or "reference" for the readable join, to compare with.
        executor: Runs the parts in parallel; the kernel does not hold the GIL.
        parts: The number of parts of about equal rows into which the work is split.
        budget: Limits the compiled engine; without it there is no limit.

    Returns:
        Consolidated Z-set of arity ``len(query.head)``. A row's weight is the product of the
        weights of the rows that it joins, summed over the variables that are not in the head.

    Raises:
        UnknownRelationError: A relation of the query has no view.
        ArityError: A view has another arity than its atom, or not one view per atom.
        VariableOrderError: ``order`` is not a permutation of the variables.
        ColumnTypeError: A constant of the query is not an int64.
        WeightOverflowError: A weight leaves int64.
        LimitError: The join uses more than the budget allows.

    Complexity:
        O(AGM(query) * log N) time, N = rows of the largest view; memory for the result and one
        sorted copy of each view in each column order that the plan needs.

    References:
        [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013, section 3.

    >>> edges = ZSet.from_rows([(1, 2), (2, 3), (1, 3), (3, 4)])
    >>> generic_join("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)", {"e": edges})
    ZSet({(1, 2, 3): 1})
    >>> generic_join("n() :- e(a, b), e(b, c)", [edges, edges]).to_dict()
    {(): 3}
    """
    query = parse_query(query)
    given = _per_atom(query, views)
    check_type("engine", engine, str, "'compiled' or 'reference'")
    check_type("parts", parts, int, "a number of parts")
    if order is not None:
        check_type("order", order, Sequence, "names of variables")
    if engine == "reference":
        return _reference(query, given, order)
    if engine != "compiled":
        raise DbspWcojError(f"unknown engine {engine!r}; use 'compiled' or 'reference'")
    join = _OneShot(query, given, order)
    if not query.head:
        return join.total(executor, parts, budget)
    return accumulate(join.chunks(executor, parts, budget), len(query.head))


def generic_join_chunks(
    query: Query | str, views: Views, *, order: Sequence[str] | None = None
) -> Iterator[ZSet]:
    """As `generic_join`, but yield Z-sets of at most 65,536 rows whose sum is the result.

    It needs the memory of one chunk, regardless of the size of the result.

    >>> pairs = ZSet.from_columns([range(1000)])
    >>> chunks = generic_join_chunks("q(a, b) :- r(a), r(b)", {"r": pairs})
    >>> sum(len(chunk) for chunk in chunks)
    1000000
    """
    query = parse_query(query)
    join = _OneShot(query, _per_atom(query, views), order)
    if not query.head:
        yield join.total(None, 1, None)
    else:
        yield from join.chunks(None, 1, None)


def parse_query(query: Query | str) -> Query:
    """Return a query; parse it if it is a text.

    Raises:
        ArgumentTypeError: It is neither a query nor a text.
        QuerySyntaxError, UnsafeVariableError, ArityError: As `Query.parse`.
    """
    return query if isinstance(query, Query) else Query.parse(query)


class _OneShot:
    """A query's plan over given views, each of them sorted once per column order."""

    def __init__(self, query: Query, views: Sequence[View], order: Sequence[str] | None) -> None:
        check_constants(query)
        check_order(query, order)
        body = normalize_body(query)
        self.arity = len(query.head)
        self.physical: PhysicalTerm | None = None
        if body.is_never_true or any(_is_empty(view) for view in views):
            return
        plan: TermPlan = plan_term(
            body.columns,
            body.comparisons,
            query.head,
            is_arranged=lambda factor, columns: _is_arranged(views[factor], columns),
            order=order,
        )
        self._runs: dict[tuple[int, ColumnOrder], Run] = {}
        deltas: Int64Array = np.zeros(len(views), np.int64)
        sources: list[Source] = []
        for index, (view, factor) in enumerate(zip(views, plan.factors, strict=True)):
            if isinstance(view, Trace) and view.has(factor.order):
                sources.append(Source(view.arrange(factor.order).spine, -1))
                continue
            key = (id(view), factor.order)
            if key not in self._runs:
                zset = view.to_zset() if isinstance(view, Trace) else to_storable(view)
                self._runs[key] = build_run(zset, factor.order)
            deltas[index] = self._runs[key].address
            sources.append(Source(None, index))
        self._views = views
        self.physical = physical = PhysicalTerm(plan, sources, deltas, JoinBuffers())
        closing = physical.closing_factor
        if closing is not None and deltas[closing]:
            physical.pack_closing_run(self._runs[id(views[closing]), plan.factors[closing].order])

    def total(self, executor: Executor | None, parts: int, budget: Budget | None) -> ZSet:
        if self.physical is None:
            return ZSet.empty(0)
        total = self.physical.total
        return ZSet.scalar(sum(total(*share, budget) for share in self._shares(executor, parts)))

    def chunks(
        self, executor: Executor | None, parts: int, budget: Budget | None
    ) -> Iterator[ZSet]:
        if self.physical is None:
            return
        for share in self._shares(executor, parts):
            yield from self.physical.chunks(*share, budget)

    def _shares(
        self, executor: Executor | None, parts: int
    ) -> Iterator[tuple[Ranges, Executor | None]]:
        """Yield ranges that together cover all values, and the executor that runs them.

        The caller runs each share before it requests the next. The first share is small; its number
        of proposals decides whether the rest is split into parts.
        """
        assert self.physical is not None
        physical, plan = self.physical, self.physical.plan
        candidates = [
            self._runs[id(view), factor.order]
            for view, factor in zip(self._views, plan.factors, strict=True)
            if plan.is_split_factor(factor) and (id(view), factor.order) in self._runs
        ]
        smallest = min(candidates, key=lambda run: run.rows, default=None)
        pieces = -(-smallest.rows // MIN_PARALLEL_ROWS) if smallest is not None else 1
        if parts <= 1 or smallest is None or pieces == 1:
            yield WHOLE, None
            return
        if executor is None:
            yield value_ranges(smallest, min(parts, pieces)), None
            return
        low, high = value_ranges(smallest, pieces)[0]
        before = physical.counters[:, PROPOSALS].sum()
        yield [(low, high)], None
        proposed = pieces * int(physical.counters[:, PROPOSALS].sum() - before)
        last = WHOLE[0][1]
        if high == last:
            return
        parts = min(parts, pieces, proposed // MIN_PART_PROPOSALS)
        if proposed < MIN_PARALLEL_PROPOSALS or parts <= 1:
            yield [(high + 1, last)], None
            return
        ranges = value_ranges(smallest, parts)
        yield [(max(least, high + 1), most) for least, most in ranges if most > high], executor


def _is_empty(view: View) -> bool:
    if isinstance(view, Trace):
        return view.is_empty
    return len(view) == 0


def view_to_zset(view: View, arity: int) -> ZSet:
    """The rows of a view; a trace stores rows without columns with one column, which is dropped."""
    if isinstance(view, ZSet):
        return view
    zset = ZSet.empty(view.arity) if view.is_empty else view.to_zset()
    return (
        zset if arity else consolidated_rows(np.empty((0, len(zset)), np.int64), zset.weight_array)
    )


def _is_arranged(view: View, order: ColumnOrder) -> bool:
    return view.has(order) if isinstance(view, Trace) else order == tuple(range(len(order)))


def _per_atom(query: Query, views: Views) -> list[View]:
    if isinstance(views, Mapping):
        for name in query.relations:
            if name not in views:
                raise UnknownRelationError(
                    f"relation {name!r} of the query has no view; given: {sorted(views)}"
                )
        given = [views[atom.relation] for atom in query.body]
    else:
        check_type("views", views, Sequence, "one Z-set per atom, or a mapping from relations")
        given = list(views)
    if len(given) != len(query.body):
        raise ArityError(f"{len(given)} views for {len(query.body)} atoms; give one per atom")
    for atom, view in zip(query.body, given, strict=True):
        check_type(f"the view of '{atom}'", view, (ZSet, Trace), "a ZSet or a Trace")
        arity = max(atom.arity, 1) if isinstance(view, Trace) else atom.arity
        if view.arity != arity:
            raise ArityError(f"'{atom}' has arity {atom.arity}, its view {view.arity}")
    return given


def _reference(query: Query, views: Sequence[View], order: Sequence[str] | None) -> ZSet:
    given = [view_to_zset(view, atom.arity) for view, atom in zip(views, query.body, strict=True)]
    result = reference_join(query, [view.to_dict() for view in given], order=order)
    for row, weight in result.items():
        if abs(weight) > MAX_INT64:
            raise WeightOverflowError(
                f"row {row} would get weight {weight}, beyond int64 ({MAX_INT64}); "
                f"use dbsp_wcoj.reference.join.reference_join for exact Python integers"
            )
    return ZSet.from_rows(result.keys(), result.values(), arity=len(query.head))
