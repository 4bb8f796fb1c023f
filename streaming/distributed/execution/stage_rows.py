"""Pack the rows of all relations of a stage into one table, and unpack them in a cell.

A stage is one operator distributed over cells; it reads relations of other stages or inputs. The
table has the columns of all its relations::

    __relation | c0_0 c0_1 … of the first relation | c1_0 … of the second | weight
         0     |  7    8                           | NULL                 |  1

One table needs only one Spark job, and all of its rows belong to one micro-batch. In each row the
columns of the other relations are NULL, which costs one bit each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.schema import WEIGHT
from circuits.types.arrow_types import empty_table
from streaming.distributed.execution.cell import schema_of
from streaming.distributed.execution.packets import find_groups, sort_positions
from streaming.distributed.execution.placement import Columns, PlacedRows, place_rows
from streaming.distributed.execution.routing import CELL, RELATION, ROLES
from streaming.distributed.execution.transport import decode_column, encode_column, transport_type
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Relation, Stage, atom_name

__all__ = [
    "columns_of",
    "count_relations",
    "divide_by_cell",
    "pack_relations",
    "place_relation",
    "replicate_rows",
    "split_columns",
    "split_relations",
]


def columns_of(stage: Stage) -> dict[str, list[str]]:
    """Return the column names of each relation in the packed table."""
    return {
        relation.name: [_column(number, position) for position in range(len(relation.fields))]
        for number, relation in enumerate(stage.relations)
    }


def pack_relations(stage: Stage, tables: Mapping[str, Sequence[pa.Table]]) -> pa.Table:
    """Pack the rows of all relations of a stage into one table.

    Args:
        stage: The stage.
        tables: For each relation, tables that sum up to it. The order of the columns is that of
            the relation, and the weight is the last column.
    """
    fields = [pa.field(RELATION, pa.int32())]
    for number, relation in enumerate(stage.relations):
        fields += [
            pa.field(_column(number, position), transport_type(field.type))
            for position, field in enumerate(relation.fields)
        ]
    schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
    parts = [empty_table(schema)]
    for number, relation in enumerate(stage.relations):
        for table in tables.get(relation.name, ()):
            if not table.num_rows:
                continue
            column_of = {
                _column(number, position): encode_column(table.column(position))
                for position in range(len(relation.fields))
            }
            column_of[WEIGHT] = table.column(WEIGHT)
            column_of[RELATION] = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            columns = [
                column_of[field.name]
                if field.name in column_of
                else pa.nulls(table.num_rows, field.type)
                for field in schema
            ]
            parts.append(pa.table(columns, schema))
    return pa.concat_tables(parts)


def count_relations(stage: Stage, rows: pa.Table) -> dict[str, int]:
    """Count the packed rows of each relation of a stage."""
    counts = np.bincount(rows.column(RELATION).to_numpy(), minlength=len(stage.relations))
    return {
        relation.name: count
        for relation, count in zip(stage.relations, counts.tolist(), strict=True)
    }


def split_columns(stage: Stage, rows: pa.Table) -> dict[str, pa.Table]:
    """Return the packed rows of each relation, in transport encoding and without weights."""
    numbers = rows.column(RELATION)
    return {
        relation: rows.filter(pc.equal(numbers, number)).select(names)
        for number, (relation, names) in enumerate(columns_of(stage).items())
    }


def replicate_rows(stage: Stage, rows: pa.Table, grid: Grid) -> pa.Table:
    """Replicate packed rows once for each of their cells, with `CELL` and `ROLES`.

    The tasks of a job call this for slices of their rows (`job_tasks.JobPlan.divide`), and the
    driver for few rows. `routing.route_rows` does the same with Spark's expressions.
    """
    placed_fields = [pa.field(CELL, pa.int32()), pa.field(ROLES, pa.int32())]
    parts = [empty_table(pa.schema([*rows.schema, *placed_fields]))]
    numbers = rows.column(RELATION).to_numpy()
    for number, (relation, names) in enumerate(columns_of(stage).items()):
        relation_rows = _filter(rows, numbers == number)
        if not relation_rows.num_rows:
            continue
        placed = place_relation(
            relation, [relation_rows.column(name) for name in names], grid, relation_rows.num_rows
        )
        copies = relation_rows
        if not _is_range(placed.rows, relation_rows.num_rows):  # else each row has one cell
            copies = relation_rows.take(pa.array(placed.rows))
        copies = copies.append_column(CELL, pa.array(placed.cells, pa.int32()))
        parts.append(copies.append_column(ROLES, pa.array(placed.roles, pa.int32())))
    return pa.concat_tables(parts)


def place_relation(relation: str, columns: Columns, grid: Grid, rows: int) -> PlacedRows:
    """Find the cells of the rows of a relation.

    A relation without columns, such as one side of a cross join, is sent to all cells.

    Args:
        relation: The name of the relation in the grid's atoms.
        columns: All of its columns, in transport encoding.
        grid: The cells.
        rows: The number of rows.
    """
    if columns:
        return place_rows(relation, columns, grid)
    atom_count = sum(atom.relation == relation for atom in grid.shares.atoms)
    positions = np.repeat(np.arange(rows), grid.cells)
    roles = np.full(len(positions), (1 << atom_count) - 1)  # a bit for each atom
    return PlacedRows(positions, np.tile(np.arange(grid.cells), rows), roles)


def divide_by_cell(rows: pa.Table) -> dict[int, pa.Table]:
    """Return the rows of each cell, by its number; cells without rows are left out.

    Batches are sorted one by one, because a sorted table could have more than 2 GiB of texts in one
    array.

    Args:
        rows: Rows with `CELL`.

    Complexity:
        O(rows) if the rows of each batch are sorted by cell; else as `sort_positions`.

    >>> rows = divide_by_cell(pa.table({CELL: pa.array([2, 0, 2], pa.int32()), "x": [5, 6, 7]}))
    >>> {cell: of_cell.column("x").to_pylist() for cell, of_cell in rows.items()}
    {0: [6], 2: [5, 7]}
    """
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in rows.to_batches():
        cells = batch.column(CELL).to_numpy()
        if not (cells[1:] >= cells[:-1]).all():  # else the sender has sorted them (`pack_rows`)
            order = sort_positions(cells)
            batch, cells = batch.take(pa.array(order)), cells[order]
        for cell, start, end in find_groups(cells):
            parts.setdefault(cell, []).append(batch.slice(start, end - start))
    return {cell: pa.Table.from_batches(batches) for cell, batches in parts.items()}


def split_relations(stage: Stage, rows: pa.Table) -> dict[str, pa.Table]:
    """Split the rows of a cell into the inputs of its circuit: by relation, or by atom of a join.

    The rows arrive in many small parts, each of which would be encoded on its own. So they are
    copied into one, for one cell at a time.

    Args:
        stage: The stage.
        rows: Rows with the columns of `pack_relations` and `ROLES`.
    """
    tables = {}
    rows = rows.combine_chunks()
    numbers = rows.column(RELATION).to_numpy()
    for number, relation in enumerate(stage.relations):
        relation_rows = _filter(rows, numbers == number)
        if not relation_rows.num_rows:
            continue
        if not stage.atoms:
            tables[relation.name] = _relation_table(relation, number, relation_rows)
            continue
        positions = [n for n, atom in enumerate(stage.atoms) if atom.relation == relation.name]
        roles = relation_rows.column(ROLES).to_numpy()
        for bit, position in enumerate(positions):
            atom_rows = _filter(relation_rows, roles & (1 << bit) != 0)
            name = atom_name(relation.name, position)
            tables[name] = _relation_table(relation, number, atom_rows)
    return tables


def _filter(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a mask, without a copy if it has all or none of them."""
    if mask.all():
        return rows
    return rows.filter(pa.array(mask)) if mask.any() else rows.slice(0, 0)


def _is_range(positions: npt.NDArray[np.int64], count: int) -> bool:
    """Return whether the positions are 0, 1, …, count - 1."""
    return len(positions) == count and bool((positions == np.arange(count)).all())


def _column(relation: int, position: int) -> str:
    return f"c{relation}_{position}"


def _relation_table(relation: Relation, number: int, rows: pa.Table) -> pa.Table:
    columns = [
        decode_column(rows.column(_column(number, position)), field.type)
        for position, field in enumerate(relation.fields)
    ]
    return pa.table([*columns, rows.column(WEIGHT)], [*schema_of(relation.fields).names, WEIGHT])
