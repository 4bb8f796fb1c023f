"""Task: the steps of some cells of a stage on an executor, in the order rows -> files -> deltas.

A cell's step begins at the version that the driver names, its sealed manifest of the micro-batch
before. The circuit is taken from this worker's memory if it is at just that version, else loaded
from the files, which are mapped; which of the two it was changes nothing. New files have names that
no other attempt has, and are nothing until the driver's manifest names them: so a task may be tried
again, run twice or be evaluated twice, and all attempts but one leave rubbish that is swept.

What a worker keeps is at most one version of a cell. An attempt that was not chosen leaves the
circuit at a version that nobody names (codes are given in the order of rows, which attempts do not
share), so it is never taken for the other one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from circuits import Circuit
from circuits.definition import Definition
from circuits.state import State
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.verified import state_of
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = ["CellStep", "StageWork"]


@dataclass(frozen=True)
class StageWork:
    """What the tasks of a stage are told for a micro-batch.

    Attributes:
        files: The state directory, shared by driver and executors.
        state_id: Its id.
        stage: The number of the stage.
        definition: The circuit of its cells.
        batch_id: The micro-batch.
        before: The sealed manifests of the cells that have a state.
    """

    files: Files
    state_id: str
    stage: int
    definition: Definition
    batch_id: int
    before: Mapping[int, bytes] = field(default_factory=dict)

    def step(self, cell: int, tables: Mapping[str, pa.Table]) -> CellStep:
        """The step of one cell; its files are written and synced.

        Raises:
            DbspWcojError: As `circuits.Circuit.prepare`, and of files that are not as they were
                written.
            OSError: The file system refused.
        """
        before = self.before.get(cell)
        key = (self.state_id, self.stage, cell)
        version = b"" if before is None else before
        held = _HELD.pop(key, None)
        last = None if before is None else Manifest.of(before, f"the state of cell {cell}")
        if held is not None and held[0] == version:
            circuit = held[1]
        else:
            circuit = self.definition.circuit()
            circuit.load(State.empty() if last is None else state_of(self.files, last))
        attempt = uuid.uuid4().hex[:12]
        stem = f"{DATA}/{self.batch_id:020}-{attempt}-{self.stage}.{cell}"
        writer = Writer(self.files, last, stem)
        try:
            step = circuit.prepare(tables)
            state = step.state(writer.lengths)
            writer.add(state)
            manifest = Manifest(
                batch_id=self.batch_id,
                query_id=None,
                steps=state.steps,
                traces=writer.traces,
                tables=writer.tables,
                lengths=writer.lengths,
                marks=state.marks,
                plans=state.plans,
                digests={},
                outputs={},
                letters=0,
                files=writer.finish(),
                state_id=self.state_id,
                fingerprint=circuit.fingerprint,
            ).to_bytes()
        except BaseException:
            writer.undo()
            raise
        step.commit()
        _HELD[key] = manifest, circuit
        return CellStep(cell, manifest, step.outputs)


@dataclass(frozen=True)
class CellStep:
    """What a cell's step came to.

    Attributes:
        cell: The cell.
        manifest: Its version after the step.
        outputs: The pieces that it gives.
    """

    cell: int
    manifest: bytes
    outputs: Mapping[str, pa.Table]


# Circuits by state directory, stage and cell, with the manifest that they are at.
_HELD: dict[tuple[str, int, int], tuple[bytes, Circuit]] = {}
