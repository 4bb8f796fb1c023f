"""Nodes of time: hopping windows, session windows, and the latest row at a time (as-of joins).

Each appends one column to the rows of its (left) input. Times are integers, dates or timestamps;
their distances are counted in codes, which are days or ticks of the unit of the column.

================ ===============================================================================
HoppingWindows   each row once per window that contains its time, with the start of the window
SessionBound     each row with the start of its session, or with its last time
LatestTime       each left row with the time of the latest right row of its key, at or before it
================ ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from circuits.plan.bounds import keep_bounds
from circuits.plan.columns import Field, Fields
from circuits.plan.frontier import ColumnBounds, OldestSession, Shifted
from circuits.plan.node import BinaryNode, PlanNode, UnaryNode
from dbsp_wcoj.cached_property import cached_property

__all__ = ["HoppingWindows", "LatestTime", "SessionBound", "TimeNode"]


class TimeNode(PlanNode):
    """A node that appends one column to the rows of its first input.

    Attributes:
        keys: The other columns of the first input that it reads.
        time: The column of the first input that has the time.
    """

    if TYPE_CHECKING:
        keys: tuple[int, ...] = ()
        time: int

    def read_columns(self) -> frozenset[int]:
        """The columns of the first input that decide the new column."""
        return frozenset((*self.keys, self.time))

    def over_columns(self, input: PlanNode, positions: Mapping[int, int]) -> Self:
        """The same node over some columns of its first input.

        Args:
            input: A plan with these columns of the first input.
            positions: The new position of each of these columns, by its old position.
        """
        over_input: Any = self.with_inputs([input, *self.inputs[1:]])
        changes: dict[str, Any] = {"time": positions[self.time]}
        if self.keys:
            changes["keys"] = tuple(positions[key] for key in self.keys)
        result: Self = replace(over_input, **changes)
        return result


@dataclass(frozen=True)
class HoppingWindows(UnaryNode, TimeNode):
    """Each row once per window [s, s + size) that its time is in; s = offset + a multiple of slide.

    Rows without a time are left out. A row with an infinite time is in the window that starts then.
    """

    time: int
    size: int
    slide: int
    offset: int = 0

    is_linear: ClassVar[bool] = True
    keys: ClassVar[tuple[int, ...]] = ()  # type: ignore[misc]

    @cached_property
    def fields(self) -> Fields:
        type = self.input.fields[self.time].type
        return (*self.input.fields, Field("window_start", type, nullable=False))

    def key(self) -> tuple[object, ...]:
        return self.time, self.size, self.slide, self.offset

    def label(self) -> str:
        name = self.input.fields[self.time].name
        return f"hopping windows of {name}: size {self.size}, slide {self.slide}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        (bounds,) = inputs
        if self.time not in bounds:
            return bounds
        # A window that contains a time t starts after t - size.
        field = self.input.fields[self.time]
        start = Shifted(bounds[self.time], 1 - self.size, field.type)
        return {**bounds, len(self.input.fields): start}

    def _may_be_null(self, column: int) -> bool:
        if column in (self.time, len(self.input.fields)):
            return False
        return self.input.is_nullable(column)


@dataclass(frozen=True)
class SessionBound(UnaryNode, TimeNode):
    """Each row with the least time of its session, or with the greatest one if ``last`` is True.

    A session of a key is a maximal sequence of times, each at most ``gap`` after the one before it.
    Rows without a time are left out.

    A time at which the weights of the rows add up to 0 is in no session. If it has rows whose
    weights cancel, they get the latest start of a session before this time, or NULL without one.
    """

    keys: tuple[int, ...]
    time: int
    gap: int
    last: bool = False

    @cached_property
    def fields(self) -> Fields:
        name = "window_last" if self.last else "window_start"
        return (*self.input.fields, Field(name, self.input.fields[self.time].type))

    def key(self) -> tuple[object, ...]:
        return self.keys, self.time, self.gap, self.last

    def label(self) -> str:
        fields = self.input.fields
        by = ", ".join(fields[column].name for column in self.keys)
        name = fields[self.time].name
        bound = "last times" if self.last else "starts"
        return f"{bound} of sessions of {name}: gap {self.gap}" + (f", by {by}" if by else "")

    @property
    def partitioning(self) -> tuple[int, ...]:
        return self.keys

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        (bounds,) = inputs
        key_bounds = keep_bounds(bounds, self.keys)
        if self.last or self.time not in bounds:
            return key_bounds  # a row that extends a session changes all rows of the session
        # A changed time changes the starts of rows after it, and no rows before it.
        time = bounds[self.time]
        start = OldestSession(time, position)
        return {**key_bounds, self.time: time, len(self.input.fields): start}

    def needed_bounds(self, inputs: Sequence[ColumnBounds]) -> Sequence[ColumnBounds]:
        (bounds,) = inputs
        if self.last or self.time not in bounds:
            return super().needed_bounds(inputs)
        # A later row can be in one session with the rows up to a gap before it.
        type = self.input.fields[self.time].type
        return [{self.time: Shifted(bounds[self.time], -self.gap, type)}]

    def _may_be_null(self, column: int) -> bool:
        if column == self.time:
            return False
        return column >= len(self.input.fields) or self.input.is_nullable(column)


@dataclass(frozen=True)
class LatestTime(BinaryNode, TimeNode):
    """Each left row with the latest time of a right row of its key, at or before its time.

    The columns of the right input are the keys, then the time; a right row is present if its weight
    is not 0. The new column is NULL if no right row of the key is at or before the time. NULLs in
    keys are equal; a right row without a time is left out.

    Attributes:
        keys: The columns of the left input that the keys of the right rows are compared with.
        time: The time of the left input.
        strict: True to leave out right rows at exactly the left time.
        forwards: True for the earliest time at or after the left time instead of the latest one at
            or before it.
    """

    keys: tuple[int, ...]
    time: int
    strict: bool = False
    forwards: bool = False

    @cached_property
    def fields(self) -> Fields:
        return (*self.left.fields, Field("latest_time", self.right.fields[-1].type))

    def key(self) -> tuple[object, ...]:
        return self.keys, self.time, self.strict, self.forwards

    def label(self) -> str:
        fields = self.left.fields
        by = ", ".join(fields[column].name for column in self.keys)
        extreme, side = ("earliest", "after") if self.forwards else ("latest", "before")
        bound = side if self.strict else f"at or {side}"
        return f"{extreme} time {bound} {fields[self.time].name}" + (f", by {by}" if by else "")

    def _may_be_null(self, column: int) -> bool:
        return column >= len(self.left.fields) or self.left.is_nullable(column)
