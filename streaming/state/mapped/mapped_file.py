"""Mapped file: the bytes of a file of a state directory as read-only memory.

The system reads a page of the file when a kernel first touches it, and drops pages when memory is
short. So mapped runs take no memory that the machine needs for something else. Files of a state
directory never change. A removed file stays readable through its map.

Access beyond the end of a file would end the process with a SIGBUS. So the size is checked when the
file is mapped, and `MappedFile.check` detects that a file was truncated later. If this happens
during a step, or the disk fails, `streaming.state.mapped.unreadable_pages` raises an error. A write
to a page for which the disk has no space would also end the process. So the space of a scratch file
is reserved before it is mapped.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from streaming.errors import StateDamagedError
from streaming.state.mapped.page_faults import expect_single_pages
from streaming.state.mapped.unreadable_pages import guard_map

__all__ = ["MappedFile", "ScratchFile"]


class _WritableView:
    """The memory of a map, presented to numpy as writable.

    Kernels are compiled for writable arrays. They never write to a run; if one did, the system
    would end the process.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        array = np.frombuffer(memory, np.uint8)
        self._memory = memory  # keeps the map open as long as an array refers to it
        self.__array_interface__: dict[str, Any] = {
            **array.__array_interface__,
            "data": (array.__array_interface__["data"][0], False),
        }


class MappedFile:
    """A map of a whole file.

    Args:
        handle: The file, open for reading; the caller closes it.
        path: The path of the file, for messages.
        size: The size that the file must have, at least 1.

    Attributes:
        memory: The bytes; an array that refers to them keeps the map open.
        address: The address of the first byte.
        identity: The inode, and the time of the last change in nanoseconds.

    Raises:
        StateDamagedError: The file has another size.
        OSError: The file cannot be mapped.
    """

    def __init__(self, handle: int, path: str, size: int) -> None:
        self.path = path
        self.size = size
        status = os.fstat(handle)
        self._check_size(status.st_size)
        self.identity = (status.st_ino, status.st_ctime_ns)
        self._map = mmap.mmap(handle, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        words = np.asarray(_WritableView(self._map))
        self.memory: memoryview = words.data
        self.address = int(words.__array_interface__["data"][0])
        guard_map(self)

    def check(self) -> None:
        """Check that the file still has its size; one system call.

        Raises:
            StateDamagedError: It was cut short or extended.
        """
        self._check_size(self._map.size())

    def expect_random_access(self) -> None:
        """Let a read load and make resident only its own page: searches touch distant pages."""
        _advise(self._map, mmap.MADV_RANDOM)
        expect_single_pages(self.address, self.size)

    def release_pages(self, start: int = 0, end: int | None = None) -> None:
        """Remove the pages of a range of bytes from the memory of this process.

        The next access reads them again. The range is rounded to whole pages.
        """
        start -= start % mmap.PAGESIZE
        end = self.size if end is None else end
        if start < end:
            _advise(self._map, mmap.MADV_DONTNEED, start, end - start)

    def _check_size(self, size: int) -> None:
        if size != self.size:
            raise StateDamagedError(
                f"{self.path} has {size} bytes, it was written with {self.size}: a file of a state "
                "directory must not be changed; restore the state directory from a copy, or delete "
                "it together with the checkpoint"
            )


class ScratchFile:
    """Writable memory in a file without a name.

    The file is freed when neither this object nor the array is referenced any more.

    Args:
        handle: A new file, open for reading and writing; the caller closes it.
        words: The number of int64 words, at least 1.

    Raises:
        OSError: The disk has too little space.
    """

    def __init__(self, handle: int, words: int) -> None:
        os.posix_fallocate(handle, 0, 8 * words)
        self._map = mmap.mmap(handle, 8 * words, flags=mmap.MAP_SHARED)

    def expect_random_access(self) -> None:
        """Read no pages ahead: the words are searched, not read in their order."""
        _advise(self._map, mmap.MADV_RANDOM)

    def take_array(self) -> npt.NDArray[np.int64]:
        """Return an array of the words, initially 0; this object keeps no reference to it."""
        return np.frombuffer(self._map, np.int64)

    def release_pages(self) -> None:
        """Remove the pages from the memory of this process; their contents stay in the file."""
        _advise(self._map, mmap.MADV_DONTNEED)


def _advise(memory: mmap.mmap, advice: int, start: int = 0, size: int | None = None) -> None:
    with contextlib.suppress(OSError):  # only speed and memory depend on it
        memory.madvise(advice, start, len(memory) if size is None else size)
