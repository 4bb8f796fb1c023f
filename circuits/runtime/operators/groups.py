"""Groups of rows: those that a delta touches, and how the rows of their results change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.types.codecs.arrow_buffers import BoolArray
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["changed_rows", "grouped", "touched"]


def touched(delta: ZSet, keys: Sequence[int]) -> Int64Array:
    """The different keys of a delta, sorted, of shape ``(keys, groups)``; without keys one group.

    >>> touched(ZSet.from_rows([(2, 5), (1, 5), (2, 6)]), [0])
    array([[1, 2]])
    """
    if not keys:
        return np.empty((0, 1), np.int64)
    ones = np.ones(len(delta), np.int64)
    return consolidated_rows(delta.row_array[list(keys)], ones).row_array


def grouped(sources: Sequence[ZSet], keys: int) -> tuple[Int64Array, list[Int64Array]]:
    """The groups of all sources by their first columns, and which one each row is of."""
    if keys == 0:
        return np.empty((0, 1), np.int64), [np.zeros(len(s), np.int64) for s in sources]
    columns = np.concatenate([source.row_array[:keys] for source in sources], axis=1)
    groups, places = np.unique(columns, axis=1, return_inverse=True)
    cuts = np.cumsum([len(source) for source in sources])[:-1]
    return groups, np.split(places.reshape(-1), cuts)


def changed_rows(
    groups: Int64Array, exists: BoolArray, columns: Int64Array, *, initial: bool
) -> ZSet:
    """The old rows of groups, leaving, and the new ones, where they differ.

    Args:
        groups: The keys, of shape ``(keys, n)``.
        exists: Which of the n old, then of the n new groups exist.
        columns: The results of the old, then of the new groups, of shape ``(results, 2 n)``.
        initial: Whether there is no old row, whatever ``exists`` says.
    """
    n = groups.shape[1]
    if initial:
        exists[:n] = False
    changed = exists[:n] != exists[n:]
    changed |= np.any(columns[:, :n] != columns[:, n:], axis=0)
    shown = np.flatnonzero(np.tile(changed, 2) & exists)
    rows = np.concatenate((groups[:, shown % n], columns[:, shown]))
    return consolidated_rows(rows, np.where(shown < n, -1, 1))
