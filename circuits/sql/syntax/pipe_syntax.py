"""Pipe syntax, as in Spark 4: ``FROM t |> WHERE x > 1 |> AGGREGATE sum(x) AS s GROUP BY y``.

Each operator is added to the SELECT before it, if SQL evaluates it after the clauses that the
SELECT has; else that SELECT becomes a subquery in FROM::

    FROM t |> WHERE x > 1 |> LIMIT 2     SELECT * FROM t WHERE x > 1 LIMIT 2
    FROM t |> LIMIT 2 |> WHERE x > 1     SELECT * FROM (SELECT * FROM t LIMIT 2) AS t WHERE x > 1
    |> EXTEND e AS z                     SELECT *, e AS z
    |> SET x = e                         SELECT * REPLACE (e AS x)
    |> DROP x                            SELECT * EXCEPT (x)
    |> AGGREGATE f(x) GROUP BY k         SELECT k, f(x) ... GROUP BY k

sqlglot's own parser adds a WHERE after LIMIT to the same SELECT, which is another query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

__all__ = ["is_operator_end", "parse_pipe_operators"]

#: The clauses that SQL evaluates after WHERE; with one of them, an operator needs a new SELECT.
_LATER_CLAUSES: Final = ("distinct", "group", "having", "limit", "offset", "qualify", "windows")


def parse_pipe_operators(parser: Any, query: exp.Expr) -> exp.Select:
    """Return the query with the operators ``|>`` that follow it.

    Args:
        parser: The parser, whose current token is the first ``|>``.
        query: The query before it.
    """
    with_ = query.args.get("with_")
    if with_ is not None:
        with_.pop()
    select = _as_select(query)
    while parser._match(TokenType.PIPE_GT):
        start = parser._curr
        operator = _OPERATORS.get(start.text.upper()) if start is not None else None
        parsed = (operator or _parse_join_or_set_operation)(parser, select)
        if parsed is None:
            parser.raise_error(f"no operator of the pipe syntax begins with {start.text}", start)
        else:
            select = parsed
    if with_ is not None:
        select.set("with_", with_)
    return select


def is_operator_end(parser: Any) -> bool:
    """Return whether a query or an operator ends before the current token."""
    # sqlglot has a token without a text of its own, or None, after the last one.
    token = parser._curr
    is_last = token is None or token.token_type.name == "SENTINEL"
    return is_last or token.token_type in _ENDS


_ENDS: Final = (TokenType.PIPE_GT, TokenType.R_PAREN, TokenType.SEMICOLON)


def _as_select(query: exp.Expr) -> exp.Select:
    """Return ``SELECT *`` from a query, or the query itself if it is ``FROM t``."""
    if isinstance(query, exp.Select) and query.args.get("from_") is not None:
        return query
    if isinstance(query, exp.Table):
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=query))
    return _wrap(query)


def _wrap(query: exp.Expr, alias: exp.Expr | None = None) -> exp.Select:
    """Return ``SELECT *`` from a query in parentheses; it keeps the name of its only table."""
    table: exp.Expr
    if isinstance(query, exp.Subquery) and query.args.get("alias") is None and alias is None:
        table = query
    elif isinstance(query, exp.Values):
        table = query
        if alias is not None:
            table.set("alias", alias)
    else:
        if alias is None and isinstance(query, exp.Select):
            alias = _alias_of(query)
        table = exp.Subquery(this=query, alias=alias)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=table))


def _alias_of(select: exp.Select) -> exp.Expr | None:
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    name = from_.this.alias_or_name
    return exp.TableAlias(this=exp.to_identifier(name)) if name else None


def _is_plain(select: exp.Select) -> bool:
    """Return whether a SELECT returns all columns of its rows, and has no clause after WHERE."""
    is_star = len(select.expressions) == 1 and type(select.expressions[0]) is exp.Star
    has_star_words = is_star and any(select.expressions[0].args.values())
    later = any(select.args.get(name) for name in (*_LATER_CLAUSES, "order", "sort"))
    return is_star and not has_star_words and not later


def _plain(select: exp.Select) -> exp.Select:
    return select if _is_plain(select) else _wrap(select)


def _parse_where(parser: Any, select: exp.Select) -> exp.Select:
    select = _plain(select)
    condition = parser._parse_where()
    select.where(condition.this, copy=False)
    return select


def _parse_select(parser: Any, select: exp.Select) -> exp.Select:
    parsed = parser._parse_select(consume_pipe=False)
    select = _plain(select)
    select.set("expressions", parsed.expressions)
    select.set("distinct", parsed.args.get("distinct"))
    return select


def _parse_extend(parser: Any, select: exp.Select) -> exp.Select:
    parser._advance()
    select = _plain(select)
    select.set("expressions", [exp.Star(), *parser._parse_expressions()])
    return select


def _parse_set(parser: Any, select: exp.Select) -> exp.Select:
    """Read ``SET a = x, b = y``; an expression sees the columns that are set before it."""
    parser._advance()
    while True:
        column = parser._parse_id_var()
        if column is None or not parser._match(TokenType.EQ):
            parser.raise_error("SET takes columns and their values, as in SET x = x + 1")
        value = exp.Alias(this=parser._parse_disjunction(), alias=column)
        select = _plain(select)
        select.set("expressions", [exp.Star(replace=[value])])
        if not parser._match(TokenType.COMMA):
            return select


def _parse_drop(parser: Any, select: exp.Select) -> exp.Select:
    parser._advance()
    columns = parser._parse_csv(parser._parse_id_var)
    select = _plain(select)
    select.set("expressions", [exp.Star(except_=columns)])
    return select


def _parse_alias(parser: Any, select: exp.Select) -> exp.Select:
    return _wrap(select, parser._parse_table_alias())


def _parse_order(parser: Any, select: exp.Select) -> exp.Select:
    order = parser._parse_order()
    if select.args.get("limit") or select.args.get("offset"):
        select = _wrap(select)
    select.set("order", order)
    return _parse_rows(parser, select)


def _parse_rows(parser: Any, select: exp.Select) -> exp.Select:
    """Read LIMIT and OFFSET."""
    limit = parser._parse_limit()
    offset = parser._parse_offset()
    if limit is None and offset is None:
        return select
    if select.args.get("limit") or select.args.get("offset"):
        select = _wrap(select)
    select.set("limit", limit)
    select.set("offset", offset)
    return select


def _parse_aggregate(parser: Any, select: exp.Select) -> exp.Select:
    """Read ``AGGREGATE f(x) AS s GROUP BY k AS g``: the keys are the first columns."""
    parser._advance()
    select = _plain(select)
    is_grouped = parser._match(TokenType.GROUP_BY, advance=False)
    values = [] if is_grouped else parser._parse_expressions()
    keys = parser._parse_expressions() if parser._match(TokenType.GROUP_BY) else []
    if keys:
        select.set("group", exp.Group(expressions=[key.unalias().copy() for key in keys]))
    else:  # also without an aggregate, it is one group
        select.set("having", exp.Having(this=exp.Boolean(this=True)))
    select.set("expressions", [*keys, *values])
    return select


def _parse_pivot(parser: Any, select: exp.Select) -> exp.Select:
    pivots = parser._parse_pivots()
    if not pivots:
        parser.raise_error("PIVOT and UNPIVOT take a list in parentheses")
    is_table = _is_plain(select) and not any(
        select.args.get(name) for name in ("joins", "where", "laterals")
    )
    select = select if is_table else _wrap(select)
    select.args["from_"].this.set("pivots", pivots)
    return _wrap(select)


def _parse_sample(parser: Any, select: exp.Select) -> exp.Select:
    sample = parser._parse_table_sample()
    select = _wrap(select)
    select.args["from_"].this.set("sample", sample)
    return select


def _parse_join_or_set_operation(parser: Any, select: exp.Select) -> exp.Select | None:
    token = parser._curr
    if token is not None and token.text.upper() in _SET_OPERATIONS:
        operation = _parse_set_operation(parser, select, _SET_OPERATIONS[token.text.upper()])
        return _wrap(operation)
    join = parser._parse_join()
    if join is None:
        return None
    # The generators of LATERAL VIEW are before the join, which adds rows that have no lists.
    has_generators = join.side in ("RIGHT", "FULL") and select.args.get("laterals")
    if not _is_plain(select) or select.args.get("where") or has_generators:
        select = _wrap(select)
    select.append("joins", join)
    return select


def _parse_set_operation(
    parser: Any, select: exp.Select, operation: type[exp.SetOperation]
) -> exp.SetOperation:
    parser._advance()
    is_all = parser._match(TokenType.ALL)
    if not is_all:
        parser._match(TokenType.DISTINCT)
    other = parser._parse_select(nested=True, parse_set_operation=False, consume_pipe=False)
    if other is None:
        parser.raise_error("a query is missing after the set operation")
    return operation(this=select, expression=other, distinct=not is_all)


_SET_OPERATIONS: Final[dict[str, type[exp.SetOperation]]] = {
    **{"UNION": exp.Union, "EXCEPT": exp.Except, "MINUS": exp.Except, "INTERSECT": exp.Intersect},
}
_OPERATORS: Final[dict[str, Callable[[Any, exp.Select], exp.Select]]] = {
    "AGGREGATE": _parse_aggregate,
    "AS": _parse_alias,
    "DROP": _parse_drop,
    "EXTEND": _parse_extend,
    "LIMIT": _parse_rows,
    "OFFSET": _parse_rows,
    "ORDER BY": _parse_order,
    "PIVOT": _parse_pivot,
    "SELECT": _parse_select,
    "SET": _parse_set,
    "TABLESAMPLE": _parse_sample,
    "UNPIVOT": _parse_pivot,
    "WHERE": _parse_where,
}
