"""Constructs of other engines that are not supported, found by their words.

For most of them, sqlglot reports a syntax error at a later word. For some, it does not parse the
statement, and returns it as a text. So that the error names the construct, `find_foreign_construct`
looks for it in a statement that could not be parsed. Elsewhere, these words can be names of columns
and tables. `created_object` looks at the first words of every statement, before it is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["ForeignConstruct", "created_object", "find_foreign_construct"]


class ForeignConstruct(NamedTuple):
    """The offset of a construct, its name, and what to write instead."""

    offset: int
    name: str
    advice: str


_WINDOW_CLOSE: Final = "write EMIT ON WINDOW CLOSE; without it, a view emits every change"
_GROUP_WINDOW: Final = "write GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), HOP(...) or SESSION(...)"
_CHANGES: Final = "write the query as CREATE VIEW or SELECT; the caller takes its changes"
_REFRESH: Final = "leave it out: each step brings every view up to date"
_FROM_LAST: Final = "leave it out, and reverse the ORDER BY and the frame of the window"
_AS_OF: Final = "leave it out: a view has the current rows"
_LATEST: Final = "write DISTINCT ON (key) ... ORDER BY key, ts DESC"
# The words at the start of a construct, and the advice. The word "0" stands for any number, and "*"
# for any word. The name of a construct ends before a "*".
_CONSTRUCTS: Final[dict[tuple[str, ...], str]] = {
    ("MATCH_RECOGNIZE", "("): (
        "compare neighbouring rows with lag() and lead() OVER (PARTITION BY ... ORDER BY ...), or "
        "join the table with itself"
    ),
    ("EMIT", "FINAL"): _WINDOW_CLOSE,
    ("EMIT", "STREAM"): _WINDOW_CLOSE,
    ("EMIT", "AFTER"): _WINDOW_CLOSE,
    ("EMIT", "WITH"): _WINDOW_CLOSE,
    ("WINDOW", "TUMBLING"): _GROUP_WINDOW,
    ("WINDOW", "HOPPING"): _GROUP_WINDOW,
    ("WINDOW", "SESSION"): _GROUP_WINDOW,
    ("SESSION", "WITH", "GAP"): (
        "write FROM SESSION(t PARTITION BY k, ts, INTERVAL '1' HOUR), whose columns "
        "window_start and "
        "window_end are the bounds of the session of each row"
    ),
    ("WITHIN", "0"): "write the times in ON: b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts",
    ("WITHIN", "("): "write the times in ON: b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts",
    # Without the later words, LATEST and REFRESH can be tables in JOIN.
    ("LATEST", "ON", "*", "PARTITION BY"): _LATEST,
    ("LATEST", "ON", "*", ".", "*", "PARTITION BY"): _LATEST,
    ("LATEST", "BY"): _LATEST,
    ("SAMPLE", "BY"): "write GROUP BY time_bucket(INTERVAL '1' HOUR, ts)",
    ("WATERMARK", "INTERVAL"): (
        "write LATENESS INTERVAL ..., which refuses rows that are later; no view waits for them"
    ),
    **{("AS", "OF", word): _AS_OF for word in ("0", "AT", "NOW", "TIMESTAMP")},
    ("RETURN", "AT", "RECURSION", "LIMIT"): (
        "count the iterations in a column of the recursion, and limit it in WHERE"
    ),
    ("GRAPH_TABLE", "("): "join the tables of nodes and edges, or write rules of Datalog",
    ("MODEL", "DIMENSION"): "write window functions, or WITH RECURSIVE",
    ("DURING", "PERIOD"): "compare the times with BETWEEN",
    ("PERIOD", "FOR"): "declare two columns, and compare a time with them",
    **{("REFRESH", word): _REFRESH for word in ("EVERY", "FAST", "MATERIALIZED")},
    **{("REFRESH", "ON", word): _REFRESH for word in ("COMMIT", "DEMAND", "STATEMENT")},
    ("WITH", "NO", "DATA"): "leave it out: a view has the rows of its inputs",
    ("ADD", "JAR"): "pass functions of Python by functions={...}",
    ("CURSOR", "FOR"): _CHANGES,
    **{("FROM", "FIRST", word): "leave it out" for word in ("OVER", "IGNORE", "RESPECT")},
    **{("FROM", "LAST", word): _FROM_LAST for word in ("OVER", "IGNORE", "RESPECT")},
}
_CONSTRUCTS_BY_WORD: Final = {
    first: [(key, advice) for key, advice in _CONSTRUCTS.items() if key[0] == first]
    for first in {key[0] for key in _CONSTRUCTS}
}
# Words that begin a construct only if they are the first of a statement, and the advice.
_STATEMENTS: Final = {"SUBSCRIBE": _CHANGES, "TAIL": _CHANGES}
_QUOTED: Final = (TokenType.STRING, TokenType.IDENTIFIER)
_MODIFIERS: Final = frozenset(
    {"OR", "REPLACE", "REFRESH", "UNIQUE", "DEFAULT", "IF", "NOT", "EXISTS", "TEMP", "TEMPORARY"}
)
_NO_EFFECT: Final = "leave it out: it has no effect on the rows of a view"
# Advice for CREATE of objects that are not supported, by the first word of the kind of object.
_OBJECTS: Final = {
    "SOURCE": "list its columns, as in CREATE TABLE; the caller passes the rows",
    "STREAM": "list its columns, as in CREATE TABLE; the caller passes the rows",
    "SINK": "write CREATE VIEW; the caller takes its changes",
    "FLOW": "in a pipeline, write CREATE FLOW f AS INSERT INTO t BY NAME SELECT ..., and CREATE "
    "STREAMING TABLE t; elsewhere, write its query into CREATE STREAMING TABLE t AS SELECT ..., "
    "and those of several flows as one query with UNION ALL",
    "CONTINUOUS": "write CREATE VIEW, which is kept up to date",
    "LIVE": "write CREATE VIEW, which is kept up to date",
    "TRIGGER": "the caller takes the changes of a view",
    "PROCEDURE": "write CREATE FUNCTION with RETURN and an expression, or views",
    "AGGREGATE": "write the expression of the aggregate in a CREATE MACRO",
    "TEMPORAL": "join with FOR SYSTEM_TIME AS OF a time of the other table",
    "TYPE": "write AS ENUM ('a', 'b') or AS (name TYPE, ...), with a new name",
    "SEQUENCE": "let the caller number the rows",
    "POLICY": "write the condition in the WHERE of the views",
    "MODEL": "pass a function of Python by functions={...}",
    **dict.fromkeys(("CATALOG", "CLUSTER", "EXTENSION", "ROLE", "USER"), _NO_EFFECT),
}


def find_foreign_construct(tokens: Sequence[Token]) -> ForeignConstruct | None:
    """Return the first construct of another engine in tokens; None if there is none.

    >>> import sqlglot
    >>> find_foreign_construct(sqlglot.tokenize("SELECT a FROM t DURING PERIOD p"))
    ForeignConstruct(offset=16, name='DURING PERIOD', advice='compare the times with BETWEEN')
    """
    words = [_word(token) for token in tokens]
    for index, token in enumerate(tokens):
        is_first = index == 0 or tokens[index - 1].token_type == TokenType.SEMICOLON
        if is_first and words[index] in _STATEMENTS:
            return ForeignConstruct(token.start, words[index], _STATEMENTS[words[index]])
        for key, advice in _CONSTRUCTS_BY_WORD.get(words[index], ()):
            found = words[index : index + len(key)]
            if len(found) == len(key) and all(
                expected in ("*", word) for expected, word in zip(key, found, strict=True)
            ):
                named = key[: key.index("*")] if "*" in key else key
                name = " ".join(word for word in named if word not in ("0", "("))
                return ForeignConstruct(token.start, name, advice)
    return None


def created_object(tokens: Sequence[Token]) -> ForeignConstruct | None:
    """Return the CREATE of an object that is not supported; None for any other statement."""
    words = [_word(token) for token in tokens]
    if words[:1] != ["CREATE"]:
        return None
    kind = next((word for word in words[1:] if word not in _MODIFIERS), "")
    if kind not in _OBJECTS:
        return None
    return ForeignConstruct(tokens[0].start, f"CREATE {kind}", _OBJECTS[kind])


def _word(token: Token) -> str:
    """Return a token in upper case; a number as 0, and a quoted name or a text as nothing.

    The words of a token of several words are separated by one blank.
    """
    if token.token_type == TokenType.NUMBER:
        return "0"
    return "" if token.token_type in _QUOTED else " ".join(token.text.upper().split())
