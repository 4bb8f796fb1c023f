"""Mapped file: the bytes of a file of a state directory as read-only shared memory.

The system reads a page of the file when a kernel first touches it, and drops pages when memory is
short. So mapped runs need no memory of the process. Files of a state directory never change, and a
map keeps its file readable after the file is removed.

Access beyond the end of a file would end the process with a SIGBUS. So the size is checked when the
file is mapped, and `MappedFile.check` finds a file that was cut short since then.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Any

import numpy as np

from streaming.errors import StateDamagedError

__all__ = ["MappedFile"]


class _WritableView:
    """The memory of a map for numpy, which marks it as writable.

    Kernels are compiled for writable arrays. They never write to a run: the system would end the
    process.
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

    Raises:
        StateDamagedError: The file has another size.
        OSError: The file cannot be mapped.
    """

    def __init__(self, handle: int, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self._check_size(os.fstat(handle).st_size)
        self._map = mmap.mmap(handle, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        # Searches touch few pages far from each other, so pages must not be read ahead.
        self._advise(mmap.MADV_RANDOM)
        self.memory: memoryview = np.asarray(_WritableView(self._map)).data

    def check(self) -> None:
        """Check that the file still has its size; one system call.

        Raises:
            StateDamagedError: It was cut short or extended.
        """
        self._check_size(self._map.size())

    def release_pages(self) -> None:
        """Remove the pages from the memory of this process; the next access reads them again."""
        self._advise(mmap.MADV_DONTNEED)

    def _advise(self, advice: int) -> None:
        with contextlib.suppress(OSError):  # only speed and memory depend on it
            self._map.madvise(advice)

    def _check_size(self, size: int) -> None:
        if size != self.size:
            raise StateDamagedError(
                f"{self.path} has {size} bytes, it was written with {self.size}: a file of a state "
                "directory must not be changed; restore the state directory from a copy, or delete "
                "it together with the checkpoint"
            )
