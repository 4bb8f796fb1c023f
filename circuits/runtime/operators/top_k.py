"""Top-k: per key the rows at some positions of an order, from ``offset`` on, ``limit`` of them.

::

    topk(Z)      = per key the rows of positive weight in order, a row of weight w at w positions;
                   those at positions offset <= i < offset + limit
    topk^Δ(d)    = topk(I(d)) - topk(z⁻¹(I(d)))         of the keys that d touches only

An example stream, the 2 least numbers::

    delta     {3: +1, 5: +2}      {1: +1}             {3: -1}
    output    {3: +1, 5: +1}      {1: +1, 5: -1}      {3: -1, 5: +1}

State: the rows, once, in the order (key columns, sort columns, codes that the sort columns do not
determine), see `ordered_rows`. A step reads per touched key the first ``offset + limit`` positions
before and after it, in one walk. Ties are decided by all other columns, ascending and NULLs last,
so the result is a function of the input and not of its history.

Cost: O(log N) per touched key and run, and per position read. Where the first sort column is of a
text, all rows that share its first bytes with the last one taken are read and compared.

The way not taken: keeping the leading rows only, with some to spare. It is smaller, and stops with
nothing to go on with after enough deletions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.nodes import TopK
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.ordered_rows import OrderedRows, first_of_each
from circuits.runtime.operators.sort_columns import SortColumn
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import StagedGroup
from dbsp_wcoj.zset import LIMIT, Int64Array, consolidated_rows

__all__ = ["TopKOperator"]


class TopKOperator:
    """The rows at some positions of an order, per key.

    Args:
        plan: What to choose; `circuits.plan.nodes.TopK` states what it means.
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
        # The position after the last one asked for, None where no weights reach it.
        last = None if self.limit is None else self.offset + self.limit
        self._last = last if last is not None and last <= LIMIT else None
        sorts = [
            SortColumn(one.column, columns[one.column], one.descending, one.nulls_first)
            for one in plan.order
        ]
        sorts += [SortColumn(column, codec) for column, codec in enumerate(columns)]
        # A column that has decided once cannot decide again, and a key never does.
        first = {sort.column: sort for sort in reversed(sorts)}
        decides = dict.fromkeys(sort.column for sort in sorts if sort.column not in self.keys)
        self._sorts = [first[column] for column in decides]
        # Columns that a sort column does not give back, kept after the sort columns.
        self._kept = [sort.column for sort in self._sorts if not sort.codec.ordered]
        widths = [sort.width for sort in self._sorts]
        inexact = [i for i, sort in enumerate(self._sorts) if not sort.exact]
        # Up to the first sort columns that can tie, these included, the trace's order is the order.
        self._decided = sum(widths[: inexact[0] + 1]) if inexact else None
        starts = np.cumsum([len(self.keys), *widths]).tolist()
        self._starts = dict(zip([sort.column for sort in self._sorts], starts, strict=False))
        self._first_kept = starts[-1]
        # A trace has a column after the key, be it an empty one.
        self._width = max(starts[-1] + len(self._kept), len(self.keys) + 1)
        self._rows = OrderedRows(
            len(self.keys), self._width, limit=self._last, decided=self._decided
        )
        self.traces = self._rows.traces
        kept = {self._first_kept + place: columns[c] for place, c in enumerate(self._kept)}
        self.coded = (dictionary_columns([columns[key] for key in self.keys]) | kept,) * len(
            self.traces
        )

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The chosen rows of a whole Z-set, by sorting all of it."""
        (zset,) = inputs
        laid = self._laid_out(zset)
        starts = _group_starts(laid, len(self.keys))
        places = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(laid))))
        order = self._in_order(places, laid.row_array)
        rows, places = laid.row_array[:, order], places[order]
        return self._original(rows, self._chosen(places, laid.weight_array[order]))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """How the chosen rows of the touched groups change.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta) or self.limit == 0:
            return ZSet.empty(self.arity), None
        laid = self._laid_out(delta)
        k = len(self.keys)
        prefixes = laid.row_array[:k, _group_starts(laid, k)]
        found, steps = self._rows.prepare(laid, prefixes)
        rows = np.concatenate((prefixes[:, found.places], found.rows))
        places, old, new = found.places, found.old, found.new
        if self._decided is not None:
            order = self._in_order(places, rows)
            rows, places, old, new = rows[:, order], places[order], old[order], new[order]
        change = self._chosen(places, new) - self._chosen(places, old)
        return self._original(rows, change), StagedGroup(steps)

    def _laid_out(self, zset: ZSet) -> ZSet:
        """The rows as the trace has them."""
        rows = zset.row_array
        columns = [rows[key] for key in self.keys]
        for sort in self._sorts:
            columns += sort.keys(rows[sort.column])
        columns += [rows[column] for column in self._kept]
        if len(columns) < self._width:
            columns.append(np.zeros(len(zset), np.int64))
        return consolidated_rows(np.stack(columns), zset.weight_array)

    def _in_order(self, places: Int64Array, rows: Int64Array) -> Int64Array:
        """The permutation that sorts laid out rows by place and by values."""
        columns: list[Int64Array] = [places]
        for sort in self._sorts:
            start = self._starts[sort.column]
            columns += list(rows[start : start + sort.width])
            if not sort.exact:
                columns.append(sort.ranks(rows[self._first_kept + self._kept.index(sort.column)]))
        return np.lexsort(columns[::-1])

    def _chosen(self, places: Int64Array, weights: Int64Array) -> Int64Array:
        """How much of each row's weight lies at the positions asked for; rows are in order."""
        weights = np.maximum(weights, 0)
        if self.limit is None and self.offset == 0:
            return weights
        if float(weights.sum(dtype=np.float64)) > 2**62 or self.offset + (self.limit or 0) > 2**62:
            # Positions beyond int64: in Python's integers.
            weights = weights.astype(object)
        last = np.cumsum(weights)
        first = last - weights
        starts = first_of_each(places)
        before = np.repeat(first[starts], np.diff(np.append(starts, len(places))))
        low = np.maximum(first - before, self.offset)
        high = last - before
        if self.limit is not None:
            high = np.minimum(high, self.offset + self.limit)
        chosen: Int64Array = np.maximum(high - low, 0).astype(np.int64)
        return chosen

    def _original(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Laid out rows in the input's columns, with other weights."""
        chosen = np.flatnonzero(weights)
        columns = np.empty((self.arity, len(chosen)), np.int64)
        for place, key in enumerate(self.keys):
            columns[key] = rows[place, chosen]
        for sort in self._sorts:
            if sort.codec.ordered:
                columns[sort.column] = sort.codes(rows[self._starts[sort.column], chosen])
        for place, column in enumerate(self._kept):
            columns[column] = rows[self._first_kept + place, chosen]
        return consolidated_rows(columns, weights[chosen])


def _group_starts(zset: ZSet, k: int) -> Int64Array:
    """The positions at which the first k columns change, 0 among them if there are rows."""
    rows = zset.row_array[:k]
    change = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.flatnonzero(np.concatenate((np.ones(min(len(zset), 1), np.bool), change)))
