"""Grid: which cells of a HyperCube a row goes to, and for which atoms they want it.

::

    cell            =  Σ_v coordinate_v · stride_v,     0 <= coordinate_v < s_v
    atom A, row r   ->  all cells whose coordinate_v is hash_v(r's column of v) mod s_v for v in A

Each variable has a hash function of its own, so that rows with equal columns are no worse than
others. A row of a relation that several atoms read goes once to each cell that any of them wants it
in, with one bit for each atom that does (`streaming.hypercube.routing`). Nothing here looks at a
row: coordinates come in and cells go out, as integers, arrays of them or Spark columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from streaming.hypercube.shares import Atom, Shares

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """The cells of shares."""

    shares: Shares

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

    def home(self, atom: Atom, coordinates: Mapping[str, Any]) -> Any:
        """The first cell that wants a row for an atom.

        Args:
            atom: The atom.
            coordinates: Of the row, by variable; integers, arrays of them, or Spark columns.

        >>> from streaming.hypercube.shares import Atom, Shares
        >>> atoms = (Atom("r", {"a": 0, "b": 1}), Atom("s", {"b": 0, "c": 1}))
        >>> grid = Grid(Shares(atoms, {"a": 2, "b": 3, "c": 2}))
        >>> home = grid.home(atoms[0], {"a": 1, "b": 2})
        >>> home, [home + offset for offset in grid.offsets(atoms[0])]
        (5, [5, 11])
        """
        terms = [coordinates[name] * self.strides[name] for name in atom.columns]
        return sum(terms[1:], terms[0]) if terms else 0

    def offsets(self, atom: Atom) -> list[int]:
        """What to add to the first cell for all that want the row for the atom."""
        free = [
            [self.strides[name] * part for part in range(parts)]
            for name, parts in self.shares.parts.items()
            if name not in atom.columns
        ]
        return sorted(sum(steps) for steps in product(*free))
