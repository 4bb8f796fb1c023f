"""Statements and words of other engines, replaced or left out in the tokens of a text.

sqlglot does not know them, or keeps too little of them. They are read as follows:

========================================== =======================================================
``CREATE LOCAL VIEW``                      ``CREATE TEMPORARY VIEW`` (Feldera)
``RECURSIVE VIEW v``                       ``VIEW v``; the name is kept (Feldera, PostgreSQL)
``DECLARE RECURSIVE VIEW v (...)``         left out; the name is kept (Feldera)
``CREATE SOURCE s (...)``                  ``CREATE TABLE s (...)`` (RisingWave); also ``STREAM``
``APPEND ONLY``, ``FORMAT x ENCODE y``     left out after the columns of a table (RisingWave)
``CREATE SINK s AS SELECT ... WITH (...)`` ``CREATE VIEW s AS SELECT ...`` (RisingWave)
``CREATE SINK s FROM v ...``               left out; the caller takes the changes of the view
``CREATE INDEX``, ``SECRET``, ...          left out: the caller reads and writes the rows
``LATENESS v.ts INTERVAL 1 HOUR``          left out: a bound only frees memory (Feldera)
``BEGIN STATEMENT SET; ...; END``          the statements in it (Flink); see `SqlSource.tokenize`
``LEFT ASOF JOIN``                         ``ASOF LEFT JOIN`` (Feldera)
``MATCH_CONDITION (...)``                  a keyword, also in other dialects than Snowflake's
``WITH MUTUALLY RECURSIVE t (a INT) AS``   ``WITH RECURSIVE t (a) AS`` (Materialize)
``OPTIONS (... GROUP SIZE = 1000)``        left out: a hint (Materialize)
``a INT ARRAY`` in CREATE TABLE            ``a INT[]``
``a ROW(x INT)``                           ``a STRUCT(x INT)`` (Feldera), also after AS in CAST
``VALUES ROW(1, 'a')``                     ``VALUES (1, 'a')`` (Feldera, MySQL)
``(a - b) DAY TO SECOND``                  a call of an interval of days, or of months (Feldera)
``SELECT ... MINUS SELECT ...``            ``SELECT ... EXCEPT SELECT ...`` (Spark, Feldera, Oracle)
``RETURNS INT NOT NULL``                   ``RETURNS INT`` (Feldera)
``CREATE STREAM s AS ... EMIT CHANGES``    ``CREATE VIEW s AS ...`` (ksqlDB); also ``TABLE``
``SELECT ... EMIT CHANGES``                ``SELECT ...``: a view emits its changes (ksqlDB)
``CREATE OR REFRESH ...``                  ``CREATE ...`` (Databricks)
``CREATE STREAMING TABLE v AS SELECT ...`` ``CREATE VIEW v AS SELECT ...`` (Databricks)
``CREATE TEMP STREAMING TABLE v AS ...``   ``CREATE TEMP VIEW v AS ...`` (`circuits.sql.flows`)
``FROM STREAM(t)``                         ``FROM t``: every input is a stream (Databricks)
``FROM STREAM t``                          the same, in CREATE STREAMING TABLE (Spark)
``TABLE t``                                ``SELECT * FROM t``
``|x| x + 1``                              ``x -> x + 1`` (RisingWave)
``(ERROR AT RECURSION LIMIT 9)``           left out: ``max_iterations`` limits a step (Materialize)
``IN CLUSTER c``, ``WITH (RETAIN ...)``    left out of CREATE VIEW (Materialize)
``SET 'parallelism.default' = 4``          left out, if it sets how a job runs, not what it returns
``CREATE TYPE a AS (x INT)``               left out; ``a`` is ``STRUCT(x INT)`` in the statements
========================================== =======================================================

A part of a declaration that is left out gives a notice. A word after a difference in the list of
SELECT, as in ``(a - b) day, c``, is an alias.

The least fixpoint of a set of equations is the same in Materialize and in SQL as long as each
equation names a recursive relation at most once and without an aggregate, which
`circuits.sql.queries.equations` demands. Materialize checks the types in the list of columns, so
they cannot change a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["StatementWords", "find_stream_words", "rewrite_statements", "split_statements"]

# The words that begin a query. ALL and DISTINCT may stand between MINUS and the query.
_QUERY_STARTS: Final = {"SELECT", "VALUES", "WITH", "TABLE", "ALL", "DISTINCT"}
# The last token of a name, a literal or a query in parentheses.
_OPERAND_ENDS: Final = {
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
}
# By the first unit of a difference of times: the function of `function_templates` that computes it.
_INTERVALS: Final = {
    **dict.fromkeys(("YEAR", "QUARTER", "MONTH"), "interval_of_months"),
    **dict.fromkeys(("WEEK", "DAY", "HOUR", "MINUTE", "SECOND"), "interval_of_days"),
}
# The tokens that show that the word before them is a unit of time: no alias can stand there.
_AFTER_FIELDS: Final = {
    *(TokenType.ALIAS, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH),
    *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
    *(TokenType.AND, TokenType.OR, TokenType.IS, TokenType.BETWEEN, TokenType.IN),
}
# The words that begin the clauses of a query.
_CLAUSES: Final = frozenset(
    ("SELECT", "FROM", "JOIN", "ON", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT")
)
# Objects without an effect on the rows of a view, and where the caller does their work.
_UNUSED_OBJECTS: Final = {
    "CONNECTION": "the caller passes the rows",
    "DATABASE": "names of tables can have any schema",
    "INDEX": "the engine chooses the orders in which it stores rows",
    "SCHEMA": "names of tables can have any schema",
    "SECRET": "the caller passes the rows",
}
# Words between CREATE and the kind of an object.
_CREATE_MODIFIERS: Final = frozenset({"OR", "REPLACE", "UNIQUE", "DEFAULT", "IF", "NOT", "EXISTS"})
_SOURCE_KINDS: Final = frozenset({"SOURCE", "STREAM"})
_TABLE_KINDS: Final = frozenset({"TABLE", *_SOURCE_KINDS})
# The first words of the hints of Materialize in OPTIONS (...).
_HINTS: Final = frozenset({"AGGREGATE", "DISTINCT", "EXPECTED", "LIMIT"})


@dataclass
class StatementWords:
    """The tokens of a text in the words that sqlglot knows.

    Attributes:
        tokens: The tokens.
        recursive_views: The lower-case names of views that are declared as recursive.
        notices: The offset of each part that is left out without an effect, its name, and why.
        types: For each type that CREATE TYPE declares, by its lower-case name, the first and the
            last offset of its definition.
    """

    tokens: list[Token] = field(default_factory=list)
    recursive_views: set[str] = field(default_factory=set)
    notices: list[tuple[int, str, str]] = field(default_factory=list)
    types: dict[str, tuple[int, int]] = field(default_factory=dict)


def rewrite_statements(tokens: list[Token]) -> StatementWords:
    """Return the tokens of a text, in which the words of other engines are replaced."""
    result = StatementWords()
    for statement in split_statements(tokens):
        for rewrite in _REWRITES:
            statement = rewrite(statement, result)
        if any(token.token_type != TokenType.SEMICOLON for token in statement):
            result.tokens += statement
    return result


def split_statements(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, with the semicolon after it."""
    statement: list[Token] = []
    for token in tokens:
        statement.append(token)
        if token.token_type == TokenType.SEMICOLON:
            yield statement
            statement = []
    if statement:
        yield statement


def _word(tokens: list[Token], index: int) -> str:
    """Return a token in upper case; empty beyond the end, and for a quoted name or a text."""
    if index >= len(tokens) or tokens[index].token_type in _QUOTED:
        return ""
    return tokens[index].text.upper()


_QUOTED: Final = (TokenType.STRING, TokenType.IDENTIFIER)


def _replace(token: Token, token_type: TokenType, text: str) -> Token:
    """Return a token at the same place in the text."""
    return Token(token_type, text, token.line, token.col, token.start, token.end)


def _after_parentheses(tokens: list[Token], start: int) -> int:
    """Return the index after the parenthesis that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].token_type == TokenType.L_PAREN:
            depth += 1
        elif tokens[index].token_type == TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(tokens)


def _outside_parentheses(tokens: list[Token], start: int) -> Iterator[int]:
    """Yield the indexes of the tokens that are not in parentheses, from ``start`` on."""
    index = start
    while index < len(tokens):
        yield index
        is_open = tokens[index].token_type == TokenType.L_PAREN
        index = _after_parentheses(tokens, index) if is_open else index + 1


def _created_kind(tokens: list[Token]) -> int | None:
    """Return the index of the kind of object that a statement creates; None if it creates none."""
    if _word(tokens, 0) != "CREATE":
        return None
    index = 1
    while _word(tokens, index) in _CREATE_MODIFIERS:
        index += 1
    return index


def _name_recursive_views(tokens: list[Token], result: StatementWords) -> list[Token]:
    words = [_word(tokens, index) for index in range(max(3, len(tokens)))]
    # `SqlSource.tokenize` writes CREATE for DECLARE in some dialects.
    is_declaration = words[0] in ("DECLARE", "CREATE") and words[1:3] == ["RECURSIVE", "VIEW"]
    is_declaration = is_declaration and "AS" not in words
    kept: list[Token] = []
    for index, token in enumerate(tokens):
        is_recursive = _word(tokens, index) == "RECURSIVE" and _word(tokens, index + 1) == "VIEW"
        name = index + 2
        while _word(tokens, name) in _CREATE_MODIFIERS:
            name += 1
        end = name + 1
        while _word(tokens, end) == ".":
            end += 2
        if is_recursive and name < len(tokens):
            parts = [part.text.casefold() for part in tokens[name:end]]
            result.recursive_views.add("".join(parts))
        else:
            kept.append(token)
    return [] if is_declaration else kept


def _read_local_as_temporary(tokens: list[Token], _: StatementWords) -> list[Token]:
    kind = _created_kind(tokens)
    if kind is not None and _word(tokens, kind) == "LOCAL" and _word(tokens, kind + 1) == "VIEW":
        tokens[kind] = _replace(tokens[kind], TokenType.TEMPORARY, "TEMPORARY")
    return tokens


def _strip_statement_set(tokens: list[Token], _: StatementWords) -> list[Token]:
    words = [_word(tokens, index) for index in range(4)]
    if words == ["EXECUTE", "STATEMENT", "SET", "BEGIN"]:
        return tokens[4:]
    if words[:3] == ["BEGIN", "STATEMENT", "SET"]:
        return tokens[3:]
    is_end = words[:2] == ["END", ";"] or (words[0] == "END" and len(tokens) == 1)
    return [] if is_end else tokens


def _read_source_as_table(tokens: list[Token], _: StatementWords) -> list[Token]:
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) not in _SOURCE_KINDS:
        return tokens
    columns = kind + 1
    while _word(tokens, columns) in _CREATE_MODIFIERS:
        columns += 1
    columns += 1  # the name
    while _word(tokens, columns) == ".":
        columns += 2
    if _word(tokens, columns) == "(":
        end = _after_parentheses(tokens, columns)
        if end >= len(tokens) or _word(tokens, end) in (";", "APPEND", "FORMAT", "WITH"):
            tokens[kind] = _replace(tokens[kind], TokenType.TABLE, "TABLE")
    return tokens


def _strip_table_options(tokens: list[Token], result: StatementWords) -> list[Token]:
    """Leave out APPEND ONLY and FORMAT ... ENCODE ... after the columns of a table."""
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) not in _TABLE_KINDS:
        return tokens
    kept, skip_until = list(tokens[:kind]), 0
    positions = set(_outside_parentheses(tokens, kind))
    for index in range(kind, len(tokens)):
        words = _word(tokens, index), _word(tokens, index + 1)
        if index in positions and index >= skip_until:
            if words == ("APPEND", "ONLY"):
                skip_until = index + 2
                effect = "a deletion of a row is accepted"
                result.notices.append((tokens[index].start, "APPEND ONLY", effect))
            elif words[0] == "FORMAT" and _word(tokens, index + 2) == "ENCODE":
                skip_until = index + 4
                if _word(tokens, skip_until) == "(":
                    skip_until = _after_parentheses(tokens, skip_until)
                result.notices.append((tokens[index].start, "FORMAT", "the caller passes the rows"))
        if index >= skip_until:
            kept.append(tokens[index])
    return kept


def _read_array_types(tokens: list[Token], words: StatementWords) -> list[Token]:
    """Replace ``INT ARRAY`` by ``INT[]``; sqlglot reads only one such column of a table."""
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) not in _TABLE_KINDS:
        return tokens
    result = list(tokens[:kind])
    for index in range(kind, len(tokens)):
        is_type = index > kind and (
            tokens[index - 1].token_type in Parser.TYPE_TOKENS | {TokenType.R_PAREN}
            or tokens[index - 1].text.casefold() in words.types
        )
        is_suffix = _word(tokens, index + 1) not in ("<", "[", "(")  # ARRAY(INT) is a type
        if _word(tokens, index) == "ARRAY" and is_type and is_suffix:
            result.append(_replace(tokens[index], TokenType.L_BRACKET, "["))
            result.append(_replace(tokens[index], TokenType.R_BRACKET, "]"))
        else:
            result.append(tokens[index])
    return result


def _read_row_types(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Replace the type ``ROW(x INT)`` by ``STRUCT(x INT)``, in CREATE and after AS."""
    kind = _created_kind(tokens)
    declares = kind is not None and _word(tokens, kind) in {*_TABLE_KINDS, "TYPE"}
    result: list[Token] = []
    end = 0  # the first token after the ROW that is open
    for index, token in enumerate(tokens):
        is_type = declares or (index > 0 and _word(tokens, index - 1) == "AS")
        is_type = is_type or index < end
        if is_type and _word(tokens, index) == "ROW" and _word(tokens, index + 1) == "(":
            end = max(end, _after_parentheses(tokens, index + 1))
            token = _replace(token, TokenType.STRUCT, "STRUCT")
        result.append(token)
    return result


def _read_interval_differences(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Replace ``(a - b) MONTH`` by a call; in ``(a - b) month, c``, the word is an alias."""
    starts: list[int] = []
    index = 0
    while index < len(tokens):
        if tokens[index].token_type == TokenType.L_PAREN:
            starts.append(index)
        elif tokens[index].token_type == TokenType.R_PAREN and starts:
            start = starts.pop()
            end = _find_end_of_fields(tokens, start, index, starts)
            minus = _find_minus(tokens, start, index) if end else 0
            if minus:
                name = _INTERVALS[_word(tokens, index + 1).removesuffix("S")]
                tokens[minus] = _replace(tokens[minus], TokenType.COMMA, ",")
                tokens[index + 1 : end] = []
                tokens.insert(start, _replace(tokens[start], TokenType.VAR, name))
                index += 1
        index += 1
    return tokens


def _find_end_of_fields(tokens: list[Token], start: int, end: int, starts: list[int]) -> int:
    """Return the index after ``MONTH`` or ``DAY TO SECOND`` behind a parenthesis; 0 without them.

    In the list of SELECT, a word before a comma, FROM or the end of the query is an alias.
    """
    if _word(tokens, end + 1).removesuffix("S") not in _INTERVALS:
        return 0
    if _word(tokens, end + 2) == "TO":
        is_unit = _word(tokens, end + 3).removesuffix("S") in _INTERVALS
        return end + 4 if is_unit else 0
    following = tokens[end + 2].token_type if end + 2 < len(tokens) else None
    is_in_query = not starts or _word(tokens, starts[-1] + 1) in _QUERY_STARTS
    may_be_alias = is_in_query and _may_have_alias(tokens, starts[-1] + 1 if starts else 0, start)
    return end + 2 if not may_be_alias or following in _AFTER_FIELDS else 0


def _may_have_alias(tokens: list[Token], first: int, end: int) -> bool:
    """Return whether an item that begins at ``end`` may have an alias.

    That is so in the lists of SELECT and FROM, but not within CASE.

    Args:
        tokens: The tokens.
        first: The first token of the query, or of the statement.
        end: The first token of the item.
    """
    clause, open_cases = "SELECT", 0
    for index in _outside_parentheses(tokens[:end], first):
        word = _word(tokens, index)
        if word == "CASE":
            open_cases += 1
        elif word == "END":
            open_cases -= 1
        elif word in _CLAUSES and [_word(tokens, index - 1), word] != ["DISTINCT", "ON"]:
            clause, open_cases = word, 0
    return clause in ("SELECT", "FROM", "JOIN") and open_cases <= 0


def _find_minus(tokens: list[Token], start: int, end: int) -> int:
    """Return the index of the minus in ``(a - b)``; 0 for other contents, and for a call."""
    before = tokens[start - 1].token_type if start > 0 else None
    is_call = before in _OPERAND_ENDS or before == TokenType.INTERVAL  # INTERVAL (n - 1) DAY
    inside = _outside_parentheses(tokens[:end], start + 1)
    places = [place for place in inside if tokens[place].token_type == TokenType.DASH]
    is_query = _word(tokens, start + 1) in _QUERY_STARTS
    is_difference = len(places) == 1 and places[0] > start + 1 and not (is_call or is_query)
    return places[0] if is_difference else 0


def _read_value_rows(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Leave out ROW in ``VALUES ROW(1, 'a'), ROW(2, 'b')``."""
    result: list[Token] = []
    row = -1  # the place where ROW begins a row of VALUES
    for index, token in enumerate(tokens):
        if _word(tokens, index) == "VALUES":
            row = index + 1
        if index == row and _word(tokens, index) == "ROW" and _word(tokens, index + 1) == "(":
            end = _after_parentheses(tokens, index + 1)
            row = end + 1 if _word(tokens, end) == "," else -1
            continue
        result.append(token)
    return result


def _read_minus(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Replace MINUS between two queries by EXCEPT."""
    for index in range(1, len(tokens)):
        if _word(tokens, index) != "MINUS":
            continue
        following = index + 1
        while _word(tokens, following) == "(" and tokens[index - 1].token_type in _OPERAND_ENDS:
            following += 1  # otherwise, MINUS is the name of a function
        if _word(tokens, following) in _QUERY_STARTS:
            tokens[index] = _replace(tokens[index], TokenType.EXCEPT, "EXCEPT")
    return tokens


def _read_sink_as_view(tokens: list[Token], result: StatementWords) -> list[Token]:
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) != "SINK":
        return tokens
    outside = list(_outside_parentheses(tokens, kind))
    words = {_word(tokens, index): index for index in reversed(outside)}
    if "AS" in words and "INTO" not in words:
        tokens[kind] = _replace(tokens[kind], TokenType.VIEW, "VIEW")
        options = [
            index
            for index in outside
            if index > words["AS"] + 1
            and _word(tokens, index) == "WITH"
            and _word(tokens, index + 1) == "("
        ]
        if not options:
            return tokens
        result.notices.append((tokens[options[-1]].start, "WITH of a sink", _SINK_EFFECT))
        is_ended = tokens[-1].token_type == TokenType.SEMICOLON
        return [*tokens[: options[-1]], *(tokens[-1:] if is_ended else [])]
    if "FROM" in words and "INTO" not in words:
        result.notices.append((tokens[0].start, "CREATE SINK", _SINK_EFFECT))
        return []
    return tokens


_SINK_EFFECT: Final = "the caller takes the changes of the view"


def _strip_unused_objects(tokens: list[Token], result: StatementWords) -> list[Token]:
    if _word(tokens, 0) == "LATENESS" and _word(tokens, 2) == ".":
        reason = "state that depends on a view is freed by the lateness of its tables"
        result.notices.append((tokens[0].start, "LATENESS of a view", reason))
        return []
    kind = _created_kind(tokens)
    effect = _UNUSED_OBJECTS.get(_word(tokens, kind)) if kind is not None else None
    if kind is None or effect is None:
        return tokens
    result.notices.append((tokens[0].start, f"CREATE {_word(tokens, kind)}", effect))
    return []


def _read_asof_joins(tokens: list[Token], _: StatementWords) -> list[Token]:
    for index in range(len(tokens)):
        words = [_word(tokens, index + offset) for offset in range(3)]
        if words == ["LEFT", "ASOF", "JOIN"]:
            tokens[index : index + 2] = tokens[index + 1], tokens[index]
        elif words[:2] == ["MATCH_CONDITION", "("]:
            tokens[index] = _replace(tokens[index], TokenType.MATCH_CONDITION, words[0])
    return tokens


def _strip_recursion_limits(tokens: list[Token], result: StatementWords) -> list[Token]:
    """Leave out ``(ERROR AT RECURSION LIMIT 10)`` after WITH MUTUALLY RECURSIVE."""
    for index in reversed(range(len(tokens))):
        words = [_word(tokens, index + offset) for offset in range(5)]
        if words[:2] != ["RECURSIVE", "("]:
            continue
        if words[2:] == ["ERROR", "AT", "RECURSION"] or words[2:4] == ["RECURSION", "LIMIT"]:
            effect = "the argument max_iterations limits the iterations of a step"
            result.notices.append((tokens[index + 2].start, "RECURSION LIMIT", effect))
            del tokens[index + 1 : _after_parentheses(tokens, index + 1)]
    return tokens


def _read_mutual_recursion(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Leave out MUTUALLY, and the types in the column lists of the queries of that WITH."""
    starts = [
        index
        for index in range(len(tokens))
        if [_word(tokens, index + offset) for offset in range(3)] == _MUTUALLY
    ]
    skipped: set[int] = set()
    for start in starts:
        skipped.add(start + 1)
        index = start + 3  # the name of the first query
        while _word(tokens, index + 1) == "(":
            end = _after_parentheses(tokens, index + 1)
            is_name = True
            depth = 0
            for position in range(index + 2, end - 1):
                token_type = tokens[position].token_type
                depth += (token_type == TokenType.L_PAREN) - (token_type == TokenType.R_PAREN)
                is_comma = token_type == TokenType.COMMA and depth == 0
                if not is_name and not is_comma:
                    skipped.add(position)
                is_name = is_comma
            if _word(tokens, end) != "AS" or _word(tokens, end + 1) != "(":
                break
            index = _after_parentheses(tokens, end + 1)
            if _word(tokens, index) != ",":
                break
            index += 1
    return [token for index, token in enumerate(tokens) if index not in skipped]


_MUTUALLY: Final = ["WITH", "MUTUALLY", "RECURSIVE"]


def _strip_hints(tokens: list[Token], _: StatementWords) -> list[Token]:
    for index in reversed(range(len(tokens))):
        is_options = (
            _word(tokens, index) in ("OPTION", "OPTIONS") and _word(tokens, index + 1) == "("
        )
        if is_options and _word(tokens, index + 2) in _HINTS:
            end = _after_parentheses(tokens, index + 1)
            if "SIZE" in (_word(tokens, position) for position in range(index, end)):
                del tokens[index:end]
    return tokens


def _strip_emit_changes(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Leave out EMIT CHANGES; a table or stream that is made by such a query is a view."""
    end = len(tokens) - (tokens[-1:] != [] and tokens[-1].token_type == TokenType.SEMICOLON)
    if end < 3 or [_word(tokens, index) for index in (end - 2, end - 1)] != ["EMIT", "CHANGES"]:
        return tokens
    tokens = tokens[: end - 2] + tokens[end:]
    kind = _created_kind(tokens)
    if kind is not None and _word(tokens, kind) in ("STREAM", "TABLE"):
        tokens[kind] = _replace(tokens[kind], TokenType.VIEW, "VIEW")
        options = kind + 2
        if _word(tokens, options) == "WITH" and _word(tokens, options + 1) == "(":
            del tokens[options : _after_parentheses(tokens, options + 1)]
    return tokens


def _read_streaming_tables(tokens: list[Token], _: StatementWords) -> list[Token]:
    if [_word(tokens, index) for index in range(3)] == ["CREATE", "OR", "REFRESH"]:
        tokens = tokens[:1] + tokens[3:]
    kind = _created_kind(tokens)
    is_streaming = False
    if kind is not None and _word(tokens, kind) in ("TEMP", "TEMPORARY"):
        kind += 1
    if kind is not None and [_word(tokens, kind + i) for i in (0, 1)] == _STREAMING_TABLE:
        is_streaming = True
        words = (_word(tokens, index) for index in _outside_parentheses(tokens, kind))
        if "AS" in words:
            view = _replace(tokens[kind], TokenType.VIEW, "VIEW")
            tokens = [*tokens[:kind], view, *tokens[kind + 2 :]]
    left_out = set(find_stream_words(tokens, is_streaming=is_streaming))
    return [token for index, token in enumerate(tokens) if index not in left_out]


def find_stream_words(tokens: list[Token], *, is_streaming: bool) -> list[int]:
    """Return the indexes of the tokens that make ``STREAM(t)`` or ``STREAM t`` of a table ``t``.

    Args:
        tokens: The tokens.
        is_streaming: True in CREATE STREAMING TABLE, where ``STREAM t`` is not ``t`` as an alias.
    """
    found = []
    for index in range(1, len(tokens) - 1):
        if _word(tokens, index) != "STREAM" or _word(tokens, index - 1) not in _BEFORE_TABLE:
            continue
        if _word(tokens, index + 1) == "(":
            end = _after_parentheses(tokens, index + 1)
            name = tokens[index + 2 : end - 1]
            dots = [token.token_type == TokenType.DOT for token in name]
            if len(name) % 2 and dots == [bool(part % 2) for part in range(len(name))]:
                found += [index, index + 1, end - 1]
        elif is_streaming and (
            tokens[index + 1].token_type in _NAMES or _word(tokens, index + 2) == "."
        ):
            found.append(index)
    return found


_STREAMING_TABLE: Final = ["STREAMING", "TABLE"]
_BEFORE_TABLE: Final = ("FROM", "JOIN", ",")
_NAMES: Final = (TokenType.VAR, TokenType.IDENTIFIER)


def _strip_not_null_of_result(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Leave out NOT NULL after the type of a function, which has the NULLs of its body."""
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) != "FUNCTION":
        return tokens
    words = [_word(tokens, index) for index in range(len(tokens))]
    start = words.index("RETURNS") if "RETURNS" in words else len(words)
    for index in range(start, len(words) - 1):
        if words[index] in ("AS", "RETURN"):
            break
        if words[index : index + 2] == ["NOT", "NULL"]:
            return tokens[:index] + tokens[index + 2 :]
    return tokens


def _read_table_command(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Replace ``TABLE t`` by ``SELECT * FROM t``."""
    names = [token for token in tokens[1:] if token.token_type != TokenType.SEMICOLON]
    is_name = all(token.token_type == TokenType.DOT for token in names[1::2])
    if _word(tokens, 0) != "TABLE" or len(names) % 2 == 0 or not is_name:
        return tokens
    words = (TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM")
    return [*(_replace(tokens[0], *word) for word in words), *tokens[1:]]


def _read_lambdas(tokens: list[Token], _: StatementWords) -> list[Token]:
    """Replace ``|x| x + 1`` after a comma by ``x -> x + 1``."""
    result: list[Token] = []
    index = 0
    while index < len(tokens):
        words = [_word(tokens, index + offset) for offset in (0, 1, 3)]
        if words == [",", "|", "|"] and tokens[index + 2].token_type == TokenType.VAR:
            arrow = _replace(tokens[index + 3], TokenType.ARROW, "->")
            result += [tokens[index], tokens[index + 2], arrow]
            index += 4
        else:
            result.append(tokens[index])
            index += 1
    return result


def _strip_view_placement(tokens: list[Token], result: StatementWords) -> list[Token]:
    """Leave out IN CLUSTER and WITH (RETAIN HISTORY ...) between the name of a view and AS."""
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) not in ("VIEW", "MATERIALIZED"):
        return tokens
    kept, skip_until = list(tokens[:kind]), 0
    is_before_as = True
    for index in range(kind, len(tokens)):
        words = [_word(tokens, index + offset) for offset in range(3)]
        is_before_as = is_before_as and words[0] != "AS"
        if is_before_as and words[:2] == ["IN", "CLUSTER"]:
            skip_until = index + 3
            result.notices.append((tokens[index].start, "IN CLUSTER", _PLACEMENT_EFFECT))
        elif is_before_as and words == ["WITH", "(", "RETAIN"]:
            skip_until = _after_parentheses(tokens, index + 1)
            result.notices.append((tokens[index].start, "RETAIN HISTORY", _PLACEMENT_EFFECT))
        if index >= skip_until:
            kept.append(tokens[index])
    return kept


_PLACEMENT_EFFECT: Final = "the caller decides where the view is kept, and for how long"
# The first words of settings that do not change the rows of a view.
_RUN_SETTINGS: Final = (
    *("execution", "jobmanager", "parallelism", "pipeline", "restart-strategy", "sql-client"),
    *("state", "taskmanager", "streaming_parallelism", "rw_implicit_flush", "cluster", "threads"),
    *("memory_limit", "spark.sql.shuffle.partitions", "spark.sql.adaptive"),
)


def _strip_settings(tokens: list[Token], result: StatementWords) -> list[Token]:
    if _word(tokens, 0) != "SET":
        return tokens
    name = ""
    for token in tokens[1:]:
        if token.token_type == TokenType.EQ or token.text.upper() == "TO":
            break
        name += token.text.lower()
    if not any(name == setting or name.startswith(f"{setting}.") for setting in _RUN_SETTINGS):
        return tokens
    result.notices.append((tokens[0].start, f"SET {name}", "the caller decides how the job runs"))
    return []


def _read_type_declarations(tokens: list[Token], result: StatementWords) -> list[Token]:
    """Keep the definition of ``CREATE TYPE a AS (x INT)`` or ``AS ENUM ('a', 'b')``."""
    kind = _created_kind(tokens)
    if kind is None or _word(tokens, kind) != "TYPE" or _word(tokens, kind + 2) != "AS":
        return tokens
    definition = [part for part in tokens[kind + 3 :] if part.token_type != TokenType.SEMICOLON]
    name = tokens[kind + 1].text.casefold()
    is_other = not definition or definition[0].text.upper() == "RANGE"
    if is_other or name in result.types:
        return tokens
    result.types[name] = definition[0].start, definition[-1].end
    for first, second in pairwise(definition):
        if [first.text.upper(), second.text.upper()] == ["NOT", "NULL"]:
            effect = "the fields are not checked"
            result.notices.append((first.start, "NOT NULL in CREATE TYPE", effect))
    return []


# Each takes the tokens of a statement and returns those to parse; none if it is left out.
_REWRITES: Final[tuple[Callable[[list[Token], StatementWords], list[Token]], ...]] = (
    _strip_statement_set,
    _strip_emit_changes,
    _read_streaming_tables,
    _name_recursive_views,
    _read_local_as_temporary,
    _strip_table_options,
    _read_row_types,
    _read_value_rows,
    _read_minus,
    _read_interval_differences,
    _read_array_types,
    _read_source_as_table,
    _read_sink_as_view,
    _strip_unused_objects,
    _read_asof_joins,
    _strip_recursion_limits,
    _read_mutual_recursion,
    _strip_hints,
    _strip_not_null_of_result,
    _read_table_command,
    _read_lambdas,
    _strip_view_placement,
    _strip_settings,
    _read_type_declarations,
)
