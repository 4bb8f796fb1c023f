"""An overlay: the first strings of an interner, with private strings after them.

An interner is a dictionary: it maps each string to an integer code (`dbsp_wcoj.values.interner`).
The codes of an overlay are::

    codes below length        the strings that the interner had when it was shared
    codes length, …           private strings, which only this overlay has

Each reader gets an overlay. With it, the reader decodes stored values, and encodes the values that
it compares or computes, while another thread adds to the interner. The strings that the reader adds
are freed together with the overlay.

Invariant: the arrays that an overlay refers to keep its shared strings in place while strings are
added to the interner, or removed from it down to ``length``. A sweep (`dbsp_wcoj.values.sweep`)
replaces the arrays of the interner and leaves those of overlays as they are. So an overlay copies
nothing and takes O(1) to create.

Alternatives considered: a lock around the interner, with which every query would wait for every
step; a copy per reader, which costs as much as the interner itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.interner import (
    ABSENT,
    BoolArray,
    Bytes,
    Int64Array,
    Interner,
    InternerArrays,
    valid_mask,
)

__all__ = ["InternerOverlay"]


class InternerOverlay(Interner):
    """The shared strings of an interner, with private strings after them.

    `arena`, `slices` and `share` return the shared strings only, and an overlay is never swept.

    Only one thread at a time may add to an overlay. As long as the overlay is in use, no thread may
    truncate the interner to fewer strings than the shared ones.

    Args:
        shared: The strings, from `Interner.share`; another thread may add to the interner.

    >>> names = Interner()
    >>> names.intern(np.array([0, 3]), np.frombuffer(b"ann", np.uint8)).tolist()
    [0]
    >>> mine = InternerOverlay(names.share())
    >>> mine.intern(np.array([0, 3, 6]), np.frombuffer(b"bobann", np.uint8)).tolist()
    [1, 0]
    >>> mine.gather(np.array([1, 0]))[1].tobytes(), len(mine), len(names)
    (b'bobann', 2, 1)
    """

    __slots__ = ("_private",)

    def __init__(self, shared: InternerArrays) -> None:
        self._slots, self._bounds, self._arena, self._words, self._size, self._code_map = shared
        self._sweep = None
        self.removals = 0
        self._private = Interner(words=self._words)

    def __len__(self) -> int:
        """The next code, after those of private strings."""
        return self._next_code + len(self._private)

    def __repr__(self) -> str:
        return f"<InternerOverlay of {self.string_count} strings>"

    @property
    def string_count(self) -> int:
        """The number of strings, including private ones."""
        return self._size + len(self._private)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are allocated for private strings."""
        return self._private.nbytes

    def find(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Like `Interner.find`; also searches the private strings."""
        codes = super().find(offsets, data, valid)
        if not len(self._private):
            return codes
        private_codes = self._private.find(offsets, data, _missing(codes, valid))
        return self._with_private_codes(codes, private_codes)

    def intern(self, offsets: Any, data: Any, valid: BoolArray | None = None) -> Int64Array:
        """Like `Interner.intern`; adds new strings as private strings."""
        codes = super().find(offsets, data, valid)
        missing = _missing(codes, valid)
        if not missing.any():
            return codes
        return self._with_private_codes(codes, self._private.intern(offsets, data, missing))

    def intern_rows(self, columns: Any, out: Int64Array | None = None) -> Int64Array:
        """Like `Interner.intern_rows`; adds new rows as private rows."""
        codes = self.find_rows(columns)
        missing = codes == ABSENT
        if missing.any():
            new_codes = self._private.intern_rows(np.asarray(columns)[:, missing])
            codes[missing] = new_codes + self._next_code
            self._words = len(columns)
        if out is None:
            return codes
        out[:] = codes
        return out

    def find_rows(self, columns: Any) -> Int64Array:
        """Like `Interner.find_rows`; also searches the private rows."""
        return self.find(*self._rows_to_strings(columns))

    def rows(self, codes: Int64Array) -> Int64Array:
        """Like `Interner.rows`."""
        is_private = codes >= self._next_code
        if not is_private.any():
            return super().rows(codes)
        self._check_range(codes)
        columns = super().rows(np.where(is_private, ABSENT, codes))
        columns[:, is_private] = self._private.rows(codes[is_private] - self._next_code)
        return columns

    def gather(self, codes: Int64Array) -> tuple[Int64Array, Bytes]:
        """Like `Interner.gather`."""
        is_private = codes >= self._next_code
        if not is_private.any():
            return super().gather(codes)
        self._check_range(codes)
        # A code that is absent has no bytes, so the offsets of both kinds of strings add up.
        shared_codes = np.where(is_private, ABSENT, codes)
        private_codes = np.where(is_private, codes - self._next_code, ABSENT)
        shared_offsets, private_offsets = np.empty((2, len(codes) + 1), np.int64)
        self.write_offsets(shared_codes, shared_offsets)
        self._private.write_offsets(private_codes, private_offsets)
        offsets: Int64Array = shared_offsets + private_offsets
        data = np.empty(int(offsets[-1]), np.uint8)
        self.write_strings(shared_codes, offsets, data)
        self._private.write_strings(private_codes, offsets, data)
        return offsets, data

    def prefixes(self, codes: Int64Array, start: int = 0) -> Int64Array:
        """Like `Interner.prefixes`."""
        is_private = codes >= self._next_code
        if not is_private.any():
            return super().prefixes(codes, start)
        self._check_range(codes)
        keys = super().prefixes(np.where(is_private, ABSENT, codes), start)
        keys[is_private] = self._private.prefixes(codes[is_private] - self._next_code, start)
        return keys

    def hashes(self, codes: Int64Array) -> Int64Array:
        """Like `Interner.hashes`."""
        is_private = codes >= self._next_code
        self._check_range(codes)
        hashes = super().hashes(np.where(is_private, ABSENT, codes))
        hashes[is_private] = self._private.hashes(codes[is_private] - self._next_code)
        return hashes

    def append(self, offsets: Any, data: Any) -> None:
        """Not supported by an overlay.

        Raises:
            ColumnTypeError: Always.
        """
        raise ColumnTypeError("an overlay is for reading; append to its interner")

    def load(self, parts: Iterable[CodedStrings], next_code: int = 0) -> None:
        """Not supported by an overlay.

        Raises:
            ColumnTypeError: Always.
        """
        raise ColumnTypeError("an overlay is for reading; load its interner")

    def truncate(self, length: int) -> None:
        """Remove the private strings whose codes are ``length`` or greater.

        Raises:
            ColumnTypeError: ``length`` is less than the first private code.
        """
        if length < self._next_code:
            raise ColumnTypeError(
                f"length {length} is too small: an overlay keeps the codes below "
                f"{self._next_code}, which belong to its interner"
            )
        self._private.truncate(length - self._next_code)
        self.removals += 1

    def _check_range(self, codes: Int64Array) -> None:
        if len(codes) and int(codes.max()) >= len(self):
            raise ColumnTypeError(
                f"code {codes.max()} is outside [0, {len(self) - 1}] of {self!r}; "
                "decode with the interner that encoded them"
            )

    def _with_private_codes(self, codes: Int64Array, private_codes: Int64Array) -> Int64Array:
        """The given codes, replaced by private ones (from 0) where these are not absent."""
        return np.where(private_codes == ABSENT, codes, private_codes + self._next_code)


def _missing(codes: Int64Array, valid: BoolArray | None) -> BoolArray:
    """A mask of the strings that have no code yet, among those that ``valid`` selects."""
    missing: BoolArray = codes == ABSENT
    return missing if valid is None else missing & valid_mask(valid, len(codes))
