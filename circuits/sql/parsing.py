"""sqlglot's parser of a dialect, extended so that its trees keep the words of the text.

======================== ========================================================================
the name of a function   ``meta["written"]``: ``string_agg``, where the tree has a GroupConcat
the name of a type       the same: ``HUGEINT``, where it has an INT128
a comma in FROM          ``meta["comma"]`` of a join; the tree has the same for a bare JOIN
``DATE 'x'::VARCHAR``    the cast of a date, as in all dialects; the tree has a date of a cast
======================== ========================================================================

The hooks override methods that all parsers of sqlglot 30 have.
`tests/circuits/sql/test_sql_errors.py` fails if sqlglot no longer calls one of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlglot import Dialect, exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["COMMA", "NAMED_FUNCTIONS", "WRITTEN", "is_spark", "parse_statements"]

#: Keys of ``meta``.
COMMA = "comma"
WRITTEN = "written"
#: The functions that are parsed as calls by name (``Anonymous``) with the arguments as written, in
#: lower case; for dialect spark, and for all others. The modules that read them add them.
NAMED_FUNCTIONS: Final[dict[bool, set[str]]] = {True: set(), False: set()}
# The nodes that the parser makes of a call and the words after it.
WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.WithinGroup)


def parse_statements(tokens: list[Token], text: str, dialect: str) -> list[exp.Expr | None]:
    """Return the syntax trees of the statements of a text.

    Raises:
        sqlglot.errors.SqlglotError: The text is not SQL.
    """
    found = Dialect.get_or_raise(dialect)
    trees: list[exp.Expr | None] = _parser(type(found))(dialect=found).parse(tokens, text)
    return trees


@cache
def _parser(dialect: type[Dialect]) -> Any:
    base: Any = dialect.parser_class
    literals = {**dict.fromkeys(exp.DType, _typed_literal), **base.TYPE_LITERAL_PARSERS}
    names = {name.upper() for name in NAMED_FUNCTIONS[is_spark(dialect.__name__.lower())]}
    changed = {
        "TYPE_LITERAL_PARSERS": literals,
        "FUNCTIONS": {**base.FUNCTIONS, **{name: _call_reader(name) for name in names}},
        "FUNCTION_PARSERS": {
            name: reader for name, reader in base.FUNCTION_PARSERS.items() if name not in names
        },
    }
    return type(base.__name__, (_Words, base), changed)


def is_spark(dialect: str) -> bool:
    """Return whether semantics that differ between Spark 4 and DuckDB are those of Spark."""
    return dialect in ("spark", "databricks")


def _call_reader(name: str) -> Any:
    def read(arguments: list[Any]) -> exp.Anonymous:
        return exp.Anonymous(this=name.lower(), expressions=arguments)

    return read


class _Words:
    """Methods to add to a parser of sqlglot."""

    def _parse_function_call(self: Any, *args: Any, **options: Any) -> Any:
        token = self._curr
        found = super()._parse_function_call(*args, **options)  # type: ignore[misc]
        function = found
        while isinstance(function, WRAPPERS):
            function = function.this
        if isinstance(function, exp.Expr):
            function.meta.setdefault(WRITTEN, token.text)
        return found

    def _parse_types(self: Any, *args: Any, **options: Any) -> Any:
        first = self._curr
        found = super()._parse_types(*args, **options)  # type: ignore[misc]
        if isinstance(found, exp.DataType) and first is not self._curr:
            found.meta.setdefault(WRITTEN, self.sql[first.start : self._prev.end + 1])
        return found

    def _parse_join(self: Any, *args: Any, **options: Any) -> Any:
        comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
        found = super()._parse_join(*args, **options)  # type: ignore[misc]
        if comma and isinstance(found, exp.Join):
            found.meta[COMMA] = True
        return found


def _typed_literal(parser: Any, value: exp.Expr, to: exp.DataType) -> exp.Expr:
    """Parse ``DATE 'x'::VARCHAR`` as a cast of a date; sqlglot parses a date of a cast."""
    literal = value
    while not isinstance(literal, exp.Literal):
        literal = literal.this
    typed: exp.Expr = parser.expression(exp.Cast(this=literal.copy(), to=to))
    if literal is value:
        return typed
    literal.replace(typed)
    return value
