"""Shares: the number of parts that each variable of a join is hashed into.

A join is distributed over a grid of cells with one dimension for each variable; an atom is one
occurrence of a relation in the join. With shares a = 2, b = 2, c = 2, the triangle join r(a, b),
s(b, c), t(a, c) has 8 cells, and each row is sent to 2 of them::


    variable v is hashed into s_v parts; at most p cells:      Π_v s_v <= p
    replication of A, the number of copies of each row of A:   Π s_v over the variables not in A
    rows of A in a cell:                                       |A| / Π s_v over the variables of A
    load of a cell, which is minimized:                        Σ_A |A| / Π_{v in A} s_v

The rows of one join result agree on the variables, so all of them are in one cell, and the union of
the cells' results is the result of the join. If all p cells are used, the load is the number of
sent rows divided by p, so the least load is the least communication (Afrati, Ullman, "Optimizing
Joins in a Map-Reduce Environment", EDBT 2010, sections 3 and 4). In the paper, Lagrange's method
gives shares that are real numbers; rounding them can waste most of the cells. Here the shares are
integers, found by an exhaustive search. A variable is dominated if another variable occurs in all
of its atoms; it has share 1 (section 4.3), so few variables remain. If p is too large for the
search, only powers of two are candidates.

Variables that occur in exactly the same atoms are hashed together (`Shares.together`). So the load
of a join by country and user is as balanced as the pairs are, however skewed the countries are.

If several atoms read a relation, a row is sent once to each cell, even if the cell needs it for
several atoms (`Shares.copies`). The cell stores it for each atom, so the load counts each atom.
`weigh_atoms` computes the weight of a relation's rows: stored rows cost memory once, changed rows
cost time in every step, and both are reasons to send a relation to few cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.cached_property import cached_property
from streaming.errors import StreamingError

__all__ = [
    "JoinAtom",
    "Shares",
    "choose_shares",
    "enumerate_shares",
    "find_combinations",
    "weigh_atoms",
]

#: The maximum number of candidates of a search.
MAX_CANDIDATES: Final = 500_000

#: A row for each candidate, a column for each variable.
Candidates = npt.NDArray[np.int64]
#: For a row with heavy values, by variable and the columns bound to it: for each atom of the join,
#: the number of parts into which its rows with this value are split.
Spread = Mapping[tuple[str, tuple[int, ...]], Sequence[int]]

_NO_SPREAD: Final[Spread] = MappingProxyType({})


@dataclass(frozen=True)
class JoinAtom:
    """One atom of a join: a relation, the columns that its variables are bound to, and its size.

    Attributes:
        relation: The relation that the atom reads.
        columns: For each variable of the atom, the position of a column that is bound to it.
        rows: The weight of the atom: the rows of the state, the changed rows of the steps, or a
            combination of both, in any unit.
    """

    relation: str
    columns: Mapping[str, int]
    rows: float = 1.0


@dataclass(frozen=True)
class Shares:
    """The shares of the variables of a join.

    Attributes:
        atoms: The atoms.
        by_variable: The share of each variable, in the order in which cells are numbered.
    """

    atoms: tuple[JoinAtom, ...]
    by_variable: Mapping[str, int]

    @property
    def cells(self) -> int:
        """The number of cells of the grid."""
        return prod(self.by_variable.values())

    @property
    def load(self) -> float:
        """The average number of rows in a cell, summed over all atoms."""
        return sum(atom.rows * self.replication(atom) for atom in self.atoms) / self.cells

    @cached_property
    def together(self) -> Mapping[str, tuple[str, ...]]:
        """For each variable, the variables that are hashed together: those in the same atoms.

        >>> atoms = [JoinAtom("r", {"a": 0, "b": 1}), JoinAtom("s", {"a": 0, "b": 1, "c": 2})]
        >>> choose_shares(atoms, 4).together["a"]
        ('a', 'b')
        """
        atoms_of = {
            name: tuple(k for k, atom in enumerate(self.atoms) if name in atom.columns)
            for name in self.by_variable
        }
        return {
            name: tuple(other for other in self.by_variable if atoms_of[other] == atoms_of[name])
            for name in self.by_variable
        }

    def columns(self, atom: JoinAtom, name: str) -> tuple[int, ...]:
        """Return the columns of an atom that determine its coordinate along a variable."""
        return tuple(atom.columns[other] for other in self.together[name])

    def replication(self, atom: JoinAtom) -> int:
        """Return the number of cells that need a row for an atom."""
        return prod(share for name, share in self.by_variable.items() if name not in atom.columns)

    def copies(self, relation: str, spread: Spread = _NO_SPREAD) -> float:
        """Return the expected number of cells that receive a row whose values are hashed randomly.

        The number follows by inclusion and exclusion over the atoms of the relation. A cell needs
        the row for all atoms of a set only if the columns that are bound to one variable have the
        same coordinate.

        Args:
            relation: The relation.
            spread: Empty for a row without heavy values.

        >>> edge = [JoinAtom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]
        >>> shares = choose_shares(edge, 8)
        >>> shares.copies("e"), shares.copies("e", {("a", (0,)): (2, 1, 1)})
        (4.0, 5.0)
        """
        atoms = [k for k, atom in enumerate(self.atoms) if atom.relation == relation]
        total = 0.0
        for size in range(1, len(atoms) + 1):
            for subset in combinations(atoms, size):
                total -= (-1) ** size * self._common_cells(subset, spread)
        return total

    def _common_cells(self, positions: Sequence[int], spread: Spread) -> float:
        """Return the expected number of cells that need a row for every one of these atoms.

        All atoms read the same relation. Along a variable, each column of the row that is bound to
        it allows one random coordinate. If the value is heavy, each atom instead allows the
        coordinates of one random part of its rows. A heavy value has a coordinate for each
        combination of one part of every atom, if the share of the variable is large enough. So the
        expected number of coordinates that all of these atoms allow is the number of coordinates,
        times the fraction that each of them allows.
        """
        count = 1.0
        for name, share in self.by_variable.items():
            # Two atoms with the same columns allow the same coordinate, so they count once.
            coordinates, fractions = share, {}
            for position in positions:
                atom = self.atoms[position]
                if name not in atom.columns:
                    continue
                columns = self.columns(atom, name)
                parts = spread.get((name, columns))
                if parts is None:
                    fractions[columns] = 1 / share
                else:
                    coordinates = min(coordinates, prod(parts))
                    # Each atom chooses its part independently, so it has a key of its own. The key
                    # is negative to differ from keys that are columns.
                    fractions[(-1 - position,)] = 1 / parts[position]
            count *= coordinates * prod(fractions.values())
        return count


def choose_shares(atoms: Sequence[JoinAtom], cells: int) -> Shares:
    """Return the shares with the least load.

    Ties are broken by the smaller number of cells, and then by the smaller largest share, because
    a heavy value harms balanced shares least.

    Args:
        atoms: At least one atom.
        cells: The maximum number of cells.

    Raises:
        StreamingError: ``cells`` is less than 1.

    Complexity:
        O(cells · (log cells)^(k - 1)) for k variables that are not dominated.

    >>> triangle = [JoinAtom("r", {"a": 0, "b": 1}), JoinAtom("s", {"b": 0, "c": 1}),
    ...             JoinAtom("t", {"a": 0, "c": 1})]
    >>> shares = choose_shares(triangle, 8)
    >>> dict(shares.by_variable), shares.load
    ({'a': 2, 'b': 2, 'c': 2}, 0.75)
    >>> atoms = [JoinAtom("r", {"a": 0}, 1000), JoinAtom("s", {"a": 0, "b": 1})]
    >>> dict(choose_shares(atoms, 8).by_variable)
    {'a': 8, 'b': 1}
    """
    if cells < 1:
        raise StreamingError(f"cells={cells}: a grid has at least 1 cell; give 1 or more")
    names = list(dict.fromkeys(name for atom in atoms for name in atom.columns))
    variables = [name for name in names if not _is_dominated(name, names, atoms)]
    candidates = enumerate_shares(len(variables), cells)
    load = np.zeros(len(candidates))
    for atom in atoms:
        in_atom = [k for k, name in enumerate(variables) if name in atom.columns]
        load += atom.rows / candidates[:, in_atom].prod(axis=1)
    # Rounding makes sums of the same numbers in a different order equal.
    load = np.round(load / load.max(), 12)
    largest_share = candidates.max(axis=1, initial=1)
    # The last key is the most significant one.
    keys = (*candidates.T[::-1], largest_share, candidates.prod(axis=1), load)
    best = candidates[np.lexsort(keys)[0]]
    by_variable = dict.fromkeys(names, 1) | dict(zip(variables, best.tolist(), strict=True))
    return Shares(tuple(atoms), by_variable)


def weigh_atoms(
    atoms: Sequence[JoinAtom],
    *,
    sizes: Mapping[str, float] | None = None,
    changed_rows: Mapping[str, float] | None = None,
) -> tuple[JoinAtom, ...]:
    """Return the atoms, weighted by their stored rows and their changed rows.

    The weight of an atom is its fraction of all stored rows plus its fraction of all changed rows,
    so both have the same influence on the shares.

    Args:
        atoms: The atoms.
        sizes: The number of rows of each relation; None if not available.
        changed_rows: How many rows of each relation changed in recent steps; None if not available.

    Raises:
        StreamingError: A number is negative.

    >>> atoms = [JoinAtom("fact", {"k": 0, "x": 1}), JoinAtom("dim", {"k": 0})]
    >>> sizes, changed_rows = {"fact": 30, "dim": 10}, {"fact": 5, "dim": 0}
    >>> [a.rows for a in weigh_atoms(atoms, sizes=sizes, changed_rows=changed_rows)]
    [1.75, 0.25]
    """
    rows = dict.fromkeys(range(len(atoms)), 0.0)
    for numbers in (sizes or {}, changed_rows or {}):
        counts = [numbers.get(atom.relation, 0.0) for atom in atoms]
        if min(counts, default=0.0) < 0:
            raise StreamingError(f"numbers of rows {numbers}: each must be 0 or more")
        total = sum(counts)
        for k, count in enumerate(counts):
            rows[k] += count / total if total else 0.0
    if not any(rows.values()):
        return tuple(replace(atom, rows=1.0) for atom in atoms)
    # A relation that is empty now may have rows later.
    min_rows = min(weight for weight in rows.values() if weight) / 1000
    return tuple(replace(atom, rows=max(rows[k], min_rows)) for k, atom in enumerate(atoms))


def _is_dominated(name: str, names: Sequence[str], atoms: Sequence[JoinAtom]) -> bool:
    """Return whether another variable occurs in all atoms that contain this one.

    Of several variables in the same atoms, only the first is not dominated.
    """
    atoms_with_name = {k for k, atom in enumerate(atoms) if name in atom.columns}
    for other in names:
        atoms_with_other = {k for k, atom in enumerate(atoms) if other in atom.columns}
        if atoms_with_name < atoms_with_other:
            return True
        if atoms_with_name == atoms_with_other and names.index(other) < names.index(name):
            return True
    return False


def enumerate_shares(variables: int, cells: int) -> Candidates:
    """Return all combinations of shares whose product is at most ``cells``, a row for each.

    If there are more than `MAX_CANDIDATES`, only powers of two are used.

    Raises:
        StreamingError: There are too many combinations of powers of two.

    >>> enumerate_shares(2, 3).tolist()
    [[1, 1], [1, 2], [1, 3], [2, 1], [3, 1]]
    """
    powers = 1 << np.arange(cells.bit_length())
    for allowed_shares in (np.arange(1, cells + 1), powers):
        candidates = find_combinations(allowed_shares, variables, cells, MAX_CANDIDATES)
        if candidates is not None:
            return candidates
    raise StreamingError(
        f"{variables} join variables are too many for {cells} cells: use fewer cells"
    )


def find_combinations(
    allowed: npt.NDArray[np.int64], count: int, limit: int, max_rows: int
) -> Candidates | None:
    """Return all combinations of numbers whose product is at most ``limit``, a row for each.

    Args:
        allowed: The numbers, from 1 on in ascending order.
        count: How many numbers a combination has.
        limit: The largest product.
        max_rows: The most combinations; None is returned if there are more.

    >>> find_combinations(np.array([1, 2, 4]), 2, 4, 10).tolist()
    [[1, 1], [1, 2], [1, 4], [2, 1], [2, 2], [4, 1]]
    """
    found = np.ones((1, 0), np.int64)
    room = np.full(1, limit)  # the largest next number of each combination
    for _ in range(count):
        # Repeat each combination once for each next number that fits; the smallest ones fit.
        counts = np.searchsorted(allowed, room, side="right")
        if counts.sum() > max_rows:
            return None
        repeated = np.repeat(np.arange(len(found)), counts)
        starts = np.repeat(counts.cumsum() - counts, counts)
        following = allowed[np.arange(len(repeated)) - starts]
        found = np.column_stack([found[repeated], following])
        room = room[repeated] // following
    return found
