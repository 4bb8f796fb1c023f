"""The functions of all dialects but Spark, with DuckDB's names (see `named_functions`).

Names whose meaning sqlglot's classes already give (``substring``, ``date_trunc``...) are not here.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import NOW_ADVICE, Clause, Reader
from circuits.sql.binding.enums import position_of_enum
from circuits.sql.expressions.intervals import EPOCH_DATE
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    COMMON,
    Arguments,
    Builder,
    as_readers,
    call_of,
    check_count,
    count_error,
    literal_text,
    merge_tables,
)
from circuits.types.arrow_types import VARIANT, is_nested, part_types
from circuits.types.enum_type import EnumType
from circuits.types.functions.type_rules import is_interval, is_number, is_text

__all__ = ["READERS_BY_NAME"]

QUOTE: Final = "'"
_TYPE_NAMES: Final = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "bool": "BOOLEAN",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "time64[us]": "TIME",
    "null": '"NULL"',
    "duration[us]": "INTERVAL",
    "month_day_nano_interval": "INTERVAL",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[s]": "TIMESTAMP_S",
    "timestamp[ms]": "TIMESTAMP_MS",
    "timestamp[ns]": "TIMESTAMP_NS",
}


def _typeof(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) != 1:
        raise count_error(clause, node, "1")
    (value,) = arguments
    value_type, argument = value.type, node.expressions[0]
    if isinstance(argument, exp.Literal) and arrow.is_integer(value_type):
        fits_int32 = isinstance(value, Literal) and abs(value.value) < 2**31
        return string_literal("INTEGER" if fits_int32 else "BIGINT")
    is_declared = isinstance(argument, exp.Column | exp.Cast | exp.Literal)
    if not is_declared and _has_inexact_part(value_type):
        raise clause.source.unsupported(
            node, "typeof() of a computation", "take a column, a literal or a CAST"
        )
    if isinstance(argument, exp.Cast) and argument.to.this == exp.DType.INT128:
        return string_literal("HUGEINT")
    if is_text(value_type) and clause.json_kind(value):
        return string_literal("JSON")
    return string_literal(_type_name(clause, node, value_type))


def _has_inexact_part(value_type: pa.DataType) -> bool:
    """Return whether a computed value of a type can have a wider type here than in DuckDB."""
    if is_nested(value_type):
        return any(map(_has_inexact_part, part_types(value_type)))
    return bool(arrow.is_integer(value_type) or arrow.is_decimal(value_type))


def _type_name(clause: Clause, node: exp.Expr, value_type: pa.DataType) -> str:
    """Return DuckDB's name of a type."""
    if isinstance(value_type, EnumType):
        labels = (f"'{label.replace(QUOTE, QUOTE * 2)}'" for label in value_type.labels)
        return f"ENUM({', '.join(labels)})"
    if value_type == VARIANT:
        return "VARIANT"
    if arrow.is_decimal(value_type):
        return f"DECIMAL({value_type.precision},{value_type.scale})"
    if arrow.is_timestamp(value_type) and value_type.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    if not is_nested(value_type):
        return _TYPE_NAMES.get(str(value_type), str(value_type))
    if arrow.is_struct(value_type):
        raise clause.source.unsupported(node, "typeof() of a struct", "take its fields")
    names = [_type_name(clause, node, part) for part in part_types(value_type)]
    if arrow.is_map(value_type):
        return f"MAP({', '.join(names)})"
    size = value_type.list_size if arrow.is_fixed_size_list(value_type) else ""
    return f"{names[0]}[{size}]"


def _hex(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    function = "hex_integer" if arrow.is_integer(value.type) else "hex"
    return clause.call(node, function, value)


def _bit_count(clause: Clause, node: exp.Anonymous, value: Expression) -> Expression:
    """Count the bits of an integer in its own width, which matters for negative numbers.

    A number as written is an INTEGER if it fits in 32 bits.
    """
    bits = value.type.bit_width if arrow.is_integer(value.type) else 64
    number = node.expressions[0].unnest()
    if isinstance(number, exp.Neg):
        number = number.this.unnest()
    is_number = isinstance(number, exp.Literal) and not number.is_string
    if is_number and isinstance(value, Literal) and -(2**31) <= value.value < 2**31:
        bits = 32
    if bits < 64:
        value = clause.call(node, "bit_and_of", value, integer_literal(2**bits - 1))
    return clause.call(node, "bit_count", value)


def _log(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``log``: ``log(x)`` has base ten or e, as in the dialect, ``log(b, x)`` base b."""
    dialect = Dialect.get_or_raise(clause.source.dialect)
    is_natural = dialect.parser_class.LOG_DEFAULTS_TO_LN
    takes_base = not (is_natural and dialect.LOG_BASE_FIRST is None)  # ClickHouse has log(x) only
    if not 1 <= len(arguments) <= 1 + takes_base:
        raise count_error(clause, node, "1 to 2" if takes_base else "1")
    if len(arguments) == 1:
        return clause.call(node, "ln" if is_natural else "log10", *arguments)
    if dialect.LOG_BASE_FIRST is False:
        arguments = [arguments[1], arguments[0]]
    return clause.call(node, "log", *arguments)


def _regexp_replace(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not 3 <= len(arguments) <= 4:
        raise count_error(clause, node, "3 to 4")
    return clause.call(node, "regexp_replace", *arguments)


def _printf(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not arguments:
        raise count_error(clause, node, "1 or more")
    return clause.call(node, "c_printf", *arguments)


def _epoch_ms(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``epoch_ms``: from a timestamp to milliseconds, or back."""
    if arrow.is_integer(value.type):
        micros = clause.call(node, "multiply", value, integer_literal(1000))
        return clause.call(node, "timestamp_of_micros", micros)
    zone = value.type.tz if arrow.is_timestamp(value.type) else None
    for unit in ("us", "ms"):  # rounded twice, as in DuckDB
        value = clause.call(node, "cast", value, type=pa.timestamp(unit, zone))
    return clause.call(node, "epoch_millisecond", value)


_DAY_MICROS: Final = 86_400_000_000


def _to_interval(unit_micros: int) -> Builder:
    """Return the builder of ``to_seconds`` or a similar function: an interval of some units.

    Args:
        unit_micros: The microseconds of one unit.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 1:
            raise count_error(clause, node, "1")
        (count,) = arguments
        parts: list[Expression] = [integer_literal(0)] * 3  # months, days, microseconds
        if unit_micros % _DAY_MICROS == 0 and not arrow.is_floating(count.type):
            days = integer_literal(unit_micros // _DAY_MICROS)
            parts[1] = clause.call(node, "multiply", count, days)
        else:
            parts[2] = _as_micros(clause, node, count, unit_micros)
        return clause.call(node, "make_interval", *parts)

    return build


def _as_micros(clause: Clause, node: exp.Expr, count: Expression, unit_micros: int) -> Expression:
    """Return a number of units, which may have a fraction, as whole microseconds."""
    if not arrow.is_integer(count.type):
        count = clause.call(node, "cast", count, type=pa.float64())
    total = clause.call(node, "multiply", count, integer_literal(unit_micros))
    return clause.call(node, "cast", total, type=pa.int64())


def _to_timestamp(clause: Clause, node: exp.Expr, seconds: Expression) -> Expression:
    """Read ``to_timestamp``: the moment of a number of seconds after 1970."""
    micros = _as_micros(clause, node, seconds, 1_000_000)
    moment = clause.call(node, "timestamp_of_micros", micros)
    return clause.call(node, "cast", moment, type=pa.timestamp("us", "UTC"))


def _make_time(
    clause: Clause, node: exp.Expr, hour: Expression, minute: Expression, second: Expression
) -> Expression:
    day = [integer_literal(part) for part in (1970, 1, 1)]
    moment = clause.call(node, "make_timestamp", *day, hour, minute, second)
    return clause.call(node, "cast", moment, type=pa.time64("us"))


def _epoch(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``epoch``: the seconds of a date, a timestamp, a TIME or an interval."""
    if is_interval(value.type):
        return clause.call(node, "interval_epoch", value)
    if arrow.is_time(value.type):
        value = clause.call(node, "time_on_date", EPOCH_DATE, value)
    return clause.call(node, "epoch", value)


def _make_timestamp(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) == 1:
        return clause.call(node, "timestamp_of_micros", *arguments)
    if len(arguments) != 6:
        raise count_error(clause, node, "1 or 6")
    return clause.call(node, "make_timestamp", *arguments)


def _unicode(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    is_empty = clause.call(node, "eq", value, string_literal(""))
    code = clause.call(node, "code_point", value)
    return clause.call(node, "case", is_empty, integer_literal(-1), code)


# By the unit without an s at the end: centuries are "centurie".
_MONTHS_OF_UNIT: Final = {
    **{"month": 1, "quarter": 3, "year": 12, "decade": 120},
    **{"century": 1200, "centurie": 1200, "millennium": 12_000, "millennia": 12_000},
}


def _date_sub(
    clause: Clause, node: exp.Expr, unit: Expression, start: Expression, end: Expression
) -> Expression:
    name = literal_text(clause, node, unit, "a unit").lower().removesuffix("s")
    if name in _MONTHS_OF_UNIT:
        months = clause.call(node, "complete_months", end, start)
        return clause.call(node, "int_divide", months, integer_literal(_MONTHS_OF_UNIT[name]))
    if name not in ("week", "day", "hour", "minute", "second", "millisecond", "microsecond"):
        raise clause.source.unsupported(
            node, f"date_sub() in units of {name}", "take millennia to microseconds"
        )
    return clause.call(node, "elapsed_units", end, start, string_literal(name))


def _factorial(clause: Clause, node: exp.Expr, number: Expression) -> Expression:
    """Read ``factorial``, which fails where Spark returns NULL."""
    result = clause.call(node, "factorial", number)
    bounds = integer_literal(0), integer_literal(20)
    is_outside = clause.call(
        node,
        "or",
        clause.call(node, "lt", number, bounds[0]),
        clause.call(node, "gt", number, bounds[1]),
    )
    message = string_literal("the factorial of a number outside of 0 to 20 does not fit 64 bits")
    error = clause.call(node, "cast", clause.call(node, "raise_error", message), type=result.type)
    return clause.call(node, "case", is_outside, error, result)


def _age(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
    if len(arguments) == 1:
        raise clause.source.unsupported(
            node,
            f"{clause.source.name_in_text(node)}() of one timestamp, its age today,",
            f"{NOW_ADVICE}; write age(ts, ts2) for the difference of two timestamps",
        )
    return clause.call(node, "age", *arguments)


def _to_char(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``to_char`` of a number; `circuits.sql.syntax.function_templates` has that of dates."""
    if len(arguments) == 2 and is_number(arguments[0].type):
        return clause.call(node, "postgres_to_char", *arguments)
    return _refuse_pattern(clause, node, arguments)


def _refuse_pattern(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Refuse a pattern of dates that `circuits.sql.syntax.function_templates` left."""
    raise clause.source.unsupported(
        node,
        f"{clause.source.name_in_text(node)}() with this pattern",
        "write a constant of YYYY, MM, DD, HH24, MI, SS, MS, Mon, or use strftime() or strptime()",
    )


def _to_number(clause: Clause, node: exp.Expr, text: Expression, pattern: Expression) -> Expression:
    """Read ``to_number`` of PostgreSQL."""
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        pattern = string_literal(pattern.value.upper().removeprefix("FM"))
    return clause.call(node, "to_number", text, pattern)


def _xor(clause: Clause, node: exp.Expr, left: Expression, right: Expression) -> Expression:
    return clause.call(node, "bit_xor_of", left, right)


def _concat_ws(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``concat_ws``, which writes values of other types as texts."""
    arguments = [
        argument
        if arrow.is_nested(argument.type) or arrow.is_null(argument.type)
        else clause.call(node, "cast", argument, type=pa.string())
        for argument in arguments
    ]
    return call_of("concat_ws", least=1)(clause, node, arguments)


def _is_infinite(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``isinf`` of a number, a date or a timestamp."""
    if not (pa.types.is_timestamp(value.type) or pa.types.is_date(value.type)):
        return clause.call(node, "is_inf", value)
    tests = (
        clause.call(
            node, "eq", value, clause.call(node, "cast", string_literal(text), type=value.type)
        )
        for text in ("infinity", "-infinity")
    )
    return clause.call(node, "or", *tests)


def _is_finite(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``isfinite`` of a number, a date or a timestamp."""
    if pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
        return clause.call(node, "not", _is_infinite(clause, node, value))
    return clause.call(node, "is_finite", value)


_BUILDERS: Final[dict[str, Builder]] = {
    "atan2": call_of("atan2"),
    "len": call_of("length"),
    "ascii": call_of("code_point"),
    "unicode": check_count(1, _unicode),
    "ord": check_count(1, _unicode),
    "levenshtein": call_of("levenshtein_of_bytes"),
    "url_encode": call_of("percent_encode"),
    "url_decode": call_of("percent_decode"),
    "chr": call_of("unicode_character"),
    "strlen": call_of("octet_length"),
    "char_length": call_of("length"),
    "character_length": call_of("length"),
    "lcase": call_of("lower"),
    "ucase": call_of("upper"),
    "instr": call_of("position"),
    "strpos": call_of("position"),
    "from_base64": call_of("unbase64"),
    "width_bucket": call_of("width_bucket"),
    "to_base64": call_of("base64"),
    "encode": check_count(
        1, lambda clause, node, value: clause.call(node, "cast", value, type=pa.binary())
    ),
    "hex": check_count(1, _hex),
    "to_hex": check_count(1, _hex),
    "unhex": call_of("from_hex"),
    "from_hex": call_of("from_hex"),
    "sha256": check_count(
        1, lambda clause, node, value: clause.call(node, "sha2", value, integer_literal(256))
    ),
    "editdist3": call_of("levenshtein_of_bytes"),
    "damerau_levenshtein": call_of("damerau_levenshtein"),
    "hamming": call_of("hamming"),
    "mismatches": call_of("hamming"),
    "jaccard": call_of("jaccard"),
    "printf": _printf,
    "regexp_matches": call_of("regexp_matches"),
    "regexp_full_match": call_of("regexp_full_match"),
    "regexp_replace": _regexp_replace,
    "typeof": _typeof,
    # Numbers
    "isnan": call_of("is_nan"),
    "bit_count": check_count(1, _bit_count),
    "log": _log,
    "log2": call_of("log2"),
    "log10": call_of("log10"),
    "round_even": call_of("round_half_even"),
    "roundbankers": call_of("round_half_even"),
    "ceiling": call_of("ceil"),
    "concat_ws": _concat_ws,
    "isfinite": check_count(1, _is_finite),
    "isinf": check_count(1, _is_infinite),
    "greatest_common_divisor": call_of("gcd"),
    "least_common_multiple": call_of("lcm"),
    "xor": check_count(2, _xor),
    "mod": call_of("modulo"),
    "factorial": check_count(1, _factorial),
    # Dates
    "dayname": call_of("day_name"),
    "monthname": call_of("month_name"),
    "isodow": call_of("iso_day_of_week"),
    "isoyear": call_of("iso_year"),
    "weekday": call_of("day_of_week"),
    "yearweek": call_of("year_week"),
    "decade": call_of("decade"),
    "century": call_of("century"),
    "millennium": call_of("millennium"),
    "era": call_of("era"),
    "epoch": check_count(1, _epoch),
    "make_time": check_count(3, _make_time),
    "to_timestamp": check_count(1, _to_timestamp),
    "to_days": _to_interval(86_400_000_000),
    "to_weeks": _to_interval(7 * 86_400_000_000),
    "epoch_ms": check_count(1, _epoch_ms),
    "epoch_us": call_of("epoch_microsecond"),
    "microsecond": call_of("microsecond"),
    "millisecond": call_of("millisecond"),
    "julian": call_of("julian_day"),
    "make_date": call_of("make_date"),
    "make_timestamp": _make_timestamp,
    "strftime": call_of("strftime"),
    "datesub": check_count(3, _date_sub),
    "date_sub": check_count(3, _date_sub),
    "add_months": call_of("add_months"),
    "age": check_count((1, 2), _age),
    "to_char": _to_char,
    "to_number": check_count(2, _to_number),
    "to_date": _refuse_pattern,
    "to_hours": _to_interval(3_600_000_000),
    "to_minutes": _to_interval(60_000_000),
    "to_seconds": _to_interval(1_000_000),
    "to_milliseconds": _to_interval(1000),
    "to_microseconds": _to_interval(1),
    "error": call_of("raise_error"),
    "json_pretty": call_of("json_pretty"),
    **{name: call_of(name) for name in ("justify_days", "justify_hours", "justify_interval")},
    "try": check_count(1, lambda clause, node, value: clause.call(node, "try", value)),
}


def _enum_type(clause: Clause, node: exp.Expr, value: Expression) -> EnumType:
    if not isinstance(value.type, EnumType):
        raise clause.source.error(
            node, f"{node.name.lower()}() takes an ENUM, not a value of type {value.type}"
        )
    return value.type


def _enum_code(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    _enum_type(clause, node, value)
    return position_of_enum(value)


def _enum_first(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return string_literal(_enum_type(clause, node, value).labels[0])


def _enum_last(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return string_literal(_enum_type(clause, node, value).labels[-1])


def _enum_range(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    labels = map(string_literal, _enum_type(clause, node, value).labels)
    return clause.call(node, "make_list", *labels)


_ENUM_BUILDERS: Final[dict[str, Builder]] = {
    "enum_code": check_count(1, _enum_code),
    "enum_first": check_count(1, _enum_first),
    "enum_last": check_count(1, _enum_last),
    "enum_range": check_count(1, _enum_range),
}
READERS_BY_NAME: Final[dict[str, Reader]] = as_readers(
    spark=False, table=merge_tables(COMMON, _BUILDERS, _ENUM_BUILDERS)
)
