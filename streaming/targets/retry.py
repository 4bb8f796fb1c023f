"""Retry: how long a database that does not answer is waited for.

The pauses double from ``first_pause_seconds`` to ``max_pause_seconds``. Each is shortened by up to
half, at random, so that the sinks that lost one server do not come back to it all at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streaming.errors import TargetError

__all__ = ["Attempts", "Retry"]

JITTER: Final = 0.5


@dataclass(frozen=True)
class Retry:
    """How often a write is tried while its database cannot be reached.

    Attributes:
        max_attempts: Attempts of one micro-batch, the first one among them; 1: no retry.
        max_seconds: No attempt begins later than this after the first one failed.
        first_pause_seconds: The pause before the second attempt.
        max_pause_seconds: The longest pause.

    Raises:
        TargetError: A number is out of range.
    """

    max_attempts: int = 20
    max_seconds: float = 120.0
    first_pause_seconds: float = 0.1
    max_pause_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise TargetError(f"retry: max_attempts={self.max_attempts}: give 1 or more")
        for name in ("max_seconds", "first_pause_seconds", "max_pause_seconds"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise TargetError(f"retry: {name}={value}: give 0 or more seconds")

    def pause(self, attempt: int, chance: float = 0.0) -> float:
        """Seconds between attempt ``attempt`` (from 1) and the next one.

        Args:
            attempt: The attempt that failed.
            chance: From 0, the full pause, to 1, half of it.

        >>> [Retry().pause(attempt) for attempt in (1, 2, 3, 20)]
        [0.1, 0.2, 0.4, 10.0]
        """
        doubled = self.first_pause_seconds * 2.0 ** min(attempt - 1, 60)
        return min(self.max_pause_seconds, doubled) * (1.0 - JITTER * chance)


class Attempts:
    """The attempts of one write.

    Args:
        retry: How many there may be.
        clock: Seconds.
        chance: Random numbers from 0 to 1.
    """

    def __init__(
        self,
        retry: Retry,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.count = 1
        self._retry = retry
        self._clock, self._chance = clock, chance
        self._begun: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the first attempt failed."""
        return 0.0 if self._begun is None else self._clock() - self._begun

    def next_pause(self) -> float | None:
        """Count a failed attempt; the seconds to wait before the next one, None for no more."""
        if self._begun is None:
            self._begun = self._clock()
        pause = self._retry.pause(self.count, self._chance())
        if self.count >= self._retry.max_attempts or (
            self.seconds + pause > self._retry.max_seconds
        ):
            return None
        self.count += 1
        return pause
