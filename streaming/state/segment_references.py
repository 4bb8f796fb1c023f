"""Segment references: the segments of an arrangement or dictionary, and when they are merged.

The state of an arrangement is the sum of its parts, oldest first; a dictionary is its parts end to
end. Each part is a row of a segment file, and each step adds one. The *level* of a part is the
logarithm of its rows to the base `LEVEL_FANOUT`. Levels never rise from one part to the next, and a
level has fewer than `LEVEL_FANOUT` parts. A new part absorbs the smaller ones right before it, and
when a level is full its parts become one part of the next level. So a row is written once per
level::

    writes per row <= 1 + log_FANOUT(rows / rows per step)      parts <= (FANOUT - 1) · levels

There are a few parts more while a large merge is postponed (`streaming.state.writer`).

This is tiering (O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996, with the
lazy merging of Bigtable). The spine in memory merges earlier, by its `GROWTH_FACTOR`, because each
look-up searches its runs. A file is read once, at a restart, so it pays to write less. Hence the
parts on disk differ from the runs in memory, and only their sums are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["LEVEL_FANOUT", "SegmentReference", "count_merged_parts"]

LEVEL_FANOUT: Final = 8


@dataclass(frozen=True, slots=True)
class SegmentReference:
    """A part in a segment file: its row in the segment, its rows of data, its bytes."""

    file: str
    row: int
    rows: int
    size: int


def size_level(rows: int) -> int:
    """Return the level of a part: the logarithm of its rows, rounded down.

    >>> size_level(0), size_level(7), size_level(8), size_level(4096)
    (0, 0, 1, 4)
    """
    return (max(rows, 1).bit_length() - 1) // 3


def count_merged_parts(rows: Sequence[int], new: int) -> int:
    """Return how many of the newest parts are merged into a new one.

    Args:
        rows: The rows of the existing parts, oldest first.
        new: The rows of the new part.

    >>> count_merged_parts([100, 100], 10)
    0
    >>> count_merged_parts([100, 7], 10)
    1
    >>> count_merged_parts([1000, 9, 9, 9, 9, 9, 9, 9], 9)
    7
    """
    first = len(rows)
    total = new
    while first > 0:
        top = size_level(total)
        if size_level(rows[first - 1]) < top:
            first -= 1
            total += rows[first]
            continue
        same = first
        while same > 0 and size_level(rows[same - 1]) == top:
            same -= 1
        if first - same < LEVEL_FANOUT - 1:
            break
        total += sum(rows[same:first])
        first = same
    return len(rows) - first
