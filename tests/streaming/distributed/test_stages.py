"""Stages in cells, run in this process: their deltas add up to those of the embedded circuit.

This file sends rows by its own hash; the routing of Spark is tested with Spark.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_sql
from circuits.runtime.incrementalize import incrementalize
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution import cell
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import JoinAtom, choose_shares
from streaming.distributed.planning.stages import Relation, Stage, atom_name, cut_stages
from tests.circuits.sql.test_sql_circuits import SCHEMAS, World, _comparable, _rows
from tests.generators.sql_generator import selects

Row = tuple[Any, ...]


class Distributed:
    """A circuit in stages, each in cells; all cells are in this process."""

    def __init__(self, circuit: Circuit, cells: int) -> None:
        fields = {name: schema.fields for name, schema in circuit.inputs.items()}
        self.stages = cut_stages(incrementalize(circuit.plans, fields))
        self.outputs = circuit.outputs
        self.grids = [self._grid(stage, cells) for stage in self.stages.stages]
        self.cells = [
            [Circuit(cell.cell_spec(stage, self.stages)) for _ in range(grid.cells)]
            for stage, grid in zip(self.stages.stages, self.grids, strict=True)
        ]
        self.driver = Circuit(cell.driver_spec(circuit.spec, self.stages))

    def _grid(self, stage: Stage, cells: int) -> Grid:
        if stage.atoms:
            return Grid(choose_shares(stage.atoms, cells))
        (relation,) = stage.relations
        assert relation.keys is not None
        atom = JoinAtom(relation.name, {f"k{key}": key for key in relation.keys})
        return Grid(choose_shares([atom], cells))

    def step(self, tables: dict[str, pa.Table]) -> dict[str, dict[Row, int]]:
        sent: dict[str, list[pa.Table]] = {}

        def take(outputs: dict[str, pa.Table]) -> None:
            for name, result in cell.group_by_destination(outputs).items():
                sent.setdefault(name, []).extend(result)

        take(self.driver.step(tables))
        for stage, grid, circuits in zip(self.stages.stages, self.grids, self.cells, strict=True):
            parts: list[dict[str, list[Row]]] = [{} for _ in circuits]
            for relation in stage.relations:
                for table in sent.get(f"relation {relation.name}", []):
                    _send(table, relation, stage, grid, parts)
            for circuit, part in zip(circuits, parts, strict=True):
                rows = {
                    name: _table(rows, circuit.inputs[name].arrow) for name, rows in part.items()
                }
                take(circuit.step(rows))
        return {name: _summed(sent.get(f"view {name}", [])) for name in self.outputs}


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema,
    )


def _send(
    table: pa.Table,
    relation: Relation,
    stage: Stage,
    grid: Grid,
    parts: list[dict[str, list[Row]]],
) -> None:
    atoms = grid.shares.atoms
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        for position, atom in enumerate(atoms):
            if atom.relation != relation.name:
                continue
            name = atom_name(atom.relation, position) if stage.atoms else relation.name
            coordinates = {
                v: hash((v, _comparable((row[column],)))) % grid.shares.by_variable[v]
                for v, column in atom.columns.items()
            }
            home = grid.home(atom, coordinates)
            for offset in grid.offsets(atom):
                parts[home + offset].setdefault(name, []).append(row)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_cells_of_stages_add_up_to_the_embedded_circuit(data):
    cells = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12]))
    text = data.draw(selects())
    embedded = compile_sql(text, SCHEMAS)
    distributed = Distributed(compile_sql(text, SCHEMAS), cells)
    world = World()
    for _ in range(data.draw(st.integers(1, 3))):
        tables = world.change(data.draw)
        expected = embedded.step(tables)
        actual = distributed.step(tables)
        for name, table in expected.items():
            assert _summed([table]) == actual[name], text


def test_tasks_send_few_rows_of_a_hub_for_sums_and_means():
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    text = "SELECT src, count(*) AS n, sum(dst) AS s, avg(dst) AS a FROM e GROUP BY src"
    stages = circuit_stages(compile_sql(text, {"e": schema}))
    spec = cell.source_spec(compile_sql(text, {"e": schema}).spec, stages)
    assert spec.options.threads == 1
    sources = [0] * 1000 + [*range(1, 11)]
    edges = pa.table({"src": sources, "dst": range(len(sources))}, schema)
    (sent,) = Circuit(spec).step({"e": edges}).values()
    assert sent.num_rows == 2 * 11  # for each source, the number of rows and the sum


def _summed(tables: list[pa.Table]) -> dict[Row, int]:
    result: Counter[Row] = Counter()
    for table in tables:
        for *row, weight in _rows(table):
            result[_comparable(tuple(row))] += weight
    return {row: weight for row, weight in result.items() if weight}
