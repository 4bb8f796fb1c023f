"""Top-k: per key, the ``limit`` rows of a sort order that begin at position ``offset``; numbered.

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

A numbered top-k also outputs the number of each row among the selected rows of its key, from 1. A
row of weight w at w selected positions is w rows, so all weights of its result are 1. The delta has
the rows whose numbers change.

Cost: O(log N) per changed key and run, and per position read. If the order is by a string, the
step also reads and compares all rows that share their first bytes with the last selected row.

Alternatives considered: storing only the first rows of each key, plus some spare rows. That state
is smaller, but after enough deletions it cannot supply the next rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from circuits.plan.nodes import TopK
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.ordered_rows import (
    OrderedRows,
    count_repeated_rows,
    first_positions,
)
from circuits.runtime.operators.row_order import RowOrder
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import MAX_INT64, Int64Array, consolidated_rows

__all__ = ["NumberedTopKOperator", "TopKOperator"]


class _SelectedRows(NamedTuple):
    """Rows in the layout of the trace, in order, group by group, and how often each is selected.

    Attributes:
        rows: The rows.
        group_indices: The number of each row's group.
        old: The number of positions of each row that are selected without the step.
        new: The same with the step.
    """

    rows: Int64Array
    group_indices: Int64Array
    old: Int64Array
    new: Int64Array


class _TopKReader(ABC):
    """Stores the rows, and reads those at the selected positions.

    Args:
        plan: The plan node.
        codecs: Encode values as int64 codes.
    """

    # Each trace begins with the keys, so old groups can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: TopK, codecs: Codecs) -> None:
        self.arity = len(plan.fields)
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

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the selected rows of the groups in the delta.

        Raises:
            LimitError: Numbered rows of large weights are more rows than a step may produce.
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta) or self.limit == 0:
            return ZSet.empty(self.arity), None
        read, staged = self._read_changed(delta)
        return self._change(read, context.budget), StagedGroup(staged)

    @abstractmethod
    def _change(self, read: _SelectedRows, budget: Budget | None) -> ZSet:
        """Return the difference between the result with and without the step."""

    def _read_all(self, zset: ZSet) -> _SelectedRows:
        """Return the selected rows of a whole Z-set; sorts all of it."""
        return self._read_stored(self._order.to_stored_rows(zset))

    def _read_stored(self, stored: ZSet) -> _SelectedRows:
        """Return the selected rows of a Z-set in the layout of the trace."""
        starts = self._order.group_starts(stored.row_array)
        group_indices = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        permutation = self._order.sort_positions(group_indices, stored.row_array)
        rows, group_indices = stored.row_array[:, permutation], group_indices[permutation]
        new = self._selected_weights(group_indices, stored.weight_array[permutation])
        return _SelectedRows(rows, group_indices, np.zeros_like(new), new)

    def _read_changed(self, delta: ZSet) -> tuple[_SelectedRows, list[Staged]]:
        """Return the selected rows of the groups in a delta, and stage the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
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
        old = self._selected_weights(group_indices, old)
        new = self._selected_weights(group_indices, new)
        return _SelectedRows(rows, group_indices, old, new), staged

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
        begins = _first_positions_in_groups(group_indices, weights)
        ends = begins + weights
        begins = np.maximum(begins, self.offset)
        if self.limit is not None:
            ends = np.minimum(ends, self.offset + self.limit)
        selected: Int64Array = np.maximum(ends - begins, 0).astype(np.int64)
        return selected


class TopKOperator(_TopKReader):
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

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Select the rows of a whole Z-set."""
        (zset,) = inputs
        return self._change(self._read_all(zset))

    def select_stored(self) -> ZSet:
        """Return the selected rows of the state, in the layout of its trace.

        Complexity:
            O(rows of the state).
        """
        if self._rows.rows.is_empty:
            return ZSet.empty(self._order.width)
        read = self._read_stored(self._rows.rows.to_zset())
        selected = np.flatnonzero(read.new)
        return consolidated_rows(read.rows[:, selected], read.new[selected])

    def _change(self, read: _SelectedRows, budget: Budget | None = None) -> ZSet:
        """Return the difference between the selected rows with and without the step."""
        weights = read.new - read.old
        changed = np.flatnonzero(weights)
        return consolidated_rows(self._order.to_input(read.rows[:, changed]), weights[changed])


class NumberedTopKOperator(_TopKReader):
    """Selects rows by their position in a sort order, per key, and numbers them.

    Args:
        plan: The plan node; `circuits.plan.physical_nodes.NumberedTopK` defines the result.
        codecs: Encode values as int64 codes.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Order, Scan
    >>> from circuits.plan.physical_nodes import NumberedTopK
    >>> scan = Scan("r", (Field("x", pa.int64()),))
    >>> least = NumberedTopK(scan, keys=(), order=(Order(0),), limit=3)
    >>> NumberedTopKOperator(least, Codecs()).evaluate([ZSet.from_rows([(3,), (7,), (7,), (9,)])])
    ZSet({(3, 1): 1, (7, 2): 1, (7, 3): 1})
    """

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Number the selected rows of a whole Z-set; LimitError if they exceed a limit."""
        (zset,) = inputs
        return self._change(self._read_all(zset), budget)

    def _change(self, read: _SelectedRows, budget: Budget | None) -> ZSet:
        """Return the difference between the numbered rows with and without the step."""
        firsts = [
            _first_positions_in_groups(read.group_indices, weights) + 1
            for weights in (read.old, read.new)
        ]
        is_selected = (read.old > 0) | (read.new > 0)
        has_new_numbers = (read.old != read.new) | (firsts[0] != firsts[1])
        changed = np.flatnonzero(is_selected & has_new_numbers)
        positions, numbers, signs = [], [], []
        for sign, first, weights in zip((-1, 1), firsts, (read.old, read.new), strict=True):
            repeats = weights[changed]
            if budget is not None:
                count_repeated_rows(repeats, budget, self.arity)
            positions.append(np.repeat(changed, repeats))
            begins = np.cumsum(repeats) - repeats
            numbers.append(
                np.arange(len(positions[-1])) + np.repeat(first[changed] - begins, repeats)
            )
            signs.append(np.full(len(positions[-1]), sign))
        rows = self._order.to_input(read.rows[:, np.concatenate(positions)])
        return consolidated_rows(
            np.concatenate((rows, np.concatenate(numbers)[np.newaxis])), np.concatenate(signs)
        )


def _first_positions_in_groups(group_indices: Int64Array, weights: Int64Array) -> Int64Array:
    """Return the first of the w positions of each row of weight w in its group, from 0.

    >>> _first_positions_in_groups(np.array([0, 0, 0, 4]), np.array([1, 2, 1, 1])).tolist()
    [0, 1, 3, 0]
    """
    begins = np.cumsum(weights) - weights
    group_starts = first_positions(group_indices)
    group_sizes = np.diff(group_starts, append=len(group_indices))
    positions: Int64Array = begins - np.repeat(begins[group_starts], group_sizes)
    return positions
