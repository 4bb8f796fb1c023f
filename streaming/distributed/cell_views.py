"""Cell views: read materialized views from the cells that keep their rows.

::

    stage of a view    cell 0: its rows    cell 1: its rows    …    each row is in one cell
    the view           all rows of all cells

The files of cells never change, so a version can be read while a query writes the next one. A
version can be removed meanwhile; then the newest one has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.schema import Schema
from streaming.distributed.cell_files import open_cell
from streaming.distributed.cell_state import circuit_stages, divide_circuit
from streaming.distributed.execution.cell import OPERATOR, cell_spec
from streaming.distributed.execution.view_deltas import RenamedReader
from streaming.state.cell_versions import CellVersions
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.verified_files import read_state
from streaming.targets.output_mode import PostStepReader

__all__ = ["CellView", "open_cell_view", "read_stored_view"]


@dataclass(frozen=True)
class CellView:
    """Reads a materialized view of a version in cells; a `PostStepReader`.

    Attributes:
        files: The state directory.
        schema: The columns of the view.
        spec: The circuit of the cells that keep its rows.
        manifests: The checksummed manifests of these cells.
    """

    files: Files
    schema: Schema
    spec: CircuitSpec
    manifests: Mapping[int, bytes]

    def rows(self) -> pa.Table:
        """Return the whole view with the column ``weight``; O(bytes of its cells).

        Raises:
            StateDamagedError: A file is missing or damaged.
            StateMismatchError: A cell belongs to another circuit.
        """
        return self._read(lambda cell: cell.rows())

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows whose key is among ``keys``; the files of all cells are read.

        Raises:
            StateError: As `rows`.
        """
        return self._read(lambda cell: cell.rows_of(keys))

    def _read(self, read: Callable[[PostStepReader], pa.Table]) -> pa.Table:
        tables = [self.schema.empty_table]
        for cell, data in sorted(self.manifests.items()):
            circuit = open_cell(self.files, self.spec, data, f"cell {cell} of a view")
            step = circuit.prepare({})
            try:
                reader = RenamedReader(step.after(OPERATOR), self.schema)
                tables.append(read(reader).cast(self.schema.empty_table.schema))
            finally:
                step.abandon()
        return pa.concat_tables(tables)


def open_cell_view(files: Files, circuit: Circuit, cells: CellVersions, view: str) -> CellView:
    """Return the reader of a materialized view of a version in cells.

    Args:
        files: The state directory.
        circuit: The whole circuit of the version.
        cells: The cells of the version.
        view: The view.

    Raises:
        UnknownViewError: The view is unknown or not materialized.
    """
    circuit.views.trace(view)  # an error if the view is unknown or not materialized
    stages = circuit_stages(circuit)
    (stage,) = (stage for stage in stages.stages if stage.view == view)
    manifests = cells.stage_manifests(stage.number)
    return CellView(files, circuit.schema(view), cell_spec(stage, stages), manifests)


def read_stored_view(files: Files, circuit: Circuit, manifest: Manifest, name: str) -> pa.Table:
    """Return a materialized view or input of a version in cells.

    Args:
        files: The state directory.
        circuit: The whole circuit of the version.
        manifest: The version.
        name: The view or input.

    Raises:
        UnknownViewError: It is unknown or not materialized.
        StateError: As `CellView.rows`.

    Complexity:
        O(bytes of the cells of the view), or of the driver's state for an input.
    """
    assert manifest.cells is not None
    if name not in circuit.inputs:
        return open_cell_view(files, circuit, manifest.cells, name).rows()
    driver = Circuit(divide_circuit(circuit)[0])
    driver.load(read_state(files, manifest))
    return driver.views[name]
