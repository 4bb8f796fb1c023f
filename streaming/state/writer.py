"""Writer: writes and syncs the files of one version, and records their checksums."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.state.circuit_state import StateStep
from dbsp_wcoj.storage.run import Run
from streaming.errors import StateDamagedError
from streaming.state.cell_versions import CellVersions
from streaming.state.files import Bytes, Files
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.parquet import encode_parquet
from streaming.state.segment import SegmentPart, decode_segment, encode_segment, part_name
from streaming.state.segment_references import SegmentReference, count_merged_parts
from streaming.state.verified_files import decode_run, decode_strings, find_part, read_verified

__all__ = ["Writer"]

# A part of so many bytes has a file of its own.
MIN_OWN_FILE_BYTES: Final = 1 << 20
# More files with small parts than this are rewritten out, so many at a time.
MAX_SMALL_SEGMENTS: Final = 64
SEGMENTS_PER_REWRITE: Final = 16
# Arrangements of one relation come due in the same step. Of sums of more rows than this one is made
# in a step, and the others in the next ones, unless they are left with too many parts.
MAX_SHARED_MERGE_ROWS: Final = 1 << 18
MAX_PARTS: Final = 64

log = logging.getLogger(__name__)

Key = tuple[str, tuple[int, ...] | None]


class Writer:
    """Writes the additions of a step to the version before it.

    Args:
        files: The directory.
        before: The version before, None at the first step.
        stem: The beginning of the names of this attempt's data files.
    """

    def __init__(self, files: Files, before: Manifest | None, stem: str) -> None:
        self._files = files
        self._stem = stem
        self._before = {} if before is None else dict(before.files)
        self._new_files: dict[str, FileChecksum] = {}
        self._kept: dict[str, FileChecksum] = {}
        self._read: dict[str, list[SegmentPart]] = {}
        self._temporary: list[str] = []
        # Where each arrangement and table has its parts; those to be written have a number
        # instead of a place.
        self._references: dict[Key, list[SegmentReference | int]] = {}
        self._small: list[tuple[SegmentPart, int]] = []
        self._large: list[tuple[SegmentPart, int]] = []
        self._new: dict[int, SegmentReference] = {}
        self._has_large_sum = False
        self.lengths: dict[str, int] = {} if before is None else dict(before.lengths)
        self.bytes_written = 0
        if before is not None:
            for name, orders in before.traces.items():
                for order, references in orders.items():
                    self._references[name, order] = list(references)
            for name, references in before.tables.items():
                self._references[name, None] = list(references)

    def add(self, state: StateStep) -> None:
        """Write the additions of a step to the state.

        Raises:
            StateDamagedError: A part of a pending merge is damaged.
        """
        wanted: set[Key] = set()
        for name, orders in state.orders.items():
            for order in orders:
                wanted.add((name, order))
                self._add_arrangement(state, name, order)
        for key in [key for key in self._references if key[1] is not None and key not in wanted]:
            del self._references[key]
        for name, (offsets, data) in state.dictionaries.items():
            values = len(offsets) - 1
            if values:
                self._add_dictionary(name, offsets, data)
                self.lengths[name] = self.lengths.get(name, 0) + values
        self._rewrite_small_segments()
        self._write_parts()

    def outputs(self, views: Mapping[str, pa.Table], stem: str) -> dict[str, tuple[str, ...]]:
        """Write the tables that the views publish; return the names of the files."""
        names: dict[str, tuple[str, ...]] = {}
        for number, (view, table) in enumerate(views.items()):
            named = []
            for part, data in enumerate(encode_parquet(table)):
                named.append(f"{stem}-{number}-{part}.parquet")
                self._kept[named[-1]] = self.write(named[-1], data)
            names[view] = tuple(named)
        return names

    def write(self, name: str, data: Bytes) -> FileChecksum:
        """Write and sync a file."""
        self._temporary.append(name)
        self._files.write(name, [data])
        self._files.sync(name)
        size = memoryview(data).nbytes
        self.bytes_written += size
        return FileChecksum(size, zlib.crc32(data))

    def manifest(
        self,
        state: StateStep,
        batch_id: int,
        *,
        state_id: str,
        fingerprint: str,
        query_id: str | None = None,
        digests: Mapping[str, int] = MappingProxyType({}),
        outputs: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        dead_letters: int = 0,
        cells: CellVersions | None = None,
    ) -> Manifest:
        """Sync the folders; return the manifest of the version. Call it after `add`.

        Args:
            state: What was added.
            batch_id: This and the others as `Manifest` has them.
            state_id: The id of the directory.
            fingerprint: Of the circuit.
            query_id: The checkpoint.
            digests: Of the inputs' rows.
            outputs: The files of each view's delta.
            dead_letters: How many rows were refused so far.
            cells: Those of a distributed circuit.
        """
        return Manifest(
            batch_id=batch_id,
            query_id=query_id,
            steps=state.steps,
            traces=self._traces,
            tables=self._tables,
            lengths=self.lengths,
            watermarks=state.watermarks,
            plans=state.plans,
            digests=digests,
            outputs=outputs,
            dead_letters=dead_letters,
            files=self._finish(),
            state_id=state_id,
            fingerprint=fingerprint,
            cells=cells,
        )

    def _finish(self) -> dict[str, FileChecksum]:
        """Sync the folders; return all files that the version needs."""
        for folder in sorted(self.folders):
            self._files.sync_folder(folder)
        files = dict(self._kept)
        for references in self._references.values():
            for reference in references:
                assert isinstance(reference, SegmentReference)
                if reference.file not in files:
                    files[reference.file] = (
                        self._new_files.get(reference.file) or self._before[reference.file]
                    )
        return files

    @property
    def folders(self) -> set[str]:
        """The folders that files were written to."""
        return {name.partition("/")[0] for name in self._temporary}

    def undo(self) -> None:
        """Remove the written files."""
        for name in self._temporary:
            with contextlib.suppress(OSError):
                self._files.remove(name)

    @property
    def _traces(self) -> dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]]:
        """The parts of each arrangement."""
        traces: dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]] = {}
        for (name, order), references in self._references.items():
            if order is not None:
                traces.setdefault(name, {})[order] = _as_references(references)
        return traces

    @property
    def _tables(self) -> dict[str, tuple[SegmentReference, ...]]:
        """The parts of each table."""
        return {
            name: _as_references(references)
            for (name, order), references in self._references.items()
            if order is None
        }

    def _add_arrangement(self, state: StateStep, name: str, order: tuple[int, ...]) -> None:
        run = state.runs.get(name, {}).get(order)
        references = self._references.get((name, order))
        if references is None or name in state.compacted:
            runs = [*state.runs_before(name, order), *([] if run is None else [run])]
            if name in state.compacted and runs:
                runs = [Run.sum_of(runs)]
            self._references[name, order] = [
                self._stage_part(SegmentPart(part_name(name, order), run.to_words()), run.rows)
                for run in runs
                if run.rows
            ]
        elif run is not None:
            taken = self._count_due(references, run.rows)
            if taken:
                title = part_name(name, order)
                older = [self._read_run(p, title) for p in _as_references(references[-taken:])]
                run = Run.sum_of([*older, run])
                del references[-taken:]
            if run.rows:
                references.append(
                    self._stage_part(SegmentPart(part_name(name, order), run.to_words()), run.rows)
                )

    def _add_dictionary(self, name: str, offsets: np.ndarray, data: np.ndarray) -> None:
        references = self._references.setdefault((name, None), [])
        taken = self._count_due(references, len(offsets) - 1)
        if taken:
            older = [self._read_strings(p, name) for p in _as_references(references[-taken:])]
            del references[-taken:]
            parts = [*older, (offsets, data)]
            ends = [parts[0][0]]
            for words, _ in parts[1:]:
                ends.append(words[1:] + ends[-1][-1])
            offsets = np.concatenate(ends)
            data = np.concatenate([content for _, content in parts])
        references.append(self._stage_part(SegmentPart(name, offsets, data), len(offsets) - 1))

    def _count_due(self, references: Sequence[SegmentReference | int], new: int) -> int:
        """Return how many of the newest parts are merged into a new one now."""
        rows = [reference.rows for reference in _as_references(references)]
        taken = count_merged_parts(rows, new)
        if taken and sum(rows[-taken:]) > MAX_SHARED_MERGE_ROWS:
            if self._has_large_sum and len(rows) < MAX_PARTS:
                return 0
            self._has_large_sum = True
        return taken

    def _stage_part(self, part: SegmentPart, rows: int) -> int:
        """Stage a part, to be written with the other parts of the step."""
        number = len(self._small) + len(self._large)
        (self._large if part.size >= MIN_OWN_FILE_BYTES else self._small).append((part, number))
        self._new[number] = SegmentReference("", 0, rows, part.size)
        return number

    def _rewrite_small_segments(self) -> None:
        """Copy the parts of some small files into a new one if there are many files."""
        sizes: dict[str, int] = {}
        for references in self._references.values():
            for reference in references:
                if isinstance(reference, SegmentReference) and reference.size < MIN_OWN_FILE_BYTES:
                    sizes[reference.file] = sizes.get(reference.file, 0) + reference.size
        if len(sizes) <= MAX_SMALL_SEGMENTS:
            return
        rewritten = set(sorted(sizes, key=lambda name: (sizes[name], name))[:SEGMENTS_PER_REWRITE])
        for (name, order), references in self._references.items():
            title = name if order is None else part_name(name, order)
            for position, reference in enumerate(references):
                if isinstance(reference, SegmentReference) and reference.file in rewritten:
                    references[position] = self._stage_part(
                        self._read_part(reference, title), reference.rows
                    )

    def _write_parts(self) -> None:
        groups = [[one] for one in self._large] + ([self._small] if self._small else [])
        for n, group in enumerate(groups):
            name = f"{self._stem}-{n}.arrow"
            self._new_files[name] = self.write(name, encode_segment([part for part, _ in group]))
            for row, (_, number) in enumerate(group):
                new = self._new[number]
                self._new[number] = SegmentReference(name, row, new.rows, new.size)
        for references in self._references.values():
            for position, reference in enumerate(references):
                if isinstance(reference, int):
                    references[position] = self._new[reference]

    def _read_run(self, reference: SegmentReference, title: str) -> Run:
        return decode_run(self._files, self._read_part(reference, title), reference)

    def _read_strings(
        self, reference: SegmentReference, title: str
    ) -> tuple[np.ndarray, np.ndarray]:
        return decode_strings(self._files, self._read_part(reference, title), reference)

    def _read_part(self, reference: SegmentReference, title: str) -> SegmentPart:
        """Read a part of an earlier version."""
        if reference.file not in self._read:
            try:
                data = read_verified(self._files, reference.file, self._before[reference.file])
            except StateDamagedError as error:
                raise StateDamagedError(
                    f"{error}: start the query again to go on from a version that is whole, if "
                    "there is one"
                ) from error
            self._read[reference.file] = decode_segment(
                data, f"{self._files.location}/{reference.file}"
            )
        return find_part(self._files, self._read[reference.file], reference, title)


def _as_references(references: Sequence[SegmentReference | int]) -> tuple[SegmentReference, ...]:
    assert all(isinstance(reference, SegmentReference) for reference in references)
    return tuple(reference for reference in references if isinstance(reference, SegmentReference))
