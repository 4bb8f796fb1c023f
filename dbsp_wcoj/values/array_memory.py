"""Array memory: the memory in which an interner allocates its arrays.

By default it is memory of the process. If the values of a dictionary need too much of it, its
interner moves them to *external* memory, for example to writable maps of files (`Interner.move`).
The kernels use both in the same way.

An array with external memory does not own its memory, and an array with memory of the process does.
So `is_external` tells them apart, and `ArrayMemory` need not record what it has allocated.
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

#: Returns so many int64 words, at least 1, all of them 0. The array does not own its memory, and
#: keeps it. None if there is no memory for them; then memory of the process is used.
Allocate = Callable[[int], Int64Array | None]

_WORD_BYTES: Final = 8


class ArrayMemory(NamedTuple):
    """Allocates the arrays of an interner.

    Attributes:
        strings: Allocates the bytes of the strings, where they end, and their codes; None for
            memory of the process.
        slots: Allocates the hash table; None for memory of the process.

    >>> memory = ArrayMemory(strings=lambda words: np.zeros(words, np.int64)[:])
    >>> is_external(memory.new_arena(10)), is_external(memory.new_slots(64))
    (True, False)
    """

    strings: Allocate | None = None
    slots: Allocate | None = None

    def new_words(self, count: int) -> Int64Array:
        """Return an array for ``count`` ends or codes of strings, with any values."""
        words = None if self.strings is None else self.strings(max(count, 1))
        return np.empty(count, np.int64) if words is None else words[:count]

    def new_arena(self, length: int) -> Bytes:
        """Return an array for ``length`` bytes of strings, with any values."""
        words = None if self.strings is None else self.strings(max(-(-length // _WORD_BYTES), 1))
        return np.empty(length, np.uint8) if words is None else words.view(np.uint8)[:length]

    def new_slots(self, count: int) -> Int64Array:
        """Return a hash table of ``count`` slots, with any values if it is memory of the process.

        The slots of external memory are 0.
        """
        slots = None if self.slots is None else self.slots(count)
        return np.empty(count, np.int64) if slots is None else slots

    def trim(self, words: Int64Array, count: int) -> Int64Array:
        """Return the first words of an array of `new_words`; the others are freed if possible."""
        return words[:count] if is_external(words) else words[:count].copy()

    def after(self, earlier: ArrayMemory) -> ArrayMemory:
        """Return this memory, and that of ``earlier`` for arrays for which this has none."""
        return ArrayMemory(self.strings or earlier.strings, self.slots or earlier.slots)


#: Allocates memory of the process.
PROCESS_MEMORY: Final = ArrayMemory()


def is_external(array: npt.NDArray[Any]) -> bool:
    """Return whether an array of an interner has external memory."""
    return not array.flags.owndata


def move_array(array: Array, used: int, allocate: Callable[[int], Array]) -> Array:
    """Return a copy in external memory of an array of which the first elements are in use.

    If it has external memory already, or there is none for it, return the array itself.
    """
    if is_external(array):
        return array
    copy = allocate(len(array))
    if not is_external(copy):
        return array
    copy[:used] = array[:used]
    return copy


def heap_bytes(*arrays: npt.NDArray[Any]) -> int:
    """Return the bytes of the arrays of an interner that are memory of the process."""
    return sum(array.nbytes for array in arrays if not is_external(array))
