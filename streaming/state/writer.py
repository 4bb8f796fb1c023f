"""Writer: the files of one version, written and synced, and the marks by which they are known."""

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
from streaming.state.parquet import parquet_parts
from streaming.state.segment import SegmentPart, read_segment, segment_of, title_of
from streaming.state.segment_references import SegmentReference, taken_in
from streaming.state.verified_files import checked_run, checked_strings, found_piece, verified

__all__ = ["Writer"]

# A piece of so many bytes has a file of its own.
LARGE: Final = 1 << 20
# More files with small pieces than this are thinned out, so many at a time.
MOST_SEGMENTS: Final = 64
THINNED: Final = 16
# Arrangements of one relation come due in the same step. Of sums of more rows than this one is made
# in a step, and the others in the next ones, unless they are left with too many pieces.
LARGE_SUM: Final = 1 << 18
MOST_PIECES: Final = 64

log = logging.getLogger(__name__)

Key = tuple[str, tuple[int, ...] | None]


class Writer:
    """Writes what a step adds to the version before it.

    Args:
        files: The directory.
        before: The version before, None at the first step.
        stem: The beginning of the names of this attempt's data files.
    """

    def __init__(self, files: Files, before: Manifest | None, stem: str) -> None:
        self._files = files
        self._stem = stem
        self._before = {} if before is None else dict(before.files)
        self._marks: dict[str, FileChecksum] = {}
        self._kept: dict[str, FileChecksum] = {}
        self._read: dict[str, list[SegmentPart]] = {}
        self._temporary: list[str] = []
        # Where each arrangement and table has its pieces; those to be written have a number
        # instead of a place.
        self._placed: dict[Key, list[SegmentReference | int]] = {}
        self._small: list[tuple[SegmentPart, int]] = []
        self._large: list[tuple[SegmentPart, int]] = []
        self._new: dict[int, SegmentReference] = {}
        self._has_large_sum = False
        self.lengths: dict[str, int] = {} if before is None else dict(before.lengths)
        self.bytes_written = 0
        if before is not None:
            for name, orders in before.traces.items():
                for order, placed in orders.items():
                    self._placed[name, order] = list(placed)
            for name, placed in before.tables.items():
                self._placed[name, None] = list(placed)

    def add(self, state: StateStep) -> None:
        """Take up what a step adds to the state, and write it.

        Raises:
            StateDamagedError: A piece that is due to be summed is not as it was written.
        """
        wanted: set[Key] = set()
        for name, orders in state.orders.items():
            for order in orders:
                wanted.add((name, order))
                self._arrangement(state, name, order)
        for key in [key for key in self._placed if key[1] is not None and key not in wanted]:
            del self._placed[key]
        for name, (offsets, data) in state.tables.items():
            values = len(offsets) - 1
            if values:
                self._table(name, offsets, data)
                self.lengths[name] = self.lengths.get(name, 0) + values
        self._thin_out()
        self._write_pieces()

    def outputs(self, views: Mapping[str, pa.Table], stem: str) -> dict[str, tuple[str, ...]]:
        """Write what the views publish; return the names of the files."""
        names: dict[str, tuple[str, ...]] = {}
        for number, (view, table) in enumerate(views.items()):
            named = []
            for part, data in enumerate(parquet_parts(table)):
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
        letters: int = 0,
        cells: CellVersions | None = None,
    ) -> Manifest:
        """Sync the folders; return what the version is, after `add`.

        Args:
            state: What was added.
            batch_id: This and the others as `Manifest` has them.
            state_id: The id of the directory.
            fingerprint: Of the circuit.
            query_id: The checkpoint.
            digests: Of the inputs' rows.
            outputs: The files of each view's delta.
            letters: How many rows were refused so far.
            cells: Those of a distributed circuit.
        """
        return Manifest(
            batch_id=batch_id,
            query_id=query_id,
            steps=state.steps,
            traces=self._traces,
            tables=self._tables,
            lengths=self.lengths,
            marks=state.marks,
            plans=state.plans,
            digests=digests,
            outputs=outputs,
            letters=letters,
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
        for placed in self._placed.values():
            for place in placed:
                assert isinstance(place, SegmentReference)
                if place.file not in files:
                    files[place.file] = self._marks.get(place.file) or self._before[place.file]
        return files

    @property
    def folders(self) -> set[str]:
        """The folders that files were written to."""
        return {name.partition("/")[0] for name in self._temporary}

    def undo(self) -> None:
        """Take away what was written."""
        for name in self._temporary:
            with contextlib.suppress(OSError):
                self._files.remove(name)

    @property
    def _traces(self) -> dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]]:
        """The pieces of each arrangement."""
        traces: dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]] = {}
        for (name, order), placed in self._placed.items():
            if order is not None:
                traces.setdefault(name, {})[order] = _places(placed)
        return traces

    @property
    def _tables(self) -> dict[str, tuple[SegmentReference, ...]]:
        """The pieces of each table."""
        return {
            name: _places(placed) for (name, order), placed in self._placed.items() if order is None
        }

    def _arrangement(self, state: StateStep, name: str, order: tuple[int, ...]) -> None:
        run = state.runs.get(name, {}).get(order)
        placed = self._placed.get((name, order))
        if placed is None or name in state.compacted:
            runs = [*state.whole(name, order), *([] if run is None else [run])]
            if name in state.compacted and runs:
                runs = [Run.sum_of(runs)]
            self._placed[name, order] = [
                self._later(SegmentPart(title_of(name, order), run.to_words()), run.rows)
                for run in runs
                if run.rows
            ]
        elif run is not None:
            taken = self._due(placed, run.rows)
            if taken:
                title = title_of(name, order)
                older = [self._older_run(p, title) for p in _places(placed[-taken:])]
                run = Run.sum_of([*older, run])
                del placed[-taken:]
            if run.rows:
                placed.append(
                    self._later(SegmentPart(title_of(name, order), run.to_words()), run.rows)
                )

    def _table(self, name: str, offsets: np.ndarray, data: np.ndarray) -> None:
        placed = self._placed.setdefault((name, None), [])
        taken = self._due(placed, len(offsets) - 1)
        if taken:
            older = [self._older_strings(p, name) for p in _places(placed[-taken:])]
            del placed[-taken:]
            pieces = [*older, (offsets, data)]
            ends = [pieces[0][0]]
            for words, _ in pieces[1:]:
                ends.append(words[1:] + ends[-1][-1])
            offsets = np.concatenate(ends)
            data = np.concatenate([content for _, content in pieces])
        placed.append(self._later(SegmentPart(name, offsets, data), len(offsets) - 1))

    def _due(self, placed: Sequence[SegmentReference | int], new: int) -> int:
        """How many of the newest pieces a new one takes in now."""
        rows = [place.rows for place in _places(placed)]
        taken = taken_in(rows, new)
        if taken and sum(rows[-taken:]) > LARGE_SUM:
            if self._has_large_sum and len(rows) < MOST_PIECES:
                return 0
            self._has_large_sum = True
        return taken

    def _later(self, piece: SegmentPart, rows: int) -> int:
        """Write a piece with the others of the step."""
        number = len(self._small) + len(self._large)
        (self._large if piece.size >= LARGE else self._small).append((piece, number))
        self._new[number] = SegmentReference("", 0, rows, piece.size)
        return number

    def _thin_out(self) -> None:
        """Carry the pieces of some files over, when they are many."""
        sizes: dict[str, int] = {}
        for placed in self._placed.values():
            for place in placed:
                if isinstance(place, SegmentReference) and place.size < LARGE:
                    sizes[place.file] = sizes.get(place.file, 0) + place.size
        if len(sizes) <= MOST_SEGMENTS:
            return
        thinned = set(sorted(sizes, key=lambda name: (sizes[name], name))[:THINNED])
        for (name, order), placed in self._placed.items():
            title = name if order is None else title_of(name, order)
            for position, place in enumerate(placed):
                if isinstance(place, SegmentReference) and place.file in thinned:
                    placed[position] = self._later(self._piece(place, title), place.rows)

    def _write_pieces(self) -> None:
        groups = [[one] for one in self._large] + ([self._small] if self._small else [])
        for n, group in enumerate(groups):
            name = f"{self._stem}-{n}.arrow"
            self._marks[name] = self.write(name, segment_of([piece for piece, _ in group]))
            for row, (_, number) in enumerate(group):
                new = self._new[number]
                self._new[number] = SegmentReference(name, row, new.rows, new.size)
        for placed in self._placed.values():
            for position, place in enumerate(placed):
                if isinstance(place, int):
                    placed[position] = self._new[place]

    def _older_run(self, placed: SegmentReference, title: str) -> Run:
        return checked_run(self._files, self._piece(placed, title), placed)

    def _older_strings(self, placed: SegmentReference, title: str) -> tuple[np.ndarray, np.ndarray]:
        return checked_strings(self._files, self._piece(placed, title), placed)

    def _piece(self, placed: SegmentReference, title: str) -> SegmentPart:
        """A piece that was written before."""
        if placed.file not in self._read:
            try:
                data = verified(self._files, placed.file, self._before[placed.file])
            except StateDamagedError as error:
                raise StateDamagedError(
                    f"{error}: start the query again to go on from a version that is whole, if "
                    "there is one"
                ) from error
            self._read[placed.file] = read_segment(data, f"{self._files.location}/{placed.file}")
        return found_piece(self._files, self._read[placed.file], placed, title)


def _places(placed: Sequence[SegmentReference | int]) -> tuple[SegmentReference, ...]:
    assert all(isinstance(place, SegmentReference) for place in placed)
    return tuple(place for place in placed if isinstance(place, SegmentReference))
