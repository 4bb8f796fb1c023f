"""Interrupts, as by Ctrl-C: after a call of a function, or before a line of some files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]

__all__ = ["Interrupted", "InterruptedAfter", "interrupted"]


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


class Interrupted(KeyboardInterrupt):
    """The interrupt of `interrupted`."""


@contextmanager
def interrupted(line: int | None, files: tuple[str, ...]) -> Iterator[list[int]]:
    """Raise `Interrupted` before the line of this number in files; yield the counted lines.

    As with Ctrl-C, only the thread of the caller is interrupted.
    """
    counted = [0]
    missing = [name for name in files if not (ROOT / name).is_file()]
    assert not missing, f"no such files: {missing}"

    def trace_call(frame: FrameType, event: str, argument: Any) -> Any:
        return trace_line if frame.f_code.co_filename.endswith(files) else None

    def trace_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            counted[0] += 1
            if counted[0] == line:
                raise Interrupted
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield counted
    except Interrupted:
        pass
    finally:
        sys.settrace(before)
