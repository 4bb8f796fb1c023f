"""Pack the rows of all relations of a stage into one table, and unpack them in a cell.

::

    __relation | c0_0 c0_1 … of the first relation | c1_0 … of the second | weight
         0     |  7    8                           | NULL                 |  1

One table is one job and one consistent cut. The columns of other relations are NULL, which costs
one bit each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.schema import WEIGHT
from streaming.distributed.execution.cell import schema_of
from streaming.distributed.execution.placement import Columns, PlacedRows, place_rows
from streaming.distributed.execution.routing import CELL, RELATION, ROLES
from streaming.distributed.execution.transport import decode_column, encode_column, transport_type
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Relation, Stage, atom_name

__all__ = ["columns_of", "pack_relations", "place_relation", "replicate_rows", "split_relations"]


def columns_of(stage: Stage) -> dict[str, list[str]]:
    """The column names of each relation in the packed table."""
    return {
        relation.name: [_column(number, place) for place in range(len(relation.fields))]
        for number, relation in enumerate(stage.relations)
    }


def pack_relations(stage: Stage, tables: Mapping[str, Sequence[pa.Table]]) -> pa.Table:
    """Pack the rows of all relations of a stage into one table.

    Args:
        stage: The stage.
        tables: By relation, tables that sum up to it; columns by position, the last is the weight.
    """
    fields = [pa.field(RELATION, pa.int32())]
    for number, relation in enumerate(stage.relations):
        fields += [
            pa.field(_column(number, place), transport_type(field.type))
            for place, field in enumerate(relation.fields)
        ]
    schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
    parts = [schema.empty_table()]
    for number, relation in enumerate(stage.relations):
        for table in tables.get(relation.name, ()):
            if not table.num_rows:
                continue
            own = {
                _column(number, place): encode_column(table.column(place))
                for place in range(len(relation.fields))
            }
            own[WEIGHT] = table.column(WEIGHT)
            own[RELATION] = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            columns = [
                own[field.name] if field.name in own else pa.nulls(table.num_rows, field.type)
                for field in schema
            ]
            parts.append(pa.table(columns, schema))
    return pa.concat_tables(parts)


def replicate_rows(stage: Stage, rows: pa.Table, grid: Grid) -> pa.Table:
    """Replicate packed rows once for each of their cells, with `CELL` and `ROLES`.

    It runs in the driver, for few rows; `routing.route_rows` does the same on executors.
    """
    parts = []
    numbers = rows.column(RELATION).to_numpy()
    for number, (relation, names) in enumerate(columns_of(stage).items()):
        own = rows.filter(pa.array(numbers == number))
        places = place_relation(relation, [own.column(name) for name in names], grid, own.num_rows)
        copies = own.take(pa.array(places.rows))
        copies = copies.append_column(CELL, pa.array(places.cells, pa.int32()))
        parts.append(copies.append_column(ROLES, pa.array(places.roles, pa.int32())))
    return pa.concat_tables(parts)


def place_relation(relation: str, columns: Columns, grid: Grid, rows: int) -> PlacedRows:
    """Find the cells of the rows of a relation; without columns, all cells receive them.

    Args:
        relation: The name of the relation in the grid's atoms.
        columns: All of its columns, in transport encoding.
        grid: The cells.
        rows: The number of rows.
    """
    if columns:
        return place_rows(relation, columns, grid)
    readers = sum(atom.relation == relation for atom in grid.shares.atoms)
    positions = np.repeat(np.arange(rows), grid.cells)
    roles = np.full(len(positions), (1 << readers) - 1)
    return PlacedRows(positions, np.tile(np.arange(grid.cells), rows), roles)


def split_relations(stage: Stage, rows: pa.Table) -> dict[str, pa.Table]:
    """Split the rows of a cell into the inputs of its circuit: by relation, or by atom of a join.

    Args:
        stage: The stage.
        rows: Rows with the columns of `pack_relations` and `ROLES`.
    """
    tables = {}
    for number, relation in enumerate(stage.relations):
        own = rows.filter(pc.equal(rows.column(RELATION), number))
        if not own.num_rows:
            continue
        if not stage.atoms:
            tables[relation.name] = _narrow(relation, number, own)
            continue
        readers = [n for n, atom in enumerate(stage.atoms) if atom.relation == relation.name]
        for bit, atom in enumerate(readers):
            has_role = pc.not_equal(pc.bit_wise_and(own.column(ROLES), 1 << bit), 0)
            name = atom_name(relation.name, atom)
            tables[name] = _narrow(relation, number, own.filter(has_role))
    return tables


def _column(relation: int, place: int) -> str:
    return f"c{relation}_{place}"


def _narrow(relation: Relation, number: int, rows: pa.Table) -> pa.Table:
    columns = [
        decode_column(rows.column(_column(number, place)), field.type)
        for place, field in enumerate(relation.fields)
    ]
    return pa.table([*columns, rows.column(WEIGHT)], [*schema_of(relation.fields).names, WEIGHT])
