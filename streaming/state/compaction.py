"""Compaction: merges large stored parts in the background, so that no micro-batch waits for it.

The parts of an arrangement (a relation in one column order) or dictionary (codes of strings) are
merged by levels (`streaming.state.segment_references`). A merge rewrites all rows of a level, and a
micro-batch that did this would take seconds. So the writer merges only few bytes itself, and leaves
larger merges to the compactor::

    due         the writer finds a full level, and adds the part of the step without merging it
    running     after the commit, a thread reads and verifies the parts, merges them, and writes
                and syncs a file that no manifest names
    finished    the next manifest names this file in place of the parts

Nothing depends on when a compaction ends, or if it ever does: the sum of the parts is the same
before and after. Files never change, and the parts of a running compaction are not removed, because
the current manifest names them. After a crash no manifest names the new file, and the next start
removes it.

The values that were removed from a dictionary in memory are still in its parts. So the compactor
also writes the remaining values of a dictionary to one part, which takes the place of all its
parts. It reads them from memory, from arrays that do not change (`dbsp_wcoj.values.overlay`). Rows
that cancel each other may also stay in the parts of an arrangement for long, because a level is
merged only when it is full. If its parts have many more rows than its runs in memory, all of them
are merged.

With a memory limit, look-ups search the parts, so neighbouring large ones are merged before their
level is full, when nothing else is due (`streaming.state.segment_references`).

A compaction that fails with an OSError or MemoryError is tried again later. Large files that no
version names any more are removed in the background, too: to free the blocks of a file of 200 MB
takes a tenth of a second.

Cost: one compaction at a time, so at most one core, and memory for the rows of one merge; with a
memory limit, space in files for these rows instead (`streaming.state.mapped.file_merge`). A level
must be merged before `streaming.state.writer.MAX_STORED_PARTS` parts have gathered; otherwise the
writer merges a few of them itself in each step, so that a stream that is too fast slows down.

Source: background compaction as in LevelDB and RocksDB (Dong et al., "Optimizing Space
Amplification in RocksDB", CIDR 2017). Alternatives considered: a slice of merging in each commit,
as in memory (`dbsp_wcoj.storage.spine`). A file would have to be written and synced in slices, too,
which object stores cannot do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.values.coded_strings import CodedStrings, concatenate_strings
from dbsp_wcoj.values.interner import InternerArrays
from dbsp_wcoj.values.overlay import InternerOverlay
from streaming.errors import StreamingError
from streaming.state.files import Bytes, Files, MappableFiles, remove_files
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.mapped.file_merge import FileMerge
from streaming.state.mapped.unreadable_pages import guard_reads
from streaming.state.part_reader import PartReader, name_of_parts
from streaming.state.segment import SegmentPart, encode_segment, string_part
from streaming.state.segment_references import (
    SegmentReference,
    StateKey,
    find_full_level,
    find_large_neighbours,
    has_removed_values,
)
from streaming.state.string_parts import STRINGS_PER_SLICE, Slices, StoredStrings, encode_strings
from streaming.state.verified_files import check_strings

__all__ = ["CompactedPart", "Compactor", "PartGroup"]

# The rows that are merged between two checks of whether the compaction must stop.
ROWS_PER_SLICE: Final = 1 << 18
# After a compaction has failed, the next one starts after this many micro-batches.
STEPS_AFTER_FAILURE: Final = 64
# All parts of an arrangement are merged if they have more rows than this many times the rows in
# memory, plus this number.
MAX_STORED_ROWS_RATIO: Final = 1.5
MIN_REMOVED_ROWS: Final = 1 << 14

# Smaller parts are not merged before their level is full.
MIN_LARGE_PART_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartGroup:
    """Neighbouring parts of an arrangement or dictionary, oldest first."""

    key: StateKey
    references: tuple[SegmentReference, ...]

    def position_in(self, references: Collection[object]) -> int | None:
        """Return the position of these parts in a list of parts; None if they are not in it."""
        parts, size = tuple(references), len(self.references)
        for position in range(len(parts) - size + 1):
            if parts[position : position + size] == self.references:
                return position
        return None


@dataclass(frozen=True)
class CompactedPart:
    """The part that takes the place of a group.

    Attributes:
        group: The parts that were merged.
        reference: The new part, alone in its file; None if all rows cancel.
        checksum: The checksum of that file.
    """

    group: PartGroup
    reference: SegmentReference | None
    checksum: FileChecksum


class RunningThread(Protocol):
    """A thread, as far as a compactor uses it."""

    def is_alive(self) -> bool:
        """Return whether the function still runs."""

    def join(self) -> None:
        """Wait until the function has returned."""


def start_thread(function: Callable[[], None]) -> RunningThread:
    """Run a function in a thread of its own, which does not keep the process alive."""
    thread = threading.Thread(target=function, name="dbsp-wcoj-compaction", daemon=True)
    thread.start()
    return thread


class Compactor:
    """The compactions of one state directory, one at a time.

    One thread at a time may use it: that of the store.

    Args:
        files: The directory.
        mappable_files: The directory, to merge large runs and strings in maps of files; None to
            merge them in memory.
    """

    def __init__(self, files: Files, mappable_files: MappableFiles | None = None) -> None:
        self._files = files
        self._mappable_files = mappable_files
        # The arrangements and dictionaries that may have a full level.
        self._due: set[StateKey] = set()
        self._task: _Task | None = None
        self._thread: RunningThread | None = None
        self._steps_to_wait = 0
        # True if the writer has read the result of the task.
        self._is_result_read = False
        # True if the next task is to write a dictionary, or all parts of an arrangement, again.
        self._must_rewrite = False
        self._is_rewrite = False  # whether the running compaction is for `reclaim_space`
        # The files that are removed next, and the thread that is removing earlier ones.
        self._unused_files: list[str] = []
        self._removal: RunningThread | None = None

    @property
    def group(self) -> PartGroup | None:
        """The parts that are being merged, or whose result is not in a manifest yet."""
        return None if self._task is None else self._task.group

    def result(self) -> CompactedPart | None:
        """Return the finished compaction, if there is one; it stays until `after_commit`.

        From then on, a manifest may name its file.

        Raises:
            StateDamagedError: A part that was to be merged is damaged.
        """
        task = self._task
        if task is None or self._thread is None or self._thread.is_alive():
            return None
        error = task.error
        if error is None and task.has_lost_its_file():
            error = FileNotFoundError(f"{task.file} was removed or cut short")
        if error is None:
            self._is_result_read = True
            return task.result
        self._forget()
        self._due.add(task.group.key)
        self._steps_to_wait = STEPS_AFTER_FAILURE
        if not isinstance(error, (OSError, MemoryError)):
            raise error
        log.warning(
            "%d parts of %r in state directory %s were not merged: %s; this is tried again after "
            "%d micro-batches, and meanwhile the directory has more files",
            len(task.group.references),
            name_of_parts(task.group.key),
            self._files.location,
            error,
            STEPS_AFTER_FAILURE,
        )
        return None

    def after_commit(self, manifest: Manifest, due: Iterable[StateKey], file: str) -> None:
        """Forget the compaction whose result a manifest names, and start the next one.

        Args:
            manifest: The current version.
            due: The arrangements and dictionaries for which the writer has left a merge to do.
            file: An unused name, for the result of the next compaction.
        """
        self._due.update(due)
        task = self._task
        if task is not None and task.group.position_in(_parts(manifest, task.group.key)) is None:
            self._due.add(task.group.key)
            self._stop(keep_file=task.file in manifest.files)
        self._steps_to_wait = max(self._steps_to_wait - 1, 0)
        if self._task is None and not self._steps_to_wait and not self._must_rewrite:
            self._start(manifest, file)

    def merge_now(
        self, group: PartGroup, checksums: Mapping[str, FileChecksum], file: str
    ) -> CompactedPart:
        """Merge parts in this thread, and write and sync the file of the result.

        A compaction in the background goes on. With mappable files, the rows of the merge are in
        maps of files, not in memory.

        Args:
            group: The parts, which no running compaction merges.
            checksums: The checksums of their files.
            file: An unused name, for the result.

        Raises:
            StateDamagedError: A part is damaged.
            OSError: The file system failed.
            MemoryError: The rows of the merge do not fit in memory.
        """
        reader = PartReader(self._files, checksums, self._mappable_files)
        task = _Task(self._files, reader, group, file, mappable_files=self._mappable_files)
        task.run()
        if task.error is not None:
            raise task.error
        assert task.result is not None
        return task.result

    def reclaim_space(
        self,
        manifest: Manifest,
        dictionaries: Mapping[str, InternerArrays],
        rows: Mapping[str, int],
        file_name: Callable[[], str],
    ) -> None:
        """Write a dictionary or arrangement again of which much was removed.

        If another compaction is running, also one of a part of these rows, this is done after it,
        at a later call: until then, `after_commit` starts no other one.

        Args:
            manifest: The current version, whose step is committed.
            dictionaries: The values of each dictionary.
            rows: About the number of rows of each trace.
            file_name: Returns an unused name, for the result.
        """
        self._must_rewrite = False
        self._rewrite_dictionaries(manifest, dictionaries, file_name)
        removed_rows: dict[PartGroup, int] = {}
        for name, orders in manifest.traces.items():
            for order, references in orders.items():
                stored = sum(part.rows for part in references)
                largest = max((part.rows for part in references), default=0)
                # No row is twice in a part, and a row of another part cancels at most one of the
                # largest part. So a trace that was written to a single part is not written again
                # before other parts have a fifth of its rows, even if ``rows`` is too small.
                live = max(rows.get(name, stored), largest - (stored - largest))
                if stored > MAX_STORED_ROWS_RATIO * live + MIN_REMOVED_ROWS:
                    removed_rows[PartGroup((name, order), references)] = stored - live
        # The first one is written now. If it were always the same one, the others would grow.
        for group in sorted(removed_rows, key=removed_rows.__getitem__, reverse=True):
            self._rewrite_rows(manifest, group, file_name)

    def _rewrite_rows(
        self, manifest: Manifest, group: PartGroup, file_name: Callable[[], str]
    ) -> None:
        if self._task is None and not self._steps_to_wait:
            checksums = {part.file: manifest.files[part.file] for part in group.references}
            self._merge_parts(group, checksums, file_name(), is_rewrite=True)
        elif not self._rewrites(group.key):
            self._must_rewrite = True

    def _rewrite_dictionaries(
        self,
        manifest: Manifest,
        dictionaries: Mapping[str, InternerArrays],
        file_name: Callable[[], str],
    ) -> None:
        for name, values in dictionaries.items():
            references = manifest.dictionaries.get(name, ())
            is_current = manifest.dictionary_lengths.get(name) == values.next_code
            if not is_current or not has_removed_values(references, values.size, values.byte_count):
                continue
            group = PartGroup((name, None), references)
            if self._task is None and not self._steps_to_wait:
                reader = PartReader(self._files, {})
                self._run_task(
                    _Task(
                        self._files,
                        reader,
                        group,
                        file_name(),
                        values,
                        mappable_files=self._mappable_files,
                    ),
                    is_rewrite=True,
                )
            elif not self._rewrites(group.key):
                self._must_rewrite = True

    def _rewrites(self, key: StateKey) -> bool:
        """Return whether the running compaction writes all parts of a key again."""
        return self._task is not None and self._is_rewrite and self._task.group.key == key

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no version names, in the background.

        Errors are logged. A later call tries again to remove the files that may remain.
        """
        self._unused_files += names
        is_busy = self._removal is not None and self._removal.is_alive()
        if self._unused_files and not is_busy:
            self._removal = self._run(self._remove_unused_files)

    def _remove_unused_files(self) -> None:
        unused = tuple(self._unused_files)  # later ones are added at the end
        try:
            remove_files(self._files, unused)
        except (OSError, StreamingError) as error:
            log.warning("old files in %s could not be removed: %s", self._files.location, error)
            self._unused_files[: len(unused)] = self._find_remaining(unused)
        else:
            del self._unused_files[: len(unused)]

    def _find_remaining(self, names: Collection[str]) -> list[str]:
        """Return those of some files that still exist; all of them if that is not known."""
        folders = {name.rpartition("/")[0] for name in names}
        try:
            existing = {
                status.name for folder in folders for status in self._files.list_files(folder)
            }
        except (OSError, StreamingError):
            return list(names)
        return [name for name in names if name in existing]

    def check_all(self, manifest: Manifest | None) -> None:
        """Look for full levels in all arrangements and dictionaries of a version, once."""
        if manifest is not None:
            self._due.update(
                (name, order) for name, orders in manifest.traces.items() for order in orders
            )
            self._due.update((name, None) for name in manifest.dictionaries)

    def stop(self) -> None:
        """Stop the running compaction, and remove all unused files; wait until this is done.

        The file of a result that the writer has read remains, because it is unknown here whether
        the manifest that names it was committed. If it was not, the next start removes the file.
        """
        self._due.clear()
        self._steps_to_wait = 0
        self._stop(keep_file=self._is_result_read)
        if self._removal is not None:
            self._removal.join()
            self._removal = None
        self._remove_unused_files()

    def _start(self, manifest: Manifest, file: str) -> None:
        """Start the smallest compaction that is due, because the number of parts grows fastest."""
        groups = self._find_full_levels(manifest)
        if not groups and self._mappable_files is not None:
            groups = _find_large_parts(manifest)
        if not groups:
            return
        group = min(groups, key=lambda group: sum(part.size for part in group.references))
        checksums = {part.file: manifest.files[part.file] for part in group.references}
        self._merge_parts(group, checksums, file)

    def _find_full_levels(self, manifest: Manifest) -> list[PartGroup]:
        groups = []
        for key in list(self._due):
            references = _parts(manifest, key)
            positions = find_full_level([reference.rows for reference in references])
            if positions is None:
                self._due.discard(key)
            else:
                groups.append(PartGroup(key, references[slice(*positions)]))
        return groups

    def _merge_parts(
        self,
        group: PartGroup,
        checksums: Mapping[str, FileChecksum],
        file: str,
        *,
        is_rewrite: bool = False,
    ) -> None:
        reader = PartReader(self._files, checksums, self._mappable_files)
        mappable_files = self._mappable_files
        task = _Task(self._files, reader, group, file, mappable_files=mappable_files)
        self._run_task(task, is_rewrite=is_rewrite)

    def _run_task(self, task: _Task, *, is_rewrite: bool) -> None:
        thread = self._run(task.run)
        if thread is None:
            self._steps_to_wait = STEPS_AFTER_FAILURE
        else:
            self._task, self._thread, self._is_rewrite = task, thread, is_rewrite

    def _run(self, function: Callable[[], None]) -> RunningThread | None:
        """Run a function in the background; return None if there is no thread for it."""
        try:
            return start_thread(function)
        except RuntimeError as error:  # the process may not have more threads
            log.warning("state directory %s: %s", self._files.location, error)
            return None

    def _stop(self, *, keep_file: bool) -> None:
        task, thread = self._task, self._thread
        self._forget()
        if task is None or thread is None:
            return
        task.must_stop.set()
        thread.join()
        if not keep_file:
            task.remove_file()

    def _forget(self) -> None:
        self._task = self._thread = None
        self._is_result_read = False


class _Task:
    """One compaction, which `run` does in a thread.

    Attributes:
        group: The parts to merge.
        file: The name of the file of the result.
        must_stop: Set to stop it.
        result: The result; None until it is finished.
        error: The error that ended it.

    Args:
        files: The directory.
        reader: Reads the parts.
        group: The parts to merge.
        file: The name of the file of the result.
        values: The values that remain of the parts of a dictionary; None to read the parts.
        mappable_files: The directory, to merge in maps of files; None to merge in memory.
    """

    def __init__(
        self,
        files: Files,
        reader: PartReader,
        group: PartGroup,
        file: str,
        values: InternerArrays | None = None,
        mappable_files: MappableFiles | None = None,
    ) -> None:
        self.group = group
        self.file = file
        self.must_stop = threading.Event()
        self.result: CompactedPart | None = None
        self.error: BaseException | None = None
        self._files = files
        self._reader: PartReader | None = reader
        self._values = values
        self._mappable_files = mappable_files

    def run(self) -> None:
        """Merge the parts, and write and sync the file of the result."""
        reader, self._reader = self._reader, None
        values, self._values = self._values, None
        assert reader is not None
        try:
            self.result = self._compact(reader, values)
        except BaseException as error:
            self.error = error
            self.remove_file()

    def has_lost_its_file(self) -> bool:
        """Return whether the file of the result is not as it was written, judging by its size."""
        result = self.result
        if result is None or result.reference is None:
            return False
        return self._files.size(self.file) != result.checksum.size

    def remove_file(self) -> None:
        """Remove the file of the result, if there is one."""
        with contextlib.suppress(OSError, StreamingError):
            self._files.remove(self.file)

    def _compact(self, reader: PartReader, values: InternerArrays | None) -> CompactedPart:
        key, references = self.group.key, self.group.references
        if key[1] is None and self._mappable_files is not None:
            return self._merge_strings(reader, values)
        if values is not None:
            remaining = InternerOverlay(values).arena()
            rows, part = values.size, string_part(name_of_parts(key), remaining)
        elif key[1] is None:
            strings = []
            for reference in references:
                strings.append(reader.read_strings(key, reference))
                self._check_stop()
            merged = concatenate_strings(strings)
            rows, part = len(merged.codes), string_part(name_of_parts(key), merged)
        else:
            return self._merge_runs(reader)
        return self._write(rows, part.size, encode_segment([part]))

    def _merge_strings(self, reader: PartReader, values: InternerArrays | None) -> CompactedPart:
        """Write the parts of a dictionary, or its remaining values, a slice at a time."""
        key = self.group.key
        if values is None:
            with guard_reads():
                parts = [(reader.read_part(key, part), part) for part in self.group.references]
            for part, reference in parts:
                with guard_reads():
                    check_strings(self._files, part, reference)
                reader.release_pages()
                self._check_stop()
            strings = StoredStrings(
                [(part, reference.rows) for part, reference in parts], reader.release_pages
            )
            slices: Slices = strings.__iter__
        else:
            slices = partial(InternerOverlay(values).slices, STRINGS_PER_SLICE)
        encoded = encode_strings(name_of_parts(key), partial(self._check_stop_after_each, slices))
        return self._write(encoded.rows, encoded.size, encoded.chunks)

    def _check_stop_after_each(self, slices: Slices) -> Iterator[CodedStrings]:
        for strings in slices():
            yield strings
            self._check_stop()

    def _merge_runs(self, reader: PartReader) -> CompactedPart:
        """Merge the parts of an arrangement: in memory, or in files if those can be mapped."""
        key, folder = self.group.key, self.file.partition("/")[0]
        file_merge = None
        if self._mappable_files is not None:
            file_merge = FileMerge(
                self._mappable_files, folder, reader, ROWS_PER_SLICE, self._check_stop
            )
        runs = []
        for reference in self.group.references:
            with guard_reads():
                runs.append(reader.read_run(key, reference))
            reader.release_pages()
            self._check_stop()
        run = Run.sum_of(runs, self._merge if file_merge is None else file_merge.merge)
        del runs
        name = name_of_parts(key)
        if file_merge is not None:
            return self._write(run.rows, run.nbytes, file_merge.encode(name, run))
        part = SegmentPart(name, run.to_words())
        return self._write(run.rows, part.size, encode_segment([part]))

    def _write(self, rows: int, size: int, chunks: Iterable[Bytes]) -> CompactedPart:
        """Write and sync the file of the result, unless it has no rows."""
        if not rows:
            return CompactedPart(self.group, None, FileChecksum(0, 0))
        checksum = FileChecksum.of(chunks)
        self._check_stop()
        self._files.write(self.file, chunks)
        self._files.sync(self.file)
        self._files.sync_folder(self.file.partition("/")[0])
        return CompactedPart(self.group, SegmentReference(self.file, 0, rows, size), checksum)

    def _merge(self, older: Run, newer: Run) -> Run:
        merge = Merge(older, newer)
        while (merged := merge.work(ROWS_PER_SLICE)) is None:
            self._check_stop()
        return merged

    def _check_stop(self) -> None:
        if self.must_stop.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """The compaction is not needed any more."""


def _find_large_parts(manifest: Manifest) -> list[PartGroup]:
    """Return the neighbouring large parts of arrangements that are to be merged.

    Complexity:
        O(parts of all arrangements).
    """
    groups = []
    for name, orders in manifest.traces.items():
        for order, references in orders.items():
            if len(references) < 2 or references[1].size < MIN_LARGE_PART_BYTES:
                continue  # parts are in the order of their levels
            large = [part for part in references if part.size >= MIN_LARGE_PART_BYTES]
            positions = find_large_neighbours([part.rows for part in references])
            if positions is not None and positions[1] <= len(large):
                groups.append(PartGroup((name, order), references[slice(*positions)]))
    return groups


def _parts(manifest: Manifest, key: StateKey) -> tuple[SegmentReference, ...]:
    """Return the parts of an arrangement or dictionary in a version; none if it is not in it."""
    name, order = key
    if order is None:
        return manifest.dictionaries.get(name, ())
    return manifest.traces.get(name, {}).get(order, ())
