"""Chain product: the rows of a join whose atoms form a path, one source after another.

    Q(x, z) = Σ over y₁ … yₙ₋₁ of R₁(x, y₁) * R₂(y₁, y₂) * … * Rₙ(yₙ₋₁, z)        R(…) is a weight

It is the product of sparse matrices, computed row by row (Gustavson, "Two Fast Algorithms for
Sparse Matrices", ACM TOMS 4(3), 1978). For each source x, the weights of all y₁ are added up in an
array, then from these the weights of all y₂, and so on. So equal rows are added before they are
written, nothing is sorted, and a value of a middle variable is extended once per source, however
many paths lead to it. The targets of a source are listed in ascending order by a bitmap of two
levels.

`derive_chain_keys` packs the rows into keys instead, and finds those that are not in a set yet. So
an iteration of a recursion takes one pass over its rows.

The values are positions in arrays, so they must be dense. `dbsp_wcoj.execution.chain_product`
checks this, and that no weight can leave int64.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import count_ones, load, load_value
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.trie import write_first_level

# The words of a factor: the address of its run; then, for all factors but the first, the address of
# the map from a value (less the lowest one) to the position of its node in the first level, or -1;
# the lowest value; and the size of the map.
RUN = 0
MAP = 1
LOWEST = 2
MAP_SIZE = 3
FACTOR_WORDS = 4

# The words that describe the keys: the value of the source and the target of key 0, and the number
# of bits of the target.
KEY_SOURCE = 0
KEY_TARGET = 1
KEY_SHIFT = 2
KEY_WORDS = 3

FIRST_LEVEL = run_layout.LEVEL_HEADERS
SECOND_LEVEL = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS
# The header of a run of two columns.
GROUP_WORDS = run_layout.LEVEL_HEADERS + 2 * run_layout.LEVEL_HEADER_WORDS


@kernel
def map_values(values, lowest, positions):
    """Fill ``positions`` with the position of each value, or -1.

    Args:
        values: int64, strictly ascending.
        lowest: The value of the first entry.
        positions: int64, one entry per number from ``lowest`` on.
    """
    positions[:] = -1
    for position in range(values.shape[0]):
        positions[values[position] - lowest] = position


@kernel
def group_rows(rows, weights, run):
    """Write the parts of a run that a factor reads: those of sorted rows, whose targets it shares.

    Args:
        rows: int64, shape ``(2 or 3, n)``, sorted; at least one row.
        weights: int64, shape ``(n,)``.
        run: int64, `GROUP_WORDS` words, and 2 for each distinct source, plus 1. Nothing but the
            factors of a chain product may read it.

    Returns:
        ``(sources, lowest, highest, weight)``: the number of distinct sources, the lowest and the
        highest target, and the weight of all rows, 0 if they differ. Nothing is written then.
    """
    count = rows.shape[1]
    targets = rows[1]
    different = np.int64(0)
    uniform = weights[0]
    for i in range(count):
        different |= weights[i] ^ uniform
    lowest = targets[0]
    highest = targets[0]
    for i in range(count):
        lowest = min(lowest, targets[i])
        highest = max(highest, targets[i])
    if different != 0:
        return np.int64(0), lowest, highest, np.int64(0)
    run[:GROUP_WORDS] = 0
    run[run_layout.ARITY] = 2
    run[run_layout.ROWS] = count
    run[run_layout.UNIFORM_WEIGHT] = uniform
    write_first_level(rows[0], run)
    run[SECOND_LEVEL + run_layout.LEVEL_NODES] = count
    run[SECOND_LEVEL + run_layout.LEVEL_VALUES] = (
        np.int64(targets.ctypes.data) - np.int64(run.ctypes.data)
    ) >> 3
    return run[FIRST_LEVEL + run_layout.LEVEL_NODES], lowest, highest, uniform


@subroutine
def add_targets(
    factors, source, stamp, lowest, nodes, marks, weights, target_weights, bits, summary
):
    """Add up the weights of all targets of a source.

    Args:
        source: The position of the source in the first level of the first run.
        stamp: Marks the nodes that this source reaches.
        factors, lowest, nodes, marks, weights, target_weights, bits, summary: As in
            `multiply_chain`. The last three receive the targets.

    Returns:
        ``(begin, end)``: the range of the words of ``summary`` that are not 0.
    """
    last = factors.shape[0] - 1
    # The nodes of the factor that the source reaches, and their weights.
    current = 0
    count = np.int64(1)
    nodes[0, 0] = source
    weights[0, source] = 1
    for k in range(last):
        run = factors[k, RUN]
        offsets = load(run, FIRST_LEVEL + run_layout.LEVEL_OFFSETS)
        values = values_of(run, SECOND_LEVEL)
        sums = load(run, run_layout.WEIGHT_SUMS)
        uniform = load(run, run_layout.UNIFORM_WEIGHT)
        positions = factors[k + 1, MAP]
        map_lowest = factors[k + 1, LOWEST]
        map_size = factors[k + 1, MAP_SIZE]
        reached = np.int64(0)
        for i in range(count):
            node = nodes[current, i]
            weight = weights[k, node]
            change = weight * uniform
            for leaf in range(load(run, offsets + node), load(run, offsets + node + 1)):
                value = load_value(values, leaf) - map_lowest
                if value < 0 or value >= map_size:
                    continue
                position = load(positions, value)
                if position < 0:
                    continue
                if sums != 0:
                    change = weight * (load(run, sums + leaf + 1) - load(run, sums + leaf))
                if marks[k + 1, position] == stamp:
                    weights[k + 1, position] += change
                else:
                    marks[k + 1, position] = stamp
                    weights[k + 1, position] = change
                    nodes[1 - current, reached] = position
                    reached += 1
        current = 1 - current
        count = reached
    run = factors[last, RUN]
    offsets = load(run, FIRST_LEVEL + run_layout.LEVEL_OFFSETS)
    values = values_of(run, SECOND_LEVEL)
    sums = load(run, run_layout.WEIGHT_SUMS)
    uniform = load(run, run_layout.UNIFORM_WEIGHT)
    begin = summary.shape[0]
    end = np.int64(0)
    for i in range(count):
        node = nodes[current, i]
        weight = weights[last, node]
        change = weight * uniform
        for leaf in range(load(run, offsets + node), load(run, offsets + node + 1)):
            target = load_value(values, leaf) - lowest
            if sums != 0:
                change = weight * (load(run, sums + leaf + 1) - load(run, sums + leaf))
            target_weights[target] += change
            word = target >> 6
            bits[word] |= np.int64(1) << (target & 63)
            block = word >> 6
            summary[block] |= np.int64(1) << (word & 63)
            begin = min(begin, block)
            end = max(end, block + 1)
    return begin, end


@kernel
def multiply_chain(
    factors, first, stamp, lowest, nodes, marks, weights, target_weights, bits, summary, out
):
    """Write the rows of as many sources as surely fit.

    Args:
        factors: int64, shape ``(n, FACTOR_WORDS)``. The runs have two columns, source and target;
            a third one must have one value per row.
        first: The position of the first source in the first level of the first run.
        stamp: Added to the position of a source, it is a number that was never in ``marks``.
        lowest: The lowest target.
        nodes: int64, shape ``(2, m)``, for the nodes of any factor.
        marks: int64, shape ``(n, m)``; for each node the position of the last source that reached
            it, plus ``stamp``.
        weights: int64, shape ``(n, m)``.
        target_weights: int64, zero, one entry per number from ``lowest`` on; it is zero again at
            the end.
        bits: int64, zero, one bit per target; zero again at the end.
        summary: int64, zero, one bit per word of ``bits``; zero again at the end.
        out: int64, shape ``(3, capacity)``, for sources, targets and weights of the rows.

    Returns:
        ``(next, written)``: the position of the next source, and the number of rows.
    """
    source_count = load(factors[0, RUN], FIRST_LEVEL + run_layout.LEVEL_NODES)
    source_values = load(factors[0, RUN], FIRST_LEVEL + run_layout.LEVEL_VALUES)
    written = np.int64(0)
    source = first
    while source < source_count and written + target_weights.shape[0] <= out.shape[1]:
        begin, end = add_targets(
            factors,
            source,
            stamp + source,
            lowest,
            nodes,
            marks,
            weights,
            target_weights,
            bits,
            summary,
        )
        source_value = load(factors[0, RUN], source_values + source)
        for block in range(begin, end):
            words = summary[block]
            summary[block] = 0
            while words != 0:
                lowest_bit = words & -words
                word = (block << 6) + count_ones(lowest_bit - 1)
                words ^= lowest_bit
                rest = bits[word]
                bits[word] = 0
                while rest != 0:
                    lowest_bit = rest & -rest
                    target = (word << 6) + count_ones(lowest_bit - 1)
                    rest ^= lowest_bit
                    out[0, written] = source_value
                    out[1, written] = lowest + target
                    out[2, written] = target_weights[target]
                    written += target_weights[target] != 0
                    target_weights[target] = 0
        source += 1
    return source, written


@kernel
def derive_chain_keys(
    factors,
    first,
    stamp,
    lowest,
    nodes,
    marks,
    weights,
    target_weights,
    bits,
    summary,
    layout,
    known,
    keys,
    key_weights,
    new_keys,
):
    """Write the keys of the rows of as many sources as surely fit; add them to a set.

    Args:
        factors, first, stamp, lowest, nodes, marks, weights, target_weights, bits, summary: As in
            `multiply_chain`. All weights are positive.
        layout: int64, `KEY_WORDS` words; a key has the target in its lowest bits.
        known: uint64, one bit per key, and a word more: the set.
        keys: uint32; receives the keys, ascending.
        key_weights: uint32, as long as ``keys``; receives their weights.
        new_keys: uint32, as long as ``keys``; receives the keys that the set did not contain.

    Returns:
        ``(next, written, added)``: the position of the next source, the number of keys, and how
        many of them are new.
    """
    source_count = load(factors[0, RUN], FIRST_LEVEL + run_layout.LEVEL_NODES)
    source_values = load(factors[0, RUN], FIRST_LEVEL + run_layout.LEVEL_VALUES)
    written = np.int64(0)
    added = np.int64(0)
    source = first
    while source < source_count and written + target_weights.shape[0] <= keys.shape[0]:
        begin, end = add_targets(
            factors,
            source,
            stamp + source,
            lowest,
            nodes,
            marks,
            weights,
            target_weights,
            bits,
            summary,
        )
        source_value = load(factors[0, RUN], source_values + source)
        first_key = ((source_value - layout[KEY_SOURCE]) << layout[KEY_SHIFT]) + (
            lowest - layout[KEY_TARGET]
        )
        for block in range(begin, end):
            words = summary[block]
            summary[block] = 0
            while words != 0:
                lowest_bit = words & -words
                word = (block << 6) + count_ones(lowest_bit - 1)
                words ^= lowest_bit
                rest = bits[word]
                bits[word] = 0
                # The 64 keys from ``word_key`` on are in two words of the set.
                word_key = first_key + (word << 6)
                index = word_key >> 6
                shift = np.uint64(word_key & 63)
                found = np.uint64(rest)
                absent = found & ~(known[index] >> shift)
                known[index] |= found << shift
                if shift != np.uint64(0):
                    absent &= ~(known[index + 1] << (np.uint64(64) - shift))
                    known[index + 1] |= found >> (np.uint64(64) - shift)
                first_target = word << 6
                while rest != 0:
                    lowest_bit = rest & -rest
                    offset = count_ones(lowest_bit - 1)
                    rest ^= lowest_bit
                    keys[written] = word_key + offset
                    key_weights[written] = target_weights[first_target + offset]
                    target_weights[first_target + offset] = 0
                    written += 1
                rest = np.int64(absent)
                while rest != 0:
                    lowest_bit = rest & -rest
                    new_keys[added] = word_key + count_ones(lowest_bit - 1)
                    rest ^= lowest_bit
                    added += 1
        source += 1
    return source, written, added
