"""Build a run, which is a trie in one array, from sorted rows; and read a run back into rows.

    rows (1, 5), (1, 6), (2, 5)    ->    level 0: values 1, 2    level 1: values 5, 6 | 5

Both take linear time. Rows are int64 columns of shape ``(arity, n)``, strictly increasing row by
row; a run is one int64 array (`dbsp_wcoj.kernels.storage.run_layout`).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive
from dbsp_wcoj.kernels.storage.bitmap import fill_bitmap, open_bitmap
from dbsp_wcoj.kernels.storage.run_layout import (
    ARITY,
    DIRECTORY,
    DIRECTORY_SHIFT,
    DIRECTORY_SIZE,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    LOWEST_VALUE,
    MAX_ABS_WEIGHT,
    MIN_DIRECTORY_NODES,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.sort import is_prefix, sort_rows
from dbsp_wcoj.kernels.values.arithmetic import wrapping_add, wrapping_subtract

# Directory entries that `fill_directory` writes for each node without a comparison.
ENTRIES_AT_ONCE = 8


@subroutine
def directory_shift(lowest, highest, nodes):
    """Return the smallest shift for which the directory has at most ``2 * nodes + 2`` entries."""
    shift = 0
    distance = np.uint64(highest) - np.uint64(lowest)
    while (distance >> np.uint64(shift)) > np.uint64(2 * nodes):
        shift += 1
    return shift


@subroutine
def fill_directory(run, entry, fuel):
    """Fill the directory from its entry number ``entry`` on; return the number of the next one.

    ``fuel`` limits the work, about: the number of entries to write plus the number of nodes to
    visit.
    """
    values = run[LEVEL_HEADERS + LEVEL_VALUES]
    nodes = run[LEVEL_HEADERS + LEVEL_NODES]
    directory = run[DIRECTORY]
    shift = np.uint64(run[DIRECTORY_SHIFT])
    lowest = np.uint64(run[LOWEST_VALUE])
    size = run[DIRECTORY_SIZE]
    if entry >= size:
        return size
    node = np.int64(0) if entry == 0 else run[directory + entry - 1]
    begin = entry
    while node < nodes:
        # The entries before ``stop`` that are not filled are those of this node.
        stop = np.int64((np.uint64(run[values + node]) - lowest) >> shift) + 1
        if fuel <= 0 and stop > entry and entry > begin:
            return entry
        # A fixed number of entries is written, most often enough, so that no branch depends on the
        # values. Later nodes overwrite those from ``stop`` on.
        first = entry
        if entry + ENTRIES_AT_ONCE <= size:
            for position in range(entry, entry + ENTRIES_AT_ONCE):
                run[directory + position] = node
            first += ENTRIES_AT_ONCE
        if first < stop:
            end = min(stop, first + max(fuel, 1))
            for position in range(first, end):
                run[directory + position] = node
            fuel -= end - entry
            entry = end
            if end < stop:
                return entry
        fuel -= 1 + max(stop - entry, 0)
        entry = max(entry, stop)
        node += 1
    for position in range(entry, size):
        run[directory + position] = nodes
    return size


@subroutine
def open_directory(run, start):
    """Place the directory at word ``start``; return the first word after it."""
    nodes = run[LEVEL_HEADERS + LEVEL_NODES]
    if nodes < MIN_DIRECTORY_NODES:
        run[DIRECTORY] = 0
        run[DIRECTORY_SIZE] = 0
        return start
    values = run[LEVEL_HEADERS + LEVEL_VALUES]
    lowest = run[values]
    highest = run[values + nodes - 1]
    shift = directory_shift(lowest, highest, nodes)
    distance = np.uint64(highest) - np.uint64(lowest)
    run[DIRECTORY] = start
    run[DIRECTORY_SHIFT] = shift
    run[LOWEST_VALUE] = lowest
    run[DIRECTORY_SIZE] = np.int64(distance >> np.uint64(shift)) + 2
    return start + run[DIRECTORY_SIZE]


@subroutine
def share_offsets(run):
    """Share the offsets of the last level but one with all levels that have one node per row."""
    arity = run[ARITY]
    for level in range(arity - 2):
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        if run[header + LEVEL_NODES] == run[ROWS]:
            last = LEVEL_HEADERS + LEVEL_HEADER_WORDS * (arity - 2)
            run[header + LEVEL_OFFSETS] = run[last + LEVEL_OFFSETS]


@subroutine
def mark_changes(column, begins, marks):
    """Mark the rows that ``begins`` marks or whose value differs from that of the previous row."""
    marks[0] = True
    for i in range(1, column.shape[0]):
        marks[i] = begins[i] | (column[i] != column[i - 1])


@subroutine
def build_run(columns, order, weights, run):
    """Write rows that are sorted by ``columns[order[0]], columns[order[1]], …`` to a run buffer.

    Args:
        columns: int64, shape ``(arity, n)``, arity >= 1; rows distinct.
        order: int64 permutation of the columns; the rows are sorted in that column order.
        weights: int64, shape ``(n,)``, none zero.
        run: int64, at least `run_words` long.
    """
    arity, rows = columns.shape
    largest = np.int64(0)
    is_uniform = True
    first_weight = weights[0]
    for i in range(rows):
        weight = weights[i]
        is_uniform &= weight == first_weight
        largest = max(largest, abs(weight))
    run[ARITY] = arity
    run[ROWS] = rows
    run[MAX_ABS_WEIGHT] = largest
    run[UNIFORM_WEIGHT] = first_weight
    # begins: the row begins a node of this level; begins_child: of the next level.
    marks = np.zeros((2, rows), np.bool_)
    begins, begins_child = borrow(marks)[0], borrow(marks)[1]
    mark_changes(columns[order[0]], begins, begins)
    end = LEVEL_HEADERS + LEVEL_HEADER_WORDS * arity
    is_unique = False  # from this level on, each node has one leaf
    for level in range(arity):
        column = columns[order[level]]
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        run[header + LEVEL_VALUES] = end
        run[header + LEVEL_OFFSETS] = 0
        nodes = np.int64(0)
        if not is_unique and level < arity - 1:
            for i in range(rows):
                nodes += begins[i]
        if is_unique or level == arity - 1 or nodes == rows:
            # One node per row.
            is_unique = True
            for i in range(rows):
                run[end + i] = column[i]
            run[header + LEVEL_NODES] = rows
            end += rows
            if level == arity - 2:
                run[header + LEVEL_OFFSETS] = end
                for i in range(rows + 1):
                    run[end + i] = i
                end += rows + 1
            continue
        offsets = end + nodes
        node = 0
        child = 0
        if level == arity - 2:
            for i in range(rows):
                if begins[i]:
                    run[end + node] = column[i]
                    run[offsets + node] = i
                    node += 1
            child = rows
        else:
            mark_changes(columns[order[level + 1]], begins, begins_child)
            for i in range(rows):
                if begins[i]:
                    run[end + node] = column[i]
                    run[offsets + node] = child
                    node += 1
                child += begins_child[i]
            begins, begins_child = begins_child, begins
        run[offsets + nodes] = child
        run[header + LEVEL_NODES] = nodes
        run[header + LEVEL_OFFSETS] = offsets
        end = offsets + nodes + 1
    share_offsets(run)
    end = open_directory(run, end)
    if run[DIRECTORY] > 0:
        fill_directory(run, np.int64(0), np.int64(1) << 62)
    run[WEIGHT_SUMS] = 0
    if not is_uniform:
        run[WEIGHT_SUMS] = end
        total = np.int64(0)
        for i in range(rows):
            run[end + i] = total
            total = wrapping_add(total, weights[i])
        run[end + rows] = total
        end += rows + 1
    if open_bitmap(run, end) > 0:
        fill_bitmap(run, np.int64(0), rows)
    keep_alive(marks)


@subroutine
def describe_run(run):
    """Return ``(address, rows, largest absolute weight)`` of a run, as Python keeps them."""
    return np.int64(run.ctypes.data), run[ROWS], run[MAX_ABS_WEIGHT]


def run_words(arity: int, rows: int) -> int:
    """Return the maximum number of words of a run; it leaves unused words untouched."""
    return LEVEL_HEADERS + LEVEL_HEADER_WORDS * arity + (2 * arity + 3) * (rows + 1) + 4


#: `run_words`, for kernels.
words_of_run = subroutine(run_words)


@kernel
def build_sorted_run(columns, weights, order, run, scratch):
    """Build the run of a Z-set's rows in a column order and describe it.

    Args:
        columns: int64, shape ``(arity, n)``, sorted and distinct rows; arity and n at least 1.
        weights: int64, shape ``(n,)``.
        order: int64 permutation of the columns.
        run: int64, at least `run_words` long.
        scratch: For `dbsp_wcoj.kernels.storage.sort.sort_rows`, if the order needs a sort.
    """
    if not is_prefix(order):
        columns, weights = sort_rows(columns, weights, order, scratch)
    build_run(borrow(columns), borrow(order), borrow(weights), borrow(run))
    keep_alive(columns)
    keep_alive(weights)
    return describe_run(run)


@kernel
def read_run(run):
    """Return ``(columns, weights)`` of a run buffer, columns in the run's own order."""
    arity = run[ARITY]
    rows = run[ROWS]
    columns = np.empty((arity, rows), np.int64)
    weights = np.full(rows, run[UNIFORM_WEIGHT])
    # first[i]: first leaf below node i of the current level, from the leaves up.
    first = np.arange(rows + 1)
    for level in range(arity - 1, -1, -1):
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        nodes = run[header + LEVEL_NODES]
        values = run[header + LEVEL_VALUES]
        if level < arity - 1:
            offsets = run[header + LEVEL_OFFSETS]
            first_leaves = np.empty(nodes + 1, np.int64)
            for node in range(nodes + 1):
                first_leaves[node] = first[run[offsets + node]]
            first = first_leaves
        for node in range(nodes):
            columns[level, first[node] : first[node + 1]] = run[values + node]
    if run[WEIGHT_SUMS] > 0:
        for i in range(rows):
            weights[i] = wrapping_subtract(run[run[WEIGHT_SUMS] + i + 1], run[run[WEIGHT_SUMS] + i])
    return columns, weights
