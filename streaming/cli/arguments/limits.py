"""Parse the options that limit a step, and read the memory of this machine."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Final

from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.errors import EventsError
from streaming.sizes import parse_size
from streaming.state.records.dead_letter_files import DeadLetterRetention

__all__ = [
    "memory_of_machine",
    "parse_dead_letter_retention",
    "parse_limits",
    "parse_memory_limit",
]

#: By default the results of a step may use 1/3 of the memory: sorting them temporarily needs about
#: as much again, and the state needs the rest.
MEMORY_DIVISOR: Final = 3
#: The file with the memory limit of a container; "max" means no limit.
_CONTAINER_LIMIT_FILE: Final = Path("/sys/fs/cgroup/memory.max")


def parse_limits(
    max_step_rows: int | None,
    max_step_bytes: str | None,
    max_seconds: float | None,
    *,
    label: str = "--max-step-bytes",
) -> StepLimits:
    """Return the limits of a step; 0 means no limit, and None means the default limit.

    Args:
        max_step_rows: The maximum number of rows that an operator may produce.
        max_step_bytes: The maximum number of bytes that a step may produce, as in ``4G``.
        max_seconds: The maximum duration of a step.
        label: The name of the option ``max_step_bytes`` in error messages.

    Raises:
        EventsError: ``max_step_bytes`` is not a size.

    >>> parse_limits(0, "4G", 60)
    StepLimits(max_step_rows=None, max_step_bytes=4294967296, max_seconds=60)
    """
    rows = DEFAULT_LIMITS.max_step_rows if max_step_rows is None else max_step_rows
    if max_step_bytes is None:
        memory = memory_of_machine()
        size = DEFAULT_LIMITS.max_step_bytes if memory is None else memory // MEMORY_DIVISOR
    else:
        size = _parse_size(max_step_bytes, label)
    return StepLimits(rows or None, size or None, max_seconds or None)


def parse_dead_letter_retention(
    days: float, size: str, *, label: str = "--dead-letter-size"
) -> DeadLetterRetention:
    """Return which dead letters to keep; 0 means no limit.

    Args:
        days: The maximum age in days.
        size: The maximum number of bytes, as in ``1G``.
        label: The name of the option ``size`` in error messages.

    Raises:
        EventsError: ``size`` is not a size.

    >>> parse_dead_letter_retention(0, "1K")
    DeadLetterRetention(max_age=None, max_bytes=1024)
    """
    max_age = timedelta(days=min(days, timedelta.max.days)) if days else None
    return DeadLetterRetention(max_age, _parse_size(size, label) or None)


def memory_of_machine() -> int | None:
    """Return the bytes of memory that this process may use; None if they cannot be determined."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        container_limit = _CONTAINER_LIMIT_FILE.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        container_limit = ""
    return min(installed, int(container_limit)) if container_limit.isdigit() else installed


def parse_memory_limit(text: str | None, *, label: str = "--memory-limit") -> int | None:
    """Return the number of bytes of the state that may be in memory; None and 0 mean no limit.

    Raises:
        EventsError: The text is not a size.

    >>> parse_memory_limit("4 GB"), parse_memory_limit("0")
    (4294967296, None)
    """
    return None if text is None else _parse_size(text, label) or None


def _parse_size(text: str, label: str) -> int:
    size = parse_size(text)
    if size is None:
        raise EventsError(
            f"{label} {text!r}: write a number of bytes, with or without a unit K, M, G or T, as "
            "in 4G; 0 for no limit"
        )
    return size
