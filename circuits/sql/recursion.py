"""WITH RECURSIVE: a base query and steps that extend its rows, up to the fixpoint.

::

    r AS (base UNION [ALL] step(r))    =  Fixpoint r = distinct(base + step(r))
                                          UNION: each row once; UNION ALL: with its multiplicity

In SQL, each iteration applies ``step`` to the rows of the previous iteration only, until it returns
no (new) rows. The result equals the least fixpoint, which is maintained here, if ``step`` is linear
in ``r``: it names ``r`` once, and joins, filters and computes. An operator that combines rows of
``r`` (an aggregate, a second reference, EXCEPT, NOT EXISTS, the optional side of an outer join)
would read the last iteration in SQL and all iterations here, or would not terminate, so it is
refused.

The types of the columns are common to both sides. They are found by iteration until they are
stable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from circuits.plan.fixpoint import SET, DistinctMode, Fixpoint
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Map,
    OuterJoin,
    Plan,
    RecursiveReference,
    Semijoin,
    Union,
)
from circuits.plan.rewrite.nullability import with_nullability
from circuits.sql.environment import CommonTable, rename_columns
from circuits.sql.set_operations import unify_columns
from circuits.sql.source import SqlSource

__all__ = ["plan_recursive"]

MAX_TYPE_ITERATIONS: Final = 12
DESCRIPTIONS: Final = {
    "Aggregate": "an aggregate over",
    "Distinct": "DISTINCT, below UNION ALL, of",
    "Fixpoint": "another recursion over",
    "Negate": "EXCEPT or INTERSECT of",
    "OuterJoin": "the optional side of an outer join with",
    "Positive": "EXCEPT or INTERSECT of",
    "Semijoin": "EXISTS or IN (subquery) of",
    "TopK": "LIMIT or a rank of",
    "Window": "a window function over",
}


def plan_recursive(common: CommonTable) -> Plan:
    """Return the plan of a WITH query that names itself.

    Raises:
        SqlError: It is no union, or it is not linear in its own rows.
    """
    environment, node = common.environment, common.node
    source, name = environment.source, node.alias
    base_query, steps, distinct = _split_union(source, node, name.casefold())
    names = node.args["alias"].args.get("columns") or []
    base = rename_columns(source, environment.queries.plan_query(environment, base_query), names)
    mode = SET if distinct else DistinctMode("bag")
    fields = with_nullability(base)
    for _ in range(MAX_TYPE_ITERATIONS):
        plans: list[Plan] = [base]
        inner = replace(common, recursive=False, plans={(): RecursiveReference(name, fields)})
        within = replace(
            environment, common_tables={**environment.common_tables, name.casefold(): inner}
        )
        for step in steps:
            plan = within.queries.plan_query(within, step)
            _check_linear(source, plan, step, name, mode)
            plans.append(plan)
        body = Union(tuple(unify_columns(environment, steps[-1], plans)))
        after = with_nullability(body)
        if after == fields:
            return Fixpoint((name,), (body,), (mode,))
        fields = after
    raise source.error(
        node,
        f"the types of the columns of {name!r} grow with every iteration; cast them to one type",
    )


def _split_union(
    source: SqlSource, node: exp.CTE, name: str
) -> tuple[exp.Expr, list[exp.Expr], bool]:
    """Return the base query, the steps, and whether rows are distinct."""
    query = node.this
    advice = f"write {node.alias} AS (SELECT ... UNION [ALL] SELECT ... FROM {node.alias} ...)"
    if not isinstance(query, exp.Union):
        raise source.unsupported(node, f"the recursive {node.alias!r} without a UNION", advice)
    distinct = bool(query.args.get("distinct"))
    steps: list[exp.Expr] = []
    while _is_named_in(query, name):
        if not isinstance(query, exp.Union) or bool(query.args.get("distinct")) != distinct:
            raise source.unsupported(
                query, f"the recursive {node.alias!r} without a base query", advice
            )
        source.accept(query, "this", "expression", "distinct")
        if not _is_named_in(query.expression, name):
            raise source.unsupported(query.expression, "a base query after a recursive one", advice)
        steps.insert(0, query.expression)
        query = query.this
    return query, steps, distinct


def _is_named_in(node: exp.Expr, name: str) -> bool:
    return any(table.name.casefold() == name for table in node.find_all(exp.Table))


def _check_linear(
    source: SqlSource, plan: Plan, node: exp.Expr, name: str, mode: DistinctMode
) -> None:
    """Refuse a step that is not linear in the rows of the recursion."""
    at = next(t for t in node.find_all(exp.Table) if t.name.casefold() == name.casefold())
    found = _ReferenceCounter(name, mode)
    count = found.count(plan)
    if found.forbidden_by is not None:
        raise source.unsupported(
            at,
            f"{DESCRIPTIONS.get(found.forbidden_by, found.forbidden_by)} the recursive {name!r}",
            "a recursion may only join, filter and compute with its rows; do it outside of it",
        )
    if count > 1:
        raise source.unsupported(
            at,
            f"the recursive {name!r} {count} times in a recursive query",
            "SQL would join the last iteration with itself; name it once, or use Datalog",
        )


class _ReferenceCounter:
    """Counts the references of a plan to a recursion; visits each node once."""

    def __init__(self, name: str, mode: DistinctMode) -> None:
        self.forbidden_by: str | None = None
        self._name = name
        self._cut = mode
        self._known: dict[int, int] = {}

    def count(self, plan: Plan) -> int:
        """Return the number of references; set ``forbidden_by`` to a node that is not linear."""
        if id(plan) not in self._known:
            self._known[id(plan)] = self._count_node(plan)
        return self._known[id(plan)]

    def _count_node(self, plan: Plan) -> int:
        match plan:
            case RecursiveReference(name):
                return int(name == self._name)
            case Fixpoint(names, bodies):
                return (
                    0
                    if self._name in names
                    else sum(self._count_forbidden(b, plan) for b in bodies)
                )
            case CrossJoin(inputs) | Union(inputs):
                return sum(map(self.count, inputs))
            case Map(below) | Filter(below):
                return self.count(below)
            case Distinct(below) if self._cut == SET:
                return self.count(below)
            case Semijoin(left, right):
                return self.count(left) + self._count_forbidden(right, plan)
            case OuterJoin(left, right, _, "left"):
                return self.count(left) + self._count_forbidden(right, plan)
            case OuterJoin(left, right):
                return self._count_forbidden(left, plan) + self._count_forbidden(right, plan)
        inner: Plan | None = getattr(plan, "input", None)
        return 0 if inner is None else self._count_forbidden(inner, plan)

    def _count_forbidden(self, plan: Plan, above: Plan) -> int:
        count = self.count(plan)
        if count and self.forbidden_by is None:
            self.forbidden_by = type(above).__name__
        return count
