"""DeltaTarget: a Delta Lake table whose log records the micro-batches that it holds.

::

    delta      append the rows, with weight
    append     append the rows, no weight
    upsert     MERGE by the keys: update, insert, or delete for a tombstone; no weight
    complete   overwrite with the whole view, with weight

Each commit carries the transaction identifier of the protocol (txn: application, version), with
application = ``<state id>/<view>`` and version = batch id, in the same atomic entry of the log as
the rows. The target reads the version before a commit, and Delta refuses the commit if another
writer has committed for the same application in the meantime. So a micro-batch is committed once,
even by two writers. A MERGE that changes no row creates no commit; a commit without rows then
records the micro-batch. Other concurrent commits (for example an OPTIMIZE) cause a conflict; the
target then reads the table and retries the micro-batch.

The MERGE compares keys with IS NOT DISTINCT FROM, so NULL equals NULL, and NaN equals NaN.

An existing table must have the columns of the view, with the same types or types that contain all
their values.

Cost: a write reads the new commits of a local table that an earlier write has opened, or else the
log since its checkpoint (`streaming.targets.open_delta_tables`), and the files that it changes.
OPTIMIZE merges small files and VACUUM removes old ones; the owner of the table runs them.

The target needs the package ``deltalake`` (Rust, no JVM), which the extra ``sinks`` installs. It is
imported at the first check or write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from circuits.schema import WEIGHT
from streaming.errors import TargetError
from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.folder_checks import check_writable, error_reason
from streaming.targets.lake_table import (
    STATE_KEY,
    VIEW_KEY,
    check_columns,
    check_types,
    check_view,
    retry_conflicts,
)
from streaming.targets.open_delta_tables import OpenDeltaTables
from streaming.targets.target import NO_BATCH, ViewDelta, address_of, expand_template

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

__all__ = ["DeltaTarget"]

#: The number of commits to search for the last one of a target; others compact the table.
MAX_COMMITS_READ: Final = 20


class DeltaTarget:
    """Writes each micro-batch as one commit of a Delta Lake table; creates a missing table.

    Args:
        path: A path or URI of ``deltalake``; ``{view}`` in it stands for the name of the view.
        storage_options: Options of object stores, as in ``deltalake.DeltaTable``.
    """

    replaces_views = True
    writes_in_parallel = True

    def __init__(self, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self.path = str(path)
        self.storage_options = None if storage_options is None else dict(storage_options)
        self._tables = OpenDeltaTables(storage_options)

    def __repr__(self) -> str:
        return f"DeltaTarget({address_of(self.path)!r})"  # the options may contain secrets

    def write(self, delta: ViewDelta) -> None:
        """Commit the micro-batch, unless the table contains it.

        Raises:
            MissedBatchesError: The table lacks an earlier micro-batch.
            TargetError: ``deltalake`` is not installed, the view has values that no type of Delta
                contains, the table has narrower types than the view, it contains rows that are not
                from this view and state directory, or it cannot be written to.
        """
        _require_deltalake()
        from deltalake.exceptions import CommitFailedError, DeltaError

        path = expand_template(self.path, delta.view)
        place = address_of(path)
        delta = replace(delta, table=convert_columns(delta.table, lake_type, subject=str(delta)))
        try:
            retry_conflicts(lambda: self._write(path, delta), (CommitFailedError,), delta, place)
        except Exception as error:
            # Errors of Arrow in deltalake are plain exceptions.
            if not isinstance(error, DeltaError | OSError) and type(error) is not Exception:
                raise
            raise TargetError(
                f"{delta}: {place} cannot be written to: {error}; its columns must "
                f"be those of the view, {', '.join(delta.written_columns())}; nothing of this "
                "micro-batch was committed"
            ) from error

    def check(self, delta: ViewDelta) -> None:
        """Check that an existing table has the columns of the view, and only rows of the view.

        Raises:
            TargetError: The table has other columns, types that do not contain the values of the
                view, or rows that are not from this view and state directory; or ``deltalake`` is
                not installed.
        """
        _require_deltalake()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        path = expand_template(self.path, delta.view)
        converted = convert_columns(delta.table, lake_type, subject=f"view {delta.view!r}")
        delta = replace(delta, table=converted)
        try:
            if not DeltaTable.is_deltatable(path, self.storage_options):
                if "://" not in path:
                    check_writable(Path(path))
                return
            delta_table = DeltaTable(path, storage_options=self.storage_options)
            schema = pa.schema(delta_table.schema())
        except (DeltaError, OSError) as error:
            raise TargetError(
                f"view {delta.view!r}: Delta table {address_of(path)} cannot be used: "
                f"{error_reason(error)}"
            ) from error
        _check_table(delta_table, delta, path)
        check_columns(delta, schema, f"Delta table {address_of(path)}")
        last_batch = delta_table.transaction_version(f"{delta.state_id}/{delta.view}")
        if last_batch is None and delta.mode != "complete" and delta_table.count():
            raise delta.foreign_rows_error(f"Delta table {address_of(path)}")

    def last_batch(self, delta: ViewDelta) -> int:
        """Return the last micro-batch of the table; see `RecordingTarget`.

        Raises:
            TargetError: The table cannot be read, or ``deltalake`` is not installed.
        """
        _require_deltalake()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        path = expand_template(self.path, delta.view)
        try:
            if not DeltaTable.is_deltatable(path, self.storage_options):
                return NO_BATCH
            table = DeltaTable(path, storage_options=self.storage_options)
            last_batch = table.transaction_version(f"{delta.state_id}/{delta.view}")
        except (DeltaError, OSError) as error:
            raise TargetError(
                f"view {delta.view!r}: Delta table {address_of(path)} cannot be read: "
                f"{error_reason(error)}"
            ) from error
        return NO_BATCH if last_batch is None else last_batch

    def _write(self, path: str, delta: ViewDelta) -> None:
        delta_table = self._open(path, delta)
        self._commit(delta_table, path, delta)
        self._tables.keep(path, delta_table)

    def _commit(self, delta_table: DeltaTable, path: str, delta: ViewDelta) -> None:
        """Commit a micro-batch to an open table, unless the table contains it."""
        from deltalake import CommitProperties, Transaction

        application = f"{delta.state_id}/{delta.view}"
        last_batch = delta_table.transaction_version(application)
        if last_batch is not None and last_batch >= delta.batch_id:
            return
        place = f"Delta table {address_of(path)}"
        if last_batch is None and delta.mode != "complete" and delta_table.count():
            raise delta.foreign_rows_error(place)
        delta.check_follows(NO_BATCH if last_batch is None else last_batch, place)
        if delta.mode == "complete" or last_batch is not None:
            delta.check_only_writer(_last_writer(delta_table), place)
        properties = CommitProperties(
            custom_metadata={STATE_KEY: delta.state_id},
            app_transactions=[Transaction(application, delta.batch_id)],
        )
        replaces_earlier_rows = delta.is_whole and last_batch is not None
        if delta.mode == "complete" or replaces_earlier_rows:
            _append(delta_table, delta.written_rows(), properties, mode="overwrite")
        elif not delta.table.num_rows:
            return
        elif delta.mode == "upsert":
            _merge(delta_table, delta.table, delta.keys, properties)
        else:
            _append(delta_table, delta.written_rows(), properties, mode="append")

    def _open(self, path: str, delta: ViewDelta) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            delta_table = self._tables.take(path)
        except TableNotFoundError:
            fields = [delta.table.schema.field(name) for name in delta.written_columns()]
            schema = pa.schema([pa.field(field.name, field.type) for field in fields])
            # "ignore": another writer may create it at the same time
            DeltaTable.create(
                path,
                schema,
                mode="ignore",
                storage_options=self.storage_options,
                configuration={VIEW_KEY: delta.view},
                raise_if_key_not_exists=False,
            )
            delta_table = self._tables.take(path)
        _check_table(delta_table, delta, path)
        return delta_table


def _last_writer(delta_table: DeltaTable) -> str:
    """Return the state directory of the last commit of a target; empty if it is not known."""
    for count in (1, MAX_COMMITS_READ):  # mostly the last commit is one of a target
        for commit in delta_table.history(count):
            if STATE_KEY in commit:
                return str(commit[STATE_KEY])
    return ""


def _check_table(delta_table: DeltaTable, delta: ViewDelta, path: str) -> None:
    """Check that a table is of the view, and that its types contain the values of the view.

    Raises:
        TargetError: It is not.
    """
    place = f"Delta table {address_of(path)}"
    check_view(delta, delta_table.metadata().configuration.get(VIEW_KEY, delta.view), place)
    check_types(delta, pa.schema(delta_table.schema()), place)


def _append(
    delta_table: DeltaTable, rows: pa.Table, properties: CommitProperties, *, mode: Any
) -> None:
    from deltalake import write_deltalake

    write_deltalake(delta_table, rows, mode=mode, commit_properties=properties)


def _merge(
    delta_table: DeltaTable, rows: pa.Table, keys: tuple[str, ...], properties: CommitProperties
) -> None:
    columns = [name for name in rows.column_names if name != WEIGHT]
    values = {_quote(name): f"source.{_quote(name)}" for name in columns}
    # Parentheses are needed: the parser reads IS NOT DISTINCT FROM a AND b as ... FROM (a AND b).
    equal_keys = [
        f"(target.{_quote(key)} IS NOT DISTINCT FROM source.{_quote(key)})" for key in keys
    ]
    merge = delta_table.merge(
        rows,
        predicate=" AND ".join(equal_keys),
        source_alias="source",
        target_alias="target",
        commit_properties=properties,
    ).when_matched_delete(predicate=f"source.{WEIGHT} < 0")
    merge = merge.when_matched_update(updates=values)
    merge = merge.when_not_matched_insert(updates=values, predicate=f"source.{WEIGHT} > 0")
    changes = merge.execute()
    if not any(changes[f"num_target_rows_{kind}"] for kind in ("inserted", "updated", "deleted")):
        # Such a MERGE creates no commit, and the log must record the micro-batch nevertheless.
        _append(delta_table, rows.slice(0, 0).select(columns), properties, mode="append")


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _require_deltalake() -> None:
    try:
        import deltalake  # noqa: F401  (checks that it is installed)
    except ImportError as error:
        raise TargetError(
            'a Delta Lake target needs the package deltalake: pip install "dbsp-wcoj[sinks]"'
        ) from error
