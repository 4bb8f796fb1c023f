"""Array memory: the memory in which an interner allocates its arrays.

By default it is the heap of the process. If a dictionary takes too much of the heap, its interner
moves arrays to *external* memory, for example to writable maps of files (`Interner.move`). The
kernels use both kinds of memory in the same way.

numpy owns the memory of an array on the heap, but not external memory (``flags.owndata``). So
`is_external` tells the arrays apart, and `ArrayMemory` need not record what it has allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "PROCESS_MEMORY",
    "Allocate",
    "ArrayMemory",
    "heap_bytes",
    "is_external",
    "move_array",
]

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Array = TypeVar("Array", bound=npt.NDArray[Any])

#: Takes a number of int64 words, at least 1. Returns an array of so many zeros in external memory,
#: which is freed with the array; or None if there is no such memory, and the heap is used.
Allocate = Callable[[int], Int64Array | None]

_WORD_BYTES: Final = 8


class ArrayMemory(NamedTuple):
    """Allocates the arrays of an interner.

    Attributes:
        strings: Allocates the bytes of the strings, their end offsets, and their codes; None for
            the heap.
        slots: Allocates the hash table; None for the heap.

    >>> memory = ArrayMemory(strings=lambda words: np.zeros(words, np.int64)[:])
    >>> is_external(memory.new_arena(10)), is_external(memory.new_slots(64))
    (True, False)
    """

    strings: Allocate | None = None
    slots: Allocate | None = None

    def new_words(self, count: int) -> Int64Array:
        """Return an array for ``count`` end offsets or codes of strings, not initialized."""
        words = None if self.strings is None else self.strings(max(count, 1))
        return np.empty(count, np.int64) if words is None else words[:count]

    def new_arena(self, length: int) -> Bytes:
        """Return an array for ``length`` bytes of strings, not initialized."""
        words = None if self.strings is None else self.strings(max(-(-length // _WORD_BYTES), 1))
        return np.empty(length, np.uint8) if words is None else words.view(np.uint8)[:length]

    def new_slots(self, count: int) -> Int64Array:
        """Return a hash table of ``count`` slots; in external memory, all of them are 0.

        On the heap, they are not initialized.
        """
        slots = None if self.slots is None else self.slots(count)
        return np.empty(count, np.int64) if slots is None else slots

    def trim(self, words: Int64Array, count: int) -> Int64Array:
        """Return the first ``count`` words; on the heap, the memory of the others can be freed."""
        return words[:count] if is_external(words) else words[:count].copy()

    def or_else(self, other: ArrayMemory) -> ArrayMemory:
        """Return this memory, with the functions of ``other`` in place of those that are None."""
        return ArrayMemory(self.strings or other.strings, self.slots or other.slots)


#: Allocates all arrays on the heap.
PROCESS_MEMORY: Final = ArrayMemory()


def is_external(array: npt.NDArray[Any]) -> bool:
    """Return whether an array of an interner is in external memory."""
    return not array.flags.owndata


def move_array(array: Array, used: int, allocate: Callable[[int], Array]) -> Array:
    """Copy an array to external memory.

    Args:
        array: An array of an interner.
        used: The number of its first elements that are copied; the others are not in use.
        allocate: Returns an array of a length, a method of `ArrayMemory`.

    Returns:
        The copy; the array itself if it is external already or ``allocate`` returns an array on
        the heap.
    """
    if is_external(array):
        return array
    copy = allocate(len(array))
    if not is_external(copy):
        return array
    copy[:used] = array[:used]
    return copy


def heap_bytes(*arrays: npt.NDArray[Any]) -> int:
    """Return the bytes of the arrays of an interner that are on the heap."""
    return sum(array.nbytes for array in arrays if not is_external(array))
