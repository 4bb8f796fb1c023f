"""The variables that a body binds, and unique names for local variables.

An atom binds its variables. An or binds the variables that every alternative binds. ``x = term``
binds ``x`` if the variables of the term are bound, in any order of the text. A not, a condition and
any other comparison bind nothing. A variable of an alternative or of a negation that the enclosing
conjunction does not bind is local to it: it means "some value". The same name elsewhere is another
variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import cast

from circuits.datalog.program import (
    And,
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
    Variable,
    variables_of,
)

__all__ = ["bound_variables", "find_assignment", "flatten", "rename_local_variables"]


def flatten(items: Items) -> Items:
    """Replace every ``and``, and every ``or`` of one alternative, by its items."""
    return tuple(part for item in items for part in _flatten_item(item))


def _flatten_item(item: Item) -> Items:
    match item:
        case And():
            return flatten(item.items)
        case Or(alternatives=(only,)):
            return flatten(only)
        case Not():
            return (replace(item, items=flatten(item.items)),)
        case Or():
            return (replace(item, alternatives=tuple(map(flatten, item.alternatives))),)
        case _:
            return (item,)


def find_assignment(item: Item, known: Collection[str]) -> tuple[Variable, Term] | None:
    """Return the variable that ``x = term`` binds, and the term, if all others are ``known``.

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(y) :- q(x), y = x + 1.").rules
    >>> find_assignment(rule.body[1], {"x"})[0].name, find_assignment(rule.body[1], {"x", "y"})
    ('y', None)
    """
    if isinstance(item, Equation):
        for variable, term in ((item.left, item.right), (item.right, item.left)):
            if isinstance(variable, Variable) and variable.name not in known:
                used = variables_of(term)
                if variable.name not in used and all(name in known for name in used):
                    return variable, term
    return None


def bound_variables(items: Items, known: Collection[str] = ()) -> frozenset[str]:
    """Return the variables that a conjunction binds, given those ``known`` from outside.

    Complexity:
        O(items squared), for chains of assignments that are written backwards.
    """
    found: set[str] = set()
    for item in items:
        if isinstance(item, Atom):
            found.update(term.name for term in item.terms if isinstance(term, Variable))
    size = -1
    while size < len(found):
        size = len(found)
        for item in items:
            here = found.union(known)
            if isinstance(item, And):
                found |= bound_variables(item.items, here)
            elif isinstance(item, Or):
                branches = [bound_variables(items, here) for items in item.alternatives]
                found |= frozenset.intersection(*branches)
            elif (assigned := find_assignment(item, here)) is not None:
                found.add(assigned[0].name)
    return frozenset(found)


def rename_local_variables(items: Items, known: Collection[str] = ()) -> Items:
    """Flatten the items and give every local variable a unique name (``z#1``).

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(x) :- d(x), not (e(x, z), f(z)), not (g(x, z), h(z)).").rules
    >>> [list(variables_of(item)) for item in rename_local_variables(rule.body)[1:]]
    [['x', 'z#1'], ['x', 'z#2']]
    """
    return _rename_locals(flatten(items), frozenset(known), count(1))


def _rename_locals(items: Items, known: frozenset[str], numbers: Iterator[int]) -> Items:
    known |= bound_variables(items, known)

    def rename_locals(inner: Items) -> Items:
        local = [name for name in variables_of(*inner) if name not in known]
        names = {name: f"{name.partition('#')[0]}#{next(numbers)}" for name in local}
        return _rename_locals(tuple(_rename_item(item, names) for item in inner), known, numbers)

    result: list[Item] = []
    for item in items:
        if isinstance(item, Not):
            item = replace(item, items=rename_locals(item.items))
        elif isinstance(item, Or):
            item = replace(item, alternatives=tuple(map(rename_locals, item.alternatives)))
        result.append(item)
    return tuple(result)


def _rename_item(item: Item, names: Mapping[str, str]) -> Item:
    """Return the item with variables renamed."""
    match item:
        case Atom():
            return replace(item, terms=tuple(_rename_term(term, names) for term in item.terms))
        case Comparison() | Equation():
            left, right = _rename_term(item.left, names), _rename_term(item.right, names)
            return replace(item, left=left, right=right)
        case Condition():
            return replace(item, term=cast(Apply, _rename_term(item.term, names)))
        case Not() | And():
            return replace(item, items=tuple(_rename_item(part, names) for part in item.items))
        case Or():
            renamed = (tuple(_rename_item(part, names) for part in a) for a in item.alternatives)
            return replace(item, alternatives=tuple(renamed))


def _rename_term(term: Term, names: Mapping[str, str]) -> Term:
    match term:
        case Variable():
            return replace(term, name=names.get(term.name, term.name))
        case Apply():
            return replace(term, arguments=tuple(_rename_term(a, names) for a in term.arguments))
        case _:
            return term
