"""Ordered rows: the state of min, max and top-k, from which a step reads the first rows of groups.

One trace (key columns, ordered columns) stores the rows. A second trace, the front, stores the
first row of positive weight of each group. The front does not affect results, but it saves work. If
the first rows of a group are deleted again and again, as in a sliding window, the deleted rows stay
in the runs of the first trace until these are merged (`dbsp_wcoj.storage.spine`). A read starts at
the front and so skips them. The front is maintained from the first deletion on, for the groups that
have changed since then. Other groups are read from their start.

::

    front(Z)    = {(key, first row of positive weight): 1}
    front^Δ(d)  = the new first rows, which a step reads anyway, minus the stored first rows

Cost: O(log N) per changed group and run, and O(runs) per row read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.kernels.values.group_changes import split_at_step
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.rank_search import RankSearch
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["OrderedRows", "count_repeated_rows", "first_positions"]

_MIN_INT64: Final = -(2**63)
#: One key without columns: the prefix of all rows.
_EMPTY_PREFIX: Final[Int64Array] = np.empty((0, 1), np.int64)


class OrderedRows:
    """Rows of groups, ordered within each group.

    Args:
        key_count: The number of key columns, which identify the group.
        arity: The number of columns. The columns after the keys determine the order.
        limit: Rows are read until their weights add up to this number; None for all rows.
        tie_columns: The number of columns after the keys in which tied rows are equal; None if
            there are no ties. All rows that tie with the first one are read, and with a limit those
            that tie with the last one.

    >>> least = OrderedRows(1, 2, limit=1)
    >>> first_rows, steps = least.prepare(ZSet.from_rows([(7, 3), (7, 5)]), np.array([[7]]))
    >>> first_rows.rows.tolist(), first_rows.old.tolist(), first_rows.new.tolist()
    ([[3]], [0], [1])
    """

    def __init__(
        self, key_count: int, arity: int, *, limit: int | None, tie_columns: int | None = None
    ) -> None:
        self.rows = Trace(arity)
        self.front = Trace(arity)
        self._key_count = key_count
        self._limit = limit
        self._tie_columns = tie_columns

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the state."""
        return self.rows, self.front

    def prepare(self, delta: ZSet, groups: Int64Array) -> tuple[PrefixRows, list[Staged]]:
        """Read the first rows of some groups before and after a delta, and stage the delta.

        Args:
            delta: The change of the rows; it has rows of these groups only.
            groups: Keys, sorted, shape ``(keys, n)``.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        staged: list[Staged] = []
        step = None
        if len(delta):
            step = self.rows.prepare(delta)
            step.lookups = None if self._limit is None else self._limit * groups.shape[1]
            staged.append(step)
        front = None
        if (delta.weight_array < 0).any() or self._has_front():
            front = prefix_lookup(self.front, groups, limit=1)
        first_rows = prefix_lookup(
            self.rows,
            groups,
            limit=self._limit,
            tie_columns=self._tie_columns,
            step=step,
            starts=None if front is None else self._starts(front, groups.shape[1]),
        )
        if front is not None:
            front_delta = self._front_delta(front, first_rows, groups)
            if len(front_delta):
                staged.append(self.front.prepare(front_delta))
        return first_rows, staged

    def read_results(
        self,
        delta: ZSet,
        groups: Int64Array,
        results: Callable[[int, Int64Array, Int64Array, Int64Array], Int64Array],
    ) -> tuple[Int64Array, list[Staged]]:
        """Return the old results of all groups, followed by the new results, and stage the delta.

        Args:
            delta: The change of the rows; it has rows of these groups only.
            groups: Keys, sorted, shape ``(keys, n)``.
            results: Computes the results of groups, given their number, the group of each row, the
                columns of the rows after the keys, and the weights of the rows. The last dimension
                of its result is the group.
        """
        n = groups.shape[1]
        first_rows, staged = self.prepare(delta, groups)
        codes = results(2 * n, *split_at_step(*first_rows, n))
        return codes, staged

    def _has_front(self) -> bool:
        """Return whether a group has a front; rows that cancel in different runs do not count."""
        if self.front.is_empty:
            return False
        return RankSearch([self.front]).sizes(_EMPTY_PREFIX).item() > 0

    def _starts(self, front: PrefixRows, groups: int) -> Int64Array:
        """Return the row from which to read each group: its front, else the least possible row.

        Rows that tie with the front are read as well. They are in the order of their codes, and a
        migration of the state may have changed the codes since the front was stored.
        """
        width = self.rows.arity - self._key_count
        compared_columns = width if self._tie_columns is None else self._tie_columns
        starts = np.full((width, groups), _MIN_INT64)
        starts[:compared_columns, front.prefix_index] = front.rows[:compared_columns]
        return starts

    def _front_delta(self, front: PrefixRows, first_rows: PrefixRows, groups: Int64Array) -> ZSet:
        """Return the new first row of each group minus its stored front."""
        present = first_rows.new.nonzero()[0]
        new_front = present[first_positions(first_rows.prefix_index[present])]
        keys, middle = self._key_count, len(front.prefix_index)
        rows = np.empty((self.front.arity, middle + len(new_front)), np.int64)
        groups.take(front.prefix_index, axis=1, out=rows[:keys, :middle], mode="clip")
        groups.take(
            first_rows.prefix_index[new_front], axis=1, out=rows[:keys, middle:], mode="clip"
        )
        rows[keys:, :middle] = front.rows
        first_rows.rows.take(new_front, axis=1, out=rows[keys:, middle:], mode="clip")
        weights = np.ones(rows.shape[1], np.int64)
        weights[:middle] = -1
        return consolidated_rows(rows, weights)


def first_positions(group_indices: Int64Array) -> Int64Array:
    """Return the position of the first row of each group.

    Args:
        group_indices: The group of each row, ascending.

    >>> first_positions(np.array([0, 0, 2, 5, 5])).tolist()
    [0, 2, 3]
    """
    if not len(group_indices):
        return np.empty(0, np.int64)
    is_first = np.ones(len(group_indices), np.bool_)
    np.not_equal(group_indices[1:], group_indices[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def count_repeated_rows(weights: Int64Array, budget: Budget, columns: int) -> None:
    """Count the additional rows of a result in which a row of weight w is w rows.

    Raises:
        LimitError: They are more than a step may produce.
    """
    repeated = np.maximum(weights, 1).sum(dtype=np.float64) - len(weights)
    if repeated:
        budget.add_rows(int(repeated), columns)
