"""Migrate the state of a stage from the cells of one grid to the cells of another.

::

    cells of the old grid  -- gather_state ->  each row once  -- scatter_state ->  cells of the new

A row of a join's relation is in several cells. It is read from the first of them by the old grid,
and written to all of its cells by the new grid. The state that other operators keep for a key
(sums, sets, ordered rows) is in one cell, and is written to one new cell; the key is in the first
columns of each of their traces. Only codes are computed again, so the cost is proportional to the
state.

The state of an operator is a tuple of parts: for a join the rows of each atom, for another operator
the rows of each of its traces. The state of one process is the result of gathering and the input of
scattering, so it migrates in the same way. Rows are placed by
`streaming.distributed.execution.placement`, which hashes like Spark, so later rows that Spark
routes reach the same cells.

Gathering checks that each row is in a cell of the old grid, and that a row of a join is in all of
its cells. Damaged state, or state of another grid, raises an error and is not spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.state.migration import OperatorState
from streaming.distributed.execution.placement import PlacedRows
from streaming.distributed.execution.stage_rows import place_relation
from streaming.distributed.execution.transport import encode_column
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Relation, Stage
from streaming.errors import StateDamagedError

__all__ = ["gather_state", "merge_relations", "scatter_state"]

Integers = npt.NDArray[np.int64]


def gather_state(stage: Stage, grid: Grid, states: Mapping[int, OperatorState]) -> OperatorState:
    """Gather the state of a stage, as one operator would have it.

    Args:
        stage: The stage.
        grid: The grid of the cells.
        states: The states of all cells.

    Raises:
        StateDamagedError: A row is missing in one of its cells, or is in a wrong cell.

    Complexity:
        O(rows in all cells), and sorting the pairs of a row and a cell.
    """
    parts = len(next(iter(states.values())))
    gathered: dict[int, pa.Table | None] = {}
    for part in range(parts):
        state_of_cell = {cell: state[part] for cell, state in states.items()}
        tables = {cell: table for cell, table in state_of_cell.items() if table is not None}
        if not tables:
            gathered[part] = None
            continue
        cells = np.repeat([*tables], [table.num_rows for table in tables.values()])
        rows = pa.concat_tables(tables.values())
        placed = _place(stage, part, rows, grid)
        gathered[part] = rows.take(pa.array(_first_copies(stage, placed, cells)))
    return tuple(gathered[part] for part in range(parts))


def scatter_state(stage: Stage, grid: Grid, state: OperatorState) -> Iterable[OperatorState]:
    """Yield the state of each cell of a grid, in the order of the cells.

    Args:
        stage: The stage.
        grid: The grid of the cells.
        state: The state of the stage, as `gather_state` returns it.

    Complexity:
        O(rows in all cells), and sorting the pairs of a row and a cell.
    """
    placed_tables: list[tuple[pa.Table, Integers, Integers] | None] = []
    for part, table in enumerate(state):
        if table is None:
            placed_tables.append(None)
            continue
        placed = _place(stage, part, table, grid)
        order = np.argsort(placed.cells, kind="stable")
        ends = np.searchsorted(placed.cells[order], np.arange(grid.cells + 1)).astype(np.int64)
        placed_tables.append((table, placed.rows[order], ends))
    for cell in range(grid.cells):
        yield tuple(
            None if entry is None else _rows_of_cell(*entry, cell) for entry in placed_tables
        )


def merge_relations(stage: Stage, state: OperatorState) -> dict[str, pa.Table]:
    """Return the rows of a join's relations by name, in the transport encoding, weights last.

    Args:
        stage: The stage; the result is empty if it is not a join.
        state: The state of the stage, as `gather_state` returns it.
    """
    return {
        atom.relation: pa.table([*map(encode_column, table.columns)], table.column_names)
        for atom, table in zip(stage.atoms, state, strict=False)
        if table is not None
    }


def _rows_of_cell(table: pa.Table, rows: Integers, ends: Integers, cell: int) -> pa.Table:
    """Return the rows of one cell; ``rows`` lists those of all cells, one cell after another."""
    return table.take(pa.array(rows[ends[cell] : ends[cell + 1]]))


def _place(stage: Stage, part: int, rows: pa.Table, grid: Grid) -> PlacedRows:
    """Return the cells of the rows of one part of a stage's state."""
    if not stage.atoms:
        (relation,) = stage.relations
        return place_relation(relation.name, _keyed_columns(relation, rows), grid, rows.num_rows)
    atom = stage.atoms[part]
    (relation,) = (other for other in stage.relations if other.name == atom.relation)
    columns = [encode_column(rows.column(position)) for position in range(len(relation.fields))]
    placed = place_relation(relation.name, columns, grid, rows.num_rows)
    # The roles of a placed row have one bit for each atom that reads the relation.
    atoms_of_relation = [n for n, a in enumerate(stage.atoms) if a.relation == atom.relation]
    role_bit = atoms_of_relation.index(part)
    matches = (placed.roles >> role_bit & 1) == 1
    return PlacedRows(placed.rows[matches], placed.cells[matches], placed.roles[matches])


def _keyed_columns(relation: Relation, rows: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of a relation for rows of a trace, which begin with its keys.

    The columns that are not keys are NULL.
    """
    assert relation.keys is not None
    nulls = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    columns = [nulls] * len(relation.fields)
    for position, key in enumerate(relation.keys):
        # Exported state has values in place of dictionary codes, and ordered codes unchanged.
        columns[key] = encode_column(rows.column(position))
    return columns


def _first_copies(stage: Stage, placed: PlacedRows, cells: Integers) -> Integers:
    """Return the positions of the rows that are in the first of their cells.

    Args:
        stage: The stage.
        placed: The cells in which each row should be.
        cells: The cell in which each row is.

    Raises:
        StateDamagedError: The rows are not in the cells in which they should be.
    """
    # For each row: the first of its cells, their number, and 1 if the row is in one of them.
    first = np.full(len(cells), np.iinfo(np.int64).max)
    np.minimum.at(first, placed.rows, placed.cells)
    copies = np.bincount(placed.rows, minlength=len(cells))
    matches = np.bincount(placed.rows, placed.cells == cells[placed.rows], minlength=len(cells))
    first_copies = np.flatnonzero(first == cells)
    if not (matches == 1).all() or int(copies[first_copies].sum()) != len(cells):
        expected_copies = int(copies[first_copies].sum())
        raise StateDamagedError(
            f"stage {stage.number}: {int((matches != 1).sum())} of {len(cells)} rows are in the "
            f"wrong cells, and there are {len(cells)} copies of {len(first_copies)} rows instead "
            f"of {expected_copies}: the state does not match its layout; restore the state "
            "directory from a copy"
        )
    return first_copies
