"""Intervals: literals, values, and moments moved by them.

An interval that is added or subtracted (by ``+``, ``-`` or ``date_add``) consists of months, days
and microseconds, which are added in this order; it may be multiplied by a number. Elsewhere it is a
value, a duration of microseconds, and has no months.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from fractions import Fraction
from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.sql.syntax.interval_syntax import INTERVAL_TEXT
from circuits.sql.syntax.source import MAX_NUMBER_CHARACTERS

__all__ = [
    "EPOCH_DATE",
    "INTERVAL_UNITS",
    "Interval",
    "interval_operand",
    "is_interval_sum",
    "is_make_interval_call",
    "read_interval",
    "read_interval_sum",
    "read_interval_value",
    "shift_by_interval",
    "shift_by_make_interval",
]


class Interval(NamedTuple):
    """The parts of an interval."""

    months: int
    days: int
    microseconds: int


SECOND: Final = 1_000_000  # microseconds
MAX_INTERVAL_US: Final = timedelta.max // timedelta(microseconds=1)
INTERVAL_UNITS: Final = {
    "millennium": Interval(12_000, 0, 0),
    "century": Interval(1_200, 0, 0),
    "decade": Interval(120, 0, 0),
    "year": Interval(12, 0, 0),
    "quarter": Interval(3, 0, 0),
    "month": Interval(1, 0, 0),
    "week": Interval(0, 7, 0),
    "day": Interval(0, 1, 0),
    "hour": Interval(0, 0, 3600 * SECOND),
    "minute": Interval(0, 0, 60 * SECOND),
    "second": Interval(0, 0, SECOND),
    "millisecond": Interval(0, 0, 1000),
    "microsecond": Interval(0, 0, 1),
}
#: The date of a TIME in computations with timestamps.
EPOCH_DATE: Final = Literal(date(1970, 1, 1), pa.date32())
IRREGULAR_PLURALS: Final = {"centuries": "century", "millennia": "millennium"}


def interval_operand(node: exp.Expr) -> tuple[exp.Interval, exp.Expr | None] | None:
    """Return the interval literal of an operand and the number that it is multiplied by, if any.

    None if the operand is neither an interval literal nor the product of one with a number.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Interval):
        return node, None
    if isinstance(node, exp.Mul):
        for interval, factor in ((node.left, node.right), (node.right, node.left)):
            while isinstance(interval, exp.Paren):
                interval = interval.this
            if isinstance(interval, exp.Interval):
                return interval, factor
    return None


def _mark_parentheses_read(clause: Clause, node: exp.Expr) -> None:
    """Record that the parentheses and the product around an interval are read."""
    while isinstance(node, exp.Paren):
        clause.source.allow_arguments(node, "this")
        node = node.this
    if isinstance(node, exp.Mul):
        clause.source.allow_arguments(node, "this", "expression")
        for side in (node.left, node.right):
            while isinstance(side, exp.Paren):
                clause.source.allow_arguments(side, "this")
                side = side.this


def is_make_interval_call(node: exp.Expr) -> bool:
    """Return whether an operand is a call of one of Spark's functions that make an interval."""
    node = node.unnest()
    is_named = isinstance(node, exp.Anonymous) and node.name.lower() in _MAKE_INTERVAL_NAMES
    return is_named or isinstance(node, exp.MakeInterval)


_MAKE_INTERVAL_NAMES: Final = ("make_ym_interval", "try_make_interval")
#: The arguments of make_interval() in their order, as units.
_MAKE_INTERVAL_UNITS: Final = ("year", "month", "week", "day", "hour", "minute", "second")


def shift_by_make_interval(
    clause: Clause, node: exp.Expr, moment: exp.Expr, operand: exp.Expr, sign: int
) -> Expression:
    """Return a moment plus (or minus) the interval that one of Spark's functions makes."""
    (value,) = coerce(clause, node, [clause.read(moment)], "m")
    call = operand.unnest()
    while isinstance(operand, exp.Paren):
        clause.source.allow_arguments(operand, "this")
        operand = operand.this
    parts: list[exp.Expr | None]
    if isinstance(call, exp.Anonymous):
        clause.source.allow_arguments(call, "this", "expressions")
        parts = list(call.expressions)
        limit = 2 if call.name.lower() == "make_ym_interval" else len(_MAKE_INTERVAL_UNITS)
        if len(parts) > limit:
            raise clause.source.error(call, f"{call.name}() takes up to {limit} arguments")
    else:
        clause.source.allow_arguments(call, *_MAKE_INTERVAL_UNITS)
        parts = [call.args.get(unit) for unit in _MAKE_INTERVAL_UNITS]
    totals: list[Expression] = [integer_literal(0)] * 3  # months, days, microseconds
    for unit, part in zip(_MAKE_INTERVAL_UNITS, parts, strict=False):
        if part is None:
            continue
        (count,) = coerce(clause, node, [clause.read(part)], "n" if unit == "second" else "i")
        for index, size in enumerate(INTERVAL_UNITS[unit]):
            if size:
                amount = clause.call(node, "multiply", count, integer_literal(sign * size))
                if not pa.types.is_integer(amount.type):
                    rounded = clause.call(node, "round", amount)
                    amount = clause.call(node, "cast", rounded, type=pa.int64())
                totals[index] = clause.call(node, "add", totals[index], amount)
    shifted = clause.call(node, "shift_timestamp", value, *totals)
    has_time = totals[2] != integer_literal(0)
    if pa.types.is_date(value.type) and has_time:
        raise clause.source.unsupported(
            node, "a date plus an interval with a time", "cast the date to a timestamp"
        )
    return clause.call(node, "cast", shifted, type=value.type)


def shift_by_interval(
    clause: Clause, node: exp.Expr, moment: exp.Expr, operand: exp.Expr, sign: int
) -> Expression:
    """Return a moment plus (or minus) an interval, which may be multiplied by a number.

    In Spark, a date plus months or days is a date.
    """
    interval_and_factor = interval_operand(operand)
    assert interval_and_factor is not None
    interval, factor = interval_and_factor
    value = clause.read(moment)
    if clause.source.is_spark:
        (value,) = coerce(clause, node, [value], "m")
    if pa.types.is_duration(value.type):
        duration = clause.read(operand)
        return clause.call(node, "add" if sign > 0 else "subtract", value, duration)
    is_time = bool(pa.types.is_time(value.type))
    value = clause.call(node, "time_on_date", EPOCH_DATE, value) if is_time else value
    _mark_parentheses_read(clause, operand)
    count = interval.this
    while isinstance(count, exp.Paren):
        clause.source.allow_arguments(count, "this")
        count = count.this
    months: int
    days: int
    micros: int
    if factor is None and not _is_literal_count(count):
        # INTERVAL (n) DAY is n times INTERVAL 1 DAY.
        clause.source.allow_arguments(interval, "this", "unit")
        months, days, micros = INTERVAL_UNITS[_interval_unit(clause, interval)]
        factor = count
    else:
        months, days, micros = read_interval(clause, interval)
    parts = (sign * months, sign * days, sign * micros)
    if factor is None:
        shifted = clause.call(node, "date_add", value, *(integer_literal(part) for part in parts))
    else:  # shift_timestamp also takes amounts that differ by row
        number = clause.read(factor)
        if not pa.types.is_integer(number.type):
            raise clause.source.unsupported(
                node, f"an interval times a value of type {number.type}", "cast it to an integer"
            )
        amounts = [clause.call(node, "multiply", number, integer_literal(part)) for part in parts]
        shifted = clause.call(node, "shift_timestamp", value, *amounts)
        if pa.types.is_timestamp(value.type) and value.type.tz is not None:
            shifted = clause.call(node, "cast", shifted, type=pa.timestamp("us", value.type.tz))
    if is_time:
        return clause.call(node, "cast", shifted, type=pa.time64("us"))
    if clause.source.is_spark and pa.types.is_date(value.type) and not micros:
        shifted = clause.call(node, "cast", shifted, type=pa.date32())
    return shifted


def _is_literal_count(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _interval_unit(clause: Clause, interval: exp.Interval) -> str:
    unit = interval.args.get("unit")
    name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    if name not in INTERVAL_UNITS:
        raise clause.source.unsupported(
            interval, "an interval that is not a literal", "write it as INTERVAL (n) DAY"
        )
    return name


def read_interval(clause: Clause, node: exp.Interval) -> Interval:
    """Return the value of a literal, as ``INTERVAL '1 year 2 months'`` or ``INTERVAL 3 DAY``."""
    source = clause.source
    source.allow_arguments(node, "this", "unit", "fraction_in_string")
    number, unit = node.this, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _read_span(clause, node, unit)
    sign = ""
    while isinstance(number, exp.Paren):
        source.allow_arguments(number, "this")
        number = number.this
    if isinstance(number, exp.Neg):
        source.allow_arguments(number, "this")
        number, sign = number.this, "-"
    if not isinstance(number, exp.Literal) or (unit and not isinstance(unit, exp.Var)):
        raise source.unsupported(
            node, "an interval that is not a literal", "write it as INTERVAL '3 days'"
        )
    whole_text = node.meta.get(INTERVAL_TEXT)
    text = (whole_text or f"{sign}{number.this} {unit.name if unit else ''}").strip()
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise source.error(
            node,
            f"an interval of {len(text)} characters; the maximum is {MAX_NUMBER_CHARACTERS}",
        )
    match = _INTERVAL.fullmatch(text)
    if match is None or not (match["units"] or match["clock"]):
        raise source.unsupported(
            node, f"interval {text!r}", "write numbers with units, as '1 year 2 months'"
        )
    total = Interval(0, 0, 0)
    for count, unit_name in _UNIT.findall(match["units"]):
        # As in '1.5 days'. sqlglot gives INTERVAL 1.5 DAY the same form, without this argument.
        if "." in count and not whole_text and not node.args.get("fraction_in_string"):
            raise source.unsupported(
                node, f"interval {text!r}", f"write the unit in the text, as '{text.lower()}'"
            )
        unit_of_count = INTERVAL_UNITS[_unit_name(clause, node, unit_name)]
        total = _add(total, _multiply(unit_of_count, Fraction(count)))
    if match["clock"]:
        total = _add(total, _read_clock(match["clock"]))
    if match["ago"]:
        total = Interval(*(-part for part in total))
    if any(abs(part) >= 2**63 for part in total):
        raise source.error(node, f"interval {text!r} is too long for 64 bits")
    return total


# Numbers with units, a time of day, or both: '@ 1 year -2.5 hours', '3 days 02:03:04.5 ago'.
_UNIT: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
_INTERVAL: Final = re.compile(
    r"@?\s*(?P<units>(?:[+-]?\d+(?:\.\d+)?\s*[a-zA-Z]+\s*)*?)"
    r"(?P<clock>[+-]?\d+:\d{1,2}(?::\d{1,2}(?:\.\d{1,6})?)?)?\s*(?P<ago>ago)?",
    re.ASCII,
)
# For the plural "s" of 2s, without the final s, the key is "".
_SHORT_UNITS: Final = {
    **{"y": "year", "yr": "year", "mon": "month", "w": "week", "d": "day"},
    **{"h": "hour", "hr": "hour", "m": "minute", "min": "minute", "": "second", "sec": "second"},
    **{"ms": "millisecond", "msec": "millisecond", "us": "microsecond", "usec": "microsecond"},
}


def is_interval_sum(node: exp.Expr) -> bool:
    """Return whether a node is an interval, or a sum such as Spark's INTERVAL 1 DAY 2 HOURS."""
    if isinstance(node, exp.Add):
        return is_interval_sum(node.this) and is_interval_sum(node.expression)
    return isinstance(node, exp.Interval)


def read_interval_sum(clause: Clause, node: exp.Expr) -> Interval:
    """Read a node for which `is_interval_sum` is True."""
    if isinstance(node, exp.Interval):
        return read_interval(clause, node)
    clause.source.allow_arguments(node, "this", "expression")
    left, right = node.this, node.args["expression"]
    return _add(read_interval_sum(clause, left), read_interval_sum(clause, right))


def _unit_name(clause: Clause, node: exp.Interval, word: str) -> str:
    """Return the name of a unit that may be a plural or an abbreviation."""
    name = word.lower()
    for candidate in (name, name.removesuffix("s")):
        unit = IRREGULAR_PLURALS.get(candidate, _SHORT_UNITS.get(candidate, candidate))
        if unit in INTERVAL_UNITS:
            return unit
    units = ", ".join(INTERVAL_UNITS)
    raise clause.source.unsupported(node, f"unit {word!r}", f"units: {units}")


def _add(left: Interval, right: Interval) -> Interval:
    return Interval(*(a + b for a, b in zip(left, right, strict=True)))


def _multiply(unit: Interval, count: Fraction) -> Interval:
    """Return a multiple of a unit; a fraction of a month is days, one of a day is a time.

    As in DuckDB, a month has 30 days for this. A fraction of a year or of another unit of several
    months is cut off to whole months.
    """
    months, month_fraction = _split(count * unit.months)
    if unit.months > 1:
        month_fraction = Fraction(0)
    days, day_fraction = _split(count * unit.days + month_fraction * 30)
    micros = round(count * unit.microseconds + day_fraction * 86_400 * SECOND)
    return Interval(months, days, micros)


def _split(value: Fraction) -> tuple[int, Fraction]:
    """Return the whole part of a number, towards zero, and its fraction."""
    whole = int(value)
    return whole, value - whole


def _read_clock(text: str) -> Interval:
    """Read ``02:03`` or ``-02:03:04.5``."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, *seconds = text.lstrip("+-").split(":")
    total = int(hours) * 3600 + int(minutes) * 60 + Fraction(*seconds)
    return Interval(0, 0, sign * round(total * SECOND))


_SPAN_UNITS: Final = ("day", "hour", "minute", "second")


def _read_span(clause: Clause, node: exp.Interval, unit: exp.IntervalSpan) -> Interval:
    """Read ``INTERVAL '1-6' YEAR TO MONTH`` and ``INTERVAL '1 02:03:04' DAY TO SECOND``."""
    clause.source.mark_read(unit)
    first, last = (unit.args[name].name.lower() for name in ("this", "expression"))
    is_negative = isinstance(node.this, exp.Neg)
    literal = node.this.this if is_negative else node.this
    text = literal.name.strip() if isinstance(literal, exp.Literal) else ""
    if is_negative:
        clause.source.allow_arguments(node.this, "this")
    sign = -1 if is_negative else 1
    if text and text[0] in "+-":
        sign, text = (-sign if text[0] == "-" else sign), text[1:]
    if (first, last) == ("year", "month"):
        months = re.fullmatch(r"(\d+)-(\d+)", text)
        if months and int(months[2]) < 12:
            return Interval(sign * (int(months[1]) * 12 + int(months[2])), 0, 0)
    elif first in _SPAN_UNITS and last in _SPAN_UNITS[_SPAN_UNITS.index(first) + 1 :]:
        units = _SPAN_UNITS[_SPAN_UNITS.index(first) : _SPAN_UNITS.index(last) + 1]
        # For DAY TO SECOND: r"(\d+) (\d+):(\d+):(\d+(?:\.\d{1,9})?)".
        patterns = {"day": r"(\d+) ", "second": r"(\d+(?:\.\d{1,9})?)"}
        body = ":".join(patterns.get(name, r"(\d+)") for name in units).replace(" :", " ")
        parts = re.fullmatch(body, text)
        if parts:
            numbers = dict(zip(units, parts.groups(), strict=True))
            seconds, _, fraction = numbers.get("second", "0").partition(".")
            micros = int(seconds) * SECOND + int(f"{fraction:0<6}"[:6])
            micros += (
                (int(numbers.get("hour", 0)) * 60 + int(numbers.get("minute", 0))) * 60 * SECOND
            )
            return Interval(0, sign * int(numbers.get("day", 0)), sign * micros)
    raise clause.source.unsupported(
        node, f"interval {text!r} {first} to {last}", "write it as INTERVAL '3 days 2 hours'"
    )


def read_interval_value(clause: Clause, node: exp.Interval) -> Expression:
    """Read an interval of days and shorter units as a value, whose type is a duration.

    A month has no fixed length, so an interval with months or years is not a value.
    """
    months, days, micros = read_interval(clause, node)
    if months:
        raise clause.source.unsupported(
            node,
            "INTERVAL of months or years as a value",
            "add it to a date or timestamp, or subtract it from one",
            word="interval",
        )
    total = days * 86_400 * SECOND + micros
    if abs(total) > MAX_INTERVAL_US:
        raise clause.source.error(node, "the interval is too long")
    return Literal(timedelta(microseconds=total), pa.duration("us"))
