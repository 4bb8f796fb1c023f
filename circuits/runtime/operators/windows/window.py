"""Window functions: one more column per call, computed from the rows around each row.

::

    window(Z)    = per partition the rows of positive weight in order, a row of weight w as w rows;
                   each with the results of the calls
    window^Δ(d)  = window(I(d)) - window(z⁻¹(I(d)))      for the partitions of rows of d only

An example stream, ``row_number() OVER (PARTITION BY k ORDER BY x)`` of rows (k, x)::

    delta     {(7,3): +1, (7,5): +1}        {(7,4): +1}
    output    {(7,3,1): +1, (7,5,2): +1}    {(7,4,2): +1, (7,5,2): -1, (7,5,3): +1}

State: the rows, once, in the order (partition, sort columns, other columns), see `row_order`; for
running sums their digits (`prefix_totals`); for running min and max the rows that improve it
(`running_extremes`); for dense_rank and frames of GROUPS the groups (`order_groups`).

Cost: a step reads the rows whose results can change, and the rows that these read
(`row_intervals`): O(log N) per changed row and run, and O(1) per row that is read. The step reads
the changed partitions as a whole if a call reads its whole partition, if most of the rows would
have to be read, or if rows have negative weights. It also does so for an order by strings, because
the trace orders strings by their first bytes only.

Alternatives considered: a balanced tree per partition, with totals in its nodes. The runs of a
trace store running sums of their weights, so their searches return the same totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from circuits.plan.window import Window
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.ordered_rows import count_repeated_rows
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.windows.order_groups import OrderGroups
from circuits.runtime.operators.windows.prefix_totals import PrefixTotals
from circuits.runtime.operators.windows.row_intervals import (
    RowIntervals,
    find_row_intervals,
    reach_of,
)
from circuits.runtime.operators.windows.running_extremes import RunningExtreme, is_running_extreme
from circuits.runtime.operators.windows.window_functions import Totals, WindowFunctions
from circuits.types.arrow_types import value_type
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup
from dbsp_wcoj.storage.row_ranges import RangeRows, RowRanges
from dbsp_wcoj.storage.trace import Staged, StagedGroup, TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["WindowOperator"]

# A row interval costs as much as reading this many rows; smaller partitions are read as a whole.
INTERVAL_OVERHEAD_ROWS: Final = 16


class WindowOperator:
    """The rows of the input with the results of window functions.

    Args:
        plan: The node; `circuits.plan.window.Window` defines the result.
        codecs: Encode values as int64 codes.

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

    # Each trace begins with the partition columns, so old partitions can be dropped (`Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: Window, codecs: Codecs) -> None:
        self.arity = len(plan.fields)
        fields = plan.input.fields
        self._order = RowOrder(fields, plan.partition, plan.order, codecs)
        self._functions = WindowFunctions(plan, codecs)
        self._rows = Trace(self._order.width)
        # The rows of negative total weight. The results ignore them, but the totals over the rows
        # before an interval do not, so while there are any, whole partitions are read.
        self._negative = Trace(self._order.width)
        # Frames of mode RANGE are searched in the trace by value if the order is one sort column of
        # numbers: a difference of values is then a difference of sort columns.
        can_search_values = (
            len(plan.order) == 1
            and self._order.order_width == 1
            and not pa.types.is_floating(value_type(fields[plan.order[0].column].type))
        )
        self._nulls_first = bool(plan.order) and plan.order[0].nulls_first
        self._reach = (
            reach_of(plan, can_search_values=can_search_values) if self._order.is_exact else None
        )
        # The columns of running counts and sums; True for those that are added up.
        total_columns: dict[int, bool] = {}
        for call in plan.calls if self._reach is not None else ():
            if call.function in ("count", "sum", "avg") and call.frame.start is None:
                for column in call.arguments:
                    is_summed = total_columns.get(column, False) or call.function != "count"
                    total_columns[column] = is_summed
        columns = [codecs.codec(f.type) for f in fields]
        self._totals = PrefixTotals(self._order, total_columns, columns)
        self._extremes = {
            (call.function, call.arguments[0]): RunningExtreme(
                self._order,
                call.arguments[0],
                columns[call.arguments[0]],
                is_max=call.function == "max",
            )
            for call in (plan.calls if self._reach is not None else ())
            if is_running_extreme(call)
        }
        has_groups = any(call.function == "dense_rank" for call in plan.calls)
        if self._reach is not None and (self._reach.groups_before or self._reach.groups_after):
            has_groups = True
        self._groups = None
        self.traces: tuple[Trace, ...] = (self._rows, self._negative, self._totals.trace)
        self.coded_columns: tuple[Mapping[int, Codec], ...] = (
            self._order.coded_columns,
            self._order.coded_columns,
            self._totals.coded_columns,
        )
        if self._reach is not None and has_groups:
            self._groups = OrderGroups(self._order)
            self.traces += (self._groups.trace,)
            self.coded_columns += (self._groups.coded_columns,)
        for extreme in self._extremes.values():
            self.traces += (extreme.trace,)
            self.coded_columns += (extreme.coded_columns,)

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Compute the result for a whole Z-set; LimitError if it exceeds a limit."""
        (zset,) = inputs
        stored = self._order.to_stored_rows(zset)
        starts = self._order.group_starts(stored.row_array)
        group_indices = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        if budget is not None:
            count_repeated_rows(stored.weight_array, budget, self.arity)
        rows = self._results(group_indices, stored.row_array, stored.weight_array, budget)
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the rows of the partitions in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
            EvaluationError: A sum does not fit the type of the result.
        """
        (delta,) = deltas
        if not len(delta):
            return ZSet.empty(self.arity), None
        stored = self._order.to_stored_rows(delta)
        step = self._rows.prepare(stored)
        staged: list[Staged] = [step]
        starts = self._order.group_starts(stored.row_array)
        prefixes = stored.row_array[: self._order.key_count, starts]
        if self._reach is None:
            read = prefix_lookup(self._rows, prefixes, step=step)
            return self._whole_partitions(prefixes, read, context.budget), step
        negative_step = self._prepare_negative(stored)
        if negative_step is not None:
            staged.append(negative_step)
        has_negative = negative_step is not None or not self._negative.is_empty
        totals_step = self._totals.prepare(stored, self._order.to_input(stored.row_array))
        if totals_step is not None:
            staged.append(totals_step)
        ranges = RowRanges(self._rows, step)
        groups_step = None
        if self._groups is not None:
            negative = RowRanges(self._negative, negative_step) if has_negative else None
            groups_step = self._groups.prepare(stored.row_array, ranges, negative)
            if groups_step is not None:
                staged.append(groups_step)
        change = None
        if not has_negative:
            group_sizes = np.diff(np.append(starts, len(stored)))
            partition = np.repeat(np.arange(len(starts)), group_sizes)
            intervals = self._find_row_intervals(
                ranges, stored.row_array, partition, prefixes, groups_step
            )
            if intervals is not None:
                totals = self._totals_before(ranges, intervals, totals_step, groups_step)
                change = self._change_of_intervals(intervals, totals, context.budget)
                read_rows = intervals.rows
                staged += self._prepare_extremes(
                    read_rows.rows,
                    read_rows.ranges,
                    read_rows.old > 0,
                    read_rows.new > 0,
                    totals[0],
                )
        if change is None:
            read = prefix_lookup(self._rows, prefixes, step=step)
            change = self._whole_partitions(prefixes, read, context.budget)
            whole_rows = np.concatenate((prefixes[:, read.prefix_index], read.rows))
            staged += self._prepare_extremes(
                whole_rows, read.prefix_index, read.old > 0, read.new > 0, None
            )
        return change, StagedGroup(staged)

    def _prepare_negative(self, stored: ZSet) -> TraceStep | None:
        """Stage the change of the rows of negative total weight; None if there is none."""
        if self._negative.is_empty and not (stored.weight_array < 0).any():
            return None
        old = self._rows.weights_of(stored)
        new = old + stored.weight_array
        change = np.minimum(new, 0) - np.minimum(old, 0)
        changed = np.flatnonzero(change)
        if not len(changed):
            return None
        rows = np.ascontiguousarray(stored.row_array[:, changed])
        return self._negative.prepare(ZSet(rows, change[changed]))

    def _prepare_extremes(
        self,
        rows: Int64Array,
        group: Int64Array,
        was_present: BoolArray,
        is_present: BoolArray,
        totals: Totals | None,
    ) -> list[TraceStep]:
        """Stage the changes of the running extremes.

        Args:
            rows: The rows of intervals, or of whole partitions, in the layout of the trace.
            group: The number of each row's interval or partition.
            was_present: A mask of the rows of positive weight without the step.
            is_present: The same with the step.
            totals: The totals before each interval; None for whole partitions.
        """
        steps = []
        for call, extreme in self._extremes.items():
            if totals is not None:
                before = totals.extremes[call]
            else:
                before = np.full(int(group.max(initial=-1)) + 1, NULL)
            step = extreme.prepare(rows, group, was_present, is_present, before)
            if step is not None:
                steps.append(step)
        return steps

    def _whole_partitions(self, prefixes: Int64Array, read: PrefixRows, budget: Budget) -> ZSet:
        """Return the change of all rows of partitions."""
        rows = np.concatenate((prefixes[:, read.prefix_index], read.rows))
        count_repeated_rows(read.old, budget, self.arity)
        count_repeated_rows(read.new, budget, self.arity)
        return self._difference(
            self._results(read.prefix_index, rows, read.old, budget),
            self._results(read.prefix_index, rows, read.new, budget),
        )

    def _find_row_intervals(
        self,
        ranges: RowRanges,
        changed: Int64Array,
        partition: Int64Array,
        prefixes: Int64Array,
        groups_step: TraceStep | None,
    ) -> RowIntervals | None:
        """Return the intervals around changed rows; None if whole partitions are less work."""
        reach = self._reach
        assert reach is not None
        partition_rows = ranges.seek(prefixes, after=True).positions.sum()
        partition_rows -= ranges.seek(prefixes).positions.sum()
        rows_in_reach = reach.rows_before + reach.rows_after
        rows_in_reach += reach.groups_before + reach.groups_after
        if changed.shape[1] * (2 * rows_in_reach + INTERVAL_OVERHEAD_ROWS) > partition_rows:
            return None
        groups = None
        if self._groups is not None:
            groups = RowRanges(self._groups.trace, groups_step)
        return find_row_intervals(
            ranges,
            changed,
            partition,
            prefixes,
            self._order.order_width,
            reach,
            tuple(self._extremes.values()),
            groups,
            nulls_first=self._nulls_first,
            tie_width=self._order.tie_width,
        )

    def _totals_before(
        self,
        ranges: RowRanges,
        intervals: RowIntervals,
        totals_step: TraceStep | None,
        groups_step: TraceStep | None,
    ) -> tuple[Totals | None, Totals | None]:
        """Return the totals over the rows before each interval, without and with the step."""
        reach = self._reach
        assert reach is not None
        if not (reach.from_start or reach.first_row or self._extremes):
            return None, None
        start, partition_start = intervals.start, intervals.partition_start
        # ``old`` and ``new`` of a position are the sums of the weights of all rows before it.
        old = Totals(start.old - partition_start.old)
        new = Totals(start.new - partition_start.new)
        rows = intervals.rows
        # The first row of each interval.
        begins = rows.rows[:, np.searchsorted(rows.ranges, np.arange(len(old.rows)))]
        if self._extremes:
            # A change before an interval does not affect its rows (it would be in it), so
            # the extremes before it are the same without and with the step.
            extremes = {call: each.before(begins) for call, each in self._extremes.items()}
            old, new = replace(old, extremes=extremes), replace(new, extremes=extremes)
        if reach.from_start:
            old_sums, new_sums = self._totals.before(begins, old.rows, new.rows, totals_step)
            old = replace(old, counts=old_sums.counts, sums=old_sums.sums)
            new = replace(new, counts=new_sums.counts, sums=new_sums.sums)
            if self._groups is not None:
                old_groups, new_groups = self._groups.before(begins, groups_step)
                old, new = replace(old, groups=old_groups), replace(new, groups=new_groups)
        if reach.first_row:
            # A step that changes the first row of a partition computes the whole partition, as a
            # interval without leading rows. In all other partitions the first row is the old one.
            after_first = ranges.neighbour(
                partition_start,
                intervals.partition_stop,
                1,
                depth=self._order.tie_width,
                after=True,
            )
            candidates = ranges.read(partition_start, after_first)
            sorted_rows = self._order.sort_positions(
                candidates.ranges, candidates.rows, by_order_only=True
            )
            present = sorted_rows[candidates.old[sorted_rows] > 0]
            interval, first = np.unique(candidates.ranges[present], return_index=True)
            codes = self._order.to_input(candidates.rows[:, present[first]])
            first_rows = np.full((len(codes), len(old.rows)), NULL)
            first_rows[:, interval] = codes
            old, new = replace(old, first_rows=first_rows), replace(new, first_rows=first_rows)
        return old, new

    def _change_of_intervals(
        self, intervals: RowIntervals, totals: tuple[Totals | None, Totals | None], budget: Budget
    ) -> ZSet:
        """Return the change of the affected rows of intervals."""
        count_repeated_rows(intervals.rows.old, budget, self.arity)
        count_repeated_rows(intervals.rows.new, budget, self.arity)
        return self._difference(
            self._interval_results(
                intervals.rows,
                intervals.rows.old,
                intervals.first_affected.old - intervals.start.old,
                intervals.last_affected.old - intervals.start.old,
                totals[0],
                budget,
            ),
            self._interval_results(
                intervals.rows,
                intervals.rows.new,
                intervals.first_affected.new - intervals.start.new,
                intervals.last_affected.new - intervals.start.new,
                totals[1],
                budget,
            ),
        )

    @staticmethod
    def _difference(old: Int64Array, new: Int64Array) -> ZSet:
        """Return the rows of ``new``, each with weight 1, minus those of ``old``."""
        weights = np.repeat(np.array([-1, 1], np.int64), [old.shape[1], new.shape[1]])
        return consolidated_rows(np.concatenate((old, new), axis=1), weights)

    def _interval_results(
        self,
        rows: RangeRows,
        weights: Int64Array,
        first: Int64Array,
        last: Int64Array,
        totals: Totals | None,
        budget: Budget,
    ) -> Int64Array:
        """Return the affected rows of intervals with their results, one row per unit of weight.

        The other rows of an interval are in it because affected rows read them.

        Args:
            rows: The rows of the intervals.
            weights: The weight of each row, without or with the step.
            first: For each interval, the number of its rows before the first affected row.
            last: For each interval, the number of its rows up to the last affected row.
            totals: The totals over the rows before each interval, if calls need them.
            budget: The limits of the step.
        """
        index = self._order.sort_positions(rows.ranges, rows.rows, by_order_only=True)
        index = np.repeat(index, weights[index])
        interval = rows.ranges[index]
        codes = self._order.to_input(rows.rows[:, index])
        begins: BoolArray = np.ones(len(index), np.bool)
        begins[1:] = interval[1:] != interval[:-1]
        if totals is not None:
            totals = totals.take(interval[np.flatnonzero(begins)])
        index_in_interval = np.arange(len(index)) - np.searchsorted(interval, interval, side="left")
        is_affected = (index_in_interval >= first[interval]) & (index_in_interval < last[interval])
        results = self._functions.results(codes, begins, totals, budget, wanted=is_affected)
        return np.concatenate((codes, results))[:, is_affected]

    def _results(
        self,
        group_indices: Int64Array,
        rows: Int64Array,
        weights: Int64Array,
        budget: Budget | None,
    ) -> Int64Array:
        """Return the rows with their results, a row of weight w as w rows.

        Args:
            group_indices: The number of each row's partition.
            rows: Rows of whole partitions in the layout of the trace.
            weights: Their weights.
            budget: The limits of the step; None for no limits.
        """
        index = self._order.sort_positions(group_indices, rows, by_order_only=True)
        index = np.repeat(index, np.maximum(weights[index], 0))
        group_indices = group_indices[index]
        codes = self._order.to_input(rows[:, index])
        begins: BoolArray = np.concatenate(
            (np.ones(min(len(group_indices), 1), np.bool), group_indices[1:] != group_indices[:-1])
        )
        results = self._functions.results(codes, begins, None, budget)
        return np.concatenate((codes, results))
