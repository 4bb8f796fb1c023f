"""The runs of a few rows in several column orders, by one call.

A step of one row makes one run of one row for each arrangement. What that costs is calls, so all of
them are made by one, in one buffer.
"""

import numpy as np
from numba import njit

from dbsp_wcoj.kernels.compiled import compiled
from dbsp_wcoj.kernels.layout import MAX_ABS_WEIGHT
from dbsp_wcoj.kernels.sort import is_prefix, sort_rows
from dbsp_wcoj.kernels.trie import build_run


@njit(nogil=True)
def build_few(columns, order, weights, run, no_scratch):
    """Sort at most `dbsp_wcoj.kernels.sort.FEW` rows by a column order and build their run."""
    if not is_prefix(order):
        columns, weights = sort_rows(columns, weights, order, no_scratch)
    build_run(columns, order, weights, run)


@compiled
def runs_of_few(columns, weights, orders, room, start, stride):
    """Build the runs of at most `dbsp_wcoj.kernels.sort.FEW` rows in all of the column orders.

    Args:
        columns: int64, shape ``(arity, n)``, sorted and distinct rows.
        weights: int64, shape ``(n,)``.
        orders: int64, shape ``(k, arity)``, k at least 1; each a permutation of the columns.
        room: int64; its words from ``start`` on are zero.
        start: where the first run begins.
        stride: words from one run to the next, at least `dbsp_wcoj.kernels.trie.run_words`.

    Returns:
        The largest absolute weight.
    """
    no_scratch = np.empty((1, 1), np.int64)
    for k in range(orders.shape[0]):
        run = room[start + stride * k : start + stride * (k + 1)]
        build_few(columns, orders[k], weights, run, no_scratch)
    return room[start + MAX_ABS_WEIGHT]
