"""Functions of text, bytes and numbers by their names in DuckDB.

Many are calls of one kernel (`call_of`). The functions of this module build the others: calls that
choose a kernel by the types, check constant arguments, or combine several kernels.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Call, Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    as_readers,
    call_of,
    check_count,
    count_error,
    literal_text,
)
from circuits.types.functions.texts.number_texts import count_values

__all__ = ["READERS_BY_NAME"]


def _binary(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``bin``: the binary digits of an integer, or of the bytes of a text."""
    if arrow.is_integer(value.type):
        return clause.call(node, "binary_digits", value)
    return clause.call(node, "bits_of_bytes", value)


def _repeat(clause: Clause, node: exp.Expr, value: Expression, count: Expression) -> Expression:
    if arrow.is_binary(value.type):
        return clause.call(node, "bytes_repeat", value, count)
    is_list = arrow.is_list(value.type) or arrow.is_large_list(value.type)
    if is_list:
        repeated = clause.call(node, "list_flatten", clause.call(node, "list_repeat", value, count))
        is_null = clause.call(node, "is_null", value)
        return clause.call(node, "case", is_null, Literal(None, repeated.type), repeated)
    return clause.call(node, "repeat", value, count)


def _format(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``format('{} of {:.2f}', a, b)``."""
    if not arguments:
        raise count_error(clause, node, "1 or more")
    template = arguments[0]
    if isinstance(template, Literal) and isinstance(template.value, str):
        try:
            needed = count_values(template.value)
        except ValueError as error:
            raise clause.source.error(node, f"format(): {error}") from None
        if needed >= len(arguments):
            raise clause.source.error(
                node, f"format() has {len(arguments) - 1} values for {needed} fields"
            )
    return clause.call(
        node, "format_template", *(_formattable(clause, node, value) for value in arguments)
    )


def _formattable(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a value cast to a type that `format_template` takes."""
    data_type = value.type
    if arrow.is_decimal(data_type) or arrow.is_float32(data_type):
        return clause.call(node, "cast", value, type=pa.float64())
    is_plain = (
        arrow.is_integer(data_type)
        or arrow.is_floating(data_type)
        or arrow.is_boolean(data_type)
        or arrow.is_string(data_type)
        or arrow.is_large_string(data_type)
        or arrow.is_null(data_type)
    )
    return value if is_plain else clause.call(node, "cast", value, type=pa.string())


def _regexp_extract(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``regexp_extract(a, pattern[, group or names][, options])``."""
    if not 2 <= len(arguments) <= 4:
        raise count_error(clause, node, "2 to 4")
    value, pattern, *group_and_options = arguments
    if group_and_options and arrow.is_string(group_and_options[0].type):  # options, but no group
        group_and_options = [integer_literal(0), *group_and_options]
    if not group_and_options or not arrow.is_list(group_and_options[0].type):
        return clause.call(node, "regexp_extract", value, pattern, *group_and_options)
    group_names, *options = group_and_options
    names = _literal_texts(clause, node, group_names, "the names of the groups")
    parts = [
        part
        for number, name in enumerate(names, 1)
        for part in (
            string_literal(name),
            clause.call(node, "regexp_extract", value, pattern, integer_literal(number), *options),
        )
    ]
    groups = clause.call(node, "make_struct", *parts)
    return clause.call(node, "case", clause.call(node, "is_null", value), NULL, groups)


def _literal_texts(
    clause: Clause, node: exp.Expr, value: Expression, description: str
) -> list[str]:
    """Return the texts of a list of literals."""
    if isinstance(value, Literal) and isinstance(value.value, list):
        return [str(text) for text in value.value]
    if isinstance(value, Call) and value.function == "make_list":
        return [literal_text(clause, node, part, description) for part in value.arguments]
    raise clause.source.unsupported(
        node, f"{description} that are not literals", "write ['a', 'b']"
    )


def _md5_number(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    raise clause.source.unsupported(
        node, "md5_number(), whose result has 128 bits,", "use md5(), which is a text"
    )


def _strptime(function: str) -> Builder:
    """Return the builder of ``strptime(a, format)``; of several formats, the first that fits."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        value, format_ = arguments
        if not arrow.is_list(format_.type):
            return clause.call(node, function, value, format_)
        formats = [
            string_literal(text) for text in _literal_texts(clause, node, format_, "the formats")
        ]
        attempts = [clause.call(node, "try_strptime", value, text) for text in formats[:-1]]
        last = clause.call(node, function, value, formats[-1])
        return clause.call(node, "coalesce", *attempts, last)

    return build


def _like_with_escape(function: str, *, negated: bool) -> Builder:
    def build(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
        result = clause.call(node, function, *arguments)
        return clause.call(node, "not", result) if negated else result

    return check_count(3, build)


def _constant_or_null(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if len(arguments) < 2:
        raise count_error(clause, node, "2 or more")
    value, *others = arguments
    null_branches = [  # of CASE: condition, value, condition, value, ...
        part for other in others for part in (clause.call(node, "is_null", other), NULL)
    ]
    return clause.call(node, "case", *null_branches, value)


def _binomial(clause: Clause, node: exp.Expr, total: Expression, chosen: Expression) -> Expression:
    return clause.call(node, "binomial", total, chosen)


def _floor_quotient(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> tuple[Expression, Expression, Expression]:
    """Return two numbers as floats, and their quotient rounded down."""
    left, right = (clause.call(node, "cast", value, type=pa.float64()) for value in (left, right))
    return left, right, clause.call(node, "floor", clause.call(node, "divide", left, right))


def _floor_modulo(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> Expression:
    left, right, quotient = _floor_quotient(clause, node, left, right)
    return clause.call(node, "subtract", left, clause.call(node, "multiply", right, quotient))


def _floor_divide(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> Expression:
    return _floor_quotient(clause, node, left, right)[2]


def _next_after(clause: Clause, node: exp.Expr, value: Expression, other: Expression) -> Expression:
    if arrow.is_float32(value.type) and arrow.is_float32(other.type):
        raise clause.source.unsupported(node, "nextafter() of a FLOAT", "cast it to DOUBLE")
    return clause.call(node, "next_after", value, other)


def _extract_all(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
    value, pattern, *group = arguments
    return clause.call(
        node, "regexp_extract_all", value, pattern, *(group or (integer_literal(0),))
    )


_BUILDERS: Final[dict[str, Builder]] = {
    "bin": check_count(1, _binary),
    "to_binary": check_count(1, _binary),
    "unbin": call_of("bytes_of_bits"),
    "from_binary": call_of("bytes_of_bits"),
    "to_base": call_of("to_base"),
    "bar": call_of("bar"),
    "format": _format,
    **dict.fromkeys(("format_bytes", "formatreadablesize"), call_of("format_bytes")),
    "formatreadabledecimalsize": call_of("format_decimal_bytes"),
    "decode": call_of("decode_utf8"),
    "repeat": check_count(2, _repeat),
    "jaro_similarity": call_of("jaro_similarity"),
    "jaro_winkler_similarity": call_of("jaro_winkler_similarity"),
    "like_escape": _like_with_escape("like", negated=False),
    "not_like_escape": _like_with_escape("like", negated=True),
    "ilike_escape": _like_with_escape("ilike", negated=False),
    "not_ilike_escape": _like_with_escape("ilike", negated=True),
    "md5_number": check_count(1, _md5_number),
    "nfc_normalize": call_of("normalize_nfc"),
    "strip_accents": call_of("strip_accents"),
    "regexp_escape": call_of("regexp_escape"),
    "regexp_extract": _regexp_extract,
    "regexp_extract_all": check_count((2, 3), _extract_all),
    "strptime": _strptime("strptime"),
    "try_strptime": _strptime("try_strptime"),
    "constant_or_null": _constant_or_null,
    "even": call_of("even"),
    "gamma": call_of("gamma"),
    "lgamma": call_of("log_gamma"),
    "nextafter": check_count(2, _next_after),
    "signbit": call_of("sign_bit"),
    "binom": check_count(2, _binomial),
    "fmod": check_count(2, _floor_modulo),
    "fdiv": check_count(2, _floor_divide),
}
READERS_BY_NAME: Final[dict[str, Reader]] = as_readers(spark=False, table=_BUILDERS)
