"""The cells of one stage in a state directory: read their state, and write it for another grid.

Tasks write the state of a cell step by step (`streaming.distributed.execution.task`). This module
reads the state of a stage as a whole, writes it as a whole, and moves it from one grid to another
(`streaming.distributed.stage_move`). Existing files are not changed; new files have new names, and
are not part of the state until a manifest names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import OperatorState, export_selected_rows, find_stateful_operator
from streaming.distributed.cell_files import (
    check_written,
    export_cell,
    open_cell,
    require_cells,
    write_cell,
)
from streaming.distributed.migration import gather_state, scatter_state
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import KnownCounts
from streaming.distributed.planning.stage_bounds import OLDEST_SESSION, find_oldest_sessions
from streaming.distributed.planning.stages import Stage
from streaming.distributed.stage_move import RowSource, StageMove, sources_of_cells
from streaming.distributed.task_runner import LocalRunner, TaskRunner
from streaming.errors import StateDamagedError
from streaming.state.files import Files, remove_files
from streaming.state.manifest import read_cell_manifest

__all__ = ["StageCells"]


@dataclass
class StageCells:
    """The cells of a stage.

    Attributes:
        files: The state directory.
        state_id: Its id.
        stage: The stage.
        spec: The circuit of its cells.
        runner: Runs the tasks that move rows.
        limits: The values of the bounds of the state of the version that is read (`open_cell`).
        is_moved: True if the state has been repartitioned.
        moved_rows: The number of repartitioned rows, each counted once.
        bytes_written: The size of the new files.
    """

    files: Files
    state_id: str
    stage: Stage
    spec: CircuitSpec
    runner: TaskRunner = field(default_factory=LocalRunner)
    limits: Mapping[str, int] = field(default_factory=dict)
    is_moved: bool = False
    moved_rows: int = 0
    bytes_written: int = 0
    _written: list[bytes] = field(default_factory=list)  # the manifests of new cells

    def read(self, grid: Grid, manifests: Mapping[int, bytes]) -> OperatorState:
        """Read the state of the stage, as one operator would have it.

        Args:
            grid: The grid of the cells.
            manifests: The checksummed manifest of each cell.

        Raises:
            StateDamagedError: A cell or a file is missing or damaged, or a row is in a wrong cell.
            StateMismatchError: A cell belongs to another circuit.
        """
        require_cells(self.stage, grid.cells, manifests)
        states = {
            cell: export_cell(self.stage, self._open(cell, manifests[cell]))
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
        stem = StageMove.new_stem(batch_id, self.stage)
        for cell, state in enumerate(scatter_state(self.stage, grid, state_of_stage)):
            manifests[cell] = write_cell(
                self.files,
                self.stage,
                self.spec,
                state,
                stem=f"{stem}{cell}",
                state_id=self.state_id,
                batch_id=batch_id,
                steps=steps,
            )
            self._record_written([manifests[cell]])
        check_written(self.stage, state_of_stage, self.read(grid, manifests))
        self.record_moved(state_of_stage)
        return manifests

    def repartition(
        self,
        old_grid: Grid,
        choose_grid: Callable[[KnownCounts | None], Grid],
        manifests: Mapping[int, bytes],
        *,
        batch_id: int,
        steps: int,
        partial_cells: Sequence[tuple[StageCells, Mapping[int, bytes]]] = (),
    ) -> tuple[Grid, dict[int, bytes]]:
        """Write the state of the cells of one grid into the cells of a new one.

        The tasks of `runner` read and write the rows. Nothing is written if the new grid is the old
        one, unless there are ``partial_cells``.

        Args:
            old_grid: The grid of the existing cells.
            choose_grid: Chooses the new grid from the counts of the values of a join; they are None
                for other stages, and without rows.
            manifests: The manifests of the old cells.
            batch_id: The version.
            steps: The number of steps that produced the state.
            partial_cells: For the final stage of first rows, if other cells of its partial stages
                have emitted the rows: these cells, and their manifests, of all partial stages.

        Returns:
            The chosen grid, and the manifests of its cells.

        Raises:
            StateError: As `read` and `write`. The new files are removed.
            PySparkException: A task failed, also after Spark's retries.
        """
        require_cells(self.stage, old_grid.cells, manifests)
        move = StageMove(
            self.files,
            self.state_id,
            self.stage,
            self.spec,
            old_grid,
            StageMove.new_stem(batch_id, self.stage),
            batch_id,
            steps,
            is_reselected=bool(partial_cells),
            limits=self.limits,
            watermarks=self._watermarks(manifests),
        )
        sources = sources_of_cells(manifests)
        new_grid = choose_grid(move.count_values(self.runner, sources))
        if new_grid == old_grid and not partial_cells:
            return old_grid, dict(manifests)
        for index, (cells, manifests_of_cells) in enumerate(partial_cells):
            sources += [
                RowSource(cell, manifest, cells.spec, index)
                for cell, manifest in sorted(manifests_of_cells.items())
            ]
        written, rows = move.run(self.runner, sources, new_grid)
        self._record_written(written.values())
        self.is_moved = True
        self.moved_rows += rows
        return new_grid, written

    def record_moved(self, state: OperatorState) -> None:
        """Record that this state of the stage has been repartitioned."""
        self.is_moved = True
        self.moved_rows += sum(table.num_rows for table in state if table is not None)

    def undo(self) -> None:
        """Remove the new files; the next start removes those that remain."""
        names = {name for data in self._written for name in read_cell_manifest(data).files}
        with suppress(OSError, StateDamagedError):
            remove_files(self.files, sorted(names))
        self._written.clear()

    def _record_written(self, manifests: Iterable[bytes]) -> None:
        for data in manifests:
            self._written.append(data)
            files = read_cell_manifest(data).files.values()
            self.bytes_written += sum(file.size for file in files)

    def _watermarks(self, manifests: Mapping[int, bytes]) -> dict[str, int]:
        """Return the watermarks of new cells, which receive rows of all old ones."""
        cells = {(self.stage.number, cell): data for cell, data in manifests.items()}
        oldest = find_oldest_sessions([self.stage], cells)
        return {OLDEST_SESSION: oldest[self.stage.node]} if oldest else {}

    def _open(self, cell: int, manifest: bytes) -> Circuit:
        name = f"cell {cell} of stage {self.stage.number}"
        return open_cell(self.files, self.spec, manifest, name, self.limits)
