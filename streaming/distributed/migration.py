"""Migrate the state of a stage from the cells of one grid to the cells of another.

::

    cells of the old grid  -- gather_state ->  each row once  -- scatter_state ->  cells of the new

A row of a join's relation is in several cells. It is read from the first of them by the old grid,
and written to all of its cells by the new grid. The state that other operators keep for a key
(sums, sets, ordered rows) is in one cell, and is written to one new cell; the key is in the first
columns of each of their traces. Only codes are computed again, so the cost is proportional to the
state.

The state of one process is the result of gathering and the input of scattering, so it migrates in
the same way. Rows are placed by `streaming.distributed.execution.placement`, which hashes like
Spark, so later rows that Spark routes reach the same cells.

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
    found: dict[int, pa.Table | None] = {}
    for part in range(parts):
        kept = {cell: state[part] for cell, state in states.items()}
        tables = {cell: table for cell, table in kept.items() if table is not None}
        if not tables:
            found[part] = None
            continue
        cells = np.repeat([*tables], [table.num_rows for table in tables.values()])
        rows = pa.concat_tables(tables.values())
        places = _places(stage, part, rows, grid)
        found[part] = rows.take(pa.array(_first_copies(stage, places, cells)))
    return tuple(found[part] for part in range(parts))


def scatter_state(stage: Stage, grid: Grid, whole: OperatorState) -> Iterable[OperatorState]:
    """The state of each cell of a grid, in their order.

    Args:
        stage: The stage.
        grid: That of the cells.
        whole: As `gather_state` gives it.

    Complexity:
        O(rows in all cells), and sorting the pairs of a row and a cell.
    """
    sent: list[tuple[pa.Table, Integers, Integers] | None] = []
    for part, table in enumerate(whole):
        if table is None:
            sent.append(None)
            continue
        places = _places(stage, part, table, grid)
        order = np.argsort(places.cells, kind="stable")
        ends = np.searchsorted(places.cells[order], np.arange(grid.cells + 1)).astype(np.int64)
        sent.append((table, places.rows[order], ends))
    for cell in range(grid.cells):
        yield tuple(
            None if one is None else one[0].take(pa.array(one[1][one[2][cell] : one[2][cell + 1]]))
            for one in sent
        )


def merge_relations(stage: Stage, whole: OperatorState) -> dict[str, pa.Table]:
    """The rows of a join's relations as they are on the wire, by name, weights last.

    Args:
        stage: The stage; other ones than joins have none.
        whole: As `gather_state` gives it.
    """
    return {
        atom.relation: pa.table([*map(encode_column, table.columns)], table.column_names)
        for atom, table in zip(stage.atoms, whole, strict=False)
        if table is not None
    }


def _places(stage: Stage, part: int, rows: pa.Table, grid: Grid) -> PlacedRows:
    """The cells of rows of one part of a stage's state."""
    if not stage.atoms:
        (relation,) = stage.relations
        return place_relation(relation.name, _keyed_columns(relation, rows), grid, rows.num_rows)
    atom = stage.atoms[part]
    (relation,) = (one for one in stage.relations if one.name == atom.relation)
    columns = [encode_column(rows.column(place)) for place in range(len(relation.fields))]
    found = place_relation(relation.name, columns, grid, rows.num_rows)
    bit = [n for n, one in enumerate(stage.atoms) if one.relation == atom.relation].index(part)
    mine = (found.roles >> bit & 1) == 1
    return PlacedRows(found.rows[mine], found.cells[mine], found.roles[mine])


def _keyed_columns(relation: Relation, rows: pa.Table) -> list[pa.ChunkedArray]:
    """The columns of a relation by rows of a trace, which begin with its keys."""
    assert relation.keys is not None
    nothing = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    columns = [nothing] * len(relation.fields)
    for place, key in enumerate(relation.keys):
        # Ordered codes are what the wire has; codes of tables have become values.
        columns[key] = encode_column(rows.column(place))
    return columns


def _first_copies(stage: Stage, places: PlacedRows, cells: Integers) -> Integers:
    """Which rows are in the first of their cells.

    Args:
        stage: The stage.
        places: Where each row should be.
        cells: Where it is.
    """
    first = np.full(len(cells), np.iinfo(np.int64).max)
    np.minimum.at(first, places.rows, places.cells)
    wanted = np.bincount(places.rows, minlength=len(cells))
    here = np.bincount(places.rows, places.cells == cells[places.rows], minlength=len(cells))
    kept = np.flatnonzero(first == cells)
    if not (here == 1).all() or int(wanted[kept].sum()) != len(cells):
        raise StateDamagedError(
            f"stage {stage.number}: {int((here != 1).sum())} of {len(cells)} rows are in cells "
            f"that do not want them, and there are {len(cells)} copies of {len(kept)} rows instead "
            f"of {int(wanted[kept].sum())}: the state is not what its layout says; restore the "
            "state directory from a copy"
        )
    return kept
