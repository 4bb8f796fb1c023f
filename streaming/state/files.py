"""Files: the file system operations that durable state needs.

A state directory has files that are written once and never changed, in one level of folders. The
bytes of a file survive a crash of the machine only after the file is synced, and its name only
after the folder is synced; before that, either may be lost. `streaming.state.store` relies on no
more than this contract, and the tests run it on an implementation that loses everything that the
contract allows.

``LocalFiles`` is the local disk. ``ArrowFiles`` is any file system of pyarrow (S3, HDFS, ...).
There a closed file is durable and syncing does nothing. A rename is atomic if the file system's
move is atomic (HDFS); on an object store a file appears whole or not at all. Every exception of
such a file system is raised as an ``OSError``. Directories are locked on the local disk only, where
two writers are likely to conflict. A writer waits a few seconds for the lock of another process,
because a stopped or killed query takes a moment to end.

`Files.read` returns private writable memory: a mapping of a large local file, a copy of any other
file. The memory is writable, because kernels are compiled for writable arrays, and private, so that
no file changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

import pyarrow as pa
import pyarrow.fs as arrow_fs

from streaming.errors import StateDamagedError, StateError, StateLockedError

__all__ = [
    "DEFAULT_STATE_MODE",
    "ArrowFiles",
    "Bytes",
    "Files",
    "LocalFiles",
    "check_mode",
    "make_folder",
    "mode_of",
    "open_files",
    "read_small",
    "replace_small",
]

Bytes: TypeAlias = bytes | bytearray | memoryview | Any  # Any: a buffer of pyarrow

# A local file of at least this size is memory-mapped; each mapping uses a file descriptor.
MIN_MAPPED_BYTES: Final = 1 << 24
LOCK_FILE: Final = "lock"
LOCK_TIMEOUT_S: Final = 5.0  # wait for another process to release the lock
# Without append, each new line rewrites the file, so the file must be small.
MAX_REWRITTEN_BYTES: Final = 1 << 20
# Only the owner may read the directory.
DEFAULT_STATE_MODE: Final = 0o700
# The maximum size of a manifest, an identity or a definition.
MAX_SMALL_FILE_BYTES: Final = 1 << 28
# The errors of a file system without hard links.
NO_HARD_LINK_ERRORS: Final = (
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
)
# The errors of opening something other than a file.
NOT_A_FILE_ERRORS: Final = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Files(Protocol):
    """A directory. A file name has at most one slash: ``folder/file``."""

    location: str

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`."""

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name; raise `FileExistsError` if the name is used."""

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the directory itself."""

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file as private, writable memory."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted, each with its folder."""

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""

    def append(self, name: str, text: str) -> None:
        """Append lines to a file; they may be lost in a crash."""

    def lock(self) -> None:
        """Exclude other writers until `unlock`."""

    def unlock(self) -> None:
        """Admit other writers."""


class LocalFiles:
    """A directory of the local disk.

    Every file is a regular file in the directory itself or in one of its folders. Symbolic links,
    FIFOs, sockets and directories in the place of a file, and symbolic links in the place of a
    folder, are refused: nothing outside of the directory is read, written or removed. Only the
    directory itself may be reached through a symbolic link.

    Args:
        location: The path.
        mode: The permission bits of new directories; new files have the same bits without the
            execute bits. None for the default of the process's umask. Existing files and
            directories keep their bits.

    >>> import tempfile
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> files.write("data/a", [b"one ", b"two"]); files.sync("data/a"); files.sync_folder("data")
    >>> bytes(files.read("data/a")), files.names("data")
    (b'one two', ['data/a'])
    """

    def __init__(self, location: str | os.PathLike[str], mode: int | None = None) -> None:
        self.location = os.fspath(location)
        self.mode = mode
        self._path = Path(location)
        self._lock: int | None = None
        self._process = 0  # the process that acquired the lock

    def __getstate__(self) -> dict[str, Any]:
        """Return the directory without the lock, which stays with its process."""
        return self.__dict__ | {"_lock": None}

    def __del__(self) -> None:
        self.unlock()

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`."""
        self._make_folder(name.rpartition("/")[0])
        with self._open_parent(name) as (folder, base), self._create_file(folder, base) as file:
            for chunk in chunks:
                rest = memoryview(chunk).cast("B")
                while len(rest):
                    rest = rest[os.write(file, rest) :]

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""
        with (
            self._open_parent(name) as (folder, base),
            self._open_file(folder, base, os.O_RDWR) as file,
        ):
            os.fsync(file)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""
        with (
            self._open_parent(new) as (there, new_base),
            self._open_parent(old) as (here, old_base),
        ):
            os.replace(old_base, new_base, src_dir_fd=here, dst_dir_fd=there)

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name.

        On a file system with hard links exactly one of several concurrent processes succeeds.

        Raises:
            FileExistsError: There is a file, or anything else, of the new name.
        """
        with (
            self._open_parent(old) as (here, old_base),
            self._open_parent(new) as (there, new_base),
        ):
            try:
                os.link(
                    old_base, new_base, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False
                )
            except OSError as error:
                if error.errno not in NO_HARD_LINK_ERRORS:
                    raise
                if _exists(new_base, there):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                os.rename(old_base, new_base, src_dir_fd=here, dst_dir_fd=there)
            else:
                os.unlink(old_base, dir_fd=here)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the directory itself."""
        with contextlib.suppress(FileNotFoundError), self._folder(folder) as handle:
            os.fsync(handle)

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file as private, writable memory."""
        with (
            self._open_parent(name) as (folder, base),
            self._open_file(folder, base, os.O_RDONLY) as file,
        ):
            size = os.fstat(file).st_size
            if size >= MIN_MAPPED_BYTES:
                return memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
            data = bytearray(size)
            rest = memoryview(data)
            while len(rest):
                count = os.readv(file, [rest])
                if not count:
                    break  # the file was truncated meanwhile
                rest = rest[count:]
            return memoryview(data)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing."""
        try:
            with self._open_parent(name) as (folder, base):
                found = os.stat(base, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_regular(name, found.st_mode)
        return found.st_size

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted, each with its folder.

        A folder or a link in the place of a file is listed too, so that readers detect it.
        """
        try:
            with self._folder(folder) as handle, os.scandir(handle) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if folder or not entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name}" if folder else name for name in found)

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        with contextlib.suppress(FileNotFoundError), self._open_parent(name) as (folder, base):
            os.unlink(base, dir_fd=folder)

    def append(self, name: str, text: str) -> None:
        """Append lines to a file, after ending an incomplete last line; a crash may lose them."""
        data = text.encode()
        self._make_folder(name.rpartition("/")[0])
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with (
            self._open_parent(name) as (folder, base),
            self._open_file(folder, base, flags) as file,
        ):
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(file, data) :]

    def lock(self) -> None:
        """Exclude other writers until `unlock`.

        Raises:
            StateLockedError: Another process, or another sink of this one, has the lock.
            StateDamagedError: The lock file is not a regular file.
        """
        if self._lock is not None:
            if self._is_lock_file(self._lock):
                return
            self.unlock()  # the lock file was removed, so other processes use a new one
        self._make_folder("")
        with self._open_parent(LOCK_FILE) as (folder, base):
            handle = self._open(folder, base, os.O_RDWR | os.O_CREAT)
        try:
            self._acquire_lock(handle)
        except BaseException:
            os.close(handle)
            raise
        self._lock, self._process = handle, os.getpid()
        with contextlib.suppress(OSError):  # a full disk; the process id is for messages only
            os.truncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)

    def unlock(self) -> None:
        """Admit other writers."""
        handle, self._lock = self._lock, None
        if handle is None:
            return
        # A forked process shares the lock; it closes its descriptor without releasing the lock.
        if self._process == os.getpid():
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _acquire_lock(self, handle: int) -> None:
        """Lock an open file; wait for up to ``LOCK_TIMEOUT_S``."""
        end = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                this_one = " (this one)" if owner == str(os.getpid()) else ""
                if this_one or time.monotonic() > end:
                    raise StateLockedError(
                        f"state directory {self.location} is written to by another sink, in "
                        f"process {owner}{this_one}: stop that query and close() its sink, or give "
                        "this one a directory of its own"
                    ) from error
            time.sleep(0.05)

    def _is_lock_file(self, handle: int) -> bool:
        """Return whether an open file is still the file at the path of the lock."""
        with contextlib.suppress(OSError):
            here, there = os.fstat(handle), os.lstat(self._path / LOCK_FILE)
            return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        return False

    @contextlib.contextmanager
    def _folder(self, folder: str) -> Iterator[int]:
        """Open a folder; "" is the directory itself.

        Raises:
            StateDamagedError: A file or a symbolic link is in its place.
        """
        path = self._path / folder
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if folder else 0)
        try:
            handle = os.open(path, flags)
        except OSError as error:
            if folder and error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise StateDamagedError(
                    f"{path} is no folder but a file or a symbolic link: put the folder back, or "
                    "restore the state directory from a copy"
                ) from error
            raise
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _open_parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a file; yield its handle and the base name of the file.

        An `OSError` in the block gets the whole path of the file.
        """
        folder, _, base = name.rpartition("/")
        if "/" in folder or base in ("", ".", "..") or folder in (".", ".."):
            raise StateDamagedError(
                f"{name!r} is no name of a file in state directory {self.location}"
            )
        try:
            with self._folder(folder) as handle:
                yield handle, base
        except OSError as error:
            has_path = isinstance(error.filename, str) and error.filename.startswith(self.location)
            if error.errno is None or has_path:
                raise
            raise OSError(error.errno, error.strerror, str(self._path / name)) from None

    @contextlib.contextmanager
    def _open_file(self, folder: int, base: str, flags: int) -> Iterator[int]:
        """Open a regular file; close it at the end of the block."""
        handle = self._open(folder, base, flags)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _create_file(self, folder: int, base: str) -> Iterator[int]:
        """Create a file, after removing a file of the same name; close it at the end."""
        try:
            handle = self._create(base, os.O_WRONLY, folder)
        except FileExistsError:
            os.unlink(base, dir_fd=folder)
            handle = self._create(base, os.O_WRONLY, folder)
        try:
            yield handle
        finally:
            os.close(handle)

    def _create(self, base: str, flags: int, folder: int) -> int:
        """Create a file; raise `FileExistsError` if anything has this name."""
        mode = 0o666 if self.mode is None else self.mode & 0o666
        flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(base, flags, mode, dir_fd=folder)
        if self.mode is not None:
            os.fchmod(handle, mode)  # whatever the umask
        return handle

    def _open(self, folder: int, base: str, flags: int) -> int:
        """Open a regular file, without waiting for the other end of a FIFO."""
        if flags & os.O_CREAT and not _exists(base, folder):
            with contextlib.suppress(FileExistsError):
                return self._create(base, flags, folder)
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(base, flags & ~os.O_CREAT, dir_fd=folder)
        except OSError as error:
            if error.errno in NOT_A_FILE_ERRORS:
                found = os.stat(base, dir_fd=folder, follow_symlinks=False)
                self._check_regular(base, found.st_mode)
            raise
        try:
            self._check_regular(base, os.fstat(handle).st_mode)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _check_regular(self, name: str, mode: int) -> None:
        if stat.S_ISREG(mode):
            return
        kinds = {
            stat.S_IFDIR: "a directory",
            stat.S_IFLNK: "a symbolic link",
            stat.S_IFIFO: "a FIFO",
            stat.S_IFSOCK: "a socket",
        }
        raise StateDamagedError(
            f"{self.location}/{name} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file: "
            "remove it, or restore the state directory from a copy"
        )

    def _make_folder(self, folder: str) -> None:
        """Make a folder and its parent directory, if they are missing."""
        path = self._path / folder
        if not os.path.lexists(path) if folder else not path.is_dir():
            make_folder(path, self.mode)


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
        """Rename a file, replacing a file of the new name."""
        with _os_errors(self._path(old)):
            self._system.move(self._path(old), self._path(new))

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name; the check and the rename are not atomic.

        Raises:
            FileExistsError: There is a file, or anything else, of the new name.
        """
        with _os_errors(self._path(new)):
            (info,) = self._system.get_file_info([self._path(new)])
        if info.type != arrow_fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path(new))
        self.rename(old, new)

    def sync_folder(self, folder: str) -> None:
        """Nothing to do: names are durable."""

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file as private, writable memory."""
        path = self._path(name)
        with _os_errors(path), self._system.open_input_stream(path) as stream:
            return memoryview(bytearray(stream.read()))

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing."""
        with _os_errors(self._path(name)):
            (info,) = self._system.get_file_info([self._path(name)])
        return int(info.size) if info.type == arrow_fs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted, each with its folder."""
        selector = arrow_fs.FileSelector(self._path(folder), allow_not_found=True)
        with _os_errors(self._path(folder)):
            infos = self._system.get_file_info(selector)
        found = [info.base_name for info in infos if folder or info.type == arrow_fs.FileType.File]
        return sorted(f"{folder}/{name}" if folder else name for name in found)

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        if self.size(name) is not None:
            with _os_errors(self._path(name)):
                self._system.delete_file(self._path(name))

    def append(self, name: str, text: str) -> None:
        """Append text by rewriting the file, because few file systems can append.

        A file of more than ``MAX_REWRITTEN_BYTES`` is first renamed to ``<name>.1``, replacing an
        older one.
        """
        size = self.size(name)
        if size is not None and size > MAX_REWRITTEN_BYTES:
            self.rename(name, f"{name}.1")
            size = None
        before = b"" if size is None else bytes(self.read(name))
        self.write(name, [before, text.encode()])

    def lock(self) -> None:
        """Nothing to do: there are no locks; the caller guarantees a single writer."""

    def unlock(self) -> None:
        """Nothing to do."""

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base


def read_small(files: Files, name: str) -> bytes:
    """Return the bytes of a file of at most ``MAX_SMALL_FILE_BYTES``.

    Such a file fits into memory several times.

    Raises:
        FileNotFoundError: The file is missing.
        StateDamagedError: The file is too long, or is not a file.
    """
    size = files.size(name)
    if size is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{files.location}/{name}")
    if size > MAX_SMALL_FILE_BYTES:
        raise StateDamagedError(
            f"{files.location}/{name} has {size} bytes, at most {MAX_SMALL_FILE_BYTES} are read: "
            "restore the state directory from a copy"
        )
    return bytes(files.read(name))


def replace_small(files: Files, name: str, data: bytes) -> None:
    """Create or replace a file atomically: after a crash, it is the old one or the new one.

    Raises:
        OSError: The file system raised an error.
    """
    temporary = f"{name}.tmp"
    files.remove(temporary)  # a killed process may have left it, even as a hard link of the file
    files.write(temporary, [data])
    files.sync(temporary)
    files.rename(temporary, name)


def mode_of(files: Files, folder: str) -> int | None:
    """Return the permission bits of a folder; None if it is missing or not on a local disk."""
    if not isinstance(files, LocalFiles):
        return None
    try:
        return stat.S_IMODE(os.stat(os.path.join(files.location, folder)).st_mode)
    except OSError:
        return None


def open_files(location: Any, mode: int | None = None) -> Files:
    """Return the files of a location.

    Args:
        location: A path, a URI of a file system that pyarrow supports, a pair ``(filesystem,
            path)``, or `Files`, which are returned unchanged.
        mode: As for `LocalFiles`; no other file system has permission bits.

    Raises:
        StateError: pyarrow has no file system for the URI.
    """
    if isinstance(location, tuple):
        system, path = location
        return _files_in(system, path, mode)
    if not isinstance(location, str | os.PathLike):
        return cast(Files, location)
    text = os.fspath(location)
    if not _URI.match(text):
        return LocalFiles(os.path.abspath(text), mode)
    try:
        system, path = arrow_fs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(f"state_dir {text!r}: {error}; give a path or a URI of pyarrow") from error
    return _files_in(system, path, mode)


def _files_in(system: arrow_fs.FileSystem, path: str, mode: int | None) -> Files:
    while isinstance(system, arrow_fs.SubTreeFileSystem):
        system, path = system.base_fs, f"{system.base_path.rstrip('/')}/{path}"
    # Arrow closes local files without syncing them.
    local = isinstance(system, arrow_fs.LocalFileSystem)
    return LocalFiles(path, mode) if local else ArrowFiles(system, path)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Convert an exception of any type to an `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path}: {type(error).__name__}: {error}") from error


def check_mode(mode: int) -> int:
    """Return the permission bits of a state directory, after checking them.

    Raises:
        StateError: They are not permission bits, or exclude the user.
    """
    if not isinstance(mode, int) or not 0 <= mode <= 0o7777 or mode & 0o700 != 0o700:
        shown = f"0o{mode:o}" if isinstance(mode, int) and mode >= 0 else repr(mode)
        raise StateError(
            f"state_mode={shown}: give permission bits that let the user read, write and search, "
            "as 0o700 or 0o770"
        )
    return mode


def make_folder(path: Path, mode: int | None = None) -> None:
    """Make a directory and its parents durably, so that a crash does not remove them.

    Args:
        path: The directory; an existing directory is not changed.
        mode: The permission bits of the directory, whatever the umask. New parents have the
            permission bits of the umask.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(0o777 if mode is None else mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        if mode is not None:
            path.chmod(mode)  # whatever the umask
    handle = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exists(base: str, folder: int) -> bool:
    try:
        os.stat(base, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
