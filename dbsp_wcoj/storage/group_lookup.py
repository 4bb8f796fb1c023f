"""Group lookup: the states of groups in a trace, before and after a step, for linear aggregates.

A row of the trace is the key of a group and a *slot*: the number of one accumulator of the group,
such as a count or a part of a sum. Its weight is the value of the accumulator. `group_slots`
returns the slots of many groups. It is a `prefix_lookup` of all rows with one column after the
prefix, but several times faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dbsp_wcoj.errors import ArityError
from dbsp_wcoj.kernels.storage.group_lookup import look_up_groups
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["GroupSlots", "group_slots"]


class GroupSlots(NamedTuple):
    """The state of several groups, one entry of each array per slot that is not 0.

    Attributes:
        group_indices: The index of the group.
        slots: The slot.
        weights: The weight of the slot.
    """

    group_indices: Int64Array
    slots: Int64Array
    weights: Int64Array


def group_slots(trace: Trace, keys: Int64Array, step: TraceStep | None = None) -> GroupSlots:
    """Return the slots of n groups before a step, followed by those after it.

    Args:
        trace: Rows (key, slot), of k + 1 columns.
        keys: The keys, shape ``(k, n)``; fastest when sorted.
        step: The staged step of the trace; without it the new weights are the old ones.

    Returns:
        The slots, sorted by index, then by slot: index i is group i before the step, n + i is group
        i after it.

    Raises:
        ArityError: The trace does not have k + 1 columns.

    Complexity:
        O(runs log N) per group, O(runs) per slot.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 0), (7, 128), (8, 0)], [2, 5, 1]))
    >>> step = trace.prepare(ZSet.from_rows([(7, 0), (8, 0)], [1, -1]))
    >>> before_and_after = group_slots(trace, np.array([[7, 8]]), step)
    >>> [array.tolist() for array in before_and_after]
    [[0, 0, 1, 2, 2], [0, 128, 0, 0, 128], [2, 5, 1, 3, 5]]
    """
    if len(keys) + 1 != trace.arity:
        raise ArityError(
            f"keys of {len(keys)} columns, and the trace has {trace.arity}; give "
            f"{trace.arity - 1}, because the last one is the slot"
        )
    order = tuple(range(trace.arity))
    return GroupSlots(
        *look_up_groups(
            trace.arrange(order).spine.table,
            0 if step is None else step.run(order).address,
            np.ascontiguousarray(keys),
        )
    )
