"""Syntax of Spark that has a meaning in other words: tokens before parsing, trees after it.

======================================== ======================================================
``a >>> b``                              ``shiftrightunsigned(a, b)``
``X '1A'``                               ``X'1A'``
``/*+ BROADCAST(t) */``                  left out: a hint does not change the rows
DISTRIBUTE BY, CLUSTER BY                left out: a view has no partitions
SORT BY                                  ORDER BY: a view is one partition
``f(name => x)``                         ``f(x)``, for a function of one argument
``stack(2, a, b, c, d)``                 ``inline(array(struct(a, b), struct(c, d)))``
``rank(x) OVER``                         ``rank() OVER``: Spark ignores the argument
``try_avg(x)``                           ``avg(x)``, which never overflows here
``IDENTIFIER('a.b')``                    ``a.b``
``first_value(x)`` without OVER          ``first(x)``
``mode(x, true)``                        ``mode(x)``, which is always deterministic here
======================================== ======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["OPERATORS", "join_tokens", "rewrite"]

# A token type that no text of Spark has, for >>>.
_UNSIGNED_SHIFT: Final = TokenType.PIPE_SLASH
# There is one catalog and one schema.
_CONSTANTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.CurrentCatalog: "spark_catalog",
    exp.CurrentDatabase: "default",
    exp.CurrentSchema: "default",
}
_UNORDERED: Final = ("hint", "distribute", "cluster")
_RANKS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)


def _unsigned_shift(parser: Any, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    shift: exp.Expr = parser.expression(
        exp.Anonymous(this="shiftrightunsigned", expressions=[left, right])
    )
    return shift


#: Readers of binary operators that sqlglot does not know, for its table ``JSON_OPERATORS``.
OPERATORS: Final[Mapping[TokenType, Any]] = {_UNSIGNED_SHIFT: _unsigned_shift}


def join_tokens(tokens: list[Token]) -> list[Token]:
    """Return the tokens with ``>>>`` and ``X '1A'`` as one token each."""
    joined: list[Token] = []
    place = 0
    while place < len(tokens):
        first, *more = tokens[place : place + 3]
        is_shift = len(more) == 2 and all(
            token.token_type == TokenType.GT and token.start == first.start + distance
            for distance, token in enumerate((first, *more))
        )
        if is_shift:
            first = Token(_UNSIGNED_SHIFT, ">>>", first.line, first.col, first.start, more[1].end)
            place += 2
        elif (
            more
            and first.text in ("X", "x")
            and more[0].token_type == TokenType.STRING
            and first.token_type == TokenType.VAR
        ):
            first = Token(
                *(TokenType.HEX_STRING, more[0].text),
                *(first.line, first.col, first.start, more[0].end),
            )
            place += 1
        joined.append(first)
        place += 1
    return joined


def rewrite(tree: exp.Expr) -> exp.Expr:
    """Return the tree of a statement in the words that all dialects share."""
    for node in list(tree.walk()):
        if isinstance(node, exp.Select):
            _rewrite_select(node)
        elif isinstance(node, exp.Stack) and node.this is not None:
            _rewrite_stack(node)
        elif isinstance(node, _RANKS) and node.args.get("expressions"):
            node.set("expressions", None)
        elif isinstance(node, exp.Kwarg) and isinstance(node.parent, exp.Func):
            if len(list(node.parent.iter_expressions())) == 1:
                node.replace(node.expression)
        elif isinstance(node, exp.FirstValue | exp.LastValue) and not _has_window(node):
            kind = exp.First if isinstance(node, exp.FirstValue) else exp.Last
            _replace(node, kind(**node.args))
        elif isinstance(node, exp.Mode) and node.args.get("deterministic") is not None:
            node.set("deterministic", None)
        elif isinstance(node, exp.CurrentCatalog | exp.CurrentDatabase | exp.CurrentSchema):
            _replace(node, exp.Literal.string(_CONSTANTS[type(node)]))
        elif isinstance(node, exp.Anonymous):
            _rewrite_call(node)
    return tree


def _replace(node: exp.Expr, by: exp.Expr) -> None:
    """Replace a node by another one at the same place of the text."""
    by.meta.update(node.meta)
    node.replace(by)


def _has_window(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _rewrite_select(node: exp.Select) -> None:
    for clause in _UNORDERED:
        node.set(clause, None)
    sort = node.args.get("sort")
    if sort is not None:
        node.set("sort", None)
        if node.args.get("order") is None:
            node.set("order", exp.Order(expressions=sort.expressions))


def _rewrite_stack(node: exp.Stack) -> None:
    count = node.this
    if not isinstance(count, exp.Literal) or count.is_string or not count.this.isdigit():
        return
    values, rows = node.expressions, int(count.this)
    if rows < 1 or not values:
        return
    width = -(-len(values) // rows)
    values = [*values, *(exp.null() for _ in range(rows * width - len(values)))]
    structs = [
        exp.Struct(
            expressions=[
                exp.PropertyEQ(this=exp.to_identifier(f"col{at}"), expression=value)
                for at, value in enumerate(values[row * width : (row + 1) * width])
            ]
        )
        for row in range(rows)
    ]
    _replace(node, exp.Inline(this=exp.Array(expressions=structs)))


def _rewrite_call(node: exp.Anonymous) -> None:
    name = node.name.lower()
    if name == "try_avg" and len(node.expressions) == 1:
        _replace(node, exp.Avg(this=node.expressions[0]))
    elif name == "identifier" and len(node.expressions) == 1:
        (text,) = node.expressions
        if isinstance(text, exp.Literal) and text.is_string:
            parts = [exp.to_identifier(part) for part in reversed(text.this.split("."))]
            column = exp.Column(this=parts[0], table=parts[1] if len(parts) > 1 else None)
            _replace(node, column)
