"""Dates: fields, truncation, differences, and sums with intervals.

``INTERVAL '1 month'`` is supported only as an operand of ``+`` or ``-``, or in ``date_add``: no
column has the type interval. An interval has months, days and microseconds, added in this order.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.clause import Clause, Reader
from circuits.sql.literals import integer_literal, string_literal
from circuits.sql.source import MAX_NUMBER_CHARACTERS

__all__ = ["READERS", "READERS_BY_NAME", "Interval", "read_interval"]


class Interval(NamedTuple):
    months: int
    days: int
    microseconds: int


SECOND: Final = 1_000_000  # microseconds
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
IRREGULAR_PLURALS: Final = {"centuries": "century", "millennia": "millennium"}
# The function of each field of EXTRACT and date_part.
FIELD_FUNCTIONS: Final = {
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
DATE_UNITS: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("millisecond", "microsecond"),
)


def _field_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Func) -> Expression:
        return clause.call(node, function, *clause.read_arguments(node, "this"))

    return read


def _read_extract(clause: Clause, node: exp.Extract) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    return _extract_field(clause, node, node.this.name.lower(), node.expression)


def _extract_field(clause: Clause, node: exp.Expr, field: str, date: exp.Expr) -> Expression:
    if field not in FIELD_FUNCTIONS:
        fields = ", ".join(FIELD_FUNCTIONS)
        raise clause.source.unsupported(node, f"field {field!r} of a date", f"fields: {fields}")
    return clause.call(node, FIELD_FUNCTIONS[field], clause.read(date))


def _read_truncation(clause: Clause, node: exp.Expr) -> Expression:
    clause.source.allow_arguments(node, "this", "unit")
    value, named_unit = node.this, node.args.get("unit")
    if isinstance(named_unit, exp.Var) and _names_unit(value) and not _names_unit(named_unit):
        # date_trunc(ts, hour): sqlglot takes the second argument for the value.
        unit = value.name.lower()
        clause.source.mark_read(value)
        value = exp.column(exp.to_identifier(named_unit.name))
        value.this.meta.update(node.this.meta)
    else:
        unit = _read_unit(clause, node)
    return clause.call(node, "date_trunc", string_literal(unit), clause.read(value))


def _names_unit(node: exp.Expr) -> bool:
    is_name = isinstance(node, exp.Literal | exp.Var) or (
        isinstance(node, exp.Column) and not node.table
    )
    return is_name and node.name.lower() in DATE_UNITS


def _read_difference(clause: Clause, node: exp.DateDiff) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "unit", "date_part_boundary")
    unit = _read_unit(clause, node)
    start, end = clause.read(node.expression), clause.read(node.this)
    return clause.call(node, "date_diff", string_literal(unit), start, end)


def _read_unit(clause: Clause, node: exp.Expr) -> str:
    unit = node.args.get("unit")
    name = unit.name.lower() if isinstance(unit, exp.Var | exp.Literal) else str(unit)
    if name not in DATE_UNITS:
        raise clause.source.unsupported(
            node,
            f"unit {name!r} in {clause.source.describe(node)}",
            f"units: {', '.join(DATE_UNITS)}",
        )
    return name


def _sum_reader(function: str, sign: int) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression")
        left, right = node.this, node.args["expression"]
        if isinstance(right, exp.Interval):
            return _add_interval(clause, node, left, right, sign)
        if isinstance(left, exp.Interval) and sign > 0:
            return _add_interval(clause, node, right, left, sign)
        return clause.call(node, function, clause.read(left), clause.read(right))

    return read


def _read_date_add(clause: Clause, node: exp.DateAdd) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    if not isinstance(node.expression, exp.Interval):
        raise clause.source.unsupported(node, "date_add() of a value other than an INTERVAL")
    return _add_interval(clause, node, node.this, node.expression, 1)


def _add_interval(
    clause: Clause, node: exp.Expr, date: exp.Expr, interval: exp.Interval, sign: int
) -> Expression:
    parts = [integer_literal(sign * part) for part in read_interval(clause, interval)]
    return clause.call(node, "date_add", clause.read(date), *parts)


def read_interval(clause: Clause, node: exp.Interval) -> Interval:
    """Return the value of ``INTERVAL '1 year 2 months'``, ``INTERVAL 3 DAY`` or alike."""
    source = clause.source
    source.allow_arguments(node, "this", "unit")
    number, unit = node.this, node.args.get("unit")
    sign = ""
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
    if not re.fullmatch(r"([+-]?\d+\s*[a-zA-Z]+\s*)+", text):
        raise source.unsupported(
            node, f"interval {text!r}", "write whole numbers with units, as '1 year 2 months'"
        )
    total = Interval(0, 0, 0)
    for count, unit_name in re.findall(r"([+-]?\d+)\s*([a-zA-Z]+)", text):
        singular = unit_name.lower().removesuffix("s")
        singular = IRREGULAR_PLURALS.get(unit_name.lower(), singular)
        if singular not in INTERVAL_UNITS:
            units = ", ".join(INTERVAL_UNITS)
            raise source.unsupported(node, f"unit {unit_name!r}", f"units: {units}")
        total = Interval(*(
            part + int(count) * part_of_unit
            for part, part_of_unit in zip(total, INTERVAL_UNITS[singular], strict=True)
        ))  # fmt: skip
    if any(abs(part) >= 2**63 for part in total):
        raise source.error(node, f"interval {text!r} is too long for 64 bits")
    return total


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
    """Read the cast to a date that sqlglot adds around the arguments of date functions in Spark."""
    (value,) = clause.read_arguments(node, "this")
    if not pa.types.is_date(value.type) and not pa.types.is_timestamp(value.type):
        raise clause.source.unsupported(node, f"a date from {value.type}", "write a CAST")
    return clause.call(node, "cast", value, type=pa.date32())


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Add: _sum_reader("add", 1),
    exp.DateAdd: _read_date_add,
    exp.DateDiff: _read_difference,
    exp.DateTrunc: _read_truncation,
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
    exp.TimestampTrunc: _read_truncation,
    exp.TsOrDsToDate: _read_as_date,
    exp.Week: _field_reader("week"),
    exp.WeekOfYear: _field_reader("week"),
    exp.Year: _field_reader("year"),
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "date_part": _read_date_part,
    "datepart": _read_date_part,
}
