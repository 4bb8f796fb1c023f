"""The text of a query, its syntax trees, and errors that point into it.

sqlglot keeps the offsets of names, of literals and of some function names. An error at any other
node points to the first such offset among its children, or to the keyword before it.

Two checks make sure that no part of a text is silently ignored, which would give wrong answers:

- A function that reads a node names the arguments that it reads, in ``allow_arguments``. Any other
  argument that is set (``TABLESAMPLE``, ``WITH TIES``, ``IGNORE NULLS``...) raises an error.
- After a statement is planned, ``check_all_read`` raises an error for any node that has not been
  passed to ``allow_arguments``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import sqlglot
from sqlglot import Dialect, Dialects, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from circuits.errors import FunctionError, SqlError, UnsupportedSqlError
from circuits.sql.syntax.foreign_constructs import created_object, find_foreign_construct
from circuits.sql.syntax.parsing import (
    CALL_SUFFIXES,
    NAME_IN_TEXT,
    is_postgres,
    is_spark,
    parse_statements,
)
from circuits.sql.syntax.statement_words import rewrite_statements, split_statements
from circuits.types.arrow_types import has_enum, has_variant, is_nested, name_types, type_name
from dbsp_wcoj.text_position import point_at

__all__ = [
    "IN_FUNCTION",
    "MAX_NUMBER_CHARACTERS",
    "SYMBOLS",
    "CorrelatedSqlError",
    "SqlSource",
    "Unsupported",
]

#: Maximum length of a number in a query; no type has values of more than 76 digits.
MAX_NUMBER_CHARACTERS: Final = 1000

#: PostgreSQL cuts longer names off with a notice, so two names that begin in the same way would be
#: one there and two here.
MAX_POSTGRES_NAME_BYTES: Final = 63

#: A key of ``meta`` of a node that replaces a call of a function in SQL; its words are not there.
IN_FUNCTION: Final = "in_function"

# How errors name an argument of a node; without an entry, by its name in upper case.
ARGUMENT_NAMES: Final = {
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

# The remedy for an argument that is not supported.
ARGUMENT_ADVICE: Final = {
    "connect": "write WITH RECURSIVE",
    "limit_options": "write LIMIT with a number; for a part of the rows QUALIFY percent_rank() "
    "OVER (ORDER BY ...) < 0.1, and for ties QUALIFY rank() OVER (ORDER BY ...) <= 10",
    "rows_from": "write one function in FROM, or only generate_series() and unnest() in ROWS FROM",
    "sample": "filter by a hash of a key, as in WHERE md5(CAST(k AS VARCHAR)) < '1999', which "
    "takes a tenth of the keys",
}

# How errors name a node that is written with symbols, not words.
SYMBOLS: Final[dict[type[exp.Expr], str]] = {
    exp.Array: "a list [...]",
    exp.BitwiseNot: "operator ~",
    exp.Bracket: "a subscript [...]",
    exp.Struct: "a struct {...}",
}

# Nodes that the reader of their parent reads, and the arguments that it reads. A reader need not
# pass them to ``allow_arguments``; ``check_all_read`` does.
READ_BY_PARENT: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
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

# sqlglot accepts a comma after these tokens and drops it.
NO_COMMA_AFTER: Final = (
    *(TokenType.COMMA, TokenType.L_PAREN, TokenType.SELECT, TokenType.DISTINCT),
    *(TokenType.ALIAS, TokenType.FROM, TokenType.WHERE),
)

#: The schemas of tables without the name of a schema, in DuckDB, PostgreSQL and Spark.
DEFAULT_SCHEMAS: Final = ("main", "public", "default")

# The words after DECLARE of a recursive view in Feldera.
_RECURSIVE_VIEW: Final = re.compile(r"\s+RECURSIVE\s+VIEW\b", re.IGNORECASE)
# The words after EXECUTE before the statements of a set in Flink.
_STATEMENT_SET: Final = re.compile(r"\s*STATEMENT\s+SET\s+BEGIN\b", re.IGNORECASE)

# No operator has more words, except for IS NOT DISTINCT FROM, which sqlglot has as a class.
MAX_OPERATOR_WORDS: Final = 3

# The keyword that sets an argument in the text; without an entry, the name of the argument.
ARGUMENT_KEYWORDS: Final = {
    "by_name": "by name",
    "locks": "for",
    "overwrite": "overwrite",
    "pivots": "pivot",
    "replace": "replace",
    "sample": "sample",
}

# Errors that sqlglot raises for some texts that are not SQL.
_PARSER_BUGS: Final = (
    *(ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError),
)

Error = TypeVar("Error", bound=SqlError)


class CorrelatedSqlError(UnsupportedSqlError):
    """A subquery needs a value of an enclosing query where only one of its own rows is known.

    The reader of the subquery catches it, and plans the subquery once for all values
    (`circuits.sql.queries.decorrelation`).
    """


class Unsupported(NamedTuple):
    """Why a valid construct raises an error: its name, and what to write instead."""

    construct: str
    advice: str


class SqlSource:
    """A text, its tokens, and the nodes of its syntax trees that have been read so far.

    Args:
        text: One or more statements.
        dialect: The name of a dialect of sqlglot.
    """

    def __init__(self, text: str, dialect: str) -> None:
        self.text = text
        self.dialect = dialect
        self.tokens: list[Token] = []
        #: The lower-case names of the views that CREATE RECURSIVE VIEW or DECLARE RECURSIVE VIEW
        #: names.
        self.recursive_views: set[str] = set()
        #: The definitions of the types that CREATE TYPE declares, by their lower-case names.
        self.types: dict[str, str] = {}
        #: Why columns of tables cannot be read, by their lower-case names.
        self.unreadable_columns: dict[str, Unsupported] = {}
        #: The statements and words without an effect, each with its line and column.
        self.notices: list[str] = []
        self._nodes_read: set[int] = set()
        self._trees: list[exp.Expr] | None = None

    @property
    def is_spark(self) -> bool:
        """True if Spark 4's rules apply where they differ from DuckDB's."""
        return is_spark(self.dialect)

    @property
    def is_postgres(self) -> bool:
        """True if PostgreSQL's types and names apply where they differ from DuckDB's."""
        return is_postgres(self.dialect)

    def forget_reads(self) -> None:
        """Forget which nodes have been read, so that a statement can be planned again."""
        self._nodes_read.clear()

    def tokenize(self) -> list[Token]:
        """Return the tokens of the text.

        Raises:
            SqlError: The dialect is unknown, or the text has no tokens of SQL.
        """
        if not isinstance(self.dialect, str) or Dialect.get(self.dialect) is None:
            dialects = ", ".join(sorted(filter(None, Dialects)))
            raise self.error_at(0, f"unknown dialect {self.dialect!r}; dialects: {dialects}")
        text = self.text
        try:
            tokens = list(sqlglot.tokenize(text, dialect=self.dialect))
            for token in tokens:
                # To sqlglot, all words after EXECUTE are one token.
                words = _STATEMENT_SET.match(text, token.end + 1)
                if words and token.text.upper() == "EXECUTE":
                    blanks = " " * (words.end() - token.start)
                    text = text[: token.start] + blanks + text[words.end() :]
                # The same after DECLARE in PostgreSQL's dialects.
                if token.text.upper() == "DECLARE" and _RECURSIVE_VIEW.match(text, token.end + 1):
                    text = f"{text[: token.start]}CREATE {text[token.end + 1 :]}"
            return tokens if text == self.text else list(sqlglot.tokenize(text, self.dialect))
        except (SqlglotError, *_PARSER_BUGS) as error:
            raise self._unreadable_text_error(error) from None

    def parse(self) -> list[exp.Expr]:
        """Return the syntax trees of the statements, in order; the same ones in each call.

        Raises:
            SqlError: The text is not SQL.
        """
        if self._trees is None:
            self._trees = self._parse()
        return self._trees

    def _parse(self) -> list[exp.Expr]:
        tokens = self.tokenize()
        try:
            words = rewrite_statements(tokens)
            self.tokens = words.tokens
            self.recursive_views = words.recursive_views
            self.types |= {
                name: self.text[first : last + 1] for name, (first, last) in words.types.items()
            }
            self.notices = [
                f"{self.place(offset)}: {part} has no effect; {effect}"
                for offset, part, effect in words.notices
            ]
            for statement in split_statements(self.tokens):
                construct = created_object(statement)
                if construct is not None:
                    raise self.unsupported_at(*construct)
            self._check_tokens()
            trees = parse_statements(self.tokens, self.text, self.dialect)
            self._check_queries_of_views(trees)
        except SqlError:
            raise
        except ParseError as error:
            raise self._syntax_error(error) from None
        except RecursionError:
            raise self.error_at(
                0, "the text is nested too deeply; put parts of it in views"
            ) from None
        except (SqlglotError, *_PARSER_BUGS) as error:
            raise self._unreadable_text_error(error) from None
        # To sqlglot, a comment after the last semicolon is a statement.
        statements = [
            tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)
        ]
        for tree in statements:
            self._check_names(tree)
            self._join_schema_names(tree)
        return statements

    def _check_queries_of_views(self, trees: Sequence[exp.Expr | None]) -> None:
        """Raise ParseError if the query of a CREATE VIEW has an error of syntax.

        For some of them, sqlglot does not parse the statement, and returns it as a text.
        """
        if not any(isinstance(tree, exp.Command) for tree in trees):
            return
        for tokens in split_statements(self.tokens):
            types = [token.token_type for token in tokens]
            if types[0] != TokenType.CREATE or TokenType.ALIAS not in types:
                continue
            first = types.index(TokenType.ALIAS) + 1
            if TokenType.VIEW in types[:first]:
                parse_statements(tokens[first:], self.text, self.dialect)

    def _join_schema_names(self, tree: exp.Expr) -> None:
        """Make one name of the name of a schema and of a table in it.

        ``FROM sales.orders`` reads the relation "sales.orders", with the alias ``orders``.
        """
        schemas: set[tuple[str, str]] = set()
        for table in tree.find_all(exp.Table):
            name, schema = table.this, table.args.get("db")
            if not isinstance(name, exp.Identifier) or table.args.get("catalog"):
                continue
            is_read = isinstance(table.parent, exp.From | exp.Join)
            if schema is None or self.is_default_schema(schema.name):
                schemas |= {(default, name.name.casefold()) for default in DEFAULT_SCHEMAS}
                if not is_read:  # in FROM, main.t is not a WITH query of this name
                    table.set("db", None)
                continue
            schemas.add((schema.name.casefold(), name.name.casefold()))
            if is_read and not table.args.get("alias") and not table.args.get("pivots"):
                table.set("alias", exp.TableAlias(this=name.copy()))
            joined_name = exp.Identifier(this=f"{schema.name}.{name.name}", quoted=True)
            joined_name.meta.update(schema.meta)
            table.set("this", joined_name)
            table.set("db", None)
        for column in tree.find_all(exp.Column):
            if (column.db.casefold(), column.table.casefold()) in schemas:
                column.set("db", None)

    def _check_names(self, tree: exp.Expr) -> None:
        """Refuse names with special characters, which sqlglot accepts without quotes."""
        for name in tree.find_all(exp.Identifier):
            pattern = r"\w+" if self.is_spark else r"[^\W\d][\w$]*"
            if not name.args.get("quoted") and not re.fullmatch(pattern, name.name):
                raise self.error(
                    name, f"{name.name!r} is not a valid name; put it in double quotes"
                )

    def error(self, node: exp.Expr, message: str, word: str = "") -> SqlError:
        """Return an error that points to a node, or to the last ``word`` before the node."""
        return self.error_at(self._offset_of(node, word), message)

    def unsupported(
        self, node: exp.Expr, construct: str, advice: str = "", word: str = ""
    ) -> UnsupportedSqlError:
        """Return the error for a construct that is valid SQL, but not supported."""
        message = f"{construct} is not supported" + (f"; {advice}" if advice else "")
        return self._make_error(self._offset_of(node, word), message, UnsupportedSqlError)

    def correlated(
        self, node: exp.Expr, construct: str, advice: str = "", word: str = ""
    ) -> CorrelatedSqlError:
        """Return the error for a construct that is supported only in a plan for all outer values.

        See `CorrelatedSqlError`.
        """
        message = f"{construct} is not supported" + (f"; {advice}" if advice else "")
        return self._make_error(self._offset_of(node, word), message, CorrelatedSqlError)

    def unsupported_at(self, offset: int, construct: str, advice: str) -> UnsupportedSqlError:
        """Return the error for an unsupported construct at an offset of the text."""
        return self._make_error(
            offset, f"{construct} is not supported; {advice}", UnsupportedSqlError
        )

    def error_at(self, offset: int, message: str) -> SqlError:
        """Return an error at an offset of the text."""
        return self._make_error(offset, message, SqlError)

    def place(self, offset: int) -> str:
        """Return the line and the column of an offset of the text, for messages."""
        _, line, column = point_at(self.text, offset, "")
        return f"line {line}, column {column}"

    def allow_arguments(self, node: exp.Expr, *allowed: str) -> None:
        """Record that a node is read, with its arguments ``allowed``.

        Raises:
            UnsupportedSqlError: Another argument of the node is set.
        """
        self._nodes_read.add(id(node))
        for name, value in node.args.items():
            if name in allowed or value is None or value is False or value == []:
                continue
            argument = value[0] if isinstance(value, list) else value
            construct = ARGUMENT_NAMES.get(name, name.strip("_").upper().replace("_", " "))
            if isinstance(value, str):
                construct = f"{construct} {value}"
            raise self.unsupported(
                argument if isinstance(argument, exp.Expr) else node,
                f"{construct} in {self.describe(node)}",
                ARGUMENT_ADVICE.get(name, ""),
                word=_keyword_of(name, value),
            )

    def refuse_arguments(self, node: exp.Expr) -> None:
        """Record that a node is read; none of its arguments may be set.

        Raises:
            UnsupportedSqlError: An argument of the node is set.
        """
        self.allow_arguments(node)

    def refuse_order(self, node: exp.Expr, type: pa.DataType, construct: str) -> None:
        """Raise UnsupportedSqlError for an order of VARIANT or ENUM, and of nested values in Spark.

        In Spark, NULL is the least value within values. This package orders NULL after all others,
        as DuckDB does.
        """
        if has_variant(type):
            raise self.unsupported(
                node, f"{construct} of a VARIANT", "cast it, as in CAST(v AS STRING)"
            )
        if has_enum(type):
            name = f"a {type_name(type)}" if is_nested(type) else "an ENUM"
            raise self.unsupported(node, f"{construct} of {name}", "cast the ENUM to VARCHAR")
        if self.is_spark and is_nested(type):
            raise self.unsupported(
                node, f"{construct} of a {type} in dialect spark", "use its fields or elements"
            )

    def is_default_schema(self, name: str) -> bool:
        """Return whether a schema is the one of tables without the name of a schema."""
        return name.casefold() in DEFAULT_SCHEMAS

    def mark_read(self, tree: exp.Expr) -> None:
        """Record that all nodes of a tree are read, because it equals a tree that was read."""
        self._nodes_read.update(id(node) for node in tree.walk())

    def check_all_read(self, tree: exp.Expr) -> None:
        """Raise UnsupportedSqlError if a part of a planned statement has not been read.

        A WITH query that no other query names is never planned, so it is not checked. DuckDB does
        not check it, either.
        """

        def is_unused_query(node: exp.Expr) -> bool:
            return isinstance(node, exp.CTE) and id(node.this) not in self._nodes_read

        for node in tree.walk(prune=is_unused_query):
            if id(node) in self._nodes_read or is_unused_query(node):
                continue
            arguments = READ_BY_PARENT.get(type(node))
            if arguments is None:
                raise self.unsupported(node, f"{self.describe(node)} at this place")
            self.allow_arguments(node, *arguments)

    @contextmanager
    def errors_at(self, node: exp.Expr, function: str = "") -> Iterator[None]:
        """Turn the `FunctionError` of a call into an SqlError that points to ``node``.

        Args:
            node: The call.
            function: The name of the function inside the engine. If the message begins with it, it
                is replaced by the name in the text.
        """
        try:
            yield
        except FunctionError as error:
            message = str(error)
            if function and NAME_IN_TEXT in node.meta and message.startswith(f"{function}("):
                message = self.name_in_text(node).lower() + message.removeprefix(function)
            raise self.error(node, message) from None

    def name_in_text(self, node: exp.Expr) -> str:
        """Return the name of a function as in the text; if unknown, its name in sqlglot."""
        if NAME_IN_TEXT in node.meta:
            return str(node.meta[NAME_IN_TEXT])
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            return self.name_in_text(node.this)
        start, end = node.meta.get("start"), node.meta.get("end")
        if start is not None and end is not None:
            return self.text[start : end + 1]
        if isinstance(node, exp.Anonymous):
            return node.name
        return node.sql_name().lower() if isinstance(node, exp.Func) else node.key

    def default_name(self, node: exp.Expr) -> str:
        """Return the name of a column of SELECT that has no alias.

        In DuckDB and Spark it is the text of the expression. In PostgreSQL a call of a function has
        the name of the function, and the cast of a column the name of the column.
        """
        if self.is_postgres:
            call = node
            while isinstance(call, (*CALL_SUFFIXES, exp.Cast)):
                call = call.this
            if isinstance(call, exp.Func) and NAME_IN_TEXT in call.meta:
                return self.name_in_text(call).lower()
            if isinstance(node, exp.Cast) and isinstance(call, exp.Column):
                return call.name
        return self.text_of(node)

    def text_of(self, node: exp.Expr) -> str:
        """Return the text of an expression, written in one form whatever its spelling."""
        return node.sql(dialect=self.dialect, unsupported_level=ErrorLevel.IGNORE)

    def describe(self, node: exp.Expr) -> str:
        """Return the name of a construct for an error message, as in the text if possible."""
        if NAME_IN_TEXT in node.meta and not isinstance(node, exp.DataType):
            return f"{node.meta[NAME_IN_TEXT]}()"
        if isinstance(node, exp.Command):
            return str(node.this).upper()
        if type(node) in SYMBOLS:
            return SYMBOLS[type(node)]
        operator = self._operator_in_text(node) if isinstance(node, exp.Binary) else ""
        if operator:
            return f"operator {operator}"
        # The class AtTimeZone becomes AT TIME ZONE.
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()

    def _operator_in_text(self, node: exp.Binary) -> str:
        """Return the words between the operands, or nothing if their offsets are unknown."""
        ends = (part.meta.get("end") for part in node.left.walk())
        left_end = max((end for end in ends if end is not None), default=None)
        right_start = self._first_offset(node.right)
        if left_end is None or right_start is None:
            return ""
        words = [
            token
            for token in self.tokens
            if left_end < token.start < right_start
            and token.token_type not in (TokenType.L_PAREN, TokenType.R_PAREN)
        ]
        if not words or len(words) > MAX_OPERATOR_WORDS:
            return ""
        return self.text[words[0].start : words[-1].end + 1]

    def refuse_foreign_construct(self, tokens: Sequence[Token]) -> None:
        """Raise UnsupportedSqlError if tokens have a construct of another engine."""
        construct = find_foreign_construct(tokens)
        if construct is not None:
            raise self.unsupported_at(*construct)

    def statement_tokens(self, statement: int) -> list[Token]:
        """Return the tokens of a statement, counted from 0, with the semicolon after it."""
        statements = [
            tokens
            for tokens in split_statements(self.tokens)
            if tokens[0].token_type != TokenType.SEMICOLON
        ]
        return statements[min(statement, len(statements) - 1)]

    def _check_tokens(self) -> None:
        """Refuse texts that sqlglot accepts although it drops or misreads a part of them."""
        self._check_neighbours()
        self._check_number_lengths()
        self._check_parentheses()
        if self.dialect == "postgres":
            self._check_cut_names()
        whens = [token for token in self.tokens if token.token_type == TokenType.WHEN]
        thens = [token for token in self.tokens if token.token_type == TokenType.THEN]
        if len(whens) != len(thens):
            raise self.error_at(
                (whens or thens)[-1].start,
                f"syntax error: {len(whens)} WHEN and {len(thens)} THEN; each WHEN needs a THEN",
            )

    def _check_neighbours(self) -> None:
        for token, following in zip(self.tokens, self.tokens[1:], strict=False):
            is_glued = following.start == token.end + 1
            is_word = following.text[:1].isalnum() or following.text[:1] == "_"
            if token.token_type == TokenType.NUMBER and is_glued and is_word:
                number = token.text + following.text  # sqlglot reads 0x10 as 0 AS x10
                raise self.error_at(
                    token.start, f"{number!r} is not a valid number; put a space in between"
                )
            if token.token_type in NO_COMMA_AFTER and following.token_type == TokenType.COMMA:
                raise self.error_at(
                    following.start, "syntax error near ',': an item is missing before it"
                )

    def _check_number_lengths(self) -> None:
        for token in self.tokens:
            if token.token_type == TokenType.NUMBER and len(token.text) > MAX_NUMBER_CHARACTERS:
                raise self.error_at(
                    token.start,
                    f"a number of {len(token.text)} characters; the maximum is "
                    f"{MAX_NUMBER_CHARACTERS}",
                )

    def _check_cut_names(self) -> None:
        names: dict[bytes, str] = {}  # by what PostgreSQL keeps of them
        for token in self.tokens:
            if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
                name = token.text.casefold()
                kept = name.encode(errors="replace")[:MAX_POSTGRES_NAME_BYTES]
                if names.setdefault(kept, name) != name:
                    raise self.error_at(
                        token.start,
                        f"PostgreSQL keeps the first {MAX_POSTGRES_NAME_BYTES} bytes of a name, "
                        "and those of another name are the same; give it a shorter name, or use "
                        "another dialect",
                    )

    def _check_parentheses(self) -> None:
        open_parentheses: list[Token] = []
        for token in self.tokens:
            if token.token_type == TokenType.L_PAREN:
                open_parentheses.append(token)
            elif token.token_type == TokenType.R_PAREN:
                if not open_parentheses:
                    raise self.error_at(token.start, "syntax error near ')': '(' is missing")
                open_parentheses.pop()
        if open_parentheses:
            raise self.error_at(open_parentheses[-1].start, "syntax error near '(': ')' is missing")

    def _first_offset(self, node: exp.Expr) -> int | None:
        """Return the first offset that sqlglot has kept in a tree."""
        starts = (part.meta.get("start") for part in node.walk())
        return min((start for start in starts if start is not None), default=None)

    def _offset_of(self, node: exp.Expr, word: str) -> int:
        """Return the first offset in a node, or in its nearest ancestor that has one.

        With ``word``, return the offset of the last ``word`` before it, or else of the next.
        """
        ancestor: exp.Expr | None = node
        start = None
        while ancestor is not None and start is None:
            start, ancestor = self._first_offset(ancestor), ancestor.parent
        start = start or 0
        if not word or IN_FUNCTION in node.meta:
            return start
        start_of_word = r"\b(?:TABLE)?" if word == "sample" else r"\b"
        pattern = start_of_word + r"\s+".join(map(re.escape, word.split())) + r"\b"
        before = list(re.finditer(pattern, self.text[: start + len(word)], re.IGNORECASE))
        if before:
            return before[-1].start()
        after = re.compile(pattern, re.IGNORECASE).search(self.text, start)
        return after.start() if after else start

    def _unreadable_text_error(self, error: Exception) -> SqlError:
        """Return the error for an exception of sqlglot that has no position."""
        if isinstance(error, SqlglotError):
            message = f"the text cannot be read: {_without_control_characters(str(error))}"
        else:
            message = f"the text is not valid SQL ({type(error).__name__} in the parser)"
        return self.error_at(0, message)

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
        for statement in split_statements(self.tokens):
            if statement[0].start <= end <= statement[-1].end:
                self.refuse_foreign_construct(statement)
        for token in self.tokens:
            if token.start <= end <= token.end:
                word = self.text[token.start : token.end + 1]
                return self.error_at(token.start, f"syntax error near {word!r}: {message}")
        return self.error_at(end, f"syntax error: {message}")

    def _make_error(self, offset: int, message: str, error: type[Error]) -> Error:
        message = name_types(message)
        return error(*point_at(self.text, offset, message))


def _keyword_of(name: str, value: object) -> str:
    """Return the word in the text that sets an argument of a node; empty if it is unknown."""
    if isinstance(value, str):
        return value
    if name in ARGUMENT_KEYWORDS:
        return ARGUMENT_KEYWORDS[name]
    return name.strip("_") if isinstance(value, exp.Expr) else ""


def _without_control_characters(message: str) -> str:
    """Return a message of sqlglot without terminal colours and control characters."""
    return re.sub(r"\x1b\[[0-9;]*m", "", message).strip()
