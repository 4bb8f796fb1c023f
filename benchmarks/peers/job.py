"""The job of a driver: what it measures, written as JSON in a folder with its input arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Steps(NamedTuple):
    """A phase of LIVE: steps of one kind, then steps that undo them.

    Attributes:
        batch: Rows in a step.
        change: ``insert`` (deletes follow) or ``update`` (the reverse updates follow).
        steps: The largest number of steps.
    """

    batch: int
    change: str
    steps: int


@dataclass(frozen=True)
class Job:
    """The measurements of one system on one input.

    Attributes:
        folder: Has ``job.json``, ``edges.npy`` and for LIVE ``rest.npy`` (edges to insert), or for
            LSQB the relations as ``NN.NAME.parquet``, in order, and ``row_numbers.npy`` (rows that
            change). The system may write its own files there.
        system: The system's name.
        pattern: The pattern's name; for LSQB the query's.
        kind: ``bulk``, ``live`` or ``lsqb``.
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
    kind: str
    threads: int
    memory: int
    seconds: float
    repeat: int = 1
    phases: tuple[Steps, ...] = ()
    deletes: bool = True

    @staticmethod
    def read(folder: Path) -> Job:
        fields = json.loads((folder / "job.json").read_text())
        fields["phases"] = tuple(Steps(*phase) for phase in fields["phases"])
        return Job(folder=folder, **fields)

    def write(self) -> None:
        fields = {name: value for name, value in vars(self).items() if name != "folder"}
        (self.folder / "job.json").write_text(json.dumps(fields))
