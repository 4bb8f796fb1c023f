"""ParquetFolder: the files of a folder; a refresh reads those that are new.

A file counts as unread if its path is not known, or its size or time has changed. Folders such as
``day=2026-01-05`` are columns, as in Hive and Spark. Names that begin with "_" or "." are ignored.

Parquet files do not say what a removed file contained, so ``removed_files`` says what to do:

==========  ====================================================================================
refuse      the refresh fails; nothing changes
ignore      its rows stay: for files that are moved to an archive
delete      its rows are deleted; the state keeps all rows of the table, with their file, for this
==========  ====================================================================================

A file that was replaced counts as removed and new, so ``ignore`` refuses it.

Cost: a list of the folder, and the new files. ``delete`` also scans the rows that are kept, if a
file was removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from circuits.schema import WEIGHT
from circuits.types.arrow_types import empty_table
from dbsp_wcoj.cached_property import cached_property
from streaming.errors import SourceTableError
from streaming.pipeline.tables.source_table import KeptRows, Position, TableChanges, with_weight
from streaming.targets.target import address_of

__all__ = ["REMOVED_FILES", "ParquetFolder", "RemovedFiles"]

RemovedFiles = Literal["refuse", "ignore", "delete"]
REMOVED_FILES: Final[tuple[str, ...]] = get_args(RemovedFiles)
_IGNORED_PREFIXES: Final = ["_", "."]
#: The column of the dataset with the path of the file of each row.
_FILE_NAME: Final = "__filename"
#: The item of a position for a table that is one file, not a folder.
_FILE: Final = ""
_MAX_FILES_SHOWN: Final = 3


class ParquetFolder:
    """A folder of Parquet files, or one file.

    Args:
        path: A path, or a URI of ``pyarrow.fs``.
        declared: The columns; None to take them from the first file.
        removed_files: What to do if a file is removed.
    """

    def __init__(
        self,
        path: str,
        *,
        declared: pa.Schema | None = None,
        removed_files: RemovedFiles = "refuse",
    ) -> None:
        self._path = path
        self._declared = declared
        self._removed_files = removed_files

    @property
    def item_column(self) -> str | None:
        return "source_file" if self._removed_files == "delete" else None

    @property
    def description(self) -> str:
        return f"Parquet folder {address_of(self._path)}"

    def schema(self) -> pa.Schema:
        if self._declared is not None:
            return self._declared
        with self._report_errors():
            files = sorted(self._list_files())
            if not files:
                raise SourceTableError(
                    f"{self.description} has no file, so its columns are not known: write "
                    'schema = "nr long, item string" in the pipeline file'
                )
            return self._dataset(files[:1]).schema

    def changes(self, position: Position, kept_rows: KeptRows) -> TableChanges | None:
        with self._report_errors():
            files = self._list_files()
            is_other = _FILE in position and _FILE not in files
            if is_other and self._removed_files != "delete":
                raise SourceTableError(
                    f"{self.description} is not the table of the last refresh, which was a file or "
                    "a table of Delta or Iceberg: name that one, or start with a new state and new "
                    "targets"
                )
            new = sorted(file for file in files if position.get(file) != files[file])
            replaced = [file for file in new if file in position]
            removed = sorted({*(position.keys() - files.keys()), *replaced})
            if not new and not removed:
                return None
            if removed and self._removed_files != "delete":
                if self._removed_files == "refuse" or replaced:
                    raise self._refuse_removed(removed, "replaced" if replaced else "removed")
                if not new:
                    return None
                # The files stay known, so that they are not read again if they come back.
                files = {**position, **files}
                removed = []
            rows = with_weight(self._read(new), 1)
            if removed:
                old = kept_rows(removed)
                negated = pc.negate(old.column(WEIGHT))
                index = old.column_names.index(WEIGHT)
                rows = pa.concat_tables([rows, old.set_column(index, WEIGHT, negated)])
            method = f"{len(new)} new files"
            return TableChanges(rows, files, f"{method}, {len(removed)} removed")

    def rows_at(self, position: Position) -> pa.Table:
        with self._report_errors():
            files = self._list_files()
            missing = sorted(name for name in position if files.get(name) != position[name])
            if missing:
                raise self._refuse_removed(missing, "removed or replaced")
            return self._read(sorted(position))

    def _refuse_removed(self, files: Sequence[str], verb: str) -> SourceTableError:
        names = ", ".join(files[:_MAX_FILES_SHOWN])
        more = f" and {len(files) - _MAX_FILES_SHOWN} more" if len(files) > _MAX_FILES_SHOWN else ""
        return SourceTableError(
            f"{self.description}: files were {verb} since they were read: {names}{more}. Nothing "
            "has changed. Put them back; or start with a new state, new targets and removed_files "
            '= "delete", which keeps the rows of each file'
        )

    @cached_property
    def _place(self) -> tuple[Any, str]:
        if "://" in self._path:
            system, folder = fs.FileSystem.from_uri(self._path)
        else:
            system, folder = fs.LocalFileSystem(), str(Path(self._path).absolute())
        return system, folder.rstrip("/")

    def _list_files(self) -> dict[str, str]:
        """Return the size and time of each file, by its path in the folder."""
        system, folder = self._place
        info = system.get_file_info(folder)
        if info.type == fs.FileType.NotFound:
            raise SourceTableError(
                f"{self.description} does not exist: name a folder of Parquet files"
            )
        if info.type == fs.FileType.File:
            return {_FILE: f"{info.size}:{info.mtime_ns}"}
        found = system.get_file_info(fs.FileSelector(folder, recursive=True))
        return {
            name: f"{file.size}:{file.mtime_ns}"
            for file in found
            if file.type == fs.FileType.File and _is_data(name := file.path[len(folder) + 1 :])
        }

    def _dataset(self, files: Sequence[str], schema: pa.Schema | None = None) -> ds.Dataset:
        system, folder = self._place
        return ds.dataset(
            [f"{folder}/{file}" if file else folder for file in files],
            schema=schema,
            format="parquet",
            filesystem=system,
            partitioning=ds.partitioning(schema, flavor="hive") if schema else "hive",
            partition_base_dir=folder,
        )

    def _read(self, files: Sequence[str]) -> pa.Table:
        schema = self.schema()
        if self.item_column is not None:
            schema = schema.append(pa.field(self.item_column, pa.string()))
        if not files:
            return empty_table(schema)
        dataset = self._dataset(files, self.schema())
        if self.item_column is None:
            return dataset.to_table().cast(schema)
        table = dataset.to_table(columns=[*self.schema().names, _FILE_NAME])
        prefix = len(self._place[1]) + 1
        names = pc.utf8_slice_codeunits(table.column(_FILE_NAME).cast(pa.string()), prefix)
        index = table.column_names.index(_FILE_NAME)
        return table.set_column(index, self.item_column, names).cast(schema)

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise SourceTableError(f"{self.description} cannot be read: {error}") from error


def _is_data(name: str) -> bool:
    return not any(part[0] in _IGNORED_PREFIXES for part in name.split("/"))
