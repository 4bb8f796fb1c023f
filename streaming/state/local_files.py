"""Local files: a state directory on the local disk.

All access goes through handles of folders, and symbolic links are refused, so nothing outside of
the directory is read, written or removed. The writer of a directory locks it. Another writer waits
a few seconds for the lock, because a stopped or killed query takes a moment to end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from streaming.errors import StateDamagedError, StateError, StateLockedError
from streaming.state.files import Bytes, Files, FileStatus
from streaming.state.mapped.mapped_file import MappedFile, ScratchFile

__all__ = [
    "DEFAULT_STATE_MODE",
    "LOCK_FILE",
    "LOCK_TIMEOUT_S",
    "MIN_MAPPED_BYTES",
    "WRITE_BYTES",
    "LocalFiles",
    "check_mode",
    "folder_mode",
    "is_locked_here",
    "make_folder",
]

# A file of at least this size is memory-mapped; each mapping uses a file descriptor.
MIN_MAPPED_BYTES: Final = 1 << 24
# A file is written in pieces of this size, at multiples of it. Linux keeps each piece in its cache
# as one large page (a folio). A search in a map of the file maps 16 pages at a time anyway, which
# takes half the time if they are one large page. Larger ones would make more memory resident.
WRITE_BYTES: Final = 1 << 16
# `LocalFiles.checksum` reads this many bytes at a time.
CHECKSUM_CHUNK_BYTES: Final = 1 << 22
#: Threads that sync files.
MAX_PARALLEL_SYNCS: Final = 16
LOCK_FILE: Final = "lock"
LOCK_TIMEOUT_S: Final = 5.0  # wait for another process to release the lock
# Only the owner may read the directory.
DEFAULT_STATE_MODE: Final = 0o700
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


# The lock files that this process has locked: its id, their device and their inode. A process that
# was forked has the locks of its parent here, but not its id.
_LOCKED: Final[set[tuple[int, int, int]]] = set()


class LocalFiles:
    """A directory of the local disk.

    Every file is a regular file in the directory itself or in one of its folders. A file that is a
    symbolic link, FIFO, socket or directory is refused, and so is a folder that is a symbolic
    link: nothing outside of the directory is read, written or removed. Only the path of the
    directory itself may contain symbolic links.

    Args:
        location: The path.
        mode: The permission bits of new folders; new files have the same bits without the execute
            bits. None for the default of the process's umask. Existing files and folders keep
            their bits.

    >>> import tempfile
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> files.write("data/a", [b"one ", b"two"]); files.sync("data/a"); files.sync_folder("data")
    >>> bytes(files.read("data/a")), files.names("data")
    (b'one two', ['data/a'])
    """

    def __init__(self, location: str | os.PathLike[str], mode: int | None = None) -> None:
        self._lock: int | None = None
        self._process = 0  # the process that acquired the lock
        self.location = os.fspath(location)
        self.mode = mode
        self._path = Path(location)

    def __getstate__(self) -> dict[str, Any]:
        """Return the directory without the lock, which stays with its process."""
        return self.__dict__ | {"_lock": None}

    def __del__(self) -> None:
        self.unlock()

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable only after `sync`."""
        self._make_folder(name.rpartition("/")[0])
        with self._open_parent(name) as (parent, base), self._create_file(parent, base) as file:
            position = 0
            for chunk in chunks:
                unwritten = memoryview(chunk).cast("B")
                while len(unwritten):
                    size = WRITE_BYTES - position % WRITE_BYTES
                    written = os.write(file, unwritten[:size])
                    position += written
                    unwritten = unwritten[written:]

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable."""
        with (
            self._open_parent(name) as (parent, base),
            self._open_file(parent, base, os.O_RDWR) as file,
        ):
            os.fsync(file)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""
        with (
            self._open_parent(new) as (new_folder, new_base),
            self._open_parent(old) as (old_folder, old_base),
        ):
            os.replace(old_base, new_base, src_dir_fd=old_folder, dst_dir_fd=new_folder)

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name.

        On a file system with hard links exactly one of several concurrent processes succeeds.

        Raises:
            FileExistsError: A file, a folder or a link already has the new name.
        """
        with (
            self._open_parent(old) as (old_folder, old_base),
            self._open_parent(new) as (new_folder, new_base),
        ):
            try:
                os.link(
                    old_base,
                    new_base,
                    src_dir_fd=old_folder,
                    dst_dir_fd=new_folder,
                    follow_symlinks=False,
                )
            except OSError as error:
                if error.errno not in NO_HARD_LINK_ERRORS:
                    raise
                if _exists(new_base, new_folder):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                os.rename(old_base, new_base, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            else:
                os.unlink(old_base, dir_fd=old_folder)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the directory itself."""
        with contextlib.suppress(FileNotFoundError), self._folder(folder) as handle:
            os.fsync(handle)

    def sync_all(self, names: Collection[str], folders: Collection[str]) -> None:
        """Make the bytes of files, and the names in folders, durable.

        Threads sync them at the same time, because a file system writes its journal once for all
        syncs that wait for it: 15 files take the time of two or three, not of 15. If the process
        may not have more threads, they are synced one after the other.

        Raises:
            OSError: Some of them may not be durable; this is the first error.
        """
        syncs: list[Callable[[], None]] = [partial(self.sync, name) for name in names]
        syncs += [partial(self.sync_folder, folder) for folder in folders]
        results: list[Future[None]] = []
        with (
            contextlib.suppress(RuntimeError),  # no thread could be started
            ThreadPoolExecutor(MAX_PARALLEL_SYNCS) as executor,
        ):
            for sync in syncs:
                results.append(executor.submit(sync))
        # A system may report only once that bytes were not written, so none is synced twice.
        for result in results:
            if not result.cancelled():
                result.result()
        for sync in syncs[len(results) :]:
            sync()

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file as private, writable memory."""
        with (
            self._open_parent(name) as (parent, base),
            self._open_file(parent, base, os.O_RDONLY) as file,
        ):
            size = os.fstat(file).st_size
            if size >= MIN_MAPPED_BYTES:
                return memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
            data = bytearray(size)
            unread = memoryview(data)
            while len(unread):
                count = os.readv(file, [unread])
                if not count:
                    break  # the file was truncated meanwhile
                unread = unread[count:]
            return memoryview(data)

    def map(self, name: str, size: int) -> MappedFile:
        """Return a file as shared memory, which is not memory of the process.

        Args:
            name: The name of the file.
            size: The size that it must have, at least 1.

        Raises:
            StateDamagedError: The file has another size, or is not a file.
            OSError: It is missing, or cannot be mapped.
        """
        with (
            self._open_parent(name) as (parent, base),
            self._open_file(parent, base, os.O_RDONLY) as file,
        ):
            return MappedFile(file, str(self._path / name), size)

    @property
    def record_files(self) -> Files:
        """This directory."""
        return self

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of a file, of which a few megabytes at a time are in memory."""
        with (
            self._open_parent(name) as (parent, base),
            self._open_file(parent, base, os.O_RDONLY) as file,
        ):
            crc, buffer = 0, memoryview(bytearray(CHECKSUM_CHUNK_BYTES))
            while count := os.readv(file, [buffer]):
                crc = zlib.crc32(buffer[:count], crc)
            return crc

    def scratch(self, folder: str, words: int) -> ScratchFile:
        """Return writable memory in a file without a name.

        Args:
            folder: The folder whose disk is used; it exists.
            words: The number of int64 words, at least 1.

        Raises:
            OSError: The disk has too little space.
        """
        name = f"{folder}/scratch-{uuid.uuid4().hex}"
        with self._open_parent(name) as (parent, base):
            handle = self._create(base, os.O_RDWR, parent)
            try:
                os.unlink(base, dir_fd=parent)
                return ScratchFile(handle, words)
            finally:
                os.close(handle)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing."""
        try:
            with self._open_parent(name) as (parent, base):
                status = os.stat(base, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_regular(name, status.st_mode)
        return status.st_size

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted, each with its folder.

        A folder or link with the name of a file is listed too, so that readers detect it.
        """
        try:
            with self._folder(folder) as handle, os.scandir(handle) as entries:
                base_names = [
                    entry.name
                    for entry in entries
                    if folder or not entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name}" if folder else name for name in base_names)

    def list_files(self, folder: str) -> list[FileStatus]:
        """Return the sizes and times of the regular files in a folder, sorted by name."""
        try:
            with self._folder(folder) as handle, os.scandir(handle) as entries:
                found = {}
                for entry in entries:
                    # Another process may remove a file while this one lists the folder.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file(follow_symlinks=False):
                            found[entry.name] = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return []
        return [
            FileStatus(f"{folder}/{name}" if folder else name, status.st_size, status.st_mtime)
            for name, status in sorted(found.items())
        ]

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        with contextlib.suppress(FileNotFoundError), self._open_parent(name) as (parent, base):
            os.unlink(base, dir_fd=parent)

    def append(self, name: str, text: str) -> None:
        """Append lines to a file; a crash may lose them. An incomplete last line is ended first."""
        data = text.encode()
        self._make_folder(name.rpartition("/")[0])
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with (
            self._open_parent(name) as (parent, base),
            self._open_file(parent, base, flags) as file,
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
            if self._process == os.getpid() and self._is_lock_file(self._lock):
                return
            # The lock file was removed, so other processes use a new one; or this is a forked child
            # process, whose parent has the lock.
            self.unlock()
        self._make_folder("")
        handle = self._open_locked()
        while not self._is_lock_file(handle):  # it was removed meanwhile
            os.close(handle)
            handle = self._open_locked()
        self._lock, self._process = handle, os.getpid()
        _LOCKED.add(_lock_key(handle))
        with contextlib.suppress(OSError):  # a full disk; the process id is for messages only
            os.truncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)

    def _open_locked(self) -> int:
        """Return a descriptor of the lock file, which this process has locked."""
        with self._open_parent(LOCK_FILE) as (parent, base):
            handle = self._open(parent, base, os.O_RDWR | os.O_CREAT)
        try:
            self._acquire_lock(handle)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def unlock(self) -> None:
        """Admit other writers."""
        handle, self._lock = self._lock, None
        if handle is None:
            return
        # A forked child process has a descriptor of the same lock. It closes the descriptor, and
        # only the parent releases the lock.
        if self._process == os.getpid():
            _LOCKED.discard(_lock_key(handle))
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _acquire_lock(self, handle: int) -> None:
        """Lock an open file; wait for up to ``LOCK_TIMEOUT_S``."""
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                # Not by the process id: in containers that share a volume, ids may be equal.
                is_this_process = _lock_key(handle) in _LOCKED
                if is_this_process or time.monotonic() > deadline:
                    process = f"{owner} (this one)" if is_this_process else owner
                    raise StateLockedError(
                        f"state directory {self.location} is written to by another sink, in "
                        f"process {process}: stop that query and close() its sink, or give "
                        "this one a directory of its own"
                    ) from error
            time.sleep(0.05)

    def _is_lock_file(self, handle: int) -> bool:
        """Return whether an open file is still the lock file of the directory."""
        with contextlib.suppress(OSError):
            opened, current = os.fstat(handle), os.lstat(self._path / LOCK_FILE)
            return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)
        return False

    @contextlib.contextmanager
    def _folder(self, folder: str) -> Iterator[int]:
        """Open a folder; "" is the directory itself.

        Raises:
            StateDamagedError: The path is a file or a symbolic link.
        """
        path = self._path / folder
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if folder else 0)
        try:
            handle = os.open(path, flags)
        except OSError as error:
            if folder and error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise StateDamagedError(
                    f"{path} is a file or a symbolic link, not a folder: put the folder back, or "
                    "restore the state directory from a copy"
                ) from error
            raise
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _open_parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a file, its parent; yield the handle and the base name of the file.

        An `OSError` of the block without a path is raised again with the full path of the file.
        """
        folder, _, base = name.rpartition("/")
        if "/" in folder or base in ("", ".", "..") or folder in (".", ".."):
            raise StateDamagedError(
                f"{name!r} is not a file name of state directory {self.location}: a name is "
                "'file' or 'folder/file'"
            )
        try:
            with self._folder(folder) as handle:
                yield handle, base
        except OSError as error:
            has_path = isinstance(error.filename, str) and "/" in error.filename
            if error.errno is None or has_path:
                raise
            raise OSError(error.errno, error.strerror, str(self._path / name)) from None

    @contextlib.contextmanager
    def _open_file(self, parent: int, base: str, flags: int) -> Iterator[int]:
        """Open a regular file; close it at the end of the block."""
        handle = self._open(parent, base, flags)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _create_file(self, parent: int, base: str) -> Iterator[int]:
        """Create a file, after removing a file of the same name; close it at the end."""
        try:
            handle = self._create(base, os.O_WRONLY, parent)
        except FileExistsError:
            os.unlink(base, dir_fd=parent)
            handle = self._create(base, os.O_WRONLY, parent)
        try:
            yield handle
        finally:
            os.close(handle)

    def _create(self, base: str, flags: int, parent: int) -> int:
        """Create a file; raise `FileExistsError` if the name is already used."""
        mode = 0o666 if self.mode is None else self.mode & 0o666
        flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(base, flags, mode, dir_fd=parent)
        if self.mode is not None:
            os.fchmod(handle, mode)  # os.open applies the umask
        return handle

    def _open(self, parent: int, base: str, flags: int) -> int:
        """Open a regular file. `O_NONBLOCK` keeps the open of a FIFO from blocking."""
        if flags & os.O_CREAT and not _exists(base, parent):
            with contextlib.suppress(FileExistsError):
                return self._create(base, flags, parent)
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(base, flags & ~os.O_CREAT, dir_fd=parent)
        except OSError as error:
            if error.errno in NOT_A_FILE_ERRORS:
                status = os.stat(base, dir_fd=parent, follow_symlinks=False)
                self._check_regular(base, status.st_mode)
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
        # A link with the name of a folder is refused later; the directory itself may be a link.
        exists = os.path.lexists(path) if folder else path.is_dir()
        if not exists:
            make_folder(path, self.mode)


def folder_mode(files: Files, folder: str) -> int | None:
    """Return the permission bits of a folder; None if it is missing or not on a local disk."""
    if not isinstance(files, LocalFiles):
        return None
    try:
        return stat.S_IMODE(os.stat(os.path.join(files.location, folder)).st_mode)
    except OSError:
        return None


def check_mode(mode: int) -> int:
    """Return the permission bits of a state directory, after checking them.

    Raises:
        StateError: They are not permission bits, or exclude the user.
    """
    if isinstance(mode, int) and 0 <= mode <= 0o7777 and mode & 0o700 == 0o700:
        return mode
    mode_text = f"0o{mode:o}" if isinstance(mode, int) and mode >= 0 else repr(mode)
    raise StateError(
        f"state_mode={mode_text}: give permission bits that let the user read, write and search, "
        "as 0o700 or 0o770"
    )


def make_folder(path: Path, mode: int | None = None) -> None:
    """Make a directory and its parents durably, so that a crash does not remove them.

    Args:
        path: The directory; an existing directory is not changed.
        mode: The permission bits of the directory, regardless of the umask. New parents have the
            default permission bits of the umask.
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
            path.chmod(mode)  # mkdir applies the umask
    handle = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exists(base: str, parent: int) -> bool:
    try:
        os.stat(base, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def is_locked_here(folder: Path) -> bool:
    """Return whether a sink of this process has the lock of a directory."""
    try:
        status = os.stat(folder / LOCK_FILE, follow_symlinks=False)
    except OSError:
        return False
    return (os.getpid(), status.st_dev, status.st_ino) in _LOCKED


def _lock_key(handle: int) -> tuple[int, int, int]:
    """Return the process id, and the device and the inode of an open lock file."""
    status = os.fstat(handle)
    return os.getpid(), status.st_dev, status.st_ino
