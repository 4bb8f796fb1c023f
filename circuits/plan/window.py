"""Window: functions over the rows around each row (SQL's ``OVER``).

The node appends one column per call to the rows of its input. The rows of a partition are ordered;
the frame of a row is the part of its partition that a function reads::

    sum(x) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)

    k  t  x   frame        sum
    7  1  10  10            10
    7  2  20  10 20         30
    7  3  30  10 20 30      60
    7  4  40  20 30 40      90

A row of weight w counts as w equal rows. Rows of weight zero or below are ignored. Rows that are
equal in the order are ordered by their other columns, so the result is a function of the input: by
numbers and the first bytes of strings from left to right, then by the strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from circuits.plan.bounds import keep_bounds
from circuits.plan.columns import Field, Fields, Order, join_names
from circuits.plan.frontier import ColumnBounds
from circuits.plan.json_values import JSON_KEEPING_AGGREGATES
from circuits.plan.node import UnaryNode
from dbsp_wcoj.cached_property import cached_property

__all__ = [
    "RANKING",
    "WHOLE_PARTITION",
    "Frame",
    "FrameMode",
    "MonthShift",
    "Window",
    "WindowCall",
]

#: Functions of the position of a row in its partition; they read no argument and no frame.
RANKING: Final = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"}
)

FrameMode = Literal["rows", "range", "groups"]
Exclusion = Literal["none", "current row", "group", "ties"]


@dataclass(frozen=True)
class MonthShift:
    """A bound of a frame as an amount of time with months, which differ in length.

    Attributes:
        months: The months, negative before the current row.
        ticks: What is added after the months, as a difference of codes of the order column.
        ticks_per_day: The codes of a day: 1 for a date.
    """

    months: int
    ticks: int
    ticks_per_day: int

    @property
    def reach(self) -> int:
        """The greatest possible difference between a time and the shifted time, with its sign."""
        # No month has more than 31 days, and the last day of a month becomes that of a shorter one.
        days = abs(self.months) * 32
        sign = -1 if self.months < 0 else 1
        return sign * (days * self.ticks_per_day + abs(self.ticks))

    def key(self) -> tuple[object, ...]:
        """All parts."""
        return self.months, self.ticks, self.ticks_per_day

    def label(self) -> str:
        """The bound as SQL writes it.

        >>> MonthShift(-2, -3, 1).label()
        'interval 2 months 3 days preceding'
        """
        days = f" {abs(self.ticks) / self.ticks_per_day:g} days" if self.ticks else ""
        side = "preceding" if self.months < 0 else "following"
        return f"interval {abs(self.months)} months{days} {side}"


@dataclass(frozen=True)
class Frame:
    """The rows that a function reads, relative to the current row.

    Attributes:
        mode: The unit of the bounds: rows, values of the order column, or groups of equal rows.
        start: The first bound: negative before the current row, None for the partition's start.
            In ``range`` mode, 0 includes all rows equal to the current row in the order; other
            numbers are differences of the codes of the order column (of floats: of the values).
        end: The last bound, inclusive; None for the partition's end.
        exclude: The rows that are left out: the current row, its group of equal rows, or the
            other rows of this group (``ties``).
        start_shift: The exact first bound if it has months. ``start`` is then its reach.
        end_shift: The same for the last bound.
        start_column: The column of the input with the first bound of each row, if it is no
            constant: the signed number of rows or groups, in ``range`` mode the value of the order
            column at the bound. NULL is the current row. ``start`` is then None.
        end_column: The same for the last bound.
    """

    mode: FrameMode = "range"
    start: int | float | None = None
    end: int | float | None = 0
    exclude: Exclusion = "none"
    start_shift: MonthShift | None = None
    end_shift: MonthShift | None = None
    start_column: int | None = None
    end_column: int | None = None

    def key(self) -> tuple[object, ...]:
        """All parts."""
        parts: tuple[object, ...] = (self.mode, self.start, self.end, self.exclude)
        shifts = (self.start_shift, self.end_shift)
        bound_columns = (self.start_column, self.end_column)
        if shifts == bound_columns == (None, None):
            return parts
        parts += tuple(shift and shift.key() for shift in shifts)
        return parts if bound_columns == (None, None) else (*parts, *bound_columns)

    @property
    def has_offset(self) -> bool:
        """True if a bound lies at a distance from the current row."""
        return bool(self.start) or bool(self.end) or self.has_columns

    @property
    def has_columns(self) -> bool:
        """True if the rows have a column with a bound of their frames."""
        return self.start_column is not None or self.end_column is not None

    def label(self, fields: Fields = ()) -> str:
        """The frame as SQL writes it.

        Args:
            fields: The columns of the input, for a bound that is a column.

        >>> Frame("rows", -2, 0).label()
        'rows between 2 preceding and current row'
        """
        low = "unbounded preceding" if self.start is None else _label_bound(self.start)
        high = "unbounded following" if self.end is None else _label_bound(self.end)
        low = low if self.start_shift is None else self.start_shift.label()
        high = high if self.end_shift is None else self.end_shift.label()
        low = low if self.start_column is None else fields[self.start_column].name
        high = high if self.end_column is None else fields[self.end_column].name
        exclude = "" if self.exclude == "none" else f" exclude {self.exclude}"
        return f"{self.mode} between {low} and {high}{exclude}"


WHOLE_PARTITION: Final = Frame("rows", None, None)


@dataclass(frozen=True)
class WindowCall:
    """One function over a window.

    Attributes:
        function: A ranking function, ``lag``, ``lead``, ``first_value``, ``last_value``,
            ``nth_value``, or an aggregate function.
        arguments: Columns of the input: the value, and for lag and lead the default.
        type: The type of the result.
        name: The name of the result column.
        frame: The frame; ranking functions, lag and lead ignore it.
        number: The number of rows before (lag) or after (lead) the current row; negative for the
            other direction. n of nth_value; the number of buckets of ntile.
        number_column: The column of the input with this number for each row, if it is no constant;
            ``number`` is then 1. A row with NULL in this column has the result NULL, and so has
            nth_value for a number below 1.
        ignore_nulls: True if rows with a NULL value are skipped.
        distinct: True if an aggregate reads each value of the frame once.
        within: The order of the values of an aggregate that depends on one, such as string_agg.
        options: Constants of an aggregate (`circuits.plan.columns.AggregateCall`).
    """

    function: str
    arguments: tuple[int, ...]
    type: pa.DataType
    name: str
    frame: Frame = WHOLE_PARTITION
    number: int = 1
    ignore_nulls: bool = False
    distinct: bool = False
    within: tuple[Order, ...] = ()
    options: tuple[Any, ...] = ()
    number_column: int | None = None

    def key(self) -> tuple[object, ...]:
        """Everything but the name of the result."""
        key = (
            self.function,
            self.arguments,
            self.type,
            *self.frame.key(),
            self.number,
            self.ignore_nulls,
            self.distinct,
        )
        if self.number_column is not None:
            key += (("number_column", self.number_column),)
        if not (self.within or self.options):
            return key
        order = tuple((part.column, part.descending, part.nulls_first) for part in self.within)
        return *key, order, self.options

    def text(self, fields: Fields) -> str:
        """Return the call with the names of the columns, without its frame."""
        names = [fields[column].name for column in self.arguments]
        if self.function in ("lag", "lead", "nth_value", "ntile"):
            number = str(self.number)
            if self.number_column is not None:
                number = fields[self.number_column].name
            names.insert(min(1, len(names)), number)
        names += [repr(option) for option in self.options]
        distinct = "distinct " if self.distinct else ""
        nulls = " ignore nulls" if self.ignore_nulls else ""
        return f"{self.function}({distinct}{', '.join(names) or self._star}){nulls}"

    @property
    def _star(self) -> str:
        return "*" if self.function == "count" else ""

    def label(self, fields: Fields) -> str:
        """The call with the names of the columns.

        >>> call = WindowCall("sum", (0,), pa.int64(), "total", Frame("rows", -2, 0))
        >>> call.label((Field("price", pa.int64()),))
        'sum(price) rows between 2 preceding and current row'
        """
        has_frame = self.function not in RANKING | {"lag", "lead"}
        return f"{self.text(fields)} {self.frame.label(fields)}" if has_frame else self.text(fields)


@dataclass(frozen=True)
class Window(UnaryNode):
    """The columns of the input, then one column per call; all calls share partition and order."""

    partition: tuple[int, ...]
    order: tuple[Order, ...]
    calls: tuple[WindowCall, ...]

    @cached_property
    def fields(self) -> Fields:
        return self.input.fields + tuple(
            Field(
                call.name,
                call.type,
                nullable=not self._is_never_null(call),
                json_kind=self.input.fields[call.arguments[0]].json_kind
                if call.function in JSON_KEEPING_AGGREGATES
                else "",
            )
            for call in self.calls
        )

    def key(self) -> tuple[object, ...]:
        order = tuple((o.column, o.descending, o.nulls_first) for o in self.order)
        return self.partition, order, tuple(call.key() for call in self.calls)

    def label(self) -> str:
        fields = self.input.fields
        calls = ", ".join(call.label(fields) for call in self.calls)
        by = join_names([fields[column] for column in self.partition])
        order = ", ".join(part.label(fields) for part in self.order)
        parts = [f"partition by {by}" if by else "", f"order by {order}" if order else ""]
        return f"window {calls} over ({' '.join(filter(None, parts))})"

    @property
    def partitioning(self) -> tuple[int, ...]:
        return self.partition

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        (bounds,) = inputs
        result_bounds = dict(keep_bounds(bounds, self.partition))
        if self.order and all(map(_looks_back, self.calls)):
            # A row changes the results of rows after it, and of rows equal to it in the order.
            first = self.order[0]
            # A row without a value in the order is in front of all others with NULLS FIRST.
            has_null = first.nulls_first and self.input.is_nullable(first.column)
            if first.column in bounds and not first.descending and not has_null:
                result_bounds[first.column] = bounds[first.column]
        return result_bounds

    def _may_be_null(self, column: int) -> bool:
        width = len(self.input.fields)
        if column < width:
            return self.input.is_nullable(column)
        return not self._is_never_null(self.calls[column - width])

    @staticmethod
    def _is_never_null(call: WindowCall) -> bool:
        is_ranking = call.function in RANKING and call.number_column is None
        return is_ranking or call.function == "count"


def _looks_back(call: WindowCall) -> bool:
    """Return whether a call reads no row after the current one, except rows equal to it."""
    if call.function in ("row_number", "rank", "dense_rank"):
        return True
    if call.function in ("lag", "lead"):
        if call.number_column is not None:
            return False
        return call.number >= 0 if call.function == "lag" else call.number <= 0
    if call.function in RANKING:  # percent_rank, cume_dist and ntile read the partition's size
        return False
    return call.frame.end is not None and call.frame.end <= 0 and not call.frame.has_columns


def _label_bound(offset: int | float) -> str:
    if offset == 0:
        return "current row"
    return f"{abs(offset)} {'preceding' if offset < 0 else 'following'}"
