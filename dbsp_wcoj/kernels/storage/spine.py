"""The table of a spine, and its tail: the newest run, which steps of a few rows are added to.

A run is immutable, so the sum of the tail and a step's run is a new run that takes the tail's place
in the table. While the tail has a few rows that is cheaper than to read one run more in each join.
"""

from numba import carray

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load, store, pointer_to_words
from dbsp_wcoj.kernels.storage.merge import UNLIMITED_FUEL, init_merge, advance_merge
from dbsp_wcoj.kernels.storage.run_layout import ARITY, MAX_ABS_WEIGHT, ROWS
from dbsp_wcoj.kernels.storage.trie import words_of_run

MAX_RUNS = 255

# table[...]: how many runs, their addresses, oldest first; then:
RUN_COUNT = 0
FIRST_RUN = 1
TAIL_ROWS = FIRST_RUN + MAX_RUNS + 1  # rows of the newest run if it is the tail, else 0
WEIGHT_BOUND = TAIL_ROWS + 1  # no row of a sum of the runs has a larger absolute weight
UNSETTLED_ROWS = TAIL_ROWS + 2  # rows added to the tail since its spine was last settled
UNSETTLED_STEPS = TAIL_ROWS + 3  # and steps
TABLE_WORDS = TAIL_ROWS + 4

# A tail of more rows is a run like any other, which its spine has to settle.
MAX_TAIL_ROWS = 96


@subroutine
def is_full(table):
    """Return whether the spine of a table has to be settled before it grows on."""
    return load(table, TAIL_ROWS) > MAX_TAIL_ROWS


@subroutine
def add_to_tail(table, run, room):
    """Add a run to the tail; the sum is written to ``room`` if there is a tail.

    All arguments are addresses. The sum of the weight bound and the run's largest weight is int64.

    Returns:
        The words of ``room`` that are in use now.
    """
    count = load(table, RUN_COUNT)
    rows = load(run, ROWS)
    tail_rows = load(table, TAIL_ROWS)
    largest = load(run, MAX_ABS_WEIGHT)
    store(table, UNSETTLED_ROWS, load(table, UNSETTLED_ROWS) + rows)
    store(table, UNSETTLED_STEPS, load(table, UNSETTLED_STEPS) + 1)
    if tail_rows == 0:
        store(table, FIRST_RUN + count, run)
        store(table, RUN_COUNT, count + 1)
        store(table, TAIL_ROWS, rows)
        store(table, WEIGHT_BOUND, load(table, WEIGHT_BOUND) + largest)
        return 0
    tail = load(table, FIRST_RUN + count - 1)
    words = words_of_run(load(run, ARITY), tail_rows + rows)
    merged = carray(pointer_to_words(room), (words,))
    left = carray(pointer_to_words(tail), (words,))
    right = carray(pointer_to_words(run), (words,))
    state = init_merge(left, right, merged)
    advance_merge(left, right, merged, state, UNLIMITED_FUEL)
    change = merged[MAX_ABS_WEIGHT] - left[MAX_ABS_WEIGHT]
    store(table, WEIGHT_BOUND, load(table, WEIGHT_BOUND) + change)
    store(table, TAIL_ROWS, merged[ROWS])
    if merged[ROWS] == 0:
        store(table, RUN_COUNT, count - 1)
        return 0
    store(table, FIRST_RUN + count - 1, room)
    return words
