"""Reader: loads the newest version of a directory that another sink may be writing to.

A reader takes no lock and changes nothing. So the client of a Spark Connect query, or a notebook
beside the job, can read the views while the query runs. The files of a version are immutable. If
they are removed while the reader loads them, there is a newer version, or an offline compaction has
replaced the manifest of this one by another that names smaller files. The reader loads it then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from circuits import Circuit
from circuits.state.circuit_state import State
from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StateDamagedError, StateError, StateMismatchError
from streaming.state.directory_identity import read_identity
from streaming.state.files import Files, read_small_file
from streaming.state.manifest import (
    Manifest,
    list_batch_ids,
    manifest_name,
    read_cell_manifest,
    read_manifest,
)
from streaming.state.verified_files import MappedFiles, check_size, read_state

__all__ = ["Reader", "check_cells", "load", "newest_batch_id", "read_unlocked"]

T = TypeVar("T")


class Reader:
    """Loads the newest version; never writes.

    Args:
        files: The directory.
        circuit: The circuit to load; an embedded one.
    """

    def __init__(self, files: Files, circuit: Circuit) -> None:
        self._files = files
        self._circuit = circuit
        # The id of the directory and the batch id of the loaded version.
        self._loaded: tuple[str, int | None] | None = None

    def forget(self) -> None:
        """Forget the loaded version, because the circuit has changed."""
        self._loaded = None

    def load_newest(self) -> None:
        """Load the newest version into the circuit; without a version, an empty state.

        Raises:
            StateDamagedError: The version is damaged.
            StateMismatchError: The directory belongs to another circuit.
            StateError: It cannot be read.
        """
        try:
            self._load_newest()
        except OSError as error:
            raise StateError(
                f"state directory {self._files.location} cannot be read: {error}"
            ) from error

    def _load_newest(self) -> None:
        identity = read_identity(self._files, self._circuit)
        state_id = None if identity is None else identity.id

        def load_version(batch_id: int | None) -> None:
            if state_id is not None and self._loaded == (state_id, batch_id):
                return
            self._loaded = None
            load(
                self._files,
                self._circuit,
                batch_id,
                lambda number: read_manifest(self._files, number, state_id=state_id),
            )
            self._loaded = None if state_id is None else (state_id, batch_id)

        read_unlocked(self._files, load_version, lambda: newest_batch_id(self._files))


def newest_batch_id(files: Files) -> int | None:
    """Return the batch id of the newest version in a directory; None if there is none."""
    return max(list_batch_ids(files), default=None)


def read_unlocked(
    files: Files, read: Callable[[int | None], T], find_version: Callable[[], int | None]
) -> T:
    """Read a version of a directory, which another process may remove or replace meanwhile.

    After an error, the version is read again, unless its manifest has not changed since the last
    error. So a damaged version is read twice.

    Args:
        files: The directory.
        read: Reads the version of a batch id; None if there is no version.
        find_version: Returns the batch id; called before each attempt.

    Raises:
        FileNotFoundError, StateError: The last error of ``read``.
    """
    failed: tuple[int | None, bytes] | None = None
    while True:
        batch_id = find_version()
        try:
            return read(batch_id)
        except (FileNotFoundError, StateError):
            # Files are removed after the manifest that named them is replaced. So this is the new
            # manifest, if that is the reason of the error.
            found = batch_id, _manifest_bytes(files, batch_id)
            if found == failed:
                raise
            failed = found


def _manifest_bytes(files: Files, batch_id: int | None) -> bytes:
    """Return the content of a manifest; empty if it cannot be read."""
    try:
        return b"" if batch_id is None else read_small_file(files, manifest_name(batch_id))
    except (OSError, StateDamagedError):
        return b""


def load(
    files: Files,
    circuit: Circuit,
    batch_id: int | None,
    manifest_of: Callable[[int], Manifest],
    *,
    cells: int | None = None,
    map_files: Callable[[Manifest], MappedFiles] | None = None,
) -> Manifest | None:
    """Load a version into a circuit, or an empty state if there is none; return its manifest.

    Args:
        files: The directory.
        circuit: The circuit to load.
        batch_id: The version; None for an empty state.
        manifest_of: Returns the manifest of a version.
        cells: The expected number of cells beside ``circuit``; None for an embedded circuit. This
            function checks that their files exist; the tasks that step the cells read them.
        map_files: Returns the files of a version that need not be read; None to read all.

    Raises:
        StateDamagedError: The version is damaged.
        StateMismatchError: It is of another circuit, or of another number of cells.
    """
    manifest = None if batch_id is None else manifest_of(batch_id)
    if manifest is not None:
        check_cells(files, manifest, cells)
    state = State.empty()
    if manifest is not None:
        mapped = None if map_files is None else map_files(manifest)
        state = read_state(files, manifest, mapped=mapped)
    try:
        circuit.load(state)
    except DbspWcojError as error:
        raise StateMismatchError(
            f"version {batch_id} of state directory {files.location} cannot be loaded "
            f"({error}): use the version that wrote it, or delete the directory together "
            "with the checkpoint to start again"
        ) from error
    except (OSError, MemoryError):
        raise
    except Exception as error:  # files are untrusted, so any error is possible
        raise StateDamagedError(
            f"version {batch_id} of state directory {files.location} is not a valid state "
            f"({type(error).__name__}: {error}): restore the directory from a copy, or delete it "
            "together with the checkpoint"
        ) from error
    return manifest


def check_cells(files: Files, manifest: Manifest, expected: int | None) -> None:
    """Check the number of cells of a version, and that their files exist.

    Args:
        files: The directory.
        manifest: The version.
        expected: The expected number of cells; None for an embedded circuit.

    Raises:
        StateMismatchError: The version has another number of cells.
        StateDamagedError: A file is missing, or has another size.
    """
    actual = None if manifest.cells is None else manifest.cells.count
    if actual != expected:
        mode = "mode='embedded'" if actual is None else f"mode='distributed', cells={actual}"
        option = "--embedded" if expected is None else f"--cells {expected}"
        raise StateMismatchError(
            f"version {manifest.batch_id} of state directory {files.location} is "
            f"{_describe_cells(actual)}, and this sink is {_describe_cells(expected)}: give "
            f"ViewSink({mode}), or stop the query and move the state with: python -m streaming "
            f"rescale {files.location} {option}"
        )
    if manifest.cells is None:
        return
    for manifest_bytes in manifest.cells.manifests.values():
        for name, checksum in read_cell_manifest(manifest_bytes).files.items():
            check_size(files, name, checksum)


def _describe_cells(cells: int | None) -> str:
    return "embedded in one process" if cells is None else f"distributed over {cells} cells"
