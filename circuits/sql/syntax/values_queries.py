"""VALUES with subqueries: a UNION ALL of a SELECT for each row.

::

    (VALUES ((SELECT max(a) FROM t), 'x'), (2, 'y')) AS v(n, s)
    (SELECT * FROM (SELECT (SELECT max(a) FROM t), 'x' UNION ALL SELECT 2, 'y')
        AS rows_of_values(col0, col1)) AS v(n, s)

The rows of an INSERT stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

__all__ = ["replace_values_queries", "values_column"]


def values_column(number: int, *, is_spark: bool, is_postgres: bool) -> str:
    """Return the name of a column of VALUES, counted from 0.

    >>> [values_column(0, is_spark=False, is_postgres=is_postgres) for is_postgres in (False, True)]
    ['col0', 'column1']
    """
    if is_postgres:
        return f"column{number + 1}"
    return f"col{number + 1 if is_spark else number}"


def replace_values_queries(tree: exp.Expr, *, is_spark: bool, is_postgres: bool) -> exp.Expr:
    """Return a syntax tree with queries in place of its VALUES that have subqueries.

    VALUES whose rows differ in length stay as they are, for the error of `read_values`.
    """
    result = tree
    for values in list(tree.find_all(exp.Values)):
        if isinstance(values.parent, exp.Insert) or values.find(exp.Query) is None:
            continue
        rows = [list(row.expressions) for row in values.expressions]
        if len({len(parts) for parts in rows}) > 1:
            continue
        if not is_spark:
            rows = _with_typed_texts(rows)
        names = [
            values_column(number, is_spark=is_spark, is_postgres=is_postgres)
            for number in range(len(rows[0]))
        ]
        query = _named_query(values, rows, names)
        replacement: exp.Expr = query
        if isinstance(values.parent, exp.From | exp.Join | exp.Lateral):
            replacement = exp.Subquery(this=query, alias=values.args.get("alias"))
        for node in (replacement, query):
            node.meta.update(values.meta)
        if values is tree:
            result = replacement
        elif isinstance(values.parent, exp.In):
            in_query = exp.Subquery(this=query)
            in_query.meta.update(values.meta)
            values.parent.set("query", in_query)
            values.parent.set("expressions", None)
        else:
            values.replace(replacement)
    return result


def _named_query(values: exp.Values, rows: list[list[exp.Expr]], names: list[str]) -> exp.Query:
    """Return a SELECT of all rows, with the ORDER BY and LIMIT of VALUES.

    The names are those of a derived table. As names of a SELECT, later values could read them.
    """
    selects: list[exp.Query] = []
    for row, parts in zip(values.expressions, rows, strict=True):
        selects.append(exp.Select(expressions=parts))
        selects[-1].meta.update(row.meta)
    columns = [exp.to_identifier(name) for name in names]
    alias = exp.TableAlias(this=exp.to_identifier("rows_of_values"), columns=columns)
    rows_of_values = exp.Subquery(this=_union_all(selects), alias=alias)
    query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=rows_of_values))
    for name in ("order", "limit", "offset"):
        if values.args.get(name) is not None:
            query.set(name, values.args[name])
    for node in query.walk(prune=lambda node: isinstance(node, exp.Union)):
        node.meta.update({**values.meta, **node.meta})
    return query


def _union_all(queries: list[exp.Query]) -> exp.Query:
    """Return a balanced tree of UNION ALL; a chain could be too deep to read."""
    if len(queries) == 1:
        return queries[0]
    middle = len(queries) // 2
    left, right = _union_all(queries[:middle]), _union_all(queries[middle:])
    union = exp.Union(this=left, expression=right, distinct=False)
    union.meta.update(left.meta)
    return union


def _with_typed_texts(rows: list[list[exp.Expr]]) -> list[list[exp.Expr]]:
    """Return the rows; a text literal has the type of the other values of its column.

    coalesce('2020-02-01', DATE '2020-01-01') is a date, and its value is the first.
    """
    result = [list(parts) for parts in rows]
    for number, column in enumerate(zip(*rows, strict=True)):
        others = _values_of_each_kind(column)
        for parts in result:
            if others and _is_text_literal(parts[number]):
                copies = [other.copy() for other in others]
                typed = exp.Coalesce(this=parts[number].copy(), expressions=copies)
                typed.meta.update(parts[number].meta)
                parts[number] = typed
    return result


def _values_of_each_kind(column: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Return the values that give a column its type; those with a subquery only without others."""
    others = {
        value.sql(): value
        for value in column
        if not _is_text_literal(value) and not isinstance(value, exp.Null)
    }
    plain = [value for value in others.values() if value.find(exp.Query) is None]
    return plain or list(others.values())[:1]


def _is_text_literal(value: exp.Expr) -> bool:
    inner = value.unnest()
    return isinstance(inner, exp.Literal) and inner.is_string
