"""VALUES: rows of constants, or of expressions over the columns of an enclosing query.

The values of a column are cast to their common type. A correlated VALUES, as in ``LATERAL (VALUES
(t.a), (t.b))``, is the union of one Map of the domain per row
(`circuits.sql.queries.decorrelation`).
"""

from __future__ import annotations

from sqlglot import exp

from circuits.plan.expressions import Expression, Literal, columns_of
from circuits.plan.json_values import common_json_kind, json_kind_of, without_json_marks
from circuits.plan.nodes import Field, Map, PlanNode, Union, Values, columns
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.environment import DerivedTable, Environment
from circuits.sql.binding.scope import Scope
from circuits.sql.syntax.values_queries import values_column
from circuits.types import functions

__all__ = ["read_values"]


def read_values(environment: Environment, node: exp.Values) -> DerivedTable:
    """Return the rows of VALUES.

    Its columns are col0, col1, ... in DuckDB, col1, ... in Spark and column1, ... in PostgreSQL.
    """
    source, domain = environment.source, environment.domain

    def read_column(clause: Clause, column: exp.Column) -> Expression:
        parent = None if domain is None else domain.scope
        domain_columns = () if domain is None else columns(domain.plan)
        scope = Scope(source, (), parent, environment.unreachable_scope, domain, domain_columns)
        value = scope.find(column)
        if value is None:
            raise source.error(column, f"column {column.sql()!r} in VALUES; write constants")
        return value

    fields_of_domain = () if domain is None else domain.plan.fields

    def kind_of(value: Expression) -> str:
        return "" if source.is_spark else json_kind_of(value, fields_of_domain)

    clause = environment.clause("VALUES", read_column, kind_of)
    width = len(node.expressions[0].expressions)
    for row in node.expressions:
        if len(row.expressions) != width:
            raise source.error(
                row, f"a row of {len(row.expressions)} values in VALUES of {width} columns"
            )
    rows: list[list[Expression]] = []
    for row in node.expressions:
        source.allow_arguments(row, "expressions")
        rows.append([clause.read(value) for value in row.expressions])
    fields: list[Field] = []
    for number, column in enumerate(zip(*rows, strict=True)):
        with source.errors_at(node):
            # coalesce casts a string literal to a date if other arguments are dates.
            common_type = functions.call("coalesce", *column).type
            for row_values in rows:
                if row_values[number].type != common_type:
                    row_values[number] = functions.call(
                        "cast", row_values[number], type=common_type
                    )
        kind = common_json_kind(kind_of(row_values[number]) for row_values in rows)
        name = values_column(number, is_spark=source.is_spark, is_postgres=source.is_postgres)
        fields.append(Field(name, common_type, json_kind=kind))
    rows = [[without_json_marks(value) for value in values] for values in rows]
    if domain is not None:
        return DerivedTable(_map_each_row(domain.plan, rows, fields), domain=domain)
    for values in rows:
        for value in values:
            if columns_of(value):
                raise source.unsupported(node, f"{value} in VALUES", "write constants")
    if not all(isinstance(value, Literal) for values in rows for value in values):
        # Lists, structs and maps are calls.
        return DerivedTable(_map_each_row(Values((), ((),)), rows, fields))
    constants = [tuple(v.value for v in values if isinstance(v, Literal)) for values in rows]
    return DerivedTable(Values(tuple(fields), tuple(constants)))


def _map_each_row(plan: PlanNode, rows: list[list[Expression]], fields: list[Field]) -> PlanNode:
    """Return the rows of VALUES for each row of a plan, after its columns."""
    all_fields = (*plan.fields, *fields)
    names = tuple(field.name for field in all_fields)
    kinds = tuple(field.json_kind for field in all_fields)
    maps = [Map(plan, (*columns(plan), *values), names, kinds) for values in rows]
    return maps[0] if len(maps) == 1 else Union(tuple(maps))
