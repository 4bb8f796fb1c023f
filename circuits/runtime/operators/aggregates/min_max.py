"""Min and max of a column per group, each read from the first row of a group in an ordered trace.

::

    min(Z)[key] = the least x of the rows (key, x) of positive weight        max: the greatest x

State: the rows (key columns, sort columns of x) without NULLs, in ascending order for min and in
descending order for max (`ordered_rows`). The result is the first row of positive weight with the
key. After the least value has been deleted, the result is the next row.

A sort column is an integer computed from a value, such that integers and values have the same order
(`sort_columns`). Different strings can have equal sort columns: they tie. A step reads and compares
all values that tie with the least value, in O(log N + ties) per changed group and run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.ordered_rows import OrderedRows, first_positions
from circuits.runtime.operators.sort_columns import OrderedColumn
from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Budget, Trace, ZSet
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["MinMax"]


class MinMax:
    """The state and the results of one ``min`` or ``max``.

    Args:
        codecs: The codecs of the input's columns.
        keys: The columns that identify a group.
        call: The aggregate.
    """

    def __init__(self, codecs: Sequence[Codec], keys: Sequence[int], call: AggregateCall) -> None:
        assert call.argument is not None
        self.calls = (call,)
        self.keys = list(keys)
        self._key_columns = np.array(self.keys, np.int64)
        self.column = call.argument
        codec, is_min = codecs[self.column], call.function == "min"
        # The rows have no NULLs, so their place is free. With NULLs first for min and last for max,
        # the sort column of an ordered code is the code itself, or its complement for max.
        self._ordered_column = OrderedColumn(
            self.column, codec, descending=not is_min, nulls_first=is_min
        )
        self._has_ordered_codes = self._ordered_column.codec.ordered
        width = self._ordered_column.width + (0 if self._has_ordered_codes else 1)
        # Rows that are equal in this many columns after the keys are compared by value.
        self._tie_columns = self._ordered_column.width
        self._rows = OrderedRows(
            len(self.keys), len(self.keys) + width, limit=1, tie_columns=self._tie_columns
        )

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the state."""
        return self._rows.traces

    @property
    def coded_columns(self) -> dict[int, Codec]:
        """The column of the values' codes with its codec, if they are codes of a dictionary."""
        return (
            {}
            if self._has_ordered_codes
            else {self._rows.rows.arity - 1: self._ordered_column.codec}
        )

    def to_stored_rows(self, zset: ZSet | UnsortedRows) -> ZSet:
        """Return the rows in the layout of the trace, without NULLs.

        The columns are the keys, the sort columns of the value, and the code of the value, which is
        left out if the sort columns determine it.
        """
        rows, weights = zset.row_array, zset.weight_array
        present = (rows[self.column] != NULL).nonzero()[0]
        if len(present) < len(weights):
            rows, weights = rows[:, present], weights[present]
        codes, key_count = rows[self.column], len(self.keys)
        stored = np.empty((self._rows.rows.arity, len(weights)), np.int64)
        rows.take(self._key_columns, axis=0, out=stored[:key_count], mode="clip")
        for position, column in enumerate(self._ordered_column.sort_columns(codes), key_count):
            stored[position] = column
        if not self._has_ordered_codes:
            stored[-1] = codes
        return consolidated_rows(stored, weights)

    def read(
        self, delta: ZSet, groups: Int64Array, budget: Budget | None = None
    ) -> tuple[Int64Array, list[Staged]]:
        """Return the old results of all groups, followed by the new results, and stage a delta.

        Args:
            delta: Rows of `to_stored_rows`.
            groups: The changed keys, sorted, shape ``(keys, n)``.
            budget: Unused: a result is no larger than a value.

        Returns:
            The codes, shape ``(1, 2 n)``, and the staged changes.
        """
        return self._rows.read_results(delta, groups, self.results)

    def results(
        self,
        n: int,
        group_indices: Int64Array,
        rows: Int64Array,
        weights: Int64Array,
        budget: Budget | None = None,
    ) -> Int64Array:
        """Return the code of the first value of each group; NULL for a group without values.

        The result has shape ``(1, n)``.

        Args:
            n: The number of groups.
            group_indices: The group of each row, ascending.
            rows: The columns of the rows after the keys, ascending within a group. Of each group,
                at least its first row and those that tie with it.
            weights: The weight of each row, above 0.
            budget: Unused: a result is no larger than a value.
        """
        extremes = np.full(n, NULL)
        first = first_positions(group_indices)
        if len(first) < len(group_indices) and not self._ordered_column.is_exact:
            ranks = self._ordered_column.ranks(rows[-1])
            sort_columns = rows[: self._tie_columns]
            order = np.lexsort((ranks, *sort_columns[::-1], group_indices))
            group_indices, rows = group_indices[order], rows[:, order]
        codes = rows[-1, first]
        if self._has_ordered_codes:
            codes = self._ordered_column.codes_of(codes)
        extremes[group_indices[first]] = codes
        return extremes[np.newaxis]
