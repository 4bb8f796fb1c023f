"""PIVOT and UNPIVOT: rewritten as GROUP BY with FILTER, and as UNION ALL.

::

    t PIVOT (sum(v) FOR k IN ('x', 'y'))    SELECT g, sum(v) FILTER (WHERE k = 'x') AS x,
                                                   sum(v) FILTER (WHERE k = 'y') AS y
                                            FROM t GROUP BY g       g: all other columns of t
    t UNPIVOT (v FOR n IN (a, b))           SELECT g, 'a' AS n, a AS v FROM t WHERE a IS NOT NULL
                                            UNION ALL the same for b

The values of a PIVOT must be constants, because they name the columns of a view. In Spark an
aggregate of no rows is NULL, also a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from sqlglot import exp

from circuits.sql.binding.environment import (
    CommonTable,
    DerivedTable,
    Environment,
    rename_columns,
)
from circuits.sql.syntax.source import SqlSource

__all__ = ["apply_pivots", "pivoted_name", "plan_pivot_statement"]

#: The table name of the rows to pivot, in the SELECT that replaces a PIVOT.
PIVOTED = "pivoted"


class _PivotValue(NamedTuple):
    """One of the values of a PIVOT: its part of column names, and the condition of its rows."""

    name: str
    condition: exp.Expr


def apply_pivots(environment: Environment, node: exp.Expr, derived: DerivedTable) -> DerivedTable:
    """Return a table in FROM after the PIVOT and UNPIVOT that follow it."""
    for pivot in node.args.get("pivots") or ():
        derived = _apply_pivot(environment, pivot, derived)
        alias = pivot.args.get("alias")
        names = alias.args.get("columns") if alias is not None else None
        derived = rename_columns(environment.source, derived, names or [])
    return derived


def pivoted_name(node: exp.Expr) -> str:
    """Return the alias after the last PIVOT or UNPIVOT of a table; empty if it has none."""
    pivots = node.args.get("pivots") or ()
    alias = pivots[-1].args.get("alias") if pivots else None
    return alias.name if alias is not None else ""


def plan_pivot_statement(environment: Environment, node: exp.Pivot) -> DerivedTable:
    """Return the plan of DuckDB's statement ``PIVOT t ON k IN (...) USING sum(v)``."""
    table = node.this
    select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=table.copy()))
    derived = environment.queries.plan_query(environment, select)
    return _apply_pivot(environment, node, derived)


def _apply_pivot(environment: Environment, pivot: exp.Pivot, derived: DerivedTable) -> DerivedTable:
    source = environment.source
    if derived.domain is not None:
        raise source.unsupported(pivot, "PIVOT of a correlated query", "pivot outside of it")
    source.mark_read(pivot)
    names = [field.name for field in derived.plan.fields]
    query: exp.Expr
    if pivot.args.get("unpivot"):
        query = _unpivot_query(source, pivot, names)
    else:
        query = _pivot_query(source, pivot, names)
    alias = exp.TableAlias(this=exp.to_identifier(PIVOTED))
    # The rows of the table are a WITH query, which the rewritten query reads.
    rows = CommonTable(exp.CTE(this=query, alias=alias), environment, plans={(): derived})
    inner = replace(environment, common_tables={**environment.common_tables, PIVOTED: rows})
    return inner.queries.plan_query(inner, query)


def _pivot_query(source: SqlSource, pivot: exp.Pivot, names: Sequence[str]) -> exp.Select:
    is_statement = not pivot.args.get("fields")
    fields = pivot.expressions if is_statement else pivot.args["fields"]
    aggregates = list((pivot.args.get("using") if is_statement else pivot.expressions) or ())
    aggregates = aggregates or [exp.Count(this=exp.Star(), big_int=True)]
    values_of_fields = [[*_read_values(source, pivot, field)] for field in fields]
    items: list[exp.Expr] = []
    for values in product(*values_of_fields):
        condition = values[0].condition
        for value in values[1:]:
            condition = exp.And(this=condition, expression=value.condition)
        prefix = "_".join(value.name for value in values)
        for aggregate in aggregates:
            items.append(_pivot_item(source, aggregate, condition, prefix, len(aggregates)))
    group = pivot.args.get("group")
    if group is not None:
        keys = [key.copy() for key in group.expressions]
    else:
        used = {
            column.name.casefold()
            for tree in (*fields, *aggregates)
            for column in tree.find_all(exp.Column)
        }
        keys = [_column(name) for name in names if name.casefold() not in used]
    select = exp.Select(
        expressions=[*(key.copy() for key in keys), *items],
        from_=exp.From(this=exp.Table(this=exp.to_identifier(PIVOTED))),
    )
    if keys:
        select.set("group", exp.Group(expressions=keys))
    return select


#: Aggregates whose result for no rows is an empty list in Spark, not NULL.
_LISTS: Final = (exp.ArrayAgg, exp.ArrayUniqueAgg)


def _pivot_item(
    source: SqlSource, aggregate: exp.Expr, condition: exp.Expr, prefix: str, aggregate_count: int
) -> exp.Expr:
    """Return an aggregate over the rows of one value, with its name."""
    alias = aggregate.alias if isinstance(aggregate, exp.Alias) else ""
    call = aggregate.this if isinstance(aggregate, exp.Alias) else aggregate
    has_suffix = aggregate_count > 1 or (bool(alias) and not source.is_spark)
    suffix = alias or source.text_of(call).lower()
    name = f"{prefix}_{suffix}" if has_suffix else prefix
    value: exp.Expr = exp.Filter(this=call.copy(), expression=exp.Where(this=condition.copy()))
    if source.is_spark and not isinstance(call, _LISTS):
        rows = exp.Filter(
            this=exp.Count(this=exp.Star(), big_int=True),
            expression=exp.Where(this=condition.copy()),
        )
        has_rows = exp.GT(this=rows, expression=exp.Literal.number(0))
        value = exp.Case(ifs=[exp.If(this=has_rows, true=value)])
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def _read_values(source: SqlSource, pivot: exp.Pivot, field: exp.Expr) -> Iterator[_PivotValue]:
    """Yield the values of ``k IN ('x', 'y' AS z)``."""
    if not isinstance(field, exp.In) or not field.expressions:
        raise source.unsupported(
            field, "PIVOT without values", "write the values: ... IN ('x', 'y')", "pivot"
        )
    compared = field.this.unnest()
    compared_columns = compared.expressions if isinstance(compared, exp.Tuple) else [compared]
    for item in field.expressions:
        alias = item.alias if isinstance(item, exp.PivotAlias | exp.Alias) else ""
        value = item.this if isinstance(item, exp.PivotAlias | exp.Alias) else item
        value = value.unnest()
        values = value.expressions if isinstance(value, exp.Tuple) else [value]
        if len(values) != len(compared_columns):
            raise source.error(field, "PIVOT compares different numbers of values")
        parts = []
        for column, constant in zip(compared_columns, values, strict=True):
            if isinstance(constant, exp.Column):  # DuckDB: IN (x) is IN ('x')
                constant = exp.Literal.string(constant.name)
            if not isinstance(constant, exp.Literal | exp.Null | exp.Boolean | exp.Neg | exp.Cast):
                raise source.unsupported(field, "a PIVOT value that is not a constant")
            parts.append(exp.NullSafeEQ(this=column.copy(), expression=constant.copy()))
        condition: exp.Expr = parts[0]
        for part in parts[1:]:
            condition = exp.And(this=condition, expression=part)
        yield _PivotValue(alias or "_".join(_name_of(other) for other in values), condition)


def _name_of(value: exp.Expr) -> str:
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Cast):
        return _name_of(value.this)
    return value.name if isinstance(value, exp.Literal | exp.Column) else value.sql()


def _unpivot_query(source: SqlSource, pivot: exp.Pivot, names: Sequence[str]) -> exp.Expr:
    """Return one SELECT per group of columns, combined by UNION ALL."""
    if pivot.args.get("fields"):
        (field,) = pivot.args["fields"]
        name, items = field.this.name, field.expressions
        (values,) = pivot.expressions
        parts = values.expressions if isinstance(values, exp.Tuple) else [values]
        value_names = [part.name for part in parts]
    else:
        into, items = pivot.args.get("into"), pivot.expressions
        name = into.this.name if into else "name"
        value_names = [part.name for part in into.expressions] if into else ["value"]
    groups: list[tuple[str, list[str]]] = []  # the value of the name column, and the columns
    for item in items:
        alias = ""
        if isinstance(item, exp.PivotAlias | exp.Alias):
            alias_node = item.args["alias"]
            alias, item = alias_node.name, item.this
        columns = item.expressions if isinstance(item, exp.Tuple) else [item]
        if not all(isinstance(column, exp.Column) for column in columns):
            raise source.unsupported(item, "an expression in UNPIVOT", "name columns")
        if len(columns) != len(value_names):
            raise source.error(item, f"UNPIVOT needs {len(value_names)} columns per name")
        column_names = [column.name for column in columns]
        groups.append((alias or "_".join(column_names), column_names))
    known = {name.casefold() for name in names}
    used = {column.casefold() for _, column_names in groups for column in column_names}
    for column in sorted(used - known):
        raise source.error(pivot, f"unknown column {column!r} in UNPIVOT", "unpivot")
    other_names = [column for column in names if column.casefold() not in used]
    query: exp.Expr | None = None
    for label, column_names in groups:
        pairs = zip(column_names, value_names, strict=True)
        select = exp.Select(
            expressions=[
                *(_column(column) for column in other_names),
                _alias(exp.Literal.string(label), name),
                *(_alias(_column(column), new) for column, new in pairs),
            ],
            from_=exp.From(this=exp.Table(this=exp.to_identifier(PIVOTED))),
        )
        if not pivot.args.get("include_nulls"):
            # With several values, Spark leaves a row out if all are NULL, DuckDB if any one is.
            connective = exp.Or if source.is_spark else exp.And
            checks = [
                exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())) for value in values
            ]
            condition: exp.Expr = reduce(
                lambda left, right: connective(this=left, expression=right), checks
            )
            select.set("where", exp.Where(this=condition))
        query = exp.Union(this=query, expression=select, distinct=False) if query else select
    assert query is not None
    return query


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _alias(value: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))
