"""WITH RECURSIVE: a base query and steps that extend its rows, up to the fixpoint.

::

    r AS (base UNION [ALL] step(r))    =  Fixpoint r = distinct(base + step(r))
                                          UNION: each row once; UNION ALL: with its multiplicity;
                                          USING KEY (k, min(v)): per k the row with the least v

Here a *step* is the part of the query that names ``r``. In SQL, each iteration applies it to the
rows of the previous iteration only, until it returns no (new) rows. This package maintains the
least fixpoint, where each iteration applies it to all rows so far. Both are equal if the step is
linear in ``r``: it names ``r`` once, and joins, filters and computes. An operator that combines
rows of ``r`` (an aggregate, a second reference, EXCEPT, NOT EXISTS, the optional side of an outer
join) would give different results, or not terminate, so it raises an error.

The columns have the types of the base query; the columns of the steps are cast to them, as in
DuckDB. Spark raises an error if a step has a wider type, and so does the dialect of Spark here. A
column that is only NULL in the base query has the common type of the steps. This type, and the
nullability of the columns, depend on the columns themselves. So the plan is built again with what
was found, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.fixpoint import SET, DistinctMode, Fixpoint
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    RecursiveReference,
    Semijoin,
    Union,
)
from circuits.plan.rewrite.nullability import with_nullability
from circuits.plan.unnest import Unnest
from circuits.sql.binding.environment import (
    CommonTable,
    DerivedTable,
    Environment,
    names_table,
    rename_columns,
)
from circuits.sql.queries.recursive_keys import check_monotone, read_mode
from circuits.sql.queries.set_operations import cast_columns, unify_columns
from circuits.sql.syntax.source import SqlSource
from circuits.types.codecs.intervals import INTERVAL

__all__ = ["plan_recursive"]

MAX_TYPE_ITERATIONS: Final = 12
# How errors name an operator that is not linear, by the class of its node.
DESCRIPTIONS: Final = {
    "Aggregate": "an aggregate over",
    "Distinct": "DISTINCT, below UNION ALL, of",
    "Fixpoint": "another recursion over",
    "LatestTime": "an ASOF join with",
    "Negate": "EXCEPT or INTERSECT of",
    "OuterJoin": "the optional side of an outer join with",
    "Positive": "EXCEPT or INTERSECT of",
    "Semijoin": "EXISTS or IN (subquery) of",
    "SessionBound": "session windows of",
    "SingleRow": "a scalar subquery of",
    "TemporalFilter": "a comparison with now() of",
    "TopK": "LIMIT or a bounded row_number() of",
    "Window": "a window function over",
}


def plan_recursive(table: CommonTable) -> DerivedTable:
    """Return the plan of a WITH query that names itself.

    Raises:
        SqlError: It is not a union, or it is not linear in its own rows.
    """
    environment, node = table.environment, table.node
    source, name = environment.source, node.alias
    union = _split_union(source, node, name.casefold())
    names = node.args["alias"].args.get("columns") or []
    base_table = environment.queries.plan_query(environment, union.base)
    base = rename_columns(source, base_table, names).plan
    mode = read_mode(source, node, tuple(field.name for field in base.fields))
    if mode is None:
        mode = SET if union.is_distinct else DistinctMode("bag")
    fields = with_nullability(base)
    for _ in range(MAX_TYPE_ITERATIONS):
        plans: list[PlanNode] = [base]
        reference = DerivedTable(RecursiveReference(name, fields))
        # The key () is for queries that do not bound a row_number(). A plan that is given is not
        # made again.
        recursive_table = replace(table, recursive=False, plans={(): reference})
        step_environment = replace(
            environment,
            common_tables={**environment.common_tables, name.casefold(): recursive_table},
        )
        for step in union.steps:
            plan = step_environment.queries.plan_query(step_environment, step).plan
            _check_linear(source, plan, step, name, mode)
            plans.append(plan)
        if any(field.type == INTERVAL for field in fields) and not source.is_spark:
            raise source.unsupported(
                node,
                f"an interval with months in the recursive {name!r}",
                "carry the months and the days as numbers",
            )
        body = Union(_cast_to_base(environment, union.steps[-1], plans, name))
        if mode.column is not None:
            check_monotone(source, node, body, name, mode)
        new_fields = with_nullability(body)
        if new_fields == fields:
            return DerivedTable(Fixpoint((name,), (body,), (mode,)))
        fields = new_fields
    raise source.error(
        node,
        f"the types of the columns of {name!r} grow with every iteration; cast them to one type",
    )


def _cast_to_base(
    environment: Environment, node: exp.Expr, plans: Sequence[PlanNode], name: str
) -> tuple[PlanNode, ...]:
    """Return the plans with the names and types of the columns of the first, the base query.

    Raises:
        SqlError: The plans have different numbers of columns, a column has no common type, or in
            the dialect of Spark a step has a wider type than the base query.
    """
    source, base = environment.source, plans[0]
    names = tuple(field.name for field in base.fields)
    types = []
    common_fields = unify_columns(environment, node, plans)[0].fields
    for field, common_field in zip(base.fields, common_fields, strict=True):
        is_null = pa.types.is_null(field.type)
        types.append(common_field.type if is_null else field.type)
        if source.is_spark and types[-1] != common_field.type:
            raise source.error(
                node,
                f"column {field.name!r} of the recursive {name!r} has the type {field.type} in the "
                f"base query, which does not hold {common_field.type}: cast one to the other",
            )
    return tuple(cast_columns(environment, node, plan, names, types) for plan in plans)


class _RecursiveUnion(NamedTuple):
    """The parts of ``base UNION step UNION step``."""

    base: exp.Expr
    steps: list[exp.Expr]
    is_distinct: bool


def _split_union(source: SqlSource, node: exp.CTE, name: str) -> _RecursiveUnion:
    query = node.this
    advice = f"write {node.alias} AS (SELECT ... UNION [ALL] SELECT ... FROM {node.alias} ...)"
    if not isinstance(query, exp.Union):
        raise source.unsupported(node, f"the recursive {node.alias!r} without a UNION", advice)
    is_distinct = bool(query.args.get("distinct"))
    steps: list[exp.Expr] = []
    while names_table(query, name):
        if not isinstance(query, exp.Union) or bool(query.args.get("distinct")) != is_distinct:
            raise source.unsupported(
                query, f"the recursive {node.alias!r} without a base query", advice
            )
        source.allow_arguments(query, "this", "expression", "distinct")
        if not names_table(query.expression, name):
            raise source.unsupported(query.expression, "a base query after a recursive one", advice)
        steps.insert(0, query.expression)
        query = query.this
    return _RecursiveUnion(query, steps, is_distinct)


def _check_linear(
    source: SqlSource, plan: PlanNode, step: exp.Expr, name: str, mode: DistinctMode
) -> None:
    """Refuse a step that is not linear in the rows of the recursion."""
    counter = _ReferenceCounter(name, mode)
    count = counter.count(plan)
    if counter.forbidden_by is None and count <= 1:
        return
    reference = next(
        table for table in step.find_all(exp.Table) if table.name.casefold() == name.casefold()
    )
    if counter.forbidden_by is not None:
        operator = DESCRIPTIONS.get(counter.forbidden_by, counter.forbidden_by)
        raise source.unsupported(
            reference,
            f"{operator} the recursive {name!r}",
            "a recursion may only join, filter and compute with its rows, also in a subquery that "
            "names a column of it; do the rest outside of the recursion",
        )
    raise source.unsupported(
        reference,
        f"the recursive {name!r} {count} times in a recursive query",
        "SQL would join the last iteration with itself; name it once, or use Datalog",
    )


class _ReferenceCounter:
    """Counts the references of a plan to a recursion; visits each node once."""

    def __init__(self, name: str, mode: DistinctMode) -> None:
        self.forbidden_by: str | None = None
        self._name = name
        self._mode = mode
        self._counts: dict[int, int] = {}  # by the id of the plan node

    def count(self, plan: PlanNode) -> int:
        """Return the number of references.

        If a reference is below an operator that is not linear, ``forbidden_by`` is its class name.
        """
        if id(plan) not in self._counts:
            self._counts[id(plan)] = self._count_node(plan)
        return self._counts[id(plan)]

    def _count_node(self, plan: PlanNode) -> int:
        match plan:
            case RecursiveReference(name):
                return int(name == self._name)
            case Fixpoint(names, _) if self._name in names:
                return 0
            case CrossJoin(inputs) | Union(inputs):
                return sum(map(self.count, inputs))
            case Map(child) | Filter(child) | Unnest(child):
                return self.count(child)
            case Distinct(child) if self._mode.kind != "bag":
                return self.count(child)
            case Semijoin(left, right):
                return self.count(left) + self._count_forbidden(right, plan)
            case OuterJoin(left, right, _, "left"):
                return self.count(left) + self._count_forbidden(right, plan)
            case OuterJoin(left, right):
                return self._count_forbidden(left, plan) + self._count_forbidden(right, plan)
        return sum(self._count_forbidden(child, plan) for child in plan.inputs)

    def _count_forbidden(self, child: PlanNode, parent: PlanNode) -> int:
        """Count the references below an operator that is not linear."""
        count = self.count(child)
        if count and self.forbidden_by is None:
            self.forbidden_by = type(parent).__name__
        return count
