"""Delta division: joins a large delta in parts, so that its look-ups in mapped runs are local.

A join that starts from the rows of a delta, sorted by (a, b), looks up a in one relation and b in
another. The look-ups of a follow the order of the relation, those of b are at random positions. If
the relation is a memory map that is larger than the memory, nearly each of these then needs a page
that is not resident. So the delta is divided by the value of b. A join is linear in each factor::

    delta = part₁ + part₂ + …        part i: the rows whose b is in the i-th range of values
    join(delta, …) = join(part₁, …) + join(part₂, …) + …

Each part looks up a in order again, and b only in a small piece of the relation.

Cost: O(rows) to copy the delta. Each page of the relation is needed once for each part at most,
instead of once for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import ZSet

__all__ = ["count_parts", "divide_run"]

# The look-ups of a part in mapped runs are within about this many bytes.
MAPPED_BYTES_PER_PART: Final = 1 << 26
MAX_PARTS: Final = 8
# A part has at least this many rows: it looks up its rows in all pages of a relation again.
MIN_ROWS_PER_PART: Final = 1 << 14
# The bounds of the ranges are quantiles of at least this many values for each part.
SAMPLED_VALUES_PER_PART: Final = 256


def count_parts(run: Run, spines: Iterable[Spine]) -> int:
    """Return the number of parts of a delta; 1 if it is small, or the relations are in memory.

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
        run: At least two columns, and one row.
        parts: The number of ranges with about equally many rows, at least 1. There may be fewer if
            many rows have the same value.

    Yields:
        Runs with at least one row each, in the column order of the run.

    Complexity:
        O(rows log parts).

    >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 9), (2, 5), (3, 9)]), np.arange(2))
    >>> [part.read()[0].tolist() for part in divide_run(run, 2)]
    [[[1, 2], [5, 5]], [[1, 3], [9, 9]]]
    """
    columns, weights = run.read()
    values = columns[1]
    stride = max(len(values) // (SAMPLED_VALUES_PER_PART * parts), 1)
    sample = np.sort(values[::stride])
    bounds = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
    numbers = np.searchsorted(bounds, values, side="right")
    order = np.arange(run.arity)
    for number in range(len(bounds) + 1):
        is_in_part = numbers == number
        if is_in_part.any():
            # The rows of a part are sorted and distinct, as those of the run.
            rows = ZSet(np.ascontiguousarray(columns[:, is_in_part]), weights[is_in_part])
            yield Run.of(rows, order)
