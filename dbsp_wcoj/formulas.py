"""The delta formulas of an n-way join, as data: six built-in ones, and formulas of the user.

A join is linear in each of its atoms, so the delta of ``R_1 ⋈ … ⋈ R_n`` is a sum of products. Let
``O_i`` be the old relation of atom i, ``d_i`` its delta and ``N_i = O_i + d_i`` the new relation.
Then every formula equals ``N_1 ⋈ … ⋈ N_n - O_1 ⋈ … ⋈ O_n``; for two atoms::

    collapsed     D2 += d1 N2      D2 += O1 d2
    flipped       D2 += d1 O2      D2 += N1 d2

The formulas differ only in their cost. Each line is a term: a product of factors that is added to
a partial delta, here ``D2``. A factor is one version (old, delta or new) of one atom. Terms are
only data; `dbsp_wcoj.delta_query` runs each of them as one generic join. A factor reads the same
version of its atom for all variables of the join; a choice per variable would give another result.

The flipped formulas need only one version of each trace in memory, if ``d_i`` is merged into
relation i right after term i: before the merge the trace is old, after it new. The order of
`delta_terms` allows this.

A `CustomFormula` is a list of terms that a user writes. It is accepted only if it is exact. To
check this, ``N_i`` is replaced by ``O_i + d_i``, and each partial delta by its terms. In the
resulting sum, each product with at least one delta must occur once, and the product of the old
relations not at all, as in the expansion of ``N_1 … N_n - O_1 … O_n``. So an accepted formula is
right for all relations, and a rejected one is wrong for some.

References:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023 (deltas of bilinear
    operators).
    Ammar, McSherry, Salihoglu, Joglekar. Distributed Evaluation of Subgraph Queries. PVLDB 11(6),
    2018 (``collapsed``, there "delta query").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from itertools import combinations
from typing import Final

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import FormulaError

__all__ = [
    "MAX_EXPANDED_ATOMS",
    "PARTIAL",
    "CustomFormula",
    "DeltaTerm",
    "Factor",
    "Formula",
    "SymmetricFormula",
    "Version",
    "count_joins",
    "delta_terms",
]

# An expansion over n atoms has 2^n products.
MAX_EXPANDED_ATOMS: Final = 16
# A symmetric formula has at most this many terms for each changed atom, or it is `collapsed`. The
# terms with several deltas are cheap, but each takes some time also for one row.
MAX_SYMMETRIC_TERMS_PER_ATOM: Final = 2
MAX_SYMMETRIC_ATOMS: Final = 4


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

    ``collapsed`` is the default: each of its terms is one generic join with its own variable order
    that starts at the delta, hence worst-case optimal. ``recursive`` does fewer joins from n = 5,
    the other two recursions from n = 3. But a recursion materializes the intermediate results
    ``D_i`` of binary joins in a fixed left-deep order.

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
        """Return the formula with that name.

        Args:
            name: A formula or its name.

        Raises:
            FormulaError: The name is unknown; the message lists the formulas.

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
        """Return whether the formula computes partial deltas ``D_1 … D_n``.

        >>> [str(f) for f in Formula if f.is_recursive]
        ['recursive', 'recursive_collapsed', 'recursive_flipped']
        """
        return self.startswith("recursive")


class Version(StrEnum):
    """Which rows of a relation a factor reads: those before the step, its delta, those after it."""

    old = auto()
    delta = auto()
    new = auto()


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a term: one version of one atom; or ``PARTIAL``, the previous partial delta.

    Attributes:
        atom: The index of the atom, from 0; -1 for ``PARTIAL``.
        version: The version that the factor reads.

    >>> str(Factor(0, Version.new)), str(PARTIAL)
    ('N1', 'D')
    """

    atom: int
    version: Version

    def __str__(self) -> str:
        if self.atom < 0:
            return "D"
        return {Version.old: "O", Version.delta: "d", Version.new: "N"}[self.version] + str(
            self.atom + 1
        )


PARTIAL: Final = Factor(-1, Version.delta)
_VERSION_LETTERS: Final = {"O": Version.old, "d": Version.delta, "N": Version.new}
_TERM_TEXT: Final = re.compile(
    r"D([1-9]\d{0,3})\s*\+=(?:\s*([1-9]\d{0,3}))?((?:\s+[DdNO][1-9]\d{0,3})+)"
)


@dataclass(frozen=True, slots=True)
class DeltaTerm:
    """One product of a delta formula, which is added to the partial delta ``D_target``.

    ``D_n`` is the delta of the join. The formulas without recursion add all their terms to ``D_n``.
    In a recursion, ``PARTIAL`` in a term of ``D_i`` means ``D_{i-1}``, all of whose terms run
    before.

    Attributes:
        target: The number of the partial delta, from 1.
        factors: ``PARTIAL`` first, if the term has it, then the atoms in ascending order.
        times: How often the product is added, at least once.

    >>> term = DeltaTerm(2, (PARTIAL, Factor(1, Version.old)))
    >>> print(term, term.joins)
    D2 += D1 O2 1
    >>> str(DeltaTerm(1, (Factor(0, Version.delta),), times=3))
    'D1 += 3 d1'
    """

    target: int
    factors: tuple[Factor, ...]
    times: int = 1

    @staticmethod
    def parse(text: str) -> DeltaTerm:
        """Read a term as ``str`` writes it.

        Raises:
            FormulaError: The text is not a term; the message shows an example.

        >>> DeltaTerm.parse("D2 += D1 O2") == DeltaTerm(2, (PARTIAL, Factor(1, Version.old)))
        True
        """
        check_type("text", text, str, "a term, such as 'D2 += d1 N2'")
        match = _TERM_TEXT.fullmatch(text.strip())
        if match is None:
            raise FormulaError(
                f"{text.strip()!r} is not a term; write a sum into a partial delta, such as "
                f"'D3 += O1 d2 N3' or 'D3 += D2 O3'"
            )
        target = int(match[1])
        factors = []
        for name in match[3].split():
            letter, number = name[0], int(name[1:])
            if letter != "D":
                factors.append(Factor(number - 1, _VERSION_LETTERS[letter]))
            elif number == target - 1:
                factors.append(PARTIAL)
            else:
                raise FormulaError(
                    f"{text.strip()!r} reads {name}; a term of D{target} can only read "
                    f"D{target - 1}"
                )
        return DeltaTerm(target, tuple(factors), int(match[2] or 1))

    def simplify_for(self, changed: Collection[int]) -> DeltaTerm:
        """The same product if only these atoms change: other atoms are read as old, not as new.

        >>> print(DeltaTerm.parse("D3 += d1 N2 N3").simplify_for({0, 2}))
        D3 += d1 O2 N3
        """
        return DeltaTerm(
            self.target,
            tuple(
                Factor(f.atom, Version.old)
                if f.version is Version.new and f.atom not in changed
                else f
                for f in self.factors
            ),
            self.times,
        )

    @property
    def joins(self) -> int:
        """The number of binary joins of the product: the number of its factors minus 1."""
        return len(self.factors) - 1

    def __str__(self) -> str:
        names = (f"D{self.target - 1}" if f == PARTIAL else str(f) for f in self.factors)
        times = f"{self.times} " if self.times > 1 else ""
        return f"D{self.target} += {times}{' '.join(names)}"


@dataclass(frozen=True)
class CustomFormula:
    """A delta formula that a user writes, as terms.

    Each term of ``D_i`` multiplies one version of each of the atoms 1 … i, or the partial delta
    ``D_{i-1}`` and one version of atom i. The order of terms and factors does not matter.

    Args:
        terms: The terms, or their texts as `DeltaTerm.parse` reads them. The number of atoms is the
            largest target.

    Raises:
        FormulaError: A term is malformed, or the terms do not add up to the delta of the join; the
            message names the first product that is missing or superfluous.
        ArgumentTypeError: A term is neither a `DeltaTerm` nor a text.

    Complexity:
        O(2^n) per term, with n atoms.

    >>> formula = CustomFormula(["D2 += d1 N2", "D2 += O1 d2"])
    >>> formula.atoms, str(formula)
    (2, 'D2 += d1 N2; D2 += O1 d2')
    >>> CustomFormula(["D2 += d1 N2", "D2 += N1 d2"])
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.FormulaError: the terms contain the product d1 d2 2 times, and the delta of a \
join of 2 atoms contains it once: remove it from a term
    """

    terms: tuple[DeltaTerm, ...]

    def __init__(self, terms: Iterable[DeltaTerm | str]) -> None:
        check_type("terms", terms, Iterable, "a list of terms")
        normalized = []
        for term in terms:
            check_type(
                "a term", term, (DeltaTerm, str), "a DeltaTerm, or a text such as 'D2 += d1 N2'"
            )
            normalized.append(_normalize(DeltaTerm.parse(term) if isinstance(term, str) else term))
        if not normalized:
            raise FormulaError("a formula has at least one term, such as 'D1 += d1'; got none")
        normalized.sort(key=lambda term: term.target)
        object.__setattr__(self, "terms", tuple(normalized))
        _check_expansion(self.terms, self.atoms)

    @staticmethod
    def parse(text: str) -> CustomFormula:
        """Read terms that are separated by newlines or ``;``; ``#`` starts a comment.

        Raises:
            FormulaError: As the class.

        >>> CustomFormula.parse("# collapsed\\nD2 += d1 N2; D2 += O1 d2").atoms
        2
        """
        check_type("text", text, str, "terms, such as 'D2 += d1 N2; D2 += O1 d2'")
        lines = (line.partition("#")[0] for line in text.splitlines())
        parts = (part.strip() for line in lines for part in line.split(";"))
        return CustomFormula([part for part in parts if part])

    @property
    def atoms(self) -> int:
        """The number of atoms of the joins that the formula is for."""
        return self.terms[-1].target

    def __str__(self) -> str:
        return "; ".join(map(str, self.terms))


@dataclass(frozen=True)
class SymmetricFormula:
    """The formula ``expanded``, with one term for all products that are equal by a symmetry.

    ``auto`` chooses it for a query with symmetries, such as the directed triangle
    ``e(a, b), e(b, c), e(c, a)``: its delta is ``3 d1 O2 O3 + 3 d1 d2 O3 + d1 d2 d3``. Two products
    are equal if a symmetry maps the deltas of one to those of the other. If this takes too many
    terms, the terms are those of ``collapsed``.

    Attributes:
        symmetries: Permutations of the atoms, a group
            (`dbsp_wcoj.planning.symmetry.find_symmetries`).

    >>> triangle = SymmetricFormula(((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    >>> [str(term) for term in delta_terms(triangle, 3)]
    ['D3 += 3 d1 O2 O3', 'D3 += 3 d1 d2 O3', 'D3 += d1 d2 d3']
    """

    symmetries: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return "symmetric"


def delta_terms(
    formula: Formula | CustomFormula | SymmetricFormula | str,
    n: int,
    *,
    changed: Collection[int] | None = None,
) -> tuple[DeltaTerm, ...]:
    """The terms of a formula over ``n`` atoms, in the order in which they run.

    Terms that are always zero are left out: those that read the delta of an unchanged atom, or a
    partial delta without terms. So there are no terms if no atom changes.

    Args:
        formula: One of the six, or a formula of the user.
        n: The number of atoms of the join, from 1.
        changed: Atoms (from 0) whose delta may be non-empty; by default all.

    Returns:
        The terms, in ascending order of their targets.

    Raises:
        FormulaError: The formula is unknown or has another number of atoms, ``n < 1``, a changed
            atom is outside ``0 … n-1``, or ``expanded`` has more than 16 changed atoms.

    Complexity:
        O(terms * n).

    >>> [str(term) for term in delta_terms(Formula.collapsed, 3)]
    ['D3 += d1 N2 N3', 'D3 += O1 d2 N3', 'D3 += O1 O2 d3']
    >>> [str(term) for term in delta_terms("recursive_flipped", 3)]
    ['D1 += d1', 'D2 += D1 O2', 'D2 += N1 d2', 'D3 += D2 O3', 'D3 += N1 N2 d3']
    >>> [str(term) for term in delta_terms("recursive", 3, changed={1})]
    ['D2 += O1 d2', 'D3 += D2 O3']
    """
    if not isinstance(formula, (CustomFormula, SymmetricFormula)):
        formula = Formula.of(formula)
    if n < 1:
        raise FormulaError(f"a join of {n} atoms has no delta; give at least 1 atom")
    atoms = sorted(range(n) if changed is None else set(changed))
    if atoms and not (atoms[0] >= 0 and atoms[-1] < n):
        raise FormulaError(f"changed atoms {atoms} are not all in 0 … {n - 1}; count atoms from 0")
    if isinstance(formula, CustomFormula):
        if formula.atoms != n:
            raise FormulaError(
                f"the formula {_shorten(str(formula))!r} is for joins of {formula.atoms} atoms, "
                f"and the join has {n}; its last terms must add to D{n}"
            )
        return _nonzero(formula.terms, atoms)
    if isinstance(formula, SymmetricFormula):
        terms = _symmetric(formula.symmetries, n, atoms)
        return terms or delta_terms(Formula.collapsed, n, changed=atoms)
    if formula is Formula.expanded:
        return tuple(_expanded(n, atoms))
    if formula.is_recursive:
        return tuple(_recursive(formula, n, atoms))
    before, after = (
        (Version.old, Version.new) if formula is Formula.collapsed else (Version.new, Version.old)
    )
    # Σ_i  before_1 … before_{i-1}  d_i  after_{i+1} … after_n
    return tuple(
        DeltaTerm(
            n, (*_factors(before, 0, i), Factor(i, Version.delta), *_factors(after, i + 1, n))
        )
        for i in atoms
    )


def count_joins(
    formula: Formula | CustomFormula | SymmetricFormula | str,
    n: int,
    *,
    changed: Collection[int] | None = None,
) -> int:
    """Count the binary joins of all terms of a formula, as in the table of ``Formula``.

    Args:
        formula: One of the six, or a formula of the user.
        n: The number of atoms of the join, from 1.
        changed: Atoms (from 0) whose delta may be non-empty; by default all.

    Raises:
        FormulaError: As ``delta_terms``.

    >>> [count_joins(Formula.recursive, n) for n in range(2, 9)]
    [3, 7, 12, 18, 25, 33, 42]
    >>> count_joins("collapsed", 5, changed={0, 3})
    8
    """
    return sum(term.joins for term in delta_terms(formula, n, changed=changed))


def _factors(version: Version, start: int, stop: int) -> tuple[Factor, ...]:
    return tuple(Factor(atom, version) for atom in range(start, stop))


def _expanded(n: int, changed: list[int]) -> Iterator[DeltaTerm]:
    # Σ over ∅≠S⊆changed of  Π_{i∈S} d_i · Π_{i∉S} O_i
    if len(changed) > MAX_EXPANDED_ATOMS:
        raise FormulaError(
            f"expanded over {len(changed)} changed atoms has 2^{len(changed)}-1 terms; the limit "
            f"is {MAX_EXPANDED_ATOMS} atoms, use collapsed"
        )
    for size in range(1, len(changed) + 1):
        for chosen in combinations(changed, size):
            yield DeltaTerm(
                n, tuple(Factor(i, Version.delta if i in chosen else Version.old) for i in range(n))
            )


def _symmetric(
    symmetries: Sequence[tuple[int, ...]], n: int, changed: list[int]
) -> tuple[DeltaTerm, ...]:
    """The terms of a `SymmetricFormula`; none if there would be too many."""
    if len(changed) > MAX_SYMMETRIC_ATOMS:
        return ()
    # A symmetry maps changed atoms to changed atoms, because these have the same relation.
    assert all({images[i] for i in changed} == set(changed) for images in symmetries)
    terms: list[DeltaTerm] = []
    seen: set[frozenset[int]] = set()
    for size in range(1, len(changed) + 1):
        for chosen in combinations(changed, size):
            if frozenset(chosen) in seen:
                continue
            orbit = {frozenset(images[i] for i in chosen) for images in symmetries}
            seen |= orbit
            factors = tuple(
                Factor(i, Version.delta if i in chosen else Version.old) for i in range(n)
            )
            terms.append(DeltaTerm(n, factors, len(orbit)))
    return tuple(terms) if len(terms) <= MAX_SYMMETRIC_TERMS_PER_ATOM * len(changed) else ()


def _recursive(formula: Formula, n: int, changed: list[int]) -> Iterator[DeltaTerm]:
    # recursive            D_i = D_{i-1} d_i + D_{i-1} O_i + O_1 … O_{i-1} d_i
    # recursive_collapsed  D_i = D_{i-1} N_i               + O_1 … O_{i-1} d_i
    # recursive_flipped    D_i = D_{i-1} O_i               + N_1 … N_{i-1} d_i
    # The versions of atom i with which D_{i-1} is multiplied.
    versions = {
        Formula.recursive: (Version.delta, Version.old),
        Formula.recursive_collapsed: (Version.new,),
        Formula.recursive_flipped: (Version.old,),
    }[formula]
    before = Version.new if formula is Formula.recursive_flipped else Version.old
    partial_is_zero = True
    for i in range(n):
        if not partial_is_zero:
            for version in versions:
                if version is not Version.delta or i in changed:
                    yield DeltaTerm(i + 1, (PARTIAL, Factor(i, version)))
        if i in changed:
            yield DeltaTerm(i + 1, (*_factors(before, 0, i), Factor(i, Version.delta)))
            partial_is_zero = False


def _nonzero(terms: Sequence[DeltaTerm], changed: Collection[int]) -> tuple[DeltaTerm, ...]:
    """The terms that can be non-zero if only these atoms change, and whose target is needed."""
    if not changed:
        return ()
    nonzero_targets: set[int] = set()
    nonzero: list[DeltaTerm] = []
    for term in terms:
        is_zero = any(
            term.target - 1 not in nonzero_targets
            if factor == PARTIAL
            else factor.version is Version.delta and factor.atom not in changed
            for factor in term.factors
        )
        if not is_zero:
            nonzero_targets.add(term.target)
            nonzero.append(term)
    needed_targets = {terms[-1].target}
    needed: list[DeltaTerm] = []
    for term in reversed(nonzero):
        if term.target in needed_targets:
            needed.append(term)
            if PARTIAL in term.factors:
                needed_targets.add(term.target - 1)
    return tuple(reversed(needed))


def _normalize(term: DeltaTerm) -> DeltaTerm:
    """The term with its factors in ascending order, each atom once.

    Raises:
        FormulaError: The term does not multiply one version of each of its atoms.
    """
    target = term.target
    check_type("the target of a term", target, int, "the number of a partial delta")
    check_type("times of a term", term.times, int, "how often the product is added")
    for factor in term.factors:
        check_type("a factor of a term", factor, Factor, "a Factor, or PARTIAL")
    # The number of each factor: i for atom i, 0 for `PARTIAL`.
    numbers = Counter(0 if factor == PARTIAL else factor.atom + 1 for factor in term.factors)
    expected = Counter([0, target] if PARTIAL in term.factors else range(1, target + 1))
    if target < 1 or (PARTIAL in term.factors and target < 2) or numbers != expected:
        raise FormulaError(
            f"the term {_shorten(str(term))!r} is not a product for D{target}: multiply one "
            f"version of each of the atoms 1 … {target}, or D{target - 1} and one version of atom "
            f"{target}"
        )
    if term.times < 1:
        raise FormulaError(
            f"the term {_shorten(str(term))!r} has times={term.times}; give 1 or more, or leave "
            "the term out"
        )
    factors = tuple(sorted(term.factors, key=lambda factor: factor.atom))
    return DeltaTerm(target, factors, term.times)


def _check_expansion(terms: Sequence[DeltaTerm], n: int) -> None:
    """Compare the expansion of the terms with that of ``N_1 … N_n - O_1 … O_n``.

    A product over the atoms 1 … i is the set of atoms whose delta it reads, as the bits of a
    number; it reads the old version of the others. The expansion of a partial delta counts how
    often it contains each product. No count is negative, so products never cancel.

    Raises:
        FormulaError: A product occurs too often or too rarely; the message names the first one.
    """
    if n > MAX_EXPANDED_ATOMS:
        raise FormulaError(
            f"a formula over {n} atoms has 2^{n} products to check; the limit is "
            f"{MAX_EXPANDED_ATOMS} atoms, use a built-in formula"
        )
    # D_0 is never read.
    expansions: list[Counter[int]] = [Counter() for _ in range(n + 1)]
    for term in terms:
        products: dict[int, int] = {0: 1}
        for factor in term.factors:
            if factor == PARTIAL:
                products = dict(expansions[term.target - 1])
                continue
            bit = 1 << factor.atom
            # d_i adds atom i to each product; O_i changes nothing; N_i = O_i + d_i does both.
            if factor.version is Version.delta:
                products = {product | bit: times for product, times in products.items()}
            elif factor.version is Version.new:
                products |= {product | bit: times for product, times in products.items()}
        expansion = expansions[term.target]
        for product, times in products.items():
            expansion[product] += term.times * times
    for product in range(1 << n):
        expected, count = int(product > 0), expansions[n][product]
        if count == expected:
            continue
        name = " ".join(
            str(Factor(atom, Version.delta if product >> atom & 1 else Version.old))
            for atom in range(n)
        )
        occurs = "once" if count == 1 else f"{count} times"
        if not expected:
            raise FormulaError(
                f"the terms contain the product {name} {occurs}, and the delta of a join of {n} "
                f"atoms does not contain it: remove it from a term"
            )
        if not count:
            raise FormulaError(
                f"the terms contain the product {name} 0 times, and the delta of a join of {n} "
                f"atoms contains it once: add it to a term"
            )
        raise FormulaError(
            f"the terms contain the product {name} {occurs}, and the delta of a join of {n} atoms "
            f"contains it once: remove it from a term"
        )


def _shorten(text: str, size: int = 60) -> str:
    return text if len(text) <= size else f"{text[:size]}..."
