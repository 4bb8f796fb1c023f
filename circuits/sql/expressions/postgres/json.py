"""The operators ``||``, ``-``, ``#>``, ``#>>`` and ``#-`` of JSON, and jsonb_set, as in PostgreSQL.

JSON is text here. A path is a list of texts, or a constant text such as ``'{a,0}'``. An operand of
``||`` and ``-`` is JSON if its expression says so, or if it is a column of JSON.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions import casts, dates, scalar_functions
from circuits.sql.expressions.intervals import interval_operand
from circuits.sql.expressions.json_functions import constructors
from circuits.sql.expressions.json_functions.values import mark_json
from circuits.sql.expressions.literals import string_literal
from circuits.types.functions.type_rules import is_text

__all__ = ["READERS"]


def _may_be_json(node: exp.Expr, is_json: bool) -> bool:
    return is_json or isinstance(node.unnest(), exp.Literal | exp.Null)


def _read_pipe(clause: Clause, node: exp.DPipe) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "safe")
    sides = (node.left, node.right)
    values = [clause.read(side) for side in sides]
    is_json = [bool(clause.json_kind(value)) for value in values]
    # A literal beside JSON is JSON; a text beside JSON makes the result a text.
    if not any(is_json) or not all(map(_may_be_json, sides, is_json)):
        operands = scalar_functions.unify_bytes(clause, node, *values)
        return scalar_functions.concatenate(clause, node, *operands)
    return clause.call(node, "json_concat", *values)


def _read_minus(clause: Clause, node: exp.Sub) -> Expression:
    if interval_operand(node.right) is not None:
        return dates.READERS[exp.Sub](clause, node)
    left, right = clause.read_arguments(node, "this", "expression")
    if not clause.json_kind(left):
        return dates.add_values(clause, node, "subtract", left, right)
    if pa.types.is_integer(right.type):
        return clause.call(node, "json_delete_position", left, right)
    return clause.call(node, "json_delete_name", left, right)


def _read_path(clause: Clause, node: exp.Expr) -> Expression:
    """Read a path. The text of a list has no quotes and no escapes here."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        return clause.read(node)
    match = re.fullmatch(r"\s*\{([^{}\"\\]*)\}\s*", node.this)
    if match is None:
        raise clause.source.unsupported(node, "this text of a path", "write ARRAY['a', '0']")
    clause.source.allow_arguments(node, "this", "is_string")
    steps = [step.strip() for step in match[1].split(",")] if match[1].strip() else []
    if not steps:
        return clause.call(node, "cast", clause.call(node, "make_list"), type=pa.list_(pa.string()))
    return clause.call(node, "make_list", *map(string_literal, steps))


def _path_reader(function: str) -> Reader:
    """Return the reader of an operator or function of JSON, a path, and maybe other arguments."""

    def read(clause: Clause, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Anonymous):
            if not 3 <= len(node.expressions) <= 4:
                raise clause.source.error(node, f"{node.name}() takes 3 or 4 arguments")
            document, path, *others = node.expressions
        else:
            clause.source.allow_arguments(node, "this", "expression", "json_type")
            document, path, others = node.this, node.expression, []
        steps = _read_path(clause, path)
        return clause.call(node, function, clause.read(document), steps, *map(clause.read, others))

    return read


def _steps_reader(function: str) -> Reader:
    """Return the reader of a function of JSON and the steps of a path."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) < 2:
            raise clause.source.error(node, f"{node.name}() takes JSON and one or more steps")
        document, *steps = map(clause.read, node.expressions)
        return clause.call(node, function, document, clause.call(node, "make_list", *steps))

    return read


def _read_cast(clause: Clause, node: exp.Cast) -> Expression:
    """Read a cast: a ``jsonb`` has its members in one order, and its text has blanks."""
    operand = clause.read(node.this)
    value = casts.cast_value(clause, node, operand)
    kind = node.to.this
    is_plain_text_value = is_text(value.type) and clause.json_kind(value) != "jsonb"
    if kind == exp.DType.JSONB and is_plain_text_value:
        return mark_json(clause, clause.call(node, "jsonb_of_text", value), "jsonb")
    is_plain_text = kind in (exp.DType.TEXT, exp.DType.VARCHAR) and not node.to.expressions
    if is_plain_text and is_text(value.type) and clause.json_kind(operand) == "jsonb":
        return clause.call(node, "jsonb_text", value)
    return value


def _read_pretty(clause: Clause, node: exp.Anonymous) -> Expression:
    if len(node.expressions) != 1:
        raise clause.source.error(node, "jsonb_pretty() takes one value")
    return clause.call(node, "jsonb_pretty", clause.read(node.expressions[0]))


def _read_constructor(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``jsonb_build_object(...)`` or ``jsonb_build_array(...)``, in normal form."""
    value = constructors.READERS_BY_NAME[node.name.lower()](clause, node)
    return mark_json(clause, clause.call(node, "jsonb_of_text", value), "jsonb")


READERS_BY_NAME: Final[dict[str, Reader]] = {
    "jsonb_build_array": _read_constructor,
    "jsonb_build_object": _read_constructor,
    "jsonb_pretty": _read_pretty,
    **{
        prefix + name: _steps_reader(function)
        for prefix in ("json_extract_path", "jsonb_extract_path")
        for name, function in (("", "json_at_path"), ("_text", "json_text_at_path"))
    },
    "jsonb_set": _path_reader("json_set"),
    "jsonb_insert": _path_reader("json_insert"),
}
READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Cast: _read_cast,
    exp.DPipe: _read_pipe,
    exp.JSONBDeleteAtPath: _path_reader("json_delete_path"),
    exp.JSONBExtract: _path_reader("json_at_path"),
    exp.JSONBExtractScalar: _path_reader("json_text_at_path"),
    exp.Sub: _read_minus,
}
