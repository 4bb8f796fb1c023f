"""Move the state of a stage from the cells of one grid to those of another, cell by cell.

::

    old cells   each reads its own files     -> a file of rows for each new cell that receives some
    new cells   each reads the files for it  -> its state, in new files
    driver      receives manifests, counts and the names of files; it removes the files of rows

The tasks run on executors, or one after another in this process
(`streaming.distributed.task_runner`). The files of rows are in the state directory, which all
executors share. So no row passes through the driver, and a task has one old or one new cell in
memory. A row of a join has copies in several old cells; its first cell sends it
(`streaming.distributed.migration`). The grid of a join is chosen from the most frequent values of
all cells, which a job before counts.

Files have names that no other attempt uses, and begin with the stem of the move. So Spark may run a
task again or twice: an old cell is one version, hence all attempts write the same rows. Nothing is
part of the state until a manifest names it. A move that fails removes its files; after a crash the
next start does, and the move begins again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import OperatorState, export_selected_rows, find_stateful_operator
from streaming.distributed.cell_files import (
    check_written,
    export_cell,
    open_cell,
    write_cell,
)
from streaming.distributed.execution.job_tasks import MAX_SENT_VALUES
from streaming.distributed.execution.transport import write_table
from streaming.distributed.migration import (
    ORDERED_TRACES,
    PlacementCounts,
    check_placement,
    first_rows,
    relation_tables,
    scatter_state,
)
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import KnownCounts, count_in_tables
from streaming.distributed.planning.skew import Counts, add_counts
from streaming.distributed.planning.stages import Stage
from streaming.distributed.task_runner import TaskRunner
from streaming.errors import StateDamagedError
from streaming.state.files import Files, remove_files
from streaming.state.manifest import FileChecksum, read_cell_manifest
from streaming.state.verified_files import read_verified
from streaming.state.versions import DATA

__all__ = ["RowSource", "StageMove", "sources_of_cells"]


class RowSource(NamedTuple):
    """A cell whose rows move.

    Attributes:
        cell: Its number.
        manifest: Its checksummed manifest.
        spec: The circuit of a cell of a partial stage: the rows that it has emitted move to the
            final stage. None for an old cell of the stage, whose state moves.
        partial_index: The position of this partial stage in ``partial_stages`` of the final one.
    """

    cell: int
    manifest: bytes
    spec: CircuitSpec | None = None
    partial_index: int = 0


class RowFile(NamedTuple):
    """A file of rows for one new cell.

    Attributes:
        partial_index: `RowSource.partial_index`; None for all parts of the state of the stage.
        name: The name of the file.
        checksum: Its checksum.
    """

    partial_index: int | None
    name: str
    checksum: FileChecksum


class DividedCell(NamedTuple):
    """The result of a task that has read the rows of a cell.

    Attributes:
        rows: The number of rows that it has sent, without copies.
        counts: For each part of an old cell, the counts that `check_placement` compares.
        files: The file of rows for each new cell that receives some.
    """

    rows: int
    counts: list[PlacementCounts]
    files: dict[int, RowFile]


def sources_of_cells(manifests: Mapping[int, bytes]) -> list[RowSource]:
    """Return the old cells of a stage as sources."""
    return [RowSource(cell, manifests[cell]) for cell in sorted(manifests)]


@dataclass(frozen=True)
class StageMove:
    """The move of a stage.

    Attributes:
        files: The state directory.
        state_id: Its id.
        stage: The stage.
        spec: The circuit of its cells.
        old_grid: The grid of the old cells.
        stem: The beginning of the names of all new files, without the number of a cell.
        batch_id: The version.
        steps: The number of steps that produced the state.
        is_reselected: True if the rows of a final stage that its partial stages have emitted are
            replaced by those of other sources.
        limits: The values of the bounds of the state of the old version (`open_cell`).
        watermarks: Those of the manifests of the new cells.
    """

    files: Files
    state_id: str
    stage: Stage
    spec: CircuitSpec
    old_grid: Grid
    stem: str
    batch_id: int
    steps: int
    is_reselected: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def new_stem(batch_id: int, stage: Stage) -> str:
        """Return an unused beginning of names."""
        return f"{DATA}/{batch_id:020}-{uuid.uuid4().hex[:12]}-{stage.number}."

    def count_values(self, runner: TaskRunner, sources: Sequence[RowSource]) -> KnownCounts | None:
        """Return the counts of the most frequent values of a join; None for other stages, or if
        there are no rows.
        """
        if not self.stage.atoms:
            return None
        parts: dict[tuple[int, str], list[Counts]] = {}
        for counts_of_cell in runner.run(self.count_cell, sources):
            for key, table in counts_of_cell.items():
                parts.setdefault(key, []).append(Counts.of_table(table))
        counts = {key: add_counts(of_cells) for key, of_cells in parts.items()}
        return counts if any(each.total for each in counts.values()) else None

    def run(
        self, runner: TaskRunner, sources: Sequence[RowSource], new_grid: Grid
    ) -> tuple[dict[int, bytes], int]:
        """Write the state to the cells of a new grid.

        Returns:
            The manifests of the new cells, and the number of moved rows, each counted once.

        Raises:
            StateDamagedError: A file is missing or damaged, a row is in a wrong cell, or a new cell
                differs when it is read back.
            StateMismatchError: A cell belongs to another circuit.
            OSError, PySparkException: The file system, or a task, failed. In all of these cases the
                new files are removed.
        """
        manifests: dict[int, bytes] = {}
        try:
            divided = runner.run(partial(self.divide_cell, new_grid=new_grid), sources)
            of_parts = zip(*(cell.counts for cell in divided if cell.counts), strict=True)
            check_placement(
                self.stage, [reduce(PlacementCounts.add, counts) for counts in of_parts]
            )
            received = [
                (cell, [each.files[cell] for each in divided if cell in each.files])
                for cell in range(new_grid.cells)
            ]
            written = runner.run(self.assemble_cell, received)
            manifests = dict(enumerate(written))
            return manifests, sum(each.rows for each in divided)
        finally:
            self._remove_others(manifests)

    def count_cell(self, source: RowSource) -> dict[tuple[int, str], pa.Table]:
        """Count the most frequent values in the rows that an old cell would send."""
        state, _ = self._read(source)
        counts = count_in_tables(self.stage, relation_tables(self.stage, state))
        return {
            key: add_counts([of_cell], max_values=MAX_SENT_VALUES).to_table()
            for key, of_cell in counts.items()
        }

    def divide_cell(self, source: RowSource, *, new_grid: Grid) -> DividedCell:
        """Write the rows of a cell to a file for each new cell that receives some.

        The first cell writes a file for every new cell, because it has the columns of the tables.
        """
        state, counts = self._read(source)
        files: dict[int, RowFile] = {}
        index = None if source.spec is None else source.partial_index
        for cell, rows in enumerate(scatter_state(self.stage, new_grid, state)):
            has_rows = any(table is not None and table.num_rows for table in rows)
            if has_rows or (source.cell == 0 and index is None):
                name = f"{self.stem}{cell}-rows-{uuid.uuid4().hex[:12]}"
                content = [write_table(pa.table({}) if t is None else t) for t in rows]
                self.files.write(name, content)
                files[cell] = RowFile(index, name, FileChecksum.of(content))
        sent_rows = sum(table.num_rows for table in state if table is not None)
        return DividedCell(sent_rows, counts, files)

    def assemble_cell(self, received: tuple[int, Sequence[RowFile]]) -> bytes:
        """Write the state of a new cell from its files of rows; return its manifest."""
        cell, row_files = received
        tables_of_parts: list[list[pa.Table]] = []
        for file in row_files:  # those of old cells are the first ones
            tables = _read_tables(self.files, file)
            if file.partial_index is None:
                tables_of_parts = tables_of_parts or [[] for _ in tables]
                parts = range(len(tables))
            else:
                first = (
                    len(tables_of_parts) - self._ordered_count + ORDERED_TRACES * file.partial_index
                )
                parts = range(first, first + len(tables))
            for part, table in zip(parts, tables, strict=True):
                if table.num_columns:
                    tables_of_parts[part].append(table)
        state = tuple(pa.concat_tables(tables) if tables else None for tables in tables_of_parts)
        manifest = write_cell(
            self.files,
            self.stage,
            self.spec,
            state,
            stem=f"{self.stem}{cell}-{uuid.uuid4().hex[:12]}",
            state_id=self.state_id,
            batch_id=self.batch_id,
            steps=self.steps,
            watermarks=self.watermarks,
        )
        written = open_cell(self.files, self.spec, manifest, f"the new cell {cell}")
        check_written(self.stage, state, export_cell(self.stage, written))
        return manifest

    @property
    def _ordered_count(self) -> int:
        """The number of parts of the state of a final stage that partial stages replace."""
        return ORDERED_TRACES * len(self.stage.partial_stages)

    def _read(self, source: RowSource) -> tuple[OperatorState, list[PlacementCounts]]:
        """Return the rows of a source that move, and the counts of an old cell."""
        stage = self.stage
        if source.spec is not None:
            name = f"cell {source.cell} of a partial stage of stage {stage.number}"
            circuit = open_cell(self.files, source.spec, source.manifest, name)
            return (export_selected_rows(circuit, find_stateful_operator(circuit)),), []
        name = f"cell {source.cell} of stage {stage.number}"
        circuit = open_cell(self.files, self.spec, source.manifest, name, self.limits)
        state = export_cell(stage, circuit)
        if stage.is_recursive and not stage.carried:
            return state, []
        tables: list[pa.Table | None] = []
        counts: list[PlacementCounts] = []
        for part, table in enumerate(state):
            counts_of_part = PlacementCounts()
            if table is not None:
                table, counts_of_part = first_rows(stage, part, table, self.old_grid, source.cell)
                if self.is_reselected and part >= len(state) - self._ordered_count:
                    table = table.slice(0, 0)
            tables.append(table)
            counts.append(counts_of_part)
        return tuple(tables), counts

    def _remove_others(self, manifests: Mapping[int, bytes]) -> None:
        """Remove all files of the move that the manifests do not name."""
        named = {name for data in manifests.values() for name in read_cell_manifest(data).files}
        with suppress(OSError, StateDamagedError):  # the next start removes those that remain
            names = [name for name in self.files.names(DATA) if name.startswith(self.stem)]
            remove_files(self.files, [name for name in names if name not in named])


def _read_tables(files: Files, file: RowFile) -> list[pa.Table]:
    """Return the tables of a file of rows; one without columns stands for a missing part."""
    data = read_verified(files, file.name, file.checksum)
    reader, tables = pa.BufferReader(data), []
    while reader.tell() < len(data):
        tables.append(pa.ipc.open_stream(reader).read_all())
    return tables
