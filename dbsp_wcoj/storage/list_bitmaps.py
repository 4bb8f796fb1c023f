"""Bitmaps of the longest lists of a run, in memory, for joins that intersect such lists often.

A *hub* is a value with many rows, such as a vertex with many edges. The list of a hub has the
values of the last column, sorted. An intersection of the lists of two hubs takes time in proportion
to their lengths; with bitmaps it takes one AND for 64 values
(`dbsp_wcoj.kernels.storage.list_bitmaps`).

A list can have a bitmap if it has at least `MIN_LIST_VALUES` values, and the bitmap at most
`WORDS_PER_VALUE` words for each of them. The longest lists get bitmaps, as long as these have
together at most one word for `ROWS_PER_WORD` rows of the run.

The bitmaps are no part of a run's buffer and of no file. They are built for the oldest run of a
spine, which has most of the rows, after joins have read its long lists a few times. A run is
immutable, so the bitmaps stay correct; later rows are in other runs. A merge makes a new run, whose
bitmaps are built again: O(1) amortised for each row that is merged. A run whose long lists no join
reads has no bitmaps.

Alternatives considered: a section of the run's buffer, written by each build and merge. It would
make the first load and all files larger, also where no join meets two hubs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage.list_bitmaps import (
    FIRST_SLOT,
    MIN_LIST_VALUES,
    SHORTEST,
    SLOT_MASK,
    SLOT_WORDS,
    WORDS_PER_VALUE,
    fill_bitmaps,
)
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import MAX_INT64, Int64Array

__all__ = ["build_list_bitmaps", "build_no_bitmaps", "may_have_long_lists"]

# The bitmaps of a run have together at most one word for so many rows: 1.6 bytes for each row.
ROWS_PER_WORD: Final = 5
# The lists of a shorter run are in the cache, and its bitmaps would be built often.
MIN_RUN_ROWS: Final = 2048


def may_have_long_lists(run: Run) -> bool:
    """Return whether a run has enough rows and columns for a list with a bitmap.

    A run that is a memory map of a file has none: it would need memory that no limit can free.
    """
    has_rows = run.rows >= MIN_RUN_ROWS
    return has_rows and run.arity > 1 and not run.is_mapped


def build_list_bitmaps(run: Run) -> Int64Array:
    """Return the bitmaps of the longest lists of a run of at least two columns.

    Complexity:
        O(rows).
    """
    values = run.level_values(run.arity - 1)
    offsets = run.level_offsets(run.arity - 2)
    lists = np.flatnonzero(np.diff(offsets) >= MIN_LIST_VALUES)
    firsts, ends = offsets[lists], offsets[lists + 1]
    words = (values[ends - 1] >> 6) - (values[firsts] >> 6) + 1
    longest = np.argsort(firsts - ends, kind="stable")
    longest = longest[(words <= WORDS_PER_VALUE * (ends - firsts))[longest]]
    longest = longest[np.cumsum(words[longest]) <= run.rows // ROWS_PER_WORD]
    firsts, ends, words = firsts[longest], ends[longest], words[longest]
    slots = 1 << (2 * len(longest)).bit_length()
    word_ends = FIRST_SLOT + SLOT_WORDS * slots + np.cumsum(words)
    size = int(word_ends[-1]) if len(longest) else FIRST_SLOT + SLOT_WORDS * slots
    bitmaps = np.zeros(size, np.int64)
    bitmaps[SLOT_MASK] = slots - 1
    bitmaps[SHORTEST] = (ends - firsts).min(initial=MAX_INT64)
    fill_bitmaps(bitmaps, run.leaf_address, firsts, ends, word_ends - words)
    return bitmaps


def build_no_bitmaps() -> Int64Array:
    """Return bitmaps for a run of which no list has one."""
    bitmaps = np.zeros(FIRST_SLOT + SLOT_WORDS, np.int64)
    bitmaps[SHORTEST] = MAX_INT64
    return bitmaps
