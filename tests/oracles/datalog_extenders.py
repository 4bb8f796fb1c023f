"""The oracle of Datalog plans: rule bodies as prefix extenders, joined by the reference join.

::

    e(x, y), not ban(y), or(f(x) ; g(x)), x < y   over the order x, y =
        RelationExtender(e, 0 1), Not(RelationExtender(ban, 1)),
        Or(RelationExtender(f, 0), RelationExtender(g, 0)), Filter(0 1, <)

The variables are ordered as in the text, except that a computed variable is after the variables of
its term. A disjunction that is distributed (see `circuits.datalog.disjunctions`) becomes an ``Or``
of ``And`` over the whole order. A variable that only one alternative uses has no level, so this
alternative is solved first, and its rows are a relation. This module adds two extenders:

- ``Computed``: ``x = term``, which proposes one value;
- ``Absent``: a negation with local variables, solved again for each prefix of the shared ones.

Rows are Python values; None is NULL. Each argument of each atom replaces it by a `Null` of its own,
which equals itself only, so that NULL joins nothing; ``answers`` converts it back. Terms are
evaluated value by value, so this is for small results.

It shares the parser, name resolution and safety with the plans that it checks, but no join.

References:
    Datalog and GenericJoin, the hooray2 project, 2025 (the extenders for or, and, not).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NoReturn

from circuits.datalog.disjunctions import is_condition, split_alternatives
from circuits.datalog.parser import parse
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
    walk,
)
from circuits.datalog.safety import check_safety, resolve_names
from circuits.datalog.scope import bound_variables, find_assignment, rename_local_variables
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import AGGREGATES
from dbsp_wcoj.errors import UnsafeVariableError
from dbsp_wcoj.reference.connectives import And as AndExtender
from dbsp_wcoj.reference.connectives import Filter as FilterExtender
from dbsp_wcoj.reference.connectives import Not as NotExtender
from dbsp_wcoj.reference.connectives import Or as OrExtender
from dbsp_wcoj.reference.extenders import Prefix, PrefixExtender, RelationExtender, Row
from dbsp_wcoj.reference.join import solve
from tests.oracles.datalog_values import Null, Valuation, plain

__all__ = ["Absent", "Computed", "answers", "extenders"]

Relations = Mapping[str, Sequence[Row]]


def answers(text: str, relations: Relations) -> set[Row]:
    """The rows of one rule without aggregates, over rows of Python values.

    Raises:
        DatalogError: The text is not one rule, or a rule that `plan_datalog` refuses.

    >>> rows = {"e": [(1, 2), (2, 3), (1, 3)], "ban": [(3,)]}
    >>> answers("q(x, y + 1) :- e(x, y), not ban(y).", rows)
    {(1, 3)}
    """
    program = parse(text)
    more_rules = program.rules[1:]
    if more_rules:
        message = "a one-shot query is one rule; register the others as a view"
        raise program.source.error(message, more_rules[0].offset)
    program = resolve_names(program, _arities(program.rules[0].body, relations))
    check_safety(program)
    [rule] = program.rules
    for term in rule.terms:
        if isinstance(term.term, FunctionCall) and term.term.function in AGGREGATES:
            message = "a one-shot query by extenders has no aggregates; use the plan"
            raise program.source.error(message, term.offset)
    order, parts = extenders(rule.body, relations, source=program.source)
    head = [Valuation(term.term, order, program.source) for term in rule.terms]
    return {tuple(plain(term(*row)) for term in head) for row in solve(parts, len(order))}


def extenders(
    body: Items, relations: Relations, *, source: DatalogSource | None = None
) -> tuple[tuple[str, ...], list[PrefixExtender]]:
    """Translate a body to extenders over a variable order.

    Args:
        body: The body of a rule that `circuits.datalog.safety` has resolved and checked.
        relations: The rows of each relation; None is NULL.
        source: The text, for errors.

    Returns:
        The variables in their order, and the extenders that `dbsp_wcoj.reference.join.solve` joins.

    Raises:
        DatalogError: Two alternatives compute two variables from each other.

    >>> [rule] = parse("q(x) :- e(x, y), x < y, not e(y, _).").rules
    >>> order, parts = extenders(rule.body, {"e": [(1, 2), (2, 3), (3, 1), (1, 4)]})
    >>> order, list(solve(parts, len(order)))
    (('x', 'y'), [(1, 4)])
    """
    builder = _Builder(relations, source or DatalogSource(""))
    items = _without_computed_terms(rename_local_variables(body), count(1))
    bound = bound_variables(items)
    names = [name for name in variables_of(*items) if name in bound]
    conjunctions = split_alternatives(items, names, (), builder.source)
    order = _order_of(names, [item for c in conjunctions for item in c], builder.source)
    if len(conjunctions) == 1:
        return order, builder.conjunction(conjunctions[0], order, ())
    branches = [_all(builder.conjunction(c, order, ())) for c in conjunctions]
    return order, [OrExtender(branches)]


@dataclass(frozen=True, slots=True)
class Computed:
    """``x = term``: one extension after each prefix.

    >>> double = Valuation(parse("q(x) :- y = x * 2.").rules[0].body[0].right, ("x",),
    ...                    DatalogSource(""))
    >>> Computed(1, (0,), double).propose((21,))
    [42]
    """

    level: int
    arguments: tuple[int, ...]
    value: Valuation

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of the variable; all arguments are below it."""
        return (self.level,)

    def participates(self, level: int) -> bool:
        """Return whether this is the level of the variable."""
        return level == self.level

    def count(self, prefix: Prefix) -> float:
        """Return 1."""
        return 1

    def propose(self, prefix: Prefix) -> list[Any]:
        """The value of the term."""
        value = self.value(*(prefix[level] for level in self.arguments))
        return [Null(self) if value is None else value]

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """Keep the extension that equals the value of the term, if one does."""
        value = self.value(*(prefix[level] for level in self.arguments))
        return [] if value is None else [e for e in extensions if e == value]


@dataclass(frozen=True, slots=True)
class Absent:
    """Accepts the prefixes for which the inner extenders have no solution.

    Args:
        shared: The outer levels whose values are the first inner ones.
        inner: Extenders over an order of their own: the shared variables, then the local ones.
        size: How many inner variables there are.
    """

    shared: tuple[int, ...]
    inner: Sequence[PrefixExtender]
    size: int

    @property
    def levels(self) -> tuple[int, ...]:
        """The last shared level."""
        return (max(self.shared, default=0),)

    def participates(self, level: int) -> bool:
        """Return whether this is the last shared level."""
        return level in self.levels

    def count(self, prefix: Prefix) -> float:
        """Infinite: the complement cannot be enumerated."""
        return math.inf

    def propose(self, prefix: Prefix) -> NoReturn:
        """Raise an error: the complement cannot be enumerated.

        Raises:
            UnsafeVariableError: Always; another extender binds the variable.
        """
        message = f"level {len(prefix)} meets only a negation; bind its variable in an atom"
        raise UnsafeVariableError(message)

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """Return the extensions for which the inner extenders have no solution."""
        kept = []
        for extension in extensions:
            whole = (*prefix, extension)
            values = tuple(whole[level] for level in self.shared)
            fixed = RelationExtender([values], range(len(values)))
            if not any(True for _ in solve([fixed, *self.inner], self.size)):
                kept.append(extension)
        return kept


@dataclass(frozen=True, slots=True)
class _Builder:
    """Extenders of items over the rows of relations."""

    relations: Relations
    source: DatalogSource

    def conjunction(
        self, items: Items, order: tuple[str, ...], given: Sequence[str]
    ) -> list[PrefixExtender]:
        """Translate a conjunction over ``order``; the outer body binds the variables ``given``."""
        local = [name for name in bound_variables(items, given) if name not in order]
        if local:
            whole = _order_of([*order, *sorted(local)], items, self.source)
            rows = list(solve(self.conjunction(items, whole, given), len(whole)))
            levels = [whole.index(name) for name in order]
            distinct = dict.fromkeys(tuple(row[level] for level in levels) for row in rows)
            return [RelationExtender(list(distinct), range(len(order)))]
        known = set(given)
        known.update(
            name for i in items if isinstance(i, Atom | Or) for name in bound_variables((i,))
        )
        computed: list[PrefixExtender] = []
        remaining = list(items)
        size = -1
        while size < len(known):
            size = len(known)
            for item in remaining.copy():
                if (assigned := find_assignment(item, known)) is not None:
                    variable, term = assigned
                    computed.append(self._computed(variable.name, term, order))
                    known.add(variable.name)
                    remaining.remove(item)
        return [*computed, *(e for item in remaining for e in self._item(item, order))]

    def _item(self, item: Item, order: tuple[str, ...]) -> list[PrefixExtender]:
        match item:
            case Atom():
                return [self._atom(item, order)]
            case Or() if is_condition(item, order) and not self._binds(item):
                branches = [[e for i in a for e in self._item(i, order)] for a in item.alternatives]
                return [OrExtender([_all(branch) for branch in branches])]
            case Or():
                return [self._disjunction(item, order)]
            case Not():
                return self._negation(item, order)
            case Comparison() | Equation() | Condition():
                return [self._filter(item, order)]
        raise AssertionError(item)

    def _binds(self, item: Or) -> bool:
        """Return whether every alternative, without atoms, computes all variables itself."""
        names = set(variables_of(item))
        return all(names <= bound_variables(branch) for branch in item.alternatives)

    def _atom(self, atom: Atom, order: tuple[str, ...]) -> RelationExtender:
        terms = list(enumerate(atom.terms))
        fixed = [(place, term.value) for place, term in terms if isinstance(term, TypedConstant)]
        bound = [(place, term.name) for place, term in terms if isinstance(term, Variable)]
        nulls = {place: Null((atom.offset, place)) for place, _ in bound}
        rows = {
            tuple(nulls[place] if row[place] is None else row[place] for place, _ in bound): 1
            for row in self.relations[atom.relation]
            if all(row[place] == value for place, value in fixed)
        }
        return RelationExtender(rows, [order.index(name) for _, name in bound])

    def _computed(self, name: str, term: Term, order: tuple[str, ...]) -> Computed:
        level = order.index(name)
        used = tuple(variables_of(term))
        arguments = tuple(order.index(argument) for argument in used)
        return Computed(level, arguments, Valuation(term, used, self.source))

    def _filter(
        self, item: Comparison | Equation | Condition, order: tuple[str, ...]
    ) -> FilterExtender:
        used = tuple(variables_of(item))
        holds = Valuation.of_condition(item, used, self.source)
        return FilterExtender(tuple(order.index(name) for name in used), holds)

    def _disjunction(self, item: Or, order: tuple[str, ...]) -> PrefixExtender:
        """Translate a disjunction to a relation of the variables that all its alternatives bind."""
        shared = frozenset.intersection(*(bound_variables(branch) for branch in item.alternatives))
        names = tuple(name for name in order if name in shared)
        rows: dict[Row, int] = {}
        branches: list[PrefixExtender] = []
        for branch in item.alternatives:
            for conjunction in split_alternatives(branch, names, (), self.source):
                local = bound_variables(conjunction).difference(names)
                computed = any(find_assignment(i, ()) for i in conjunction)
                if local or computed or len(conjunction) > 1:
                    solved = self.conjunction(conjunction, names, ())
                    rows.update((row, 1) for row in solve(solved, len(names)))
                else:
                    branches += self._item(conjunction[0], order)
        if rows or not branches:
            branches.append(RelationExtender(rows, [order.index(name) for name in names]))
        return OrExtender(branches)

    def _negation(self, item: Not, order: tuple[str, ...]) -> list[PrefixExtender]:
        """Translate a negation; a negated disjunction negates each of its alternatives."""
        negations: list[PrefixExtender] = []
        for conjunction in split_alternatives(item.items, (), order, self.source):
            used = variables_of(*conjunction)
            shared = tuple(name for name in order if name in used)
            local = [name for name in bound_variables(conjunction, shared) if name not in shared]
            if not local:
                inner = [e for i in conjunction for e in self._item(i, order)]
                negations.append(NotExtender(inner))
                continue
            whole = _order_of([*shared, *sorted(local)], conjunction, self.source, given=shared)
            extenders = self.conjunction(conjunction, whole, shared)
            levels = tuple(order.index(name) for name in shared)
            negations.append(Absent(levels, extenders, len(whole)))
        return negations


def _all(parts: Sequence[PrefixExtender]) -> PrefixExtender:
    return parts[0] if len(parts) == 1 else AndExtender(parts)


def _order_of(
    names: Sequence[str], items: Sequence[Item], source: DatalogSource, given: Sequence[str] = ()
) -> tuple[str, ...]:
    """Order the variables: those that atoms bind or are given, then each computed one.

    A computed variable is after the variables of its term.
    """
    bound = {
        name for i in items if isinstance(i, Atom | Or) for name in bound_variables((i,))
    }.union(given)
    order = [name for name in names if name in bound]
    waiting = [name for name in names if name not in bound]
    while waiting:
        for name in waiting:
            definitions = [
                assignment[1]
                for item in items
                if (assignment := find_assignment(item, set(order))) is not None
                and assignment[0].name == name
            ]
            if definitions:
                order.append(name)
                waiting.remove(name)
                break
        else:
            message = f"no order computes {', '.join(waiting)}; use the plan, or write two rules"
            raise source.error(message, items[0].offset)
    return tuple(order)


def _without_computed_terms(items: Items, numbers: Iterable[int]) -> Items:
    """Rewrite ``e(x, x + 1)`` as ``e(x, c#1), c#1 == x + 1``."""
    fresh = iter(numbers)
    result: list[Item] = []
    for item in items:
        match item:
            case Atom():
                terms: list[Term] = []
                for term in item.terms:
                    if isinstance(term, FunctionCall):
                        variable = Variable(f"c#{next(fresh)}", offset=term.offset)
                        result.append(Comparison(variable, "==", term, offset=term.offset))
                        term = variable
                    terms.append(term)
                item = replace(item, terms=tuple(terms))
            case Not():
                item = replace(item, items=_without_computed_terms(item.items, fresh))
            case Or():
                branches = (_without_computed_terms(a, fresh) for a in item.alternatives)
                item = replace(item, alternatives=tuple(branches))
        result.append(item)
    return tuple(result)


def _arities(body: Items, relations: Relations) -> dict[str, int]:
    """The arity of each relation: the length of its rows, or, without rows, of its atoms."""
    used = {node.relation: len(node.terms) for node in _atoms(body)}
    return {name: len(rows[0]) if rows else used.get(name, 0) for name, rows in relations.items()}


def _atoms(body: Items) -> Iterable[Atom]:
    return (node for node in walk(*body) if isinstance(node, Atom))
