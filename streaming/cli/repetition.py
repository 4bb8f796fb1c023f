"""Repetition: run the same steps until the median of their times is precise, or a limit is reached.

The spread of step times does not shrink when steps are repeated, for steps differ. The confidence
interval of their median does, in proportion to one over the square root of their number. So the
quartiles are shown, and the interval decides when to stop.

The interval is that of the order statistics: it makes no assumption about the distribution of the
times except that they are independent. Times of a machine that is busy for a while are not, so the
interval is a lower bound of the uncertainty there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import sqrt
from statistics import median, quantiles
from time import perf_counter
from typing import Final

__all__ = ["Measurement", "RepetitionLimits", "Stop", "median_interval", "repeat"]

MIN_REPETITIONS: Final = 3
#: Times of which the smallest and largest hold the median with a confidence of 95 %.
MIN_TIMES: Final = 6
#: Half of the standard normal quantile of 97.5 %: a median's rank has the deviation sqrt(n) / 2.
_HALF_Z: Final = 0.98


class Stop(StrEnum):
    """Why a measurement ended."""

    precise = "precise"
    repetitions = "max-repetitions"
    seconds = "max-seconds"


@dataclass(frozen=True)
class RepetitionLimits:
    """When to stop.

    Attributes:
        precision: Largest distance of an end of the interval from the median, as a share of it.
        max_repetitions: At most so many, 1 or more.
        max_seconds: A repetition does not begin if it is expected to end later than this.
    """

    precision: float
    max_repetitions: int
    max_seconds: float


@dataclass(frozen=True)
class Measurement:
    """The times of all steps, in seconds, by repetition, and why there are not more."""

    repetitions: tuple[tuple[float, ...], ...]
    stop: Stop

    @property
    def times(self) -> list[float]:
        """All times, sorted."""
        return sorted(chain.from_iterable(self.repetitions))

    @property
    def median(self) -> float:
        """The median step, in seconds."""
        return median(self.times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the steps is faster than the first, and a quarter slower than the second.

        >>> Measurement(((1.0, 2.0, 3.0), (4.0, 5.0)), Stop.precise).quartiles
        (2.0, 4.0)
        """
        times = self.times
        if len(times) == 1:
            return times[0], times[0]
        lower, _, upper = quantiles(times, n=4, method="inclusive")
        return lower, upper

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the median, in seconds."""
        return median_interval(self.times)

    @property
    def precision(self) -> float:
        """The largest distance of an end of the interval from the median, as a share of it."""
        low, high = self.interval
        middle = self.median
        return max(high - middle, middle - low) / middle if middle else 0.0


def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median of sorted times; all of them if there are few.

    >>> median_interval([1, 2, 3, 4, 5, 6])
    (1, 6)
    >>> median_interval(range(100))
    (40, 59)
    """
    below = max(int(len(times) / 2 - _HALF_Z * sqrt(len(times))), 0)
    return times[below], times[len(times) - 1 - below]


def repeat(
    run_steps: Callable[[], Sequence[float]],
    limits: RepetitionLimits,
    *,
    clock: Callable[[], float] = perf_counter,
) -> Measurement:
    """Run the steps again and again; at least once.

    Args:
        run_steps: Runs all steps, and returns the seconds of each.
        limits: When to stop. Precision is looked at after `MIN_REPETITIONS`.
        clock: The time in seconds.

    >>> limits = RepetitionLimits(precision=0.1, max_repetitions=9, max_seconds=60)
    >>> found = repeat(lambda: [1.0, 1.01, 1.02], limits)
    >>> len(found.repetitions), found.stop, round(found.precision, 3)
    (3, <Stop.precise: 'precise'>, 0.01)
    >>> found = repeat(lambda: [1.0, 2.0, 3.0], limits)
    >>> len(found.repetitions), found.stop, found.precision
    (9, <Stop.repetitions: 'max-repetitions'>, 0.5)
    """
    begun = clock()
    repetitions: list[tuple[float, ...]] = []
    while True:
        repetitions.append(tuple(run_steps()))
        found = Measurement(tuple(repetitions), Stop.precise)
        if _is_precise(found, limits.precision):
            return found
        elapsed = clock() - begun
        if len(repetitions) >= limits.max_repetitions:
            return Measurement(found.repetitions, Stop.repetitions)
        if elapsed + elapsed / len(repetitions) > limits.max_seconds:
            return Measurement(found.repetitions, Stop.seconds)


def _is_precise(found: Measurement, precision: float) -> bool:
    if len(found.repetitions) < MIN_REPETITIONS or len(found.times) < MIN_TIMES:
        return False
    return found.precision <= precision
