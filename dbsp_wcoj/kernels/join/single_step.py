"""A whole small step of one relation in one call, for a view whose delta is one weight.

Nothing changes unless everything succeeds.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel
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

# small[...]: addresses of the arena, of the batch and of the buffers that the batch uses; then for
# each column order of the arena the index in ``deltas`` of its delta run, or -1.
ARENA = 0
BATCH = 1
DELTAS = 2
STATE = 3
BITMAP = 4
MEMO = 5
DELTA_PLACES = 6

MAX_WEIGHT_BOUND = (1 << 63) - 1

# Status of a step. DONE; or SETTLE: done, and a spine has to settle. After the others nothing has
# changed. ARENA_FULL: the arena has no room; MAY_OVERFLOW: a weight may leave int64.
DONE, SETTLE, ARENA_FULL, MAY_OVERFLOW = range(4)


@kernel
def small_step(small, columns, weights):
    """Run the step and return ``(status, total, joins)``.

    Args:
        small: Address of the words above.
        columns: int64, shape ``(arity, n)``, sorted and distinct rows, n from 1 to
            `dbsp_wcoj.kernels.storage.sort.MAX_INSERTION_ROWS`.
        weights: int64, shape ``(n,)``.
    """
    nothing = np.int64(0)
    arena = load(small, ARENA)
    if not has_room(arena, columns.shape[1]):
        return ARENA_FULL, nothing, nothing
    used_words = build_runs(arena, columns, weights)
    deltas = load(small, DELTAS)
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        run = load(entry, RUN)
        if load(load(entry, TABLE), WEIGHT_BOUND) > MAX_WEIGHT_BOUND - load(run, MAX_ABS_WEIGHT):
            store(arena, FREE, load(arena, FREE) + used_words)
            return MAY_OVERFLOW, nothing, nothing
        place = load(small, DELTA_PLACES + index)
        if place >= 0:
            store(deltas, place, run)
    state, bitmap, memo = load(small, STATE), load(small, BITMAP), load(small, MEMO)
    total, joins = sum_terms(load(small, BATCH), state, bitmap, memo)
    if total == OVERFLOWED:
        store(arena, FREE, load(arena, FREE) + used_words)
        return MAY_OVERFLOW, nothing, nothing
    settle = add_runs(arena, used_words)
    return SETTLE if settle else DONE, total, joins
