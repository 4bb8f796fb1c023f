"""Grid: the cells of a HyperCube that receive a row, and the atoms that each cell needs it for.

A HyperCube distributes a join over a grid with one dimension for each variable. A cell is one
position of the grid, and joins the rows that it receives. The share s_v is the number of
coordinates of variable v; an atom is one occurrence of a relation in the join. For the triangle
join r(a, b), s(b, c), t(a, c) on 2 x 2 x 2 cells, a row of r fixes the coordinates of a and b, and
is sent to the two cells that differ in c.

::

    cell            =  Σ_v coordinate_v · stride_v,     0 <= coordinate_v < s_v
    atom A, row r   ->  all cells whose coordinate_v is hash_v(r's columns of v) mod s_v, v in A

    a heavy value h of v (explained below) splits the rows of each atom A into f_A parts,
    Π_A f_A <= s_v:

    coordinate_v           =  Σ_A digit_A · Π (f_B, B before A),     0 <= digit_A < f_A
    atom A, row r with h   ->  all coordinates whose digit_A is hash(all columns of r) mod f_A

Each variable has its own hash function, so that rows with equal values in several columns are
distributed as well as other rows. If several atoms read a relation, each cell receives a row at
most once, with one bit for each atom that needs the row in this cell.

All rows with one value of v have the same coordinate. If a value has so many rows that their cells
are overloaded (a hub), the grid distributes its rows (`HeavyGroup`): the coordinate consists of one
digit for each atom that has v, and a hash of all columns of a row gives the digit of the row's own
atom. So the rows of the value are distributed over several coordinates of v, and each row is sent
to all coordinates that contain its digit. The join stays correct. The rows that join agree on v, so
they agree on whether its value is heavy. If it is, each of these rows fixes the digit of its own
atom and no other digit, so together they fix the coordinate. So every combination of joined rows
has exactly one cell, with and without heavy values.

In the literature, each combination of heavy and light values is a join of its own, a residual join
(Beame, Koutris, Suciu, "Skew in Parallel Query Processing", PODS 2014, section 4; Afrati,
Stasinopoulos, Ullman, Vassilakopoulos, "SharesSkew", Information Systems 77, 2018). Here all
residual joins use the cells of one grid.

Alternatives considered: separate cells for each residual join. Most of these cells would be idle
when a hub does not change.

The grid identifies a heavy value by its hash. Another value with the same hash is distributed as
well; the result is equally correct. This module reads no rows:
`streaming.distributed.execution.routing` applies a grid in Spark expressions, and
`streaming.distributed.execution.placement` in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from dbsp_wcoj.cached_property import cached_property
from streaming.distributed.planning.shares import JoinAtom, Shares
from streaming.errors import StreamingError

__all__ = ["Grid", "HeavyGroup"]


@dataclass(frozen=True)
class HeavyGroup:
    """A group of heavy values of one variable, whose rows are distributed in the same way.

    Attributes:
        variable: The variable.
        splits: For each atom of the join, the number of parts that its rows with these values are
            split into.
        hashes: The hashes of the values
            (`streaming.distributed.execution.placement.hash_values`).
        texts: The values as text, for `explain`.
        row_fractions: For each atom, the fraction of its rows with these values; empty if unknown.
    """

    variable: str
    splits: tuple[int, ...]
    hashes: tuple[int, ...]
    texts: tuple[str, ...] = ()
    row_fractions: tuple[float, ...] = ()

    @property
    def coordinates(self) -> int:
        """The number of coordinates that the digits can form."""
        return prod(self.splits)

    def stride(self, atom: int) -> int:
        """Return the distance of two coordinates whose digits for this atom differ by one."""
        return prod(self.splits[:atom])

    def coordinates_of_digit_0(self, atom: int) -> list[int]:
        """Return the coordinates whose digit for an atom is 0.

        The coordinates of a row of the atom are these, plus the stride times the row's digit.
        """
        stride, count = self.stride(atom), self.splits[atom]
        return [k for k in range(self.coordinates) if k // stride % count == 0]


@dataclass(frozen=True)
class Grid:
    """The cells of a join, and the assignment of rows to them.

    Attributes:
        shares: The number of coordinates of each variable.
        heavy: The groups of heavy values; two groups of one variable have no value in common.

    Raises:
        StreamingError: The parts of a group do not fit the share of its variable, or a value is in
            two groups.
    """

    shares: Shares
    heavy: tuple[HeavyGroup, ...] = ()

    def __post_init__(self) -> None:
        assigned: set[tuple[str, int]] = set()
        for heavy in self.heavy:
            self._check(heavy)
            values = {(heavy.variable, value) for value in heavy.hashes}
            if assigned & values:
                raise StreamingError(
                    f"a value of {heavy.variable} is in two groups of heavy values: "
                    "put each value in one group"
                )
            assigned |= values

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.shares.cells

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """For each variable, the distance of two cells whose coordinates differ by one in it."""
        strides, stride = {}, 1
        for name, share in self.shares.by_variable.items():
            strides[name] = stride
            stride *= share
        return strides

    @cached_property
    def variable_numbers(self) -> Mapping[str, int]:
        """The position of each variable, which determines its hash function."""
        return {name: number for number, name in enumerate(self.shares.by_variable)}

    def groups(self, variable: str) -> list[HeavyGroup]:
        """Return the groups of heavy values of a variable.

        The code that applies a grid numbers them from 1 and uses 0 for light values.
        """
        return [group for group in self.heavy if group.variable == variable]

    def home(self, atom: JoinAtom, coordinates: Mapping[str, Any]) -> Any:
        """Return the first cell that receives a row of an atom, if the row has no heavy values.

        In this cell, the coordinates of the variables that the atom lacks are 0.

        Args:
            atom: The atom.
            coordinates: The coordinates of the row, by variable: integers, arrays of integers, or
                Spark columns.

        >>> from streaming.distributed.planning.shares import JoinAtom, Shares
        >>> atoms = (JoinAtom("r", {"a": 0, "b": 1}), JoinAtom("s", {"b": 0, "c": 1}))
        >>> grid = Grid(Shares(atoms, {"a": 2, "b": 3, "c": 2}))
        >>> home = grid.home(atoms[0], {"a": 1, "b": 2})
        >>> home, [home + offset for offset in grid.offsets(atoms[0])]
        (5, [5, 11])
        """
        terms = [coordinates[name] * self.strides[name] for name in atom.columns]
        # The sum begins with a term, so that a Spark expression has no addition of 0.
        return sum(terms[1:], terms[0]) if terms else 0

    def offsets(self, atom: JoinAtom) -> list[int]:
        """Return the distances from `home` to all cells that need a row for the atom, sorted."""
        free = [
            [self.strides[name] * coordinate for coordinate in range(share)]
            for name, share in self.shares.by_variable.items()
            if name not in atom.columns
        ]
        return sorted(sum(steps) for steps in product(*free))

    def is_same_placement(self, other: Grid) -> bool:
        """Return whether both grids assign every row to the same cells.

        The weights of the atoms, and the texts and fractions of heavy values, assign no rows.
        """
        return _assignment(self) == _assignment(other)

    @property
    def most_copies(self) -> int:
        """An upper bound of the cells that receive one row.

        >>> edge = [JoinAtom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]
        >>> Grid(Shares(edge, {"a": 2, "b": 2, "c": 2})).most_copies
        6
        """
        if self.heavy:
            return self.cells
        copies: dict[str, int] = {}
        for atom in self.shares.atoms:
            copies[atom.relation] = copies.get(atom.relation, 0) + self.shares.replication(atom)
        return min(self.cells, max(copies.values(), default=1))

    def replication_factor(self, atom: int) -> float:
        """Return the factor by which heavy values increase the number of cells of an average row.

        A row with a heavy value is sent to one coordinate for each combination of the other atoms'
        digits. The estimate assumes that the values of different variables are independent.

        Args:
            atom: The position of the atom in the join.
        """
        factor = 1.0
        for name in self.shares.atoms[atom].columns:
            for heavy in self.groups(name):
                if heavy.row_fractions:
                    copies = heavy.coordinates / heavy.splits[atom]
                    factor *= 1 + heavy.row_fractions[atom] * (copies - 1)
        return factor

    @property
    def load(self) -> float:
        """The average number of rows in a cell, in the unit of `JoinAtom.rows`."""
        shares = self.shares
        return (
            sum(
                atom.rows * shares.replication(atom) * self.replication_factor(number)
                for number, atom in enumerate(shares.atoms)
            )
            / self.cells
        )

    def to_json(self) -> dict[str, Any]:
        """Return the grid as JSON values.

        >>> from streaming.distributed.planning.shares import JoinAtom, choose_shares
        >>> grid = Grid(choose_shares([JoinAtom("r", {"a": 0}), JoinAtom("s", {"a": 1})], 4),
        ...             (HeavyGroup("a", (2, 2), (77,), ("7",), (0.5, 0.1)),))
        >>> Grid.of_json(grid.to_json()) == grid
        True
        """
        return {
            "atoms": [[a.relation, dict(a.columns), a.rows] for a in self.shares.atoms],
            "parts": [[name, share] for name, share in self.shares.by_variable.items()],
            "heavy": [
                [h.variable, list(h.splits), list(h.hashes), list(h.texts), list(h.row_fractions)]
                for h in self.heavy
            ],
        }

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> Grid:
        """Return the grid of the JSON values that `to_json` returned."""
        atoms = tuple(
            JoinAtom(relation, dict(cols), rows) for relation, cols, rows in values["atoms"]
        )
        shares = {name: int(share) for name, share in values["parts"]}
        heavy = tuple(HeavyGroup(name, *map(tuple, lists)) for name, *lists in values["heavy"])
        return Grid(Shares(atoms, shares), heavy)

    def _check(self, heavy: HeavyGroup) -> None:
        atoms, share = self.shares.atoms, self.shares.by_variable.get(heavy.variable, 0)
        if (
            len(heavy.splits) != len(atoms)
            or min(heavy.splits, default=1) < 1
            or any(
                count > 1 and heavy.variable not in atom.columns
                for count, atom in zip(heavy.splits, atoms, strict=True)
            )
            or heavy.coordinates > share
        ):
            raise StreamingError(
                f"heavy values of {heavy.variable!r} have {heavy.splits} parts, but the share of "
                f"the variable is {share} in a join of {len(atoms)} atoms: give one number for "
                "each atom, 1 for atoms without the variable, with a product of at most the share"
            )


def _assignment(grid: Grid) -> tuple[Any, ...]:
    """Return the properties of a grid by which rows are assigned to cells."""
    return (
        [(atom.relation, atom.columns) for atom in grid.shares.atoms],
        [*grid.shares.by_variable.items()],
        {(heavy.variable, heavy.splits, value) for heavy in grid.heavy for value in heavy.hashes},
    )
