"""UNION, EXCEPT and INTERSECT: combine columns by position, cast to common types.

``Positive(p)`` keeps the rows of positive weight, ``a - b`` is ``Union(a, Negate(b))``::

    a UNION ALL b       Union(a, b)
    a UNION b           Distinct(Union(a, b))
    a EXCEPT ALL b      Positive(a - b)
    a EXCEPT b          Positive(Distinct(a) - Distinct(b))
    a INTERSECT ALL b   a - Positive(a - b): each row with the smaller of its two weights
    a INTERSECT b       the same for Distinct(a) and Distinct(b)

BY NAME matches the columns by name; a side has NULL for a column that only the other has.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.plan.nodes import (
    Distinct,
    Map,
    Negate,
    PlanNode,
    Positive,
    Union,
    columns,
)
from circuits.sql.binding.clause import REFUSE_COLUMN, Clause, call_function
from circuits.sql.binding.environment import DerivedTable, Environment
from circuits.sql.binding.interval_keys import normalize_intervals
from circuits.sql.binding.ordering import (
    limit_rows,
    order_columns,
    position_of,
    read_limit,
    read_order,
    read_position,
)
from circuits.sql.binding.scope import Scope, scope_columns_of
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.mixed_types import is_mix_of_text
from circuits.sql.expressions.spark.common_types import widened_type
from circuits.sql.queries.decorrelation import with_domain
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.functions.type_rules import is_text

__all__ = ["apply_limit", "cast_columns", "plan_set_operation", "unify_columns"]


def plan_set_operation(environment: Environment, node: exp.SetOperation) -> DerivedTable:
    """Return the plan of a set operation, with the ORDER BY and LIMIT after it.

    If a side is correlated, both sides have the columns of the domain first.
    """
    source = environment.source
    source.allow_arguments(
        node, "this", "expression", "distinct", "by_name", "with_", "order", "limit", "offset"
    )
    environment = environment.with_common_tables(node)
    sides = [environment.plan_query(side) for side in (node.this, node.expression)]
    is_correlated = any(side.domain is not None for side in sides)
    domain = environment.domain if is_correlated else None
    plans = [with_domain(side, domain) if domain else side.plan for side in sides]
    if node.args.get("by_name"):
        plans = _align_by_name(source, node, plans, domain.width if domain else 0)
    plans = _cast_to_text(source, node, plans)
    left, right = unify_columns(environment, node.expression, plans, node.key)
    distinct = bool(node.args.get("distinct"))
    if distinct or not isinstance(node, exp.Union):
        left, right = normalize_intervals(left), normalize_intervals(right)
    if isinstance(node, exp.Union):
        plan: PlanNode = Union((left, right))
        plan = Distinct(plan) if distinct else plan
    else:
        if distinct:
            left, right = Distinct(left), Distinct(right)
        plan = Positive(Union((left, Negate(right))))
        if isinstance(node, exp.Intersect):
            plan = Union((left, Negate(plan)))
        elif not isinstance(node, exp.Except):
            raise source.unsupported(node, source.describe(node))
    width = domain.width if domain else 0
    return DerivedTable(apply_limit(environment, node, plan, width), domain=domain)


def _align_by_name(
    source: SqlSource, node: exp.SetOperation, plans: Sequence[PlanNode], domain_width: int
) -> list[PlanNode]:
    """Return the plans with equal columns: those of the first plan, then those of the second only.

    A column that a plan does not have is NULL. The columns of the domain come first.

    Raises:
        SqlError: A plan has two columns of one name.
    """
    names: dict[str, str] = {}
    for side, plan in zip((node.this, node.expression), plans, strict=True):
        own_names: set[str] = set()
        for field in plan.fields[domain_width:]:
            key = field.name.casefold()
            if key in own_names:
                raise source.error(
                    side, f"UNION BY NAME of two columns {field.name!r}; rename one with AS"
                )
            own_names.add(key)
            names.setdefault(key, field.name)
    aligned: list[PlanNode] = []
    for plan in plans:
        own_columns = {
            field.name.casefold(): domain_width + index
            for index, field in enumerate(plan.fields[domain_width:])
        }
        values = columns(plan)
        expressions: list[Expression] = [*values[:domain_width]]
        for key in names:
            expressions.append(
                values[own_columns[key]] if key in own_columns else Literal(None, pa.null())
            )
        domain_names = (field.name for field in plan.fields[:domain_width])
        aligned.append(Map(plan, tuple(expressions), (*domain_names, *names.values())))
    return aligned


def _cast_to_text(
    source: SqlSource, node: exp.SetOperation, plans: Sequence[PlanNode]
) -> list[PlanNode]:
    """Return the two plans; a column that is a text in only one of them is cast to text.

    Raises:
        UnsupportedSqlError: A plan to cast is itself a set operation. DuckDB casts the columns of
            all its parts, before it finds their common type.
    """
    if source.is_spark or len({len(plan.fields) for plan in plans}) > 1:
        return list(plans)
    pairs = list(zip(*(columns(plan) for plan in plans), strict=True))
    mixed = {index for index, pair in enumerate(pairs) if is_mix_of_text([c.type for c in pair])}
    result = []
    for side, plan in zip((node.this, node.expression), plans, strict=True):
        to_cast = {index for index in mixed if not is_text(plan.fields[index].type)}
        if not to_cast:
            result.append(plan)
            continue
        if isinstance(side.unnest(), exp.SetOperation):
            raise source.unsupported(
                node.expression,
                f"{node.key.upper()} of text with a {side.unnest().key.upper()} of other types",
                "cast the columns of all its parts to VARCHAR",
            )
        values = tuple(
            call_function(source, node, "cast", column, type=pa.string())
            if index in to_cast
            else column
            for index, column in enumerate(columns(plan))
        )
        result.append(Map(plan, values, tuple(field.name for field in plan.fields)))
    return result


def unify_columns(
    environment: Environment, node: exp.Expr, plans: Sequence[PlanNode], kind: str = "union"
) -> list[PlanNode]:
    """Rename and cast the columns of all plans to the names of the first and to common types.

    Args:
        environment: The environment of the queries.
        node: The node that errors point to.
        plans: At least one.
        kind: The operation, for errors.

    Raises:
        SqlError: The plans have different numbers of columns, or a column has no common type.
    """
    source = environment.source
    first = plans[0]
    for plan in plans[1:]:
        if len(plan.fields) != len(first.fields):
            raise source.error(
                node, f"{kind.upper()} of {len(first.fields)} with {len(plan.fields)} columns"
            )
    types = []
    for index in range(len(first.fields)):
        column_types = [plan.fields[index].type for plan in plans]
        with source.errors_at(node):
            common = widened_type if source.is_spark else functions.common_type
            types.append(common(column_types))
    names = tuple(field.name for field in first.fields)
    return [cast_columns(environment, node, plan, names, types) for plan in plans]


def cast_columns(
    environment: Environment,
    node: exp.Expr,
    plan: PlanNode,
    names: tuple[str, ...],
    types: Sequence[pa.DataType],
) -> PlanNode:
    """Rename the columns of a plan and cast them, as the dialect does without a CAST."""
    expressions: list[Expression] = []
    clause = environment.clause("a set operation", REFUSE_COLUMN)
    for column, type_ in zip(columns(plan), types, strict=True):
        if column.type == type_:
            expressions.append(column)
        elif clause.source.is_spark:
            expressions.append(spark_cast(clause, node, column, type_))
        else:
            expressions.append(clause.call(node, "cast", column, type=type_))
    has_same_names = names == tuple(field.name for field in plan.fields)
    if has_same_names and tuple(expressions) == columns(plan):
        return plan
    return Map(plan, tuple(expressions), names)


def apply_limit(
    environment: Environment, node: exp.Expr, plan: PlanNode, domain_width: int = 0
) -> PlanNode:
    """Apply ORDER BY and LIMIT to a query that is not a plain SELECT.

    The sort keys are positions, or expressions over the columns of the result. The first
    ``domain_width`` columns are not those of the query; the limit is for each of their values.
    """
    source, order = environment.source, node.args.get("order")
    scope = Scope(source, scope_columns_of(plan, "")[domain_width:])
    own_columns = columns(plan)[domain_width:]

    def read_column(clause: Clause, name: exp.Column) -> Expression:
        return scope.resolve(name)

    clause = environment.clause("ORDER BY", read_column)

    def read_sort_key(key: exp.Expr) -> Expression:
        position = position_of(source, key)
        if position is not None:
            return own_columns[read_position(source, position, len(own_columns))]
        return clause.read(key)

    sort_keys = read_order(source, order, read_sort_key, own_columns) if order else ()
    limit = read_limit(source, node)
    if limit is None:
        return plan
    values: list[Expression] = list(columns(plan))
    values += dict.fromkeys(key.expression for key in sort_keys if key.expression not in values)
    names = tuple(field.name for field in plan.fields)
    has_expressions = len(values) > len(names)
    if has_expressions:
        hidden_names = (f"sort_key_{number}" for number in range(len(values) - len(names)))
        plan = Map(plan, tuple(values), (*names, *hidden_names))
    order_by = order_columns(sort_keys, values)
    keys = tuple(range(domain_width))
    plan = limit_rows(plan, keys, order_by, limit)
    return Map(plan, columns(plan)[: len(names)], names) if has_expressions else plan
