"""Retry: how long a target waits for a database that does not answer, and how often it tries.

The pause between attempts doubles from ``first_pause_seconds`` up to ``max_pause_seconds``
(exponential backoff). Each pause is shortened at random by up to half (jitter), so that the sinks
that lost the connection to one server do not all reconnect at the same time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streaming.errors import TargetError

__all__ = ["Retry", "RetryAttempts"]

JITTER: Final = 0.5


@dataclass(frozen=True)
class Retry:
    """How often and how long a write is retried while its database cannot be reached.

    Attributes:
        max_attempts: Attempts per write of a micro-batch, including the first; 1 means no retry.
        max_seconds: The longest time from the first failure to the start of the last attempt.
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
        """Return the pause in seconds between an attempt and the next one.

        Args:
            attempt: The number of the attempt that failed, from 1.
            chance: A random number from 0, for the full pause, to 1, for half of it.

        >>> [Retry().pause(attempt) for attempt in (1, 2, 3, 20)]
        [0.1, 0.2, 0.4, 10.0]
        """
        doubled = self.first_pause_seconds * 2.0 ** min(attempt - 1, 60)
        return min(self.max_pause_seconds, doubled) * (1.0 - JITTER * chance)


class RetryAttempts:
    """Counts the attempts of one write.

    Args:
        retry: The limits on attempts, seconds and pauses.
        clock: Returns the current time in seconds.
        chance: Returns a random number from 0 to 1.
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
        self._first_failure: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the first attempt failed."""
        return 0.0 if self._first_failure is None else self._clock() - self._first_failure

    def next_pause(self) -> float | None:
        """Count a failed attempt and return the pause before the next one, or None to give up."""
        if self._first_failure is None:
            self._first_failure = self._clock()
        pause = self._retry.pause(self.count, self._chance())
        if self.count >= self._retry.max_attempts or (
            self.seconds + pause > self._retry.max_seconds
        ):
            return None
        self.count += 1
        return pause
