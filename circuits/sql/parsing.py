"""sqlglot's parser of a dialect, extended so that its trees keep the words of the text.

======================== ========================================================================
the name of a function   ``meta["written"]``: ``string_agg``, where the tree has a GroupConcat
the name of a type       the same: ``HUGEINT``, where it has an INT128
exists(a, x -> ...)      a function by name; the tree has EXISTS
a subscript              as written; the tree counts from 0
a comma in FROM          ``meta["comma"]`` of a join; the tree has the same for a bare JOIN
``DATE 'x'::VARCHAR``    the cast of a date, as in all dialects; the tree has a date of a cast
======================== ========================================================================

The hooks override methods that all parsers of sqlglot 30 have.
`tests/circuits/sql/test_sql_errors.py` fails if sqlglot no longer calls one of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlglot import Dialect, exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["COMMA", "WRITTEN", "parse_statements"]

#: Keys of ``meta``.
COMMA = "comma"
WRITTEN = "written"
# The nodes that the parser makes of a call and the words after it.
WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.WithinGroup)


def parse_statements(tokens: list[Token], text: str, dialect: str) -> list[exp.Expr | None]:
    """Return the syntax trees of the statements of a text.

    Raises:
        sqlglot.errors.SqlglotError: The text is not SQL.
    """
    found = Dialect.get_or_raise(dialect)
    # sqlglot would renumber subscripts, also those of maps.
    found.INDEX_OFFSET = 0
    trees: list[exp.Expr | None] = _parser(type(found))(dialect=found).parse(tokens, text)
    return trees


@cache
def _parser(dialect: type[Dialect]) -> Any:
    base: Any = dialect.parser_class
    literals = {**dict.fromkeys(exp.DType, _typed_literal), **base.TYPE_LITERAL_PARSERS}
    return type(base.__name__, (_Words, base), {"TYPE_LITERAL_PARSERS": literals})


class _Words:
    """Methods to add to a parser of sqlglot."""

    def _parse_function_call(self: Any, *args: Any, **options: Any) -> Any:
        token = self._curr
        found = super()._parse_function_call(*args, **options)  # type: ignore[misc]
        if isinstance(found, exp.Exists) and isinstance(found.args.get("expression"), exp.Lambda):
            # exists(list, lambda) is not EXISTS (subquery).
            parts = [found.this, found.args["expression"]]
            found = exp.Anonymous(this="list_exists", expressions=parts)
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
