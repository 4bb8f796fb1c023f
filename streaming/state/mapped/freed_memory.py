"""Freed memory: returns memory that nobody uses any more to the system, or to later arrays.

Allocators keep freed memory for later arrays, so the process may need much more memory than the
arrays in it. With a memory limit, three parts of the process keep less:

- glibc maps each array of at least `MAPPED_ARRAY_BYTES` on its own, and so returns it when it is
  freed. By default it raises this size with each array that is freed, up to 32 MB; smaller arrays
  are on its heap, which shrinks at its end only.
- `FREE_MEMORY`, the memory of merged runs, is limited to a share of the limit.
- After a commit, `free_unused_memory` returns the rest, if there may be much.

Cost: a new array in a map of its own takes a page fault for each page. To return unused memory
takes a millisecond or more.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from dbsp_wcoj.storage.small_pages import FREE_MEMORY

__all__ = ["FreedMemory", "free_unused_memory", "private_bytes"]

# glibc maps each array of at least this size on its own.
MAPPED_ARRAY_BYTES: Final = 1 << 20
# The number of this setting in calls of ``mallopt``.
M_MMAP_THRESHOLD: Final = -3
# The share of the limit for the memory of merged runs.
FREE_MEMORY_DIVISOR: Final = 32
# Freed memory is returned if the process has more than limit / UNUSED_BYTES_DIVISOR beyond the
# state in memory and what remained after an earlier return.
UNUSED_BYTES_DIVISOR: Final = 32
# The share of the limit that the process may keep in all.
KEPT_SHARE: Final = 1 / FREE_MEMORY_DIVISOR + 1 / UNUSED_BYTES_DIVISOR


class FreedMemory:
    """Limits the freed memory that the process keeps.

    The limits apply to the whole process, and stay until it ends.

    Args:
        limit: The memory limit of the state in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._max_unused_bytes = limit // UNUSED_BYTES_DIVISOR
        # The private memory that was not part of the state after freed memory was returned.
        self._other_bytes = private_bytes()
        FREE_MEMORY.limit(limit // FREE_MEMORY_DIVISOR)
        mallopt: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # it is a function of glibc
            mallopt(M_MMAP_THRESHOLD, MAPPED_ARRAY_BYTES)

    def after_commit(self, heap_bytes: int) -> bool:
        """Return freed memory to the system if there may be much; return whether this was done.

        Args:
            heap_bytes: The bytes of the state in memory.
        """
        other_bytes = private_bytes() - heap_bytes
        is_due = other_bytes > self._other_bytes + self._max_unused_bytes
        if is_due:
            free_unused_memory()
            self._other_bytes = private_bytes() - heap_bytes
        else:
            self._other_bytes = min(self._other_bytes, other_bytes)
        return is_due


def free_unused_memory() -> None:
    """Return to the system the freed memory that the allocators of C and Arrow have kept."""
    pa.default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # it is a function of glibc
        trim(0)


def private_bytes() -> int:
    """Return the bytes of all resident pages that are not pages of files; 0 if this is unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        _, resident, shared = file.read().split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0
