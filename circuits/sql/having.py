"""HAVING with subqueries: EXISTS, IN, ANY and ALL over the groups of a query.

A condition of WHERE filters the rows of FROM; the same condition of HAVING filters the groups. So
the groups get a builder, as FROM has one: its columns are the keys, under the names that they have
in FROM, and its expressions are read with aggregates and rewritten over the groups
(`circuits.sql.grouping`). `circuits.sql.conditions` then plans the condition as in WHERE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.expressions import Column, Expression, columns_of
from circuits.plan.nodes import Map, PlanNode
from circuits.sql.clause import Clause, Reader, is_aggregate
from circuits.sql.conditions import restrict
from circuits.sql.grouping import Grouping
from circuits.sql.scope import FIRST_OUTER_COLUMN, ScopeColumn
from circuits.sql.select_builder import SelectBuilder

__all__ = ["register_aggregates", "restrict_groups"]

# The number of a column that is not in GROUP BY, beyond the columns of any plan.
_UNGROUPED: Final = 8 * FIRST_OUTER_COLUMN


def register_aggregates(clause: Clause, condition: exp.Expr) -> None:
    """Read the aggregates of a condition, so that the plan of the groups computes them."""

    def is_whole(part: exp.Expr) -> bool:
        return is_aggregate(part) or isinstance(part, exp.Query)

    for part in condition.walk(prune=is_whole):
        if is_aggregate(part):
            clause.read(part)


def restrict_groups(
    builder: SelectBuilder, grouping: Grouping, plan: PlanNode, condition: exp.Expr
) -> PlanNode:
    """Return the groups for which a condition with EXISTS, IN, ANY or ALL is true.

    Args:
        builder: The plan of FROM and WHERE.
        grouping: The groups; `register_aggregates` has read the condition.
        plan: The plan of the groups.
        condition: The condition.

    Raises:
        UnsupportedSqlError: The condition names a column of the enclosing query.
    """
    groups = _GroupBuilder(builder, grouping, plan)
    restrict(groups, condition, "HAVING")
    if groups.correlated_conditions or _reads_ungrouped(groups.plan, plan):
        raise builder.source.unsupported(
            condition,
            "a condition of HAVING on a column that is not in GROUP BY",
            "add the column to GROUP BY; name those of the enclosing query in WHERE only",
        )
    return groups.plan


def _reads_ungrouped(restricted: PlanNode, plan: PlanNode) -> bool:
    """Return whether a node above ``plan`` reads a column that is not in GROUP BY."""
    pending = [restricted]
    while pending:
        node = pending.pop()
        if node is plan:
            continue
        pending += node.inputs
        if isinstance(node, Map):
            expressions = node.expressions
        else:
            predicate = getattr(node, "predicate", None)
            expressions = () if predicate is None else (predicate,)
        if any(c >= FIRST_OUTER_COLUMN for e in expressions for c in columns_of(e)):
            return True
    return False


class _GroupBuilder(SelectBuilder):
    """The groups of a query, as the rows that a condition restricts."""

    def __init__(self, rows: SelectBuilder, grouping: Grouping, plan: PlanNode) -> None:
        columns = [_over_groups(grouping, column) for column in rows.scope_columns]
        super().__init__(rows.environment, plan, columns, rows.parent)
        self._grouping = grouping

    def clause(self, name: str, **options: Reader) -> Clause:
        """Return a clause of expressions over the groups."""
        base = replace(self._grouping.clause(name), read_scalar=_refuse_scalar)
        values = {field.name: getattr(base, field.name) for field in fields(Clause)}
        return _GroupClause(**values, base=base, rewrite=self._grouping.rewrite_over_groups)


def _refuse_scalar(clause: Clause, node: exp.Expr) -> Expression:
    raise clause.source.unsupported(
        node,
        "a scalar subquery beside EXISTS or IN in HAVING",
        "put the grouped query in FROM, and the condition in the WHERE around",
    )


def _refuse_rewrite(node: exp.Expr, expression: Expression) -> Expression:
    raise AssertionError("a clause of groups has a rewrite")


@dataclass(frozen=True)
class _GroupClause(Clause):
    """A clause whose expressions are rewritten over the groups."""

    base: Clause | None = None
    rewrite: Callable[[exp.Expr, Expression], Expression] = _refuse_rewrite

    def read(self, node: exp.Expr) -> Expression:
        """Return the expression of a syntax tree over the groups."""
        assert self.base is not None
        return self.rewrite(node, self.base.read(node))


def _over_groups(grouping: Grouping, column: ScopeColumn) -> ScopeColumn:
    """Return a column of FROM over the groups.

    A column that is not a key becomes one that no plan has, so that a condition on it is refused.
    """
    place = exp.column(column.name)
    try:
        return column.map_values(lambda value: grouping.rewrite_over_groups(place, value))
    except SqlError:
        return column.map_values(lambda value: Column(_UNGROUPED, value.type))
