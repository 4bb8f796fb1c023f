"""Values as JSON, which is text here: JSON in a value is not quoted.

Which texts are JSON is a matter of the plan (`circuits.plan.json_values`): a cast to JSON checks a
text by ``json_of_text``, and a text that is put together as JSON is marked by ``as_json``.
"""

from __future__ import annotations

from sqlglot import exp

from circuits.plan.expressions import Call, Expression
from circuits.plan.json_values import json_function_name
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import string_literal
from circuits.types.arrow_types import VARIANT
from circuits.types.functions.type_rules import is_text

__all__ = ["call_json", "join_texts", "mark_json", "to_json_reader", "value_as_json"]


def call_json(clause: Clause, node: exp.Expr, function: str, *arguments: Expression) -> Expression:
    """Return a call of a function of a JSON text, by the rules of the dialect.

    Of two members of an object with one name, the first one counts in DuckDB, and the last one in
    PostgreSQL, Flink and Spark. Each writes numbers in its own notation.
    """
    prefix = "spark_" if clause.source.is_spark else "last_" if clause.source.is_postgres else ""
    return clause.call(node, prefix + function, *arguments)


def mark_json(clause: Clause, value: Expression, kind: str = "json") -> Expression:
    """Return a value whose texts are JSON of a kind, as in `circuits.plan.json_values`."""
    if clause.source.is_spark or clause.json_kind(value) == kind:
        return value
    # Not clause.call(), which folds a constant to a literal, and a literal has no kind.
    return Call("as_json", (value, string_literal(kind)), value.type)


def join_texts(
    clause: Clause, node: exp.Expr, parts: list[Expression], start: str, end: str
) -> Expression:
    """Return JSON texts with commas in between, as JSON."""
    separated = [piece for part in parts for piece in (string_literal(","), part)][1:]
    whole = clause.call(node, "concat", string_literal(start), *separated, string_literal(end))
    return mark_json(clause, whole)


def value_as_json(clause: Clause, node: exp.Expr, value: Expression, function: str) -> Expression:
    """Return a value as JSON by a function such as to_json; JSON in it is not quoted."""
    kind = clause.json_kind(value)
    if not kind and clause.source.is_postgres:
        return mark_json(clause, call_json(clause, node, "to_json", value))
    if not kind:
        return mark_json(clause, clause.call(node, function, value))
    if is_text(value.type) and (kind == "jsonb" or _has_no_blanks(value)):
        return value
    is_duckdb = not (clause.source.is_spark or clause.source.is_postgres)
    writer = "to_json" if is_duckdb else "last_to_json"
    return mark_json(clause, clause.call(node, writer, value, string_literal(kind)))


def _has_no_blanks(value: Expression) -> bool:
    """Return whether a text of JSON is known to be as this module writes it."""
    names = ("as_json", "json_value", "to_json")
    return isinstance(value, Call) and json_function_name(value.function) in names


def to_json_reader(function: str) -> Reader:
    """Return the reader of a function of one value that returns it as JSON."""

    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expressions")
        arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        if len(arguments) != 1:
            raise clause.source.unsupported(node, "options of to_json()", "give one value")
        value = clause.read(arguments[0])
        if value.type == VARIANT:
            return clause.call(node, "variant_json", value)
        return value_as_json(clause, node, value, function)

    return read
