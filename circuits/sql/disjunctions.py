"""EXISTS and IN below OR and NOT: a disjoint union of semijoins and filters.

::

    rows where p OR q    =  (rows where p)  +  (rows where not true(p)) where q
    rows where p AND q   =  (rows where p) where q
    not true(p AND q)    =  (not true p)  +  (true p, then not true q)

A membership condition splits rows into a semijoin and its antijoin; any other condition splits them
into two filters. Each row is in exactly one part and keeps its weight. De Morgan's laws first push
NOT down to the conditions; they hold in three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from circuits.plan.nodes import Filter, Plan, Semijoin, Union
from circuits.sql import subqueries
from circuits.sql.scope import is_correlated
from circuits.sql.select_builder import SelectBuilder
from circuits.types.functions import call

__all__ = ["filter_by_disjunction", "has_membership"]


def has_membership(node: exp.Expr) -> bool:
    """Return whether EXISTS or IN (query) is in a condition, below AND, OR and NOT only."""
    node = _without_brackets(node)
    if isinstance(node, exp.And | exp.Or):
        return has_membership(node.left) or has_membership(node.right)
    if isinstance(node, exp.Not) and not subqueries.is_membership(node):
        return has_membership(node.this)
    return subqueries.is_membership(node)


def filter_by_disjunction(rows: SelectBuilder, name: str, node: exp.Expr) -> Plan:
    """Return the rows for which a condition of clause ``name`` is true."""
    return _RowSplitter(rows, name).true(node, rows.plan, negated=False)


class _RowSplitter:
    """Splits plans that have the columns of ``rows``.

    A condition is asked several times for the rows of one plan: once for those that it takes, once
    for those that it leaves to the next alternative. Each part is made once, so the plan of n
    alternatives is a DAG of O(n) nodes.
    """

    def __init__(self, rows: SelectBuilder, name: str) -> None:
        self._rows = rows
        self._name = name
        # Keyed by the ``id`` of the condition and of the plan. The entry keeps the plan alive, so
        # that its id stays valid.
        self._plans: dict[tuple[int, int, bool, bool], tuple[Plan, Plan]] = {}

    def true(self, node: exp.Expr, plan: Plan, *, negated: bool) -> Plan:
        """Return the rows for which the condition, or its negation, is true."""
        return self._memoize(self._build_true, node, plan, negated=negated)

    def untrue(self, node: exp.Expr, plan: Plan, *, negated: bool) -> Plan:
        """Return the other rows."""
        return self._memoize(self._build_untrue, node, plan, negated=negated)

    def _memoize(
        self, make: Callable[..., Plan], node: exp.Expr, plan: Plan, *, negated: bool
    ) -> Plan:
        key = id(node), id(plan), negated, make == self._build_true
        if key not in self._plans:
            self._plans[key] = make(node, plan, negated), plan
        return self._plans[key][0]

    def _build_true(self, node: exp.Expr, plan: Plan, negated: bool) -> Plan:
        first, second, both = self._split(node, negated)
        if second is None:
            return self._filter_leaf(
                first, plan, negated=_is_negated(node, negated), complement=False
            )
        negated = _is_negated(node, negated)
        matching = self.true(first, plan, negated=negated)
        if both:
            return self.true(second, matching, negated=negated)
        rest = self.untrue(first, plan, negated=negated)
        return Union((matching, self.true(second, rest, negated=negated)))

    def _build_untrue(self, node: exp.Expr, plan: Plan, negated: bool) -> Plan:
        first, second, both = self._split(node, negated)
        if second is None:
            return self._filter_leaf(
                first, plan, negated=_is_negated(node, negated), complement=True
            )
        negated = _is_negated(node, negated)
        left = self.untrue(first, plan, negated=negated)
        if not both:
            return self.untrue(second, left, negated=negated)
        matching = self.true(first, plan, negated=negated)
        return Union((left, self.untrue(second, matching, negated=negated)))

    def _split(self, node: exp.Expr, negated: bool) -> tuple[exp.Expr, exp.Expr | None, bool]:
        """Return the two parts of a connective, and whether both must hold; or one condition."""
        negated = _is_negated(node, negated)
        inner = _without_negations(node)
        if not isinstance(inner, exp.And | exp.Or) or not has_membership(inner):
            return inner, None, False
        self._rows.source.accept(inner, "this", "expression")
        return inner.left, inner.right, isinstance(inner, exp.And) != negated

    def _filter_leaf(self, node: exp.Expr, plan: Plan, *, negated: bool, complement: bool) -> Plan:
        rows = self._rows
        clause = rows.clause(self._name)
        if subqueries.is_membership(node):
            whole, rows.plan = rows.plan, plan
            try:
                found = subqueries.plan_semijoin(rows, clause, node, negated)
            finally:
                rows.plan = whole
            assert isinstance(found, Semijoin)
            return replace(found, anti=not found.anti) if complement else found
        if any(isinstance(part, exp.Query) for part in node.walk()):
            raise rows.source.unsupported(
                node,
                "a scalar subquery beside EXISTS or IN below OR",
                "join the subquery in FROM",
            )
        condition = clause.predicate(node)
        if negated:
            condition = call("not", condition)
        if is_correlated(condition):
            raise rows.source.unsupported(
                node,
                "a condition on an enclosing query beside EXISTS or IN below OR",
                "make it a separate condition, joined to the others by AND",
            )
        if complement:
            condition = call("not", call("is_true", condition))
        return Filter(plan, condition)


def _without_brackets(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _without_negations(node: exp.Expr) -> exp.Expr:
    """Return the condition without the brackets and NOTs around it."""
    node = _without_brackets(node)
    while isinstance(node, exp.Not):
        node = _without_brackets(node.this)
    return node


def _is_negated(node: exp.Expr, negated: bool) -> bool:
    """Return whether the result of `_without_negations` is negated."""
    node = _without_brackets(node)
    while isinstance(node, exp.Not):
        negated = not negated
        node = _without_brackets(node.this)
    return negated
