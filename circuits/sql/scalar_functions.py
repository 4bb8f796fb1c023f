"""Scalar functions: a call in SQL becomes a function of `circuits.types.functions`.

sqlglot has a class for each well-known function, whatever its name in the text, and represents all
other functions by name. Both are tables here. A function that needs more than a reordering of its
arguments has a reader.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.expressions import (
    NULL,
    READERS,
    Clause,
    Reader,
    check_spark_text,
    integer,
    is_aggregate,
    text,
)
from circuits.types.arrow_types import is_nested

__all__ = ["FUNCTION_ARGUMENTS", "READERS_BY_NAME"]

# The function, and the arguments of the node in the order of its parameters.
FUNCTION_ARGUMENTS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    exp.Abs: ("abs", "this"),
    exp.Ceil: ("ceil", "this"),
    exp.Contains: ("contains", "this", "expression"),
    exp.EndsWith: ("ends_with", "this", "expression"),
    exp.Exp: ("exp", "this"),
    exp.Floor: ("floor", "this"),
    exp.Left: ("left", "this", "expression"),
    exp.Length: ("length", "this"),
    exp.Ln: ("ln", "this"),
    exp.Lower: ("lower", "this"),
    exp.Nullif: ("nullif", "this", "expression"),
    exp.Pow: ("power", "this", "expression"),
    exp.Repeat: ("repeat", "this", "times"),
    exp.Replace: ("replace", "this", "expression", "replacement"),
    exp.Reverse: ("reverse", "this"),
    exp.Right: ("right", "this", "expression"),
    exp.Round: ("round", "this", "decimals"),
    exp.Sign: ("sign", "this"),
    exp.SplitPart: ("split_part", "this", "delimiter", "part_index"),
    exp.Sqrt: ("sqrt", "this"),
    exp.StartsWith: ("starts_with", "this", "expression"),
    exp.StrPosition: ("position", "this", "substr"),
    exp.Trunc: ("trunc", "this"),
    exp.Upper: ("upper", "this"),
}
# The readers of the functions that sqlglot represents by name.
READERS_BY_NAME: Final[dict[str, Reader]] = {}


def _function_reader(function: str, *names: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        return clause.call(node, function, *clause.all(node, *names))

    return read


def _variadic_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Func) -> Expression:
        # ``ignore_nulls`` is set as DuckDB treats NULLs, so it needs no check.
        clause.source.accept(node, "this", "expressions", "ignore_nulls")
        parts = [node.this, *node.expressions]
        return clause.call(node, function, *(clause.read(part) for part in parts))

    return read


def _read_concat(clause: Clause, node: exp.Concat) -> Expression:
    """Read ``concat`` and ``||``; the function skips NULLs, the operator does not."""
    clause.source.accept(node, "expressions", "safe", "coalesce")
    values = [clause.read(part) for part in node.expressions]
    if any(is_nested(value.type) for value in values):
        skips_nulls = node.args.get("coalesce") and not clause.source.is_spark
        return clause.call(node, "list_concat" if skips_nulls else "list_concat_or_null", *values)
    parts = []
    for part in node.expressions:
        value = _read_as_text(clause, part)
        if node.args.get("coalesce"):
            value = clause.call(part, "coalesce", value, text(""))
        parts.append(value)
    return parts[0] if len(parts) == 1 else clause.call(node, "concat", *parts)


def _read_pipe(clause: Clause, node: exp.DPipe) -> Expression:
    clause.source.accept(node, "this", "expression", "safe")
    if any(is_nested(clause.read(side).type) for side in (node.left, node.right)):
        sides = [clause.read(side) for side in (node.left, node.right)]
        return clause.call(node, "list_concat_or_null", *sides)
    return clause.call(
        node, "concat", _read_as_text(clause, node.left), _read_as_text(clause, node.right)
    )


def _read_as_text(clause: Clause, node: exp.Expr) -> Expression:
    value = clause.read(node)
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return value
    check_spark_text(clause, node, value)
    return clause.call(node, "cast", value, type=pa.string())


def _read_trim(clause: Clause, node: exp.Trim) -> Expression:
    names = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim", "": "trim"}
    clause.source.accept(node, "this", "expression", "position")
    function = names[(node.args.get("position") or "").upper()]
    parts = [part for part in (node.this, node.args.get("expression")) if part is not None]
    return clause.call(node, function, *(clause.read(part) for part in parts))


def _read_substring(clause: Clause, node: exp.Substring) -> Expression:
    """Read SUBSTRING; in Spark, position 0 is the first character, too."""
    value, start, *length = clause.all(node, "this", "start", "length")
    if isinstance(start, Literal):
        start = integer(1) if clause.source.is_spark and start.value == 0 else start
    elif clause.source.is_spark:
        zero = clause.call(node, "eq", start, integer(0))
        start = clause.call(node, "case", zero, integer(1), start)
    return clause.call(node, "substring", value, start, *length)


def _read_pad(clause: Clause, node: exp.Pad) -> Expression:
    clause.source.accept(node, "this", "expression", "fill_pattern", "is_left")
    function = "lpad" if node.args.get("is_left") else "rpad"
    padding = node.args.get("fill_pattern")  # Spark and PostgreSQL pad with blanks without it
    parts = (
        (node.this, node.expression) if padding is None else (node.this, node.expression, padding)
    )
    return clause.call(node, function, *(clause.read(part) for part in parts))


def _read_log(clause: Clause, node: exp.Log) -> Expression:
    """Read LOG; ``log(x)`` has base ten, as in DuckDB."""
    clause.source.accept(node, "this", "expression")
    base, argument = node.this, node.args.get("expression")
    if argument is None:
        return clause.call(node, "log10", clause.read(base))
    if isinstance(base, exp.Literal) and base.this == "10":
        return clause.call(node, "log10", clause.read(argument))
    raise clause.source.unsupported(node, "log() to this base", "divide ln(x) by ln(base)")


def _binary_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(
                node, f"{node.name}() takes 2 arguments, not {len(node.expressions)}"
            )
        return clause.call(node, function, *(clause.read(part) for part in node.expressions))

    return read


def _read_by_name(clause: Clause, node: exp.Anonymous) -> Expression:
    clause.source.accept(node, "this", "expressions")
    if is_aggregate(node):
        return clause.aggregate(clause, node)
    reader = READERS_BY_NAME.get(node.name.lower())
    return reader(clause, node) if reader else clause.unknown(node)


def _read_coalesce(clause: Clause, node: exp.Coalesce) -> Expression:
    clause.source.accept(node, "this", "expressions", "is_nvl", "is_null")
    parts = [clause.read(part) for part in (node.this, *node.expressions)]
    if all(part == NULL for part in parts):
        return NULL
    return clause.call(node, "coalesce", *parts)


READERS.update({kind: _function_reader(*row) for kind, row in FUNCTION_ARGUMENTS.items()})
READERS.update(
    {
        exp.Anonymous: _read_by_name,
        exp.Coalesce: _read_coalesce,
        exp.Concat: _read_concat,
        exp.DPipe: _read_pipe,
        exp.Greatest: _variadic_reader("greatest"),
        exp.Least: _variadic_reader("least"),
        exp.Log: _read_log,
        exp.Pad: _read_pad,
        exp.Substring: _read_substring,
        exp.Trim: _read_trim,
    }
)
READERS_BY_NAME.update(
    {"prefix": _binary_reader("starts_with"), "suffix": _binary_reader("ends_with")}
)
