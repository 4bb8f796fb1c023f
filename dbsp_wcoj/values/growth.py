"""Growth: larger arrays for an interner, filled a slice at a time.

An interner (`dbsp_wcoj.values.interner`) has three arrays that double when they are full. To copy
them at once takes time in proportion to all strings, a second for 10 million. So a larger copy
begins when an array is seven eighths full. Then each insertion copies `SPEED` strings for each
string that it adds, and the copy takes the place of the array when it has all strings::

    strings     0 ....... copied ............ size ...... capacity
                          grows by SPEED      grows by 1

From then on, ``capacity / 8`` strings are added before the array is full. Meanwhile
``SPEED * capacity / 8`` can be copied, twice as many as there are; a quarter of this is needed to
clear the hash table. So only an insertion of many strings at once finds a full array, and it then
copies at most `SPEED` strings for each of its own.

Strings are only added and removed at the end, so a copy stays valid: if strings are removed, it is
cut as well.

Cost: O(1) per added string. Memory: while an array grows, the old and the new one, as if it were
copied at once.

Source: the incremental rehashing of Redis (`dict.c`). There, look-ups search both tables; here only
the old one, because the new one is complete when it becomes the table.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.values import intern as intern_kernels
from dbsp_wcoj.values.array_memory import PROCESS_MEMORY, ArrayMemory, is_external, move_array

__all__ = ["ArrayCopy", "Growth", "SlotsCopy", "Table"]

# The strings, or bytes, that are copied for each one that is added.
SPEED: Final = 16
# The least number of strings, or bytes, that are copied at a time.
MIN_COPIED_STRINGS: Final = 1024
MIN_COPIED_BYTES: Final = 1 << 16
# Slots that are set to 0 instead of copying a string.
CLEARED_SLOTS: Final = 8


class Table(NamedTuple):
    """The arrays of an interner; `dbsp_wcoj.kernels.values.intern` describes them."""

    slots: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]
    arena: npt.NDArray[np.uint8]


class ArrayCopy:
    """A larger copy of an array of which the first ``copied`` elements are copied."""

    __slots__ = ("array", "copied")

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.copied = 0

    def advance(self, source: npt.NDArray[Any], end: int, count: int) -> bool:
        """Copy up to ``count`` elements; return whether all before ``end`` are copied."""
        stop = min(self.copied + count, end)
        self.array[self.copied : stop] = source[self.copied : stop]
        self.copied = stop
        return stop == end


class SlotsCopy:
    """A larger hash table: ``cleared`` slots are set to 0, and ``copied`` strings are inserted.

    The slots of the strings are anywhere in the table. So all slots are set to 0 first, in their
    order, a slice at a time: the system supplies the memory of a new array when it is first
    written, and the first slice of strings would need all of it at once.

    Args:
        length: The number of slots.
        memory: The memory of the slots. External memory is already 0.
    """

    __slots__ = ("cleared", "copied", "slots")

    def __init__(self, length: int, memory: ArrayMemory = PROCESS_MEMORY) -> None:
        self.slots: npt.NDArray[np.int64] = memory.new_slots(length)
        self.cleared = length if is_external(self.slots) else 0
        self.copied = 0

    def clear(self, count: int) -> int:
        """Do the work of ``count`` inserted strings on clearing; return the rest of ``count``."""
        first = self.cleared
        self.cleared = min(first + CLEARED_SLOTS * count, len(self.slots))
        self.slots[first : self.cleared] = 0
        return count - -(-(self.cleared - first) // CLEARED_SLOTS)

    def advance(
        self,
        bounds: npt.NDArray[np.int64],
        arena: npt.NDArray[np.uint8],
        size: int,
        count: int,
    ) -> bool:
        """Do the work of ``count`` inserted strings; return whether all strings are inserted."""
        count = self.clear(count)
        if self.cleared < len(self.slots):
            return False
        stop = min(self.copied + count, size)
        intern_kernels.rebuild_slots(self.slots, bounds, arena, self.copied, stop)
        self.copied = stop
        return stop == size

    def truncate(self, table: Table, size: int) -> None:
        """Remove the strings from position ``size`` on."""
        if self.copied > size:
            _, bounds, arena = table
            intern_kernels.remove_latest(self.slots, bounds, arena, self.copied, size)
            self.copied = size


class Growth:
    """The larger arrays of an interner that are not complete yet.

    Args:
        memory: The memory of the larger arrays.

    Attributes:
        slots: The copy of the slots; None if they do not grow. Set it to None to drop it.
        bounds: The copy of the bounds.
        arena: The copy of the arena.
    """

    __slots__ = ("_memory", "arena", "bounds", "slots")

    def __init__(self, memory: ArrayMemory = PROCESS_MEMORY) -> None:
        self._memory = memory
        self.slots: SlotsCopy | None = None
        self.bounds: ArrayCopy | None = None
        self.arena: ArrayCopy | None = None

    def advance(self, table: Table, size: int, size_before: int) -> Table:
        """Copy a slice of each array that is nearly full.

        Args:
            table: The arrays.
            size: The number of strings.
            size_before: The number of strings at the last call, or after the last `truncate`.

        Returns:
            The arrays, some of them replaced by larger ones.

        Complexity:
            O(added strings and bytes).
        """
        slots, bounds, arena = table
        strings = SPEED * (size - size_before) + MIN_COPIED_STRINGS
        if self.bounds is None and _is_nearly_full(size, len(bounds) - 1):
            self.bounds = ArrayCopy(self._memory.new_words(2 * len(bounds)))
        if self.bounds is not None and self.bounds.advance(bounds, size + 1, strings):
            bounds, self.bounds = self.bounds.array, None
        end = int(bounds[size])
        if self.arena is None and _is_nearly_full(end, len(arena)):
            self.arena = ArrayCopy(self._memory.new_arena(2 * len(arena)))
        if self.arena is not None:
            added = end - int(bounds[size_before])
            if self.arena.advance(arena, end, SPEED * added + MIN_COPIED_BYTES):
                arena, self.arena = self.arena.array, None
        # A hash table is full when half of its slots are in use.
        if self.slots is None and _is_nearly_full(2 * size, len(slots)):
            self.slots = SlotsCopy(2 * len(slots), self._memory)
        # An interrupt drops the copy, because it may then have more strings than ``copied``.
        copy, self.slots = self.slots, None
        if copy is not None:
            if copy.advance(bounds, arena, size, strings):
                slots = copy.slots
            else:
                self.slots = copy
        return Table(slots, bounds, arena)

    @property
    def string_arrays(self) -> list[npt.NDArray[Any]]:
        """The copies of the bounds and the arena."""
        return [copy.array for copy in (self.bounds, self.arena) if copy is not None]

    @property
    def slot_arrays(self) -> list[npt.NDArray[np.int64]]:
        """The copy of the slots."""
        return [] if self.slots is None else [self.slots.slots]

    def move(self, memory: ArrayMemory) -> None:
        """Move the copies to other memory, which later copies use as well; O(copied elements)."""
        self._memory = memory
        if self.bounds is not None and memory.strings is not None:
            bounds = self.bounds
            bounds.array = move_array(bounds.array, bounds.copied, memory.new_words)
        if self.arena is not None and memory.strings is not None:
            arena = self.arena
            arena.array = move_array(arena.array, arena.copied, memory.new_arena)
        if self.slots is not None and memory.slots is not None:
            slots = self.slots
            slots.slots = move_array(slots.slots, slots.cleared, memory.new_slots)

    def truncate(self, table: Table, size: int, end: int) -> None:
        """Remove the strings from position ``size`` on, of which the first begins at ``end``."""
        if self.bounds is not None:
            self.bounds.copied = min(self.bounds.copied, size + 1)
        if self.arena is not None:
            self.arena.copied = min(self.arena.copied, end)
        copy, self.slots = self.slots, None  # as in `advance`
        if copy is not None:
            copy.truncate(table, size)
            self.slots = copy


def _is_nearly_full(used: int, capacity: int) -> bool:
    return 8 * used > 7 * capacity
