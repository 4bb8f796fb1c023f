"""Version summary: the results of a committed micro-batch, which a replay publishes again.

A published table is in memory, or in files of the state directory: in mode "distributed", executors
write the changes of a view to files, and the process of the sink has only the names of these files,
their checksums and the number of rows. It reads the rows when a target or an observer asks for
them. The tables of a micro-batch that is published again after a restart are in files in any mode,
so a function whose DataFrame reads the files receives them without memory of the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from streaming.errors import ReplayError, StateError
from streaming.state.files import Files, MappableFiles
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import FileChecksum, Manifest, ProgramLink
from streaming.state.parquet import read_header, read_parquet
from streaming.state.verified_files import map_verified, read_verified

__all__ = [
    "PublishedTable",
    "PublishedTables",
    "StoredTable",
    "VersionSummary",
    "read_summary",
    "summarize",
]


@dataclass(frozen=True)
class StoredTable:
    """A published table in Parquet files that is not in memory.

    Attributes:
        files: The state directory.
        checksums: The size and checksum of each file, by name.
        schema: The columns, with the metadata of the published table.
        num_rows: The number of rows, as in an Arrow table.
    """

    files: Files
    checksums: Mapping[str, FileChecksum]
    schema: pa.Schema
    num_rows: int

    def read(self) -> pa.Table:
        """Read the rows.

        Raises:
            StateDamagedError: A file is damaged.
            OSError: The file system failed.
        """
        return pa.concat_tables([*self.read_parts()] or [self.schema.empty_table()])

    def read_parts(self) -> Iterator[pa.Table]:
        """Yield the rows of each file, one after the other.

        Raises:
            StateError: A file is damaged, or the file system failed.
        """
        for name, checksum in self.checksums.items():
            try:
                content = read_verified(self.files, name, checksum)
            except OSError as error:
                raise StateError(f"{self.files.location}/{name} cannot be read: {error}") from error
            yield read_parquet(content, f"{self.files.location}/{name}")


#: A published table in memory, or in files. Both have ``schema`` and ``num_rows``.
PublishedTable: TypeAlias = pa.Table | StoredTable


class PublishedTables(Mapping[str, pa.Table]):
    """The published table of each view; a table in files is read when it is asked for.

    Args:
        tables: The tables.

    >>> tables = PublishedTables({"v": pa.table({"n": [1, 2]})})
    >>> tables.rows, tables["v"].column("n").to_pylist()
    ({'v': 2}, [1, 2])
    """

    def __init__(self, tables: Mapping[str, PublishedTable]) -> None:
        self._tables = dict(tables)

    def __getitem__(self, view: str) -> pa.Table:
        """Return the table of a view.

        Raises:
            StateDamagedError: A file is damaged.
        """
        table = self._tables[view]
        return table.read() if isinstance(table, StoredTable) else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows of each view, without reading them."""
        return {view: table.num_rows for view, table in self._tables.items()}

    def unread(self, view: str) -> PublishedTable:
        """Return the table of a view as it is, in memory or in files."""
        return self._tables[view]

    def renamed(self, names: Mapping[str, str]) -> PublishedTables:
        """Return some of the tables; ``names`` has the name here of each view of the result."""
        return PublishedTables({new: self._tables[old] for new, old in names.items()})


@dataclass(frozen=True)
class VersionSummary:
    """A committed micro-batch.

    Attributes:
        batch_id: The micro-batch.
        outputs: The published table of each view. One that executors wrote is read from its files
            when it is asked for.
        files: The Parquet files of each published table, if they are on the local disk.
        digests: A checksum of the rows of each input; empty if a replay cannot be compared.
        dead_letters: The number of dead letters up to this micro-batch.
        previous: Of each view, the last earlier micro-batch with rows (`LastChanges.previous`).
        sizes: Rows and bytes of each arrangement and dictionary, if the state is on disk.
    """

    batch_id: int
    outputs: PublishedTables
    files: Mapping[str, tuple[str, ...]]
    digests: Mapping[str, int]
    dead_letters: int
    previous: Mapping[str, int | None] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def continued(self, link: ProgramLink) -> VersionSummary:
        """Return the micro-batch as the views after a change of the program publish it again.

        A view that goes on has its new name, and all others are left out. Rows can be compared only
        if both programs encode them in the same way.
        """
        views = [(new, old) for new, old in link.views.items() if old in self.outputs]
        return replace(
            self,
            outputs=self.outputs.renamed(dict(views)),
            files={new: self.files[old] for new, old in views if old in self.files},
            previous={new: self.previous.get(old) for new, old in views},
            digests=self.digests if link.has_same_inputs else {},
        )

    def of_views(self, names: Collection[str]) -> VersionSummary:
        """Return the micro-batch with some of its views only."""
        return replace(
            self,
            outputs=self.outputs.renamed({view: view for view in self.outputs if view in names}),
            files={view: files for view, files in self.files.items() if view in names},
        )

    def check_same_rows(self, digests: Mapping[str, int]) -> None:
        """Check that a replayed micro-batch has the same rows.

        Args:
            digests: A checksum of the replayed rows of each input.

        Raises:
            ReplayError: The rows differ.
        """
        for name in {*digests, *self.digests}:
            if digests.get(name, 0) != self.digests.get(name, 0):
                raise ReplayError(
                    f"micro-batch {self.batch_id} was replayed with different rows of relation "
                    f"{name!r}: the source cannot be replayed, or the stream before the sink is "
                    "not deterministic (current time, random numbers, files that were replaced). "
                    "The state contains the first rows; to start again, delete the state directory "
                    "and the checkpoint"
                )


def summarize(
    files: Files, manifest: Manifest, outputs: Mapping[str, PublishedTable]
) -> VersionSummary:
    """Return the summary of a version.

    Args:
        files: The directory.
        manifest: The version.
        outputs: The published table of each view.
    """
    paths = {}
    if isinstance(files, LocalFiles):
        paths = {
            view: tuple(f"{files.location}/{name}" for name in names)
            for view, names in manifest.outputs.items()
        }
    return VersionSummary(
        manifest.batch_id,
        PublishedTables(outputs),
        paths,
        manifest.digests,
        manifest.dead_letters,
        {view: changes.previous for view, changes in manifest.changes.items()},
        manifest.sizes,
    )


def read_summary(files: Files, manifest: Manifest) -> VersionSummary:
    """Return the summary of a version, and check the files of its published tables.

    A table is read when it is asked for; until then, little of a local file is in memory.

    Raises:
        StateDamagedError: A file of these tables is damaged.
        OSError: The file system failed.

    Complexity:
        O(bytes of these files), for their checksums.
    """
    outputs = {
        view: _find_table(files, {name: manifest.files[name] for name in names})
        for view, names in manifest.outputs.items()
    }
    return summarize(files, manifest, outputs)


def _find_table(files: Files, checksums: Mapping[str, FileChecksum]) -> StoredTable:
    """Return the published table in some files, whose checksums are compared."""
    headers = []
    for name, checksum in checksums.items():
        if isinstance(files, LocalFiles) and isinstance(files, MappableFiles):
            data = map_verified(files, name, checksum).memory
        else:
            data = read_verified(files, name, checksum)
        headers.append(read_header(data, f"{files.location}/{name}"))
    schema, _ = headers[0]  # a table without rows has a file
    return StoredTable(files, checksums, schema, sum(rows for _, rows in headers))
