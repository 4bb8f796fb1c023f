"""Compacted files: a directory that another process compacts offline while it is being read."""

from __future__ import annotations

from streaming.distributed.cell_state import divide_circuit
from streaming.state.local_files import LocalFiles
from streaming.state.offline_compaction import compact_state

__all__ = ["CompactedFiles"]


class CompactedFiles(LocalFiles):
    """Before the first data file is looked at, the newest version is compacted, once."""

    is_compacted = False

    def size(self, name: str) -> int | None:
        """Return the size of a file, after the compaction."""
        self._compact(name)
        return super().size(name)

    def read(self, name: str) -> memoryview:
        """Return the bytes of a file, after the compaction."""
        self._compact(name)
        return super().read(name)

    def _compact(self, name: str) -> None:
        if name.startswith("data/") and not self.is_compacted:
            self.is_compacted = True
            compact_state(LocalFiles(self.location), divide=divide_circuit)
