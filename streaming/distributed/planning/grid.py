"""Grid: which cells of a HyperCube a row goes to, and for which atoms they want it.

::

    cell            =  Σ_v coordinate_v · stride_v,     0 <= coordinate_v < s_v
    atom A, row r   ->  all cells whose coordinate_v is hash_v(r's columns of v) mod s_v, v in A

    a heavy value of v  ->  coordinate_v = Σ_A digit_A · Π (f_B, B before A),   Π_A f_A <= s_v
    atom A, row r with it   ->  all coordinates whose digit_A is hash(all of r) mod f_A

Each variable has a hash function of its own, so that rows with equal columns are no worse than
others. A row of a relation that several atoms read goes once to each cell that any of them wants it
in, with one bit for each atom that does.

All rows with one value of v share their coordinate. Where a value has so many that their cells get
too much (a hub), the coordinate is freed (`Heavy`): it is made of one digit for each atom that has
v, and a row's digit for its own atom comes from all of its columns. So the rows of the value are
spread along the other variables, and those of the other atoms are sent to all parts of theirs. Any
join stays right. A combination of rows agrees on whether v's value is heavy; if it is, each of its
rows with v fixes the digit of its own atom, so together they fix the coordinate, and a row sees
only its own. So every combination has exactly one cell, with and without heavy values. This is the
residual join of each combination of heavy and light values (Beame, Koutris, Suciu, "Skew in
Parallel Query Processing", PODS 2014, section 4; Afrati, Stasinopoulos, Ullman, Vassilakopoulos,
"SharesSkew", Information Systems 77, 2018), all on one grid: the way not taken is to give each
residual join cells of its own, which leaves most of them idle when a hub does not change.

A heavy value is known by its hash. A value whose hash happens to be the same is spread, too, which
is as right. Nothing here looks at a row: `streaming.distributed.execution.routing` reads a grid in
Spark's expressions, `streaming.distributed.execution.placement` in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from streaming.distributed.planning.shares import JoinInput, Shares
from streaming.errors import StreamingError

__all__ = ["Grid", "Heavy"]


@dataclass(frozen=True)
class Heavy:
    """Values of a variable that are spread alike.

    Attributes:
        variable: The variable.
        parts: For each atom of the join into how many parts its rows with these values are split.
        hashes: The values' hashes (`streaming.distributed.execution.placement.hash_values`).
        names: The values as texts, for people.
        rows: For each atom which part of its rows has these values, as far as that is known.
    """

    variable: str
    parts: tuple[int, ...]
    hashes: tuple[int, ...]
    names: tuple[str, ...] = ()
    rows: tuple[float, ...] = ()

    @property
    def coordinates(self) -> int:
        """How many coordinates the digits make."""
        return prod(self.parts)

    def stride(self, atom: int) -> int:
        """How far apart coordinates are whose digits differ by one for an atom."""
        return prod(self.parts[:atom])

    def others(self, atom: int) -> list[int]:
        """The coordinates whose digit for an atom is 0."""
        stride, parts = self.stride(atom), self.parts[atom]
        return [k for k in range(self.coordinates) if k // stride % parts == 0]


@dataclass(frozen=True)
class Grid:
    """The cells of shares.

    Attributes:
        shares: Into how many parts each variable is hashed.
        heavy: The values that are spread; of one variable in groups that have no value in common.

    Raises:
        StreamingError: A spread does not fit its variable's share.
    """

    shares: Shares
    heavy: tuple[Heavy, ...] = ()

    def __post_init__(self) -> None:
        seen: set[tuple[str, int]] = set()
        for heavy in self.heavy:
            self._check(heavy)
            values = {(heavy.variable, value) for value in heavy.hashes}
            if seen & values:
                raise StreamingError(f"a value of {heavy.variable} is spread in two ways")
            seen |= values

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.shares.cells

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """How far apart the cells are whose coordinates differ by one in a variable."""
        found, stride = {}, 1
        for name, parts in self.shares.parts.items():
            found[name] = stride
            stride *= parts
        return found

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each variable, which makes its hash function."""
        return {name: number for number, name in enumerate(self.shares.parts)}

    def groups(self, variable: str) -> list[Heavy]:
        """The heavy values of a variable; a group's number is its place here, from 1 on."""
        return [heavy for heavy in self.heavy if heavy.variable == variable]

    def home(self, atom: JoinInput, coordinates: Mapping[str, Any]) -> Any:
        """The first cell that wants a row without heavy values for an atom.

        Args:
            atom: The atom.
            coordinates: Of the row, by variable; integers, arrays of them, or Spark columns.

        >>> from streaming.distributed.planning.shares import JoinInput, Shares
        >>> atoms = (JoinInput("r", {"a": 0, "b": 1}), JoinInput("s", {"b": 0, "c": 1}))
        >>> grid = Grid(Shares(atoms, {"a": 2, "b": 3, "c": 2}))
        >>> home = grid.home(atoms[0], {"a": 1, "b": 2})
        >>> home, [home + offset for offset in grid.offsets(atoms[0])]
        (5, [5, 11])
        """
        terms = [coordinates[name] * self.strides[name] for name in atom.columns]
        return sum(terms[1:], terms[0]) if terms else 0

    def offsets(self, atom: JoinInput) -> list[int]:
        """What to add to the first cell for all that want the row for the atom."""
        free = [
            [self.strides[name] * part for part in range(parts)]
            for name, parts in self.shares.parts.items()
            if name not in atom.columns
        ]
        return sorted(sum(steps) for steps in product(*free))

    def spreading(self, atom: int) -> float:
        """How many times as many cells want an average row of an atom as without heavy values.

        Values of different variables are taken to be independent.
        """
        found = 1.0
        for name in self.shares.atoms[atom].columns:
            for heavy in self.groups(name):
                if heavy.rows:
                    found += heavy.rows[atom] * (heavy.coordinates / heavy.parts[atom] - 1) * found
        return found

    @property
    def load(self) -> float:
        """Rows that a cell keeps on average, in the unit of the atoms' rows."""
        shares = self.shares
        return (
            sum(
                atom.rows * shares.replication(atom) * self.spreading(number)
                for number, atom in enumerate(shares.atoms)
            )
            / self.cells
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values.

        >>> from streaming.distributed.planning.shares import JoinInput, choose_shares
        >>> grid = Grid(choose_shares([JoinInput("r", {"a": 0}), JoinInput("s", {"a": 1})], 4),
        ...             (Heavy("a", (2, 2), (77,), ("7",), (0.5, 0.1)),))
        >>> Grid.of_json(grid.to_json()) == grid
        True
        """
        return {
            "atoms": [[a.relation, dict(a.columns), a.rows] for a in self.shares.atoms],
            "parts": [[name, parts] for name, parts in self.shares.parts.items()],
            "heavy": [
                [h.variable, list(h.parts), list(h.hashes), list(h.names), list(h.rows)]
                for h in self.heavy
            ],
        }

    @staticmethod
    def of_json(given: Mapping[str, Any]) -> Grid:
        """What `to_json` gave."""
        atoms = tuple(
            JoinInput(relation, dict(cols), rows) for relation, cols, rows in given["atoms"]
        )
        parts = {name: int(parts) for name, parts in given["parts"]}
        heavy = tuple(Heavy(name, *map(tuple, rest)) for name, *rest in given["heavy"])
        return Grid(Shares(atoms, parts), heavy)

    def _check(self, heavy: Heavy) -> None:
        atoms, share = self.shares.atoms, self.shares.parts.get(heavy.variable, 0)
        fits = len(heavy.parts) == len(atoms) and all(
            parts == 1 or (parts > 1 and heavy.variable in atom.columns)
            for parts, atom in zip(heavy.parts, atoms, strict=True)
        )
        if not fits or heavy.coordinates > share:
            raise StreamingError(
                f"values of {heavy.variable!r} spread into {heavy.parts} parts, but its share is "
                f"{share} in a join of {len(atoms)} atoms: give one number for each atom, 1 for "
                "those without the variable, and together at most the share"
            )
