"""Small batch: all terms of a step whose result is one weight, in one kernel call.

A term is a product of factors, computed by one join. A step of one row runs one short join per
term, so the overhead of the calls dominates. Therefore one call runs all joins and adds up their
totals::

    total = Σ over the terms of (the total weight of the join of the term)
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.calls import call_join
from dbsp_wcoj.kernels.join.cursors import MAX_INT64, MIN_INT64
from dbsp_wcoj.kernels.join.join_layout import (
    DELTA_INDEX,
    OVERFLOW,
    READS_DELTA,
    SOURCE_WORDS,
    TABLE,
    UNLIMITED_WORK,
)
from dbsp_wcoj.kernels.memory import load, store
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add

# batch[...]
TERMS = 0  # number of terms
DELTAS = 1  # address of the addresses of the delta runs
JOIN_KERNEL = 2  # address of `dbsp_wcoj.kernels.join.join`
FIRST_TERM = 3  # the terms, TERM_WORDS each

# term[...]
PROGRAM = 0
SOURCES = 1
FACTORS = 2  # number of factors
BINARY_JOINS = 3
COUNTERS = 4
EXECUTION_COUNT = 5  # address of the number of executions of the term
TERM_WORDS = 6


@subroutine
def has_empty_factor(sources, factors, deltas):
    """Return whether any factor of a term reads no run."""
    for factor in range(factors):
        source = sources + 8 * SOURCE_WORDS * factor
        table = load(source, TABLE)
        if table != 0 and load(table, 0) != 0:
            continue
        if load(source, READS_DELTA) != 0 and load(deltas, load(source, DELTA_INDEX)) != 0:
            continue
        return True
    return False


@subroutine
def sum_terms(batch, state, bitmap_buffer, memo):
    """Return the sum of the totals of all terms of a batch; see `sum_batch`."""
    deltas = load(batch, DELTAS)
    total = np.int64(0)
    joins = np.int64(0)
    for index in range(load(batch, TERMS)):
        term = batch + 8 * (FIRST_TERM + TERM_WORDS * index)
        sources = load(term, SOURCES)
        if has_empty_factor(sources, load(term, FACTORS), deltas):
            continue
        joins += load(term, BINARY_JOINS)
        execution_count = load(term, EXECUTION_COUNT)
        store(execution_count, 0, load(execution_count, 0) + 1)
        is_resumed, no_rows = np.int64(0), np.int64(0)
        arguments = (load(term, PROGRAM), sources, deltas, MIN_INT64, MAX_INT64, is_resumed)
        more_arguments = (
            state,
            no_rows,
            no_rows,
            bitmap_buffer,
            memo,
            load(term, COUNTERS),
            np.int64(UNLIMITED_WORK),
        )
        status, _, term_total = call_join(load(batch, JOIN_KERNEL), arguments + more_arguments)
        if status == OVERFLOW:
            return OVERFLOWED, joins
        total = add(total, term_total)
    return total, joins


@kernel
def sum_batch(batch, state, bitmap_buffer, memo):
    """Return the sum of the totals of all terms of a batch; all arguments are addresses.

    Returns:
        ``(total, joins)``: the total, `OVERFLOWED` if it or any part of it leaves int64; and the
        number of binary joins of the terms that were evaluated.
    """
    return sum_terms(batch, state, bitmap_buffer, memo)
