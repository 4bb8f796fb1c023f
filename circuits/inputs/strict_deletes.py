"""Strict deletes: a row that does not exist cannot be deleted.

::

    Z[x] >= 0                                       Z: the relation, after every step
    applied[x]  = max(d[x], -Z[x])                  d: the delta that the user gives
    shortage[x] = min(d[x] + Z[x], 0)               applied + shortage = d

An example stream, one row ``x``::

    delta       +1   -2   -1   +2   -1
    relation     1    0    0    2    1
    shortage     0   -1   -1    0    0

Cost: O(log N) for each row with a negative weight. The weights of one step are added up first, so a
row may be deleted and inserted in one step, in any order.
"""

from __future__ import annotations

import numpy as np

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.zset import Int64Array, to_storable

__all__ = ["shortage"]


def shortage(delta: ZSet, trace: Trace) -> tuple[ZSet, Int64Array]:
    """Return the part of a delta that would make weights negative.

    Returns:
        The rows, with the negative weights that they would have, and the weights that they have in
        the trace.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(7,), (8,)]))
    >>> shortage(ZSet.from_rows([(7,), (8,), (9,)], [-3, -1, 1]), trace)
    (ZSet({(7,): -2}), array([1]))
    """
    deleted = np.flatnonzero(delta.weight_array < 0)
    if not len(deleted):
        return ZSet.empty(delta.arity), np.empty(0, np.int64)
    rows = ZSet(np.ascontiguousarray(delta.row_array[:, deleted]), delta.weight_array[deleted])
    existing = trace.weights_of(to_storable(rows))
    # All weights of a strict relation are positive, so this sum cannot leave int64.
    after = existing + rows.weight_array
    missing = np.flatnonzero(after < 0)
    shortages = ZSet(np.ascontiguousarray(rows.row_array[:, missing]), after[missing])
    return shortages, existing[missing]
