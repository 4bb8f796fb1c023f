"""The six delta formulas of an n-way join, as data.

A join is multilinear in its atoms, so the delta of ``R_1 ⋈ … ⋈ R_n`` is a sum of products. With
the old relation ``O_i``, its delta ``d_i`` and the new relation ``N_i = O_i + d_i``, every formula
here equals ``N_1 ⋈ … ⋈ N_n - O_1 ⋈ … ⋈ O_n``. Which one to use is only a matter of cost.

A term says which view (old, delta or new) of which atom it multiplies; it does not join. The
executor runs each term as one generic join. A formula must never be applied level by level inside
the join: that multiplies differences per variable, which is not the difference of the products.

"Merge ``d_i`` right after term ``i``" of the flipped formulas is expressed by the views: before
the merge a factor is old, after it the factor is new. So one version of each trace is enough when
the terms run in the order given here.

References:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023 (deltas of bilinear
    operators).
    Ammar, McSherry, Salihoglu, Joglekar. Distributed Evaluation of Subgraph Queries. PVLDB 11(6),
    2018 (``collapsed``, there "delta query").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum, auto
from itertools import combinations
from typing import Final

from dbsp_wcoj.errors import FormulaError

__all__ = ["PARTIAL", "Factor", "Formula", "Term", "View", "joins", "terms"]

MOST_EXPANDED_ATOMS: Final = 16


class Formula(StrEnum):
    """The name of a delta formula.

    ===================== ================================================= ========= ============
    name                  delta of R_1 ⋈ … ⋈ R_n                            products  binary joins
    ===================== ================================================= ========= ============
    expanded              Σ over ∅≠S⊆[n] of Π_{i∈S} d_i · Π_{i∉S} O_i       2ⁿ-1      (n-1)(2ⁿ-1)
    collapsed             Σ_i O_1 … O_{i-1} d_i N_{i+1} … N_n               n         n(n-1)
    flipped               Σ_i N_1 … N_{i-1} d_i O_{i+1} … O_n               n         n(n-1)
    recursive             D_i = D_{i-1} d_i + D_{i-1} O_i + d_i O_1…O_{i-1} 3(n-1)    (n-1)(n+4)/2
    recursive_collapsed   D_i = D_{i-1} N_i + d_i O_1 … O_{i-1}             2(n-1)    (n-1)(n+2)/2
    recursive_flipped     D_i = D_{i-1} O_i + d_i N_1 … N_{i-1}             2(n-1)    (n-1)(n+2)/2
    ===================== ================================================= ========= ============

    The recursions start at ``D_1 = d_1``, a copy that joins nothing. Joins for n = 2 … 8, when
    all atoms have changed:

    ===================================== === === === === === === ====
    n                                       2   3   4   5   6   7    8
    ===================================== === === === === === === ====
    expanded                                3  14  45 124 315 762 1785
    collapsed, flipped                      2   6  12  20  30  42   56
    recursive                               3   7  12  18  25  33   42
    recursive_collapsed, _flipped           2   5   9  14  20  27   35
    ===================================== === === === === === === ====

    ``collapsed`` is the default: each of its terms is one generic join with an own variable order
    that starts at the delta, hence worst-case optimal. The recursions do fewer joins from n = 5,
    but hold a binary intermediate ``D_i`` in a fixed left-deep order.

    >>> Formula.of("flipped")
    <Formula.flipped: 'flipped'>
    """

    expanded = auto()
    collapsed = auto()
    flipped = auto()
    recursive = auto()
    recursive_collapsed = auto()
    recursive_flipped = auto()

    @staticmethod
    def of(name: str) -> Formula:
        """The formula of that name.

        Args:
            name: A formula or its name.

        Raises:
            FormulaError: There is no such formula; the message lists them.

        >>> Formula.of("best")
        Traceback (most recent call last):
        ...
        dbsp_wcoj.errors.FormulaError: unknown formula 'best'; use one of expanded, collapsed, \
flipped, recursive, recursive_collapsed, recursive_flipped
        """
        try:
            return Formula(name)
        except ValueError:
            names = ", ".join(Formula)
            raise FormulaError(f"unknown formula {name!r}; use one of {names}") from None

    @property
    def is_recursive(self) -> bool:
        """Whether the formula goes through partial deltas ``D_1 … D_n``.

        >>> [str(f) for f in Formula if f.is_recursive]
        ['recursive', 'recursive_collapsed', 'recursive_flipped']
        """
        return self.startswith("recursive")


class View(StrEnum):
    """A relation before the step, the change of the step, and the relation after it."""

    old = auto()
    delta = auto()
    new = auto()


@dataclass(frozen=True, slots=True)
class Factor:
    """One view of one atom (from 0); or ``PARTIAL``, the previous partial delta.

    >>> str(Factor(0, View.new)), str(PARTIAL)
    ('N1', 'D')
    """

    atom: int
    view: View

    def __str__(self) -> str:
        if self.atom < 0:
            return "D"
        return {View.old: "O", View.delta: "d", View.new: "N"}[self.view] + str(self.atom + 1)


PARTIAL: Final = Factor(-1, View.delta)


@dataclass(frozen=True, slots=True)
class Term:
    """One product, to be added to the partial delta ``D_target``.

    ``target`` counts from 1. The one-shot formulas add all their terms to ``D_n``. In the
    recursions ``PARTIAL`` in a term for ``D_i`` means ``D_{i-1}``, which is complete by then.
    ``PARTIAL`` comes first, then the atoms in ascending order. ``D_n`` is the delta of the join.

    >>> term = Term(2, (PARTIAL, Factor(1, View.old)))
    >>> print(term, term.joins)
    D2 += D1 O2 1
    """

    target: int
    factors: tuple[Factor, ...]

    @staticmethod
    def parse(text: str) -> Term:
        """The term that is written so: the inverse of ``str``.

        >>> Term.parse("D2 += D1 O2") == Term(2, (PARTIAL, Factor(1, View.old)))
        True
        """
        target, names = text.removeprefix("D").split(" += ")
        views = {"O": View.old, "d": View.delta, "N": View.new}
        return Term(
            int(target),
            tuple(
                PARTIAL if name.startswith("D") else Factor(int(name[1:]) - 1, views[name[0]])
                for name in names.split()
            ),
        )

    def when(self, changed: Collection[int]) -> Term:
        """The product as it is while only these atoms change: a new view of others is the old one.

        >>> print(Term.parse("D3 += d1 N2 N3").when({0, 2}))
        D3 += d1 O2 N3
        """
        return Term(
            self.target,
            tuple(
                Factor(f.atom, View.old) if f.view is View.new and f.atom not in changed else f
                for f in self.factors
            ),
        )

    @property
    def joins(self) -> int:
        """Binary joins of the product: its factors less one."""
        return len(self.factors) - 1

    def __str__(self) -> str:
        names = (f"D{self.target - 1}" if f == PARTIAL else str(f) for f in self.factors)
        return f"D{self.target} += {' '.join(names)}"


def terms(
    formula: Formula | str, n: int, *, changed: Collection[int] | None = None
) -> tuple[Term, ...]:
    """The terms of a formula over ``n`` atoms, in the order in which to run them.

    A term that holds the delta of an unchanged atom, or a partial delta that no term has added
    to, is zero and is left out. With no atom changed there are no terms.

    Args:
        formula: One of the six.
        n: How many atoms the join has, from 1.
        changed: Atoms (from 0) whose delta may be non-empty; by default all.

    Returns:
        The terms. Targets never descend.

    Raises:
        FormulaError: Unknown formula, ``n < 1``, a changed atom outside ``0 … n-1``, or more than
            16 changed atoms in ``expanded``.

    Complexity:
        O(terms * n).

    >>> [str(term) for term in terms(Formula.collapsed, 3)]
    ['D3 += d1 N2 N3', 'D3 += O1 d2 N3', 'D3 += O1 O2 d3']
    >>> [str(term) for term in terms("recursive_flipped", 3)]
    ['D1 += d1', 'D2 += D1 O2', 'D2 += N1 d2', 'D3 += D2 O3', 'D3 += N1 N2 d3']
    >>> [str(term) for term in terms("recursive", 3, changed={1})]
    ['D2 += O1 d2', 'D3 += D2 O3']
    """
    formula = Formula.of(formula)
    if n < 1:
        raise FormulaError(f"a join of {n} atoms has no delta; give at least 1 atom")
    atoms = sorted(range(n) if changed is None else set(changed))
    if atoms and not (atoms[0] >= 0 and atoms[-1] < n):
        raise FormulaError(f"changed atoms {atoms} are not all in 0 … {n - 1}; count atoms from 0")
    if formula is Formula.expanded:
        return tuple(_expanded(n, atoms))
    if formula.is_recursive:
        return tuple(_recursive(formula, n, atoms))
    before, after = (View.old, View.new) if formula is Formula.collapsed else (View.new, View.old)
    # Σ_i  before_1 … before_{i-1}  d_i  after_{i+1} … after_n
    return tuple(
        Term(n, (*_views(before, 0, i), Factor(i, View.delta), *_views(after, i + 1, n)))
        for i in atoms
    )


def joins(formula: Formula | str, n: int, *, changed: Collection[int] | None = None) -> int:
    """Binary joins of all terms of a formula: the cost model of ``Formula``'s table.

    Args:
        formula: One of the six.
        n: How many atoms the join has, from 1.
        changed: Atoms (from 0) whose delta may be non-empty; by default all.

    Raises:
        FormulaError: As ``terms``.

    >>> [joins(Formula.recursive, n) for n in range(2, 9)]
    [3, 7, 12, 18, 25, 33, 42]
    >>> joins("collapsed", 5, changed={0, 3})
    8
    """
    return sum(term.joins for term in terms(formula, n, changed=changed))


def _views(view: View, start: int, stop: int) -> tuple[Factor, ...]:
    return tuple(Factor(atom, view) for atom in range(start, stop))


def _expanded(n: int, changed: list[int]) -> Iterator[Term]:
    # Σ over ∅≠S⊆changed of  Π_{i∈S} d_i · Π_{i∉S} O_i
    if len(changed) > MOST_EXPANDED_ATOMS:
        raise FormulaError(
            f"expanded over {len(changed)} changed atoms has 2^{len(changed)}-1 terms; the bound "
            f"is {MOST_EXPANDED_ATOMS} atoms, use collapsed"
        )
    for size in range(1, len(changed) + 1):
        for chosen in combinations(changed, size):
            yield Term(
                n, tuple(Factor(i, View.delta if i in chosen else View.old) for i in range(n))
            )


def _recursive(formula: Formula, n: int, changed: list[int]) -> Iterator[Term]:
    # recursive            D_i = D_{i-1} d_i + D_{i-1} O_i + O_1 … O_{i-1} d_i
    # recursive_collapsed  D_i = D_{i-1} N_i               + O_1 … O_{i-1} d_i
    # recursive_flipped    D_i = D_{i-1} O_i               + N_1 … N_{i-1} d_i
    extended = {
        Formula.recursive: (View.delta, View.old),
        Formula.recursive_collapsed: (View.new,),
        Formula.recursive_flipped: (View.old,),
    }[formula]
    before = View.new if formula is Formula.recursive_flipped else View.old
    partial_is_zero = True
    for i in range(n):
        if not partial_is_zero:
            for view in extended:
                if view is not View.delta or i in changed:
                    yield Term(i + 1, (PARTIAL, Factor(i, view)))
        if i in changed:
            yield Term(i + 1, (*_views(before, 0, i), Factor(i, View.delta)))
            partial_is_zero = False
