"""Syntax of time windows that sqlglot does not parse: table functions, and functions named WINDOW.

============================================== ==============================================
``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), ...))``  a Table of the call ``TUMBLE(t, ts, ...)``
``TUMBLE(t, ts, ...)`` in FROM                   the same
``TABLE t PARTITION BY k``, ``t PARTITION BY k`` a Tuple of the table and the keys
``SIZE => INTERVAL '1' HOUR``                    a Kwarg
``window(ts, '1 hour')``, ``window.start``       a call, a column: WINDOW is not a keyword there
============================================== ==============================================
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["IS_DESCRIPTOR", "WINDOW_TABLES", "parse_window_table", "with_window_names"]

WINDOW_TABLES: Final = ("CUMULATE", "HOP", "SESSION", "TUMBLE")
#: A key of ``meta``: an argument is written as DESCRIPTOR(...).
IS_DESCRIPTOR: Final = "is_descriptor"


def with_window_names(tokens: list[Token]) -> list[Token]:
    """Return the tokens, with WINDOW and SESSION as names where they are not keywords."""
    result = list(tokens)
    for index, token in enumerate(tokens):
        after = [following.token_type for following in tokens[index + 1 : index + 3]]
        is_call = after[:1] == [TokenType.L_PAREN]
        is_window_clause = after[1:] == [TokenType.ALIAS]  # WINDOW w AS (...)
        if (token.token_type == TokenType.SESSION and is_call) or (
            token.token_type == TokenType.WINDOW and not is_window_clause
        ):
            result[index] = Token(
                TokenType.VAR, token.text, token.line, token.col, token.start, token.end
            )
    return result


def parse_window_table(parser: Any, alias_tokens: Any) -> exp.Table | None:
    """Parse a window table function at the current token; None if there is none.

    ``parser`` is a parser of sqlglot, whose methods have no types. ``alias_tokens`` are the types
    of the tokens that can be an alias; None for those of the parser.
    """
    start_index = parser._index
    is_wrapped = parser._match_pair(TokenType.TABLE, TokenType.L_PAREN)
    name = parser._curr
    if (
        name is None
        or name.text.upper() not in WINDOW_TABLES
        or parser._next is None
        or parser._next.token_type != TokenType.L_PAREN
    ):
        parser._retreat(start_index)
        return None
    parser._advance(2)
    arguments = parser._parse_csv(lambda: _parse_argument(parser))
    parser._match_r_paren()
    if is_wrapped:
        parser._match_r_paren()
    call = exp.Anonymous(this=name.text, expressions=arguments)
    call.meta.update(start=name.start, end=name.end, line=name.line, col=name.col)
    table = exp.Table(this=call)
    alias = parser._parse_table_alias(alias_tokens=alias_tokens or parser.TABLE_ALIAS_TOKENS)
    if alias:
        table.set("alias", alias)
    return table


def _parse_argument(parser: Any) -> exp.Expr | None:
    following = parser._next
    if following is not None and following.token_type == TokenType.FARROW:
        name = parser._curr
        parser._advance(2)
        value = _parse_argument(parser)
        kwarg = exp.Kwarg(this=exp.Var(this=name.text.upper()), expression=value)
        kwarg.meta.update(start=name.start, end=name.end, line=name.line, col=name.col)
        return kwarg
    is_partitioned = following is not None and following.token_type == TokenType.PARTITION_BY
    has_keyword = parser._match(TokenType.TABLE)  # reads the keyword TABLE
    if has_keyword or is_partitioned or _is_query_in_parentheses(parser):
        is_parenthesis = parser._curr.token_type == TokenType.L_PAREN
        table = parser._parse_table() if is_parenthesis else parser._parse_table_parts()
        if not parser._match(TokenType.PARTITION_BY):
            return table  # type: ignore[no-any-return]
        if parser._match(TokenType.L_PAREN):
            keys = parser._parse_csv(parser._parse_column)
            parser._match_r_paren()
        else:
            keys = [parser._parse_column()]
            while _is_key_after_comma(parser):
                parser._advance()
                keys.append(parser._parse_column())
        return exp.Tuple(expressions=[table, *keys])
    if parser._curr.text.upper() == "DESCRIPTOR" and following.token_type == TokenType.L_PAREN:
        parser._advance(2)
        columns = parser._parse_csv(parser._parse_column)
        parser._match_r_paren()
        node = columns[0] if len(columns) == 1 else exp.Tuple(expressions=columns)
        node.meta[IS_DESCRIPTOR] = True
        return node
    return parser._parse_assignment()  # type: ignore[no-any-return]


def _is_query_in_parentheses(parser: Any) -> bool:
    """Return whether the next argument is a query in one or more parentheses."""
    starts = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES)
    if parser._curr.token_type != TokenType.L_PAREN:
        return False
    types = (token.token_type for token in parser._tokens[parser._index :])
    return next((kind for kind in types if kind != TokenType.L_PAREN), None) in starts


def _is_key_after_comma(parser: Any) -> bool:
    """Return whether a comma and a further key follow, not a comma and the next argument.

    The last key is followed by at least two arguments, a time and a gap. So what follows the comma
    is a key only if three arguments or more are left.
    """
    if parser._curr.token_type != TokenType.COMMA or parser._next is None:
        return False
    tokens_after_next = parser._tokens[parser._index + 2 :]
    is_named = bool(tokens_after_next) and tokens_after_next[0].token_type == TokenType.FARROW
    if is_named or parser._next.text.upper() == "DESCRIPTOR":
        return False
    return _count_arguments(parser._tokens[parser._index + 1 :]) >= 3


def _count_arguments(tokens: list[Token]) -> int:
    """Return the number of arguments up to the parenthesis that closes the call."""
    depth, commas = 0, 0
    for token in tokens:
        if token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
        elif token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        elif token.token_type == TokenType.COMMA and depth == 0:
            commas += 1
        if depth < 0:
            break
    return commas + 1
