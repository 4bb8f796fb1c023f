"""Pipeline: brings views up to date with their source tables, one refresh after another.

A refresh is one transaction::

    read       of each source table, what has changed since the position in the state
    step       the circuit computes the changed rows of all views; nothing has changed yet
    commit     one manifest makes the state, the positions and the changed rows durable
    publish    the changed rows are written to the target tables

A crash before the commit leaves everything as it was; the next refresh reads the source tables
again. After the commit, the changed rows are in the state directory: the next refresh publishes
them first, and a target ignores a refresh that it has, by the number of the refresh. So every
change reaches every target exactly once.

A small file records the last refresh that all targets have. If it is lost, that refresh is
published again, which changes nothing.

Cost: a refresh reads, computes and writes in proportion to the changes, and loads the state: O(rows
of the state) at the start of a process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits import Circuit, CircuitStep
from circuits.schema import WEIGHT
from circuits.types.codecs.codec import Codecs
from streaming.data_source.stored_views import StoredViews
from streaming.database.positions import POSITIONS, position_changes, read_positions
from streaming.errors import RowError, SourceTableError, StateDamagedError
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.recomputation import RecomputedView
from streaming.pipeline.stored_columns import read_columns, write_columns
from streaming.pipeline.tables.source_table import Position, TableChanges, with_weight
from streaming.sink.output import OutputRouting, route_outputs
from streaming.state.checksums import decode_checked, encode_checked, parse_count
from streaming.state.files import Files, read_small_file, replace_atomically
from streaming.state.open_files import open_files
from streaming.state.program_change import ChangeOptions, newest_version
from streaming.state.store import Store
from streaming.state.version_summary import VersionSummary
from streaming.state.view_definitions import check_definition

__all__ = ["Pipeline", "Refresh"]

PUBLISHED_FILE: Final = "published.json"
#: The item of the position of a recomputed view, and its position before it is computed again.
COMPUTED: Final = "computed"
NOT_COMPUTED: Final = {COMPUTED: ""}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refresh:
    """What a refresh has done.

    Attributes:
        number: The number of its last step, from 0; None if nothing had changed.
        read: For each source table that has changed, how its changes were found, and how many rows
            were read.
        written: For each view, the rows that were written to its target.
        recomputed: The views that Spark has computed as a whole.
    """

    number: int | None
    read: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    recomputed: tuple[str, ...] = ()

    def with_step(self, number: int, summary: VersionSummary) -> Refresh:
        """Return the refresh with a further step."""
        rows = {
            view: self.written.get(view, 0) + table.num_rows
            for view, table in summary.outputs.items()
        }
        return replace(self, number=number, written={**self.written, **rows})


class Pipeline:
    """A compiled pipeline and its state; call `close` at the end, or use it in a ``with`` block.

    Args:
        definition: The views, source tables and targets.
        allow_drop: True if views that the state has may be missing in ``definition``.
        clock: Returns the time of a refresh, for views that read ``now()``.

    Raises:
        SqlError: The views do not compile.
        SourceTableError: A source table cannot be read.
        TargetError, UnknownViewError: An output does not fit its view.
        StateError: The state cannot be used, for example because a refresh is running.
    """

    def __init__(
        self,
        definition: PipelineDefinition,
        *,
        allow_drop: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._tables = definition.tables
        self._clock = clock
        self._computer = definition.computer
        self._files: Files = open_files(definition.state)
        compiled = definition.compile(read_columns(self._files))
        self._inputs, self._append_only = compiled.inputs, compiled.append_only
        self._circuit, self._recomputed = compiled.circuit, compiled.recomputed
        self._routing: OutputRouting = route_outputs(
            self._circuit, definition.outputs(self._circuit)
        )
        check_definition(self._files, self._circuit.spec)
        self._next = 0  # the number of the step for which the store is ready
        self._store = Store(
            self._files,
            self._circuit,
            change=ChangeOptions(allow_drop, self._backfill(definition.state)),
            clock=clock,
            last_batch=self._last_refresh_of,
            memory_limit=definition.memory_limit,
        )

    @property
    def circuit(self) -> Circuit:
        """The views, at the last refresh of this process; only read it."""
        return self._circuit

    def refresh(self) -> Refresh:
        """Bring all views up to date with their source tables, and write what has changed.

        Raises:
            SourceTableError: The changes of a source table cannot be determined, or a row of an
                append-only table was deleted. Nothing has changed.
            CircuitError: A view has no value for the rows. Nothing has changed.
            TargetError: A target cannot be written. The next refresh writes it.
            StateError: The state cannot be used.
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
        number = self._load()
        positions = read_positions(self._circuit.views[POSITIONS])
        changes = self._read_changes(positions)
        outdated = [
            name
            for name, view in self._recomputed.items()
            if positions.get(view.input) != {COMPUTED: view.key}
            or not view.tables.isdisjoint(changes)
        ]
        report = Refresh(
            None,
            {name: (change.method, change.rows.num_rows) for name, change in changes.items()},
        )
        if changes or self._store.has_pending_change or self._circuit.reads_now:
            rows = {self._inputs[name]: change.rows for name, change in changes.items()}
            new_positions = {
                self._inputs[name]: change.position for name, change in changes.items()
            }
            for name in outdated:  # if this process ends before, the next refresh computes them
                new_positions[self._recomputed[name].input] = NOT_COMPUTED
            for name in positions.keys() - self._circuit.inputs.keys():
                new_positions[name] = {}  # an input that comes back is read as a new one
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
        """Return the changes that a recomputed view makes: its new rows, without its old ones."""
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
        """Compute and commit a step, and write what has changed to the targets."""
        if number != self._next:
            self._store.find(number, None)
        self._next = number + 1
        summary = self._step(number, rows)
        self._publish(summary)
        return summary

    def _load(self) -> int:
        """Load the newest state; publish the last refresh, if a crash came before; return the next.

        Returns:
            The number of the next refresh.
        """
        store, newest = self._store, newest_version(self._files)
        number = 0
        if newest is not None:
            number = newest.batch_id + 1
            if self._last_published() != newest.batch_id:
                last = store.find(newest.batch_id, None)
                assert last is not None
                self._publish(last)
        store.find(number, None)
        if store.unpublished is not None:
            self._publish(store.unpublished)
            store.confirm_published()
        self._next = number
        return number

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
            if name in self._append_only:
                self._check_append_only(name, change)
            changes[name] = change
        return changes

    def _kept_rows(self, name: str, items: Collection[str]) -> pa.Table:
        """Return the rows of a source table that the state has of some of its items."""
        rows = self._circuit.views[self._inputs[name]]
        column = rows.column(self._tables[name].item_column).cast(pa.string())
        return rows.filter(pc.is_in(column, value_set=pa.array(sorted(items), pa.string())))

    def _check_append_only(self, name: str, change: TableChanges) -> None:
        if not pc.any(pc.less(change.rows.column(WEIGHT), 0)).as_py():
            return
        # A rewritten file deletes and inserts the same rows.
        changed = self._circuit.inputs[self._inputs[name]].to_zset(change.rows, Codecs())
        deleted = -int(changed.weights[changed.weights < 0].sum())
        if deleted:
            raise SourceTableError(
                f"source table {name!r}: {deleted:,} of its rows were deleted or updated, and "
                f"STREAM({name}) reads a table to which rows are only appended; nothing has "
                f"changed: read it as {name}, without STREAM"
            )

    def _step(self, number: int, rows: Mapping[str, pa.Table]) -> VersionSummary:
        """Compute a refresh, and commit it."""
        circuit, store = self._circuit, self._store
        step = circuit.prepare(rows, now=self._clock() if circuit.reads_now else None)
        try:
            _check_accepted(step)
            deltas = dict(step.outputs)
            for view, change in store.pending_outputs.items():
                deltas[view] = circuit.add_tables(view, [change, deltas[view]])
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
            step.abandon()
            raise
        return summary

    def _publish(self, summary: VersionSummary) -> None:
        """Write the changed rows of a refresh to the targets, and record that they have it."""
        for view, table in summary.outputs.items():
            self._routing.publish(
                view,
                summary.batch_id,
                table,
                state_id=self._store.id,
                files=summary.files.get(view, ()),
                previous=summary.previous.get(view),
                session=None,
            )
        data = encode_checked({"refresh": summary.batch_id})
        replace_atomically(self._files, PUBLISHED_FILE, data)

    def _last_published(self) -> int | None:
        """Return the last refresh that all targets have; None if it is not known."""
        try:
            data = read_small_file(self._files, PUBLISHED_FILE)
            return parse_count(decode_checked(data, PUBLISHED_FILE)["refresh"])
        except (OSError, StateDamagedError, KeyError, TypeError, ValueError):
            return None

    def _last_refresh_of(self, view: str) -> int | None:
        """Return the last refresh of a view that its target has, as `Store` needs it."""
        columns = self._circuit.schema(view).arrow
        return self._routing.last_batch(view, columns, self._store.id)

    def _backfill(self, state: str) -> dict[str, pa.Table]:
        """Return the rows of the source tables at their positions, if the views have changed.

        New views are computed from them. A table whose earlier rows are no longer there is left
        out; if a new view needs it, the error of the change says so.
        """
        newest = newest_version(self._files)
        if newest is None or newest.fingerprint == self._circuit.fingerprint:
            return {}
        stored = StoredViews(state).rows(POSITIONS, newest.batch_id)
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
    """Check that a step has taken all rows.

    Raises:
        RowError: The options of an input reject a row.
    """
    for groups in step.rejected.values():
        for rejected in groups:
            raise RowError(f"{rejected.message}; nothing has changed")
