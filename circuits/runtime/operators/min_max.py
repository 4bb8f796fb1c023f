"""Extremes: min and max of a column per group, as the first row of an ordered trace.

::

    min(Z)[key] = the least value x of (key, x) with positive weight; max: the greatest

State: the rows (key columns, sort columns of x) in ascending order for min, descending for max,
NULLs left out (`ordered_rows`). The answer is the first row of positive weight below the key, so a
deletion of the least value finds the next one where it stands.

Texts have sort columns that tie: all values that share the first bytes of the least one are read
and compared; O(log N + ties) for each touched group and run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.ordered_rows import OrderedRows, first_of_each
from circuits.runtime.operators.sort_columns import SortColumn
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["MinMax"]


class MinMax:
    """The state and the results of one ``min`` or ``max``.

    Args:
        codecs: Those of the input's columns.
        keys: The columns that make a group.
        call: The aggregate.
    """

    def __init__(self, codecs: Sequence[Codec], keys: Sequence[int], call: AggregateCall) -> None:
        assert call.argument is not None
        self.keys = list(keys)
        self.column = call.argument
        codec, least = codecs[self.column], call.function == "min"
        # There is no NULL; where it would come is chosen so that a code is its own sort column.
        self._sort = SortColumn(self.column, codec, descending=not least, nulls_first=least)
        self._ordered = self._sort.codec.ordered
        width = self._sort.width + (0 if self._ordered else 1)
        # Rows that are equal in so many columns after the keys have to be compared by value.
        self._decided = self._sort.width
        self.rows = OrderedRows(
            len(self.keys), len(self.keys) + width, limit=1, decided=self._decided
        )

    @property
    def coded(self) -> dict[int, Codec]:
        """The column of the values' codes, if they are those of a table."""
        return {} if self._ordered else {self.rows.rows.arity - 1: self._sort.codec}

    def arranged(self, zset: ZSet) -> ZSet:
        """The rows (keys, sort columns of the value, its code unless they give it)."""
        rows, weights = zset.row_array, zset.weight_array
        there = np.flatnonzero(rows[self.column] != NULL)
        if len(there) < len(weights):
            rows, weights = rows[:, there], weights[there]
        codes = rows[self.column]
        columns = [rows[key] for key in self.keys] + list(self._sort.keys(codes))
        if not self._ordered:
            columns.append(codes)
        return consolidated_rows(np.stack(columns), weights)

    def best(self, n: int, places: Int64Array, rows: Int64Array) -> Int64Array:
        """The code of the extreme of each of n groups, NULL where there is none.

        Args:
            n: How many groups.
            places: The group of each candidate, ascending.
            rows: Its columns after the keys, of one group in ascending order.
        """
        best = np.full(n, NULL)
        first = first_of_each(places)
        if len(first) < len(places) and not self._sort.exact:
            ranks = self._sort.ranks(rows[-1])
            order = np.lexsort((ranks, *rows[self._decided - 1 :: -1], places))
            places, rows = places[order], rows[:, order]
        chosen = rows[-1, first]
        best[places[first]] = self._sort.codes(chosen) if self._ordered else chosen
        return best
