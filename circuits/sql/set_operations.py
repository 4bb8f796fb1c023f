"""UNION, EXCEPT and INTERSECT, by position, in types common to both sides.

::

    a UNION ALL b       Union(a, b)
    a UNION b           Distinct(Union(a, b))
    a EXCEPT ALL b      Positive(a - b)
    a EXCEPT b          the same of Distinct(a) and Distinct(b)
    a INTERSECT ALL b   a - Positive(a - b), the smaller of the two weights
    a INTERSECT b       the same of Distinct(a) and Distinct(b)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from circuits.plan.expressions import Column, Expression
from circuits.plan.nodes import (
    Distinct,
    Map,
    Negate,
    Plan,
    Positive,
    TopK,
    Union,
    columns,
)
from circuits.sql.environment import Environment
from circuits.sql.expressions import Clause
from circuits.sql.ordering import SortKey, order_columns, read_limit, read_order
from circuits.sql.scope import Scope, slots_of
from circuits.types import functions

__all__ = ["apply_limit", "plan_set_operation", "unify_columns"]


def plan_set_operation(environment: Environment, node: exp.SetOperation) -> Plan:
    """Return the plan of a set operation, with the ORDER BY and LIMIT of the whole."""
    source = environment.source
    source.accept(node, "this", "expression", "distinct", "with_", "order", "limit", "offset")
    inner = environment.with_common_tables(node)
    plans = [inner.queries.plan_query(inner, side) for side in (node.this, node.expression)]
    left, right = unify_columns(environment, node.expression, plans, node.key)
    distinct = bool(node.args.get("distinct"))
    if isinstance(node, exp.Union):
        plan: Plan = Union((left, right))
        plan = Distinct(plan) if distinct else plan
    else:
        if distinct:
            left, right = Distinct(left), Distinct(right)
        plan = Positive(Union((left, Negate(right))))
        if isinstance(node, exp.Intersect):
            plan = Union((left, Negate(plan)))
        elif not isinstance(node, exp.Except):
            raise source.unsupported(node, source.construct(node))
    return apply_limit(environment, node, plan)


def unify_columns(
    environment: Environment, node: exp.Expr, plans: Sequence[Plan], kind: str = "union"
) -> list[Plan]:
    """Rename and cast the columns of all plans to the names of the first and to common types.

    Args:
        environment: The environment of the queries.
        node: The node that errors point to.
        plans: At least one.
        kind: The operation, for errors.

    Raises:
        SqlError: They have different numbers of columns, or types without a common one.
    """
    source = environment.source
    first = plans[0]
    for plan in plans[1:]:
        if len(plan.fields) != len(first.fields):
            raise source.error(
                node, f"{kind.upper()} of {len(first.fields)} with {len(plan.fields)} columns"
            )
    types = []
    for place, field in enumerate(first.fields):
        with source.function(node):
            others = [plan.fields[place].type for plan in plans[1:]]
            types.append(functions.common_type((field.type, *others)))
    names = tuple(field.name for field in first.fields)
    found: list[Plan] = []
    for plan in plans:
        cast: list[Expression] = []
        for column, of in zip(columns(plan), types, strict=True):
            with source.function(node):
                same = column.type == of
                cast.append(column if same else functions.call("cast", column, type=of))
        same_names = names == tuple(field.name for field in plan.fields)
        unchanged = same_names and tuple(cast) == columns(plan)
        found.append(plan if unchanged else Map(plan, tuple(cast), names))
    return found


def apply_limit(environment: Environment, node: exp.Expr, plan: Plan) -> Plan:
    """Apply the ORDER BY and LIMIT of a query around a plan, which name its columns."""
    source, order = environment.source, node.args.get("order")
    scope = Scope(source, slots_of(plan, ""))

    def column(clause: Clause, name: exp.Column) -> Expression:
        return scope.resolve(name)

    def read(key: exp.Expr) -> Expression:
        count = len(plan.fields)
        if isinstance(key, exp.Literal) and not key.is_string:
            if not key.this.isdecimal() or not 1 <= int(key.this) <= count:
                raise source.error(key, f"no column {key.this}; the list has 1 to {count}")
            return columns(plan)[int(key.this) - 1]
        value = Clause(source, "ORDER BY", column).read(key)
        if not isinstance(value, Column):
            raise source.unsupported(
                key, "an expression in the ORDER BY of several queries", "order by a column"
            )
        return value

    keys: tuple[SortKey, ...] = read_order(source, order, read) if order else ()
    limit = read_limit(source, node)
    if limit is None:
        return plan
    return TopK(plan, (), order_columns(keys, columns(plan)), limit.limit, limit.offset)
