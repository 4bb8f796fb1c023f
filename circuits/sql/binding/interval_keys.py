"""Intervals with months in comparisons, and as keys of groups, set operations and partitions.

In SQL ``1 month`` equals ``30 days``. They are different values, because a date plus one month is
not the date plus 30 days, so they have different dictionary codes
(`circuits.types.codecs.intervals`). So a comparison compares the lengths of both sides
(function ``interval_key``). Keys are compared by their codes, so they are normalized first: a group
of ``1 month`` and ``30 days`` has the key ``1 month``. The joins that rewrite rules add, such as
those of correlated subqueries, are not normalized: in them, ``1 month`` and ``30 days`` differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from circuits.plan.expressions import Expression
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.types import functions
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.coercion import adapt
from circuits.types.functions.type_rules import common_type

__all__ = [
    "INTERVAL_COMPARISONS",
    "lengths_of_intervals",
    "normalize_interval",
    "normalize_intervals",
]

#: The functions that compare their arguments; ``same`` is IS NOT DISTINCT FROM.
INTERVAL_COMPARISONS: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "same", "in"})


def lengths_of_intervals(arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    """Replace the arguments of a comparison by their lengths if one is an interval with months.

    The lengths of durations and literals next to such an interval are computed as well.

    Returns:
        The lengths, as binaries; the arguments themselves if none is an interval with months.

    Raises:
        FunctionError: An argument cannot be compared with an interval.
    """
    if all(argument.type != INTERVAL for argument in arguments):
        return tuple(arguments)
    adapted = adapt(arguments)
    if common_type(argument.type for argument in adapted) != INTERVAL:
        return adapted
    return tuple(
        functions.call("interval_key", functions.call("cast", argument, type=INTERVAL))
        for argument in adapted
    )


def normalize_interval(expression: Expression) -> Expression:
    """Return an expression whose equal values have equal codes; O(1).

    >>> from circuits.plan.expressions import Column
    >>> str(normalize_interval(Column(0, INTERVAL)))
    'normalized_interval(#0)'
    """
    if expression.type != INTERVAL:
        return expression
    return functions.call("normalized_interval", expression)


def normalize_intervals(plan: PlanNode) -> PlanNode:
    """Return a plan with normalized intervals in all columns; the plan itself if it has none."""
    if all(field.type != INTERVAL for field in plan.fields):
        return plan
    values = tuple(map(normalize_interval, columns(plan)))
    return Map(plan, values, tuple(field.name for field in plan.fields))
