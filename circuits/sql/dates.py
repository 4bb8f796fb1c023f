"""Dates: fields, truncation, differences, and sums with intervals.

No column has the type interval. An interval is a literal beside ``+`` or ``-`` (or in
``date_add``). It consists of months, days and microseconds, which are added in this order.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.expressions import READERS, Clause, Reader, integer, text
from circuits.sql.scalar_functions import READERS_BY_NAME
from circuits.sql.source import MAX_NUMBER_CHARACTERS

__all__ = ["FIELDS", "UNITS", "read_interval"]

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
FIELDS: Final = {
    "year": "year",
    "month": "month",
    "day": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "quarter": "quarter",
    "dow": "day_of_week",
    "dayofweek": "day_of_week",
    "doy": "day_of_year",
    "dayofyear": "day_of_year",
    "week": "week",
    "weekofyear": "week",
    "dayofmonth": "day",
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
    if field not in FIELDS:
        known = ", ".join(FIELDS)
        raise clause.source.unsupported(node, f"field {field!r} of a date", f"there are: {known}")
    return clause.call(node, FIELDS[field], clause.read(of))


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
        if isinstance(right, exp.Interval):
            return _add_interval(clause, node, left, right, sign)
        if isinstance(left, exp.Interval) and sign > 0:
            return _add_interval(clause, node, right, left, sign)
        return clause.call(node, function, clause.read(left), clause.read(right))

    return read


def _read_date_add(clause: Clause, node: exp.DateAdd) -> Expression:
    clause.source.accept(node, "this", "expression")
    if not isinstance(node.expression, exp.Interval):
        raise clause.source.unsupported(node, "date_add() of a value that is no INTERVAL")
    return _add_interval(clause, node, node.this, node.expression, 1)


def _add_interval(
    clause: Clause, node: exp.Expr, date: exp.Expr, interval: exp.Interval, sign: int
) -> Expression:
    parts = read_interval(clause, interval)
    return clause.call(
        node, "date_add", clause.read(date), *(integer(sign * part) for part in parts)
    )


def read_interval(clause: Clause, node: exp.Interval) -> tuple[int, int, int]:
    """Return the months, days and microseconds of an interval literal."""
    clause.source.accept(node, "this", "unit")
    number, unit = node.this, node.args.get("unit")
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


def _refuse_bare_interval(clause: Clause, node: exp.Interval) -> Expression:
    raise clause.source.unsupported(
        node,
        "INTERVAL as a value",
        "add it to a date or timestamp, or subtract it from one",
        word="interval",
    )


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
        exp.Interval: _refuse_bare_interval,
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
