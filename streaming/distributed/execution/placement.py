"""Placing: from rows to cells as `streaming.distributed.execution.routing` does it, in numpy.

For tools that move rows between grids without a session, and for simulations of thousands of cells.
Both read the same `Grid` and hash alike, so a row has the same cells either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.distributed.execution.xxhash import xxhash64
from streaming.distributed.planning.grid import Grid

__all__ = ["DIGITS", "PlacedRows", "hashed", "placed", "wanted"]

Integers = npt.NDArray[np.int64]
Columns = Sequence[pa.Array | pa.ChunkedArray]

#: Added to the number of a variable, for the hash function of its digits.
DIGITS = 1 << 16


@dataclass(frozen=True)
class PlacedRows:
    """Rows in cells: ``rows[k]`` (its position) goes to ``cells[k]`` for the atoms ``roles[k]``.

    Roles have a bit for each atom that reads the relation, in the order of the atoms.
    """

    rows: Integers
    cells: Integers
    roles: Integers


def hashed(values: Columns, variable: int) -> Integers:
    """The hashes of values of a variable, by its number; several columns if it is hashed with
    others.
    """
    return xxhash64(values, variable)


def placed(relation: str, columns: Columns, grid: Grid) -> PlacedRows:
    """The cells of rows of a relation.

    Args:
        relation: As the atoms name it.
        columns: All columns of it, in the order of the atoms' numbers; at least one.
        grid: The cells.

    Returns:
        Each row once for each of its cells, by rows.

    Complexity:
        O(c log c) for c pairs of a row and a cell.
    """
    atoms = [n for n, atom in enumerate(grid.shares.atoms) if atom.relation == relation]
    parts = [wanted(atom, columns, grid) for atom in atoms]
    if len(parts) == 1:
        rows, cells = parts[0]
        return PlacedRows(rows, cells, np.ones(len(rows), np.int64))
    keys = [rows * grid.cells + cells for rows, cells in parts]
    merged, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    roles = np.zeros(len(merged), np.int64)
    start = 0
    for bit, key in enumerate(keys):
        roles[inverse[start : start + len(key)]] |= 1 << bit  # an atom wants a row once in a cell
        start += len(key)
    return PlacedRows(merged // grid.cells, merged % grid.cells, roles)


def wanted(atom: int, columns: Columns, grid: Grid) -> tuple[Integers, Integers]:
    """The positions of rows and the cells that want them for one atom, by rows."""
    shares, one = grid.shares, grid.shares.atoms[atom]
    rows = len(columns[0])
    home = np.zeros(rows, np.int64)
    # For each row the number of its list of offsets, in the order in which they are made.
    choice = np.zeros(rows, np.int64)
    lists: list[list[int]] = [grid.offsets(one)]
    for name in one.columns:
        share, stride = shares.parts[name], grid.strides[name]
        if share == 1:
            continue
        number = grid.numbers[name]
        hashes = hashed([columns[column] for column in shares.columns(one, name)], number)
        coordinate = hashes % share
        groups = grid.groups(name)
        kinds = np.zeros(rows, np.int64)
        extended = list(lists)
        for kind, heavy in enumerate(groups, 1):
            mine = np.isin(hashes, np.array(heavy.hashes, np.int64))
            kinds[mine] = kind
            if heavy.parts[atom] > 1:
                chosen = [_taken(column, mine) for column in columns]
                digits = xxhash64(chosen, number + DIGITS, atom) % heavy.parts[atom]
                coordinate[mine] = digits * heavy.stride(atom)
            else:
                coordinate[mine] = 0
            others = [stride * other for other in heavy.others(atom)]
            extended += [[a + b for a in offsets for b in others] for offsets in lists]
        home += coordinate * stride
        choice += kinds * len(lists)
        lists = extended
    sizes = np.array([len(offsets) for offsets in lists])[choice]
    firsts = np.cumsum([0, *[len(offsets) for offsets in lists]])[:-1][choice]
    positions = np.repeat(np.arange(rows), sizes)
    within = np.arange(len(positions)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    flat = np.array([offset for offsets in lists for offset in offsets], np.int64)
    return positions, np.repeat(home, sizes) + flat[np.repeat(firsts, sizes) + within]


def _taken(column: pa.Array | pa.ChunkedArray, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return column.filter(pa.array(mask))
