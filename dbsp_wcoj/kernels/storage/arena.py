"""Arena: one buffer in which the runs of small steps are built, in all column orders at once.

A step of one row makes one run of one row for each arrangement (a spine in one column order), so
the overhead of the calls dominates. Therefore one call builds all runs in one buffer, and one call
adds them to the tails of the spines (`dbsp_wcoj.kernels.storage.spine`)::

    for each column order:   run = sort(rows);   tail of its spine += run

Rows are int64 columns of shape ``(arity, n)`` with weights of shape ``(n,)``.
"""

import numpy as np
from numba import carray

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load, pointer_to_words, store
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.sort import (
    MAX_INSERTION_ROWS,
    SCRATCH_ARRAYS,
)
from dbsp_wcoj.kernels.storage.spine import TAIL_ROWS, WEIGHT_BOUND, add_to_tail, must_settle
from dbsp_wcoj.kernels.storage.trie import build_in_order, words_of_run

# A step of more rows is not small: its runs are built one after another, each by a call.
MAX_SMALL_ROWS = 256

# arena[...]
MEMORY = 0  # address of the buffer
MEMORY_WORDS = 1  # its length in words
FREE = 2  # position of its first free word
ARITY = 3
ORDERS = 4  # number of column orders
FIRST_ORDER = 5  # one entry for each column order

# entry[...]
TABLE = 0  # address of the spine's table
RUN = 1  # address of the newest run that was built
COLUMNS = 2  # the columns in this order

# The results of `add_small_runs`.
NOT_ADDED = 0
ADDED = 1
MUST_SETTLE = 2


@subroutine
def order_entry(arena, index):
    """Return the address of the entry of a column order."""
    return arena + 8 * (FIRST_ORDER + index * (COLUMNS + load(arena, ARITY)))


@subroutine
def has_room_for_tails(arena, rows, used_words):
    """Return whether the tails, with ``rows`` rows more each, fit in the buffer.

    ``used_words`` is the number of words after the first free one that something else takes.
    """
    end = load(arena, FREE) + used_words
    for index in range(load(arena, ORDERS)):
        tail_rows = load(load(order_entry(arena, index), TABLE), TAIL_ROWS)
        end += words_of_run(load(arena, ARITY), tail_rows + rows)
    return end <= load(arena, MEMORY_WORDS)


@subroutine
def has_room(arena, rows):
    """Return whether the runs of ``rows`` rows and the tails with these rows fit in the buffer."""
    run_words = load(arena, ORDERS) * words_of_run(load(arena, ARITY), rows)
    return has_room_for_tails(arena, rows, run_words)


@subroutine
def build_runs(arena, columns, weights):
    """Build the runs of at most ``MAX_SMALL_ROWS`` sorted rows; return their number of words.

    The runs are written after the words in use; the caller has checked `has_room`.
    """
    arity, rows = columns.shape
    columns, weights = borrow(columns), borrow(weights)
    scratch_rows = rows if rows > MAX_INSERTION_ROWS else np.int64(0)
    scratch = np.empty((SCRATCH_ARRAYS, scratch_rows), np.int64)
    words = words_of_run(arity, rows)
    free_address = load(arena, MEMORY) + 8 * load(arena, FREE)
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        order = carray(pointer_to_words(entry + 8 * COLUMNS), (arity,))
        run = carray(pointer_to_words(free_address), (words,))
        store(entry, RUN, free_address)
        build_in_order(columns, weights, order, run, borrow(scratch))
        free_address += 8 * words
    keep_alive(scratch)
    return words * load(arena, ORDERS)


@subroutine
def add_runs(arena, used_words):
    """Add the newest runs to the tails of their spines.

    Args:
        arena: Address.
        used_words: The words from ``FREE`` on that the newest runs use already.

    Returns:
        Whether a spine must settle (`dbsp_wcoj.kernels.storage.spine.must_settle`).
    """
    any_must_settle = False
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        table = load(entry, TABLE)
        # A tail is written after the runs and the tails before it.
        free_address = load(arena, MEMORY) + 8 * (load(arena, FREE) + used_words)
        used_words += add_to_tail(table, load(entry, RUN), free_address)
        any_must_settle |= must_settle(table)
    store(arena, FREE, load(arena, FREE) + used_words)
    return any_must_settle


@kernel
def build_small_runs(arena, columns, weights):
    """Build the runs of at most ``MAX_SMALL_ROWS`` rows in all column orders.

    Args:
        arena: Address; the words of its buffer that are free are zero.
        columns: int64, shape ``(arity, n)``, sorted and distinct rows.
        weights: int64, shape ``(n,)``.

    Returns:
        ``(first, words, largest, bound)``: the position of the first run in the buffer and the
        words of each run, one run after another; their largest absolute weight; and the largest
        weight bound of the spines. If the buffer has no room, ``words`` is 0.
    """
    first = load(arena, FREE)
    bound = np.int64(0)
    for index in range(load(arena, ORDERS)):
        bound = max(bound, load(load(order_entry(arena, index), TABLE), WEIGHT_BOUND))
    arity, rows = columns.shape
    if not has_room(arena, rows):
        return first, np.int64(0), np.int64(0), bound
    used_words = build_runs(arena, columns, weights)
    store(arena, FREE, first + used_words)
    largest = load(load(arena, MEMORY) + 8 * first, MAX_ABS_WEIGHT)
    return first, np.int64(words_of_run(arity, rows)), largest, bound


@kernel
def add_small_runs(arena, first_run, rows):
    """Add runs of `build_small_runs` to the tails of their spines.

    Args:
        arena: Address.
        first_run: The address of the first run.
        rows: The number of rows of each run.

    Returns:
        `NOT_ADDED`, without a change, if the runs are in an earlier buffer or the buffer has no
        room for the tails; `ADDED`; or `MUST_SETTLE` if a spine must settle after that.
    """
    start = first_run - load(arena, MEMORY)
    if start < 0 or start >= 8 * load(arena, FREE):
        return NOT_ADDED
    if not has_room_for_tails(arena, rows, np.int64(0)):
        return NOT_ADDED
    words = words_of_run(load(arena, ARITY), rows)
    for index in range(load(arena, ORDERS)):
        store(order_entry(arena, index), RUN, first_run + 8 * words * index)
    return MUST_SETTLE if add_runs(arena, np.int64(0)) else ADDED
