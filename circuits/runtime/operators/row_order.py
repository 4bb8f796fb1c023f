"""Row order: rows as a trace stores them in groups, ordered by any columns in any direction.

The layout is (group columns, sort columns, codes that the sort columns do not determine). All
columns of a row are in it, once: columns that are not in the order break ties, ascending and NULLs
last, so that the order is total and does not depend on the history of the input.

The sort columns of a column are *exact* if different codes have different sort columns
(`circuits.runtime.operators.sort_columns`). Those of strings are not: they are first bytes. Rows
that are equal in all sort columns up to the first inexact ones are tied. A reader that sorts tied
rows by value needs no sort columns of later strings: their codes suffice, which makes the rows of
a table with many strings about half as wide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import Fields, Order
from circuits.runtime.operators.sort_columns import SortColumn
from circuits.types.codecs.codec import Codec, Codecs, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["RowOrder"]


class RowOrder:
    """The layout of a trace of groups of ordered rows.

    Args:
        fields: The columns of the rows.
        keys: The positions of the columns that identify a group.
        order: The order of the rows of a group.
        codecs: The codes of values.
        sorts_ties: True if the caller sorts the rows that it reads by `sort_positions`. Otherwise
            the order of tied rows is that of the trace, and depends on the history only if strings
            have the same first bytes.

    Attributes:
        keys: The number of group columns, ``len(keys)``.
        width: The number of columns of the trace.
        tie_columns: The number of sort columns up to and including those of the first value whose
            sort columns are not exact. Rows that are equal in these may be in another order than
            their values. None if all sort columns are exact.
        coded_columns: The columns of the trace whose codes come from a dictionary.
    """

    def __init__(
        self,
        fields: Fields,
        keys: Sequence[int],
        order: Sequence[Order],
        codecs: Codecs,
        *,
        sorts_ties: bool = False,
    ) -> None:
        columns = [codecs.codec(field.type) for field in fields]
        self._arity = len(columns)
        # The number of leading columns of ``_sorts`` that ORDER BY names.
        self._ordered = len({part.column for part in order if part.column not in keys})
        self._key_columns = list(keys)
        self.keys = len(keys)
        sorts = [
            SortColumn(part.column, columns[part.column], part.descending, part.nulls_first)
            for part in order
        ]
        sorts += [SortColumn(column, codec) for column, codec in enumerate(columns)]
        # A column that is in the order twice, or is a group column, breaks no further ties.
        first_sorts = {sort.column: sort for sort in reversed(sorts)}
        sorted_columns = dict.fromkeys(sort.column for sort in sorts if sort.column not in keys)
        self._sorts = [first_sorts[column] for column in sorted_columns]
        self._code_columns = [sort.column for sort in self._sorts if not sort.codec.ordered]
        inexact = [i for i, sort in enumerate(self._sorts) if not sort.exact]
        # Sort columns after the first inexact ones are needed only if the trace orders tied rows.
        last = inexact[0] if inexact and sorts_ties else len(self._sorts)
        widths = [
            sort.width if i <= last or sort.codec.ordered else 0
            for i, sort in enumerate(self._sorts)
        ]
        self.tie_columns = sum(widths[: inexact[0] + 1]) if inexact else None
        self._widths = widths
        starts = np.cumsum([self.keys, *widths]).tolist()
        self._starts = dict(zip([sort.column for sort in self._sorts], starts, strict=False))
        self._first_code_row = starts[-1]
        # A trace needs a column after the group columns, even if it is constant.
        self.width = max(starts[-1] + len(self._code_columns), self.keys + 1)
        self.coded_columns: dict[int, Codec] = dictionary_columns(
            [columns[key] for key in keys]
        ) | {self._first_code_row + i: columns[c] for i, c in enumerate(self._code_columns)}

    def to_trace(self, zset: ZSet) -> ZSet:
        """The rows in the layout of the trace."""
        rows = zset.row_array
        columns = [rows[key] for key in self._key_columns]
        for sort, width in zip(self._sorts, self._widths, strict=True):
            if width:
                columns += sort.keys(rows[sort.column])
        columns += [rows[column] for column in self._code_columns]
        if len(columns) < self.width:
            columns.append(np.zeros(len(zset), np.int64))
        return consolidated_rows(np.stack(columns), zset.weight_array)

    def to_input(self, rows: Int64Array) -> Int64Array:
        """The columns of the input, from rows in the layout of the trace."""
        columns = np.empty((self._arity, rows.shape[1]), np.int64)
        for position, key in enumerate(self._key_columns):
            columns[key] = rows[position]
        for sort in self._sorts:
            if sort.codec.ordered:
                columns[sort.column] = sort.codes(rows[self._starts[sort.column]])
        for position, column in enumerate(self._code_columns):
            columns[column] = rows[self._first_code_row + position]
        return columns

    @property
    def order_width(self) -> int:
        """The number of sort columns of the columns in the order."""
        return sum(self._widths[: self._ordered])

    @property
    def is_exact(self) -> bool:
        """True if rows in the order of the trace are in the order of the values.

        The columns that are not in the order are ignored: they may break ties in another order than
        that of their values.
        """
        return all(sort.exact for sort in self._sorts[: self._ordered])

    def sort_positions(
        self, group_indices: Int64Array, rows: Int64Array, *, by_order_only: bool = False
    ) -> Int64Array:
        """The permutation that sorts rows of the trace's layout by group and by values.

        The rows must be in the order of the trace, group by group. So only rows that are equal in
        their groups and sort columns, up to the first ones that can tie, are compared by value.

        Args:
            group_indices: The number of each row's group, ascending.
            rows: The rows.
            by_order_only: True to sort by the values of the columns in the order only. Rows that
                are equal in these are in the order of the trace.
        """
        sorts = self._sorts[: self._ordered] if by_order_only else self._sorts
        order = np.arange(len(group_indices))
        inexact = next((sort for sort in sorts if not sort.exact), None)
        if inexact is None:
            return order
        compared = rows[self.keys : self._starts[inexact.column] + inexact.width]
        tied = _tied_rows(group_indices, compared)
        if not len(tied):
            return order
        group_indices, rows = group_indices[tied], rows[:, tied]
        columns: list[Int64Array] = [group_indices]
        for sort, width in zip(sorts, self._widths, strict=False):
            start = self._starts[sort.column]
            columns += list(rows[start : start + width])
            if not sort.exact or not width:
                code_row = self._first_code_row + self._code_columns.index(sort.column)
                columns.append(sort.ranks(rows[code_row]))
        if by_order_only:
            columns += list(rows[self.keys :])
        order[tied] = tied[np.lexsort(columns[::-1])]
        return order

    def group_starts(self, rows: Int64Array) -> Int64Array:
        """The positions at which the group columns of sorted rows change, including the first."""
        keys, n = rows[: self.keys], rows.shape[1]
        change = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
        return np.flatnonzero(np.concatenate((np.ones(min(n, 1), np.bool), change)))


def _tied_rows(group_indices: Int64Array, columns: Int64Array) -> Int64Array:
    """Return the positions of sorted rows that equal a neighbour in these columns and its group."""
    tied = np.zeros(len(group_indices) + 1, np.bool)  # tied[i]: rows i - 1 and i are equal
    tied_pairs = tied[1:-1]  # a view: the first and the last row have one neighbour only
    np.equal(group_indices[1:], group_indices[:-1], out=tied_pairs)
    for column in columns:
        tied_pairs &= column[1:] == column[:-1]
    return np.flatnonzero(tied[:-1] | tied[1:])
