"""Calls that are written after a dot: ``x.f(y)`` is ``f(x, y)``, and ``main.f(y)`` is ``f(y)``.

::

    name.upper().left(3)                        left(upper(name), 3)
    list_distinct(xs).list_sort()               list_sort(list_distinct(xs))
    xs.list_transform(lambda s: s.upper())      list_transform(xs, lambda s: upper(s))

Before such a call, sqlglot has turned columns into identifiers; they become columns again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from circuits.sql.syntax.function_templates import ParseExpression, fill_template

__all__ = ["replace_method_calls"]

# The schemas of the functions that every dialect has.
_SCHEMAS: Final = ("main", "pg_catalog")
_COLUMN_PARTS: Final = ("this", "table", "db", "catalog")
# By type of node, the arguments whose identifiers are names: they never stand for columns.
_NAMES: Final[Mapping[type, tuple[str, ...]]] = {
    exp.Alias: ("alias",),
    exp.Column: _COLUMN_PARTS,
    exp.Dot: ("expression",),
    exp.Kwarg: ("this",),
    exp.PropertyEQ: ("this",),
    exp.Table: ("this", "db", "catalog"),
    exp.TableAlias: ("this", "columns"),
    exp.Window: ("this", "alias"),
}


def replace_method_calls(tree: exp.Expr, *, has_methods: bool, parse: ParseExpression) -> exp.Expr:
    """Return a tree with ``f(x, y)`` in place of ``x.f(y)``; the tree is changed.

    Args:
        tree: A statement.
        has_methods: True if what is before the dot is an argument, as in DuckDB; False if it can
            only be a schema.
        parse: Returns the syntax tree of an expression.
    """
    dots = [dot for dot in tree.find_all(exp.Dot) if isinstance(dot.expression, exp.Anonymous)]
    prefix = _unused_prefix(tree) if dots else ""
    for dot in reversed(dots):  # the innermost first
        call = dot.expression
        is_schema = isinstance(dot.this, exp.Identifier) and dot.this.name.lower() in _SCHEMAS
        if not (has_methods or is_schema):
            continue
        arguments = list(call.expressions)
        if not is_schema:
            arguments.insert(0, _restore_columns(dot.this))
        by_name = {f"{prefix}{number}": argument for number, argument in enumerate(arguments)}
        new_call = fill_template(parse, f"{call.name}({', '.join(by_name)})", by_name, call)
        # A place that takes words only, such as a unit of time, cannot have an argument.
        if not any(node.name.lower() in by_name for node in new_call.find_all(exp.Var, exp.Column)):
            dot.replace(new_call)
    return tree


def _unused_prefix(tree: exp.Expr) -> str:
    """Return a text with which no name of a tree begins."""
    names = {node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var)}
    prefix = "argument_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _restore_columns(tree: exp.Expr) -> exp.Expr:
    """Return an expression with columns in place of the identifiers and dots that stand for them.

    The expression is changed.
    """
    parameters = _lambda_parameters(tree)
    value = exp.Paren(this=tree)  # so that a column has a parent
    for identifier in list(value.find_all(exp.Identifier)):
        if _is_name(identifier):
            continue
        if identifier.name in parameters | _lambda_parameters(identifier):
            continue
        parts: list[exp.Expr] = [identifier]
        node: exp.Expr = identifier
        while (
            isinstance(node.parent, exp.Dot)
            and node.arg_key == "this"
            and isinstance(node.parent.expression, exp.Identifier)
            and len(parts) < len(_COLUMN_PARTS)
        ):
            node = node.parent
            parts.append(node.expression)
        column = exp.Column()
        node.replace(column)
        for key, part in zip(_COLUMN_PARTS, reversed(parts), strict=False):
            column.set(key, part)
    result: exp.Expr = value.this
    return result


def _is_name(identifier: exp.Expr) -> bool:
    """Return whether an identifier cannot stand for a column; a key of ``MAP {key: value}`` can."""
    node = identifier.parent
    struct = node.parent if isinstance(node, exp.PropertyEQ) else None
    if struct is not None and isinstance(struct.parent, exp.ToMap):
        return False
    return identifier.arg_key in _NAMES.get(type(node), ())


def _lambda_parameters(node: exp.Expr) -> set[str]:
    """Return the names of the parameters of the lambdas around a node."""
    names: set[str] = set()
    ancestor = node.find_ancestor(exp.Lambda)
    while ancestor is not None:
        names.update(part.name for part in ancestor.expressions)
        ancestor = ancestor.find_ancestor(exp.Lambda)
    return names
