"""Comparisons with the elements of a list: ``x = ANY (a)``, ``x < ALL (a)`` and ``x IN a``.

::

    x < ANY (a)    true if x < e is true for an element e; NULL if it is NULL for one; else false
    x < ALL (a)    false if x < e is false for an element e; NULL if it is NULL for one; else true
    x IN a         list_contains(a, x); also a key of a map, and a part of a text

ANY and ALL read a list that is NULL as a list without elements; IN with it is NULL. NULL elements
do not count for IN. These are DuckDB's rules. In PostgreSQL, ANY and ALL of a list that is NULL are
NULL.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import COMPARED_ELEMENT
from circuits.sql.expressions.literals import NULL
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = ["compare_with_list", "is_list_comparison", "read_in_list"]


def is_list_comparison(node: exp.Expr) -> bool:
    """Return whether a comparison is with ANY or ALL of a list, not of a subquery."""
    return isinstance(node, exp.Binary) and _compared_list(node) is not None


def _compared_list(node: exp.Binary) -> exp.Expr | None:
    """Return the list after ANY or ALL; None for a subquery, and for other operands.

    sqlglot parses ``ALL (a)`` of a list as the call of a function.
    """
    right = node.args.get("expression")
    if isinstance(right, exp.Any):
        value = right.this
        while isinstance(value, exp.Paren):
            value = value.this
        return None if isinstance(value, exp.Query | exp.Values | exp.Tuple) else value
    if isinstance(right, exp.Anonymous) and right.name.upper() == "ALL":
        return right.expressions[0] if len(right.expressions) == 1 else None
    return None


def compare_with_list(clause: Clause, node: exp.Binary, function: str) -> Expression:
    """Return the value of a comparison with ANY or ALL of a list."""
    list_node, quantifier = _compared_list(node), node.args["expression"]
    assert list_node is not None
    source = clause.source
    if source.is_spark:
        raise source.unsupported(list_node, "ANY or ALL of a list", "use array_contains or exists")
    is_any = isinstance(quantifier, exp.Any)
    if is_any:
        source.allow_arguments(quantifier, "this")
        part = quantifier.this
        while part is not list_node:
            source.allow_arguments(part, "this")
            part = part.this
    else:
        source.allow_arguments(quantifier, "this", "expressions")
    value, elements = clause.read(node.this), clause.read(list_node)
    if pa.types.is_null(elements.type):
        elements = clause.call(node, "cast", elements, type=pa.list_(pa.null()))
    if not is_list(elements.type):
        raise source.error(
            list_node, f"ANY and ALL take a list or a subquery, not a value of type {elements.type}"
        )
    element = Column(COMPARED_ELEMENT, elements.type.value_type)
    condition = clause.call(node, function, value, element)
    with source.errors_at(node):
        result = lambda_call(
            "list_exists" if is_any else "list_forall", elements, condition, (COMPARED_ELEMENT,)
        )
    if source.is_postgres:
        return result
    is_null = clause.call(node, "is_null", elements)
    return clause.call(node, "case", is_null, Literal(not is_any, pa.bool_()), result)


def read_in_list(clause: Clause, node: exp.In) -> Expression:
    """Return the value of ``x IN a``, where ``a`` is one value and not a list in parentheses."""
    clause.source.allow_arguments(node, "this", "field")
    field = node.args["field"]
    if clause.source.is_spark:
        raise clause.source.unsupported(field, "IN without parentheses", "use array_contains")
    value, elements = clause.read(node.this), clause.read(field)
    if pa.types.is_null(elements.type):
        return Literal(None, pa.bool_())
    if isinstance(field, exp.Array):
        items = [clause.read(item) for item in field.expressions]
        if items and all(isinstance(item, Literal) and item != NULL for item in items):
            return clause.call(node, "in", value, *items)
    if pa.types.is_map(elements.type):
        return clause.call(node, "map_contains", elements, value)
    if is_text(elements.type):
        return clause.call(node, "contains", elements, value)
    if not is_list(elements.type):
        raise clause.source.error(
            field, f"IN takes a list, a map or a text, not a value of type {elements.type}"
        )
    return clause.call(node, "list_contains", elements, value)
