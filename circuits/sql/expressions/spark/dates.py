"""Functions of dates and timestamps in dialect spark; the session has the time zone UTC.

The letters in calls of ``coerce`` are the kinds of the arguments: ``i`` integer, ``f`` and ``n``
number, ``d`` date, ``m`` timestamp, ``t`` text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    as_instant,
    call_of,
    check_count,
    coerce,
    constant,
    count_error,
    literal_text,
)
from circuits.sql.expressions.spark.operands import (
    INSTANT,
    is_text,
)
from circuits.types.functions.type_rules import is_temporal

__all__ = ["BUILDERS", "DATE_ADD", "DATE_DIFF"]

_DEFAULT_FORMAT: Final = string_literal("yyyy-MM-dd HH:mm:ss")

# The units of trunc() and date_trunc() by their names in Spark.
_TRUNCATIONS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def _cast_to_date(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "cast", value, type=pa.date32())


def _cast_to_instant(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "cast", value, type=INSTANT)


def _parse_builder(target: pa.DataType, *, lenient: bool) -> Builder:
    """Return the builder of ``to_date`` or ``to_timestamp``, with a format or without."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = arguments[0]
        if len(arguments) == 2 and not is_temporal(value.type):
            function = "try_date_parse" if lenient else "date_parse"
            has_zone = not arrow.is_timestamp(target) or target.tz is not None
            function += "" if has_zone else "_local"  # which ignores a zone in the text
            value = clause.call(node, function, *coerce(clause, node, [value], "t"), arguments[1])
            return clause.call(node, "cast", value, type=target)
        return spark_cast(clause, node, value, target, lenient=lenient)

    return build


def _unix_timestamp(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not arguments and node.name.lower() == "unix_timestamp":
        return clause.call(node, "epoch_second", clause.read_now(clause, node))
    if not 1 <= len(arguments) <= 2:
        raise count_error(clause, node, "1 to 2")
    value = arguments[0]
    if is_text(value):
        pattern = arguments[1] if len(arguments) == 2 else _DEFAULT_FORMAT
        value = clause.call(node, "date_parse", value, pattern)
    # As in Spark, the fraction of a second is cut off: half a second before 1970 is 0.
    micros = clause.call(node, "epoch_microsecond", value)
    return clause.call(node, "int_divide", micros, integer_literal(1_000_000))


def _from_unixtime(
    clause: Clause,
    node: exp.Expr,
    seconds: Expression,
    pattern: Expression = _DEFAULT_FORMAT,
) -> Expression:
    (seconds,) = coerce(clause, node, [seconds], "i")
    micros = clause.call(node, "multiply", seconds, integer_literal(1_000_000))
    return clause.call(
        node, "date_format", clause.call(node, "timestamp_of_micros", micros), pattern
    )


def _timestamp_of(unit: int) -> Builder:
    """Return the builder of a timestamp from a number of units of ``unit`` microseconds."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 1:
            raise count_error(clause, node, "1")
        value = arguments[0]
        if arrow.is_decimal(value.type):
            # The most digits, so that the product with the unit fits.
            target = pa.decimal128(38, min(value.type.scale, 30))
            value = clause.call(node, "cast", value, type=target)
        if arrow.is_floating(value.type):  # NaN and the infinities are no moment
            is_finite = clause.call(node, "is_finite", value)
            value = clause.call(node, "case", is_finite, value, Literal(None, value.type))
        value = clause.call(node, "multiply", value, integer_literal(unit))
        if not arrow.is_integer(value.type):
            value = clause.call(node, "cast", clause.call(node, "trunc", value), type=pa.int64())
        return _cast_to_instant(clause, node, clause.call(node, "timestamp_of_micros", value))

    return build


def _make_timestamp(function: str, target: pa.DataType) -> Builder:
    """Return the builder of ``make_timestamp``: six numbers, or a date and a time; maybe a zone."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if 1 <= len(arguments) <= 3:
            return of_date(clause, node, arguments)
        if not 6 <= len(arguments) <= 7:
            raise count_error(clause, node, "6 to 7")
        value = clause.call(node, function, *coerce(clause, node, arguments[:6], "iiiiif"))
        if len(arguments) == 7:
            value = clause.call(node, "from_zone", value, arguments[6])
        return clause.call(node, "cast", value, type=target)

    def of_date(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        midnight = Literal(time(), pa.time64("us"))
        (date,) = coerce(clause, node, arguments[:1], "d")
        moment = clause.call(node, "time_on_date", date, *(arguments[1:2] or [midnight]))
        if len(arguments) == 3:
            moment = clause.call(node, "from_zone", moment, arguments[2])
        return clause.call(node, "cast", moment, type=target)

    return build


def _make_time(
    clause: Clause, node: exp.Expr, hour: Expression, minute: Expression, second: Expression
) -> Expression:
    numbers = coerce(clause, node, [hour, minute, second], "iin")
    return clause.call(node, "time_of_micros", clause.call(node, "micros_of_time", *numbers))


def _to_time(*, lenient: bool) -> Builder:
    """Return the builder of ``to_time(text[, format])``."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value, *pattern = coerce(clause, node, arguments, "tt")
        if pattern:
            function = "try_date_parse" if lenient else "date_parse"
            value = clause.call(node, function, value, *pattern)
        cast = "try_cast" if lenient else "cast"
        return clause.call(node, cast, value, type=pa.time64("us"))

    return build


def _convert_timezone(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not 2 <= len(arguments) <= 3:
        raise count_error(clause, node, "2 to 3")
    source = arguments[0] if len(arguments) == 3 else string_literal("UTC")
    target, value = arguments[-2:]
    (value,) = coerce(clause, node, [value], "m")
    return clause.call(node, "to_zone", clause.call(node, "from_zone", value, source), target)


def _day_of_week(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    (value,) = coerce(clause, node, [value], "m")
    return clause.call(node, "add", clause.call(node, "day_of_week", value), integer_literal(1))


def _weekday(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    (value,) = coerce(clause, node, [value], "m")
    return clause.call(
        node, "subtract", clause.call(node, "iso_day_of_week", value), integer_literal(1)
    )


def _format_reader(pattern: str) -> Callable[..., Expression]:
    def read(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
        (value,) = coerce(clause, node, [value], "m")
        return clause.call(node, "date_format", value, string_literal(pattern))

    return read


def _trunc(clause: Clause, node: exp.Expr, value: Expression, unit: Expression) -> Expression:
    name = _truncation(clause, node, unit)
    # In Spark, trunc() of a date by a unit shorter than a week is NULL.
    if name is None or name in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        return Literal(None, pa.date32())
    (value,) = coerce(clause, node, [value], "d")
    return _cast_to_date(clause, node, clause.call(node, "date_trunc", string_literal(name), value))


def _date_trunc(clause: Clause, node: exp.Expr, unit: Expression, value: Expression) -> Expression:
    name = _truncation(clause, node, unit)
    if name is None:
        return Literal(None, INSTANT)
    (value,) = coerce(clause, node, [value], "m")
    truncated = clause.call(node, "date_trunc", string_literal(name), value)
    return _cast_to_instant(clause, node, truncated)


def _truncation(clause: Clause, node: exp.Expr, unit: Expression) -> str | None:
    """Return a unit by one of its names in Spark; None for an unknown one, whose result is NULL."""
    return _TRUNCATIONS.get(literal_text(clause, node, unit, "a unit").lower())


def _date_add_builder(function: str) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        date, days = coerce(clause, node, arguments, "di")
        return clause.call(node, function, _cast_to_date(clause, node, date), days)

    return build


def _date_diff(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) != 2:
        raise count_error(clause, node, "2")
    end, start = (
        _cast_to_date(clause, node, value) for value in coerce(clause, node, arguments, "dd")
    )
    days = clause.call(node, "subtract", end, start)
    return clause.call(node, "cast", days, type=pa.int32())


_TIMESTAMP_FIELDS: Final = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "day": "day",
    "dayofmonth": "day",
    "dayofyear": "day_of_year",
    "weekofyear": "week",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}


def _make_interval(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``make_dt_interval(days, hours, minutes, seconds)``, of which any may be left out."""
    if len(arguments) > len(_INTERVAL_UNITS_US):
        raise count_error(clause, node, f"0 to {len(_INTERVAL_UNITS_US)}")
    total: Expression = integer_literal(0)
    for kind, value, micros in zip("iiif", arguments, _INTERVAL_UNITS_US, strict=False):
        (count,) = coerce(clause, node, [value], "i") if kind == "i" else [value]
        count = clause.call(node, "multiply", count, integer_literal(micros))
        if not arrow.is_integer(count.type):
            rounded = clause.call(node, "round", count)
            count = clause.call(node, "cast", rounded, type=pa.int64())
        total = clause.call(node, "add", total, count)
    return clause.call(node, "duration_of_micros", total, integer_literal(1))


def _make_month_interval(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``make_ym_interval(years, months)``, of which any may be left out."""
    if len(arguments) > 2:
        raise count_error(clause, node, "0 to 2")
    months: Expression = integer_literal(0)
    for value, size in zip(arguments, (12, 1), strict=False):
        (count,) = coerce(clause, node, [value], "i")
        product = clause.call(node, "multiply", count, integer_literal(size))
        months = clause.call(node, "add", months, product)
    return clause.call(node, "make_interval", months, integer_literal(0), integer_literal(0))


#: Microseconds of a day, an hour, a minute and a second.
_INTERVAL_UNITS_US: Final = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)

BUILDERS: Final[dict[str, Builder]] = {
    **{name: call_of(function, kinds="m") for name, function in _TIMESTAMP_FIELDS.items()},
    "dayofweek": check_count(1, _day_of_week),
    "weekday": check_count(1, _weekday),
    "dayname": check_count(1, _format_reader("EEE")),
    "monthname": check_count(1, _format_reader("MMM")),
    "add_months": call_of("add_months"),
    "months_between": call_of("months_between", defaults=[Literal(True, pa.bool_())], least=2),
    "make_dt_interval": _make_interval,
    "make_ym_interval": _make_month_interval,
    "make_time": check_count(3, _make_time),
    "next_day": call_of("next_day"),
    "time_diff": call_of("time_diff"),
    "time_trunc": call_of("time_trunc"),
    "to_time": _to_time(lenient=False),
    "try_to_time": _to_time(lenient=True),
    "make_date": call_of("make_date"),
    "try_make_date": call_of("try_make_date"),
    "make_timestamp": _make_timestamp("make_timestamp", INSTANT),
    "make_timestamp_ltz": _make_timestamp("make_timestamp", INSTANT),
    "make_timestamp_ntz": _make_timestamp("make_timestamp", pa.timestamp("us")),
    "try_make_timestamp": _make_timestamp("try_make_timestamp", INSTANT),
    "try_make_timestamp_ltz": _make_timestamp("try_make_timestamp", INSTANT),
    "try_make_timestamp_ntz": _make_timestamp("try_make_timestamp", pa.timestamp("us")),
    "to_date": _parse_builder(pa.date32(), lenient=False),
    "try_to_date": _parse_builder(pa.date32(), lenient=True),
    "to_timestamp": _parse_builder(INSTANT, lenient=False),
    "to_timestamp_ltz": _parse_builder(INSTANT, lenient=False),
    "to_timestamp_ntz": _parse_builder(pa.timestamp("us"), lenient=False),
    "try_to_timestamp": _parse_builder(INSTANT, lenient=True),
    "date_format": call_of("date_format"),
    "from_unixtime": check_count((1, 2), _from_unixtime),
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "unix_seconds": call_of("epoch_second"),
    "unix_millis": call_of("epoch_millisecond"),
    "unix_micros": call_of("epoch_microsecond"),
    "unix_date": call_of("epoch_day"),
    "date_from_unix_date": call_of("date_of_days"),
    "timestamp_seconds": _timestamp_of(1_000_000),
    "timestamp_millis": _timestamp_of(1000),
    "timestamp_micros": _timestamp_of(1),
    "from_utc_timestamp": as_instant(call_of("to_zone")),
    "to_utc_timestamp": as_instant(call_of("from_zone")),
    "current_timezone": constant(string_literal("UTC")),
    "convert_timezone": _convert_timezone,
    "trunc": check_count(2, _trunc),
    "date_trunc": check_count(2, _date_trunc),
    "date_sub": _date_add_builder("subtract"),
}

# The forms of two arguments of functions that also have a form with a unit
# (`circuits.sql.expressions.date_units`).

DATE_ADD: Final = _date_add_builder("add")

DATE_DIFF: Final = _date_diff
