"""Memory limit: keeps large runs and dictionaries in maps of files instead of in memory.

The state consists of arrangements and dictionaries. An arrangement is a relation in one column
order, stored as a list of sorted runs. The state directory stores the same rows as parts of files;
a part has the layout of a run (`streaming.state.segment`). After a commit, the parts of an
arrangement contain the same rows in all as its runs in memory, although they may be divided
differently. So the parts can replace the runs, as after a restart. For example, in rows::

    runs in memory     100,000,000     9,000     700
    parts on disk       90,000,000     8,000,000     2,000,000     9,000     700
    after replacement   mapped         mapped        mapped        memory    memory

A large part is mapped, a small one is read to memory. Later steps add runs in memory, and merge
them with each other, but not with mapped runs (`dbsp_wcoj.storage.spine`). Mapped files are merged
by the compactor of the state directory. Its result is mapped after the commit whose manifest names
it.

A mapped run has its directory in memory, a smaller one than that of the file (`Run.with_index`), so
a search reads three pages instead of four: of the values, of the offsets, and of the rows. It is
built once, when the run replaces those in memory; after a restart, by the first commit.

A quarter of the limit is for runs and dictionaries in memory. If they exceed this quarter after a
commit, `MemoryLimit.after_commit` replaces the runs of the arrangements with the most bytes in
memory by their parts, until an eighth of the limit is in use. If all of them are not enough, it
moves the largest dictionaries to scratch files (`streaming.state.mapped.dictionary_memory`). Memory
must then grow by another eighth of the limit before this is done again, so most commits replace
nothing.
`MemoryLimit.after_commit` also replaces the runs of an arrangement that maps a file which the
version no longer needs, so that the disk space of removed files is freed.

An eighth is for freed memory that the process keeps (`streaming.state.mapped.freed_memory`) and for
the results of merges. The rest, and what runs and dictionaries leave of their quarter, is for the
resident pages of mapped runs (`streaming.state.mapped.resident_pages`): the values and offsets of
the first level of a large run are about a fifth of it, and each step reads many of their pages.
The pages of dictionaries are removed only after a commit, at most once in
`COMMITS_BETWEEN_RELEASES`, if the state in memory and all resident pages together exceed the limit.
They are not removed during a step: each string that is encoded reads pages at random positions, and
the system maps 16 pages for each of them, so it would map the same pages again and again.

A merge in memory needs memory for its result. So runs in memory are not merged if the result may
exceed ``1 / MERGED_RUN_DIVISOR`` of the limit (`Spine.max_merge_rows`). They are soon replaced by
maps of files, and the compactor merges these files.

While new views are computed in slices, their traces are not those of the circuit yet. Their rows
are in files as well (`EarlyTraces`), so they are replaced together with those of the circuit.

When a job starts, the large runs are mapped at once (`MemoryLimit.map_files`), and only the small
ones are read. The large parts of dictionaries are mapped, too, and loaded a slice at a time.

Cost: O(runs) for each commit. To replace the runs of an arrangement, its small parts are read. To
stay within the limit, only arrangements are chosen whose memory shrinks at least by half.

Alternatives considered: writing each run to a file when it is moved out of memory. It would double
what is written to disk, because the state directory has the same rows already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import numpy as np

from circuits import Circuit
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder, Trace
from streaming.errors import StateError
from streaming.sizes import parse_size
from streaming.state.files import MappableFiles, MappedMemory
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.mapped.dictionary_memory import DictionaryMemory, DictionarySize
from streaming.state.mapped.freed_memory import KEPT_SHARE, FreedMemory
from streaming.state.mapped.resident_pages import (
    PageRange,
    ResidentPages,
    resident_file_bytes,
)
from streaming.state.mapped.trusted_files import (
    Identity,
    RunFile,
    TrustedFiles,
    Verification,
    verify,
)
from streaming.state.part_reader import PartReader, name_of_parts
from streaming.state.segment import SegmentPart, decode_segment, part_name, split_part_name
from streaming.state.segment_references import SegmentReference
from streaming.state.verified_files import (
    FileCache,
    MappedFiles,
    check_size,
    check_strings,
    decode_run,
    find_part,
    map_verified,
)

__all__ = ["EarlyTraces", "MemoryLimit", "MemoryUse", "parse_memory_limit"]

# A part is mapped if it has at least limit / MAPPED_PART_DIVISOR bytes, or MAX_HEAP_PART_BYTES.
MAPPED_PART_DIVISOR: Final = 1024
MAX_HEAP_PART_BYTES: Final = 1 << 20
# The share of the limit for runs and dictionaries in memory, and the share that they have, if
# possible, after runs are replaced. The rest of the limit is for resident pages of maps.
MAX_HEAP_SHARE: Final = 0.25
MAX_HEAP_SHARE_AFTER_REPLACEMENT: Final = 0.125
# Two runs in memory are merged if the result has at most limit / MERGED_RUN_DIVISOR bytes.
MERGED_RUN_DIVISOR: Final = 16
# The share of the limit for memory that is no part of the state: freed memory that the process
# keeps, and the result of a merge while its runs are in memory, too.
MAX_SPARE_SHARE: Final = KEPT_SHARE + 1 / MERGED_RUN_DIVISOR
# The directory in memory of a mapped run has at most 1 / MIN_INDEX_DIVISOR of the words of the run.
# All of them together have at most limit / INDEX_LIMIT_DIVISOR, except that a directory need not
# have less than 1 / MAX_INDEX_DIVISOR of the words: an entry for each page of values.
MIN_INDEX_DIVISOR: Final = 128
INDEX_LIMIT_DIVISOR: Final = 16
MAX_INDEX_DIVISOR: Final = 4096
# The share of the limit that is left for resident pages of maps in any case.
MIN_PAGE_SHARE: Final = 1 - MAX_HEAP_SHARE - MAX_SPARE_SHARE - 1 / INDEX_LIMIT_DIVISOR
# The bytes of a row for each column, in the estimate of the size of a merged run.
BYTES_PER_VALUE: Final = 16
# Two runs with at most this many rows together are always merged, so that there are few runs.
MIN_MERGE_ROWS: Final = 1 << 14
# The pages of dictionaries are removed at most once in this many commits.
COMMITS_BETWEEN_RELEASES: Final = 16

log = logging.getLogger(__name__)

#: The name of a trace and a column order.
ArrangementKey = tuple[str, ColumnOrder]


class MemoryUse(NamedTuple):
    """How much of the state is in memory, and how much in maps of files.

    Attributes:
        heap_bytes: Bytes of the runs and dictionaries in memory.
        mapped_bytes: Bytes of the runs and dictionaries that are memory maps of files.
        mapped_runs: The number of runs that are memory maps of files.
    """

    heap_bytes: int
    mapped_bytes: int
    mapped_runs: int


class EarlyTraces(Protocol):
    """The traces of new views: `streaming.state.records.early_state`."""

    @property
    def traces(self) -> Mapping[str, Trace]:
        """The traces by name; none if they are in no files."""
        ...

    @property
    def manifest(self) -> Manifest | None:
        """The parts of files with the same rows; None if they are in no files."""
        ...

    @property
    def is_given_up(self) -> bool:
        """True if the traces are not in files any more."""
        ...


class MemoryLimit:
    """Moves runs and dictionaries of a circuit from memory to maps of files.

    Args:
        files: The state directory.
        circuit: The circuit of the state.
        limit: The memory limit in bytes.

    Attributes:
        use: The use of memory after the last commit.
    """

    def __init__(self, files: MappableFiles, circuit: Circuit, limit: int) -> None:
        self._files = files
        self._circuit = circuit
        self._early: EarlyTraces | None = None
        self._limit = limit
        self._min_mapped_bytes = min(limit // MAPPED_PART_DIVISOR, MAX_HEAP_PART_BYTES)
        # The mapped files by name, and the names of those that each arrangement uses.
        self._maps: dict[str, tuple[MappedMemory, list[SegmentPart]]] = {}
        self._files_of: dict[ArrangementKey, frozenset[str]] = {}
        # The runs of the mapped parts.
        self._indexed_runs: dict[tuple[ArrangementKey, SegmentReference], Run] = {}
        self._dictionary_memory = DictionaryMemory(files, self._min_mapped_bytes)
        self._min_page_bytes = round(limit * MIN_PAGE_SHARE)
        self._pages = ResidentPages(self._min_page_bytes)
        # Resident pages of files that are not those of the state, such as libraries.
        self._other_file_bytes = resident_file_bytes()
        self._commits_until_release = 0
        self._freed_memory = FreedMemory(limit)
        self._trusted = TrustedFiles(files.record_files)
        self._verification: Verification | None = None
        self.use = MemoryUse(0, 0, 0)

    def continue_with(self, circuit: Circuit) -> None:
        """Limit the memory of another circuit, to which the state was moved."""
        self._circuit = circuit
        self._early = None

    def add_early(self, early: EarlyTraces) -> None:
        """Also limit the traces of new views, until `continue_with` or `forget`."""
        self._early = early

    def forget(self) -> None:
        """Drop all maps, and stop their verification, before another state is loaded."""
        if self._verification is not None:
            self._verification.stop()
            self._verification = None
        self._early = None
        self._maps.clear()
        self._indexed_runs.clear()
        self._pages.watch(())
        self._files_of.clear()

    def map_files(self, manifest: Manifest) -> MappedFiles:
        """Map the large runs and strings of a version that is being loaded.

        Files of runs that have not changed since this library wrote or verified them are verified
        in the background (`finish_verification`), the others at once.

        Raises:
            StateDamagedError: A file is damaged.
            OSError: A file cannot be read.
        """
        self.forget()
        self._trusted.read()
        # All runs in files that also have parts of dictionaries are read to memory.
        read_files = {
            part.file for references in manifest.dictionaries.values() for part in references
        }
        runs: dict[str, list[tuple[str, SegmentReference]]] = {}
        for name, orders in manifest.traces.items():
            for order, references in orders.items():
                mapped_files = set()
                for part in references:
                    if part.file not in read_files and part.size >= self._min_mapped_bytes:
                        mapped_files.add(part.file)
                        runs.setdefault(part.file, []).append((part_name(name, order), part))
                self._files_of[name, order] = frozenset(mapped_files)
        unverified: list[RunFile] = []
        for file_name, parts in runs.items():
            file = RunFile(file_name, manifest.files[file_name], parts)
            check_size(self._files, file_name, file.checksum)
            mapped, _ = self._map(file_name, file.checksum)
            if (file_name, _identity_of(mapped, file.checksum)) in self._trusted:
                unverified.append(file)
            else:
                verify(self._files, file)
        self._watch_pages()
        if unverified:
            self._verification = Verification(self._files, unverified)
        cache = {name: (manifest.files[name], parts) for name, (_, parts) in self._maps.items()}
        string_files, maps = self._map_strings(manifest)
        sizes = {name: DictionarySize.in_version(manifest, name) for name in manifest.dictionaries}
        excess = self._excess(sum(sum(size) for size in sizes.values()))

        memories = self._dictionary_memory.choose(sizes, excess)

        def release_pages() -> None:
            for mapped in maps:
                mapped.release_pages()

        return MappedFiles(cache | string_files, memories, release_pages)

    def _map_strings(self, manifest: Manifest) -> tuple[FileCache, list[MappedMemory]]:
        """Map and verify the files with large parts of dictionaries and nothing else."""
        run_files = {
            part.file
            for orders in manifest.traces.values()
            for references in orders.values()
            for part in references
        }
        cache: FileCache = {}
        maps: list[MappedMemory] = []
        for name, references in manifest.dictionaries.items():
            for reference in references:
                file, checksum = reference.file, manifest.files[reference.file]
                if file in run_files or reference.size < self._min_mapped_bytes:
                    continue
                if file not in cache:
                    mapped = map_verified(self._files, file, checksum)
                    maps.append(mapped)
                    path = f"{self._files.location}/{file}"
                    cache[file] = checksum, decode_segment(mapped.memory, path)
                part = find_part(self._files, cache[file][1], reference, name)
                check_strings(self._files, part, reference)
                mapped.release_pages()
        return cache, maps

    def finish_verification(self) -> None:
        """Wait until the files are verified that `map_files` left to the background.

        Raises:
            StateDamagedError: A file is damaged; the next `map_files` verifies all files at once.
            OSError: A file cannot be read.
        """
        verification, self._verification = self._verification, None
        if verification is not None:
            try:
                verification.finish()
            except BaseException:
                self._trusted.record({})
                raise

    def release_pages(self) -> None:
        """Remove the pages of all maps from the memory of this process."""
        self._pages.release()
        self._dictionary_memory.release_pages()

    def check(self) -> None:
        """Check that no mapped file was cut short; a system call per file.

        Raises:
            StateDamagedError: A file was cut short or extended.
        """
        for mapped, _ in self._maps.values():
            mapped.check()

    def after_commit(self, manifest: Manifest) -> None:
        """Replace runs by maps if the limit is exceeded; the circuit has the state of the version.

        If files cannot be mapped, for example because the process has too many maps, the runs stay
        in memory.

        Raises:
            StateDamagedError: A file of the version is damaged.
        """
        self._drop_given_up()
        manifest = self._with_early(manifest)
        sizes = self._heap_bytes()
        dictionaries = self._circuit.graph.registry.dictionaries
        # An arrangement that is not needed any more has no runs.
        self._files_of = {key: names for key, names in self._files_of.items() if key in sizes}
        keys = [key for key, names in self._files_of.items() if not names <= manifest.files.keys()]
        keys += self._find_renamed() + self._find_unindexed()
        dictionary_sizes = {name: DictionarySize.of(entry) for name, entry in dictionaries.items()}
        dictionary_bytes = sum(sum(size) for size in dictionary_sizes.values())
        excess = self._excess(sum(sizes.values()) + dictionary_bytes)
        if excess > 0:
            for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
                if excess <= 0:
                    break
                references = manifest.traces.get(key[0], {}).get(key[1])
                if references is None:  # it is new, and the next version will have it
                    continue
                saved = sizes[key] - self._unmapped_bytes(references)
                if 2 * saved >= sizes[key] > 0:
                    keys.append(key)
                    excess -= saved
        if keys:
            try:
                self._replace_runs(manifest, dict.fromkeys(keys))
            except OSError as error:
                log.warning(
                    "state directory %s: runs stay in memory, because their files cannot be "
                    "mapped: %s",
                    self._files.location,
                    error,
                )
                excess = self._excess(sum(self._heap_bytes().values()) + dictionary_bytes)
            sizes = self._heap_bytes()
        memories = self._dictionary_memory.choose(dictionary_sizes, excess)
        if memories:
            self._circuit.move_dictionaries(memories)
        self.use = self._measure(sum(sizes.values()))
        self._limit_merges()
        self._release_dictionaries()
        # Dictionaries in memory may take more than their share.
        page_bytes = round(self._limit * (1 - MAX_SPARE_SHARE)) - self.use.heap_bytes
        self._pages.after_commit(max(page_bytes, self._min_page_bytes))
        self._freed_memory.after_commit(self.use.heap_bytes)

    def live_rows(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Return an estimate of the number of distinct rows of each trace.

        Mapped runs are not merged, so they may have many rows that cancel each other. If all rows
        of a trace have positive weights, it has at most as many rows as the sum of the weights.
        The runs do not say whether this is so, because a negative weight in one of them may be that
        of a deletion. So the estimate is too small for a trace that has rows with weights of both
        signs, such as the state of a sum; `Compactor.reclaim_space` also counts the stored rows.

        Args:
            rows: The rows in the runs of each trace.
        """
        estimates = dict(rows)
        for name in {name for name, _ in self._files_of} & rows.keys():
            trace = self._circuit.graph.traces.get(name)
            if trace is None or not trace.arrangements:
                continue
            runs = trace.arrangements[0].spine.runs
            if sum(run.rows * run.max_abs_weight for run in runs) >= 2**63:
                continue  # the sum of the weights may have wrapped
            total = sum(run.total_weight for run in runs)
            if total >= 0:
                estimates[name] = min(rows[name], total)
        return estimates

    def _excess(self, heap_bytes: int) -> float:
        """Return the bytes to free; 0 if runs and dictionaries do not exceed their share."""
        if heap_bytes <= MAX_HEAP_SHARE * self._limit:
            return 0
        return heap_bytes - MAX_HEAP_SHARE_AFTER_REPLACEMENT * self._limit

    def _drop_given_up(self) -> None:
        """Drop the traces of new views that are not computed any more, and their maps."""
        if self._early is not None and self._early.is_given_up:
            self._early = None
            own = self._circuit.graph.traces
            self._files_of = {key: names for key, names in self._files_of.items() if key[0] in own}
            self._drop_unused_maps()

    def _with_early(self, manifest: Manifest) -> Manifest:
        """Return a version together with the files of new views."""
        early = None if self._early is None else self._early.manifest
        if early is None:
            return manifest
        return replace(
            manifest,
            traces={**early.traces, **manifest.traces},
            files={**early.files, **manifest.files},
        )

    @property
    def _traces(self) -> Mapping[str, Trace]:
        """The traces of the circuit, and those of new views that are in files."""
        traces = self._circuit.graph.traces
        return traces if self._early is None else {**self._early.traces, **traces}

    def _heap_bytes(self) -> dict[ArrangementKey, int]:
        """Return the bytes in memory of each arrangement."""
        return {
            (name, arrangement.order): arrangement.spine.heap_bytes
            for name, trace in self._traces.items()
            for arrangement in trace.arrangements
        }

    def _measure(self, run_heap_bytes: int) -> MemoryUse:
        dictionaries = self._circuit.graph.registry.dictionaries.values()
        dictionary_heap_bytes = sum(entry.heap_bytes for entry in dictionaries)
        dictionary_bytes = sum(entry.nbytes for entry in dictionaries)
        mapped = [
            run
            for trace in self._traces.values()
            for arrangement in trace.arrangements
            for run in arrangement.spine.runs
            if run.is_mapped
        ]
        index_bytes = sum(run.index.nbytes for run in mapped if run.index is not None)
        return MemoryUse(
            run_heap_bytes + index_bytes + dictionary_heap_bytes,
            sum(run.nbytes for run in mapped) + dictionary_bytes - dictionary_heap_bytes,
            len(mapped),
        )

    def _find_renamed(self) -> list[ArrangementKey]:
        """Return the arrangements that still map files under the name of another arrangement.

        A change of the views gave such an arrangement a new name, and its rows were written again
        under this name.
        """
        return [
            (name, arrangement.order)
            for name, trace in self._traces.items()
            for arrangement in trace.arrangements
            if (name, arrangement.order) not in self._files_of
            and any(run.is_mapped for run in arrangement.spine.runs)
        ]

    def _find_unindexed(self) -> list[ArrangementKey]:
        """Return the arrangements with mapped runs without an index in memory, after a restart."""
        return [
            (name, arrangement.order)
            for name, trace in self._traces.items()
            for arrangement in trace.arrangements
            if any(run.is_mapped and not run.needs_no_index for run in arrangement.spine.runs)
        ]

    def _limit_merges(self) -> None:
        """Limit the sizes of merges in memory, also in arrangements that are new."""
        for trace in self._traces.values():
            row_bytes = BYTES_PER_VALUE * trace.arity
            for arrangement in trace.arrangements:
                max_rows = self._limit // (MERGED_RUN_DIVISOR * row_bytes)
                arrangement.spine.max_merge_rows = max(max_rows, MIN_MERGE_ROWS)

    def _watch_pages(self) -> None:
        self._pages.watch(
            [mapped for mapped, _ in self._maps.values()],
            [leaf for mapped, parts in self._maps.values() for leaf in _leaves_of(mapped, parts)],
        )

    def _release_dictionaries(self) -> None:
        """Remove the pages of dictionaries if the limit is exceeded; see the module docstring."""
        self._commits_until_release -= 1
        if self._commits_until_release > 0 or not self._dictionary_memory.is_in_use:
            return
        resident = resident_file_bytes() - self._other_file_bytes
        if self.use.heap_bytes + resident > self._limit:
            self._dictionary_memory.release_pages()
            self._commits_until_release = COMMITS_BETWEEN_RELEASES

    def _unmapped_bytes(self, references: Iterable[SegmentReference]) -> int:
        """Return the bytes of the small parts, which are read to memory when they replace runs."""
        return sum(part.size for part in references if part.size < self._min_mapped_bytes)

    def _replace_runs(self, manifest: Manifest, keys: Iterable[ArrangementKey]) -> None:
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
        own, traces = self._circuit.graph.traces, self._traces
        self._circuit.replace_runs({name: runs[name] for name in runs.keys() & own.keys()})
        # The traces of new views are in no published version, so they have no readers.
        for name in runs.keys() - own.keys():
            traces[name].replace_runs(runs[name])
        self._files_of |= names_of
        self._drop_unused_maps()
        self._trusted.record(
            {
                name: _identity_of(mapped, manifest.files[name])
                for name, (mapped, _) in self._maps.items()
                if name in manifest.files
            }
        )

    def _drop_unused_maps(self) -> None:
        """Drop the maps of files that no arrangement uses any more."""
        used = frozenset[str]().union(*self._files_of.values())
        self._maps = {name: entry for name, entry in self._maps.items() if name in used}
        self._indexed_runs = {
            (key, part): run for (key, part), run in self._indexed_runs.items() if part.file in used
        }
        self._watch_pages()

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
        if (key, reference) not in self._indexed_runs:
            mapped, parts = self._map(reference.file, manifest.files[reference.file])
            part = find_part(self._files, parts, reference, name_of_parts(key))
            # The contents were checked when this process wrote or loaded the file.
            run = decode_run(self._files, part, reference, is_new=False)
            max_words = len(run.buffer) // self._index_divisor(manifest)
            self._indexed_runs[key, reference] = _with_index(run, mapped, max_words)
        return self._indexed_runs[key, reference]

    def _index_divisor(self, manifest: Manifest) -> int:
        """Return how many words of a mapped run have one word in its directory in memory."""
        state_bytes = sum(
            part.size
            for orders in manifest.traces.values()
            for references in orders.values()
            for part in references
        )
        divisor = INDEX_LIMIT_DIVISOR * state_bytes // self._limit
        return min(max(divisor, MIN_INDEX_DIVISOR), MAX_INDEX_DIVISOR)

    def _map(self, name: str, checksum: FileChecksum) -> tuple[MappedMemory, list[SegmentPart]]:
        """Return the map of a file and its parts; O(parts) if it is not mapped yet."""
        if name not in self._maps:
            mapped = self._files.map(name, checksum.size)
            mapped.expect_random_access()
            path = f"{self._files.location}/{name}"
            self._maps[name] = mapped, decode_segment(mapped.memory, path, is_mapped=True)
        return self._maps[name]


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


def _with_index(run: Run, mapped: MappedMemory, max_words: int) -> Run:
    """Return a mapped run with an index in memory; the pages read for it are released."""
    start = run.address - _address_of(mapped)

    def release_pages(first: int, end: int) -> None:
        mapped.release_pages(start + 8 * first, start + 8 * end)

    return run.with_index(max(max_words, 2), release_pages)


def _address_of(mapped: MappedMemory) -> int:
    return int(np.asarray(mapped.memory).__array_interface__["data"][0])


def _leaves_of(mapped: MappedMemory, parts: Iterable[SegmentPart]) -> list[PageRange]:
    """Return where the leaves of the mapped runs of a file are; O(parts)."""
    file = _address_of(mapped)
    leaves = []
    for part in parts:
        if split_part_name(part.name)[1] is None:
            continue  # strings of a dictionary
        start = part.words.__array_interface__["data"][0] - file
        leaves += [
            PageRange(mapped, start + 8 * section.start, start + 8 * section.stop)
            for section in Run.from_words(part.words, is_mapped=True).leaf_sections
        ]
    return sorted(leaves, key=lambda leaf: leaf.start)


def _identity_of(mapped: MappedMemory, checksum: FileChecksum) -> Identity:
    return checksum.size, checksum.crc, *mapped.identity
