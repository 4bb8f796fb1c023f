"""Rule bodies as logical plans.

::

    e(x, y), f(y, 3), x < y, not g(x)  =  Semi anti (Filter (Cross e f), g, #0 = #4)

A conjunction is a CrossJoin of its atoms and one Filter: equal variables, constants, comparisons.
`circuits.plan.rewrite` makes one N-way join of them. ``x = term`` is not a column but an expression
that replaces ``x`` wherever it is used, so ``x`` may be NULL like any computed column. An ``or``
that is a relation is a Union among the atoms.

A negation is an antijoin of the conjunction so far. ``not (a, or(b ; c))`` is one antijoin per
alternative; ``not not a`` is a semijoin. The conditions of a negation on outer variables are part
of the predicate. A predicate cannot reach an inner negation: then the outer bindings themselves are
joined into the negation (``context``), matched by "is not distinct from", so that NULL matches
NULL.

A negation holds unless its items are true, so ``not (x < y)`` holds if one of them is NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from circuits.datalog.disjunctions import is_condition, split_alternatives, variables_bound_by_atoms
from circuits.datalog.program import (
    Apply,
    Atom,
    Comparison,
    Condition,
    Equation,
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
from circuits.datalog.terms import apply, compare, conjoin, expression
from circuits.errors import FunctionError
from circuits.plan.expressions import Column, Expression, Literal, columns_of, substitute
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Field,
    Filter,
    Map,
    Plan,
    RecursiveReference,
    Scan,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.types.functions import call, common_type

__all__ = ["Bindings", "BodyPlanner", "plan_union"]

Scope = Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Bindings:
    """A plan, and each variable as an expression over its columns."""

    plan: Plan
    variables: Scope


@dataclass(frozen=True, slots=True)
class _JoinInput:
    """An input of a cross join: a plan and a term per column; ``context``: outer bindings."""

    plan: Plan
    terms: tuple[Term, ...]
    offset: int
    context: bool = False


@dataclass(frozen=True, slots=True)
class BodyPlanner:
    """Plans bodies over known relations.

    Args:
        relations: The columns of each relation and of each head that is planned already.
        source: For errors.
        recursive: The heads that are planned together with this body.
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
            self._plan_conjunction(conjunction, {}, None)[0]
            for conjunction in split_alternatives(items, needed, (), self.source)
        ]

    def _plan_conjunction(
        self, items: Items, outer: Scope, left: Plan | None
    ) -> tuple[Bindings, list[Expression]]:
        """Plan a conjunction without distributed ors; return its conditions on outer variables,
        too.

        ``outer`` are expressions over the columns of ``left``; all expressions here are over those
        columns and then the conjunction's own, until the plan is made.
        """
        width = 0 if left is None else len(left.fields)
        parts, rest = self._join_inputs(items, outer)
        if left is not None:
            parts += self._outer_bindings(items, parts, outer, left)
        own, conditions, rest = self._bind_variables(parts, rest, outer, width)
        scope = {**outer, **own}
        negations: list[Not] = []
        for item in rest:
            if is_condition(item, scope):
                conditions.append(self._condition(item, scope))
            else:
                assert isinstance(item, Not)
                negations.append(item)
        plan = _cross_join([part.plan for part in parts])
        inner = [c for c in conditions if _reads_own_columns(c, width)]
        if inner:
            plan = Filter(plan, conjoin([_shift_columns(c, -width) for c in inner]))
        local = {
            name: _shift_columns(e, -width)
            for name, e in own.items()
            if _reads_own_columns(e, width)
        }
        for negation in negations:
            plan = self._semijoin(plan, local, negation.items, anti=True)
        asked = [c for c in conditions if not _reads_own_columns(c, width)]
        return Bindings(plan, local), asked

    def _join_inputs(self, items: Items, outer: Scope) -> tuple[list[_JoinInput], list[Item]]:
        """Return the inputs of the join, and the other items."""
        parts: list[_JoinInput] = []
        rest: list[Item] = []
        for item in items:
            if isinstance(item, Atom):
                fields = self.relations[item.relation]
                of = RecursiveReference if item.relation in self.recursive else Scan
                parts.append(_JoinInput(of(item.relation, fields), item.terms, item.offset))
            elif isinstance(item, Or) and not is_condition(
                item, variables_bound_by_atoms(items, outer)
            ):
                parts.append(self._plan_disjunction(item))
            else:
                rest.append(item)
        return parts, rest

    def _plan_disjunction(self, item: Or) -> _JoinInput:
        """Plan an or as a relation of the variables that all its alternatives bind."""
        every = frozenset.intersection(*(bound_variables(branch) for branch in item.alternatives))
        names = [name for name in variables_of(item) if name in every]
        plans = [p for branch in item.alternatives for p in self.plan_alternatives(branch, names)]
        maps = [(p.plan, [p.variables[name] for name in names]) for p in plans]
        union = plan_union(maps, names, self.source, item.offset)
        return _JoinInput(
            union, tuple(Variable(name, offset=item.offset) for name in names), item.offset
        )

    def _outer_bindings(
        self, items: Items, parts: Sequence[_JoinInput], outer: Scope, left: Plan
    ) -> list[_JoinInput]:
        """Return the outer bindings if an inner negation uses a variable that is not bound here."""
        local = bound_variables(items)
        known = {*outer, *bound_variables(items, outer)}
        inner = [i for i in items if isinstance(i, Not) and not is_condition(i, known)]
        asked = known.intersection(variables_of(*inner))
        if asked <= local:
            return []
        present = {t.name for part in parts for t in part.terms if isinstance(t, Variable)}
        names = [n for n in variables_of(*items) if n in outer and n not in present]
        plan = Distinct(Map(left, tuple(outer[name] for name in names), tuple(names)))
        return [_JoinInput(plan, tuple(map(Variable, names)), items[0].offset, context=True)]

    def _bind_variables(
        self, parts: Sequence[_JoinInput], items: Sequence[Item], outer: Scope, width: int
    ) -> tuple[dict[str, Expression], list[Expression], list[Item]]:
        """Return the variables of inputs and assignments, the equalities, and the other items."""
        own: dict[str, Expression] = {}
        conditions: list[Expression] = []
        computed: list[tuple[Column, Apply, int]] = []
        index = width
        for part in parts:
            for term, field in zip(part.terms, part.plan.fields, strict=True):
                column = Column(index, field.type)
                index += 1
                if isinstance(term, Variable):
                    known = own.setdefault(term.name, column)
                    if known is not column:
                        conditions.append(self._equate(known, column, term.offset))
                    elif term.name in outer:
                        function = "same" if part.context else "eq"
                        sides = [outer[term.name], column]
                        conditions.append(apply(function, sides, self.source, term.offset))
                elif isinstance(term, TypedConstant):
                    literal = Literal(term.value, term.type)
                    conditions.append(self._equate(column, literal, term.offset))
                elif isinstance(term, Apply):
                    computed.append((column, term, term.offset))
        rest = self._bind_assignments(items, own, outer)
        scope = {**outer, **own}
        for column, term, offset in computed:
            value = expression(term, scope, self.source)
            conditions.append(self._equate(column, value, offset))
        return own, conditions, rest

    def _bind_assignments(
        self, items: Sequence[Item], own: dict[str, Expression], outer: Scope
    ) -> list[Item]:
        """Bind the variables of ``x = term``, in any order; return the items that bind nothing."""
        rest = list(items)
        size = -1
        while size < len(own):
            size = len(own)
            for item in rest.copy():
                if (found := find_assignment(item, {*own, *outer})) is not None:
                    variable, term = found
                    own[variable.name] = expression(term, {**outer, **own}, self.source)
                    rest.remove(item)
        return rest

    def _equate(self, left: Expression, right: Expression, offset: int) -> Expression:
        return compare("==", left, right, self.source, offset)

    def _condition(self, item: Item, scope: Scope) -> Expression:
        """Return the boolean expression of an item without atoms."""
        match item:
            case Comparison() | Equation():
                left = expression(item.left, scope, self.source)
                right = expression(item.right, scope, self.source)
                return compare(item.op, left, right, self.source, item.offset)
            case Condition():
                value = expression(item.term, scope, self.source)
                if value.type != pa.bool_():
                    raise self.source.error(
                        f"{item.term.function} is no condition: its value is of type "
                        f"{value.type}, not bool; compare it with something",
                        item.offset,
                    )
                return value
            case Not():
                inner = conjoin([self._condition(part, scope) for part in item.items])
                return call("not", call("is_true", inner))
            case Or():
                branches = [
                    conjoin([self._condition(part, scope) for part in branch])
                    for branch in item.alternatives
                ]
                return call("or", *branches)
        raise AssertionError(item)

    def _semijoin(self, left: Plan, scope: Scope, items: Items, *, anti: bool) -> Plan:
        """Return the rows of ``left`` for which the items hold together (``anti``: do not)."""
        conjunctions = split_alternatives(items, (), scope, self.source)
        assert anti or len(conjunctions) == 1
        for conjunction in conjunctions:
            [first, *others] = conjunction
            if isinstance(first, Not) and not others and self._can_invert(first, scope, anti):
                left = self._semijoin(left, scope, first.items, anti=not anti)
                continue
            bindings, asked = self._plan_conjunction(conjunction, scope, left)
            left = Semijoin(left, bindings.plan, conjoin(asked), anti)
        return left

    def _can_invert(self, inner: Not, scope: Scope, anti: bool) -> bool:
        """Return whether a negation inverts the semijoin; not if an or splits it in two."""
        return not anti or len(split_alternatives(inner.items, (), scope, self.source)) == 1


def plan_union(
    maps: Sequence[tuple[Plan, Sequence[Expression]]],
    names: Sequence[str],
    source: DatalogSource,
    offset: int,
) -> Plan:
    """Return the union of expressions over several plans; columns get their common type.

    Raises:
        DatalogError: A column has types without a common one.
    """
    types = []
    for place, name in enumerate(names):
        try:
            types.append(common_type([expressions[place].type for _, expressions in maps]))
        except FunctionError as error:
            raise source.error(f"column {name!r}: {error}", offset) from None
    plans = [
        _map_columns(plan, tuple(map(_cast_to, expressions, types)), tuple(names))
        for plan, expressions in maps
    ]
    return plans[0] if len(plans) == 1 else Union(tuple(plans))


def _map_columns(plan: Plan, expressions: tuple[Expression, ...], names: tuple[str, ...]) -> Plan:
    """Return a Map, or the plan itself if the Map would change nothing."""
    same = expressions == columns(plan) and names == tuple(field.name for field in plan.fields)
    return plan if same else Map(plan, expressions, names)


def _cast_to(value: Expression, to: pa.DataType) -> Expression:
    return value if value.type == to else call("cast", value, type=to)


def _cross_join(plans: Sequence[Plan]) -> Plan:
    if not plans:
        return Values((), ((),))
    return plans[0] if len(plans) == 1 else CrossJoin(tuple(plans))


def _reads_own_columns(value: Expression, width: int) -> bool:
    return all(index >= width for index in columns_of(value))


def _shift_columns(value: Expression, by: int) -> Expression:
    if by == 0:
        return value
    return substitute(value, lambda column: Column(column.index + by, column.type))
