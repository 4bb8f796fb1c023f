"""Sums that are remembered: the rest of a join depends on one bound value more often than not.

In a chain ``r(a, b), s(b, c), t(c, d)`` the sum over c and d depends on b alone, which many a have.
The kernel keeps it by (level, value of b) and does not walk the tails again: for acyclic queries
the work is then bounded by the relations and not by the rows of the join, as with the
passed-up messages of Yannakakis, and without a plan of its own.

Direct-mapped: an entry is overwritten by the next one that falls on it. Entries carry the number of
the running join, so that nothing has to be erased; they are valid for one join only.

Reference: Olteanu, Závodný. Size bounds for factorised representations of query results. TODS
40(1), 2015 (d-representations share what depends on the same values).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    FIRST_MEMO_ENTRY,
    GENERATION,
    MAX_MEMO_ENTRIES,
    MEMO_SUM,
    MEMO_KEY,
    MEMO_OWNER,
    MEMO_ENTRY_WORDS,
)
from dbsp_wcoj.kernels.memory import load, store

# Levels of a join are fewer.
LEVEL_BITS = 16


@inline_subroutine
def entry_position(value, level):
    """Where the sum of a level for a value of its separator is kept."""
    mixed = (np.uint64(value) + np.uint64(level)) * np.uint64(0x9E3779B97F4A7C15)
    return FIRST_MEMO_ENTRY + MEMO_ENTRY_WORDS * np.int64(
        (mixed >> np.uint64(40)) & np.uint64(MAX_MEMO_ENTRIES - 1)
    )


@inline_subroutine
def owner_tag(memo, level):
    """What marks the entries of a level of the running join."""
    return (load(memo, GENERATION) << LEVEL_BITS) | level


@subroutine
def look_up_sum(memo, level, value):
    """Return whether the sum is remembered, and it."""
    entry = entry_position(value, level)
    found = load(memo, entry + MEMO_OWNER) == owner_tag(memo, level)
    found = found and load(memo, entry + MEMO_KEY) == value
    return found, load(memo, entry + MEMO_SUM)


@subroutine
def memoize_sum(memo, level, value, total):
    """Keep a sum."""
    entry = entry_position(value, level)
    store(memo, entry + MEMO_KEY, value)
    store(memo, entry + MEMO_OWNER, owner_tag(memo, level))
    store(memo, entry + MEMO_SUM, total)
