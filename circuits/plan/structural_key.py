"""Identity: what makes two nodes of a graph one, so that equal parts of views are made once."""

from __future__ import annotations

from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    FinalAggregate,
    Join,
    Map,
    PartialAggregate,
    Plan,
    RecursiveDistinct,
    RowIdEncode,
    TopK,
    Values,
)

__all__ = ["structural_key"]


def structural_key(plan: Plan, below: tuple[int, ...]) -> object:
    """What a node is: the operator and its inputs, not the names of columns.

    Args:
        plan: Lowered.
        below: The nodes of its inputs.
    """
    types = tuple(f.type for f in plan.fields)
    match plan:
        case Values(_, rows):
            return "values", types, rows
        case Filter(_, predicate):
            return "filter", below, predicate
        case Map(_, expressions):
            return "map", below, expressions
        case RecursiveDistinct(_, cut):
            return "settle", below, cut
        case Join(_, variables, comparisons, head):
            return "join", below, variables, comparisons, head
        case Aggregate(_, keys, calls):
            return "aggregate", below, keys, _called(calls)
        case PartialAggregate(_, kept, calls):
            return "spread", below, kept, _called(calls)
        case FinalAggregate(_, keys, spread):
            given = tuple(f.type for f in spread.input.fields)
            return "totals", below, keys, given, _called(spread.aggregates)
        case RowIdEncode(_, kept):
            return "pack", below, kept
        case TopK(_, keys, order, limit, offset):
            return "top-k", below, keys, order, limit, offset
    return type(plan).__name__, below


def _called(calls: tuple[AggregateCall, ...]) -> object:
    return tuple((c.function, c.argument, c.distinct, c.type) for c in calls)
