"""Min and max of a column per group, each the first row of an ordered trace.

::

    min(Z)[key] = the least value x of (key, x) with positive weight; max: the greatest

State: the rows (key columns, sort columns of x) without NULLs, in ascending order for min and in
descending order for max (`ordered_rows`). The result is the first row of positive weight with the
key. After the deletion of the least value it is the next row.

Sort columns of strings can tie. A step reads and compares all values that share their first bytes
with the least value, in O(log N + ties) per changed group and run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.ordered_rows import OrderedRows, first_positions
from circuits.runtime.operators.sort_columns import SortColumn
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import ZSet
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
        self.keys = list(keys)
        self.column = call.argument
        codec, least = codecs[self.column], call.function == "min"
        # There are no NULLs. This order of NULLs makes each code its own sort column.
        self._sort = SortColumn(self.column, codec, descending=not least, nulls_first=least)
        self._ordered = self._sort.codec.ordered
        width = self._sort.width + (0 if self._ordered else 1)
        # Rows that are equal in this many columns after the keys are compared by value.
        self._decided = self._sort.width
        self.rows = OrderedRows(
            len(self.keys), len(self.keys) + width, limit=1, decided=self._decided
        )

    @property
    def coded(self) -> dict[int, Codec]:
        """The column of the values' codes, if they belong to a dictionary."""
        return {} if self._ordered else {self.rows.rows.arity - 1: self._sort.codec}

    def sort_rows(self, zset: ZSet) -> ZSet:
        """The rows (keys, sort columns of the value, its code unless they determine it)."""
        rows, weights = zset.row_array, zset.weight_array
        present = np.flatnonzero(rows[self.column] != NULL)
        if len(present) < len(weights):
            rows, weights = rows[:, present], weights[present]
        codes = rows[self.column]
        columns = [rows[key] for key in self.keys] + list(self._sort.keys(codes))
        if not self._ordered:
            columns.append(codes)
        return consolidated_rows(np.stack(columns), weights)

    def extremes(self, n: int, places: Int64Array, rows: Int64Array) -> Int64Array:
        """The code of the extreme value of each of n groups; NULL for a group without values.

        Args:
            n: The number of groups.
            places: The group of each candidate, ascending.
            rows: The candidates' columns after the keys, in ascending order within a group.
        """
        extremes = np.full(n, NULL)
        first = first_positions(places)
        if len(first) < len(places) and not self._sort.exact:
            ranks = self._sort.ranks(rows[-1])
            order = np.lexsort((ranks, *rows[self._decided - 1 :: -1], places))
            places, rows = places[order], rows[:, order]
        keys = rows[-1, first]
        extremes[places[first]] = self._sort.codes(keys) if self._ordered else keys
        return extremes
