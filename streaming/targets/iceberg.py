"""IcebergTarget: an Iceberg table whose properties record the micro-batches that it holds.

::

    delta      append the rows, with weight
    append     append the rows, no weight
    upsert     one row per key, no weight: delete the changed keys, and append their rows
    complete   replace all rows by the whole view, with weight

The rows and the table property ``dbsp_wcoj.batch.<state id>/<view>`` change in one commit of the
catalog, which requires that the table has the snapshot that the target has read. So a micro-batch
is committed once, even by two writers: the second one reads the table again, and finds it recorded.

Rows of changed keys are deleted by a condition on the keys, which rewrites the data files that
contain them. The whole table is read and rewritten instead if a key column is a float, nested, or
has a dot in its name, or if more than `MAX_KEYS_IN_CONDITION` keys change: statistics of files do
not count NaN, and not all names can be in conditions. NULL equals NULL in keys, and NaN equals NaN.

Cost: a write reads the metadata of the table, and mode ``upsert`` also the files that it rewrites.
Snapshots and small files are removed by the owner of the table (``expire_snapshots``, and
``rewrite_data_files`` in Spark).

The target needs the package ``pyiceberg`` (Python, no JVM), which the extra ``iceberg`` installs.
It is imported at the first check or write.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from circuits.schema import WEIGHT
from circuits.types.arrow_types import is_nested
from streaming.errors import TargetError
from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.iceberg_catalog import IcebergCatalog
from streaming.targets.lake_table import (
    STATE_KEY,
    VIEW_KEY,
    check_columns,
    check_types,
    check_view,
    retry_conflicts,
)
from streaming.targets.output_mode import fold_upserts
from streaming.targets.target import NO_BATCH, ViewDelta, expand_template

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction

__all__ = ["IcebergTarget"]

#: How the names of the table properties begin with the last micro-batch of a view.
BATCH_KEY: Final = "dbsp_wcoj.batch."
#: With more changed keys than this, the whole table is rewritten.
MAX_KEYS_IN_CONDITION: Final = 1000


class IcebergTarget:
    """Writes each micro-batch as one commit of an Iceberg table; creates a missing table.

    Args:
        table: The name of the table with its namespace, ``shop.{view}``; ``{view}`` in it stands
            for the name of the view. A missing namespace is created.
        catalog: The name of the catalog, as in the configuration of ``pyiceberg``; empty for its
            default catalog.
        properties: Properties of the catalog, which override those of the configuration: for
            example ``{"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///lake"}``.
    """

    replaces_views = True

    def __init__(
        self,
        table: str,
        *,
        catalog: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        parts = table.split(".")
        if len(parts) == 1:
            raise TargetError(
                f"Iceberg table {table!r}: give its namespace, too, as in 'shop.{table}'"
            )
        if not all(map(str.strip, parts)):
            raise TargetError(f"Iceberg table {table!r}: a part of the name is empty")
        self.table = table
        self._catalog = IcebergCatalog(catalog, properties)

    def __repr__(self) -> str:
        # the properties may contain secrets
        return f"IcebergTarget({self.table!r}, catalog={self._catalog.name!r})"

    def write(self, delta: ViewDelta) -> None:
        """Commit the micro-batch, unless the table contains it.

        Raises:
            MissedBatchesError: The table lacks an earlier micro-batch.
            TargetError: ``pyiceberg`` is not installed, the view has values that no type of Iceberg
                contains, the table has narrower types than the view, it contains rows that are not
                from this view and state directory, or it cannot be written to.
        """
        delta = _converted(delta, str(delta))
        place = self._place(delta)
        with self._report_errors(f"{delta}: {place} cannot be written to"):
            from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

            conflicts = (CommitFailedException, CommitStateUnknownException)
            retry_conflicts(lambda: self._write(delta), conflicts, delta, place)

    def check(self, delta: ViewDelta) -> None:
        """Check that the catalog answers, and that an existing table accepts the view.

        Raises:
            TargetError: The catalog cannot be used, the table has other columns, types that do not
                contain the values of the view, or rows that are not from this view and state
                directory; or ``pyiceberg`` is not installed.
        """
        delta = _converted(delta, f"view {delta.view!r}")
        with self._report_errors(f"view {delta.view!r}: {self._place(delta)} cannot be used"):
            table = self._load(delta)
            if table is None:
                return
            self._check_rows(table, delta)

    def last_batch(self, delta: ViewDelta) -> int:
        """Return the last micro-batch of the table; see `RecordingTarget`.

        Raises:
            TargetError: The table cannot be read, or ``pyiceberg`` is not installed.
        """
        with self._report_errors(f"view {delta.view!r}: {self._place(delta)} cannot be read"):
            table = self._load(delta)
            return NO_BATCH if table is None else _last_batch(table, delta)

    def _write(self, delta: ViewDelta) -> None:
        table = self._load(delta)
        if table is None:
            table = self._create(delta)
        last_batch = _last_batch(table, delta)
        if last_batch >= delta.batch_id:
            return
        place = self._place(delta)
        self._check_rows(table, delta)
        delta.check_follows(last_batch, place)
        if delta.mode == "complete" or last_batch != NO_BATCH:
            delta.check_only_writer(table.properties.get(STATE_KEY, ""), place)
        is_replaced = delta.mode == "complete" or (delta.is_whole and last_batch != NO_BATCH)
        if not is_replaced and not delta.table.num_rows:
            return
        # A commit that conflicts must not be repeated without another look at the properties.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        with warnings.catch_warnings(), table.transaction() as transaction:
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            _change_rows(transaction, table, delta, replaces_all=is_replaced)
            transaction.set_properties(
                {BATCH_KEY + _writer(delta): str(delta.batch_id), STATE_KEY: delta.state_id}
            )

    def _check_rows(self, table: Table, delta: ViewDelta) -> None:
        """Check that a table without a recorded micro-batch of the view has no rows."""
        if _last_batch(table, delta) != NO_BATCH or delta.mode == "complete":
            return
        if table.current_snapshot() is not None and table.scan(limit=1).to_arrow().num_rows:
            raise delta.foreign_rows_error(self._place(delta))

    def _load(self, delta: ViewDelta) -> Table | None:
        """Return the table, whose view and types are checked; None if there is none."""
        table = self._catalog.find_table(self._name(delta))
        if table is None:
            return None
        place = self._place(delta)
        check_view(delta, table.properties.get(VIEW_KEY, delta.view), place)
        check_columns(delta, table.schema().as_arrow(), place)
        check_types(delta, table.schema().as_arrow(), place)
        return table

    def _create(self, delta: ViewDelta) -> Table:
        catalog, name = self._catalog.connect(), self._name(delta)
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        rows = delta.written_rows()
        schema = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
        return catalog.create_table_if_not_exists(
            name, schema=schema, properties={VIEW_KEY: delta.view}
        )

    def _name(self, delta: ViewDelta) -> str:
        return expand_template(self.table, delta.view, quoted=False)

    def _place(self, delta: ViewDelta) -> str:
        return f"Iceberg table {self._name(delta)!r} of {self._catalog.description}"

    def _report_errors(self, subject: str) -> AbstractContextManager[None]:
        return self._catalog.report_errors(subject, TargetError)


def _converted(delta: ViewDelta, subject: str) -> ViewDelta:
    return replace(delta, table=convert_columns(delta.table, lake_type, subject=subject))


def _writer(delta: ViewDelta) -> str:
    return f"{delta.state_id}/{delta.view}"


def _last_batch(table: Table, delta: ViewDelta) -> int:
    return int(table.properties.get(BATCH_KEY + _writer(delta), NO_BATCH))


def _change_rows(
    transaction: Transaction, table: Table, delta: ViewDelta, *, replaces_all: bool
) -> None:
    """Change the rows of a table as a delta says."""
    stored = table.schema().as_arrow()
    if replaces_all:
        _replace_rows(transaction, _fit(delta.written_rows(), stored))
    elif delta.mode != "upsert" or table.current_snapshot() is None:
        transaction.append(_fit(delta.written_rows(), stored))
    else:
        keys = _fit(delta.table.select(delta.keys), stored)
        if len(keys) <= MAX_KEYS_IN_CONDITION and all(map(_has_conditions, keys.schema)):
            transaction.delete(_condition(keys))
            present = delta.written_rows()
            if present.num_rows:
                transaction.append(_fit(present, stored))
        else:
            _replace_rows(transaction, _fit(_updated(table, delta), stored))


def _fit(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """Return rows with the types of the table, which contain all their values."""
    fields = [stored.field(name).with_nullable(True) for name in rows.column_names]
    return rows.cast(pa.schema(fields))


def _replace_rows(transaction: Transaction, rows: pa.Table) -> None:
    from pyiceberg.expressions import AlwaysTrue

    if rows.num_rows:
        transaction.overwrite(rows)
    else:
        transaction.delete(AlwaysTrue())


def _updated(table: Table, delta: ViewDelta) -> pa.Table:
    """Return all rows of a table after upserts."""
    columns = [name for name in delta.table.column_names if name != WEIGHT]
    rows = table.scan(selected_fields=tuple(columns)).to_arrow().select(columns)
    held = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows, np.int64)))
    held = held.select(delta.table.column_names).cast(delta.table.schema)
    return fold_upserts([held, delta.table], delta.keys).drop_columns([WEIGHT])


def _has_conditions(field: pa.Field) -> bool:
    """Return True if equality with a value of a column finds exactly the rows with the value.

    In conditions, a dot in a name stands before the name of a field of a struct. Dates and
    timestamps are values of Python there; ``pyiceberg`` cannot write others to a table, either.
    """
    return not (is_nested(field.type) or types.is_floating(field.type) or "." in field.name)


def _condition(keys: pa.Table) -> BooleanExpression:
    """Return the condition that a row has one of some keys.

    It is false, not NULL, for other rows, because ``pyiceberg`` also deletes rows for which it is
    NULL.
    """
    from pyiceberg import expressions

    equal_to: Any = expressions.EqualTo  # its declared parameters are not those that it takes
    is_null: Any = expressions.IsNull
    not_null: Any = expressions.NotNull
    conditions = []
    for key in keys.to_pylist():
        parts: list[BooleanExpression] = []
        for name, value in key.items():
            parts += [is_null(name)] if value is None else [not_null(name), equal_to(name, value)]
        conditions.append(expressions.And(*parts) if len(parts) > 1 else parts[0])
    return _any(conditions)


def _any(conditions: Sequence[BooleanExpression]) -> BooleanExpression:
    """Return the disjunction of conditions, as a tree of little depth."""
    from pyiceberg.expressions import Or

    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return Or(_any(conditions[:middle]), _any(conditions[middle:]))
