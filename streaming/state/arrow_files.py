"""Arrow files: a state directory on any file system of pyarrow, such as HDFS.

A closed file is durable there, and syncing does nothing. A rename is atomic if the file system's
move is atomic; on an object store a file appears completely or not at all. Every exception
of the file system is raised as an ``OSError``. Such a directory has no lock: two writers are told
apart by their epochs (`streaming.state.ownership`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator

import pyarrow.fs as arrow_fs

from streaming.state.files import Bytes, FileStatus, append_by_rewriting

__all__ = ["ArrowFiles"]


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

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Create a file of these bytes, or replace it; durable when this returns."""
        with _os_errors(self._path(name)):
            self._system.create_dir(self._path(name.rpartition("/")[0]), recursive=True)
            with self._system.open_output_stream(self._path(name)) as out:
                for chunk in chunks:
                    out.write(chunk)

    def sync(self, name: str) -> None:
        """Do nothing: a closed file is durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""
        with _os_errors(self._path(old)):
            self._system.move(self._path(old), self._path(new))

    def rename_new(self, old: str, new: str) -> None:
        """Rename a file to an unused name; the check and the rename are not atomic.

        Raises:
            FileExistsError: A file or a folder already has the new name.
        """
        with _os_errors(self._path(new)):
            (info,) = self._system.get_file_info([self._path(new)])
        if info.type != arrow_fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path(new))
        self.rename(old, new)

    def sync_folder(self, folder: str) -> None:
        """Do nothing: names are durable."""

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
        """Return the names of the files in a folder, sorted, each with its folder.

        A folder with the name of a file is listed too, so that readers detect it.
        """
        file_type = arrow_fs.FileType.File
        base_names = [
            info.base_name for info in self._infos(folder) if folder or info.type == file_type
        ]
        return sorted(f"{folder}/{name}" if folder else name for name in base_names)

    def list_files(self, folder: str) -> list[FileStatus]:
        """Return the sizes and times of the files in a folder, sorted by name.

        A file whose time is unknown has the current time, so that it does not seem old.
        """
        statuses = [
            FileStatus(
                f"{folder}/{info.base_name}" if folder else info.base_name,
                int(info.size),
                time.time() if info.mtime is None else info.mtime.timestamp(),
            )
            for info in self._infos(folder)
            if info.type == arrow_fs.FileType.File
        ]
        return sorted(statuses, key=lambda status: status.name)

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        if self.size(name) is not None:
            with _os_errors(self._path(name)):
                self._system.delete_file(self._path(name))

    def append(self, name: str, text: str) -> None:
        """Append text, see `append_by_rewriting`; few file systems can append."""
        append_by_rewriting(self, name, text)

    def lock(self) -> None:
        """Do nothing: such a file system has no locks."""

    def unlock(self) -> None:
        """Do nothing: such a file system has no locks."""

    def _infos(self, folder: str) -> list[arrow_fs.FileInfo]:
        selector = arrow_fs.FileSelector(self._path(folder), allow_not_found=True)
        with _os_errors(self._path(folder)):
            infos: list[arrow_fs.FileInfo] = self._system.get_file_info(selector)
        return infos

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise any exception of the block as an `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path}: {type(error).__name__}: {error}") from error
