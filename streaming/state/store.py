"""Store: the versions of a circuit's state in a directory, one per batch id.

::

    state.json, views.json                the circuit of the directory        (identity, definition)
    epoch.json                            the writer of the directory         (ownership)
    manifests/<batch id>.json             a version                           (manifest, versions)
    data/<batch id>-<attempt>-<n>.arrow   parts of arrangements and tables   (segment)
    outputs/....parquet                   published tables of the views       (writer)
    letters/<batch id>.parquet            dead letters
    metrics.jsonl                         a line for each micro-batch

A step writes the parts that it adds, the pending merges and the tables that the views publish, and
syncs them. Then it writes its manifest, and renames it to its name only if no other file has that
name: the rename is the commit. Before it the version does not exist: a crash leaves files that no
manifest names, and the next start removes them. The last ``keep`` versions stay.

The first micro-batch decides from which version to continue, because only its id shows what Spark
has committed. The newest version is loaded if it is intact. If it is damaged and Spark replays its
micro-batch, the version before it works as well: the same rows give the same delta. If Spark has
advanced, the only correct answer is an error.

Cost: bytes of the delta · (1 + log_FANOUT(rows / rows per step)) per arrangement, one manifest of
O(arrangements · log rows), three or four syncs. Loading maps files: O(bytes), for checksums only.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from circuits import Circuit, CircuitStep
from dbsp_wcoj.observer import observed
from streaming.errors import BatchOrderError, StateDamagedError, StateError, StateLockedError
from streaming.state.cell_versions import CellVersions
from streaming.state.checksums import checksum_of
from streaming.state.directory_identity import ensure_identity, read_identity
from streaming.state.files import Files, LocalFiles, read_small
from streaming.state.manifest import MANIFESTS, Manifest, manifest_name
from streaming.state.ownership import Owner, check_owner, take_over
from streaming.state.parquet import encode_parquet, read_parquet
from streaming.state.reader import Reader, load
from streaming.state.verified_files import read_verified
from streaming.state.version_summary import VersionSummary
from streaming.state.versions import DATA, OUTPUTS, Versions
from streaming.state.view_definitions import write_definition
from streaming.state.writer import Writer

__all__ = ["Store"]

MIN_VERSIONS_KEPT: Final = 2
DEAD_LETTERS_FOLDER: Final = "letters"
MAX_DEAD_LETTER_FILES_LISTED: Final = 100
METRICS_FILE: Final = "metrics.jsonl"
MAX_METRICS_FILE_BYTES: Final = 16 << 20  # then a new file is begun, and the one before is kept

#: The phase of reading and writing the state, for an observer.
WRITE: Final = "write"

log = logging.getLogger(__name__)


class Store:
    """The versions of a circuit's state.

    Args:
        files: The directory.
        circuit: The circuit of the state; only this store loads and steps it.
        keep: The number of versions to keep, at least 2.
        name: Returns a unique name for each attempt.
        owner: The circuit of the directory, if ``circuit`` is only its driver part.
        cells: The number of cells of the other part.
    """

    def __init__(
        self,
        files: Files,
        circuit: Circuit,
        *,
        keep: int = 3,
        name: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
        owner: Circuit | None = None,
        cells: int | None = None,
    ) -> None:
        if keep < MIN_VERSIONS_KEPT:
            raise StateError(
                f"keep={keep} versions: at least {MIN_VERSIONS_KEPT} are needed; give 2 or more"
            )
        self.files = files
        self.circuit = circuit
        self.id = ""
        self.bytes_written = 0
        self._name = name
        self._owner = owner or circuit
        self._spread = cells
        self._versions = Versions(files, keep)
        self._reader = Reader(files, circuit)
        self._current: Manifest | None = None
        self._writer: Owner | None = None
        self._opened = False
        self._loaded = False
        self._known: str | None = None  # the id of the directory, until it is closed
        self._rooted: set[str] = set()  # folders whose names this process knows to be durable
        self._noted = 0
        # The last dead letters when the directory was opened; some may be of no version.
        self._letters: set[str] = set()

    @observed(WRITE)
    def find(self, batch_id: int, query_id: str | None) -> VersionSummary | None:
        """Return a micro-batch that is part of the state; None if it is the next one.

        Loads the state that the micro-batch follows, unless the circuit has it.

        Raises:
            BatchOrderError: The id belongs to another checkpoint, skips micro-batches or is older
                than the oldest version.
            StateDamagedError: The required version is damaged.
            StateMismatchError, StateLockedError: The directory belongs to another circuit or sink.
        """
        self._open()
        while True:
            newest = self._versions.newest
            self._check_order(batch_id, newest)
            try:
                if not self._loaded:
                    self._load(newest)
                self._check_query(batch_id, query_id)
                is_new = newest is None or batch_id > newest
                done = None if is_new else self._again(batch_id)
                self._versions.sweep()
                return done
            except StateDamagedError as error:
                self._step_back(batch_id, newest, error)

    @observed(WRITE)
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

        The caller then commits the step and calls `settle`. If that fails, the next `find` loads
        the version.

        Args:
            batch_id: The micro-batch, for which `find` returned None.
            query_id: The query of its checkpoint.
            step: The prepared step.
            outputs: The table that each view publishes.
            digests: A checksum of the rows of each input, to compare a replay.
            dead_letters: The rows that are not part of the step, if there are any.
            cells: The versions that the cells have written for the step.

        Raises:
            StateError: The file system failed; nothing has changed. If the last rename failed, its
                effect is unknown, and the next `find` checks it.
            StateLockedError: Another sink has taken over the directory; nothing has changed.
            StateDamagedError: A file of a pending merge is damaged, or the directory was deleted.
        """
        stem = f"{batch_id:020}-{self._name()}"
        writer = Writer(self.files, self._current, f"{DATA}/{stem}")
        name = manifest_name(batch_id)
        temporary = f"{name}.{self._name()}.tmp"
        try:
            state = step.state(writer.lengths)
            writer.add(state)
            written = writer.outputs(outputs, f"{OUTPUTS}/{stem}")
            count = 0 if self._current is None else self._current.dead_letters
            # Replaced as a whole when the micro-batch is done again; else it stays for good.
            letters_name = _letters_name(batch_id)
            if dead_letters is not None:
                (data,) = encode_parquet(dead_letters, whole=True)
                writer.write(letters_name, data)
                count += dead_letters.num_rows
            elif letters_name in self._letters:
                self.files.remove(letters_name)
            manifest = writer.manifest(
                state,
                batch_id,
                query_id=query_id,
                digests=digests,
                outputs=written,
                dead_letters=count,
                state_id=self.id,
                fingerprint=self._owner.fingerprint,
                cells=cells,
            )
            owner = self._writer
            assert owner is not None
            parent = None if self._current is None else self._current.checksum
            manifest = replace(manifest, epoch=owner.epoch, owner=owner.token, parent=parent)
            data = manifest.to_bytes()
            manifest = replace(manifest, checksum=checksum_of(data))
            writer.write(temporary, data)
            if not writer.folders <= self._rooted:
                self.files.sync_folder("")  # the names of new folders, and of the identity
                self._rooted |= writer.folders
            self._opened = self._loaded = False  # if it is not ours any more, look again
            self._check_held(owner, manifest)
            self._versions.make_room(batch_id)
            self._opened = self._loaded = True
        except OSError as error:
            writer.undo()
            raise StateError(
                f"micro-batch {batch_id} cannot be written to state directory "
                f"{self.files.location}: {error}; nothing of it was applied: see that there is "
                "room and that it may be written to, and start the query again"
            ) from error
        except BaseException:
            writer.undo()
            raise
        # The next `find` reads the directory again unless the rest succeeds, and loads the state
        # again unless `settle` confirms that the circuit has the step.
        self._loaded = self._opened = False
        try:
            self._publish(temporary, batch_id, data, owner)
        except OSError as error:
            raise StateError(
                f"state directory {self.files.location} does not say whether micro-batch "
                f"{batch_id} is part of it: {error}; start the query again, which finds out"
            ) from error
        self._current = manifest
        self.bytes_written = writer.bytes_written
        self._versions.add(manifest)
        done = self._done(manifest, outputs)
        self._opened = True
        return done

    @property
    def cells(self) -> CellVersions | None:
        """The cells of the current version."""
        return None if self._current is None else self._current.cells

    def settle(self) -> None:
        """Record that the circuit has committed the last written step."""
        self._loaded = True

    def load_newest(self) -> None:
        """Load the newest version, whether this sink or another one wrote it.

        Raises:
            StateDamagedError: It is damaged; only a micro-batch decides whether an older one works.
        """
        if not self._opened:
            self._reader.load_newest()
        elif not self._loaded:
            self._load(self._versions.newest)

    def note(self, line: str) -> None:
        """Add a line to the metrics; it may be lost."""
        self.files.append(METRICS_FILE, line)
        self._noted += len(line)
        if self._noted > MAX_METRICS_FILE_BYTES:
            self.files.rename(METRICS_FILE, f"{METRICS_FILE}.1")
            self._noted = 0

    def describe_dead_letters(self, batch_id: int) -> str:
        """Return where the dead letters of a micro-batch are, for messages."""
        return f"kept with the reasons in {self.files.location}/{_letters_name(batch_id)}"

    def close(self) -> None:
        """Release the directory for other writers."""
        self._opened = self._loaded = False
        self._known = None
        self.files.unlock()

    def _open(self) -> None:
        if self._opened:
            return
        self._loaded = False
        self._reader.forget()
        try:
            self.files.lock()
            self._check_known()
            self.id = ensure_identity(self.files, self._owner, str(uuid.uuid4())).id
            self._writer = take_over(self.files)
            write_definition(self.files, self._owner.definition)
            self._noted = self._size_of_metrics()
            self._versions.read(self.id)
            if self._versions.epoch >= self._writer.epoch:  # the file of the epoch was lost
                self._writer = take_over(self.files, self._versions.epoch)
            self._letters = set(
                self.files.names(DEAD_LETTERS_FOLDER)[-MAX_DEAD_LETTER_FILES_LISTED:]
            )
        except OSError as error:
            self.files.unlock()
            raise StateError(
                f"state directory {self.files.location} cannot be opened: {error}; see to it and "
                "start the query again"
            ) from error
        except BaseException:
            self.files.unlock()
            raise
        self._opened = True
        self._known = self.id

    def _check_known(self) -> None:
        """Raise an error if the directory was deleted or replaced since this sink opened it."""
        if self._known is None:
            return
        found = read_identity(self.files, self._owner)
        if found is None or found.id != self._known:
            raise StateDamagedError(
                f"state directory {self.files.location} was deleted or replaced while this sink "
                "was using it: restore it from a copy; or delete it together with the checkpoint, "
                "close() this sink or make a new one, and begin again"
            )

    def _check_held(self, owner: Owner, manifest: Manifest) -> None:
        """Raise an error if another sink has taken over the directory, or files are missing."""
        check_owner(self.files, owner)
        there = {name for folder in (DATA, OUTPUTS) for name in self.files.names(folder)}
        missing = sorted(manifest.files.keys() - there)
        if missing:
            raise StateDamagedError(
                f"{self.files.location}/{missing[0]} is missing, and {len(missing) - 1} more: they "
                "were deleted while this sink was using them; restore the state directory from a "
                "copy, or delete it together with the checkpoint, and start the query again"
            )

    def _publish(self, temporary: str, batch_id: int, data: bytes, owner: Owner) -> None:
        """Rename a manifest to its name, unless another writer has used the name."""
        name = manifest_name(batch_id)
        try:
            self.files.rename_new(temporary, name)
        except FileExistsError as error:
            if read_small(self.files, name) != data:  # it is ours if an answer was lost
                self.files.remove(temporary)
                raise StateLockedError(
                    f"version {batch_id} of state directory {self.files.location} was written by "
                    "another sink: stop that query and start this one again, or give it a "
                    "directory of its own"
                ) from error
        except FileNotFoundError:
            check_owner(self.files, owner)  # another writer has swept it away
            raise
        self.files.sync_folder(MANIFESTS)
        check_owner(self.files, owner)

    def _size_of_metrics(self) -> int:
        try:
            return self.files.size(METRICS_FILE) or 0
        except StateDamagedError:  # something else has the name; `note` says so
            return 0

    def _load(self, newest: int | None) -> None:
        """Load a version into the circuit, or an empty state."""
        self._current = load(
            self.files,
            self.circuit,
            newest,
            self._versions.__getitem__,
            cells=self._spread,
        )
        self._loaded = True

    def _again(self, batch_id: int) -> VersionSummary:
        """Return a committed micro-batch with the tables that the views published."""
        if batch_id not in self._versions:
            raise BatchOrderError(
                f"micro-batch {batch_id} came again, and version {batch_id} is not in state "
                f"directory {self.files.location}: restore it from a copy, or delete the "
                "directory together with the checkpoint"
            )
        manifest = self._versions[batch_id]

        def table(name: str) -> pa.Table:
            data = read_verified(self.files, name, manifest.files[name])
            return read_parquet(data, f"{self.files.location}/{name}")

        outputs = {
            view: pa.concat_tables(map(table, names)) for view, names in manifest.outputs.items()
        }
        return self._done(manifest, outputs)

    def _done(self, manifest: Manifest, outputs: Mapping[str, pa.Table]) -> VersionSummary:
        local = isinstance(self.files, LocalFiles)
        files = {
            view: tuple(f"{self.files.location}/{name}" for name in names)
            for view, names in (manifest.outputs if local else {}).items()
        }
        return VersionSummary(
            manifest.batch_id,
            outputs,
            files,
            manifest.digests,
            manifest.dead_letters,
            manifest.sizes,
        )

    def _step_back(self, batch_id: int, newest: int | None, error: StateDamagedError) -> None:
        """Return to the version before the newest, if Spark replays the newest one."""
        if newest is None or batch_id > newest or (newest and newest - 1 not in self._versions):
            self._opened = False  # what was left out of account is looked at again
            raise StateDamagedError(
                f"{error}. Micro-batch {batch_id} cannot be done without it: restore the state "
                "directory from a copy, or delete it together with the checkpoint"
            ) from error
        log.warning("%s; going on from version %d, as it comes again", error, newest - 1)
        self._loaded = False
        self._versions.forget(newest)

    def _check_order(self, batch_id: int, newest: int | None) -> None:
        here = f"state directory {self.files.location}"
        if newest is None:
            if batch_id:
                raise BatchOrderError(
                    f"the first micro-batch has id {batch_id}, not 0, and {here} is empty: the "
                    "checkpoint is older than the state; put the state directory back, or "
                    "delete the checkpoint as well to read the source again from its beginning"
                )
            return
        oldest = self._versions.oldest
        assert oldest is not None
        if batch_id > newest + 1:
            lost = f"{newest + 1} is"
            if batch_id > newest + 2:
                lost = f"{newest + 1} to {batch_id - 1} are"
            raise BatchOrderError(
                f"micro-batch {batch_id} follows {newest}, the last one in {here}: "
                f"{lost} missing; put back the state directory or the checkpoint that belong "
                "together, or delete both and empty the targets, to start again"
            )
        if batch_id < oldest:
            raise BatchOrderError(
                f"micro-batch {batch_id} is older than the oldest version in {here}, which has "
                f"{oldest} to {newest}: the checkpoint was deleted or is an old copy; put back "
                "the one that belongs to the state, or delete both and empty the targets, to begin "
                "anew"
            )

    def _check_query(self, batch_id: int, query_id: str | None) -> None:
        last = self._current
        if last is None or None in (query_id, last.query_id) or query_id == last.query_id:
            return
        raise BatchOrderError(
            f"micro-batch {batch_id} comes from query {query_id}, state directory "
            f"{self.files.location} belongs to query {last.query_id}: one state serves one "
            "checkpoint; put back that checkpoint, or delete the state directory as well"
        )


def _letters_name(batch_id: int) -> str:
    return f"{DEAD_LETTERS_FOLDER}/{batch_id:020}.parquet"
