"""Trace limits: the delta of a trace that keeps no rows before a limit in one of its columns.

::

    T'  =  (T + d)[column >= limit]         limited_delta  =  T' - T

The limit never decreases, and T has no rows before the limit of the previous step. So only the rows
between the two limits are read. Rows with NULL in the column are kept.

Cost: O(runs log N), and O(columns) per row that is dropped (`dbsp_wcoj.storage.range_scan`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from circuits.types.codecs.arrow_buffers import NULL
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.storage.trace import ColumnOrder

__all__ = ["MIN_CODE", "first_value", "limited_delta", "order_beginning_with", "split_at"]

#: The least code of a value.
MIN_CODE: Final = NULL + 1


def order_beginning_with(trace: Trace, column: int) -> ColumnOrder:
    """Return a column order that begins with a column, of an arrangement if there is one.

    >>> order_beginning_with(Trace(3, [(2, 1, 0)]), 2), order_beginning_with(Trace(3), 2)
    ((2, 1, 0), (2, 0, 1))
    """
    for order in trace.orders:
        if order[0] == column:
            return order
    return column, *(other for other in range(trace.arity) if other != column)


def split_at(zset: ZSet, column: int, limit: int) -> tuple[ZSet, ZSet]:
    """Return the rows before a limit, and all others.

    >>> split_at(ZSet.from_rows([(1,), (2,), (3,)]), 0, 3)
    (ZSet({(1,): 1, (2,): 1}), ZSet({(3,): 1}))
    """
    codes = zset.row_array[column]
    is_before = (codes < limit) & (codes != NULL)
    if not is_before.any():
        return ZSet.empty(zset.arity), zset
    rows, weights = zset.row_array, zset.weight_array
    before = ZSet(np.ascontiguousarray(rows[:, is_before]), weights[is_before])
    return before, ZSet(np.ascontiguousarray(rows[:, ~is_before]), weights[~is_before])


def limited_delta(trace: Trace, column: int, delta: ZSet, previous_limit: int, limit: int) -> ZSet:
    """Return the delta of a trace in a step that also drops the rows before a limit.

    Args:
        trace: The rows.
        column: The column with the limit.
        delta: The change by the step, before rows are dropped.
        previous_limit: The limit of the previous step.
        limit: The limit of this step.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(1,), (5,)]))
    >>> limited_delta(trace, 0, ZSet.from_rows([(2,), (6,)]), 0, 3)
    ZSet({(1,): -1, (6,): 1})
    """
    _, change = split_at(delta, column, limit)
    if limit > previous_limit and not trace.is_empty:
        dropped = range_scan(trace, order_beginning_with(trace, column), previous_limit, limit - 1)
        change = change - dropped if len(dropped) else change
    return change


def first_value(trace: Trace, column: int, delta: ZSet, low: int, limit: int) -> int | None:
    """Return the least value of a column before a limit, in a trace plus a delta.

    Args:
        trace: The rows.
        column: The column.
        delta: A change of the rows.
        low: The search begins here; no value may be before it.
        limit: The search ends before it.

    Returns:
        The value; None if there is none.

    Complexity:
        O(runs log N log (limit - low)), and O(1) per row that is read. The search reads intervals
        that double in width, up to the first one with a row.

    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 40), (8, 30), (9, 90)]))
    >>> first_value(trace, 1, ZSet.from_rows([(8, 30)], [-1]), 0, 100)
    40
    """
    order, width = order_beginning_with(trace, column), 1
    while low < limit:
        high = min(low + width, limit)
        rows = range_scan(trace, order, low, high - 1)
        changed, _ = split_at(split_at(delta, column, low)[1], column, high)
        total = rows + changed
        if len(total):
            return int(total.row_array[column].min())
        low, width = high, width * 2
    return None
