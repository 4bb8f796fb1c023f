"""Held: what a worker of Spark keeps of the cells that it stepped last.

::

    circuit at the version that is asked for   ->   it goes on
    else, of the files of that version         ->   those that were read before are not read again

Spark gives a cell's task to any worker, so one that has a cell is often a few versions behind.
Files never change, so what it once read and found to be as it was written stays good, and it has to
read what has come since: following a cell costs the change, as holding it does. Only planning the
circuit's joins again costs a little, and the tables of its codes.

A circuit is known by the sealed manifest that it is at. An attempt of a task that was not chosen
leaves it at a version that nobody names (codes are given in the order of rows, which attempts do
not share), so it is never taken for the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from streaming.state.files import Files
from streaming.state.manifest import Manifest, of_cell
from streaming.state.verified_files import Known, state_of

__all__ = ["HELD", "ExecutorCache"]

#: Cells that a worker keeps.
MOST: Final = 64

Key = tuple[str, int, int]


@dataclass
class _Cell:
    """A cell: the circuit, the manifest that it is at, and what has been read of its files."""

    circuit: Circuit
    version: bytes
    known: Known


@dataclass
class ExecutorCache:
    """The cells of a worker, by state directory, stage and cell, those of last use last.

    Attributes:
        most: How many are kept.
    """

    most: int = MOST
    _cells: dict[Key, _Cell] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Forget all cells; what is asked for next is read again."""
        self._cells.clear()

    def take(
        self, key: Key, definition: CircuitSpec, files: Files, sealed: bytes | None
    ) -> tuple[Circuit, Known]:
        """The circuit of a cell at a version, and what is known of its files; no longer held.

        Args:
            key: The state directory's id, the stage and the cell.
            definition: The circuit.
            files: The state directory.
            sealed: The manifest of the version; None without state.

        Raises:
            StateDamagedError: A file is not as it was written.
        """
        held = self._cells.pop(key, None)
        if sealed is None:
            return Circuit(definition), {}
        manifest = of_cell(sealed)
        if held is None or held.circuit.fingerprint != manifest.fingerprint:
            held = _Cell(Circuit(definition), b"", {})
        if held.version != sealed:
            held.circuit.load(state_of(files, manifest, held.known))
        return held.circuit, held.known

    def keep(
        self, key: Key, circuit: Circuit, manifest: Manifest, sealed: bytes, known: Known
    ) -> None:
        """Hold a circuit, at the version of a manifest, and what is known of its files."""
        for name in [name for name in known if name not in manifest.files]:
            del known[name]
        self._cells[key] = _Cell(circuit, sealed, known)
        if len(self._cells) > self.most:
            del self._cells[next(iter(self._cells))]


#: Those of this worker.
HELD: Final = ExecutorCache()
