"""Statements of views as text, without their syntax trees: also of those that cannot be planned.

``FROM STREAM(orders)`` and ``FROM STREAM orders`` read a table like ``FROM orders``. They also say
that rows are only appended to it, which the engine does not check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from circuits.sql.syntax.source import SqlSource
from circuits.sql.syntax.statement_words import find_stream_words

__all__ = [
    "ViewStatement",
    "find_relations",
    "streamed_relations",
    "view_of_columns",
    "view_statements",
    "without_default_schemas",
    "without_streams",
]


@dataclass(frozen=True)
class ViewStatement:
    """A statement that creates a view.

    Attributes:
        name: The name of the view.
        start: The offset of the statement in the text.
        end: The offset after it.
        columns: The names of its columns with the parentheses; empty if it has none.
        query: The text of its query.
        words: The words of the query in lower case; among them are the relations that it reads.
        is_temporary: True for CREATE TEMPORARY VIEW.
        is_streaming: True for CREATE STREAMING TABLE.
    """

    name: str
    start: int
    end: int
    columns: str
    query: str
    words: frozenset[str]
    is_temporary: bool
    is_streaming: bool


def streamed_relations(text: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the names, in lower case, of the tables that a text reads as streams.

    Names that are not tables may be among them.

    Raises:
        SqlError: The text has a character or a quote that is not valid SQL.

    >>> streamed_relations("CREATE STREAMING TABLE b AS SELECT * FROM STREAM(default.Orders)")
    frozenset({'orders'})
    """
    tokens = SqlSource(text, dialect).tokenize()
    names: set[str] = set()
    for number, token in enumerate(tokens):
        if token.text.upper() != "STREAM":
            continue
        name = number + 1
        if name < len(tokens) and tokens[name].token_type == TokenType.L_PAREN:
            name += 1
        while name + 2 < len(tokens) and tokens[name + 1].token_type == TokenType.DOT:
            name += 2  # the last part of a name with a schema
        names.update(token.text.casefold() for token in tokens[name : name + 1])
    return frozenset(names)


def without_streams(view: ViewStatement, dialect: str = "duckdb") -> ViewStatement:
    """Return a view that reads ``t`` in the place of ``STREAM(t)`` and ``STREAM t``.

    >>> query = "SELECT * FROM STREAM(a.b) x JOIN STREAM c ON x.stream = c.k"
    >>> (view,) = view_statements(f"CREATE STREAMING TABLE s AS {query}")
    >>> without_streams(view).query
    'SELECT * FROM a.b x JOIN c ON x.stream = c.k'
    """
    query = view.query
    tokens = SqlSource(query, dialect).tokenize()
    for index in reversed(find_stream_words(tokens, is_streaming=view.is_streaming)):
        word = tokens[index]
        rest = query[word.end + 1 :]
        query = query[: word.start] + (rest.lstrip() if word.text != ")" else rest)
    return replace(view, query=query)


def without_default_schemas(view: ViewStatement, dialect: str = "duckdb") -> ViewStatement:
    """Return a view that reads ``t`` in the place of ``default.t`` after FROM and JOIN.

    >>> (view,) = view_statements("CREATE VIEW v AS SELECT t.a FROM default.t JOIN s.u ON true")
    >>> without_default_schemas(view, "spark").query
    'SELECT t.a FROM t JOIN s.u ON true'
    """
    query = view.query
    source = SqlSource(query, dialect)
    tokens = source.tokenize()
    for before, schema, dot, name in reversed(
        [*zip(*(tokens[i:] for i in range(4)), strict=False)]
    ):
        is_table = before.text.upper() in ("FROM", "JOIN") and dot.token_type == TokenType.DOT
        if is_table and source.is_default_schema(schema.text):
            query = query[: schema.start] + query[name.start :]
    return replace(view, query=query)


def find_relations(view: ViewStatement, dialect: str = "duckdb") -> frozenset[str]:
    """Return the names, in lower case, of the relations that a view reads, without those of WITH.

    If sqlglot does not parse the query, or does not know all its relations, these are all words of
    the query.

    >>> query = "WITH a AS (SELECT day FROM b) SELECT a.city, c.* FROM a JOIN s.C ON c.k = day"
    >>> (view,) = view_statements(f"CREATE VIEW v AS {query}")
    >>> sorted(find_relations(view))
    ['b', 'c']
    """
    try:
        tree = parse_one(without_streams(view, dialect).query, dialect=dialect)
        sources = [source for scope in traverse_scope(tree) for source in scope.sources.values()]
    except SqlglotError:
        return view.words
    inner = {query.alias.casefold() for query in tree.find_all(exp.CTE)}
    tables = {table for table in tree.find_all(exp.Table) if table.name.casefold() not in inner}
    tables |= {source for source in sources if isinstance(source, exp.Table)}
    names = frozenset(table.name.casefold() for table in tables)
    # Without a name: a function, which may read a table. TABLE is the start of ``(TABLE t)``.
    return view.words if names & {"", "table"} or not isinstance(tree, exp.Query) else names


def view_statements(text: str, dialect: str = "duckdb") -> list[ViewStatement]:
    """Return the statements ``CREATE ... VIEW`` and ``CREATE STREAMING TABLE`` of a text.

    Raises:
        SqlError: The text has a character or a quote that is not valid SQL.

    >>> text = "CREATE OR REPLACE VIEW v (b) COMMENT 'as' AS SELECT a FROM t; SELECT 1"
    >>> (view,) = view_statements(text)
    >>> view.name, view.columns, view.query, sorted(view.words)
    ('v', '(b)', 'SELECT a FROM t', ['a', 'from', 'select', 't'])
    """
    statements: list[list[Token]] = [[]]
    for token in SqlSource(text, dialect).tokenize():
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return list(_read_views(text, statements))


def _read_views(text: str, statements: list[list[Token]]) -> Iterator[ViewStatement]:
    for tokens in statements:
        words = [token.text.upper() for token in tokens]
        if words[:1] != ["CREATE"] or not {"VIEW", "TABLE"} & set(words):
            continue
        kind = min(words.index(word) for word in ("VIEW", "TABLE") if word in words)
        name = kind + (4 if words[kind + 1 : kind + 4] == ["IF", "NOT", "EXISTS"] else 1)
        starts = [n for n, token in enumerate(tokens) if token.token_type == TokenType.ALIAS]
        if not starts or name >= starts[0]:
            continue
        first = starts[0] + 1
        columns = ""
        if tokens[name + 1].token_type == TokenType.L_PAREN and ")" in words[name:first]:
            end = words.index(")", name)
            columns = text[tokens[name + 1].start : tokens[end].end + 1]
        yield ViewStatement(
            tokens[name].text,
            tokens[0].start,
            tokens[-1].end + 1,
            columns,
            text[tokens[first].start : tokens[-1].end + 1] if first < len(tokens) else "",
            frozenset(token.text.casefold() for token in tokens[first:]),
            not {"TEMP", "TEMPORARY"}.isdisjoint(words[:kind]),
            "STREAMING" in words[:kind],
        )


def view_of_columns(
    name: str,
    relation: str,
    columns: Sequence[str],
    *,
    is_temporary: bool = True,
    dialect: str = "duckdb",
) -> str:
    """Return the statement of a view that has some columns of a relation.

    >>> view_of_columns("orders", "orders_rows", ["nr", "day of week"])
    'CREATE TEMPORARY VIEW "orders" AS SELECT "nr", "day of week" FROM "orders_rows";\\n'
    """
    select = exp.select(*(exp.column(column, quoted=True) for column in columns))
    query = select.from_(exp.to_identifier(relation, quoted=True)).sql(dialect)
    view = exp.to_identifier(name, quoted=True).sql(dialect)
    kind = "TEMPORARY VIEW" if is_temporary else "VIEW"
    return f"CREATE {kind} {view} AS {query};\n"
