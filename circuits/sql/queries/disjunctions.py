"""EXISTS and IN inside OR and NOT: a disjoint union of semijoins and filters.

A *membership* condition is EXISTS, IN or a comparison with ANY or ALL of a subquery. It splits rows
into a semijoin and its antijoin; any other condition splits them into two filters::

    rows where p OR q     =  (rows where p)  +  ((rows where p is not true) where q)
    rows where p AND q    =  (rows where p) where q

    rows where (p AND q) is not true
                          =  (rows where p is not true)  +  ((rows where p) where q is not true)

Each row is in exactly one part and keeps its weight. De Morgan's laws first push NOT down to the
conditions; they hold in three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from circuits.plan.nodes import Filter, PlanNode, Semijoin, Union
from circuits.sql.binding.scope import is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.queries import memberships
from circuits.types.functions import call

__all__ = ["filter_by_disjunction", "is_splittable"]


def is_splittable(builder: SelectBuilder, node: exp.Expr) -> bool:
    """Return whether a condition can be split: it has a membership condition inside AND, OR or NOT.

    It must not contain other subqueries, also by aliases of the list: the value of such a subquery
    is joined to all rows, and a part of a split has only some of the rows.
    """
    return has_membership(node) and not _has_other_query(builder, node)


def _has_other_query(builder: SelectBuilder, node: exp.Expr) -> bool:
    node = _strip_negations(node)
    if memberships.is_membership(node):
        left = node.args.get("this") if not isinstance(node, exp.Exists) else None
        return left is not None and builder.reads_query(left)
    if isinstance(node, exp.And | exp.Or):
        return _has_other_query(builder, node.left) or _has_other_query(builder, node.right)
    return builder.reads_query(node)


def has_membership(node: exp.Expr) -> bool:
    """Return whether a condition, or one inside its AND, OR and NOT, is a membership condition."""
    node = _strip_parentheses(node)
    if isinstance(node, exp.And | exp.Or):
        return has_membership(node.left) or has_membership(node.right)
    if isinstance(node, exp.Not) and not memberships.is_membership(node):
        return has_membership(node.this)
    return memberships.is_membership(node)


def filter_by_disjunction(builder: SelectBuilder, clause_name: str, node: exp.Expr) -> PlanNode:
    """Return the rows for which a condition is true."""
    return _RowSplitter(builder, clause_name).rows_where_true(node, builder.plan, negated=False)


class _Connective(NamedTuple):
    """``left AND right``, or ``left OR right``, possibly negated as a whole."""

    left: exp.Expr
    right: exp.Expr
    is_and: bool
    negated: bool


class _RowSplitter:
    """Splits plans that have the columns of a builder by a condition.

    The plans are memoized. Both parts of one split are often needed, so that the plan of n
    alternatives is a DAG of O(n) nodes.
    """

    def __init__(self, builder: SelectBuilder, clause_name: str) -> None:
        self._builder = builder
        self._clause_name = clause_name
        # Keyed by the ``id`` of the condition and of the plan, whether the condition is negated,
        # and the method. An entry keeps its plan alive, so that the id stays unique.
        self._plans: dict[tuple[int, int, bool, str], tuple[PlanNode, PlanNode]] = {}

    def rows_where_true(self, node: exp.Expr, plan: PlanNode, *, negated: bool) -> PlanNode:
        """Return the rows for which the condition, or its negation, is true."""
        return self._memoize(self._build_true, node, plan, negated)

    def rows_where_not_true(self, node: exp.Expr, plan: PlanNode, *, negated: bool) -> PlanNode:
        """Return the other rows: the condition, or its negation, is false or NULL."""
        return self._memoize(self._build_not_true, node, plan, negated)

    def _memoize(
        self,
        build: Callable[[exp.Expr, PlanNode, bool], PlanNode],
        node: exp.Expr,
        plan: PlanNode,
        negated: bool,
    ) -> PlanNode:
        key = id(node), id(plan), negated, build.__name__
        if key not in self._plans:
            self._plans[key] = build(node, plan, negated), plan
        return self._plans[key][0]

    def _build_true(self, node: exp.Expr, plan: PlanNode, negated: bool) -> PlanNode:
        connective = self._find_connective(node, negated)
        if connective is None:
            return self._filter(node, plan, negated, complement=False)
        left, right, is_and, negated = connective
        left_true = self.rows_where_true(left, plan, negated=negated)
        if is_and:
            return self.rows_where_true(right, left_true, negated=negated)
        left_not_true = self.rows_where_not_true(left, plan, negated=negated)
        return Union((left_true, self.rows_where_true(right, left_not_true, negated=negated)))

    def _build_not_true(self, node: exp.Expr, plan: PlanNode, negated: bool) -> PlanNode:
        connective = self._find_connective(node, negated)
        if connective is None:
            return self._filter(node, plan, negated, complement=True)
        left, right, is_and, negated = connective
        left_not_true = self.rows_where_not_true(left, plan, negated=negated)
        if not is_and:
            return self.rows_where_not_true(right, left_not_true, negated=negated)
        left_true = self.rows_where_true(left, plan, negated=negated)
        return Union((left_not_true, self.rows_where_not_true(right, left_true, negated=negated)))

    def _find_connective(self, node: exp.Expr, negated: bool) -> _Connective | None:
        """Return the AND or OR of a condition, after De Morgan; None if it need not be split."""
        negated = _is_negated(node, negated)
        inner = _strip_negations(node)
        if not isinstance(inner, exp.And | exp.Or) or not has_membership(inner):
            return None
        self._builder.source.allow_arguments(inner, "this", "expression")
        return _Connective(inner.left, inner.right, isinstance(inner, exp.And) != negated, negated)

    def _filter(
        self, node: exp.Expr, plan: PlanNode, negated: bool, *, complement: bool
    ) -> PlanNode:
        """Return the rows for which a condition is true, or with ``complement`` the others."""
        builder = self._builder
        clause = builder.clause(self._clause_name)
        negated = _is_negated(node, negated)
        node = _strip_negations(node)
        if memberships.is_membership(node):
            builder_plan, builder.plan = builder.plan, plan
            try:
                semijoin = memberships.plan_semijoin(builder, clause, node, negated)
            finally:
                builder.plan = builder_plan
            assert isinstance(semijoin, Semijoin)
            return replace(semijoin, anti=not semijoin.anti) if complement else semijoin
        condition = clause.read_condition(node)
        if negated:
            condition = call("not", condition)
        if is_correlated(condition):
            raise builder.source.correlated(
                node,
                "an OR of EXISTS or IN with a condition on an enclosing query",
                "make it a separate condition, joined to the others by AND",
            )
        if complement:
            condition = call("not", call("is_true", condition))
        return Filter(plan, condition)


def _strip_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _strip_negations(node: exp.Expr) -> exp.Expr:
    """Return the condition without the parentheses and NOTs around it."""
    node = _strip_parentheses(node)
    while isinstance(node, exp.Not):
        node = _strip_parentheses(node.this)
    return node


def _is_negated(node: exp.Expr, negated: bool) -> bool:
    """Return ``negated``, inverted once for each NOT that `_strip_negations` removes."""
    node = _strip_parentheses(node)
    while isinstance(node, exp.Not):
        negated = not negated
        node = _strip_parentheses(node.this)
    return negated
