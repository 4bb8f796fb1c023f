"""``ARRAY(SELECT ...)``: the rows of a subquery as a list.

The syntax tree is replaced, before it is read, by that of a scalar subquery with an aggregate::

    ARRAY(SELECT x FROM t ORDER BY y)
    (SELECT coalesce(array_agg(value ORDER BY key_1), []) FROM (SELECT x, y FROM t) q(value, key_1))

A list without ORDER BY is in the order of its values, as for ``array_agg``.

``x = ANY (ARRAY(SELECT y ...))`` is ``x = ANY (SELECT y ...)``; so are ALL and SOME. The operand of
ALL may also be VALUES.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from circuits.sql.syntax.nodes import strip_parentheses

__all__ = ["replace_array_subqueries"]

_VALUE: Final = "value"


def replace_array_subqueries(tree: exp.Expr) -> exp.Expr:
    """Return a syntax tree with scalar subqueries in place of its ARRAY(SELECT ...).

    Those that cannot be replaced stay, and are errors when they are read.
    """
    for call in list(tree.find_all(exp.Anonymous)):
        # sqlglot reads ALL (SELECT ...), but takes ALL (VALUES ...) for a function.
        if _is_all(call) and isinstance(call.expressions[0], exp.Values):
            call.replace(exp.All(this=exp.Subquery(this=call.expressions[0])))
    for node in list(tree.find_all(exp.Array)):
        query = strip_parentheses(node.expressions[0]) if len(node.expressions) == 1 else None
        if not isinstance(query, exp.Query) or node.args.get("value_constructor") is not None:
            continue
        if _replace_in_comparison(node, query):
            continue
        keys = _sort_keys(query) if _has_one_column(query) else None
        if keys is not None:
            node.replace(_build_scalar_subquery(node, query, keys))
    return tree


def _replace_in_comparison(node: exp.Array, query: exp.Query) -> bool:
    """Replace a list after ANY, SOME or ALL by its subquery; return False for any other list."""
    quantifier = node.parent
    while isinstance(quantifier, exp.Paren):
        quantifier = quantifier.parent
    if _is_all(quantifier):
        assert quantifier is not None
        quantifier.replace(exp.All(this=query))
    elif isinstance(quantifier, exp.Any):
        quantifier.set("this", exp.Subquery(this=query))
    else:
        return False
    return True


def _is_all(node: exp.Expr | None) -> bool:
    """Return whether a node is ALL of one operand, in a comparison."""
    return (
        isinstance(node, exp.Anonymous)
        and node.name.upper() == "ALL"
        and len(node.expressions) == 1
        and isinstance(node.parent, exp.Binary)
    )


def _has_one_column(query: exp.Expr) -> bool:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    (item,) = query.expressions
    return not (isinstance(item, exp.Star | exp.Columns) or item.is_star)


def _sort_keys(query: exp.Query) -> list[tuple[exp.Ordered, exp.Expr | None]] | None:
    """Return the keys of ORDER BY, each with the expression that must become a column.

    The expression is None for a key that is the value of the list. The result is None if the
    expressions cannot become columns of the subquery.
    """
    order = query.args.get("order")
    keys: list[tuple[exp.Ordered, exp.Expr | None]] = []
    for key in order.expressions if order is not None else ():
        if not isinstance(key, exp.Ordered):
            return None
        if _is_value(query, key.this):
            keys.append((key, None))
        elif isinstance(query, exp.Select) and not query.args.get("distinct"):
            keys.append((key, key.this))
        else:
            return None
    return keys


def _is_value(query: exp.Query, key: exp.Expr) -> bool:
    """Return whether a key of ORDER BY is the column of the list."""
    select: exp.Expr = query
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    (item,) = select.expressions
    if isinstance(key, exp.Literal):
        return not key.is_string and str(key.this) == "1"
    is_name = isinstance(key, exp.Column) and not key.table
    return key == item.unalias() or (
        is_name and key.name.casefold() == item.alias_or_name.casefold()
    )


def _build_scalar_subquery(
    node: exp.Array, query: exp.Query, keys: list[tuple[exp.Ordered, exp.Expr | None]]
) -> exp.Subquery:
    names, sort_keys = [_VALUE], []
    for key, expression in keys:
        name = _VALUE
        if expression is not None:
            name = f"sort key {len(names)}"  # a column of the query may be called key_1
            names.append(name)
            query.append("expressions", exp.alias_(expression.copy(), name))
        options = {part: value for part, value in key.args.items() if part != "this"}
        sort_keys.append(exp.Ordered(this=exp.column(name), **options))
    # The aggregate sorts; the subquery needs its ORDER BY only to select rows.
    if not (query.args.get("limit") or query.args.get("offset")):
        query.set("order", None)
    value: exp.Expr = exp.column(_VALUE)
    if sort_keys:
        value = exp.Order(this=value, expressions=sort_keys)
    empty = exp.Array(expressions=[], value_constructor=False)
    rows = exp.Subquery(
        this=query,
        alias=exp.TableAlias(
            this=exp.to_identifier("array_rows"), columns=[exp.to_identifier(n) for n in names]
        ),
    )
    values = exp.Coalesce(this=exp.ArrayAgg(this=value), expressions=[empty])
    select = exp.Select(expressions=[values], from_=exp.From(this=rows))
    for part in (values, select):
        part.meta.update(node.meta)
    return exp.Subquery(this=select)
