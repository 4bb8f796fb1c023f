"""Dates: fields, truncation, differences, and sums with intervals (see `intervals`)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.intervals import (
    EPOCH_DATE,
    interval_operand,
    is_make_interval_call,
    read_interval_value,
    shift_by_interval,
    shift_by_make_interval,
    shift_by_value,
    shift_value_by_interval,
)
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.sql.expressions.spark.arithmetic import read_arithmetic
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.type_rules import is_interval, is_temporal, is_text

__all__ = ["READERS", "READERS_BY_NAME", "add_values"]

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
# The fields of a TIME that are computed as those of a timestamp.
_FIELDS_OF_TIME: Final = frozenset(("millisecond", "microsecond", "epoch"))
# The fields that have a fraction in PostgreSQL, with the microseconds of one unit.
_MICROS_BY_FIELD: Final = {"second": 1_000_000, "millisecond": 1_000}
#: Fields of intervals in DuckDB.
INTERVAL_FIELDS: Final = (
    *("millennium", "century", "decade", "year", "quarter", "month", "day", "hour", "minute"),
    *("second", "millisecond", "microsecond", "epoch"),
)
#: Fields of intervals without months in Spark.
SPARK_INTERVAL_FIELDS: Final = {
    **{name: "interval_days" for name in ("day", "days", "d")},
    **{name: "interval_hours" for name in ("hour", "hours", "h", "hr", "hrs")},
    **{name: "interval_minutes" for name in ("minute", "minutes", "m", "min", "mins")},
    **{name: "interval_seconds" for name in ("second", "seconds", "s", "sec", "secs")},
}
DATE_UNITS: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("millisecond", "microsecond"),
)

#: Units of date_trunc with several years, in DuckDB and PostgreSQL.
_YEARS_OF_UNIT: Final = {"decade": 10, "century": 100, "millennium": 1000}
#: The units to which FLOOR and CEIL round times, as months, days and microseconds.
_AMOUNTS: Final = {
    **{unit: (12 * years, 0, 0) for unit, years in _YEARS_OF_UNIT.items()},
    "year": (12, 0, 0),
    "quarter": (3, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3_600_000_000),
    "minute": (0, 0, 60_000_000),
    "second": (0, 0, 1_000_000),
    "millisecond": (0, 0, 1_000),
    "microsecond": (0, 0, 1),
}


def _field_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Func) -> Expression:
        return clause.call(node, function, *clause.read_arguments(node, "this"))

    return read


def _on_epoch_date(clause: Clause, node: exp.Expr, value: Expression, field: str) -> Expression:
    """Return a TIME as a timestamp of 1970-01-01 for a field of timestamps; else the value."""
    if not pa.types.is_time(value.type) or field not in _FIELDS_OF_TIME:
        return value
    return clause.call(node, "time_on_date", EPOCH_DATE, value)


def _read_extract(clause: Clause, node: exp.Extract) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    return _extract_field(clause, node, node.this.name.lower(), node.expression)


def _extract_field(clause: Clause, node: exp.Expr, field: str, time: exp.Expr) -> Expression:
    """Return a field, by its name in the dialect, of a date, a timestamp or an interval."""
    is_spark = clause.source.is_spark
    fields = SPARK_FIELDS if is_spark else FIELDS
    if field not in fields:
        known = ", ".join(fields)
        raise clause.source.unsupported(node, f"field {field!r} of a date", f"there are: {known}")
    value = clause.read(time)
    if is_interval(value.type):
        return _extract_interval_field(clause, node, field, value)
    if is_spark:
        (value,) = coerce(clause, node, [value], "m")  # m is a timestamp
    if clause.source.is_postgres and fields[field] in _MICROS_BY_FIELD:
        return _second_with_fraction(clause, node, value, fields[field])
    value = _on_epoch_date(clause, node, value, fields[field])
    part = clause.call(node, fields[field], value)
    if is_spark and fields[field] == "day_of_week":
        part = clause.call(node, "add", part, integer_literal(1))
    return part


def _extract_interval_field(
    clause: Clause, node: exp.Expr, field: str, value: Expression
) -> Expression:
    """Return a field of an interval, by its name in the dialect.

    In Spark, an interval has months, or it has days and shorter units.
    """
    has_parts = not clause.source.is_spark or value.type == INTERVAL
    functions: Collection[str] = SPARK_INTERVAL_FIELDS
    if has_parts:
        functions = ("year", "month") if clause.source.is_spark else INTERVAL_FIELDS
    name = SPARK_INTERVAL_FIELDS.get(field, "") if not has_parts else FIELDS.get(field, "")
    if not name or (has_parts and name not in functions):
        known = ", ".join(functions)
        raise clause.source.unsupported(
            node, f"field {field!r} of an interval", f"there are: {known}"
        )
    if not has_parts:
        return clause.call(node, name, value)
    if name == "epoch":
        return clause.call(node, "interval_epoch", value)
    if clause.source.is_postgres and name in _MICROS_BY_FIELD:
        micros = clause.call(node, "interval_field", value, string_literal("microsecond"))
        return clause.call(node, "divide", micros, integer_literal(_MICROS_BY_FIELD[name]))
    return clause.call(node, "interval_field", value, string_literal(name))


def _second_with_fraction(
    clause: Clause, node: exp.Expr, value: Expression, field: str
) -> Expression:
    """Return the second of PostgreSQL, or its milliseconds, with the fraction."""
    micros = clause.call(node, "microsecond", _on_epoch_date(clause, node, value, "microsecond"))
    return clause.call(node, "divide", micros, integer_literal(_MICROS_BY_FIELD[field]))


def _read_truncation(clause: Clause, node: exp.Expr) -> Expression:
    clause.source.allow_arguments(node, "this", "unit")
    value, second = node.this, node.args["unit"]
    if _names_unit(value) and not (isinstance(second, exp.Literal) or _names_unit(second)):
        # date_trunc(ts, hour), in which sqlglot takes hour for the value and ts for the unit.
        unit = value.name.lower()
        clause.source.mark_read(value)
        value = second
        if isinstance(second, exp.Var):
            value = exp.column(exp.to_identifier(second.name))
            value.this.meta.update(node.this.meta)
    else:
        unit = _read_unit(clause, node)
    moment = clause.read(value)
    if unit in _YEARS_OF_UNIT:
        return _truncate_years(clause, node, moment, unit, is_standard=clause.source.is_postgres)
    return clause.call(node, "date_trunc", string_literal(unit), moment)


def _read_floor(clause: Clause, node: exp.Floor) -> Expression:
    """Read ``FLOOR(x)``, or ``FLOOR(ts TO HOUR)``, the start of the unit that contains ts."""
    if node.args.get("to") is None:
        return clause.call(node, "floor", *clause.read_arguments(node, "this"))
    clause.source.allow_arguments(node, "this", "to")
    return _round_moment(clause, node, node.args["to"], is_floor=True)


def _read_ceiling(clause: Clause, node: exp.Ceil) -> Expression:
    """Read ``CEIL(x)``, or ``CEIL(ts TO HOUR)``, the first start not before ts."""
    if node.args.get("to") is None:
        return clause.call(node, "ceil", *clause.read_arguments(node, "this"))
    clause.source.allow_arguments(node, "this", "to")
    return _round_moment(clause, node, node.args["to"], is_floor=False)


def _read_time_truncation(clause: Clause, node: exp.TimeTrunc) -> Expression:
    """Read ``TIME_TRUNC(t, HOUR)``, which is ``FLOOR(t TO HOUR)`` of a TIME."""
    clause.source.allow_arguments(node, "this", "unit")
    value = clause.read(node.this)
    if not pa.types.is_time(value.type):
        raise clause.source.error(node, f"TIME_TRUNC() takes a TIME, not a value of {value.type}")
    return _round_moment(clause, node, node.args["unit"], is_floor=True)


def _round_moment(clause: Clause, node: exp.Expr, unit: exp.Expr, *, is_floor: bool) -> Expression:
    """Return a date, a time or a timestamp rounded down or up to a unit; the type does not change.

    As in Flink and Feldera, weeks start on Sundays. The century of 2024 starts with 2001 in dialect
    spark, as in Flink, and with 2000 in others, as in Feldera.
    """
    clause.source.mark_read(unit)
    value = clause.read(node.this)
    if clause.source.is_spark and is_text(value.type):
        (value,) = coerce(clause, node, [value], "m")
    name, is_time = unit.name.lower(), pa.types.is_time(value.type)
    amounts = {key: value for key, value in _AMOUNTS.items() if not is_time or not any(value[:2])}
    if name not in amounts:
        known = ", ".join(key.upper() for key in amounts)
        raise clause.source.unsupported(unit, f"rounding to {name.upper()}", f"units: {known}")
    if not is_moment(value.type):
        raise clause.source.error(
            node, f"rounding to {name.upper()} takes a date or a time, not a value of {value.type}"
        )
    moment = clause.call(node, "time_on_date", EPOCH_DATE, value) if is_time else value

    def shift(moment: Expression, *amounts: int) -> Expression:
        return clause.call(node, "date_add", moment, *map(integer_literal, amounts))

    if name == "week":
        monday = clause.call(node, "date_trunc", string_literal(name), shift(moment, 0, 1, 0))
        start = shift(monday, 0, -1, 0)
    elif name in _YEARS_OF_UNIT:
        is_standard = clause.source.is_spark
        start = _truncate_years(clause, node, moment, name, is_standard=is_standard)
    else:
        start = clause.call(node, "date_trunc", string_literal(name), moment)
    if is_floor:
        return clause.call(node, "cast", start, type=value.type)
    is_start = clause.call(node, "eq", start, clause.call(node, "cast", moment, type=start.type))
    end = clause.call(node, "case", is_start, start, shift(start, *amounts[name]))
    return clause.call(node, "cast", end, type=value.type)


def _truncate_years(
    clause: Clause, node: exp.Expr, value: Expression, unit: str, *, is_standard: bool
) -> Expression:
    """Return the start of the decade, century or millennium.

    In DuckDB the century of 2024 starts with 2000, and years before 1 BC are rounded up. With
    ``is_standard`` it starts with 2001, as in PostgreSQL and in the SQL standard.
    """
    start = clause.call(node, "date_trunc", string_literal("year"), value)
    if not pa.types.is_timestamp(start.type):
        start = clause.call(node, "cast", start, type=pa.timestamp("us"))
    length = integer_literal(_YEARS_OF_UNIT[unit])
    year = clause.call(node, "year", start)
    if is_standard and unit != "decade":
        year = clause.call(node, "subtract", year, integer_literal(1))
    passed = clause.call(node, "modulo", year, length)
    if is_standard:
        passed = clause.call(node, "modulo", clause.call(node, "add", passed, length), length)
    months = clause.call(node, "multiply", passed, integer_literal(-12))
    zero = integer_literal(0)
    moved = clause.call(node, "shift_timestamp", start, months, zero, zero)
    return clause.call(node, "coalesce", moved, start)  # an infinity has no year


def _names_unit(node: exp.Expr) -> bool:
    """Return whether an argument of a function of dates may be the name of a unit."""
    is_name = isinstance(node, exp.Literal | exp.Var) or (
        isinstance(node, exp.Column) and not node.table
    )
    return is_name and node.name.lower().removesuffix("s") in (*DATE_UNITS, *_YEARS_OF_UNIT)


def _read_difference(clause: Clause, node: exp.DateDiff) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "unit", "date_part_boundary")
    third = node.args.get("unit")
    if third is not None and _names_unit(node.this) and not _names_unit(third):
        # DATEDIFF(DAY, a, b), in which sqlglot takes DAY for the end and b for the unit.
        unit, start_node = node.this.name.lower(), node.expression
        clause.source.mark_read(node.this)
        end_node = exp.column(third.name) if isinstance(third, exp.Var) else third
        if isinstance(third, exp.Var):
            end_node.meta.update(node.meta)
    else:
        unit, start_node, end_node = _read_unit(clause, node), node.expression, node.this
    start, end = clause.read(start_node), clause.read(end_node)
    return clause.call(node, "date_diff", string_literal(unit), start, end)


def _read_unit(clause: Clause, node: exp.Expr) -> str:
    unit = node.args.get("unit")
    name = unit.name.lower() if isinstance(unit, exp.Var | exp.Literal) else str(unit)
    if not clause.source.is_spark and name.removesuffix("s") in DATE_UNITS:
        name = name.removesuffix("s")
    has_long_units = isinstance(node, exp.TimestampTrunc | exp.DateTrunc)
    if has_long_units and not clause.source.is_spark and name in _YEARS_OF_UNIT:
        return name
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
        if (
            clause.source.is_spark
            and is_make_interval_call(right)
            and not is_make_interval_call(left)
        ):
            return shift_by_make_interval(clause, node, left, right, sign)
        if clause.source.is_spark and is_make_interval_call(left) and sign > 0:
            return shift_by_make_interval(clause, node, right, left, sign)
        if interval_operand(right) is not None and interval_operand(left) is None:
            return _shift_by_interval(clause, node, left, right, sign)
        if interval_operand(left) is not None and interval_operand(right) is None and sign > 0:
            return _shift_by_interval(clause, node, right, left, sign)
        return add_values(clause, node, function, clause.read(left), clause.read(right))

    return read


def add_values(
    clause: Clause, node: exp.Expr, function: str, left: Expression, right: Expression
) -> Expression:
    """Return the sum or difference of two values that are not intervals of the text.

    Args:
        clause: The clause.
        node: The node of the operator.
        function: "add" or "subtract".
        left: The left operand.
        right: The right operand.
    """
    sign = 1 if function == "add" else -1
    sides = left, right
    shifted_value = _shift_by_interval_value(clause, node, *sides, sign)
    if shifted_value is not None:
        return shifted_value
    if clause.source.is_spark:
        return read_arithmetic(clause, node, function, *sides)
    for day, clock in (sides, sides[::-1]):
        if sign > 0 and pa.types.is_date(day.type) and pa.types.is_time(clock.type):
            return clause.call(node, "time_on_date", day, clock)
    if sign < 0 and all(pa.types.is_time(side.type) for side in sides):
        epoch = Literal(date(1970, 1, 1), pa.date32())
        moments = (clause.call(node, "time_on_date", epoch, side) for side in sides)
        return clause.call(node, function, *moments)
    return clause.call(node, function, *sides)


def _shift_by_interval_value(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression, sign: int
) -> Expression | None:
    """Return a moment plus or minus a value with months, or a sum of intervals; None for others."""
    if is_interval(left.type) and is_interval(right.type) and not clause.source.is_spark:
        # The sum of two differences has the hours of both, as in DuckDB, which may exceed a day.
        sides = (clause.call(node, "cast", side, type=INTERVAL) for side in (left, right))
        return clause.call(node, "add" if sign > 0 else "subtract", *sides)
    if right.type == INTERVAL and is_moment(left.type):
        return shift_by_value(clause, node, left, right, sign)
    if left.type == INTERVAL and is_moment(right.type) and sign > 0:
        return shift_by_value(clause, node, right, left, sign)
    return None


def is_moment(data_type: pa.DataType) -> bool:
    """Return True for a date, a timestamp or a TIME."""
    return is_temporal(data_type) or bool(pa.types.is_time(data_type))


def _shift_by_interval(
    clause: Clause, node: exp.Expr, moment: exp.Expr, interval: exp.Expr, sign: int
) -> Expression:
    """Return the sum of a moment and an interval; in Spark, the sum with a text is a text."""
    value = clause.read(moment)
    shifted = shift_value_by_interval(clause, node, value, interval, sign)
    if not clause.source.is_spark or not is_text(value.type):
        return shifted
    return clause.call(node, "cast", shifted, type=pa.string())


def _read_date_add(clause: Clause, node: exp.DateAdd) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    if not isinstance(node.expression, exp.Interval):
        raise clause.source.unsupported(node, "date_add() of a value other than an INTERVAL")
    return shift_by_interval(clause, node, node.this, node.expression, 1)


def _read_date_part(clause: Clause, node: exp.Anonymous) -> Expression:
    field = node.expressions[0] if node.expressions else None
    if len(node.expressions) == 2 and isinstance(field, exp.Array) and not clause.source.is_spark:
        return _read_date_parts(clause, node, field, node.expressions[1])
    if len(node.expressions) != 2 or not isinstance(field, exp.Literal):
        raise clause.source.error(node, f"{node.name}() takes a literal field and a date")
    return _extract_field(clause, node, field.name.lower(), node.expressions[1])


def _read_date_parts(
    clause: Clause, node: exp.Anonymous, fields: exp.Array, time: exp.Expr
) -> Expression:
    """Read ``date_part(['year', 'month'], d)``: the struct of these fields; NULL for NULL."""
    parts: list[Expression] = []
    names = [field.name for field in fields.expressions]
    if not names or not all(isinstance(field, exp.Literal) for field in fields.expressions):
        raise clause.source.error(node, f"{node.name}() takes a list of literal fields and a date")
    if len({name.lower() for name in names}) < len(names):
        raise clause.source.error(node, f"a field occurs twice in {node.name}(); name each once")
    clause.source.mark_read(fields)
    for name in names:
        parts += [string_literal(name), _extract_field(clause, node, name.lower(), time)]
    struct = clause.call(node, "make_struct", *parts)
    is_null = clause.call(node, "is_null", clause.read(time))
    return clause.call(node, "case", is_null, Literal(None, struct.type), struct)


def _read_as_date(clause: Clause, node: exp.TsOrDsToDate) -> Expression:
    """Read the cast to a date that sqlglot adds around the arguments of date functions in Spark."""
    (value,) = clause.read_arguments(node, "this")
    if not pa.types.is_date(value.type) and not pa.types.is_timestamp(value.type):
        raise clause.source.unsupported(node, f"a date from {value.type}", "write a CAST")
    return clause.call(node, "cast", value, type=pa.date32())


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Add: _sum_reader("add", 1),
    exp.Ceil: _read_ceiling,
    exp.DateAdd: _read_date_add,
    exp.DateDiff: _read_difference,
    exp.DateTrunc: _read_truncation,
    exp.Day: _field_reader("day"),
    exp.DayOfMonth: _field_reader("day"),
    exp.DayOfWeek: _field_reader("day_of_week"),
    exp.DayOfYear: _field_reader("day_of_year"),
    exp.Extract: _read_extract,
    exp.Floor: _read_floor,
    exp.Hour: _field_reader("hour"),
    exp.Interval: read_interval_value,
    exp.Minute: _field_reader("minute"),
    exp.Month: _field_reader("month"),
    exp.Quarter: _field_reader("quarter"),
    exp.Second: _field_reader("second"),
    exp.Sub: _sum_reader("subtract", -1),
    exp.TimeTrunc: _read_time_truncation,
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
