"""Rule bodies as logical plans.

::

    e(x, y), f(y, 3), x < y, not g(x)
        =  Semijoin(Filter(CrossJoin(e, f), ...), g, #0 = #4, anti)

A conjunction is a CrossJoin of its atoms and one Filter: equal variables, constants, comparisons.
`circuits.plan.rewrite` makes one N-way join of them. ``x = term`` adds no column: the expression of
the term replaces ``x`` wherever it is used, so ``x`` may be NULL like any computed value. An ``or``
that can be joined (see `circuits.datalog.disjunctions`) is a Union among the atoms.

A negation is an antijoin of the conjunction so far. ``not (a, or(b ; c))`` is one antijoin per
alternative; ``not not a`` is a semijoin. Conditions of the negation on outer variables (those that
the conjunction around it binds) are part of the predicate of the antijoin.

In ``p(x), not (q(y), not r(x, y))`` the inner negation needs ``x``, which the plan of ``q(y)`` does
not have. Then the distinct values of ``x`` are joined with ``q(y)``: they are the *context* of the
outer negation. Its antijoin compares them with ``x`` by IS NOT DISTINCT FROM, so that NULL matches
NULL.

``not (x < y)`` is true unless ``x < y`` is true, so it is true if ``x`` or ``y`` is NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from circuits.datalog.disjunctions import is_condition, split_alternatives, variables_bound_by_atoms
from circuits.datalog.program import (
    Atom,
    Comparison,
    Condition,
    Equation,
    FunctionCall,
    Item,
    Items,
    Not,
    Or,
    Term,
    TypedConstant,
    Variable,
    variables_of,
)
from circuits.datalog.scope import bound_variables, find_assignment
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import build_comparison, build_expression, call_function
from circuits.errors import FunctionError
from circuits.plan.expressions import (
    Column,
    Expression,
    Literal,
    columns_of,
    shift_columns,
)
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Field,
    Filter,
    Map,
    PlanNode,
    RecursiveReference,
    Scan,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.types.functions import call, common_type, conjunction

__all__ = ["Bindings", "BodyPlanner", "Projection", "plan_union"]

#: The value of each bound variable.
Scope = Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Bindings:
    """A plan, and the variables that it binds as expressions over its columns."""

    plan: PlanNode
    variables: Scope


@dataclass(frozen=True, slots=True)
class _JoinInput:
    """An input of a cross join.

    Args:
        plan: The plan.
        terms: A term for each column.
        offset: The offset in the text.
        is_context: True for the context of a negation; see the start of this module.
    """

    plan: PlanNode
    terms: tuple[Term, ...]
    offset: int
    is_context: bool = False


@dataclass(frozen=True, slots=True)
class BodyPlanner:
    """Plans bodies.

    Args:
        relations: The columns of the input relations and of the heads that are planned already.
        source: For errors.
        recursive: The heads of the recursion that this body is a part of.
    """

    relations: Mapping[str, tuple[Field, ...]]
    source: DatalogSource
    recursive: Collection[str] = ()

    def plan_alternatives(self, items: Items, needed: Collection[str]) -> list[Bindings]:
        """Return plans whose union binds the ``needed`` variables of a body.

        Local variables have unique names; see `circuits.datalog.scope`.

        Raises:
            DatalogError: Types do not fit, or there are too many alternatives.
        """
        return [
            self._plan_conjunction(alternative, {}, None)[0]
            for alternative in split_alternatives(items, needed, (), self.source)
        ]

    def _plan_conjunction(
        self, items: Items, outer: Scope, left: PlanNode | None
    ) -> tuple[Bindings, list[Expression]]:
        """Plan a conjunction without ors to distribute.

        Args:
            items: The conjunction.
            outer: The outer variables as expressions over the columns of ``left``.
            left: The plan that a negation is subtracted from; None outside of negations.

        Returns:
            The bindings, and the conditions that read outer variables. These are over the columns
            of ``left``, then those of the bindings.
        """
        # Columns are numbered here as those of ``left``, then those of the plan of this
        # conjunction. An expression that reads only the plan is shifted before the plan or the
        # bindings use it.
        left_width = 0 if left is None else len(left.fields)
        inputs, other_items = self._join_inputs(items, outer)
        if left is not None:
            inputs += self._outer_bindings(items, inputs, outer, left)
        inner, conditions, other_items = self._bind_variables(
            inputs, other_items, outer, left_width
        )
        scope = {**outer, **inner}
        negations: list[Not] = []
        for item in other_items:
            if is_condition(item, scope):
                conditions.append(self._build_condition(item, scope))
            else:
                assert isinstance(item, Not)
                negations.append(item)
        plan = _cross_join([join_input.plan for join_input in inputs])
        own_conditions = [c for c in conditions if _reads_own_columns(c, left_width)]
        if own_conditions:
            own_predicates = [shift_columns(c, -left_width) for c in own_conditions]
            plan = Filter(plan, conjunction(own_predicates))
        plan_variables = {
            name: shift_columns(value, -left_width)
            for name, value in inner.items()
            if _reads_own_columns(value, left_width)
        }
        for negation in negations:
            plan = self._plan_semijoin(plan, plan_variables, negation.items, anti=True)
        outer_conditions = [c for c in conditions if not _reads_own_columns(c, left_width)]
        return Bindings(plan, plan_variables), outer_conditions

    def _join_inputs(self, items: Items, outer: Scope) -> tuple[list[_JoinInput], list[Item]]:
        """Return the inputs of the join, and the other items."""
        inputs: list[_JoinInput] = []
        other_items: list[Item] = []
        for item in items:
            if isinstance(item, Atom):
                fields = self.relations[item.relation]
                node = RecursiveReference if item.relation in self.recursive else Scan
                inputs.append(_JoinInput(node(item.relation, fields), item.terms, item.offset))
            elif isinstance(item, Or) and not is_condition(
                item, variables_bound_by_atoms(items, outer)
            ):
                inputs.append(self._plan_disjunction(item))
            else:
                other_items.append(item)
        return inputs, other_items

    def _plan_disjunction(self, item: Or) -> _JoinInput:
        """Plan an or as a relation of the variables that all its alternatives bind."""
        common = frozenset.intersection(*(bound_variables(branch) for branch in item.alternatives))
        names = [name for name in variables_of(item) if name in common]
        projections: list[Projection] = []
        for branch in item.alternatives:
            for bindings in self.plan_alternatives(branch, names):
                values = [bindings.variables[name] for name in names]
                projections.append(Projection(bindings.plan, values))
        union = plan_union(projections, names, self.source, item.offset)
        terms = tuple(Variable(name, offset=item.offset) for name in names)
        return _JoinInput(union, terms, item.offset)

    def _outer_bindings(
        self, items: Items, inputs: Sequence[_JoinInput], outer: Scope, left: PlanNode
    ) -> list[_JoinInput]:
        """Return the context, if an inner negation uses a variable that is not bound here."""
        bound_by_items = bound_variables(items)
        bound = {*outer, *bound_variables(items, outer)}
        negations = [i for i in items if isinstance(i, Not) and not is_condition(i, bound)]
        if bound.intersection(variables_of(*negations)) <= bound_by_items:
            return []
        joined_names = {
            term.name
            for join_input in inputs
            for term in join_input.terms
            if isinstance(term, Variable)
        }
        names = [n for n in variables_of(*items) if n in outer and n not in joined_names]
        plan = Distinct(Map(left, tuple(outer[name] for name in names), tuple(names)))
        terms = tuple(map(Variable, names))
        return [_JoinInput(plan, terms, items[0].offset, is_context=True)]

    def _bind_variables(
        self,
        inputs: Sequence[_JoinInput],
        items: Sequence[Item],
        outer: Scope,
        first_column: int,
    ) -> tuple[dict[str, Expression], list[Expression], list[Item]]:
        """Bind the variables of a conjunction.

        Args:
            inputs: The inputs of its join.
            items: Its other items.
            outer: The outer variables.
            first_column: The number of the first column of the first input.

        Returns:
            The variables that inputs and assignments bind, the equalities between columns and other
            values, and the items that are not assignments.
        """
        inner: dict[str, Expression] = {}
        conditions: list[Expression] = []
        computed: list[tuple[Column, FunctionCall]] = []
        index = first_column
        for join_input in inputs:
            for term, field in zip(join_input.terms, join_input.plan.fields, strict=True):
                column = Column(index, field.type)
                index += 1
                if isinstance(term, Variable):
                    value = inner.setdefault(term.name, column)
                    if value is not column:
                        conditions.append(self._equate(value, column, term.offset))
                    elif term.name in outer:
                        function = "same" if join_input.is_context else "eq"
                        sides = [outer[term.name], column]
                        conditions.append(call_function(function, sides, self.source, term.offset))
                elif isinstance(term, TypedConstant):
                    literal = Literal(term.value, term.type)
                    conditions.append(self._equate(column, literal, term.offset))
                elif isinstance(term, FunctionCall):
                    computed.append((column, term))
        other_items = self._bind_assignments(items, inner, outer)
        scope = {**outer, **inner}
        for column, term in computed:
            value = build_expression(term, scope, self.source)
            conditions.append(self._equate(column, value, term.offset))
        return inner, conditions, other_items

    def _bind_assignments(
        self, items: Sequence[Item], inner: dict[str, Expression], outer: Scope
    ) -> list[Item]:
        """Add the variables of ``x = term`` to ``inner``, in any order; return the other items."""
        other_items = list(items)
        size = -1
        while size < len(inner):
            size = len(inner)
            for item in other_items.copy():
                assignment = find_assignment(item, {*inner, *outer})
                if assignment is not None:
                    variable, term = assignment
                    inner[variable.name] = build_expression(term, {**outer, **inner}, self.source)
                    other_items.remove(item)
        return other_items

    def _equate(self, left: Expression, right: Expression, offset: int) -> Expression:
        return build_comparison("==", left, right, self.source, offset)

    def _build_condition(self, item: Item, scope: Scope) -> Expression:
        """Return the boolean expression of an item without atoms."""
        match item:
            case Comparison() | Equation():
                left = build_expression(item.left, scope, self.source)
                right = build_expression(item.right, scope, self.source)
                return build_comparison(item.op, left, right, self.source, item.offset)
            case Condition():
                value = build_expression(item.term, scope, self.source)
                if value.type != pa.bool_():
                    raise self.source.error(
                        f"{item.term.function} is not a condition: its value is of type "
                        f"{value.type}, not bool; compare it with a value",
                        item.offset,
                    )
                return value
            case Not():
                inner = conjunction([self._build_condition(part, scope) for part in item.items])
                return call("not", call("is_true", inner))
            case Or():
                branches = [
                    conjunction([self._build_condition(part, scope) for part in branch])
                    for branch in item.alternatives
                ]
                return call("or", *branches)
        raise AssertionError(item)

    def _plan_semijoin(self, left: PlanNode, scope: Scope, items: Items, *, anti: bool) -> PlanNode:
        """Return the rows of ``left`` for which all items are true, or with ``anti`` the others."""
        alternatives = split_alternatives(items, (), scope, self.source)
        assert anti or len(alternatives) == 1
        for alternative in alternatives:
            item, *other_items = alternative
            if isinstance(item, Not) and not other_items and self._can_invert(item, scope, anti):
                left = self._plan_semijoin(left, scope, item.items, anti=not anti)
                continue
            bindings, outer_conditions = self._plan_conjunction(alternative, scope, left)
            left = Semijoin(left, bindings.plan, conjunction(outer_conditions), anti)
        return left

    def _can_invert(self, inner: Not, scope: Scope, anti: bool) -> bool:
        """Return whether the items of ``inner`` can be planned, with ``anti`` inverted.

        An antijoin with ``not items`` is a semijoin with ``items``, but only if these have one
        alternative. With several it would be a union of semijoins. A semijoin with ``not items`` is
        an antijoin for each alternative, one after another.
        """
        return not anti or len(split_alternatives(inner.items, (), scope, self.source)) == 1


class Projection(NamedTuple):
    """Expressions over the columns of a plan."""

    plan: PlanNode
    expressions: Sequence[Expression]


def plan_union(
    projections: Sequence[Projection],
    names: Sequence[str],
    source: DatalogSource,
    offset: int,
) -> PlanNode:
    """Return the union of projections; columns are cast to their common type.

    Raises:
        DatalogError: The types of a column have no common type.
    """
    types = []
    for index, name in enumerate(names):
        try:
            types.append(common_type([p.expressions[index].type for p in projections]))
        except FunctionError as error:
            raise source.error(f"column {name!r}: {error}", offset) from None
    plans = [
        _map_columns(plan, tuple(map(_cast_to, expressions, types)), tuple(names))
        for plan, expressions in projections
    ]
    return plans[0] if len(plans) == 1 else Union(tuple(plans))


def _map_columns(
    plan: PlanNode, expressions: tuple[Expression, ...], names: tuple[str, ...]
) -> PlanNode:
    """Return a Map, or the plan itself if the Map would change nothing."""
    same = expressions == columns(plan) and names == tuple(field.name for field in plan.fields)
    return plan if same else Map(plan, expressions, names)


def _cast_to(value: Expression, to: pa.DataType) -> Expression:
    return value if value.type == to else call("cast", value, type=to)


def _cross_join(plans: Sequence[PlanNode]) -> PlanNode:
    if not plans:
        return Values((), ((),))
    return plans[0] if len(plans) == 1 else CrossJoin(tuple(plans))


def _reads_own_columns(value: Expression, width: int) -> bool:
    """Return whether an expression reads no column of the left plan of this ``width``."""
    return all(index >= width for index in columns_of(value))
