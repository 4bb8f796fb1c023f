"""Disjunctions: each ``or`` of a body is joined, is a condition, or is distributed.

- If every alternative binds all variables that the ``or`` shares with the other items, the ``or``
  is the union of its alternatives, joined like an atom.
- An ``or`` of comparisons and functions only is a condition.
- Any other ``or`` is distributed over the other items: ``a, or(b ; c)`` becomes the two
  alternatives ``a, b`` and ``a, c``. Each can then use the variables that ``a`` binds.

If two alternatives derive the same row, its weight is above 1; this is correct, because duplicates
are removed from every head. Distribution is exponential in the number of such ors, so
``MAX_ALTERNATIVES`` limits it.
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
    """Return alternatives: conjunctions, at least one of which is true if ``items`` are true.

    Args:
        items: The items of a body, as `circuits.datalog.scope` returns them: no conjunction within
            a conjunction, and unique names of local variables.
        needed: Variables whose values the caller needs.
        outer: For items of a negation, the variables that are bound outside of it.
        source: For errors.

    Raises:
        DatalogError: More than ``MAX_ALTERNATIVES`` alternatives.

    >>> from circuits.datalog.parser import parse
    >>> [rule] = parse("p(x) :- d(x, y), or(e(x) ; f(x)), or(y < 3 ; g(y)).").rules
    >>> [len(items) for items in split_alternatives(rule.body, ["x"], (), DatalogSource(""))]
    [3, 3]
    """
    finished: list[Items] = []
    pending = [items]
    while pending:
        conjunction = pending.pop(0)
        index = _find_distributed_or(conjunction, needed, outer)
        if index is None:
            finished.append(conjunction)
            continue
        disjunction = conjunction[index]
        assert isinstance(disjunction, Or)
        before, after = conjunction[:index], conjunction[index + 1 :]
        pending += [(*before, *branch, *after) for branch in disjunction.alternatives]
        if len(finished) + len(pending) > MAX_ALTERNATIVES:
            raise source.error(
                f"the ors of this rule multiply to more than {MAX_ALTERNATIVES} alternatives; "
                f"give this one a separate rule",
                disjunction.offset,
            )
    return finished


def _find_distributed_or(
    items: Items, needed: Collection[str], outer: Collection[str]
) -> int | None:
    """Return the index of the first ``or`` that must be distributed; None without one."""
    for index, item in enumerate(items):
        if not isinstance(item, Or):
            continue
        if is_condition(item, variables_bound_by_atoms(items, outer)):
            continue
        other_items = (*items[:index], *items[index + 1 :])
        other_variables = set(variables_of(*other_items)).union(needed, outer)
        shared = other_variables.intersection(variables_of(item))
        if not all(shared <= bound_variables(branch) for branch in item.alternatives):
            return index
    return None


def variables_bound_by_atoms(items: Items, outer: Collection[str]) -> frozenset[str]:
    """Return the variables that a conjunction binds, ignoring ors without atoms.

    Such an ``or`` may bind ``x``, as ``or(x = 1 ; x = 2)``. But if another item binds ``x``, the
    ``or`` is a condition.
    """
    binding_items = tuple(item for item in items if not isinstance(item, Or) or _has_atoms(item))
    return bound_variables(binding_items, outer).union(outer)


def _has_atoms(item: Item) -> bool:
    return any(isinstance(node, Atom) for node in walk(item))


def is_condition(item: Item, bound: Collection[str]) -> bool:
    """Return whether an item only tests bound variables, by comparisons and functions."""
    if not isinstance(item, Comparison | Equation | Condition | Not | Or):
        return False
    if _has_atoms(item):
        return False
    return all(name in bound for name in variables_of(item))
