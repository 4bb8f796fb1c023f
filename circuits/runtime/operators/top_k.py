"""Top-k: per key, ``limit`` rows of a sort order, from position ``offset`` on.

::

    topk(Z)      = per key the rows of positive weight in order, a row of weight w at w positions;
                   the rows at positions offset <= i < offset + limit
    topk^Δ(d)    = topk(I(d)) - topk(z⁻¹(I(d)))         for the keys of rows of d only

An example stream, the 2 least numbers::

    delta     {3: +1, 5: +2}      {1: +1}             {3: -1}
    output    {3: +1, 5: +1}      {1: +1, 5: -1}      {3: -1, 5: +1}

State: the rows, once, in the order (key columns, sort columns, codes that the sort columns do not
determine), see `ordered_rows`. For each changed key, a step reads the first ``offset + limit``
positions before and after the step, in one scan. All other columns break ties, ascending and NULLs
last, so the result is a function of the input and not of its history.

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
    """The rows at some positions of an order, per key.

    Args:
        plan: The plan node; `circuits.plan.nodes.TopK` defines the result.
        codecs: The codes of values.

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
        last = None if self.limit is None else self.offset + self.limit
        self._last = last if last is not None and last <= MAX_INT64 else None
        sorts = [
            SortColumn(one.column, columns[one.column], one.descending, one.nulls_first)
            for one in plan.order
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
        # The trace has the final order up to and including the first sort columns that can tie.
        self._decided = sum(widths[: inexact[0] + 1]) if inexact else None
        starts = np.cumsum([len(self.keys), *widths]).tolist()
        self._starts = dict(zip([sort.column for sort in self._sorts], starts, strict=False))
        self._first_code_row = starts[-1]
        # A trace needs a column after the key, even if it is constant.
        self._width = max(starts[-1] + len(self._code_columns), len(self.keys) + 1)
        self._rows = OrderedRows(
            len(self.keys), self._width, limit=self._last, decided=self._decided
        )
        self.traces = self._rows.traces
        code_columns = {
            self._first_code_row + place: columns[c] for place, c in enumerate(self._code_columns)
        }
        self.coded = (
            dictionary_columns([columns[key] for key in self.keys]) | code_columns,
        ) * len(self.traces)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The selected rows of a whole Z-set, found by sorting all of it."""
        (zset,) = inputs
        stored = self._to_trace_layout(zset)
        starts = _group_starts(stored, len(self.keys))
        places = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        order = self._sort_positions(places, stored.row_array)
        rows, places = stored.row_array[:, order], places[order]
        return self._to_input_layout(
            rows, self._selected_weights(places, stored.weight_array[order])
        )

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The change of the selected rows of the groups in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta) or self.limit == 0:
            return ZSet.empty(self.arity), None
        stored = self._to_trace_layout(delta)
        k = len(self.keys)
        prefixes = stored.row_array[:k, _group_starts(stored, k)]
        found, steps = self._rows.prepare(stored, prefixes)
        rows = np.concatenate((prefixes[:, found.places], found.rows))
        places, old, new = found.places, found.old, found.new
        if self._decided is not None:
            order = self._sort_positions(places, rows)
            rows, places, old, new = rows[:, order], places[order], old[order], new[order]
        change = self._selected_weights(places, new) - self._selected_weights(places, old)
        return self._to_input_layout(rows, change), StagedGroup(steps)

    def _to_trace_layout(self, zset: ZSet) -> ZSet:
        """The rows in the column layout of the trace."""
        rows = zset.row_array
        columns = [rows[key] for key in self.keys]
        for sort in self._sorts:
            columns += sort.keys(rows[sort.column])
        columns += [rows[column] for column in self._code_columns]
        if len(columns) < self._width:
            columns.append(np.zeros(len(zset), np.int64))
        return consolidated_rows(np.stack(columns), zset.weight_array)

    def _sort_positions(self, places: Int64Array, rows: Int64Array) -> Int64Array:
        """The permutation that sorts rows of the trace's layout by place and by values."""
        columns: list[Int64Array] = [places]
        for sort in self._sorts:
            start = self._starts[sort.column]
            columns += list(rows[start : start + sort.width])
            if not sort.exact:
                columns.append(
                    sort.ranks(rows[self._first_code_row + self._code_columns.index(sort.column)])
                )
        return np.lexsort(columns[::-1])

    def _selected_weights(self, places: Int64Array, weights: Int64Array) -> Int64Array:
        """The part of each row's weight at the requested positions; the rows must be in order."""
        weights = np.maximum(weights, 0)
        if self.limit is None and self.offset == 0:
            return weights
        if float(weights.sum(dtype=np.float64)) > 2**62 or self.offset + (self.limit or 0) > 2**62:
            # Positions can exceed int64, so use Python integers.
            weights = weights.astype(object)
        last = np.cumsum(weights)
        first = last - weights
        starts = first_positions(places)
        before = np.repeat(first[starts], np.diff(np.append(starts, len(places))))
        low = np.maximum(first - before, self.offset)
        high = last - before
        if self.limit is not None:
            high = np.minimum(high, self.offset + self.limit)
        selected: Int64Array = np.maximum(high - low, 0).astype(np.int64)
        return selected

    def _to_input_layout(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Rows of the trace's layout in the input's columns, with other weights."""
        nonzero = np.flatnonzero(weights)
        columns = np.empty((self.arity, len(nonzero)), np.int64)
        for place, key in enumerate(self.keys):
            columns[key] = rows[place, nonzero]
        for sort in self._sorts:
            if sort.codec.ordered:
                columns[sort.column] = sort.codes(rows[self._starts[sort.column], nonzero])
        for place, column in enumerate(self._code_columns):
            columns[column] = rows[self._first_code_row + place, nonzero]
        return consolidated_rows(columns, weights[nonzero])


def _group_starts(zset: ZSet, k: int) -> Int64Array:
    """The positions at which the first k columns change, including 0 if there are rows."""
    rows = zset.row_array[:k]
    change = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.flatnonzero(np.concatenate((np.ones(min(len(zset), 1), np.bool), change)))
