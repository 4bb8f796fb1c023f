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

If the directory holds rows of the view, and a micro-batch is the whole view (`ViewDelta.is_whole`),
its file contains the difference: in mode ``delta`` the rows with the weights that the sum lacks, in
mode ``upsert`` also a tombstone for each key that is no longer in the view. So the rename of this
one file replaces the view, and the earlier files stay.

In all other modes the first column is ``batch_id``; the sum of the weights of equal
rows, or the last row of each key by ``batch_id``, is the view. The metadata of each file names the
mode and its keys, because files of two modes do not add up to a view.

Cost: one file and two syncs per micro-batch that changes the view; per process, one listing and the
reading of the newest file. In mode ``complete`` each write reads the file that it replaces. A whole
view that replaces an earlier one reads all files of the view.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from circuits import Schema
from circuits.schema import WEIGHT
from circuits.types.arrow_types import empty_table
from circuits.types.codecs.codec import Codecs
from streaming.errors import TargetError
from streaming.state.files import Files, replace_atomically
from streaming.state.local_files import LocalFiles
from streaming.state.open_files import open_files
from streaming.targets.column_types import convert_columns, parquet_type
from streaming.targets.folder_checks import check_writable, error_reason
from streaming.targets.output_mode import MODE_KEY, fold_upserts, replacing_upserts
from streaming.targets.target import (
    BATCH_ID,
    NO_BATCH,
    ViewDelta,
    address_of,
    expand_template,
    file_name,
)

__all__ = ["ParquetTarget"]

_SUFFIX: Final = ".parquet"
#: Keys of the Parquet metadata of a complete view, beside `MODE_KEY` of each file.
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

    replaces_views = True

    def __init__(self, directory: Any, *, batch_id: bool = True, compression: str = "zstd") -> None:
        self.directory = directory
        self.batch_id = batch_id
        self.compression = compression
        # The last micro-batch of each view, by view, state directory and mode. A view is added by
        # its first write, which checks the files of the directory.
        self._last_batches: dict[tuple[str, str, str], int] = {}
        # The views whose files hold no rows, by the same keys, while whole views without rows come.
        self._empty_views: set[tuple[str, str, str]] = set()

    def write(self, delta: ViewDelta) -> None:
        """Write the file of this micro-batch.

        Raises:
            MissedBatchesError: The directory lacks the files of earlier micro-batches.
            TargetError: The directory contains files of other views, of another state directory or
                of another output mode, or it cannot be written to.
        """
        files = open_files(self._place(delta))
        delta = replace(delta, table=convert_columns(delta.table, parquet_type, subject=str(delta)))
        has_batch_id = self.batch_id and delta.mode != "complete"
        is_empty = delta.is_whole and not delta.table.num_rows
        if has_batch_id:
            delta.check_free(BATCH_ID)
        try:
            has_files, last_batch = self._read_view(files, delta)
            given, delta = delta, self._replace_view(files, delta, last_batch)
            # A whole view that changes nothing has an empty file, so that the next delta follows.
            has_rows = bool(given.table.num_rows or delta.table.num_rows)
            if self._needs_write(files, delta, has_rows or not has_files, last_batch):
                if delta.mode == "append":
                    delta = replace(delta, table=delta.written_rows())
                table = delta.with_batch_id() if has_batch_id else delta.table
                _replace_file(files, _name(delta), self._encode(table, delta))
        except OSError as error:
            raise TargetError(
                f"{delta}: {address_of(files.location)} cannot be written to: {error}; the query "
                "has stopped and can be started again; no row of this micro-batch is visible"
            ) from error
        if has_rows:
            last_batch = max(last_batch, delta.batch_id)
        identity = self._identity(delta)
        self._last_batches[identity] = last_batch
        if is_empty:
            self._empty_views.add(identity)
        else:
            self._empty_views.discard(identity)

    def check(self, delta: ViewDelta) -> None:
        """Check that the directory can be written to and contains no other views.

        Raises:
            TargetError: The directory cannot be written to, or it contains files of other views, of
                another state directory or of another output mode.
        """
        files = open_files(self._place(delta))
        if delta.mode != "complete" and self.batch_id:
            delta.check_free(BATCH_ID)
        try:
            if isinstance(files, LocalFiles):
                check_writable(Path(files.location))
            _read_folder(files, delta)
        except OSError as error:
            raise TargetError(
                f"view {delta.view!r}: {address_of(files.location)} cannot be written to: "
                f"{error_reason(error)}"
            ) from error

    def last_batch(self, delta: ViewDelta) -> int:
        """Return the last micro-batch with rows that the directory holds; see `RecordingTarget`.

        Raises:
            TargetError: As `check`.
        """
        files = open_files(self._place(delta))
        try:
            return _read_folder(files, delta)[1]
        except OSError as error:
            raise TargetError(
                f"view {delta.view!r}: {address_of(files.location)} cannot be read: "
                f"{error_reason(error)}"
            ) from error

    def _read_view(self, files: Files, delta: ViewDelta) -> tuple[bool, int]:
        """Return whether the view has a file, and its last micro-batch with rows.

        The first call checks the files of the directory.
        """
        last_batch = self._last_batches.get(self._identity(delta))
        return (True, last_batch) if last_batch is not None else _read_folder(files, delta)

    def _replace_view(self, files: Files, delta: ViewDelta, last_batch: int) -> ViewDelta:
        """Return a delta that turns the rows that the directory holds into a whole view.

        Any other delta is returned unchanged.

        Raises:
            TargetError: The earlier rows have other columns.
        """
        if not delta.is_whole or delta.mode == "complete" or last_batch == NO_BATCH:
            return delta
        if self._identity(delta) in self._empty_views:  # no file adds up to rows
            held = delta.table.slice(0, 0)
        else:
            held = _read_earlier(files, delta)
        if delta.mode == "upsert":
            table = replacing_upserts(held, delta.table, delta.keys)
        else:
            table = _difference(delta, held)
        if delta.mode == "append":
            delta.output_mode.changes(delta.view, table)  # no rows of the files may be removed
        return replace(delta, table=table)

    @staticmethod
    def _needs_write(files: Files, delta: ViewDelta, has_content: bool, last_batch: int) -> bool:
        """Check that a delta fits the files of its view; return whether to write its file."""
        if delta.mode == "complete":
            # A replay of the same micro-batch writes the same file again.
            writer, batch_id = _recorded_writer(files, delta)
            delta.check_only_writer(writer, f"directory {address_of(files.location)}")
            return writer != delta.state_id or delta.batch_id >= batch_id
        place = f"directory {address_of(files.location)}"
        if last_batch < delta.batch_id:
            delta.check_follows(last_batch, place)
        return has_content

    def _encode(self, table: pa.Table, delta: ViewDelta) -> pa.Buffer:
        record: dict[bytes | str, str] = {MODE_KEY: str(delta.output_mode)}
        if delta.mode == "complete":
            # `_recorded_writer` reads it, so that a late write does not replace a newer view.
            record |= {STATE_KEY: delta.state_id, BATCH_KEY: str(delta.batch_id)}
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(
                table.replace_schema_metadata(record), sink, compression=self.compression
            )
        except (pa.ArrowException, OSError) as error:
            raise TargetError(
                f"{delta}: its columns cannot be written as a Parquet file: {error}; cast them in "
                "the view, or leave them out"
            ) from error
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


def _read_folder(files: Files, delta: ViewDelta) -> tuple[bool, int]:
    """Check that every visible Parquet file is of this view, state directory and output mode.

    Returns:
        Whether there is a file, and the greatest micro-batch with rows, or `NO_BATCH`; in mode
        ``complete`` always `NO_BATCH`.

    Raises:
        TargetError: A file is of another view, state directory or mode, or it is damaged.
    """
    names = [name for name in files.names("") if name.endswith(_SUFFIX) and name[0] != "."]
    pattern = _name_pattern(delta)
    for name in names:
        if pattern.fullmatch(name) is None:
            raise delta.foreign_rows_error(f"directory {address_of(files.location)}, file {name},")
    if not names:
        return False, NO_BATCH
    newest = max(names)  # the names differ only in the batch id
    metadata = _read_metadata(files, newest)
    record = metadata.metadata or {}
    mode = record.get(MODE_KEY, b"").decode()  # empty if an earlier release wrote the file
    if mode not in ("", str(delta.output_mode)):
        raise TargetError(
            f"view {delta.view!r}: directory {address_of(files.location)} holds rows in output "
            f"mode {mode}, and rows in mode {delta.output_mode} do not fit them: name another "
            "directory, or remove these files, and the whole view is written there; or keep the "
            "earlier mode and keys"
        )
    if delta.mode == "complete" or (len(names) == 1 and not metadata.num_rows):
        return True, NO_BATCH
    match = pattern.fullmatch(newest)
    assert match is not None
    return True, int(match[1])


def _read_earlier(files: Files, delta: ViewDelta) -> pa.Table:
    """Return the rows of a view that the files of earlier micro-batches add up to.

    Raises:
        TargetError: They have other columns than the view, or one is damaged.
    """
    pattern, schema = _name_pattern(delta), delta.table.schema
    matches = filter(None, map(pattern.fullmatch, sorted(files.names(""))))
    tables = [empty_table(schema)]
    for name in [match[0] for match in matches if int(match[1]) < delta.batch_id]:
        try:
            table = pq.read_table(pa.BufferReader(pa.py_buffer(files.read(name))))
        except pa.ArrowException as error:
            raise TargetError(
                f"{delta}: {address_of(files.location)}/{name} is not a Parquet file ({error}): "
                "restore it, or name another directory, and start the query again"
            ) from error
        if delta.mode == "append":
            table = table.append_column(WEIGHT, pa.repeat(pa.scalar(1), table.num_rows))
        own = {BATCH_ID} - {*schema.names}  # added by this target, unless the view has it
        columns = [column for column in table.column_names if column not in own]
        try:
            tables.append(table.select(columns).cast(schema))
        except (pa.ArrowException, ValueError) as error:
            raise TargetError(
                f"{delta}: {address_of(files.location)}/{name} has the columns "
                f"{', '.join(columns)}, and this micro-batch is the whole view with the columns "
                f"{', '.join(schema.names)} ({error}): name another directory, or remove the files "
                "of this view, and start the query again"
            ) from error
    if delta.mode == "upsert":
        return fold_upserts(tables, delta.keys)
    return pa.concat_tables(tables)


def _difference(delta: ViewDelta, held: pa.Table) -> pa.Table:
    """Return the change from rows with weights to the whole view of a delta."""
    schema = Schema.of(delta.view, delta.table.drop_columns([WEIGHT]).schema)
    codecs = Codecs()
    zset = schema.to_zset(delta.table, codecs) - schema.to_zset(held, codecs)
    return schema.to_table(zset, codecs).select(delta.table.column_names).cast(delta.table.schema)


def _name_pattern(delta: ViewDelta) -> re.Pattern[str]:
    """Return the pattern of the names of a view's files; group 1 is the batch id."""
    if delta.mode == "complete":
        return re.compile(re.escape(_name(delta)))
    view, state_id = file_name(delta.view), file_name(delta.state_id) or "none"
    return re.compile(rf"{re.escape(view)}-(\d{{20}})-{re.escape(state_id + _SUFFIX)}")


def _read_metadata(files: Files, name: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(pa.py_buffer(files.read(name))))
    except pa.ArrowInvalid as error:
        raise TargetError(
            f"{address_of(files.location)}/{name} is not a Parquet file: {error}; remove the files "
            "of the view, and start the query again, which then writes the whole view"
        ) from error


def _recorded_writer(files: Files, delta: ViewDelta) -> tuple[str, int]:
    """Return the state directory and the micro-batch of the file of the complete view.

    Returns:
        Its id and that of the micro-batch; an empty text and `NO_BATCH` if the file is missing.
    """
    name = _name(delta)
    if files.size(name) is None:
        return "", NO_BATCH
    record = _read_metadata(files, name).metadata or {}
    state_id = record.get(STATE_KEY.encode(), b"").decode()
    return state_id, int(record.get(BATCH_KEY.encode(), b"-1"))
