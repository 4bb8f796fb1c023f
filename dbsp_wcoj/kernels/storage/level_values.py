"""The values of a level of a run, as words or as narrow values of 32 bits.

Kernels read the values of a level by a *tagged address*: the address of the first value, plus
`TAG` if they are narrow (`dbsp_wcoj.kernels.storage.run_layout`). Addresses are multiples of 4, so
the lowest bit is free. `dbsp_wcoj.kernels.memory.load_value` reads a value by a tagged address. A
list of words, such as the offsets of a level, has the tagged address that is its address. Only the
last level of a run of two or more columns can be narrow.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.memory import (
    load,
    load_narrow,
    load_value,
    prefetch,
    store,
    store_narrow,
    store_value,
)
from dbsp_wcoj.kernels.storage.run_layout import LEVEL_VALUES, NARROW_SHIFT

# The bit of a tagged address that stands for narrow values.
TAG = np.int64(1)

MIN_NARROW_VALUE = -(1 << 31)
MAX_NARROW_VALUE = (1 << 31) - 1


@inline_subroutine
def is_narrow_position(position):
    """Return 1 if a header word `LEVEL_VALUES` says that the values are narrow, else 0."""
    return (position + (np.int64(1) << (NARROW_SHIFT - 1))) >> NARROW_SHIFT


@inline_subroutine
def values_of(run, entry):
    """Return the tagged address of the values of a level.

    Args:
        run: The address of a run.
        entry: The position of the header entry of the level.
    """
    position = load(run, entry + LEVEL_VALUES)
    tag = is_narrow_position(position)
    return run + ((position - (tag << NARROW_SHIFT)) << 3) + tag


@inline_subroutine
def array_values(run, entry):
    """Like `values_of`, for a run as an int64 array."""
    return values_of(np.int64(run.ctypes.data), entry)


@inline_subroutine
def value_address(values, i):
    """Return the tagged address of the part of a list that begins at value ``i``."""
    return values + (i << (3 - (values & TAG)))


@inline_subroutine
def prefetch_value(values, i, lines):
    """Prefetch the cache line that is ``lines`` lines after that of value ``i``."""
    tag = values & TAG
    prefetch(values - tag, (i >> tag) + 8 * lines)


@subroutine
def copy_values(target, written, source, first, last):
    """Copy the values at positions ``[first, last)``; the first one becomes value ``written``.

    ``target`` and ``source`` are tagged addresses. If only ``target`` is narrow, the values fit.
    """
    count = last - first
    if target & source & TAG != 0:
        for i in range(count):
            store_narrow(target - TAG, written + i, load_narrow(source - TAG, first + i))
    elif (target | source) & TAG == 0:
        for i in range(count):
            store(target, written + i, load(source, first + i))
    else:
        for i in range(count):
            store_value(target, written + i, load_value(source, first + i))


@subroutine
def are_narrow_values(lowest, highest):
    """Return whether values between two bounds fit in 32 bits."""
    return lowest >= MIN_NARROW_VALUE and highest <= MAX_NARROW_VALUE


@inline_subroutine
def words_of_values(count, is_narrow):
    """Return the number of words of ``count`` values of a level."""
    return (count + 1) >> 1 if is_narrow else count


@subroutine
def clear_last_half(values, count):
    """Set the unused half of the last word of narrow values to 0."""
    if values & TAG != 0 and count & 1 != 0:
        store_narrow(values - TAG, count, np.int64(0))
