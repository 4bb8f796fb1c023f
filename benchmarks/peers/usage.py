"""Measures CPU seconds and resident memory of a process and its children, such as Spark's JVM."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the CPU seconds so far of this process (all threads) and its children."""
    times = os.times()
    ended_children = times.children_user + times.children_system
    return (
        time.process_time()
        + ended_children
        + sum(_own_cpu_seconds(child) for child in descendants(os.getpid()))
    )


def cpu_seconds_of(process: int) -> float:
    """Return the CPU seconds of a process and its running children."""
    return sum(_own_cpu_seconds(member) for member in [process, *descendants(process)])


def resident_bytes(process: int) -> int:
    """Return the bytes of memory that a process and its children use."""
    total = 0
    for member in [process, *descendants(process)]:
        try:
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            continue  # the process has just ended
    return total


def _own_cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND


def descendants(process: int) -> list[int]:
    """Return the children of a process, their children, and so on.

    The kernel lists the children of each thread; a scan of /proc would take longer than a step.
    """
    descendants = _children(process)
    for child in descendants:  # the list grows during the loop
        descendants += _children(child)
    return descendants


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task")
    children: list[int] = []
    with suppress(OSError):  # the process has just ended
        for task in os.listdir(tasks):
            with suppress(OSError):
                children += map(int, (tasks / task / "children").read_text().split())
    return children
