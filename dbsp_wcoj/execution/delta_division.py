"""Delta division: joins a large delta in parts, so that look-ups in memory-mapped runs are local.

A join that starts from the rows of a delta, sorted by (a, b), looks up a in one relation and b in
another. The look-ups of a follow the order of their relation; those of b are at random positions.
If the relation of b is a memory map that is larger than the memory, nearly every look-up of b
causes a page fault. So the delta is divided by the value of b. A join is linear in each factor::

    delta = part₁ + part₂ + …        part i: the rows whose b is in the i-th range of values
    join(delta, …) = join(part₁, …) + join(part₂, …) + …

Each part looks up a in order, as before, and b only in a small piece of its relation.

Cost: O(rows * parts) to divide the delta, with at most `MAX_PARTS` parts. If the piece of a part
fits in the memory, a page of a relation is read at most once per part, not once per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["count_parts", "divide_run"]

# Each part looks up b in about this many bytes of mapped runs; in more if `MAX_PARTS` or
# `MIN_ROWS_PER_PART` limits the number of parts.
MAPPED_BYTES_PER_PART: Final = 1 << 26
MAX_PARTS: Final = 8
# A part has about this many rows or more: each part may read all pages of the relation of a again.
MIN_ROWS_PER_PART: Final = 1 << 14
# The bounds of the ranges are quantiles of a sample of at least this many values per part.
SAMPLED_VALUES_PER_PART: Final = 256


def count_parts(run: Run, spines: Iterable[Spine]) -> int:
    """Return into how many parts to divide a delta; 1 if dividing it does not pay.

    It does not pay if the delta has few rows or one column, or no relation has large mapped runs.

    Args:
        run: The delta from whose rows the join starts.
        spines: The relations that the join reads.
    """
    rows = run.rows
    if run.arity < 2 or rows < 2 * MIN_ROWS_PER_PART:
        return 1
    mapped_bytes = max((spine.mapped_bytes for spine in spines), default=0)
    parts = min(mapped_bytes // MAPPED_BYTES_PER_PART, rows // MIN_ROWS_PER_PART, MAX_PARTS)
    return max(int(parts), 1)


def divide_run(run: Run, parts: int) -> Iterator[Run]:
    """Divide the rows of a run by ranges of the values of its second column.

    Args:
        run: At least two columns and one row.
        parts: The number of ranges, from 1 to 256. The ranges have about equally many rows; there
            are fewer ranges if many rows have the same value.

    Yields:
        Runs with at least one row each, in the column order of ``run``.

    Complexity:
        O(rows * (parts + log rows)) time; memory for a byte per row, and for one part.

    >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 9), (2, 5), (3, 9)]), np.arange(2))
    >>> [part.read()[0].tolist() for part in divide_run(run, 2)]
    [[[1, 2], [5, 5]], [[1, 3], [9, 9]]]
    """
    # A run of two columns has these values; they are not copied.
    values = run.level_values(1) if run.arity == 2 else run.read()[0][1]
    stride = max(len(values) // (SAMPLED_VALUES_PER_PART * parts), 1)
    sample = np.sort(values[::stride])
    bounds = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
    numbers = np.searchsorted(bounds, values, side="right").astype(np.uint8)
    del values
    order = np.arange(run.arity)
    for number in range(len(bounds) + 1):
        is_in_part = numbers == number
        if is_in_part.any():
            yield Run.of(_rows_at(run, np.flatnonzero(is_in_part)), order)


def _rows_at(run: Run, positions: Int64Array) -> ZSet:
    """Return the rows at some ascending positions; they stay sorted and distinct."""
    return ZSet(run.rows_at(positions), run.weights_at(positions))
