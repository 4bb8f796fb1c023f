"""KeyRunBuilder: builds a run part by part, from rows whose first columns are packed into keys.

`dbsp_wcoj.storage.row_keys` packs columns into a key. A part is a range of keys, so sorting needs
scratch memory for one part only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.key_runs import (
    STATE_WORDS,
    append_keys,
    finish_run,
    sort_dense_keys,
)
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array

__all__ = ["KeyRunBuilder"]

# Keys are sorted by a counting sort if their range has at most this many numbers per key.
MAX_NUMBERS_PER_KEY: Final = 4


class KeyRunBuilder:
    """Builds a run of rows with positive weights, and can collect the first row of each key.

    A key is a row without its last column, packed into an int64.

    Args:
        layout: The layout of the keys.
        rows: The number of rows that will be appended, at least 1.
        keys: The exact number of distinct keys; an upper bound without ``collects_first_rows``.
        has_weights: False if all weights are 1.
        collects_first_rows: False to leave ``first_rows`` empty.
        last_column_offset: Added to the last column of ``first_rows``, not of the run. For example,
            the last column is an iteration, and the next iteration reads the rows: it is 1.

    Attributes:
        first_rows: The row of each key with the lowest value in the last column, which is
            increased by ``last_column_offset``.

    >>> builder = KeyRunBuilder(KeyLayout((5,), (1,)), rows=3, keys=2)
    >>> builder.append([np.array([0, 1]), np.array([0])], [7, 8], [None, None])
    >>> builder.finish().read()[0].tolist(), builder.first_rows.tolist()
    ([[5, 5, 6], [7, 8, 7]], [[5, 6], [7, 7]])
    """

    def __init__(
        self,
        layout: KeyLayout,
        *,
        rows: int,
        keys: int,
        has_weights: bool = False,
        collects_first_rows: bool = True,
        last_column_offset: int = 0,
    ) -> None:
        columns = len(layout.bits)
        first_rows = keys if collects_first_rows else 0
        self.first_rows: Int64Array = np.empty((columns + 1, first_rows), np.int64)
        self._first_count = 0
        self._lowest = np.array(layout.lowest, np.int64)
        self._shifts = layout.shifts
        self._masks = layout.masks
        self._last_column_offset = last_column_offset
        self._state: Int64Array = np.zeros(STATE_WORDS, np.int64)
        # Reserve the maximum size of each section. The system assigns no memory to unwritten pages.
        header = np.zeros(
            run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * (columns + 1), np.int64
        )
        header[run_layout.ARITY] = columns + 1
        header[run_layout.MAX_ABS_WEIGHT] = 1
        end = len(header)
        first_nodes = min(1 << layout.bits[0], keys) if columns else rows
        for level in range(columns + 1):
            entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
            nodes = rows if level == columns else keys if level else first_nodes
            header[entry + run_layout.LEVEL_VALUES] = end
            end += nodes
            if level < columns:
                header[entry + run_layout.LEVEL_OFFSETS] = end
                end += nodes + 1
        self._directory = end
        end += 2 * first_nodes + 4
        if has_weights:
            header[run_layout.WEIGHT_SUMS] = end
            end += rows + 1
        self._buffer: Int64Array = np.empty(end, np.int64)
        self._buffer[: len(header)] = header

    def append(
        self,
        keys: Sequence[npt.NDArray[Any]],
        last_values: Sequence[int],
        weights: Sequence[npt.NDArray[Any] | None],
    ) -> None:
        """Append groups of rows; in the order of rows, all of them follow those of earlier calls.

        Args:
            keys: The keys of each group, strictly ascending in the group. Groups may share keys.
            last_values: The value of the last column in each group, strictly ascending.
            weights: The weights of each group; None if all are 1.
        """
        sizes = [len(group) for group in keys]
        size = sum(sizes)
        if not size:
            return
        lowest = min([int(group[0]) for group in keys if len(group)])
        highest = max([int(group[-1]) for group in keys if len(group)])
        unsorted = np.ones((2, size), np.int64)
        np.concatenate(keys, out=unsorted[0], casting="unsafe")
        unsorted[0] -= lowest
        ends = np.cumsum(sizes)
        for end, count, group_weights in zip(ends.tolist(), sizes, weights, strict=True):
            if group_weights is not None:
                unsorted[1, end - count : end] = group_weights
        values = np.array(last_values, np.int64)
        rows: Int64Array = np.empty((3, size), np.int64)
        if highest - lowest < MAX_NUMBERS_PER_KEY * size:
            positions = np.zeros(highest - lowest + 2, np.int64)
            sort_dense_keys(*unsorted, ends, values, positions, rows)
        else:
            order = np.argsort(unsorted[0], kind="stable")
            rows[0], rows[2] = unsorted[:, order]
            rows[1] = np.repeat(values, sizes)[order]
        self._first_count = append_keys(
            self._buffer,
            self._state,
            rows,
            lowest,
            self._lowest,
            self._shifts,
            self._masks,
            self.first_rows,
            self._first_count,
            self._last_column_offset,
        )

    def finish(self) -> Run:
        """Return the run of all rows; call this once."""
        return Run(self._buffer, *finish_run(self._buffer, self._state, self._directory))
