"""InputOptions: how an input interprets its rows, and how long it keeps them.

Without options an input is a Z-set: rows with weights of any sign, kept without a limit. Options
declare how a stream of changes differs from that::

    InputOptions(keys=("nr",))                        rows are upserts: the last row of a key counts
    InputOptions(strict=True)                         a row that does not exist cannot be deleted
    InputOptions(retain=Retention("ts", "7 days"))    a row expires 7 days after its event time
    Retention("ts", "7 days", on_expiry="keep")       and its published results stay
    InputOptions(lateness=Lateness("ts", "5 minutes"))  a row that is 5 minutes late is rejected

Options can be combined. `circuits.inputs.upserts`, `circuits.inputs.strict_deletes` and
`circuits.inputs.retention` define and implement them. This module has the declarations, checked as
far as possible without the schema. They are values that can be compared, printed and pickled,
because the fingerprint of a state covers them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final, Literal, get_args

import pyarrow as pa
from pyarrow import types

from circuits.errors import InputOptionsError
from circuits.excerpt import excerpt
from dbsp_wcoj.arguments import check_type

__all__ = ["InputOptions", "Lateness", "OnExpiry", "Retention", "check_options"]

#: The effect on published results when a row that they derive from expires.
OnExpiry = Literal["retract", "keep"]

_MICROSECOND: Final = timedelta(microseconds=1)
_UNIT_DURATIONS: Final = {
    "ms": timedelta(milliseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "second": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "minute": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "hour": timedelta(hours=1),
    "d": timedelta(days=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
# Microseconds per unit of a time column.
_MICROSECONDS_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "day": 86_400_000_000}


@dataclass(frozen=True, init=False)
class _EventTimeSpan:
    """A column of event times, and a duration; it is an integer for a column of integers."""

    column: str
    duration: timedelta | int

    #: The name of the option, for messages.
    _option: ClassVar[str]

    @property
    def duration_text(self) -> str:
        """The duration as a text for messages."""
        return str(self.duration).removesuffix(", 0:00:00")

    def units(self, type: pa.DataType) -> int:
        """The duration in the units of a column of this type.

        Raises:
            InputOptionsError: The type is not a time, or its unit is too coarse for the duration.

        >>> [Retention("t", "7 days").units(type) for type in (pa.timestamp("ms"), pa.date32())]
        [604800000, 7]
        """
        if types.is_integer(type):
            if isinstance(self.duration, int):
                return self.duration
            raise InputOptionsError(
                f"{self._option} {self.column!r}: the duration {self.duration} does not fit a "
                f"column of type {type}, because its unit is unknown; give an integer"
            )
        if not (types.is_timestamp(type) or types.is_date(type)):
            raise InputOptionsError(
                f"{self._option} {self.column!r}: the column is of type {type}; it must contain "
                "timestamps, dates or integers"
            )
        if isinstance(self.duration, int):
            raise InputOptionsError(
                f"{self._option} {self.column!r}: the duration {self.duration} needs a unit for a "
                f"column of type {type}; give a text such as '{self.duration} seconds'"
            )
        microseconds = self.duration // _MICROSECOND
        unit = "day" if types.is_date32(type) else "ms" if types.is_date64(type) else type.unit
        if unit == "ns":
            return microseconds * 1000
        units, remainder = divmod(microseconds, _MICROSECONDS_PER_UNIT[unit])
        if remainder:
            raise InputOptionsError(
                f"{self._option} {self.column!r}: the duration {self.duration} must be a multiple "
                f"of 1 {unit}, the unit of {type}"
            )
        return units


@dataclass(frozen=True, init=False)
class Retention(_EventTimeSpan):
    """How long rows are kept, by a column with their event time.

    A row is kept until its event time is before the watermark: the greatest event time of all rows
    so far, less the duration. The watermark never decreases. So one row with a time far in the
    future (a wrong clock, or 9999-12-31 for "open") expires all earlier rows, and rows with a
    correct time are late from then on. Filter such rows before the input, or send them to the dead
    letters.

    ``on_expiry`` decides what happens to published results when a row that they are made of
    expires. "retract": they are deleted with it, so a view is always the query over the rows that
    are retained (a sliding window). "keep": the row leaves the state and its results stay, as with
    a watermark in Spark or a state TTL in Flink; only views whose results cannot change any more
    are accepted (`circuits.inputs.finality`).

    Args:
        column: The column of event times: a timestamp, a date or an integer.
        duration: A text such as "7 days" or "1 day 12 hours", or a timedelta; for a column of
            integers an integer.
        days: Days; these and the next three are added up.
        hours: Hours.
        minutes: Minutes.
        seconds: Seconds.
        on_expiry: "retract" or "keep"; "retract" when not given.

    Attributes:
        has_explicit_on_expiry: True if ``on_expiry`` was given; not compared.

    Raises:
        InputOptionsError: The duration is missing, negative or cannot be parsed; or ``on_expiry``
            has another value.

    >>> Retention("ts", "7 days") == Retention("ts", days=7)
    True
    >>> Retention("ts", 604800).duration
    604800
    >>> Retention("ts", 604800, on_expiry="keep")
    Retention(column='ts', duration=604800, on_expiry='keep')
    """

    on_expiry: OnExpiry = "retract"
    has_explicit_on_expiry: bool = field(default=True, compare=False)

    _option: ClassVar[str] = "retain"

    def __init__(
        self,
        column: str,
        duration: str | timedelta | int | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        on_expiry: OnExpiry | None = None,
    ) -> None:
        from_parts = _sum_durations(days, hours, minutes, seconds)
        parsed = _check_span("retain", "Retention", column, duration, from_parts)
        if on_expiry is not None and on_expiry not in get_args(OnExpiry):
            raise InputOptionsError(
                f"retain {column!r}: on_expiry={on_expiry!r} must be 'retract' (results are "
                "deleted with their rows) or 'keep' (published results stay)"
            )
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "duration", parsed)
        object.__setattr__(self, "on_expiry", on_expiry or "retract")
        object.__setattr__(self, "has_explicit_on_expiry", on_expiry is not None)

    def __repr__(self) -> str:
        # Fingerprints of states cover this text; the default is not part of it.
        on_expiry = f", on_expiry={self.on_expiry!r}" if self.keeps_results else ""
        return f"Retention(column={self.column!r}, duration={self.duration!r}{on_expiry})"

    def __str__(self) -> str:
        results = ", results are kept" if self.keeps_results else ""
        return f"{self.column} for {self.duration_text}{results}"

    @property
    def keeps_results(self) -> bool:
        """True if published results stay when the rows that they derive from expire."""
        return self.on_expiry == "keep"


@dataclass(frozen=True, init=False)
class Lateness(_EventTimeSpan):
    """How late a row may be, by a column with its event time.

    The watermark of the input is the greatest event time of all rows so far, less the duration, or
    the watermark that the source gives (Spark's own). It never decreases. A row is late if its
    event time is before the watermark at the start of the step; it is rejected. So no change after
    a step is before the watermark. Rows that are not late are kept without a limit, unless the
    input has a `Retention` too.

    Args:
        column: The column of event times: a timestamp, a date or an integer.
        duration: A text such as "5 minutes", or a timedelta; for a column of integers an integer.
            Zero accepts no row that is older than the newest of earlier steps.

    Raises:
        InputOptionsError: The duration is missing, negative or cannot be parsed.

    >>> Lateness("ts", "5 minutes")
    Lateness(column='ts', duration=datetime.timedelta(seconds=300))
    """

    _option: ClassVar[str] = "lateness"

    def __init__(self, column: str, duration: str | timedelta | int) -> None:
        parsed = _check_span("lateness", "Lateness", column, duration, timedelta())
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "duration", parsed)

    def __str__(self) -> str:
        return f"{self.column} by {self.duration_text}"


@dataclass(frozen=True)
class InputOptions:
    """The options of one input.

    Args:
        keys: Columns that identify a row. Rows are then upserts, or deletes by key where their
            weight is negative.
        strict: Reject the deletion of a row that does not exist, instead of keeping a negative
            weight.
        retain: How long rows are kept; None keeps them without a limit.
        sequence: With keys, the column that orders the changes of a key within a step: the greatest
            value is the last change. It is a column of the schema, or an extra column of the
            tables. None means an extra column ``sequence``, unless the schema has a column of that
            name. Between steps, the later step wins.
        lateness: How late a row may be. None accepts all rows, or with ``retain`` those that would
            still be kept. If both are given, their columns must be the same, and rows must be kept
            at least as long as they may be late.
        keep: "all" keeps all rows and columns of the input, so that views that are added later can
            be computed (`circuits.state.program_change`). The input is materialized. None keeps
            what the views need.

    Raises:
        InputOptionsError: A key occurs twice, the keys are one text, there is a sequence without
            keys, ``lateness`` does not fit ``retain``, or ``keep`` has another value.

    >>> InputOptions(keys=["nr"], retain=Retention("ts", hours=1)).keys
    ('nr',)
    """

    keys: tuple[str, ...] = ()
    strict: bool = False
    retain: Retention | None = None
    sequence: str | None = None
    lateness: Lateness | None = None
    keep: Literal["all"] | None = None

    def __post_init__(self) -> None:
        if self.keep not in (None, "all"):
            raise InputOptionsError(f"keep={self.keep!r}: give 'all', or None")
        if isinstance(self.keys, str):
            raise InputOptionsError(
                f"keys={self.keys!r} must be a collection of columns: give ({self.keys!r},)"
            )
        check_type("keys", self.keys, Collection, "names of columns")
        object.__setattr__(self, "keys", tuple(self.keys))
        for key in self.keys:
            check_type("a key", key, str, "the name of a column")
        if self.sequence is not None:
            check_type("sequence", self.sequence, str, "the name of a column")
        if len(set(self.keys)) != len(self.keys):
            raise InputOptionsError(f"keys {self.keys}: a column occurs twice; give each once")
        if self.retain is not None and not isinstance(self.retain, Retention):
            raise InputOptionsError(
                f"retain={self.retain!r} must be a Retention, such as Retention(column, '7 days')"
            )
        self._check_lateness()
        expiry_column = self.retain.column if self.retain and self.retain.keeps_results else None
        if expiry_column is not None and self.keys and expiry_column not in self.keys:
            raise InputOptionsError(
                f"keys {self.keys} with on_expiry='keep': a key whose row has expired could get a "
                "new row, and the published results of both rows would stay: add "
                f"{expiry_column!r} to the keys, or use on_expiry='retract'"
            )
        if self.sequence is not None and not self.keys:
            raise InputOptionsError(
                f"sequence={self.sequence!r} orders the changes of one key; give keys as well"
            )

    def _check_lateness(self) -> None:
        lateness, retain = self.lateness, self.retain
        if lateness is None:
            return
        if not isinstance(lateness, Lateness):
            raise InputOptionsError(
                f"lateness={lateness!r} must be a Lateness, such as Lateness(column, '5 minutes')"
            )
        if retain is None:
            return
        if lateness.column != retain.column:
            raise InputOptionsError(
                f"lateness of {lateness.column!r} with retain of {retain.column!r}: an input has "
                "one event time: give both the same column"
            )
        is_integer = isinstance(lateness.duration, int)
        if is_integer != isinstance(retain.duration, int):
            raise InputOptionsError(
                f"lateness {lateness.duration!r} with retain {retain.duration!r}: one duration is "
                "an integer: give both in the same way"
            )
        if lateness.duration > retain.duration:  # type: ignore[operator]
            raise InputOptionsError(
                f"lateness {lateness.column!r}: rows may be {lateness.duration_text} late but are "
                f"kept for {retain.duration_text} only: retain them for at least "
                f"{lateness.duration_text}"
            )

    def __repr__(self) -> str:
        # Fingerprints of states cover this text; an option that is not given is not part of it.
        lateness = "" if self.lateness is None else f", lateness={self.lateness!r}"
        return (
            f"InputOptions(keys={self.keys!r}, strict={self.strict!r}, retain={self.retain!r}, "
            f"sequence={self.sequence!r}{lateness})"
        )

    @property
    def time_column(self) -> str | None:
        """The column of event times; None without ``lateness`` and ``retain``."""
        span = self.lateness or self.retain
        return None if span is None else span.column

    def __bool__(self) -> bool:
        """Return True if the options change anything; a sequence alone does not."""
        return bool(self.keys or self.strict or self.time_column is not None)

    def __str__(self) -> str:
        parts = [f"keys {', '.join(self.keys)}"] if self.keys else []
        parts += ["strict"] if self.strict else []
        parts += [f"retain {self.retain}"] if self.retain is not None else []
        parts += [f"lateness of {self.lateness}"] if self.lateness is not None else []
        parts += ["keep all"] if self.keep else []
        return "; ".join(parts)


def check_options(
    input_options: Mapping[str, InputOptions], inputs: Collection[str]
) -> dict[str, InputOptions]:
    """Return the options of the inputs that have any, in the order of the inputs.

    Raises:
        InputOptionsError: A name is not an input, or a value is not an `InputOptions`.
    """
    check_type("input_options", input_options, Mapping, '{"name of the input": InputOptions(...)}')
    for name, options in input_options.items():
        if name not in inputs:
            raise InputOptionsError(
                f"input options of unknown input {name!r}; inputs: {', '.join(inputs)}: "
                "rename it, or drop the options"
            )
        if not isinstance(options, InputOptions):
            raise InputOptionsError(
                f"input options of {name!r} are {options!r}: give InputOptions(...)"
            )
    return {name: input_options[name] for name in inputs if input_options.get(name)}


def _check_span(
    option: str,
    class_name: str,
    column: str,
    duration: str | timedelta | int | None,
    from_parts: timedelta,
) -> timedelta | int:
    """Check the arguments of an option, and return its duration.

    Args:
        option: The name of the option, for messages.
        class_name: The name of its class, for messages.
        column: The column of event times.
        duration: The duration as a text, timedelta or integer.
        from_parts: The sum of the days, hours, minutes and seconds; zero if none are given.

    Raises:
        InputOptionsError: The duration is missing, negative or cannot be parsed.
    """
    check_type("column", column, str, "the name of a column")
    parsed = _parse_duration(duration) if isinstance(duration, str) else duration
    if parsed is None:
        parsed = from_parts
    elif from_parts:
        raise InputOptionsError(
            f"{option} {column!r}: two durations, {duration!r} and {from_parts}; give one of them"
        )
    is_integer = isinstance(parsed, int) and not isinstance(parsed, bool)
    if not (is_integer or isinstance(parsed, timedelta)):
        raise InputOptionsError(
            f"{option} {column!r}: invalid duration {parsed!r}; give a text such as '7 days', a "
            "timedelta, or an integer for a column of integers"
        )
    if duration is None and not from_parts:
        raise InputOptionsError(
            f"{option} {column!r}: the duration is missing; write "
            f"{class_name}({column!r}, '7 days')"
        )
    if parsed < (0 if is_integer else timedelta()):  # type: ignore[operator]
        raise InputOptionsError(
            f"{option} {column!r}: the duration {parsed} is negative; give zero or more"
        )
    return parsed


def _sum_durations(days: float, hours: float, minutes: float, seconds: float) -> timedelta:
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise InputOptionsError(
            f"{days} days, {hours} hours, {minutes} minutes, {seconds} seconds are not a valid "
            f"duration ({error}); give finite numbers of up to 999,999,999 days in all"
        ) from None


def _parse_duration(text: str) -> timedelta:
    """Read pairs of a number and a unit.

    >>> _parse_duration("1 day 12 hours")
    datetime.timedelta(days=1, seconds=43200)
    """
    is_valid = re.fullmatch(r"\s*(?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*)+", text.lower()) is not None
    total = timedelta()
    for number, word in re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.lower()):
        unit = _UNIT_DURATIONS.get(word, _UNIT_DURATIONS.get(word.removesuffix("s")))
        if unit is None or not is_valid:
            is_valid = False
            break
        try:
            total += float(number) * unit
        except OverflowError:
            raise InputOptionsError(
                f"{excerpt(text)} is longer than {timedelta.max.days} days; give a shorter "
                "duration, or no retention to keep rows for ever"
            ) from None
    if not is_valid:
        raise InputOptionsError(
            f"invalid duration {excerpt(text)}; give numbers with units, such as '7 days' or "
            f"'1 hour 30 minutes'; units: {', '.join(_UNIT_DURATIONS)}"
        )
    return total
