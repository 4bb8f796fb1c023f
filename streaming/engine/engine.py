"""Engine: turns the changes of a micro-batch into deltas of views, and keeps the state.

::

    EmbeddedEngine       runs the circuit in this process; its state is in a directory or in memory
    DistributedEngine    runs the joins and groups in cells on Spark's executors, and the other
                         operators in a circuit on the driver (`streaming.distributed`)

A micro-batch is one transaction::

    staged = engine.prepare(batch)      evaluate the step; nothing has changed
    staged.write(tables)                make the step the next version of the durable state
    staged.commit()                     make the step the state in memory
    staged.abandon()                    instead of commit: discard the step

The two engines differ mainly in `Engine.evaluate`, which returns the deltas of the views: those of
the circuit's step, or those of the cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from circuits import Circuit, CircuitStep, ProgramChangeError
from circuits.inputs.rejected_rows import LATE
from circuits.runtime.graph import GraphStep
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill
from dbsp_wcoj.storage.trace import TraceStep
from streaming.engine.prepare import PreparedBatch, prepare_batch
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.dead_letters import BadRowPolicy, DeadLetters
from streaming.sources.envelope import Changes
from streaming.state.cell_versions import CellVersions
from streaming.state.memory_store import InMemoryStore
from streaming.state.program_change import (
    AppliedChange,
    ChangeOptions,
    add_outputs,
    check_allowed,
    compute_change,
    finish_change,
)
from streaming.state.records.early_state import EarlyState
from streaming.state.store import Store
from streaming.state.version_summary import PublishedTable, VersionSummary
from streaming.targets.output_mode import OutputMode, PostStepReader

__all__ = [
    "CellCounts",
    "EmbeddedEngine",
    "Engine",
    "MicroBatch",
    "PhaseTimer",
    "RowCounts",
    "StagedBatch",
    "StepOutput",
    "UnreadBatch",
    "ViewBackfill",
]


class PhaseTimer(Protocol):
    """Receives the phases of a micro-batch and the operators that a step evaluates."""

    def phase(self, name: str, subject: str = "") -> AbstractContextManager[None]:
        """Measure a phase; ``subject`` says what the phase works on."""
        ...

    def split_phase(self, name: str, parts: Mapping[str, float]) -> None:
        """Count some of the seconds of a phase as seconds of others."""
        ...

    def operator(self, name: str, kind: str, views: tuple[str, ...]) -> None:
        """Record the operator that the step evaluates now."""
        ...


@dataclass(frozen=True)
class MicroBatch:
    """The decoded changes of a micro-batch.

    Attributes:
        batch_id: The id of the micro-batch.
        query_id: The Spark query of the micro-batch, if it is known.
        changes: The changed rows of each relation, and rows that could not be decoded.
        frame: The rows as Spark passed them; the Spark session of the frame runs the cells.
        watermarks: For each input with lateness or retention, the time before which no rows are
            expected.
        now: The time of the micro-batch, for views that read ``now()``.
        modes: The output mode of each view.
    """

    batch_id: int
    query_id: str | None
    changes: Changes
    frame: DataFrame
    watermarks: Mapping[str, datetime] = field(default_factory=dict)
    now: datetime | None = None
    modes: Mapping[str, OutputMode] = field(default_factory=dict)


@dataclass(frozen=True)
class UnreadBatch:
    """A micro-batch whose rows the process of the sink has not read.

    Attributes:
        batch_id: The id of the micro-batch.
        query_id: The Spark query of the micro-batch, if it is known.
        frame: The rows as Spark passed them.
        reader: Decodes them.
        modes: The output mode of each view.
    """

    batch_id: int
    query_id: str | None
    frame: DataFrame
    reader: FeedReader
    modes: Mapping[str, OutputMode]


@dataclass(frozen=True)
class RowCounts:
    """The counts and checksums of the rows of a micro-batch that this process has not read.

    Attributes:
        rows: The number of accepted rows of each input.
        digests: The checksums of these rows.
    """

    rows: Mapping[str, int]
    digests: Mapping[str, int]


class CellCounts(NamedTuple):
    """How many cells have made a step in a micro-batch that ran as one Spark job.

    Attributes:
        steps: The number of steps.
        open: How many of them found the circuit of their cell in the memory of their worker, at the
            version before. The others loaded it.
    """

    steps: int = 0
    open: int = 0


@dataclass(frozen=True)
class StepOutput:
    """The deltas of a step that is not committed yet.

    Attributes:
        deltas: The consolidated delta of each output in memory.
        published: The published tables of the other outputs, which executors have written.
        after: Returns a reader of a materialized view as it is after the step.
        cells: The versions that the cells have written, if there are any.
        discard: Removes what executors have written, if the step is not committed.
        cell_counts: The steps of cells, if they were counted.
    """

    deltas: Mapping[str, pa.Table]
    after: Callable[[str], PostStepReader]
    cells: CellVersions | None = None
    published: Mapping[str, PublishedTable] = field(default_factory=dict)
    discard: Callable[[], None] = lambda: None
    cell_counts: CellCounts = field(default_factory=CellCounts)


class ViewBackfill(Protocol):
    """A backfill of new views in slices: `circuits.state.sliced_backfill.SlicedBackfill`."""

    @property
    def change(self) -> ProgramChange: ...
    @property
    def rows_read(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_emitted(self) -> int: ...
    @property
    def is_valid(self) -> bool: ...
    @property
    def has_all_rows(self) -> bool: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def slices(self) -> Mapping[str, pa.Table]: ...
    @property
    def sliced_views(self) -> Collection[str]: ...
    @property
    def emitted_views(self) -> Collection[str]: ...

    def emitted_part(self, view: str) -> PostStepReader: ...
    def confirm_slices(self) -> None: ...
    def advance(
        self,
        changes: Iterable[TraceStep],
        max_rows: int,
        now: int | None = None,
        *,
        on_step: Callable[[GraphStep], None] | None = None,
    ) -> int: ...
    def emit(self, max_rows: int) -> int: ...
    def finish(self) -> Mapping[str, pa.Table]: ...
    def abandon(self) -> None: ...


class StagedBatch:
    """A micro-batch that is evaluated and not yet part of the state.

    Args:
        batch: The micro-batch.
        prepared: Its step and its dead letters.
        output: The deltas of the step.
        versions: The store that `write` adds a version to.

    Attributes:
        rows_in: The number of decoded rows of each input.
    """

    def __init__(
        self,
        batch: MicroBatch | UnreadBatch,
        prepared: PreparedBatch,
        output: StepOutput,
        versions: Store | InMemoryStore,
        rows_in: Mapping[str, int],
    ) -> None:
        self.rows_in = rows_in
        self._batch = batch
        self._prepared = prepared
        self._output = output
        self._versions = versions
        self._has_begun_commit = False

    @property
    def batch_id(self) -> int:
        """The id of the micro-batch."""
        return self._batch.batch_id

    @property
    def deltas(self) -> Mapping[str, pa.Table]:
        """The consolidated delta of each output that executors have not written."""
        return self._output.deltas

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The deltas of all traces that the step changes; also after the commit."""
        return self._prepared.step.changes

    @property
    def dead_letters(self) -> DeadLetters:
        """The rows that are not part of the step."""
        return self._prepared.dead_letters

    @property
    def cell_counts(self) -> CellCounts:
        """The steps of cells."""
        return self._output.cell_counts

    @property
    def missing_deletions(self) -> Mapping[str, int]:
        """Of each input, the rows that were deleted more often than they were inserted."""
        return self._prepared.step.missing_deletions

    @property
    def late_rows(self) -> Mapping[str, int]:
        """Of each input with late rows, their number."""
        rows_by_input = {
            name: sum(rejected.table.num_rows for rejected in groups if rejected.reason == LATE)
            for name, groups in self._prepared.step.rejected.items()
        }
        return {name: rows for name, rows in rows_by_input.items() if rows}

    def accepted_rows(self, name: str) -> pa.Table | None:
        """Return the delta of an input, with all its columns; None if it has no rows.

        It is the rows of the micro-batch without those that were rejected.

        Raises:
            ProgramChangeError: Only executors have read the rows.
        """
        if isinstance(self._batch, UnreadBatch):
            raise ProgramChangeError(
                f"micro-batch {self._batch.batch_id} was read by executors while the change was "
                "requested, so its rows cannot be added to those that backfill gives: request the "
                "change again, with the rows after the last micro-batch"
            )
        delta = self._prepared.step.checked_delta(name)
        return self._prepared.tables.get(name) if delta is None else delta

    def after(self, view: str) -> PostStepReader:
        """Return a reader of a materialized view as it is after the step."""
        return self._output.after(view)

    def write(
        self, tables: Mapping[str, pa.Table], first_slices: Collection[str] = ()
    ) -> VersionSummary:
        """Make the step the next durable version, with the published tables of the views.

        After this call the version exists, even if the process ends before `commit`.

        Args:
            tables: The published tables of `deltas`.
            first_slices: As for `streaming.state.store.Store.write`.

        Raises:
            StateError: The state directory cannot be written; see `streaming.state.store.Store`.
        """
        dead_letters = self._prepared.dead_letters.table
        try:
            return self._versions.write(
                self._batch.batch_id,
                self._batch.query_id,
                self._prepared.step,
                outputs={**tables, **self._output.published},
                digests=self._prepared.digests,
                dead_letters=dead_letters if dead_letters.num_rows else None,
                cells=self._output.cells,
                first_slices=first_slices,
            )
        finally:
            self._has_begun_commit = self._versions.has_begun_commit

    def commit(self) -> None:
        """Make the step the state in memory, after `write`."""
        self._prepared.step.commit()
        self._versions.confirm_commit()

    def abandon(self) -> None:
        """Discard the step; the state in memory does not change. No effect after `commit`.

        Files of the step remain if a version may name them, because `write` has begun its commit.
        """
        self._prepared.step.abandon()
        if not self._has_begun_commit:
            self._output.discard()


class Engine(ABC):
    """Runs a circuit and keeps its state.

    Args:
        circuit: The circuit that receives the decoded rows.
        versions: The store of the circuit's state.
    """

    #: True if `explain` reads the state directory, so that no micro-batch may run at the same time.
    explain_reads_state: ClassVar[bool] = False

    def max_few_rows(self, modes: Mapping[str, OutputMode]) -> int:
        """Return up to how many rows it is faster to read them than to call `prepare_unread`.

        Args:
            modes: The output mode of each view.

        Returns:
            0 if this engine never reads rows for this reason.
        """
        return 0

    def __init__(self, circuit: Circuit, versions: Store | InMemoryStore) -> None:
        self.circuit = circuit
        self.versions = versions

    @abstractmethod
    def evaluate(self, step: CircuitStep, batch: MicroBatch) -> StepOutput:
        """Return the deltas of the views for a prepared step of ``circuit``.

        Args:
            step: The prepared step.
            batch: The micro-batch; an engine may need the Spark session of its frame.
        """

    @abstractmethod
    def explain(self) -> str:
        """Return the running plan as text."""

    def close(self) -> None:
        """Release the state directory for other writers."""
        self.versions.close()

    @abstractmethod
    def read_view(self, name: str) -> pa.Table:
        """Return a materialized view or input after the last micro-batch.

        Raises:
            UnknownViewError: It is unknown or not materialized.
            StateDamagedError: A file of a cell cannot be read.
        """

    def read_stored_view(self, name: str) -> pa.Table | None:
        """Return a view from the newest version in the state directory, without its lock.

        The errors are those of `read_view`.

        Returns:
            None if `read_view` can read the version after ``versions.load_newest()``.
        """
        return None

    @property
    def must_commit_change(self) -> bool:
        """True if the views cannot change before the next micro-batch commits an earlier change."""
        return False

    def begins_backfill(self, options: ChangeOptions) -> bool:
        """Return True if the rows of new views are computed in slices."""
        return options.is_sliced

    def compute_change(
        self,
        circuit: Circuit,
        options: ChangeOptions,
        *,
        dropped: Collection[str],
        now: int | None,
        keys: Mapping[str, Sequence[str]],
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Compute the rows of other views; the views stay as they are.

        Args:
            circuit: The new circuit, without state.
            options: What the change may do.
            dropped: The views that are removed on purpose.
            now: The time in microseconds since 1970, if the new circuit reads it.
            keys: The keys of the new views in mode ``upsert``.

        Returns:
            A function that goes on with the new views between two micro-batches; the next one
            commits the change. It raises `ProgramChangeError` if kept rows do not fit the options
            of an input; nothing has changed then. A second function is called instead of it if the
            change is not made: it removes the files that were written for it.

        Raises:
            StreamingError: The engine cannot run the new views.
            StateMismatchError: The change drops something that ``options`` do not allow.
            ProgramChangeError: Rows that are needed are neither kept nor given.
            DbspWcojError: The new views fail for the rows.
        """
        change = self._plan_change(circuit, options, dropped)
        computed = compute_change(
            change,
            options,
            now,
            where=self.versions.description,
            batch_id=self.versions.last_batch_id,
        )

        def make() -> None:
            applied = finish_change(
                change,
                computed,
                where=self.versions.description,
                batch_id=self.versions.last_batch_id,
            )
            self._continue_with(applied, options)

        return make, lambda: None

    def begin_backfill(
        self,
        circuit: Circuit,
        options: ChangeOptions,
        *,
        dropped: Collection[str],
        sliced_views: Mapping[str, Sequence[str]],
        unread_views: Collection[str],
    ) -> ViewBackfill:
        """Begin to compute the state of other views in slices; the views stay as they are.

        The other arguments and the errors are those of `compute_change`.

        Args:
            circuit: The new circuit.
            options: What the change may do; its rows are `GivenRows`.
            dropped: The views that are removed on purpose.
            sliced_views: The views whose initial content is published in slices, each with the key
                columns of its output.
            unread_views: The new views that each micro-batch publishes whole.
        """
        change = self._plan_change(circuit, options, dropped)
        check_allowed(
            change,
            options,
            where=self.versions.description,
            batch_id=self.versions.last_batch_id,
        )
        return SlicedBackfill(change, sliced_views, unread_views, options.backfill)

    def early_state(self, backfill: ViewBackfill) -> EarlyState | None:
        """Return where a backfill writes the state of the new views; None if nowhere."""
        return self.versions.early_state(backfill.change)

    def finish_backfill(
        self, backfill: ViewBackfill, early: EarlyState | None, options: ChangeOptions
    ) -> None:
        """Go on with the views of a complete backfill; the next micro-batch commits the change.

        Args:
            backfill: The result of `begin_backfill`.
            early: Its state in files.
            options: What the change may do.
        """
        outputs = backfill.finish()
        applied = AppliedChange(backfill.change, outputs, backfill.emitted_views, early)
        self._continue_with(applied, options)

    def settings(self) -> Mapping[str, Any]:
        """Return what a change of the views changes, for `undo_change`."""
        return {"circuit": self.circuit, "versions": self.versions.settings()}

    def must_undo_change(self, settings: Mapping[str, Any]) -> bool:
        """Return True if a change that failed may have changed something.

        Args:
            settings: The result of `settings` before the change.
        """
        circuit: Circuit = settings["circuit"]
        return circuit.is_ended

    def undo_change(self, settings: Mapping[str, Any]) -> None:
        """Go back to the views before a change that failed or was interrupted.

        Args:
            settings: The result of `settings` before the change.
        """
        self.circuit = settings["circuit"]
        self.versions.undo_change(settings["versions"])

    def _plan_change(
        self, circuit: Circuit, options: ChangeOptions, dropped: Collection[str]
    ) -> ProgramChange:
        return ProgramChange(self.circuit, circuit, given=options.backfill.keys(), dropped=dropped)

    def _continue_with(self, applied: AppliedChange, options: ChangeOptions) -> None:
        # The losses are checked. If the change has to be made again, it also has the earlier ones.
        circuit, repeated = applied.change.new, replace(options, allow_drop=True)
        self.versions.change_views(circuit, applied, repeated)
        self.circuit = circuit

    def prepare(
        self, batch: MicroBatch, *, bad_rows: BadRowPolicy, timer: PhaseTimer
    ) -> StagedBatch:
        """Evaluate the step of a micro-batch; the state does not change.

        Args:
            batch: The micro-batch.
            bad_rows: The policy for rows that the circuit rejects.
            timer: Receives the phases ``step`` and ``cells``.

        Raises:
            RowError: The circuit rejects a row, and the policy is to fail.
            DbspWcojError: The rows do not fit the circuit, or the step of a cell failed.
        """
        tables = batch.changes.tables
        rows = sum(table.num_rows for table in tables.values())
        with timer.phase("step", f"{rows:,} rows"), self._report_operators(timer):
            prepared = prepare_batch(
                self.circuit,
                tables,
                batch.changes.dead_letters,
                bad_rows=bad_rows,
                batch_id=batch.batch_id,
                watermarks=batch.watermarks,
                now=batch.now,
            )
        timer.split_phase("step", prepared.step.seconds)
        try:
            with timer.phase("cells", "steps of the cells"):
                output = self.evaluate(prepared.step, batch)
        except BaseException:
            prepared.step.abandon()
            raise
        rows_in = {name: table.num_rows for name, table in tables.items()}
        return StagedBatch(batch, prepared, output, self.versions, rows_in)

    def prepare_unread(
        self, batch: UnreadBatch, *, bad_rows: BadRowPolicy, timer: PhaseTimer
    ) -> StagedBatch | None:
        """Evaluate the step of a micro-batch whose rows are not read in this process.

        The other arguments and the errors are those of `prepare`.

        Returns:
            None if the rows have to be read: then nothing has changed, and `prepare` evaluates the
            step, or raises the error of the rows.
        """
        return None

    def count_unread(self, batch: UnreadBatch) -> RowCounts | None:
        """Count the rows of a micro-batch without reading them in this process; None if it must."""
        return None

    def check_replay(self, version: VersionSummary, tables: Mapping[str, pa.Table]) -> None:
        """Check that a replayed micro-batch has the same rows as the committed one.

        A version has no checksums if some of its rows made the step fail and were isolated
        (`streaming.engine.failing_rows`). Then the rows are not compared.

        Raises:
            ReplayError: The rows differ.
        """
        if version.digests:
            version.check_same_rows(self.circuit.digests(tables))

    @contextmanager
    def _report_operators(self, timer: PhaseTimer) -> Iterator[None]:
        self.circuit.observe(timer.operator)
        try:
            yield
        finally:
            self.circuit.observe(None)


class EmbeddedEngine(Engine):
    """A circuit in this process."""

    def evaluate(self, step: CircuitStep, batch: MicroBatch) -> StepOutput:
        """Return the deltas of the step itself, and of a change of the views that it commits."""
        deltas = add_outputs(self.circuit, step.outputs, self.versions.pending_outputs)
        return StepOutput(deltas, step.after)

    def read_view(self, name: str) -> pa.Table:
        """Return the view from the circuit."""
        return self.circuit.views[name]

    def explain(self) -> str:
        """Return the operators, with their counters."""
        return self.circuit.explain()
