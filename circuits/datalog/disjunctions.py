"""Disjunctive normal form of bodies, but only for an ``or`` that is not a relation by itself.

An ``or`` is a relation if every alternative binds all variables that it shares with the rest: the
union of its alternatives, joined as one atom. An ``or`` of comparisons only is a condition. Any
other ``or`` is distributed over the rest of its conjunction, ``a, or(b ; c)`` = ``a, b`` or ``a,
c``; an alternative can then use the variables that the rest binds. Two alternatives may derive the
same row, so weights grow; they stay positive, and every head is distinct.

Distribution is exponential in the number of such ors, so ``MAX_ALTERNATIVES`` limits it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from circuits.datalog.program import (
    Atom,
    Comparison,
    Condition,
    Equation,
    Item,
    Items,
    Not,
    Or,
    variables_of,
    walk,
)
from circuits.datalog.scope import bound_variables
from circuits.datalog.source import DatalogSource

__all__ = ["is_condition", "split_alternatives", "variables_bound_by_atoms"]

MAX_ALTERNATIVES: Final = 256


def split_alternatives(
    items: Items, needed: Collection[str], outer: Collection[str], source: DatalogSource
) -> list[Items]:
    """Return conjunctions whose disjunction is the conjunction ``items``.

    Args:
        items: Flat items whose local variables have unique names, see `circuits.datalog.scope`.
        needed: Variables whose values the caller needs.
        outer: Variables that are bound outside, around a negation.
        source: For errors.

    Raises:
        DatalogError: More than ``MAX_ALTERNATIVES`` alternatives.

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(x) :- d(x, y), or(e(x) ; f(x)), or(y < 3 ; g(y)).").rules
    >>> [len(items) for items in split_alternatives(rule.body, ["x"], (), DatalogSource(""))]
    [3, 3]
    """
    done: list[Items] = []
    pending = [items]
    while pending:
        conjunction = pending.pop(0)
        place = _find_distributed_or(conjunction, needed, outer)
        if place is None:
            done.append(conjunction)
            continue
        disjunction = conjunction[place]
        assert isinstance(disjunction, Or)
        before, after = conjunction[:place], conjunction[place + 1 :]
        pending += [(*before, *branch, *after) for branch in disjunction.alternatives]
        if len(done) + len(pending) > MAX_ALTERNATIVES:
            raise source.error(
                f"the ors of this rule multiply to more than {MAX_ALTERNATIVES} alternatives; "
                f"give this one a separate rule",
                disjunction.offset,
            )
    return done


def _find_distributed_or(
    items: Items, needed: Collection[str], outer: Collection[str]
) -> int | None:
    for place, item in enumerate(items):
        if not isinstance(item, Or):
            continue
        rest = (*items[:place], *items[place + 1 :])
        if is_condition(item, variables_bound_by_atoms(items, outer)):
            continue
        elsewhere = set(variables_of(*rest)).union(needed, outer)
        shared = elsewhere.intersection(variables_of(item))
        if not all(shared <= bound_variables(branch) for branch in item.alternatives):
            return place
    return None


def variables_bound_by_atoms(items: Items, outer: Collection[str]) -> frozenset[str]:
    """Return the variables that a conjunction binds without ors that have no atoms.

    Such an or may be a condition, ``or(x = 1 ; x = 2)``, but only if another item binds ``x``.
    """
    firm = (i for i in items if not isinstance(i, Or) or _has_atoms(i))
    return bound_variables(tuple(firm), outer).union(outer)


def _has_atoms(item: Item) -> bool:
    return any(isinstance(node, Atom) for node in walk(item))


def is_condition(item: Item, known: Collection[str]) -> bool:
    """Return whether an item only tests ``known`` variables, by comparisons and functions."""
    if not isinstance(item, Comparison | Equation | Condition | Not | Or):
        return False
    if _has_atoms(item):
        return False
    return all(name in known for name in variables_of(item))
