"""Progress: what a micro-batch that takes long is doing.

The thread of the micro-batch notes its phase, and below that the operator that the circuit
evaluates (`circuits.Circuit.observe`); another thread reads these notes now and then. The notes are
whole values that are replaced, so no lock is needed, and the circuit is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PHASES", "Progress", "Work"]

#: What each phase does, in words; the names are those of `BatchMetrics.seconds`.
PHASES: Final = {
    "start": "starting",
    "load": "loading the state",
    "read": "reading its rows from Spark",
    "decode": "decoding",
    "step": "stepping the views",
    "cells": "stepping the cells on the executors",
    "write": "writing state and deltas",
    "merge": "committing",
    "publish": "writing to targets",
}


@dataclass(frozen=True)
class Work:
    """A note of what is done now.

    Attributes:
        phase: One of ``PHASES``.
        begun: When it began, in seconds of the stopwatch's clock.
        subject: What it works on: rows, an operator, a target.
    """

    phase: str
    begun: float
    subject: str = ""


@dataclass(frozen=True)
class Progress:
    """A micro-batch that is not done.

    Attributes:
        batch_id: The micro-batch.
        phase: One of ``PHASES``.
        subject: What the phase works on; may be empty.
        phase_seconds: Since the phase began.
        seconds: Since the micro-batch began.

    >>> print(Progress(7, "step", "operator #4 join, of view n", 5.02, 6.1))
    micro-batch 7: stepping the views (operator #4 join, of view n) for 5.0 s, 6.1 s in all
    """

    batch_id: int
    phase: str
    subject: str
    phase_seconds: float
    seconds: float

    def __str__(self) -> str:
        doing = PHASES.get(self.phase, self.phase)
        subject = f" ({self.subject})" if self.subject else ""
        return (
            f"micro-batch {self.batch_id}: {doing}{subject} for {self.phase_seconds:.1f} s, "
            f"{self.seconds:.1f} s in all"
        )

    def fields(self) -> dict[str, Any]:
        """As keys and values, for logs that machines read."""
        return {
            "event": "progress",
            "batch_id": self.batch_id,
            "phase": self.phase,
            "subject": self.subject,
            "phase_seconds": round(self.phase_seconds, 3),
            "seconds": round(self.seconds, 3),
        }
