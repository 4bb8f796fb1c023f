"""Edits of a text of statements: append further ones, or cut out those that create a view.

A statement is cut out with the comments between it and the next one. The rest stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from circuits.errors import ProgramChangeError
from circuits.sql.declarations import Declarations
from circuits.sql.statements import declared_by
from circuits.sql.syntax.source import SqlSource

__all__ = ["cut_view", "join_statements"]

# The words after the first one of DECLARE RECURSIVE VIEW, which is no statement in a syntax tree.
_DECLARATION: Final = ["RECURSIVE", "VIEW"]


def join_statements(
    before: str, text: str, *, query_name: str, new_name: str | None, dialect: str
) -> tuple[str, str, Declarations]:
    """Return two texts, changed so that they can be joined, and what the second one declares.

    Args:
        before: The first text.
        text: The second text.
        query_name: The name of the view of a plain SELECT at the end of the first text. It becomes
            a CREATE VIEW.
        new_name: The same for the second text; None to leave it as it is.
        dialect: The dialect of both.

    Raises:
        SqlError: A text is not valid.
        ProgramChangeError: The second text has a name and is not one plain SELECT.

    >>> join_statements("SELECT 1", "SELECT 2", query_name="a", new_name="b", dialect="spark")[:2]
    ('CREATE VIEW `a` AS\\nSELECT 1;\\n', 'CREATE VIEW `b` AS\\nSELECT 2')
    """
    old = SqlSource(before, dialect)
    trees_before = old.parse()
    parsed = SqlSource(text, dialect)
    parsed.types |= old.types
    trees = parsed.parse()
    if new_name is not None:
        if len(trees) != 1 or not isinstance(trees[0], exp.Query):
            raise ProgramChangeError(
                f"name={new_name!r} names the view of a text that is one SELECT; this text has "
                "other statements, which name their views: leave name out"
            )
        text = _as_view(text, new_name, dialect)
    if not trees_before and not old.types:
        return "", text, declared_by(parsed)
    if trees_before and isinstance(trees_before[-1], exp.Query):
        start = _starts(old.tokenize())[-1]
        before = before[:start] + _as_view(before[start:], query_name, dialect)
    tokens = SqlSource(before, dialect).tokenize()
    if tokens[-1].token_type is not TokenType.SEMICOLON:
        end = tokens[-1].end + 1
        before = f"{before[:end]};{before[end:]}"
    return f"{before.rstrip()}\n", text, declared_by(parsed)


def cut_view(text: str, view: str, *, query_name: str, dialect: str) -> str:
    """Return a text without the statements that create a view.

    Args:
        text: The statements.
        view: The name of the view.
        query_name: The name of the view of a plain SELECT at the end of the text.
        dialect: The dialect of the text.

    Raises:
        SqlError: The text is not valid.

    >>> text = "CREATE VIEW a AS SELECT 1; CREATE VIEW b AS SELECT 2;"
    >>> cut_view(text, "a", query_name="view", dialect="duckdb")
    'CREATE VIEW b AS SELECT 2;'
    """
    source = SqlSource(text, dialect)
    tokens = source.tokenize()
    starts = _starts(tokens)
    if not starts:
        return text
    ends = [*starts[1:], len(text)]
    trees = source.parse()
    wanted = view.casefold()
    cut = set()
    for tree in trees:
        table = tree.this.find(exp.Table) if isinstance(tree, exp.Create | exp.Insert) else None
        if table is not None and table.name.casefold() == wanted:
            cut.add(bisect_right(starts, table.this.meta["start"]) - 1)
    if trees and isinstance(trees[-1], exp.Query) and query_name == view:
        cut.add(len(starts) - 1)
    kept = text[: starts[0]]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        words = [token.text.upper() for token in tokens if start <= token.start < end][:4]
        is_declaration = words[1:3] == _DECLARATION and words[3] == view.upper()
        if number not in cut and not is_declaration:
            kept += text[start:end]
    return kept.rstrip()


def _as_view(query: str, name: str, dialect: str) -> str:
    quoted = exp.to_identifier(name, quoted=True).sql(dialect)
    return f"CREATE VIEW {quoted} AS\n{query.lstrip()}"


def _starts(tokens: Sequence[Token]) -> list[int]:
    """Return where each statement starts."""
    starts, is_first = [], True
    for token in tokens:
        is_end = token.token_type is TokenType.SEMICOLON
        if is_first and not is_end:
            starts.append(token.start)
        is_first = is_end
    return starts
