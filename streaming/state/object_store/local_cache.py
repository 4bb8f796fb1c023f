"""Local cache: copies of the files of an object store on the local disk.

The data files of versions never change, so a copy is as good as the object. A sink that merges
files, or starts again on the same machine, reads the copies; large ones are memory-mapped. With a
memory limit, large files are maps of their copies. The name of a copy ends with the checksum of its
content, so a damaged copy counts as missing::

    <cache folder>/data/00000000000000000007-c1f78a08aaf0-0.arrow.561bacaf

Only files in ``data/`` are copied. Each listing of this folder removes the copies of files that the
object store does not have any more, so the cache is not larger than the state. Once a day, each
cache that was not used for `UNUSED_CACHE_DAYS` is removed: its job runs elsewhere, or no more.

Errors of the local disk are ignored, because the object store has everything. Only a file that must
be mapped needs its copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import TEMPORARY_SUFFIX, Bytes
from streaming.state.local_files import DEFAULT_STATE_MODE, LocalFiles, make_folder
from streaming.state.mapped.mapped_file import MappedFile, ScratchFile

__all__ = ["LocalCache"]

CACHED_FOLDER: Final = "data"
# The caches of other directories are removed if they were not used for so long.
UNUSED_CACHE_DAYS: Final = 30
# A process that writes a copy has written to its temporary file in this time.
UNFINISHED_COPY_SECONDS: Final = 3_600
SECONDS_PER_DAY: Final = 86_400
_CACHE_ERRORS: Final = (OSError, StateDamagedError)


class LocalCache:
    """Copies of the data files of one directory of an object store.

    Args:
        folder: The folder of the copies. This process may remove any file in it, and folders
            beside it that are caches, too.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        #: The copies, and files that describe them, on the local disk.
        self.files = LocalFiles(folder, DEFAULT_STATE_MODE)
        self._last_sweep = 0.0

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
                data = self.files.read(copy)
                if copy == _copy_name(name, zlib.crc32(data)):
                    return data
                self.files.remove(copy)
        return None

    def map(self, name: str, size: int) -> MappedFile | None:
        """Return the map of the copy of a file; None if there is none of this size.

        Raises:
            OSError: The copy cannot be mapped.
        """
        for copy in self._copies(name):
            with contextlib.suppress(FileNotFoundError):
                try:
                    return self.files.map(copy, size)
                except StateDamagedError:
                    self.files.remove(copy)
        return None

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32 of the copy of a file; None if there is none, or it is damaged."""
        for copy in self._copies(name):
            with contextlib.suppress(*_CACHE_ERRORS):
                crc = self.files.checksum(copy)
                if copy == _copy_name(name, crc):
                    return crc
                self.files.remove(copy)
        return None

    def scratch(self, words: int) -> ScratchFile:
        """Return writable memory in a file without a name, on the disk of the copies.

        Raises:
            OSError: The disk has too little space.
        """
        make_folder(Path(self.files.location) / CACHED_FOLDER, DEFAULT_STATE_MODE)
        return self.files.scratch(CACHED_FOLDER, words)

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Copy a file, if it is in the folder of data files; an error is ignored.

        Args:
            name: The name of the file.
            chunks: Its content; it is read once.
        """
        if name.startswith(f"{CACHED_FOLDER}/"):
            with contextlib.suppress(*_CACHE_ERRORS):
                self.store(name, chunks)

    def store(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Copy a file in the folder of data files; earlier copies of it are removed.

        Another process may remove the copy at any time, even before this returns.

        Raises:
            OSError: The local disk is full, or failed.
            StateDamagedError: The folder is not a folder any more.
        """
        crc = 0

        def count_crc() -> Iterable[Bytes]:
            nonlocal crc
            for chunk in chunks:
                crc = zlib.crc32(chunk, crc)
                yield chunk

        temporary = f"{name}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
        try:
            self.files.write(temporary, count_crc())
            copy = _copy_name(name, crc)
            for earlier in self._copies(name):
                if earlier != copy:
                    self.files.remove(earlier)
            with contextlib.suppress(FileNotFoundError):
                self.files.rename(temporary, copy)
        except BaseException:
            with contextlib.suppress(*_CACHE_ERRORS):
                self.files.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove the copy of a file."""
        for copy in self._copies(name):
            with contextlib.suppress(*_CACHE_ERRORS):
                self.files.remove(copy)

    def keep_only(self, folder: str, names: Collection[str]) -> None:
        """Remove the copies of all files of a folder except those with these names.

        Temporary files remain for `UNFINISHED_COPY_SECONDS`: a process may still write to them.
        """
        if folder != CACHED_FOLDER:
            return
        self._remove_unused_caches()
        kept = set(names)
        for copy in self._list():
            if copy.rpartition(".")[0] not in kept and not self._is_being_written(copy):
                with contextlib.suppress(*_CACHE_ERRORS):
                    self.files.remove(copy)

    def _remove_unused_caches(self) -> None:
        """Record once a day that this cache is in use, and remove the others that are not."""
        now = time.time()
        folder = Path(self.files.location)
        if now - self._last_sweep < SECONDS_PER_DAY or not folder.is_dir():
            return
        self._last_sweep = now
        with contextlib.suppress(OSError):
            os.utime(folder)
            for other in folder.parent.iterdir():
                # It may be a broken link, or another process may remove it.
                with contextlib.suppress(OSError):
                    unused_days = (now - other.stat().st_mtime) / SECONDS_PER_DAY
                    is_cache = other != folder and (other / CACHED_FOLDER).is_dir()
                    if is_cache and unused_days > UNUSED_CACHE_DAYS:
                        shutil.rmtree(other, ignore_errors=True)

    def _is_being_written(self, copy: str) -> bool:
        if copy.endswith(TEMPORARY_SUFFIX):
            with contextlib.suppress(OSError):
                modified = os.lstat(Path(self.files.location) / copy).st_mtime
                return time.time() - modified < UNFINISHED_COPY_SECONDS
        return False

    def _copies(self, name: str) -> list[str]:
        if not name.startswith(f"{CACHED_FOLDER}/"):
            return []
        return [copy for copy in self._list() if copy.rpartition(".")[0] == name]

    def _list(self) -> list[str]:
        try:
            return self.files.names(CACHED_FOLDER)
        except _CACHE_ERRORS:
            return []


def _copy_name(name: str, crc: int) -> str:
    return f"{name}.{crc:08x}"
