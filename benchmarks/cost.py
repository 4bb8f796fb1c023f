"""Measures seconds of wall time, and CPU seconds of all threads and memory of this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Seconds between two readings of the clocks."""

    wall: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


class Clock:
    """Clocks of wall and CPU time that start when the object is created.

    >>> clock = Clock()
    >>> clock.read().wall >= 0
    True
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @staticmethod
    def process() -> float:
        """Return the CPU seconds of this process since it started."""
        return time.process_time()

    def read(self) -> Cost:
        """Return the seconds since the clock was created."""
        return Cost(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of the wall seconds and the median of the CPU seconds."""
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
    )


class PeakResidentMemory:
    """The largest resident memory of this process since the object was created.

    It includes the memory that the process had before. There is one such object at a time.

    >>> PeakResidentMemory().read() > 0
    True
    """

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def read(self) -> int:
        """Return the bytes."""
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
        raise OSError("the system does not tell the peak memory of a process")
