"""Spine: its table of runs, and its tail, the newest run, to which small steps are added.

    spine = run₁ + run₂ + … + tail        tail' = tail + run of the step

A run is immutable. The sum of the tail and a step's run is a new run, which replaces the tail in
the table. While the tail is short, this is cheaper than one more run to read in each join. Tables
and runs are addresses of int64 arrays.
"""

from numba import carray

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load, pointer_to_words, store
from dbsp_wcoj.kernels.storage.merge import merge_at_once
from dbsp_wcoj.kernels.storage.run_layout import ARITY, MAX_ABS_WEIGHT, ROWS
from dbsp_wcoj.kernels.storage.trie import words_of_run

# Maximum number of runs of a spine, including its tail and those of an overlay.
MAX_RUNS = 255

# table[...]
RUN_COUNT = 0
FIRST_RUN = 1  # the addresses of the runs, oldest first
TAIL_ROWS = FIRST_RUN + MAX_RUNS  # rows of the newest run if that is the tail, else 0
WEIGHT_BOUND = TAIL_ROWS + 1  # bound on the absolute weight of a row in the sum of the runs
ADDED_ROWS = TAIL_ROWS + 2  # rows added to the tail since it was last made an ordinary run
ADDED_STEPS = TAIL_ROWS + 3  # steps added to the tail since then
DUE_FUEL = TAIL_ROWS + 4  # fuel of these steps at which merge work is due, if the tail is not full
# Address of the bitmaps of the oldest run's long lists, `NO_BITMAPS` or `NOT_BUILT`
# (`dbsp_wcoj.kernels.storage.list_bitmaps`).
LIST_BITMAPS = TAIL_ROWS + 5
TABLE_WORDS = TAIL_ROWS + 6

# A run is usually merged with the older run before it if that one is at most this many times as
# large.
GROWTH_FACTOR = 8
# Fuel, that is, merge work in rows, of a step: for each row, and for the step. A merge of a run of
# n rows and one of up to 8 n has 9 n rows to copy, while about n rows arrive; three times that
# leaves time for the merges of its result.
FUEL_PER_ROW = 3 * (GROWTH_FACTOR + 1)
FUEL_PER_STEP = 512

# The tail of steps of k rows is full if it has more rows than
#     min(`FULL_TAIL_ROWS` * sqrt(k), max(`FULL_MEDIUM_TAIL_ROWS`, `FULL_TAIL_STEPS` * k))
# so if no rows cancel, after 65 steps of one row, or after 4 of the largest size. Then the spine
# makes it an ordinary run. A longer tail makes steps slower, because each step copies the tail, and
# rows whose deletion is in it stay in memory; with a shorter one, more tails become full, and each
# of them costs as much as to copy a few hundred rows.
FULL_TAIL_ROWS = 64
FULL_MEDIUM_TAIL_ROWS = 192
FULL_TAIL_STEPS = 3


def fuel_of(rows: int, steps: int) -> int:
    """Return the merge work of so many steps with so many rows together, in rows."""
    return FUEL_PER_ROW * rows + FUEL_PER_STEP * steps


def is_tail_full(tail_rows: int, rows: int, steps: int) -> bool:
    """Return whether a tail is full: it becomes an ordinary run before it grows further.

    Args:
        tail_rows: The rows of the tail.
        rows: The rows of all steps that were added to it.
        steps: The number of these steps.

    >>> is_tail_full(64, 64, 64), is_tail_full(65, 65, 65), is_tail_full(65, 260, 65)
    (False, True, False)
    >>> is_tail_full(192, 192, 6), is_tail_full(224, 224, 7), is_tail_full(700, 700, 3)
    (False, True, False)
    """
    if tail_rows * tail_rows * steps > FULL_TAIL_ROWS * FULL_TAIL_ROWS * rows:
        return True
    return tail_rows > FULL_MEDIUM_TAIL_ROWS and tail_rows * steps > FULL_TAIL_STEPS * rows


_fuel_of, _is_tail_full = subroutine(fuel_of), subroutine(is_tail_full)


@subroutine
def must_settle(table):
    """Return whether the spine must settle: make a full tail an ordinary run, or do merge work."""
    rows, steps = load(table, ADDED_ROWS), load(table, ADDED_STEPS)
    is_due = _fuel_of(rows, steps) >= load(table, DUE_FUEL)
    return is_due or _is_tail_full(load(table, TAIL_ROWS), rows, steps)


@subroutine
def add_to_tail(table, run, out):
    """Add a run to the tail; write the sum to ``out`` if there is a tail.

    All arguments are addresses. The caller ensures that the spine has fewer than `MAX_RUNS` runs
    and no overlay, that the weight bound plus the run's largest weight fits in int64, and that
    ``out`` has enough zero words for a run of the rows of both (`words_of_run`).

    Returns:
        The number of words of ``out`` that may no longer be zero, also if all rows cancel.
    """
    count = load(table, RUN_COUNT)
    rows = load(run, ROWS)
    tail_rows = load(table, TAIL_ROWS)
    largest = load(run, MAX_ABS_WEIGHT)
    store(table, ADDED_ROWS, load(table, ADDED_ROWS) + rows)
    store(table, ADDED_STEPS, load(table, ADDED_STEPS) + 1)
    if tail_rows == 0:
        store(table, FIRST_RUN + count, run)
        store(table, RUN_COUNT, count + 1)
        store(table, TAIL_ROWS, rows)
        store(table, WEIGHT_BOUND, load(table, WEIGHT_BOUND) + largest)
        return 0
    tail = load(table, FIRST_RUN + count - 1)
    words = words_of_run(load(run, ARITY), tail_rows + rows)
    merged = carray(pointer_to_words(out), (words,))
    left = carray(pointer_to_words(tail), (words,))
    right = carray(pointer_to_words(run), (words,))
    merge_at_once(left, right, merged)
    change = merged[MAX_ABS_WEIGHT] - left[MAX_ABS_WEIGHT]
    store(table, WEIGHT_BOUND, load(table, WEIGHT_BOUND) + change)
    store(table, TAIL_ROWS, merged[ROWS])
    if merged[ROWS] == 0:
        store(table, RUN_COUNT, count - 1)
    else:
        store(table, FIRST_RUN + count - 1, out)
    return words
