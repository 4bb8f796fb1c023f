"""OpenDeltaTables: Delta tables that stay open between two uses.

Opening a table reads its log from the last checkpoint on, which takes longer with each commit. An
open table reads only the commits that it has not seen. So a writer keeps the tables of local paths
open, and opens one again if the file of the last commit that it has seen is no longer the same:
then the table was removed, or created again, or old commits were removed from its log. The file is
compared by its inode number, size and time. Other file systems have no such numbers; their tables
are always opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["OpenDeltaTables"]

#: The device, number, size and time of the file of a commit.
_FileIdentity: TypeAlias = tuple[int, int, int, int]


class OpenDeltaTables:
    """The open tables of a target or a source; threads may use different tables at the same time.

    Args:
        storage_options: Options of object stores, as in ``deltalake.DeltaTable``.
    """

    def __init__(self, storage_options: Mapping[str, str] | None = None) -> None:
        self._options = None if storage_options is None else dict(storage_options)
        # The tables that are not in use; and the version of each table that is in use when it was
        # taken, with the identity of the version's file.
        self._tables: dict[str, tuple[DeltaTable, _FileIdentity]] = {}
        self._taken: dict[str, tuple[int, _FileIdentity | None]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the options, without the tables: another process opens them itself."""
        return self.__dict__ | {"_tables": {}, "_taken": {}}

    def take(self, path: str) -> DeltaTable:
        """Return a table at its newest version; it is the caller's until `keep`.

        A caller that fails does not return it, so the next one opens it again.

        Raises:
            deltalake.exceptions.TableNotFoundError: There is no table.
        """
        from deltalake import DeltaTable

        table, identity = self._tables.pop(path, (None, None))
        if table is None or identity != _commit_file(path, table.version()):
            table = DeltaTable(path, storage_options=self._options)
        else:
            table.update_incremental()
        self._taken[path] = table.version(), _commit_file(path, table.version())
        return table

    def keep(self, path: str, table: DeltaTable) -> None:
        """Keep a table open for the next `take`, unless another table has replaced it meanwhile."""
        version, identity = self._taken.pop(path, (-1, None))
        # A log only grows: if the file of the version that was taken is still the same, the file of
        # a later version belongs to this table, too.
        if identity is None or identity != _commit_file(path, version):
            return
        newest = _commit_file(path, table.version())
        if newest is not None:
            self._tables[path] = table, newest


def _commit_file(path: str, version: int) -> _FileIdentity | None:
    """Return the identity of the file of a version; None if it cannot be told."""
    if "://" in path:
        return None
    try:
        status = os.stat(os.path.join(path, "_delta_log", f"{version:020}.json"))
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
