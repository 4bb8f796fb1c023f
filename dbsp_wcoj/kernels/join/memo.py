"""Memoized sums: store the sum over the later levels of a join by the one value it depends on.

In a chain ``r(a, b), s(b, c), t(c, d)`` the sum over c and d depends on b alone, and many values of
a share one b. The kernel stores the sum by (level, value of b) and computes it once::

    sum(b) = Σ over c, d of s(b, c) * t(c, d)

For acyclic queries the work is then bounded by the sizes of the relations and not by the number of
joined rows, as in Yannakakis' algorithm, without a separate plan.

The table is direct-mapped: a new entry overwrites the one at its position. Each entry contains
the number of its join and is valid for that join only, so the table need not be cleared.

Reference: Olteanu, Závodný. Size bounds for factorised representations of query results. TODS
40(1), 2015 (d-representations share what depends on the same values).

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    FIRST_MEMO_ENTRY,
    GENERATION,
    MAX_MEMO_ENTRIES,
    MEMO_ENTRY_WORDS,
    MEMO_KEY,
    MEMO_OWNER,
    MEMO_SUM,
)
from dbsp_wcoj.kernels.memory import load, store

# A join has fewer than 2**LEVEL_BITS levels.
LEVEL_BITS = 16


@inline_subroutine
def entry_position(value, level):
    """Return the position of the entry of a level for a value of the variable it depends on."""
    mixed = (np.uint64(value) + np.uint64(level)) * np.uint64(0x9E3779B97F4A7C15)
    return FIRST_MEMO_ENTRY + MEMO_ENTRY_WORDS * np.int64(
        (mixed >> np.uint64(40)) & np.uint64(MAX_MEMO_ENTRIES - 1)
    )


@inline_subroutine
def owner_tag(memo, level):
    """Return the tag of the entries of a level of the running join."""
    return (load(memo, GENERATION) << LEVEL_BITS) | level


@subroutine
def look_up_sum(memo, level, value):
    """Return ``(is_stored, sum)`` of a level for a value of the variable it depends on."""
    entry = entry_position(value, level)
    is_stored = load(memo, entry + MEMO_OWNER) == owner_tag(memo, level)
    is_stored = is_stored and load(memo, entry + MEMO_KEY) == value
    return is_stored, load(memo, entry + MEMO_SUM)


@subroutine
def memoize_sum(memo, level, value, total):
    """Store the sum of a level for ``value``."""
    entry = entry_position(value, level)
    store(memo, entry + MEMO_KEY, value)
    store(memo, entry + MEMO_OWNER, owner_tag(memo, level))
    store(memo, entry + MEMO_SUM, total)
