"""A run that is built from sorted keys of rows, part by part (`dbsp_wcoj.storage.row_keys`)."""

from __future__ import annotations

import numpy as np

from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.key_runs import STATE_WORDS, append_keys, finish_run
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array

__all__ = ["KeyRunBuilder"]

_NO_WEIGHTS: Int64Array = np.empty(0, np.int64)


class KeyRunBuilder:
    """Builds a run of rows with positive weights, and lists the first row of each prefix.

    A prefix is a row without its last column.

    Args:
        layout: The layout of the keys.
        rows: The number of rows that will be appended, at least 1.
        prefixes: The number of their prefixes.
        has_weights: False if all weights are 1.
        delay: Added to the last column of the first rows.

    >>> builder = KeyRunBuilder(KeyLayout((5, 0), (1, 2)), rows=3, prefixes=2)
    >>> builder.append(np.array([1, 3]))
    >>> builder.append(np.array([4]))
    >>> builder.finish().read()[0].tolist(), builder.first_rows.tolist()
    ([[5, 5, 6], [1, 3, 0]], [[5, 6], [1, 0]])
    """

    def __init__(
        self,
        layout: KeyLayout,
        *,
        rows: int,
        prefixes: int,
        has_weights: bool = False,
        delay: int = 0,
    ) -> None:
        arity = len(layout.bits)
        self.first_rows: Int64Array = np.empty((arity, prefixes), np.int64)
        self._first_count = 0
        self._lowest = np.array(layout.lowest, np.int64)
        self._shifts = np.cumsum([0, *layout.bits[:0:-1]])[::-1].astype(np.int64)
        self._masks = (np.int64(1) << np.array(layout.bits, np.int64)) - 1
        self._delay = delay
        self._state: Int64Array = np.zeros(STATE_WORDS, np.int64)
        # The sections, each as large as it may become. Memory that is not written to is not used.
        header = np.zeros(
            run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * arity, np.int64
        )
        header[run_layout.ARITY] = arity
        header[run_layout.MAX_ABS_WEIGHT] = 1
        end = len(header)
        first_nodes = min(1 << layout.bits[0], prefixes if arity > 1 else rows)
        for level in range(arity):
            entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
            is_last = level == arity - 1
            nodes = rows if is_last else prefixes if level else first_nodes
            header[entry + run_layout.LEVEL_VALUES] = end
            end += nodes
            if not is_last:
                header[entry + run_layout.LEVEL_OFFSETS] = end
                end += nodes + 1
        self._directory = end
        end += 2 * first_nodes + 4
        if has_weights:
            header[run_layout.WEIGHT_SUMS] = end
            end += rows + 1
        self._buffer: Int64Array = np.empty(end, np.int64)
        self._buffer[: len(header)] = header

    def append(self, keys: Int64Array, weights: Int64Array = _NO_WEIGHTS) -> None:
        """Append rows that follow all rows so far.

        Args:
            keys: Strictly ascending.
            weights: One per key, positive; ignored if all are 1.
        """
        self._first_count = append_keys(
            self._buffer,
            self._state,
            keys,
            weights,
            self._lowest,
            self._shifts,
            self._masks,
            self.first_rows,
            self._first_count,
        )

    def finish(self) -> Run:
        """Return the run of all rows; call this once."""
        self.first_rows[-1] += self._delay
        return Run(self._buffer, *finish_run(self._buffer, self._state, self._directory))
