"""Frontiers: lower bounds of the times in all rows that later steps insert or delete.

An input with lateness has a watermark, which never decreases, and no later step inserts or deletes
a row before it. The same holds for every column that is computed from the event time by a function
that never decreases: the function of the watermark is its bound. A frontier says how such a bound
follows from the watermarks::

    WatermarkOf("clicks")                      the watermark of the input clicks
    FunctionOf(f, date_trunc('hour', #0))      the start of the hour that frontier f is in
    Shifted(f, 10, …)                          10 ticks after frontier f, as for a column ts + 10
    Least((f, g))                              the lesser of two frontiers, as for a union
    OldestSession(f, …)                        the start of the oldest session that is still open
    GivenBound("x")                            a value that the caller of the step gives
    NEVER                                      no later row at all

Values are codes (`circuits.types.codecs.codec`). A frontier says nothing about rows in which the
column is NULL, so they are kept.

Each plan node computes the frontiers of its columns from those of its inputs
(`circuits.plan.node.PlanNode.bounds_of_changes`), and which stored rows it still needs
(`circuits.plan.node.PlanNode.needed_bounds`). `circuits.runtime.state_bounds` drops all others.

Reference: LATENESS in Feldera's documentation of streaming SQL, and the monotonicity analysis of
its compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import pyarrow as pa
from pyarrow import types

from circuits.plan.expression_text import label
from circuits.plan.expressions import Column, Expression, substitute
from circuits.plan.monotone_functions import constant_shift

__all__ = [
    "NEVER",
    "ColumnBounds",
    "Frontier",
    "FrontierSource",
    "FunctionOf",
    "GivenBound",
    "GivenStateBound",
    "Least",
    "OldestSession",
    "Shifted",
    "WatermarkOf",
    "apply_function",
    "least",
    "shifted",
]

_MAX_CODE: Final = 2**63 - 1
_SECONDS_PER_UNIT: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class FrontierSource(Protocol):
    """The values that frontiers are computed from, at the end of a step."""

    def watermark(self, input: str) -> int | None:
        """Return the bound of the event times of an input; None if there is none yet."""
        ...

    def given(self, name: str) -> int | None:
        """Return a value that the caller of the step gives, by name; None if there is none yet."""
        ...

    def apply(self, function: Expression, code: int) -> int | None:
        """Apply a function to the value that ``code`` stands for; return the code of the result.

        None if the function has no value.
        """
        ...

    def has_found_sessions(self, node: int) -> bool:
        """Return whether the step has searched the open sessions of a node."""
        ...

    def oldest_session(self, node: int) -> int | None:
        """Return the start of the oldest open session of a node; None if no session is open."""
        ...


class Frontier(ABC):
    """A lower bound that never decreases. Frontiers are frozen dataclasses."""

    @abstractmethod
    def value(self, source: FrontierSource) -> int | None:
        """Return the bound as a code; None if there is none yet."""

    @abstractmethod
    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        """Return a value that is equal for two frontiers only if they are the same bound.

        Args:
            hash_of_node: Returns the structural hash of a node, by its position in the graph.
        """

    @abstractmethod
    def label(self) -> str:
        """Return the bound as a text for explain; it may be the same for several bounds."""


#: Bounds of the columns of a node, by position; a column that is not listed has none.
ColumnBounds = Mapping[int, Frontier]


@dataclass(frozen=True)
class WatermarkOf(Frontier):
    """The time before which no later step changes a row of an input.

    Attributes:
        input: The name of the input.
        expiry_text: The end of the label, if rows are kept for some time after the watermark has
            passed them: that time, such as " - 1 day, 0:00:00".
    """

    input: str
    expiry_text: str = ""

    def value(self, source: FrontierSource) -> int | None:
        return source.watermark(self.input)

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "watermark", self.input, self.expiry_text

    def label(self) -> str:
        return f"watermark of {self.input}{self.expiry_text}"


@dataclass(frozen=True)
class GivenBound(Frontier):
    """A bound whose value the caller of each step gives, by name.

    A circuit that has a part of the rows of a larger one, such as a cell, cannot compute the
    frontiers of the larger one.
    """

    name: str

    def value(self, source: FrontierSource) -> int | None:
        return source.given(self.name)

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "given", self.name

    def label(self) -> str:
        return self.name


@dataclass(frozen=True)
class GivenStateBound:
    """A bound of the state of a circuit whose value the caller of each step gives.

    Attributes:
        name: The name of the value. Two bounds with the same name have the same value.
        column: The column that is bounded, of the relation or of each trace of the operator.
        relation: The input whose rows, kept for joins, are bounded; empty for the state of all
            operators whose traces begin with the columns of a key, and of all sessions.
    """

    name: str
    column: int
    relation: str = ""


@dataclass(frozen=True)
class FunctionOf(Frontier):
    """A non-decreasing function of another frontier, which is its column 0."""

    base: Frontier
    function: Expression

    def value(self, source: FrontierSource) -> int | None:
        value = self.base.value(source)
        return None if value is None else source.apply(self.function, value)

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "function", self.base.key(hash_of_node), self.function

    def label(self) -> str:
        return label(self.function, [self.base.label()])


@dataclass(frozen=True)
class Shifted(Frontier):
    """Another frontier plus a number of ticks of its type."""

    base: Frontier
    ticks: int
    type: pa.DataType

    def value(self, source: FrontierSource) -> int | None:
        value = self.base.value(source)
        return None if value is None else max(-_MAX_CODE, min(value + self.ticks, _MAX_CODE))

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "shift", self.base.key(hash_of_node), self.ticks, self.type

    def label(self) -> str:
        sign = "-" if self.ticks < 0 else "+"
        return f"{self.base.label()} {sign} {_duration(abs(self.ticks), self.type)}"


@dataclass(frozen=True)
class Least(Frontier):
    """The least of several frontiers; None as long as one of them has no value."""

    parts: tuple[Frontier, ...]

    def value(self, source: FrontierSource) -> int | None:
        values = [part.value(source) for part in self.parts]
        known = [value for value in values if value is not None]
        return min(known) if len(known) == len(values) else None

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "least", frozenset(part.key(hash_of_node) for part in self.parts)

    def label(self) -> str:
        return f"least({', '.join(part.label() for part in self.parts)})"


@dataclass(frozen=True)
class OldestSession(Frontier):
    """The start of the oldest session that a later row can change.

    Attributes:
        time: The frontier of the times in the sessions.
        node: The position of the operator that finds the sessions.
    """

    time: Frontier
    node: int

    def value(self, source: FrontierSource) -> int | None:
        time = self.time.value(source)
        if time is None or not source.has_found_sessions(self.node):
            return None
        oldest = source.oldest_session(self.node)
        return time if oldest is None else min(time, oldest)

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "session", self.time.key(hash_of_node), hash_of_node(self.node)

    def label(self) -> str:
        return "start of the oldest open session"


@dataclass(frozen=True)
class _Never(Frontier):
    """The bound of the columns of a relation that never changes, such as VALUES."""

    def value(self, source: FrontierSource) -> int | None:
        return _MAX_CODE

    def key(self, hash_of_node: Callable[[int], str | None]) -> Hashable:
        return "never"

    def label(self) -> str:
        return "never"


NEVER: Final = _Never()


def least(frontiers: Iterable[Frontier]) -> Frontier:
    """Return the least of some frontiers, without repeating one.

    >>> least([WatermarkOf("a"), NEVER, WatermarkOf("b"), WatermarkOf("a")]).label()
    'least(watermark of a, watermark of b)'
    """
    parts: dict[Frontier, None] = {}
    for frontier in frontiers:
        for part in frontier.parts if isinstance(frontier, Least) else (frontier,):
            parts.setdefault(part)
    parts.pop(NEVER, None)
    if not parts:
        return NEVER
    return next(iter(parts)) if len(parts) == 1 else Least(tuple(parts))


def shifted(frontier: Frontier, ticks: int, type: pa.DataType) -> Frontier:
    """Return the frontier of ``column + ticks`` for a column with this frontier and type."""
    if frontier is NEVER:
        return frontier
    if isinstance(frontier, Shifted):
        return shifted(frontier.base, frontier.ticks + ticks, type)
    return Shifted(frontier, ticks, type) if ticks else frontier


def apply_function(frontier: Frontier, function: Expression) -> Frontier:
    """Return the frontier of a non-decreasing function (of column 0) of a bounded column."""
    if frontier is NEVER or isinstance(function, Column):
        return frontier
    shift = constant_shift(function)
    if shift is not None:
        return shifted(frontier, shift.number, function.type)
    if isinstance(frontier, FunctionOf):
        return FunctionOf(frontier.base, substitute(function, [frontier.function]))
    return FunctionOf(frontier, function)


def _duration(ticks: int, type: pa.DataType) -> str:
    if types.is_timestamp(type):
        return _as_text(timedelta(seconds=ticks * _SECONDS_PER_UNIT[type.unit]))
    return _as_text(timedelta(days=ticks)) if types.is_date32(type) else str(ticks)


def _as_text(duration: timedelta) -> str:
    return str(duration).removesuffix(", 0:00:00")
