"""Small questions about the nodes of a syntax tree of sqlglot."""

from __future__ import annotations

from sqlglot import exp

__all__ = ["names_of_arguments", "strip_parentheses"]


def names_of_arguments(node: exp.Expr) -> list[str]:
    """Return the names of the arguments of a node that are set."""
    return [name for name, value in node.args.items() if value not in (None, False, [])]


def strip_parentheses(node: exp.Expr) -> exp.Expr:
    """Return the node inside of parentheses that have no alias and no clause of their own."""
    while isinstance(node, exp.Paren | exp.Subquery) and names_of_arguments(node) == ["this"]:
        node = node.this
    return node
