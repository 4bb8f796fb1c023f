"""Dates: fields, truncation, differences, and sums with intervals.

An interval beside ``+`` or ``-`` (or in ``date_add``) consists of months, days and microseconds,
which are added in this order; it may be multiplied by a number. Elsewhere it is a value, a duration
of microseconds, and has no months.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.expressions import READERS, Clause, Reader, integer, text
from circuits.sql.named_functions import coerce
from circuits.sql.scalar_functions import READERS_BY_NAME
from circuits.sql.source import MAX_NUMBER_CHARACTERS

__all__ = ["FIELDS", "UNITS", "interval_operand", "shift_by_interval"]

SECOND: Final = 1_000_000
# Months, days and microseconds of each unit.
UNITS: Final = {
    "millennium": (12_000, 0, 0),
    "century": (1_200, 0, 0),
    "decade": (120, 0, 0),
    "year": (12, 0, 0),
    "quarter": (3, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600 * SECOND),
    "minute": (0, 0, 60 * SECOND),
    "second": (0, 0, SECOND),
    "millisecond": (0, 0, 1000),
    "microsecond": (0, 0, 1),
}
_COMMON_FIELDS: Final = {
    **dict.fromkeys(("year", "years", "yr", "yrs", "y"), "year"),
    **dict.fromkeys(("month", "months", "mon", "mons"), "month"),
    **dict.fromkeys(("day", "days", "d", "dayofmonth"), "day"),
    **dict.fromkeys(("hour", "hours", "h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "minutes", "m", "min", "mins"), "minute"),
    **dict.fromkeys(("quarter", "quarters"), "quarter"),
    **dict.fromkeys(("doy", "dayofyear"), "day_of_year"),
    **dict.fromkeys(("week", "weeks", "w", "weekofyear"), "week"),
}
#: Fields of dates by their names in DuckDB and most other dialects.
FIELDS: Final = {
    **_COMMON_FIELDS,
    **dict.fromkeys(("second", "seconds", "s", "sec", "secs"), "second"),
    **dict.fromkeys(("dow", "dayofweek", "weekday"), "day_of_week"),
    "isodow": "iso_day_of_week",
    "isoyear": "iso_year",
    "yearweek": "year_week",
    **dict.fromkeys(("decade", "decades"), "decade"),
    **dict.fromkeys(("century", "centuries"), "century"),
    **dict.fromkeys(("millennium", "millennia", "millenium"), "millennium"),
    "era": "era",
    "epoch": "epoch",
    "julian": "julian_day",
    **dict.fromkeys(("millisecond", "milliseconds", "ms", "msec", "msecs"), "millisecond"),
    **dict.fromkeys(("microsecond", "microseconds", "us", "usec", "usecs"), "microsecond"),
}
#: Fields of dates by their names in Spark, whose Sunday is day 1.
SPARK_FIELDS: Final = {
    **_COMMON_FIELDS,
    "qtr": "quarter",
    "yearofweek": "iso_year",
    **dict.fromkeys(("second", "seconds", "s", "sec", "secs"), "second_of_minute"),
    **dict.fromkeys(("dow", "dayofweek"), "day_of_week"),
    **dict.fromkeys(("dow_iso", "dayofweek_iso"), "iso_day_of_week"),
}
#: Fields of intervals.
INTERVAL_FIELDS: Final = {
    **{name: "interval_days" for name in ("day", "days", "d")},
    **{name: "interval_hours" for name in ("hour", "hours", "h", "hr", "hrs")},
    **{name: "interval_minutes" for name in ("minute", "minutes", "m", "min", "mins")},
    **{name: "interval_seconds" for name in ("second", "seconds", "s", "sec", "secs")},
    "epoch": "interval_epoch",
}
TRUNCATIONS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _field_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Func) -> Expression:
        return clause.call(node, function, *clause.all(node, "this"))

    return read


def _read_extract(clause: Clause, node: exp.Extract) -> Expression:
    clause.source.accept(node, "this", "expression")
    return _extract_field(clause, node, node.this.name.lower(), node.expression)


def _extract_field(clause: Clause, node: exp.Expr, field: str, of: exp.Expr) -> Expression:
    spark = clause.source.is_spark
    fields = SPARK_FIELDS if spark else FIELDS
    if field not in fields:
        known = ", ".join(fields)
        raise clause.source.unsupported(node, f"field {field!r} of a date", f"there are: {known}")
    value = clause.read(of)
    if pa.types.is_duration(value.type):
        if field not in INTERVAL_FIELDS:
            known = ", ".join(INTERVAL_FIELDS)
            raise clause.source.unsupported(
                node, f"field {field!r} of an interval", f"there are: {known}"
            )
        found = clause.call(node, INTERVAL_FIELDS[field], value)
        if not spark and INTERVAL_FIELDS[field] == "interval_seconds":
            found = clause.call(node, "cast", clause.call(node, "trunc", found), type=pa.int64())
        return found
    if spark:
        (value,) = coerce(clause, node, [value], "m")
    found = clause.call(node, fields[field], value)
    if spark and fields[field] == "day_of_week":
        found = clause.call(node, "add", found, integer(1))
    return found


def _read_truncate(clause: Clause, node: exp.Expr) -> Expression:
    clause.source.accept(node, "this", "unit")
    unit = _unit(clause, node, TRUNCATIONS)
    return clause.call(node, "date_trunc", text(unit), clause.read(node.this))


def _difference_reader(clause: Clause, node: exp.DateDiff) -> Expression:
    clause.source.accept(node, "this", "expression", "unit", "date_part_boundary")
    unit = _unit(clause, node, TRUNCATIONS)
    start, end = clause.read(node.expression), clause.read(node.this)
    return clause.call(node, "date_diff", text(unit), start, end)


def _unit(clause: Clause, node: exp.Expr, known: tuple[str, ...]) -> str:
    unit = node.args.get("unit")
    name = unit.name.lower() if isinstance(unit, exp.Var | exp.Literal) else str(unit)
    if name not in known:
        raise clause.source.unsupported(
            node,
            f"unit {name!r} in {clause.source.construct(node)}",
            f"there are: {', '.join(known)}",
        )
    return name


def _sum_reader(function: str, sign: int) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.accept(node, "this", "expression")
        left, right = node.this, node.args["expression"]
        if interval_operand(right) is not None and interval_operand(left) is None:
            return shift_by_interval(clause, node, left, right, sign)
        if interval_operand(left) is not None and interval_operand(right) is None and sign > 0:
            return shift_by_interval(clause, node, right, left, sign)
        return clause.call(node, function, clause.read(left), clause.read(right))

    return read


def _read_date_add(clause: Clause, node: exp.DateAdd) -> Expression:
    clause.source.accept(node, "this", "expression")
    if not isinstance(node.expression, exp.Interval):
        raise clause.source.unsupported(node, "date_add() of a value that is no INTERVAL")
    return shift_by_interval(clause, node, node.this, node.expression, 1)


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


def _mark_brackets(clause: Clause, node: exp.Expr) -> None:
    """Record that the brackets and the product around an interval are read."""
    while isinstance(node, exp.Paren):
        clause.source.accept(node, "this")
        node = node.this
    if isinstance(node, exp.Mul):
        clause.source.accept(node, "this", "expression")
        for side in (node.left, node.right):
            while isinstance(side, exp.Paren):
                clause.source.accept(side, "this")
                side = side.this


def shift_by_interval(
    clause: Clause, node: exp.Expr, moment: exp.Expr, operand: exp.Expr, sign: int
) -> Expression:
    """Return a moment plus (or minus) an interval, which may be multiplied by a number.

    In Spark, a date plus months or days is a date.
    """
    found = interval_operand(operand)
    assert found is not None
    interval, factor = found
    value = clause.read(moment)
    if clause.source.is_spark:
        (value,) = coerce(clause, node, [value], "m")
    if pa.types.is_duration(value.type):
        other = clause.read(operand)
        return clause.call(node, "add" if sign > 0 else "subtract", value, other)
    _mark_brackets(clause, operand)
    count = interval.this
    while isinstance(count, exp.Paren):
        clause.source.accept(count, "this")
        count = count.this
    months: int
    days: int
    micros: int
    if factor is None and not _is_literal_count(count):
        # INTERVAL (n) DAY is n times INTERVAL 1 DAY.
        clause.source.accept(interval, "this", "unit")
        months, days, micros = UNITS[_interval_unit(clause, interval)]
        factor = count
    else:
        months, days, micros = _read_interval(clause, interval)
    parts = (sign * months, sign * days, sign * micros)
    if factor is None:
        shifted = clause.call(node, "date_add", value, *(integer(part) for part in parts))
    else:
        number = clause.read(factor)
        if not pa.types.is_integer(number.type):
            raise clause.source.unsupported(
                node, f"an interval times a value of type {number.type}", "cast it to an integer"
            )
        amounts = [clause.call(node, "multiply", number, integer(part)) for part in parts]
        shifted = clause.call(node, "shift_moment", value, *amounts)
        if pa.types.is_timestamp(value.type) and value.type.tz is not None:
            shifted = clause.call(node, "cast", shifted, type=pa.timestamp("us", value.type.tz))
    if clause.source.is_spark and pa.types.is_date(value.type) and not micros:
        shifted = clause.call(node, "cast", shifted, type=pa.date32())
    return shifted


def _is_literal_count(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _interval_unit(clause: Clause, interval: exp.Interval) -> str:
    unit = interval.args.get("unit")
    name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    if name not in UNITS:
        raise clause.source.unsupported(
            interval, "an interval that is no literal", "write it as INTERVAL (n) DAY"
        )
    return name


def _read_interval(clause: Clause, node: exp.Interval) -> tuple[int, int, int]:
    """Return the months, days and microseconds of an interval literal."""
    clause.source.accept(node, "this", "unit")
    number, unit = node.this, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _read_span(clause, node, unit)
    negative = isinstance(number, exp.Neg)
    if negative:
        clause.source.accept(number, "this")
        number = number.this
    if not isinstance(number, exp.Literal) or (unit and not isinstance(unit, exp.Var)):
        raise clause.source.unsupported(
            node, "an interval that is no literal", "write it as INTERVAL '3 days'"
        )
    written = f"{'-' if negative else ''}{number.this} {unit.name if unit else ''}".strip()
    total = [0, 0, 0]
    if len(written) > MAX_NUMBER_CHARACTERS:
        raise clause.source.error(
            node,
            f"an interval of more than {MAX_NUMBER_CHARACTERS} characters: write a shorter one",
        )
    if not re.fullmatch(r"([+-]?\d+\s*[a-zA-Z]+\s*)+", written):
        raise clause.source.unsupported(
            node, f"interval {written!r}", "write whole numbers with units, as '1 year 2 months'"
        )
    for count, name in re.findall(r"([+-]?\d+)\s*([a-zA-Z]+)", written):
        base = name.lower().removesuffix("s")
        base = {"centurie": "century", "millennia": "millennium"}.get(base, base)
        if base not in UNITS:
            known = ", ".join(UNITS)
            raise clause.source.unsupported(node, f"unit {name!r}", f"there are: {known}")
        total = [sum_ + int(count) * part for sum_, part in zip(total, UNITS[base], strict=True)]
    if any(abs(part) >= 2**63 for part in total):
        raise clause.source.error(node, f"interval {written!r} is too long for 64 bits")
    return total[0], total[1], total[2]


_SPANS: Final = ("day", "hour", "minute", "second")


def _read_span(clause: Clause, node: exp.Interval, unit: exp.IntervalSpan) -> tuple[int, int, int]:
    """Read ``INTERVAL '1-6' YEAR TO MONTH`` and ``INTERVAL '1 02:03:04' DAY TO SECOND``."""
    clause.source.mark_read(unit)
    first, last = (unit.args[name].name.lower() for name in ("this", "expression"))
    negative = isinstance(node.this, exp.Neg)
    literal = node.this.this if negative else node.this
    written = literal.name.strip() if isinstance(literal, exp.Literal) else ""
    if negative:
        clause.source.accept(node.this, "this")
    sign = -1 if negative else 1
    if written[:1] in "+-" and written:
        sign, written = (-sign if written[0] == "-" else sign), written[1:]
    if (first, last) == ("year", "month"):
        months = re.fullmatch(r"(\d+)-(\d+)", written)
        if months and int(months[2]) < 12:
            return sign * (int(months[1]) * 12 + int(months[2])), 0, 0
    elif first in _SPANS and last in _SPANS[_SPANS.index(first) + 1 :]:
        wanted = _SPANS[_SPANS.index(first) : _SPANS.index(last) + 1]
        patterns = {"day": r"(\d+) ", "second": r"(\d+(?:\.\d{1,9})?)"}
        body = ":".join(patterns.get(name, r"(\d+)") for name in wanted).replace(" :", " ")
        parts = re.fullmatch(body, written)
        if parts:
            numbers = dict(zip(wanted, parts.groups(), strict=True))
            seconds, _, fraction = numbers.get("second", "0").partition(".")
            micros = int(seconds) * SECOND + int(f"{fraction:0<6}"[:6])
            micros += (
                (int(numbers.get("hour", 0)) * 60 + int(numbers.get("minute", 0))) * 60 * SECOND
            )
            return 0, sign * int(numbers.get("day", 0)), sign * micros
    raise clause.source.unsupported(
        node, f"interval {written!r} {first} to {last}", "write it as INTERVAL '3 days 2 hours'"
    )


def _read_interval_value(clause: Clause, node: exp.Interval) -> Expression:
    """Read an interval of days and shorter units as a value, whose type is a duration.

    A month has no fixed length, so months and years are no values.
    """
    months, days, micros = _read_interval(clause, node)
    if months:
        raise clause.source.unsupported(
            node,
            "INTERVAL of months or years as a value",
            "add it to a date or timestamp, or subtract it from one",
            word="interval",
        )
    total = days * 86_400 * SECOND + micros
    if abs(total) > 86_399_999_999_999_999_999:
        raise clause.source.error(node, "the interval is too long")
    return Literal(timedelta(microseconds=total), pa.duration("us"))


def _read_date_part(clause: Clause, node: exp.Anonymous) -> Expression:
    field = node.expressions[0] if node.expressions else None
    if len(node.expressions) != 2 or not isinstance(field, exp.Literal):
        raise clause.source.error(node, f"{node.name}() takes a literal field and a date")
    return _extract_field(clause, node, field.name.lower(), node.expressions[1])


def _read_as_date(clause: Clause, node: exp.TsOrDsToDate) -> Expression:
    """Return the date of a date or timestamp, as date functions of Spark read it."""
    (value,) = clause.all(node, "this")
    if not pa.types.is_date(value.type) and not pa.types.is_timestamp(value.type):
        raise clause.source.unsupported(node, f"a date from {value.type}", "write a CAST")
    return clause.call(node, "cast", value, type=pa.date32())


READERS.update(
    {
        exp.Add: _sum_reader("add", 1),
        exp.DateAdd: _read_date_add,
        exp.DateDiff: _difference_reader,
        exp.DateTrunc: _read_truncate,
        exp.Day: _field_reader("day"),
        exp.DayOfMonth: _field_reader("day"),
        exp.DayOfWeek: _field_reader("day_of_week"),
        exp.DayOfYear: _field_reader("day_of_year"),
        exp.Extract: _read_extract,
        exp.Hour: _field_reader("hour"),
        exp.Interval: _read_interval_value,
        exp.Minute: _field_reader("minute"),
        exp.Month: _field_reader("month"),
        exp.Quarter: _field_reader("quarter"),
        exp.Second: _field_reader("second"),
        exp.Sub: _sum_reader("subtract", -1),
        exp.TimestampTrunc: _read_truncate,
        exp.TsOrDsToDate: _read_as_date,
        exp.Week: _field_reader("week"),
        exp.WeekOfYear: _field_reader("week"),
        exp.Year: _field_reader("year"),
    }
)
READERS_BY_NAME.update({"date_part": _read_date_part, "datepart": _read_date_part})
