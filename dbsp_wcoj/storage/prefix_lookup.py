"""Prefix lookup: the first rows of a trace below given prefixes, for group-wise operators.

The rows below a prefix of k columns are sorted by the other columns. ``prefix_lookup`` returns the
first ones of positive weight, until their weights add up to ``limit``; an aggregate reads all rows
of a group, a minimum the first, top-k the first k. It reads the old trace and the new one (with the
delta of a staged step) in the same pass, so one call yields the delta of the result.

Some callers sort by columns that decide the order only up to ties (of strings, the first bytes).
They pass the number of columns that are ``decided`` and get the whole tie at the limit.

Cost: O(log N) per prefix and run to find it, O(runs) per row that is read. Alternatives considered:
an ordered multiset per group. It would be a second copy of the rows, in separate objects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dbsp_wcoj.errors import ArityError, WeightError
from dbsp_wcoj.kernels.storage.prefix_lookup import look_up_prefixes
from dbsp_wcoj.storage.trace import ColumnOrder, Trace, TraceStep
from dbsp_wcoj.zset import Int64Array

__all__ = ["PrefixRows", "prefix_lookup"]


class PrefixRows(NamedTuple):
    """Rows below prefixes, sorted by prefix and then by the other columns.

    Attributes:
        places: The position of each row's prefix.
        rows: The other columns of each row.
        old: Its weight in the trace without the step; 0 if it is not among the first rows there.
        new: Its weight in the trace with the step; 0 if it is not among the first rows there.
    """

    places: Int64Array
    rows: Int64Array
    old: Int64Array
    new: Int64Array


def prefix_lookup(
    trace: Trace,
    prefixes: Int64Array,
    *,
    limit: int | None = None,
    decided: int | None = None,
    signed: bool = False,
    step: TraceStep | None = None,
    starts: Int64Array | None = None,
    order: ColumnOrder | None = None,
) -> PrefixRows:
    """The first rows of positive weight below each prefix, in the old and in the new trace.

    Args:
        trace: Arranged in the order.
        prefixes: Values of the first k columns of the order, shape ``(k, n)``; fastest when sorted.
        limit: Return rows until their weights add up to this; at least 1, or None for all rows.
        decided: Also return all rows that equal the last one in this many columns after the prefix;
            by default in all columns, so there are none.
        signed: Return rows of negative weight as well; only without a limit.
        step: The staged step of the trace; without it the new weights are the old ones.
        starts: Rows, as columns of shape ``(arity - k, n)``: below its prefix no row before it has
            positive weight in the old trace. Only saves the time to read those.
        order: A permutation of the columns, in which rows are read and returned; by default
            that of the trace.

    Raises:
        ArityError: No column is left after the prefix.
        WeightError: The limit is below 1, or given beside ``signed``.

    Complexity:
        O(runs log N) per prefix, O(runs * columns) per row that is read.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 3), (7, 4), (7, 9), (8, 1)], [1, 2, 1, 1]))
    >>> found = prefix_lookup(trace, np.array([[7, 8]]), limit=2)
    >>> found.places.tolist(), found.rows.tolist(), found.old.tolist()
    ([0, 0, 1], [[3, 4, 1]], [1, 2, 1])
    >>> step = trace.prepare(ZSet.from_rows([(7, 3)], [-1]))
    >>> found = prefix_lookup(trace, np.array([[7]]), limit=1, step=step)
    >>> found.rows.tolist(), found.old.tolist(), found.new.tolist()
    ([[3, 4]], [1, 0], [0, 2])
    """
    k, n = prefixes.shape
    depth = trace.arity - k
    if depth < 1:
        raise ArityError(
            f"a prefix of {k} columns leaves nothing of {trace.arity}; give at most "
            f"{trace.arity - 1}, or look the rows up with Trace.weights_of"
        )
    if limit is not None and (limit < 1 or signed):
        raise WeightError(
            f"limit {limit} with signed={signed}: a limit is at least 1 and counts positive rows; "
            f"give None for all rows"
        )
    order = order or tuple(range(trace.arity))
    table = trace.arrange(order).spine.table
    extra = step.run(order) if step is not None else None
    prefixes = np.ascontiguousarray(prefixes)
    bounds = np.empty((depth, 0), np.int64) if starts is None else np.ascontiguousarray(starts)
    ties = depth if decided is None else decided
    pieces: list[PrefixRows] = []
    capacity = max(256, 4 * n)
    start = 0
    while True:
        places, old, new = np.empty((3, capacity), np.int64)
        rows = np.empty((depth, capacity), np.int64)
        start, written = look_up_prefixes(
            table,
            0 if extra is None else extra.address,
            prefixes,
            bounds,
            trace.arity,
            start,
            -1 if limit is None else limit,
            ties,
            signed,
            places,
            rows,
            old,
            new,
        )
        pieces.append(PrefixRows(places[:written], rows[:, :written], old[:written], new[:written]))
        if start == n:
            break
        # A prefix whose rows did not fit is read again from its first row.
        capacity *= 2
    if len(pieces) == 1:
        return pieces[0]
    return PrefixRows(*(np.concatenate(part, axis=-1) for part in zip(*pieces, strict=True)))
