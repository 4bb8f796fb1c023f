"""The cells of one stage in a state directory: read their state, and write it for another grid.

Tasks write the state of a cell step by step (`streaming.distributed.execution.task`). This module
writes a whole state at once, when it is repartitioned: `repartition` converts it from an old grid
to a new one. Existing files are not changed; new files have new names, and are not part of the
state until a manifest names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from circuits.circuit import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import (
    OperatorState,
    StateImport,
    export_recursion,
    export_selected_rows,
    export_state,
    find_recursion,
    find_stateful_operator,
    recursion_nodes,
)
from streaming.distributed.migration import gather_state, scatter_state
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Stage
from streaming.errors import StateDamagedError, StateMismatchError
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest
from streaming.state.verified_files import read_state
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = ["StageCells"]


@dataclass
class StageCells:
    """The cells of a stage.

    Attributes:
        files: The state directory.
        state_id: Its id.
        stage: The stage.
        spec: The circuit of its cells.
        writers: The writers of the new files, to undo them if something fails later.
        is_moved: True if the state has been repartitioned.
        moved_rows: The number of repartitioned rows, each counted once.
    """

    files: Files
    state_id: str
    stage: Stage
    spec: CircuitSpec
    writers: list[Writer] = field(default_factory=list)
    is_moved: bool = False
    moved_rows: int = 0

    def read(self, grid: Grid, manifests: Mapping[int, bytes]) -> OperatorState:
        """Read the state of the stage, as one operator would have it.

        Args:
            grid: The grid of the cells.
            manifests: The checksummed manifest of each cell.

        Raises:
            StateDamagedError: A cell or a file is missing or damaged, or a row is in a wrong cell.
            StateMismatchError: A cell belongs to another circuit.
        """
        missing = set(range(grid.cells)) - manifests.keys()
        if missing:
            raise StateDamagedError(
                f"stage {self.stage.number} has {grid.cells} cells, and the version has no state "
                f"of {', '.join(map(str, sorted(missing)))}: restore the state directory from a "
                "copy"
            )
        states = {
            cell: _export(self.stage, self._open(cell, manifests[cell]))
            for cell in range(grid.cells)
        }
        return gather_state(self.stage, grid, states)

    def read_selected_rows(self, manifests: Mapping[int, bytes]) -> pa.Table:
        """Return the sum of the rows that the cells of a partial stage have emitted.

        Args:
            manifests: The checksummed manifest of each cell.

        Raises:
            StateDamagedError: A cell or a file is missing or damaged.
            StateMismatchError: A cell belongs to another circuit.
        """
        # A generator, so that the circuits of two cells are not in memory at the same time.
        circuits = (self._open(cell, manifests[cell]) for cell in sorted(manifests))
        return pa.concat_tables(
            export_selected_rows(circuit, find_stateful_operator(circuit)) for circuit in circuits
        )

    def _open(self, cell: int, data: bytes) -> Circuit:
        """Return the circuit of a cell with its state."""
        manifest = read_cell_manifest(data)
        circuit = Circuit(self.spec)
        if manifest.fingerprint != circuit.fingerprint:
            raise StateMismatchError(
                f"cell {cell} of stage {self.stage.number} belongs to another circuit than "
                "this version compiles the views to: use the version that wrote the state; or "
                "convert the state with that version, dbsp-wcoj rescale STATE --embedded"
            )
        circuit.load(read_state(self.files, manifest))
        return circuit

    def write(
        self, grid: Grid, state_of_stage: OperatorState, *, batch_id: int, steps: int
    ) -> dict[int, bytes]:
        """Write the state of the stage in the cells of a grid; return their manifests.

        Args:
            grid: The grid of the cells.
            state_of_stage: The state, as `read` returns it.
            batch_id: The version.
            steps: The number of steps that produced the state.

        Raises:
            StateDamagedError: The written state differs when it is read back.
            OSError: The file system failed.
        """
        manifests = {}
        for cell, state in enumerate(scatter_state(self.stage, grid, state_of_stage)):
            manifests[cell] = self._write_cell(cell, state, batch_id, steps)
        self._check(state_of_stage, self.read(grid, manifests))
        self.record_moved(state_of_stage)
        return manifests

    def repartition(
        self,
        old_grid: Grid,
        choose_grid: Callable[[OperatorState], Grid],
        manifests: Mapping[int, bytes],
        *,
        batch_id: int,
        steps: int,
    ) -> tuple[Grid, dict[int, bytes]]:
        """Write the state of the cells of one grid into the cells of a new one.

        Nothing is written if the new grid is the old one.

        Args:
            old_grid: The grid of the existing cells.
            choose_grid: Chooses the new grid from the state.
            manifests: The manifests of the old cells.
            batch_id: The version.
            steps: The number of steps that produced the state.

        Returns:
            The chosen grid, and the manifests of its cells.

        Raises:
            StateError: As `read` and `write`.
        """
        state = self.read(old_grid, manifests)
        new_grid = choose_grid(state)
        if new_grid == old_grid:
            return old_grid, dict(manifests)
        return new_grid, self.write(new_grid, state, batch_id=batch_id, steps=steps)

    def record_moved(self, state: OperatorState) -> None:
        """Record that this state of the stage has been repartitioned."""
        self.is_moved = True
        self.moved_rows += sum(table.num_rows for table in state if table is not None)

    def _write_cell(self, cell: int, state: OperatorState, batch_id: int, steps: int) -> bytes:
        circuit = Circuit(self.spec)
        state_import = StateImport(circuit, steps=steps, watermarks={})
        if self.stage.is_recursive:
            state_import.add_recursion(_nodes_of_recursion(circuit), state)
        else:
            state_import.add_operator(find_stateful_operator(circuit), state)
        step = state_import.finish()
        stem = f"{DATA}/{batch_id:020}-{uuid.uuid4().hex[:12]}-{self.stage.number}.{cell}"
        writer = Writer(self.files, None, stem)
        self.writers.append(writer)
        writer.add(step)
        return writer.make_manifest(
            step, batch_id, state_id=self.state_id, fingerprint=circuit.fingerprint
        ).encode()

    def _check(self, written: OperatorState, read_back: OperatorState) -> None:
        """Check that the number of rows and their weights are the same when they are read back."""
        for written_table, read_table in zip(written, read_back, strict=True):
            if written_table is None or read_table is None:
                continue
            sums = [
                (table.num_rows, sum(table.column(table.num_columns - 1).to_numpy().tolist()))
                for table in (written_table, read_table)
            ]
            if sums[0] != sums[1]:
                raise StateDamagedError(
                    f"stage {self.stage.number}: {sums[0]} rows and weights were written and "
                    f"{sums[1]} are read back: nothing was changed; try again"
                )


def _export(stage: Stage, circuit: Circuit) -> OperatorState:
    """Return the state of a cell."""
    if stage.is_recursive:
        return export_recursion(circuit, _nodes_of_recursion(circuit))
    return export_state(circuit, find_stateful_operator(circuit))


def _nodes_of_recursion(circuit: Circuit) -> list[tuple[int, bool]]:
    """Return the nodes of the recursion of a cell."""
    return recursion_nodes(circuit.graph, find_recursion(circuit.graph))
