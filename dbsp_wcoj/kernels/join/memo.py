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

from dbsp_wcoj.kernels.compiled import inlined, subroutine
from dbsp_wcoj.kernels.join.program import (
    FIRST_SUM,
    GENERATION,
    MOST_SUMS,
    SUM,
    SUM_KEY,
    SUM_OWNER,
    SUM_WORDS,
)
from dbsp_wcoj.kernels.memory import load, store

# Levels of a join are fewer.
LEVELS_BITS = 16


@inlined
def entry_of(value, level):
    """Where the sum of a level for a value of its separator is kept."""
    mixed = (np.uint64(value) + np.uint64(level)) * np.uint64(0x9E3779B97F4A7C15)
    return FIRST_SUM + SUM_WORDS * np.int64((mixed >> np.uint64(40)) & np.uint64(MOST_SUMS - 1))


@inlined
def owner_of(sums, level):
    """What marks the entries of a level of the running join."""
    return (load(sums, GENERATION) << LEVELS_BITS) | level


@subroutine
def recall(sums, level, value):
    """Return whether the sum is remembered, and it."""
    entry = entry_of(value, level)
    found = load(sums, entry + SUM_OWNER) == owner_of(sums, level)
    found = found and load(sums, entry + SUM_KEY) == value
    return found, load(sums, entry + SUM)


@subroutine
def remember(sums, level, value, total):
    """Keep a sum."""
    entry = entry_of(value, level)
    store(sums, entry + SUM_KEY, value)
    store(sums, entry + SUM_OWNER, owner_of(sums, level))
    store(sums, entry + SUM, total)
