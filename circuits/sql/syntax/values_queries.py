"""VALUES with subqueries: a UNION ALL of a SELECT for each row.

::

    (VALUES ((SELECT max(a) FROM t), 'x'), (2, 'y')) AS v(n, s)
    (SELECT (SELECT max(a) FROM t) AS col0, 'x' AS col1 UNION ALL SELECT 2, 'y') AS v(n, s)

The rows of an INSERT stay as they are.
"""

from __future__ import annotations

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
    """Return a syntax tree with queries in place of its VALUES that have subqueries."""
    result = tree
    for values in list(tree.find_all(exp.Values)):
        if isinstance(values.parent, exp.Insert) or values.find(exp.Query) is None:
            continue
        union = _union_of_rows(values, is_spark=is_spark, is_postgres=is_postgres)
        replacement: exp.Expr = union
        if isinstance(values.parent, exp.From | exp.Join | exp.Lateral):
            replacement = exp.Subquery(this=union, alias=values.args.get("alias"))
        for node in (replacement, union):
            node.meta.update(values.meta)
        if values is tree:
            result = replacement
        else:
            values.replace(replacement)
    return result


def _union_of_rows(values: exp.Values, *, is_spark: bool, is_postgres: bool) -> exp.Query:
    result: exp.Query | None = None
    for row in values.expressions:
        parts = list(row.expressions)
        if result is None:
            parts = [
                exp.Alias(
                    this=part,
                    alias=exp.to_identifier(
                        values_column(number, is_spark=is_spark, is_postgres=is_postgres)
                    ),
                )
                for number, part in enumerate(parts)
            ]
        query = exp.Select(expressions=parts)
        query.meta.update(row.meta)
        result = (
            query if result is None else exp.Union(this=result, expression=query, distinct=False)
        )
        result.meta.update(row.meta)
    assert result is not None
    for name in ("order", "limit", "offset"):
        if values.args.get(name) is not None:
            result.set(name, values.args[name])
    return result
