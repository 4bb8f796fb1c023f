"""Syntax of Spark, replaced by equivalent syntax: tokens before parsing, trees after it.

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

__all__ = ["OPERATORS", "join_spark_tokens", "rewrite_spark_tree"]

# A token type that no text of Spark has, for >>>.
_UNSIGNED_SHIFT: Final = TokenType.PIPE_SLASH
# There is one catalog and one schema.
_CONSTANTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.CurrentCatalog: "spark_catalog",
    exp.CurrentDatabase: "default",
    exp.CurrentSchema: "default",
}
_IGNORED_CLAUSES: Final = ("hint", "distribute", "cluster")
_RANKING_FUNCTIONS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)


def _unsigned_shift(parser: Any, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    shift: exp.Expr = parser.expression(
        exp.Anonymous(this="shiftrightunsigned", expressions=[left, right])
    )
    return shift


#: Readers of binary operators that sqlglot does not know, for its table ``JSON_OPERATORS``.
OPERATORS: Final[Mapping[TokenType, Any]] = {_UNSIGNED_SHIFT: _unsigned_shift}


def join_spark_tokens(tokens: list[Token]) -> list[Token]:
    """Return the tokens with ``>>>`` and ``X '1A'`` as one token each."""
    joined: list[Token] = []
    position = 0
    while position < len(tokens):
        token, *following = tokens[position : position + 3]
        is_shift = len(following) == 2 and all(
            part.token_type == TokenType.GT and part.start == token.start + distance
            for distance, part in enumerate((token, *following))
        )
        if is_shift:
            token = Token(
                _UNSIGNED_SHIFT, ">>>", token.line, token.col, token.start, following[1].end
            )
            position += 2
        elif (
            following
            and token.text in ("X", "x")
            and following[0].token_type == TokenType.STRING
            and token.token_type == TokenType.VAR
        ):
            token = Token(
                *(TokenType.HEX_STRING, following[0].text),
                *(token.line, token.col, token.start, following[0].end),
            )
            position += 1
        joined.append(token)
        position += 1
    return joined


def rewrite_spark_tree(tree: exp.Expr) -> exp.Expr:
    """Return the tree of a statement in the words that all dialects share."""
    for node in list(tree.walk()):
        if isinstance(node, exp.Select):
            _rewrite_select(node)
        elif isinstance(node, exp.Stack) and node.this is not None:
            _rewrite_stack(node)
        elif isinstance(node, _RANKING_FUNCTIONS) and node.args.get("expressions"):
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


def _replace(node: exp.Expr, replacement: exp.Expr) -> None:
    """Replace a node by another one at the same place of the text."""
    replacement.meta.update(node.meta)
    node.replace(replacement)


def _has_window(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _rewrite_select(node: exp.Select) -> None:
    for clause in _IGNORED_CLAUSES:
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
                exp.PropertyEQ(this=exp.to_identifier(f"col{number}"), expression=value)
                for number, value in enumerate(values[row * width : (row + 1) * width])
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
