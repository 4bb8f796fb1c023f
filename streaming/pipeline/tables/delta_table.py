"""DeltaSourceTable: the changes of a Delta Lake table between two versions.

========================= ========================================================================
change data feed          if the table records it, and exactly: Delta returns the changed rows
difference of the files   else: the rows of files that only the old version has are deleted, those
                          of files that only the new version has are inserted; a row that a rewrite
                          has copied is in both, and the circuit cancels it
nothing                   if all commits in between only moved rows (OPTIMIZE, VACUUM)
========================= ========================================================================

Cost: the change data feed reads the changed rows. The difference reads the files that the commits
have removed and added, which can be much more than the changed rows; VACUUM removes old files, and
then the difference cannot be read. The table stays open between two refreshes, so the next one
reads only the new commits, and knows the files that the last one has seen.

The position has the id of the table, so a table that was deleted and created again is noticed. A
version never changes, so a refresh that is repeated after a crash reads the same rows, or newer
ones.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from circuits.schema import WEIGHT
from circuits.types.arrow_types import empty_table
from streaming.errors import SourceTableError
from streaming.pipeline.tables.source_table import KeptRows, Position, TableChanges, with_weight
from streaming.targets.open_delta_tables import OpenDeltaTables
from streaming.targets.target import address_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["DeltaSourceTable"]

_ITEM: Final = ""
_FEED_PROPERTY: Final = "delta.enableChangeDataFeed"
_CHANGE_TYPE: Final = "_change_type"
_DELETIONS: Final = ("delete", "update_preimage")
#: Commits that leave the rows as they are.
_MAINTENANCE: Final = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD FEATURE")
_HOW_TO_START_AGAIN: Final = "to read the whole table, start with a new state and new targets"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Version:
    """A version of a table, to be compared with another one.

    Attributes:
        item: The value of the item of its position.
        has_feed: True if it records a change data feed.
        files: The URIs of its data files.
    """

    item: str
    has_feed: bool
    files: frozenset[str]

    @classmethod
    def of(cls, table: DeltaTable) -> _Version:
        metadata = table.metadata()
        has_feed = metadata.configuration.get(_FEED_PROPERTY, "").lower() == "true"
        item = f"{metadata.id}:{table.version()}"
        return cls(item, has_feed, frozenset(table.file_uris()))


class DeltaSourceTable:
    """A Delta Lake table.

    Args:
        path: A path or URI of ``deltalake``.
        storage_options: Options of object stores, as in ``deltalake.DeltaTable``.
    """

    item_column = None

    def __init__(self, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._options = None if storage_options is None else dict(storage_options)
        self._tables = OpenDeltaTables(storage_options)
        self._last: _Version | None = None  # the version that was read last

    @property
    def description(self) -> str:
        return f"Delta table {address_of(self._path)}"

    def schema(self) -> pa.Schema:
        with self._report_errors():
            return _schema_of(self._open())

    def changes(self, position: Position, kept_rows: KeptRows) -> TableChanges | None:
        with self._report_errors():
            table = self._tables.take(self._path)
            change = self._changes(table, position)
            self._tables.keep(self._path, table)
            return change

    def _changes(self, table: DeltaTable, position: Position) -> TableChanges | None:
        new = _Version.of(table)
        if not position:
            method, rows = "the whole table", with_weight(_all_rows(table), 1)
        else:
            old_version = self._version_of(position, table)
            if position == {_ITEM: new.item}:
                return None
            method, rows = self._difference(table, new, position[_ITEM], old_version)
        self._last = new
        return TableChanges(rows, {_ITEM: new.item}, method)

    def rows_at(self, position: Position) -> pa.Table:
        with self._report_errors():
            table = self._open()
            old = self._open(self._version_of(position, table))
            return _read_files(old, {*old.file_uris()}, _schema_of(table))

    def _difference(
        self, table: DeltaTable, new: _Version, old_item: str, old_version: int
    ) -> tuple[str, pa.Table]:
        from deltalake.exceptions import DeltaError

        commits = _commits_after(old_version, table)
        if commits and all(commit.get("operation") in _MAINTENANCE for commit in commits):
            return "no change", with_weight(empty_table(_schema_of(table)), 1)
        old = self._last
        if old is None or old.item != old_item:
            old = _Version.of(self._open(old_version))
        has_feed = old.has_feed and new.has_feed
        if has_feed and commits and all(map(_is_recorded_exactly, commits)):
            try:
                return "change data feed", _read_feed(table, old_version)
            except DeltaError as error:  # for example, it was switched off in between
                log.info("%s: no change data feed: %s", self.description, error)
        schema = _schema_of(table)
        added = _read_files(table, new.files - old.files, schema)
        removed = empty_table(schema)
        if not old.files <= new.files:
            removed = _read_files(self._open(old_version), old.files - new.files, schema)
        rows = pa.concat_tables([with_weight(removed, -1), with_weight(added, 1)])
        return "difference of the files", rows

    def _version_of(self, position: Position, table: DeltaTable) -> int:
        table_id, _, version = position.get(_ITEM, "").rpartition(":")
        if table_id != str(table.metadata().id):
            raise SourceTableError(
                f"{self.description} is not the table of the last refresh: it was deleted and "
                "created again, or the pipeline names another table than before; "
                f"{_HOW_TO_START_AGAIN}"
            )
        if int(version) > table.version():
            raise SourceTableError(
                f"{self.description} has version {table.version()}, and the last refresh has read "
                f"version {version}: its log was cut; restore it, or, {_HOW_TO_START_AGAIN}"
            )
        return int(version)

    def _open(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._path, version=version, storage_options=self._options)

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Raise the errors of ``deltalake`` as `SourceTableError`."""
        try:
            from deltalake.exceptions import DeltaError
        except ModuleNotFoundError as error:
            raise SourceTableError(
                f"{self.description} needs the package deltalake, which is not installed: run pip "
                "install 'dbsp-wcoj[sinks]'"
            ) from error
        try:
            yield
        except Exception as error:
            # Errors of Arrow in deltalake are plain exceptions.
            is_known = isinstance(error, DeltaError | OSError | pa.ArrowException)
            if not is_known and type(error) is not Exception:
                raise
            raise SourceTableError(f"{self.description} cannot be read: {error}") from error


def _schema_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _commits_after(old_version: int, table: DeltaTable) -> list[dict[str, Any]]:
    """Return all commits after a version up to that of the table; empty if one is not known."""
    count = table.version() - old_version
    versions = range(old_version + 1, table.version() + 1)
    commits = {commit.get("version"): commit for commit in table.history(count)}
    # A commit of another writer, since the table was opened, would take the place of an older one.
    return [commits[version] for version in versions] if commits.keys() == {*versions} else []


def _is_recorded_exactly(commit: Mapping[str, Any]) -> bool:
    """Return whether the change data feed of a commit has every changed row.

    The package ``deltalake`` (delta-rs) leaves out equal rows when it records an UPDATE or MERGE.
    """
    if commit.get("operation") in _MAINTENANCE:
        return True
    engine = str(commit.get("engineInfo", ""))
    parameters = commit.get("operationParameters") or {}
    is_append = commit.get("operation") == "WRITE" and parameters.get("mode") == "Append"
    return is_append or (bool(engine) and "delta-rs" not in engine)


def _all_rows(table: DeltaTable) -> pa.Table:
    return table.to_pyarrow_table().cast(_schema_of(table))


def _read_feed(table: DeltaTable, old_version: int) -> pa.Table:
    """Return the changes after a version, as the change data feed of the table has them."""
    reader = table.load_cdf(starting_version=old_version + 1, ending_version=table.version())
    changes = pa.RecordBatchReader.from_stream(reader).read_all()
    kinds = changes.column(_CHANGE_TYPE).cast(pa.string())
    is_deletion = pc.is_in(kinds, value_set=pa.array(_DELETIONS)).to_numpy()
    schema = _schema_of(table)
    rows = changes.select(schema.names).cast(schema)
    return rows.append_column(WEIGHT, pa.array(np.where(is_deletion, -1, 1)))


def _read_files(table: DeltaTable, uris: Set[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of some files of a table; a column that it does not have is NULL.

    Raises:
        deltalake.exceptions.DeltaProtocolError: The table has a feature that cannot be read, such
            as deletion vectors, even if no file is to be read.
        OSError: A file does not exist.
    """
    # The dataset of all files has the statistics of each, and takes long to make if they are many.
    files = table.to_pyarrow_dataset(file_pruning_predicate="false")
    folder = table.table_uri.removeprefix("file://")
    names = {uri.removeprefix(folder) for uri in uris}
    if names and table.metadata().partition_columns:  # the files lack the values of these columns
        all_files = table.to_pyarrow_dataset().get_fragments()
        fragments = [fragment for fragment in all_files if fragment.path in names]
        if len(fragments) < len(names):
            missing = min(names - {fragment.path for fragment in fragments})
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), missing)
    else:
        fragments = [files.format.make_fragment(name, files.filesystem) for name in sorted(names)]
    if not fragments:
        return empty_table(schema)
    chosen = ds.FileSystemDataset(fragments, schema, files.format, files.filesystem)
    return chosen.to_table().cast(schema)
