"""Assign rows to cells in numpy, exactly as `routing` does in Spark.

Used for few rows, for tools that repartition state without a session, and for simulations of
thousands of cells. Both implementations read the same `Grid` and use the same hash functions, so a
row has the same cells either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.distributed.execution.xxhash import xxhash64
from streaming.distributed.planning.grid import Grid

__all__ = ["DIGIT_SEED", "PlacedRows", "find_cells", "hash_values", "place_rows"]

Integers = npt.NDArray[np.int64]
Columns = Sequence[pa.Array | pa.ChunkedArray]

#: Added to the number of a variable to seed the hash function of its digits.
DIGIT_SEED = 1 << 16


@dataclass(frozen=True)
class PlacedRows:
    """Pairs of row and cell: row ``rows[k]`` is in ``cells[k]`` for the atoms ``roles[k]``.

    Roles have a bit for each atom that reads the relation, in the order of the atoms.
    """

    rows: Integers
    cells: Integers
    roles: Integers


def hash_values(values: Columns, variable: int) -> Integers:
    """Hash the values of a variable, given its number; several columns are hashed together."""
    return xxhash64(values, variable)


def place_rows(relation: str, columns: Columns, grid: Grid) -> PlacedRows:
    """Find the cells of the rows of a relation.

    Args:
        relation: The name of the relation in the atoms.
        columns: All of its columns, in the order of the atoms' numbers; at least one.
        grid: The cells.

    Returns:
        Each row once for each of its cells, by rows.

    Complexity:
        O(c log c) for c pairs of a row and a cell.
    """
    atoms = [n for n, atom in enumerate(grid.shares.atoms) if atom.relation == relation]
    parts = [find_cells(atom, columns, grid) for atom in atoms]
    if len(parts) == 1:
        rows, cells = parts[0]
        return PlacedRows(rows, cells, np.ones(len(rows), np.int64))
    keys = [rows * grid.cells + cells for rows, cells in parts]
    merged, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    roles = np.zeros(len(merged), np.int64)
    start = 0
    for bit, key in enumerate(keys):
        roles[inverse[start : start + len(key)]] |= 1 << bit  # an atom reads a row once in a cell
        start += len(key)
    return PlacedRows(merged // grid.cells, merged % grid.cells, roles)


def find_cells(atom: int, columns: Columns, grid: Grid) -> tuple[Integers, Integers]:
    """Find the cells of rows for one atom; return positions of rows and their cells, by rows."""
    shares, one = grid.shares, grid.shares.atoms[atom]
    rows = len(columns[0])
    home = np.zeros(rows, np.int64)
    # For each row the number of its list of offsets, in the order of creation.
    choice = np.zeros(rows, np.int64)
    lists: list[list[int]] = [grid.offsets(one)]
    for name in one.columns:
        share, stride = shares.parts[name], grid.strides[name]
        if share == 1:
            continue
        number = grid.numbers[name]
        hashes = hash_values([columns[column] for column in shares.columns(one, name)], number)
        coordinate = hashes % share
        groups = grid.groups(name)
        kinds = np.zeros(rows, np.int64)
        extended = list(lists)
        for kind, heavy in enumerate(groups, 1):
            mine = np.isin(hashes, np.array(heavy.hashes, np.int64))
            kinds[mine] = kind
            if heavy.parts[atom] > 1:
                chosen = [_filter(column, mine) for column in columns]
                digits = xxhash64(chosen, number + DIGIT_SEED, atom) % heavy.parts[atom]
                coordinate[mine] = digits * heavy.stride(atom)
            else:
                coordinate[mine] = 0
            spread = [stride * other for other in heavy.coordinates_of_digit_0(atom)]
            extended += [[a + b for a in offsets for b in spread] for offsets in lists]
        home += coordinate * stride
        choice += kinds * len(lists)
        lists = extended
    sizes = np.array([len(offsets) for offsets in lists])[choice]
    firsts = np.cumsum([0, *[len(offsets) for offsets in lists]])[:-1][choice]
    positions = np.repeat(np.arange(rows), sizes)
    within = np.arange(len(positions)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    flat = np.array([offset for offsets in lists for offset in offsets], np.int64)
    return positions, np.repeat(home, sizes) + flat[np.repeat(firsts, sizes) + within]


def _filter(column: pa.Array | pa.ChunkedArray, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return column.filter(pa.array(mask))
