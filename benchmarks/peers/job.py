"""Job: what a driver is told to do, as a file in a folder beside its arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One system, one pattern, one graph.

    Attributes:
        folder: Holds ``job.json``, ``edges.npy`` and for LIVE ``rest.npy``; files of the system.
        system, pattern: By name.
        kind: ``bulk`` or ``live``.
        threads, memory: What the system may use; bytes.
        seconds: After so many no further count, or step of a phase, is begun.
        repeat: Counts of BULK.
        batches, changes: The phases of LIVE.
        steps, rows: At most so many in a phase of LIVE.
    """

    folder: Path
    system: str
    pattern: str
    kind: str
    threads: int
    memory: int
    seconds: float
    repeat: int = 1
    batches: tuple[int, ...] = ()
    changes: tuple[str, ...] = ()
    steps: int = 0
    rows: int = 0

    @staticmethod
    def read(folder: Path) -> Job:
        fields = json.loads((folder / "job.json").read_text())
        fields["batches"] = tuple(fields["batches"])
        fields["changes"] = tuple(fields["changes"])
        return Job(folder=folder, **fields)

    def write(self) -> None:
        fields = {name: value for name, value in vars(self).items() if name != "folder"}
        (self.folder / "job.json").write_text(json.dumps(fields))
