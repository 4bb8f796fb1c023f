"""Parallel intern: encode many strings of which few are new, in slices at the same time.

A new string gets the next code, so strings are added by one thread, in order. But most columns with
many rows repeat few strings, and those that the interner knows can be looked up in any order::

    first strings    added by this thread; if most of them were new, so are the rest
    the rest         looked up in slices, which workers share
    unknown ones     added by this thread, in order

The codes are those of `Interner.intern`.

Cost: as `Interner.intern`, and a second hash for each string that is unknown at the look-up.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.values.interner import ABSENT, Interner
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, TASKS_PER_THREAD, current_workers, run_tasks

__all__ = ["intern_in_slices"]

Int64Array = npt.NDArray[np.int64]

#: The strings that are added first.
FIRST_STRINGS: Final = 1 << 12
#: The rest is looked up if at most one of so many first strings was new.
MIN_STRINGS_PER_NEW_STRING: Final = 4


def intern_in_slices(
    interner: Interner,
    offsets: Int64Array,
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_] | None,
) -> Int64Array:
    """Return the codes of strings, adding those that are new; workers share the look-ups.

    The arguments are those of `Interner.intern`.

    >>> intern_in_slices(Interner(), np.array([0, 1]), np.frombuffer(b"x", np.uint8), None).tolist()
    [0]
    """
    count = len(offsets) - 1
    workers = current_workers() if count >= MIN_PARALLEL_ROWS else None
    if workers is None:
        return interner.intern(offsets, data, valid)

    def part_of(first: int, end: int) -> tuple[Int64Array, npt.NDArray[np.bool_] | None]:
        return offsets[first : end + 1], None if valid is None else valid[first:end]

    def find(first: int, end: int) -> None:
        part, part_valid = part_of(first, end)
        codes[first:end] = interner.find(part, data, part_valid)

    before = interner.string_count
    codes = np.empty(count, np.int64)
    first_part, first_valid = part_of(0, FIRST_STRINGS)
    codes[:FIRST_STRINGS] = interner.intern(first_part, data, first_valid)
    if (interner.string_count - before) * MIN_STRINGS_PER_NEW_STRING > FIRST_STRINGS:
        rest, rest_valid = part_of(FIRST_STRINGS, count)
        codes[FIRST_STRINGS:] = interner.intern(rest, data, rest_valid)
        return codes
    tasks = workers.threads * TASKS_PER_THREAD
    bounds = [FIRST_STRINGS + (count - FIRST_STRINGS) * task // tasks for task in range(tasks + 1)]
    run_tasks([partial(find, first, end) for first, end in pairwise(bounds)])
    interner.keep_codes(codes[FIRST_STRINGS:])
    is_unknown = codes == ABSENT
    if valid is not None:
        is_unknown &= valid
    if is_unknown.any():
        codes = np.where(is_unknown, interner.intern(offsets, data, is_unknown), codes)
    return codes
