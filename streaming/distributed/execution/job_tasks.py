"""Tasks of the one Spark job of a micro-batch: its rows, the cells, and the deltas of views.

::

    rows of the micro-batch --SourceTask--> rows of stages and views    decoded; linear operators
    rows of stages          --CellsTask-->  rows of later stages and views, manifests of cells
    rows of views           --CellsTask-->  files with the deltas

Spark exchanges packets (`streaming.distributed.execution.packets`) before each `CellsTask`. The
tasks of a level step the cells of all stages that read only inputs and stages of lower levels, and
write the views that read only these (`streaming.distributed.planning.job_layout`). Strings are sent
as values, and each cell encodes the strings that it receives, so no process has a dictionary of all
strings.

Each task reports what it has read, as counts. If Spark repeats a task after some of its packets
were received, the tasks that follow may have packets of different attempts. If the source is not
deterministic, or a computation that Spark repeats, these attempts have different rows; and a
manifest may only be committed together with the rows of the same attempt. So each task also reports
the sum of the hashes of the packets that it has sent, and of those that it has received. A hash is
that of the attempt and the destination, not of the rows, because the rows of an attempt do not
change. The driver receives the reports of one attempt of each task. If all tasks have received
exactly the packets of these attempts, both sums are equal; otherwise they differ except with
probability 2⁻⁶⁴ (`streaming.distributed.batch_job`). A task that has received nothing needs no
packet to find out that an attempt sent it something: the sum of the sender tells.

An error that the engine raises on purpose is sent to the driver, because Spark must not retry it.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow.types import is_decimal, is_primitive
from pyspark import TaskContext

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.execution.cell import group_by_destination
from streaming.distributed.execution.packets import (
    DRIVER,
    MAX_PACKET_BYTES,
    MAX_TABLE_BYTES,
    OF_EXCHANGE,
    OF_VIEW,
    Kind,
    Packet,
    divide_packets,
    pack_rows,
    read_packets,
    route_hash,
    slice_rows,
    write_packets,
)
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import (
    count_relations,
    divide_by_cell,
    pack_relations,
    replicate_rows,
    split_columns,
    split_relations,
)
from streaming.distributed.execution.task import CellStep, StagePlan, StageStep, cheap_collection
from streaming.distributed.execution.task_files import TaskFiles
from streaming.distributed.execution.transport import read_table, write_table
from streaming.distributed.execution.view_deltas import ViewOutput, find_tasks, write_delta
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import count_in_tables
from streaming.distributed.planning.job_layout import JobLayout
from streaming.distributed.planning.skew import Counts, add_counts
from streaming.distributed.planning.stages import Stage
from streaming.distributed.task_errors import format_error
from streaming.errors import StreamingError
from streaming.sources.change_feeds import ChangeFeed
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.envelope import Changes
from streaming.state.files import Files

__all__ = [
    "MAX_SENT_VALUES",
    "CellsTask",
    "CountTask",
    "DigestTask",
    "JobPlan",
    "JobTask",
    "Report",
    "SourcePlan",
    "SourceTask",
]

#: The number of rows of a source that are decoded at once, and their bytes.
MAX_SOURCE_ROWS: Final = 1 << 18
MAX_SOURCE_BYTES: Final = 1 << 28
#: The number of values of a variable whose counts a task sends.
MAX_SENT_VALUES: Final = 128
#: The number of circuits of sources that a worker keeps.
MAX_SOURCES: Final = 8

Tables = Mapping[str, list[pa.Table]]
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class SourcePlan:
    """How tasks decode the rows of a micro-batch.

    Attributes:
        spec: The circuit with the linear operators above the inputs; it has no state.
        feed: The change feed; None for rows with the columns of the inputs.
        relation: The input of rows without a tag.
    """

    spec: CircuitSpec
    feed: ChangeFeed | None
    relation: str | None

    def open(self, key: str) -> tuple[FeedReader, Circuit]:
        """Return the reader and the circuit; this worker keeps them under a unique key."""
        if key not in _SOURCES:
            circuit = Circuit(self.spec)
            reader = FeedReader(
                self.feed, circuit.inputs, circuit.input_options, relation=self.relation
            )
            _SOURCES[key] = reader, circuit
            if len(_SOURCES) > MAX_SOURCES:
                del _SOURCES[next(iter(_SOURCES))]
        _SOURCES[key] = _SOURCES.pop(key)  # the one that was used last is the last one
        return _SOURCES[key]


_SOURCES: Final[dict[str, tuple[FeedReader, Circuit]]] = {}


@dataclass(frozen=True)
class JobPlan:
    """The part of a job that stays the same as long as grids and outputs do.

    Attributes:
        key: A unique name of this plan.
        files: The state directory.
        source: How the rows are decoded.
        stages: The circuits of the cells of each stage.
        grids: The grid of each stage.
        layout: Where the stages and views run.
        views: The views, by name.
        tasks: The number of tasks after each exchange; task k steps the cells k, k + tasks, ….
    """

    key: str
    files: Files
    source: SourcePlan
    stages: tuple[StagePlan, ...]
    grids: tuple[Grid, ...]
    layout: JobLayout
    views: Mapping[str, ViewOutput]
    tasks: int

    def published_by(self, stage: Stage) -> ViewOutput | None:
        """Return how the cells of a stage publish the view that they keep; None for a delta."""
        output = self.views.get(stage.view)
        return output if output is not None and output.mode.needs_view else None

    @property
    def steps_all(self) -> bool:
        """Return whether all cells of a stage step in each micro-batch, also without rows."""
        return any(output.mode.mode == "complete" for output in self.views.values())

    @property
    def exchanges_small_rows(self) -> bool:
        """Return whether all columns of inputs, stages and views have values of at most 16 bytes.

        `has_small_columns` checks the columns of the stream.
        """
        types = itertools.chain(
            (type for schema in self.source.spec.schemas.values() for type in schema.types),
            (type for output in self.views.values() for type in output.schema.arrow.types),
            (
                field.type
                for plan in self.stages
                for relation in plan.stage.relations
                for field in relation.fields
            ),
        )
        return all(is_primitive(type) or is_decimal(type) for type in types)

    def stages_of(self, level: int) -> list[StagePlan]:
        """Return the stages of a level."""
        levels = self.layout.levels
        return [plan for plan in self.stages if levels[plan.stage.number] == level]

    def divide(self, tables: Tables, report: Report, partition: int) -> Iterator[Packet]:
        """Yield the rows of stages and exchanged views as packets for the tasks that use them.

        Args:
            tables: The rows, by destination.
            report: Of this task; the numbers of rows and bytes are added.
            partition: The number of this task, through which the driver receives its rows.
        """
        levels = self.layout.levels
        changed_rows: dict[str, int] = {}  # several stages may read the same relation
        for plan, grid, level in zip(self.stages, self.grids, levels, strict=True):
            stage = plan.stage
            tables_of_stage = {
                relation.name: tables.get(f"relation {relation.name}", [])
                for relation in stage.relations
            }
            if not any(table.num_rows for tables in tables_of_stage.values() for table in tables):
                continue
            rows = pack_relations(stage, tables_of_stage)
            changed_rows |= count_relations(stage, rows)
            if level is None:
                yield from _rows_to_driver(
                    partition, Kind.STAGE, str(stage.number), report.origin, rows
                )
                continue
            number = str(stage.number)
            for part in slice_rows(rows, MAX_TABLE_BYTES // grid.most_copies):
                sent = replicate_rows(stage, part, grid).combine_chunks()
                cells = sent.column(CELL).to_numpy().astype(np.int64)
                report.sent_rows[number] += sent.num_rows
                for packet in pack_rows(
                    sent, cells % self.tasks, level, Kind.STAGE, number, cell_of_row=cells
                ):
                    report.sent_bytes[number] += len(packet.content)
                    yield packet._replace(origin=report.origin)
        report.changed_rows.update(changed_rows)
        for view, level in self.layout.exchanged_views.items():
            for table in tables.get(f"view {view}", []):
                report.sent_rows[f" {view}"] += table.num_rows
                for part in slice_rows(table, MAX_TABLE_BYTES):
                    task_of_row = find_tasks(part, self.tasks)
                    for packet in pack_rows(part, task_of_row, level, Kind.VIEW, view):
                        report.sent_bytes[f" {view}"] += len(packet.content)
                        yield packet._replace(origin=report.origin)

    def write_views(
        self,
        batch_id: int,
        tables: dict[str, list[pa.Table]],
        report: Report,
        partition: int,
        task_files: TaskFiles,
    ) -> Iterator[Packet]:
        """Write the deltas of views; yield the names of their files for the driver, or an error.

        Args:
            batch_id: The micro-batch.
            tables: The rows, by view; they are removed.
            report: Of this task.
            partition: The number of this task.
            task_files: The files of this task.
        """
        for view in sorted(tables):
            try:
                rows, checksums = write_delta(
                    task_files,
                    batch_id,
                    view,
                    self.views[view],
                    tables.pop(view),
                    is_local=view in self.layout.local_views,
                )
            except DbspWcojError as error:
                task_files.undo()
                content = format_error(error)
                yield _to_driver(partition, Kind.ERROR, view, OF_VIEW, report.origin, content)
                return
            if rows:
                body: dict[str, Any] = {
                    "rows": rows,
                    "files": {name: [file.size, file.crc] for name, file in checksums.items()},
                }
                content = json.dumps(body).encode()
                yield _to_driver(partition, Kind.FILES, view, 0, report.origin, content)


@dataclass
class Report:
    """The counts of a task, whose size does not depend on the number of rows.

    Attributes:
        origin: The task as level, partition and attempt.
        sent: The sum of the hashes of the packets that it has sent to tasks (`route_hash`).
        received: The sum of the hashes of the packets that it has received.
        rows: The number of rows of each input that it has decoded.
        digests: The checksums of these rows, by input.
        changed_rows: The number of rows of each relation that it has sent to stages, without
            copies.
        cell_steps: The number of cells that it has stepped.
        open_cell_steps: How many of them had their circuit in the memory of the worker.
        sent_rows: The number of rows, with copies, that it has sent to each stage, by number, and
            to each view, by name after a space.
        sent_bytes: The bytes of these rows.
    """

    origin: str
    sent: int = 0
    received: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    digests: Counter[str] = field(default_factory=Counter)
    changed_rows: Counter[str] = field(default_factory=Counter)
    cell_steps: int = 0
    open_cell_steps: int = 0
    sent_rows: Counter[str] = field(default_factory=Counter)
    sent_bytes: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return json.dumps(vars(self)).encode()

    @staticmethod
    def of_json(content: bytes) -> Report:
        """Return the report of the JSON that `to_json` returned.

        >>> report = Report("0.1.7", sent=5, rows=Counter(e=2))
        >>> Report.of_json(report.to_json()) == report
        True
        """
        values = json.loads(content)
        counts = {name: Counter(v) for name, v in values.items() if isinstance(v, dict)}
        return Report(**{**values, **counts})


@dataclass(frozen=True)
class JobTask:
    """The part that all tasks have in common.

    Attributes:
        plan: The plan of the job.
        level: The exchange before the task; 0 for the source.
    """

    plan: JobPlan
    level: int

    def run(self, batches: Batches) -> Batches:
        """Run the task: the function for ``mapInArrow``."""
        with cheap_collection():
            yield from write_packets(self._send_all(batches))

    def _send_all(self, batches: Batches) -> Iterator[Packet | pa.RecordBatch]:
        """Yield the packets of the task, and its report."""
        partition, origin = _identity(self.level)
        partition %= self.plan.tasks
        report = Report(origin)
        for packet in self._send(batches, report, partition):
            if isinstance(packet, Packet) and packet.level != DRIVER:
                report.sent += route_hash(packet)
            yield packet
        yield _to_driver(partition, Kind.REPORT, "", 0, origin, report.to_json())

    def _send(
        self, batches: Batches, report: Report, partition: int
    ) -> Iterator[Packet | pa.RecordBatch]:
        """Yield the packets of the task with the origin of the report; others are passed on.

        Args:
            batches: The rows that the task receives.
            report: Its report; the counts are added.
            partition: Its number.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ReadingTask(JobTask):
    """Decodes the rows of a partition of the micro-batch."""

    level: int = 0

    def _send(
        self, batches: Batches, report: Report, partition: int
    ) -> Iterator[Packet | pa.RecordBatch]:
        reader, circuit = self.plan.source.open(self.plan.key)

        def decode() -> Iterator[Changes]:
            for table in _chunks(batches):
                changes = reader.decode(table, None)
                report.rows.update({name: t.num_rows for name, t in changes.tables.items()})
                yield changes

        try:
            yield from self._use(decode(), circuit, report, partition)
        except DbspWcojError as error:
            yield _to_driver(partition, Kind.ERROR, "", 0, report.origin, format_error(error))
        for _ in batches:  # after an error, Spark still sends the remaining rows
            pass

    def _use(
        self, all_changes: Iterable[Changes], circuit: Circuit, report: Report, partition: int
    ) -> Iterator[Packet]:
        """Yield the packets of the decoded rows.

        Args:
            all_changes: The rows.
            circuit: The linear operators above the inputs.
            report: The report of the task.
            partition: The number of the task.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SourceTask(ReadingTask):
    """Computes the linear operators of the rows, and sends the results to stages and views.

    Attributes:
        wakes_all: True to send a packet to all tasks, so that they run also without rows.
    """

    wakes_all: bool = False

    def _use(
        self, all_changes: Iterable[Changes], circuit: Circuit, report: Report, partition: int
    ) -> Iterator[Packet]:
        if self.wakes_all:
            for level in range(1, self.plan.layout.last_level + 1):
                for task in range(self.plan.tasks):
                    yield Packet(task, level, Kind.STAGE, "", 0, report.origin, b"")
        for changes in all_changes:
            letters = changes.dead_letters
            if len(letters):
                yield from _rows_to_driver(
                    partition, Kind.DEAD_LETTERS, "", report.origin, letters.table
                )
            step = circuit.prepare(changes.tables)
            report.digests.update(step.digests)
            outputs = group_by_destination(step.outputs)
            step.abandon()
            yield from self.plan.divide(outputs, report, partition)


@dataclass(frozen=True)
class DigestTask(ReadingTask):
    """Reads the rows for their numbers and checksums only."""

    def _use(
        self, all_changes: Iterable[Changes], circuit: Circuit, report: Report, partition: int
    ) -> Iterator[Packet]:
        for changes in all_changes:
            report.digests.update(circuit.digests(changes.tables))
        yield from ()


@dataclass(frozen=True)
class CountTask(ReadingTask):
    """Counts the most frequent values of the joins that read inputs, to choose their grids."""

    def _use(
        self, all_changes: Iterable[Changes], circuit: Circuit, report: Report, partition: int
    ) -> Iterator[Packet]:
        counts: dict[tuple[int, int, str], Counts] = {}
        for changes in all_changes:
            step = circuit.prepare(changes.tables)
            tables = group_by_destination(step.outputs)
            step.abandon()
            for stage in (plan.stage for plan in self.plan.stages):
                tables_of_stage = {
                    relation.name: tables.get(f"relation {relation.name}", [])
                    for relation in stage.relations
                    if all(isinstance(part.source, str) for part in relation.parts)
                }
                rows_by_relation = split_columns(stage, pack_relations(stage, tables_of_stage))
                known = {name: rows_by_relation[name] for name in tables_of_stage}
                for (position, name), new in count_in_tables(stage, known).items():
                    parts = [new]
                    if (stage.number, position, name) in counts:
                        parts.append(counts[stage.number, position, name])
                    counts[stage.number, position, name] = add_counts(
                        parts, max_values=MAX_SENT_VALUES
                    )
        for (number, position, name), sent in counts.items():
            content = write_table(sent.to_table())
            key = f"{number} {position} {name}"
            yield _to_driver(partition, Kind.COUNTS, key, 0, report.origin, content)


@dataclass(frozen=True)
class CellsTask(JobTask):
    """Steps some cells of the stages of a level, and writes rows of views.

    Attributes:
        batch_id: The micro-batch.
        manifests: The manifests of the cells of these stages, by stage and cell.
    """

    batch_id: int
    manifests: Mapping[tuple[int, int], bytes]

    def _send(
        self, batches: Batches, report: Report, partition: int
    ) -> Iterator[Packet | pa.RecordBatch]:
        origin = report.origin
        rows: dict[int, list[pa.Table]] = {}
        views: dict[str, list[pa.Table]] = {}  # the rows of views that this task writes
        misplaced: int | None = None  # another task, of which this one has received packets
        for batch in batches:
            used, passed_on = divide_packets(batch, self.level)
            if passed_on.num_rows:
                yield passed_on
            for packet in read_packets(used):
                report.received += route_hash(packet)
                if packet.task != partition:
                    misplaced = packet.task
                if packet.kind == Kind.VIEW:
                    views.setdefault(packet.name, []).append(read_table(packet.content))
                elif packet.name:  # else it only makes this task run
                    rows.setdefault(int(packet.name), []).append(read_table(packet.content))
        if misplaced is not None:
            yield _to_driver(
                partition,
                Kind.ERROR,
                "exchange",
                OF_EXCHANGE,
                origin,
                format_error(_merged_partitions(partition, misplaced)),
            )
            return
        with TaskFiles(self.plan.files) as task_files:
            for plan in self.plan.stages_of(self.level):
                number = plan.stage.number
                tables = rows.pop(number, [])
                rows_of_cells = divide_by_cell(pa.concat_tables(tables)) if tables else {}
                del tables  # their memory is not needed any more
                outputs: dict[str, list[pa.Table]] = {}
                for cell in self._cells_to_step(plan, partition, rows_of_cells):
                    try:
                        result = self._step(plan, cell, rows_of_cells.pop(cell, None), task_files)
                    except DbspWcojError as error:
                        task_files.undo()
                        content = format_error(error)
                        yield _to_driver(partition, Kind.ERROR, str(number), cell, origin, content)
                        return
                    report.cell_steps += 1
                    report.open_cell_steps += result.was_open
                    content = result.manifest
                    yield _to_driver(partition, Kind.MANIFEST, str(number), cell, origin, content)
                    for destination, tables in group_by_destination(result.outputs).items():
                        outputs.setdefault(destination, []).extend(tables)
                for view in self.plan.layout.local_views:
                    if tables := outputs.pop(f"view {view}", []):
                        views.setdefault(view, []).extend(tables)
                yield from self.plan.divide(outputs, report, partition)
            yield from self.plan.write_views(self.batch_id, views, report, partition, task_files)
            task_files.sync()

    def _cells_to_step(
        self, plan: StagePlan, partition: int, with_rows: Collection[int]
    ) -> list[int]:
        """Return the cells of this task that have rows, or take their first step."""
        own_cells = range(partition, plan.cells, self.plan.tasks)
        output = self.plan.published_by(plan.stage)
        if output is not None and output.mode.mode == "complete":
            return list(own_cells)
        new = {cell for cell in own_cells if (plan.stage.number, cell) not in self.manifests}
        return sorted(new.union(with_rows))

    def _step(
        self, plan: StagePlan, cell: int, rows: pa.Table | None, task_files: TaskFiles
    ) -> CellStep:
        manifest = self.manifests.get((plan.stage.number, cell))
        manifests = {} if manifest is None else {cell: manifest}
        output = self.plan.published_by(plan.stage)
        step = StageStep(plan, self.batch_id, manifests, output)
        tables = {} if rows is None else split_relations(plan.stage, rows)
        return step.step_cell(cell, tables, task_files)


def _identity(level: int) -> tuple[int, str]:
    """Return the partition of this task, and its origin."""
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    return partition, f"{level}.{partition}.{context.taskAttemptId()}"


def _to_driver(
    partition: int, kind: Kind, name: str, cell: int, origin: str, content: bytes
) -> Packet:
    """Return a packet that each exchange sends to the task of the same number."""
    return Packet(partition, DRIVER, kind, name, cell, origin, content)


def _rows_to_driver(
    partition: int, kind: Kind, name: str, origin: str, rows: pa.Table
) -> Iterator[Packet]:
    """Yield rows in packets for the driver, which are as small as those for tasks."""
    for part in slice_rows(rows, MAX_PACKET_BYTES):
        yield _to_driver(partition, kind, name, 0, origin, write_table(part))


def _merged_partitions(partition: int, other: int) -> StreamingError:
    """Return the error for a task that Spark has sent the packets of another task."""
    return StreamingError(
        f"task {partition} received rows of task {other}: Spark has merged the partitions of "
        "repartitionById; set spark.sql.adaptive.enabled to false"
    )


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of up to about `MAX_SOURCE_ROWS` rows and `MAX_SOURCE_BYTES`.

    Spark's batches are small, and each of them would be encoded on its own, so they are copied into
    one.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if rows >= MAX_SOURCE_ROWS or size >= MAX_SOURCE_BYTES:
            table = pa.Table.from_batches(pending).combine_chunks()
            pending, rows, size = [], 0, 0  # their memory is not needed while the copy is used
            yield table
    if pending:
        table = pa.Table.from_batches(pending).combine_chunks()
        pending = []
        yield table
