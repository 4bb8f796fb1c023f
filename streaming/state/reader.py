"""Reader: loads the newest version of a directory that another sink may be writing to.

A reader takes no lock and changes nothing. So the client of a Spark Connect query, or a notebook
beside the job, can read the views while the query runs. Versions are immutable. If a version is
removed while it is being loaded, a newer one exists, and the reader loads that one.
"""

from __future__ import annotations

from collections.abc import Callable

from circuits import Circuit
from circuits.state.circuit_state import State
from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StateDamagedError, StateError, StateMismatchError
from streaming.state.directory_identity import read_identity
from streaming.state.files import Files
from streaming.state.manifest import Manifest, list_batch_ids, read_cell_manifest, read_manifest
from streaming.state.verified_files import MappedFiles, check_size, read_state

__all__ = ["Reader", "load"]


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
        newest = self._newest_batch_id()
        while True:
            if identity is not None and self._loaded == (identity.id, newest):
                return
            self._loaded = None
            try:
                load(
                    self._files,
                    self._circuit,
                    newest,
                    lambda batch_id: read_manifest(
                        self._files, batch_id, state_id=None if identity is None else identity.id
                    ),
                )
            except (StateDamagedError, FileNotFoundError):
                later = self._newest_batch_id()
                if later == newest:
                    raise
                newest = later
            else:
                self._loaded = None if identity is None else (identity.id, newest)
                return

    def _newest_batch_id(self) -> int | None:
        return max(list_batch_ids(self._files), default=None)


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
        _check_cells(files, manifest, cells)
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


def _check_cells(files: Files, manifest: Manifest, expected: int | None) -> None:
    """Check the number of cells of a version, and that their files exist."""
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
