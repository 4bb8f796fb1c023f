"""Progress: the current activity of a slow micro-batch.

The thread of the micro-batch records its phase and the operator that the circuit evaluates
(`circuits.Circuit.observe`). Another thread reads the records from time to time. Each record is an
immutable value that is replaced as a whole, so no lock is needed, and the reader never accesses the
circuit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PHASES", "Progress", "Work"]

#: A description of each phase; the names are those of `BatchMetrics.seconds`.
PHASES: Final = {
    "start": "starting",
    "load": "loading the state",
    "read": "reading its rows from Spark",
    "decode": "decoding",
    "step": "computing the views",
    "cells": "computing the cells on the executors",
    "write": "writing state and deltas",
    "merge": "adding the step to the state in memory",
    "backfill": "computing a part of new views",
    "publish": "writing to targets",
}


@dataclass(frozen=True)
class Work:
    """The current activity.

    Attributes:
        phase: One of ``PHASES``.
        start: The start of the phase, as `time.perf_counter` counts seconds.
        subject: What the phase works on: rows, an operator, a target.
    """

    phase: str
    start: float
    subject: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of a micro-batch that is not completed.

    Attributes:
        batch_id: The micro-batch.
        phase: One of ``PHASES``.
        subject: What the phase works on; may be empty.
        phase_seconds: Seconds since the start of the phase.
        seconds: Seconds since the start of the micro-batch.

    >>> print(Progress(7, "step", "operator #4 join, of view n", 5.02, 6.1))
    micro-batch 7: computing the views (operator #4 join, of view n) for 5.0 s, 6.1 s in all
    """

    batch_id: int
    phase: str
    subject: str
    phase_seconds: float
    seconds: float

    def __str__(self) -> str:
        activity = PHASES.get(self.phase, self.phase)
        subject = f" ({self.subject})" if self.subject else ""
        return (
            f"micro-batch {self.batch_id}: {activity}{subject} for {self.phase_seconds:.1f} s, "
            f"{self.seconds:.1f} s in all"
        )

    def fields(self) -> dict[str, Any]:
        """Return the progress as keys and values, for structured logs."""
        return {
            "event": "progress",
            "batch_id": self.batch_id,
            "phase": self.phase,
            "subject": self.subject,
            "phase_seconds": round(self.phase_seconds, 3),
            "seconds": round(self.seconds, 3),
        }
