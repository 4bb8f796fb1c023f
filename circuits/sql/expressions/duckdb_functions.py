"""The functions of all dialects but Spark, with DuckDB's names (see `named_functions`).

Names whose meaning sqlglot's classes already give (``substring``, ``date_trunc``...) are not here.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.intervals import FIRST_DAY
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    COMMON,
    Arguments,
    Builder,
    as_readers,
    count_error,
    fixed,
    literal_text,
    merge_tables,
    named,
)

__all__ = ["READERS_BY_NAME"]

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
    if not isinstance(argument, exp.Column | exp.Cast | exp.Literal) and (
        arrow.is_integer(value_type) or arrow.is_decimal(value_type)
    ):
        raise clause.source.unsupported(
            node, "typeof() of a computation", "take a column, a literal or a CAST"
        )
    if isinstance(argument, exp.Cast) and argument.to.this == exp.DType.INT128:
        return string_literal("HUGEINT")
    if arrow.is_decimal(value_type):
        return string_literal(f"DECIMAL({value_type.precision},{value_type.scale})")
    if arrow.is_timestamp(value_type) and value_type.tz is not None:
        return string_literal("TIMESTAMP WITH TIME ZONE")
    return string_literal(_TYPE_NAMES.get(str(value_type), str(value_type)))


def _hex(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    function = "hex_integer" if arrow.is_integer(value.type) else "hex"
    return clause.call(node, function, value)


def _log(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``log``: ``log(x)`` has base ten, ``log(b, x)`` base b."""
    if not 1 <= len(arguments) <= 2:
        raise count_error(clause, node, "1 to 2")
    return clause.call(node, "log10" if len(arguments) == 1 else "log", *arguments)


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
    return clause.call(
        node, "int_divide", clause.call(node, "epoch_microsecond", value), integer_literal(1000)
    )


def _to_interval(micros: int) -> Builder:
    """Read ``to_seconds``...: a number of units of ``micros`` each, as an interval."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 1:
            raise count_error(clause, node, "1")
        (count,) = arguments
        if arrow.is_integer(count.type) or arrow.is_null(count.type):
            return clause.call(node, "duration_of_micros", count, integer_literal(micros))
        return clause.call(
            node, "duration_of_micros", _as_micros(clause, node, count, micros), integer_literal(1)
        )

    return build


def _as_micros(clause: Clause, node: exp.Expr, count: Expression, micros: int) -> Expression:
    """Return a number of units, which may have a fraction, as whole microseconds."""
    if not arrow.is_integer(count.type):
        count = clause.call(node, "cast", count, type=pa.float64())
    total = clause.call(node, "multiply", count, integer_literal(micros))
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
    if arrow.is_duration(value.type):
        return clause.call(node, "interval_epoch", value)
    if arrow.is_time(value.type):
        value = clause.call(node, "time_on_date", FIRST_DAY, value)
    return clause.call(node, "epoch", value)


def _make_timestamp(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) == 1:
        return clause.call(node, "timestamp_of_micros", *arguments)
    if len(arguments) != 6:
        raise count_error(clause, node, "1 or 6")
    return clause.call(node, "make_timestamp", *arguments)


def _unicode(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    empty = clause.call(node, "eq", value, string_literal(""))
    code = clause.call(node, "code_point", value)
    return clause.call(node, "case", empty, integer_literal(-1), code)


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


def _age(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
    raise clause.source.unsupported(
        node,
        f"{clause.source.name_in_text(node)}(), whose result has months and days,",
        "write ts - ts2, or the months as date_diff('month', ts2, ts)",
    )


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
    return named("concat_ws", least=1)(clause, node, arguments)


_BUILDERS: Final[dict[str, Builder]] = {
    "len": named("length"),
    "ascii": named("code_point"),
    "unicode": fixed(1, _unicode),
    "ord": fixed(1, _unicode),
    "levenshtein": named("levenshtein_of_bytes"),
    "url_encode": named("percent_encode"),
    "url_decode": named("percent_decode"),
    "chr": named("unicode_character"),
    "strlen": named("octet_length"),
    "char_length": named("length"),
    "character_length": named("length"),
    "lcase": named("lower"),
    "ucase": named("upper"),
    "instr": named("position"),
    "strpos": named("position"),
    "from_base64": named("unbase64"),
    "to_base64": named("base64"),
    "encode": fixed(
        1, lambda clause, node, value: clause.call(node, "cast", value, type=pa.binary())
    ),
    "hex": fixed(1, _hex),
    "to_hex": fixed(1, _hex),
    "unhex": named("from_hex"),
    "from_hex": named("from_hex"),
    "sha256": fixed(
        1, lambda clause, node, value: clause.call(node, "sha2", value, integer_literal(256))
    ),
    "editdist3": named("levenshtein_of_bytes"),
    "damerau_levenshtein": named("damerau_levenshtein"),
    "hamming": named("hamming"),
    "mismatches": named("hamming"),
    "jaccard": named("jaccard"),
    "printf": _printf,
    "regexp_matches": named("regexp_matches"),
    "regexp_full_match": named("regexp_full_match"),
    "regexp_replace": _regexp_replace,
    "typeof": _typeof,
    # Numbers
    "isnan": named("is_nan"),
    "bit_count": named("bit_count"),
    "log": _log,
    "log2": named("log2"),
    "log10": named("log10"),
    "round_even": named("round_half_even"),
    "roundbankers": named("round_half_even"),
    "ceiling": named("ceil"),
    "concat_ws": _concat_ws,
    "isfinite": named("is_finite"),
    "isinf": named("is_inf"),
    "greatest_common_divisor": named("gcd"),
    "least_common_multiple": named("lcm"),
    "xor": fixed(2, _xor),
    "mod": named("modulo"),
    # Dates
    "dayname": named("day_name"),
    "monthname": named("month_name"),
    "isodow": named("iso_day_of_week"),
    "isoyear": named("iso_year"),
    "weekday": named("day_of_week"),
    "yearweek": named("year_week"),
    "decade": named("decade"),
    "century": named("century"),
    "millennium": named("millennium"),
    "era": named("era"),
    "epoch": fixed(1, _epoch),
    "make_time": fixed(3, _make_time),
    "to_timestamp": fixed(1, _to_timestamp),
    "to_days": _to_interval(86_400_000_000),
    "to_weeks": _to_interval(7 * 86_400_000_000),
    "epoch_ms": fixed(1, _epoch_ms),
    "epoch_us": named("epoch_microsecond"),
    "microsecond": named("microsecond"),
    "millisecond": named("millisecond"),
    "julian": named("julian_day"),
    "make_date": named("make_date"),
    "make_timestamp": _make_timestamp,
    "strftime": named("strftime"),
    "datesub": fixed(3, _date_sub),
    "date_sub": fixed(3, _date_sub),
    "add_months": named("add_months"),
    "age": fixed((1, 2), _age),
    "to_hours": _to_interval(3_600_000_000),
    "to_minutes": _to_interval(60_000_000),
    "to_seconds": _to_interval(1_000_000),
    "to_milliseconds": _to_interval(1000),
    "to_microseconds": _to_interval(1),
    "error": named("raise_error"),
    "try": fixed(1, lambda clause, node, value: clause.call(node, "try", value)),
}
READERS_BY_NAME: Final[dict[str, Reader]] = as_readers(
    spark=False, table=merge_tables(COMMON, _BUILDERS)
)
