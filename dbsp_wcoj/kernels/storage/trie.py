"""Build a run, which is a trie in one array, from sorted rows; and read a run back into rows.

    rows (1, 5), (1, 6), (2, 5)    ->    level 0: values 1, 2    level 1: values 5, 6 | 5

Both take linear time. Rows are int64 columns of shape ``(arity, n)``, strictly increasing row by
row; a run is one int64 array (`dbsp_wcoj.kernels.storage.run_layout`).
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load_value, store_narrow
from dbsp_wcoj.kernels.storage.bitmap import fill_bitmap, open_bitmap
from dbsp_wcoj.kernels.storage.level_values import (
    TAG,
    are_narrow_values,
    array_values,
    clear_last_half,
    words_of_values,
)
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
    NARROW,
    ROWS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.sort import (
    as_sorted_rows,
    is_prefix,
    sort_rows,
    sorted_column,
)
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
def write_first_level(column, run):
    """Write the first level of a run of two columns; return the first word after it.

    Args:
        column: int64, the sorted first column.
        run: int64; its levels start after the header.
    """
    rows = column.shape[0]
    nodes = np.int64(1)
    for i in range(1, rows):
        nodes += column[i] != column[i - 1]
    values = np.int64(LEVEL_HEADERS + 2 * LEVEL_HEADER_WORDS)
    offsets = values + nodes
    run[LEVEL_HEADERS + LEVEL_NODES] = nodes
    run[LEVEL_HEADERS + LEVEL_VALUES] = values
    run[LEVEL_HEADERS + LEVEL_OFFSETS] = offsets
    run[values] = column[0]
    run[offsets] = 0
    node = np.int64(1)
    for i in range(1, rows):
        if column[i] != column[i - 1]:
            run[values + node] = column[i]
            run[offsets + node] = i
            node += 1
    run[offsets + nodes] = rows
    return offsets + nodes + 1


@subroutine
def bound_values(values):
    """Return the least and the greatest value of an array, which is not empty."""
    lowest = highest = values[0]
    for i in range(values.shape[0]):
        lowest = min(lowest, values[i])
        highest = max(highest, values[i])
    return lowest, highest


@subroutine
def place_leaves(run, start, is_narrow):
    """Place the values of the last level, narrow or not, at word ``start``; return their end.

    The number of rows is in the header already.
    """
    rows = run[ROWS]
    header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * (run[ARITY] - 1)
    run[header + LEVEL_NODES] = rows
    run[header + LEVEL_OFFSETS] = 0
    run[header + LEVEL_VALUES] = start + NARROW if is_narrow else start
    clear_last_half(array_values(run, header), rows)
    return start + words_of_values(rows, is_narrow)


@subroutine
def write_leaves(run, start, column):
    """Write the last level at word ``start`` of a run; return its end."""
    arity = run[ARITY]
    lowest, highest = bound_values(column)
    is_narrow = arity > 1 and are_narrow_values(lowest, highest)
    end = place_leaves(run, start, is_narrow)
    if is_narrow:
        values = array_values(run, LEVEL_HEADERS + LEVEL_HEADER_WORDS * (arity - 1)) - TAG
        for i in range(column.shape[0]):
            store_narrow(values, i, column[i])
    else:
        for i in range(column.shape[0]):
            run[start + i] = column[i]
    return end


@subroutine
def write_all_levels(sorted_rows, run):
    """Write the levels of a run of any number of columns; return the first word after them."""
    arity, rows = sorted_rows[0].shape
    # begins: the row begins a node of this level; begins_child: of the next level.
    marks = np.zeros((2, rows), np.bool_)
    begins, begins_child = borrow(marks)[0], borrow(marks)[1]
    column = sorted_column(sorted_rows, 0)
    mark_changes(column, begins, begins)
    end = LEVEL_HEADERS + LEVEL_HEADER_WORDS * arity
    is_unique = False  # from this level on, each node has one leaf
    following = column
    for level in range(arity):
        column = following
        if level < arity - 1:
            following = sorted_column(sorted_rows, level + 1)
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        run[header + LEVEL_VALUES] = end
        run[header + LEVEL_OFFSETS] = 0
        nodes = np.int64(0)
        if not is_unique and level < arity - 1:
            for i in range(rows):
                nodes += begins[i]
        if level == arity - 1:
            end = write_leaves(run, end, column)
            continue
        if is_unique or nodes == rows:
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
            mark_changes(following, begins, begins_child)
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
    keep_alive(marks)
    return end


@subroutine
def build_run(sorted_rows, weights, run):
    """Write sorted rows to a run buffer.

    Args:
        sorted_rows: Distinct rows, as `dbsp_wcoj.kernels.storage.sort.sort_rows` returns them;
            ``sorted_rows[0]`` has the shape ``(arity, n)``, arity >= 1.
        weights: int64, shape ``(n,)``, none zero, in the order of the sorted rows.
        run: int64, at least `run_words` long.
    """
    arity, rows = sorted_rows[0].shape
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
    if arity == 2:
        end = write_first_level(sorted_column(sorted_rows, 0), run)
        end = write_leaves(run, end, sorted_column(sorted_rows, 1))
    else:
        end = write_all_levels(sorted_rows, run)
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


@subroutine
def mark_begins(column, first, marks):
    """Mark the rows from ``first`` on whose value differs from that of the row before, if any."""
    # Slices, because numba would check the sign of ``first + i`` for each row.
    values = column[first : first + marks.shape[0]]
    for i in range(1, marks.shape[0]):
        marks[i] |= values[i] != values[i - 1]
    marks[0] |= first == 0 or values[0] != column[first - 1]


@kernel
def count_nodes(columns, weights, first, end, counts):
    """Count the nodes of each level that begin with some of the rows of a Z-set.

    Args:
        columns: int64, shape ``(arity, n)``, sorted and distinct rows.
        weights: int64, shape ``(n,)``.
        first: The first row.
        end: The row after the last one.
        counts: int64, zeros; one count per level is written here, then the greatest absolute
            weight, the sum of the weights with wraparound, the number of weights that differ from
            that of row 0, and the least and the greatest value of the last column.
    """
    arity = columns.shape[0]
    memory = np.zeros(end - first, np.bool_)
    marks = borrow(memory)
    for level in range(arity):
        mark_begins(borrow(columns)[level], first, marks)
        nodes = np.int64(0)
        for i in range(marks.shape[0]):
            nodes += marks[i]
        counts[level] = nodes
    largest = np.int64(0)
    total = np.int64(0)
    different = np.int64(0)
    keep_alive(memory)
    first_weight = weights[0]
    part = borrow(weights)[first:end]
    for i in range(part.shape[0]):
        weight = part[i]
        largest = max(largest, abs(weight))
        total = wrapping_add(total, weight)
        different += weight != first_weight
    counts[arity] = largest
    counts[arity + 1] = total
    counts[arity + 2] = different
    counts[arity + 3], counts[arity + 4] = bound_values(borrow(columns)[arity - 1][first:end])


@kernel
def open_levels(nodes, first_weight, largest, lowest, highest, run):
    """Write the header of a run and place its levels; return the first word after them.

    Args:
        nodes: int64, the number of nodes of each level; the last one is the number of rows.
        first_weight: The weight of the first row.
        largest: The greatest absolute weight.
        lowest: The least value of the last column.
        highest: The greatest value of the last column.
        run: int64, at least `run_words` long.
    """
    arity = nodes.shape[0]
    rows = nodes[arity - 1]
    run[ARITY] = arity
    run[ROWS] = rows
    run[MAX_ABS_WEIGHT] = largest
    run[UNIFORM_WEIGHT] = first_weight
    end = np.int64(LEVEL_HEADERS + LEVEL_HEADER_WORDS * arity)
    for level in range(arity - 1):
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        run[header + LEVEL_NODES] = nodes[level]
        run[header + LEVEL_VALUES] = end
        run[header + LEVEL_OFFSETS] = 0
        end += nodes[level]
        if level == arity - 2 or (level < arity - 2 and nodes[level] < rows):
            run[header + LEVEL_OFFSETS] = end
            end += nodes[level] + 1
    end = place_leaves(run, end, arity > 1 and are_narrow_values(lowest, highest))
    share_offsets(run)
    return end


@kernel
def write_levels(columns, first, end, bases, run):
    """Write the nodes that begin with some rows to a run whose levels are placed.

    Args:
        columns: int64, shape ``(arity, n)``, sorted and distinct rows.
        first: The first row.
        end: The row after the last one.
        bases: int64; for each level, the number of nodes that begin with rows before ``first``.
        run: The run, after `open_levels`.
    """
    arity, rows = columns.shape
    marks = np.zeros((2, end - first), np.bool_)
    begins, begins_child = borrow(marks)[0], borrow(marks)[1]
    mark_begins(borrow(columns)[0], first, begins)
    for level in range(arity):
        column = borrow(columns)[level][first:end]
        header = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        values = run[header + LEVEL_VALUES]
        offsets = run[header + LEVEL_OFFSETS]
        nodes = run[header + LEVEL_NODES]
        leaves = array_values(run, header)
        if leaves & TAG != 0:
            for i in range(end - first):
                store_narrow(leaves - TAG, first + i, column[i])
            continue
        if nodes == rows:  # one node per row
            target = borrow(run)[values + first : values + end]
            for i in range(target.shape[0]):
                target[i] = column[i]
            if level == arity - 2:
                for i in range(first, end):
                    run[offsets + i] = i
                if end == rows:
                    run[offsets + rows] = rows
            continue
        for i in range(end - first):
            begins_child[i] = begins[i]
        mark_begins(borrow(columns)[level + 1], first, begins_child)
        node = bases[level]
        child = bases[level + 1]
        for i in range(end - first):
            if begins[i]:
                run[values + node] = column[i]
                run[offsets + node] = child
                node += 1
            child += begins_child[i]
        if end == rows:
            run[offsets + nodes] = child
        begins, begins_child = begins_child, begins
    keep_alive(marks)


@kernel
def open_index(run, end, has_sums):
    """Place the directory and the sums of weights of a run with levels, and describe the run."""
    end = open_directory(run, end)
    run[WEIGHT_SUMS] = end if has_sums else 0
    return describe_run(run)


@kernel
def write_sums(weights, first, end, total, run):
    """Write the sums of weights of some rows of a run, after `open_index`.

    Args:
        weights: int64, shape ``(n,)``.
        first: The first row.
        end: The row after the last one.
        total: The sum of the weights before ``first``, with wraparound.
        run: The run.
    """
    sums = run[WEIGHT_SUMS]
    for i in range(first, end):
        run[sums + i] = total
        total = wrapping_add(total, weights[i])
    if end == run[ROWS]:
        run[sums + end] = total


@kernel
def write_directory(first, end, run):
    """Write the directory entries of some nodes of level 0 of a run, after `open_index`."""
    nodes = run[LEVEL_HEADERS + LEVEL_NODES]
    values = run[LEVEL_HEADERS + LEVEL_VALUES]
    directory = run[DIRECTORY]
    shift = np.uint64(run[DIRECTORY_SHIFT])
    lowest = np.uint64(run[LOWEST_VALUE])
    entry = np.int64(0)
    if first > 0:
        entry = np.int64((np.uint64(run[values + first - 1]) - lowest) >> shift) + 1
    for node in range(first, end):
        stop = np.int64((np.uint64(run[values + node]) - lowest) >> shift) + 1
        while entry < stop:
            run[directory + entry] = node
            entry += 1
    if end == nodes:
        for position in range(entry, run[DIRECTORY_SIZE]):
            run[directory + position] = nodes


@subroutine
def describe_run(run):
    """Return ``(address, rows, largest absolute weight)`` of a run, as Python keeps them."""
    return np.int64(run.ctypes.data), run[ROWS], run[MAX_ABS_WEIGHT]


def run_words(arity: int, rows: int) -> int:
    """Return the maximum number of words of a run; it leaves unused words untouched."""
    return LEVEL_HEADERS + LEVEL_HEADER_WORDS * arity + (2 * arity + 3) * (rows + 1) + 4


#: `run_words`, for kernels.
words_of_run = subroutine(run_words)


@subroutine
def build_in_order(columns, weights, order, run, scratch):
    """Build the run of a Z-set's rows in a column order; the arguments are borrowed.

    Args:
        columns: int64, shape ``(arity, n)``, sorted and distinct rows; arity and n at least 1.
        weights: int64, shape ``(n,)``.
        order: int64 permutation of the columns.
        run: int64, at least `run_words` long.
        scratch: For `dbsp_wcoj.kernels.storage.sort.sort_rows`, if the order needs a sort.
    """
    if is_prefix(order):
        build_run(as_sorted_rows(columns, order), weights, run)
        return
    sorted_rows, sorted_weights = sort_rows(columns, weights, order, scratch)
    build_run(sorted_rows, sorted_weights, run)


@kernel
def build_sorted_run(columns, weights, order, run, scratch):
    """Build the run of a Z-set's rows in a column order and describe it.

    The arguments are those of `build_in_order`.
    """
    build_in_order(borrow(columns), borrow(weights), borrow(order), borrow(run), borrow(scratch))
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
        values = array_values(run, header)
        if level < arity - 1:
            offsets = run[header + LEVEL_OFFSETS]
            first_leaves = np.empty(nodes + 1, np.int64)
            for node in range(nodes + 1):
                first_leaves[node] = first[run[offsets + node]]
            first = first_leaves
        for node in range(nodes):
            columns[level, first[node] : first[node + 1]] = load_value(values, node)
    if run[WEIGHT_SUMS] > 0:
        for i in range(rows):
            weights[i] = wrapping_subtract(run[run[WEIGHT_SUMS] + i + 1], run[run[WEIGHT_SUMS] + i])
    return columns, weights
