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

Cost: a write reads the log since its checkpoint, and the files that it changes. OPTIMIZE merges
small files and VACUUM removes old ones; the owner of the table runs them.

The target needs the package ``deltalake`` (Rust, no JVM), which the extra ``sinks`` installs. It is
imported at the first check or write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import types

from circuits.schema import WEIGHT
from streaming.errors import TargetError
from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.folder_checks import check_writable, error_reason
from streaming.targets.target import NO_BATCH, ViewDelta, address_of, expand_template

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

__all__ = ["DeltaTarget"]

#: The table property with the view of a table that the target created.
VIEW_KEY: Final = "dbsp_wcoj.view"
#: The key, in the information of a commit, of the state directory that it is from.
STATE_KEY: Final = "dbsp_wcoj.state"
#: The number of commits to search for the last one of a target; others compact the table.
MAX_COMMITS_READ: Final = 20
MAX_ATTEMPTS: Final = 6
#: The pause after the first conflict; it doubles after each further conflict.
FIRST_PAUSE_S: Final = 0.05


class DeltaTarget:
    """Writes each micro-batch as one commit of a Delta Lake table; creates a missing table.

    Args:
        path: A path or URI of ``deltalake``; ``{view}`` in it stands for the name of the view.
        storage_options: Options of object stores, as in ``deltalake.DeltaTable``.
    """

    replaces_views = True

    def __init__(self, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self.path = str(path)
        self.storage_options = None if storage_options is None else dict(storage_options)

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
        table = convert_columns(delta.table, lake_type, subject=str(delta))
        pause = FIRST_PAUSE_S
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                self._write(path, delta, table)
                return
            except CommitFailedError as error:
                if attempt == MAX_ATTEMPTS:
                    raise TargetError(
                        f"{delta}: {MAX_ATTEMPTS} commits to {address_of(path)} failed: {error}; "
                        "correct the table; or, if another writer changes it all the time, stop "
                        "that writer; and start the query again"
                    ) from error
                time.sleep(pause)
                pause *= 2
            except Exception as error:
                # Errors of Arrow in deltalake are plain exceptions.
                if not isinstance(error, DeltaError | OSError) and type(error) is not Exception:
                    raise
                raise TargetError(
                    f"{delta}: {address_of(path)} cannot be written to: {error}; its columns must "
                    f"be those of the view, {', '.join(_columns(delta, table))}; nothing of this "
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
        table = convert_columns(delta.table, lake_type, subject=f"view {delta.view!r}")
        try:
            if not DeltaTable.is_deltatable(path, self.storage_options):
                if "://" not in path:
                    check_writable(Path(path))
                return
            delta_table = DeltaTable(path, storage_options=self.storage_options)
            existing = [field.name for field in delta_table.schema().fields]
        except (DeltaError, OSError) as error:
            raise TargetError(
                f"view {delta.view!r}: Delta table {address_of(path)} cannot be used: "
                f"{error_reason(error)}"
            ) from error
        _check_view(delta_table, delta, path)
        _check_types(delta_table, delta, table, path)
        required = _columns(delta, table)
        if set(required) != set(existing):
            raise TargetError(
                f"view {delta.view!r}: Delta table {address_of(path)} cannot receive it: its "
                f"columns are {', '.join(existing)}, and those of the view {', '.join(required)}; "
                "name another folder, or remove it, and the target creates it again"
            )
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

    def _write(self, path: str, delta: ViewDelta, table: pa.Table) -> None:
        from deltalake import CommitProperties, Transaction

        application = f"{delta.state_id}/{delta.view}"
        delta_table = self._open(path, delta, table)
        last_batch = delta_table.transaction_version(application)
        if last_batch is not None and last_batch >= delta.batch_id:
            return
        place = f"Delta table {address_of(path)}"
        if last_batch is None and delta.mode != "complete" and delta_table.count():
            raise delta.foreign_rows_error(place)
        delta.check_follows(NO_BATCH if last_batch is None else last_batch, place)
        if delta.mode == "complete":
            delta.check_only_writer(_last_writer(delta_table), place)
        properties = CommitProperties(
            custom_metadata={STATE_KEY: delta.state_id},
            app_transactions=[Transaction(application, delta.batch_id)],
        )
        replaces_earlier_rows = delta.is_whole and last_batch is not None
        if delta.mode == "complete" or replaces_earlier_rows:
            rows = _rows(delta, table)
            _append(delta_table, rows, properties, mode="overwrite")
        elif not table.num_rows:
            return
        elif delta.mode == "upsert":
            _merge(delta_table, table, delta.keys, properties)
        else:
            _append(delta_table, _rows(delta, table), properties, mode="append")

    def _open(self, path: str, delta: ViewDelta, table: pa.Table) -> DeltaTable:
        from deltalake import DeltaTable

        options = self.storage_options
        if not DeltaTable.is_deltatable(path, options):
            fields = [table.schema.field(name) for name in _columns(delta, table)]
            schema = pa.schema([pa.field(field.name, field.type) for field in fields])
            # "ignore": another writer may create it at the same time
            DeltaTable.create(
                path,
                schema,
                mode="ignore",
                storage_options=options,
                configuration={VIEW_KEY: delta.view},
                raise_if_key_not_exists=False,
            )
        delta_table = DeltaTable(path, storage_options=options)
        _check_view(delta_table, delta, path)
        _check_types(delta_table, delta, table, path)
        return delta_table


def _last_writer(delta_table: DeltaTable) -> str:
    """Return the state directory of the last commit of a target; empty if it is not known."""
    for count in (1, MAX_COMMITS_READ):  # mostly the last commit is one of a target
        for commit in delta_table.history(count):
            if STATE_KEY in commit:
                return str(commit[STATE_KEY])
    return ""


def _check_view(delta_table: DeltaTable, delta: ViewDelta, path: str) -> None:
    """Check that a table which a target created was created for this view.

    Raises:
        TargetError: It was created for another one.
    """
    view = delta_table.metadata().configuration.get(VIEW_KEY, delta.view)
    if view != delta.view:
        raise TargetError(
            f"view {delta.view!r}: Delta table {address_of(path)} receives view {view!r}, and two "
            "views in one table would mix, or overwrite each other: give each view its own table, "
            "with {view} in the path. If the other view is written no more, remove the folder, and "
            "the target creates it again with the whole view"
        )


def _check_types(delta_table: DeltaTable, delta: ViewDelta, table: pa.Table, path: str) -> None:
    """Check that the columns of an existing table contain all values of those of the view.

    Otherwise ``deltalake`` would change values without an error, for example 1.5 to 1.

    Raises:
        TargetError: The type of a column is neither that of the view nor a wider one.
    """
    for field in pa.schema(delta_table.schema()):
        if field.name in table.column_names:
            type_ = table.schema.field(field.name).type
            if not _contains(field.type, type_):
                raise TargetError(
                    f"view {delta.view!r}: column {field.name!r} of Delta table "
                    f"{address_of(path)} is {field.type}, and the view has {type_}: cast it in the "
                    "view, or name another folder"
                )


def _contains(type_: pa.DataType, other: pa.DataType) -> bool:
    """Return True if a type of a Delta table contains all values of a type of `lake_type`.

    Every type fits a text. The precision of a decimal includes its scale.
    """
    if types.is_nested(type_) or types.is_nested(other):
        return _has_equal_parts(type_, other)
    if type_ == other or _is_text(type_):
        return True
    if _is_bytes(type_) and _is_bytes(other):
        return True
    if types.is_timestamp(type_) and types.is_timestamp(other):
        return True  # both have microseconds, and the zone is UTC
    if types.is_floating(type_):
        narrower = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
        return type_ == pa.float64() and other in narrower
    digits, other_digits = _digits_of(type_), _digits_of(other)
    if digits is None or other_digits is None:
        return False
    return all(mine >= others for mine, others in zip(digits, other_digits, strict=True))


def _has_equal_parts(type_: pa.DataType, other: pa.DataType) -> bool:
    """Return True if two types are nested in the same way, and each part contains the other's."""
    if type_.num_fields != other.num_fields or types.is_struct(type_) != types.is_struct(other):
        return False
    if types.is_map(type_) != types.is_map(other):
        return False
    if types.is_map(type_):
        return _contains(type_.key_type, other.key_type) and _contains(
            type_.item_type, other.item_type
        )
    parts = [(type_.field(i), other.field(i)) for i in range(type_.num_fields)]
    return bool(parts) and all(
        _contains(part.type, other_part.type)
        and (not types.is_struct(type_) or part.name == other_part.name)
        for part, other_part in parts
    )


def _digits_of(type_: pa.DataType) -> tuple[int, int] | None:
    """Return how many digits a number has before and after the decimal point; None if no number."""
    if types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    if types.is_integer(type_):
        return {8: 3, 16: 5, 32: 10, 64: 19}[type_.bit_width], 0
    return None


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(type_: pa.DataType) -> bool:
    return types.is_fixed_size_binary(type_) or type_ in (
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    )


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


def _columns(delta: ViewDelta, table: pa.Table) -> list[str]:
    """Return the columns of the Delta table: without the weight in modes without one."""
    names: list[str] = table.column_names
    return names if delta.output_mode.has_weight else [name for name in names if name != WEIGHT]


def _rows(delta: ViewDelta, table: pa.Table) -> pa.Table:
    """Return the rows of the Delta table that a table with weights stands for."""
    if delta.mode == "append":
        return replace(delta, table=table).added_rows()
    return table.select(_columns(delta, table))


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _require_deltalake() -> None:
    try:
        import deltalake  # noqa: F401  (checks that it is installed)
    except ImportError as error:
        raise TargetError(
            'a Delta Lake target needs the package deltalake: pip install "dbsp-wcoj[sinks]"'
        ) from error
