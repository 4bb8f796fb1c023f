"""Assign rows to cells in numpy, exactly as `routing` does in Spark.

A cell is one part of the grid over which a join is distributed; the equations are in
`streaming.distributed.planning.grid`. The tasks of a micro-batch that is one job call this module,
and so do the driver for few rows, everything that moves state to another grid, and simulations of
thousands of cells. Spark's expressions (`routing`) place the many rows that the driver sends to a
stage. Both implementations read the same `Grid` and use the same hash functions, so they send a row
to the same cells.
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
    positions = [n for n, atom in enumerate(grid.shares.atoms) if atom.relation == relation]
    pairs_of_atoms = [find_cells(position, columns, grid) for position in positions]
    if len(pairs_of_atoms) == 1:
        rows, cells = pairs_of_atoms[0]
        return PlacedRows(rows, cells, np.ones(len(rows), np.int64))
    # A pair of row and cell as one number.
    keys = [rows * grid.cells + cells for rows, cells in pairs_of_atoms]
    distinct_keys, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    roles = np.zeros(len(distinct_keys), np.int64)
    start = 0
    for bit, key in enumerate(keys):
        # The pairs of one atom are distinct, so no index occurs twice in this assignment.
        roles[inverse[start : start + len(key)]] |= 1 << bit
        start += len(key)
    return PlacedRows(distinct_keys // grid.cells, distinct_keys % grid.cells, roles)


def find_cells(position: int, columns: Columns, grid: Grid) -> tuple[Integers, Integers]:
    """Find the cells of rows for the atom at a position of the join.

    Returns:
        Pairs of the position of a row and the number of a cell, ordered by row.
    """
    shares, atom = grid.shares, grid.shares.atoms[position]
    rows = len(columns[0])
    home = np.zeros(rows, np.int64)
    # The cells of a row are `home` plus one list of offsets. There is one list for each combination
    # of groups of heavy values; `list_of_row` is the number of a row's list.
    list_of_row = np.zeros(rows, np.int64)
    lists: list[list[int]] = [grid.offsets(atom)]
    for name in atom.columns:
        share, stride = shares.by_variable[name], grid.strides[name]
        if share == 1:
            continue
        variable_number = grid.variable_numbers[name]
        hashes = hash_values(
            [columns[column] for column in shares.columns(atom, name)], variable_number
        )
        coordinate = hashes % share
        # The number of the group that contains the row's value, from 1; 0 for light values.
        group_of_row = np.zeros(rows, np.int64)
        lists_of_groups = list(lists)  # the lists of the rows with light values come first
        for group_number, heavy in enumerate(grid.groups(name), 1):
            in_group = np.isin(hashes, np.array(heavy.hashes, np.int64))
            group_of_row[in_group] = group_number
            count = heavy.splits[position]
            if count > 1:
                heavy_rows = [_filter(column, in_group) for column in columns]
                digits = xxhash64(heavy_rows, variable_number + DIGIT_SEED, position) % count
                coordinate[in_group] = digits * heavy.stride(position)
            else:
                coordinate[in_group] = 0
            heavy_offsets = [stride * k for k in heavy.coordinates_of_digit_0(position)]
            lists_of_groups += [
                [a + b for a in offsets for b in heavy_offsets] for offsets in lists
            ]
        home += coordinate * stride
        list_of_row += group_of_row * len(lists)
        lists = lists_of_groups
    if len(lists) == 1:  # no heavy values
        offsets = np.array(lists[0], np.int64)
        return np.repeat(np.arange(rows), len(offsets)), np.add.outer(home, offsets).ravel()
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
