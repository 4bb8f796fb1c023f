"""ParquetTarget: a directory of Parquet files that always holds complete micro-batches.

::

    delta, upsert   <view>-<batch id, 20 digits>-<state id>.parquet    one per micro-batch
    complete        <view>-complete.parquet                            the latest complete view

The name of a file is its identity, so a replay writes the same name again. A file is written under
a hidden name (readers of directories skip names that begin with a dot), synced, renamed, and the
directory is synced. At any moment every visible file is complete, and a reader of the directory
(``pq.read_table``, ``spark.read.parquet``) sees complete micro-batches only. In mode ``complete``
the file is replaced atomically; a process that has it open continues to read the old one.

An empty delta writes no file, except the first one: its file without rows provides the schema.

In modes ``delta`` and ``upsert`` the first column is ``batch_id``; the sum of the weights of equal
rows, or the last row of each key by ``batch_id``, is the view.

Cost: one file and two syncs per micro-batch that changes the view; one listing per process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.errors import TargetError
from streaming.state.files import Files, replace_atomically
from streaming.state.local_files import LocalFiles
from streaming.state.open_files import open_files
from streaming.targets.column_types import convert_columns, parquet_type
from streaming.targets.folder_checks import check_writable, error_reason
from streaming.targets.target import BATCH_ID, ViewDelta, address_of, expand_template, file_name

__all__ = ["ParquetTarget"]

_SUFFIX: Final = ".parquet"
_BATCH_ID_PATTERN: Final = re.compile(r"-\d{20}-")
#: Keys of the Parquet metadata of a complete view.
STATE_KEY: Final = "dbsp_wcoj.state"
BATCH_KEY: Final = "dbsp_wcoj.batch"


class ParquetTarget:
    """Writes each micro-batch as a Parquet file.

    Args:
        directory: A path, a URI that pyarrow knows, ``(filesystem, path)``, or a
            `streaming.state.files.Files`; ``{view}`` in the path stands for the name of the view.
            A missing directory is created.
        batch_id: True if the files of modes ``delta`` and ``upsert`` have a column ``batch_id``.
        compression: The compression, as in ``pyarrow.parquet.write_table``.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> target = ParquetTarget(directory)
    >>> target.write(ViewDelta("waiting", 0, pa.table({"nr": [1], "weight": [1]})))
    >>> target.write(ViewDelta("waiting", 1, pa.table({"nr": [1], "weight": [-1]})))
    >>> pq.read_table(directory).to_pylist()
    [{'batch_id': 0, 'nr': 1, 'weight': 1}, {'batch_id': 1, 'nr': 1, 'weight': -1}]
    """

    def __init__(self, directory: Any, *, batch_id: bool = True, compression: str = "zstd") -> None:
        self.directory = directory
        self.batch_id = batch_id
        self.compression = compression
        # The views, with state directory and mode, for which the directory has been checked.
        self._checked_views: frozenset[tuple[str, str, str]] = frozenset()

    def write(self, delta: ViewDelta) -> None:
        """Write the file of this micro-batch.

        Raises:
            TargetError: The directory contains files of other views or of another state directory,
                or it cannot be written to.
        """
        files = open_files(self._place(delta))
        has_batch_id = self.batch_id and delta.mode != "complete"
        table = delta.with_batch_id() if has_batch_id else delta.table
        table = convert_columns(table, parquet_type, subject=str(delta))
        try:
            if not self._needs_write(files, delta):
                return
            _replace_file(files, _name(delta), self._encode(table, delta))
        except OSError as error:
            raise TargetError(
                f"{delta}: {address_of(files.location)} cannot be written to: {error}; the query "
                "has stopped and can be started again; no row of this micro-batch is visible"
            ) from error
        self._checked_views |= {self._identity(delta)}

    def check(self, delta: ViewDelta) -> None:
        """Check that the directory can be written to and contains no other views.

        Raises:
            TargetError: The directory cannot be written to, or it contains files of other views or
                of another state directory.
        """
        files = open_files(self._place(delta))
        if delta.mode != "complete" and self.batch_id:
            delta.check_free(BATCH_ID)
        try:
            if isinstance(files, LocalFiles):
                check_writable(Path(files.location))
            self._check_owner(files, delta)
        except OSError as error:
            raise TargetError(
                f"view {delta.view!r}: {address_of(files.location)} cannot be written to: "
                f"{error_reason(error)}"
            ) from error

    def _check_owner(self, files: Files, delta: ViewDelta) -> bool:
        """Check that every file is of this view and state; return whether there is one."""
        if delta.mode == "complete":
            return _check_names(files, delta, lambda name: name == _name(delta))
        # The names of the files of a view differ only in the batch id in the middle.
        prefix, suffix = _name(delta).split(f"-{delta.batch_id:020d}-")
        return _check_names(
            files,
            delta,
            lambda name: (
                name.startswith(f"{prefix}-")
                and name.endswith(f"-{suffix}")
                and _BATCH_ID_PATTERN.fullmatch(name[len(prefix) : -len(suffix)]) is not None
            ),
        )

    def _needs_write(self, files: Files, delta: ViewDelta) -> bool:
        """Return whether a file must be written; check the owner of the directory once per view."""
        is_checked = self._identity(delta) in self._checked_views
        if delta.mode == "complete":
            if not is_checked:
                self._check_owner(files, delta)
            # A replay of the same micro-batch writes the same file again.
            return delta.batch_id >= _recorded_batch(files, delta)
        if is_checked:
            return bool(delta.table.num_rows)
        has_files = self._check_owner(files, delta)
        return bool(delta.table.num_rows) or not has_files

    def _encode(self, table: pa.Table, delta: ViewDelta) -> pa.Buffer:
        if delta.mode == "complete":
            # `_recorded_batch` reads it, so that a late write does not replace a newer view.
            record = {STATE_KEY: delta.state_id, BATCH_KEY: str(delta.batch_id)}
            table = table.replace_schema_metadata(record)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression=self.compression)
        return sink.getvalue()

    def _place(self, delta: ViewDelta) -> Any:
        if isinstance(self.directory, tuple):
            system, path = self.directory
            return system, expand_template(str(path), delta.view)
        if isinstance(self.directory, str | os.PathLike):
            return expand_template(os.fspath(self.directory), delta.view)
        return self.directory

    @staticmethod
    def _identity(delta: ViewDelta) -> tuple[str, str, str]:
        return delta.view, delta.state_id, delta.mode


def _name(delta: ViewDelta) -> str:
    view = file_name(delta.view)
    if delta.mode == "complete":
        return f"{view}-complete{_SUFFIX}"
    return f"{view}-{delta.batch_id:020d}-{file_name(delta.state_id) or 'none'}{_SUFFIX}"


def _replace_file(files: Files, name: str, data: pa.Buffer) -> None:
    replace_atomically(files, name, data, temporary=f".{name}.tmp")
    files.sync_folder("")


def _check_names(files: Files, delta: ViewDelta, is_expected: Callable[[str], bool]) -> bool:
    """Check that every visible Parquet file has an expected name; return whether there is one."""
    names = [name for name in files.names("") if name.endswith(_SUFFIX) and name[0] != "."]
    for name in names:
        if not is_expected(name):
            raise delta.foreign_rows_error(f"directory {address_of(files.location)}, file {name},")
    return bool(names)


def _recorded_batch(files: Files, delta: ViewDelta) -> int:
    """Return the micro-batch in the file of the complete view.

    Returns:
        Its id; -1 if the file is missing or belongs to another state directory.
    """
    name = _name(delta)
    if files.size(name) is None:
        return -1
    record = pq.read_schema(pa.BufferReader(pa.py_buffer(files.read(name)))).metadata or {}
    if record.get(STATE_KEY.encode(), b"").decode() != delta.state_id:
        return -1
    return int(record.get(BATCH_KEY.encode(), b"-1"))
