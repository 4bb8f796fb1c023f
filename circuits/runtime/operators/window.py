"""Window functions: one more column per call, computed from the rows around each row.

::

    window(Z)    = per partition the rows of positive weight in order, a row of weight w as w rows;
                   each with the results of the calls
    window^Δ(d)  = window(I(d)) - window(z⁻¹(I(d)))      for the partitions of rows of d only

An example stream, ``row_number() OVER (PARTITION BY k ORDER BY x)`` of rows (k, x)::

    delta     {(7,3): +1, (7,5): +1}        {(7,4): +1}
    output    {(7,3,1): +1, (7,5,2): +1}    {(7,4,2): +1, (7,5,2): -1, (7,5,3): +1}

State: the rows, once, in the order (partition, sort columns, other columns); see `RowOrder`.

Cost: a step reads the changed partitions as a whole and writes the rows whose results differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.plan.window import Window
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.prefix_totals import PrefixTotals
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.window_functions import Totals, WindowFunctions
from circuits.runtime.operators.window_segments import (
    Segments,
    add_saturating,
    find_segments,
    is_null_key,
    reach_of,
)
from circuits.types.arrow_types import value_type
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.trace import Staged, StagedGroup, TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["WindowOperator"]

# A segment costs as much as reading this many rows; smaller partitions are read as a whole.
SEGMENT_OVERHEAD_ROWS: Final = 16


class WindowOperator:
    """The rows of the input with the results of window functions.

    Args:
        plan: The node; `circuits.plan.window.Window` defines the result.
        codecs: The codes of values.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Order, Scan
    >>> from circuits.plan.window import WindowCall
    >>> plan = Window(
    ...     Scan("r", (Field("x", pa.int64()),)),
    ...     partition=(),
    ...     order=(Order(0),),
    ...     calls=(WindowCall("row_number", (), pa.int64(), "n"),),
    ... )
    >>> WindowOperator(plan, Codecs()).evaluate([ZSet.from_rows([(5,), (3,), (5,)])])
    ZSet({(3, 1): 1, (5, 2): 1, (5, 3): 1})
    """

    def __init__(self, plan: Window, codecs: Codecs) -> None:
        self.arity = len(plan.fields)
        fields = plan.input.fields
        self._order = RowOrder(fields, plan.partition, plan.order, codecs)
        self._functions = WindowFunctions(plan, codecs)
        self._rows = Trace(self._order.width)
        self._negative = Trace(self._order.width)
        value_order = (
            len(plan.order) == 1
            and self._order.order_width == 1
            and not pa.types.is_floating(value_type(fields[plan.order[0].column].type))
        )
        self._reach = reach_of(plan, value_order=value_order) if self._order.is_exact else None
        summed: dict[int, bool] = {}
        for call in plan.calls if self._reach is not None else ():
            if call.function in ("count", "sum", "avg") and call.frame.start is None:
                for column in call.arguments:
                    summed[column] = summed.get(column, False) or call.function != "count"
        self._totals = PrefixTotals(self._order, summed, [codecs.codec(f.type) for f in fields])
        self.traces = (self._rows, self._negative, self._totals.trace)
        coded = self._order.coded
        self.coded = (coded, coded, self._totals.coded)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The result for a whole Z-set."""
        (zset,) = inputs
        stored = self._order.to_trace(zset)
        starts = self._order.group_starts(stored.row_array)
        places = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        return consolidated_rows(*self._results(places, stored.row_array, stored.weight_array))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The change of the rows of the partitions in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
            EvaluationError: A sum does not fit the type of the result.
        """
        (delta,) = deltas
        if not len(delta):
            return ZSet.empty(self.arity), None
        stored = self._order.to_trace(delta)
        step = self._rows.prepare(stored)
        staged: list[Staged] = [step]
        keys = self._order.keys
        starts = self._order.group_starts(stored.row_array)
        prefixes = stored.row_array[:keys, starts]
        if self._reach is None:
            return self._whole_partitions(prefixes, step), step
        has_negative = not self._negative.is_empty
        if has_negative or (stored.weight_array < 0).any():
            before = self._rows.weights_of(stored)
            after = before + stored.weight_array
            negative = np.minimum(after, 0) - np.minimum(before, 0)
            changed = np.flatnonzero(negative)
            if len(changed):
                rows = ZSet(stored.row_array[:, changed], negative[changed])
                staged.append(self._negative.prepare(rows))
                has_negative = True
        totals_step = self._totals.prepare(stored, self._order.to_input(stored.row_array))
        if totals_step is not None:
            staged.append(totals_step)
        ranges = RowRanges(self._rows, step)
        change = None
        if not has_negative:
            partition = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
            change = self._segments(ranges, stored.row_array, partition, prefixes, totals_step)
        if change is None:
            change = self._whole_partitions(prefixes, step)
        return change, StagedGroup(staged)

    def _whole_partitions(self, prefixes: Int64Array, step: TraceStep) -> ZSet:
        """The change of all rows of partitions."""
        read = prefix_lookup(self._rows, prefixes, step=step)
        rows = np.concatenate((prefixes[:, read.places], read.rows))
        old, old_weights = self._results(read.places, rows, read.old)
        new, new_weights = self._results(read.places, rows, read.new)
        return consolidated_rows(
            np.concatenate((old, new), axis=1), np.concatenate((-old_weights, new_weights))
        )

    def _segments(
        self,
        ranges: RowRanges,
        changed: Int64Array,
        partition: Int64Array,
        prefixes: Int64Array,
        totals_step: TraceStep | None,
    ) -> ZSet | None:
        """The change of the rows around changed rows; None if whole partitions are less work."""
        reach = self._reach
        assert reach is not None
        whole = ranges.seek(prefixes, after=True).positions.sum()
        whole -= ranges.seek(prefixes).positions.sum()
        near = 2 * (reach.rows_before + reach.rows_behind) + SEGMENT_OVERHEAD_ROWS
        if changed.shape[1] * near > whole:
            return None
        segments = find_segments(
            ranges, changed, partition, prefixes, self._order.order_width, reach
        )
        rows = segments.rows
        first = np.searchsorted(rows.ranges, np.arange(len(segments.partition)))
        old_totals = new_totals = None
        if reach.from_start:
            before = segments.start
            bottom = segments.partition_start
            old_totals, new_totals = self._totals.before(
                rows.rows[:, first], before.old - bottom.old, before.new - bottom.new, totals_step
            )
        old, old_weights = self._segment_results(segments, rows.old, old_totals)
        new, new_weights = self._segment_results(segments, rows.new, new_totals)
        return consolidated_rows(
            np.concatenate((old, new), axis=1), np.concatenate((-old_weights, new_weights))
        )

    def _segment_results(
        self, segments: Segments, weights: Int64Array, totals: Totals | None
    ) -> tuple[Int64Array, Int64Array]:
        """The rows of segments whose results can be computed, with these, and their weights."""
        reach = self._reach
        assert reach is not None
        rows = segments.rows
        index = np.repeat(np.arange(len(weights)), weights)
        segment = rows.ranges[index]
        codes = self._order.to_input(rows.rows[:, index])
        begins: BoolArray = np.ones(len(index), np.bool)
        begins[1:] = segment[1:] != segment[:-1]
        if totals is not None:
            totals = totals.take(segment[np.flatnonzero(begins)])
        results = self._functions.results(codes, begins, totals)
        start = np.searchsorted(segment, segment, side="left")
        stop = np.searchsorted(segment, segment, side="right")
        row = np.arange(len(index))
        at_start, at_end = segments.begins_partition[segment], segments.ends_partition[segment]
        enough_before = row - start >= reach.rows_before
        enough_behind = stop - 1 - row >= reach.rows_behind
        if reach.values_before is not None and reach.values_behind is not None:
            value = rows.rows[self._order.keys, index]
            low, high = segments.low_value[segment], segments.high_value[segment]
            is_null = is_null_key(value)
            enough_before &= is_null | (add_saturating(value, -reach.values_before) >= low)
            enough_behind &= is_null | (add_saturating(value, reach.values_behind) <= high)
        valid = np.flatnonzero((at_start | enough_before) & (at_end | enough_behind))
        return np.concatenate((codes, results))[:, valid], np.ones(len(valid), np.int64)

    def _results(
        self, places: Int64Array, rows: Int64Array, weights: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """The rows with their results, and their weights.

        Args:
            places: The number of each row's partition.
            rows: Rows of whole partitions in the layout of the trace.
            weights: Their weights.
        """
        order = self._order.sort_positions(places, rows, by_order_only=True)
        # A row of weight w is w rows of weight 1.
        order = np.repeat(order, np.maximum(weights[order], 0))
        places = places[order]
        codes = self._order.to_input(rows[:, order])
        begins: BoolArray = np.concatenate(
            (np.ones(min(len(places), 1), np.bool), places[1:] != places[:-1])
        )
        results = self._functions.results(codes, begins)
        return np.concatenate((codes, results)), np.ones(len(order), np.int64)
