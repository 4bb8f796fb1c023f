"""Task: the steps of some cells of a stage on an executor, in the order rows -> files -> deltas.

A cell's step begins at the version that the driver names, its sealed manifest of the micro-batch
before. The circuit is taken from this worker's memory if it is at just that version, else loaded
from the files, which are mapped; which of the two it was changes nothing. New files have names that
no other attempt has, and are nothing until the driver's manifest names them: so a task may be tried
again, run twice or be evaluated twice, and all attempts but one leave rubbish that is swept when
the directory is opened next.

What a worker keeps is at most one version of a cell, and of the cells that it stepped last. An
attempt that was not chosen leaves the circuit at a version that nobody names (codes are given in
the order of rows, which attempts do not share), so it is never taken for the other one.

An error that the engine raises on purpose would be the same at every attempt, so it is not Spark's
to try again: it is said to the driver, which raises it.
"""

from __future__ import annotations

import gc
import pickle
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from circuits import Circuit
from circuits.definition import Definition
from circuits.state import State
from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StreamingError
from streaming.hypercube.routing import CELL
from streaming.hypercube.rows import split
from streaming.hypercube.stages import Stage
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.verified import state_of
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = ["ERROR", "MANIFEST", "SAID", "CellStep", "StagePlan", "StageTask", "StageWork"]

#: What tasks give back: of each cell its new manifest, and its pieces; or an error.
SAID: Final = "cell int, name string, content binary"
MANIFEST: Final = ""
ERROR: Final = "!"
# Circuits that a worker keeps.
MOST_HELD: Final = 64


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
    definition: Definition
    cells: int


@dataclass(frozen=True)
class StageWork:
    """What the tasks of a stage do in a micro-batch.

    Attributes:
        plan: What is the same in every micro-batch.
        batch_id: The micro-batch.
        before: The sealed manifests of the cells that have a state.
    """

    plan: StagePlan
    batch_id: int
    before: Mapping[int, bytes]

    def step(self, cell: int, tables: Mapping[str, pa.Table]) -> CellStep:
        """The step of one cell; its files are written and synced.

        Raises:
            DbspWcojError: As `circuits.Circuit.prepare`, and of files that are not as they were
                written.
            OSError: The file system refused.
        """
        plan, before = self.plan, self.before.get(cell)
        key = (plan.state_id, plan.stage.number, cell)
        version = b"" if before is None else before
        held = _HELD.pop(key, None)
        last = None if before is None else Manifest.of(before, f"the state of cell {cell}")
        if held is not None and held[0] == version:
            circuit = held[1]
        else:
            circuit = plan.definition.circuit()
            circuit.load(State.empty() if last is None else state_of(plan.files, last))
        attempt = uuid.uuid4().hex[:12]
        stem = f"{DATA}/{self.batch_id:020}-{attempt}-{plan.stage.number}.{cell}"
        writer = Writer(plan.files, last, stem)
        try:
            step = circuit.prepare(tables)
            state = step.state(writer.lengths)
            writer.add(state)
            manifest = writer.manifest(
                state, self.batch_id, state_id=plan.state_id, fingerprint=circuit.fingerprint
            ).to_bytes()
        except BaseException:
            writer.undo()
            raise
        step.commit()
        _HELD[key] = manifest, circuit
        if len(_HELD) > MOST_HELD:
            del _HELD[next(iter(_HELD))]
        return CellStep(cell, manifest, step.outputs)


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

    def said(self) -> pa.RecordBatch:
        """The same, for the driver."""
        return _said(
            self.cell,
            {MANIFEST: self.manifest}
            | {name: _written(out) for name, out in self.outputs.items() if out.num_rows},
        )


@dataclass(frozen=True)
class StageTask:
    """The function of one task: rows of its cells in, what they say out.

    Attributes:
        plan: A `StagePlan`, pickled once for all micro-batches.
        batch_id: The micro-batch.
        before: As `StageWork.before`.
        tasks: How many tasks there are; the cells of the k-th have numbers that leave k.
    """

    plan: bytes
    batch_id: int
    before: Mapping[int, bytes]
    tasks: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Step the cells of this task."""
        if gc.get_freeze_count() == 0:
            gc.collect()
            gc.freeze()  # the daemon collects after every task, and need not look at modules
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        work = StageWork(_plan(self.plan), self.batch_id, self.before)
        got = [batch for batch in batches if batch.num_rows]
        table = pa.Table.from_batches(got) if got else None
        if table is not None:
            self._check(table, number)
        for cell in range(number, work.plan.cells, self.tasks):
            rows = None if table is None else table.filter(pc.equal(table.column(CELL), cell))
            if (rows is None or not rows.num_rows) and cell in self.before:
                continue
            try:
                tables = {} if rows is None else split(work.plan.stage, rows)
                yield work.step(cell, tables).said()
            except DbspWcojError as error:
                yield _said(cell, {ERROR: _pickled(error)})
                return

    def _check(self, table: pa.Table, number: int) -> None:
        """No row may be left over because Spark put it elsewhere."""
        for cell in pc.unique(table.column(CELL)).to_pylist():
            if cell % self.tasks != number:
                raise StreamingError(
                    f"cell {cell} came to task {number} of {self.tasks}: this Spark does not keep "
                    "the partitions of repartitionById; set spark.sql.adaptive.enabled to false"
                )


def _plan(pickled: bytes) -> StagePlan:
    """The plan, read once in a worker."""
    if pickled not in _PLANS:
        if len(_PLANS) >= MOST_HELD:
            _PLANS.clear()
        _PLANS[pickled] = pickle.loads(pickled)
    return _PLANS[pickled]


def _said(cell: int, contents: Mapping[str, bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([cell] * len(contents), pa.int32()),
            pa.array(list(contents)),
            pa.array(list(contents.values()), pa.binary()),
        ],
        ["cell", "name", "content"],
    )


def _pickled(error: DbspWcojError) -> bytes:
    try:
        found = pickle.dumps(error)
        pickle.loads(found)
    except Exception:  # an error of another shape than its arguments
        return pickle.dumps(StreamingError(f"{type(error).__name__}: {error}"))
    return found


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# Circuits by state directory, stage and cell, with the manifest that they are at.
_HELD: dict[tuple[str, int, int], tuple[bytes, Circuit]] = {}
_PLANS: dict[bytes, StagePlan] = {}
