"""Repetition: run the same steps until the median of their times is precise, or a limit is reached.

Repeating the steps does not reduce the spread of their times, because the steps differ from one
another. But the confidence interval of the median time shrinks in proportion to one over the square
root of the number of times. So the output shows the quartiles as the spread, and the width of the
confidence interval decides when to stop.

The ends of the interval are order statistics: two of the sorted times. This assumes nothing about
the distribution of the times, except that they are independent. On a machine that is busy for a
while they are not independent, and the interval is then a lower bound of the uncertainty.
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

__all__ = ["Measurement", "RepetitionLimits", "StopReason", "median_interval", "repeat"]

MIN_REPETITIONS: Final = 3
#: From this many times on, the smallest and the largest enclose the median with 95 % confidence.
MIN_TIMES: Final = 6
#: Half of the 97.5 % quantile of the standard normal distribution, since the rank of the median
#: among n times has the standard deviation sqrt(n) / 2.
_HALF_Z: Final = 0.98


class StopReason(StrEnum):
    """Why a measurement ended."""

    precise = "precise"
    repetitions = "max-repetitions"
    seconds = "max-seconds"


@dataclass(frozen=True)
class RepetitionLimits:
    """Limits that end a measurement.

    Attributes:
        precision: Stop when neither end of the confidence interval is further from the median
            than this, as a fraction of the median.
        max_repetitions: Largest number of repetitions, 1 or more.
        max_seconds: No repetition begins that is expected to end later than this after the start.
    """

    precision: float
    max_repetitions: int
    max_seconds: float


@dataclass(frozen=True)
class Measurement:
    """The times of all steps in seconds, a tuple per repetition, and why the measurement ended."""

    repetitions: tuple[tuple[float, ...], ...]
    stop: StopReason

    @property
    def times(self) -> list[float]:
        """All times, sorted."""
        return sorted(chain.from_iterable(self.repetitions))

    @property
    def median(self) -> float:
        """The median time of a step, in seconds."""
        return median(self.times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of the times, in seconds.

        A quarter of the steps is faster than the lower one, and a quarter slower than the upper.

        >>> Measurement(((1.0, 2.0, 3.0), (4.0, 5.0)), StopReason.precise).quartiles
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
        """The distance from the median to the farther end of its interval, relative to it."""
        low, high = self.interval
        middle = self.median
        return max(high - middle, middle - low) / middle if middle else 0.0


def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median of sorted times.

    With few times, it reaches from the smallest to the largest.

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
    """Run the steps repeatedly, at least once, until a limit is reached.

    Args:
        run_steps: Runs all steps, and returns the seconds of each.
        limits: When to stop. The precision is checked from `MIN_REPETITIONS` repetitions and
            `MIN_TIMES` times on.
        clock: Returns the current time in seconds.

    >>> limits = RepetitionLimits(precision=0.1, max_repetitions=9, max_seconds=60)
    >>> measurement = repeat(lambda: [1.0, 1.01, 1.02], limits)
    >>> len(measurement.repetitions), measurement.stop, round(measurement.precision, 3)
    (3, <StopReason.precise: 'precise'>, 0.01)
    >>> measurement = repeat(lambda: [1.0, 2.0, 3.0], limits)
    >>> len(measurement.repetitions), measurement.stop, measurement.precision
    (9, <StopReason.repetitions: 'max-repetitions'>, 0.5)
    """
    start = clock()
    repetitions: list[tuple[float, ...]] = []
    while True:
        repetitions.append(tuple(run_steps()))
        measurement = Measurement(tuple(repetitions), StopReason.precise)
        if _is_precise(measurement, limits.precision):
            return measurement
        elapsed = clock() - start
        if len(repetitions) >= limits.max_repetitions:
            return Measurement(measurement.repetitions, StopReason.repetitions)
        if elapsed + elapsed / len(repetitions) > limits.max_seconds:
            return Measurement(measurement.repetitions, StopReason.seconds)


def _is_precise(measurement: Measurement, precision: float) -> bool:
    if len(measurement.repetitions) < MIN_REPETITIONS or len(measurement.times) < MIN_TIMES:
        return False
    return measurement.precision <= precision
