"""Filters and maps, pushed towards the leaves as a plan is built.

Both are linear, so they pass through Union and Negate, and a map of a map is one map. A plan that
reads two of twenty columns of a union of relations therefore keeps two columns of each. A union
that many paths lead through stays as it is (`MAX_PATHS`), so plans grow linearly with the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from circuits.plan.expressions import Column, Expression, columns_of, reads_of, substitute
from circuits.plan.nodes import (
    Aggregate,
    Filter,
    Map,
    Negate,
    PartialAggregate,
    Plan,
    Union,
    columns,
)

__all__ = ["push_filter", "push_projection"]

# A union that more paths lead through is not rewritten: each filter above a chain of unions that
# share their inputs would double the plan.
MAX_PATHS: Final = 16


def push_projection(
    plan: Plan, expressions: Sequence[Expression], names: Sequence[str] | None = None
) -> Plan:
    """The plan of these expressions over the columns of ``plan``."""
    wanted = tuple(expressions)
    if wanted == columns(plan):
        return plan
    if names is None:
        names = [
            plan.fields[e.index].name if isinstance(e, Column) else f"x{i}"
            for i, e in enumerate(wanted)
        ]
    match plan:
        case Union(inputs, memo=memo) if plan.paths <= MAX_PATHS:
            key = "projection", wanted, tuple(names)
            if key not in memo:
                memo[key] = Union(tuple(push_projection(p, wanted, names) for p in inputs))
            found: Plan = memo[key]
            return found
        case Negate(below):
            return Negate(push_projection(below, wanted, names))
        case Map(below, inner):
            merged = tuple(substitute(e, inner) for e in wanted)
            if _reads_each_once(wanted, inner):
                return push_projection(below, merged, names)
        case Aggregate():
            return _without_unread(plan, wanted, tuple(names))
    return Map(plan, wanted, tuple(names))


def push_filter(plan: Plan, predicate: Expression) -> Plan:
    """The rows of ``plan`` for which the predicate is true."""
    match plan:
        case Union(inputs, memo=memo) if plan.paths <= MAX_PATHS:
            key = "filter", predicate
            if key not in memo:
                memo[key] = Union(tuple(push_filter(p, predicate) for p in inputs))
            found: Plan = memo[key]
            return found
        case Negate(below):
            return Negate(push_filter(below, predicate))
        case Map(below, inner, names) if all(
            isinstance(inner[i], Column) for i in columns_of(predicate)
        ):
            return Map(push_filter(below, substitute(predicate, inner)), inner, names)
        case PartialAggregate(below, kept) if all(i < kept for i in columns_of(predicate)):
            return replace(plan, input=push_filter(below, predicate))
    return Filter(plan, predicate)


def _reads_each_once(wanted: Sequence[Expression], inner: Sequence[Expression]) -> bool:
    """Whether merging two maps computes nothing twice."""
    computed = [i for e in wanted for i in reads_of(e) if not isinstance(inner[i], Column)]
    return len(computed) == len(set(computed))


def _without_unread(
    plan: Aggregate, wanted: tuple[Expression, ...], names: tuple[str, ...]
) -> Plan:
    """An aggregate without the results that nobody reads.

    Who reads the keys alone is most often a semijoin or an outer join, beside one who reads results
    as well: both have the same aggregate.
    """
    keys = len(plan.keys)
    read = {i for e in wanted for i in columns_of(e)}
    kept = [i for i in range(len(plan.aggregates)) if keys + i in read]
    if len(kept) in (0, len(plan.aggregates)):
        return Map(plan, wanted, names)
    place = {keys + i: keys + k for k, i in enumerate(kept)}
    less = Aggregate(plan.input, plan.keys, tuple(plan.aggregates[i] for i in kept))
    moved = [substitute(e, lambda c: Column(place.get(c.index, c.index), c.type)) for e in wanted]
    return Map(less, tuple(moved), names)
