"""Interner: byte strings to the codes 0, 1, 2, … in order of first appearance, and back.

An interner is the dictionary of a dictionary encoding: joins work on int64 codes, so strings,
binaries, wide decimals and rows of several values are replaced by codes::

    intern  "ann", "bob", "ann"  ->  0, 1, 0          gather  1, 1  ->  "bob", "bob"

Input and output are arrays in the layout of Arrow (offsets and bytes), and no Python code runs per
string (`dbsp_wcoj.kernels.values.intern`). The interner consists of three arrays: the bytes of all
strings, one after the other (the arena); the position where each string ends (the bounds); and a
hash table from strings to codes (the slots).

Laws: two strings have the same code if and only if they are equal; a code never changes until
`Interner.truncate` or a sweep removes it; an error leaves the interner as it was.

`Interner.begin_sweep` starts to remove the strings that nothing refers to any more
(`dbsp_wcoj.values.sweep`). The other strings keep their codes, and no later string gets the code of
a removed one. So after a sweep, the codes are ascending numbers with gaps, and a *code map* says at
which position of the arrays the string of a code is (`dbsp_wcoj.values.code_map`).

Memory: for each distinct string its bytes, 8 bytes for its bound and about 20 to 40 for its slots.
While an array fills, it is copied to one of twice the size, a slice with each insertion
(`dbsp_wcoj.values.growth`). So no insertion copies much more than it adds. A look-up is O(bytes),
with about one cache miss if the slots do not fit in the caches. Strings chosen to collide make it
slow, never wrong.

The arrays may be in external memory instead of on the heap, for example in writable maps of files
(`Interner.move`, `dbsp_wcoj.values.array_memory`).

Alternatives considered: a Python dict takes ten times as long and a hundred bytes more per string;
Arrow's dictionary_encode starts with an empty dictionary for each array.

One thread at a time may add strings. Meanwhile, other threads may look up strings and codes that
they already know. The arrays that an interner returns are copies, so later calls do not change
them. Readers of an earlier state use an overlay (`dbsp_wcoj.values.overlay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.errors import ArityError, ColumnTypeError
from dbsp_wcoj.kernels.values import intern as intern_kernels
from dbsp_wcoj.kernels.values import sweep as sweep_kernels
from dbsp_wcoj.values.array_memory import (
    PROCESS_MEMORY,
    ArrayMemory,
    heap_bytes,
    is_external,
    move_array,
)
from dbsp_wcoj.values.code_map import IDENTITY, CodeMap, read_only_codes
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.growth import Growth, Table
from dbsp_wcoj.values.sweep import Sweep

__all__ = ["ABSENT", "Interner", "InternerArrays"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

#: The code of a string that is not in the interner, or that the mask excludes.
ABSENT: Final = -1

_INITIAL_SLOTS: Final = 64
_INITIAL_ARENA_BYTES: Final = 1024
_WORD_BYTES: Final = 8
# `Interner.intern_rows` adds this many rows at a time, in memory that each slice uses again.
INTERNED_ROWS: Final = 1 << 17
# It reserves memory for at most this many times as many rows as there are.
MAX_GROWTH: Final = 8
# An empty mask means that all strings are valid.
_ALL_VALID: Final[BoolArray] = np.empty(0, np.bool_)


class InternerArrays(NamedTuple):
    """The arrays with the first strings of an interner, for overlays.

    Attributes:
        slots: The hash table.
        bounds: The string at position i is ``arena[bounds[i] : bounds[i + 1]]``.
        arena: The bytes of the strings.
        words: The words of each row, if the strings are rows.
        size: The number of strings.
        code_map: The codes of the positions.
    """

    slots: Int64Array
    bounds: Int64Array
    arena: Bytes
    words: int | None
    size: int
    code_map: CodeMap

    @property
    def next_code(self) -> int:
        """The code of the next string."""
        return self.code_map.to_code(self.size)

    @property
    def byte_count(self) -> int:
        """The number of bytes of all strings."""
        return int(self.bounds[self.size])


class Interner:
    """A dictionary of byte strings, or of rows of ``words`` int64 values.

    Args:
        words: The number of values of a row, for `intern_rows` and `rows`; by default that of the
            first rows. An interner has strings or rows, not both.

    Attributes:
        removals: How often strings have been removed. Until it changes, a string keeps its code.

    >>> names = Interner()
    >>> text = np.frombuffer(b"annbobann", np.uint8)
    >>> names.intern(np.array([0, 3, 6, 9]), text).tolist()
    [0, 1, 0]
    >>> offsets, data = names.gather(np.array([1, 1]))
    >>> offsets.tolist(), data.tobytes()
    ([0, 3, 6], b'bobbob')
    """

    __slots__ = (
        "_arena",
        "_bounds",
        "_code_map",
        "_growth",
        "_memory",
        "_size",
        "_slots",
        "_sweep",
        "_words",
        "removals",
    )

    def __init__(self, *, words: int | None = None) -> None:
        self._words = words
        self._memory = PROCESS_MEMORY
        self._size = 0
        self._code_map = IDENTITY
        self._sweep: Sweep | None = None
        self._slots: Int64Array = np.zeros(_INITIAL_SLOTS, np.int64)
        self._bounds: Int64Array = np.zeros(_INITIAL_SLOTS // 2 + 1, np.int64)
        self._arena: Bytes = np.empty(_INITIAL_ARENA_BYTES, np.uint8)
        self._growth = Growth()
        self.removals = 0

    def __len__(self) -> int:
        """The code of the next string: the number of codes so far, including removed ones."""
        code_map = self._code_map
        return self._size - len(code_map.codes) + code_map.next_code

    def __repr__(self) -> str:
        return f"<Interner of {self._size} strings, {self._byte_count} bytes>"

    @property
    def string_count(self) -> int:
        """The number of strings."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are reserved, without those of a running sweep or growth."""
        arrays = self._slots.nbytes + self._bounds.nbytes + self._arena.nbytes
        return arrays + self._code_map.codes.nbytes + self._code_map.directory.nbytes

    @property
    def heap_bytes(self) -> int:
        """The part of `nbytes` that is on the heap, and not in maps of files."""
        arrays = self._slots, self._bounds, self._arena, self._code_map.codes
        return heap_bytes(*arrays) + self._code_map.directory.nbytes

    @property
    def string_heap_bytes(self) -> int:
        """The heap bytes of strings, end offsets and codes, and of larger copies being filled."""
        arrays = self._bounds, self._arena, self._code_map.codes
        return heap_bytes(*arrays, *self._growth.string_arrays)

    @property
    def slot_heap_bytes(self) -> int:
        """The heap bytes of the hash table, and of a larger one that is being filled."""
        return heap_bytes(self._slots, *self._growth.slot_arrays)

    def intern(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Return the codes of n byte strings, adding those that are new.

        Args:
            offsets: n + 1 ascending integers; string i is ``data[offsets[i] : offsets[i + 1]]``.
            data: uint8 array.
            valid: Mask of the strings to encode, by default all; the others get `ABSENT`.

        Raises:
            ColumnTypeError: The offsets do not ascend within ``data``, or the mask has another
                length. The interner does not change.

        Complexity:
            O(n + bytes) amortised.
        """
        return self._intern(*_check_strings(offsets, data), valid)

    def find(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Like `intern`, but add nothing: an unknown string gets `ABSENT`.

        >>> Interner().find(np.array([0, 1]), np.frombuffer(b"x", np.uint8)).tolist()
        [-1]
        """
        return self._find(*_check_strings(offsets, data), valid)

    def intern_rows(self, columns: Any, out: Int64Array | None = None) -> Int64Array:
        """Return one code per row of an int64 array of shape ``(words, n)``, adding new rows.

        Args:
            columns: The rows.
            out: The array for the codes, of length n; by default a new one.

        Raises:
            ArityError: Another number of columns than before.

        Complexity:
            O(words * n) amortised.

        >>> pairs = Interner(words=2)
        >>> pairs.intern_rows(np.array([[7, 7, 7], [1, 2, 1]])).tolist()
        [0, 1, 0]
        >>> pairs.rows(np.array([1, -5])).tolist()
        [[7, -5], [2, -5]]
        """
        array = self._check_rows(columns)
        count, size_before = array.shape[1], self._size
        codes: Int64Array = np.empty(count, np.int64) if out is None else out
        try:
            for start in range(0, count, INTERNED_ROWS):
                rows, size = slice(start, start + INTERNED_ROWS), self._size
                codes[rows] = self._intern(*self._rows_to_strings(array[:, rows]), None)
                later = count - start - INTERNED_ROWS
                if later > 0 and len(array):
                    with suppress(MemoryError):  # the rows may need less than is reserved
                        self._reserve_rows(self._size - size, later, len(array))
        except BaseException:
            self._remove_latest(size_before)
            raise
        self._words = len(array)
        return codes

    def find_rows(self, columns: Any) -> Int64Array:
        """Like `intern_rows`, but add nothing: an unknown row gets `ABSENT`."""
        return self._find(*self._rows_to_strings(columns), None)

    def rows(self, codes: Int64Array) -> Int64Array:
        """Return the rows of codes, shape ``(words, n)``.

        A negative code yields a row in which each value is that code. So the code of NULL yields a
        row of NULLs, which outer joins need.

        Raises:
            ArityError: The interner has no rows, and ``words`` was not specified.
            ColumnTypeError: A code is unknown.
        """
        positions = self._positions(codes)
        if self._words is None:
            raise ArityError("no rows yet, so their width is unknown; give Interner(words=...)")
        columns = np.empty((self._words, len(codes)), np.int64)
        intern_kernels.gather_words(positions, self._arena, columns)
        return columns

    def gather(self, codes: Int64Array) -> tuple[Int64Array, Bytes]:
        """Return the concatenated strings of codes: offsets and bytes.

        A negative code yields the empty string.

        Raises:
            ColumnTypeError: A code is unknown.
        """
        positions = self._positions(codes)
        offsets = np.empty(len(codes) + 1, np.int64)
        intern_kernels.write_offsets(positions, self._bounds, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        intern_kernels.gather(positions, self._bounds, self._arena, offsets, data)
        return offsets, data

    def write_offsets(self, codes: Int64Array, offsets: Int64Array) -> None:
        """Write where each string begins if the strings of codes are concatenated, and the end.

        The string of a negative code is empty.
        """
        intern_kernels.write_offsets(self._positions(codes), self._bounds, offsets)

    def write_strings(self, codes: Int64Array, offsets: Int64Array, data: Bytes) -> None:
        """Write the strings of codes at their offsets in ``data``; negative codes write nothing."""
        intern_kernels.gather(self._positions(codes), self._bounds, self._arena, offsets, data)

    def share(self, length: int | None = None) -> InternerArrays:
        """The arrays that hold the strings with codes below ``length``, by default all strings.

        They stay valid while strings are added or swept.

        Raises:
            ColumnTypeError: ``length`` is more than the number of codes, or less than the number at
                the end of the last sweep.
        """
        # The size first: another thread may be adding strings, and arrays that are read later than
        # the size have at least that many.
        size = self._size
        if length is not None:
            self._check_length(length)
            size = self._code_map.count_before(length)
        arrays = self._slots, self._bounds, self._arena
        return InternerArrays(*arrays, self._words, size, self._code_map)

    def share_again(self, before: InternerArrays) -> InternerArrays:
        """Return an earlier result of `share` if it is still the same, else a new one.

        >>> names = Interner()
        >>> shared = names.share()
        >>> names.share_again(shared) is shared
        True
        """
        if (
            before.size == self._size
            and before.slots is self._slots
            and before.bounds is self._bounds
            and before.arena is self._arena
            and before.code_map is self._code_map
            and before.words == self._words
        ):
            return before
        return self.share()

    def prefixes(self, codes: Int64Array, start: int = 0) -> Int64Array:
        """Return a sort key for each string: its eight bytes from ``start`` on, as an int64.

        The keys compare as these bytes do. A shorter string is padded with zero bytes, so different
        strings may have equal keys. The key of a negative code has no meaning.

        >>> names = Interner()
        >>> codes = names.intern(np.array([0, 2, 3, 3]), np.frombuffer(b"abz", np.uint8))
        >>> names.prefixes(codes).argsort().tolist()
        [2, 0, 1]
        """
        positions = self._positions(codes)
        keys = np.empty(len(codes), np.int64)
        intern_kernels.order_keys(positions, self._bounds, self._arena, start, keys)
        return keys

    def hashes(self, codes: Int64Array) -> Int64Array:
        """Return a hash of the string of each code; a negative code stands for itself.

        The hash depends only on the string, not on its code.

        Raises:
            ColumnTypeError: A code is unknown.
        """
        hashes = np.empty(len(codes), np.int64)
        sweep_kernels.hash_strings(self._positions(codes), self._bounds, self._arena, hashes)
        return hashes

    def arena(self, first: int = 0) -> CodedStrings:
        """Return the strings of the codes from ``first`` on, all of them copies.

        Raises:
            ColumnTypeError: ``first`` is not in ``[0, len(self)]``.

        Complexity:
            O(strings and bytes), and sorting them if strings with smaller codes were removed.
        """
        if not 0 <= first <= self._next_code:
            raise ColumnTypeError(f"length {first} of {self!r} must be from 0 to {self._next_code}")
        code_map = self._code_map
        if first < code_map.next_code:
            later = np.arange(code_map.next_code, self._next_code)
            codes = np.concatenate((np.sort(code_map.codes), later))
            codes = codes[np.searchsorted(codes, first) :]
            return CodedStrings(*self.gather(codes), codes)
        bounds = self._bounds[code_map.count_before(first) : self._size + 1]
        data = self._arena[bounds[0] : bounds[-1]].copy()
        return CodedStrings(bounds - bounds[0], data, np.arange(first, self._next_code))

    def slices(self, length: int) -> Iterator[CodedStrings]:
        """Yield the strings that `arena` returns, in copies of about ``length`` strings at a time.

        >>> names = Interner()
        >>> _ = names.intern(np.array([0, 1, 2, 3]), np.frombuffer(b"abc", np.uint8))
        >>> [(part.codes.tolist(), part.data.tobytes()) for part in names.slices(2)]
        [([0, 1], b'ab'), ([2], b'c')]
        """
        for codes in self._code_map.slices(self._size, length):
            yield CodedStrings(*self.gather(codes), codes)

    def load(self, parts: Iterable[CodedStrings], next_code: int = 0) -> None:
        """Fill an empty interner with strings and their codes: the inverse of `arena`.

        A string that occurs several times gets the last of its codes: it was stored, a sweep
        removed it from memory, and later it was added again with another code.

        Args:
            parts: The strings, with ascending codes. They are read two or three times, one part
                after the other, so they need not be in memory at the same time.
            next_code: The least code of the next string, which is always above those of ``parts``.

        Raises:
            ColumnTypeError: The interner is not empty, the codes do not ascend, or the length of a
                string is not that of a row of this interner. The interner does not change.

        Complexity:
            O(n + bytes).
        """
        count = code_count = lengths = 0
        last_code, is_ascending = -1, not len(self)
        for part in parts:
            offsets, _ = self._check_loaded(part.offsets, part.data)
            codes = part.codes
            is_ascending &= bool(
                len(codes) == len(offsets) - 1 and (np.diff(codes, prepend=last_code) > 0).all()
            )
            last_code = int(codes[-1]) if len(codes) else last_code
            count += len(offsets) - 1
            code_count += len(codes)
            lengths += int(offsets[-1] - offsets[0])
        if not is_ascending:
            raise ColumnTypeError(
                f"{count} strings with {code_count} codes for {self!r}; load ascending codes into "
                "an empty interner"
            )
        self._reserve(count, lengths)
        # The last row of each position; None as long as no string has occurred twice.
        last_rows: Int64Array | None = None
        try:
            row = 0
            for part in parts:
                rows = len(part.codes)
                positions = self._add(*_check_strings(part.offsets, part.data), None)
                if last_rows is None and self._size < row + rows:
                    last_rows = np.empty(count, np.int64)
                    last_rows[:row] = np.arange(row)
                if last_rows is not None:
                    last_rows[positions] = np.arange(row, row + rows)
                row += rows
            is_last = _ALL_VALID
            if last_rows is not None:
                is_last = np.zeros(count, np.bool_)
                is_last[last_rows[: self._size]] = True
                self._remove_latest(0)
                row = 0
                for part in parts:
                    offsets, data = _check_strings(part.offsets, part.data)
                    rows = len(part.codes)
                    self._add(offsets, data, is_last[row : row + rows])
                    row += rows
            next_code = max(next_code, last_code + 1)
            if next_code > self._size:
                self._code_map = self._load_code_map(parts, is_last, next_code)
        except BaseException:
            self._remove_latest(0)
            raise

    def _load_code_map(
        self, parts: Iterable[CodedStrings], is_kept: BoolArray, next_code: int
    ) -> CodeMap:
        """Return the map to the codes of the strings that `load` has kept; empty: all of them."""
        codes = self._memory.new_words(self._size)
        row = position = 0
        for part in parts:
            part_codes = part.codes
            rows = len(part_codes)
            if len(is_kept):
                part_codes = part_codes[is_kept[row : row + rows]]
            codes[position : position + len(part_codes)] = part_codes
            position += len(part_codes)
            row += rows
        return CodeMap.of(codes, len(codes), next_code)

    def replace_strings(self, other: Interner) -> None:
        """Replace all strings, codes and memory by those of another interner, which is used up.

        No other thread may use this interner meanwhile. Readers keep the earlier arrays (`share`).

        Args:
            other: An interner of strings, or of rows of as many values.

        Complexity:
            O(1).

        >>> names, others = Interner(), Interner()
        >>> codes = names.intern(np.array([0, 1]), np.frombuffer(b"x", np.uint8))
        >>> codes = others.intern(np.array([0, 1, 2]), np.frombuffer(b"yx", np.uint8))
        >>> names.replace_strings(others)
        >>> names.find(np.array([0, 1]), np.frombuffer(b"x", np.uint8)).tolist()
        [1]
        """
        removals = self.removals + other.removals + 1
        for name in Interner.__slots__:
            setattr(self, name, getattr(other, name))
        self.removals = removals

    def new_empty(self) -> Interner:
        """Return an interner without strings for rows of as many values, or for strings."""
        return Interner(words=self._words)

    def truncate(self, length: int) -> None:
        """Remove the codes from ``length`` on; the caller must not use them afterwards.

        Raises:
            ColumnTypeError: ``length`` is not in ``[0, len(self)]``, or less than the number of
                codes that there were at the end of the last sweep.

        Complexity:
            O(removed strings).
        """
        self._check_length(length)
        self._remove_latest(self._code_map.count_before(length))

    def move(self, memory: ArrayMemory) -> None:
        """Move arrays from the heap to external memory, in which later arrays are allocated, too.

        No other thread may add strings meanwhile. Readers keep the earlier arrays. An array stays
        where it is if there is no other memory for it. The new arrays that a sweep is filling stay,
        too; a later call moves them.

        Args:
            memory: External memory for the strings, the hash table or both.

        Complexity:
            O(bytes of the moved arrays); O(1) for arrays that have external memory already.

        >>> names = Interner()
        >>> names.move(ArrayMemory(*2 * [lambda words: np.zeros(words, np.int64)[:]]))
        >>> names.intern(np.array([0, 1]), np.frombuffer(b"x", np.uint8)).tolist()
        [0]
        >>> names.heap_bytes == names._code_map.directory.nbytes
        True
        """
        self._memory = memory = memory.or_else(self._memory)
        self._growth.move(memory)
        size, end, codes = self._size, self._byte_count, self._code_map.codes
        if memory.strings is not None:
            self._bounds = move_array(self._bounds, size + 1, memory.new_words)
            self._arena = move_array(self._arena, end, memory.new_arena)
            if len(codes):
                codes = move_array(codes, len(codes), memory.new_words)
                self._code_map = self._code_map._replace(codes=codes)
        if memory.slots is not None:
            self._slots = move_array(self._slots, len(self._slots), memory.new_slots)

    def begin_sweep(self) -> Sweep:
        """Begin to remove strings; return the sweep, on which the codes to keep are marked.

        The sweep ends when `advance_sweep` returns True, or with `abandon_sweep`. Meanwhile strings
        may be added, and every string that is added or encoded again is kept.

        >>> names = Interner()
        >>> text = np.frombuffer(b"annbobeve", np.uint8)
        >>> codes = names.intern(np.array([0, 3, 6, 9]), text)
        >>> names.begin_sweep().mark(codes[1:2]).tolist()
        [1]
        >>> names.advance_sweep(work=100_000)[0]
        True
        >>> names.find(np.array([0, 3, 6, 9]), text).tolist(), len(names), names.string_count
        ([-1, 1, -1], 3, 1)
        """
        self._sweep = Sweep(self._code_map, self._size, self._memory)
        return self._sweep

    def advance_sweep(self, work: int) -> tuple[bool, int]:
        """Do a part of a sweep whose codes are all marked.

        Call it only if the strings of this interner will not be truncated: the sweep may end.

        Args:
            work: The number of strings to examine.

        Returns:
            True if the sweep has ended; and the work that was not needed.
        """
        # An interrupt ends the sweep, because its arrays may then lack a string.
        sweep, self._sweep = self._sweep, None
        if sweep is None:
            return True, work
        table = Table(self._slots, self._bounds, self._arena)
        remaining = sweep.copy(table, self._size, work)
        result = sweep.result(len(self))
        if result is None:
            self._sweep = sweep
            return False, remaining
        if result.table is not None:
            growth = Growth(self._memory)
            self._slots, self._bounds, self._arena = result.table
            self._code_map, self._size = result.code_map, result.size
            self._growth = growth
            self.removals += 1
        return True, remaining

    def keep_codes(self, codes: Int64Array) -> None:
        """Let a running sweep keep the strings of codes from `find`, as if they were encoded again.

        Negative codes are ignored.

        >>> names = Interner()
        >>> text = np.frombuffer(b"annbob", np.uint8)
        >>> codes = names.intern(np.array([0, 3, 6]), text)
        >>> sweep = names.begin_sweep()
        >>> names.keep_codes(names.find(np.array([0, 3]), text))
        >>> names.advance_sweep(work=100_000)[0], names.string_count
        (True, 1)
        """
        if self._sweep is not None:
            self._sweep.keep(self._positions(codes))

    def abandon_sweep(self) -> None:
        """End a sweep without removing a string."""
        self._sweep = None

    @property
    def _next_code(self) -> int:
        code_map = self._code_map
        return self._size - len(code_map.codes) + code_map.next_code

    @property
    def _byte_count(self) -> int:
        """The number of bytes of all strings."""
        return int(self._bounds[self._size])

    def _positions(self, codes: Int64Array) -> Int64Array:
        """Return the positions of codes, read-only; a negative code is its own position.

        Raises:
            ColumnTypeError: A code is unknown.
        """
        codes = read_only_codes(codes)
        if self._code_map.is_identity:
            positions = codes
        else:
            positions = self._code_map.to_positions(codes)
            is_unknown = (positions < 0) & (positions != codes)
            if is_unknown.any():
                raise ColumnTypeError(
                    f"code {codes[is_unknown][0]} of {self!r} was removed, because nothing "
                    "referred to it: decode with the state that contains it"
                )
            positions = read_only_codes(positions)
        if len(codes) and int(positions.max()) >= self._size:
            raise ColumnTypeError(
                f"code {codes.max()} is outside [0, {len(self) - 1}] of {self!r}; "
                "decode with the interner that encoded them"
            )
        return positions

    def _check_loaded(self, offsets: Any, data: Any) -> tuple[Int64Array, Bytes]:
        """Check strings that are to be loaded."""
        offsets, data = _check_strings(offsets, data)
        if self._words is not None and (np.diff(offsets) != _WORD_BYTES * self._words).any():
            raise ColumnTypeError(
                f"strings of {int(np.diff(offsets).min())} to {int(np.diff(offsets).max())} bytes "
                f"for rows of {_WORD_BYTES * self._words}; load the result of `arena` of an "
                f"interner with such rows"
            )
        return offsets, data

    def _find(self, offsets: Int64Array, data: Bytes, valid: BoolArray | None) -> Int64Array:
        rows = len(offsets) - 1
        mask = valid_mask(valid, rows)
        codes = np.empty(rows, np.int64)
        addresses = _address_of(offsets), _address_of(data)
        # The size first, as in `share`: another thread may be adding strings.
        size = self._size
        arrays = self._slots, self._bounds, self._arena
        intern_kernels.find(addresses, mask, *arrays, size, codes)
        if not self._code_map.is_identity:
            self._code_map.replace_positions(codes)
        return codes

    def _intern(self, offsets: Int64Array, data: Bytes, valid: BoolArray | None) -> Int64Array:
        positions = self._add(offsets, data, valid)
        if self._sweep is not None:
            self._sweep.keep(positions)
        if not self._code_map.is_identity:
            self._code_map.replace_positions(positions)
        return positions

    def _add(self, offsets: Int64Array, data: Bytes, valid: BoolArray | None) -> Int64Array:
        """Add strings; return their positions."""
        rows = len(offsets) - 1
        mask = valid_mask(valid, rows)
        positions = np.empty(rows, np.int64)
        positions.fill(-1)
        addresses = _address_of(offsets), _address_of(data)
        size_before = self._size
        row = 0
        try:
            while True:
                arrays = self._slots, self._bounds, self._arena
                row, self._size = intern_kernels.intern(
                    addresses, mask, row, *arrays, self._size, positions
                )
                if row == rows:
                    if self._size > size_before:
                        self._slots, self._bounds, self._arena = self._growth.advance(
                            Table(*arrays), self._size, size_before
                        )
                    return positions
                self._reserve(1, int(offsets[row + 1] - offsets[row]))
        except BaseException:  # out of memory, or interrupted: remove what was added
            # The interrupt may have come after the kernel added strings, but before their number
            # was stored.
            self._size = max(self._size, int(positions.max(initial=-1)) + 1)
            self._remove_latest(size_before)
            raise

    def _remove_latest(self, size: int) -> None:
        """Remove the strings from position ``size`` on."""
        table = Table(self._slots, self._bounds, self._arena)
        self._growth.truncate(table, size, int(self._bounds[size]))
        # The first call loads the kernel; an interrupt of that removes nothing. So this one, which
        # removes nothing either, comes before the one whose effect is recorded in any case.
        intern_kernels.remove_latest(*table, size, size)
        try:
            intern_kernels.remove_latest(*table, self._size, size)
        finally:  # an interrupt may follow the kernel, which must not remove a string twice
            self._size = size
            self.removals += 1

    def _reserve(self, strings: int, length: int) -> None:
        """Reserve memory for ``strings`` more strings of ``length`` bytes together.

        An eighth of each new array remains free.
        """
        size, end = self._size, self._byte_count
        if size + strings > len(self._bounds) - 1:
            bounds = self._memory.new_words(max(2 * size, 8 * (size + strings) // 7) + 2)
            bounds[: size + 1] = self._bounds[: size + 1]
            self._bounds, self._growth.bounds = bounds, None
        if end + length > len(self._arena):
            arena = self._memory.new_arena(max(2 * len(self._arena), 8 * (end + length) // 7 + 1))
            arena[:end] = self._arena[:end]
            self._arena, self._growth.arena = arena, None
        # The kernel adds a string only if less than half of the slots are in use before.
        if 2 * (size + strings - 1) >= len(self._slots):
            slot_count = 2 * len(self._slots)
            while 16 * (size + strings) > 7 * slot_count:
                slot_count *= 2
            slots = self._memory.new_slots(slot_count)
            if not is_external(slots):
                slots[:] = 0
            intern_kernels.rebuild_slots(slots, self._bounds, self._arena, 0, size)
            self._slots, self._growth.slots = slots, None

    def _reserve_rows(self, added: int, later: int, words: int) -> None:
        """Reserve memory for rows that will follow, if the next slice would fill an array.

        An array that grows by doubling has copies of twice its size in all, and the system must
        clear the memory of each. With the memory of `MAX_GROWTH` times as many rows, it has fewer.

        Args:
            added: The number of new rows in the last slice.
            later: The number of rows of the slices that follow.
            words: The number of words of a row.
        """
        size = self._size
        if 8 * (size + added) > 7 * min(len(self._bounds) - 1, len(self._slots) // 2):
            rows = min(added * later // INTERNED_ROWS, (MAX_GROWTH - 1) * size)
            self._reserve(rows, _WORD_BYTES * words * rows)

    def _rows_to_strings(self, columns: Any) -> tuple[Int64Array, Bytes]:
        """The offsets and bytes of rows, each as a string of 8 bytes per value."""
        array = self._check_rows(columns)
        width = len(array)
        rows = np.ascontiguousarray(array.T)
        offsets = np.arange(rows.shape[0] + 1, dtype=np.int64) * (_WORD_BYTES * width)
        return offsets, rows.view(np.uint8).reshape(-1) if width else np.empty(0, np.uint8)

    def _check_rows(self, columns: Any) -> Int64Array:
        """Return rows as an array of int64, of shape ``(words, n)``."""
        array = np.asarray(columns, np.int64)
        if array.ndim != 2 or self._words not in (None, len(array)):
            raise ArityError(
                f"columns of shape {array.shape}; give int64 columns of shape "
                f"({'words' if self._words is None else self._words}, rows)"
            )
        return array

    def _check_length(self, length: int) -> None:
        least = self._code_map.next_code
        if not least <= length <= len(self):
            raise ColumnTypeError(
                f"length {length} of {self!r} must be from {least} to {len(self)}"
            )

    def _check(self) -> None:
        """Assert the invariant: one slot per string, found by its hash; the bounds ascend."""
        size, slots = self._size, self._slots
        assert len(slots) & (len(slots) - 1) == 0 and 2 * size <= len(slots)
        assert size < len(self._bounds) and self._bounds[0] == 0
        assert (np.diff(self._bounds[: size + 1]) >= 0).all()
        assert self._byte_count <= len(self._arena)
        codes_from_1 = slots[slots != 0] & intern_kernels.CODE_MASK
        assert sorted(codes_from_1.tolist()) == list(range(1, size + 1))
        offsets, data, codes = self.arena()
        assert len(codes) == size and (np.diff(codes, prepend=-1) > 0).all()
        assert self.find(offsets, data).tolist() == codes.tolist()


def _address_of(array: Int64Array | Bytes) -> int:
    """Return the address of the first element; the attribute ``ctypes`` takes twice as long."""
    return int(array.__array_interface__["data"][0])


def valid_mask(valid: BoolArray | None, rows: int) -> BoolArray:
    """The mask of the strings to encode, as kernels read it."""
    if valid is None:
        return _ALL_VALID
    mask = np.ascontiguousarray(valid, np.bool_)
    if mask.shape != (rows,):
        raise ColumnTypeError(
            f"the mask has shape {mask.shape}, but there are {rows} strings; give one per string"
        )
    return mask


def _check_strings(offsets: Any, data: Any) -> tuple[Int64Array, Bytes]:
    """Check that offsets and data fit together; return them as contiguous arrays."""
    offsets = np.ascontiguousarray(offsets, np.int64)
    data = np.ascontiguousarray(data)
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.ndim != 1 or not len(offsets):
        raise ColumnTypeError(
            f"offsets have shape {offsets.shape}, the bytes dtype {data.dtype} and shape "
            f"{data.shape}; give n + 1 offsets for n strings, and a one-dimensional uint8 array"
        )
    if offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any():
        raise ColumnTypeError(
            f"offsets from {offsets.min()} to {offsets.max()} do not ascend within the "
            f"{len(data)} bytes"
        )
    return offsets, data
