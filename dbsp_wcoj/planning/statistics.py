"""Statistics: estimates of the number of distinct values of columns, for the planner.

A relation is represented by its largest run (immutable sorted piece), which may be of an earlier
iteration of a recursion; or by the delta of the step if that has more rows. From many rows, every
k-th one is sampled. With n rows, of which r are in the sample, the estimated number of distinct
values is [1]::

    sqrt(n / r) * (values that occur once in the sample)  +  (values that occur more than once)

Estimates decide which of several correct plans runs, never its result.

References:
    [1] Charikar, Chaudhuri, Motwani, Narasayya. Towards Estimation Error Guarantees for Distinct
        Values. PODS 2000, section 4 (the estimator GEE).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.kernels.storage.sort import consolidate
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import Trace, TraceStep
from dbsp_wcoj.zset import Int64Array, sort_scratch

__all__ = ["Sample", "Statistics", "sample_largest_run", "sample_rows"]

MAX_SAMPLE_ROWS: Final = 1 << 14


class Sample(NamedTuple):
    """Some rows of a relation.

    Attributes:
        columns: The sampled rows, shape ``(arity, n)``.
        total_rows: The number of rows that the sample was drawn from.
    """

    columns: Int64Array
    total_rows: int


class Statistics:
    """Estimated numbers of distinct values.

    Args:
        samples: A sample of each relation.

    >>> edges = np.array([[1, 1, 2, 2], [5, 6, 5, 6]])
    >>> statistics = Statistics({"e": sample_rows(edges)})
    >>> statistics.count_distinct("e", {0}), statistics.count_distinct("e", {0, 1})
    (2.0, 4.0)
    """

    __slots__ = ("_estimates", "_samples")

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self._samples = samples
        self._estimates: dict[tuple[str, frozenset[int]], float] = {}

    def count_distinct(self, name: str, columns: Collection[int]) -> float | None:
        """Estimate how many distinct values some columns have together; None if unknown.

        Complexity:
            O(sample) the first time, then O(1).
        """
        if name not in self._samples:
            return None
        key = (name, frozenset(columns))
        if key not in self._estimates:
            sample = self._samples[name]
            sampled = sample.columns[sorted(columns)]
            self._estimates[key] = _estimate_distinct(sampled, sample.total_rows)
        return self._estimates[key]


def sample_rows(rows: Int64Array | Run) -> Sample:
    """Sample every k-th row of an array of shape ``(columns, rows)``, or of a run in its order.

    Complexity:
        O(sample log n).
    """
    total = rows.rows if isinstance(rows, Run) else rows.shape[1]
    if total <= MAX_SAMPLE_ROWS:
        return Sample(rows.read()[0] if isinstance(rows, Run) else rows, total)
    positions = np.linspace(0, total - 1, MAX_SAMPLE_ROWS).astype(np.int64)
    if isinstance(rows, Run):
        return Sample(rows.rows_at(positions), total)
    return Sample(np.ascontiguousarray(rows[:, positions]), total)


def sample_largest_run(trace: Trace, step: TraceStep | None) -> Sample:
    """Sample the largest run of a trace, or the step's delta if that has more rows."""
    arrangement = trace.arrangements[0] if trace.arrangements else None
    largest = None
    if arrangement is not None:
        largest = max(arrangement.spine.visible_runs, key=lambda run: run.rows, default=None)
    if step is not None and step.rows > (0 if largest is None else largest.rows):
        return sample_rows(step.delta.row_array)
    if arrangement is None or largest is None:
        return Sample(np.empty((trace.arity, 0), np.int64), 0)
    sample = sample_rows(largest)
    columns = np.empty_like(sample.columns)
    columns[list(arrangement.order)] = sample.columns
    return Sample(columns, sample.total_rows)


def _estimate_distinct(sampled: Int64Array, total_rows: int) -> float:
    size = sampled.shape[1]
    if not len(sampled) or not size:
        return float(min(size, 1))
    ones = np.ones(size, np.int64)
    _, occurrences, _ = consolidate(np.ascontiguousarray(sampled), ones, sort_scratch(size))
    once = int((occurrences == 1).sum())
    more_than_once = len(occurrences) - once
    return float(min(total_rows, more_than_once + once * (total_rows / size) ** 0.5))
