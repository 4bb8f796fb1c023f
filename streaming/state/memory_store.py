"""In-memory store: keeps the last micro-batch only, for a sink without a state directory.

Within the process each micro-batch takes effect exactly once: a replay of the last micro-batch
gives the same delta. The state ends with the process. A new sink accepts only a new checkpoint,
whose first micro-batch has id 0; any other first id raises an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from circuits import Circuit, CircuitStep
from circuits.state.program_change import ProgramChange
from streaming.errors import BatchOrderError
from streaming.state.cell_versions import CellVersions
from streaming.state.mapped.memory_limit import MemoryUse
from streaming.state.program_change import AppliedChange, ChangeOptions
from streaming.state.version_summary import PublishedTable, PublishedTables, VersionSummary

__all__ = ["InMemoryStore"]


class InMemoryStore:
    """The last micro-batch of a circuit; the state itself is in the circuit."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.id = str(uuid.uuid4())
        self.bytes_written = self.bytes_added = 0
        self.dead_letter_files_removed = self.dead_letter_bytes = 0
        #: As `Store.memory`: there is no limit, because there are no files to map.
        self.memory: MemoryUse | None = None
        self._last: VersionSummary | None = None
        self._query: str | None = None
        self._last_changes: dict[str, int] = {}  # of each view: the last micro-batch with rows
        self._is_circuit_behind = False  # a step was written, but not committed
        #: As `Store.description`.
        self.description = "the state in memory"
        #: As `Store.pending_outputs` and `Store.has_pending_change`.
        self.pending_outputs: Mapping[str, pa.Table] = {}
        self.has_pending_change = False
        #: As `Store.has_begun_commit`.
        self.has_begun_commit = False

    @property
    def last_batch_id(self) -> int | None:
        """As `Store.last_batch_id`."""
        return None if self._last is None else self._last.batch_id

    def find(self, batch_id: int, query_id: str | None) -> VersionSummary | None:
        """Return the last micro-batch if it is replayed; None if this is the next one.

        Raises:
            BatchOrderError: It is neither the last nor the next micro-batch.
        """
        last = self._last
        if self._is_circuit_behind:
            raise BatchOrderError(
                "an earlier micro-batch or change of the views failed during its commit, and the "
                "state was in memory only: start again with an empty checkpoint and a new sink, or "
                "give ViewSink(state_dir=...)"
            )
        if last is None:
            if batch_id != 0:
                raise BatchOrderError(
                    f"the first micro-batch has id {batch_id}, not 0: this sink starts with empty "
                    "views, but the checkpoint has earlier micro-batches; delete the checkpoint to "
                    "read the source again from its beginning, or keep the state in "
                    "ViewSink(state_dir=...)"
                )
            return None
        if None not in (query_id, self._query) and query_id != self._query:
            raise BatchOrderError(
                f"micro-batch {batch_id} is from query {query_id}, the views were built by "
                f"query {self._query}: one sink serves one query with one checkpoint; make a new "
                "circuit and sink for another"
            )
        if batch_id == last.batch_id:
            return last
        if batch_id == last.batch_id + 1:
            return None
        raise BatchOrderError(
            f"micro-batch {batch_id} follows {last.batch_id}; expected {last.batch_id} (a replay) "
            f"or {last.batch_id + 1}: the checkpoint was changed behind this sink; start "
            "again with an empty checkpoint and a new sink"
        )

    def write(
        self,
        batch_id: int,
        query_id: str | None,
        step: CircuitStep,
        *,
        outputs: Mapping[str, PublishedTable],
        digests: Mapping[str, int],
        dead_letters: pa.Table | None = None,
        cells: CellVersions | None = None,
        first_slices: Collection[str] = (),
    ) -> VersionSummary:
        """Keep the output of a step; it replaces the output of the previous step."""
        total = 0 if self._last is None else self._last.dead_letters
        if dead_letters is not None:
            total += dead_letters.num_rows
        self._is_circuit_behind = self.has_begun_commit = True
        self._query = query_id
        previous = {
            view: -1 if view in first_slices else self._last_changes.get(view, -1)
            for view in outputs
        }
        self._last_changes |= {view: batch_id for view, rows in outputs.items() if rows.num_rows}
        tables = PublishedTables(outputs)
        self._last = VersionSummary(batch_id, tables, {}, digests, total, previous)
        self.pending_outputs, self.has_pending_change = {}, False
        return self._last

    def change_views(
        self, circuit: Circuit, applied: AppliedChange, options: ChangeOptions
    ) -> None:
        """Go on with the circuit of other views, as `Store.change_views`."""
        self.circuit = circuit
        if self._last is not None:
            self._last = self._last.continued(applied.link)
            self._last_changes = {
                new: self._last_changes[old]
                for new, old in applied.link.views.items()
                if old in self._last_changes
            }
            self.has_pending_change = True
            self.pending_outputs = applied.outputs_after(self.pending_outputs)

    #: As `Store.loses_pending_change`: the state stays in the circuit.
    loses_pending_change = False

    def has_lost_change(self) -> bool:
        """As `Store.has_lost_change`."""
        return False

    def early_state(self, change: ProgramChange) -> None:
        """As `Store.early_state`: there are no files."""

    def settings(self) -> Mapping[str, Any]:
        """As `Store.settings`."""
        return dict(vars(self))

    def undo_change(self, settings: Mapping[str, Any]) -> None:
        """As `Store.undo_change`; if the state has moved already, the next `find` refuses."""
        vars(self).update(settings)
        self._is_circuit_behind = self._is_circuit_behind or self.circuit.is_ended

    @property
    def unpublished(self) -> VersionSummary | None:
        """As `Store.unpublished`: none, because no other program goes on with state in memory."""
        return None

    def confirm_published(self) -> None:
        """Do nothing, because `unpublished` is None."""

    def confirm_commit(self) -> None:
        """Record that the circuit has committed the step."""
        self._is_circuit_behind = False

    def load_newest(self) -> None:
        """Do nothing: the state is in the circuit."""

    def append_metrics(self, line: str) -> None:
        """Do nothing: there is no file for metrics."""

    def guard_reads(self) -> AbstractContextManager[None]:
        """Return a context manager without effect: no page of the state is in a file."""
        return nullcontext()

    def describe_dead_letters(self) -> str:
        """Return that the dead letters are not kept, for messages."""
        return "not kept, because the sink has no state_dir"

    def close(self) -> None:
        """Do nothing: there is no directory to release."""
