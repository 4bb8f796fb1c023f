"""CREATE FLOW of Spark's declarative pipelines: queries that append to a streaming table.

A flow becomes a temporary view, and its table reads all its flows. Columns belong together by name,
and a column that a flow lacks is NULL in its rows::

    CREATE STREAMING TABLE t;                    CREATE STREAMING TABLE t AS
                                                     SELECT * FROM t__f UNION ALL BY NAME
                                                     SELECT * FROM t__g;
    CREATE FLOW f AS INSERT INTO t BY NAME       CREATE TEMP STREAMING TABLE t__f AS
    SELECT a FROM STREAM(x);                     SELECT a FROM STREAM(x);
    CREATE FLOW g AS INSERT INTO t BY NAME       CREATE TEMP STREAMING TABLE t__g AS
    SELECT a, b FROM STREAM(y);                  SELECT a, b FROM STREAM(y);

The query of a table that has one is its first flow. The tables and flows of a text can have any
order. Every character of a query keeps its line and column, so that errors name its position.

A flow of another form, or into another table, stays as it is: it is refused where the text is
parsed, with its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from circuits.sql.syntax.source import SqlSource
from circuits.sql.syntax.statement_words import split_statements

__all__ = ["merge_flows"]

_UNION: Final = " UNION ALL BY NAME "
_CREATE_TABLE: Final = (["CREATE", "STREAMING"], ["CREATE", "OR", "REFRESH", "STREAMING"])


def merge_flows(text: str, dialect: str = "spark") -> str:
    """Return a text in which temporary views take the place of flows.

    Raises:
        SqlError: The text has a character or a quote that is not valid SQL.

    >>> print(merge_flows('''CREATE STREAMING TABLE t;
    ... CREATE FLOW f AS INSERT INTO t BY NAME SELECT a FROM STREAM(x)'''))
    CREATE STREAMING TABLE t AS SELECT * FROM t__f;
    CREATE TEMP STREAMING TABLE t__f AS    SELECT a FROM STREAM(x)
    """
    source = SqlSource(text, dialect)
    statements = list(split_statements(source.tokenize()))
    tables = {table.name.casefold(): table for table in _read_tables(statements)}
    flows = [flow for flow in _read_flows(statements) if flow.table.casefold() in tables]
    edits: list[tuple[int, int, str]] = []
    for name, table in tables.items():
        views = [_view_of(flow, text) for flow in flows if flow.table.casefold() == name]
        queries = _UNION.join(f"SELECT * FROM {view}" for view in views)
        if views:
            edits.append((table.end, table.end, (_UNION if table.has_query else " AS ") + queries))
    for flow in flows:
        old = text[flow.start : flow.query_start]
        header = f"CREATE TEMP STREAMING TABLE {_view_of(flow, text)} AS"
        edits.append((flow.start, flow.query_start, _fit(header, old)))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


@dataclass(frozen=True)
class _StreamingTable:
    """A CREATE STREAMING TABLE, with the offset after its last token."""

    name: str
    end: int
    has_query: bool


@dataclass(frozen=True)
class _Flow:
    """A CREATE FLOW, with the offsets of its first token and of its query."""

    name: str
    table: str
    start: int
    query_start: int


def _read_tables(statements: list[list[Token]]) -> Iterator[_StreamingTable]:
    for tokens in map(_without_semicolon, statements):
        words = [token.text.upper() for token in tokens]
        kind = next((len(start) for start in _CREATE_TABLE if words[: len(start)] == start), 0)
        if not kind or words[kind : kind + 1] != ["TABLE"]:
            continue
        name = kind + (4 if words[kind + 1 : kind + 4] == ["IF", "NOT", "EXISTS"] else 1)
        name = _last_part(tokens, name)
        if name < len(tokens):
            has_query = any(token.token_type == TokenType.ALIAS for token in tokens[name:])
            yield _StreamingTable(tokens[name].text, tokens[-1].end + 1, has_query)


def _read_flows(statements: list[list[Token]]) -> Iterator[_Flow]:
    for tokens in map(_without_semicolon, statements):
        words = [token.text.upper() for token in tokens]
        if words[:2] != ["CREATE", "FLOW"]:
            continue
        name = _last_part(tokens, 2)
        rest = name + 1
        if words[rest : rest + 1] == ["COMMENT"]:
            rest += 2
        if words[rest : rest + 3] != ["AS", "INSERT", "INTO"]:
            continue
        table = rest + 3 + (words[rest + 3 : rest + 4] == ["TABLE"])
        table = _last_part(tokens, table)
        query = table + 3
        if words[table + 1 : query] != ["BY", "NAME"] or query >= len(tokens):
            continue
        yield _Flow(tokens[name].text, tokens[table].text, tokens[0].start, tokens[query].start)


def _without_semicolon(tokens: list[Token]) -> list[Token]:
    return [token for token in tokens if token.token_type != TokenType.SEMICOLON]


def _last_part(tokens: list[Token], name: int) -> int:
    """Return the index of the last part of a name, which may have a schema."""
    while name + 2 < len(tokens) and tokens[name + 1].token_type == TokenType.DOT:
        name += 2
    return name


def _view_of(flow: _Flow, text: str) -> str:
    """Return the name of the view of a flow, in quotes if a part of it has them."""
    name = f"{flow.table}__{flow.name}"
    quote = next((q for q in '`"' if q in text[flow.start : flow.query_start]), "")
    return f"{quote}{name}{quote}"


def _fit(header: str, old: str) -> str:
    """Return a header with as many lines as an old one, whose last line has the same length.

    >>> _fit("HEAD", "A LONG\\n  HEADER ")
    'HEAD\\n         '
    """
    first, *others = old.split("\n")
    if not others:
        return header.ljust(len(first))
    return "\n".join([header, *("" for _ in others[:-1]), " " * len(others[-1])])
