"""Key filters: push a predicate on group keys below the aggregate, to the rows of its input.

::

    Filter k > 5                      Aggregate sum(x) by k
      Aggregate sum(x) by k    ->       Filter k > 5

All rows of a group have the same key, so both plans have the same result. The second plan keeps no
state for groups that the predicate removes. It does not compute the arguments of their aggregates
either, which could fail: ``sum(CAST(s AS INT)) ... HAVING k > 5`` succeeds if ``s`` is not a number
in a group with ``k <= 5``. DuckDB and Spark push such predicates down, too.

A SELECT DISTINCT groups by all its columns, so every predicate on its rows is pushed down. An
aggregate without keys is left alone: it has one group even if its input has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from circuits.plan.expressions import Column, Expression, columns_of, size_after, substitute
from circuits.plan.nodes import Aggregate, Distinct, Filter, Map, PlanNode
from circuits.plan.rewrite.conditions import computes_values

__all__ = ["filter_before_groups"]

# The maximum number of expression nodes in a predicate, after the expressions of the SELECT lists
# between it and the aggregate are substituted into it.
_MAX_CONDITION_NODES: Final = 256


def filter_before_groups(plan: Filter, readers: Mapping[int, int]) -> PlanNode | None:
    """Push a predicate below the aggregate or the DISTINCT under it.

    A predicate that computes values may fail. It is not pushed past another filter, because that
    filter may remove the rows for which it fails.

    Args:
        plan: A filter, with the aggregate below it.
        readers: The number of nodes that read each node, by ``id``. A node with several readers is
            computed once for all of them, so its plan is not changed.

    Returns:
        The plan without the filter on top. None if the predicate cannot be pushed down: it reads
        results of aggregates, or a node on the way has several readers, or it would grow too large.
    """
    return _push(plan.input, plan.predicate, readers)


def _push(plan: PlanNode, predicate: Expression, readers: Mapping[int, int]) -> PlanNode | None:
    """Push a predicate on the rows of a plan into it; None if that is not possible."""
    if readers.get(id(plan), 0) > 1:
        return None
    match plan:
        case Map(input, expressions):
            if size_after([predicate], expressions) > _MAX_CONDITION_NODES:
                return None
            predicate = substitute(predicate, expressions)
        case Filter(input):
            if computes_values(predicate):
                return None
        case Distinct(input):
            return replace(plan, input=Filter(input, predicate))
        case Aggregate(input, keys):
            read = columns_of(predicate)
            if not read or max(read) >= len(keys):
                return None
            over_rows = substitute(
                predicate, lambda column: Column(keys[column.index], column.type)
            )
            return replace(plan, input=Filter(input, over_rows))
        case _:
            return None
    pushed = _push(input, predicate, readers)
    return None if pushed is None else plan.with_inputs([pushed])
