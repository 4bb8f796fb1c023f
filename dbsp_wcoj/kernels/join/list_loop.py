"""List loop: the iterations of a recursion that only looks up lists, in one call.

A rule of the recursion joins the rows that the last iteration has added with one or two relations
of two columns. Each of them is looked up by a value of the row, and has a list of values for it::

    closure(x, z) :- closure(x, y), edge(y, z)
    same_generation(x, y) :- edge(a, x), same_generation(a, b), edge(b, y)

Rows are keys (`dbsp_wcoj.storage.row_keys`) of at most 31 bits. A key is a sum: each value of a row
or of a list has a factor in it, which is a power of two. So for each rule::

    for row in added:  for a in A[row]:  for b in B[row]:
        key = constant + row[0] * c0 + row[1] * c1 + a * ca + b * cb
        count key in the log;  if key is not known: add it to the known keys and the next rows

The known keys are in a hash table, of which at most half of the places are in use. A bitmap of all
possible keys would have several times as much memory, which the system clears when it is touched.

Cost: O(1) expected time for each lookup, and for each key of the log.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load, load_value
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
)
from dbsp_wcoj.kernels.storage.search import root_find

# The words of a rule: for each of its relations, the address of the run, 0 if there is none, and
# the column of the row by which it is looked up; then the constant, and the factors.
RUN = 0
COLUMN = 1
RELATION_WORDS = 2
MAX_RELATIONS = 2
CONSTANT = RELATION_WORDS * MAX_RELATIONS
COLUMN_FACTORS = CONSTANT + 1
LIST_FACTORS = COLUMN_FACTORS + 2
RULE_WORDS = LIST_FACTORS + MAX_RELATIONS

#: Keys have at most so many bits.
MAX_KEY_BITS = 31
# Knuth's multiplicative hash: 2**32 divided by the golden ratio.
MULTIPLIER = np.int64(2654435769)
MAX_UINT32 = np.int64((1 << 32) - 1)

_LAST_LEVEL = LEVEL_HEADERS + LEVEL_HEADER_WORDS


@subroutine
def find_place(table, shift, key):
    """Return the place of a key in a hash table, or the free place where it belongs.

    ``shift`` is 32 less the binary logarithm of the size of the table.
    """
    last = table.shape[0] - 1
    place = ((key * MULTIPLIER) & MAX_UINT32) >> shift
    while table[place] != 0 and table[place] != key + 1:
        place = (place + 1) & last
    return place


@kernel
def add_to_table(keys, table, shift):
    """Add keys of at most `MAX_KEY_BITS` bits to a hash table with enough free places.

    Args:
        keys: int64.
        table: uint32, with 0 for a free place, else a key plus 1; its size is a power of two.
        shift: 32 less the binary logarithm of the size.
    """
    for i in range(keys.shape[0]):
        table[find_place(borrow(table), shift, keys[i])] = keys[i] + 1
    keep_alive(table)


@kernel
def iterate_lists(
    rules,
    layout,
    table,
    positions,
    shift,
    known,
    rows,
    first,
    count,
    lists,
    max_iterations,
    max_derivations,
    log,
    ends,
    counts,
):
    """Run iterations until no row is added, or there is no room for the keys of the next one.

    Args:
        rules: int64, shape ``(n, RULE_WORDS)``.
        layout: int64, shape ``(2, 2)``: the lowest value and the bits of each column. If a row has
            one column, it is the last one; the first one has no bits.
        table: uint32, the hash table of the known keys (`add_to_table`).
        positions: uint32, as long as ``table``: for each key in it, where the log may have it.
        shift: As in `add_to_table`.
        known: The number of known keys.
        rows: uint32, the keys of the rows that were added; more are appended.
        first: The first of the rows that were added last.
        count: The number of these rows.
        lists: int64, shape ``(4 * n, capacity)``: scratch memory.
        max_iterations: At most so many iterations are run.
        max_derivations: At most so many derivations are made.
        log: uint32, shape ``(2, capacity)``; receives the different keys of each iteration, and how
            often it has derived each.
        ends: int64, shape ``(2, m)``; for each iteration, the ends of its keys in the log, and of
            the rows that it has joined, are written to it.
        counts: int64, shape ``(n,)``; the number of derivations of each rule is added to it.

    Returns:
        ``(iterations, first, count, needed)``: the number of iterations, the rows that were added
        last, and how many derivations the next iteration has.
    """
    keys = borrow(log)[0]
    weights = borrow(log)[1]
    places_in_log = borrow(positions)
    places = borrow(lists)
    entries = borrow(table)
    all_rows = borrow(rows)
    low_bits = layout[1, 1]
    mask = (np.int64(1) << low_bits) - 1
    written = np.int64(0)
    iteration = np.int64(0)
    needed = np.int64(0)
    while count > 0 and iteration < max_iterations and count <= places.shape[1]:
        needed = np.int64(0)
        for r in range(rules.shape[0]):
            for row in range(count):
                product = np.int64(1)
                key = np.int64(all_rows[first + row])
                for k in range(MAX_RELATIONS):
                    run = rules[r, RELATION_WORDS * k + RUN]
                    begin = np.int64(0)
                    end = np.int64(1)
                    if run != 0:
                        if rules[r, RELATION_WORDS * k + COLUMN] == 0:
                            value = (key >> low_bits) + layout[0, 0]
                        else:
                            value = (key & mask) + layout[0, 1]
                        nodes = load(run, LEVEL_HEADERS + LEVEL_NODES)
                        node, is_found = root_find(run, np.int64(0), nodes, value)
                        end = np.int64(0)
                        if is_found:
                            offsets = load(run, LEVEL_HEADERS + LEVEL_OFFSETS)
                            begin = load(run, offsets + node)
                            end = load(run, offsets + node + 1)
                    places[4 * r + 2 * k, row] = begin
                    places[4 * r + 2 * k + 1, row] = end
                    product *= end - begin
                needed += product
        if needed > max_derivations or 2 * (known + needed) > entries.shape[0]:
            break
        max_derivations -= needed
        new = first + count
        begin_of_keys = written
        for r in range(rules.shape[0]):
            run, other = rules[r, RUN], rules[r, RELATION_WORDS + RUN]
            values = values_of(run, _LAST_LEVEL)
            other_values = values_of(other, _LAST_LEVEL) if other != 0 else values
            factor, other_factor = rules[r, LIST_FACTORS], rules[r, LIST_FACTORS + 1]
            for row in range(count):
                key = np.int64(all_rows[first + row])
                base = (
                    rules[r, CONSTANT]
                    + ((key >> low_bits) + layout[0, 0]) * rules[r, COLUMN_FACTORS]
                    + ((key & mask) + layout[0, 1]) * rules[r, COLUMN_FACTORS + 1]
                )
                begin, end = places[4 * r, row], places[4 * r + 1, row]
                other_begin, other_end = places[4 * r + 2, row], places[4 * r + 3, row]
                counts[r] += (end - begin) * (other_end - other_begin)
                for i in range(begin, end):
                    first_part = base + load_value(values, i) * factor
                    for j in range(other_begin, other_end):
                        new_key = first_part
                        if other != 0:
                            new_key += load_value(other_values, j) * other_factor
                        place = find_place(entries, shift, new_key)
                        position = np.int64(places_in_log[place])
                        if entries[place] == 0:
                            entries[place] = new_key + 1
                            all_rows[new] = new_key
                            new += 1
                        elif begin_of_keys <= position < written and keys[position] == new_key:
                            weights[position] += np.uint32(1)
                            continue
                        places_in_log[place] = written
                        keys[written] = new_key
                        weights[written] = 1
                        written += 1
        ends[0, iteration] = written
        ends[1, iteration] = first + count
        iteration += 1
        first += count
        count = new - first
        known += count
    keep_alive(rows)
    keep_alive(table)
    keep_alive(positions)
    keep_alive(log)
    keep_alive(lists)
    return iteration, first, count, needed
