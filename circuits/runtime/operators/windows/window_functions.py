"""Values of window functions over the rows of whole partitions, in order.

The cost of a function over n rows does not depend on the size of the frames, except in the last
line:

=================================== =============== ================================================
ranks, lag, lead                    O(n)            arithmetic on positions
first_value, last_value, nth_value  O(n)            the row at a position of the frame
count, sum, avg                     O(n * digits)   differences of prefix sums of exact digits
min, max                            O(n log n)      a sparse table: ranges of 2**k rows
other aggregates                    O(frame rows)   the aggregate of each distinct frame
=================================== =============== ================================================

Sparse table: Bender, Farach-Colton. The LCA Problem Revisited. LATIN 2000, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.plan.columns import AggregateCall
from circuits.plan.nodes import Aggregate, Field, Values
from circuits.plan.window import FrameMode, Window, WindowCall
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.aggregates.exact_sum import Digits, ExactSum
from circuits.runtime.operators.aggregates.sum_encoder import SumEncoder
from circuits.runtime.operators.sort_columns import OrderedColumn
from circuits.runtime.operators.windows.window_frames import (
    FrameRanges,
    IndexRange,
    Partitions,
    RangeOrder,
    RowBounds,
    frame_ranges,
)
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import Budget, ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.values.bitcast import codes_of, values_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["Totals", "WindowFunctions", "reads_first_row"]

_INT64: Final = pa.int64()
_NO_ROW: Final = -1
# Greater than every number of rows; a position plus it is an int64.
_MAX_DISTANCE: Final = 2**62


@dataclass(frozen=True)
class Totals:
    """Totals over the leading rows of each partition, in place of the rows.

    If only the end of a partition changes, the functions receive only the rows from the change on.
    The leading rows are those before. Each array has an entry per partition.

    Attributes:
        rows: The number of leading rows.
        counts: By column, the number of leading rows in which it is not NULL.
        sums: By column and position of a digit, the amount of this digit in the sum of the column
            over the leading rows (`circuits.runtime.operators.aggregates.exact_sum.Digits`).
        groups: The number of groups of equal rows among the leading rows.
        first_rows: The codes of the first leading row, shape ``(columns, partitions)``; any codes
            where there is none.
        extremes: By function (min or max) and column, the code of the result over the leading rows.
    """

    rows: Int64Array
    counts: dict[int, Int64Array] = field(default_factory=dict)
    sums: dict[int, dict[int, Int64Array]] = field(default_factory=dict)
    groups: Int64Array | None = None
    first_rows: Int64Array | None = None
    extremes: Mapping[tuple[str, int], Int64Array] = field(default_factory=dict)

    def take(self, partitions: Int64Array) -> Totals:
        """The totals of some of the partitions."""
        return Totals(
            self.rows[partitions],
            {column: counts[partitions] for column, counts in self.counts.items()},
            {
                column: {digit: amounts[partitions] for digit, amounts in digits.items()}
                for column, digits in self.sums.items()
            },
            None if self.groups is None else self.groups[partitions],
            None if self.first_rows is None else self.first_rows[:, partitions],
            {call: codes[partitions] for call, codes in self.extremes.items()},
        )


@dataclass(frozen=True)
class _Rows:
    """Ordered rows of partitions: their codes, shape ``(columns, n)``, and where they begin."""

    codes: Int64Array
    partitions: Partitions
    range_order: RangeOrder | None
    totals: Totals | None = None
    budget: Budget | None = None
    wanted: BoolArray | None = None

    @cached_property
    def _prefix_counts(self) -> dict[int, Int64Array]:
        """The results of `prefix_counts` so far, by column."""
        return {}

    def prefix_counts(self, column: int) -> Int64Array:
        """The number of values of a column that are not NULL: before each row, then in all rows."""
        counts = self._prefix_counts.get(column)
        if counts is None:
            present = self.codes[column] != NULL
            counts = self._prefix_counts[column] = np.concatenate(([0], np.cumsum(present)))
        return counts


class WindowFunctions:
    """The calls of one `Window` node.

    Args:
        plan: The node.
        codecs: Encode values as int64 codes.
    """

    def __init__(self, plan: Window, codecs: Codecs) -> None:
        self._plan = plan
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in plan.input.fields]
        self._calls = [self._compile(call) for call in plan.calls]

    def results(
        self,
        codes: Int64Array,
        partition_begins: BoolArray,
        totals: Totals | None = None,
        budget: Budget | None = None,
        *,
        wanted: BoolArray | None = None,
    ) -> Int64Array:
        """Return the codes of each call's results, shape ``(calls, n)``.

        Args:
            codes: The rows of partitions, in order; shape ``(columns, n)``. With ``totals``,
                without the leading rows.
            partition_begins: A mask of the first of these rows of each partition.
            totals: Totals over the leading rows; None if the partitions are whole.
            budget: The limits of the step; None for no limits.
            wanted: A mask of the rows whose results are wanted; None for all rows. The results of
                other rows are arbitrary codes, and cause no error: the rows may lack a part of
                their frames, and so have a sum that does not fit though the whole sum does.

        Raises:
            EvaluationError: A sum does not fit the type of the result.
            LimitError: The rows of all frames exceed a limit of the step.
        """
        n = codes.shape[1]
        if not n:
            return np.empty((len(self._calls), 0), np.int64)
        group_begins = partition_begins.copy()
        for order in self._plan.order:
            column = codes[order.column]
            group_begins[1:] |= column[1:] != column[:-1]
        partitions = Partitions(partition_begins, group_begins)
        rows = _Rows(codes, partitions, self._range_order(codes), totals, budget, wanted)
        return np.stack([call(rows) for call in self._calls])

    def _range_order(self, codes: Int64Array) -> RangeOrder | None:
        frames = [call.frame for call in self._plan.calls if call.frame.mode == "range"]
        # A bound that is None (the partition) or 0 (the group of equal rows) needs no values.
        if not any(frame.has_offset for frame in frames):
            return None
        return self._range_values(codes[self._plan.order[0].column])

    def _range_values(self, column: Int64Array) -> RangeOrder:
        """Return the values of a column of the type of the order, ascending with the rows."""
        (order,) = self._plan.order
        codec = self._columns[order.column]
        present = column != NULL
        # The type of the values, also of a dictionary-encoded column.
        value_type = codec.type.value_type if hasattr(codec.type, "value_type") else codec.type
        values: np.ndarray = np.where(present, column, 0)
        if str(value_type) in ("float", "double", "halffloat"):
            values = values_of(values, np.dtype(f"f{value_type.bit_width // 8}"))
        return RangeOrder(
            -values if order.descending else values, present, descending=order.descending
        )

    def _compile(self, call: WindowCall) -> Callable[[_Rows], Int64Array]:
        """Return the function that computes the results of a call."""
        function = call.function
        if function in _POSITIONS:
            compute = _POSITIONS[function]
            return lambda rows: compute(call, rows)
        if function in ("lag", "lead"):
            return lambda rows: self._lag(call, rows)
        if function in ("first_value", "last_value", "nth_value"):
            return lambda rows: _value_at(call, rows, self._frames(call, rows))
        if call.distinct or function not in ("count", "sum", "avg", "min", "max"):
            return self._compile_aggregate(call)
        if function == "count":
            return lambda rows: _count(call, rows, self._frames(call, rows))
        if function in ("min", "max"):
            return self._compile_extreme(call)
        return self._compile_sum(call)

    def _frames(self, call: WindowCall, rows: _Rows) -> FrameRanges:
        frame = call.frame
        bounds = [
            None if column is None else self._bounds(rows.codes[column], frame.mode)
            for column in (frame.start_column, frame.end_column)
        ]
        return frame_ranges(frame, rows.partitions, rows.range_order, *bounds)

    def _bounds(self, column: Int64Array, mode: FrameMode) -> RowBounds:
        if mode != "range":
            return RowBounds(column, column != NULL)
        values = self._range_values(column)
        return RowBounds(values.values, values.present)

    def _lag(self, call: WindowCall, rows: _Rows) -> Int64Array:
        """The value ``number`` rows before each row (lead: after it).

        If the partition has no such row, it is the default, or NULL without a default.
        """
        value = rows.codes[call.arguments[0]]
        numbers, has_number = _read_numbers(call, rows)
        distance = numbers if call.function == "lag" else -numbers
        partitions = rows.partitions
        if call.ignore_nulls:
            source_row = _nth_present(rows, call.arguments[0], distance)
        else:
            source_row = partitions.row - distance
            inside = (source_row >= partitions.start) & (source_row < partitions.stop)
            source_row = np.where(inside, source_row, _NO_ROW)
        default = rows.codes[call.arguments[1]] if len(call.arguments) > 1 else np.int64(NULL)
        results = np.where(source_row == _NO_ROW, default, value[source_row])
        return np.where(has_number, results, np.int64(NULL))

    def _compile_extreme(self, call: WindowCall) -> Callable[[_Rows], Int64Array]:
        column = call.arguments[0]
        ordered_column = OrderedColumn(
            column, self._columns[column], descending=call.function == "max"
        )

        def compute(rows: _Rows) -> Int64Array:
            present = np.flatnonzero(rows.codes[column] != NULL)
            # The values of the rows, then the extreme of the leading rows of each partition.
            codes = rows.codes[column, present]
            leading_codes = None
            if rows.totals is not None and call.frame.start is None:
                leading_codes = rows.totals.extremes.get((call.function, column))
            if leading_codes is not None:
                codes = np.concatenate((codes, leading_codes))
            ranks = ordered_column.ranks(codes)
            counts = rows.prefix_counts(column)
            # For each row, the position in ``codes`` of the best value of its frame so far.
            best = np.full(len(rows.partitions), _NO_ROW)
            if leading_codes is not None:
                index = len(present) + rows.partitions.partition_index
                best = np.where(codes[index] == NULL, _NO_ROW, index)
            for index_range in self._frames(call, rows):
                least = _position_of_least(
                    ranks[: len(present)], counts[index_range.start], counts[index_range.stop]
                )
                better = (least != _NO_ROW) & (
                    (best == _NO_ROW) | (_take(ranks, least) < _take(ranks, best))
                )
                best[better] = least[better]
            return np.where(best == _NO_ROW, np.int64(NULL), _take(codes, best))

        return compute

    def _compile_sum(self, call: WindowCall) -> Callable[[_Rows], Int64Array]:
        column = call.arguments[0]
        exact = ExactSum(self._columns[column])
        aggregate = AggregateCall(call.function, column, call.type, call.name)
        encoder = SumEncoder(aggregate, exact, self._codecs.codec(call.type))

        def compute(rows: _Rows) -> Int64Array:
            n = len(rows.partitions)
            present = np.flatnonzero(rows.codes[column] != NULL)
            digits = exact.split(rows.codes[column, present], np.ones(len(present), np.int64))
            frames = self._frames(call, rows)
            parts: list[Digits] = []
            zero = np.zeros(n, np.int64)
            leading_sums = {}
            if rows.totals is not None and call.frame.start is None:
                leading_sums = rows.totals.sums[column]
            for position in sorted({*digits.positions.tolist(), *leading_sums}):
                is_at_position = np.flatnonzero(digits.positions == position)
                value_rows = present[digits.sum_indices[is_at_position]]
                amounts = np.zeros(n + 1, np.int64)
                np.add.at(amounts, value_rows + 1, digits.amounts[is_at_position])
                # Prefix sums may wrap around; their differences are right.
                sums = np.cumsum(amounts)
                total = zero.copy()
                for index_range in frames:
                    total += sums[index_range.stop] - sums[index_range.start]
                total += leading_sums.get(position, zero)[rows.partitions.partition_index]
                nonzero = np.flatnonzero(total)
                parts.append(Digits(nonzero, np.full(len(nonzero), position), total[nonzero]))
            counts = _count(call, rows, frames)
            encoded = counts != 0
            if rows.wanted is not None:
                encoded &= rows.wanted
            return encoder.codes(_sorted_digits(parts), counts, encoded)

        return compute

    def _compile_aggregate(self, call: WindowCall) -> Callable[[_Rows], Int64Array]:
        """Return the function of any aggregate: it groups rows by the number of their frame."""
        fields = (Field("frame", _INT64, nullable=False), *self._plan.input.fields)
        arguments = [column + 1 for column in call.arguments]
        aggregate = AggregateCall(
            call.function,
            arguments[0] if arguments else None,
            call.type,
            call.name,
            call.distinct,
            tuple(arguments[1:]),
            tuple(replace(part, column=part.column + 1) for part in call.within),
            call.options,
        )
        operator = AggregateOperator(
            Aggregate(Values(fields, ()), (0,), (aggregate,)), self._codecs
        )
        empty = 0 if call.function == "count" else NULL

        def compute(rows: _Rows) -> Int64Array:
            frames = self._frames(call, rows)
            # The start and the stop of each index range, one below the other; a column per frame.
            bounds = np.stack([bound for index_range in frames for bound in index_range])
            if rows.wanted is not None:
                bounds[:, ~rows.wanted] = 0  # an empty frame
            bounds, frame_of_row = np.unique(bounds, axis=1, return_inverse=True)
            n = bounds.shape[1]
            if rows.budget is not None:
                frame_rows = np.maximum(bounds[1::2] - bounds[::2], 0).sum(dtype=np.float64)
                rows.budget.add_bytes(int(frame_rows) * (len(fields) + 1) * 8)
            # The number of a frame and a row of the frame, for all rows of all frames.
            pairs = [_flatten(*bounds[i : i + 2]) for i in range(0, len(bounds), 2)]
            frame, row = (np.concatenate(column) for column in zip(*pairs, strict=True))
            columns = [frame, *rows.codes[:, row]]
            groups = operator.evaluate([ZSet.from_columns(columns)], rows.budget)
            results = np.full(n, empty)
            results[groups.row_array[0]] = groups.row_array[1]
            return results[frame_of_row.reshape(-1)]

        return compute


def _row_number(call: WindowCall, rows: _Rows) -> Int64Array:
    return _position(rows, rows.partitions.row)


def _rank(call: WindowCall, rows: _Rows) -> Int64Array:
    return _position(rows, rows.partitions.group_start)


def _position(rows: _Rows, row: Int64Array) -> Int64Array:
    """The position of rows in their partitions, from 1."""
    position = row - rows.partitions.start + 1
    if rows.totals is not None:
        position += rows.totals.rows[rows.partitions.partition_index]
    return position


def _percent_rank(call: WindowCall, rows: _Rows) -> Int64Array:
    partitions = rows.partitions
    other_rows = partitions.stop - partitions.start - 1
    return codes_of((_rank(call, rows) - 1) / np.maximum(other_rows, 1))


def _cume_dist(call: WindowCall, rows: _Rows) -> Int64Array:
    partitions = rows.partitions
    before = partitions.group_stop - partitions.start
    return codes_of(before / (partitions.stop - partitions.start))


def _dense_rank(call: WindowCall, rows: _Rows) -> Int64Array:
    partitions = rows.partitions
    rank = partitions.group_index - partitions.group_index[partitions.start] + 1
    if rows.totals is not None and rows.totals.groups is not None:
        rank += rows.totals.groups[partitions.partition_index]
    return rank


def _ntile(call: WindowCall, rows: _Rows) -> Int64Array:
    """Buckets of equal size, the first ones one row larger; NULL for a row without a number."""
    numbers, has_number = _read_numbers(call, rows)
    partitions = rows.partitions
    size_of_partition = partitions.stop - partitions.start
    position = partitions.row - partitions.start
    size, larger = np.divmod(size_of_partition, np.where(has_number, numbers, 1))
    in_larger = larger * (size + 1)
    bucket: Int64Array = np.where(
        position < in_larger,
        position // (size + 1),
        larger + (position - in_larger) // np.maximum(size, 1),
    )
    return np.where(has_number, bucket + 1, np.int64(NULL))


# Functions of the positions of rows.
_POSITIONS: Final[dict[str, Callable[[WindowCall, _Rows], Int64Array]]] = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
}


def _read_numbers(call: WindowCall, rows: _Rows) -> tuple[Int64Array, BoolArray]:
    """Return the number of each row (`WindowCall.number`), and a mask of the rows that have one.

    Numbers are at most `_MAX_DISTANCE` from zero, so sums of a number and a position are int64.
    """
    if call.number_column is None:
        number = max(-_MAX_DISTANCE, min(call.number, _MAX_DISTANCE))
        return np.full(len(rows.partitions), number), np.ones(len(rows.partitions), np.bool)
    column = rows.codes[call.number_column]
    return np.clip(column, -_MAX_DISTANCE, _MAX_DISTANCE), column != NULL


def _count(call: WindowCall, rows: _Rows, frames: FrameRanges) -> Int64Array:
    """The number of rows of each frame, or of its values that are not NULL."""
    total = np.zeros(len(rows.partitions), np.int64)
    for index_range in frames:
        if call.arguments:
            counts = rows.prefix_counts(call.arguments[0])
            total += counts[index_range.stop] - counts[index_range.start]
        else:
            total += index_range.stop - index_range.start
    if rows.totals is not None and call.frame.start is None:
        before = rows.totals.counts[call.arguments[0]] if call.arguments else rows.totals.rows
        total += before[rows.partitions.partition_index]
    return total


def _value_at(call: WindowCall, rows: _Rows, frames: FrameRanges) -> Int64Array:
    """The value of the first, the last or the n-th row of each frame; NULL if there is none."""
    column = call.arguments[0]
    if call.ignore_nulls:
        counts = rows.prefix_counts(column)
        present = np.flatnonzero(rows.codes[column] != NULL)
        codes = rows.codes[column, present]
        frames = [
            IndexRange(counts[index_range.start], counts[index_range.stop])
            for index_range in frames
        ]
    else:
        codes = rows.codes[column]
    selected = np.full(len(rows.partitions), _NO_ROW)
    if call.function == "last_value":
        for index_range in frames:
            selected = np.where(
                index_range.stop > index_range.start, index_range.stop - 1, selected
            )
    else:
        remaining = np.zeros(len(selected), np.int64)
        if call.function == "nth_value":
            numbers, has_number = _read_numbers(call, rows)
            # A row without a number, or with one below 1, selects no row: -1 is not in any frame.
            remaining = np.where(has_number & (numbers > 0), numbers - 1, -1)
        for index_range in frames:
            size = index_range.stop - index_range.start
            here = (selected == _NO_ROW) & (remaining >= 0) & (remaining < size)
            selected = np.where(here, index_range.start + remaining, selected)
            remaining = remaining - size
    results = np.where(selected == _NO_ROW, np.int64(NULL), _take(codes, selected))
    if reads_first_row(call) and rows.totals is not None and rows.totals.first_rows is not None:
        partition = rows.partitions.partition_index
        first = rows.totals.first_rows[column, partition]
        results = np.where(rows.totals.rows[partition] > 0, first, results)
    return results


def reads_first_row(call: WindowCall) -> bool:
    """Return True if a call returns the value of the first row of its partition."""
    is_first = call.function == "first_value" or (
        call.function == "nth_value" and call.number == 1 and call.number_column is None
    )
    frame = call.frame
    return is_first and frame.start is None and frame.exclude == "none" and not call.ignore_nulls


def _nth_present(rows: _Rows, column: int, distance: Int64Array) -> Int64Array:
    """The row with the n-th value before each row, skipping NULLs; n is its distance.

    A negative distance finds a row after it, and 0 the row itself, even if its value is NULL.
    """
    counts = rows.prefix_counts(column)
    present = np.flatnonzero(rows.codes[column] != NULL)
    partitions = rows.partitions
    index = np.where(distance > 0, counts[:-1] - distance, counts[1:] - distance - 1)
    inside = (index >= counts[partitions.start]) & (index < counts[partitions.stop])
    other_row = np.where(inside, _take(present, np.where(inside, index, _NO_ROW)), _NO_ROW)
    return np.where(distance == 0, partitions.row, other_row)


def _position_of_least(ranks: Int64Array, start: Int64Array, stop: Int64Array) -> Int64Array:
    """The position of the least rank from ``start`` to before ``stop``; -1 for an empty range.

    >>> _position_of_least(np.array([5, 3, 4]), np.array([0, 2, 1]), np.array([3, 3, 1])).tolist()
    [1, 2, -1]
    """
    result = np.full(len(start), _NO_ROW)
    length = stop - start
    # Two ranges of 2**level positions, which may overlap, cover a range.
    level_of_range = np.full(len(start), -1)
    is_filled = length > 0
    level_of_range[is_filled] = np.frexp(length[is_filled].astype(np.float64))[1] - 1
    # For each position, that of the least rank among the 2**level positions from it on.
    best = np.arange(len(ranks), dtype=np.int64)
    for level in range(int(level_of_range.max(initial=-1)) + 1):
        if level:
            width = 1 << (level - 1)
            first, second = best[:-width], best[width:]
            best = np.where(ranks[second] < ranks[first], second, first)
        ranges = np.flatnonzero(level_of_range == level)
        first, second = best[start[ranges]], best[stop[ranges] - (1 << level)]
        result[ranges] = np.where(ranks[second] < ranks[first], second, first)
    return result


def _take(values: Int64Array, index: Int64Array) -> Int64Array:
    """Return the values at these positions; any value where the position is -1."""
    return values[index] if len(values) else np.zeros(len(index), np.int64)


def _flatten(start: Int64Array, stop: Int64Array) -> tuple[Int64Array, Int64Array]:
    """All positions in index ranges: for each the number of its range, and the position.

    >>> [column.tolist() for column in _flatten(np.array([5, 0]), np.array([7, 1]))]
    [[0, 0, 1], [5, 6, 0]]
    """
    length = stop - start
    number = np.repeat(np.arange(len(start)), length)
    first = np.repeat(start - (np.cumsum(length) - length), length)
    return number, first + np.arange(len(first))


def _sorted_digits(parts: Sequence[Digits]) -> Digits:
    """The digits of all parts, sorted by sum and digit position."""
    if not parts:
        return Digits(*np.empty((3, 0), np.int64))
    sum_indices, positions, amounts = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.lexsort((positions, sum_indices))
    return Digits(sum_indices[order], positions[order], amounts[order])
