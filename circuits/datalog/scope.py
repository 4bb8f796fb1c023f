"""The variables that a body binds, and unique names for local variables.

A *bound* variable has a value in each result of the body. An atom binds its variables. An ``or``
binds the variables that all its alternatives bind. ``x = term`` binds ``x`` if the variables of the
term are bound, in any order of the text. A ``not``, a condition and any other comparison bind no
variable.

A variable inside a ``not`` or an alternative of an ``or`` is *local* to it unless the enclosing
conjunction binds it. A local variable means "some value"; the same name elsewhere is another
variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import cast

from circuits.datalog.program import (
    And,
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


def find_assignment(item: Item, bound: Collection[str]) -> tuple[Variable, Term] | None:
    """Return the variable that ``x = term`` binds, and the term.

    None if the item is not such an equation, if ``x`` is bound already, or if the term has a
    variable that is not bound.

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(y) :- q(x), y = x + 1.").rules
    >>> find_assignment(rule.body[1], {"x"})[0].name, find_assignment(rule.body[1], {"x", "y"})
    ('y', None)
    """
    if isinstance(item, Equation):
        for variable, term in ((item.left, item.right), (item.right, item.left)):
            if isinstance(variable, Variable) and variable.name not in bound:
                used = variables_of(term)
                if variable.name not in used and all(name in bound for name in used):
                    return variable, term
    return None


def bound_variables(items: Items, bound: Collection[str] = ()) -> frozenset[str]:
    """Return the variables that a conjunction binds, given those ``bound`` outside of it.

    Complexity:
        O(items squared), for chains of assignments that are written backwards.
    """
    names: set[str] = set()
    for item in items:
        if isinstance(item, Atom):
            names.update(term.name for term in item.terms if isinstance(term, Variable))
    size = -1
    while size < len(names):
        size = len(names)
        for item in items:
            bound_here = names.union(bound)
            if isinstance(item, And):
                names |= bound_variables(item.items, bound_here)
            elif isinstance(item, Or):
                branches = [bound_variables(items, bound_here) for items in item.alternatives]
                names |= frozenset.intersection(*branches)
            elif (assignment := find_assignment(item, bound_here)) is not None:
                names.add(assignment[0].name)
    return frozenset(names)


def rename_local_variables(items: Items, bound: Collection[str] = ()) -> Items:
    """Flatten the items and give every local variable a unique name (``z#1``).

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(x) :- d(x), not (e(x, z), f(z)), not (g(x, z), h(z)).").rules
    >>> [list(variables_of(item)) for item in rename_local_variables(rule.body)[1:]]
    [['x', 'z#1'], ['x', 'z#2']]
    """
    return _rename_locals(flatten(items), frozenset(bound), count(1))


def _rename_locals(items: Items, bound: frozenset[str], numbers: Iterator[int]) -> Items:
    bound |= bound_variables(items, bound)

    def rename_locals(inner: Items) -> Items:
        local = [name for name in variables_of(*inner) if name not in bound]
        names = {name: f"{name.partition('#')[0]}#{next(numbers)}" for name in local}
        return _rename_locals(tuple(_rename_item(item, names) for item in inner), bound, numbers)

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
            return replace(item, term=cast(FunctionCall, _rename_term(item.term, names)))
        case Not() | And():
            return replace(item, items=tuple(_rename_item(part, names) for part in item.items))
        case Or():
            renamed = (tuple(_rename_item(part, names) for part in a) for a in item.alternatives)
            return replace(item, alternatives=tuple(renamed))


def _rename_term(term: Term, names: Mapping[str, str]) -> Term:
    match term:
        case Variable():
            return replace(term, name=names.get(term.name, term.name))
        case FunctionCall():
            return replace(term, arguments=tuple(_rename_term(a, names) for a in term.arguments))
        case _:
            return term
