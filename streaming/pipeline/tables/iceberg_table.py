"""IcebergSourceTable: the changes of an Iceberg table between two snapshots.

========================= ========================================================================
appended files            if all snapshots in between only appended, or only moved rows: the rows of
                          the data files that they added
difference of the files   else: for each data file that only one snapshot has, or that has other
                          deleted rows, the rows of the old snapshot are deleted and those of the
                          new one are inserted; a row that is in both cancels in the circuit
nothing                   if all snapshots in between only moved rows (a compaction of files)
========================= ========================================================================

Cost: the appended files are found in the manifests of the snapshots in between. The difference
reads the manifests that the two snapshots do not share, or all manifests if their delete files
differ; and it reads whole data files for a few rows that were deleted in them. If files were also
compacted in between, it reads all their rows twice, from the old and from the new files. Each
delete file (positions in Parquet, or deletion vectors in Puffin) is read once.

The position has the UUID of the table and the id of its snapshot, so a table that was deleted and
created again is noticed, and the number by which Iceberg identifies each column::

    {"": "5f0c…:8127…", "nr": "1", "address": "2", "address.city": "3"}

A snapshot never changes, so a refresh that is repeated after a crash reads the same rows, or newer
ones. The snapshot of the position may be expired if all snapshots after it are kept, and each of
them only appended or only moved rows; otherwise its files are not known any more.

Rows are read with the current columns of the table: a renamed column keeps its values, and a newer
column is NULL in older files. If a column has the name of another one of the position, its values
in the old rows are not those that the state has, so the changes cannot be determined.

The package ``pyiceberg`` is imported at the first use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from circuits.types.arrow_types import empty_table
from streaming.errors import SourceTableError
from streaming.pipeline.tables.source_table import KeptRows, Position, TableChanges, with_weight
from streaming.targets.iceberg_catalog import IcebergCatalog

if TYPE_CHECKING:
    from pyiceberg.io import InputFile
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["IcebergSourceTable", "table_names"]

#: The item of a position that has the table and its snapshot; the other items are its columns.
_ITEM: Final = ""
_APPEND: Final = "append"
#: Snapshots that leave the rows as they are.
_REPLACE: Final = "replace"
_HOW_TO_START_AGAIN: Final = "to read the whole table, start with a new state and new targets"


class IcebergSourceTable:
    """An Iceberg table, of which the main branch is read.

    Args:
        name: The name of the table with its namespace, as in ``shop.orders``.
        catalog: The catalog that has the table.
    """

    item_column = None

    def __init__(self, name: str, catalog: IcebergCatalog) -> None:
        self._name = name
        self._catalog = catalog

    @property
    def description(self) -> str:
        return f"Iceberg table {self._name!r} of {self._catalog.description}"

    def schema(self) -> pa.Schema:
        with self._report_errors():
            table = self._load()
            return _schema_of(table)

    def changes(self, position: Position, kept_rows: KeptRows) -> TableChanges | None:
        with self._report_errors():
            table = self._load()
            snapshot = table.current_snapshot()
            newest = _position_of(table, snapshot)
            if not position:
                rows = _read_files(table, _files_of(table, snapshot))
                return TableChanges(with_weight(rows, 1), newest, "the whole table")
            old = self._snapshot_of(position, table)
            if position == newest:
                return None
            method, rows = self._difference(table, old, snapshot)
            return TableChanges(rows, newest, method)

    def rows_at(self, position: Position) -> pa.Table:
        with self._report_errors():
            table = self._load()
            snapshot = self._known_snapshot(table, self._snapshot_of(position, table))
            return _read_files(table, _files_of(table, snapshot))

    def _difference(
        self, table: Table, old: int | None, snapshot: Snapshot | None
    ) -> tuple[str, pa.Table]:
        """Return the changes from an old snapshot to the current one, and how they were found."""
        operations = _operations_between(table, old, snapshot)
        is_same = old == (None if snapshot is None else snapshot.snapshot_id)
        if is_same or (operations and operations <= {_REPLACE}):
            return "no change", with_weight(empty_table(_schema_of(table)), 1)
        if operations and operations <= {_APPEND, _REPLACE}:
            scan = table.incremental_append_scan(from_snapshot_id_exclusive=old)
            return "appended files", with_weight(_read_files(table, scan.plan_files()), 1)
        before, deletes_read = self._known_snapshot(table, old), _DeleteFiles(table)
        removed, added = _changed_files(table, before, snapshot, deletes_read)
        rows = [
            with_weight(_read_files(table, removed, deletes_read), -1),
            with_weight(_read_files(table, added, deletes_read), 1),
        ]
        return "difference of the files", pa.concat_tables(rows)

    def _snapshot_of(self, position: Position, table: Table) -> int | None:
        """Return the id of the snapshot of a position; None if the table had no snapshot.

        Raises:
            SourceTableError: The position is of another table, or of other columns.
        """
        table_id, _, snapshot_id = position.get(_ITEM, "").rpartition(":")
        if table_id != str(table.metadata.table_uuid):
            raise SourceTableError(
                f"{self.description} is not the table of the last refresh: it was deleted and "
                "created again, or the pipeline names another table than before; "
                f"{_HOW_TO_START_AGAIN}"
            )
        columns = _columns_of(table)
        others = [name for name in columns if position.get(name, columns[name]) != columns[name]]
        if others:
            raise SourceTableError(
                f"{self.description}: these names belong to other columns than at the last "
                f"refresh: {', '.join(map(repr, sorted(others)))}; rename the columns, or, "
                f"{_HOW_TO_START_AGAIN}"
            )
        return int(snapshot_id) if snapshot_id else None

    def _known_snapshot(self, table: Table, snapshot_id: int | None) -> Snapshot | None:
        snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        if snapshot is None and snapshot_id is not None:
            raise SourceTableError(
                f"{self.description}: snapshot {snapshot_id}, which the last refresh has read, is "
                "expired, and the rows that were deleted since cannot be found: refresh more often "
                f"than snapshots expire; {_HOW_TO_START_AGAIN}"
            )
        return snapshot

    def _load(self) -> Table:
        table = self._catalog.find_table(self._name)
        if table is None:
            raise SourceTableError(f"{self.description} does not exist: correct the name")
        return table

    def _report_errors(self) -> AbstractContextManager[None]:
        return self._catalog.report_errors(f"{self.description} cannot be read", SourceTableError)


def table_names(catalog: IcebergCatalog, namespace: str) -> list[str]:
    """Return the names of the tables of a namespace, without it.

    Raises:
        SourceTableError: The namespace does not exist, or the catalog cannot be used.
    """
    subject = f"namespace {namespace!r} of {catalog.description} cannot be read"
    with catalog.report_errors(subject, SourceTableError):
        return sorted(identifier[-1] for identifier in catalog.connect().list_tables(namespace))


def _position_of(table: Table, snapshot: Snapshot | None) -> Position:
    snapshot_id = "" if snapshot is None else snapshot.snapshot_id
    return {_ITEM: f"{table.metadata.table_uuid}:{snapshot_id}", **_columns_of(table)}


def _columns_of(table: Table) -> dict[str, str]:
    """Return the number of each column, and of each field of nested columns."""
    from pyiceberg.schema import index_name_by_id

    return {name: str(number) for number, name in index_name_by_id(table.schema()).items()}


def _schema_of(table: Table) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def _operations_between(table: Table, old: int | None, snapshot: Snapshot | None) -> set[str]:
    """Return the operations of the snapshots after an old one, up to a snapshot.

    The result is empty if they are not all known: the old snapshot is not an ancestor, or a
    snapshot in between is expired or does not record its operation.
    """
    operations: set[str] = set()
    while snapshot is not None:
        if snapshot.snapshot_id == old:
            return operations
        if snapshot.summary is None:
            break
        operations.add(snapshot.summary.operation.value)
        parent = snapshot.parent_snapshot_id
        if parent == old:
            return operations
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return set()


def _files_of(table: Table, snapshot: Snapshot | None) -> list[FileScanTask]:
    if snapshot is None:
        return []
    return list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())


def _changed_files(
    table: Table, old: Snapshot | None, new: Snapshot | None, deletes_read: _DeleteFiles
) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """Return the data files to remove, and those to add.

    They are those that are in one snapshot only, or that have other deleted rows in the other. A
    snapshot may have a data file several times; its rows count each time.

    Args:
        table: The table.
        old: The old snapshot; None if there was none.
        new: The new snapshot.
        deletes_read: Keeps the delete files that are read.
    """
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.table import ManifestGroupPlanner

    manifests = [
        {} if snapshot is None else {m.manifest_path: m for m in snapshot.manifests(table.io)}
        for snapshot in (old, new)
    ]

    def is_delete(manifest: ManifestFile) -> bool:
        return manifest.content == ManifestContent.DELETES

    deletes = [{path for path, m in group.items() if is_delete(m)} for group in manifests]
    # Data files of shared manifests have the same rows, unless other deletes apply to them.
    shared = manifests[0].keys() & manifests[1].keys() if deletes[0] == deletes[1] else set()
    planner = ManifestGroupPlanner(table.metadata, table.io)
    files: list[dict[str, list[FileScanTask]]] = []
    for group in manifests:
        chosen = [m for path, m in group.items() if is_delete(m) or path not in shared]
        tasks: dict[str, list[FileScanTask]] = defaultdict(list)
        for task in planner.plan_files(chosen):
            tasks[task.file.file_path].append(task)
        files.append(tasks)
    unchanged = {
        path
        for path in files[0].keys() & files[1].keys()
        if _have_same_rows(files[0][path], files[1][path], deletes_read)
    }
    removed, added = (
        [task for path, tasks in group.items() if path not in unchanged for task in tasks]
        for group in files
    )
    return removed, added


def _have_same_rows(
    old: list[FileScanTask], new: list[FileScanTask], deletes_read: _DeleteFiles
) -> bool:
    """Return True if a data file has the same rows in two snapshots, False if it may not.

    Args:
        old: The data file, as often as the old snapshot has it, with its delete files.
        new: The same of the new snapshot.
        deletes_read: Reads the delete files.
    """
    if len(old) != len(new):
        return False
    common = set.intersection(*(task.delete_files for task in [*old, *new]))
    path = old[0].file.file_path

    def count_deletes(tasks: list[FileScanTask]) -> Counter[frozenset[DataFile]]:
        return Counter(
            frozenset(
                deletes
                for deletes in task.delete_files - common
                if deletes_read.may_name(deletes, path)
            )
            for task in tasks
        )

    return count_deletes(old) == count_deletes(new)


class _DeleteFiles:
    """The files of a table, of which each delete file is read once; it stays in memory.

    A scan reads all files by `new_input`, the only method of ``pyiceberg.io.FileIO`` that it calls.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._contents: dict[str, pa.Buffer] = {}
        self._paths: dict[str, set[str] | None] = {}

    def new_input(self, path: str) -> Any:
        """Return a file, which can be opened."""
        return _FileInMemory(self._contents[path]) if path in self._contents else self._file(path)

    def load(self, tasks: Iterable[FileScanTask]) -> None:
        """Read the delete files of data files, unless they are read."""
        for path in {deletes.file_path for task in tasks for deletes in task.delete_files}:
            self._content(path)

    def may_name(self, deletes: DataFile, path: str) -> bool:
        """Return False if a delete file deletes no row of a data file; True if it may."""
        name = deletes.file_path
        if name not in self._paths:
            self._paths[name] = self._read_paths(deletes)
        paths = self._paths[name]
        return paths is None or path in paths

    def _read_paths(self, deletes: DataFile) -> set[str] | None:
        """Return the data files that a delete file names; None if its format is another one."""
        from pyiceberg.manifest import FileFormat
        from pyiceberg.table.deletion_vector import PROPERTY_REFERENCED_DATA_FILE
        from pyiceberg.table.puffin import PuffinFile

        content = pa.BufferReader(self._content(deletes.file_path))
        if deletes.file_format == FileFormat.PUFFIN:  # deletion vectors
            blobs = PuffinFile(content.read()).footer.blobs
            names = {blob.properties.get(PROPERTY_REFERENCED_DATA_FILE) for blob in blobs}
            return None if None in names else {name for name in names if name is not None}
        if deletes.file_format != FileFormat.PARQUET:
            return None
        paths = pq.read_table(content, columns=["file_path"]).column("file_path")
        return set(pc.unique(paths).to_pylist())

    def _content(self, path: str) -> pa.Buffer:
        if path not in self._contents:
            with self._file(path).open() as file:
                self._contents[path] = pa.py_buffer(file.read())
        return self._contents[path]

    def _file(self, path: str) -> InputFile:
        return self._io.new_input(path)


class _FileInMemory:
    """A file whose bytes were read."""

    def __init__(self, content: pa.Buffer) -> None:
        self._content = content

    def open(self, seekable: bool = True) -> pa.BufferReader:
        """Return a stream of its bytes."""
        return pa.BufferReader(self._content)


def _read_files(
    table: Table, files: Iterable[FileScanTask], deletes_read: _DeleteFiles | None = None
) -> pa.Table:
    """Return the rows of data files, without those that their delete files delete.

    A scan applies a delete file to all data files with the path that it names. But it does not
    delete rows of a data file that was added again after it, so a scan has each path only once.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = _schema_of(table)
    scans: list[list[FileScanTask]] = []
    count_of_path: Counter[str] = Counter()
    for task in files:
        number = count_of_path[task.file.file_path]
        count_of_path[task.file.file_path] += 1
        if number == len(scans):
            scans.append([])
        scans[number].append(task)
    deletes_read = deletes_read or _DeleteFiles(table)
    deletes_read.load(task for tasks in scans for task in tasks)
    scan = ArrowScan(table.metadata, cast(Any, deletes_read), table.schema(), AlwaysTrue())
    rows = [scan.to_table(tasks).cast(schema) for tasks in scans]
    return pa.concat_tables(rows) if rows else empty_table(schema)
