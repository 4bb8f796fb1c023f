"""Statistics: estimates of the number of distinct values of columns, for the planner.

The largest run of a relation represents the relation, or the delta of the step if that is larger.
A large run is sampled systematically. The estimated number of distinct values is the number of
values that the sample contains once, times the root of the inverse sampling rate, plus the number
of the other values [1]. Estimates decide which of several correct plans runs, never its result.

References:
    [1] Charikar, Chaudhuri, Motwani, Narasayya. Towards Estimation Error Guarantees for Distinct
        Values. PODS 2000, section 4 (the estimator GEE).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.storage.sort import consolidate
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array, sort_scratch

__all__ = ["Sample", "Statistics", "sample_of", "sample_of_largest"]

# Sampled columns, and the number of rows of the whole.
Sample = tuple[Int64Array, int]

MAX_SAMPLE_ROWS: Final = 1 << 14


class Statistics:
    """Estimated numbers of distinct values.

    Args:
        samples: For each relation sampled columns of shape ``(arity, n)`` and its number of rows.

    >>> edges = np.array([[1, 1, 2, 2], [5, 6, 5, 6]])
    >>> statistics = Statistics({"e": sample_of(edges)})
    >>> statistics.distinct("e", {0}), statistics.distinct("e", {0, 1})
    (2.0, 4.0)
    """

    __slots__ = ("_estimates", "_samples")

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self._samples = samples
        self._estimates: dict[tuple[str, frozenset[int]], float] = {}

    def distinct(self, name: str, columns: Collection[int]) -> float | None:
        """Estimate the number of distinct value combinations of columns; None if unknown.

        Complexity:
            O(sample) the first time, then O(1).
        """
        if name not in self._samples:
            return None
        key = (name, frozenset(columns))
        if key not in self._estimates:
            sample, total = self._samples[name]
            self._estimates[key] = _estimate_distinct(sample[sorted(columns)], total)
        return self._estimates[key]


def sample_of(rows: Int64Array | Run) -> Sample:
    """Sample columns, or a run in its own column order, systematically.

    Complexity:
        O(sample log n).
    """
    total = rows.rows if isinstance(rows, Run) else rows.shape[1]
    if total <= MAX_SAMPLE_ROWS:
        return (rows.read()[0] if isinstance(rows, Run) else rows), total
    places = np.linspace(0, total - 1, MAX_SAMPLE_ROWS).astype(np.int64)
    if isinstance(rows, Run):
        return rows.rows_at(places), total
    return np.ascontiguousarray(rows[:, places]), total


def sample_of_largest(trace: Trace, step: TraceStep | None) -> Sample:
    """Sample the largest run, or the step's delta if that has more rows."""
    runs = [(run.rows, run, a.order) for a in trace.arrangements[:1] for run in a.spine.runs]
    rows, run, order = max(runs, key=lambda found: found[0], default=(0, None, ()))
    if step is not None and len(step.delta) > rows:
        return sample_of(step.delta.row_array)
    if run is None:
        return np.empty((trace.arity, 0), np.int64), 0
    read, rows = sample_of(run)
    columns = np.empty_like(read)
    columns[list(order)] = read
    return columns, rows


def _estimate_distinct(sample: Int64Array, total: int) -> float:
    size = sample.shape[1]
    if not len(sample) or not size:
        return float(min(size, 1))
    ones = np.ones(size, np.int64)
    _, times, _ = consolidate(np.ascontiguousarray(sample), ones, sort_scratch(size))
    once = int((times == 1).sum())
    return float(min(total, len(times) - once + once * (total / size) ** 0.5))
