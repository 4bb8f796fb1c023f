"""Rescale a state directory: from one process to cells on executors, back, or to other cells.

::

    embedded   -- scatter the state of each stage's operator ------>   cells
    cells      -- gather, each row once --------------------------->   embedded
    p cells    -- gather, and scatter by the new grid ------------->   q cells

Rescaling is offline: it takes the lock of the directory, so no query may run on it. It writes the
newest version again in the other form, with the same batch id and the same published deltas, reads
everything back and compares it. One rename makes the result current; an error or a crash before
that leaves the directory unchanged. The query continues from the new version. If Spark replays the
last micro-batch, the query compares the digests of its rows with those in the version. Digests are
computed from values, so rescaling does not change them.

Grids are chosen from the existing state: the sizes of the relations, and the values that are so
frequent that they must be spread (`streaming.distributed.planning.grid_planning`). Therefore it is
useful to rescale a grown state to the same number of cells.

The views are compiled from the text in the directory (`streaming.state.view_definitions`). Memory:
the state of one stage, or the whole state if the result is embedded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import (
    OperatorState,
    StateImport,
    export_dictionaries,
    export_relation,
    export_state,
    import_dictionaries,
)
from circuits.user_functions import UserFunction
from streaming.distributed.engine import check_distributable, circuit_stages
from streaming.distributed.execution.cell import cell_spec, driver_spec
from streaming.distributed.migration import relation_tables
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import count_in_tables, stage_grid
from streaming.distributed.planning.stages import Stage
from streaming.distributed.stage_cells import StageCells
from streaming.state.cell_versions import CellVersions
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.ownership import raise_if_replaced
from streaming.state.verified_files import read_state
from streaming.state.version_rewrite import (
    VersionRewrite,
    lock_for_rewrite,
    read_newest_definition,
)
from streaming.state.writer import Writer

__all__ = ["RescaleResult", "rescale_state"]


@dataclass(frozen=True)
class RescaleResult:
    """The result of rescaling.

    Attributes:
        batch_id: The version.
        before: The number of cells before; None if the state was embedded.
        after: The number of cells after; None if the state is embedded.
        stages: The number of stages.
        moved: The number of stages whose rows were migrated.
        rows: The number of migrated rows, each counted once.
        bytes_written: The size of the new files.
    """

    batch_id: int
    before: int | None
    after: int | None
    stages: int
    moved: int
    rows: int
    bytes_written: int


def rescale_state(
    files: Files,
    *,
    cells: int | None,
    spec: CircuitSpec | None = None,
    functions: Mapping[str, UserFunction] | None = None,
) -> RescaleResult:
    """Convert the newest version of a state directory to another number of cells.

    Args:
        files: The directory. If it has no file mode, new files get the mode of the old ones.
        cells: The number of cells; None to embed the state in one process.
        spec: The views of a circuit that was built from plans; None to compile the text in
            the directory.
        functions: The user-defined functions that the text calls, by name.

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, a file is missing or damaged, the text of the views is
            missing, or the disk failed; the directory is unchanged.
        StreamingError: The views cannot be distributed over this number of cells.
    """
    with lock_for_rewrite(files, "rescale") as locked:
        return _Rescaling(locked, cells, spec or read_newest_definition(locked, functions)).run()


class _Rescaling:
    """The conversion of the newest version of a state directory."""

    def __init__(self, files: Files, cells: int | None, spec: CircuitSpec) -> None:
        self._files = files
        self._target_cells = cells
        self._circuit = Circuit(spec)
        self._rewrite = VersionRewrite.begin(files, self._circuit)
        # The manifest of the version that is converted.
        self._before = self._rewrite.before
        self._batch_id = self._before.batch_id
        if cells is not None:
            check_distributable(self._circuit)
        self._stages = circuit_stages(self._circuit)
        self._driver = Circuit(driver_spec(self._circuit.spec, self._stages))
        self._stage_cells = [
            StageCells(files, self._before.state_id, stage, cell_spec(stage, self._stages))
            for stage in self._stages.stages
        ]
        self._writers: list[Writer] = []

    def run(self) -> RescaleResult:
        """Write the converted version, and make it the current version."""
        before, old_cells, count = self._before, self._before.cells, self._target_cells
        try:
            if old_cells is not None:
                layout = GridLayout.of_json(old_cells.layout, self._stages, old_cells.count)
                if count is None:
                    after = self._embed(layout, old_cells)
                else:
                    after = self._repartition(layout, old_cells, count)
            else:
                after = before if count is None else self._distribute(count)
            staged = None if after == before else self._rewrite.stage(after)
        except BaseException:
            for writer in self._all_writers:
                writer.undo()
            raise_if_replaced(self._files, self._rewrite.owner)
            raise
        if staged is not None:
            self._rewrite.commit(staged)
        return RescaleResult(
            self._batch_id,
            None if old_cells is None else old_cells.count,
            count,
            len(self._stage_cells),
            sum(stage_cells.is_moved for stage_cells in self._stage_cells),
            sum(stage_cells.moved_rows for stage_cells in self._stage_cells),
            sum(writer.bytes_written for writer in self._all_writers),
        )

    def _distribute(self, count: int) -> Manifest:
        """Convert the state of one process to the state of cells."""
        circuit = self._circuit
        circuit.load(read_state(self._files, self._before))
        grids: list[Grid] = []
        manifests: dict[tuple[int, int], bytes] = {}
        for stage_cells in self._stage_cells:
            stage = stage_cells.stage
            state = export_state(circuit, stage.node)
            grids.append(_choose_grid(stage, count, state))
            cell_manifests = stage_cells.write(
                grids[-1], state, batch_id=self._batch_id, steps=self._before.steps
            )
            manifests |= _by_stage(stage, cell_manifests)
        return self._write_state(
            import_dictionaries(self._driver, export_dictionaries(circuit)),
            states={},
            relations={name: export_relation(circuit, name) for name in circuit.input_options},
            cells=CellVersions(count, GridLayout(count, tuple(grids)).json_values, manifests),
        )

    def _embed(self, layout: GridLayout, old_cells: CellVersions) -> Manifest:
        """Convert the state of cells to the state of one process."""
        driver = self._driver
        driver.load(read_state(self._files, self._before))
        states = {}
        for stage_cells, grid in zip(self._stage_cells, layout.grids, strict=True):
            stage = stage_cells.stage
            states[stage.node] = stage_cells.read(grid, old_cells.stage_manifests(stage.number))
            stage_cells.record_moved(states[stage.node])
        return self._write_state(
            import_dictionaries(self._circuit, export_dictionaries(driver)),
            states=states,
            relations={name: export_relation(driver, name) for name in driver.input_options},
            cells=None,
        )

    def _repartition(self, layout: GridLayout, old_cells: CellVersions, count: int) -> Manifest:
        """Convert the state of cells to another number of cells; keep the driver's state."""
        grids: list[Grid] = []
        manifests: dict[tuple[int, int], bytes] = {}
        for stage_cells, grid in zip(self._stage_cells, layout.grids, strict=True):
            stage = stage_cells.stage
            new_grid, cell_manifests = stage_cells.repartition(
                grid,
                partial(_choose_grid, stage, count),
                old_cells.stage_manifests(stage.number),
                batch_id=self._batch_id,
                steps=self._before.steps,
            )
            grids.append(new_grid)
            manifests |= _by_stage(stage, cell_manifests)
        layout_json = GridLayout(count, tuple(grids)).json_values
        return replace(self._before, cells=CellVersions(count, layout_json, manifests))

    def _write_state(
        self,
        circuit: Circuit,
        *,
        states: Mapping[int, OperatorState],
        relations: Mapping[str, pa.Table | None],
        cells: CellVersions | None,
    ) -> Manifest:
        """Write the state of a circuit of this process; return the manifest of the new version.

        Args:
            circuit: The circuit, with its dictionaries.
            states: The state of its operators, by the number of their node.
            relations: The rows of its inputs with options, by name.
            cells: The cells of a distributed circuit.
        """
        before = self._before
        state_import = StateImport(circuit, steps=before.steps, watermarks=before.watermarks)
        for name, rows in relations.items():
            state_import.add_relation(name, rows)
        for node, state in states.items():
            state_import.add_operator(node, state)
        step = state_import.finish()
        writer = Writer(self._files, None, self._rewrite.new_stem())
        self._writers.append(writer)
        writer.add(step)
        manifest = writer.make_manifest(
            step,
            self._batch_id,
            state_id=before.state_id,
            fingerprint=before.fingerprint,
            query_id=before.query_id,
            digests=before.digests,
            outputs=before.outputs,
            dead_letters=before.dead_letters,
            cells=cells,
        )
        published_files = {
            name: before.files[name] for names in before.outputs.values() for name in names
        }
        return replace(
            manifest,
            files={**manifest.files, **published_files},
            parent=before.parent,
            link=before.link,
            dead_letter_file=before.dead_letter_file,
            changes=before.changes,
        )

    @property
    def _all_writers(self) -> list[Writer]:
        return [
            *self._writers,
            *(writer for stage_cells in self._stage_cells for writer in stage_cells.writers),
        ]


def _choose_grid(stage: Stage, count: int, state: OperatorState) -> Grid:
    """Choose the grid of a stage from the rows in its state."""
    tables = relation_tables(stage, state)
    has_rows = any(table.num_rows for table in tables.values())
    return stage_grid(stage, count, counts=count_in_tables(stage, tables) if has_rows else None)


def _by_stage(stage: Stage, manifests: Mapping[int, bytes]) -> dict[tuple[int, int], bytes]:
    """Return the manifests of the cells of a stage, by stage and cell."""
    return {(stage.number, cell): manifest for cell, manifest in manifests.items()}
