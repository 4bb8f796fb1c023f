"""Writer: writes and syncs the files of one version, and records their checksums.

The state consists of arrangements (relations in one column order) and dictionaries (codes of
strings), which are stored in parts (`streaming.state.segment`). A step adds a part to each of them,
and merges some older parts (`streaming.state.segment_references`). With a compactor
(`streaming.state.compaction`) the writer itself merges only parts that are small or hardly larger
than the new one, so that the work of each step is in proportion to its delta. The writer first
collects the new parts, then writes them to segment files, and then knows their files and positions.

A circuit that maps its large parts searches each of them in every look-up. So the writer of such a
circuit without a compactor merges large parts earlier. It merges very large ones in files
(`streaming.state.mapped.file_merge`), so that their rows take no memory of the process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeGuard

from circuits.state.circuit_state import StateStep
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values.coded_strings import CodedStrings, concatenate_strings
from dbsp_wcoj.values.overlay import InternerOverlay
from streaming.errors import StateDamagedError
from streaming.state import segment_references
from streaming.state.cell_versions import CellVersions
from streaming.state.compaction import Compactor, PartGroup
from streaming.state.files import Bytes, Files, MappableFiles, StagedFile, remove_files, sync_all
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.mapped.file_merge import FileMerge
from streaming.state.parquet import encode_parquet
from streaming.state.part_reader import PartReader, name_of_parts
from streaming.state.segment import SegmentPart, encode_segment, string_part
from streaming.state.segment_references import (
    SegmentReference,
    StateKey,
    has_removed_values,
    merge_counts,
    neighbour_counts,
)
from streaming.state.version_summary import PublishedTable, StoredTable

__all__ = ["Writer"]

# A part of at least this size has a file of its own; smaller parts of a step share a file.
MIN_OWN_FILE_BYTES: Final = 1 << 20
# If there are more files with small parts, the smallest ones are copied into one file.
MAX_SMALL_SEGMENTS: Final = 64
SEGMENTS_PER_REWRITE: Final = 8
# With a compactor, the writer merges at most this many bytes of older parts with a new part, or
# this many times the bytes of the new part.
MAX_MERGED_BYTES: Final = 1 << 18
MAX_GROWTH_AT_ONCE: Final = 2
# Without a compactor, a merge of more rows than this is large. All arrangements of a relation have
# equally many rows, so they need a large merge in the same step. Each step makes one and postpones
# the others.
MAX_SMALL_MERGE_ROWS: Final = 1 << 18
# If the circuit maps large parts, merges of up to this many rows for each new row are small, too.
SMALL_MERGE_ROWS_PER_NEW_ROW: Final = 16
# If the circuit maps large parts, older parts of this many bytes or more are merged in files.
MIN_FILE_MERGE_BYTES: Final = 1 << 26
# The rows of a merge in files between two calls that give back the pages of these files.
FILE_MERGE_ROWS: Final = 1 << 18
# If an arrangement or dictionary has this many parts, because the compactor is too slow, the writer
# merges the `LEVEL_FANOUT` neighbouring ones with the fewest rows. Without a compactor, it does not
# postpone their merge any more.
MAX_STORED_PARTS: Final = 64

log = logging.getLogger(__name__)

# The location of a part, or the number of a part that is not written yet.
StagedReference = SegmentReference | int


class Writer:
    """Writes what a step adds to the previous version.

    Args:
        files: The directory.
        before: The previous version; None at the first step.
        stem: The beginning of the names of this attempt's data files.
        compactor: Merges large parts in the background; None to merge all parts in the step.
        maps_large_parts: Without a compactor: whether the circuit maps the parts that have a file
            of their own, if the directory can do this.

    Attributes:
        due_keys: The arrangements and dictionaries with parts that the compactor has to merge.
        dictionary_lengths: The number of codes that are written of each dictionary.
        output_files: The size and checksum of each file of the published tables.
        unsynced_files: The names of the files that are not durable yet.
        bytes_written: The bytes of all files of the step, and of the compaction that it ends.
        bytes_added: The bytes of what the step adds: rows of arrangements, values of dictionaries,
            published tables and dead letters. Divided by it, ``bytes_written`` is the write
            amplification.
    """

    def __init__(
        self,
        files: Files,
        before: Manifest | None,
        stem: str,
        compactor: Compactor | None = None,
        *,
        maps_large_parts: bool = False,
    ) -> None:
        self._files = files
        self._mappable_files = (
            files if maps_large_parts and isinstance(files, MappableFiles) else None
        )
        self._stem = stem
        self._compactor = compactor
        self._existing_files = {} if before is None else dict(before.files)
        self._new_files: dict[str, FileChecksum] = {}
        self._reader = PartReader(
            files, self._existing_files, self._mappable_files, MIN_OWN_FILE_BYTES
        )
        self._written: list[str] = []  # all files of this attempt, to remove them if it fails
        self.unsynced_files: list[str] = []
        self._written_elsewhere: set[str] = set()  # files of published tables, by executors
        # The parts of each arrangement and dictionary, oldest first.
        self._references: dict[StateKey, list[StagedReference]] = {}
        # New parts, each with its number: those that share a file, those with a file of their own.
        self._small_parts: list[tuple[SegmentPart, int]] = []
        self._large_parts: list[tuple[SegmentPart, int]] = []
        self._new_references: dict[int, SegmentReference] = {}  # by the number of the part
        self._has_large_merge = False
        self._merge_count = 0  # of parts that are merged in files
        # The parts of a running compaction, and the results of `_merge_smallest_parts`: this step
        # must not merge or move them.
        self._busy_parts: frozenset[StagedReference] = frozenset()
        self.due_keys: set[StateKey] = set()
        self.dictionary_lengths: dict[str, int] = (
            {} if before is None else dict(before.dictionary_lengths)
        )
        self.output_files: dict[str, FileChecksum] = {}
        self.bytes_written = self.bytes_added = 0
        if before is not None:
            for name, orders in before.traces.items():
                for order, references in orders.items():
                    self._references[name, order] = list(references)
            for name, references in before.dictionaries.items():
                self._references[name, None] = list(references)

    def add(self, state: StateStep) -> None:
        """Write what a step adds to the state.

        Raises:
            StateDamagedError: An older part that is merged is damaged.
        """
        self._replace_compacted_parts()
        arrangements: set[StateKey] = set()
        for name, orders in state.orders.items():
            for order in orders:
                arrangements.add((name, order))
                self._add_arrangement(state, name, order)
        for key in list(self._references):
            if key[1] is not None and key not in arrangements:
                del self._references[key]
        stored = [name for name, order in self._references if order is None]
        for name in dict.fromkeys([*stored, *state.dictionaries]):
            strings = self._values_to_write(state, name)
            if strings is not None and len(strings.codes):
                self._add_dictionary(name, strings)
                length = self.dictionary_lengths.get(name, 0)
                self.dictionary_lengths[name] = max(length, int(strings.codes[-1]) + 1)
        self._rewrite_small_segments()
        self._write_parts()

    def write_outputs(
        self, tables: Mapping[str, PublishedTable], stem: str
    ) -> dict[str, tuple[str, ...]]:
        """Write the published tables that are in memory.

        Returns:
            The names of the files of each view, also of a table that is in files.
        """
        files: dict[str, tuple[str, ...]] = {}
        for number, (view, table) in enumerate(tables.items()):
            if isinstance(table, StoredTable):
                files[view] = tuple(table.checksums)
                self.output_files |= table.checksums
                self._written_elsewhere |= table.checksums.keys()
                continue
            names = []
            for part, data in enumerate(encode_parquet(table)):
                name = f"{stem}-{number}-{part}.parquet"
                self.output_files[name] = self.write_added(name, data)
                names.append(name)
            files[view] = tuple(names)
        return files

    def write(self, name: str, *chunks: Bytes) -> FileChecksum:
        """Write a file, which `make_manifest` syncs; return its checksum."""
        self._written.append(name)
        self._files.write(name, chunks)
        self.unsynced_files.append(name)
        checksum = FileChecksum.of(chunks)
        self.bytes_written += checksum.size
        return checksum

    def stage(self, name: str, data: bytes) -> StagedFile:
        """Write a file that gets its name later; `undo` removes its temporary file."""
        staged = StagedFile(self._files, name, data)
        if staged.temporary is not None:
            self._written.append(staged.temporary)
        staged.prepare()
        self.bytes_written += len(data)
        return staged

    def write_added(self, name: str, *chunks: Bytes) -> FileChecksum:
        """Write a file with rows that the step adds, as `write` does; return its checksum."""
        checksum = self.write(name, *chunks)
        self.bytes_added += checksum.size
        return checksum

    def make_manifest(
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
        sync: bool = True,
    ) -> Manifest:
        """Sync all files that were written; return the manifest of the version.

        Call it after `add` and all other writes.

        Args:
            state: The additions of the step that `add` has written.
            batch_id: This and the other arguments are the attributes of `Manifest`.
            state_id: The id of the directory.
            fingerprint: The fingerprint of the circuit.
            query_id: The Spark query.
            digests: A checksum of the rows of each input.
            outputs: The files of each published table.
            dead_letters: The number of dead letters so far.
            cells: The cells of a distributed circuit.
            sync: False if the caller syncs the files before it uses the manifest
                (`sync_together`).
        """
        if sync:
            self.sync()
        return Manifest(
            batch_id=batch_id,
            query_id=query_id,
            steps=state.steps,
            traces=self._traces,
            dictionaries=self._dictionaries,
            dictionary_lengths=self.dictionary_lengths,
            watermarks=state.watermarks,
            plans=state.plans,
            values_after_sweep=state.values_after_sweep,
            digests=digests,
            outputs=outputs,
            dead_letters=dead_letters,
            files=self._list_files(),
            state_id=state_id,
            fingerprint=fingerprint,
            cells=cells,
        )

    def sync(self) -> None:
        """Make the files that were written, and their names, durable."""
        self.sync_together(self._files, [self])

    @staticmethod
    def sync_together(files: Files, writers: Sequence[Writer]) -> None:
        """Make the files of several writers durable at once, which takes less time (`sync`).

        Args:
            files: Their directory.
            writers: The writers.
        """
        names = [name for writer in writers for name in writer.unsynced_files]
        folders = {folder for writer in writers for folder in writer.folders}
        sync_all(files, names, sorted(folders))
        for writer in writers:
            writer.unsynced_files.clear()

    def _list_files(self) -> dict[str, FileChecksum]:
        """Return the checksums of all files of the version."""
        files = dict(self.output_files)
        for references in self._references.values():
            for reference in references:
                assert isinstance(reference, SegmentReference)
                if reference.file not in files:
                    files[reference.file] = (
                        self._new_files.get(reference.file) or self._existing_files[reference.file]
                    )
        return files

    @property
    def folders(self) -> set[str]:
        """The folders that files of the version were written to."""
        return {name.partition("/")[0] for name in (*self._written, *self._written_elsewhere)}

    def undo(self) -> None:
        """Remove the files of this attempt; the next start removes those that remain."""
        with contextlib.suppress(OSError, StateDamagedError):
            remove_files(self._files, self._written)

    @property
    def _traces(self) -> dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]]:
        """The parts of each arrangement."""
        traces: dict[str, dict[tuple[int, ...], tuple[SegmentReference, ...]]] = {}
        for (name, order), references in self._references.items():
            if order is not None:
                traces.setdefault(name, {})[order] = _as_references(references)
        return traces

    @property
    def _dictionaries(self) -> dict[str, tuple[SegmentReference, ...]]:
        """The parts of each dictionary."""
        return {
            name: _as_references(references)
            for (name, order), references in self._references.items()
            if order is None
        }

    def _replace_compacted_parts(self) -> None:
        """List the result of a finished compaction in place of its parts."""
        if self._compactor is None:
            return
        compacted = self._compactor.result()
        if compacted is None:
            if self._compactor.group is not None:
                self._busy_parts = frozenset(self._compactor.group.references)
            return
        group, reference = compacted.group, compacted.reference
        references = self._references.get(group.key, [])
        position = group.position_in(references)
        if position is None:
            return
        end = position + len(group.references)
        references[position:end] = [] if reference is None else [reference]
        if reference is not None:
            self._existing_files[reference.file] = compacted.checksum
            self.bytes_written += compacted.checksum.size

    def _add_arrangement(self, state: StateStep, name: str, order: tuple[int, ...]) -> None:
        key = name, order
        new_run = state.runs.get(name, {}).get(order)
        self.bytes_added += 0 if new_run is None else new_run.nbytes
        references = self._references.get(key)
        if references is None or name in state.compacted:
            # Write all runs of a new column order, or the sum of the runs of a trace whose weights
            # are very large.
            runs = list(state.runs_before(name, order))
            if new_run is not None:
                runs.append(new_run)
            if name in state.compacted and runs:
                runs = [Run.sum_of(runs)]
            self._references[key] = [
                self._stage_part(SegmentPart(name_of_parts(key), run.to_words()), run.rows)
                for run in runs
                if run.rows
            ]
        elif new_run is not None:
            count = self._count_merged_parts(key, references, new_run.rows, new_run.nbytes)
            if count:
                merged_references = _as_references(references[-count:])
                del references[-count:]
                references += self._merge_parts(key, merged_references, new_run)
            elif new_run.rows:
                self._merge_smallest_parts(key, references)
                part = SegmentPart(name_of_parts(key), new_run.to_words())
                references.append(self._stage_part(part, new_run.rows))

    def _merge_parts(
        self, key: StateKey, references: Sequence[SegmentReference], new_run: Run
    ) -> list[StagedReference]:
        """Merge older parts of an arrangement with its new part; return the part of the sum."""
        runs = [*[self._reader.read_run(key, part) for part in references], new_run]
        name = name_of_parts(key)
        size = sum(part.size for part in references)
        if self._mappable_files is None or size < MIN_FILE_MERGE_BYTES:
            run = Run.sum_of(runs)
        else:
            folder = self._stem.partition("/")[0]
            merge = FileMerge(
                self._mappable_files, folder, self._reader, FILE_MERGE_ROWS, lambda: None
            )
            run = Run.sum_of(runs, merge.merge)
            if run.nbytes >= MIN_OWN_FILE_BYTES and run.rows:
                file = f"{self._stem}-merged-{self._merge_count}.arrow"
                self._merge_count += 1
                self._new_files[file] = self.write(file, *merge.encode(name, run))
                return [SegmentReference(file, 0, run.rows, run.nbytes)]
        if not run.rows:
            return []
        return [self._stage_part(SegmentPart(name, run.to_words()), run.rows)]

    def _add_dictionary(self, name: str, strings: CodedStrings) -> None:
        key = name, None
        references = self._references.setdefault(key, [])
        new_bytes = strings.offsets.nbytes + strings.data.nbytes
        self.bytes_added += new_bytes
        count = self._count_merged_parts(key, references, len(strings.codes), new_bytes)
        if count:
            merged_references = _as_references(references[-count:])
            old_strings = [self._reader.read_strings(key, part) for part in merged_references]
            strings = concatenate_strings([*old_strings, strings])
            del references[-count:]
        else:
            self._merge_smallest_parts(key, references)
        references.append(self._stage_part(string_part(name, strings), len(strings.codes)))

    def _values_to_write(self, state: StateStep, name: str) -> CodedStrings | None:
        """Return the new values of a dictionary; or all, if many of its values were removed."""
        new = state.dictionaries.get(name)
        references = self._references.get((name, None))
        if self._compactor is not None or not references:
            return new
        values = state.dictionary(name)
        count, byte_count = values.size, values.byte_count
        if new is not None:
            count, byte_count = count - len(new.codes), byte_count - len(new.data)
        if not has_removed_values(_as_references(references), count, byte_count):
            return new
        references.clear()
        return InternerOverlay(values).arena()

    def _merge_smallest_parts(self, key: StateKey, references: list[StagedReference]) -> None:
        """Merge some older parts if there are too many of them, because the compactor is too slow.

        They are few, so that the step takes little more memory than these parts; with a memory
        limit they are merged in files (`Compactor.merge_now`). Without the space for that, they
        remain as they are.
        """
        size = min(segment_references.LEVEL_FANOUT, MAX_STORED_PARTS)
        if self._compactor is None or len(references) < MAX_STORED_PARTS or size < 2:
            return
        parts = _as_references(references)
        groups = [
            (sum(part.rows for part in parts[first : first + size]), first)
            for first in range(len(parts) - size + 1)
            if self._busy_parts.isdisjoint(parts[first : first + size])
        ]
        if not groups:
            return
        _, first = min(groups)
        group = PartGroup(key, parts[first : first + size])
        checksums = {part.file: self._existing_files[part.file] for part in group.references}
        file = f"{self._stem}-merged-{self._merge_count}.arrow"
        self._merge_count += 1
        self._written.append(file)
        try:
            merged = self._compactor.merge_now(group, checksums, file)
        except (OSError, MemoryError) as error:
            log.warning("%d parts of %r were not merged: %s", size, name_of_parts(key), error)
            return
        references[first : first + size] = []
        if merged.reference is not None:
            references.insert(first, merged.reference)
            self._existing_files[file] = merged.checksum
            self.bytes_written += merged.checksum.size
            self._busy_parts |= {merged.reference}  # it stays in its file

    def _count_merged_parts(
        self, key: StateKey, references: Sequence[StagedReference], new_rows: int, new_bytes: int
    ) -> int:
        """Return how many of the newest parts are merged with a new part in this step."""
        parts = _as_references(references)
        first_free = len(parts)
        while first_free and parts[first_free - 1] not in self._busy_parts:
            first_free -= 1
        rows = [part.rows for part in parts[first_free:]]
        counts = [0, *merge_counts(rows, new_rows)]
        if self._compactor is not None:
            max_bytes = max(MAX_MERGED_BYTES, MAX_GROWTH_AT_ONCE * new_bytes)
            while sum(part.size for part in parts[len(parts) - counts[-1] :]) > max_bytes:
                self.due_keys.add(key)
                counts.pop()
            return counts[-1]
        if len(parts) >= MAX_STORED_PARTS:
            return counts[-1]
        max_rows = MAX_SMALL_MERGE_ROWS
        if self._mappable_files is not None and key[1] is not None:
            max_rows = max(max_rows, SMALL_MERGE_ROWS_PER_NEW_ROW * new_rows)
            first_merged = len(parts) - counts[-1]
            if new_bytes + sum(part.size for part in parts[first_merged:]) >= MIN_OWN_FILE_BYTES:
                merged_rows = new_rows + sum(rows[first_merged:])
                counts += [
                    counts[-1] + count
                    for count in neighbour_counts(rows[:first_merged], merged_rows)
                ]
        if sum(rows[len(rows) - counts[-1] :]) > max_rows:
            if self._has_large_merge:  # the rest is postponed
                while sum(rows[len(rows) - counts[-1] :]) > max_rows:
                    counts.pop()
            else:
                self._has_large_merge = True
        return counts[-1]

    def _stage_part(self, part: SegmentPart, rows: int) -> int:
        """Collect a new part, to be written with the others; return its number."""
        number = len(self._small_parts) + len(self._large_parts)
        parts = self._large_parts if part.size >= MIN_OWN_FILE_BYTES else self._small_parts
        parts.append((part, number))
        self._new_references[number] = SegmentReference("", 0, rows, part.size)
        return number

    def _rewrite_small_segments(self) -> None:
        """Copy the parts of some small files into a new one if there are many files."""
        sizes: dict[str, int] = {}
        for references in self._references.values():
            for reference in references:
                if self._is_movable(reference) and reference.size < MIN_OWN_FILE_BYTES:
                    sizes[reference.file] = sizes.get(reference.file, 0) + reference.size
        if len(sizes) <= MAX_SMALL_SEGMENTS:
            return
        rewritten = set(sorted(sizes, key=lambda name: (sizes[name], name))[:SEGMENTS_PER_REWRITE])
        for key, references in self._references.items():
            for position, reference in enumerate(references):
                if self._is_movable(reference) and reference.file in rewritten:
                    references[position] = self._stage_part(
                        self._reader.read_part(key, reference), reference.rows
                    )

    def _is_movable(self, reference: StagedReference) -> TypeGuard[SegmentReference]:
        """Return whether a part is in a file of an earlier step, and not in a compaction."""
        return isinstance(reference, SegmentReference) and reference not in self._busy_parts

    def _write_parts(self) -> None:
        """Write the collected parts to segments, and replace their numbers by their locations."""
        segments = [[numbered_part] for numbered_part in self._large_parts]
        if self._small_parts:
            segments.append(self._small_parts)
        for i, segment in enumerate(segments):
            file = f"{self._stem}-{i}.arrow"
            self._new_files[file] = self.write(file, *encode_segment([part for part, _ in segment]))
            for position, (_, number) in enumerate(segment):
                reference = self._new_references[number]
                self._new_references[number] = replace(reference, file=file, position=position)
        for references in self._references.values():
            for index, staged in enumerate(references):
                if isinstance(staged, int):
                    references[index] = self._new_references[staged]
        # A task has the writers of all its cells until it ends, and the parts may be large.
        self._small_parts, self._large_parts = [], []


def _as_references(references: Sequence[StagedReference]) -> tuple[SegmentReference, ...]:
    """Return references of which all parts are written."""
    written = tuple(
        reference for reference in references if isinstance(reference, SegmentReference)
    )
    assert len(written) == len(references)
    return written
