"""Migrate the state of a stage from the cells of one grid to the cells of another.

::

    cells of the old grid  -- gather_state ->  each row once  -- scatter_state ->  cells of the new

A row of a join's relation has a copy in several cells. The copy in its first cell by the old grid
is read, and is written to all of its cells by the new grid. The state that another operator keeps
for a key (sums, sets, ordered rows) is in one cell, and is written to one new cell; each trace of
such an operator begins with the columns of the key. No operator computes anything again: values
only receive new codes, so the cost is proportional to the state. The state of a recursion is that
of all of its operators: each part is divided by the carried values, or all cells have all of its
rows (`streaming.distributed.planning.divided_recursion`).

The state of an operator is a tuple of parts: for a join the rows of each atom, for another operator
the rows of each of its traces. An operator in one process has the same tuple, which gathering
returns and scattering reads. So the two also convert between cells and one process.

Rows are placed by `streaming.distributed.execution.placement`, which hashes like Spark, so later
rows that Spark routes reach the same cells.

Gathering checks that each row is in a cell of the old grid, and that a row of a join is in all of
its cells. Damaged state, or state of another grid, raises an error and is not spread.

Cells that move to another grid (`streaming.distributed.stage_move`) are gathered one by one: each
reads its own rows (`first_rows`), and the counts of all cells are checked (`check_placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.plan.nodes import TopK
from circuits.state.migration import OperatorState, top_k_input_columns
from streaming.distributed.execution.placement import PlacedRows
from streaming.distributed.execution.stage_rows import place_relation
from streaming.distributed.execution.transport import encode_column
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Relation, Stage
from streaming.errors import StateDamagedError

__all__ = [
    "ORDERED_TRACES",
    "PlacementCounts",
    "check_placement",
    "final_state",
    "first_rows",
    "gather_state",
    "merge_partial_states",
    "partial_state",
    "relation_tables",
    "scatter_state",
]

Integers = npt.NDArray[np.int64]

#: The traces of ordered rows: the rows, and the front.
ORDERED_TRACES: Final = 2


def gather_state(stage: Stage, grid: Grid, states: Mapping[int, OperatorState]) -> OperatorState:
    """Gather the state of a stage, as one operator would have it.

    Args:
        stage: The stage.
        grid: The grid of the cells.
        states: The states of all cells.

    Raises:
        StateDamagedError: A row is missing in one of its cells, or is in a wrong cell.

    Complexity:
        O(copies of rows in all cells).
    """
    if stage.is_recursive and not stage.carried:
        (state,) = states.values()
        return state
    gathered: list[pa.Table | None] = []
    counts: list[PlacementCounts] = []
    for part in range(len(next(iter(states.values())))):
        if stage.carried and stage.state_columns[part] is None:
            common = {n: s[part] for n, s in states.items()}
            given = {n: table for n, table in common.items() if table is not None}
            gathered.append(_common_rows(stage, given) if given else None)
            continue
        tables: list[pa.Table] = []
        counts_of_part = PlacementCounts()
        for cell, state in states.items():
            table = state[part]
            if table is not None:
                table, counts_of_cell = first_rows(stage, part, table, grid, cell)
                tables.append(table)
                counts_of_part = counts_of_part.add(counts_of_cell)
        counts.append(counts_of_part)
        gathered.append(pa.concat_tables(tables) if tables else None)
    check_placement(stage, counts)
    return tuple(gathered)


class PlacementCounts(NamedTuple):
    """Counts of the rows of one part of a stage's state in some cells.

    Attributes:
        copies: The number of rows in these cells.
        misplaced: How many of them are in a wrong cell.
        rows: How many of them are in the first cell of their row.
        expected: The number of copies that these rows have in all cells.
    """

    copies: int = 0
    misplaced: int = 0
    rows: int = 0
    expected: int = 0

    def add(self, other: PlacementCounts) -> PlacementCounts:
        """Return the counts of both groups of cells."""
        return PlacementCounts(*(a + b for a, b in zip(self, other, strict=True)))


def first_rows(
    stage: Stage, part: int, table: pa.Table, grid: Grid, cell: int
) -> tuple[pa.Table, PlacementCounts]:
    """Return the rows of a part of the state of a cell of which the cell is the first one.

    The front of the part of a group is not that of the group, so a partial stage has none.

    Args:
        stage: The stage.
        part: The part.
        table: Its rows in the cell.
        grid: The grid of the cells.
        cell: The cell.

    Complexity:
        O(rows · copies of a row).
    """
    if stage.is_partial and part:
        return table.slice(0, 0), PlacementCounts()
    if stage.carried and stage.state_columns[part] is None:  # all cells have all rows
        if cell:
            return table.slice(0, 0), PlacementCounts(copies=table.num_rows)
        count = table.num_rows
        return table, PlacementCounts(count, rows=count, expected=count * grid.cells)
    placed = _place(stage, part, table, grid)
    count = table.num_rows
    first_cell_of_row = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_cell_of_row, placed.rows, placed.cells)
    cells_of_row = np.bincount(placed.rows, minlength=count)
    own_cells_of_row = np.bincount(placed.rows, placed.cells == cell, minlength=count)
    first = np.flatnonzero(first_cell_of_row == cell)
    counts = PlacementCounts(
        count, int((own_cells_of_row != 1).sum()), len(first), int(cells_of_row[first].sum())
    )
    return table.take(pa.array(first)), counts


def check_placement(stage: Stage, counts_of_parts: Iterable[PlacementCounts]) -> None:
    """Check that each row is in its cells, and in all of them.

    Args:
        stage: The stage.
        counts_of_parts: For each part of the state, the sum of the counts of all cells.

    Raises:
        StateDamagedError: A copy is in a wrong cell, or a row lacks a copy.
    """
    for counts in counts_of_parts:
        if counts.misplaced or counts.expected != counts.copies:
            raise StateDamagedError(
                f"stage {stage.number}: {counts.misplaced} of {counts.copies} rows are in the "
                f"wrong cells, and there are {counts.copies} copies of {counts.rows} rows instead "
                f"of {counts.expected}: the state does not match its layout; restore the state "
                "directory from a copy"
            )


def scatter_state(stage: Stage, grid: Grid, state: OperatorState) -> Iterable[OperatorState]:
    """Yield the state of each cell of a grid, in the order of the cells.

    Args:
        stage: The stage.
        grid: The grid of the cells.
        state: The state of the stage, as `gather_state` returns it.

    Complexity:
        O(rows in all cells), and sorting the pairs of a row and a cell.
    """
    if stage.is_recursive and not stage.carried:
        yield state
        return
    partitions: list[_Partition | None] = []
    for part, table in enumerate(state):
        if table is None:
            partitions.append(None)
            continue
        if stage.carried and stage.state_columns[part] is None:
            partitions.append(_Partition(table, None, None))
            continue
        placed = _place(stage, part, table, grid)
        order = np.argsort(placed.cells, kind="stable")
        starts = np.searchsorted(placed.cells[order], np.arange(grid.cells + 1)).astype(np.int64)
        partitions.append(_Partition(table, placed.rows[order], starts))
    for cell in range(grid.cells):
        yield tuple(
            None if partition is None else partition.rows_of_cell(cell) for partition in partitions
        )


def partial_state(stage: Stage, state: OperatorState, index: int) -> OperatorState:
    """Return the state of a partial stage.

    Args:
        stage: The final stage.
        state: The state of the operator in one process.
        index: The position of the partial stage in ``stage.partial_stages``.
    """
    first = len(state) - ORDERED_TRACES * (len(stage.partial_stages) - index)
    rows, front = state[first : first + ORDERED_TRACES]
    assert rows is not None and front is not None
    return rows, front.slice(0, 0)


def final_state(
    stage: Stage, state: OperatorState, selected_rows: Sequence[pa.Table]
) -> OperatorState:
    """Return the state of a final stage.

    Args:
        stage: The final stage.
        state: The state of the operator in one process, or that of the final stage with other
            cells of the partial stages.
        selected_rows: For each partial stage, the rows that its cells have emitted.
    """
    ordered_count = ORDERED_TRACES * len(stage.partial_stages)
    sums, ordered = state[: len(state) - ordered_count], state[len(state) - ordered_count :]
    fronts = [front.slice(0, 0) for front in ordered[1::ORDERED_TRACES] if front is not None]
    pairs = zip(selected_rows, fronts, strict=True)
    return *sums, *(table for pair in pairs for table in pair)


def merge_partial_states(
    stage: Stage, state: OperatorState, partial_states: Sequence[OperatorState]
) -> OperatorState:
    """Return the state of the operator in one process.

    Args:
        stage: The final stage; for any other stage, the state is returned as it is.
        state: The state of the final stage.
        partial_states: The states of its partial stages.
    """
    sums = state[: len(state) - ORDERED_TRACES * len(stage.partial_stages)]
    return *sums, *(table for partial in partial_states for table in partial)


def relation_tables(stage: Stage, state: OperatorState) -> dict[str, pa.Table]:
    """Return the rows of a join's relations by name, in the transport encoding, weights last.

    All atoms of a relation have the same rows, so one of them is enough.

    Args:
        stage: The stage; the result is empty if it is not a join.
        state: The state of the stage, as `gather_state` returns it.
    """
    return {
        atom.relation: pa.table([*map(encode_column, table.columns)], table.column_names)
        for atom, table in zip(stage.atoms, state, strict=False)
        if table is not None
    }


class _Partition(NamedTuple):
    """A table, and the positions of its rows by cell: ``starts[c]`` is where cell ``c`` begins.

    Without positions, all cells have all rows.
    """

    table: pa.Table
    positions: Integers | None
    starts: Integers | None

    def rows_of_cell(self, cell: int) -> pa.Table:
        if self.positions is None or self.starts is None:
            return self.table
        return self.table.take(pa.array(self.positions[self.starts[cell] : self.starts[cell + 1]]))


def _place(stage: Stage, part: int, rows: pa.Table, grid: Grid) -> PlacedRows:
    """Return the cells of the rows of one part of a stage's state."""
    if stage.carried:
        columns_of_part = stage.state_columns[part]
        assert columns_of_part is not None
        relation = next(relation for relation in stage.relations if relation.keys)
        columns = _keyed_columns(relation, rows, columns_of_part)
        return place_relation(relation.name, columns, grid, rows.num_rows)
    if not stage.atoms:
        relation = stage.relation_of_part(part)
        if stage.is_partial:
            assert isinstance(stage.plan, TopK)
            columns = [encode_column(column) for column in top_k_input_columns(stage.plan, rows)]
        else:
            columns = _keyed_columns(relation, rows, range(len(relation.keys or ())))
        return place_relation(relation.name, columns, grid, rows.num_rows)
    atom = stage.atoms[part]
    (relation,) = (other for other in stage.relations if other.name == atom.relation)
    columns = [encode_column(rows.column(position)) for position in range(len(relation.fields))]
    placed = place_relation(relation.name, columns, grid, rows.num_rows)
    # A cell may need a row for another atom only, which its roles show: a bit for each atom that
    # reads the relation.
    atoms_of_relation = [n for n, a in enumerate(stage.atoms) if a.relation == atom.relation]
    role_bit = atoms_of_relation.index(part)
    matches = (placed.roles >> role_bit & 1) == 1
    return PlacedRows(placed.rows[matches], placed.cells[matches], placed.roles[matches])


def _keyed_columns(
    relation: Relation, rows: pa.Table, positions: Sequence[int]
) -> list[pa.ChunkedArray]:
    """Return the columns of a relation for rows of a trace.

    The columns that are not keys are NULL.

    Args:
        relation: The relation.
        rows: The rows.
        positions: For each key, the column of the rows that has its values.
    """
    assert relation.keys is not None
    nulls = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    columns = [nulls] * len(relation.fields)
    for position, key in zip(positions, relation.keys, strict=True):
        # Exported columns of texts and the like have values, not codes, and are encoded here. The
        # others, such as integers, already are as they are sent.
        columns[key] = encode_column(rows.column(position))
    return columns


def _common_rows(stage: Stage, tables: Mapping[int, pa.Table]) -> pa.Table:
    """Return the rows that all cells have.

    Raises:
        StateDamagedError: The cells have different numbers of rows, or of weights.
    """
    sums = {
        (table.num_rows, sum(table.column(table.num_columns - 1).to_numpy().tolist()))
        for table in tables.values()
    }
    if len(sums) > 1:
        raise StateDamagedError(
            f"stage {stage.number}: its cells have different rows of a relation of which each cell "
            "has all rows: the state does not match its layout; restore the state directory from "
            "a copy"
        )
    return next(iter(tables.values()))
