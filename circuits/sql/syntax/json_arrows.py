"""``j -> 'a'`` as an argument, which sqlglot reads as a lambda.

::

    json_array_length(j -> 'a')         the arrow is that of JSON
    json_array_length(f(j) -> 'a')      also after an expression, in dialect materialize
    coalesce(j -> 'a' ->> 'b', 'x')     so are all of a chain
    list_transform(a, x -> 'b')         the arrow is that of a lambda

An arrow is that of JSON if a constant follows it, unless it is in the place of a lambda.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import Dialect, exp

__all__ = ["replace_json_arrows"]

# Calls that have a lambda after their first argument.
_WITH_LAMBDA: Final = (exp.ArrayFilter, exp.Reduce, exp.Transform)
_PREFIXES_WITH_LAMBDA: Final = ("apply", "array_", "filter", "forall", "list_", "map_", "reduce")


def replace_json_arrows(tree: exp.Expr, dialect: Dialect) -> exp.Expr:
    """Return a statement with JSON extractions in place of such lambdas; it is changed."""
    for node in list(tree.find_all(exp.Lambda)):
        if len(node.expressions) != 1 or _is_in_place_of_lambda(node):
            continue
        operator: Any = None
        leaf: Any = node.this
        while isinstance(leaf, exp.Binary):
            operator, leaf = leaf, leaf.this
        if not isinstance(leaf, exp.Literal):
            continue
        document = node.expressions[0]
        position = document.meta
        if isinstance(document, exp.Identifier):  # in dialect materialize, it is any expression
            document = exp.Column(this=document)
        extract = exp.JSONExtract(
            this=document,
            expression=dialect.to_json_path(leaf),
            only_json_types=dialect.parser_class.JSON_ARROWS_REQUIRE_JSON_TYPE,
        )
        for part in (document, extract):
            part.meta.update(position)
        if operator is None:
            node.replace(extract)
        else:
            operator.set("this", extract)
            node.replace(node.this)
    return tree


def _is_in_place_of_lambda(node: exp.Lambda) -> bool:
    call = node.parent
    if isinstance(call, exp.Anonymous):
        is_first = call.expressions[0] is node
        return not is_first and call.name.casefold().startswith(_PREFIXES_WITH_LAMBDA)
    return isinstance(call, _WITH_LAMBDA) and call.this is not node
