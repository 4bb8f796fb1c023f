"""The functions of Spark by name (`circuits.sql.named_functions`), with the semantics of Spark 4.

ANSI mode is on, as by default in Spark 4: a value that cannot be computed is an error, and the
functions ``try_...`` return NULL. The session has the time zone UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.clause import Clause, Reader
from circuits.sql.literals import NULL, integer_literal, string_literal
from circuits.sql.named_functions import (
    COMMON,
    Arguments,
    Builder,
    as_instant,
    as_readers,
    as_text,
    coerce,
    constant,
    count_error,
    fixed,
    literal_text,
    named,
)
from circuits.types.arrow_types import is_nested

__all__ = ["BUILDERS", "DATE_ADD", "DATE_DIFF", "READERS_BY_NAME", "is_spark_int", "shift"]

_INSTANT: Final = pa.timestamp("us", "UTC")
_FORMAT: Final = "yyyy-MM-dd HH:mm:ss"
_DEFAULT_FORMAT: Final = string_literal(_FORMAT)
_HEX: Final = string_literal("hex")
_EMPTY: Final = string_literal("")
_NOT_TRUE: Final = string_literal("the condition is not true")
_INT32: Final = range(-(2**31), 2**31)
_TRUNCATIONS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def is_spark_int(node: exp.Expr, value: Expression) -> bool:
    """Return whether a value is an INT or smaller in Spark; here, integer literals are 64 bits."""
    while isinstance(node, exp.Paren | exp.Neg):
        node = node.this
    if isinstance(node, exp.Literal):
        return (
            isinstance(value, Literal) and isinstance(value.value, int) and (value.value in _INT32)
        )
    return bool(arrow.is_integer(value.type) and value.type.bit_width < 64)


def _all_ints(node: exp.Anonymous, arguments: Arguments) -> bool:
    return all(map(is_spark_int, node.expressions, arguments))


def _is_binary(value: Expression) -> bool:
    return bool(arrow.is_binary(value.type) or arrow.is_large_binary(value.type))


def _is_text(value: Expression) -> bool:
    return bool(arrow.is_string(value.type) or arrow.is_large_string(value.type))


def _hash(function: str) -> Builder:
    """Read ``hash``: an integer literal is hashed as the INT that it is in Spark."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        typed = [
            clause.call(node, "cast", value, type=pa.int32())
            if isinstance(value, Literal) and is_spark_int(part, value)
            else value
            for part, value in zip(node.expressions, arguments, strict=True)
        ]
        return clause.call(node, function, *typed)

    return build


def _trying(function: str) -> Builder:
    """Read ``try_add``...: NULL for an overflow, also of the INT of Spark."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        value = clause.call(node, function, *arguments)
        if _all_ints(node, arguments) and arrow.is_integer(value.type):
            value = clause.call(node, "cast", value, type=pa.int32())
        return clause.call(node, "try", value)

    return build


def _trying_call(builder: Builder) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        return clause.call(node, "try", builder(clause, node, arguments))

    return build


def _hex(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if _is_text(value) or _is_binary(value):
        return clause.call(node, "hex", value)
    return clause.call(node, "hex_integer", *coerce(clause, node, [value], "i"))


def _length(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if _is_binary(value):
        return clause.call(node, "octet_length", value)
    return clause.call(node, "length", *coerce(clause, node, [value], "t"))


def _decode(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``decode(bytes, charset)`` or ``decode(value, key, result, ..., default)``."""
    if len(arguments) == 2:
        return clause.call(node, "decode", *coerce(clause, node, arguments, "yt"))
    if len(arguments) < 2:
        raise count_error(clause, node, "2 or more")
    value, *rest = arguments
    default = rest.pop() if len(rest) % 2 else NULL
    parts: Arguments = []
    for key, result in zip(rest[::2], rest[1::2], strict=True):
        parts += [clause.call(node, "same", value, key), result]
    return clause.call(node, "case", *parts, default)


def _elt(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) < 2:
        raise count_error(clause, node, "2 or more")
    (index,) = coerce(clause, node, arguments[:1], "i")
    values = [
        value if _is_binary(value) else as_text(clause, node, value) for value in arguments[1:]
    ]
    parts = [clause.call(node, "is_null", index), Literal(None, values[0].type)]
    for number, value in enumerate(values, 1):
        parts += [clause.call(node, "eq", index, integer_literal(number)), value]
    message = string_literal(f"the index of elt() is not from 1 to {len(values)}")
    return clause.call(node, "case", *parts, clause.call(node, "raise_error", message))


def _is_nan(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``isnan``, which is false for NULL in Spark."""
    found = clause.call(node, "is_nan", *coerce(clause, node, [value], "f"))
    return clause.call(node, "coalesce", found, Literal(False, pa.bool_()))


def _nanvl(clause: Clause, node: exp.Expr, value: Expression, other: Expression) -> Expression:
    value, other = coerce(clause, node, [value, other], "ff")
    return clause.call(node, "case", clause.call(node, "is_nan", value), other, value)


def _logarithm(function: str, domain: str = "null_unless_positive") -> Builder:
    """Read a logarithm, which is NULL outside its domain in Spark."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        made = coerce(clause, node, arguments, "f" * len(arguments))
        return clause.call(node, function, *(clause.call(node, domain, value) for value in made))

    return build


def _log(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    return _logarithm("ln" if len(arguments) == 1 else "log")(clause, node, arguments)


def _to_decimal_or_float(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return coerce(clause, node, [value], "n")[0]


def _rounded(integers: str, floats: str) -> Builder:
    """Read ``round`` and ``bround``; floats are rounded as their shortest decimal text."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = _to_decimal_or_float(clause, node, arguments[0])
        digits = arguments[1] if len(arguments) > 1 else integer_literal(0)
        function = floats if arrow.is_floating(value.type) else integers
        return clause.call(node, function, value, digits)

    return build


def _whole(function: str, with_digits: str) -> Builder:
    """Read ``ceil`` and ``floor``: a BIGINT for a float."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = _to_decimal_or_float(clause, node, arguments[0])
        if len(arguments) == 2:
            return clause.call(node, with_digits, value, arguments[1])
        found = clause.call(node, function, value)
        if arrow.is_floating(found.type):
            return clause.call(node, "cast", found, type=pa.int64())
        return found

    return build


def _binary(function: str) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        return clause.call(node, function, *coerce(clause, node, arguments, "nn"))

    return build


def _positive(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return _to_decimal_or_float(clause, node, value)


def _shift(function: str) -> Builder:
    """Read a shift; an INT has 32 bits."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        return shift(clause, node, function, node.expressions[0], arguments)

    return build


def shift(
    clause: Clause, node: exp.Expr, function: str, first: exp.Expr, arguments: Arguments
) -> Expression:
    """Return a shift of Spark: an INT keeps its 32 bits, and the distance counts modulo 32."""
    value, distance = coerce(clause, node, arguments, "ii")
    if not is_spark_int(first, value):
        return clause.call(node, function, value, distance)
    distance = clause.call(node, "bit_and_of", distance, integer_literal(31))
    if function == "shift_right_unsigned":
        value = clause.call(node, "bit_and_of", value, integer_literal(2**32 - 1))
    found = clause.call(node, function, value, distance)
    if function == "shift_right":
        return found
    low = clause.call(node, "bit_and_of", found, integer_literal(2**32 - 1))
    sign = clause.call(node, "bit_xor_of", low, integer_literal(2**31))
    return clause.call(node, "subtract", sign, integer_literal(2**31))


def _bit_count(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if arrow.is_boolean(value.type):
        value = clause.call(node, "cast", value, type=pa.int64())
    return clause.call(node, "bit_count", value)


def _date(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "cast", value, type=pa.date32())


def _instant(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "cast", value, type=_INSTANT)


def _parse(target: pa.DataType, *, lenient: bool) -> Builder:
    """Read ``to_date`` and ``to_timestamp``, with a format or without."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = arguments[0]
        if len(arguments) == 2 and (_is_text(value) or arrow.is_null(value.type)):
            function = "try_date_parse" if lenient else "date_parse"
            value = clause.call(node, function, value, arguments[1])
            return clause.call(node, "cast", value, type=target)
        return clause.call(node, "try_cast" if lenient else "cast", value, type=target)

    return build


def _unix_timestamp(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not 1 <= len(arguments) <= 2:
        raise count_error(clause, node, "1 to 2")
    value, *rest = arguments
    if _is_text(value):
        value = clause.call(node, "date_parse", value, *(rest or [string_literal(_FORMAT)]))
    return clause.call(node, "epoch_second", value)


def _from_unixtime(
    clause: Clause,
    node: exp.Expr,
    seconds: Expression,
    pattern: Expression = _DEFAULT_FORMAT,
) -> Expression:
    (seconds,) = coerce(clause, node, [seconds], "i")
    micros = clause.call(node, "multiply", seconds, integer_literal(1_000_000))
    return clause.call(node, "date_format", clause.call(node, "moment_of_micros", micros), pattern)


def _timestamp_of(unit: int) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 1:
            raise count_error(clause, node, "1")
        value = arguments[0]
        if arrow.is_decimal(value.type):
            target = pa.decimal128(38, min(value.type.scale, 30))
            value = clause.call(node, "cast", value, type=target)
        value = clause.call(node, "multiply", value, integer_literal(unit))
        if not arrow.is_integer(value.type):
            value = clause.call(node, "cast", clause.call(node, "trunc", value), type=pa.int64())
        return _instant(clause, node, clause.call(node, "moment_of_micros", value))

    return build


def _make_timestamp(function: str, target: pa.DataType) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 6 <= len(arguments) <= 7:
            raise count_error(clause, node, "6 to 7")
        value = clause.call(node, function, *coerce(clause, node, arguments[:6], "iiiiif"))
        if len(arguments) == 7:
            value = clause.call(node, "from_zone", value, arguments[6])
        return clause.call(node, "cast", value, type=target)

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


def _formatted(pattern: str) -> Callable[..., Expression]:
    def read(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
        (value,) = coerce(clause, node, [value], "m")
        return clause.call(node, "date_format", value, string_literal(pattern))

    return read


def _trunc(clause: Clause, node: exp.Expr, value: Expression, unit: Expression) -> Expression:
    name = _truncation(clause, node, unit)
    if name is None or name in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        return Literal(None, pa.date32())
    (value,) = coerce(clause, node, [value], "d")
    return _date(clause, node, clause.call(node, "date_trunc", string_literal(name), value))


def _date_trunc(clause: Clause, node: exp.Expr, unit: Expression, value: Expression) -> Expression:
    name = _truncation(clause, node, unit)
    if name is None:
        return Literal(None, _INSTANT)
    (value,) = coerce(clause, node, [value], "m")
    found = clause.call(node, "date_trunc", string_literal(name), value)
    has_zone = arrow.is_timestamp(value.type) and value.type.tz is None and not _is_text(value)
    return found if has_zone and arrow.is_timestamp(value.type) else _instant(clause, node, found)


def _truncation(clause: Clause, node: exp.Expr, unit: Expression) -> str | None:
    """Return a unit by one of its names in Spark; None for an unknown one, whose result is NULL."""
    return _TRUNCATIONS.get(literal_text(clause, node, unit, "a unit").lower())


def _date_add(function: str) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        date, days = coerce(clause, node, arguments, "di")
        return clause.call(node, function, _date(clause, node, date), days)

    return build


def _date_diff(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) != 2:
        raise count_error(clause, node, "2")
    end, start = (_date(clause, node, value) for value in coerce(clause, node, arguments, "dd"))
    return clause.call(node, "subtract", end, start)


def _to_char(clause: Clause, node: exp.Expr, value: Expression, pattern: Expression) -> Expression:
    if arrow.is_date(value.type) or arrow.is_timestamp(value.type):
        return clause.call(node, "date_format", value, pattern)
    if _is_binary(value):
        how = literal_text(clause, node, pattern, "a format").lower()
        if how in ("hex", "base64"):
            return clause.call(node, how, value)
        return clause.call(node, "decode", value, pattern)
    return clause.call(node, "to_char", _to_decimal_or_float(clause, node, value), pattern)


def _to_binary(
    clause: Clause, node: exp.Expr, value: Expression, how: Expression = _HEX
) -> Expression:
    name = literal_text(clause, node, how, "a format").lower()
    if name in ("utf-8", "utf8"):
        return clause.call(node, "cast", value, type=pa.binary())
    if name not in ("hex", "base64"):
        raise clause.source.error(node, f"no format {name!r}; there are hex, utf-8, base64")
    return clause.call(node, "from_hex" if name == "hex" else "unbase64", value)


def _typeof(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) != 1:
        raise count_error(clause, node, "1")
    (value,) = arguments
    if arrow.is_integer(value.type) and is_spark_int(node.expressions[0], value):
        return string_literal(
            _TYPE_NAMES.get(str(value.type), "int") if value.type.bit_width < 64 else "int"
        )
    if not isinstance(node.expressions[0], exp.Column | exp.Cast | exp.Literal) and (
        arrow.is_integer(value.type) or arrow.is_decimal(value.type)
    ):
        raise clause.source.unsupported(
            node, "typeof() of a computation", "take a column, a literal or a CAST"
        )
    if arrow.is_decimal(value.type):
        return string_literal(f"decimal({value.type.precision},{value.type.scale})")
    if arrow.is_timestamp(value.type):
        return string_literal("timestamp_ntz" if value.type.tz is None else "timestamp")
    return string_literal(_TYPE_NAMES.get(str(value.type), str(value.type)))


_TYPE_NAMES: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "float": "float",
    "string": "string",
    "large_string": "string",
    "bool": "boolean",
    "binary": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
}


def _assert_true(
    clause: Clause,
    node: exp.Expr,
    condition: Expression,
    message: Expression = _NOT_TRUE,
) -> Expression:
    return clause.call(node, "assert_true", condition, message)


def _unordered_replace(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    old: Expression,
    new: Expression = _EMPTY,
) -> Expression:
    return clause.call(node, "replace", *coerce(clause, node, [value, old, new], "ttt"))


def _refuse_bytes(clause: Clause, node: exp.Expr, value: Expression) -> None:
    if _is_binary(value):
        raise clause.source.unsupported(
            node, f"{clause.source.name_in_text(node)}() of bytes", "decode them to text"
        )


def _reverse(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if is_nested(value.type):
        return clause.call(node, "list_reverse", value)
    _refuse_bytes(clause, node, value)
    return clause.call(node, "reverse", *coerce(clause, node, [value], "t"))


def _pad(function: str) -> Builder:
    """Read ``lpad`` and ``rpad``; an empty padding adds nothing."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 2 <= len(arguments) <= 3:
            raise count_error(clause, node, "2 to 3")
        _refuse_bytes(clause, node, arguments[0])
        value, length, *padding = coerce(clause, node, arguments, "tit")
        if not padding:
            return clause.call(node, function, value, length)
        empty = clause.call(node, "eq", padding[0], string_literal(""))
        if isinstance(empty, Literal) and empty.value is False:
            return clause.call(node, function, value, length, *padding)
        cut = clause.call(
            node, "left", value, clause.call(node, "greatest", length, integer_literal(0))
        )
        return clause.call(
            node, "case", empty, cut, clause.call(node, function, value, length, *padding)
        )

    return build


def _ends(function: str) -> Builder:
    """Read ``left`` and ``right``; a negative length gives the empty text."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        _refuse_bytes(clause, node, arguments[0])
        value, length = coerce(clause, node, arguments, "ti")
        length = clause.call(
            node,
            "case",
            clause.call(node, "lt", length, integer_literal(0)),
            integer_literal(0),
            length,
        )
        return clause.call(node, function, value, length)

    return build


def _trim(function: str, *, characters_first: bool) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        if len(arguments) == 2 and characters_first:
            arguments = arguments[::-1]
        return clause.call(node, function, *coerce(clause, node, arguments, "tt"))

    return build


def _regexp_replace(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not 3 <= len(arguments) <= 4:
        raise count_error(clause, node, "3 to 4")
    return clause.call(node, "regexp_replace_all", *coerce(clause, node, arguments, "ttti"))


def _instr(clause: Clause, node: exp.Expr, value: Expression, part: Expression) -> Expression:
    return clause.call(node, "position", *coerce(clause, node, [value, part], "tt"))


def _like(function: str) -> Builder:
    """Read ``like(text, pattern[, escape])``; the escape is the backslash by default."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 2 <= len(arguments) <= 3:
            raise count_error(clause, node, "2 to 3")
        if len(arguments) == 2:
            arguments = [*arguments, string_literal("\\")]
        return clause.call(node, function, *coerce(clause, node, arguments, "ttt"))

    return build


def _unhex_text(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "unhex", *coerce(clause, node, [value], "t"))


def _bit_get(clause: Clause, node: exp.Expr, value: Expression, position: Expression) -> Expression:
    return clause.call(node, "get_bit", *coerce(clause, node, [value, position], "ii"))


def _converted(target: pa.DataType) -> Builder:
    """Read ``int(x)``, ``string(x)``...: casts by the name of the type."""

    def convert(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
        if arrow.is_string(target):
            return as_text(clause, node, value)
        if arrow.is_integer(target) and (
            arrow.is_floating(value.type) or arrow.is_decimal(value.type)
        ):
            value = clause.call(node, "trunc", value)
        return clause.call(node, "cast", value, type=target)

    return fixed(1, convert)


_MOMENT_FIELDS: Final = {
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

BUILDERS: Final[dict[str, Builder]] = {
    **COMMON,
    # Text
    "ascii": named("code_point"),
    "char": named("latin_character"),
    "chr": named("latin_character"),
    "bin": named("binary_digits"),
    "unbase64": named("unbase64"),
    "length": fixed(1, _length),
    "len": fixed(1, _length),
    "char_length": fixed(1, _length),
    "character_length": fixed(1, _length),
    "btrim": _trim("trim", characters_first=False),
    "ltrim": _trim("ltrim", characters_first=True),
    "rtrim": _trim("rtrim", characters_first=True),
    "contains": named("contains", kinds="tt"),
    "startswith": named("starts_with", kinds="tt"),
    "endswith": named("ends_with", kinds="tt"),
    "decode": _decode,
    "encode": named("encode"),
    "elt": _elt,
    "find_in_set": named("find_in_set"),
    "format_number": fixed(
        2,
        lambda clause, node, value, how: clause.call(
            node, "format_number", _to_decimal_or_float(clause, node, value), how
        ),
    ),
    "format_string": named("printf", least=1),
    "printf": named("printf", least=1),
    "initcap": named("initcap"),
    "instr": fixed(2, _instr),
    "like": _like("like"),
    "ilike": _like("ilike"),
    "locate": named("locate", defaults=[integer_literal(1)], least=2),
    "lcase": named("lower", kinds="t"),
    "ucase": named("upper", kinds="t"),
    "lower": named("lower", kinds="t"),
    "upper": named("upper", kinds="t"),
    "left": _ends("left"),
    "right": _ends("right"),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "luhn_check": named("luhn_check"),
    "mask": named("mask"),
    "quote": named("quote"),
    "repeat": named("repeat", kinds="ti"),
    "replace": fixed((2, 3), _unordered_replace),
    "reverse": fixed(1, _reverse),
    "space": named("space"),
    "split_part": named("split_part_checked"),
    "substring_index": named("substring_index"),
    "hex": fixed(1, _hex),
    "unhex": fixed(1, _unhex_text),
    "is_valid_utf8": named("is_valid_utf8"),
    "make_valid_utf8": named("make_valid_utf8"),
    "validate_utf8": named("validate_utf8"),
    "try_validate_utf8": named("try_validate_utf8"),
    "regexp": named("regexp_matches", kinds="tt"),
    "rlike": named("regexp_matches", kinds="tt"),
    "regexp_count": named("regexp_count", kinds="tt"),
    "regexp_extract": named("regexp_extract", defaults=[integer_literal(1)], kinds="tti", least=2),
    "regexp_instr": named("regexp_position", [0, 1]),
    "regexp_replace": _regexp_replace,
    "regexp_substr": named("regexp_substring"),
    "try_url_decode": _trying_call(named("url_decode")),
    "parse_url": named("parse_url"),
    "try_parse_url": named("try_parse_url"),
    "sha": named("sha1"),
    "sha2": named("sha2"),
    "crc32": named("crc32"),
    "hash": _hash("murmur3"),
    "xxhash64": _hash("xxhash64"),
    "to_char": fixed(2, _to_char),
    "to_varchar": fixed(2, _to_char),
    "to_number": named("to_number"),
    "try_to_number": named("try_to_number"),
    "to_binary": fixed((1, 2), _to_binary),
    "try_to_binary": _trying_call(fixed((1, 2), _to_binary)),
    # Numbers
    "e": constant(Literal(2.718281828459045, pa.float64())),
    "sec": named("sec"),
    "csc": named("csc"),
    "hypot": named("hypot"),
    "rint": named("rint"),
    "expm1": named("expm1"),
    "exp": named("exp", kinds="f"),
    "sqrt": named("sqrt", kinds="f"),
    "pow": named("power", kinds="ff"),
    "power": named("power", kinds="ff"),
    "ln": _logarithm("ln"),
    "log": _log,
    "log2": _logarithm("log2"),
    "log10": _logarithm("log10"),
    "log1p": _logarithm("log1p", "null_unless_above_minus_one"),
    "round": _rounded("round", "round_text_half_up"),
    "bround": _rounded("round_half_even", "round_text_half_even"),
    "ceil": _whole("ceil", "round_up"),
    "ceiling": _whole("ceil", "round_up"),
    "floor": _whole("floor", "round_down"),
    "mod": _binary("modulo_ansi"),
    "pmod": _binary("positive_modulo"),
    "positive": fixed(1, _positive),
    "negative": fixed(
        1,
        lambda clause, node, value: clause.call(
            node, "negate", _to_decimal_or_float(clause, node, value)
        ),
    ),
    "abs": named("abs", kinds="n"),
    "sign": fixed(
        1,
        lambda clause, node, value: clause.call(
            node,
            "cast",
            clause.call(node, "sign", _to_decimal_or_float(clause, node, value)),
            type=pa.float64(),
        ),
    ),
    "conv": named("convert_base"),
    "width_bucket": named("width_bucket"),
    "shiftleft": _shift("shift_left"),
    "shiftright": _shift("shift_right"),
    "shiftrightunsigned": _shift("shift_right_unsigned"),
    "bit_count": fixed(1, _bit_count),
    "bit_get": fixed(2, _bit_get),
    "getbit": fixed(2, _bit_get),
    "nanvl": fixed(2, _nanvl),
    "isnan": fixed(1, _is_nan),
    "try_add": _trying("add"),
    "try_subtract": _trying("subtract"),
    "try_multiply": _trying("multiply"),
    "try_divide": _trying("divide_ansi"),
    "try_mod": _trying("modulo_ansi"),
    # Dates
    **{name: named(function, kinds="m") for name, function in _MOMENT_FIELDS.items()},
    "dayofweek": fixed(1, _day_of_week),
    "weekday": fixed(1, _weekday),
    "dayname": fixed(1, _formatted("EEE")),
    "monthname": fixed(1, _formatted("MMM")),
    "add_months": named("add_months"),
    "months_between": named("months_between", defaults=[Literal(True, pa.bool_())], least=2),
    "next_day": named("next_day"),
    "make_date": named("make_date"),
    "try_make_date": named("try_make_date"),
    "make_timestamp": _make_timestamp("make_timestamp", _INSTANT),
    "make_timestamp_ltz": _make_timestamp("make_timestamp", _INSTANT),
    "make_timestamp_ntz": _make_timestamp("make_timestamp", pa.timestamp("us")),
    "try_make_timestamp": _make_timestamp("try_make_timestamp", _INSTANT),
    "try_make_timestamp_ltz": _make_timestamp("try_make_timestamp", _INSTANT),
    "try_make_timestamp_ntz": _make_timestamp("try_make_timestamp", pa.timestamp("us")),
    "to_date": _parse(pa.date32(), lenient=False),
    "try_to_date": _parse(pa.date32(), lenient=True),
    "to_timestamp": _parse(_INSTANT, lenient=False),
    "to_timestamp_ltz": _parse(_INSTANT, lenient=False),
    "to_timestamp_ntz": _parse(pa.timestamp("us"), lenient=False),
    "try_to_timestamp": _parse(_INSTANT, lenient=True),
    "date_format": named("date_format"),
    "from_unixtime": fixed((1, 2), _from_unixtime),
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "unix_seconds": named("epoch_second"),
    "unix_millis": named("epoch_millisecond"),
    "unix_micros": named("epoch_microsecond"),
    "unix_date": named("epoch_day"),
    "date_from_unix_date": named("date_of_days"),
    "timestamp_seconds": _timestamp_of(1_000_000),
    "timestamp_millis": _timestamp_of(1000),
    "timestamp_micros": _timestamp_of(1),
    "from_utc_timestamp": as_instant(named("to_zone")),
    "to_utc_timestamp": as_instant(named("from_zone")),
    "convert_timezone": _convert_timezone,
    "trunc": fixed(2, _trunc),
    "date_trunc": fixed(2, _date_trunc),
    "date_sub": _date_add("subtract"),
    "signum": fixed(
        1,
        lambda clause, node, value: clause.call(
            node,
            "cast",
            clause.call(node, "sign", _to_decimal_or_float(clause, node, value)),
            type=pa.float64(),
        ),
    ),
    "from_base32": named("unbase32"),
    "to_base32": named("base32"),
    # Conditions and types
    "typeof": _typeof,
    "raise_error": named("raise_error"),
    "assert_true": fixed((1, 2), _assert_true),
    "int": _converted(pa.int32()),
    "bigint": _converted(pa.int64()),
    "smallint": _converted(pa.int16()),
    "tinyint": _converted(pa.int8()),
    "double": _converted(pa.float64()),
    "float": _converted(pa.float32()),
    "string": _converted(pa.string()),
    "boolean": _converted(pa.bool_()),
    "date": _converted(pa.date32()),
    "timestamp": _converted(_INSTANT),
    "binary": _converted(pa.binary()),
}

#: Functions with a form that has a unit, which is no value: `circuits.sql.date_units`.
DATE_ADD: Final = _date_add("add")
DATE_DIFF: Final = _date_diff

READERS_BY_NAME: Final[dict[str, Reader]] = as_readers(spark=True, table=BUILDERS)
