"""Files: the little that durable state asks of a file system.

A state directory has files that are written once and never changed, in one level of folders. What
was written survives a crash of the machine only once it is synced, and its name only once the
folder is; between the two anything may be lost. `streaming.state.store` is written against that
contract, and the tests run it on an implementation that loses whatever it may.

``LocalFiles`` is the local disk. ``ArrowFiles`` is any file system of pyarrow (S3, HDFS, ...):
there a closed file is durable and syncing does nothing; a rename is atomic where the file system's
move is (HDFS), while on an object store a file appears whole or not at all. Whatever such a file
system raises is an ``OSError`` here. Directories are locked on the local disk only, where two
writers are likely to meet. The lock of another process is waited for a little, as a query that is
stopped or killed takes a moment to end.

Reading gives private writable memory: a mapping of a large local file, a copy of any other.
Writable, because kernels are compiled for arrays that can be written to; private, so that no file
changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

import pyarrow as pa
import pyarrow.fs as arrow_fs

from streaming.errors import StateError, StateLockedError

__all__ = ["ArrowFiles", "Bytes", "Files", "LocalFiles", "files_of"]

Bytes: TypeAlias = bytes | bytearray | memoryview | Any  # or a buffer of pyarrow

# Bytes from which on a local file is mapped: each mapping keeps a file open.
MAPPED: Final = 1 << 24
LOCK: Final = "lock"
PATIENCE: Final = 5.0  # seconds to wait for another process to give the lock back
# Where nothing can be appended to, text is written again with every line, so it has to be little.
REWRITTEN: Final = 1 << 20
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Files(Protocol):
    """A directory. Names have at most one slash: ``folder/file``."""

    location: str

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`."""

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it."""

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the directory itself."""

    def read(self, name: str) -> memoryview:
        """All bytes of a file, as private memory that may be written to."""

    def size(self, name: str) -> int | None:
        """The size of a file in bytes; None if it is not there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted, each with its folder."""

    def remove(self, name: str) -> None:
        """Take a file away; nothing happens if it is not there."""

    def append(self, name: str, text: str) -> None:
        """Add lines to a file that may be lost."""

    def lock(self) -> None:
        """Keep other writers out until `unlock`."""

    def unlock(self) -> None:
        """Let other writers in."""


class LocalFiles:
    """A directory of the local disk.

    >>> import tempfile
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> files.write("data/a", [b"one ", b"two"]); files.sync("data/a"); files.sync_folder("data")
    >>> bytes(files.read("data/a")), files.names("data")
    (b'one two', ['data/a'])
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = os.fspath(location)
        self._path = Path(location)
        self._lock: int | None = None
        self._process = 0  # that took the lock

    def __getstate__(self) -> dict[str, Any]:
        """The directory; a lock stays with the process that has it."""
        return self.__dict__ | {"_lock": None}

    def __del__(self) -> None:
        self.unlock()

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`."""
        path = self._path / name
        _make(path.parent)
        with path.open("wb", buffering=0) as file:
            try:
                for chunk in chunks:
                    rest = memoryview(chunk).cast("B")
                    while len(rest):
                        rest = rest[file.write(rest) :]
            except OSError as error:  # says what, not where
                raise OSError(error.errno, error.strerror, str(path)) from None

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""
        _sync(self._path / name, os.O_RDWR)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it."""
        os.replace(self._path / old, self._path / new)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the directory itself."""
        path = self._path / folder
        if path.is_dir():
            _sync(path, os.O_RDONLY)

    def read(self, name: str) -> memoryview:
        """All bytes of a file, as private memory that may be written to."""
        with (self._path / name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size >= MAPPED:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            data = bytearray(size)
            file.readinto(data)
            return memoryview(data)

    def size(self, name: str) -> int | None:
        """The size of a file in bytes; None if it is not there."""
        try:
            return (self._path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted, each with its folder."""
        path = self._path / folder
        if not path.is_dir():
            return []
        found = (entry.name for entry in os.scandir(path) if entry.is_file())
        return sorted(f"{folder}/{name}" if folder else name for name in found)

    def remove(self, name: str) -> None:
        """Take a file away; nothing happens if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            (self._path / name).unlink()

    def append(self, name: str, text: str) -> None:
        """Add lines to a file that may be lost, after ending a last line that was cut."""
        path = self._path / name
        _make(path.parent)
        data = text.encode()
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)

    def lock(self) -> None:
        """Keep other writers out until `unlock`.

        Raises:
            StateLockedError: Another process, or another sink of this one, has the lock.
        """
        if self._lock is not None:
            return
        _make(self._path)
        handle = os.open(self._path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._wait(handle)
        except BaseException:
            os.close(handle)
            raise
        self._lock, self._process = handle, os.getpid()
        with contextlib.suppress(OSError):  # a full disk; the number is for messages only
            os.truncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)

    def unlock(self) -> None:
        """Let other writers in."""
        handle, self._lock = self._lock, None
        if handle is None:
            return
        # A process that was forked off has the same lock, and may neither keep it nor give it back.
        if self._process == os.getpid():
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _wait(self, handle: int) -> None:
        """Lock an open file."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                mine = " (this one)" if owner == str(os.getpid()) else ""
                if mine or time.monotonic() > end:
                    raise StateLockedError(
                        f"state directory {self.location} is written to by another sink, in "
                        f"process {owner}{mine}: stop that query and close() its sink, or give "
                        "this one a directory of its own"
                    ) from error
            time.sleep(0.05)


class ArrowFiles:
    """A directory of a file system of pyarrow.

    Args:
        system: The file system.
        location: The path of the directory in it.
    """

    def __init__(self, system: arrow_fs.FileSystem, location: str) -> None:
        self.location = location
        self._system = system
        self._base = location.rstrip("/")

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable when this returns."""
        with _os_errors(self._path(name)):
            self._system.create_dir(self._path(name.rpartition("/")[0]), recursive=True)
            with self._system.open_output_stream(self._path(name)) as out:
                for chunk in chunks:
                    out.write(chunk)

    def sync(self, name: str) -> None:
        """Nothing to do: a closed file is durable."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it."""
        with _os_errors(self._path(old)):
            self._system.move(self._path(old), self._path(new))

    def sync_folder(self, folder: str) -> None:
        """Nothing to do: names are durable."""

    def read(self, name: str) -> memoryview:
        """All bytes of a file, as private memory that may be written to."""
        path = self._path(name)
        with _os_errors(path), self._system.open_input_stream(path) as stream:
            return memoryview(bytearray(stream.read()))

    def size(self, name: str) -> int | None:
        """The size of a file in bytes; None if it is not there."""
        with _os_errors(self._path(name)):
            (info,) = self._system.get_file_info([self._path(name)])
        return int(info.size) if info.type == arrow_fs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted, each with its folder."""
        selector = arrow_fs.FileSelector(self._path(folder), allow_not_found=True)
        with _os_errors(self._path(folder)):
            infos = self._system.get_file_info(selector)
        found = [info.base_name for info in infos if info.type == arrow_fs.FileType.File]
        return sorted(f"{folder}/{name}" if folder else name for name in found)

    def remove(self, name: str) -> None:
        """Take a file away; nothing happens if it is not there."""
        if self.size(name) is not None:
            with _os_errors(self._path(name)):
                self._system.delete_file(self._path(name))

    def append(self, name: str, text: str) -> None:
        """Add text, by writing the file again: few file systems can append.

        What is long becomes ``<name>.1``, in place of what was there.
        """
        size = self.size(name)
        if size is not None and size > REWRITTEN:
            self.rename(name, f"{name}.1")
            size = None
        before = b"" if size is None else bytes(self.read(name))
        self.write(name, [before, text.encode()])

    def lock(self) -> None:
        """Nothing: there are no locks here. One writer is the caller's promise."""

    def unlock(self) -> None:
        """Nothing."""

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base


def files_of(location: Any) -> Files:
    """The files of a path, a URI that pyarrow knows, ``(filesystem, path)``, or those given.

    Raises:
        StateError: A URI of no file system that pyarrow has.
    """
    if isinstance(location, tuple):
        return _files_in(*location)
    if not isinstance(location, str | os.PathLike):
        return cast(Files, location)
    text = os.fspath(location)
    if not _URI.match(text):
        return LocalFiles(os.path.abspath(text))
    try:
        system, path = arrow_fs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(f"state_dir {text!r}: {error}; give a path or a URI of pyarrow") from error
    return _files_in(system, path)


def _files_in(system: arrow_fs.FileSystem, path: str) -> Files:
    while isinstance(system, arrow_fs.SubTreeFileSystem):
        system, path = system.base_fs, f"{system.base_path.rstrip('/')}/{path}"
    # Arrow closes local files without syncing them.
    local = isinstance(system, arrow_fs.LocalFileSystem)
    return LocalFiles(path) if local else ArrowFiles(system, path)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Errors of any kind, as those of the operating system."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path}: {type(error).__name__}: {error}") from error


def _make(path: Path) -> None:
    """Make a directory, and those it is in, so that a crash does not take them away."""
    if path.is_dir():
        return
    _make(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
