"""The job of a driver: what it measures, written as JSON in a folder with its input arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class PhaseSteps(NamedTuple):
    """A phase of LIVE: steps of one kind, then steps that undo them.

    Attributes:
        batch: Rows in a step.
        change: ``insert`` (deletes follow) or ``update`` (the reverse updates follow).
        max_steps: The largest number of steps.
    """

    batch: int
    change: str
    max_steps: int


@dataclass(frozen=True)
class Job:
    """The measurements of one system on one input.

    Attributes:
        folder: For BULK and LIVE it has ``edges.npy`` (edges to load), for LIVE also
            ``unloaded.npy`` (edges to insert). For LSQB it has the relations as
            ``NN.NAME.parquet``, in order, and ``row_numbers.npy`` (rows that change). The system
            may write its own files there.
        system: The system's name.
        pattern: The pattern's name; for LSQB the query's.
        part: ``bulk``, ``live`` or ``lsqb``.
        threads: The number of threads that the system may use.
        memory: The bytes that the system may use.
        seconds: After so many seconds no further count, or step of a phase, starts.
        repeat: The number of counts of BULK; how often LIVE is repeated if its phases are short.
        phases: The phases of LIVE, in order.
        deletes: Whether the inserted edges are deleted after each phase of inserts.
    """

    folder: Path
    system: str
    pattern: str
    part: str
    threads: int
    memory: int
    seconds: float
    repeat: int = 1
    phases: tuple[PhaseSteps, ...] = ()
    deletes: bool = True

    @staticmethod
    def read(folder: Path) -> Job:
        """Read the job in a folder."""
        fields = json.loads((folder / "job.json").read_text())
        fields["phases"] = tuple(PhaseSteps(*phase) for phase in fields["phases"])
        return Job(folder=folder, **fields)

    def write(self) -> None:
        """Write the job into its folder."""
        fields = {name: value for name, value in vars(self).items() if name != "folder"}
        (self.folder / "job.json").write_text(json.dumps(fields))
