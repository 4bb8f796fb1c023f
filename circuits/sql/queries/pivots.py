"""PIVOT and UNPIVOT: rewritten as GROUP BY with FILTER, and as UNION ALL.

::

    t PIVOT (sum(v) FOR k IN ('x', 'y'))    SELECT g, sum(v) FILTER (WHERE k = 'x') AS x,
                                                   sum(v) FILTER (WHERE k = 'y') AS y
                                            FROM t GROUP BY g       g: all other columns of t
    t UNPIVOT (v FOR n IN (a, b))           SELECT g, 'a' AS n, a AS v FROM t WHERE a IS NOT NULL
                                            UNION ALL the same for b
    UNPIVOT t ON a + 1 AS x, COLUMNS('b.')  the same for a + 1, and for each column of the pattern

The values of a PIVOT must be constants, because they name the columns of a view. In Spark an
aggregate of no rows is NULL, also a count, if all are numbers or booleans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import NamedTuple

from pyarrow import types as arrow
from sqlglot import exp

from circuits.sql.binding.environment import (
    CommonTable,
    DerivedTable,
    Environment,
    rename_columns,
)
from circuits.sql.binding.scope import Scope, scope_columns_of
from circuits.sql.queries.column_patterns import selected_names
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
    query: exp.Expr
    if pivot.args.get("unpivot"):
        query = _unpivot_query(Scope(source, scope_columns_of(derived.plan, "")), pivot)
    else:
        has_null_counts = source.is_spark and _has_null_counts(environment, pivot, derived)
        names = [field.name for field in derived.plan.fields]
        query = _pivot_query(source, pivot, names, has_null_counts=has_null_counts)
    return _plan_over(environment, query, derived)


def _plan_over(environment: Environment, query: exp.Expr, derived: DerivedTable) -> DerivedTable:
    """Plan a query of the rows of a table, which it reads as a WITH query."""
    alias = exp.TableAlias(this=exp.to_identifier(PIVOTED))
    rows = CommonTable(exp.CTE(this=query, alias=alias), environment, plans={(): derived})
    inner = replace(environment, common_tables={**environment.common_tables, PIVOTED: rows})
    return inner.queries.plan_query(inner, query)


def _has_null_counts(environment: Environment, pivot: exp.Pivot, derived: DerivedTable) -> bool:
    """Return whether a count of no rows is NULL, as in Spark if no aggregate has another type."""
    select = exp.Select(
        expressions=[aggregate.unalias().copy() for aggregate in pivot.expressions],
        from_=exp.From(this=exp.Table(this=exp.to_identifier(PIVOTED))),
    )
    types = [field.type for field in _plan_over(environment, select, derived).plan.fields]
    checks = (arrow.is_boolean, arrow.is_integer, arrow.is_floating, arrow.is_decimal)
    return all(any(check(each) for check in checks) for each in types)


def _pivot_query(
    source: SqlSource, pivot: exp.Pivot, names: Sequence[str], *, has_null_counts: bool
) -> exp.Select:
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
            item = _pivot_item(source, aggregate, condition, prefix, len(aggregates))
            if has_null_counts:
                item.set("this", _null_without_rows(item.this, condition))
            items.append(item)
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
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def _null_without_rows(value: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return a value, or NULL if no row fulfils a condition."""
    rows = exp.Filter(
        this=exp.Count(this=exp.Star(), big_int=True),
        expression=exp.Where(this=condition.copy()),
    )
    has_rows = exp.GT(this=rows, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=has_rows, true=value)])


def _read_values(source: SqlSource, pivot: exp.Pivot, field: exp.Expr) -> Iterator[_PivotValue]:
    """Yield the values of ``k IN ('x', 'y' AS z)``."""
    if not isinstance(field, exp.In) or not field.expressions:
        text = source.text_of(field)
        raise source.unsupported(
            field,
            f"PIVOT by the values that {text} has",
            f"write the values, because they name the columns of the view: {text} IN ('x', 'y')",
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
        names = [_name_of(source, other) for other in values]
        is_struct = source.is_spark and len(names) > 1
        name = f"{{{', '.join(names)}}}" if is_struct else "_".join(names)
        yield _PivotValue(alias or name, condition)


def _name_of(source: SqlSource, value: exp.Expr) -> str:
    if source.is_spark and isinstance(value, exp.Null | exp.Boolean):
        return value.sql().lower()
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Cast):
        return _name_of(source, value.this)
    return value.name if isinstance(value, exp.Literal | exp.Column) else value.sql()


def _unpivot_query(scope: Scope, pivot: exp.Pivot) -> exp.Expr:
    """Return one SELECT per group of values, combined by UNION ALL."""
    source, names = scope.source, [column.name for column in scope.columns]
    if pivot.args.get("fields"):
        field, *others = pivot.args["fields"]
        if others:
            raise source.unsupported(others[0], "UNPIVOT with several FOR", "write several UNPIVOT")
        name, items = field.this.name, field.expressions
        (values,) = pivot.expressions
        parts = values.expressions if isinstance(values, exp.Tuple) else [values]
        value_names = [part.name for part in parts]
    else:
        into, items = pivot.args.get("into"), pivot.expressions
        name = into.this.name if into else "name"
        value_names = [part.name for part in into.expressions] if into else ["value"]
    groups: list[tuple[str, list[exp.Expr]]] = []  # the value of the name column, and the values
    for item in items:
        alias = ""
        if isinstance(item, exp.PivotAlias | exp.Alias):
            alias_node = item.args["alias"]
            alias, item = alias_node.name, item.this
        selected = _selected_columns(scope, item)
        if selected is not None:
            groups += [(alias or column.name, [column]) for column in selected]
            continue
        parts = item.expressions if isinstance(item, exp.Tuple) else [item.unnest()]
        if source.is_spark and not all(isinstance(part, exp.Column) for part in parts):
            raise source.error(item, "UNPIVOT takes names of columns; compute values in FROM")
        label = "_".join(_read_one_column(source, part) for part in parts)
        groups.append((alias or label, parts))
    for _, parts in groups:
        if len(parts) != len(value_names):
            place = next((part for part in parts if part.find(exp.Identifier)), pivot)
            raise source.error(place, f"UNPIVOT needs {len(value_names)} columns per name")
    known = {name.casefold() for name in names}
    used = {
        column.name.casefold(): column
        for _, parts in groups
        for part in parts
        for column in part.find_all(exp.Column)
    }
    for column_name, column in used.items():
        if column_name not in known:
            raise source.error(column, f"unknown column {column.name!r} in UNPIVOT")
    other_names = [column for column in names if column.casefold() not in used]
    # With several values, Spark leaves a row out if all are NULL, DuckDB if any one is.
    connective = exp.or_ if source.is_spark else exp.and_
    selects: list[exp.Expr] = []
    for label, parts in groups:
        pairs = zip(parts, value_names, strict=True)
        select = exp.Select(
            expressions=[
                *(_column(column) for column in other_names),
                _alias(exp.Literal.string(label), name),
                *(_alias(part.copy(), new) for part, new in pairs),
            ],
            from_=exp.From(this=exp.Table(this=exp.to_identifier(PIVOTED))),
        )
        if not pivot.args.get("include_nulls"):
            checks = [
                exp.Not(this=exp.Is(this=exp.Paren(this=part.copy()), expression=exp.Null()))
                for part in parts
            ]
            select.set("where", exp.Where(this=connective(*checks)))
        selects.append(select)
    return reduce(
        lambda query, select: exp.Union(this=query, expression=select, distinct=False), selects
    )


def _read_one_column(source: SqlSource, value: exp.Expr) -> str:
    """Return the name of the one column that a value of UNPIVOT reads."""
    names = {column.name.casefold(): column.name for column in value.find_all(exp.Column)}
    if len(names) != 1:
        raise source.error(value, f"a value of UNPIVOT reads one column, not {len(names)}")
    return next(iter(names.values()))


def _selected_columns(scope: Scope, item: exp.Expr) -> list[exp.Column] | None:
    """Return the columns that ``*`` or COLUMNS selects in UNPIVOT; None for another item."""
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        item = item.this
    if not isinstance(item, exp.Star | exp.Columns):
        return None
    selector = item.this if isinstance(item, exp.Columns) else item
    return list(map(_column, selected_names(scope, item, selector)))


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _alias(value: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))
