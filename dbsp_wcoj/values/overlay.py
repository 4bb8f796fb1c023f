"""An overlay: a view of the first strings of an interner, with private strings after them.

An interner is a dictionary: it maps each string to an integer code (`dbsp_wcoj.values.interner`).
The codes of an overlay are::

    codes 0 … length - 1      the first ``length`` strings of the interner, which never change
    codes length, …           private strings, which only this overlay has

Each reader gets an overlay. With it, the reader decodes stored values, and encodes the values that
it compares or computes, while another thread adds to the interner. The strings that the reader adds
are freed together with the overlay.

Invariant: the arrays that an overlay refers to keep the bytes of its ``length`` strings in place
while strings are added to the interner, or removed from it down to ``length``. So an overlay copies
nothing and takes O(1) to create.

Alternatives considered: a lock around the interner, with which every query would wait for every
step; a copy per reader, which costs as much as the interner itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.values.interner import (
    ABSENT,
    BoolArray,
    Bytes,
    Int64Array,
    Interner,
    read_only_codes,
    valid_mask,
)

__all__ = ["InternerOverlay"]


class InternerOverlay(Interner):
    """The first ``length`` strings of an interner, with private strings after them.

    Only one thread at a time may add to an overlay. As long as the overlay is in use, no thread may
    remove any of the first ``length`` strings from ``table``.

    Args:
        table: The interner; another thread may add to it meanwhile.
        length: The number of its strings that the overlay shows.

    Raises:
        ColumnTypeError: ``table`` has fewer strings than ``length``.

    >>> names = Interner()
    >>> names.intern(np.array([0, 3]), np.frombuffer(b"ann", np.uint8)).tolist()
    [0]
    >>> mine = InternerOverlay(names, 1)
    >>> mine.intern(np.array([0, 3, 6]), np.frombuffer(b"bobann", np.uint8)).tolist()
    [1, 0]
    >>> mine.gather(np.array([1, 0]))[1].tobytes(), len(mine), len(names)
    (b'bobann', 2, 1)
    """

    __slots__ = ("_own",)

    def __init__(self, table: Interner, length: int) -> None:
        self._slots, self._bounds, self._arena, self._words = table.share(length)
        self._size = length
        self._own = Interner(words=self._words)

    def __len__(self) -> int:
        """Number of codes, including those of private strings."""
        return self._size + len(self._own)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are allocated for private strings."""
        return self._own.nbytes

    def find(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Like `Interner.find`; also searches the private strings."""
        codes = super().find(offsets, data, valid)
        if not len(self._own):
            return codes
        return self._with_own(codes, self._own.find(offsets, data, _missing(codes, valid)))

    def intern(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Like `Interner.intern`; adds new strings as private strings."""
        codes = super().find(offsets, data, valid)
        missing = _missing(codes, valid)
        if not missing.any():
            return codes
        return self._with_own(codes, self._own.intern(offsets, data, missing))

    def intern_rows(self, columns: Any) -> Int64Array:
        """Like `Interner.intern_rows`; adds new rows as private rows."""
        return self.intern(*self._row_strings(columns))

    def find_rows(self, columns: Any) -> Int64Array:
        """Like `Interner.find_rows`; also searches the private rows."""
        return self.find(*self._row_strings(columns))

    def rows(self, codes: Int64Array) -> Int64Array:
        """Like `Interner.rows`."""
        own = codes >= self._size
        if not own.any():
            return super().rows(codes)
        self._check_range(codes)
        columns = super().rows(np.where(own, ABSENT, codes))
        columns[:, own] = self._own.rows(codes[own] - self._size)
        return columns

    def gather(self, codes: Int64Array) -> tuple[Int64Array, Bytes]:
        """Like `Interner.gather`."""
        own = codes >= self._size
        if not own.any():
            return super().gather(codes)
        self._check_range(codes)
        tables = (self, self._own)
        parts = [np.where(own, ABSENT, codes), np.where(own, codes - self._size, ABSENT)]
        given = [read_only_codes(part) for part in parts]
        ends = np.empty((2, len(codes) + 1), np.int64)
        for table, part, row in zip(tables, given, ends, strict=True):
            table.write_offsets(part, row)
        offsets: Int64Array = ends[0] + ends[1]
        data = np.empty(int(offsets[-1]), np.uint8)
        for table, part in zip(tables, given, strict=True):
            table.write_strings(part, offsets, data)
        return offsets, data

    def prefixes(self, codes: Int64Array, start: int = 0) -> Int64Array:
        """Like `Interner.prefixes`."""
        own = codes >= self._size
        if not own.any():
            return super().prefixes(codes, start)
        self._check_range(codes)
        keys = super().prefixes(np.where(own, ABSENT, codes), start)
        keys[own] = self._own.prefixes(codes[own] - self._size, start)
        return keys

    def append(self, offsets: Any, data: Any) -> None:
        """Not supported by an overlay.

        Raises:
            ColumnTypeError: Always.
        """
        raise ColumnTypeError("an overlay is for reading; append to the table below it")

    def truncate(self, length: int) -> None:
        """Remove the private strings whose codes are ``length`` or greater.

        Raises:
            ColumnTypeError: ``length`` is less than the number of strings that the overlay shows of
                the interner below.
        """
        if length < self._size:
            raise ColumnTypeError(
                f"no length {length}: an overlay keeps the {self._size} strings below it"
            )
        self._own.truncate(length - self._size)

    def _with_own(self, codes: Int64Array, own: Int64Array) -> Int64Array:
        """Combine codes: private strings, which ``own`` numbers from 0, come after the others."""
        return np.where(own == ABSENT, codes, own + self._size)

    def _check_range(self, codes: Int64Array) -> None:
        if len(codes) and int(codes.max()) >= len(self):
            raise ColumnTypeError(
                f"code {codes.max()} is outside [0, {len(self) - 1}] of {self!r}; "
                "decode with the table that encoded"
            )


def _missing(codes: Int64Array, valid: BoolArray | None) -> BoolArray:
    """A mask of the strings that have no code yet, among those that ``valid`` selects."""
    missing: BoolArray = codes == ABSENT
    return missing if valid is None else missing & valid_mask(valid, len(codes))
