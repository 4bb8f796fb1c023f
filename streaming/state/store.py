"""Store: the versions of a circuit's state in a directory, one per batch id.

::

    state.json                            the circuit of the directory       (directory_identity)
    programs/<hash>.json                  earlier views                      (program_change)
    views.json                            the text of the views              (view_definitions)
    epoch.json                            the writer of the directory        (ownership)
    manifests/<batch id>.json             a version                          (manifest, versions)
    data/<batch id>-<attempt>-<n>.arrow   parts of arrangements and dictionaries      (segment)
    outputs/....parquet                   published tables of the views               (parquet)
    dead_letters/<batch id>-<attempt>.parquet   rejected rows                (dead_letter_files)
    unpublished.json                      views that a replay left out          (unpublished)
    metrics.jsonl                         a line for each micro-batch

An arrangement is a relation in one column order; a dictionary assigns codes to strings. Both are
stored in parts: a step writes a part with what it adds, or merges the addition with older parts. It
also writes the published tables, and syncs the files. Then it writes its manifest under a
temporary name, and renames it to the final name unless that name is used: the rename is the commit.
Before the rename the version does not exist: a crash leaves files that no manifest names, and the
next start removes them. The last ``keep`` versions are kept.

The newest version is loaded if it is intact. If it is damaged, the id of the first micro-batch
after the start decides, because only this id shows what Spark has committed. If Spark replays the
micro-batch of the damaged version, the previous version is loaded instead: the same rows give the
same delta. If Spark has advanced, the only correct answer is an error.

Cost: bytes of the delta · (1 + log_FANOUT(rows / rows per step)) per arrangement, one manifest of
O(arrangements · log rows). The data files are synced together, so a commit waits about as long as
for four syncs. Large merges are done in the background (`streaming.state.compaction`), so each
commit writes in proportion to its delta. Loading memory-maps the large files, and reads all bytes
once to verify the checksums.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from circuits import Circuit, CircuitStep
from circuits.inputs.encoded_inputs import microseconds_of
from circuits.state.program_change import ProgramChange
from dbsp_wcoj.observer import observed
from streaming.clock import utc_now
from streaming.errors import StateDamagedError, StateError
from streaming.state.batch_order import check_order, check_query, fall_back
from streaming.state.cell_versions import CellVersions
from streaming.state.checksums import checksum_of
from streaming.state.compaction import Compactor
from streaming.state.files import Files, MappableFiles, is_atomic
from streaming.state.manifest import Manifest, manifest_name, next_changes
from streaming.state.mapped.memory_limit import MemoryLimit, MemoryUse
from streaming.state.mapped.unreadable_pages import UnreadablePageError, check_reads, guard_reads
from streaming.state.parquet import encode_parquet
from streaming.state.program_change import (
    AppliedChange,
    ChangeOptions,
    PendingChange,
    change_program,
    check_backfill,
    is_of_same_plan,
    log_unused_rows,
    select_options,
    write_programs,
)
from streaming.state.reader import Reader, check_cells, load
from streaming.state.records.dead_letter_files import (
    DEAD_LETTERS_FOLDER,
    DEFAULT_RETENTION,
    DeadLetterFiles,
    DeadLetterRetention,
    dead_letter_name,
)
from streaming.state.records.early_state import EarlyState
from streaming.state.records.metrics_file import MetricsFile
from streaming.state.records.unpublished import UnpublishedFile, UnpublishedViews
from streaming.state.verified_files import read_state
from streaming.state.version_summary import (
    PublishedTable,
    VersionSummary,
    read_summary,
    summarize,
)
from streaming.state.versions import ABANDONED_BATCHES, DATA, OUTPUTS, LastBatch, Versions
from streaming.state.writable_directory import WritableDirectory
from streaming.state.writer import Writer

__all__ = ["Store"]

MIN_VERSIONS_KEPT: Final = 2

#: The name of the phase that an observer sees while `Store.find` or `Store.write` runs.
WRITE_PHASE: Final = "write"


class Store:
    """The versions of a circuit's state.

    Args:
        files: The directory.
        circuit: The circuit of the state. Only this store may load a state into it, and only steps
            that this store has written may be committed.
        keep: The number of versions to keep, at least 2.
        directory_circuit: The whole circuit, if it is distributed and ``circuit`` is only the part
            that runs on the driver.
        cells: The number of cells of a distributed circuit.
        change: How the views of the directory may change (`streaming.state.program_change`).
        backfill: Returns the rows of inputs, as they are in a version of other views that is
            loaded, instead of those in ``change``. Called while the directory is locked.
        change_cells: Converts the cells of a version of other views; given with ``cells``.
        clock: Returns the time, for a change to views that read ``now()``.
        dead_letters: Which files of dead letters to keep.
        last_batch: Returns the last micro-batch of a view that its target holds. The next version
            publishes the whole view if it holds none (`Versions.find_unwritten`).
        memory_limit: The number of bytes of the state that may be in memory; the rest is mapped
            from the files (`streaming.state.mapped.memory_limit`). None for no limit.
    """

    def __init__(
        self,
        files: Files,
        circuit: Circuit,
        *,
        keep: int = 3,
        directory_circuit: Circuit | None = None,
        cells: int | None = None,
        change: ChangeOptions | None = None,
        backfill: Callable[[Manifest], Mapping[str, Any]] | None = None,
        change_cells: Callable[[Manifest, ChangeOptions], PendingChange] | None = None,
        clock: Callable[[], datetime] = utc_now,
        dead_letters: DeadLetterRetention = DEFAULT_RETENTION,
        last_batch: LastBatch = lambda view: None,
        memory_limit: int | None = None,
    ) -> None:
        if keep < MIN_VERSIONS_KEPT:
            raise StateError(
                f"keep={keep} versions: at least {MIN_VERSIONS_KEPT} are needed; give 2 or more"
            )
        self.files = files
        self.circuit = circuit
        #: The number of bytes that the last `write` wrote.
        self.bytes_written = 0
        #: The number of bytes that it added to the state, without those of merges.
        self.bytes_added = 0
        #: True if a `write` after the last `find` has begun its commit; if that failed, its outcome
        #: is unknown.
        self.has_begun_commit = False
        self._cell_count = cells
        self._change = change or ChangeOptions()
        check_backfill(self._change, (directory_circuit or circuit).inputs)
        self._backfill = backfill
        self._change_cells = change_cells
        self._clock = clock
        # The change of the views that the next version commits; None if the views are the same.
        self._pending: PendingChange | None = None
        self._versions = Versions(files, keep)
        self._directory = WritableDirectory(files, self._versions, directory_circuit or circuit)
        self._reader = Reader(files, circuit)
        self._current: Manifest | None = None  # the version that the next one is written on
        # True if the circuit has the state of `_current`, while the directory is open.
        self._is_loaded = False
        self._durable_folders: set[str] = set()  # folders whose names were synced
        self._unpublished = UnpublishedFile(files)
        self._metrics = MetricsFile(files)
        self._dead_letters = DeadLetterFiles(files, dead_letters)
        self._last_batch = last_batch
        self._memory: MemoryLimit | None = None
        self._compactor = Compactor(files)
        if memory_limit is not None:
            if not isinstance(files, MappableFiles):
                raise StateError(
                    f"memory_limit needs a state directory on a local disk, or on S3 with a local "
                    f"cache, and {files.location} is on another file system: give a path of a "
                    "local disk, a URI such as s3://bucket/folder, or no limit"
                )
            self._memory = MemoryLimit(files, circuit, memory_limit)
            self._compactor = Compactor(files, files)

    @observed(WRITE_PHASE)
    def find(
        self, batch_id: int, query_id: str | None, *, can_repeat: bool = True
    ) -> VersionSummary | None:
        """Return the summary of a committed micro-batch; None if it is the next one.

        Loads the newest version, unless the circuit has it.

        Args:
            batch_id: The micro-batch.
            query_id: The query of its checkpoint; None if it is not known.
            can_repeat: True if the caller can apply the micro-batch again. A damaged version of it
                is then ignored, and replaced by the next `write`; otherwise it is an error.

        Raises:
            BatchOrderError: The id belongs to another checkpoint, skips micro-batches or is older
                than the oldest version; or the version of a replay, or one after it, is missing.
            StateDamagedError: The required version is damaged.
            StateMismatchError, StateLockedError: The directory belongs to another circuit or sink.
            StateError: The file system failed.

        Complexity:
            O(1) if the circuit has the newest version and the micro-batch is the next one. Else the
            whole state is read, or for a committed micro-batch its published tables.
        """
        self.has_begun_commit = False
        self._open()
        if self._memory is not None and self._is_loaded:
            try:
                self._memory.check()
            except (OSError, StateDamagedError) as error:
                self._is_loaded = False  # the next `find` reads the files again
                if isinstance(error, OSError):
                    raise self._unreadable(error) from error
                raise
        while True:
            newest = self._versions.newest
            check_order(self._versions, batch_id, self.files.location)
            try:
                if not self._is_loaded:
                    with guard_reads():
                        self._load(newest, batch_id)
                check_query(self._current, batch_id, query_id, self.files.location)
                is_new = newest is None or batch_id > newest
                committed = None if is_new else self._read_committed(batch_id)
                if batch_id == newest:
                    self._record_left_out(newest)
            except (OSError, StateDamagedError) as error:
                self._directory.raise_if_replaced()
                if isinstance(error, OSError):
                    raise self._unreadable(error) from error
                self._fall_back(batch_id, error, can_repeat=can_repeat)
            else:
                # On an object store, an earlier writer may still commit a version that names
                # these files, until this one has written the next version.
                if not is_atomic(self.files):
                    self._directory.remove_unreferenced()
                return committed

    @observed(WRITE_PHASE)
    def write(
        self,
        batch_id: int,
        query_id: str | None,
        step: CircuitStep,
        *,
        outputs: Mapping[str, PublishedTable],
        digests: Mapping[str, int],
        dead_letters: pa.Table | None = None,
        cells: CellVersions | None = None,
        first_slices: Collection[str] = (),
    ) -> VersionSummary:
        """Make a prepared step the next version; the circuit does not change.

        The caller then commits the step and calls `confirm_commit`. If that fails, the next `find`
        loads the version.

        Args:
            batch_id: The micro-batch, for which `find` returned None.
            query_id: The query of its checkpoint.
            step: The prepared step.
            outputs: The table that each view publishes; one in files becomes part of the version.
            digests: A checksum of the rows of each input, to compare a replay with.
            dead_letters: The rejected rows; None if there are none.
            cells: The versions that the cells have written for the step.
            first_slices: The views whose initial content begins with this version.

        Raises:
            StateError: The file system failed; nothing has changed. If the last rename failed, its
                effect is unknown, and the next `find` checks it.
            StateLockedError: Another sink has taken over the directory. Nothing has changed, unless
                `has_begun_commit` is True: then the next `find` checks the effect.
            StateDamagedError: An older file that the step merges is damaged, or the directory was
                deleted.
        """
        self.has_begun_commit = False
        if self._memory is not None:
            self._finish_verification(self._memory)
            check_reads()
        stem = f"{batch_id:020}-{_new_name()}"
        writer = Writer(self.files, self._current, f"{DATA}/{stem}", self._compactor)
        try:
            state = step.state(writer.dictionary_lengths)
            writer.add(state)
            output_files = writer.write_outputs(outputs, f"{OUTPUTS}/{stem}")
            dead_letter_count = 0 if self._current is None else self._current.dead_letters
            dead_letter_file, dead_letter_size = None, 0
            if dead_letters is not None:
                (data,) = encode_parquet(dead_letters, single_file=True)
                dead_letter_file = dead_letter_name(stem)
                dead_letter_size = writer.write_added(dead_letter_file, data).size
                dead_letter_count += dead_letters.num_rows
            manifest = writer.make_manifest(
                state,
                batch_id,
                query_id=query_id,
                digests=digests,
                outputs=output_files,
                dead_letters=dead_letter_count,
                state_id=self._directory.id,
                fingerprint=self._directory.circuit.fingerprint,
                cells=cells,
            )
            owner = self._directory.owner
            parent = None if self._current is None else self._current.checksum
            link = None if self._pending is None else self._pending.link
            rows = {view: table.num_rows for view, table in outputs.items()}
            manifest = replace(
                manifest,
                epoch=owner.epoch,
                owner=owner.token,
                parent=parent,
                dead_letter_file=dead_letter_file,
                link=link,
                changes=next_changes(batch_id, rows, self._current, link, first_slices),
            )
            if self._pending is not None:
                self._directory.check_owner()
                write_programs(self.files, self._directory.circuit, self._pending)
            data = manifest.encode()
            manifest = replace(manifest, checksum=checksum_of(data))
            staged = writer.stage(manifest_name(batch_id), data)
            if not writer.folders <= self._durable_folders:
                self.files.sync_folder("")  # makes the names of new folders durable
                self._durable_folders |= writer.folders
            self._directory.prepare_commit(manifest)
        except OSError as error:
            writer.undo()
            self._directory.raise_if_replaced()
            raise StateError(
                f"micro-batch {batch_id} cannot be written to state directory "
                f"{self.files.location}: {error}; nothing of it was applied: check the free space "
                "and the permissions, and start the query again"
            ) from error
        except StateDamagedError:
            writer.undo()
            self._directory.raise_if_replaced()
            raise
        except BaseException:
            writer.undo()
            raise
        # The next `find` loads the state again unless `confirm_commit` is called, because the
        # circuit may not have the step.
        self._is_loaded = False
        self.has_begun_commit = True
        try:
            self._directory.commit(staged, batch_id, data)
        except OSError as error:
            raise StateError(
                f"the outcome of the commit of micro-batch {batch_id} to state directory "
                f"{self.files.location} is unknown: {error}; start the query again, which checks it"
            ) from error
        self._current = manifest
        self.bytes_written = writer.bytes_written
        self.bytes_added = writer.bytes_added
        self._compactor.remove(self._versions.add(manifest))
        self._directory.remove_unreferenced()
        if cells is not None and batch_id % ABANDONED_BATCHES == ABANDONED_BATCHES - 1:
            self._directory.remove_abandoned()
        self._dead_letters.after_commit(batch_id, dead_letter_file, dead_letter_size)
        self._change = ChangeOptions()  # a later change may do only what its own options allow
        if self._pending is not None:
            self._pending = None
            self._directory.try_to_describe_circuit()
        self._compactor.after_commit(manifest, writer.due_keys, self._compacted_file(batch_id))
        self._directory.confirm_commit()
        return summarize(self.files, manifest, outputs)

    @contextmanager
    def guard_reads(self) -> Iterator[None]:
        """Raise an error if a step in this block reads a page of a map that cannot be read.

        Raises:
            StateError: It has read one; the next `find` loads the state again.
        """
        if self._memory is None:
            yield
            return
        try:
            with guard_reads():
                yield
        except UnreadablePageError as error:
            self._is_loaded = False
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StateError:
        return StateError(
            f"state directory {self.files.location} cannot be read: {error}; correct this and "
            "start the query again"
        )

    def _finish_verification(self, memory: MemoryLimit) -> None:
        """Wait until all files are verified that were mapped unread at the start."""
        try:
            memory.finish_verification()
        except StateDamagedError:
            self._is_loaded = False  # the next `find` verifies all files before it uses them
            raise
        except OSError as error:
            self._is_loaded = False
            raise StateError(
                f"a file of state directory {self.files.location} cannot be read: {error}; nothing "
                "was applied: check the disk, and start the query again"
            ) from error

    @property
    def id(self) -> str:
        """The id of the directory, from `state.json`; empty until the directory is opened."""
        return self._directory.id

    @property
    def dead_letter_files_removed(self) -> int:
        """The number of old files of dead letters that the last `write` removed."""
        return self._dead_letters.removed

    @property
    def dead_letter_bytes(self) -> int:
        """The bytes of the files of dead letters that are kept."""
        return self._dead_letters.bytes

    @property
    def memory(self) -> MemoryUse | None:
        """Where the state was after the last commit; None without a memory limit."""
        return None if self._memory is None else self._memory.use

    @property
    def pending_outputs(self) -> Mapping[str, pa.Table]:
        """The rows that views publish with the next version because the views have changed."""
        return {} if self._pending is None else self._pending.outputs

    @property
    def description(self) -> str:
        """The place of the state, for messages."""
        return f"state directory {self.files.location}"

    @property
    def last_batch_id(self) -> int | None:
        """The last micro-batch of the state; None before the first one."""
        return None if self._current is None else self._current.batch_id

    @property
    def is_loaded(self) -> bool:
        """True if the circuit has the current version, with a change that is not committed yet."""
        return self._is_loaded

    @property
    def has_pending_change(self) -> bool:
        """True if the next version commits a change of the views."""
        return self._pending is not None

    @property
    def pending_options(self) -> ChangeOptions:
        """The options of the change that is not committed yet, without those that do not fit."""
        return self._change

    @property
    def loses_pending_change(self) -> bool:
        """True if `close` loses the rows of a change of the views that is not committed yet."""
        return self._pending is not None

    def has_lost_change(self) -> bool:
        """Return True if `find` would compute a change that was not committed again.

        The state with the change is no longer in memory, and the newest version does not have it.

        Raises:
            As for `find`.
        """
        if self._pending is None:
            return False
        self._open()
        if self._is_loaded:
            return False
        return self._versions.fingerprint != self._directory.circuit.fingerprint

    def change_views(
        self, circuit: Circuit, applied: AppliedChange, options: ChangeOptions
    ) -> None:
        """Go on with the circuit of other views; the next version commits the change.

        If the next micro-batch fails, the last version is loaded and changed again.

        Args:
            circuit: The new circuit, which has the state.
            applied: The change from the circuit of this store.
            options: With which to change the last version again.
        """
        assert self._directory.is_open and self._is_loaded
        self._compactor.stop()
        self.circuit = self._directory.circuit = circuit
        self._reader = Reader(self.files, circuit)
        if self._memory is not None:
            self._memory.continue_with(circuit)
        pending = self._pending
        if pending is not None:
            options = options.after(self._change, circuit.plans)
        self._change = options
        if self._current is None:
            self._directory.try_to_describe_circuit()
            return
        self._continue_with(
            PendingChange.of(self._current, applied) if pending is None else pending.then(applied)
        )

    def change_cells(
        self,
        driver: Circuit,
        circuit: Circuit,
        pending: PendingChange | None,
        convert: Callable[[Manifest, ChangeOptions], PendingChange],
        options: ChangeOptions,
    ) -> None:
        """Go on with other views in cells; the next version commits the change.

        Args:
            driver: The part of the new circuit that runs on the driver; it has its state.
            circuit: The whole new circuit.
            pending: The change; None before the first version.
            convert: Changes the last version again, if the next micro-batch fails.
            options: The options for this.
        """
        assert self._directory.is_open and self._is_loaded
        self._compactor.stop()
        self.circuit, self._directory.circuit = driver, circuit
        self._reader = Reader(self.files, driver)
        self._change, self._change_cells = options, convert
        if pending is None:
            self._directory.try_to_describe_circuit()
        else:
            self._continue_with(pending)

    def continue_with_cells(
        self,
        driver_change: ProgramChange,
        applied: AppliedChange,
        cells: CellVersions,
        convert: Callable[[Manifest, ChangeOptions], PendingChange],
        options: ChangeOptions,
    ) -> None:
        """Go on with other views in cells that exist already; the next version commits the change.

        Args:
            driver_change: The change of the driver's circuit, which has its state.
            applied: The change of the whole circuit.
            cells: The cells of the new circuit.
            convert: As for `change_cells`.
            options: As for `change_cells`.
        """
        assert self._current is not None and self._pending is None
        pending = PendingChange.of(self._current, AppliedChange(driver_change, {}))
        pending = replace(
            pending,
            manifest=replace(pending.manifest, cells=cells),
            outputs=applied.outputs,
            link=applied.link,
        )
        self.change_cells(driver_change.new, applied.change.new, pending, convert, options)

    @property
    def directory_versions(self) -> Versions:
        """The versions in the directory."""
        return self._versions

    def early_state(self, change: ProgramChange) -> EarlyState | None:
        """Return where a backfill in slices writes the state of new views.

        Returns:
            None before the first version, which has all state.
        """
        if self._current is None:
            return None
        stem = f"{self._current.batch_id + 1:020}-{_new_name()}"
        files, mappable_files = self.files, None
        if self._memory is not None and isinstance(files, MappableFiles):
            mappable_files = files
        early = EarlyState(
            files,
            change,
            stem,
            lambda: self._versions.is_cleaned,
            self._count_written,
            mappable_files,
        )
        if self._memory is not None:
            self._memory.add_early(early)
        return early

    def _count_written(self, writer: Writer) -> None:
        """Count what a slice has written as written by the last micro-batch."""
        self.bytes_written += writer.bytes_written
        self.bytes_added += writer.bytes_added

    @property
    def newest(self) -> Manifest | None:
        """The newest version that is committed; None before the first one."""
        newest = self._versions.newest
        return None if newest is None else self._versions[newest]

    def settings(self) -> Mapping[str, Any]:
        """Return what a change of the views changes, for `undo_change`."""
        return {"attributes": dict(vars(self)), "circuit": self._directory.circuit}

    def undo_change(self, settings: Mapping[str, Any]) -> None:
        """Go back to the circuit before a change that failed; the next `find` loads its state.

        Args:
            settings: The result of `settings` before the change.
        """
        vars(self).update(settings["attributes"])
        self._is_loaded = False
        self._directory.circuit = settings["circuit"]
        if self._memory is not None:
            self._memory.continue_with(self.circuit)
        if self._current is None:
            self._directory.try_to_describe_circuit()

    @property
    def cells(self) -> CellVersions | None:
        """The cells of the current version; None if no cells wrote it, or there is no version."""
        return None if self._current is None else self._current.cells

    def confirm_commit(self) -> None:
        """Record that the circuit has committed the last written step."""
        self._is_loaded = True
        manifest = self._current
        assert manifest is not None
        version = self.circuit.committed
        rows = version.rows_in_runs()
        self._compactor.reclaim_space(
            manifest,
            version.shared,
            rows if self._memory is None else self._memory.live_rows(rows),
            lambda: self._compacted_file(manifest.batch_id),
        )
        del version  # so that replaced runs are freed at once
        if self._memory is not None:
            self._memory.after_commit(manifest)

    def _compacted_file(self, batch_id: int) -> str:
        return f"{DATA}/{batch_id:020}-{_new_name()}-0.arrow"

    def load_newest(self) -> None:
        """Load the newest version, whether this sink or another one wrote it.

        Raises:
            StateDamagedError: It is damaged. Only `find` loads an older version instead, because it
                knows the id of the next micro-batch.
        """
        if not self._directory.is_open:  # read without a lock: another sink may be the writer
            self._reader.load_newest()
        elif not self._is_loaded:
            self._load(self._versions.newest)

    def append_metrics(self, line: str) -> None:
        """Add a line to the metrics file; a crash may lose it."""
        self._metrics.append(line)

    def describe_dead_letters(self) -> str:
        """Return where the dead letters of the current version are, for messages."""
        name = DEAD_LETTERS_FOLDER if self._current is None else self._current.dead_letter_file
        return f"stored with the reasons in {self.files.location}/{name}"

    def close(self) -> None:
        """Release the directory for other writers."""
        self._compactor.stop()
        if self._memory is not None:
            self._memory.forget()
        self._is_loaded = False
        self._directory.close()

    def _open(self) -> None:
        if self._directory.is_open:
            return
        self._is_loaded = False
        self._reader.forget()
        self._compactor.stop()
        self._directory.open(self._read_records)

    def _read_records(self) -> None:
        self._metrics.read_size()
        self._dead_letters.forget()
        self._unpublished.read()

    def _fall_back(self, batch_id: int, error: StateDamagedError, *, can_repeat: bool) -> None:
        """Continue from the previous version, or raise the error; see `batch_order.fall_back`."""
        self._is_loaded = False
        try:
            fall_back(self._versions, batch_id, error, can_repeat=can_repeat)
        except StateDamagedError:
            self._directory.forget()  # the next `find` reads ignored versions again
            raise

    def _load(self, newest: int | None, batch_id: int | None = None) -> None:
        """Load a version into the circuit, or an empty state, before a micro-batch."""
        self._compactor.stop()
        self._pending = None
        if self._memory is not None:
            self._memory.forget()
        manifest = None if newest is None else self._versions[newest]
        if manifest is not None:
            unwritten = self._find_unwritten(manifest, batch_id)
            if unwritten or self._has_other_views(manifest):
                self._load_changed(manifest, unwritten)
                return
        self._current = load(
            self.files,
            self.circuit,
            newest,
            self._versions.__getitem__,
            cells=self._cell_count,
            map_files=None if self._memory is None else self._memory.map_files,
        )
        if manifest is not None:
            self._change = ChangeOptions()  # the version has the views already
        self._compactor.check_all(self._current)
        self._is_loaded = True

    def _has_other_views(self, manifest: Manifest) -> bool:
        """Return True if a version has other views or plans, or has not published each output."""
        if manifest.fingerprint != self._directory.circuit.fingerprint:
            return True
        is_embedded = self._cell_count is None and manifest.cells is None
        return is_embedded and not (
            manifest.outputs.keys() >= set(self.circuit.outputs)
            and is_of_same_plan(manifest, self.circuit)
        )

    def _find_unwritten(self, manifest: Manifest, batch_id: int | None) -> dict[str, str]:
        """Find the views of which their targets hold nothing, with their names in a version."""
        if self._cell_count is not None or manifest.cells is not None:
            return {}
        return self._versions.find_unwritten(
            self.circuit.outputs,
            select_options(self._change, manifest, self._directory.circuit).renames,
            batch_id=batch_id,
            last_batch=self._last_batch,
        )

    def _select_options(self, manifest: Manifest) -> ChangeOptions:
        """Return the options that fit a version; log whether given rows do not."""
        options = select_options(self._change, manifest, self._directory.circuit)
        log_unused_rows(self._change, options, manifest)
        return options

    def _load_changed(self, manifest: Manifest, unwritten: Mapping[str, str]) -> None:
        """Load a version into a circuit of other views; the next version commits the change."""
        if self._cell_count is not None or manifest.cells is not None:
            self._load_changed_cells(manifest)
            return
        change = options = self._select_options(manifest)
        if self._backfill is not None:
            change = replace(change, backfill=self._backfill(manifest))
            check_backfill(change, self.circuit.inputs)
        now = microseconds_of(self._clock()) if self.circuit.reads_now else None
        self._pending = change_program(
            self.files,
            manifest,
            self.circuit,
            change,
            now,
            unwritten,
            map_files=None if self._memory is None else self._memory.map_files,
        )
        self._current = self._pending.manifest
        self._change = options  # a later change before the commit is merged with these
        self._compactor.check_all(self._current)
        self._is_loaded = True

    def _load_changed_cells(self, manifest: Manifest) -> None:
        """Do the same for a distributed circuit, whose state is written to new files."""
        check_cells(self.files, manifest, self._cell_count)
        assert self._change_cells is not None
        options = self._select_options(manifest)
        pending = self._change_cells(manifest, options)
        self.circuit.load(read_state(self.files, pending.manifest))
        self._change = options
        self._continue_with(pending)

    def _continue_with(self, pending: PendingChange) -> None:
        """Go on from a change of the views, which the circuit has and the next version commits."""
        self._pending, self._current = pending, pending.manifest
        self._versions.keep_files(self._current.all_files)
        self._compactor.check_all(self._current)
        self._is_loaded = True

    def _read_committed(self, batch_id: int) -> VersionSummary:
        """Return the summary of a committed micro-batch, with its published tables."""
        summary = read_summary(self.files, self._versions[batch_id])
        for link in self._versions.links_after(batch_id):
            summary = summary.continued(link)
        return summary if self._pending is None else summary.continued(self._pending.link)

    def _record_left_out(self, newest: int) -> None:
        """Record the views that a replay of the newest version is not published to.

        Raises:
            OSError: The file system failed, so the replay must not be published.
        """
        if self._pending is None:
            return
        continued = self._pending.link.views.values()
        left_out = tuple(view for view in self._versions[newest].outputs if view not in continued)
        if left_out:
            self._unpublished.replace(UnpublishedViews(newest, left_out))

    @property
    def unpublished(self) -> VersionSummary | None:
        """The newest version, with the views that an earlier replay of it left out; else None.

        They are published before the next micro-batch; call `confirm_published` after that.
        """
        newest = self._versions.newest
        if self._unpublished.is_empty or newest is None:
            return None
        views = self._unpublished.take_views(newest, self._versions[newest].outputs)
        if not views:
            return None
        old_names = {view: view for view in views}
        if self._pending is not None:
            old_names = dict(self._pending.link.views)
        names = {new for new, old in old_names.items() if old in views}
        return self._read_committed(newest).of_views(names) if names else None

    def confirm_published(self) -> None:
        """Record that `unpublished` is published.

        While a change of the views is pending, the record stays, because this sink may not have all
        recorded views.
        """
        if self._pending is None:
            self._unpublished.remove()


def _new_name() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex[:12]
