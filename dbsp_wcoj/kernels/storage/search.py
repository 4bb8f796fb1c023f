"""Search a sorted list from a cursor, the first column of a run by its directory, or a prefix.

    seek(values, low, high, value) = min { i : low <= i < high and values[i] >= value }, or high

``values`` is a tagged address (`dbsp_wcoj.kernels.storage.level_values`), and ``run`` the address
of a run (`dbsp_wcoj.kernels.storage.run_layout`). Only the last of several levels can be narrow, so
the first level of a run is searched as words.

Cost: `seek` takes O(log distance) from the cursor (galloping). `root_seek` takes O(1) expected time
for evenly spread values and never more than a binary search.
"""

from typing import Any

import numpy as np

from dbsp_wcoj.kernels.compilation import subroutine
from dbsp_wcoj.kernels.memory import load, load_narrow
from dbsp_wcoj.kernels.storage.level_values import TAG
from dbsp_wcoj.kernels.storage.run_layout import (
    DIRECTORY,
    DIRECTORY_SHIFT,
    DIRECTORY_SIZE,
    LEVEL_HEADER_WORDS,
    LEVEL_HEADERS,
    LEVEL_NODES,
    LEVEL_OFFSETS,
    LEVEL_VALUES,
    LOWEST_VALUE,
)
from dbsp_wcoj.kernels.values.arithmetic import wrapping_subtract


def _make_searches(read: Any) -> Any:
    """Return `bisect` and `seek` for lists whose values ``read`` returns."""

    @subroutine
    def bisect_list(values, low, high, value):
        while low < high:
            middle = (low + high) >> 1
            if read(values, middle) < value:
                low = middle + 1
            else:
                high = middle
        return low

    @subroutine
    def seek_list(values, low, high, value):
        if low >= high or read(values, low) >= value:
            return low
        step = 1
        below = low
        probe = low + 1
        while probe < high and read(values, probe) < value:
            below = probe
            step += step
            probe += step
        return bisect_list(values, below + 1, min(probe, high), value)

    return bisect_list, seek_list


_bisect_words, _seek_words = _make_searches(load)
_bisect_narrow, _seek_narrow = _make_searches(load_narrow)


@subroutine
def bisect(values, low, high, value):
    """Return the first position in ``[low, high)`` whose value is at least ``value``."""
    if values & TAG != 0:
        return _bisect_narrow(values - TAG, low, high, value)
    return _bisect_words(values, low, high, value)


@subroutine
def seek(values, low, high, value):
    """Like `bisect`, but gallop from ``low``: O(log of the distance moved)."""
    if values & TAG != 0:
        return _seek_narrow(values - TAG, low, high, value)
    return _seek_words(values, low, high, value)


@subroutine
def root_seek(run, low, high, value):
    """Like `seek` for level 0 of ``run``, which has a directory unless it is short."""
    values = run + (load(run, LEVEL_HEADERS + LEVEL_VALUES) << 3)
    directory = load(run, DIRECTORY)
    if directory == 0 or low >= high or load(values, low) >= value:
        return _seek_words(values, low, high, value)
    lowest = load(run, LOWEST_VALUE)
    if value < lowest:
        return low
    size = load(run, DIRECTORY_SIZE)
    # As an unsigned number, the distance is right even above 2**63.
    distance = wrapping_subtract(value, lowest)
    bucket = distance
    shift = load(run, DIRECTORY_SHIFT)
    if shift > 0:
        bucket = (distance >> shift) & ((1 << (64 - shift)) - 1)
    if bucket < 0 or bucket >= size - 1:
        return min(load(run, LEVEL_HEADERS + LEVEL_NODES), high)
    first = max(load(run, directory + bucket), low)
    last = min(load(run, directory + bucket + 1), high)
    if last <= first:  # the bucket has no node in [low, high)
        return max(low, min(first, high))
    return _bisect_words(values, first, last, value)


@subroutine
def root_find(run, low, high, value):
    """Return ``(node, found)``: the position of a value at level 0 of ``run``, if it is there.

    A directory with one entry per value answers without a read of the list.
    """
    directory = load(run, DIRECTORY)
    if directory != 0 and load(run, DIRECTORY_SHIFT) == 0:
        bucket = wrapping_subtract(value, load(run, LOWEST_VALUE))
        if value < load(run, LOWEST_VALUE) or bucket < 0 or bucket >= load(run, DIRECTORY_SIZE) - 1:
            return low, False
        node = load(run, directory + bucket)
        return node, low <= node < high and node < load(run, directory + bucket + 1)
    node = root_seek(run, low, high, value)
    values = run + (load(run, LEVEL_HEADERS + LEVEL_VALUES) << 3)
    return node, node < high and load(values, node) == value


@subroutine
def find_children(run, prefixes, i):
    """Return the first child of prefix ``i`` and the position after its last child; 0, 0 if none.

    The children are nodes of the level after the columns of the prefix. A prefix without columns
    has all nodes of the first level.

    Args:
        run: The address of a run.
        prefixes: int64, shape ``(k, n)``, ``k`` below the columns of the run.
        i: The prefix.
    """
    first = np.int64(0)
    last = load(run, LEVEL_HEADERS + LEVEL_NODES)
    for level in range(prefixes.shape[0]):
        entry = LEVEL_HEADERS + LEVEL_HEADER_WORDS * level
        nodes = run + (load(run, entry + LEVEL_VALUES) << 3)
        value = prefixes[level, i]
        if level == 0:
            first = root_seek(run, first, last, value)
        else:
            first = _seek_words(nodes, first, last, value)
        if first >= last or load(nodes, first) != value:
            return np.int64(0), np.int64(0)
        offsets = load(run, entry + LEVEL_OFFSETS)
        last = load(run, offsets + first + 1)
        first = load(run, offsets + first)
    return first, last
