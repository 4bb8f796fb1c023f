"""The text of a query, its syntax trees, and errors that point into it.

sqlglot keeps the offset of names, literals and of some function names. The place of any other node
is the first such offset below it, or the keyword before it.

``accept`` protects against wrong answers: each reader of a node names the arguments that it reads,
and any other argument that is set (``TABLESAMPLE``, ``WITH TIES``, ``IGNORE NULLS``...) is an
error. ``check_read`` protects against readers that ignore whole nodes: after a statement is
planned, a node that no reader has passed to ``accept`` is an error, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import sqlglot
from sqlglot import Dialect, Dialects, exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from circuits.errors import FunctionError, SqlError, UnsupportedSqlError
from circuits.sql.parsing import WRITTEN, is_spark, parse_statements
from dbsp_wcoj.text_position import point_at

__all__ = ["MAX_NUMBER_CHARACTERS", "SYMBOLS", "SqlSource"]

#: Maximum length of a number in a query; no type has values of more than 76 digits.
MAX_NUMBER_CHARACTERS: Final = 1000

# The SQL name of an argument of a syntax tree, if its upper-case name would mislead.
CONSTRUCTS: Final = {
    "by_name": "BY NAME",
    "connect": "CONNECT BY",
    "db": "a name with a schema",
    "except_": "EXCLUDE",
    "expressions": "a list of expressions",
    "hints": "a hint",
    "laterals": "LATERAL",
    "limit_options": "a limit with PERCENT or WITH TIES",
    "locks": "FOR UPDATE",
    "only": "ONLY",
    "pivots": "PIVOT",
    "properties": "a property of the view",
    "sample": "TABLESAMPLE",
    "spec": "a window frame",
    "when": "AT",
    "with_": "WITH",
    "windows": "WINDOW",
}

# Names of nodes that are written as operators or brackets, not as words.
SYMBOLS: Final[dict[type[exp.Expr], str]] = {
    exp.Array: "a list [...]",
    exp.BitwiseNot: "operator ~",
    exp.Bracket: "a subscript [...]",
    exp.Struct: "a struct {...}",
}

# Nodes that the reader of their parent reads, with the arguments that it reads.
PLAIN: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    exp.And: ("this", "expression"),
    exp.Boolean: ("this",),
    exp.Identifier: ("this", "quoted"),
    exp.Limit: ("expression",),
    exp.Literal: ("this", "is_string"),
    exp.Not: ("this",),
    exp.Null: (),
    exp.Offset: ("expression",),
    exp.Paren: ("this",),
    exp.Subquery: ("this",),
    exp.Var: ("this",),
}

NO_COMMA_AFTER: Final = (
    *(TokenType.COMMA, TokenType.L_PAREN, TokenType.SELECT, TokenType.DISTINCT),
    *(TokenType.ALIAS, TokenType.FROM, TokenType.WHERE),
)

# The keyword in the text that sets an argument, if it is not the name of the argument.
KEYWORDS: Final = {
    "by_name": "by name",
    "locks": "for",
    "pivots": "pivot",
    "replace": "replace",
    "sample": "sample",
}

Error = TypeVar("Error", bound=SqlError)


class SqlSource:
    """A text, its tokens, and the record of the nodes that have been read.

    Args:
        text: One or more statements.
        dialect: The name of a dialect of sqlglot.
    """

    def __init__(self, text: str, dialect: str) -> None:
        self.text = text
        self.dialect = dialect
        self.tokens: list[Token] = []
        self._nodes_read: set[int] = set()

    @property
    def is_spark(self) -> bool:
        """True if semantics that differ between Spark 4 and DuckDB are those of Spark."""
        return is_spark(self.dialect)

    def statements(self) -> list[exp.Expr]:
        """Return the syntax trees of the statements, in order.

        Raises:
            SqlError: The text is not SQL.
        """
        if not isinstance(self.dialect, str) or Dialect.get(self.dialect) is None:
            known = ", ".join(sorted(filter(None, Dialects)))
            raise self.error_at(0, f"there is no dialect {self.dialect!r}; there are {known}")
        try:
            self.tokens = sqlglot.tokenize(self.text, dialect=self.dialect)
            self._check_tokens()
            trees = parse_statements(self.tokens, self.text, self.dialect)
        except SqlError:
            raise
        except ParseError as error:
            raise self._syntax_error(error) from None
        except SqlglotError as error:
            raise self.error_at(
                0, f"the text cannot be read: {_without_control_characters(str(error))}"
            ) from None
        except RecursionError:
            raise self.error_at(
                0, "the text is nested too deeply; put parts of it in views"
            ) from None
        except (ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError) as bug:
            # sqlglot raises these errors for some texts that are no SQL.
            raise self.error_at(
                0, f"the text is no SQL ({type(bug).__name__} in its reader)"
            ) from None
        # A comment after the last semicolon is a statement to sqlglot.
        statements = [
            tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)
        ]
        for tree in statements:
            for name in tree.find_all(exp.Identifier):
                if not name.args.get("quoted") and not re.fullmatch(r"[^\W\d][\w$]*", name.name):
                    raise self.error(name, f"{name.name!r} is no name; put it in double quotes")
        return statements

    def error(self, node: exp.Expr, message: str, word: str = "") -> SqlError:
        """Return an error at a node, or at the last ``word`` before it."""
        return self.error_at(self._offset_of(node, word), message)

    def unsupported(
        self, node: exp.Expr, construct: str, advice: str = "", word: str = ""
    ) -> UnsupportedSqlError:
        """Return the error for a construct that is valid SQL, but not supported."""
        message = f"{construct} is not supported" + (f"; {advice}" if advice else "")
        return self._make_error(self._offset_of(node, word), message, UnsupportedSqlError)

    def unsupported_at(self, offset: int, construct: str, advice: str) -> UnsupportedSqlError:
        """Return the error for an unsupported construct at an offset of the text."""
        return self._make_error(
            offset, f"{construct} is not supported; {advice}", UnsupportedSqlError
        )

    def error_at(self, offset: int, message: str) -> SqlError:
        """Return an error at an offset of the text."""
        return self._make_error(offset, message, SqlError)

    def accept(self, node: exp.Expr, *understood: str) -> None:
        """Record that a node is read; raise UnsupportedSqlError if another argument is set."""
        self._nodes_read.add(id(node))
        for name, value in node.args.items():
            if name in understood or value is None or value is False or value == []:
                continue
            inside = value[0] if isinstance(value, list) else value
            place = inside if isinstance(inside, exp.Expr) else node
            construct = CONSTRUCTS.get(name, name.strip("_").upper().replace("_", " "))
            if isinstance(value, str):
                construct = f"{construct} {value}"
            of = self.construct(node)
            raise self.unsupported(place, f"{construct} in {of}", word=_keyword_of(name, value))

    def mark_read(self, tree: exp.Expr) -> None:
        """Record that a tree is read, because it equals a tree that has been read."""
        self._nodes_read.update(id(node) for node in tree.walk())

    def check_read(self, tree: exp.Expr) -> None:
        """Raise UnsupportedSqlError if a part of a planned statement was not read.

        WITH queries that nothing names are left alone, as DuckDB leaves them.
        """

        def unused(node: exp.Expr) -> bool:
            return isinstance(node, exp.CTE) and id(node.this) not in self._nodes_read

        for node in tree.walk(prune=unused):
            if id(node) in self._nodes_read or unused(node):
                continue
            known = PLAIN.get(type(node))
            if known is None:
                raise self.unsupported(node, f"{self.construct(node)} at this place")
            self.accept(node, *known)

    @contextmanager
    def function(self, node: exp.Expr) -> Iterator[None]:
        """Point at ``node`` when its arguments do not suit a function."""
        try:
            yield
        except FunctionError as error:
            raise self.error(node, str(error)) from None

    def written_name(self, node: exp.Expr) -> str:
        """Return the name of a function as it is in the text, else the name in sqlglot."""
        if WRITTEN in node.meta:
            return str(node.meta[WRITTEN])
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            return self.written_name(node.this)
        start, end = node.meta.get("start"), node.meta.get("end")
        if start is not None and end is not None:
            return self.text[start : end + 1]
        if isinstance(node, exp.Anonymous):
            return node.name
        return node.sql_name().lower() if isinstance(node, exp.Func) else node.key

    def construct(self, node: exp.Expr) -> str:
        """Return the name of a node for an error, as in the text if possible."""
        if WRITTEN in node.meta and not isinstance(node, exp.DataType):
            return f"{node.meta[WRITTEN]}()"
        if isinstance(node, exp.Command):
            return str(node.this).upper()
        if type(node) in SYMBOLS:
            return SYMBOLS[type(node)]
        operator = self._written_operator(node) if isinstance(node, exp.Binary) else ""
        if operator:
            return f"operator {operator}"
        # AtTimeZone is AT TIME ZONE, WithinGroup is WITHIN GROUP.
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()

    def _written_operator(self, node: exp.Binary) -> str:
        """Return the words between the sides of a binary expression, if these have places."""
        ends = (part.meta.get("end") for part in node.left.walk())
        end = max((end for end in ends if end is not None), default=None)
        start = self._first_offset(node.right)
        if end is None or start is None:
            return ""
        brackets = (TokenType.L_PAREN, TokenType.R_PAREN)
        between = [token for token in self.tokens if end < token.start < start]
        words = [token for token in between if token.token_type not in brackets]
        if not words or len(words) > 3:
            return ""
        return self.text[words[0].start : words[-1].end + 1]

    def first_word(self, statement: int) -> tuple[int, str]:
        """Return the place and the text of the first word of a statement, by number from 0."""
        firsts: list[Token] = []
        after = True
        for token in self.tokens:
            if after and token.token_type != TokenType.SEMICOLON:
                firsts.append(token)
            after = token.token_type == TokenType.SEMICOLON
        token = firsts[min(statement, len(firsts) - 1)]
        return token.start, token.text

    def _check_tokens(self) -> None:
        """Refuse texts that sqlglot accepts by dropping or misreading a part."""
        opened: list[Token] = []
        for token, following in zip(self.tokens, self.tokens[1:], strict=False):
            kind, glued = token.token_type, following.start == token.end + 1
            word = following.text[:1].isalnum() or following.text[:1] == "_"
            if kind == TokenType.NUMBER and glued and word:  # 0x10 would be 0 AS x10
                found = token.text + following.text
                raise self.error_at(token.start, f"{found!r} is no number; put a space in between")
            if kind in NO_COMMA_AFTER and following.token_type == TokenType.COMMA:
                raise self.error_at(following.start, "syntax error near ',': nothing is before it")
        for token in self.tokens:
            kind = token.token_type
            if kind == TokenType.NUMBER and len(token.text) > MAX_NUMBER_CHARACTERS:
                raise self.error_at(
                    token.start,
                    f"a number of {len(token.text)} characters: write one of up to "
                    f"{MAX_NUMBER_CHARACTERS}",
                )
            if kind == TokenType.L_PAREN:
                opened.append(token)
            elif kind == TokenType.R_PAREN and not opened:
                raise self.error_at(token.start, "syntax error near ')': no bracket is open")
            elif kind == TokenType.R_PAREN:
                opened.pop()
        if opened:
            raise self.error_at(
                opened[-1].start, "syntax error near '(': the bracket is not closed"
            )
        whens = [token for token in self.tokens if token.token_type == TokenType.WHEN]
        thens = [token for token in self.tokens if token.token_type == TokenType.THEN]
        if len(whens) != len(thens):
            raise self.error_at(
                (whens or thens)[-1].start, "syntax error: as many THEN as WHEN needed"
            )

    def _first_offset(self, node: exp.Expr) -> int | None:
        starts = (part.meta.get("start") for part in node.walk())
        return min((start for start in starts if start is not None), default=None)

    def _offset_of(self, node: exp.Expr, word: str) -> int:
        at: exp.Expr | None = node
        start = None
        while at is not None and start is None:
            start, at = self._first_offset(at), at.parent
        start = start or 0
        if word:
            pattern = r"\b" + r"\s+".join(map(re.escape, word.split())) + r"\b"
            before = list(re.finditer(pattern, self.text[: start + len(word)], re.IGNORECASE))
            if before:
                return before[-1].start()
            after = re.compile(pattern, re.IGNORECASE).search(self.text, start)
            return after.start() if after else start
        return start

    def _syntax_error(self, error: ParseError) -> SqlError:
        details: dict[str, Any] = dict(error.errors[0]) if error.errors else {}
        message = _without_control_characters(
            str(details.get("description") or error).split("\n")[0]
        )
        message = re.sub(r" but got <Token.*", "", message, flags=re.DOTALL)
        message = re.sub(
            r"Required keyword: .* missing for <class.*", "something is missing", message
        )
        line, column = details.get("line"), details.get("col")
        if not isinstance(line, int) or not isinstance(column, int):
            return self.error_at(0, message)
        lines = self.text.split("\n")
        # sqlglot reports the end of the token.
        end = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
        token = next((t for t in self.tokens if t.start <= end <= t.end), None)
        found = f" near {self.text[token.start : token.end + 1]!r}" if token else ""
        return self.error_at(token.start if token else end, f"syntax error{found}: {message}")

    def _make_error(self, offset: int, message: str, error: type[Error]) -> Error:
        return error(*point_at(self.text, offset, message))


def _keyword_of(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    return KEYWORDS.get(name, name.strip("_") if isinstance(value, exp.Expr) else "")


def _without_control_characters(message: str) -> str:
    """Return a message of sqlglot without terminal colours and control characters."""
    return re.sub(r"\x1b\[[0-9;]*m", "", message).strip()
