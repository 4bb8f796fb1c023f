"""A thread that runs when it is polled, so that a test decides when a compaction ends."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["PolledThread"]


class PolledThread:
    """Runs a function in the thread of the caller.

    Args:
        function: The function.
        polls: How often `is_alive` is called before the function runs; 0 to run it now.
    """

    def __init__(self, function: Callable[[], None], polls: int) -> None:
        self._function: Callable[[], None] | None = function
        self._polls = polls
        if not polls:
            self.join()

    def is_alive(self) -> bool:
        self._polls -= 1
        if self._polls <= 0:
            self.join()
        return self._function is not None

    def join(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()
