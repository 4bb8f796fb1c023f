"""Cache the circuits of the cells that a Spark worker stepped last.

::

    the circuit is at the requested version   ->   it is used as it is
    else                                      ->   load that version; files read before are reused

Spark assigns a cell's task to any worker, so a worker with a cached cell is often a few versions
behind. Files never change, so a file that was read and verified once stays valid, and only newer
files are read: following a cell costs as much as its change, like keeping it. Only the joins of the
circuit are planned again, and its dictionaries rebuilt, at a small cost.

A cached circuit is identified by the checksummed manifest of its version. An attempt of a task that
was not committed leaves it at a version that no manifest names (codes are assigned in the order of
rows, which differs between attempts), so it is never mistaken for another version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from streaming.state.files import Files
from streaming.state.manifest import Manifest, read_cell_manifest
from streaming.state.verified_files import FileCache, read_state

__all__ = ["CACHE", "ExecutorCache"]

#: The maximum number of cells that a worker keeps.
MAX_CELLS: Final = 64

Key = tuple[str, int, int]


@dataclass
class _Cell:
    """A cell: the circuit, the manifest of its version, and the verified parts of its files."""

    circuit: Circuit
    version: bytes
    known: FileCache


@dataclass
class ExecutorCache:
    """The cells of a worker by state directory, stage and cell; the least recently used is first.

    Attributes:
        max_cells: The maximum number of cells.
    """

    max_cells: int = MAX_CELLS
    _cells: dict[Key, _Cell] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Remove all cells; the next request reads its files again."""
        self._cells.clear()

    def take(
        self, key: Key, definition: CircuitSpec, files: Files, sealed: bytes | None
    ) -> tuple[Circuit, FileCache]:
        """Remove a cell from the cache; return its circuit at a version, and its verified files.

        Args:
            key: The state directory's id, the stage and the cell.
            definition: The circuit.
            files: The state directory.
            sealed: The manifest of the version; None without state.

        Raises:
            StateDamagedError: A file is damaged.
        """
        cell = self._cells.pop(key, None)
        if sealed is None:
            return Circuit(definition), {}
        manifest = read_cell_manifest(sealed)
        if cell is None or cell.circuit.fingerprint != manifest.fingerprint:
            cell = _Cell(Circuit(definition), b"", {})
        if cell.version != sealed:
            cell.circuit.load(read_state(files, manifest, cell.known))
        return cell.circuit, cell.known

    def keep(
        self, key: Key, circuit: Circuit, manifest: Manifest, sealed: bytes, known: FileCache
    ) -> None:
        """Store a circuit at the version of a manifest, and its verified files."""
        for name in [name for name in known if name not in manifest.files]:
            del known[name]
        self._cells[key] = _Cell(circuit, sealed, known)
        if len(self._cells) > self.max_cells:
            del self._cells[next(iter(self._cells))]


#: The cache of this worker.
CACHE: Final = ExecutorCache()
