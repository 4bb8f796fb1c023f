"""Memory in small pages, for arrays that are filled and freed a slice at a time.

The system supplies the memory of a new array when it is first written, a page at a time, and fills
the page with zeros. numpy asks for pages of 2 MB for arrays of at least 4 MB. Large pages make
searches faster. But a large merge is done in slices, of some thousand rows each, and a slice writes
to about four sections of the result (`dbsp_wcoj.kernels.storage.run_layout`). Each is in another
page, so the slice may wait for 8 MB of zeros. That takes 1 ms, and 20 ms in a virtual machine whose
host must supply the pages first. So the result of a merge begins in pages of 4 KB, and
`allow_large_pages` lets the system replace them once the result is complete. Linux does so in a
thread of the kernel (khugepaged).

To free 20 MB of small pages takes about a millisecond, so that is done in slices as well
(`SmallPages.release`).

A step that merges runs frees about as much memory as it writes. So `FreeMemory` keeps some of the
released memory for later arrays. An array in such memory needs no zeros, and nothing from the host.

Cost: the first write to a megabyte takes about 0.3 ms longer than with large pages.
"""

from __future__ import annotations

import contextlib
import mmap
from threading import Lock
from typing import Final, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

__all__ = ["FREE_MEMORY", "MIN_MAPPED_BYTES", "FreeMemory", "SmallPages", "map_memory"]

Words = npt.NDArray[np.int64]

# Smaller arrays never get large pages, and the allocator of numpy reuses their memory.
MIN_MAPPED_BYTES: Final = 1 << 22
# The process keeps at most this many bytes of free memory for later arrays.
MAX_FREE_BYTES: Final = 1 << 26
# A map of more than this many times the bytes of an array is not reused for it.
MAX_SIZE_RATIO: Final = 4
# The size of a large page, in bytes.
LARGE_PAGE_BYTES: Final = 1 << 21


class Block(NamedTuple):
    """A memory map and how much of it has pages.

    Attributes:
        memory: The map.
        written: The number of bytes, from the start, that may have pages of the system.
    """

    memory: mmap.mmap
    written: int


class FreeMemory:
    """Memory that no array uses any more, for later arrays; safe in any thread.

    Args:
        max_bytes: The maximum number of bytes with pages that are kept.

    Attributes:
        reused_bytes: The total number of bytes with pages that arrays got.

    >>> free = FreeMemory(1 << 20)
    >>> free.put(Block(mmap.mmap(-1, 4096), 4096))
    True
    >>> block = free.take(6000)  # the map is extended
    >>> len(block.memory), block.written, free.reused_bytes
    (6000, 4096, 4096)
    >>> free.take(6000) is None
    True
    """

    __slots__ = ("_blocks", "_lock", "_max_bytes", "reused_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._blocks: list[Block] = []
        self._lock = Lock()
        self._max_bytes = max_bytes
        self.reused_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The number of bytes with pages that are kept now."""
        return sum([block.written for block in self._blocks])

    def limit(self, max_bytes: int) -> None:
        """Keep at most this many bytes with pages from now on, if it kept more until now."""
        with self._lock:
            self._max_bytes = min(self._max_bytes, max_bytes)
            while self.free_bytes > self._max_bytes:
                self._blocks.pop()

    def put(self, block: Block) -> bool:
        """Keep memory that no array uses; return False if that would be too many bytes."""
        with self._lock:
            has_room = self.free_bytes + block.written <= self._max_bytes
            if has_room:
                self._blocks.append(block)
            return has_room

    def take(self, byte_count: int) -> Block | None:
        """Return memory of at least ``byte_count`` bytes; None if none is suitable.

        The smallest map with enough bytes is best. If all are smaller, the largest is extended: the
        system moves its pages to other addresses without a copy. A map that cannot be extended is
        closed.
        """
        with self._lock:
            suitable = [b for b in self._blocks if len(b.memory) <= MAX_SIZE_RATIO * byte_count]
            if not suitable:
                return None
            large_enough = [b for b in suitable if len(b.memory) >= byte_count]
            if large_enough:
                block = min(large_enough, key=lambda b: len(b.memory))
            else:
                block = max(suitable, key=lambda b: len(b.memory))
            self._blocks.remove(block)
            self.reused_bytes += block.written
        if len(block.memory) < byte_count:
            try:
                block.memory.resize(byte_count)
            except (OSError, SystemError, ValueError):  # not every system can extend a map
                return None
        return block


#: The free memory of the process.
FREE_MEMORY: Final = FreeMemory(MAX_FREE_BYTES)


class SmallPages:
    """The memory of one int64 array, in small pages until `allow_large_pages`.

    Args:
        words: The length of the array.
        free_memory: Gives used memory, and keeps it when it is released.

    Raises:
        MemoryError: There is no memory for the array.

    >>> memory = SmallPages(1 << 20)
    >>> array = memory.take_array()
    >>> array[:3] = (1, 2, 3)
    >>> memory.release(1 << 30)  # the array is in use
    False
    >>> del array
    >>> memory.release(1 << 30)
    True
    """

    __slots__ = ("_array", "_free_memory", "_map", "_released", "_words", "_written")

    def __init__(self, words: int, free_memory: FreeMemory = FREE_MEMORY) -> None:
        self._words = words
        self._free_memory = free_memory
        self._array: ref[Words] | None = None  # None before `take_array`
        self._released = 0  # the number of bytes at the start that `release` has freed
        self._map: mmap.mmap | None = None
        # The number of bytes, from the start, that may have pages.
        self._written = 8 * words
        if 8 * words < MIN_MAPPED_BYTES:
            return
        block = free_memory.take(8 * words)
        if block is not None:
            self._map = block.memory
            self._written = max(self._written, block.written)
        else:
            self._map = map_memory(8 * words)
        # Used memory as well: its array before may have allowed large pages.
        _advise(self._map, mmap.MADV_NOHUGEPAGE)

    @property
    def is_mapped(self) -> bool:
        """True if the array has a memory map, which `release` frees; False for small arrays."""
        return self._map is not None

    @property
    def nbytes(self) -> int:
        """The bytes that may have pages and are not released; 0 for small arrays."""
        return 0 if self._map is None else max(self._written - self._released, 0)

    def take_array(self) -> Words:
        """Return the array, whose words are undefined; may be called once.

        The memory lives as long as the array; this object has no reference to the array.
        """
        assert self._array is None
        if self._map is None:
            return np.empty(self._words, np.int64)
        array: Words = np.frombuffer(self._map, np.int64, self._words)
        self._array = ref(array)
        return array

    def allow_large_pages(self) -> None:
        """Let the system move the array to large pages, which are faster to search."""
        if self._map is not None:
            _advise(self._map, mmap.MADV_HUGEPAGE)

    def trim(self, words: int) -> None:
        """Free the memory after the first words of the array; nobody may use it any more.

        The rest of a large page is kept: `allow_large_pages` could not use a part of one.
        """
        if self._map is None:
            return
        end = -(-8 * words // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
        if end < self._written:
            self._map.madvise(mmap.MADV_DONTNEED, end, self._written - end)
            self._written = end

    def release(self, byte_count: int) -> bool:
        """Free up to ``byte_count`` more bytes, if nothing refers to the array any more.

        Memory that `FreeMemory` keeps is released at once.

        Returns:
            True if all bytes are freed. Without calls of this method, they are freed at once,
            together with this object.
        """
        memory = self._map
        if memory is None:
            return True
        if self._array is not None and self._array() is not None:
            return False
        self._array = None
        if not self._released and self._free_memory.put(Block(memory, self._written)):
            self._map = None
            return True
        page_bytes = max(byte_count // mmap.PAGESIZE, 1) * mmap.PAGESIZE
        if self._released + page_bytes < len(memory):
            memory.madvise(mmap.MADV_DONTNEED, self._released, page_bytes)
            self._released += page_bytes
            return False
        memory.close()
        self._map = None
        return True


def map_memory(size: int) -> mmap.mmap:
    """Return so many bytes of zeros, whose pages the system supplies when they are written; O(1).

    Raises:
        MemoryError: The system has no memory for them.
    """
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size:,} bytes") from error


def _advise(memory: mmap.mmap, advice: int) -> None:
    with contextlib.suppress(OSError):  # a system without large pages does not know the advice
        memory.madvise(advice)
