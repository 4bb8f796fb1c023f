"""Session bound: each row with the start of its session, or with the last time of it.

::

    start(Z)[row, s] = Z[row],  s = the least time of the session of the row
    start^Δ(d)       = start(I(d)) - start(z⁻¹(I(d)))       for the sessions around rows of d only

An example stream with a gap of 5, of rows (time):

    delta     {1: +1, 9: +1}                {5: +1}
    output    {(1, 1): +1, (9, 9): +1}      {(5, 1): +1, (9, 9): -1, (9, 1): +1}

The row at 5 closes the gap, so the session of 9 now starts at 1.

A time is a start if the time before it is more than ``gap`` earlier. So a step looks at the changed
times and at the time after each. `latest_marks` then finds the rows whose start changes.

The last time is the start of the session when time runs backwards.

State: the rows; the times of each key, if rows have other columns as well; the starts.

Cost: O(log N) per changed time and run, and O(1) per row whose start changes. A row that is added
at the end of a session, or between two of its rows, changes no other row. A row that closes or
opens a gap changes the rows of the session after the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circuits.plan.time_windows import SessionBound
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.time.latest_marks import MarkedRows, sum_by_prefix
from circuits.runtime.trace_limits import first_value, limited_delta, order_beginning_with
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.nearest import NearestRows
from dbsp_wcoj.storage.range_scan import count_range
from dbsp_wcoj.storage.trace import Staged, StagedGroup, TraceStep
from dbsp_wcoj.zset import MAX_INT64, Int64Array, consolidated_rows

__all__ = ["SessionBoundOperator"]


class SessionBoundOperator:
    """Appends the start of its session to each row.

    Args:
        plan: The node; `circuits.plan.time_windows.SessionBound` defines the result.
        codecs: Encode values as int64 codes.

    Attributes:
        time: The column of the input with the time.
        is_reversed: True for the last times of sessions.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Scan
    >>> plan = SessionBound(Scan("r", (Field("t", pa.int64()),)), keys=(), time=0, gap=5)
    >>> SessionBoundOperator(plan, Codecs()).evaluate([ZSet.from_rows([(1,), (5,), (11,)])])
    ZSet({(1, 1): 1, (5, 1): 1, (11, 11): 1})
    """

    def __init__(self, plan: SessionBound, codecs: Codecs) -> None:
        columns = [codecs.codec(field.type) for field in plan.input.fields]
        self.time, self.is_reversed = plan.time, plan.last
        self._gap = plan.gap
        self._rows = MarkedRows(columns, plan.keys, plan.time, sign=-1 if plan.last else 1)
        self._width = self._rows.width
        self.arity = self._rows.arity + 1
        has_other_columns = self._rows.rows.arity > self._width
        self._times = Trace(self._width) if has_other_columns else self._rows.rows
        self.traces: tuple[Trace, ...] = (self._rows.rows, self._rows.marks)
        self.coded_columns: tuple[Mapping[int, Codec], ...] = (
            self._rows.coded_rows,
            self._rows.coded_marks,
        )
        if has_other_columns:
            self.traces += (self._times,)
            self.coded_columns += (self._rows.coded_marks,)

    @property
    def rows_read(self) -> int:
        """The number of rows that all steps have read from the state."""
        return self._rows.rows_read

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Find the sessions of a whole Z-set; sorts all of it."""
        stored = self._to_trace(inputs[0])
        rows = stored.row_array
        times = sum_by_prefix(stored, self._width).row_array
        time, key = times[-1], times[:-1]
        begins: BoolArray = np.ones(times.shape[1], np.bool_)
        begins[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
        begins[1:] |= self._is_after_gap(time[1:], time[:-1])
        starts = Trace(self._width)
        starts.update(ZSet(np.ascontiguousarray(times[:, begins]), np.ones(begins.sum(), np.int64)))
        nearest = NearestRows(starts).before(rows[: self._width], inclusive=True)
        marks = np.where(nearest.exists, nearest.values, NULL)
        return self._rows.append_marks(rows, marks, stored.weight_array)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Find the sessions around the rows of the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        stored = self._to_trace(deltas[0])
        if not len(stored):
            return ZSet.empty(self.arity), None
        rows_step = self._rows.rows.prepare(stored)
        staged: list[Staged] = [rows_step]
        times = sum_by_prefix(stored, self._width)
        times_step: TraceStep | None = rows_step
        old = self._times.weights_of(times)
        if self._times is not self._rows.rows:
            # The weights of the rows of a time may add up to zero.
            times_step = self._times.prepare(times) if len(times) else None
            if times_step is not None:
                staged.append(times_step)
        new = old + times.weight_array
        appears_or_disappears = np.flatnonzero((old != 0) != (new != 0))
        changed = times.row_array[:, appears_or_disappears]
        starts_step, starts = None, ZSet.empty(self._width)
        if changed.shape[1]:
            current = NearestRows(self._times, times_step)
            starts = self._change_of_starts(changed, new[appears_or_disappears] != 0, current)
            self._rows.rows_read += current.rows_read
            if len(starts):
                starts_step = self._rows.marks.prepare(starts)
                staged.append(starts_step)
        change = self._rows.compute_change(stored, rows_step, starts.row_array, starts_step)
        return change, StagedGroup(staged)

    def drop_closed_sessions(
        self, steps: dict[int, TraceStep], previous_limit: int, limit: int, oldest: int
    ) -> int | None:
        """Drop the sessions that end before a limit, and the older rows of all others.

        The start of a session is dropped with its last time. Rows of one time whose weights add up
        to 0, as after the deletion of a row that does not exist, do not count as a time. If their
        session is closed before they are dropped, they may get NULL instead of its start.

        Args:
            steps: The staged steps of the traces, by the ``id`` of the trace; changed in place.
            previous_limit: The limit of the step before.
            limit: A later row cannot be in the session of a time before this one.
            oldest: No open session starts before this time.

        Returns:
            The start of the oldest open session. None if none starts before ``limit`` plus the gap,
            the frontier of the times.
        """
        times, rows, marks = self._times, self._rows.rows, self._rows.marks
        time_column = self._width - 1
        times_step, marks_step = steps.get(id(times)), steps.get(id(marks))
        delta = _delta_of(times, times_step)
        change = limited_delta(times, time_column, delta, previous_limit, limit)
        marks_delta = _delta_of(marks, marks_step)
        if change is not delta:
            dropped = (delta - change).row_array
            next_times = NearestRows(times, times_step).after(dropped)
            is_last = ~next_times.exists | self._is_after_gap(next_times.values, dropped[-1])
            ends = np.ascontiguousarray(dropped[:, is_last])
            starts = NearestRows(marks, marks_step).before(ends, inclusive=True)
            closed_starts = ends[:, starts.exists]
            closed_starts[-1] = starts.values[starts.exists]
            marks_delta = marks_delta - consolidated_rows(
                closed_starts, np.ones(closed_starts.shape[1], np.int64)
            )
            _stage(steps, times, change)
            _stage(steps, marks, marks_delta)
        if rows is not times:
            delta = _delta_of(rows, steps.get(id(rows)))
            change = limited_delta(rows, time_column, delta, previous_limit, limit)
            if change is not delta:
                _stage(steps, rows, change)
        return first_value(marks, time_column, marks_delta, oldest, limit + self._gap)

    def count_rows(self, low: int, limit: int) -> int:
        """Return the number of rows with a time from ``low`` on, before a limit; O(runs log N)."""
        rows, time = self._rows.rows, self._width - 1
        return count_range(rows, order_beginning_with(rows, time), low, limit - 1)

    def _to_trace(self, zset: ZSet) -> ZSet:
        valid = zset.row_array[self.time] != NULL
        if not valid.all():
            zset = ZSet(np.ascontiguousarray(zset.row_array[:, valid]), zset.weight_array[valid])
        return self._rows.to_stored_rows(zset)

    def _change_of_starts(
        self, changed: Int64Array, present: BoolArray, current: NearestRows
    ) -> ZSet:
        """Return the starts that appear and disappear.

        Args:
            changed: The times that appear or disappear.
            present: The times that are present after the step.
            current: The times after the step.
        """
        following = current.after(changed)
        next_times = changed[:, following.exists]
        next_times[-1] = following.values[following.exists]
        # The changed times and the times after them may have become starts, or no starts. A time
        # that disappears has weight 1, because it is the next time of no other; all others have a
        # weight of 2 or more.
        candidates = consolidated_rows(
            np.concatenate((changed, next_times), axis=1),
            np.concatenate((np.where(present, 2, 1), np.full(next_times.shape[1], 2))),
        )
        before = current.before(candidates.row_array)
        is_start = ~before.exists | self._is_after_gap(candidates.row_array[-1], before.values)
        is_start &= candidates.weight_array > 1
        was_start = self._rows.marks.weights_of(candidates) != 0
        differs = np.flatnonzero(is_start != was_start)
        return ZSet(
            np.ascontiguousarray(candidates.row_array[:, differs]),
            np.where(is_start[differs], 1, -1),
        )

    def _is_after_gap(self, times: Int64Array, before: Int64Array) -> BoolArray:
        """Return whether more than the gap is between two times of a key, without overflow."""
        result: BoolArray = np.minimum(before, MAX_INT64 - self._gap) + self._gap < times
        return result


def _delta_of(trace: Trace, step: TraceStep | None) -> ZSet:
    return ZSet.empty(trace.arity) if step is None else step.delta


def _stage(steps: dict[int, TraceStep], trace: Trace, delta: ZSet) -> None:
    """Replace the step of a trace by another delta."""
    steps.pop(id(trace), None)
    if len(delta):
        steps[id(trace)] = trace.prepare(delta)
