"""Prefix lookup: the first rows of a trace that begin with given values, for operators on groups.

A prefix is a value for each of the first k columns: the key of a group. The rows of a prefix are
sorted by the other columns. `prefix_lookup` returns those of positive weight, from the first one
on, until their weights add up to ``limit``: an aggregate reads all rows of a group, a minimum the
first, top-k the first k. The call returns the weights of each row before and after a staged step,
so that the caller computes the delta of its result from one pass.

If the first columns after the prefix determine the caller's order only up to ties (as the first
eight bytes of a string do), the caller passes their number as ``tie_columns`` and also gets all
rows that are tied with the last one.

Cost: O(log N) per prefix and run to find it, O(runs * columns) per row that is read or skipped: a
deleted row is skipped until a merge removes it. Alternative considered:
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
    """The rows of some prefixes, sorted by prefix and then by the other columns.

    Attributes:
        prefix_index: For each row, the index of its prefix in ``prefixes``.
        rows: The columns of each row after the prefix.
        old: The weight of each row before the step; 0 if there was none that is returned: the row
            comes after the limit, or its weight is negative without ``signed``.
        new: The same after the step.
    """

    prefix_index: Int64Array
    rows: Int64Array
    old: Int64Array
    new: Int64Array


def prefix_lookup(
    trace: Trace,
    prefixes: Int64Array,
    *,
    limit: int | None = None,
    tie_columns: int | None = None,
    signed: bool = False,
    step: TraceStep | None = None,
    starts: Int64Array | None = None,
    times: Int64Array | None = None,
    order: ColumnOrder | None = None,
) -> PrefixRows:
    """Return the first rows of positive weight of each prefix, before and after a step.

    Args:
        trace: The trace; an arrangement in ``order`` is built if it has none.
        prefixes: Values of the first k columns of the order, shape ``(k, n)``; fastest when sorted.
        limit: Return rows until their weights add up to this; at least 1, or None for all rows.
        tie_columns: Also return the rows that equal the last one in this many columns after the
            prefix (ties). By default no two rows are tied.
        signed: Return rows of negative weight as well; only without a limit.
        step: The staged step of the trace; without it the new weights are the old ones.
        starts: For each prefix, the row at which to start: values of the columns after the prefix,
            shape ``(arity - k, n)``. It saves the time to read smaller rows, none of which may have
            a positive weight before the step.
        times: For each prefix, a time, shape ``(n,)``; the last column is a time as well. Rows are
            returned until one was present at this time or earlier before the step, and one, which
            may be another, after it; later times of the last row may be missing. A row is present
            at a time if the weights up to then of the rows that differ from it only in the time add
            up to more than 0. Only with ``signed``.
        order: The column order in which rows are read and returned; by default the order of the
            columns.

    Raises:
        ArityError: The prefixes have as many columns as the trace, or more; or ``starts`` or
            ``times`` have another shape.
        WeightError: The limit is below 1, or is combined with ``signed``; or there are times
            without ``signed``.

    Complexity:
        O(runs log N) per prefix, O(runs * columns) per row that is read or skipped.

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(7, 3), (7, 4), (7, 9), (8, 1)], [1, 2, 1, 1]))
    >>> result = prefix_lookup(trace, np.array([[7, 8]]), limit=2)
    >>> result.prefix_index.tolist(), result.rows.tolist(), result.old.tolist()
    ([0, 0, 1], [[3, 4, 1]], [1, 2, 1])
    >>> step = trace.prepare(ZSet.from_rows([(7, 3)], [-1]))
    >>> result = prefix_lookup(trace, np.array([[7]]), limit=1, step=step)
    >>> result.rows.tolist(), result.old.tolist(), result.new.tolist()
    ([[3, 4]], [1, 0], [0, 2])
    """
    k = len(prefixes)
    depth = trace.arity - k
    if depth < 1:
        raise ArityError(
            f"a prefix of {k} columns leaves no column of {trace.arity}; give at most "
            f"{trace.arity - 1}, or look the rows up with Trace.weights_of"
        )
    if limit is not None and (limit < 1 or signed):
        raise WeightError(
            f"limit {limit} with signed={signed}: a limit is at least 1 and counts positive rows; "
            f"give None for all rows"
        )
    if times is not None and not signed:
        raise WeightError("times need signed=True: the sum of weights up to a time has all of them")
    count = prefixes.shape[1]
    if starts is not None and starts.shape != (depth, count):
        raise ArityError(f"starts of shape {starts.shape}; give shape {(depth, count)}, or None")
    if times is not None and times.shape != (count,):
        raise ArityError(f"times of shape {times.shape}; give one for each of {count} prefixes")
    order = order or tuple(range(trace.arity))
    starts = np.empty((depth, 0), np.int64) if starts is None else np.ascontiguousarray(starts)
    tie_columns = depth if tie_columns is None else tie_columns
    return PrefixRows(
        *look_up_prefixes(
            trace.arrange(order).spine.table,
            0 if step is None else step.run(order).address,
            np.ascontiguousarray(prefixes),
            starts,
            np.empty(0, np.int64) if times is None else np.ascontiguousarray(times),
            trace.arity,
            -1 if limit is None else limit,
            tie_columns,
            signed,
        )
    )
