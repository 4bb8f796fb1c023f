"""Sweep: removes the strings of an interner that nothing refers to, a slice at a time.

A sweep has two phases, and the caller does a slice of them in each step::

    mark    the codes that the state refers to are marked (`Sweep.mark`)
    copy    the marked strings are copied to new arrays (`Sweep.copy`), which then take the place of
            those of the interner

The caller marks the codes of the state as it was when the sweep began. Meanwhile steps go on. A
string that is added or encoded again during the sweep is kept (`Sweep.keep`), and every other code
in the new state was also in the old one. So all codes that are in use at the end are kept: this is
marking from a snapshot at the beginning.

Readers still have the old arrays, which do not change. If few strings are removed, nothing is
copied, because that would save little memory.

Order: the strings are copied in the order of their codes, so that binary search in the codes of the
new arrays finds the position of a code. A string that is encoded again after the copy has passed
its place is appended at the end, in a second ascending sequence (`dbsp_wcoj.kernels.values.sweep`).

Cost: O(1) for each mark. The copy costs O(1) for each string, and for each 64 bytes of a string.
The end of a sweep takes O(strings that were encoded again, and remaining strings / 64). Memory: a
byte for each string while it runs, and the new arrays.

Source: garbage collection with a snapshot at the beginning (Yuasa, "Real-time garbage collection on
general-purpose machines", Journal of Systems and Software 11(3), 1990). Alternative considered:
counting references. Each row of each run would have to change a count, also when runs are merged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.values import intern as intern_kernels
from dbsp_wcoj.kernels.values import sweep as sweep_kernels
from dbsp_wcoj.values.array_memory import PROCESS_MEMORY, ArrayMemory
from dbsp_wcoj.values.code_map import CodeMap, read_only_codes
from dbsp_wcoj.values.growth import SlotsCopy, Table

__all__ = ["Sweep", "SweepResult"]

Int64Array = npt.NDArray[np.int64]

# Strings are copied if at least one in this many strings, or bytes, is removed.
_MIN_REMOVED_SHARE: Final = 4
# Marks are counted in slices of this many strings.
_STRINGS_PER_COUNT: Final = 1 << 14
# Counting this many marks is as much work as copying one string.
_COUNTS_PER_WORK: Final = 8
# The new arrays have room for this many times the remaining strings, and for some more. They seldom
# grow (`dbsp_wcoj.values.growth`), because the next sweep usually begins before they are full.
_CAPACITY: Final = 1.6
_FREE_STRINGS: Final = 1024
_FREE_BYTES: Final = 1 << 14


class SweepResult(NamedTuple):
    """The result of a sweep.

    Attributes:
        table: The arrays of the remaining strings; None if nothing was copied, because too few
            strings would be removed.
        code_map: The codes of these strings, or of the interner if nothing was copied.
        size: The number of strings in ``table``; 0 if it is None.
    """

    table: Table | None
    code_map: CodeMap
    size: int


class Sweep:
    """The sweep of an interner: `mark` its live codes, then `copy` until `result` is not None.

    Args:
        code_map: The codes of the strings.
        size: The number of strings; later ones are kept.
        memory: The memory of the new arrays.

    Attributes:
        kept_again: The number of strings that were kept because they were encoded again.
    """

    def __init__(self, code_map: CodeMap, size: int, memory: ArrayMemory = PROCESS_MEMORY) -> None:
        self.kept_again = 0
        self._memory = memory
        self._code_map = code_map
        self._marks = np.zeros(size, np.uint8)
        # Positions that were marked during the copy, and those of them that it had passed.
        self._marked_late: list[Int64Array] = []
        self._passed: list[Int64Array] = []
        self._target: _Target | None = None
        # The strings have three sequences of ascending codes: sorted, encoded again during the
        # last sweep, and added since. A cursor is the position in one that the copy has reached.
        listed = len(code_map.codes)
        self._cursors = np.array([0, code_map.sorted_count, listed])
        self._is_copied = self._is_needless = False
        # The number of marks that were counted, and the marked strings and bytes among them.
        self._counted = self._live = self._live_bytes = 0

    def mark(self, codes: Int64Array, marks: npt.NDArray[np.uint8] | None = None) -> Int64Array:
        """Keep the strings of these codes; return the codes that were not marked before.

        Codes that the interner does not have, and codes of later strings, are ignored.

        Args:
            codes: Any int64 values.
            marks: Other marks, from `new_marks`, to compare the codes with and to mark them in.
        """
        codes = read_only_codes(codes)
        new_codes = np.empty(len(codes), np.int64)
        count = sweep_kernels.mark(codes, *self._code_map, self._marks, new_codes)
        if marks is not None:
            count = sweep_kernels.mark(codes, *self._code_map, marks, new_codes)
        return new_codes[:count]

    def new_marks(self) -> npt.NDArray[np.uint8]:
        """Return further marks, all of them unset, to mark codes for several purposes."""
        return np.zeros_like(self._marks)

    def keep(self, positions: Int64Array) -> None:
        """Keep the strings at these positions, because they were encoded; ignore negative ones."""
        old = positions[(positions >= 0) & (positions < len(self._marks))]
        unmarked = old[self._marks[old] == 0]
        if len(unmarked):
            # The list first: after an error, a string that is marked already would not be listed.
            if self._target is not None:
                self._marked_late.append(np.unique(unmarked))
            self._marks[unmarked] = 1
            self.kept_again += len(unmarked)

    def copy(self, table: Table, size: int, work: int) -> int:
        """Copy marked strings; return the work that was not needed.

        Args:
            table: The arrays of the interner.
            size: The number of its strings; it does not decrease during the copy.
            work: The number of strings to examine; long strings count more.
        """
        if self._is_needless:
            return work
        _, bounds, arena = table
        work = self._count(bounds, work)
        if self._counted < len(self._marks):
            return 0
        if self._target is None and not self._begin_copy(bounds, size):
            return work
        self._find_passed()
        target, code_map = self._target, self._code_map
        assert target is not None
        work = target.clear_slots(work)
        if not target.is_cleared:
            return 0
        while work > 0:
            first = target.size
            target.size, remaining = sweep_kernels.copy_live(
                code_map.codes,
                code_map.sorted_count,
                code_map.next_code,
                self._marks,
                self._cursors,
                work,
                (bounds, arena, size),
                (target.bounds, target.arena, target.codes),
                target.size,
            )
            target.add_slots(first)
            if remaining >= 0:
                work = remaining
                break
            target.grow(int(np.diff(bounds[: size + 1]).max()))
        if self._cursors.tolist() == [code_map.sorted_count, len(code_map.codes), size]:
            # A string is listed twice if `keep` was interrupted and repeated.
            passed = np.unique(np.concatenate([*self._passed, _NO_POSITIONS]))
            target.append(passed, code_map, bounds, arena)
            target.codes = self._memory.trim(target.codes, target.size)
            self._is_copied = True
        return work

    def result(self, next_code: int) -> SweepResult | None:
        """Return the result if all strings were copied; ``next_code`` is that of the interner."""
        if self._is_needless:
            return SweepResult(None, self._code_map, 0)
        target = self._target
        if target is None or not self._is_copied:
            return None
        code_map = CodeMap.of(target.codes, target.sorted_count, next_code)
        return SweepResult(Table(target.slots, target.bounds, target.arena), code_map, target.size)

    def _count(self, bounds: Int64Array, work: int) -> int:
        """Count the marked strings and their bytes; return the work that was not needed."""
        while self._counted < len(self._marks) and work > 0:
            end = min(self._counted + _STRINGS_PER_COUNT, len(self._marks))
            marks = self._marks[self._counted : end]
            self._live += int(np.count_nonzero(marks))
            self._live_bytes += int(np.diff(bounds[self._counted : end + 1]) @ marks)
            self._counted = end
            work -= len(marks) // _COUNTS_PER_WORK + 1
        return work

    def _begin_copy(self, bounds: Int64Array, size: int) -> bool:
        """Make arrays for the remaining strings; return False if too few strings are removed."""
        live = self._live + size - len(self._marks)
        length = int(bounds[size])
        live_bytes = self._live_bytes + length - int(bounds[len(self._marks)])
        share = _MIN_REMOVED_SHARE
        if (
            live == size
            or max(share * (size - live) - size, share * (length - live_bytes) - length) < 0
        ):
            self._is_needless = True
            return False
        self._target = _Target(live, live_bytes, self._memory)
        return True

    def _find_passed(self) -> None:
        """Find out which strings were marked after the copy had passed them."""
        if not self._marked_late:
            return
        positions = np.concatenate(self._marked_late)
        self._marked_late.clear()
        listed, sorted_count = len(self._code_map.codes), self._code_map.sorted_count
        sequence = (positions >= sorted_count).astype(np.int64) + (positions >= listed)
        self._passed.append(positions[positions < self._cursors[sequence]])


class _Target:
    """The arrays that the remaining strings are copied to."""

    def __init__(self, strings: int, length: int, memory: ArrayMemory) -> None:
        self._memory = memory
        capacity = int(strings * _CAPACITY) + _FREE_STRINGS
        slot_count = 64
        while slot_count < 2 * capacity:
            slot_count *= 2
        self._slots = SlotsCopy(slot_count, memory)
        self.bounds = memory.new_words(capacity + 1)
        self.bounds[0] = 0
        self.arena = memory.new_arena(int(length * _CAPACITY) + _FREE_BYTES)
        self.codes = memory.new_words(capacity)
        self.size = 0
        #: The number of strings that were copied in the order of their codes.
        self.sorted_count = 0

    @property
    def slots(self) -> Int64Array:
        """The hash table."""
        return self._slots.slots

    @property
    def is_cleared(self) -> bool:
        """Return whether the hash table is cleared, so that strings can be copied."""
        return self._slots.cleared == len(self.slots)

    def clear_slots(self, work: int) -> int:
        """Clear a part of the hash table; return the work that was not needed."""
        return self._slots.clear(work)

    def add_slots(self, first: int) -> None:
        """Add the strings from position ``first`` on to the hash table."""
        intern_kernels.rebuild_slots(self.slots, self.bounds, self.arena, first, self.size)

    def append(
        self,
        positions: Int64Array,
        code_map: CodeMap,
        bounds: Int64Array,
        arena: npt.NDArray[np.uint8],
    ) -> None:
        """Append the strings at some positions of an interner, ordered by their codes."""
        self.sorted_count = self.size
        if not len(positions):
            return
        codes = positions.copy()
        code_map.replace_positions(codes)
        order = np.argsort(codes)
        positions, codes = positions[order], codes[order]
        first, end = self.size, int(self.bounds[self.size])
        lengths = bounds[positions + 1] - bounds[positions]
        while first + len(codes) > len(self.codes) or end + lengths.sum() > len(self.arena):
            self.grow(int(lengths.sum()))
        self.size += len(codes)
        self.codes[first : self.size] = codes
        offsets = self.bounds[first : self.size + 1]
        np.cumsum(lengths, out=offsets[1:])
        offsets[1:] += end
        positions.flags.writeable = False
        intern_kernels.gather(positions, bounds, arena, offsets.copy(), self.arena)
        self.add_slots(first)

    def grow(self, length: int) -> None:
        """Double the arrays, and make room for ``length`` more bytes."""
        bounds, arena, codes, memory = self.bounds, self.arena, self.codes, self._memory
        end = int(bounds[self.size])
        self.bounds = memory.new_words(2 * len(bounds))
        self.bounds[: self.size + 1] = bounds[: self.size + 1]
        self.arena = memory.new_arena(2 * len(arena) + length)
        self.arena[:end] = arena[:end]
        self.codes = memory.new_words(2 * len(codes))
        self.codes[: self.size] = codes[: self.size]
        self._slots = SlotsCopy(2 * len(self.slots), memory)
        self._slots.clear(len(self.slots))
        self.add_slots(0)


_NO_POSITIONS: Final[Int64Array] = np.empty(0, np.int64)
