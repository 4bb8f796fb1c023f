"""Symmetries of a query: renamings of its variables that do not change it.

For example, a → b → c → a maps the directed triangle to itself::

    n() :- e(a, b), e(b, c), e(c, a)        becomes        n() :- e(b, c), e(c, a), e(a, b)

It maps atom 1 to atom 2, atom 2 to atom 3 and atom 3 to atom 1. So the products ``d1 O2 O3``,
``O1 d2 O3`` and ``O1 O2 d3`` of the delta are equal: one of them, multiplied by 3, is their sum
(`dbsp_wcoj.formulas.SymmetricFormula`). A symmetry keeps each variable of the head, because rows of
the result would change otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dbsp_wcoj.planning.planner import FLIPPED, Body
from dbsp_wcoj.query import Comparison, Term, Variable

__all__ = ["find_symmetries"]

# Queries with more atoms, or more atoms of one relation, are not searched: k atoms of one relation
# have up to k! symmetries.
MAX_ATOMS: Final = 8
MAX_OCCURRENCES: Final = 4


def find_symmetries(
    relations: Sequence[str], body: Body, head: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Return the symmetries of a query as permutations of its atoms.

    Atom i becomes atom ``permutation[i]``. The permutations are a group; the first one is the
    identity, and it is the only one if the search would take too long.

    Args:
        relations: The relation of each atom.
        body: The normalized body.
        head: The variables of the head.

    Complexity:
        O(product of k! over the relations, each with k atoms): at most 576 permutations.

    >>> from dbsp_wcoj import Query
    >>> from dbsp_wcoj.planning.planner import normalize_body
    >>> def symmetries(text):
    ...     query = Query.parse(text)
    ...     relations = [atom.relation for atom in query.body]
    ...     return find_symmetries(relations, normalize_body(query), query.head)
    >>> symmetries("n() :- e(a, b), e(b, c), e(c, a)")
    ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    >>> symmetries("n() :- e(a, b), e(b, c), e(a, c)")
    ((0, 1, 2),)
    """
    identity = tuple(range(len(relations)))
    if len(relations) > MAX_ATOMS or max(Counter(relations).values(), default=0) > MAX_OCCURRENCES:
        return (identity,)
    comparisons = set(body.comparisons)

    def extend(images: tuple[int, ...], renaming: Mapping[str, str]) -> Iterator[tuple[int, ...]]:
        atom = len(images)
        if atom == len(relations):
            if all(_is_among(_rename(c, renaming), comparisons) for c in comparisons):
                yield images
            return
        for image in identity:
            if image in images or relations[image] != relations[atom]:
                continue
            extended = dict(renaming)
            is_consistent = True
            for name, new in zip(body.columns[atom], body.columns[image], strict=True):
                is_consistent &= extended.setdefault(name, new) == new
            if is_consistent and len(set(extended.values())) == len(extended):
                yield from extend((*images, image), extended)

    return tuple(extend((), {name: name for name in head}))


def _rename(comparison: Comparison, renaming: Mapping[str, str]) -> Comparison:
    def rename(term: Term) -> Term:
        return Variable(renaming[term.name]) if isinstance(term, Variable) else term

    return Comparison(
        rename(comparison.left), comparison.op, rename(comparison.right), comparison.shift
    )


def _is_among(comparison: Comparison, comparisons: set[Comparison]) -> bool:
    """Return whether a comparison, or the same one with its sides exchanged, is in a set."""
    if comparison in comparisons:
        return True
    flipped = FLIPPED[comparison.op]
    return Comparison(comparison.right, flipped, comparison.left, -comparison.shift) in comparisons
