"""Code map: which code the string at each position of an interner has.

A code is never used again for another string. So when strings are removed from an interner
(`dbsp_wcoj.values.sweep`), the remaining ones keep their codes, and their positions no longer equal
their codes. A code map is immutable; `dbsp_wcoj.kernels.values.sweep` describes its arrays.

Memory: for the strings that remain after a sweep, 8 bytes each, and at most 8 bytes for every 64.

Alternatives considered: giving the remaining strings new codes. Every run that contains their codes
would have to be rewritten at the same moment, in memory and on disk, although readers of earlier
versions still use the old codes. Or using the codes of removed strings again: a reader of an
earlier version would see a wrong string.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.values import sweep as sweep_kernels

__all__ = ["IDENTITY", "CodeMap", "read_only_codes"]

Int64Array = npt.NDArray[np.int64]

_STRINGS_PER_DIRECTORY_ENTRY: Final = 64


class CodeMap(NamedTuple):
    """The codes of the positions of an interner.

    Attributes:
        codes: The codes of the first positions: those of the strings that a sweep copied in their
            order, ascending; then those that came into use after it had passed them, ascending.
        sorted_count: The number of codes in the first of these two sequences.
        directory: The first position in that sequence for each range of codes.
        shift: Each of these ranges has ``2 ** shift`` codes.
        next_code: The code of position ``len(codes)``; later codes are consecutive.

    >>> codes = CodeMap.of(np.array([3, 7]), 2, 10)
    >>> codes.to_positions(np.array([7, 10, 3, -1])).tolist(), codes.to_code(3)
    ([1, 2, 0, -1], 11)
    """

    codes: Int64Array
    sorted_count: int
    directory: Int64Array
    shift: int
    next_code: int

    @staticmethod
    def of(codes: Int64Array, sorted_count: int, next_code: int) -> CodeMap:
        """Return the map whose first positions have these codes, all less than ``next_code``.

        Complexity:
            O(n / 64 · log n).
        """
        shift, entries = 0, max(sorted_count // _STRINGS_PER_DIRECTORY_ENTRY, 1)
        while (next_code >> shift) > entries:
            shift += 1
        starts = np.arange((next_code >> shift) + 2, dtype=np.int64) << shift
        directory = np.searchsorted(codes[:sorted_count], starts).astype(np.int64)
        return CodeMap(codes, sorted_count, directory, shift, next_code)

    @property
    def is_identity(self) -> bool:
        """True if each code is its position, because no string was removed."""
        return not self.next_code

    def to_positions(self, codes: Int64Array) -> Int64Array:
        """Return the position of each code; a negative code stays as it is.

        The position of a removed code is `dbsp_wcoj.kernels.values.sweep.UNKNOWN`. That of a code
        which no string has yet is beyond the last string.
        """
        positions = np.empty(len(codes), np.int64)
        sweep_kernels.to_positions(read_only_codes(codes), *self, positions)
        return positions

    def to_code(self, position: int) -> int:
        """Return the code of a position."""
        listed = len(self.codes)
        if position >= listed:
            return position - listed + self.next_code
        return int(self.codes[position])

    def replace_positions(self, positions: Int64Array) -> None:
        """Replace positions by their codes, in place; negative ones stay."""
        sweep_kernels.to_codes(positions, self.codes, self.next_code)

    def slices(self, size: int, length: int) -> Iterator[Int64Array]:
        """Yield the codes of the first ``size`` positions, ascending, about ``length`` at a time.

        Memory: O(length), and O(codes that came into use after a sweep had passed them).

        >>> codes = CodeMap.of(np.array([3, 7, 9, 4, 8]), 3, 10)
        >>> [part.tolist() for part in codes.slices(6, 2)]
        [[3, 4, 7], [8, 9], [10]]
        """
        codes, sorted_count, _, _, next_code = self
        passed = np.sort(codes[sorted_count:])
        first_passed = 0
        for first in range(0, max(sorted_count, min(len(passed), 1)), length):
            part = codes[first : min(first + length, sorted_count)]
            end_passed = len(passed)
            if first + length < sorted_count:
                end_passed = int(np.searchsorted(passed, part[-1]))
            yield np.sort(np.concatenate((part, passed[first_passed:end_passed])))
            first_passed = end_passed
        end = next_code + size - len(codes)
        for code in range(next_code, end, length):
            yield np.arange(code, min(code + length, end))

    def count_before(self, code: int) -> int:
        """Return the number of positions whose codes are below ``code``, at least ``next_code``."""
        return code - self.next_code + len(self.codes)


#: The map of an interner from which no string was removed.
IDENTITY: Final = CodeMap(np.empty(0, np.int64), 0, np.zeros(2, np.int64), 0, 0)


def read_only_codes(codes: Int64Array) -> Int64Array:
    """The codes in one layout and read-only, so that one compiled kernel serves all."""
    view = np.ascontiguousarray(codes).view()
    view.flags.writeable = False
    return view
