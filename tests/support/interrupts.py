"""Interrupts after a function has changed the state, before its caller goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["InterruptedAfter"]


class InterruptedAfter:
    """A function after whose ``count``-th call Ctrl-C arrives, before its result is stored."""

    def __init__(self, function: Callable[..., Any], count: int = 1) -> None:
        self.function, self.remaining = function, count

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        result = self.function(*arguments, **options)
        self.remaining -= 1
        if not self.remaining:
            raise KeyboardInterrupt
        return result

    def bound(self) -> Callable[..., Any]:
        """Return this as a function, to replace a method of a class."""
        return lambda *arguments, **options: self(*arguments, **options)
