"""The oracle of conjunctive queries: their definition in a few lines that can be checked by eye.

A relation is a ``Mapping[row, weight]``. ``evaluate`` extends partial bindings atom by atom
through a dictionary of the atom's rows. ``enumerate_all`` is even simpler: it tries every
tuple of rows. Weights are Python integers, so nothing overflows. The oracle imports only the
dataclasses of a query from the engine.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dbsp_wcoj.query import Atom, Comparison, Query, Variable

Row = tuple[Any, ...]
Relation = Mapping[Row, int]
Relations = Mapping[str, Relation] | Sequence[Relation]

COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def evaluate(query: Query, relations: Relations) -> dict[Row, int]:
    """Return the answer of ``query`` as row -> weight; relations by name, or one for each atom."""
    bindings: dict[tuple[Any, ...], int] = {(): 1}
    bound: list[str] = []
    waiting = list(query.comparisons)
    for i, atom in enumerate(query.body):
        bindings, bound = _extend(bindings, bound, atom, _relation(relations, i, atom))
        ready = [c for c in waiting if _variables(c) <= set(bound)]
        waiting = [c for c in waiting if c not in ready]
        if ready:
            bindings = {
                values: weight
                for values, weight in bindings.items()
                if all(_holds(c, dict(zip(bound, values, strict=True))) for c in ready)
            }
    assert not waiting, f"unsafe comparisons {waiting}"
    indices = [bound.index(name) for name in query.head]
    return consolidate(
        (tuple(values[i] for i in indices), weight) for values, weight in bindings.items()
    )


def enumerate_all(query: Query, relations: Relations) -> dict[Row, int]:
    """Return the same by trying every tuple of rows, one of each atom: for tiny inputs only."""
    inputs = [_relation(relations, i, atom).items() for i, atom in enumerate(query.body)]
    answer: dict[Row, int] = defaultdict(int)
    for choice in itertools.product(*inputs):
        binding: dict[str, Any] = {}
        weight = 1
        is_match = True
        for atom, (row, row_weight) in zip(query.body, choice, strict=True):
            weight *= row_weight
            for term, value in zip(atom.terms, row, strict=True):
                if isinstance(term, Variable):
                    is_match = is_match and binding.setdefault(term.name, value) == value
                else:
                    is_match = is_match and term.value == value
        if is_match and all(_holds(c, binding) for c in query.comparisons):
            answer[tuple(binding[name] for name in query.head)] += weight
    return {row: weight for row, weight in answer.items() if weight}


def consolidate(pairs: Iterable[tuple[Row, int]]) -> dict[Row, int]:
    """Sum the weights of equal rows; a row of weight zero does not exist."""
    total: dict[Row, int] = defaultdict(int)
    for row, weight in pairs:
        total[row] += weight
    return {row: weight for row, weight in total.items() if weight}


def add(*relations: Relation) -> dict[Row, int]:
    """Return the sum of some relations as Z-sets."""
    return consolidate(pair for relation in relations for pair in relation.items())


def scale(relation: Relation, factor: int) -> dict[Row, int]:
    """Return the relation with every weight multiplied by ``factor``."""
    return consolidate((row, factor * weight) for row, weight in relation.items())


def _relation(relations: Relations, index: int, atom: Atom) -> Relation:
    if isinstance(relations, Mapping):
        return relations.get(atom.relation, {})
    return relations[index]


def _extend(
    bindings: Mapping[tuple[Any, ...], int], bound: list[str], atom: Atom, relation: Relation
) -> tuple[dict[tuple[Any, ...], int], list[str]]:
    """Join the bindings of the variables ``bound`` with one atom by a hash join."""
    names = [term.name for term in atom.terms if isinstance(term, Variable)]
    shared = [name for name in dict.fromkeys(names) if name in bound]
    fresh = [name for name in dict.fromkeys(names) if name not in bound]
    table: dict[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]] = defaultdict(list)
    for row, weight in relation.items():
        values = _match(atom, row)
        if values is not None:
            key = tuple(values[name] for name in shared)
            table[key].append((tuple(values[name] for name in fresh), weight))
    indices = [bound.index(name) for name in shared]
    extended = consolidate(
        (values + new_values, weight * row_weight)
        for values, weight in bindings.items()
        for new_values, row_weight in table.get(tuple(values[i] for i in indices), ())
    )
    return extended, bound + fresh


def _match(atom: Atom, row: Row) -> dict[str, Any] | None:
    """Return the variables of an atom bound by a row; None if a constant or a repeat differs."""
    assert len(row) == len(atom.terms), f"{row} for {atom}"
    values: dict[str, Any] = {}
    for term, value in zip(atom.terms, row, strict=True):
        if isinstance(term, Variable):
            if values.setdefault(term.name, value) != value:
                return None
        elif term.value != value:
            return None
    return values


def _variables(comparison: Comparison) -> set[str]:
    sides = (comparison.left, comparison.right)
    return {side.name for side in sides if isinstance(side, Variable)}


def _holds(comparison: Comparison, binding: Mapping[str, Any]) -> bool:
    left, right = (
        binding[side.name] if isinstance(side, Variable) else side.value
        for side in (comparison.left, comparison.right)
    )
    infinite = {-(2**63), 1 - 2**63, 2**63 - 1}
    if comparison.shift and left not in infinite and right not in infinite:
        right += comparison.shift
    return COMPARE[comparison.op](left, right)
