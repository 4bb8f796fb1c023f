"""Local cache: copies of the files of an object store on the local disk.

The data files of versions never change, so a copy is as good as the object. A sink that merges
files, or starts again on the same machine, reads the copies; large ones are memory-mapped. The
name of a copy ends with the checksum of its content, so a damaged copy counts as missing::

    <cache folder>/data/00000000000000000007-c1f78a08aaf0-0.arrow.561bacaf

Only files in ``data/`` are copied. Each listing of this folder removes the copies of files that the
object store does not have any more, so the cache is not larger than the state. Errors of the local
disk are ignored: the object store has everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import Bytes
from streaming.state.local_files import DEFAULT_STATE_MODE, LocalFiles

__all__ = ["LocalCache"]

CACHED_FOLDER: Final = "data"
_CACHE_ERRORS: Final = (OSError, StateDamagedError)


class LocalCache:
    """Copies of the data files of one directory of an object store.

    Args:
        folder: The folder of the copies; this process may remove any file in it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._files = LocalFiles(folder, DEFAULT_STATE_MODE)

    @staticmethod
    def of(location: str) -> LocalCache:
        """Return the cache of a directory of an object store; it is in the user's cache folder."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        name = hashlib.sha256(location.encode()).hexdigest()[:24]
        return LocalCache(Path(base) / "dbsp-wcoj" / "state" / name)

    def read(self, name: str) -> memoryview | None:
        """Return the copy of a file; None if there is none, or it is damaged."""
        for copy in self._copies(name):
            with contextlib.suppress(*_CACHE_ERRORS):
                data = self._files.read(copy)
                if copy == _copy_name(name, zlib.crc32(data)):
                    return data
                self._files.remove(copy)
        return None

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Copy a file, if it is in the folder of data files."""
        if not name.startswith(f"{CACHED_FOLDER}/"):
            return
        crc = 0
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
        temporary = f"{name}.{uuid.uuid4().hex[:12]}.tmp"
        try:
            self._files.write(temporary, chunks)
            self._files.rename(temporary, _copy_name(name, crc))
        except _CACHE_ERRORS:
            with contextlib.suppress(*_CACHE_ERRORS):
                self._files.remove(temporary)

    def remove(self, name: str) -> None:
        """Remove the copy of a file."""
        for copy in self._copies(name):
            with contextlib.suppress(*_CACHE_ERRORS):
                self._files.remove(copy)

    def keep_only(self, folder: str, names: Collection[str]) -> None:
        """Remove the copies of all files of a folder except those with these names."""
        if folder != CACHED_FOLDER:
            return
        kept = set(names)
        for copy in self._list():
            if copy.rpartition(".")[0] not in kept:
                with contextlib.suppress(*_CACHE_ERRORS):
                    self._files.remove(copy)

    def _copies(self, name: str) -> list[str]:
        if not name.startswith(f"{CACHED_FOLDER}/"):
            return []
        return [copy for copy in self._list() if copy.rpartition(".")[0] == name]

    def _list(self) -> list[str]:
        try:
            return self._files.names(CACHED_FOLDER)
        except _CACHE_ERRORS:
            return []


def _copy_name(name: str, crc: int) -> str:
    return f"{name}.{crc:08x}"
