"""Memory limit: keeps large runs in memory maps of the state directory instead of in memory.

The state consists of arrangements: relations in one column order, each of them a list of sorted
runs. The directory has the same rows in parts, in the same form (`streaming.state.segment`). After
a commit, the sum of the parts of an arrangement is the sum of its runs in memory. So the parts can
take the place of the runs, as after a restart::

    runs in memory     100,000,000     9,000     700
    parts on disk       90,000,000     8,000,000     2,000,000     9,000     700
    after the exchange  mapped         mapped        mapped        memory    memory

A large part is mapped, a small one is read to memory. Later steps add runs in memory, and merge
them with each other, but not with mapped runs (`dbsp_wcoj.storage.spine`). Mapped files are merged
by the compactor of the directory, and its result is mapped after the commit that names it.

`MemoryLimit.after_commit` exchanges the arrangements with the most bytes in memory until at most
half of the limit is in use, so that the next exchange is not due soon. It also exchanges
arrangements that map a file which is no longer part of the version, so that removed files give
their space back.

Pages of mapped files that a step touches belong to the system, which drops them when memory is
short. They count as resident memory of the process until then. If the process has more resident
memory than the limit, the pages of all maps are released; the next access gets them from the
cache of the system, if they are still there.

Cost: O(runs) for each commit; an exchange reads the small parts of an arrangement and is in
proportion to at most half of the rows that were added since the last one.

Alternatives considered: writing each run to a file when it is moved out of memory. It would double
what is written to disk, because the directory has the same rows already.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from circuits import Circuit
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder
from streaming.errors import StateError
from streaming.sizes import parse_size
from streaming.state.files import MappableFiles, MappedMemory
from streaming.state.manifest import Manifest
from streaming.state.part_reader import PartReader, name_of_parts
from streaming.state.segment import SegmentPart, decode_segment
from streaming.state.segment_references import SegmentReference
from streaming.state.verified_files import decode_run, find_part

__all__ = ["MemoryLimit", "MemoryUse", "parse_memory_limit"]

# A part of at least this share of the limit is mapped, and any part of `MAX_HEAP_PART_BYTES`.
MIN_MAPPED_SHARE: Final = 1024
MAX_HEAP_PART_BYTES: Final = 1 << 20
# After an exchange, at most this share of the limit is in use, if possible.
MAX_SHARE_AFTER_EXCHANGE: Final = 0.5

log = logging.getLogger(__name__)

#: The name of a trace and a column order.
ArrangementKey = tuple[str, ColumnOrder]


class MemoryUse(NamedTuple):
    """Where the state is.

    Attributes:
        heap_bytes: Bytes of the runs and dictionaries in memory.
        mapped_bytes: Bytes of the runs that are memory maps of files.
        mapped_runs: The number of these runs.
    """

    heap_bytes: int
    mapped_bytes: int
    mapped_runs: int


class MemoryLimit:
    """Moves runs of a circuit from memory to memory maps of the files that have the same rows.

    Args:
        files: The state directory.
        circuit: The circuit of the state.
        limit: Bytes.

    Attributes:
        use: Where the state was after the last commit.
        exchanges: The number of arrangements whose runs were exchanged.
    """

    def __init__(self, files: MappableFiles, circuit: Circuit, limit: int) -> None:
        self._files = files
        self._circuit = circuit
        self._limit = limit
        self._min_mapped_bytes = min(limit // MIN_MAPPED_SHARE, MAX_HEAP_PART_BYTES)
        # The mapped files by name, and the names of those that each arrangement uses.
        self._maps: dict[str, tuple[MappedMemory, list[SegmentPart]]] = {}
        self._files_of: dict[ArrangementKey, frozenset[str]] = {}
        self.use = MemoryUse(0, 0, 0)
        self.exchanges = 0

    def continue_with(self, circuit: Circuit) -> None:
        """Limit the memory of another circuit, which has taken over the state of the first one."""
        self._circuit = circuit

    def forget(self) -> None:
        """Forget all maps, because another state is loaded."""
        self._maps.clear()
        self._files_of.clear()

    def check(self) -> None:
        """Check that no mapped file was cut short; a system call per file.

        Raises:
            StateDamagedError: A file was cut short or extended.
        """
        for mapped, _ in self._maps.values():
            mapped.check()

    def after_commit(self, manifest: Manifest) -> None:
        """Exchange runs if the limit is exceeded; the circuit has the state of the version.

        If files cannot be mapped, for example because the process has too many maps, the runs stay
        in memory.

        Raises:
            StateDamagedError: A file of the version is damaged.
        """
        sizes = self._heap_bytes()
        dictionary_bytes = sum(
            entry.nbytes for entry in self._circuit.graph.registry.dictionaries.values()
        )
        keys = [
            key
            for key, names in self._files_of.items()
            if key in sizes and not names <= manifest.files.keys()
        ]
        excess = sum(sizes.values()) + dictionary_bytes - self._limit
        if excess > 0:
            excess += round(self._limit * (1 - MAX_SHARE_AFTER_EXCHANGE))
            for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
                if excess <= 0:
                    break
                saved = sizes[key] - self._unmapped_bytes(manifest, key)
                if 2 * saved >= sizes[key] > 0:
                    keys.append(key)
                    excess -= saved
        if keys:
            try:
                self._exchange(manifest, dict.fromkeys(keys))
            except OSError as error:
                log.warning(
                    "state directory %s: runs stay in memory, because their files cannot be "
                    "mapped: %s",
                    self._files.location,
                    error,
                )
            sizes = self._heap_bytes()
        self.use = self._measure(sum(sizes.values()) + dictionary_bytes)
        resident = _resident_bytes()
        if resident is not None and resident > self._limit:
            for mapped, _ in self._maps.values():
                mapped.release_pages()

    def live_rows(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Return estimates of the rows of traces, from the rows of their runs in memory and maps.

        Mapped runs are not merged, so they may have many rows that cancel each other. If all rows
        of a trace have positive weights, it has at most as many rows as the sum of the weights.

        Args:
            rows: The rows in the runs of each trace.
        """
        estimates = dict(rows)
        for name, _ in self._files_of:
            trace = self._circuit.graph.traces.get(name)
            if trace is not None and trace.arrangements:
                total = sum(run.total_weight for run in trace.arrangements[0].spine.runs)
                estimates[name] = min(rows[name], total) if total >= 0 else rows[name]
        return estimates

    def _heap_bytes(self) -> dict[ArrangementKey, int]:
        """Return the bytes in memory of each arrangement."""
        return {
            (name, arrangement.order): arrangement.spine.heap_bytes
            for name, trace in self._circuit.graph.traces.items()
            for arrangement in trace.arrangements
        }

    def _measure(self, heap_bytes: int) -> MemoryUse:
        mapped = [
            run.nbytes
            for trace in self._circuit.graph.traces.values()
            for arrangement in trace.arrangements
            for run in arrangement.spine.runs
            if run.is_mapped
        ]
        return MemoryUse(heap_bytes, sum(mapped), len(mapped))

    def _unmapped_bytes(self, manifest: Manifest, key: ArrangementKey) -> int:
        """Return the bytes of an arrangement that an exchange would leave in memory."""
        references = manifest.traces.get(key[0], {}).get(key[1])
        if references is None:  # the arrangement is new, and the next version will have it
            return self._limit
        return sum(part.size for part in references if part.size < self._min_mapped_bytes)

    def _exchange(self, manifest: Manifest, keys: Iterable[ArrangementKey]) -> None:
        """Replace the runs of arrangements by the parts of the version."""
        reader = PartReader(self._files, manifest.files)
        runs: dict[str, dict[ColumnOrder, list[Run]]] = {}
        names_of: dict[ArrangementKey, frozenset[str]] = {}
        for name, order in keys:
            references = manifest.traces.get(name, {}).get(order)
            if references is None:
                continue
            runs.setdefault(name, {})[order] = [
                self._read_run(reader, manifest, (name, order), reference)
                for reference in references
            ]
            names_of[name, order] = frozenset(
                part.file for part in references if part.size >= self._min_mapped_bytes
            )
        self._circuit.replace_runs(runs)
        self._files_of |= names_of
        used = frozenset[str]().union(*self._files_of.values())
        self._maps = {name: entry for name, entry in self._maps.items() if name in used}
        self.exchanges += len(names_of)

    def _read_run(
        self,
        reader: PartReader,
        manifest: Manifest,
        key: ArrangementKey,
        reference: SegmentReference,
    ) -> Run:
        """Return a part as a run: mapped if it is large, else in memory."""
        if reference.size < self._min_mapped_bytes:
            return reader.read_run(key, reference)
        parts = self._map(manifest, reference.file)
        part = find_part(self._files, parts, reference, name_of_parts(key))
        # This process, or the start that loaded the file, has checked what is in it.
        return decode_run(self._files, part, reference, is_new=False)

    def _map(self, manifest: Manifest, name: str) -> list[SegmentPart]:
        if name not in self._maps:
            mapped = self._files.map(name, manifest.files[name].size)
            path = f"{self._files.location}/{name}"
            parts = decode_segment(mapped.memory, path, is_mapped=True)
            self._maps[name] = mapped, parts
        return self._maps[name][1]


def parse_memory_limit(limit: int | str | None) -> int | None:
    """Return a limit as a number of bytes; None for no limit.

    Raises:
        StateError: It is not a positive number of bytes, or a text such as ``"4 GB"``.

    >>> parse_memory_limit("4 GB")
    4294967296
    """
    size = parse_size(limit) if isinstance(limit, str) else limit
    if limit is not None and (type(size) is not int or size < 1):
        raise StateError(
            f"memory_limit={limit!r}: give a positive number of bytes, or a text such as '4 GB'; "
            "None for no limit"
        )
    return size


def _resident_bytes() -> int | None:
    """Return the resident memory of this process; None if the system does not tell."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
