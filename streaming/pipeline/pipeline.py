"""Pipeline: brings views up to date with their source tables, one refresh after another.

A refresh applies the changes of all source tables in one step, which is a transaction::

    read       the changes of each source table since the position in the state
    compute    the circuit computes the changed rows of all views; nothing is written yet
    commit     one manifest makes the state, the positions and the changed rows durable
    publish    the changed rows are written to the target tables, several at the same time

Each outdated view that Spark recomputes (`streaming.pipeline.recomputation`) adds a step, with a
commit of its own. Steps are numbered from 0; state and targets record this number as the batch id.

If the process ends before a commit, the step has no effect, and the next refresh reads the source
tables again. After the commit, the state directory has the changed rows. The next refresh publishes
them first, and a target ignores a step whose number it has recorded. So each change is applied to
each target exactly once.

A small file records the last step that was published to all targets. If the file is lost, the step
is published again, which has no effect.

Cost: a refresh computes and writes in proportion to the changes. `DeltaSourceTable` may read whole
files for a few changed rows, and a recomputed view is read and computed as a whole. A process loads
the state once, in O(rows of the state).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits import Circuit, CircuitStep
from circuits.schema import WEIGHT
from circuits.types.codecs.codec import Codecs
from streaming.clock import utc_now
from streaming.data_source.stored_views import StoredViews
from streaming.database.positions import POSITIONS, position_changes, read_positions
from streaming.errors import RowError, SourceTableError, StateDamagedError, StateLockedError
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.recomputation import RecomputedView
from streaming.pipeline.stored_columns import read_columns, write_columns
from streaming.pipeline.tables.source_table import Position, TableChanges, with_weight
from streaming.sink.output import OutputRouting, route_outputs
from streaming.state.checksums import decode_checked, encode_checked, parse_count
from streaming.state.files import Files, read_small_file, replace_atomically
from streaming.state.manifest import Manifest
from streaming.state.open_files import open_files
from streaming.state.program_change import ChangeOptions, add_outputs, newest_version
from streaming.state.store import Store
from streaming.state.version_summary import VersionSummary
from streaming.state.view_definitions import check_definition

__all__ = ["Pipeline", "Refresh"]

#: Threads that write to targets.
MAX_PARALLEL_WRITES: Final = 4
PUBLISHED_FILE: Final = "published.json"
# The position of a recomputed view has one item, whose value is `RecomputedView.key` at its last
# computation. While a view waits to be computed again, the value is empty.
COMPUTED: Final = "computed"
NOT_COMPUTED: Final = {COMPUTED: ""}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refresh:
    """The result of a refresh.

    Attributes:
        number: The last step: a refresh with recomputed views has several. Also if an earlier
            refresh committed the step and this one has only published it; None if it had no step,
            because nothing had changed.
        read: For each source table that has changed: how its changes were found, and the number of
            rows that were read.
        written: The number of rows that were written to the target of each view.
        recomputed: The views that Spark has computed as a whole.
    """

    number: int | None
    read: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    recomputed: tuple[str, ...] = ()

    def with_step(self, number: int, summary: VersionSummary) -> Refresh:
        """Return this result with the rows of one more step added."""
        rows = {
            view: self.written.get(view, 0) + count for view, count in summary.outputs.rows.items()
        }
        return replace(self, number=number, written={**self.written, **rows})


class Pipeline:
    """A compiled pipeline and its state; call `close` at the end, or use it in a ``with`` block.

    Args:
        definition: The views, source tables and targets.
        allow_drop: True to drop views of the state that ``definition`` does not have.
        clock: Returns the time of a refresh, for views that read ``now()``.

    Raises:
        SqlError: The views do not compile.
        SourceTableError: A source table cannot be read.
        TargetError, UnknownViewError: An output does not fit its view.
        RecomputationError: Spark cannot compute a view that the circuit does not support.
        StateError: The state cannot be used.
    """

    def __init__(
        self,
        definition: PipelineDefinition,
        *,
        allow_drop: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._tables = definition.tables
        self._clock = clock
        self._computer = definition.computer
        self._files: Files = open_files(definition.state)
        compiled = definition.compile(read_columns(self._files))
        self._inputs, self._append_only = compiled.inputs, compiled.append_only
        self._circuit, self._recomputed = compiled.circuit, compiled.recomputed
        self._timed, self._columns = compiled.timed, compiled.columns
        self._routing: OutputRouting = route_outputs(
            self._circuit, definition.outputs(self._circuit)
        )
        check_definition(self._files, self._circuit.spec)
        self._has_written = False
        self._store = Store(
            self._files,
            self._circuit,
            change=ChangeOptions(allow_drop),
            backfill=partial(self._backfill, definition.state),
            clock=clock,
            last_batch=self._last_step_of,
            memory_limit=definition.memory_limit,
        )

    @property
    def circuit(self) -> Circuit:
        """The views, with their rows after the last refresh of this process; only read it."""
        return self._circuit

    @property
    def has_written(self) -> bool:
        """True if this object has begun to commit a step, or to write to a target."""
        return self._has_written

    def refresh(self) -> Refresh:
        """Bring all views up to date with their source tables, and write the changed rows.

        If a step fails before its commit, it has no effect; those before it stay committed.

        Raises:
            SourceTableError: The changes of a source table cannot be determined, or a row of an
                append-only table was deleted.
            RowError: An input does not accept a row.
            CircuitError: A view cannot be computed from the rows.
            RecomputationError: Spark cannot compute a view. The next refresh computes it.
            TargetError: A target cannot be written. The step is committed, and the next refresh
                writes it. Errors of further targets are its notes.
            StateError: The state cannot be used, for example because another refresh is running.
        """
        try:
            return self._refresh()
        except BaseException:
            self._store.close()  # the next refresh loads the state again
            raise

    def close(self) -> None:
        """Release the state directory."""
        self._store.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _refresh(self) -> Refresh:
        number, published = self._load()
        positions = read_positions(self._circuit.views[POSITIONS])
        changes = self._read_changes(positions)
        outdated = [
            name
            for name, view in self._recomputed.items()
            if positions.get(view.input) != {COMPUTED: view.key}
            or not view.tables.isdisjoint(changes)
            or name in self._timed
        ]
        report = Refresh(
            None,
            {name: (change.method, change.rows.num_rows) for name, change in changes.items()},
        )
        if published is not None:
            report = report.with_step(published.batch_id, published)
        if changes or self._store.has_pending_change or self._circuit.reads_now:
            rows = {self._inputs[name]: change.rows for name, change in changes.items()}
            new_positions = {
                self._inputs[name]: change.position for name, change in changes.items()
            }
            # If this process ends before Spark has computed them, the next refresh does it.
            for name in outdated:
                new_positions[self._recomputed[name].input] = NOT_COMPUTED
            for name in positions.keys() - self._circuit.inputs.keys():
                new_positions[name] = {}  # if the input is added again, all its rows are read
            rows[POSITIONS] = position_changes(positions, new_positions)
            report = report.with_step(number, self._step_and_publish(number, rows))
            number += 1
        if outdated:
            write_columns(self._files, self._recomputed.values())
        for name in outdated:
            rows = self._recompute(self._recomputed[name])
            report = report.with_step(number, self._step_and_publish(number, rows))
            number += 1
        return replace(report, recomputed=tuple(outdated))

    def _recompute(self, view: RecomputedView) -> dict[str, pa.Table]:
        """Compute a view; return its new rows, its old rows with negated weights, its position."""
        state = self._circuit.views
        relations = {}
        for relation in view.reads:
            source = self._inputs.get(relation, relation)
            table = state[source]
            item = self._tables[relation].item_column if relation in self._tables else None
            relations[relation] = table if item is None else table.drop_columns([item])
        computed = self._computer.rows_of(view.statement, relations).cast(view.schema)
        old = state[view.input]
        index = old.column_names.index(WEIGHT)
        old = old.set_column(index, WEIGHT, pc.negate(old.column(WEIGHT)))
        new = with_weight(computed, 1).select(old.column_names).cast(old.schema)
        position = read_positions(state[POSITIONS])
        return {
            view.input: pa.concat_tables([new, old]),
            POSITIONS: position_changes(position, {view.input: {COMPUTED: view.key}}),
        }

    def _step_and_publish(self, number: int, rows: Mapping[str, pa.Table]) -> VersionSummary:
        """Compute and commit a step, and write its changed rows to the targets."""
        self._find_next(number)
        summary = self._step(number, rows)
        self._publish(summary)
        return summary

    def _load(self) -> tuple[int, VersionSummary | None]:
        """Load the newest state, and publish its last step if a crash has prevented that.

        Returns:
            The number of the next step, and what was published.
        """
        store, newest = self._store, newest_version(self._files)
        number, published = 0, None
        if newest is not None:
            number = newest.batch_id + 1
            if self._last_published() != newest.batch_id:
                published = store.find(newest.batch_id, None, can_repeat=False)
                assert published is not None
                self._publish(published)
        self._find_next(number)
        if store.unpublished is not None:
            published = store.unpublished
            self._publish(published)
            store.confirm_published()
        return number, published

    def _find_next(self, number: int) -> None:
        """Load the state before a step, unless the circuit has it.

        Raises:
            StateLockedError: Another refresh has committed this step.
        """
        if self._store.find(number, None) is not None:
            raise StateLockedError(
                f"another refresh has committed step {number} to {self._store.description} while "
                "this one began; nothing has changed: refresh again"
            )

    def _read_changes(self, positions: Mapping[str, Position]) -> dict[str, TableChanges]:
        """Return the changes of the source tables that have changed."""
        changes = {}
        for name, table in self._tables.items():
            kept_rows = partial(self._kept_rows, name)
            try:
                change = table.changes(positions.get(self._inputs[name], {}), kept_rows)
            except SourceTableError as error:
                raise SourceTableError(f"source table {name!r}: {error}") from error
            if change is None:
                continue
            self._check_columns(name, change.rows)
            if name in self._append_only:
                self._check_append_only(name, change)
            changes[name] = change
        return changes

    def _check_columns(self, name: str, rows: pa.Table) -> None:
        """Check that a source table has got no column since the views were compiled.

        Without it, rows would have NULL in the column if a view reads it later.
        """
        known = {*self._columns[name], self._tables[name].item_column, WEIGHT}
        if new := [column for column in rows.column_names if column not in known]:
            raise SourceTableError(
                f"source table {name!r} has new columns since this process has begun: "
                f"{', '.join(new)}; nothing has changed: start it again"
            )

    def _kept_rows(self, name: str, items: Collection[str]) -> pa.Table:
        """Return the rows of some items of a source table, from the state."""
        rows = self._circuit.views[self._inputs[name]]
        column = rows.column(self._tables[name].item_column).cast(pa.string())
        return rows.filter(pc.is_in(column, value_set=pa.array(sorted(items), pa.string())))

    def _check_append_only(self, name: str, change: TableChanges) -> None:
        if not pc.any(pc.less(change.rows.column(WEIGHT), 0)).as_py():
            return
        # A commit that rewrites a file deletes and inserts equal rows; the Z-set cancels them.
        changed = self._circuit.inputs[self._inputs[name]].to_zset(change.rows, Codecs())
        deleted = -int(changed.weights[changed.weights < 0].sum())
        if deleted:
            raise SourceTableError(
                f"source table {name!r}: {deleted:,} of its rows were deleted or updated, and "
                f"STREAM({name}) reads a table to which rows are only appended; nothing has "
                f"changed: read it as {name}, without STREAM"
            )

    def _step(self, number: int, rows: Mapping[str, pa.Table]) -> VersionSummary:
        """Compute a step, and commit it."""
        circuit, store = self._circuit, self._store
        step = circuit.prepare(rows, now=self._clock() if circuit.reads_now else None)
        try:
            _check_accepted(step)
            deltas = add_outputs(circuit, step.outputs, store.pending_outputs)
            summary = store.write(
                number,
                None,
                step,
                outputs=self._routing.tables(deltas, step.after),
                digests=step.digests,
            )
            step.commit()
            store.confirm_commit()
        except BaseException:
            self._has_written |= store.has_begun_commit
            step.abandon()
            raise
        return summary

    def _publish(self, summary: VersionSummary) -> None:
        """Write the changed rows of a step to the targets, and record that it is published.

        If a target fails, targets that are written in parallel receive the step nevertheless; the
        others that follow it do not.

        Raises:
            TargetError: As the first target that failed; the errors of the others are its notes.
        """
        self._has_written = True
        tables = summary.outputs
        in_parallel = [v for v in tables if self._routing.output_of(v).writes_in_parallel]
        in_parallel.sort(key=lambda view: -tables.rows[view])  # the largest first
        with ThreadPoolExecutor(MAX_PARALLEL_WRITES) as executor:
            written = [executor.submit(self._write, summary, view) for view in in_parallel]
            errors: list[BaseException] = []
            try:
                for view in tables:
                    if view not in in_parallel:
                        self._write(summary, view)
            except BaseException as error:
                errors.append(error)
        errors += [failed for write in written if (failed := write.exception()) is not None]
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"another target failed, too: {other}")
            raise errors[0]
        data = encode_checked({"refresh": summary.batch_id})
        try:
            replace_atomically(self._files, PUBLISHED_FILE, data)
        except OSError as error:  # the next refresh publishes the step again, with no effect
            log.warning("%s/%s was not written: %s", self._files.location, PUBLISHED_FILE, error)

    def _write(self, summary: VersionSummary, view: str) -> None:
        """Write the changed rows of a view in a step to its target."""
        self._routing.publish(
            view,
            summary.batch_id,
            summary.outputs[view],
            state_id=self._store.id,
            files=summary.files.get(view, ()),
            previous=summary.previous.get(view),
            session=None,
        )

    def _last_published(self) -> int | None:
        """Return the last step that was published to all targets; None if it is not known."""
        try:
            data = read_small_file(self._files, PUBLISHED_FILE)
            return parse_count(decode_checked(data, PUBLISHED_FILE)["refresh"])
        except (OSError, StateDamagedError, KeyError, TypeError, ValueError):
            return None

    def _last_step_of(self, view: str) -> int | None:
        """Return the last step that the target of a view has recorded, for `Store`."""
        columns = self._circuit.schema(view).arrow
        return self._routing.last_batch(view, columns, self._store.id)

    def _backfill(self, state: str, version: Manifest) -> dict[str, pa.Table]:
        """Return the rows of the source tables at their positions in a version of other views.

        New views are computed from these rows. Left out are tables whose rows the state keeps
        (`SourceTable.item_column`), and tables whose rows at the position can no longer be read. If
        a new view needs such rows, the change of the views raises an error that names the table.
        """
        if version.fingerprint == self._circuit.fingerprint:
            return {}
        stored = StoredViews(state).rows(POSITIONS, version.batch_id)
        positions, rows = read_positions(stored), {}
        for name, table in self._tables.items():
            position = positions.get(self._inputs[name])
            if position is None or table.item_column is not None:
                continue
            try:
                rows[self._inputs[name]] = table.rows_at(position)
            except SourceTableError as error:
                log.warning("source table %r: no rows for new views: %s", name, error)
        return rows


def _check_accepted(step: CircuitStep) -> None:
    """Check that a step has accepted all rows.

    Raises:
        RowError: The step has rejected a row, because of the options of its input.
    """
    for groups in step.rejected.values():
        for rejected in groups:
            raise RowError(f"{rejected.message}; nothing has changed")
