"""The generic join of relations, computed once, by one of two engines.

The compiled engine runs the same kernel as the terms of a maintained join
(`dbsp_wcoj.kernels.join.join`). The reference engine (`dbsp_wcoj.reference.join`) is readable
Python; it shares no code with the compiled engine, so that their results can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from dbsp_wcoj.execution.physical_term import (
    PhysicalTerm,
    Source,
    TermPart,
    rows_of_parts,
    total_of_parts,
)
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
from dbsp_wcoj.storage.run import ALL_VALUES, Ranges, Run, value_ranges
from dbsp_wcoj.storage.trace import ColumnOrder, Trace, build_run
from dbsp_wcoj.workers import MIN_DIVIDED_ROWS, TASKS_PER_THREAD, current_workers
from dbsp_wcoj.zset import (
    MAX_INT64,
    Int64Array,
    ZSet,
    accumulate,
    consolidated_rows,
    to_storable,
)

__all__ = [
    "JoinInputs",
    "generic_join",
    "generic_join_chunks",
    "parse_query",
    "relation_to_zset",
]

# The rows of one relation.
JoinInput = ZSet | Trace
# One for each atom, in body order; or one for each relation, by name.
JoinInputs = Sequence[JoinInput] | Mapping[str, JoinInput]
Engine = Literal["compiled", "reference"]

# Parts run in parallel only if the whole join needs at least this many proposals, which take some
# milliseconds.
MIN_PARALLEL_PROPOSALS = 1 << 22
# The number of parallel parts is limited so that each needs at least this many proposals.
MIN_PART_PROPOSALS = 1 << 19


def generic_join(
    query: Query | str,
    relations: JoinInputs,
    *,
    order: Sequence[str] | None = None,
    engine: Engine = "compiled",
    budget: Budget | None = None,
) -> ZSet:
    """Join all atoms of ``query``, binding one variable at a time.

    For each prefix the atom with the fewest extensions proposes and every other atom intersects,
    so the work stays within the AGM bound regardless of skew [1].

    Args:
        query: Conjunctive query, or its text.
        relations: A Z-set for each atom, in body order; or for each relation, by name. A `Trace`
            can take the place of a Z-set; it is not copied if it has the arrangement that the plan
            needs.
        order: A permutation of the query's variables; by default the planner chooses one.
        engine: "compiled", or "reference" for the readable join.
        budget: Limits the compiled engine; without it there is no limit.

    Returns:
        Consolidated Z-set of arity ``len(query.head)``. A row's weight is the product of the
        weights of the rows that it joins, summed over the variables that are not in the head.

    Raises:
        UnknownRelationError: A relation of the query is missing from the mapping.
        ArityError: A relation has another arity than its atom, or there is not one for each atom.
        VariableOrderError: ``order`` is not a permutation of the variables.
        ColumnTypeError: A constant of the query is not an int64.
        WeightOverflowError: A weight leaves int64.
        LimitError: The join uses more than the budget allows.

    Complexity:
        O(AGM(query) * log N) time, where N is the number of rows of the largest relation; memory
        for the result and one sorted copy of each relation in each column order of the plan.

    References:
        [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013, section 3.

    >>> edges = ZSet.from_rows([(1, 2), (2, 3), (1, 3), (3, 4)])
    >>> generic_join("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)", {"e": edges})
    ZSet({(1, 2, 3): 1})
    >>> generic_join("n() :- e(a, b), e(b, c)", [edges, edges]).to_dict()
    {(): 3}
    """
    query = parse_query(query)
    by_atom = _relation_of_each_atom(query, relations)
    check_type("engine", engine, str, "'compiled' or 'reference'")
    if order is not None:
        check_type("order", order, Sequence, "names of variables")
    if engine == "reference":
        return _join_by_reference(query, by_atom, order)
    if engine != "compiled":
        raise DbspWcojError(f"unknown engine {engine!r}; use 'compiled' or 'reference'")
    join = _OneShotJoin(query, by_atom, order)
    if not query.head:
        return join.total(budget)
    return accumulate(join.chunks(budget), len(query.head))


def generic_join_chunks(
    query: Query | str, relations: JoinInputs, *, order: Sequence[str] | None = None
) -> Iterator[ZSet]:
    """Like `generic_join`, but yield Z-sets of at most 65,536 rows whose sum is the result.

    The result needs the memory of only one chunk at a time. It is that of the relations when the
    first chunk is read; updates of a trace after that do not change it.

    >>> pairs = ZSet.from_columns([range(1000)])
    >>> chunks = generic_join_chunks("q(a, b) :- r(a), r(b)", {"r": pairs})
    >>> sum(len(chunk) for chunk in chunks)
    1000000
    """
    query = parse_query(query)
    join = _OneShotJoin(query, _relation_of_each_atom(query, relations), order)
    if not query.head:
        yield join.total(None)
    else:
        yield from join.chunks(None, parallel=False)


def parse_query(query: Query | str) -> Query:
    """Return a query; parse it if it is a text.

    Raises:
        ArgumentTypeError: It is neither a query nor a text.
        QuerySyntaxError, UnsafeVariableError, ArityError: As `Query.parse`.
    """
    return query if isinstance(query, Query) else Query.parse(query)


class _OneShotJoin:
    """A query's plan, with the relations sorted in the column orders that it needs."""

    def __init__(
        self, query: Query, relations: Sequence[JoinInput], order: Sequence[str] | None
    ) -> None:
        check_constants(query)
        check_order(query, order)
        body = normalize_body(query)
        self.arity = len(query.head)
        self.physical: PhysicalTerm | None = None
        if body.is_never_true or any(_is_empty(relation) for relation in relations):
            return
        plan: TermPlan = plan_term(
            body.columns,
            body.comparisons,
            query.head,
            is_arranged=lambda factor, columns: _is_arranged(relations[factor], columns),
            order=order,
        )
        self._runs: dict[tuple[int, ColumnOrder], Run] = {}
        # The runs of traces: between two chunks, the caller may update a trace, which drops runs.
        self._trace_runs: list[Sequence[Run]] = []
        # A join reads old relations and deltas. An arrangement of a trace is passed as an old
        # relation, and a run that is built here as a delta.
        run_addresses: Int64Array = np.zeros(len(relations), np.int64)
        sources: list[Source] = []
        for index, (relation, factor) in enumerate(zip(relations, plan.factors, strict=True)):
            if isinstance(relation, Trace) and relation.has_arrangement(factor.order):
                spine = relation.arrange(factor.order).spine
                self._trace_runs.append(tuple(spine.runs))
                sources.append(Source(spine, delta_slot=-1))
                continue
            key = (id(relation), factor.order)
            if key not in self._runs:
                zset = relation.to_zset() if isinstance(relation, Trace) else to_storable(relation)
                if not len(zset):  # all rows of a trace cancel
                    return
                self._runs[key] = build_run(zset, factor.order)
            run_addresses[index] = self._runs[key].address
            sources.append(Source(None, delta_slot=index))
        self._relations = relations
        self.physical = physical = PhysicalTerm(plan, sources, run_addresses, JoinBuffers())
        # If the last two variables close a cycle or clique, the join intersects the lists of the
        # factor with both variables many times. So it pays to prepare them.
        if physical.cycle_factors is not None:
            closing, fixed = (
                self._runs.get((id(relations[factor]), plan.factors[factor].order))
                if factor is not None and run_addresses[factor]
                else None
                for factor in physical.cycle_factors
            )
            if closing is not None:
                physical.buffers.set_lists(physical.prepare_cycle(closing, fixed))

    def total(self, budget: Budget | None) -> ZSet:
        if self.physical is None:
            return ZSet.empty(0)
        total = 0
        for parts in self._shares():
            if len(parts) > 1:
                total += total_of_parts(parts, budget)
            else:
                (part,) = parts
                total += part.term.total(_ranges(part), budget)
        return ZSet.scalar(total)

    def chunks(self, budget: Budget | None, *, parallel: bool = True) -> Iterator[ZSet]:
        if self.physical is None:
            return
        if not parallel:
            yield from self.physical.chunks(budget=budget)
            return
        for parts in self._shares():
            if len(parts) > 1:
                yield from rows_of_parts(parts, budget)
            else:
                (part,) = parts
                yield from part.term.chunks(_ranges(part), budget)

    def _shares(self) -> Iterator[Sequence[TermPart]]:
        """Split the values of the variable at the plan's `split_level` into shares of the work.

        The caller runs each share before it requests the next one. The first share is small. Its
        number of proposals decides whether workers divide the others.

        Yields:
            The parts of a share, which may be computed at the same time.
        """
        assert self.physical is not None
        physical, plan = self.physical, self.physical.plan
        workers = current_workers()
        candidates = [
            self._runs[id(relation), factor.order]
            for relation, factor in zip(self._relations, plan.factors, strict=True)
            if plan.is_split_factor(factor) and (id(relation), factor.order) in self._runs
        ]
        smallest = min(candidates, key=lambda run: run.rows, default=None)
        max_parts = -(-smallest.rows // MIN_DIVIDED_ROWS) if smallest is not None else 1
        if workers is None or smallest is None or max_parts == 1:
            yield [TermPart(physical, *ALL_VALUES[0])]
            return
        low, high = value_ranges(smallest, max_parts)[0]
        proposals_before = physical.counters[:, PROPOSALS].sum()
        yield [TermPart(physical, low, high)]
        expected_proposals = max_parts * int(
            physical.counters[:, PROPOSALS].sum() - proposals_before
        )
        highest = ALL_VALUES[0][1]
        if high == highest:
            return
        max_parts = min(max_parts, expected_proposals // MIN_PART_PROPOSALS)
        parts = min(workers.threads * TASKS_PER_THREAD, max_parts)
        if expected_proposals < MIN_PARALLEL_PROPOSALS or parts <= 1:
            yield [TermPart(physical, high + 1, highest)]
            return
        yield [
            TermPart(physical, max(first, high + 1), last)
            for first, last in value_ranges(smallest, parts)
            if last > high
        ]


def _ranges(part: TermPart) -> Ranges:
    bounds = part.low, part.high
    return ALL_VALUES if bounds == ALL_VALUES[0] else [bounds]


def _is_empty(relation: JoinInput) -> bool:
    if isinstance(relation, Trace):
        return relation.is_empty
    return len(relation) == 0


def relation_to_zset(relation: JoinInput, arity: int) -> ZSet:
    """The rows of a relation.

    A trace stores a relation without columns with one column, which is dropped here.
    """
    if isinstance(relation, ZSet):
        return relation
    zset = ZSet.empty(relation.arity) if relation.is_empty else relation.to_zset()
    if arity:
        return zset
    return consolidated_rows(np.empty((0, len(zset)), np.int64), zset.weight_array)


def _is_arranged(relation: JoinInput, order: ColumnOrder) -> bool:
    return (
        relation.has_arrangement(order)
        if isinstance(relation, Trace)
        else order == tuple(range(len(order)))
    )


def _relation_of_each_atom(query: Query, relations: JoinInputs) -> list[JoinInput]:
    if isinstance(relations, Mapping):
        for name in query.relations:
            if name not in relations:
                raise UnknownRelationError(
                    f"relation {name!r} of the query is missing; relations: "
                    f"{', '.join(sorted(relations)) or 'none'}"
                )
        by_atom = [relations[atom.relation] for atom in query.body]
    else:
        check_type(
            "relations", relations, Sequence, "one Z-set per atom, or a mapping from relations"
        )
        by_atom = list(relations)
    if len(by_atom) != len(query.body):
        raise ArityError(f"{len(by_atom)} relations for {len(query.body)} atoms; give one per atom")
    for atom, relation in zip(query.body, by_atom, strict=True):
        check_type(f"the relation of '{atom}'", relation, (ZSet, Trace), "a ZSet or a Trace")
        arity = max(atom.arity, 1) if isinstance(relation, Trace) else atom.arity
        if relation.arity != arity:
            raise ArityError(
                f"'{atom}' has arity {atom.arity}, but its relation has {relation.arity}; "
                f"project it"
            )
    return by_atom


def _join_by_reference(
    query: Query, relations: Sequence[JoinInput], order: Sequence[str] | None
) -> ZSet:
    zsets = [
        relation_to_zset(relation, atom.arity)
        for relation, atom in zip(relations, query.body, strict=True)
    ]
    result = reference_join(query, [relation.to_dict() for relation in zsets], order=order)
    for row, weight in result.items():
        if abs(weight) > MAX_INT64:
            raise WeightOverflowError(
                f"row {row} would get weight {weight}, beyond int64 ({MAX_INT64}); "
                f"use dbsp_wcoj.reference.join.reference_join for exact Python integers"
            )
    return ZSet.from_rows(result.keys(), result.values(), arity=len(query.head))
