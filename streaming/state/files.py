"""Files: the file system operations that durable state needs.

A state directory has folders, and each folder has files that are written once and never changed.
`Files` is the interface to such a directory::

    LocalFiles    the local disk                                    (local_files)
    ObjectFiles   an object store: S3 and services like it          (object_store.object_files)
    ArrowFiles    any other file system of pyarrow, such as HDFS    (arrow_files)
    open_files    returns the one that fits a path or a URI         (open_files)

The bytes of a file survive a crash of the machine only after the file is synced, and its name only
after the folder is synced; before that, either may be lost. `streaming.state.store` relies on no
more than this contract, and the tests run it on an implementation that loses everything that the
contract allows.

`Files.read` returns private writable memory: a mapping of a large local file, a copy of any other
file. The memory is writable, because kernels are compiled for writable arrays, and private, so that
no file changes. `MappableFiles.map` returns shared memory, which is not memory of the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from streaming.errors import StateDamagedError

__all__ = [
    "TEMPORARY_SUFFIX",
    "AtomicFiles",
    "Bytes",
    "FileStatus",
    "Files",
    "GroupSyncFiles",
    "MappableFiles",
    "MappedMemory",
    "ScratchMemory",
    "StagedFile",
    "create_atomically",
    "is_atomic",
    "read_small_file",
    "remove_files",
    "replace_atomically",
    "sync_all",
]

Bytes: TypeAlias = bytes | bytearray | memoryview | Any  # Any: a buffer of pyarrow

# The maximum size of a manifest and of the other files that are read into memory several times.
MAX_SMALL_FILE_BYTES: Final = 1 << 28
#: The end of the name of a file that is not complete yet.
TEMPORARY_SUFFIX: Final = ".tmp"


@dataclass(frozen=True)
class FileStatus:
    """The size and the time of a file.

    Attributes:
        name: The name, with its folder.
        size: The number of bytes.
        modified: The time of the last change, in seconds since 1970.
    """

    name: str
    size: int
    modified: float


class Files(Protocol):
    """The operations on a directory. A file name has at most one slash: ``folder/file``."""

    location: str

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`.

        An iterator is read only once. Any other iterable may be read several times, for example to
        count its bytes first.

        Raises:
            OSError: The file system failed; a part of the file may have been written.
        """

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name; raise `FileExistsError` if the name is used."""

    def sync_folder(self, folder: str) -> None:
        """Make the names of the files in a folder durable; "" is the directory itself."""

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file as private, writable memory."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted, each with its folder."""

    def list_files(self, folder: str) -> list[FileStatus]:
        """Return the sizes and times of the files in a folder, sorted by name."""

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""

    def append(self, name: str, text: str) -> None:
        """Append lines to a file; they may be lost in a crash."""

    def lock(self) -> None:
        """Exclude other writers until `unlock`."""

    def unlock(self) -> None:
        """Admit other writers."""


#: A file of more bytes is renamed before text is appended to it by writing it again.
MAX_REWRITTEN_BYTES: Final = 1 << 20


def append_by_rewriting(files: Files, name: str, text: str) -> None:
    """Append text to a file by writing the whole file again.

    A file of more than ``MAX_REWRITTEN_BYTES`` is first renamed to ``<name>.1``, replacing an older
    one.
    """
    try:
        content = _read_at_most(files, name, MAX_REWRITTEN_BYTES)
    except FileNotFoundError:
        content = b""
    if content is None:
        files.rename(name, f"{name}.1")
    files.write(name, [content or b"", text.encode()])


class MappedMemory(Protocol):
    """The bytes of a file as shared memory.

    Attributes:
        memory: The bytes; an array that refers to them keeps the map open.
        identity: Numbers that change whenever somebody writes to the file.
    """

    memory: memoryview
    identity: tuple[int, ...]

    def check(self) -> None:
        """Raise `StateDamagedError` if the file has another size than when it was mapped."""

    def expect_random_access(self) -> None:
        """Let a read load and make resident only its own page: searches touch distant pages."""

    def release_pages(self, start: int = 0, end: int | None = None) -> None:
        """Remove the pages of a range of bytes from the memory of this process.

        The next access reads them again. The range may be rounded to whole pages.
        """


class ScratchMemory(Protocol):
    """Writable memory that is not memory of the process."""

    def expect_random_access(self) -> None:
        """Read no pages ahead: the words are searched, not read in their order."""

    def take_array(self) -> npt.NDArray[np.int64]:
        """Return the words, which are 0; the array keeps the memory."""

    def release_pages(self) -> None:
        """Remove the pages from the memory of this process; their contents stay."""


@runtime_checkable
class MappableFiles(Files, Protocol):
    """A directory whose files can be mapped.

    Attributes:
        record_files: A directory on the same disk as the maps, for a record of them.
    """

    @property
    def record_files(self) -> Files: ...

    def map(self, name: str, size: int) -> MappedMemory:
        """Return a file of this size as shared memory, which is not memory of the process."""

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of a file; it is not in memory as a whole."""

    def scratch(self, folder: str, words: int) -> ScratchMemory:
        """Return writable memory in a file of a folder; the file has no name.

        Raises:
            OSError: The disk has too little space.
        """


@runtime_checkable
class AtomicFiles(Files, Protocol):
    """A directory on an object store: a write is atomic and durable, and no file is renamed.

    A request of a process that has ended may still take effect later.
    """

    def create(self, name: str, data: Bytes) -> None:
        """Create a file; raise `FileExistsError`, and change nothing, if the name is used."""

    def read_at_most(self, name: str, max_bytes: int) -> bytes | None:
        """Return the bytes of a file, by one request; None if it has more than ``max_bytes``.

        Raises:
            FileNotFoundError: The file is missing.
        """

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove files, in no order and by few requests; a missing file is not an error.

        Raises:
            OSError: Some of the files may remain.
        """


# For each class of directories: whether these are on an object store.
_ATOMIC_CLASSES: Final[WeakKeyDictionary[type, bool]] = WeakKeyDictionary()


def is_atomic(files: Files) -> TypeGuard[AtomicFiles]:
    """Return whether a directory is on an object store: all of a class are, or none.

    In Python 3.11, `isinstance` with a protocol is slow, and each micro-batch asks many times.
    """
    known = _ATOMIC_CLASSES.get(type(files))
    if known is None:
        known = _ATOMIC_CLASSES[type(files)] = isinstance(files, AtomicFiles)
    return known


@runtime_checkable
class GroupSyncFiles(Files, Protocol):
    """A directory that makes many files durable in about the time of one."""

    def sync_all(self, names: Collection[str], folders: Collection[str]) -> None:
        """Make the bytes of files, and the names in folders, durable.

        Raises:
            OSError: Some of them may not be durable; this is the first error.
        """


class StagedFile:
    """A file that is complete, and gets its name by one atomic operation.

    On a file system it is written and synced under a temporary name, and then renamed. On an object
    store it stays in memory until it is written with its name. The name is durable only after
    `Files.sync_folder`.

    Args:
        files: The directory.
        name: The name.
        data: The content.
        temporary: The temporary name, if the file has one; by default an unused name.

    Attributes:
        temporary: The temporary name; None on an object store.
    """

    def __init__(self, files: Files, name: str, data: Bytes, temporary: str | None = None) -> None:
        self.temporary: str | None = None
        if not is_atomic(files):
            self.temporary = temporary or f"{name}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
        self._files = files
        self._name = name
        self._data = data

    def prepare(self) -> None:
        """Write and sync the file under its temporary name, if it has one."""
        if self.temporary is not None:
            self._files.write(self.temporary, [self._data])
            self._files.sync(self.temporary)

    def create(self) -> None:
        """Give the file its name.

        Raises:
            FileExistsError: The name is already used.
            FileNotFoundError: Another process has removed the temporary file.
        """
        if is_atomic(self._files):
            self._files.create(self._name, self._data)
        elif self.temporary is not None:
            self._files.rename_new(self.temporary, self._name)

    def replace(self) -> None:
        """Give the file its name; it replaces a file of this name.

        Raises:
            FileNotFoundError: Another process has removed the temporary file.
        """
        if self.temporary is None:
            self._files.write(self._name, [self._data])
        else:
            self._files.rename(self.temporary, self._name)

    def abandon(self) -> None:
        """Remove the temporary file."""
        if self.temporary is not None:
            self._files.remove(self.temporary)


def read_small_file(files: Files, name: str) -> bytes:
    """Return the bytes of a file of at most ``MAX_SMALL_FILE_BYTES``.

    Raises:
        FileNotFoundError: The file is missing.
        StateDamagedError: The file is too long, or is not a file.
    """
    content = _read_at_most(files, name, MAX_SMALL_FILE_BYTES)
    if content is None:
        raise StateDamagedError(
            f"{files.location}/{name} has more than {MAX_SMALL_FILE_BYTES} bytes: restore the "
            "state directory from a copy"
        )
    return content


def _read_at_most(files: Files, name: str, max_bytes: int) -> bytes | None:
    """Return the bytes of a file; None if it has more than ``max_bytes``.

    Raises:
        FileNotFoundError: The file is missing.
        StateDamagedError: It is not a file.
    """
    if is_atomic(files):
        return files.read_at_most(name, max_bytes)
    size = files.size(name)
    if size is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{files.location}/{name}")
    return None if size > max_bytes else bytes(files.read(name))


def sync_all(files: Files, names: Collection[str], folders: Collection[str]) -> None:
    """Make the bytes of files, and the names in folders, durable.

    Raises:
        OSError: Some of them may not be durable; this is the first error.
    """
    if isinstance(files, GroupSyncFiles):
        files.sync_all(names, folders)
        return
    for name in names:
        files.sync(name)
    for folder in folders:
        files.sync_folder(folder)


def remove_files(files: Files, names: Collection[str]) -> None:
    """Remove files: all that can be removed; a missing file is not an error.

    Raises:
        OSError, StateDamagedError: Some of the files may remain; this is the first error.
    """
    if is_atomic(files):
        files.remove_all(list(names))
        return
    errors: list[OSError | StateDamagedError] = []
    for name in names:
        try:
            files.remove(name)
        except (OSError, StateDamagedError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


def replace_atomically(
    files: Files, name: str, data: Bytes, *, temporary: str | None = None
) -> None:
    """Create or replace a file atomically: after a crash, it has the old or the new content.

    The new name is durable only after `Files.sync_folder`.

    Args:
        files: The directory.
        name: The name of the file.
        data: Its new content.
        temporary: The name of the file while it is written, if it has one; by default an unused
            name, because two processes that write one temporary file would mix their contents.

    Raises:
        OSError: The file system raised an error.
    """
    staged = StagedFile(files, name, data, temporary)
    if temporary is not None:
        # A killed process may have left the temporary file. If it is another hard link to
        # ``name``, writing to it would change ``name``.
        staged.abandon()
    try:
        staged.prepare()
        staged.replace()
    except OSError:
        with contextlib.suppress(OSError):
            staged.abandon()
        raise


def create_atomically(files: Files, name: str, data: Bytes) -> bool:
    """Create a file atomically; return False, and change nothing, if the name is already used.

    The new name is durable only after `Files.sync_folder`.

    Raises:
        OSError: The file system raised an error.
    """
    staged = StagedFile(files, name, data)
    try:
        staged.prepare()
        staged.create()
    except FileExistsError:
        staged.abandon()
        return False
    except OSError:
        with contextlib.suppress(OSError):
            staged.abandon()
        raise
    return True
