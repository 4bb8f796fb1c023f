"""Row order: rows as a trace stores them in groups, ordered by any columns in any direction.

The layout is (group columns, sort columns, codes of strings and of other values that the sort
columns do not determine). Each column of a row is in it once. Columns that are not in the order
break ties, ascending and NULLs last, so that the order is total and does not depend on the history
of the input.

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
from circuits.runtime.operators.sort_columns import OrderedColumn
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
        codecs: Encode values as int64 codes.
        sorts_ties: True if the caller sorts the rows that it reads by `sort_positions`. If False,
            strings with the same first bytes are in the order of their codes, which depends on the
            history of the input.

    Attributes:
        key_count: The number of group columns.
        width: The number of columns of the trace.
        tie_columns: The number of sort columns in which tied rows are equal (see above); None if
            all sort columns are exact.
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
        column_codecs = [codecs.codec(field.type) for field in fields]
        self._arity = len(fields)
        self._key_columns = list(keys)
        self.key_count = len(keys)
        ordered_columns = [
            OrderedColumn(
                part.column, column_codecs[part.column], part.descending, part.nulls_first
            )
            for part in order
        ]
        ordered_columns += [OrderedColumn(*pair) for pair in enumerate(column_codecs)]
        # A column that is in the order twice, or is a group column, breaks no further ties.
        by_column: dict[int, OrderedColumn] = {}
        for ordered in ordered_columns:
            if ordered.column not in keys:
                by_column.setdefault(ordered.column, ordered)
        # All columns that are not group columns; those of ORDER BY are first.
        self._ordered_columns = list(by_column.values())
        self._order_by_count = len({part.column for part in order if part.column not in keys})
        # The columns whose codes are stored, because the sort columns do not determine them.
        self._code_columns = [
            ordered.column for ordered in self._ordered_columns if not ordered.codec.ordered
        ]
        inexact_indices = [i for i, each in enumerate(self._ordered_columns) if not each.is_exact]
        # Sort columns after the first inexact ones are needed only if the trace orders tied rows.
        self._has_inexact_columns = bool(inexact_indices)
        last_needed = len(self._ordered_columns)
        if inexact_indices and sorts_ties:
            last_needed = inexact_indices[0]
        # The number of stored sort columns of each column.
        self._widths = [
            ordered.width if i <= last_needed or ordered.codec.ordered else 0
            for i, ordered in enumerate(self._ordered_columns)
        ]
        self.tie_columns = sum(self._widths[: inexact_indices[0] + 1]) if inexact_indices else None
        # Where the sort columns of each column, and the codes, begin in the layout.
        *starts, self._first_code = np.cumsum([self.key_count, *self._widths]).tolist()
        self._starts = dict(zip(by_column, starts, strict=True))
        # A trace needs a column after the group columns, even if it is constant.
        self.width = max(self._first_code + len(self._code_columns), self.key_count + 1)
        self.coded_columns: dict[int, Codec] = dictionary_columns(
            [column_codecs[key] for key in keys]
        ) | {
            self._first_code + i: column_codecs[column]
            for i, column in enumerate(self._code_columns)
        }

    def to_stored_rows(self, zset: ZSet) -> ZSet:
        """Return the rows in the layout of the trace."""
        rows = zset.row_array
        columns = [rows[key] for key in self._key_columns]
        for ordered, width in zip(self._ordered_columns, self._widths, strict=True):
            if width:
                columns += ordered.sort_columns(rows[ordered.column])
        columns += [rows[column] for column in self._code_columns]
        if len(columns) < self.width:
            columns.append(np.zeros(len(zset), np.int64))
        return consolidated_rows(np.stack(columns), zset.weight_array)

    def to_input(self, rows: Int64Array) -> Int64Array:
        """Return the columns of the input, from rows in the layout of the trace."""
        columns = np.empty((self._arity, rows.shape[1]), np.int64)
        for position, key in enumerate(self._key_columns):
            columns[key] = rows[position]
        for ordered in self._ordered_columns:
            if ordered.codec.ordered:
                columns[ordered.column] = ordered.codes_of(rows[self._starts[ordered.column]])
        for position, column in enumerate(self._code_columns):
            columns[column] = rows[self._first_code + position]
        return columns

    def find_column(self, column: int) -> tuple[int, OrderedColumn | None]:
        """Return where a column of the input is in the layout.

        Returns:
            The position of the column's codes, and None; or that of the sort column from which the
            codes are computed (`OrderedColumn.codes_of`).
        """
        if column in self._key_columns:
            return self._key_columns.index(column), None
        if column in self._code_columns:
            return self._first_code + self._code_columns.index(column), None
        ordered = next(each for each in self._ordered_columns if each.column == column)
        return self._starts[column], ordered

    @property
    def order_width(self) -> int:
        """The number of sort columns of the columns in the order."""
        return sum(self._widths[: self._order_by_count])

    @property
    def tie_width(self) -> int | None:
        """The number of first columns of the trace in which rows must be equal to be tied.

        These are the group columns and all sort columns. Tied rows differ in strings with the same
        first bytes. None if there are no such columns.
        """
        return self._first_code if self._has_inexact_columns else None

    @property
    def is_exact(self) -> bool:
        """True if rows in the order of the trace are in the order of the values.

        The columns that are not in the order are ignored: they may break ties in another order than
        that of their values.
        """
        return all(ordered.is_exact for ordered in self._ordered_columns[: self._order_by_count])

    def sort_positions(
        self, group_indices: Int64Array, rows: Int64Array, *, by_order_only: bool = False
    ) -> Int64Array:
        """Return the permutation that sorts rows of the trace's layout by group and by values.

        The rows must be in the order of the trace, group by group. Only tied rows (see above) are
        compared by value.

        Args:
            group_indices: The number of each row's group, ascending.
            rows: The rows.
            by_order_only: True to sort by the values of the columns in the order only, then by all
                sort columns, and then by the values of the other columns. This is nearly the order
                of the trace: only the rows of a `tie_width` change places. Needs all sort columns,
                so ``sorts_ties`` must be False.
        """
        compared_columns = self._ordered_columns
        if by_order_only:
            compared_columns = compared_columns[: self._order_by_count]
        permutation = np.arange(len(group_indices))
        inexact = next((ordered for ordered in compared_columns if not ordered.is_exact), None)
        if inexact is not None:
            tie_stop = self._starts[inexact.column] + inexact.width
        elif by_order_only and self.tie_width is not None:
            tie_stop = self.tie_width
        else:
            return permutation
        tie_columns = rows[self.key_count : tie_stop]
        tied = _tied_rows(group_indices, tie_columns)
        if not len(tied):
            return permutation
        group_indices, rows = group_indices[tied], rows[:, tied]
        sort_by: list[Int64Array] = [group_indices]
        for ordered, width in zip(compared_columns, self._widths, strict=False):
            start = self._starts[ordered.column]
            sort_by += list(rows[start : start + width])
            if not ordered.is_exact or not width:
                sort_by.append(self._value_ranks(ordered, rows))
        if by_order_only:
            sort_by += list(rows[self.key_count : self._first_code])
            for ordered in self._ordered_columns[self._order_by_count :]:
                if not ordered.is_exact:
                    sort_by.append(self._value_ranks(ordered, rows))
        permutation[tied] = tied[np.lexsort(sort_by[::-1])]
        return permutation

    def _value_ranks(self, ordered: OrderedColumn, rows: Int64Array) -> Int64Array:
        """Return the ranks of the values of a column whose codes are stored."""
        position = self._first_code + self._code_columns.index(ordered.column)
        return ordered.ranks(rows[position])

    def group_starts(self, rows: Int64Array) -> Int64Array:
        """Return the positions at which group columns of sorted rows change, and the first one."""
        keys, n = rows[: self.key_count], rows.shape[1]
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
