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
from dbsp_wcoj.kernels.memory import load, pointer_to_words, store
from dbsp_wcoj.kernels.storage.run_layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.storage.sort import insertion_sort_rows, is_prefix
from dbsp_wcoj.kernels.storage.spine import TAIL_ROWS, add_to_tail, is_full
from dbsp_wcoj.kernels.storage.trie import build_run, words_of_run

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


@subroutine
def order_entry(arena, index):
    """Return the address of the entry of a column order."""
    return arena + 8 * (FIRST_ORDER + index * (COLUMNS + load(arena, ARITY)))


@subroutine
def has_room(arena, rows):
    """Return whether the runs of ``rows`` rows and the merged tails fit in the buffer."""
    end = load(arena, FREE)
    arity = load(arena, ARITY)
    for index in range(load(arena, ORDERS)):
        tail_rows = load(load(order_entry(arena, index), TABLE), TAIL_ROWS)
        end += words_of_run(arity, rows) + words_of_run(arity, tail_rows + rows)
    return end <= load(arena, MEMORY_WORDS)


@subroutine
def build_runs(arena, columns, weights):
    """Build the runs of at most ``MAX_INSERTION_ROWS`` sorted rows; return their number of words.

    The runs are written after the words in use; the caller has checked `has_room`.
    """
    arity, rows = columns.shape
    words = words_of_run(arity, rows)
    free_address = load(arena, MEMORY) + 8 * load(arena, FREE)
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        order = carray(pointer_to_words(entry + 8 * COLUMNS), (arity,))
        run = carray(pointer_to_words(free_address), (words,))
        store(entry, RUN, free_address)
        if is_prefix(order):  # the rows are sorted in this order already
            build_run(columns, order, weights, run)
        else:
            sorted_columns, sorted_weights = insertion_sort_rows(columns, weights, order)
            build_run(sorted_columns, order, sorted_weights, run)
        free_address += 8 * words
    return words * load(arena, ORDERS)


@subroutine
def add_runs(arena, used_words):
    """Add the newest runs to the tails of their spines.

    Args:
        arena: Address.
        used_words: The words from ``FREE`` on that the newest runs use already.

    Returns:
        Whether a spine must settle (`dbsp_wcoj.kernels.storage.spine.is_full`).
    """
    must_settle = False
    for index in range(load(arena, ORDERS)):
        entry = order_entry(arena, index)
        table = load(entry, TABLE)
        # A tail is written after the runs and the tails before it.
        free_address = load(arena, MEMORY) + 8 * (load(arena, FREE) + used_words)
        used_words += add_to_tail(table, load(entry, RUN), free_address)
        must_settle |= is_full(table)
    store(arena, FREE, load(arena, FREE) + used_words)
    return must_settle


@kernel
def build_small_runs(arena, columns, weights):
    """Build the runs of at most ``MAX_INSERTION_ROWS`` rows in all column orders.

    Args:
        arena: Address; `has_room` is true and the free words are zero.
        columns: int64, shape ``(arity, n)``, sorted and distinct rows.
        weights: int64, shape ``(n,)``.

    Returns:
        The largest absolute weight.
    """
    first = load(arena, MEMORY) + 8 * load(arena, FREE)
    used_words = build_runs(arena, columns, weights)
    store(arena, FREE, load(arena, FREE) + used_words)
    return load(first, MAX_ABS_WEIGHT)


@kernel
def add_small_runs(arena):
    """Add the newest runs to the tails of their spines; return whether a spine must settle."""
    return add_runs(arena, np.int64(0))
