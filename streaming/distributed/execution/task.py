"""Task: the steps of some cells of a stage on an executor: rows in, files and deltas out.

A stage is an operator distributed over cells, each a circuit of its own. The step of a cell starts
from the version that the driver sends: the checksummed manifest of the cell after the previous
micro-batch. The circuit is taken from this worker's memory if it is at exactly that version;
otherwise it is loaded from the memory-mapped files
(`streaming.distributed.execution.executor_cache`). The result is the same. New files have names
that no other attempt uses, and are not part of the state until the driver's manifest names them.
Therefore Spark may retry a task or run it twice. A task that fails removes its files; those of
other attempts are removed when the directory is opened next.

An error that the engine raises on purpose would occur in every attempt, so Spark must not retry it:
the task returns it to the driver, which raises it.
"""

from __future__ import annotations

import gc
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from circuits.circuit_spec import CircuitSpec
from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.execution.executor_cache import CACHE, Key
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import divide_by_cell, split_relations
from streaming.distributed.execution.task_files import TaskFiles
from streaming.distributed.execution.transport import read_table, write_table
from streaming.distributed.execution.view_deltas import ViewOutput, publish_view
from streaming.distributed.planning.stage_bounds import OLDEST_SESSION
from streaming.distributed.planning.stages import Stage
from streaming.distributed.task_errors import format_error
from streaming.errors import StreamingError
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest
from streaming.state.mapped.freed_memory import free_unused_memory, private_bytes
from streaming.state.object_store.object_files import ObjectFiles
from streaming.state.versions import DATA

__all__ = [
    "ERROR",
    "MANIFEST",
    "RESULT_SCHEMA",
    "CellStep",
    "StagePlan",
    "StageStep",
    "StageTask",
    "cheap_collection",
]

#: The rows that tasks return: for each cell its new manifest and its outputs, or an error.
RESULT_SCHEMA: Final = "cell int, name string, content binary"
#: The name of the row with the manifest; rows with outputs have the name of the output.
MANIFEST: Final = ""
#: The name of a row with an error.
ERROR: Final = "!"
#: The most tasks of a worker until the objects that exist are excluded from garbage collections.
MAX_TASKS_PER_FREEZE: Final = 64
#: Freed memory is returned to the system after a task if there may be more than this.
MAX_UNUSED_BYTES: Final = 1 << 26
ResultRows = list[tuple[int, str, bytes]]
_BYTES: Final = pa.binary()


@dataclass(frozen=True)
class StagePlan:
    """The part of a stage's tasks that is the same in every micro-batch.

    Attributes:
        files: The state directory, shared by driver and executors.
        state_id: The id of the state directory.
        program_id: The unique id of the program in this driver.
        stage: The stage.
        spec: The circuit of its cells.
        cells: The number of cells.
    """

    files: Files
    state_id: str
    program_id: str
    stage: Stage
    spec: CircuitSpec
    cells: int


@dataclass(frozen=True)
class StageStep:
    """The step of a stage in one micro-batch.

    Attributes:
        plan: The part that is the same in every micro-batch.
        batch_id: The micro-batch.
        manifests: The checksummed manifests of the cells that have a state, by cell.
        output: For the stage of a materialized view: how its rows are published. The output of a
            cell is then the published table instead of the delta. None to return the delta.
        limits: The values of the bounds of the state of the cells after the step, by name.
    """

    plan: StagePlan
    batch_id: int
    manifests: Mapping[int, bytes]
    output: ViewOutput | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def steps_all(self) -> bool:
        """Return whether cells without rows step, too: the whole view is published, or the bounds
        of later stages depend on the sessions of all cells.
        """
        if self.limits and self.plan.stage.reports_sessions:
            return True
        return self.output is not None and self.output.mode.mode == "complete"

    def step_cell(
        self, cell: int, tables: Mapping[str, pa.Table], task_files: TaskFiles
    ) -> CellStep:
        """Step one cell, and write its files.

        Args:
            cell: The number of the cell.
            tables: The rows of its inputs.
            task_files: The files of the task, which the caller syncs, or removes after an error.

        Raises:
            DbspWcojError: As `circuits.Circuit.prepare`, for damaged files, and for rows that do
                not fit the output mode.
            OSError: The file system failed.
        """
        plan, previous_bytes = self.plan, self.manifests.get(cell)
        key = Key(plan.state_id, plan.program_id, plan.stage.number, cell)
        loaded = CACHE.take(key, plan.spec, plan.files, previous_bytes)
        circuit = loaded.circuit
        previous_manifest = None if previous_bytes is None else read_cell_manifest(previous_bytes)
        attempt = uuid.uuid4().hex[:12]
        stem = f"{DATA}/{self.batch_id:020}-{attempt}-{plan.stage.number}.{cell}"
        writer = task_files.open_writer(previous_manifest, stem)
        bounds = circuit.graph.state_bounds
        if bounds is not None:
            bounds.given = self.limits
        step = circuit.prepare(tables)
        outputs = step.outputs
        if self.output is not None:
            (name,) = outputs
            outputs = {name: publish_view(plan.stage.view, self.output, step)}
        state = step.state(writer.dictionary_lengths)
        writer.add(state)
        manifest = writer.make_manifest(
            state,
            self.batch_id,
            state_id=plan.state_id,
            fingerprint=circuit.fingerprint,
            sync=False,
        )
        if bounds is not None and plan.stage.reports_sessions:
            oldest = bounds.oldest_session(step.graph_step.drop_limits)
            if oldest is not None:
                watermarks = {**manifest.watermarks, OLDEST_SESSION: oldest}
                manifest = replace(manifest, watermarks=watermarks)
        manifest_bytes = manifest.encode()
        step.commit()
        loaded.keep(plan.files, manifest, manifest_bytes)
        if isinstance(plan.files, ObjectFiles):
            before = {} if previous_manifest is None else previous_manifest.files
            plan.files.release_copies(*(before.keys() - manifest.files.keys()))
        CACHE.keep(key, loaded)
        return CellStep(cell, manifest_bytes, outputs, loaded.was_open)


@dataclass(frozen=True)
class CellStep:
    """The result of a cell's step.

    Attributes:
        cell: The number of the cell.
        manifest: Its version after the step.
        outputs: The deltas of its views, or the published table of a view.
        was_open: True if the circuit was in the memory of the worker, at the version before.
    """

    cell: int
    manifest: bytes
    outputs: Mapping[str, pa.Table]
    was_open: bool

    @property
    def result_rows(self) -> ResultRows:
        """The rows that the task returns to the driver."""
        outputs = {name: write_table(out) for name, out in self.outputs.items() if out.num_rows}
        rows = {MANIFEST: self.manifest} | outputs
        return [(self.cell, name, data) for name, data in rows.items()]


@dataclass(frozen=True)
class StageTask:
    """The function of the tasks of a stage: rows of some cells in, result rows out.

    Attributes:
        step: The step of the stage.
        tasks: The number of tasks; task k steps cells k, k + tasks, k + 2 · tasks and so on.
    """

    step: StageStep
    tasks: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Step the cells of this task on rows that Spark has routed."""
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        batches_with_rows = [batch for batch in batches if batch.num_rows]
        table = pa.Table.from_batches(batches_with_rows) if batches_with_rows else None
        misplaced = None if table is None else self._find_misplaced(table, number)
        results = self._step_cells(number, table) if misplaced is None else [misplaced]
        for result_rows in results:
            cells, names, contents = zip(*result_rows, strict=True)
            columns = [pa.array(cells, pa.int32()), pa.array(names), pa.array(contents, _BYTES)]
            yield pa.record_batch(columns, ["cell", "name", "content"])

    def run_placed(self, parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str, bytes]]:
        """Step the cells of some tasks on rows that the driver has placed.

        Args:
            parts: The number of a task, and its rows with `CELL`, as `write_table` returns them.
        """
        for number, content in parts:
            for result_rows in self._step_cells(number, read_table(content)):
                yield from result_rows

    def _step_cells(self, number: int, table: pa.Table | None) -> Iterator[ResultRows]:
        with cheap_collection(), TaskFiles(self.step.plan.files) as task_files:
            plan = self.step.plan
            rows_of_cells = {} if table is None else divide_by_cell(table)
            for cell in range(number, plan.cells, self.tasks):
                rows = rows_of_cells.pop(cell, None)
                if rows is None and cell in self.step.manifests and not self.step.steps_all:
                    continue
                tables = {} if rows is None else split_relations(plan.stage, rows)
                try:
                    yield self.step.step_cell(cell, tables, task_files).result_rows
                except DbspWcojError as error:
                    task_files.undo()
                    yield [(cell, ERROR, format_error(error))]
                    return
            task_files.sync()

    def _find_misplaced(self, table: pa.Table, number: int) -> ResultRows | None:
        """Return an error for the driver if Spark has sent the rows of a cell to another task."""
        for cell in pc.unique(table.column(CELL)).to_pylist():
            if cell % self.tasks != number:
                error = StreamingError(
                    f"task {number} of {self.tasks} received rows of cell {cell}, which belong to "
                    f"task {cell % self.tasks}: Spark has merged the partitions of "
                    "repartitionById; set spark.sql.adaptive.enabled to false"
                )
                return [(cell, ERROR, format_error(error))]
        return None


@contextmanager
def cheap_collection() -> Iterator[None]:
    """Exclude the objects that exist after some tasks from the garbage collections after others.

    Spark's worker collects garbage after every task. The modules of this package and the kernels
    that the first tasks load would take some 30 to 80 ms, more than the steps of some cells. An old
    circuit that was excluded remains in memory until this is done again, so only few are: those
    that the cache had at that moment.

    Allocators keep freed memory, and a large micro-batch needs several times the memory of its
    rows. So the freed memory is returned to the system if the process has much more private memory
    than after this was done last.
    """
    try:
        yield
    finally:
        number = next(_FINISHED_TASKS)
        if number % MAX_TASKS_PER_FREEZE == 0 or number.bit_count() == 1:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        _return_freed_memory()


def _return_freed_memory() -> None:
    """Return freed memory to the system if there may be much."""
    global _private_bytes
    private = private_bytes()
    if private > _private_bytes + MAX_UNUSED_BYTES:
        free_unused_memory()
        _private_bytes = private_bytes()
    else:
        _private_bytes = min(_private_bytes, private)


_FINISHED_TASKS: Final = itertools.count()
# The least private memory of this process since freed memory was returned last.
_private_bytes = 0
