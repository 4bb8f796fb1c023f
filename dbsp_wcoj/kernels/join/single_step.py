"""Single step: a small step of one relation in one kernel call, if the result is one weight.

The kernel builds the runs of the delta in all column orders, runs the terms of the delta formula,
and adds the runs to the spines::

    total = Σ over the terms of Π over the factors of the term

If a status says that the step failed, nothing has changed.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
from dbsp_wcoj.kernels.join.join_layout import LIST_MISSES, MAX_LIST_MISSES
from dbsp_wcoj.kernels.join.small_batch import sum_terms
from dbsp_wcoj.kernels.memory import load, store
from dbsp_wcoj.kernels.storage.arena import (
    FREE,
    ORDERS,
    RUN,
    TABLE,
    add_runs,
    build_runs,
    has_room,
    order_entry,
)
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.spine import WEIGHT_BOUND
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED

# addresses[...]
ARENA = 0  # `dbsp_wcoj.kernels.storage.arena`
BATCH = 1  # the terms: `dbsp_wcoj.kernels.join.small_batch`
DELTAS = 2  # the addresses of the delta runs
STATE = 3  # the memory that the joins write to
BITMAP_BUFFER = 4
MEMO = 5
DELTA_SLOTS = 6  # not addresses: for each column order, the index of its run in ``deltas``, or -1

MAX_WEIGHT_BOUND = (1 << 63) - 1

# Status of a step. DONE; or SETTLE: done, and a spine must settle, that is, do the merge work it
# owes, or a run needs bitmaps (`dbsp_wcoj.kernels.join.long_lists`). The step failed: ARENA_FULL,
# if the arena is too small; MAY_OVERFLOW, if a weight may exceed int64.
DONE, SETTLE, ARENA_FULL, MAY_OVERFLOW = range(4)


@kernel
def small_step(addresses, columns, weights):
    """Run the step and return ``(status, total, joins)``.

    ``joins``, for the metrics, is the number of binary joins that the evaluated terms stand for
    (`dbsp_wcoj.formulas.count_joins`).

    Args:
        addresses: Address of the words above.
        columns: int64, shape ``(arity, n)``, sorted and distinct rows, n from 1 to
            `dbsp_wcoj.kernels.storage.arena.MAX_SMALL_ROWS`.
        weights: int64, shape ``(n,)``.
    """
    zero = np.int64(0)
    arena = load(addresses, ARENA)
    if not has_room(arena, columns.shape[1]):
        return ARENA_FULL, zero, zero
    used_words = build_runs(arena, columns, weights)
    deltas = load(addresses, DELTAS)
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        run = load(entry, RUN)
        if load(load(entry, TABLE), WEIGHT_BOUND) > MAX_WEIGHT_BOUND - load(run, MAX_ABS_WEIGHT):
            # Count the words as used: `build_runs` wrote to them, and free words must be zero.
            store(arena, FREE, load(arena, FREE) + used_words)
            return MAY_OVERFLOW, zero, zero
        slot = load(addresses, DELTA_SLOTS + index)
        if slot >= 0:
            store(deltas, slot, run)
    total, joins = sum_terms(
        load(addresses, BATCH),
        load(addresses, STATE),
        load(addresses, BITMAP_BUFFER),
        load(addresses, MEMO),
    )
    if total == OVERFLOWED:
        store(arena, FREE, load(arena, FREE) + used_words)
        return MAY_OVERFLOW, zero, zero
    must_settle = add_runs(arena, used_words)
    must_settle |= load(load(addresses, BITMAP_BUFFER), LIST_MISSES) >= MAX_LIST_MISSES
    return SETTLE if must_settle else DONE, total, joins
