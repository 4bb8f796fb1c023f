"""Pieces: which files hold an arrangement or a table, and when they become one.

The history of an arrangement is the sum of its pieces, oldest first; the values of a table are its
pieces end to end. Every step adds one. The *level* of a piece is the logarithm of its rows to the
base `FAN`; levels never rise from one piece to the next, and there are fewer than `FAN` of a level.
A new piece takes in the smaller ones right before it, and when a level is full its pieces become
one of the next level. So a row is written once per level::

    writes per row <= 1 + log_FAN(rows / rows per step)      pieces <= (FAN - 1) · levels

and a few pieces more for as long as a large sum is put off (`streaming.state.writer`).

This is tiering (O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996, with the
lazy merging of Bigtable). The spine in memory merges earlier, by its `GROWTH_FACTOR`, because every
look-up searches its runs; a file is read once, at a restart, so it pays to write less. Hence
what is on disk is not what is in memory piece by piece, only in sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FAN", "SegmentReference", "taken_in"]

FAN: Final = 8


@dataclass(frozen=True, slots=True)
class SegmentReference:
    """A piece in a file: which row of the segment, how many rows of data, how many bytes."""

    file: str
    row: int
    rows: int
    size: int


def level(rows: int) -> int:
    """The logarithm of a number of rows, rounded down.

    >>> level(0), level(7), level(8), level(4096)
    (0, 0, 1, 4)
    """
    return (max(rows, 1).bit_length() - 1) // 3


def taken_in(rows: Sequence[int], new: int) -> int:
    """How many of the newest pieces a new one takes in.

    Args:
        rows: The rows of the pieces so far, oldest first.
        new: The rows of the new piece.

    >>> taken_in([100, 100], 10)
    0
    >>> taken_in([100, 7], 10)
    1
    >>> taken_in([1000, 9, 9, 9, 9, 9, 9, 9], 9)
    7
    """
    first = len(rows)
    total = new
    while first > 0:
        top = level(total)
        if level(rows[first - 1]) < top:
            first -= 1
            total += rows[first]
            continue
        same = first
        while same > 0 and level(rows[same - 1]) == top:
            same -= 1
        if first - same < FAN - 1:
            break
        total += sum(rows[same:first])
        first = same
    return len(rows) - first
