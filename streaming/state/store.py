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
O(arrangements · log rows), three or four syncs. Large merges are done in the background
(`streaming.state.compaction`), so each commit writes in proportion to its delta. Loading
memory-maps the large files, and reads all bytes once to verify the checksums.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pyarrow as pa

from circuits import Circuit, CircuitStep
from circuits.inputs.encoded_inputs import microseconds_of
from dbsp_wcoj.observer import observed
from streaming.errors import (
    BatchOrderError,
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
)
from streaming.state.cell_versions import CellVersions
from streaming.state.checksums import checksum_of
from streaming.state.compaction import Compactor
from streaming.state.dead_letter_files import (
    DEAD_LETTERS_FOLDER,
    DEFAULT_RETENTION,
    DeadLetterFiles,
    DeadLetterRetention,
    dead_letter_name,
)
from streaming.state.directory_identity import (
    IDENTITY_FILE,
    DirectoryIdentity,
    check_same_circuit,
    ensure_identity,
    find_identity,
    update_identity,
)
from streaming.state.files import (
    AtomicFiles,
    Files,
    MappableFiles,
    StagedFile,
    read_small_file,
)
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import (
    MANIFESTS,
    Manifest,
    ProgramLink,
    manifest_name,
    next_changes,
)
from streaming.state.mapped.memory_limit import MemoryLimit, MemoryUse
from streaming.state.ownership import Owner, check_owner, raise_if_replaced, take_over
from streaming.state.parquet import encode_parquet, read_parquet
from streaming.state.program_change import (
    AppliedChange,
    ChangeOptions,
    PendingChange,
    change_program,
    list_old_programs,
    write_programs,
)
from streaming.state.reader import Reader, load
from streaming.state.unpublished import UNPUBLISHED_FILE, UnpublishedViews
from streaming.state.verified_files import read_verified
from streaming.state.version_summary import VersionSummary
from streaming.state.versions import DATA, OUTPUTS, LastBatch, Versions
from streaming.state.view_definitions import write_definition
from streaming.state.writer import Writer

__all__ = ["Store"]

MIN_VERSIONS_KEPT: Final = 2
METRICS_FILE: Final = "metrics.jsonl"
MAX_METRICS_FILE_BYTES: Final = 16 << 20  # a longer file is renamed to metrics.jsonl.1

#: The name of the phase that an observer sees while `Store.find` or `Store.write` runs.
WRITE_PHASE: Final = "write"

log = logging.getLogger(__name__)


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
        change: How the views of the directory may change (`streaming.state.program_change`). The
            views of a distributed circuit cannot change.
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
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
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
        #: The id of the directory, from `state.json`; empty until the directory is opened.
        self.id = ""
        #: The number of bytes that the last `write` wrote.
        self.bytes_written = 0
        #: The number of bytes that it added to the state, without those of merges.
        self.bytes_added = 0
        self._directory_circuit = directory_circuit or circuit
        self._cell_count = cells
        self._change = change or ChangeOptions()
        self._clock = clock
        # The change of the views that the next version commits; None if the views are the same.
        self._pending: PendingChange | None = None
        self._identity: DirectoryIdentity | None = None
        self._versions = Versions(files, keep)
        self._reader = Reader(files, circuit)
        self._current: Manifest | None = None  # the version that the circuit has loaded
        # The views that an earlier replay of a version left out; None if there are none.
        self._unpublished: UnpublishedViews | None = None
        self._owner: Owner | None = None  # this store as the writer of the directory
        self._is_open = False
        self._is_loaded = False
        # The id that the directory must still have; None before opening and after closing.
        self._required_id: str | None = None
        self._durable_folders: set[str] = set()  # folders whose names were synced
        self._metrics_bytes = 0
        self._dead_letters = DeadLetterFiles(files, dead_letters)
        self._last_batch = last_batch
        self._memory: MemoryLimit | None = None
        self._compactor = Compactor(files)
        if memory_limit is not None:
            if not isinstance(files, MappableFiles):
                raise StateError(
                    f"memory_limit needs a state directory on a local disk, and {files.location} "
                    "is on another file system: give a path of a local disk, or no limit"
                )
            self._memory = MemoryLimit(files, circuit, memory_limit)
            self._compactor = Compactor(files, files)

    @observed(WRITE_PHASE)
    def find(self, batch_id: int, query_id: str | None) -> VersionSummary | None:
        """Return the summary of a committed micro-batch; None if it is the next one.

        Loads the newest version, unless the circuit has it.

        Raises:
            BatchOrderError: The id belongs to another checkpoint, skips micro-batches or is older
                than the oldest version.
            StateDamagedError: The required version is damaged.
            StateMismatchError, StateLockedError: The directory belongs to another circuit or sink.
            StateError: The file system failed.
        """
        self._open()
        if self._memory is not None and self._is_loaded:
            self._memory.check()
        while True:
            newest = self._versions.newest
            self._check_order(batch_id, newest)
            try:
                if not self._is_loaded:
                    self._load(newest, batch_id)
                self._check_query(batch_id, query_id)
                is_new = newest is None or batch_id > newest
                committed = None if is_new else self._read_committed(batch_id)
                if batch_id == newest:
                    self._record_left_out(newest)
            except (OSError, StateDamagedError) as error:
                self._raise_if_replaced()
                if isinstance(error, OSError):
                    raise StateError(
                        f"state directory {self.files.location} cannot be read: {error}; correct "
                        "this and start the query again"
                    ) from error
                self._fall_back(batch_id, newest, error)
            else:
                # On an object store, an earlier writer may still commit a version that names
                # these files, until this one has written the next version.
                if not isinstance(self.files, AtomicFiles):
                    self._remove_unreferenced()
                return committed

    @observed(WRITE_PHASE)
    def write(
        self,
        batch_id: int,
        query_id: str | None,
        step: CircuitStep,
        *,
        outputs: Mapping[str, pa.Table],
        digests: Mapping[str, int],
        dead_letters: pa.Table | None = None,
        cells: CellVersions | None = None,
    ) -> VersionSummary:
        """Make a prepared step the next version; the circuit does not change.

        The caller then commits the step and calls `confirm_commit`. If that fails, the next `find`
        loads the version.

        Args:
            batch_id: The micro-batch, for which `find` returned None.
            query_id: The query of its checkpoint.
            step: The prepared step.
            outputs: The table that each view publishes.
            digests: A checksum of the rows of each input, to compare a replay with.
            dead_letters: The rejected rows; None if there are none.
            cells: The versions that the cells have written for the step.

        Raises:
            StateError: The file system failed; nothing has changed. If the last rename failed, its
                effect is unknown, and the next `find` checks it.
            StateLockedError: Another sink has taken over the directory; nothing has changed.
            StateDamagedError: An older file that the step merges is damaged, or the directory was
                deleted.
        """
        if self._memory is not None:
            self._finish_verification(self._memory)
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
                state_id=self.id,
                fingerprint=self._directory_circuit.fingerprint,
                cells=cells,
            )
            owner = self._owner
            assert owner is not None
            parent = None if self._current is None else self._current.checksum
            link = None if self._pending is None else self._pending.link
            manifest = replace(
                manifest,
                epoch=owner.epoch,
                owner=owner.token,
                parent=parent,
                dead_letter_file=dead_letter_file,
                link=link,
                changes=next_changes(batch_id, outputs, self._current, link),
            )
            if self._pending is not None:
                check_owner(self.files, owner)
                write_programs(self.files, self._directory_circuit, self._pending)
            data = manifest.encode()
            manifest = replace(manifest, checksum=checksum_of(data))
            staged = writer.stage(manifest_name(batch_id), data)
            if not writer.folders <= self._durable_folders:
                self.files.sync_folder("")  # makes the names of new folders durable
                self._durable_folders |= writer.folders
            # If one of the next two lines fails, the next `find` reads the directory and the state
            # again.
            self._is_open = self._is_loaded = False
            self._check_still_owned(owner, manifest)
            self._versions.remove_replaced(batch_id)
            self._is_open = self._is_loaded = True
        except OSError as error:
            writer.undo()
            self._raise_if_replaced()
            raise StateError(
                f"micro-batch {batch_id} cannot be written to state directory "
                f"{self.files.location}: {error}; nothing of it was applied: check the free space "
                "and the permissions, and start the query again"
            ) from error
        except StateDamagedError:
            writer.undo()
            self._raise_if_replaced()
            raise
        except BaseException:
            writer.undo()
            raise
        # If the rename of the manifest fails, the next `find` reads the directory again. It also
        # loads the state again unless `confirm_commit` is called, because the circuit may not have
        # the step.
        self._is_loaded = self._is_open = False
        try:
            self._commit(staged, batch_id, data, owner)
        except OSError as error:
            raise StateError(
                f"the outcome of the commit of micro-batch {batch_id} to state directory "
                f"{self.files.location} is unknown: {error}; start the query again, which checks it"
            ) from error
        self._current = manifest
        self.bytes_written = writer.bytes_written
        self.bytes_added = writer.bytes_added
        self._compactor.remove(self._versions.add(manifest))
        self._remove_unreferenced()
        self._dead_letters.after_commit(batch_id, dead_letter_file, dead_letter_size)
        if self._pending is not None:
            self._pending = None
            self._try_to_describe_circuit()
        self._compactor.after_commit(manifest, writer.due_keys, self._compacted_file(batch_id))
        self._is_open = True
        return self._summarize(manifest, outputs)

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
    def has_pending_change(self) -> bool:
        """True if the next version commits a change of the views."""
        return self._pending is not None

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
        assert self._is_loaded
        self._compactor.stop()
        self.circuit = self._directory_circuit = circuit
        self._reader = Reader(self.files, circuit)
        if self._memory is not None:
            self._memory.continue_with(circuit)
        pending = self._pending
        if pending is not None:
            options = options.after(self._change, circuit.plans)
        self._change = options
        if self._current is None:
            self._try_to_describe_circuit()
            return
        self._pending = (
            PendingChange.of(self._current, applied) if pending is None else pending.then(applied)
        )
        self._current = self._pending.manifest
        self._compactor.check_all(self._current)

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
        if not self._is_open:  # read without a lock: another sink may be the writer
            self._reader.load_newest()
        elif not self._is_loaded:
            self._load(self._versions.newest)

    def append_metrics(self, line: str) -> None:
        """Add a line to the metrics file; a crash may lose it."""
        self.files.append(METRICS_FILE, line)
        self._metrics_bytes += len(line)
        if self._metrics_bytes > MAX_METRICS_FILE_BYTES:
            self.files.rename(METRICS_FILE, f"{METRICS_FILE}.1")
            self._metrics_bytes = 0

    def describe_dead_letters(self) -> str:
        """Return where the dead letters of the current version are, for messages."""
        name = DEAD_LETTERS_FOLDER if self._current is None else self._current.dead_letter_file
        return f"stored with the reasons in {self.files.location}/{name}"

    def close(self) -> None:
        """Release the directory for other writers."""
        self._compactor.stop()
        if self._memory is not None:
            self._memory.forget()
        self._is_open = self._is_loaded = False
        self._required_id = None
        self.files.unlock()

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_loaded = False
        self._owner = None
        self._reader.forget()
        self._compactor.stop()
        try:
            self.files.lock()
            self._check_not_replaced()
            identity = ensure_identity(self.files, self._directory_circuit, str(uuid.uuid4()))
            self._identity, self.id = identity, identity.id
            if self._cell_count is not None:
                check_same_circuit(self.files, identity, self._directory_circuit)
            self._owner = take_over(self.files)
            self._versions.read(self.id, spare=1)
            while self._versions.epoch >= self._owner.epoch:  # epoch.json was lost
                self._owner = take_over(self.files, self._versions.epoch)
                self._versions.read(
                    self.id, spare=1
                )  # another sink may have written versions meanwhile
            self._metrics_bytes = self._metrics_file_size()
            if self._versions.fingerprint in (None, self._directory_circuit.fingerprint):
                self._describe_circuit()
            self._dead_letters.forget()
            self._unpublished = UnpublishedViews.read(self.files)
        except BaseException as error:
            self.files.unlock()
            if not isinstance(error, OSError):
                raise
            self._raise_if_replaced()
            raise StateError(
                f"state directory {self.files.location} cannot be opened: {error}; correct this "
                "and start the query again"
            ) from error
        self._is_open = True
        self._required_id = self.id

    def _check_not_replaced(self) -> None:
        """Raise an error if the directory was deleted or replaced since this sink opened it."""
        if self._required_id is None:
            return
        identity = find_identity(self.files, self._directory_circuit)
        if identity is None or identity.id != self._required_id:
            path = f"{self.files.location}/{IDENTITY_FILE}"
            problem = "is missing" if identity is None else f"has the id {identity.id!r}"
            raise StateDamagedError(
                f"{path} {problem}: state directory {self.files.location} was deleted or replaced "
                "while this sink was using it; restore it from a copy; or delete it together with "
                "the checkpoint, close() this sink or make a new one, and start again"
            )

    def _check_still_owned(self, owner: Owner, manifest: Manifest) -> None:
        """Raise an error if another sink has taken over the directory, or files are missing."""
        existing = {name for folder in (DATA, OUTPUTS) for name in self.files.names(folder)}
        check_owner(self.files, owner)  # after the listing: a later sink may remove files
        missing = sorted(manifest.files.keys() - existing)
        if missing:
            raise StateDamagedError(
                f"{self.files.location}/{missing[0]} is missing, and {len(missing) - 1} more: they "
                "were deleted while this sink was using them; restore the state directory from a "
                "copy, or delete it together with the checkpoint, and start the query again"
            )

    def _commit(self, staged: StagedFile, batch_id: int, data: bytes, owner: Owner) -> None:
        """Give a manifest its name, unless another writer has used the name."""
        try:
            staged.create()
        except FileExistsError as error:
            # The file is this manifest if the operation succeeded and its result was lost.
            if read_small_file(self.files, manifest_name(batch_id)) != data:
                staged.abandon()
                raise StateLockedError(
                    f"version {batch_id} of state directory {self.files.location} was written by "
                    "another sink: stop that query and start this one again, or give it a "
                    "directory of its own"
                ) from error
        except FileNotFoundError:
            check_owner(self.files, owner)  # another writer may have removed the temporary file
            raise
        self.files.sync_folder(MANIFESTS)
        check_owner(self.files, owner)

    def _metrics_file_size(self) -> int:
        try:
            return self.files.size(METRICS_FILE) or 0
        except StateDamagedError:  # not a regular file; `append_metrics` raises the error
            return 0

    def _remove_unreferenced(self) -> None:
        """Remove the files that no version names, once after the directory is opened.

        Raises:
            StateLockedError: Another sink has taken over the directory.
            StateDamagedError: The directory was deleted or replaced.
        """
        assert self._owner is not None
        try:
            self._versions.remove_unreferenced(partial(check_owner, self.files, self._owner))
        except StateError:
            self._is_open = self._is_loaded = False
            raise

    def _raise_if_replaced(self) -> None:
        """Raise `StateLockedError` if another sink has taken over, which may explain an error."""
        if self._owner is not None:
            try:
                raise_if_replaced(self.files, self._owner)
            except StateLockedError:
                self._is_open = self._is_loaded = False
                raise

    def _describe_circuit(self) -> None:
        """Write which views the directory has, as the manifest of its newest version says."""
        assert self._identity is not None and self._owner is not None
        circuit = self._directory_circuit
        old_programs = list_old_programs(self.files, self._versions.fingerprints)
        check_owner(self.files, self._owner)
        write_definition(self.files, circuit.spec)
        update_identity(self.files, circuit, self._identity)
        for name in old_programs:
            self.files.remove(name)

    def _try_to_describe_circuit(self) -> None:
        """Do this after a change of the views; if it fails, the next start does it."""
        try:
            self._describe_circuit()
        except (OSError, StateLockedError) as error:
            log.warning("the new views are not in %s yet: %s", self.files.location, error)

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
        self._compactor.check_all(self._current)
        self._is_loaded = True

    def _has_other_views(self, manifest: Manifest) -> bool:
        """Return True if a version has other views, or has not published each of the outputs."""
        if manifest.fingerprint != self._directory_circuit.fingerprint:
            return True
        is_embedded = self._cell_count is None and manifest.cells is None
        return is_embedded and not manifest.outputs.keys() >= set(self.circuit.outputs)

    def _find_unwritten(self, manifest: Manifest, batch_id: int | None) -> dict[str, str]:
        """Find the views of which their targets hold nothing, with their names in a version."""
        if self._cell_count is not None or manifest.cells is not None:
            return {}
        return self._versions.find_unwritten(
            self.circuit.outputs,
            self._change.renames,
            batch_id=batch_id,
            last_batch=self._last_batch,
        )

    def _load_changed(self, manifest: Manifest, unwritten: Mapping[str, str]) -> None:
        """Load a version into a circuit of other views; the next version commits the change."""
        if self._cell_count is not None or manifest.cells is not None:
            raise StateMismatchError(
                f"version {manifest.batch_id} of state directory {self.files.location} is of other "
                "views, and views in mode 'distributed' cannot change: move the state to one "
                f"process with: python -m streaming rescale {self.files.location} --embedded"
            )
        now = microseconds_of(self._clock()) if self.circuit.reads_now else None
        self._pending = change_program(
            self.files, manifest, self.circuit, self._change, now, unwritten
        )
        self._current = self._pending.manifest
        self._compactor.check_all(self._current)
        self._is_loaded = True

    def _read_committed(self, batch_id: int) -> VersionSummary:
        """Return the summary of a committed micro-batch, with its published tables."""
        if batch_id not in self._versions:
            raise BatchOrderError(
                f"micro-batch {batch_id} was replayed, and version {batch_id} is not in state "
                f"directory {self.files.location}: restore it from a copy, or delete the "
                "directory together with the checkpoint"
            )
        manifest = self._versions[batch_id]

        def read_table(name: str) -> pa.Table:
            data = read_verified(self.files, name, manifest.files[name])
            return read_parquet(data, f"{self.files.location}/{name}")

        outputs = {
            view: pa.concat_tables(map(read_table, names))
            for view, names in manifest.outputs.items()
        }
        summary = self._summarize(manifest, outputs)
        for link in self._links_after(batch_id):
            summary = summary.continued(link)
        return summary

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
            self._unpublished = UnpublishedViews(newest, left_out)
            self._unpublished.write(self.files)

    @property
    def unpublished(self) -> VersionSummary | None:
        """The newest version, with the views that an earlier replay of it left out; else None.

        They are published before the next micro-batch; call `confirm_published` after that.
        """
        record, newest = self._unpublished, self._versions.newest
        if record is None or newest is None:
            return None
        views = record.of_version(newest, self._versions[newest].outputs)
        if not views:  # a later version is committed
            self._forget_unpublished()
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
            self._forget_unpublished()

    def _forget_unpublished(self) -> None:
        self._unpublished = None
        try:
            self.files.remove(UNPUBLISHED_FILE)
        except OSError as error:  # it is out of date once the next version is committed
            log.warning("%s was not removed: %s", UNPUBLISHED_FILE, error)

    def _links_after(self, batch_id: int) -> Iterator[ProgramLink]:
        """Yield the changes of the views after a version, oldest first."""
        newest = self._versions.newest
        assert newest is not None
        for number in range(batch_id + 1, newest + 1):
            link = self._versions[number].link
            if link is not None:
                yield link
        if self._pending is not None:
            yield self._pending.link

    def _summarize(self, manifest: Manifest, outputs: Mapping[str, pa.Table]) -> VersionSummary:
        files = {}
        if isinstance(self.files, LocalFiles):
            files = {
                view: tuple(f"{self.files.location}/{name}" for name in names)
                for view, names in manifest.outputs.items()
            }
        return VersionSummary(
            manifest.batch_id,
            outputs,
            files,
            manifest.digests,
            manifest.dead_letters,
            {view: changes.previous for view, changes in manifest.changes.items()},
            manifest.sizes,
        )

    def _fall_back(self, batch_id: int, newest: int | None, error: StateDamagedError) -> None:
        """Continue from the previous version, if Spark replays the micro-batch of the newest.

        The state before version 0 is empty, so version 0 needs no previous version.

        Raises:
            StateDamagedError: Spark does not replay it, or the previous version is missing.
        """
        if newest is None or batch_id > newest or (newest and newest - 1 not in self._versions):
            self._is_open = False  # the next `find` reads ignored versions again
            raise StateDamagedError(
                f"{error}. Micro-batch {batch_id} needs this version: restore the state "
                "directory from a copy, or delete it together with the checkpoint"
            ) from error
        log.warning(
            "%s; continuing from %s, because micro-batch %d is replayed",
            error,
            f"version {newest - 1}" if newest else "the empty state",
            newest,
        )
        self._is_loaded = False
        self._versions.ignore(newest)

    def _check_order(self, batch_id: int, newest: int | None) -> None:
        """Raise an error unless the micro-batch is the next one or has a version."""
        directory = f"state directory {self.files.location}"
        if newest is None:
            if batch_id:
                raise BatchOrderError(
                    f"the first micro-batch has id {batch_id}, not 0, but {directory} is empty "
                    "and the checkpoint has earlier micro-batches; put the state directory back, "
                    "or delete the checkpoint as well to read the source again from its beginning"
                )
            return
        oldest = self._versions.oldest
        assert oldest is not None
        if batch_id > newest + 1:
            missing = f"{newest + 1} is"
            if batch_id > newest + 2:
                missing = f"{newest + 1} to {batch_id - 1} are"
            raise BatchOrderError(
                f"micro-batch {batch_id} follows {newest}, the last one in {directory}: "
                f"{missing} missing; put back the state directory or the checkpoint that belong "
                "together, or delete both and empty the targets, to start again"
            )
        if batch_id < oldest:
            raise BatchOrderError(
                f"micro-batch {batch_id} is older than the oldest version in {directory}, which "
                f"has {oldest} to {newest}: the checkpoint was deleted or is an old copy; put back "
                "the one that belongs to the state, or delete both and empty the targets, to start "
                "again"
            )

    def _check_query(self, batch_id: int, query_id: str | None) -> None:
        last = self._current
        if last is None or None in (query_id, last.query_id) or query_id == last.query_id:
            return
        raise BatchOrderError(
            f"micro-batch {batch_id} is from query {query_id}, state directory "
            f"{self.files.location} belongs to query {last.query_id}: one state serves one "
            "checkpoint; put back that checkpoint, or delete the state directory as well"
        )


def _new_name() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex[:12]
