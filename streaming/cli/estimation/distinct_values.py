"""Distinct values: how many there are in all rows, estimated from the rows of a sample.

::

    f_j    the number of values that occur j times in the sample
    S      the number of values in the sample, f_1 + f_2 + ...
    n      the number of rows of the sample
    t      the number of all rows / n
    σ, k   the shape and the scale of the distribution

Good and Toulmin's model: the frequencies of the values have a distribution, and the sample is
random. Here the distribution is Efron and Thisted's extended gamma distribution, which includes
equal frequencies (σ -> -∞), exponential ones (σ = -1) and power laws (0 < σ < 1)::

    f_(j+1) / f_j = (j - σ) / (j + 1) · n / (n + k)
    new values in all rows = f_1 · (k/n) (1 + n/k)^(1 - σ) · ((1 + tn/k)^σ - (1 + n/k)^σ) / σ

σ and k have the greatest likelihood given f_1 to f_4. Values that are frequent in the sample say
little about values that are not in it, so larger j are left out, as Chao and Lee do.

The sample does not determine the number. So there are also limits, which hold for any
distribution, apart from chance: at least Chao's ``S + f_1 (f_1 - 1) / (2 (f_2 + 1))``, here with
two standard deviations added to f_2, and at most ``S + f_1 (t - 1)``. An estimate beyond a limit
moves the limit.

Sources: Efron and Thisted, Biometrika 63 (1976), 435-447; Chao, Scandinavian Journal of Statistics
11 (1984), 265-270; Chao and Lee, JASA 87 (1992), 210-217.

Alternatives considered: a power law of the number of values in samples of several sizes is 2 to 10
times too large. GEE (Charikar et al., PODS 2000) is 2 to 6 times too small or too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["DistinctValues", "Int64Array", "estimate_distinct_values", "find_occurrences"]

Int64Array = npt.NDArray[np.int64]

#: The greatest j whose f_j determines σ and k.
MAX_OCCURRENCES: Final = 4
#: The σ that are tried; the one close to 0 is the logarithmic series.
SIGMAS: Final = np.concatenate([-np.geomspace(100, 0.1, 25), [1e-6], np.linspace(0.05, 0.95, 19)])
#: The k / n that are tried.
SCALES: Final = np.geomspace(1e-4, 1e5, 200)
#: The number of sets of columns whose values are counted, for each input.
MAX_COLUMN_SETS: Final = 100


@dataclass(frozen=True)
class DistinctValues:
    """The number of values in all rows.

    Attributes:
        estimate: The most likely number.
        low: A limit below which the number is unlikely to be; at most ``estimate``.
        high: A limit above which the number is unlikely to be; at least ``estimate``.
    """

    estimate: float
    low: float
    high: float


def estimate_distinct_values(occurrences: Int64Array, fraction: float) -> DistinctValues:
    """Estimate the number of distinct values in all rows.

    Args:
        occurrences: How often each value occurs in the sample.
        fraction: The fraction of all rows in the sample: 1 / t, greater than 0 and at most 1.

    Complexity:
        O(values in the sample).

    >>> estimate_distinct_values(np.full(100, 7), 0.1)
    DistinctValues(estimate=100.0, low=100.0, high=100.0)
    """
    most = MAX_OCCURRENCES + 1  # stands for all greater numbers
    counts = np.bincount(np.minimum(occurrences, most), minlength=most + 1)
    once, twice = int(counts[1]), int(counts[2])
    seen = len(occurrences)
    high = seen + once * (1 / fraction - 1)
    twice_at_most = twice + 2 * sqrt(twice) + 1  # two standard deviations
    low = min(high, seen + once * (once - 1) / (2 * twice_at_most))
    estimate = seen + _new_values(counts[1 : MAX_OCCURRENCES + 1], 1 / fraction)
    return DistinctValues(estimate, min(low, estimate), max(high, estimate))


def _new_values(counts: Int64Array, growth: float) -> float:
    """Return the number of values that all rows have and the sample lacks.

    Args:
        counts: f_1, f_2, ...
        growth: t.
    """
    if not counts[0] or growth <= 1:
        return 0.0
    sigma, scale = SIGMAS[:, None], SCALES[None, :]
    times = np.arange(1, len(counts))
    ratios = (times - sigma[..., None]) / (times + 1) / (1 + scale[..., None])
    shares = np.concatenate([np.ones((*ratios.shape[:2], 1)), np.cumprod(ratios, axis=2)], axis=2)
    total = shares.sum(axis=2)
    likelihood = (counts * np.log(shares / total[..., None])).sum(axis=2)
    row, column = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
    s, k = float(SIGMAS[row]), float(SCALES[column])
    once = counts.sum() / total[row, column]  # f_1 of the model
    # The formula above with the factor (1 + 1/k)^σ taken out, because a power could overflow.
    ratio = (1 + growth / k) / (1 + 1 / k)
    return float(once * k * (1 + 1 / k) * (ratio**s - 1) / s)


def find_occurrences(
    samples: Sequence[pa.Table], parts: Sequence[Sequence[int]]
) -> dict[tuple[int, ...], Int64Array]:
    """Find the columns whose distinct values are the rows of a part of the state.

    If, in each sample, a part has as many rows as some columns have distinct values, it is taken
    to have a row for each of these values. The two numbers may differ by one: a join, for example,
    does not store NULL.

    Args:
        samples: The samples of an input, of ascending sizes.
        parts: The rows of each part in these samples.

    Returns:
        For each part with such columns, by its rows: how often each value occurs in the largest
        sample.
    """
    found: dict[tuple[int, ...], Int64Array] = {}
    missing = {tuple(rows) for rows in parts}
    for columns in islice(_column_sets(samples[-1].schema), MAX_COLUMN_SETS):
        if not missing:
            break
        occurrences = _occurrences(samples[-1], columns)
        candidates = [rows for rows in missing if abs(rows[-1] - len(occurrences)) <= 1]
        if not candidates:
            continue
        distinct = [len(_occurrences(sample, columns)) for sample in samples[:-1]]
        for rows in candidates:
            if all(abs(a - b) <= 1 for a, b in zip(rows[:-1], distinct, strict=True)):
                found[rows] = occurrences
                missing.discard(rows)
    return found


def _column_sets(schema: pa.Schema) -> Iterator[tuple[str, ...]]:
    """Yield the sets of columns that Arrow can group by: one column, all, then two, three, ..."""
    names = [field.name for field in schema if not pa.types.is_nested(field.type)]
    sizes = [1, len(names), *range(2, len(names))] if len(names) > 1 else [len(names)]
    return chain.from_iterable(combinations(names, size) for size in sizes if size)


def _occurrences(table: pa.Table, columns: tuple[str, ...]) -> Int64Array:
    """Return how often each combination of values occurs."""
    groups = table.group_by(list(columns)).aggregate([([], "count_all")])
    return np.asarray(groups["count_all"], np.int64)
