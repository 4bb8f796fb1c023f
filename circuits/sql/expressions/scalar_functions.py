"""Scalar functions: a call in SQL becomes a call of a function of `circuits.types.functions`.

sqlglot has a class for each well-known function, whatever its name in the text (``ceil`` and
``ceiling`` are both ``exp.Ceil``), and represents any other function by its name. So there is a
table by class and a table by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.casts import dialect_text
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.sql.expressions.postgres.lists import concatenate_lists
from circuits.sql.expressions.postgres.positions import at_least
from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested.list_rules import is_list

__all__ = [
    "READERS",
    "READERS_BY_NAME",
    "concatenate",
    "length_of",
    "read_literal_as_bytes",
    "read_operands",
    "read_substring_arguments",
    "unify_bytes",
]

# Functions that need no reader of their own: the name of the function, and the names of the node's
# arguments in the order of the function's parameters.
SIMPLE_FUNCTIONS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    exp.Abs: ("abs", "this"),
    exp.Cbrt: ("cbrt", "this"),  # PostgreSQL's ||/ x; cbrt(x) is read by name
    exp.Contains: ("contains", "this", "expression"),
    exp.EndsWith: ("ends_with", "this", "expression"),
    exp.Exp: ("exp", "this"),
    exp.Ln: ("ln", "this"),
    exp.Lower: ("lower", "this"),
    exp.Nullif: ("nullif", "this", "expression"),
    exp.Pow: ("power", "this", "expression"),
    exp.Repeat: ("repeat", "this", "times"),  # replicate() of SQL Server; repeat() by name
    exp.Replace: ("replace", "this", "expression", "replacement"),
    exp.Reverse: ("reverse", "this"),
    exp.Sign: ("sign", "this"),
    exp.Sqrt: ("sqrt", "this"),
    exp.StartsWith: ("starts_with", "this", "expression"),
    exp.Upper: ("upper", "this"),
}

# The dialects in which length() counts the bytes of a text, not its characters.
LENGTH_IN_BYTES: Final = ("clickhouse", "doris", "mysql", "starrocks")
# The greatest power of ten of a float64 is 1e308.
MAX_EXPONENT: Final = 308


def _function_reader(function: str, *argument_names: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        return clause.call(node, function, *clause.read_arguments(node, *argument_names))

    return read


def _read_arguments(
    clause: Clause, node: exp.Expr, names: Sequence[str], *flags: str
) -> list[Expression]:
    """Return the arguments that are set.

    sqlglot sets the flags to true in some dialects; to other values if the call has more arguments.
    """
    _check_arguments(clause, node, names, *flags)
    return [clause.read(node.args[name]) for name in names if node.args.get(name)]


def _check_arguments(clause: Clause, node: exp.Expr, names: Sequence[str], *flags: str) -> None:
    if any(isinstance(node.args.get(flag), exp.Expr) for flag in flags):
        name = clause.source.name_in_text(node)
        raise clause.source.error(node, f"{name}() takes {len(names)} arguments or fewer")
    clause.source.allow_arguments(node, *names, *flags)


def _variadic_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Func) -> Expression:
        # sqlglot sets ``ignore_nulls``; the function ignores NULLs, as in DuckDB.
        clause.source.allow_arguments(node, "this", "expressions", "ignore_nulls")
        arguments = [node.this, *node.expressions]
        return clause.call(node, function, *map(clause.read, arguments))

    return read


def _read_length(clause: Clause, node: exp.Length) -> Expression:
    return length_of(clause, node, clause.read(node.this))


def length_of(clause: Clause, node: exp.Length, value: Expression) -> Expression:
    """Return ``length``; sqlglot sets ``binary`` in the dialects where it also takes bytes."""
    _check_arguments(clause, node, ["this"], "binary")
    is_in_bytes = pa.types.is_binary(value.type) or clause.source.dialect in LENGTH_IN_BYTES
    if node.args.get("binary") and is_in_bytes and not is_nested(value.type):
        return clause.call(node, "octet_length", value)
    return clause.call(node, "length", value)


def _side_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Left | exp.Right) -> Expression:
        flag = "negative_length_returns_empty"  # in Snowflake; left('abc', -1) is 'ab' in DuckDB
        value, length = _read_arguments(clause, node, ("this", "expression"), flag)
        if node.args.get(flag):
            length = at_least(clause, node, length, 0)
        return clause.call(node, function, value, length)

    return read


def _read_split_part(clause: Clause, node: exp.SplitPart) -> Expression:
    """Read ``split_part``; in Snowflake, part 0 is the first, and '' separates nothing."""
    names = ("this", "delimiter", "part_index")
    flags = ("part_index_zero_as_one", "empty_delimiter_returns_whole")
    arguments = _read_arguments(clause, node, names, *flags)
    if len(arguments) < len(names) or not all(map(node.args.get, flags)):
        return clause.call(node, "split_part", *arguments)
    value, delimiter, part = arguments
    part = _replace_zero(clause, node, part)
    return clause.call(node, "split_part_checked", value, delimiter, part)


def _replace_zero(clause: Clause, node: exp.Expr, position: Expression) -> Expression:
    """Return a position, and 1 in place of 0."""
    if isinstance(position, Literal):
        return integer_literal(1) if position.value == 0 else position
    is_zero = clause.call(node, "eq", position, integer_literal(0))
    return clause.call(node, "case", is_zero, integer_literal(1), position)


def _read_concat(clause: Clause, node: exp.Concat) -> Expression:
    """Read concat(), except in PostgreSQL; it skips NULLs, except in Spark."""
    clause.source.allow_arguments(node, "expressions", "safe", "coalesce")
    values = [clause.read(part) for part in node.expressions]
    if any(is_nested(value.type) for value in values):
        skips_nulls = node.args.get("coalesce") and not clause.source.is_spark
        return clause.call(node, "list_concat" if skips_nulls else "list_concat_or_null", *values)
    if clause.source.is_spark and all(pa.types.is_binary(value.type) for value in values):
        return values[0] if len(values) == 1 else clause.call(node, "bytes_concat", *values)
    parts = []
    for part, value in zip(node.expressions, values, strict=True):
        value = _as_text(clause, part, value)
        if node.args.get("coalesce"):
            value = clause.call(part, "coalesce", value, string_literal(""))
        parts.append(value)
    return parts[0] if len(parts) == 1 else clause.call(node, "concat", *parts)


def _read_pipe(clause: Clause, node: exp.DPipe) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "safe")
    return concatenate(clause, node, *read_operands(clause, node))


def concatenate(clause: Clause, node: exp.DPipe, left: Expression, right: Expression) -> Expression:
    """Return ``left || right`` of the operands that `read_operands` returns."""
    if clause.source.is_postgres and is_list(left.type) != is_list(right.type):
        if is_list(left.type) and not pa.types.is_null(right.type):
            return clause.call(node, "list_append", left, right)
        if is_list(right.type) and not pa.types.is_null(left.type):
            return clause.call(node, "list_prepend", right, left)
    if clause.source.is_postgres and (is_list(left.type) or is_list(right.type)):
        return concatenate_lists(clause, node, left, right)
    if is_nested(left.type) or is_nested(right.type):
        return clause.call(node, "list_concat_or_null", left, right)
    if pa.types.is_binary(left.type) and pa.types.is_binary(right.type):
        return clause.call(node, "bytes_concat", left, right)
    texts = _as_text(clause, node.left, left), _as_text(clause, node.right, right)
    return clause.call(node, "concat", *texts)


def read_operands(clause: Clause, node: exp.Binary) -> tuple[Expression, Expression]:
    """Return the operands; in PostgreSQL, a literal text beside bytes is read as bytes."""
    left, right = clause.read(node.left), clause.read(node.right)
    return unify_bytes(clause, node, left, right)


def unify_bytes(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> tuple[Expression, Expression]:
    """Return two operands; in PostgreSQL, a literal text beside bytes as bytes."""
    if not clause.source.is_postgres:
        return left, right
    if pa.types.is_binary(right.type):
        left = read_literal_as_bytes(clause, node, left)
    elif pa.types.is_binary(left.type):
        right = read_literal_as_bytes(clause, node, right)
    return left, right


def read_literal_as_bytes(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a literal text as the bytes that PostgreSQL reads, another value as it is."""
    is_text = isinstance(value, Literal) and pa.types.is_string(value.type)
    return clause.call(node, "postgres_bytes", value) if is_text else value


def _as_text(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return value
    if pa.types.is_binary(value.type) and not clause.source.is_spark:
        function = "postgres_bytes_text" if clause.source.is_postgres else "escape_bytes"
        return clause.call(node, function, value)
    value = dialect_text(clause, node, value)
    return clause.call(node, "cast", value, type=pa.string())


def _read_round(clause: Clause, node: exp.Round) -> Expression:
    """Read ``round(x)`` and ``round(x, digits)``; to NULL digits it is NULL."""
    flag = "casts_non_integer_decimals"  # in Snowflake; here, digits are an integer literal
    value, *digits = _read_arguments(clause, node, ("this", "decimals"), flag)
    if any(map(_is_null, digits)):
        return Literal(None, clause.call(node, "round", value).type)
    return clause.call(node, "round", value, *digits)


def _read_trunc(clause: Clause, node: exp.Trunc) -> Expression:
    """Read ``trunc(x)`` and ``trunc(x, digits)``, which has the type of a float x."""
    flag = "fractions_supported"  # in Snowflake; it changes nothing here
    value, *digits = _read_arguments(clause, node, ("this", "decimals"), flag)
    result = _truncate(clause, node, value, *digits)
    if not pa.types.is_float32(value.type):
        return result
    return clause.call(node, "cast", result, type=value.type)


def _truncate(
    clause: Clause, node: exp.Trunc, value: Expression, digits: Expression | None = None
) -> Expression:
    if digits is None:
        return clause.call(node, "trunc", value)
    if _is_null(digits):
        return Literal(None, clause.call(node, "trunc", value).type)
    if not pa.types.is_floating(value.type):
        return clause.call(node, "round_to_zero", value, digits)
    if not isinstance(digits, Literal) or not isinstance(digits.value, int):
        raise clause.source.unsupported(
            node, "trunc() of a float to digits that are not constant", "cast it to a decimal"
        )
    return _truncate_float(clause, node, value, digits.value)


def _is_null(value: Expression) -> bool:
    return isinstance(value, Literal) and value.value is None


def _truncate_float(clause: Clause, node: exp.Trunc, value: Expression, digits: int) -> Expression:
    """Return a float that is multiplied by a power of ten, truncated, and divided by the power.

    If there is no such power, it is the same number, as in DuckDB; to fewer than -308 digits, it is
    zero in PostgreSQL.
    """
    if digits < -MAX_EXPONENT and clause.source.is_postgres:
        is_finite = clause.call(node, "is_finite", value)
        return clause.call(node, "case", is_finite, Literal(0.0, pa.float64()), value)
    if abs(digits) > MAX_EXPONENT:
        return value
    power = Literal(10.0 ** abs(digits), pa.float64())
    functions = ("multiply", "divide") if digits >= 0 else ("divide", "multiply")
    scaled = clause.call(node, functions[0], value, power)
    result = clause.call(node, functions[1], clause.call(node, "trunc", scaled), power)
    if digits < 0:
        return result
    is_scaled = clause.call(node, "is_finite", scaled)
    return clause.call(node, "case", is_scaled, result, value)


def _read_trim(clause: Clause, node: exp.Trim) -> Expression:
    functions = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim", "": "trim"}
    clause.source.allow_arguments(node, "this", "expression", "position")
    position = node.args.get("position") or ""
    if not isinstance(position, str):  # sqlglot takes a third argument for the word
        name = clause.source.name_in_text(node)
        raise clause.source.error(node, f"{name}() takes a text and maybe characters")
    function = functions[position.upper()]
    characters = node.args.get("expression")
    arguments = [node.this] if characters is None else [node.this, characters]
    return clause.call(node, function, *map(clause.read, arguments))


def read_substring_arguments(clause: Clause, node: exp.Substring) -> tuple[Expression, ...]:
    """Return the text, the start, and the length if there is one; without FROM the start is 1."""
    arguments = tuple(_read_arguments(clause, node, ("this", "start", "length"), "zero_start"))
    if len(arguments) == 1:
        name = clause.source.name_in_text(node)
        raise clause.source.error(node, f"{name}() takes a text, a start and maybe a length")
    if node.args.get("start") is None:
        return arguments[0], integer_literal(1), arguments[1]
    return arguments


def _read_substring(clause: Clause, node: exp.Substring) -> Expression:
    """Read SUBSTRING; in Spark and Snowflake, positions 0 and 1 are both the first character."""
    value, start, *length = read_substring_arguments(clause, node)
    is_snowflake = bool(node.args.get("zero_start"))
    if not clause.source.is_spark and not is_snowflake:
        return clause.call(node, "substring", value, start, *length)
    if clause.source.is_spark and pa.types.is_binary(value.type):
        return clause.call(node, "bytes_slice", value, start, *length)
    if clause.source.is_spark:
        value, start, *length = coerce(clause, node, [value, start, *length], "tii")
    # DuckDB reads a negative length as the characters before the start.
    length = [at_least(clause, node, part, 0) for part in length]
    start = _replace_zero(clause, node, start)
    part = clause.call(node, "substring", value, start, *length)
    if not is_snowflake or (
        isinstance(start, Literal) and start.value is not None and start.value > 0
    ):
        return part
    # From a start before the text, Snowflake returns an empty text; others skip the missing part.
    first = clause.call(node, "subtract", integer_literal(0), clause.call(node, "length", value))
    is_before = clause.call(node, "lt", start, first)
    empty = clause.call(node, "left", part, integer_literal(0))  # NULL if the part is NULL
    return clause.call(node, "case", is_before, empty, part)


def _read_pad(clause: Clause, node: exp.Pad) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "fill_pattern", "is_left")
    function = "lpad" if node.args.get("is_left") else "rpad"
    arguments = [node.this, node.expression]
    # Without it, Spark and PostgreSQL pad with blanks. DuckDB refuses the call; here it does not.
    if node.args.get("fill_pattern") is not None:
        arguments.append(node.args["fill_pattern"])
    return clause.call(node, function, *map(clause.read, arguments))


def _binary_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(
                node, f"{node.name}() takes 2 arguments, not {len(node.expressions)}"
            )
        return clause.call(node, function, *map(clause.read, node.expressions))

    return read


def _read_coalesce(clause: Clause, node: exp.Coalesce) -> Expression:
    clause.source.allow_arguments(node, "this", "expressions", "is_nvl", "is_null")
    parts = [clause.read(part) for part in (node.this, *node.expressions)]
    if all(part == NULL for part in parts):
        return NULL
    return clause.call(node, "coalesce", *parts)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    **{
        node_class: _function_reader(function, *argument_names)
        for node_class, (function, *argument_names) in SIMPLE_FUNCTIONS.items()
    },
    exp.Coalesce: _read_coalesce,
    exp.Concat: _read_concat,
    exp.DPipe: _read_pipe,
    exp.Greatest: _variadic_reader("greatest"),
    exp.Least: _variadic_reader("least"),
    exp.Left: _side_reader("left"),
    exp.Length: _read_length,
    exp.Pad: _read_pad,
    exp.Right: _side_reader("right"),
    exp.Round: _read_round,
    exp.SplitPart: _read_split_part,
    exp.Substring: _read_substring,
    exp.Trim: _read_trim,
    exp.Trunc: _read_trunc,
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "prefix": _binary_reader("starts_with"),
    "suffix": _binary_reader("ends_with"),
}
