"""Run a micro-batch as one Spark job, in which no row passes through the driver.

::

    rows -> source tasks -> exchange -> tasks of level 1 -> ... -> exchange -> tasks of level n
                                                                                      |
    driver   <-   manifests of cells, files of views, counts   <----------------------+

The driver receives the manifests of the cells that have changed, the names of the files that the
tasks wrote, and a report of each task: the bytes do not depend on the number of rows. A count of
all rows is added up in the driver, from one number of each task. The driver commits the results
with its manifest, as if it had run the stages one after another (`streaming.distributed.pipeline`);
both ways have the same state.

Rows between stages are exchanged inside of the job, so a task may read rows of one attempt of an
earlier task, and another task those of a second attempt, if an executor is lost at that moment. The
driver compares hashes of the attempts whose packets were sent with those of the packets that were
received, and runs the job again if they differ (`streaming.distributed.execution.job_tasks`).

Cost: a Spark stage for the source, and for each level of stages and views
(`streaming.distributed.planning.job_layout`), also without rows.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from circuits import Circuit
from streaming.distributed.execution.job_tasks import (
    CellsTask,
    CountTask,
    DigestTask,
    JobPlan,
    JobTask,
    Report,
    SourceTask,
)
from streaming.distributed.execution.packets import (
    OF_EXCHANGE,
    PACKET_SCHEMA,
    Kind,
    Packet,
    read_packets,
)
from streaming.distributed.execution.transport import read_table, transport_type
from streaming.distributed.execution.xxhash import xxhash64
from streaming.distributed.explain import ExchangedRows
from streaming.distributed.planning.grid_planning import KnownCounts
from streaming.distributed.planning.skew import Counts, add_counts
from streaming.distributed.planning.stages import Stages
from streaming.distributed.spark_settings import has_small_columns, use_settings
from streaming.distributed.task_errors import parse_error
from streaming.distributed.task_pins import TaskPins
from streaming.distributed.unused_files import remove_unused_files
from streaming.errors import StreamingError
from streaming.sources.dead_letters import DeadLetters
from streaming.state.files import Files
from streaming.state.manifest import FileChecksum
from streaming.state.version_summary import PublishedTable

log = logging.getLogger(__name__)

__all__ = [
    "JobResult",
    "UnreadableSourceError",
    "find_driver_reason",
    "read_counts",
    "read_digests",
    "run_job",
]

#: How often a job is run whose tasks have received rows of different attempts of a task.
MAX_RUNS: Final = 3

#: The packets that the driver receives, by kind; a kind without packets has an empty list.
Packets = defaultdict[str, list[Packet]]


class UnreadableSourceError(StreamingError):
    """A task could not decode the rows of the micro-batch, or compute the linear operators."""


@dataclass
class JobResult:
    """The results of a job that the driver receives.

    Attributes:
        manifests: The manifests of the cells that have changed, by stage and cell.
        tables: The published table of each view with rows, unless the driver computes it.
        driver_rows: The rows of stages that the driver runs, in transport encoding, by stage.
        rows: The number of rows of each input.
        digests: The checksums of these rows.
        changed_rows: The number of changed rows of each relation of a stage.
        exchanged: The rows and bytes that tasks have sent to stages and views.
        dead_letters: The rows that could not be decoded.
        cell_steps: The number of steps of cells on executors.
        open_cell_steps: How many of them found their circuit in the memory of the worker.
    """

    manifests: dict[tuple[int, int], bytes] = field(default_factory=dict)
    tables: dict[str, PublishedTable] = field(default_factory=dict)
    driver_rows: dict[int, list[pa.Table]] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    digests: dict[str, int] = field(default_factory=dict)
    changed_rows: Counter[str] = field(default_factory=Counter)
    exchanged: ExchangedRows = field(default_factory=ExchangedRows)
    dead_letters: DeadLetters = field(default_factory=DeadLetters.empty)
    cell_steps: int = 0
    open_cell_steps: int = 0

    def remove_files(self, files: Files, previous: Mapping[tuple[int, int], bytes]) -> None:
        """Remove the files that the tasks have written, because the result is not used.

        Args:
            files: The state directory.
            previous: The manifests of all cells before the job.
        """
        remove_unused_files(files, previous, self.manifests, tables=self.tables.values())


def find_driver_reason(circuit: Circuit, stages: Stages) -> str | None:
    """Return why the rows of a circuit have to pass through the driver; None if they do not.

    An input with options or a materialized input has state in the driver, and a column of a view
    that cannot be hashed cannot be exchanged.
    """
    for name in circuit.inputs:
        if name in circuit.input_options:
            return f"input {name!r} has options"
        if name in circuit.materialized:
            return f"input {name!r} is materialized"
    for view in stages.published:
        for column in circuit.schema(view).fields:
            try:
                transport_type(column.type)
                xxhash64([pa.array([], column.type)])
            except StreamingError:
                return f"column {column.name!r} of view {view!r} is of type {column.type}"
    return None


def run_job(
    frame: DataFrame,
    plan: JobPlan,
    batch_id: int,
    manifests: Mapping[tuple[int, int], bytes],
    *,
    has_new_cells: bool,
    name_view: Callable[[Exception, int, int], Exception],
    pins: TaskPins | None = None,
) -> JobResult:
    """Run a micro-batch.

    Args:
        frame: Its rows, as the feed reads them.
        plan: The plan of the job.
        batch_id: The micro-batch.
        manifests: The manifests of all cells that have a state.
        has_new_cells: True if there are others, which take their first step.
        name_view: Adds the name of a view to the error of a cell of a stage.
        pins: Pins the tasks of cells to executors; None if Spark chooses them.

    Raises:
        UnreadableSourceError: The rows cannot be decoded, and the cause is the error of the task;
            or no task has run that makes new cells take their first step.
        DbspWcojError: The step of a cell failed, or rows do not fit the output mode of a view.
        PySparkException: A task failed, also after Spark's retries.
    """
    wakes_all = has_new_cells or plan.steps_all
    tasks: list[JobTask] = [SourceTask(plan, wakes_all=wakes_all)]
    layout = plan.layout
    for level in range(1, layout.last_level + 1):
        cells = {
            key: manifest for key, manifest in manifests.items() if layout.levels[key[0]] == level
        }
        tasks.append(CellsTask(plan, level, batch_id, cells))
    for _ in range(MAX_RUNS):
        packets = _collect(frame, tasks, pins)
        reports = _read_reports(packets)
        result = _read_result(packets, reports, plan)
        try:
            if _is_consistent(reports):  # else an error may be due to rows of different attempts
                _raise_errors(packets, name_view)
                if wakes_all and not reports:
                    raise UnreadableSourceError("no task has run: the micro-batch has no rows")
                return result
        except BaseException:
            result.remove_files(plan.files, manifests)
            raise
        result.remove_files(plan.files, manifests)
        log.warning(
            "micro-batch %d: Spark repeated tasks after their rows had been received: the job runs "
            "again",
            batch_id,
        )
    raise StreamingError(
        f"micro-batch {batch_id}: in {MAX_RUNS} runs, Spark repeated tasks after their rows had "
        "been received: executors are lost again and again; nothing was applied: correct this and "
        "start the query again"
    )


def read_digests(frame: DataFrame, plan: JobPlan) -> JobResult:
    """Read the rows of a micro-batch on executors for their numbers and checksums only.

    Raises:
        UnreadableSourceError: As `run_job`.
    """
    packets = _collect(frame, [DigestTask(plan)])
    _raise_errors(packets)
    return _read_result(packets, _read_reports(packets), plan)


def read_counts(frame: DataFrame, plan: JobPlan) -> dict[int, KnownCounts]:
    """Read the rows of a micro-batch on executors to count the values of joins, by stage.

    Each task counts at most `job_tasks.MAX_SENT_VALUES` values, the most frequent ones of its rows.

    Raises:
        UnreadableSourceError: As `run_job`.
    """
    packets = _collect(frame, [CountTask(plan)])
    _raise_errors(packets)
    parts: dict[int, dict[tuple[int, str], list[Counts]]] = {}
    for packet in packets[Kind.COUNTS]:
        number, position, name = packet.name.split(" ", 2)
        by_variable = parts.setdefault(int(number), {})
        counts = Counts.of_table(read_table(packet.content))
        by_variable.setdefault((int(position), name), []).append(counts)
    return {
        number: {key: add_counts(counts) for key, counts in by_variable.items()}
        for number, by_variable in parts.items()
    }


def _collect(frame: DataFrame, tasks: list[JobTask], pins: TaskPins | None = None) -> Packets:
    """Run the tasks as one job; return the packets for the driver, by kind."""
    has_small_rows = tasks[0].plan.exchanges_small_rows and has_small_columns(frame.schema)
    with use_settings(frame.sparkSession, has_small_rows=has_small_rows):
        packets = frame.mapInArrow(tasks[0].run, PACKET_SCHEMA)
        for task in tasks[1:]:
            exchanged = packets.repartitionById(task.plan.tasks, "task")
            if pins is not None:
                exchanged = pins.pin(exchanged, task.plan.tasks)
            packets = exchanged.mapInArrow(task.run, PACKET_SCHEMA)
        result = packets.toArrow()
    by_kind: Packets = defaultdict(list)
    for batch in result.to_batches():
        for packet in read_packets(batch):
            by_kind[packet.kind].append(packet)
    return by_kind


def _raise_errors(
    packets: Packets,
    name_view: Callable[[Exception, int, int], Exception] = lambda error, stage, cell: error,
) -> None:
    """Raise the error of a task, if there is one.

    Later tasks run on the rows that there are. So of several errors, that of the source is the
    cause of all others, then that of rows that reached a wrong task, and that of a cell of an
    earlier stage the cause of those of later stages and of views.
    """

    def order(packet: Packet) -> tuple[bool, bool, bool, int]:
        is_of_cell = packet.cell >= 0
        number = int(packet.name or 0) if is_of_cell else 0
        return bool(packet.name), packet.cell != OF_EXCHANGE, not is_of_cell, number

    for packet in sorted(packets[Kind.ERROR], key=order)[:1]:
        error = parse_error(bytes(packet.content))
        if not packet.name:
            raise UnreadableSourceError(str(error)) from error
        raise error if packet.cell < 0 else name_view(error, int(packet.name), packet.cell)


def _read_reports(packets: Packets) -> list[Report]:
    return [Report.of_json(bytes(packet.content)) for packet in packets[Kind.REPORT]]


def _is_consistent(reports: list[Report]) -> bool:
    """Return whether the tasks have received exactly the packets of the attempts that reported."""
    return sum(report.sent for report in reports) == sum(report.received for report in reports)


def _read_result(packets: Packets, reports: list[Report], plan: JobPlan) -> JobResult:
    result = JobResult()
    for packet in packets[Kind.MANIFEST]:
        result.manifests[int(packet.name), packet.cell] = bytes(packet.content)
    checksums: dict[str, dict[str, FileChecksum]] = {}
    rows: Counter[str] = Counter()
    for packet in packets[Kind.FILES]:
        body = json.loads(bytes(packet.content))
        rows[packet.name] += body["rows"]
        checksums.setdefault(packet.name, {}).update(
            {name: FileChecksum(*file) for name, file in body["files"].items()}
        )
    for view, of_view in checksums.items():
        result.tables[view] = plan.views[view].stored(plan.files, of_view, rows[view])
    for packet in packets[Kind.STAGE]:
        result.driver_rows.setdefault(int(packet.name), []).append(read_table(packet.content))
    if letters := packets[Kind.DEAD_LETTERS]:
        tables = [read_table(packet.content) for packet in letters]
        result.dead_letters = DeadLetters(pa.concat_tables(tables))
    # 0 for an input without rows: a replay is not compared if there are no checksums.
    digests = Counter(dict.fromkeys(plan.source.spec.schemas, 0))
    for report in reports:
        result.rows.update(report.rows)
        result.changed_rows.update(report.changed_rows)
        result.exchanged.rows.update(report.sent_rows)
        result.exchanged.bytes.update(report.sent_bytes)
        digests.update(report.digests)
        result.cell_steps += report.cell_steps
        result.open_cell_steps += report.open_cell_steps
    result.digests = {name: _to_int64(total) for name, total in digests.items()}
    return result


def _to_int64(total: int) -> int:
    """Return a sum of checksums with wraparound."""
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)
