"""Positions of rows in runs, and the rows between two positions.

A key is a row, or its first columns; its position in a run is the number of rows before it. The
running weight sums of a run turn two positions into the weight of all rows between them, so the
rank of a row in a trace costs one search per run and needs no other index.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import load, load_value
from dbsp_wcoj.kernels.storage.level_values import values_of
from dbsp_wcoj.kernels.storage.run_layout import (
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    UNIFORM_WEIGHT,
    WEIGHT_SUMS,
)
from dbsp_wcoj.kernels.storage.search import root_seek, seek
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract


@subroutine
def weight_before(run, position):
    """Return the sum of the weights of the first ``position`` rows of a run, modulo 2**64."""
    sums = load(run, WEIGHT_SUMS)
    if sums != 0:
        return wrapping_subtract(load(run, sums + position), load(run, sums))
    return load(run, UNIFORM_WEIGHT) * position


@kernel
def seek_rows(runs, keys, after, arity, positions, weights):
    """Find the position of each key in each run, and the weight of all rows before it.

    Args:
        runs: Addresses of runs of one column order, shape ``(runs,)``.
        keys: Values of the first columns of rows, shape ``(depth, n)``, ``depth <= arity``.
        after: Per key, True for the position after all rows that begin with the key.
        arity: Columns of the runs.
        positions: Result, shape ``(runs, n)``.
        weights: Result, shape ``(runs, n)``: sums of weights, modulo 2**64.
    """
    depth, n = keys.shape
    for r in range(runs.shape[0]):
        run = runs[r]
        for i in range(n):
            node = np.int64(0)
            end = load(run, LEVEL_HEADERS + LEVEL_NODES)
            level = 0
            while level < depth:
                entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
                values = values_of(run, entry)
                value = keys[level, i]
                if level == 0:
                    node = root_seek(run, node, end, value)
                else:
                    node = seek(values, node, end, value)
                if node >= end or load_value(values, node) != value:
                    break
                if level == depth - 1:
                    node += 1 if after[i] else 0
                    break
                offsets = load(run, entry + LEVEL_OFFSETS)
                end = load(run, offsets + node + 1)
                node = load(run, offsets + node)
                level += 1
            # Descend to the first leaf at or after the node.
            while level < arity - 1:
                entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
                node = load(run, load(run, entry + LEVEL_OFFSETS) + node)
                level += 1
            positions[r, i] = node
            weights[r, i] = weight_before(run, node)


@kernel
def read_ranges(runs, starts, stops, ranges, rows, weights, run_numbers):
    """Write the rows between positions: run after run, and in each run range after range.

    Args:
        runs: Addresses of runs of one column order.
        starts: The position of the first row of each range in each run, shape ``(runs, n)``.
        stops: The position after the last row of each range, shape ``(runs, n)``.
        ranges: Result, shape ``(rows,)``: the index of the range of each row.
        rows: Result, shape ``(arity, rows)``: the columns of the rows.
        weights: Result, shape ``(rows,)``: the weight of each row in its run.
        run_numbers: Result, shape ``(rows,)``: the index of the run of each row.
    """
    arity = rows.shape[0]
    node = np.empty(arity, np.int64)
    end = np.empty(arity, np.int64)
    written = 0
    for r in range(runs.shape[0]):
        run = runs[r]
        for i in range(starts.shape[1]):
            start = starts[r, i]
            stop = stops[r, i]
            if start >= stop:
                continue
            # Find the path to the first row, from the leaf upwards: the node of each level, and the
            # position after its last child.
            node[arity - 1] = start
            for level in range(arity - 2, -1, -1):
                entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
                offsets = load(run, entry + LEVEL_OFFSETS)
                low = np.int64(0)
                high = load(run, entry + LEVEL_NODES)
                while low < high:
                    middle = (low + high) >> 1
                    if load(run, offsets + middle + 1) <= node[level + 1]:
                        low = middle + 1
                    else:
                        high = middle
                node[level] = low
                end[level] = load(run, offsets + low + 1)
            for leaf in range(start, stop):
                if leaf > start:
                    # The path to the next leaf: from the leaf up, until a node has not changed.
                    level = arity - 1
                    node[level] = leaf
                    while level > 0 and node[level] == end[level - 1]:
                        level -= 1
                        node[level] += 1
                    while level < arity - 1:
                        entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
                        offsets = load(run, entry + LEVEL_OFFSETS)
                        end[level] = load(run, offsets + node[level] + 1)
                        level += 1
                for level in range(arity):
                    entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
                    rows[level, written] = load_value(values_of(run, entry), node[level])
                weights[written] = wrapping_subtract(
                    weight_before(run, leaf + 1), weight_before(run, leaf)
                )
                ranges[written] = i
                run_numbers[written] = r
                written += 1
