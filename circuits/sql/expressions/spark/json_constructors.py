"""JSON_OBJECT, JSON_ARRAY and JSON_STRING of Flink, in dialect spark.

JSON_OBJECT has members that are NULL as ``null``, JSON_ARRAY leaves such elements out, unless
``NULL ON NULL`` or ``ABSENT ON NULL`` says otherwise. A value that is itself such a call is JSON.

Reference: JSON functions in Flink's documentation.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import NULL, string_literal
from circuits.sql.syntax.json_syntax import LEAVES_NULLS_OUT
from circuits.types.functions.nested.json_columns import quote_text

__all__ = ["READERS_BY_NAME"]

_CONSTRUCTORS: Final = frozenset({"json_object", "json_array", "json_string", "json_query"})


def _json_of(clause: Clause, node: exp.Expr) -> Expression:
    """Return a value as JSON; NULL for NULL."""
    value = clause.read(node)
    inner = node.unnest()
    if isinstance(inner, exp.Anonymous) and inner.name.lower() in _CONSTRUCTORS:
        return value
    return clause.call(node, "to_json_without_null", value)


def _join(clause: Clause, node: exp.Anonymous, parts: list[Expression], start: str) -> Expression:
    end = {"{": "}", "[": "]"}[start]
    if not parts:
        return string_literal(start + end)
    members = clause.call(node, "concat_ws", string_literal(","), *parts)
    return clause.call(node, "concat", string_literal(start), members, string_literal(end))


def _read_object(clause: Clause, node: exp.Anonymous) -> Expression:
    leaves_nulls_out = node.meta.get(LEAVES_NULLS_OUT, False)
    if len(node.expressions) % 2:
        raise clause.source.error(node, "JSON_OBJECT() takes pairs KEY k VALUE x")
    members = []
    for key, part in zip(node.expressions[::2], node.expressions[1::2], strict=True):
        if not isinstance(key, exp.Literal) or not key.is_string:
            raise clause.source.unsupported(
                key, "a key of JSON_OBJECT() that is not constant", "write it as a text"
            )
        clause.source.allow_arguments(key, "this", "is_string")
        name = string_literal(f"{quote_text(key.this)}:")
        value = _json_of(clause, part)
        if not leaves_nulls_out:
            value = clause.call(node, "coalesce", value, string_literal("null"))
        member = clause.call(node, "concat", name, value)
        is_null = clause.call(node, "is_null", value)
        members.append(clause.call(node, "case", is_null, NULL, member))
    return _join(clause, node, members, "{")


def _read_array(clause: Clause, node: exp.Anonymous) -> Expression:
    parts = [_json_of(clause, part) for part in node.expressions]
    if not node.meta.get(LEAVES_NULLS_OUT, True):
        null = string_literal("null")
        parts = [clause.call(node, "coalesce", part, null) for part in parts]
    return _join(clause, node, parts, "[")


def _read_string(clause: Clause, node: exp.Anonymous) -> Expression:
    if len(node.expressions) != 1:
        raise clause.source.error(node, "JSON_STRING() takes one value")
    return _json_of(clause, node.expressions[0])


READERS_BY_NAME: Final[dict[str, Reader]] = {
    "json_array": _read_array,
    "json_object": _read_object,
    "json_string": _read_string,
}
