"""Cache the circuits of the cells that a Spark worker stepped last.

A cell is a part of a distributed operator: a circuit of its own. The manifest of a version is the
file that lists the files of this version of the state. ::

    the circuit is at the requested version   ->   it is used without loading anything
    else                                      ->   load that version; files read before are reused

Spark assigns a cell's task to any worker, so a worker with a cached cell is often a few versions
behind. Files never change, so a file that was read and verified once stays valid. Only newer files
are read, so loading the next versions costs time in proportion to their changes, and to the
dictionaries, which are built again. The circuit keeps its operators (`Circuit.load`).

The circuits of two programs are never exchanged, although their plans may be equal: a user-defined
function of the same name may have other code, and the limits may differ. While new views are
computed in slices, two programs step cells with the same numbers, and both circuits are kept.

A worker keeps at most `MAX_CELLS` cells, and as many as have `MAX_HEAP_BYTES` in its memory. Mapped
files do not count (`streaming.distributed.execution.loaded_cell`). It keeps the cell that it has
stepped last, whatever its size. If there are more, it forgets cells of other programs first, and
then random ones. Each micro-batch steps the cells in the same order, so the cell that was used
longest ago is the one that is needed next.

A cached circuit is identified by the checksummed manifest of its version. If an attempt of a task
is not committed, its circuit has codes that another attempt may assign differently, because codes
follow the order of the rows. No committed manifest equals that of this attempt, so its circuit is
not used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Final, NamedTuple

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from streaming.distributed.execution.loaded_cell import LoadedCell
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest

__all__ = ["CACHE", "ExecutorCache", "Key"]

#: The maximum number of cells that a worker keeps.
MAX_CELLS: Final = 64

#: The maximum number of bytes in memory of all cells that a worker keeps (`LoadedCell.heap_bytes`).
MAX_HEAP_BYTES: Final = 1 << 30

#: The maximum number of circuits of a cell: that of the current views, and that of new ones.
MAX_CIRCUITS: Final = 2


class Key(NamedTuple):
    """The key of the circuit of a cell in the cache.

    Attributes:
        state_id: The id of the state directory.
        program_id: The unique id of the program in this driver.
        stage: The number of the stage.
        cell: The number of the cell.
    """

    state_id: str
    program_id: str
    stage: int
    cell: int

    def is_of_cell(self, other: Key) -> bool:
        """Return True if both circuits are of one cell."""
        return (self.state_id, self.stage, self.cell) == (other.state_id, other.stage, other.cell)


@dataclass
class ExecutorCache:
    """The cells of a worker, by their keys, in the order of their last use.

    Several threads may use it: the driver steps small stages itself.

    Attributes:
        max_cells: The maximum number of cells.
        max_heap_bytes: The maximum number of their bytes in memory.
    """

    max_cells: int = MAX_CELLS
    max_heap_bytes: int = MAX_HEAP_BYTES
    _cells: dict[Key, LoadedCell] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _random: Random = field(default_factory=lambda: Random(0))

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Remove all cells; the next request reads its files again."""
        with self._lock:
            self._cells.clear()

    def take(
        self, key: Key, spec: CircuitSpec, files: Files, manifest_bytes: bytes | None
    ) -> LoadedCell:
        """Remove a cell from the cache; return it at a version.

        Args:
            key: The cell and its circuit.
            spec: The circuit; not used if the circuit is in the cache.
            files: The state directory.
            manifest_bytes: The manifest of the version; None without state.

        Raises:
            StateDamagedError: A file is damaged.

        Complexity:
            O(1) if the circuit is at this version; else O(changes since then + dictionaries),
            or the whole state of the cell if it is not in the cache.
        """
        with self._lock:
            cell = self._cells.pop(key, None)
        if manifest_bytes is None:
            return LoadedCell(Circuit(spec))
        cell = cell or LoadedCell(Circuit(spec))
        cell.load(files, read_cell_manifest(manifest_bytes), manifest_bytes)
        return cell

    def keep(self, key: Key, cell: LoadedCell) -> None:
        """Store a cell at the version that it has."""
        with self._lock:
            self._cells.pop(key, None)  # another attempt may have stored it
            others = [other for other in self._cells if other.is_of_cell(key)]
            for other in others[: len(others) + 1 - MAX_CIRCUITS]:
                del self._cells[other]
            heap_bytes = sum(other.heap_bytes for other in [cell, *self._cells.values()])
            while self._cells and (
                len(self._cells) >= self.max_cells or heap_bytes > self.max_heap_bytes
            ):
                heap_bytes -= self._cells.pop(self._choose_victim(key)).heap_bytes
            self._cells[key] = cell

    def _choose_victim(self, key: Key) -> Key:
        """Return the cell to forget: the one of another program that was used longest ago, if any.

        Of the cells of the program of ``key``, it is a random one.
        """
        program = (key.state_id, key.program_id)
        for other in self._cells:
            if (other.state_id, other.program_id) != program:
                return other
        return self._random.choice(list(self._cells))


#: The cache of this worker.
CACHE: Final = ExecutorCache()
