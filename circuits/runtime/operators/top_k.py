"""Top-k: per key, the ``limit`` rows of a sort order that begin at position ``offset``.

::

    topk(Z)      = per key: sort the rows of positive weight; a row of weight w has w positions;
                   select the rows at the positions offset <= i < offset + limit
    topk^Δ(d)    = topk(I(d)) - topk(z⁻¹(I(d)))         for the keys of rows of d only

An example stream, the 2 least numbers::

    delta     {3: +1, 5: +2}      {1: +1}             {3: -1}
    output    {3: +1, 5: +1}      {1: +1, 5: -1}      {3: -1, 5: +1}

State: a trace of all rows with the columns (keys, sort columns, codes that the sort columns do not
determine), see `ordered_rows`. A sort column is an integer that has the order of the values
(`sort_columns`). For each changed key, a step reads the first ``offset + limit`` positions before
and after the step, in one scan. All other columns break ties, ascending and NULLs last, so the
result depends only on the input and not on its history.

Cost: O(log N) per changed key and run, and per position read. If the first sort column is a string,
the step also reads and compares all rows that share their first bytes with the last selected row.

Alternatives considered: storing only the first rows of each key, plus some spare rows. That state
is smaller, but after enough deletions it cannot supply the next rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import TopK
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.ordered_rows import OrderedRows, first_positions
from circuits.runtime.operators.sort_columns import SortColumn
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import StagedGroup
from dbsp_wcoj.zset import MAX_INT64, Int64Array, consolidated_rows

__all__ = ["TopKOperator"]


class TopKOperator:
    """Selects rows by their position in a sort order, per key.

    Args:
        plan: The plan node; `circuits.plan.nodes.TopK` defines the result.
        codecs: Encode values as int64 codes.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Order, Scan
    >>> least = TopK(Scan("r", (Field("x", pa.int64()),)), keys=(), order=(Order(0),), limit=2)
    >>> TopKOperator(least, Codecs()).evaluate([ZSet.from_rows([(3,), (5,), (5,)])])
    ZSet({(3,): 1, (5,): 1})
    """

    def __init__(self, plan: TopK, codecs: Codecs) -> None:
        columns = [codecs.codec(field.type) for field in plan.input.fields]
        self.arity = len(columns)
        self.keys = plan.keys
        self.limit = plan.limit
        self.offset = plan.offset
        # The position after the last requested one; None if the sum of the weights cannot reach it.
        end = None if self.limit is None else self.offset + self.limit
        self._end = end if end is not None and end <= MAX_INT64 else None
        sorts = [
            SortColumn(order.column, columns[order.column], order.descending, order.nulls_first)
            for order in plan.order
        ]
        sorts += [SortColumn(column, codec) for column, codec in enumerate(columns)]
        # Only the first sort column of a column can break ties, and a key column never can.
        first = {sort.column: sort for sort in reversed(sorts)}
        sorted_columns = dict.fromkeys(
            sort.column for sort in sorts if sort.column not in self.keys
        )
        self._sorts = [first[column] for column in sorted_columns]
        # Columns whose codes the sort columns do not determine; stored after the sort columns.
        self._code_columns = [sort.column for sort in self._sorts if not sort.codec.ordered]
        widths = [sort.width for sort in self._sorts]
        inexact = [i for i, sort in enumerate(self._sorts) if not sort.exact]
        # The number of columns in which the trace has the final order: up to and including the
        # first sort columns that can tie.
        self._decided = sum(widths[: inexact[0] + 1]) if inexact else None
        starts = np.cumsum([len(self.keys), *widths]).tolist()
        self._starts = dict(zip([sort.column for sort in self._sorts], starts, strict=False))
        self._first_code_row = starts[-1]
        # A trace needs a column after the key, even if it is constant.
        self._width = max(starts[-1] + len(self._code_columns), len(self.keys) + 1)
        self._rows = OrderedRows(
            len(self.keys), self._width, limit=self._end, decided=self._decided
        )
        self.traces = self._rows.traces
        coded = dictionary_columns([columns[key] for key in self.keys])
        for index, column in enumerate(self._code_columns):
            coded[self._first_code_row + index] = columns[column]
        self.coded_columns = (coded,) * len(self.traces)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Select the rows of a whole Z-set; sorts all of it."""
        (zset,) = inputs
        stored = self._to_trace_layout(zset)
        starts = _group_starts(stored, len(self.keys))
        group_indices = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        order = self._sort_positions(group_indices, stored.row_array)
        rows, group_indices = stored.row_array[:, order], group_indices[order]
        return self._to_input_layout(
            rows, self._selected_weights(group_indices, stored.weight_array[order])
        )

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the selected rows of the groups in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta) or self.limit == 0:
            return ZSet.empty(self.arity), None
        stored = self._to_trace_layout(delta)
        k = len(self.keys)
        prefixes = stored.row_array[:k, _group_starts(stored, k)]
        first_rows, steps = self._rows.prepare(stored, prefixes)
        rows = np.concatenate((prefixes[:, first_rows.places], first_rows.rows))
        group_indices, old, new = first_rows.places, first_rows.old, first_rows.new
        if self._decided is not None:
            order = self._sort_positions(group_indices, rows)
            rows, group_indices, old, new = (
                rows[:, order],
                group_indices[order],
                old[order],
                new[order],
            )
        change = self._selected_weights(group_indices, new) - self._selected_weights(
            group_indices, old
        )
        return self._to_input_layout(rows, change), StagedGroup(steps)

    def _to_trace_layout(self, zset: ZSet) -> ZSet:
        """Return the rows in the column layout of the trace."""
        rows = zset.row_array
        columns = [rows[key] for key in self.keys]
        for sort in self._sorts:
            columns += sort.keys(rows[sort.column])
        columns += [rows[column] for column in self._code_columns]
        if len(columns) < self._width:
            columns.append(np.zeros(len(zset), np.int64))
        return consolidated_rows(np.stack(columns), zset.weight_array)

    def _sort_positions(self, group_indices: Int64Array, rows: Int64Array) -> Int64Array:
        """Return the permutation that sorts rows of the trace's layout by group and by values."""
        columns: list[Int64Array] = [group_indices]
        for sort in self._sorts:
            start = self._starts[sort.column]
            columns += list(rows[start : start + sort.width])
            if not sort.exact:
                code_row = self._first_code_row + self._code_columns.index(sort.column)
                columns.append(sort.ranks(rows[code_row]))
        return np.lexsort(columns[::-1])

    def _selected_weights(self, group_indices: Int64Array, weights: Int64Array) -> Int64Array:
        """Return how many of each row's positions are requested; the rows must be in order."""
        weights = np.maximum(weights, 0)
        if self.limit is None and self.offset == 0:
            return weights
        if float(weights.sum(dtype=np.float64)) > 2**62 or self.offset + (self.limit or 0) > 2**62:
            # Positions can exceed int64, so use Python integers.
            weights = weights.astype(object)
        ends = np.cumsum(weights)
        begins = ends - weights
        starts = first_positions(group_indices)
        group_begins = np.repeat(begins[starts], np.diff(np.append(starts, len(group_indices))))
        low = np.maximum(begins - group_begins, self.offset)
        high = ends - group_begins
        if self.limit is not None:
            high = np.minimum(high, self.offset + self.limit)
        selected: Int64Array = np.maximum(high - low, 0).astype(np.int64)
        return selected

    def _to_input_layout(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Return rows of the trace's layout in the columns of the input, with new weights."""
        nonzero = np.flatnonzero(weights)
        columns = np.empty((self.arity, len(nonzero)), np.int64)
        for index, key in enumerate(self.keys):
            columns[key] = rows[index, nonzero]
        for sort in self._sorts:
            if sort.codec.ordered:
                columns[sort.column] = sort.codes(rows[self._starts[sort.column], nonzero])
        for index, column in enumerate(self._code_columns):
            columns[column] = rows[self._first_code_row + index, nonzero]
        return consolidated_rows(columns, weights[nonzero])


def _group_starts(zset: ZSet, k: int) -> Int64Array:
    """Return the positions at which the first k columns change, including 0 if there are rows."""
    rows = zset.row_array[:k]
    change = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.flatnonzero(np.concatenate((np.ones(min(len(zset), 1), np.bool), change)))
