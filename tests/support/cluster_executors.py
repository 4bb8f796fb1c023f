"""Finds the executors that a driver has started on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def find_executors(driver: int) -> list[int]:
    """Return the ids of the processes of executors in the session of a driver's process."""
    own = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
                own += [int(process.name)] * (os.getsid(int(process.name)) == driver)
        except OSError:  # it has ended meanwhile
            continue
    assert own, "the driver has no executors of its own"
    return own
