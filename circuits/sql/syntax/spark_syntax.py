"""Syntax of Spark, replaced by equivalent syntax: tokens before parsing, trees after it.

======================================== ======================================================
``a >>> b``                              ``shiftrightunsigned(a, b)``
``X '1A'``                               ``X'1A'``
``'it''s'``                              one text with one quote; sqlglot reads two texts
``/*+ BROADCAST(t) */``                  left out: a hint does not change the rows
DISTRIBUTE BY, CLUSTER BY                left out: a view has no partitions
SORT BY                                  ORDER BY: a view is one partition
``f(name => x)``                         ``f(x)``, for a function of one argument
``stack(2, a, b, c, d)``                 ``inline(array(struct(a, b), struct(c, d)))``
``rank(x) OVER``                         ``rank() OVER``: Spark ignores the argument
``try_avg(x)``                           ``avg(x)``, which never overflows here
``IDENTIFIER('a.b')``                    ``a.b``
``first_value(x)`` without OVER          ``first(x)``
``grouping__id``                         ``grouping_id()``
``mode(x, true)``                        ``mode(x)``, which is always deterministic here
``CAST(t AS TIMESTAMP(3))`` of Flink      ``date_trunc('millisecond', CAST(t AS TIMESTAMP))``
``ROW<a INT>`` of Flink                  ``STRUCT<a INT>``
``MAP['a', 1]`` of Flink                 ``map('a', 1)``
``to_timestamp_ltz(n, 3)`` of Flink      ``timestamp_millis(n)``; with 0 ``timestamp_seconds(n)``
``sha256(x)`` of Flink                   ``sha2(x, 256)``; also 224, 384 and 512
``to_base64(x)`` of Flink                ``base64(x)``
``from_base64(x)`` of Flink              ``CAST(unbase64(x) AS STRING)``
======================================== ======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["OPERATORS", "is_map_constructor", "join_spark_tokens", "rewrite_spark_tree"]

# A token type that no text of Spark has, for >>>.
_UNSIGNED_SHIFT: Final = TokenType.PIPE_SLASH
# There is one catalog and one schema.
_CONSTANTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.CurrentCatalog: "spark_catalog",
    exp.CurrentDatabase: "default",
    exp.CurrentSchema: "default",
}
_HASH_BITS: Final[Mapping[str, int]] = {f"sha{bits}": bits for bits in (224, 256, 384, 512)}
# The functions of a count since 1970 by the second argument of Flink's to_timestamp_ltz().
_EPOCH_FUNCTIONS: Final[Mapping[str, str]] = {"0": "timestamp_seconds", "3": "timestamp_millis"}
_NESTED_TYPES: Final = frozenset({"ARRAY", "MAP", "STRUCT"})
_IGNORED_CLAUSES: Final = ("hint", "distribute", "cluster")
_RANKING_FUNCTIONS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)


def _unsigned_shift(parser: Any, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    shift: exp.Expr = parser.expression(
        exp.Anonymous(this="shiftrightunsigned", expressions=[left, right])
    )
    return shift


#: Readers of binary operators that sqlglot does not know, for its table ``JSON_OPERATORS``.
OPERATORS: Final[Mapping[TokenType, Any]] = {_UNSIGNED_SHIFT: _unsigned_shift}


def _join_doubled_quotes(tokens: list[Token], text: str) -> list[Token]:
    """Return the tokens with ``'it''s'`` as one text; sqlglot reads it as two."""
    joined: list[Token] = []
    for token in tokens:
        previous = joined[-1] if joined else None
        is_doubled_quote = (
            previous is not None
            and previous.token_type == token.token_type == TokenType.STRING
            and previous.end + 1 == token.start
            and text[previous.end] == text[token.start]
        )
        if previous is not None and is_doubled_quote:
            value = previous.text + text[token.start] + token.text
            place = previous.line, previous.col, previous.start, token.end
            joined[-1] = Token(TokenType.STRING, value, *place)
        else:
            joined.append(token)
    return joined


def join_spark_tokens(tokens: list[Token], text: str) -> list[Token]:
    """Return the tokens with ``'it''s'``, ``>>>`` and ``X '1A'`` as one token each.

    ROW< becomes STRUCT<.
    """
    tokens = _join_doubled_quotes(tokens, text)
    joined: list[Token] = []
    position = 0
    open_types = 0  # the < of types that are open: the >>> of ARRAY<ARRAY<ARRAY<INT>>> is no shift
    while position < len(tokens):
        token, *following = tokens[position : position + 3]
        if token.token_type == TokenType.LT and joined and joined[-1].text.upper() in _NESTED_TYPES:
            open_types += 1
        elif token.token_type == TokenType.GT and open_types:
            open_types -= 1
            joined.append(token)
            position += 1
            continue
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
        elif following and following[0].token_type == TokenType.LT and token.text.upper() == "ROW":
            token = Token(
                *(TokenType.STRUCT, "STRUCT", token.line, token.col, token.start, token.end)
            )
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
        elif isinstance(node, exp.Cast) and _timestamp_digits(node.to) is not None:
            _rewrite_timestamp(node)
        elif isinstance(node, exp.ToBase64):
            _replace(node, exp.Anonymous(this="base64", expressions=[node.this]))
        elif isinstance(node, exp.FromBase64):
            data = exp.Anonymous(this="unbase64", expressions=[node.this])
            _replace(node, exp.Cast(this=data, to=exp.DataType(this=exp.DType.TEXT)))
        elif isinstance(node, exp.Column) and _is_grouping_number(node):
            _replace(node, exp.GroupingId())
        elif isinstance(node, exp.Bracket) and is_map_constructor(node):
            _replace(node, exp.func("map", *node.expressions, dialect="spark"))
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


def _timestamp_digits(type: exp.Expr) -> int | None:
    """Return the digits of a second in ``TIMESTAMP(digits)``; None for other types."""
    is_timestamp = isinstance(type, exp.DataType) and type.this in exp.DataType.TEMPORAL_TYPES
    digits = type.expressions[0].name if is_timestamp and type.expressions else ""
    return int(digits) if digits.isdigit() else None


def _rewrite_timestamp(node: exp.Cast) -> None:
    """Replace a cast to ``TIMESTAMP(3)`` by a timestamp without the other digits."""
    digits = _timestamp_digits(node.to)
    units = {0: "second", 3: "millisecond", 6: "", 9: ""}
    if digits not in units:
        return  # an error when the cast is read
    cast = node.copy()
    cast.to.set("expressions", None)
    unit = units[digits]
    if unit:
        arguments = [exp.Literal.string(unit), cast]
        _replace(node, exp.Anonymous(this="date_trunc", expressions=arguments))
    else:
        _replace(node, cast)


def _is_grouping_number(node: exp.Column) -> bool:
    return node.name.lower() == "grouping__id" and not node.table


def is_map_constructor(node: exp.Bracket) -> bool:
    """Return whether a subscript is a map, ``MAP['a', 1, 'b', 2]``."""
    column, values = node.this, node.expressions
    is_name = isinstance(column, exp.Column) and column.name.upper() == "MAP" and not column.table
    return is_name and bool(values) and len(values) % 2 == 0


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
    elif name in _HASH_BITS and len(node.expressions) == 1:
        bits = exp.Literal.number(_HASH_BITS[name])
        _replace(node, exp.Anonymous(this="sha2", expressions=[*node.expressions, bits]))
    elif name == "to_timestamp_ltz" and len(node.expressions) == 2:
        function = _EPOCH_FUNCTIONS.get(str(node.expressions[1]))
        if function is not None:
            _replace(node, exp.Anonymous(this=function, expressions=node.expressions[:1]))
    elif name == "identifier" and len(node.expressions) == 1:
        (text,) = node.expressions
        if isinstance(text, exp.Literal) and text.is_string:
            parts = [exp.to_identifier(part) for part in reversed(text.this.split("."))]
            column = exp.Column(this=parts[0], table=parts[1] if len(parts) > 1 else None)
            _replace(node, column)
