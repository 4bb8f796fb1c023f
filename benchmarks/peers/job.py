"""The job of a driver: what it measures, written as JSON in a folder with its input arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Steps(NamedTuple):
    """Steps of one kind: ``insert`` (their deletes follow) or ``update`` (their reverse follows).

    Attributes:
        batch: Rows in a step.
        change: The kind.
        steps: At most so many.
    """

    batch: int
    change: str
    steps: int


@dataclass(frozen=True)
class Job:
    """One system, one pattern, one graph.

    Attributes:
        folder: Holds ``job.json``, ``edges.npy`` and for LIVE ``rest.npy``; files of the system.
            For LSQB the relations as ``NN.NAME.parquet``, in order, and ``places.npy``.
        system, pattern: By name; of LSQB a query.
        kind: ``bulk``, ``live`` or ``lsqb``.
        threads, memory: What the system may use; bytes.
        seconds: After so many no further count, or step of a phase, is begun.
        repeat: Counts of BULK; how often LIVE is done anew while a phase of it is short.
        phases: Of LIVE, in their order.
        deletes: Whether what was inserted is deleted after each phase of inserts.
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
        fields["phases"] = tuple(Steps(*one) for one in fields["phases"])
        return Job(folder=folder, **fields)

    def write(self) -> None:
        fields = {name: value for name, value in vars(self).items() if name != "folder"}
        (self.folder / "job.json").write_text(json.dumps(fields))
