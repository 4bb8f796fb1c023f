"""Conditions on the keys of groups, applied to the rows before they are grouped.

::

    Filter k > 5                      Aggregate sum(x) by k
      Aggregate sum(x) by k    ->       Filter k > 5

All rows of a group have the same key, so both plans have the same result. The second one keeps no
state of the other groups, and does not compute their arguments, which may fail: for example
``sum(CAST(s AS INT)) ... HAVING k > 5`` if ``s`` is no number in another group. DuckDB and Spark
move such conditions, too.

The rows of SELECT DISTINCT are such groups, too. Only groups with keys: without keys there is one
group, also for an input without rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from circuits.plan.expressions import Column, Expression, columns_of, size_after, substitute
from circuits.plan.nodes import Aggregate, Distinct, Filter, Map, PlanNode
from circuits.plan.rewrite.conditions import computes_values

__all__ = ["filter_before_groups"]

# The maximum size of a condition after the expressions of a SELECT were substituted into it.
_MAX_CONDITION_NODES: Final = 256


def filter_before_groups(plan: Filter, readers: Mapping[int, int]) -> PlanNode | None:
    """Return the plan with its condition before the groups; None if it does not read only keys.

    A condition that computes values stays behind the conditions that are written before it.

    Args:
        plan: A condition, above the SELECT with the groups.
        readers: How many nodes read each node, by ``id``. A node with several readers is computed
            once for all of them, so it stays as it is.
    """
    return _push(plan.input, plan.predicate, readers)


def _push(plan: PlanNode, predicate: Expression, readers: Mapping[int, int]) -> PlanNode | None:
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
