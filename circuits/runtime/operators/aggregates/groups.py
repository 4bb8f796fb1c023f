"""Groups of rows: the groups that a delta changes, and the delta of their result rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.arrow_buffers import BoolArray
from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.values.group_changes import distinct_keys, replaced_results
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["changed_groups", "changed_rows", "group_rows"]


def changed_groups(delta: ZSet | UnsortedRows, keys: Sequence[int]) -> Int64Array:
    """Return the distinct keys of a delta, sorted, of shape ``(keys, groups)``.

    Without key columns there is one group.

    >>> changed_groups(ZSet.from_rows([(2, 5), (1, 5), (2, 6)]), [0])
    array([[1, 2]])
    """
    if not keys:
        return np.empty((0, 1), np.int64)
    if isinstance(delta, ZSet) and tuple(keys) == tuple(range(len(keys))):  # sorted by the keys
        groups: Int64Array = distinct_keys(np.ascontiguousarray(delta.row_array), len(keys))
        return groups
    ones = np.ones(len(delta), np.int64)
    return consolidated_rows(delta.row_array[list(keys)], ones).row_array


def group_rows(sources: Sequence[ZSet], key_count: int) -> tuple[Int64Array, list[Int64Array]]:
    """Group the rows of all sources by their first ``key_count`` columns.

    Returns:
        The distinct keys, of shape ``(keys, groups)``, and for each source the group of each row.
    """
    if key_count == 0:
        return np.empty((0, 1), np.int64), [np.zeros(len(source), np.int64) for source in sources]
    columns = np.concatenate([source.row_array[:key_count] for source in sources], axis=1)
    groups, group_indices = np.unique(columns, axis=1, return_inverse=True)
    bounds = np.cumsum([len(source) for source in sources])[:-1]
    return groups, np.split(group_indices.reshape(-1), bounds)


def changed_rows(
    groups: Int64Array, exists: BoolArray, columns: Int64Array, *, initial: bool
) -> ZSet:
    """Return the delta that replaces old result rows by new ones, for the groups that differ.

    Args:
        groups: The keys, sorted and distinct, of shape ``(keys, n)``.
        exists: Whether each of the n groups had a result row before the step, then whether each has
            one after it.
        columns: The n old results, then the n new results, of shape ``(results, 2 n)``.
        initial: True if no group had a result row before the step, regardless of ``exists``.
    """
    return ZSet(*replaced_results(groups, exists, columns, initial))
