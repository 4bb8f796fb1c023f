"""A loaded cell: the circuit of a cell in a worker, whose large runs are maps of files.

The state of a circuit consists of runs (sorted pieces of a relation in one column order) and
dictionaries. After each step, a new file has the rows that the step has added, and merges replace
some files by larger ones. A run that is as large as a file of its own is not kept in the memory of
the worker: the circuit maps the file instead. ::

    runs after a step    mapped, mapped, in memory (large), in memory (small)
    after `keep`         mapped, mapped, mapped, in memory

The mapped pages belong to the cache of the system. So all workers of a machine share them, and the
system reclaims them if memory is short. A worker needs memory of its own for small runs and
dictionaries only. This matters because Spark assigns the task of a cell to any worker, and so
several workers load the same cell.

A map of a file that is removed later remains readable. If a file is truncated or the disk fails,
the system ends the worker that reads its map, and Spark repeats the task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from circuits import Circuit
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder
from streaming.state.files import Files, MappableFiles
from streaming.state.manifest import Manifest
from streaming.state.part_reader import PartReader, name_of_parts
from streaming.state.segment import decode_segment
from streaming.state.segment_references import SegmentReference
from streaming.state.verified_files import FileCache, decode_run, find_part, read_state
from streaming.state.writer import MIN_OWN_FILE_BYTES

__all__ = ["LoadedCell"]

log = logging.getLogger(__name__)

#: The name of a trace and a column order.
ArrangementKey = tuple[str, ColumnOrder]

#: A part of a file of at least this size is mapped. The writer gives it a file of its own.
MIN_MAPPED_BYTES: Final = MIN_OWN_FILE_BYTES


@dataclass
class LoadedCell:
    """The circuit of a cell.

    Attributes:
        circuit: The circuit.
        manifest_bytes: The checksummed manifest of its version; empty before the first one.
        read_files: The files that it has read or mapped.
        was_open: True if nothing had to be loaded when it was requested last.
        heap_bytes: The bytes of its runs and dictionaries that are not mapped, as they are in
            files. The indexes of dictionaries and the older runs that merges have replaced come in
            addition.
    """

    circuit: Circuit
    manifest_bytes: bytes = b""
    read_files: FileCache = field(default_factory=dict)
    was_open: bool = False
    heap_bytes: int = 0
    # The large parts that are mapped, by trace and column order.
    _mapped: dict[ArrangementKey, tuple[SegmentReference, ...]] = field(default_factory=dict)

    def load(self, files: Files, manifest: Manifest, manifest_bytes: bytes) -> None:
        """Load a version, unless the circuit is at this version.

        Raises:
            StateDamagedError: A file is damaged.

        Complexity:
            O(1) if the circuit is at this version; else O(bytes of the files that it has not read),
            and that of `Circuit.load`.
        """
        self.was_open = self.manifest_bytes == manifest_bytes
        if self.was_open:
            return
        try:
            state = read_state(files, manifest, self.read_files, min_mapped_bytes=MIN_MAPPED_BYTES)
            self._mapped = _large_parts(manifest) if isinstance(files, MappableFiles) else {}
        except OSError as error:  # such as too many maps of this process
            log.warning("files of a cell are read, because they cannot be mapped: %s", error)
            state = read_state(files, manifest, self.read_files)
            self._mapped = {}
        self.circuit.load(state)
        self._count_heap_bytes(manifest)

    def keep(self, files: Files, manifest: Manifest, manifest_bytes: bytes) -> None:
        """Record the version after a step, and map the large runs that the step has written.

        Complexity:
            O(runs), and reading the small parts of the arrangements with a new large part.
        """
        self.manifest_bytes = manifest_bytes
        for name in [name for name in self.read_files if name not in manifest.files]:
            del self.read_files[name]
        large = _large_parts(manifest)
        changed = [
            key
            for key in {**large, **self._mapped}
            if self._mapped.get(key, ()) != large.get(key, ())
        ]
        if changed and isinstance(files, MappableFiles):
            try:
                self._map_runs(files, manifest, changed)
            except OSError as error:
                log.warning("runs of a cell stay in memory: they cannot be mapped: %s", error)
            else:
                self._mapped = large
        self._count_heap_bytes(manifest)

    def _count_heap_bytes(self, manifest: Manifest) -> None:
        stored = [*manifest.dictionaries.values()]
        stored += [parts for orders in manifest.traces.values() for parts in orders.values()]
        self.heap_bytes = sum(part.size for parts in stored for part in parts) - sum(
            part.size for parts in self._mapped.values() for part in parts
        )

    def _map_runs(
        self, files: MappableFiles, manifest: Manifest, keys: Iterable[ArrangementKey]
    ) -> None:
        """Replace the runs of arrangements by the parts of the version."""
        reader = PartReader(files, manifest.files)
        runs: dict[str, dict[ColumnOrder, list[Run]]] = {}
        for name, order in keys:
            parts = manifest.traces.get(name, {}).get(order)
            if parts is None:  # the arrangement was dropped
                continue
            runs.setdefault(name, {})[order] = [
                self._map_run(files, manifest, (name, order), part)
                if part.size >= MIN_MAPPED_BYTES
                else reader.read_run((name, order), part)
                for part in parts
            ]
        if runs:
            self.circuit.replace_runs(runs)

    def _map_run(
        self,
        files: MappableFiles,
        manifest: Manifest,
        key: ArrangementKey,
        reference: SegmentReference,
    ) -> Run:
        """Return a part of a file as a mapped run; this worker has read or written the file."""
        name = reference.file
        if name not in self.read_files:
            checksum = manifest.files[name]
            memory = files.map(name, checksum.size).memory
            path = f"{files.location}/{name}"
            self.read_files[name] = checksum, decode_segment(memory, path, is_mapped=True)
        part = find_part(files, self.read_files[name][1], reference, name_of_parts(key))
        return decode_run(files, part, reference, is_new=False)


def _large_parts(manifest: Manifest) -> dict[ArrangementKey, tuple[SegmentReference, ...]]:
    """Return the parts that are mapped, of each arrangement that has some."""
    large: dict[ArrangementKey, tuple[SegmentReference, ...]] = {}
    for name, orders in manifest.traces.items():
        for order, parts in orders.items():
            if any(part.size >= MIN_MAPPED_BYTES for part in parts):
                large[name, order] = tuple(part for part in parts if part.size >= MIN_MAPPED_BYTES)
    return large
