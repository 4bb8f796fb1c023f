"""Engine: turns the changes of a micro-batch into deltas of views, and keeps the state.

::

    EmbeddedEngine       the circuit in this process, its state in a directory or in memory
    DistributedEngine    cells on Spark's executors, and a driver circuit (`streaming.distributed`)

A micro-batch is one transaction::

    staged = engine.prepare(batch)      evaluate the step; nothing has changed
    staged.write(tables)                make it the next version of the durable state
    staged.commit()                     make it the state in memory
    staged.abandon()                    instead of commit: the state in memory stays as it was

The two engines differ in `Engine.evaluate` alone: the deltas come from the step of the circuit
itself or from the cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from circuits import Circuit, CircuitStep
from streaming.engine.prepare import PreparedBatch, prepare_batch
from streaming.sources.dead_letters import BadRowPolicy, DeadLetters
from streaming.sources.envelope import Changes
from streaming.state.cell_versions import CellVersions
from streaming.state.memory_store import InMemoryStore
from streaming.state.store import Store
from streaming.state.version_summary import VersionSummary
from streaming.targets.output_mode import PostStepReader

__all__ = ["EmbeddedEngine", "Engine", "MicroBatch", "PhaseTimer", "StagedBatch", "StepOutput"]


class PhaseTimer(Protocol):
    """Receives the phases of a micro-batch and the operators that a step evaluates."""

    def phase(self, name: str, what: str = "") -> AbstractContextManager[None]:
        """Measure a phase; ``what`` describes its work."""
        ...

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Count some of the seconds of a phase as seconds of others."""
        ...

    def operator(self, name: str, kind: str, views: tuple[str, ...]) -> None:
        """Note the operator that the step evaluates now."""
        ...


@dataclass(frozen=True)
class MicroBatch:
    """The decoded changes of a micro-batch.

    Attributes:
        batch_id: The id of the micro-batch.
        query_id: The query that the micro-batch comes from, if it is known.
        changes: The changed rows of each relation, and rows that could not be decoded.
        frame: The rows as they came; its Spark session runs the cells.
        watermarks: Times before which no rows of an input are expected any more.
    """

    batch_id: int
    query_id: str | None
    changes: Changes
    frame: DataFrame
    watermarks: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True)
class StepOutput:
    """The deltas of a step that is not committed yet.

    Attributes:
        deltas: The consolidated delta of each output.
        after: Reads a materialized view after the step.
        cells: The versions that the cells have written, if there are any.
    """

    deltas: Mapping[str, pa.Table]
    after: Callable[[str], PostStepReader]
    cells: CellVersions | None = None


class StagedBatch:
    """A micro-batch that is evaluated and not yet part of the state.

    Args:
        batch: The micro-batch.
        prepared: Its step and its dead letters.
        output: The deltas of the step.
        versions: The versions that it will belong to.
    """

    def __init__(
        self,
        batch: MicroBatch,
        prepared: PreparedBatch,
        output: StepOutput,
        versions: Store | InMemoryStore,
    ) -> None:
        self._batch = batch
        self._prepared = prepared
        self._output = output
        self._versions = versions

    @property
    def deltas(self) -> Mapping[str, pa.Table]:
        """The consolidated delta of each output."""
        return self._output.deltas

    @property
    def dead_letters(self) -> DeadLetters:
        """The rows that are not part of the step."""
        return self._prepared.dead_letters

    @property
    def missing_deletions(self) -> Mapping[str, int]:
        """Of each input, the rows that were deleted more often than they were inserted."""
        return self._prepared.step.missing_deletions

    def after(self, view: str) -> PostStepReader:
        """A materialized view after the step."""
        return self._output.after(view)

    def write(self, tables: Mapping[str, pa.Table]) -> VersionSummary:
        """Make the step the next durable version, with the tables that the views publish.

        The version exists from here on, also if the process ends before `commit`.

        Raises:
            StateError: The state directory cannot be written; see `streaming.state.store.Store`.
        """
        letters = self._prepared.dead_letters.table
        return self._versions.write(
            self._batch.batch_id,
            self._batch.query_id,
            self._prepared.step,
            outputs=tables,
            digests=self._prepared.digests,
            dead_letters=letters if letters.num_rows else None,
            cells=self._output.cells,
        )

    def commit(self) -> None:
        """Make the step the state in memory, after `write`."""
        self._prepared.step.commit()
        self._versions.confirm_commit()

    def abandon(self) -> None:
        """Discard the step; the state in memory stays as it was. No effect after `commit`."""
        self._prepared.step.abandon()


class Engine(ABC):
    """Where a circuit runs, and its state.

    Args:
        circuit: The circuit that takes the decoded rows.
        versions: Its state.
    """

    #: Whether `explain` reads the state directory, so that no micro-batch may run beside it.
    explain_reads_state: ClassVar[bool] = False

    def __init__(self, circuit: Circuit, versions: Store | InMemoryStore) -> None:
        self.circuit = circuit
        self.versions = versions

    @abstractmethod
    def evaluate(self, step: CircuitStep, batch_id: int, frame: DataFrame) -> StepOutput:
        """Return the deltas of the views for a prepared step of ``circuit``.

        Args:
            step: The step, prepared.
            batch_id: The micro-batch.
            frame: Its rows, of which the session may be needed.
        """

    @abstractmethod
    def explain(self) -> str:
        """Return the running plan as text."""

    @abstractmethod
    def check_readable(self, view: str) -> None:
        """Check that a view can be read whole from the circuit.

        Raises:
            UnknownViewError: The engine keeps no view whole.
        """

    def prepare(
        self, batch: MicroBatch, *, bad_rows: BadRowPolicy, timer: PhaseTimer
    ) -> StagedBatch:
        """Evaluate the step of a micro-batch; the state does not change.

        Args:
            batch: The micro-batch.
            bad_rows: The policy for rows that the circuit does not take.
            timer: Receives the phases ``step`` and ``cells``.

        Raises:
            RowError: A row is not taken, and the policy is to fail.
            DbspWcojError: The rows do not fit the circuit, or a cell refused its step.
        """
        tables = batch.changes.tables
        rows = sum(table.num_rows for table in tables.values())
        with timer.phase("step", f"{rows:,} rows"), self._operators_noted(timer):
            prepared = prepare_batch(
                self.circuit,
                tables,
                batch.changes.dead_letters,
                bad_rows=bad_rows,
                batch_id=batch.batch_id,
                watermarks=batch.watermarks,
            )
        timer.split("step", prepared.step.seconds)
        try:
            with timer.phase("cells", "steps of the cells"):
                output = self.evaluate(prepared.step, batch.batch_id, batch.frame)
        except BaseException:
            prepared.step.abandon()
            raise
        return StagedBatch(batch, prepared, output, self.versions)

    def check_replay(self, version: VersionSummary, tables: Mapping[str, pa.Table]) -> None:
        """Check that a micro-batch that came again has the rows that the version was made from.

        A version without checksums cannot be compared: some of its rows were found to be bad by
        trying (`streaming.engine.failing_rows`).

        Raises:
            ReplayError: The rows differ.
        """
        if version.digests:
            version.check_same_rows(self.circuit.digests(tables))

    @contextmanager
    def _operators_noted(self, timer: PhaseTimer) -> Iterator[None]:
        self.circuit.observe(timer.operator)
        try:
            yield
        finally:
            self.circuit.observe(None)


class EmbeddedEngine(Engine):
    """A circuit in this process."""

    def evaluate(self, step: CircuitStep, batch_id: int, frame: DataFrame) -> StepOutput:
        """Return the deltas of the step itself."""
        return StepOutput(step.outputs, step.after)

    def check_readable(self, view: str) -> None:
        """Accept all views: the circuit keeps them whole."""

    def explain(self) -> str:
        """Return the operators, with their counters."""
        return self.circuit.explain()
