"""Rescale a state directory: from one process to cells on executors, back, or to other cells.

::

    embedded   -- scatter the state of each stage's operator ------>   cells
    cells      -- gather, each row once --------------------------->   embedded
    p cells    -- each cell sends its rows to the new cells ------->   q cells

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
the state of one stage, and the whole state if the state is or was embedded. From cells to cells
(`streaming.distributed.stage_move`), that of one cell: in this process, or with a session in each
task on executors, and the driver receives no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.circuit_state import StateStep
from circuits.user_functions import UserFunction
from streaming.distributed.cell_state import CellState, distributable_stages
from streaming.distributed.task_runner import LocalRunner, SparkRunner, TaskRunner
from streaming.errors import StreamingError
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
    session: SparkSession | None = None,
) -> RescaleResult:
    """Convert the newest version of a state directory to another number of cells.

    Args:
        files: The directory. If it has no file mode, new files get the mode of the old ones.
        cells: The number of cells; None to embed the state in one process.
        spec: The views of a circuit that was built from plans; None to compile the text in
            the directory.
        functions: The user-defined functions that the text calls, by name.
        session: A session whose executors share the directory: they move the rows from cells to
            other cells. None to move them in this process.

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, a file is missing or damaged, the text of the views is
            missing, or the disk failed; the directory is unchanged.
        StreamingError: The views cannot be distributed over this number of cells, or a task of
            Spark failed; the directory is unchanged.
    """
    with lock_for_rewrite(files, "rescale") as locked:
        spec = spec or read_newest_definition(locked, functions)
        runner = LocalRunner() if session is None else SparkRunner(session)
        try:
            return _Rescaling(locked, cells, spec, runner).run()
        except PySparkException as error:
            raise StreamingError(
                f"state directory {files.location}: a task that moves rows failed: {error}; the "
                "directory was not changed"
            ) from error


class _Rescaling:
    """The conversion of the newest version of a state directory."""

    def __init__(
        self, files: Files, cells: int | None, spec: CircuitSpec, runner: TaskRunner
    ) -> None:
        self._files = files
        self._target_cells = cells
        self._circuit = Circuit(spec)
        self._rewrite = VersionRewrite.begin(files, self._circuit)
        # The manifest of the version that is converted.
        self._before = self._rewrite.before
        self._batch_id = self._before.batch_id
        if cells is not None:
            distributable_stages(self._circuit)
        self._cell_state = CellState(files, self._before.state_id, self._circuit, runner)
        self._writers: list[Writer] = []

    def run(self) -> RescaleResult:
        """Write the converted version, and make it the current version."""
        before, old_cells, count = self._before, self._before.cells, self._target_cells
        try:
            if old_cells is not None and count is None:
                after = self._write_state(self._cell_state.gather(before, before.steps), None)
            elif old_cells is not None and count is not None:
                after = replace(before, cells=self._cell_state.repartition(before, count))
            elif count is not None:
                self._circuit.load(read_state(self._files, before))
                after = self._write_state(
                    *self._cell_state.scatter(count, self._batch_id, before.steps)
                )
            else:
                after = before
            staged = None if after == before else self._rewrite.stage(after)
        except BaseException:
            for writer in self._writers:
                writer.undo()
            self._cell_state.undo()
            raise_if_replaced(self._files, self._rewrite.owner)
            raise
        if staged is not None:
            self._rewrite.commit(staged)
        return RescaleResult(
            self._batch_id,
            None if old_cells is None else old_cells.count,
            count,
            len(self._cell_state.stage_cells),
            sum(stage_cells.is_moved for stage_cells in self._cell_state.stage_cells),
            sum(stage_cells.moved_rows for stage_cells in self._cell_state.stage_cells),
            sum(writer.bytes_written for writer in self._writers) + self._cell_state.bytes_written,
        )

    def _write_state(self, step: StateStep, cells: CellVersions | None) -> Manifest:
        """Write the state of a circuit of this process; return the manifest of the new version.

        Args:
            step: The whole state, in the form of a step.
            cells: The cells of a distributed circuit.
        """
        before = self._before
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
