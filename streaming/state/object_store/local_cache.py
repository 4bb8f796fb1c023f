"""Local cache: copies of the files of an object store on the local disk.

The data files of versions never change, so a copy is as good as the object. A sink that merges
files, or starts again on the same machine, reads the copies; large ones are memory-mapped. With a
memory limit, large files are maps of their copies. Each copy has a file with the checksum of its
content, so a damaged copy counts as missing when it is read. A map compares the size only; who maps
a copy verifies its content (`streaming.state.mapped.trusted_files`)::

    <cache folder>/data/00000000000000000007-c1f78a08aaf0-0.arrow         the copy
    <cache folder>/checksums/00000000000000000007-c1f78a08aaf0-0.arrow    561bacaf

Only files in ``data/`` are copied. The cache is not much larger than the state:

- A listing of ``data/`` removes the copies of files that the object store does not have any more.
  Each commit of a driver makes one.
- The tasks of a micro-batch make no listing. Each removes the copies of the files that the new
  version of its cell does not name. If a cell is stepped on another machine later, its copies
  remain. They are removed when they were not used for `UNUSED_COPY_SECONDS`.

Once a day, each process removes the caches beside its own that were not used for
`UNUSED_CACHE_DAYS`: their jobs run elsewhere, or no more. It does so in the user's cache folder
only, where nothing but caches is. The time of the cache folder says when it was used last. The time
of a file with a checksum says when its copy was used last, to within `MARK_SECONDS`.

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
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import TEMPORARY_SUFFIX, Bytes
from streaming.state.local_files import DEFAULT_STATE_MODE, LocalFiles, make_folder
from streaming.state.mapped.mapped_file import MappedFile, ScratchFile

__all__ = ["LocalCache"]

CACHED_FOLDER: Final = "data"
CHECKSUMS_FOLDER: Final = "checksums"
# The caches of other directories are removed if they were not used for so long.
UNUSED_CACHE_DAYS: Final = 30
# A process that writes a copy has written to its temporary file in this time.
UNFINISHED_COPY_SECONDS: Final = 3_600
SECONDS_PER_DAY: Final = 86_400
# Executors remove the copies that they have not used for so long.
UNUSED_COPY_SECONDS: Final = SECONDS_PER_DAY
# They look for such copies once in this time.
CHECK_SECONDS: Final = 300
# The use of a copy is recorded once in this time.
MARK_SECONDS: Final = 3_600
_CACHE_ERRORS: Final = (OSError, StateDamagedError)


class LocalCache:
    """Copies of the data files of one directory of an object store.

    Args:
        folder: The folder of the copies. This process may remove any file in it.
        location: The directory of the object store, if the folder is in the user's cache folder.
    """

    def __init__(self, folder: str | os.PathLike[str], *, location: str | None = None) -> None:
        #: The copies, and files that describe them, on the local disk.
        self.files = LocalFiles(folder, DEFAULT_STATE_MODE)
        self._last_sweep = 0.0
        self._location = location

    @staticmethod
    def of(location: str) -> LocalCache:
        """Return the cache of a directory of an object store; it is in the user's cache folder.

        If it is sent to another process, it is in the cache folder of the user of that process.
        """
        base = os.environ.get("XDG_CACHE_HOME") or _home_folder() / ".cache"
        name = hashlib.sha256(location.encode()).hexdigest()[:24]
        return LocalCache(Path(base) / "dbsp-wcoj" / "state" / name, location=location)

    def __reduce__(self) -> tuple[Callable[[str], LocalCache], tuple[str]]:
        """Return the constructor and its argument, for `pickle`."""
        if self._location is not None:
            return LocalCache.of, (self._location,)
        return LocalCache, (self.files.location,)

    def read(self, name: str) -> memoryview | None:
        """Return the copy of a file; None if there is none, or it is damaged."""
        with contextlib.suppress(*_CACHE_ERRORS):
            expected = self._read_checksum(name)
            if expected is None:
                return None
            data = self.files.read(name)
            if zlib.crc32(data) == expected:
                self._mark_used(name)
                return data
            self.remove(name)
        return None

    def map(self, name: str, size: int) -> MappedFile | None:
        """Return the map of the copy of a file; None if there is none of this size.

        Raises:
            OSError: The copy cannot be mapped.
        """
        if not _is_cached(name):
            return None
        try:
            mapped = self.files.map(name, size)
        except FileNotFoundError:
            return None
        except StateDamagedError:
            self.remove(name)
            return None
        self._mark_used(name)
        return mapped

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32 of the copy of a file; None if there is none, or it is damaged."""
        with contextlib.suppress(*_CACHE_ERRORS):
            expected = self._read_checksum(name)
            if expected is None:
                return None
            crc = self.files.checksum(name)
            if crc == expected:
                self._mark_used(name)
                return crc
            self.remove(name)
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
        if _is_cached(name):
            with contextlib.suppress(*_CACHE_ERRORS):
                self.store(name, chunks)

    def store(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Copy a file in the folder of data files; an earlier copy of it is replaced.

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
            # Until the copy has its name, it is missing, or is an earlier one that counts as
            # damaged unless it has the same bytes.
            self.files.write(_checksum_name(name), [f"{crc:08x}".encode()])
            with contextlib.suppress(FileNotFoundError):
                self.files.rename(temporary, name)
        except BaseException:
            with contextlib.suppress(*_CACHE_ERRORS):
                self.files.remove(temporary)
            raise

    def remove(self, *names: str) -> None:
        """Remove the copies of files; an error is ignored."""
        for name in filter(_is_cached, names):
            for file in (name, _checksum_name(name)):
                with contextlib.suppress(*_CACHE_ERRORS):
                    self.files.remove(file)

    def keep_only(self, folder: str, names: Collection[str]) -> None:
        """Remove the copies of all files of a folder except those with these names.

        Temporary files remain for `UNFINISHED_COPY_SECONDS`: a process may still write to them.
        """
        if folder != CACHED_FOLDER:
            return
        self._remove_unused_caches()
        kept = set(names)
        unfinished = time.time() - UNFINISHED_COPY_SECONDS
        for name, used in self._list_uses().items():
            if name not in kept and not (name.endswith(TEMPORARY_SUFFIX) and used > unfinished):
                self.remove(name)

    def remove_unused(self) -> None:
        """Remove the copies that were not used for long, and record that the cache is in use.

        Call it often where `keep_only` is not called. It does so once in `CHECK_SECONDS`, for all
        processes that use the folder; other calls read the time of the folder only.
        """
        now, folder = time.time(), self.files.location
        try:
            if abs(now - os.stat(folder).st_mtime) < CHECK_SECONDS:
                return
            os.utime(folder)
        except OSError:  # there is no cache
            return
        self._remove_unused_caches()
        for name, used in self._list_uses().items():
            is_temporary = name.endswith(TEMPORARY_SUFFIX)
            if now - used > (UNFINISHED_COPY_SECONDS if is_temporary else UNUSED_COPY_SECONDS):
                self.remove(name)

    def _remove_unused_caches(self) -> None:
        """Record once a day that this cache is in use, and remove the others that are not."""
        now = time.time()
        folder = Path(self.files.location)
        if self._location is None:  # beside it, there may be folders of any kind
            return
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

    def _read_checksum(self, name: str) -> int | None:
        """Return the expected CRC-32 of a copy; None if there is none.

        Raises:
            OSError, StateDamagedError: It is missing, or cannot be read.
        """
        if not _is_cached(name):
            return None
        try:
            return int(bytes(self.files.read(_checksum_name(name))), 16)
        except ValueError:  # it is being written, or was cut short
            return None

    def _mark_used(self, name: str) -> None:
        """Record that a copy is used, unless this was recorded lately.

        The time of the copy itself remains: `streaming.state.mapped.trusted_files` compares it.
        """
        path = os.path.join(self.files.location, _checksum_name(name))
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > MARK_SECONDS:
                os.utime(path, follow_symlinks=False)

    def _list_uses(self) -> dict[str, float]:
        """Return when each copy was used last, by the name of its file."""
        try:
            copies = self.files.list_files(CACHED_FOLDER)
            checksums = self.files.list_files(CHECKSUMS_FOLDER)
        except _CACHE_ERRORS:
            return {}
        uses = {copy.name: copy.modified for copy in copies}
        # Also those whose copy is missing.
        return uses | {
            f"{CACHED_FOLDER}/{file.name.rpartition('/')[2]}": file.modified for file in checksums
        }


def _is_cached(name: str) -> bool:
    return name.startswith(f"{CACHED_FOLDER}/")


def _checksum_name(name: str) -> str:
    return f"{CHECKSUMS_FOLDER}/{name.rpartition('/')[2]}"


def _home_folder() -> Path:
    """Return the user's home folder; the current one if the user has none, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return Path.cwd()
