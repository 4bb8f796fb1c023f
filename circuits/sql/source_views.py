"""Statements about the tables below the views: those read as streams, and views that hide columns.

``FROM STREAM(orders)`` and ``FROM STREAM orders`` read a table like ``FROM orders``. They also say
that rows are only appended to it, which the engine does not check.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from circuits.sql.syntax.source import SqlSource

__all__ = ["streamed_relations", "view_of_columns"]


def streamed_relations(text: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the names, in lower case, of the tables that a text reads as streams.

    Names that are not tables may be among them.

    Raises:
        SqlError: The text has a character or a quote that is not valid SQL.

    >>> streamed_relations("CREATE STREAMING TABLE b AS SELECT * FROM STREAM(Orders)")
    frozenset({'orders'})
    """
    tokens = SqlSource(text, dialect).tokenize()
    names: set[str] = set()
    for number, token in enumerate(tokens):
        if token.text.upper() != "STREAM":
            continue
        rest = [t for t in tokens[number + 1 : number + 3] if t.token_type != TokenType.L_PAREN]
        names.update(follower.text.casefold() for follower in rest[:1])
    return frozenset(names)


def view_of_columns(
    name: str, relation: str, columns: Sequence[str], *, dialect: str = "duckdb"
) -> str:
    """Return the statement of a temporary view that has some columns of a relation.

    >>> view_of_columns("orders", "orders_rows", ["nr", "day of week"])
    'CREATE TEMPORARY VIEW "orders" AS SELECT "nr", "day of week" FROM "orders_rows";\\n'
    """
    select = exp.select(*(exp.column(column, quoted=True) for column in columns))
    query = select.from_(exp.to_identifier(relation, quoted=True)).sql(dialect)
    view = exp.to_identifier(name, quoted=True).sql(dialect)
    return f"CREATE TEMPORARY VIEW {view} AS {query};\n"
