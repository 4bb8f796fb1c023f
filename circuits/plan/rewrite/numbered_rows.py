"""Numbered rows: read the first rows of each group and number them in one node.

::

    Window(TopK(a, keys p, order o), partition p, order o, row_number())   becomes   NumberedTopK(a)

``row_number() OVER (PARTITION BY p ORDER BY o) <= k`` is planned as a TopK, which reads the first
rows, and a Window, which numbers them (`circuits.sql.aggregation.row_number`). As two operators,
both would store their input in the same order, and both would read the first rows of each changed
group.
"""

from __future__ import annotations

from circuits.plan.nodes import PlanNode, TopK
from circuits.plan.physical_nodes import NumberedTopK
from circuits.plan.window import Window

__all__ = ["number_top_rows", "without_numbers"]


def number_top_rows(plan: PlanNode) -> PlanNode:
    """Return the node as a `NumberedTopK` if it only numbers the rows of a TopK, else unchanged."""
    match plan:
        case Window(TopK(input, keys, order, limit, offset), partition, window_order, (call,)) if (
            not isinstance(plan.input, NumberedTopK)  # its numbers are a column that may be read
            and call.function == "row_number"
            and limit is not None
            and (partition, window_order) == (keys, order)
        ):
            return NumberedTopK(input, keys, order, limit, offset, call.name)
    return plan


def without_numbers(plan: NumberedTopK) -> TopK:
    """Return a TopK with the same rows, without the column of their numbers."""
    return TopK(plan.input, plan.keys, plan.order, plan.limit, plan.offset)
