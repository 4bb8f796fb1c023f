"""Ordered aggregates: functions of the rows of a group in an order, read from an ordered trace.

::

    first(x order by y)[key]    = x of the first row of the key; min_by, max_by, last, any_value
    quantile(x, q)[key]         = the value at a rank among the values of the key, in order
    string_agg(x order by y)    = the texts of the key in order, with a separator
    mode(x)                     = the value of the greatest weight; of several the least

State: the rows (key columns, ordered columns) of each call (`row_order`, `ordered_rows`). Columns
that are not in the order break ties, ascending, so a result depends only on the rows of the group.
``first`` reads the first row of a changed group. The others read all distinct rows of a changed
group and compute its result again, for all groups together and by column (`group_functions`).

Cost: O(log N) per changed group and run for ``first``; O(distinct rows of the changed groups) for
the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import AggregateCall, Fields, Order
from circuits.runtime.operators.group_functions import GROUP_FUNCTIONS, GroupedRows
from circuits.runtime.operators.ordered_rows import OrderedRows
from circuits.runtime.operators.row_order import RowOrder
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["OrderedAggregate"]


class OrderedAggregate:
    """The state and the results of one ordered aggregate.

    Args:
        fields: The columns of the input.
        codecs: Encode values as int64 codes.
        keys: The columns that identify a group.
        call: The aggregate.
    """

    def __init__(
        self, fields: Fields, codecs: Codecs, keys: Sequence[int], call: AggregateCall
    ) -> None:
        assert call.argument is not None
        self._call = call
        self._function = GROUP_FUNCTIONS[call.function]
        self._keys = len(keys)
        # The further arguments are only read to leave out rows in which they are NULL.
        values = list(dict.fromkeys((*(part.column for part in call.order), call.argument)))
        self._columns = [*keys, *values]
        self._required = list(call.others)
        if not self._function.keeps_nulls:
            self._required.append(call.argument)
        order = [
            Order(len(keys) + values.index(part.column), part.descending, part.nulls_first)
            for part in call.order
        ]
        columns = tuple(fields[column] for column in self._columns)
        self._order = RowOrder(columns, range(len(keys)), order, codecs)
        self._argument = len(keys) + values.index(call.argument)
        self._argument_codec = codecs.codec(fields[call.argument].type)
        self._codec = codecs.codec(call.type)
        self.rows = OrderedRows(
            len(keys),
            self._order.width,
            limit=1 if self._function.reads_first else None,
            decided=self._order.decided if self._function.reads_first else None,
        )

    @property
    def coded_columns(self) -> dict[int, Codec]:
        """The columns of the trace whose codes come from a dictionary."""
        return self._order.coded_columns

    def sort_rows(self, zset: ZSet) -> ZSet:
        """Return the rows that the function reads, in the layout of the trace."""
        rows, weights = zset.row_array, zset.weight_array
        present = np.flatnonzero(np.all(rows[self._required] != NULL, axis=0))
        columns = rows[self._columns][:, present]
        return self._order.to_trace(consolidated_rows(columns, weights[present]))

    def results(
        self, n: int, group_indices: Int64Array, rows: Int64Array, weights: Int64Array
    ) -> Int64Array:
        """Return the code of the result of each of n groups; NULL for a group without rows.

        Args:
            n: The number of groups.
            group_indices: The group of each row, ascending.
            rows: The columns of the rows after the keys, ascending within a group.
            weights: The weight of each row, above 0.
        """
        if not len(group_indices):
            return np.full(n, NULL)
        # The layout begins with the keys. The group indices replace them, so any values will do.
        keys = np.zeros((self._keys, rows.shape[1]), np.int64)
        rows = np.concatenate((keys, rows))
        if self._order.decided is not None and len(group_indices) > 1:
            positions = self._order.sort_positions(group_indices, rows)
            rows, weights = rows[:, positions], weights[positions]
            group_indices = group_indices[positions]
        if self._call.distinct:
            weights = np.ones(len(weights), np.int64)
        codes = self._order.to_input(rows)[self._argument]
        grouped = GroupedRows(
            n, group_indices, weights, codes, self._argument_codec, self._call, self._codec
        )
        return self._function.compute(grouped)
