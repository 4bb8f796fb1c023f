"""Limits of a step as the command line names them, and the memory of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.errors import EventsError

__all__ = ["limits_of", "memory_of_machine"]

_SIZE: Final = re.compile(r"(\d{1,15})\s*([kmgt]?)i?b?")
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
#: The results of a step may take one part in so many of the memory: the state needs the rest, and
#: sorting takes about as much again for a moment.
MEMORY_PARTS: Final = 3
#: The memory that a container may use; "max" for all.
_CONTAINER: Final = Path("/sys/fs/cgroup/memory.max")


def limits_of(
    max_step_rows: int | None, max_step_bytes: str | None, max_seconds: float | None
) -> StepLimits:
    """The limits of a step, by what the options say: 0 switches one off, None is the default.

    Raises:
        EventsError: A size is none.

    >>> limits_of(0, "4G", 60)
    StepLimits(max_step_rows=None, max_step_bytes=4294967296, max_seconds=60)
    """
    rows = DEFAULT_LIMITS.max_step_rows if max_step_rows is None else max_step_rows
    if max_step_bytes is None:
        memory = memory_of_machine()
        size = DEFAULT_LIMITS.max_step_bytes if memory is None else memory // MEMORY_PARTS
    else:
        size = _size(max_step_bytes)
    return StepLimits(rows or None, size or None, max_seconds or None)


def memory_of_machine() -> int | None:
    """The bytes of memory that this process may have; None where the system does not say."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        allowed = _CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        allowed = ""
    return min(found, int(allowed)) if allowed.isdigit() else found


def _size(text: str) -> int:
    """A number of bytes.

    >>> _size("512M"), _size("1 GiB"), _size("7")
    (536870912, 1073741824, 7)
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise EventsError(
            f"--max-step-bytes {text!r}: write a number and perhaps K, M, G or T, as in 4G; 0 for "
            "no limit"
        )
    return int(found[1]) << _UNITS[found[2]]
