"""Semijoin step: a small step of a relation that is reduced by semijoins, in one kernel call.

A semijoin selects the rows of a relation, the full relation, whose values are in certain unary
relations. These rows are a reduced relation (`dbsp_wcoj.execution.semijoins`). A full relation has
one or more of them, and the query reads these only. The result of the step is one weight::

    for each semijoin:   delta = the rows that it keeps;   run in each column order = sort(delta)
    total = Σ over the terms of the delta formula, each of which is a join of its factors
    log += rows;   for each semijoin: newest runs (tails) of its spines += runs

Most rows of a relation are kept by no semijoin, so most steps of one row only append it to the log
of the full relation (`dbsp_wcoj.kernels.storage.row_log`). If a status says that the step failed,
neither the log nor a spine has changed. The runs that were built remain in the arena, unused.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.join.small_batch import sum_terms
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load, store
from dbsp_wcoj.kernels.storage.arena import (
    FREE,
    MAX_SMALL_ROWS,
    ORDERS,
    RUN,
    TABLE,
    add_runs,
    build_runs,
    has_room,
    order_entry,
)
from dbsp_wcoj.kernels.storage.row_log import append_rows, can_append
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.semijoin import (
    count_rows,
    largest_weight,
    needed_bits,
    test_rows,
)
from dbsp_wcoj.kernels.storage.spine import WEIGHT_BOUND
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED

# addresses[...]
BATCH = 0  # the terms: `dbsp_wcoj.kernels.join.small_batch`
DELTAS = 1  # the addresses of the delta runs
STATE = 2  # the memory that the joins write to
BITMAP_BUFFER = 3
MEMO = 4
LOG = 5  # the log of the full relation
FIRST_REDUCED = 6  # the address of the words of each reduced relation

# reduced[...]
ARENA = 0
DELTA_SLOTS = 1  # for each column order of the arena, the index of its run in ``deltas``, or -1

MAX_WEIGHT_BOUND = (1 << 63) - 1

# Status of a step:
# - DONE.
# - SETTLE: done, and the caller must do pending merges, because the newest run of a spine is full.
# - ARENA_FULL: failed, because the arena of a reduced relation is too small. The total is the index
#   of this relation. The caller starts a new buffer for the arena and repeats the step.
# - NOT_SMALL: failed, because there are too many rows, or a weight or the total may not fit in
#   int64. The caller takes the general path.
DONE, SETTLE, ARENA_FULL, NOT_SMALL = range(4)


@subroutine
def build_delta(reduced, deltas, columns, weights):
    """Build the runs of a reduced relation's delta; return whether all weights surely fit in int64.

    Args:
        reduced: Address of the words of the reduced relation.
        deltas: Address of the addresses of the delta runs.
        columns: int64, shape ``(arity, n)``, the sorted rows of the delta; n is at least 1.
        weights: int64, shape ``(n,)``.
    """
    arena = load(reduced, ARENA)
    store(arena, FREE, load(arena, FREE) + build_runs(arena, columns, weights))
    fits = True
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        run = load(entry, RUN)
        bound = load(load(entry, TABLE), WEIGHT_BOUND)
        fits &= bound <= MAX_WEIGHT_BOUND - load(run, MAX_ABS_WEIGHT)
        slot = load(reduced, DELTA_SLOTS + index)
        if slot >= 0:
            store(deltas, slot, run)
    return fits


@subroutine
def clear_slots(reduced, deltas):
    """Set the slots of a reduced relation to 0: its delta is empty."""
    for index in range(load(load(reduced, ARENA), ORDERS)):
        slot = load(reduced, DELTA_SLOTS + index)
        if slot >= 0:
            store(deltas, slot, 0)


@kernel
def semijoin_step(addresses, columns, weights, filters):
    """Apply the rows of one step.

    Args:
        addresses: Address of the words that the constants ``addresses[...]`` describe.
        columns: int64, shape ``(arity, n)``, sorted and distinct rows of the full relation.
        weights: int64, shape ``(n,)``.
        filters: The semijoins, in the order of the reduced relations
            (`dbsp_wcoj.kernels.storage.semijoin`).

    Returns:
        ``(status, total, joins)``: a status from above; the change of the result's weight; and the
        number of binary joins of the terms that were evaluated.
    """
    zero = np.int64(0)
    columns, weights, filters = borrow(columns), borrow(weights), borrow(filters)
    arity, rows = columns.shape
    log = load(addresses, LOG)
    largest = largest_weight(weights)
    if not can_append(log, rows, largest):
        return NOT_SMALL, zero, zero
    all_met = test_rows(columns, filters)
    met = borrow(all_met)
    counts = count_rows(met, filters)
    total = zero
    joins = zero
    must_settle = False
    if counts.max() > 0:
        if counts.max() > MAX_SMALL_ROWS:
            return NOT_SMALL, zero, zero
        for index in range(counts.shape[0]):
            reduced = load(addresses, FIRST_REDUCED + index)
            if counts[index] > 0 and not has_room(load(reduced, ARENA), counts[index]):
                return ARENA_FULL, np.int64(index), zero
        deltas = load(addresses, DELTAS)
        fits = True
        for index in range(counts.shape[0]):
            reduced = load(addresses, FIRST_REDUCED + index)
            count = counts[index]
            if count == 0:
                clear_slots(reduced, deltas)
                continue
            needed = needed_bits(filters, index)
            kept_columns = np.empty((arity, count), np.int64)
            kept_weights = np.empty(count, np.int64)
            position = 0
            for i in range(rows):
                if (met[i] & needed) == needed:
                    for column in range(arity):
                        kept_columns[column, position] = columns[column, i]
                    kept_weights[position] = weights[i]
                    position += 1
            fits &= build_delta(reduced, deltas, kept_columns, kept_weights)
        if not fits:
            return NOT_SMALL, zero, zero
        total, joins = sum_terms(
            load(addresses, BATCH),
            load(addresses, STATE),
            load(addresses, BITMAP_BUFFER),
            load(addresses, MEMO),
        )
        if total == OVERFLOWED:
            return NOT_SMALL, zero, zero
        for index in range(counts.shape[0]):
            if counts[index] > 0:
                arena = load(load(addresses, FIRST_REDUCED + index), ARENA)
                must_settle |= add_runs(arena, zero)
    keep_alive(all_met)
    append_rows(log, columns, weights, largest)
    return SETTLE if must_settle else DONE, total, joins
