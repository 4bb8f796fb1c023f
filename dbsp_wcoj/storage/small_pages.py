"""Memory in small pages, for arrays that are filled and freed a slice at a time.

The system supplies the memory of a new array when it is first written, a page at a time, and fills
the page with zeros. numpy asks for pages of 2 MB for arrays of at least 4 MB. Large pages make
searches faster. But a large merge is done in slices, of some thousand rows each, and a slice writes
to about four sections of the result (`dbsp_wcoj.kernels.storage.run_layout`). Each is in another
page, so the slice may wait for 8 MB of zeros. That takes a millisecond, and 20 in a virtual machine
that gets the pages from its host first. So the result of a merge begins in pages of 4 KB, and
`allow_large_pages` lets the system replace them once the result is complete. Linux does so in a
thread of the kernel (khugepaged).

To free 20 MB of small pages takes about a millisecond, so that is done in slices as well
(`SmallPages.release`).

Cost: the first write to a megabyte takes about 0.3 ms longer than with large pages.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Final
from weakref import ref

import numpy as np
import numpy.typing as npt

__all__ = ["MIN_MAPPED_BYTES", "SmallPages"]

Words = npt.NDArray[np.int64]

# Smaller arrays never get large pages, and the allocator of numpy reuses their memory.
MIN_MAPPED_BYTES: Final = 1 << 22


class SmallPages:
    """The memory of one int64 array, in small pages until `allow_large_pages`.

    Args:
        words: The length of the array.

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

    __slots__ = ("_array", "_map", "_released", "_words")

    def __init__(self, words: int) -> None:
        self._words = words
        self._array: ref[Words] | None = None  # None before `take_array`
        self._released = 0  # the number of bytes at the start that `release` has freed
        self._map: mmap.mmap | None = None
        if 8 * words < MIN_MAPPED_BYTES:
            return
        try:
            self._map = mmap.mmap(-1, 8 * words, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no memory for {8 * words:,} bytes") from error
        _advise(self._map, mmap.MADV_NOHUGEPAGE)

    def take_array(self) -> Words:
        """Return the array, whose words are undefined. Call once.

        The memory lives as long as the array; this object has no reference to the array.
        """
        if self._map is None:
            return np.empty(self._words, np.int64)
        array: Words = np.frombuffer(self._map, np.int64)
        self._array = ref(array)
        return array

    def allow_large_pages(self) -> None:
        """Let the system move the array to large pages, which are faster to search."""
        if self._map is not None:
            _advise(self._map, mmap.MADV_HUGEPAGE)

    def release(self, count: int) -> bool:
        """Free up to ``count`` more bytes, if nothing refers to the array any more.

        Returns:
            True if all bytes are freed. Without calls of this method, they are freed at once,
            together with this object.
        """
        memory = self._map
        if memory is None:
            return True
        if self._array is not None and self._array() is not None:
            return False
        count = max(count // mmap.PAGESIZE, 1) * mmap.PAGESIZE
        if self._released + count < len(memory):
            memory.madvise(mmap.MADV_DONTNEED, self._released, count)
            self._released += count
            return False
        memory.close()
        self._map = None
        return True


def _advise(memory: mmap.mmap, advice: int) -> None:
    with contextlib.suppress(OSError):  # a system without large pages does not know the advice
        memory.madvise(advice)
