"""Top-k: per key, the ``limit`` rows of a sort order that begin at position ``offset``.

::

    topk(Z)      = per key: sort the rows of positive weight; a row of weight w has w positions;
                   select the rows at the positions offset <= i < offset + limit
    topk^Δ(d)    = topk(I(d)) - topk(z⁻¹(I(d)))         for the keys of rows of d only

An example stream, the 2 least numbers::

    delta     {3: +1, 5: +2}      {1: +1}             {3: -1}
    output    {3: +1, 5: +1}      {1: +1, 5: -1}      {3: -1, 5: +1}

A sort column is an integer that has the order of the values (`sort_columns`); that of a string has
only its first bytes. State: a trace of all rows with the columns (keys, sort columns, codes of the
values that their sort columns do not identify), see `ordered_rows`. For each changed key, a step
reads the first ``offset + limit`` positions before and after the step, in one scan. All other
columns break ties, ascending and NULLs last, so the result depends only on the input and not on its
history.

Cost: O(log N) per changed key and run, and per position read. If the order is by a string, the
step also reads and compares all rows that share their first bytes with the last selected row.

Alternatives considered: storing only the first rows of each key, plus some spare rows. That state
is smaller, but after enough deletions it cannot supply the next rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from circuits.plan.nodes import TopK
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.ordered_rows import OrderedRows, first_positions
from circuits.runtime.operators.row_order import RowOrder
from circuits.types.codecs.codec import Codecs
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

    # Each trace begins with the keys, so old groups can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: TopK, codecs: Codecs) -> None:
        self.arity = len(plan.input.fields)
        self.limit = plan.limit
        self.offset = plan.offset
        stop = None if self.limit is None else self.offset + self.limit
        self._order = order = RowOrder(
            plan.input.fields, plan.keys, plan.order, codecs, sorts_ties=True
        )
        self._rows = OrderedRows(
            order.key_count,
            order.width,
            # A limit beyond int64 is no limit: no sum of weights reaches it.
            limit=stop if stop is not None and stop <= MAX_INT64 else None,
            tie_columns=order.tie_columns,
        )
        self.traces = self._rows.traces
        self.coded_columns = (order.coded_columns,) * len(self.traces)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Select the rows of a whole Z-set; sorts all of it."""
        (zset,) = inputs
        stored = self._order.to_stored_rows(zset)
        starts = self._order.group_starts(stored.row_array)
        group_indices = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        permutation = self._order.sort_positions(group_indices, stored.row_array)
        rows, group_indices = stored.row_array[:, permutation], group_indices[permutation]
        return self._to_input_layout(
            rows, self._selected_weights(group_indices, stored.weight_array[permutation])
        )

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the selected rows of the groups in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta) or self.limit == 0:
            return ZSet.empty(self.arity), None
        stored = self._order.to_stored_rows(delta)
        keys = stored.row_array[: self._order.key_count]
        groups = keys[:, self._order.group_starts(stored.row_array)]
        read, staged = self._rows.prepare(stored, groups)
        rows = np.concatenate((groups[:, read.prefix_index], read.rows))
        group_indices, old, new = read.prefix_index, read.old, read.new
        if self._order.tie_columns is not None:  # strings with equal first bytes are tied
            permutation = self._order.sort_positions(group_indices, rows)
            rows, group_indices = rows[:, permutation], group_indices[permutation]
            old, new = old[permutation], new[permutation]
        change = self._selected_weights(group_indices, new) - self._selected_weights(
            group_indices, old
        )
        return self._to_input_layout(rows, change), StagedGroup(staged)

    def _selected_weights(self, group_indices: Int64Array, weights: Int64Array) -> Int64Array:
        """Return how many positions of each row are selected; the rows must be in order.

        A row of weight w has w positions in its group.
        """
        weights = np.maximum(weights, 0)
        if self.limit is None and self.offset == 0:
            return weights
        if float(weights.sum(dtype=np.float64)) > 2**62 or self.offset + (self.limit or 0) > 2**62:
            # Positions can exceed int64, so use Python integers.
            weights = weights.astype(object)
        # The positions of each row among all rows, from ``begins`` to before ``ends``.
        ends = np.cumsum(weights)
        begins = ends - weights
        group_starts = first_positions(group_indices)
        group_sizes = np.diff(np.append(group_starts, len(group_indices)))
        group_begins = np.repeat(begins[group_starts], group_sizes)
        # The positions of each row in its group.
        begins, ends = begins - group_begins, ends - group_begins
        begins = np.maximum(begins, self.offset)
        if self.limit is not None:
            ends = np.minimum(ends, self.offset + self.limit)
        selected: Int64Array = np.maximum(ends - begins, 0).astype(np.int64)
        return selected

    def _to_input_layout(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Return the Z-set of stored rows, converted to the columns of the input."""
        nonzero = np.flatnonzero(weights)
        return consolidated_rows(self._order.to_input(rows[:, nonzero]), weights[nonzero])
