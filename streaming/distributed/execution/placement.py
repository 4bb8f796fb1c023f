"""Assign rows to cells in numpy, exactly as `routing` does in Spark.

A cell is one part of the grid over which a join is distributed; the equations are in
`streaming.distributed.planning.grid`. This module is used for few rows, for tools that repartition
state without a session, and for simulations of thousands of cells. Both implementations read the
same `Grid` and use the same hash functions, so they send a row to the same cells.
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

#: Added to the number of a variable to seed the hash function of its digits, which split the rows
#: of a heavy value (`streaming.distributed.planning.grid`).
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
    """Hash the values of a variable; several columns are hashed together.

    Args:
        values: The columns.
        variable: The position of the variable, which determines its hash function.
    """
    return xxhash64(values, variable)


def place_rows(relation: str, columns: Columns, grid: Grid) -> PlacedRows:
    """Find the cells of the rows of a relation.

    Args:
        relation: The name of the relation in the atoms.
        columns: All of its columns, in the order in which atoms number them; at least one.
        grid: The cells.

    Returns:
        Each row once for each of its cells, ordered by row.

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
        # The pairs of one atom are distinct, so no index occurs twice in this assignment.
        roles[inverse[start : start + len(key)]] |= 1 << bit
        start += len(key)
    return PlacedRows(merged // grid.cells, merged % grid.cells, roles)


def find_cells(atom: int, columns: Columns, grid: Grid) -> tuple[Integers, Integers]:
    """Find the cells of rows for one atom, given its position in the join.

    Returns:
        Pairs of the position of a row and the number of a cell, ordered by row.
    """
    shares, join_input = grid.shares, grid.shares.atoms[atom]
    rows = len(columns[0])
    home = np.zeros(rows, np.int64)
    # The cells of a row are `home` plus one list of offsets. There is one list for each combination
    # of groups of heavy values; `list_of_row` is the number of a row's list.
    list_of_row = np.zeros(rows, np.int64)
    lists: list[list[int]] = [grid.offsets(join_input)]
    for name in join_input.columns:
        share, stride = shares.parts[name], grid.strides[name]
        if share == 1:
            continue
        number = grid.variable_numbers[name]
        hashes = hash_values(
            [columns[column] for column in shares.columns(join_input, name)], number
        )
        coordinate = hashes % share
        groups = grid.groups(name)
        # The number of the group that contains the row's value, from 1; 0 for light values.
        group_of_row = np.zeros(rows, np.int64)
        extended = list(lists)
        for group, heavy in enumerate(groups, 1):
            in_group = np.isin(hashes, np.array(heavy.hashes, np.int64))
            group_of_row[in_group] = group
            if heavy.parts[atom] > 1:
                heavy_rows = [_filter(column, in_group) for column in columns]
                digits = xxhash64(heavy_rows, number + DIGIT_SEED, atom) % heavy.parts[atom]
                coordinate[in_group] = digits * heavy.stride(atom)
            else:
                coordinate[in_group] = 0
            spread = [stride * base for base in heavy.coordinates_of_digit_0(atom)]
            extended += [[a + b for a in offsets for b in spread] for offsets in lists]
        home += coordinate * stride
        list_of_row += group_of_row * len(lists)
        lists = extended
    # All lists one after the other; repeat each row for each offset of its list.
    all_offsets = np.array([offset for offsets in lists for offset in offsets], np.int64)
    lengths = np.array([len(offsets) for offsets in lists])
    starts = np.cumsum(lengths) - lengths
    copies = lengths[list_of_row]
    row_positions = np.repeat(np.arange(rows), copies)
    index_in_list = np.arange(len(row_positions)) - np.repeat(np.cumsum(copies) - copies, copies)
    index = np.repeat(starts[list_of_row], copies) + index_in_list
    return row_positions, np.repeat(home, copies) + all_offsets[index]


def _filter(column: pa.Array | pa.ChunkedArray, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return column.filter(pa.array(mask))
