"""Task: the steps of some cells of a stage on an executor, in the order rows -> files -> deltas.

A cell's step begins at the version that the driver names, its sealed manifest of the micro-batch
before. The circuit is taken from this worker's memory if it is at just that version, else loaded
from the files, which are mapped (`streaming.distributed.execution.executor_cache`); which of the
two it was changes nothing. New files have names that no other attempt has, and are nothing until
the driver's manifest names them: so a task may be tried again, run twice or be evaluated twice, and
all attempts but one leave rubbish that is swept when the directory is opened next.

An error that the engine raises on purpose would be the same at every attempt, so it is not Spark's
to try again: it is said to the driver, which raises it.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from circuits.circuit_spec import CircuitSpec
from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.execution.executor_cache import HELD
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import split
from streaming.distributed.planning.stages import Stage
from streaming.distributed.task_errors import text_of_error
from streaming.errors import StreamingError
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = [
    "ERROR",
    "MANIFEST",
    "SAID",
    "CellStep",
    "StagePlan",
    "StageTask",
    "StageWork",
    "read",
    "written",
]

#: What tasks give back: of each cell its new manifest, and its pieces; or an error.
SAID: Final = "cell int, name string, content binary"
MANIFEST: Final = ""
ERROR: Final = "!"
Said = list[tuple[int, str, bytes]]
_BYTES: Final = pa.binary()


@dataclass(frozen=True)
class StagePlan:
    """What the tasks of a stage are told that is the same in every micro-batch.

    Attributes:
        files: The state directory, shared by driver and executors.
        state_id: Its id.
        stage: The stage.
        definition: The circuit of its cells.
        cells: How many there are.
    """

    files: Files
    state_id: str
    stage: Stage
    definition: CircuitSpec
    cells: int


@dataclass(frozen=True)
class StageWork:
    """What the tasks of a stage do in a micro-batch.

    Attributes:
        files: The state directory, shared by driver and executors.
        state_id: Its id.
        stage: The number of the stage.
        definition: The circuit of its cells.
        batch_id: The micro-batch.
        before: The sealed manifests of the cells that have a state.
    """

    files: Files
    state_id: str
    stage: int
    definition: CircuitSpec
    batch_id: int
    before: Mapping[int, bytes] = field(default_factory=dict)

    def step(self, cell: int, tables: Mapping[str, pa.Table]) -> CellStep:
        """The step of one cell; its files are written and synced.

        Raises:
            DbspWcojError: As `circuits.Circuit.prepare`, and of files that are not as they were
                written.
            OSError: The file system refused.
        """
        before = self.before.get(cell)
        key = (self.state_id, self.stage, cell)
        circuit, known = HELD.take(key, self.definition, self.files, before)
        last = None if before is None else read_cell_manifest(before)
        attempt = uuid.uuid4().hex[:12]
        stem = f"{DATA}/{self.batch_id:020}-{attempt}-{self.stage}.{cell}"
        writer = Writer(self.files, last, stem)
        try:
            step = circuit.prepare(tables)
            state = step.state(writer.lengths)
            writer.add(state)
            manifest = writer.manifest(
                state, self.batch_id, state_id=self.state_id, fingerprint=circuit.fingerprint
            )
            sealed = manifest.to_bytes()
        except BaseException:
            writer.undo()
            raise
        step.commit()
        HELD.keep(key, circuit, manifest, sealed, known)
        return CellStep(cell, sealed, step.outputs)


@dataclass(frozen=True)
class CellStep:
    """What a cell's step came to.

    Attributes:
        cell: The cell.
        manifest: Its version after the step.
        outputs: The pieces that it gives.
    """

    cell: int
    manifest: bytes
    outputs: Mapping[str, pa.Table]

    @property
    def said(self) -> Said:
        """The same, for the driver."""
        given = {name: written(out) for name, out in self.outputs.items() if out.num_rows}
        return [(self.cell, name, one) for name, one in ({MANIFEST: self.manifest} | given).items()]


@dataclass(frozen=True)
class StageTask:
    """The function of one task: rows of its cells in, what they say out.

    Attributes:
        plan: What is the same in every micro-batch.
        batch_id: The micro-batch.
        before: As `StageWork.before`.
        tasks: How many tasks there are; the cells of the k-th have numbers that leave k.
    """

    plan: StagePlan
    batch_id: int
    before: Mapping[int, bytes]
    tasks: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Step the cells of this task, for rows that Spark has routed."""
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        got = [batch for batch in batches if batch.num_rows]
        table = pa.Table.from_batches(got) if got else None
        if table is not None:
            self._check(table, number)
        for said in self._stepped(number, table):
            cells, names, contents = zip(*said, strict=True)
            columns = [pa.array(cells, pa.int32()), pa.array(names), pa.array(contents, _BYTES)]
            yield pa.record_batch(columns, ["cell", "name", "content"])

    def run_here(self, parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str, bytes]]:
        """Step the cells of some tasks, for rows that the driver has placed.

        Args:
            parts: The number of a task, and its rows with `CELL`, as `written` makes them.
        """
        for number, content in parts:
            for said in self._stepped(number, read(content)):
                yield from said

    def _stepped(self, number: int, table: pa.Table | None) -> Iterator[Said]:
        _freeze()
        plan = self.plan
        work = StageWork(
            plan.files,
            plan.state_id,
            plan.stage.number,
            plan.definition,
            self.batch_id,
            self.before,
        )
        for cell in range(number, plan.cells, self.tasks):
            rows = None if table is None else table.filter(pc.equal(table.column(CELL), cell))
            if (rows is None or not rows.num_rows) and cell in self.before:
                continue
            try:
                yield work.step(cell, {} if rows is None else split(plan.stage, rows)).said
            except DbspWcojError as error:
                yield [(cell, ERROR, text_of_error(error))]
                return

    def _check(self, table: pa.Table, number: int) -> None:
        """No row may be left over because Spark put it elsewhere."""
        for cell in pc.unique(table.column(CELL)).to_pylist():
            if cell % self.tasks != number:
                raise StreamingError(
                    f"cell {cell} came to task {number} of {self.tasks}: this Spark does not keep "
                    "the partitions of repartitionById; set spark.sql.adaptive.enabled to false"
                )


@cache
def _freeze() -> None:
    """Once in a worker: the daemon collects after every task, and need not look at modules."""
    gc.collect()
    gc.freeze()


def written(table: pa.Table) -> bytes:
    """A table as bytes; `read` is the way back."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(content: bytes) -> pa.Table:
    """What `written` wrote."""
    return pa.ipc.open_stream(content).read_all()
