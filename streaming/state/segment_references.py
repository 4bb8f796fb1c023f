"""Segment references: where the parts of an arrangement or dictionary are, and when they merge.

An arrangement is the sum of its parts; a dictionary is the concatenation of its parts. Each part is
in a segment file (`streaming.state.segment`), and each step adds one. The *level* of a part
is the logarithm of its rows to the base `LEVEL_FANOUT`. From the oldest part to the newest the
levels never rise, and a level has fewer than `LEVEL_FANOUT` parts. A new part is merged with the
parts before it that have a lower level. When a level is full, its parts are merged to one part of
the next level. So a row is written once per level::

    writes per row <= 1 + log_FANOUT(rows / rows per step)      parts <= (FANOUT - 1) · levels

There are a few more parts while a large merge is postponed (`streaming.state.writer`) or runs in
the background (`streaming.state.compaction`).

This is tiering (O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996, with the
lazy merging of Bigtable). The list of runs in memory (the spine) merges earlier, because each
look-up searches all runs. A file is read only at a restart, so writing less is more important.
Hence the parts on disk differ from the runs in memory, and only their sums are equal.

With a memory limit, look-ups search the large parts, in maps of their files. Then the compactor
also merges neighbouring large parts (`find_large_neighbours`), as long as no level is full. A row
is written at most ``LARGE_PART_GROWTH`` times more for each level that is large.

The cells of a distributed circuit map their large parts, too, and have no compactor. There a large
new part is also merged with each part before it that has at most ``MAPPED_PART_GROWTH`` times its
rows (`neighbour_counts`). Of n rows in steps of k rows, look-ups then search at most
``log2(n / k) + 1`` large parts, and a row is written at most about as often.

When values are removed from a dictionary in memory (`circuits.state.dictionary_sweep`), its parts
still have them. They are replaced by one part with the remaining values (`has_removed_values`). If
the process ends before, the values are loaded again, and the next sweep removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "LEVEL_FANOUT",
    "SegmentReference",
    "StateKey",
    "count_merged_parts",
    "find_full_level",
    "find_large_neighbours",
    "has_removed_values",
    "merge_counts",
    "neighbour_counts",
]

LEVEL_FANOUT: Final = 8
# A part with a smaller share of the rows than one in this many is not large.
LARGE_PART_DIVISOR: Final = 64
# Large parts are merged if the older one has at most this many times the rows of the newer one.
LARGE_PART_GROWTH: Final = 8
# Without a compactor, large mapped parts are merged if the older one has at most this many times
# the rows of the newer one.
MAPPED_PART_GROWTH: Final = 2
# A dictionary is written again if at least one in this many of its values, or bytes, was removed.
MIN_REMOVED_SHARE: Final = 4

#: The name of an arrangement's relation and its column order; or the name of a dictionary and None.
StateKey = tuple[str, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class SegmentReference:
    """The location of a part.

    Attributes:
        file: The segment.
        position: The position of the part in the segment.
        rows: The number of rows, or strings, in the part.
        size: The number of bytes of the part.
        stored_name: The name of the part in the segment, if the arrangement or dictionary has got
            another name since (`streaming.distributed.stage_reuse`); else empty.
    """

    file: str
    position: int
    rows: int
    size: int
    stored_name: str = ""


def has_removed_values(references: Sequence[SegmentReference], count: int, byte_count: int) -> bool:
    """Return whether to write a dictionary again, because many of its values were removed.

    Args:
        references: The parts of the dictionary.
        count: The number of values that remain of those in the parts.
        byte_count: Their bytes.

    >>> part = SegmentReference("a", 0, rows=100, size=2000)
    >>> has_removed_values([part], 90, 500), has_removed_values([part], 70, 500)
    (False, True)
    """
    stored = sum(reference.rows for reference in references)
    # A remaining value has 16 bytes for its end and its code, and its own bytes.
    size = sum(reference.size for reference in references)
    removed, removed_bytes = stored - count, size - 16 * count - byte_count
    share = MIN_REMOVED_SHARE
    return removed > 0 and (share * removed >= stored or share * removed_bytes >= size)


def size_level(rows: int) -> int:
    """Return the level of a part: the logarithm of its rows to base 8, rounded down.

    >>> size_level(0), size_level(7), size_level(8), size_level(4096)
    (0, 0, 1, 4)
    """
    return (max(rows, 1).bit_length() - 1) // 3  # 3 = log2(LEVEL_FANOUT)


def merge_counts(rows: Sequence[int], new_rows: int) -> Iterator[int]:
    """Yield how many of the newest parts may be merged with a new part: level by level, ascending.

    Args:
        rows: The number of rows of each existing part, oldest first.
        new_rows: The number of rows of the new part.

    >>> list(merge_counts([*[100] * 7, *[9] * 7], 9))
    [7, 14]
    """
    first_merged = len(rows)
    merged_rows = new_rows
    while first_merged > 0:
        level = size_level(merged_rows)
        first_of_level = first_merged
        if size_level(rows[first_merged - 1]) < level:
            first_of_level -= 1
        else:
            while first_of_level > 0 and size_level(rows[first_of_level - 1]) == level:
                first_of_level -= 1
            if first_merged - first_of_level < LEVEL_FANOUT - 1:
                return  # the level is not full
        merged_rows += sum(rows[first_of_level:first_merged])
        first_merged = first_of_level
        yield len(rows) - first_merged


def neighbour_counts(rows: Sequence[int], new_rows: int) -> Iterator[int]:
    """Yield how many of the newest parts are merged with a large new part, ascending.

    Args:
        rows: The number of rows of each existing part, oldest first.
        new_rows: The number of rows of the new part.

    >>> list(neighbour_counts([400, 100, 50], 50)), list(neighbour_counts([400, 100, 50], 20))
    ([1, 2, 3], [])
    """
    merged_rows = new_rows
    for count, older_rows in enumerate(reversed(rows), 1):
        if older_rows > MAPPED_PART_GROWTH * merged_rows:
            return
        merged_rows += older_rows
        yield count


def count_merged_parts(rows: Sequence[int], new_rows: int) -> int:
    """Return how many of the newest parts are merged with a new part.

    Args:
        rows: The number of rows of each existing part, oldest first.
        new_rows: The number of rows of the new part.

    >>> count_merged_parts([100, 100], 10)
    0
    >>> count_merged_parts([100, 7], 10)
    1
    >>> count_merged_parts([1000, 9, 9, 9, 9, 9, 9, 9], 9)
    7
    """
    return max(merge_counts(rows, new_rows), default=0)


def find_large_neighbours(rows: Sequence[int]) -> tuple[int, int] | None:
    """Return the neighbouring parts to merge, so that few parts have almost all rows.

    A part is large if it has at least ``1 / LARGE_PART_DIVISOR`` of all rows. After all merges, a
    large part has more than `LARGE_PART_GROWTH` times the rows of the newer large one.

    Args:
        rows: The number of rows of each part, oldest first.

    Returns:
        As `find_full_level`; None if no merge is due.

    >>> find_large_neighbours([8000, 1000, 1000, 9]), find_large_neighbours([9000, 1000, 100])
    ((0, 3), None)
    """
    least = sum(rows) / LARGE_PART_DIVISOR
    last = max((i for i, count in enumerate(rows) if count >= least), default=0)
    while last > 0:
        first, total = last, rows[last]
        while first > 0 and rows[first - 1] <= LARGE_PART_GROWTH * total:
            first -= 1
            total += rows[first]
        if first < last:
            return first, last + 1
        last -= 1
    return None


def find_full_level(rows: Sequence[int]) -> tuple[int, int] | None:
    """Return the neighbouring parts to merge into one; None if no level is full.

    Args:
        rows: The number of rows of each part, oldest first.

    Returns:
        The position of the oldest part to merge, and that after the newest. If several levels are
        full, they are those of the newest parts.

    >>> find_full_level([100, 100, 10]) is None
    True
    >>> find_full_level([9, 100]), find_full_level([1000, *[9] * 8, 2])
    ((0, 2), (1, 9))
    """
    for last in range(len(rows) - 1, 0, -1):
        count = count_merged_parts(rows[:last], rows[last])
        if count:
            return last - count, last + 1
    return None
