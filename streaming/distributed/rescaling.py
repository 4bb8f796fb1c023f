"""Rescaling: a state directory from one process to cells on executors, back, or to other cells.

::

    embedded   -- the state of each stage's operator, scattered -->   cells
    cells      -- gathered, a row once ---------------------------->   embedded
    p cells    -- gathered, and scattered by the new grid --------->   q cells

Offline: no query may run on the directory, and its lock is taken. The newest version is written
again in the other form, under the same batch id and with the deltas that it gave out, and becomes
the version by one rename when all of it is there, has been read back and compared; an error or a
crash before that leaves the directory as it was. The next micro-batch goes on from it, and if Spark
gives the last one again, its rows are recognised: codes of texts stay what they were.

Grids are chosen by what is there: the sizes of the relations, and the values that are so frequent
that they have to be spread (`streaming.distributed.planning.grid_planning`). So a state that has
grown may be rescaled to the same number of cells.

The views are compiled from the text in the directory (`streaming.state.view_definitions`). It takes
the memory of one stage's state, or of all of it where it becomes embedded.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import (
    OperatorState,
    StateImport,
    import_states,
    relation_of,
    state_of,
    tables_of,
)
from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.engine import check_distributable, stages_in
from streaming.distributed.execution.cell import definition_of, feeds_of
from streaming.distributed.migration import relations_of
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import counts_of_tables, stage_grid
from streaming.distributed.planning.stages import Stage
from streaming.distributed.stage_cells import StageCells
from streaming.errors import StateDamagedError, StateError
from streaming.state.cell_versions import CellVersions
from streaming.state.directory_identity import identity_of
from streaming.state.files import Files, LocalFiles, mode_of
from streaming.state.manifest import (
    FOLDER,
    Manifest,
    manifest_name,
    numbers_in,
    read_manifest,
)
from streaming.state.ownership import check_owner, take_over
from streaming.state.verified_files import state_of as stored_state
from streaming.state.versions import DATA
from streaming.state.view_definitions import read_definition
from streaming.state.writer import Writer

__all__ = ["RescaleResult", "rescaled"]


@dataclass(frozen=True)
class RescaleResult:
    """What has been done.

    Attributes:
        batch_id: The version.
        before: How many cells it had; None if it was embedded.
        after: How many it has.
        stages: How many stages there are.
        moved: How many of them have other cells now.
        rows: Rows of state that were moved, each once.
        bytes_written: Bytes of new files.
    """

    batch_id: int
    before: int | None
    after: int | None
    stages: int
    moved: int
    rows: int
    bytes_written: int


def rescaled(
    files: Files, *, cells: int | None, definition: CircuitSpec | None = None
) -> RescaleResult:
    """Bring the newest version of a state directory into another form.

    Args:
        files: The directory. Without a mode of their own, new files have that of the old ones.
        cells: Over how many cells the state is to be spread; None to embed it.
        definition: The views, of a circuit that was built from plans; None to compile the text that
            the directory has.

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, it is not whole, the text of the views is missing, or the
            disk refused; the directory is as it was.
        StreamingError: The views cannot be distributed, or not over so many cells.
    """
    try:
        if isinstance(files, LocalFiles) and files.mode is None:
            files = LocalFiles(files.location, mode_of(files, FOLDER))
        if not numbers_in(files):
            raise StateError(
                f"state directory {files.location} has no version: there is nothing to move, start "
                "the query in the mode that it is to have"
            )
        files.lock()
        try:
            return _Move(files, cells, definition).run()
        finally:
            files.unlock()
    except OSError as error:
        raise StateError(
            f"state directory {files.location} cannot be rescaled: {error}; it is as it was"
        ) from error
    except (DbspWcojError, MemoryError):
        raise
    except Exception as error:  # whatever a file says that somebody else wrote
        raise StateDamagedError(
            f"state directory {files.location} cannot be rescaled ({type(error).__name__}: "
            f"{error}): it is not as it was written; restore it from a copy"
        ) from error


class _Move:
    """The newest version of a directory on its way."""

    def __init__(self, files: Files, cells: int | None, definition: CircuitSpec | None) -> None:
        self._files = files
        self._wanted = cells
        self._circuit = Circuit(definition or read_definition(files))
        identity = identity_of(files, self._circuit)
        if identity is None:
            raise StateDamagedError(
                f"state directory {files.location} has no identity: restore it from a copy"
            )
        self._owner = take_over(files)
        self._number = max(numbers_in(files))
        self._before = read_manifest(files, self._number, state_id=identity.id)
        if self._before.epoch >= self._owner.epoch:
            self._owner = take_over(files, self._before.epoch)
        if cells is not None:
            check_distributable(self._circuit)
        self._stages = stages_in(self._circuit)
        self._driver = Circuit(feeds_of(self._circuit.definition, self._stages))
        self._cells = [
            StageCells(files, identity.id, stage, definition_of(stage, self._stages))
            for stage in self._stages.stages
        ]
        self._writers: list[Writer] = []

    def run(self) -> RescaleResult:
        """Write the version in its new form, and make it the version."""
        old, new = self._before, self._wanted
        try:
            if old.cells is not None:
                layout = GridLayout.of(old.cells.layout, self._stages, old.cells.count)
                if new is None:
                    after = self._embedded(layout, old.cells)
                else:
                    after = self._regridded(layout, old.cells, new)
            else:
                after = old if new is None else self._distributed(new)
            if after != old:
                self._commit(after)
        except BaseException:
            for writer in self._all_writers:
                writer.undo()
            raise
        return RescaleResult(
            self._number,
            None if old.cells is None else old.cells.count,
            new,
            len(self._cells),
            sum(cells.moved for cells in self._cells),
            sum(cells.rows for cells in self._cells),
            sum(writer.bytes_written for writer in self._all_writers),
        )

    def _distributed(self, count: int) -> Manifest:
        """From one process to cells."""
        circuit = self._circuit
        circuit.load(stored_state(self._files, self._before))
        grids: list[Grid] = []
        manifests: dict[tuple[int, int], bytes] = {}
        for cells in self._cells:
            whole = state_of(circuit, cells.stage.node)
            grids.append(_grid(cells.stage, count, whole))
            found = cells.write(grids[-1], whole, batch_id=self._number, steps=self._before.steps)
            manifests |= _by_stage(cells.stage, found)
        return self._rewritten(
            import_states(self._driver, tables_of(circuit)),
            {},
            {name: relation_of(circuit, name) for name in circuit.input_options},
            CellVersions(count, GridLayout(count, tuple(grids)).body, manifests),
        )

    def _embedded(self, layout: GridLayout, old: CellVersions) -> Manifest:
        """From cells to one process."""
        driver = self._driver
        driver.load(stored_state(self._files, self._before))
        states = {}
        for cells, grid in zip(self._cells, layout.grids, strict=True):
            whole = cells.read(grid, old.of_stage(cells.stage.number))
            states[cells.stage.node] = whole
            cells.count(whole)
        return self._rewritten(
            import_states(self._circuit, tables_of(driver)),
            states,
            {name: relation_of(driver, name) for name in driver.input_options},
            None,
        )

    def _regridded(self, layout: GridLayout, old: CellVersions, count: int) -> Manifest:
        """From cells to cells; the driver's part stays."""
        grids: list[Grid] = []
        manifests: dict[tuple[int, int], bytes] = {}
        for cells, grid in zip(self._cells, layout.grids, strict=True):

            def chosen(whole: OperatorState, stage: Stage = cells.stage) -> Grid:
                return _grid(stage, count, whole)

            new, found = cells.regridded(
                grid,
                chosen,
                old.of_stage(cells.stage.number),
                batch_id=self._number,
                steps=self._before.steps,
            )
            grids.append(new)
            manifests |= _by_stage(cells.stage, found)
        body = GridLayout(count, tuple(grids)).body
        return replace(self._before, cells=CellVersions(count, body, manifests))

    def _rewritten(
        self,
        circuit: Circuit,
        states: Mapping[int, OperatorState],
        relations: Mapping[str, pa.Table | None],
        cells: CellVersions | None,
    ) -> Manifest:
        """The version with the state of another circuit beside its cells."""
        before = self._before
        filling = StateImport(circuit, steps=before.steps, marks=before.marks)
        for name, rows in relations.items():
            filling.give_relation(name, rows)
        for node, state in states.items():
            filling.give(node, state)
        step = filling.filled()
        writer = Writer(self._files, None, f"{DATA}/{self._number:020}-{_attempt()}")
        self._writers.append(writer)
        writer.add(step)
        found = writer.manifest(
            step,
            self._number,
            state_id=before.state_id,
            fingerprint=before.fingerprint,
            query_id=before.query_id,
            digests=before.digests,
            outputs=before.outputs,
            letters=before.letters,
            cells=cells,
        )
        given_out = {name: before.files[name] for some in before.outputs.values() for name in some}
        return replace(found, files={**found.files, **given_out}, parent=before.parent)

    def _commit(self, after: Manifest) -> None:
        """Make this the version."""
        files, name = self._files, manifest_name(self._number)
        after = replace(after, epoch=self._owner.epoch, owner=self._owner.token)
        temporary = f"{name}.{_attempt()}.tmp"
        files.write(temporary, [after.to_bytes()])
        files.sync(temporary)
        files.sync_folder("")
        check_owner(files, self._owner)
        files.rename(temporary, name)
        files.sync_folder(FOLDER)

    @property
    def _all_writers(self) -> list[Writer]:
        return [*self._writers, *(writer for cells in self._cells for writer in cells.written)]


def _grid(stage: Stage, count: int, whole: OperatorState) -> Grid:
    """The grid of a stage, by the rows that it has."""
    tables = relations_of(stage, whole)
    some = any(table.num_rows for table in tables.values())
    return stage_grid(stage, count, counts=counts_of_tables(stage, tables) if some else None)


def _by_stage(stage: Stage, sealed: Mapping[int, bytes]) -> dict[tuple[int, int], bytes]:
    return {(stage.number, cell): one for cell, one in sealed.items()}


def _attempt() -> str:
    return uuid.uuid4().hex[:12]
