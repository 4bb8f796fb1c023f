"""All products of a step that has no rows to list, by one call.

A step of one row runs one short join for each term. What that costs is calls, so one call runs all
of them and adds up their totals.
"""

import numpy as np

from dbsp_wcoj.kernels.compiled import compiled, subroutine
from dbsp_wcoj.kernels.join.calls import call_join
from dbsp_wcoj.kernels.join.cursors import HIGHEST, LOWEST
from dbsp_wcoj.kernels.join.program import (
    DELTA,
    NO_PAUSE,
    OVERFLOW,
    SOURCE_WORDS,
    TABLE,
    WITH_DELTA,
)
from dbsp_wcoj.kernels.memory import load, store
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add

# batch[...]: the number of terms, the addresses of the deltas and of the kernel
# `dbsp_wcoj.kernels.join.join`, then for each term:
TERMS = 0
DELTAS = 1
JOIN = 2
FIRST_TERM = 3
PROGRAM = 0
SOURCES = 1
FACTORS = 2
JOINS = 3
COUNTERS = 4
RUNS = 5  # address of the count of its runs
TERM_WORDS = 6


@subroutine
def is_zero(sources, factors, deltas):
    """Return whether a factor of a product reads no run at all."""
    for factor in range(factors):
        source = sources + 8 * SOURCE_WORDS * factor
        table = load(source, TABLE)
        if table != 0 and load(table, 0) != 0:
            continue
        if load(source, WITH_DELTA) != 0 and load(deltas, load(source, DELTA)) != 0:
            continue
        return True
    return False


@subroutine
def total_of(batch, state, marks, sums):
    """Add up the totals of all products of a batch; see `join_totals`."""
    deltas = load(batch, DELTAS)
    total = np.int64(0)
    joins = np.int64(0)
    for index in range(load(batch, TERMS)):
        term = batch + 8 * (FIRST_TERM + TERM_WORDS * index)
        sources = load(term, SOURCES)
        if is_zero(sources, load(term, FACTORS), deltas):
            continue
        joins += load(term, JOINS)
        store(load(term, RUNS), 0, load(load(term, RUNS), 0) + 1)
        start, no_rows = np.int64(0), np.int64(0)
        asked = (load(term, PROGRAM), sources, deltas, LOWEST, HIGHEST, start)
        room = (state, no_rows, no_rows, marks, sums, load(term, COUNTERS), np.int64(NO_PAUSE))
        status, _, part = call_join(load(batch, JOIN), asked + room)
        if status == OVERFLOW:
            return OVERFLOWED, joins
        total = add(total, part)
    return total, joins


@compiled
def join_totals(batch, state, marks, sums):
    """Add up the totals of all products of a batch; all arguments are addresses.

    Returns:
        ``(total, joins)``: the total, `OVERFLOWED` if it or a part of it leaves int64, and the
        binary joins of the products that are not zero.
    """
    return total_of(batch, state, marks, sums)
