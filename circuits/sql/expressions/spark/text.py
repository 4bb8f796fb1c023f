"""Functions of texts and bytes in dialect spark: parts, patterns, encodings, hashes, formats.

``coerce`` and ``kinds`` take one letter per argument, its kind: ``t`` is a text, ``i`` an integer,
``y`` a text or bytes.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    as_text,
    call_of,
    check_count,
    coerce,
    count_error,
    literal_text,
)
from circuits.sql.expressions.spark.lists import unless_null
from circuits.sql.expressions.spark.operands import (
    is_binary,
    is_text,
    null_on_error,
    to_number,
)
from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested.list_rules import is_list

__all__ = ["BUILDERS"]

_HEX: Final = string_literal("hex")
_EMPTY: Final = string_literal("")


def _hex(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if is_text(value) or is_binary(value):
        return clause.call(node, "hex", value)
    return clause.call(node, "hex_integer", *coerce(clause, node, [value], "i"))


def _length(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if is_binary(value):
        return clause.call(node, "octet_length", value)
    return clause.call(node, "length", *coerce(clause, node, [value], "t"))


def _decode(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``decode(bytes, charset)`` or ``decode(value, key, result, ..., default)``."""
    if len(arguments) == 2:
        return clause.call(node, "decode", *coerce(clause, node, arguments, "yt"))
    if len(arguments) < 2:
        raise count_error(clause, node, "2 or more")
    value, *pairs = arguments
    default = pairs.pop() if len(pairs) % 2 else NULL
    parts: Arguments = []
    for key, result in zip(pairs[::2], pairs[1::2], strict=True):
        parts += [clause.call(node, "same", value, key), result]
    return clause.call(node, "case", *parts, default)


def _elt(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) < 2:
        raise count_error(clause, node, "2 or more")
    (index,) = coerce(clause, node, arguments[:1], "i")
    values = [
        value if is_binary(value) else as_text(clause, node, value) for value in arguments[1:]
    ]
    parts = [clause.call(node, "is_null", index), Literal(None, values[0].type)]
    for number, value in enumerate(values, 1):
        parts += [clause.call(node, "eq", index, integer_literal(number)), value]
    message = string_literal(f"the index of elt() is not from 1 to {len(values)}")
    return clause.call(node, "case", *parts, clause.call(node, "raise_error", message))


def _to_char(clause: Clause, node: exp.Expr, value: Expression, pattern: Expression) -> Expression:
    if arrow.is_date(value.type) or arrow.is_timestamp(value.type):
        return clause.call(node, "date_format", value, pattern)
    if is_binary(value):
        encoding = literal_text(clause, node, pattern, "a format").lower()
        if encoding in ("hex", "base64"):
            return clause.call(node, encoding, value)
        return clause.call(node, "decode", value, pattern)
    return clause.call(node, "to_char", to_number(clause, node, value), pattern)


def _to_binary(
    clause: Clause, node: exp.Expr, value: Expression, encoding: Expression = _HEX
) -> Expression:
    name = literal_text(clause, node, encoding, "a format").lower()
    if name in ("utf-8", "utf8"):
        return clause.call(node, "cast", value, type=pa.binary())
    if name not in ("hex", "base64"):
        raise clause.source.error(node, f"no format {name!r}; there are hex, utf-8, base64")
    return clause.call(node, "from_hex" if name == "hex" else "unbase64", value)


def _replace(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    old: Expression,
    new: Expression = _EMPTY,
) -> Expression:
    return clause.call(node, "replace", *coerce(clause, node, [value, old, new], "ttt"))


def _reverse(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if is_nested(value.type):
        return clause.call(node, "list_reverse", value)
    if is_binary(value):
        return clause.call(node, "bytes_reverse", value)
    return clause.call(node, "reverse", *coerce(clause, node, [value], "t"))


def _pad(function: str) -> Builder:
    """Return the builder of ``lpad`` or ``rpad``; an empty padding adds nothing."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 2 <= len(arguments) <= 3:
            raise count_error(clause, node, "2 to 3")
        if is_binary(arguments[0]):
            return clause.call(node, f"bytes_{function}", *coerce(clause, node, arguments, "yiy"))
        value, length, *padding = coerce(clause, node, arguments, "tit")
        if not padding:
            return clause.call(node, function, value, length)
        is_empty = clause.call(node, "eq", padding[0], string_literal(""))
        if isinstance(is_empty, Literal) and is_empty.value is False:
            return clause.call(node, function, value, length, *padding)
        unpadded = clause.call(
            node, "left", value, clause.call(node, "greatest", length, integer_literal(0))
        )
        return clause.call(
            node, "case", is_empty, unpadded, clause.call(node, function, value, length, *padding)
        )

    return build


def _left_or_right(function: str) -> Builder:
    """Return the builder of ``left`` or ``right``; a negative length gives the empty text."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        if is_binary(arguments[0]) and function == "left":
            value, length = coerce(clause, node, arguments, "yi")
            return clause.call(node, "bytes_slice", value, integer_literal(1), length)
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


def _regexp_instr(
    clause: Clause, node: exp.Expr, value: Expression, pattern: Expression, *group: Expression
) -> Expression:
    """Read ``regexp_instr(text, pattern[, group])``; Spark ignores the group unless it is NULL."""
    values = coerce(clause, node, [value, pattern], "tt")
    position = clause.call(node, "regexp_position", *values)
    return unless_null(clause, node, position, *coerce(clause, node, [*group], "i"))


def _instr(
    clause: Clause, node: exp.Expr, value: Expression, part: Expression, *start: Expression
) -> Expression:
    """Read ``instr(text, part[, start])``; a negative start would search backward."""
    if len(start) > 1:
        raise clause.source.unsupported(
            node,
            "an occurrence in instr()",
            "for the second one, search again with locate(part, text, instr(text, part) + 1)",
        )
    if not start:
        return clause.call(node, "position", *coerce(clause, node, [value, part], "tt"))
    first = start[0].value if isinstance(start[0], Literal) else None
    if not isinstance(first, int) or first < 1:
        raise clause.source.unsupported(
            node, "a start of instr() that is not a positive number", "use locate()"
        )
    return clause.call(node, "locate", *coerce(clause, node, [part, value, *start], "tti"))


def _like(function: str) -> Builder:
    """Return the builder of ``like(text, pattern[, escape])``; by default, the escape is ``\\``."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 2 <= len(arguments) <= 3:
            raise count_error(clause, node, "2 to 3")
        if len(arguments) == 2:
            arguments = [*arguments, string_literal("\\")]
        return clause.call(node, function, *coerce(clause, node, arguments, "ttt"))

    return build


def _levenshtein(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression, *limit: Expression
) -> Expression:
    """Read ``levenshtein(a, b[, limit])``; a limit that is NULL in a row counts as 0."""
    values = coerce(clause, node, [left, right, *limit], "tti")
    if limit and not isinstance(values[2], Literal):
        values[2] = clause.call(node, "coalesce", values[2], integer_literal(0))
    return clause.call(node, "levenshtein", *values)


def _concat_ws(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``concat_ws(separator, ...)``; a list stands for its elements that are not NULL."""
    if not arguments:
        raise count_error(clause, node, "1 or more")
    separator, *parts = arguments
    (separator,) = coerce(clause, node, [separator], "t")
    texts = []
    for part in parts:
        if is_nested(part.type) and not is_list(part.type):
            raise clause.source.error(node, "concat_ws() takes texts and lists of texts")
        if not is_list(part.type):
            texts.append(as_text(clause, node, part))
            continue
        values = spark_cast(clause, node, part, pa.list_(pa.string()))
        joined = clause.call(node, "list_join", values, separator)
        count = clause.call(node, "length", clause.call(node, "list_compact", values))
        is_empty = clause.call(node, "eq", count, integer_literal(0))
        texts.append(clause.call(node, "case", is_empty, Literal(None, pa.string()), joined))
    return clause.call(node, "concat_ws", separator, *texts)


def _unhex_text(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "unhex", *coerce(clause, node, [value], "t"))


def _split(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``split(text, pattern[, limit])``; a limit of 0 or less is no limit."""
    if not 2 <= len(arguments) <= 3:
        raise count_error(clause, node, "2 to 3")
    value, pattern, *limit = coerce(clause, node, arguments, "tti")
    is_unlimited = not limit or (
        isinstance(limit[0], Literal) and isinstance(limit[0].value, int) and limit[0].value <= 0
    )
    if is_unlimited and isinstance(pattern, Literal):
        return clause.call(node, "split_regex", value, pattern)
    return clause.call(node, "split_limit", value, pattern, *(limit or [integer_literal(-1)]))


def _sentences(
    clause: Clause, node: exp.Expr, value: Expression, *language: Expression
) -> Expression:
    """Read ``sentences(text[, language, country])``; the language has no effect."""
    for part in language:
        literal_text(clause, node, part, "a language")
    return clause.call(node, "sentences", *coerce(clause, node, [value], "t"))


BUILDERS: Final[dict[str, Builder]] = {
    "concat_ws": _concat_ws,
    "levenshtein": check_count((2, 3), _levenshtein),
    "url_encode": call_of("url_encode"),
    "url_decode": call_of("url_decode"),
    "ascii": call_of("code_point"),
    "char": call_of("latin_character"),
    "chr": call_of("latin_character"),
    "bin": call_of("binary_digits"),
    "unbase64": call_of("unbase64"),
    "length": check_count(1, _length),
    "len": check_count(1, _length),
    "char_length": check_count(1, _length),
    "character_length": check_count(1, _length),
    "btrim": _trim("trim", characters_first=False),
    "ltrim": _trim("ltrim", characters_first=True),
    "rtrim": _trim("rtrim", characters_first=True),
    "contains": call_of("contains", kinds="tt"),
    "startswith": call_of("starts_with", kinds="tt"),
    "endswith": call_of("ends_with", kinds="tt"),
    "decode": _decode,
    "encode": call_of("encode"),
    "elt": _elt,
    "find_in_set": call_of("find_in_set"),
    "format_number": check_count(
        2,
        lambda clause, node, value, pattern: clause.call(
            node, "format_number", to_number(clause, node, value), pattern
        ),
    ),
    "format_string": call_of("printf", least=1),
    "printf": call_of("printf", least=1),
    "initcap": call_of("initcap"),
    "instr": check_count((2, 4), _instr),
    "like": _like("like"),
    "ilike": _like("ilike"),
    "locate": call_of("locate", defaults=[integer_literal(1)], least=2),
    "lcase": call_of("full_lower", kinds="t"),
    "ucase": call_of("full_upper", kinds="t"),
    "lower": call_of("full_lower", kinds="t"),
    "upper": call_of("full_upper", kinds="t"),
    "left": _left_or_right("left"),
    "right": _left_or_right("right"),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "luhn_check": call_of("luhn_check"),
    "mask": call_of("mask"),
    "quote": call_of("quote"),
    "repeat": call_of("repeat", kinds="ti"),
    "replace": check_count((2, 3), _replace),
    "reverse": check_count(1, _reverse),
    "sentences": check_count((1, 3), _sentences),
    "space": call_of("space"),
    "split": _split,
    "str_to_map": call_of(
        "text_to_map",
        defaults=[string_literal(","), string_literal(":")],
        kinds="ttt",
        least=1,
    ),
    "jaro_winkler_similarity": call_of("jaro_winkler"),
    "split_part": call_of("split_part_checked"),
    "substring_index": call_of("substring_index"),
    "hex": check_count(1, _hex),
    "unhex": check_count(1, _unhex_text),
    "is_valid_utf8": call_of("is_valid_utf8"),
    "make_valid_utf8": call_of("make_valid_utf8"),
    "validate_utf8": call_of("validate_utf8"),
    "try_validate_utf8": call_of("try_validate_utf8"),
    "regexp": call_of("regexp_matches", kinds="tt"),
    "rlike": call_of("regexp_matches", kinds="tt"),
    "regexp_count": call_of("regexp_count", kinds="tt"),
    "regexp_extract": call_of(
        "regexp_extract", defaults=[integer_literal(1)], kinds="tti", least=2
    ),
    "regexp_extract_all": call_of(
        "regexp_extract_all", defaults=[integer_literal(1)], kinds="tti", least=2
    ),
    "regexp_instr": check_count((2, 3), _regexp_instr),
    "regexp_replace": _regexp_replace,
    "regexp_substr": call_of("regexp_substring"),
    "try_url_decode": null_on_error(call_of("url_decode")),
    "parse_url": call_of("parse_url"),
    "try_parse_url": call_of("try_parse_url"),
    "sha": call_of("sha1"),
    "hmac": call_of("hmac"),
    "sha2": call_of("sha2"),
    "crc32": call_of("crc32"),
    "hash": call_of("murmur3"),
    "xxhash64": call_of("xxhash64"),
    "to_char": check_count(2, _to_char),
    "to_varchar": check_count(2, _to_char),
    "to_number": call_of("to_number"),
    "try_to_number": call_of("try_to_number"),
    "to_binary": check_count((1, 2), _to_binary),
    "try_to_binary": null_on_error(check_count((1, 2), _to_binary)),
    "from_base32": call_of("unbase32"),
    "to_base32": call_of("base32"),
}
