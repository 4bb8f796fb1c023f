"""Shares: the number of parts that each variable of a join is hashed into.

::

    a join of atoms A, variable v hashed into s_v parts, cells = Π_v s_v <= p

    copies of a row of A             Π s_v over the variables that A has not     its replication
    rows of A in a cell              |A| / Π s_v over the variables of A
    load = Σ_A |A| / Π_{v in A} s_v                                              is minimised

The rows of one result of the join agree on its variables, so they meet in one cell, and the results
of the cells add up to the result of the join. With as many parts as cells, the load is the number
of sent rows divided by p, so the least load is the least communication (Afrati, Ullman, "Optimizing
Joins in a Map-Reduce Environment", EDBT 2010, sections 3 and 4). Their shares are real numbers by
Lagrange's method and must be rounded, which can waste most of the cells; here they are integers,
found by trying all. A variable whose atoms all have another one too is dominated and has share 1
(section 4.3), so few variables remain. If p is too large to try all, powers of two are tried.

Variables that occur in exactly the same atoms are hashed together (`Shares.together`): a join by
country and user is as even as the pairs are, however uneven the countries are.

A relation that several atoms read is sent once to a cell that wants it for several of them
(`Shares.copies`); the cell keeps it for each of them, so the load counts each. `weigh_atoms` gives
the weight of a row: stored rows cost memory once, changed rows cost time in every step, and both
are reasons to send a relation to few cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.errors import StreamingError

__all__ = ["JoinInput", "Shares", "choose_shares", "products", "weigh_atoms"]

#: The maximum number of candidates that are tried.
MAX_CANDIDATES: Final = 500_000

Candidates = npt.NDArray[np.int64]
Spread = Mapping[tuple[str, tuple[int, ...]], Sequence[int]]

_NOTHING: Final[Spread] = MappingProxyType({})


@dataclass(frozen=True)
class JoinInput:
    """One input of a join: a relation, the columns that its variables are bound to, and its size.

    Attributes:
        relation: Whose rows it reads.
        columns: For each of its variables the position of a column that is bound to it.
        rows: How many rows are to be sent and kept, in any unit: those of the state, those of the
            steps, or a mixture.
    """

    relation: str
    columns: Mapping[str, int]
    rows: float = 1.0


@dataclass(frozen=True)
class Shares:
    """The shares of a join's variables.

    Attributes:
        atoms: The atoms.
        parts: The share of each variable, in the order in which cells are numbered.
    """

    atoms: tuple[JoinInput, ...]
    parts: Mapping[str, int]

    @property
    def cells(self) -> int:
        """How many cells the grid has."""
        return prod(self.parts.values())

    @property
    def load(self) -> float:
        """Rows that a cell gets on average, those of all atoms together."""
        return sum(atom.rows * self.replication(atom) for atom in self.atoms) / self.cells

    @cached_property
    def together(self) -> Mapping[str, tuple[str, ...]]:
        """The variables that each one's coordinate is made of: those in just the same atoms.

        >>> atoms = [JoinInput("r", {"a": 0, "b": 1}), JoinInput("s", {"a": 0, "b": 1, "c": 2})]
        >>> choose_shares(atoms, 4).together["a"]
        ('a', 'b')
        """
        held = {
            name: tuple(place for place, atom in enumerate(self.atoms) if name in atom.columns)
            for name in self.parts
        }
        return {
            name: tuple(other for other in self.parts if held[other] == held[name])
            for name in self.parts
        }

    def columns(self, atom: JoinInput, name: str) -> tuple[int, ...]:
        """The columns of an atom that make its coordinate of one of its variables."""
        return tuple(atom.columns[other] for other in self.together[name])

    def replication(self, atom: JoinInput) -> int:
        """How many cells want a row for an atom."""
        return prod(parts for name, parts in self.parts.items() if name not in atom.columns)

    def copies(self, relation: str, spread: Spread = _NOTHING) -> float:
        """How many cells a row of a relation goes to, on average over hashes of distinct values.

        By inclusion and exclusion over the relation's atoms: cells that are wanted for all atoms of
        a set exist only if columns that are bound to one variable are hashed alike.

        Args:
            relation: The relation.
            spread: Of a row with heavy values, by the variable and its columns, the parts into
                which each atom's rows with the value are split.

        >>> edge = [JoinInput("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]
        >>> shares = choose_shares(edge, 8)
        >>> shares.copies("e"), shares.copies("e", {("a", (0,)): (2, 1, 1)})
        (4.0, 5.0)
        """
        atoms = [place for place, atom in enumerate(self.atoms) if atom.relation == relation]
        total = 0.0
        for size in range(1, len(atoms) + 1):
            for chosen in combinations(atoms, size):
                total -= (-1) ** size * self._in_common(chosen, spread)
        return total

    def _in_common(self, places: Sequence[int], spread: Spread) -> float:
        """How many cells all of the atoms of one relation want a row of it in, on average.

        The coordinates that a column or a digit leaves are as likely as any others, so those that
        all leave are as many as there are, times the probabilities.
        """
        found = 1.0
        for name, share in self.parts.items():
            extent, chances = share, {}
            for place in places:
                atom = self.atoms[place]
                if name not in atom.columns:
                    continue
                columns = self.columns(atom, name)
                parts = spread.get((name, columns))
                if parts is None:
                    chances[columns] = 1 / share
                else:
                    extent = min(extent, prod(parts))
                    chances[(-1 - place,)] = 1 / parts[place]
            found *= extent * prod(chances.values())
        return found


def choose_shares(atoms: Sequence[JoinInput], cells: int) -> Shares:
    """The shares with the least load; of several such those that need fewer cells, and then the
    most even ones, which a heavy value harms least.

    Args:
        atoms: At least one.
        cells: How many cells there may be.

    Raises:
        StreamingError: ``cells`` is less than 1.

    Complexity:
        O(cells · (log cells)^(k - 1)) for k variables that are not dominated.

    >>> triangle = [JoinInput("r", {"a": 0, "b": 1}), JoinInput("s", {"b": 0, "c": 1}),
    ...             JoinInput("t", {"a": 0, "c": 1})]
    >>> found = choose_shares(triangle, 8)
    >>> dict(found.parts), found.load
    ({'a': 2, 'b': 2, 'c': 2}, 0.75)
    >>> atoms = [JoinInput("r", {"a": 0}, 1000), JoinInput("s", {"a": 0, "b": 1})]
    >>> dict(choose_shares(atoms, 8).parts)
    {'a': 8, 'b': 1}
    """
    if cells < 1:
        raise StreamingError(f"cells={cells}: a grid has at least 1 cell; give 1 or more")
    names = list(dict.fromkeys(name for atom in atoms for name in atom.columns))
    wanted = [name for name in names if not _is_dominated(name, names, atoms)]
    candidates = products(len(wanted), cells)
    load = np.zeros(len(candidates))
    for atom in atoms:
        own = [place for place, name in enumerate(wanted) if name in atom.columns]
        load += atom.rows / candidates[:, own].prod(axis=1)
    # Rounded, so that sums of the same numbers in another order are no difference.
    load = np.round(load / load.max(), 12)
    widest = candidates.max(axis=1, initial=1)
    keys = (*candidates.T[::-1], widest, candidates.prod(axis=1), load)
    best = candidates[np.lexsort(keys)[0]]
    found = dict.fromkeys(names, 1) | dict(zip(wanted, best.tolist(), strict=True))
    return Shares(tuple(atoms), found)


def weigh_atoms(
    atoms: Sequence[JoinInput],
    *,
    sizes: Mapping[str, float] | None = None,
    rates: Mapping[str, float] | None = None,
) -> tuple[JoinInput, ...]:
    """The atoms with their rows weighed by what is kept and what changes.

    An atom's rows are its part of all rows that are kept plus its part of all rows that change, so
    that either is one half of what shares are chosen by.

    Args:
        atoms: The atoms.
        sizes: The rows of each relation, if they are known.
        rates: The rows of each relation that change in a step, if that is known.

    Raises:
        StreamingError: A number is negative.

    >>> atoms = [JoinInput("fact", {"k": 0, "x": 1}), JoinInput("dim", {"k": 0})]
    >>> sizes, rates = {"fact": 30, "dim": 10}, {"fact": 5, "dim": 0}
    >>> [a.rows for a in weigh_atoms(atoms, sizes=sizes, rates=rates)]
    [1.75, 0.25]
    """
    rows = dict.fromkeys(range(len(atoms)), 0.0)
    for known in (sizes, rates):
        given = [0.0 if known is None else known.get(atom.relation, 0.0) for atom in atoms]
        if min(given, default=0.0) < 0:
            raise StreamingError(f"relations of {known} rows: give 0 or more")
        total = sum(given)
        for place, one in enumerate(given):
            rows[place] += one / total if total else 0.0
    if not any(rows.values()):
        return tuple(replace(atom, rows=1.0) for atom in atoms)
    # A relation that has nothing now may have something later.
    least = min(one for one in rows.values() if one) / 1000
    return tuple(replace(atom, rows=max(rows[k], least)) for k, atom in enumerate(atoms))


def _is_dominated(name: str, names: Sequence[str], atoms: Sequence[JoinInput]) -> bool:
    """Whether another variable is in all atoms that this one is in; of equals the first stays."""
    held = {place for place, atom in enumerate(atoms) if name in atom.columns}
    for other in names:
        others = {place for place, atom in enumerate(atoms) if other in atom.columns}
        first = names.index(other) < names.index(name)
        if held < others or (held == others and first):
            return True
    return False


def products(variables: int, cells: int) -> Candidates:
    """All rows of so many numbers whose product is at most ``cells``; powers of two if too many.

    >>> products(2, 3).tolist()
    [[1, 1], [1, 2], [1, 3], [2, 1], [3, 1]]
    """
    powers = 1 << np.arange(cells.bit_length())
    for choice in (np.arange(1, cells + 1), powers):
        found = np.ones((1, 0), np.int64)
        left = np.full(1, cells)
        for _ in range(variables):
            sizes = np.searchsorted(choice, left, side="right")
            if sizes.sum() > MAX_CANDIDATES:
                break
            rows = np.repeat(np.arange(len(found)), sizes)
            picked = choice[np.arange(len(rows)) - np.repeat(sizes.cumsum() - sizes, sizes)]
            found = np.column_stack([found[rows], picked])
            left = left[rows] // picked
        else:
            return found
    raise StreamingError(f"{variables} join variables are too many for {cells} cells: give fewer")
