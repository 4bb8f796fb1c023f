"""String parts: reads and writes the strings of a dictionary a slice at a time.

A dictionary is stored in parts. A part of n strings has int64 words, namely n + 1 offsets followed
by n codes, and the bytes of the strings (`streaming.state.segment`). If the codes are consecutive,
only the first one is stored. The file of a part may be mapped and larger than memory. So a
`StoredStrings` yields slices that are views of the part, and `encode_strings` writes a file from
slices, with the memory of one slice.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.values.coded_strings import CodedStrings
from streaming.state.files import Bytes
from streaming.state.segment import MIN_CHUNK_BYTES, Int64Array, SegmentPart, encode_segment

__all__ = ["STRINGS_PER_SLICE", "EncodedStrings", "Slices", "StoredStrings", "encode_strings"]

STRINGS_PER_SLICE: Final = 1 << 18

#: Returns a new iterator over the slices; each call returns the same slices.
Slices = Callable[[], Iterator[CodedStrings]]


class StoredStrings:
    """The strings of some parts of a dictionary; iterate it to read them in slices.

    The offsets of a slice are copies, and its bytes are a view of the part.

    Args:
        parts: Each part, and the number of its strings.
        release_pages: Called after each slice, to remove the pages of maps from memory.

    >>> words, data = np.array([0, 1, 3, 4]), np.frombuffer(b"abb", np.uint8)
    >>> [strings] = StoredStrings([(SegmentPart("text", words, data), 2)])
    >>> strings.offsets.tolist(), strings.data.tobytes(), strings.codes.tolist()
    ([0, 1, 3], b'abb', [4, 5])
    """

    def __init__(
        self,
        parts: Sequence[tuple[SegmentPart, int]],
        release_pages: Callable[[], None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._release_pages = release_pages

    def __iter__(self) -> Iterator[CodedStrings]:
        """Yield the strings, in the order of their codes."""
        for part, count in self._parts:
            for first in range(0, max(count, 1), STRINGS_PER_SLICE):
                yield _slice(part, count, first, min(first + STRINGS_PER_SLICE, count))
                self._release_pages()

    @property
    def are_valid(self) -> bool:
        """True if each part has its number of strings, and its offsets and codes ascend; O(n)."""
        for part, count in self._parts:
            words, length = part.words, len(part.bytes)
            is_consecutive = count > 0 and len(words) == count + 2
            if not is_consecutive and len(words) != 2 * count + 1:
                return False
            if words[0] != 0 or words[count] != length:
                return False
            if not _is_ascending(words[: count + 1], is_strict=False):
                return False
            codes = words[count + 1 :]
            if len(codes) and (codes[0] < 0 or not _is_ascending(codes, is_strict=True)):
                return False
            if is_consecutive and codes[0] > np.iinfo(np.int64).max - count:
                return False
        return True


class EncodedStrings(NamedTuple):
    """A file with one part of a dictionary.

    Attributes:
        rows: The number of strings.
        size: The number of bytes of the part.
        chunks: The bytes of the file; they can be read more than once.
    """

    rows: int
    size: int
    chunks: Iterable[Bytes]


def encode_strings(name: str, slices: Slices) -> EncodedStrings:
    """Encode strings as a file with one part, as `encode_segment` does with `string_part`.

    Args:
        name: The name of the dictionary.
        slices: Returns an iterator over the strings, with ascending codes.

    Complexity:
        O(n + bytes) time, and the memory of one slice. This call reads the slices at most four
        times, and each iteration over the chunks reads them at most three times.
    """
    count = byte_count = last_code = 0
    first_code: int | None = None
    for strings in slices():
        count += len(strings.codes)
        byte_count += int(strings.offsets[-1])
        if len(strings.codes):
            first_code = int(strings.codes[0]) if first_code is None else first_code
            last_code = int(strings.codes[-1])
    is_consecutive = first_code is not None and last_code - first_code == count - 1

    def words() -> Iterator[Int64Array]:
        yield np.zeros(1, np.int64)
        end = 0
        for strings in slices():
            yield strings.offsets[1:] + end
            end += int(strings.offsets[-1])
        if is_consecutive:
            yield np.array([first_code])
        else:
            for strings in slices():
                yield strings.codes

    def data() -> Iterator[Bytes]:
        for strings in slices():
            yield strings.data[: strings.offsets[-1]]

    word_count = count + 1 + (1 if is_consecutive else count)
    size = 8 * word_count + byte_count
    return EncodedStrings(count, size, _Chunks(name, (8 * word_count, words), (byte_count, data)))


class _Chunks:
    """The chunks of a file with one part; large contents are produced only while they are iterated.

    Arrow needs arrays to encode a file. In place of large contents, it gets a placeholder: reserved
    memory of the same size. The placeholder is never read, so the system supplies no pages for it.

    Args:
        name: The name of the part.
        words: The size of the words in bytes, and a function that yields them in pieces.
        data: The size of the bytes of the strings, and a function that yields them in pieces.
    """

    def __init__(
        self,
        name: str,
        words: tuple[int, Callable[[], Iterator[Bytes]]],
        data: tuple[int, Callable[[], Iterator[Bytes]]],
    ) -> None:
        arrays = []
        self._pieces = []
        for size, pieces in (words, data):
            if size < MIN_CHUNK_BYTES:
                content = np.frombuffer(b"".join(pieces()), np.uint8)
            else:
                content = np.frombuffer(
                    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ), np.uint8
                )
                self._pieces.append((content, pieces))
            arrays.append(content)
        part = SegmentPart(name, arrays[0].view(np.int64), arrays[1])
        self._chunks = encode_segment([part])

    def __iter__(self) -> Iterator[Bytes]:
        for chunk in self._chunks:
            memory = np.frombuffer(chunk, np.uint8)
            for placeholder, pieces in self._pieces:
                if np.shares_memory(memory, placeholder):
                    yield from pieces()
                    break
            else:
                yield chunk


def _slice(part: SegmentPart, count: int, first: int, end: int) -> CodedStrings:
    """Return the strings from ``first`` to ``end - 1`` of a part with ``count`` strings."""
    offsets, codes = part.words[first : end + 1], part.words[count + 1 :]
    if count and len(codes) == 1:
        codes = np.arange(codes[0] + first, codes[0] + end)
    else:
        codes = codes[first:end]
    return CodedStrings(offsets - offsets[0], part.bytes[offsets[0] : offsets[-1]], codes)


def _is_ascending(words: Int64Array, *, is_strict: bool) -> bool:
    """Return whether words ascend; O(words) time, and the memory of one slice."""
    for first in range(0, len(words) - 1, STRINGS_PER_SLICE):
        part = words[first : first + STRINGS_PER_SLICE + 1]
        if not (part[1:] > part[:-1] if is_strict else part[1:] >= part[:-1]).all():
            return False
    return True
