"""Bodies as plans.

::

    e(x, y), f(y, 3), x < y, not g(x)  =  Semi anti (Filter (Cross e f), g, #0 = #4)

A conjunction is a Cross of its atoms and one Filter: equal variables, constants, comparisons;
`circuits.plan.rewrite` makes one N-way join of them. ``x = term`` is no column but an expression
that stands wherever ``x`` is used, so ``x`` may be NULL as any computed column may. An ``or`` that
is a relation of its own is a Union among the atoms.

A negation is an anti semijoin of the conjunction so far; ``not (a, or(b ; c))`` is one per
alternative, ``not not a`` a semijoin. What the negation asks of outer variables goes into the
predicate. Where an inner negation asks for them, no predicate reaches: then the outer bindings
themselves are joined into the negation (``context``), matched by "is not distinct from", so that a
NULL meets itself.

A negation holds unless its items are true, so ``not (x < y)`` holds when one of them is NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from circuits.datalog.alternatives import alternatives, firmly_bound, is_condition
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
from circuits.datalog.scope import assignment, bound
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import all_of, apply, compared, expression
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

__all__ = ["Bindings", "Bodies", "united"]

Scope = Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Bindings:
    """A plan, and each variable as an expression over its columns."""

    plan: Plan
    variables: Scope


@dataclass(frozen=True, slots=True)
class _Part:
    """A factor of a Cross: a plan, and a term per column; ``context`` if of outer bindings."""

    plan: Plan
    terms: tuple[Term, ...]
    at: int
    context: bool = False


@dataclass(frozen=True, slots=True)
class Bodies:
    """Plans bodies over known relations.

    Args:
        relations: The columns of each relation and of each head that is planned already.
        source: For errors.
        recursive: The heads among them that are planned together with this body.
    """

    relations: Mapping[str, tuple[Field, ...]]
    source: DatalogSource
    recursive: Collection[str] = ()

    def plans(self, items: Items, needed: Collection[str]) -> list[Bindings]:
        """Plans whose union binds the ``needed`` variables of a hygienic body.

        Raises:
            DatalogError: Types do not fit, or there are too many alternatives.
        """
        return [
            self._conjunction(conjunction, {}, None)[0]
            for conjunction in alternatives(items, needed, (), self.source)
        ]

    def _conjunction(
        self, items: Items, outer: Scope, left: Plan | None
    ) -> tuple[Bindings, list[Expression]]:
        """A conjunction without distributed ors, and what it asks of the outer variables.

        ``outer`` are expressions over the columns of ``left``; all expressions here are over those
        columns and then the conjunction's own, until the plan is made.
        """
        width = 0 if left is None else len(left.fields)
        parts, rest = self._parts(items, outer)
        if left is not None:
            parts += self._context(items, parts, outer, left)
        own, conditions, rest = self._bind(parts, rest, outer, width)
        scope = {**outer, **own}
        negations: list[Not] = []
        for item in rest:
            if is_condition(item, scope):
                conditions.append(self._condition(item, scope))
            else:
                assert isinstance(item, Not)
                negations.append(item)
        plan = _crossed([part.plan for part in parts])
        inner = [c for c in conditions if _is_own(c, width)]
        if inner:
            plan = Filter(plan, all_of([_moved(c, -width) for c in inner]))
        local = {name: _moved(e, -width) for name, e in own.items() if _is_own(e, width)}
        for negation in negations:
            plan = self._semi(plan, local, negation.items, anti=True)
        asked = [c for c in conditions if not _is_own(c, width)]
        return Bindings(plan, local), asked

    def _parts(self, items: Items, outer: Scope) -> tuple[list[_Part], list[Item]]:
        """What is joined, and the other items."""
        parts: list[_Part] = []
        rest: list[Item] = []
        for item in items:
            if isinstance(item, Atom):
                fields = self.relations[item.relation]
                of = RecursiveReference if item.relation in self.recursive else Scan
                parts.append(_Part(of(item.relation, fields), item.terms, item.at))
            elif isinstance(item, Or) and not is_condition(item, firmly_bound(items, outer)):
                parts.append(self._disjunction(item))
            else:
                rest.append(item)
        return parts, rest

    def _disjunction(self, item: Or) -> _Part:
        """An or as a relation of the variables that all its alternatives bind."""
        every = frozenset.intersection(*(bound(branch) for branch in item.alternatives))
        names = [name for name in variables_of(item) if name in every]
        plans = [p for branch in item.alternatives for p in self.plans(branch, names)]
        maps = [(p.plan, [p.variables[name] for name in names]) for p in plans]
        union = united(maps, names, self.source, item.at)
        return _Part(union, tuple(Variable(name, at=item.at) for name in names), item.at)

    def _context(
        self, items: Items, parts: Sequence[_Part], outer: Scope, left: Plan
    ) -> list[_Part]:
        """The outer bindings, if an inner negation uses one that the conjunction does not bind."""
        local = bound(items)
        known = {*outer, *bound(items, outer)}
        inner = [i for i in items if isinstance(i, Not) and not is_condition(i, known)]
        asked = known.intersection(variables_of(*inner))
        if asked <= local:
            return []
        present = {t.name for part in parts for t in part.terms if isinstance(t, Variable)}
        names = [n for n in variables_of(*items) if n in outer and n not in present]
        plan = Distinct(Map(left, tuple(outer[name] for name in names), tuple(names)))
        return [_Part(plan, tuple(map(Variable, names)), items[0].at, context=True)]

    def _bind(
        self, parts: Sequence[_Part], items: Sequence[Item], outer: Scope, width: int
    ) -> tuple[dict[str, Expression], list[Expression], list[Item]]:
        """Variables of the parts and assignments; equalities; the items that are left."""
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
                        conditions.append(self._equal(known, column, term.at))
                    elif term.name in outer:
                        function = "same" if part.context else "eq"
                        sides = [outer[term.name], column]
                        conditions.append(apply(function, sides, self.source, term.at))
                elif isinstance(term, TypedConstant):
                    literal = Literal(term.value, term.type)
                    conditions.append(self._equal(column, literal, term.at))
                elif isinstance(term, Apply):
                    computed.append((column, term, term.at))
        rest = self._assign(items, own, outer)
        scope = {**outer, **own}
        for column, term, at in computed:
            value = expression(term, scope, self.source)
            conditions.append(self._equal(column, value, at))
        return own, conditions, rest

    def _assign(
        self, items: Sequence[Item], own: dict[str, Expression], outer: Scope
    ) -> list[Item]:
        """Bind what ``x = term`` binds, whatever the order; the items that bind nothing."""
        rest = list(items)
        size = -1
        while size < len(own):
            size = len(own)
            for item in rest.copy():
                if (found := assignment(item, {*own, *outer})) is not None:
                    variable, term = found
                    own[variable.name] = expression(term, {**outer, **own}, self.source)
                    rest.remove(item)
        return rest

    def _equal(self, left: Expression, right: Expression, at: int) -> Expression:
        return compared("==", left, right, self.source, at)

    def _condition(self, item: Item, scope: Scope) -> Expression:
        """An item without atoms as a boolean expression."""
        match item:
            case Comparison() | Equation():
                left = expression(item.left, scope, self.source)
                right = expression(item.right, scope, self.source)
                return compared(item.op, left, right, self.source, item.at)
            case Condition():
                value = expression(item.term, scope, self.source)
                if value.type != pa.bool_():
                    raise self.source.error(
                        f"{item.term.function} is no condition: its value is of type "
                        f"{value.type}, not bool; compare it with something",
                        item.at,
                    )
                return value
            case Not():
                inner = all_of([self._condition(part, scope) for part in item.items])
                return call("not", call("is_true", inner))
            case Or():
                branches = [
                    all_of([self._condition(part, scope) for part in branch])
                    for branch in item.alternatives
                ]
                return call("or", *branches)
        raise AssertionError(item)

    def _semi(self, left: Plan, scope: Scope, items: Items, *, anti: bool) -> Plan:
        """The rows of ``left`` for which the items hold together (``anti``: do not)."""
        conjunctions = alternatives(items, (), scope, self.source)
        assert anti or len(conjunctions) == 1
        for conjunction in conjunctions:
            [first, *others] = conjunction
            if isinstance(first, Not) and not others and self._turns(first, scope, anti):
                left = self._semi(left, scope, first.items, anti=not anti)
                continue
            bindings, asked = self._conjunction(conjunction, scope, left)
            left = Semijoin(left, bindings.plan, all_of(asked), anti)
        return left

    def _turns(self, inner: Not, scope: Scope, anti: bool) -> bool:
        """Whether a negation in a semijoin is the other semijoin: always but for an or in two."""
        return not anti or len(alternatives(inner.items, (), scope, self.source)) == 1


def united(
    maps: Sequence[tuple[Plan, Sequence[Expression]]],
    names: Sequence[str],
    source: DatalogSource,
    at: int,
) -> Plan:
    """The union of expressions over several plans, each column in the type common to all.

    Raises:
        DatalogError: A column has types without a common one.
    """
    types = []
    for place, name in enumerate(names):
        try:
            types.append(common_type([expressions[place].type for _, expressions in maps]))
        except FunctionError as error:
            raise source.error(f"column {name!r}: {error}", at) from None
    plans = [
        _mapped(plan, tuple(map(_cast, expressions, types)), tuple(names))
        for plan, expressions in maps
    ]
    return plans[0] if len(plans) == 1 else Union(tuple(plans))


def _mapped(plan: Plan, expressions: tuple[Expression, ...], names: tuple[str, ...]) -> Plan:
    """A Map, or the plan itself where it would change nothing."""
    same = expressions == columns(plan) and names == tuple(field.name for field in plan.fields)
    return plan if same else Map(plan, expressions, names)


def _cast(value: Expression, to: pa.DataType) -> Expression:
    return value if value.type == to else call("cast", value, type=to)


def _crossed(plans: Sequence[Plan]) -> Plan:
    if not plans:
        return Values((), ((),))
    return plans[0] if len(plans) == 1 else CrossJoin(tuple(plans))


def _is_own(value: Expression, width: int) -> bool:
    return all(index >= width for index in columns_of(value))


def _moved(value: Expression, by: int) -> Expression:
    if by == 0:
        return value
    return substitute(value, lambda column: Column(column.index + by, column.type))
