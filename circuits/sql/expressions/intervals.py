"""Intervals: literals, values, and moments moved by them.

An interval consists of months, days and microseconds, which are added to a moment in this order. If
an operand of ``+``, ``-`` or ``date_add`` is an interval as written, or its product with a number,
its parts are known here. Elsewhere an interval is a value (`circuits.types.codecs.intervals`). In
dialect spark, an interval without months is a duration, and so is a difference of timestamps in all
dialects.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.sql.syntax.source import MAX_NUMBER_CHARACTERS
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.interval_texts import (
    INTERVAL_UNITS,
    SECOND,
    Interval,
    UnknownUnitError,
    add_intervals,
    parse_interval,
    parse_postgres_interval,
    parse_span,
)
from circuits.types.functions.type_rules import is_interval

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
    "shift_by_value",
    "shift_value_by_interval",
]


MAX_INTERVAL_US: Final = timedelta.max // timedelta(microseconds=1)
#: The date of a TIME in computations with timestamps.
EPOCH_DATE: Final = Literal(date(1970, 1, 1), pa.date32())


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
    return shift_value_by_interval(clause, node, clause.read(moment), operand, sign)


def shift_value_by_interval(
    clause: Clause, node: exp.Expr, value: Expression, operand: exp.Expr, sign: int
) -> Expression:
    """Do the same as `shift_by_interval` with the value of the moment."""
    interval_and_factor = interval_operand(operand)
    assert interval_and_factor is not None
    interval, factor = interval_and_factor
    if clause.source.is_spark:
        (value,) = coerce(clause, node, [value], "m")
    if is_interval(value.type):
        other = clause.read(operand)
        return clause.call(node, "add" if sign > 0 else "subtract", value, other)
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
    text = f"{sign}{number.this} {unit.name if unit else ''}".strip()
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise source.error(
            node,
            f"an interval of {len(text)} characters; the maximum is {MAX_NUMBER_CHARACTERS}",
        )
    # As in '1.5 days'. sqlglot gives INTERVAL 1.5 DAY the same form, without this argument.
    is_whole = unit is None or bool(node.args.get("fraction_in_string"))
    # In Spark and Flink, only seconds have a fraction, in a text or not.
    is_second = unit is not None and unit.name.upper() in ("SECOND", "SECONDS")
    is_whole = is_whole or (source.is_spark and is_second)
    if "." in number.this and not is_whole:
        raise source.unsupported(
            node, f"interval {text!r}", f"write the unit in the text, as '{text.lower()}'"
        )
    try:
        total = parse_interval(text)
        if total is None and source.is_postgres:
            total = parse_postgres_interval(text)
    except UnknownUnitError as error:
        units = ", ".join(INTERVAL_UNITS)
        raise source.unsupported(node, f"unit {str(error)!r}", f"units: {units}") from None
    if total is None:
        raise source.unsupported(
            node, f"interval {text!r}", "write numbers with units, as '1 year 2 months'"
        )
    if any(abs(part) >= 2**63 for part in total):
        raise source.error(node, f"interval {text!r} is too long for 64 bits")
    return total


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
    return add_intervals(read_interval_sum(clause, left), read_interval_sum(clause, right))


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
    amount = parse_span(text, first, last, limits_hours=clause.source.is_spark)
    if amount is not None:
        return Interval(*(sign * part for part in amount))
    raise clause.source.unsupported(
        node, f"interval {text!r} {first} to {last}", "write it as INTERVAL '3 days 2 hours'"
    )


def read_interval_value(clause: Clause, node: exp.Interval) -> Expression:
    """Read an interval as a value.

    In dialect spark an interval of months and one of days and shorter units have two types. The
    latter is a duration.
    """
    if not _is_literal_count(node.this) and isinstance(node.args.get("unit"), exp.Var):
        return _read_counted_units(clause, node)
    months, days, micros = read_interval(clause, node)
    if clause.source.is_spark and not months:
        total = days * 86_400 * SECOND + micros
        if abs(total) > MAX_INTERVAL_US:
            raise clause.source.error(node, "the interval is too long")
        return Literal(timedelta(microseconds=total), pa.duration("us"))
    if clause.source.is_spark and (days or micros):
        raise clause.source.unsupported(
            node,
            "an interval of months and of days or shorter units as a value",
            "add both to a date or timestamp, one after the other",
            word="interval",
        )
    if max(abs(months), abs(days)) >= 2**31 or abs(micros) >= 2**63 // 1000:
        raise clause.source.error(node, "the interval is too long")
    return Literal(pa.MonthDayNano([months, days, micros * 1000]), INTERVAL)


def _read_counted_units(clause: Clause, node: exp.Interval) -> Expression:
    """Read ``INTERVAL (n) MONTH``, whose number is computed."""
    clause.source.allow_arguments(node, "this", "unit")
    months, days, micros = INTERVAL_UNITS[_interval_unit(clause, node)]
    count = clause.read(node.this)
    if not pa.types.is_integer(count.type):
        raise clause.source.unsupported(
            node, f"an interval times a value of type {count.type}", "cast it to an integer"
        )
    if clause.source.is_spark and not months:
        total = integer_literal(days * 86_400 * SECOND + micros)
        return clause.call(node, "duration_of_micros", count, total)
    parts = (
        clause.call(node, "multiply", count, integer_literal(part)) if part else integer_literal(0)
        for part in (months, days, micros)
    )
    return clause.call(node, "make_interval", *parts)


def shift_by_value(
    clause: Clause, node: exp.Expr, moment: Expression, interval: Expression, sign: int
) -> Expression:
    """Return a date, timestamp or TIME plus (sign 1) or minus (sign -1) a value with months.

    In Spark, a date plus months is a date.
    """
    is_time = bool(pa.types.is_time(moment.type))
    start = clause.call(node, "time_on_date", EPOCH_DATE, moment) if is_time else moment
    signed = clause.call(node, "negate", interval) if sign < 0 else interval
    parts = (
        clause.call(node, "interval_field", signed, string_literal(part))
        for part in ("months", "days", "microseconds")
    )
    shifted = clause.call(node, "shift_timestamp", start, *parts)
    if is_time:
        return clause.call(node, "cast", shifted, type=pa.time64("us"))
    if pa.types.is_timestamp(moment.type) and moment.type.tz is not None:
        return clause.call(node, "cast", shifted, type=pa.timestamp("us", moment.type.tz))
    if clause.source.is_spark and pa.types.is_date(moment.type):
        return clause.call(node, "cast", shifted, type=pa.date32())
    return shifted
