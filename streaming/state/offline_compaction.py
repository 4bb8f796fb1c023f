"""Offline compaction: write the newest version of a stopped query again, as small as it can be.

1. Load the version, and remove the values of dictionaries that no row has
   (`circuits.state.dictionary_sweep`), whether or not a sweep is due.
2. Write the sum of the runs of each arrangement, and the remaining values of each dictionary, as
   one part. Read everything back, to verify the checksums.
3. Commit the version under the same batch id (`streaming.state.version_rewrite`).
4. Remove the earlier versions, and all files that no manifest names.

On an object store the next micro-batch does the fourth step: an earlier sink may still commit a
version that names these files (`streaming.state.ownership`).

The codes of values do not change, and the codes of removed values are not used again. A crash
before the commit leaves the directory as it was. After a crash later than that, the next start
removes what is left. Afterwards only the newest version exists, so the query continues with the
next micro-batch or with a replay of the last one, but not with an earlier one.

The state of a distributed query consists of a version of the driver's circuit and of one for each
cell (`streaming.state.cell_versions`). Each of them is compacted in this way, one after the other,
so rows stay in their cells. The manifest that is committed names the new files of all of them.

Memory: the state of the largest circuit, and twice its largest arrangement. Disk: the old and the
new files together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.circuit_state import whole_state
from circuits.state.dictionary_sweep import DictionarySweeper
from circuits.user_functions import UserFunction
from streaming.errors import StateDamagedError, StateError, StateMismatchError
from streaming.state.files import Files, is_atomic
from streaming.state.manifest import MANIFESTS, Manifest, read_cell_manifest
from streaming.state.ownership import check_owner, raise_if_replaced
from streaming.state.verified_files import read_state
from streaming.state.version_rewrite import (
    VersionRewrite,
    lock_for_rewrite,
    read_newest_definition,
)
from streaming.state.versions import DATA, OUTPUTS, Versions
from streaming.state.writer import Writer

__all__ = ["CompactionResult", "DivideCircuit", "StoredSize", "compact_state"]

#: Returns the circuit of the driver, and the circuit of the cells of each stage.
DivideCircuit = Callable[[Circuit], tuple[CircuitSpec, Sequence[CircuitSpec]]]


@dataclass(frozen=True)
class StoredSize:
    """The size of the state in a directory.

    Attributes:
        bytes: The bytes of all files of all versions.
        files: The number of these files.
        rows: The rows in all parts of arrangements of the newest version, those of each column
            order, and also rows that cancel each other.
        values: The values in all parts of dictionaries of the newest version.
        parts: The number of these parts.
    """

    bytes: int
    files: int
    rows: int
    values: int
    parts: int

    @staticmethod
    def of(files: Files, newest: Manifest) -> StoredSize:
        """Measure a directory, given its newest version."""
        versions = [newest, *_cell_manifests(newest).values()]
        runs = [
            parts
            for version in versions
            for orders in version.traces.values()
            for parts in orders.values()
        ]
        dictionaries = [parts for version in versions for parts in version.dictionaries.values()]
        statuses = [
            status for folder in (MANIFESTS, DATA, OUTPUTS) for status in files.list_files(folder)
        ]
        return StoredSize(
            bytes=sum(status.size for status in statuses),
            files=len(statuses),
            rows=sum(part.rows for parts in runs for part in parts),
            values=sum(part.rows for parts in dictionaries for part in parts),
            parts=sum(map(len, runs)) + sum(map(len, dictionaries)),
        )


@dataclass(frozen=True)
class CompactionResult:
    """The result of `compact_state`.

    Attributes:
        batch_id: The version.
        before: The size before.
        after: The size after.
    """

    batch_id: int
    before: StoredSize
    after: StoredSize


def compact_state(
    files: Files,
    *,
    spec: CircuitSpec | None = None,
    functions: Mapping[str, UserFunction] | None = None,
    divide: DivideCircuit | None = None,
) -> CompactionResult:
    """Remove unused values, merge all parts, and remove all versions but the newest.

    Args:
        files: The directory. If it has no file mode, new files get the mode of the old ones.
        spec: The views of a circuit that was built from plans; None to compile the text in
            the directory.
        functions: The user-defined functions that the text calls, by name.
        divide: Divides the circuit of a distributed state into those of the driver and the cells
            (`streaming.distributed.cell_state.divide_circuit`).

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, it is distributed and ``divide`` is None, a file is missing
            or damaged, the text of the views is missing, or the disk failed; the version is
            unchanged.
        StateMismatchError: A cell belongs to another circuit than ``divide`` returns.
    """
    with lock_for_rewrite(files, "compact") as locked:
        circuit = Circuit(spec or read_newest_definition(locked, functions))
        rewrite = VersionRewrite.begin(locked, circuit)
        try:
            return _compact(rewrite, circuit, divide)
        except (OSError, StateDamagedError):
            raise_if_replaced(locked, rewrite.owner)
            raise


def _compact(
    rewrite: VersionRewrite, circuit: Circuit, divide: DivideCircuit | None
) -> CompactionResult:
    files, before = rewrite.files, rewrite.before
    size_before = StoredSize.of(files, before)
    writers: list[Writer] = []

    def compact(version: Manifest, spec: CircuitSpec) -> Manifest:
        writers.append(Writer(files, None, rewrite.new_stem()))
        return _compact_version(files, version, Circuit(spec), writers[-1])

    try:
        if before.cells is None:
            after = compact(before, circuit.spec)
        elif divide is None:
            raise StateError(
                f"{files.location} is distributed over {before.cells.count} cells: give "
                "compact_state(divide=streaming.distributed.cell_state.divide_circuit), or run "
                f"dbsp-wcoj compact {files.location}"
            )
        else:
            driver, cell_specs = divide(circuit)
            manifests = {
                (stage, cell): compact(version, _spec_of_cell(cell_specs, stage, cell, version))
                for (stage, cell), version in _cell_manifests(before).items()
            }
            encoded = {key: manifest.encode() for key, manifest in manifests.items()}
            cells = replace(before.cells, manifests=encoded)
            after = replace(compact(before, driver), cells=cells)
        staged = rewrite.stage(after)
    except BaseException:
        for writer in writers:
            writer.undo()
        raise
    rewrite.commit(staged)
    if is_atomic(files):
        return CompactionResult(before.batch_id, size_before, StoredSize.of(files, after))
    versions = Versions(files, keep=1)
    try:
        versions.read(before.state_id)
    except OSError as error:
        raise StateError(
            f"state directory {files.location} was compacted, but its earlier versions were not "
            f"removed: {error}; run the command again"
        ) from error
    versions.remove_unreferenced(partial(check_owner, files, rewrite.owner))
    return CompactionResult(before.batch_id, size_before, StoredSize.of(files, after))


def _compact_version(files: Files, version: Manifest, circuit: Circuit, writer: Writer) -> Manifest:
    """Write the state of one circuit again, and read it back; return its manifest.

    Args:
        files: The directory.
        version: The version of the circuit.
        circuit: The circuit, without state.
        writer: Writes the new files.
    """
    circuit.load(read_state(files, version))
    DictionarySweeper(circuit.graph).sweep_all(circuit.committed)
    state = whole_state(circuit.graph)
    state = replace(state, compacted=frozenset(state.orders))  # one run for each arrangement
    writer.add(state)
    written = writer.make_manifest(state, version.batch_id, state_id="", fingerprint="")
    outputs = {name: version.files[name] for names in version.outputs.values() for name in names}
    after = replace(
        version,
        traces=written.traces,
        # A dictionary without values remains, so that its codes are not used again.
        dictionaries={**dict.fromkeys(version.dictionaries, ()), **written.dictionaries},
        files={**written.files, **outputs},
        values_after_sweep=written.values_after_sweep,
    )
    read_state(files, after)
    return after


def _cell_manifests(version: Manifest) -> dict[tuple[int, int], Manifest]:
    """Return the manifest of each cell of a version; none if it is not distributed."""
    manifests = {} if version.cells is None else version.cells.manifests
    return {key: read_cell_manifest(data) for key, data in manifests.items()}


def _spec_of_cell(
    specs: Sequence[CircuitSpec], stage: int, cell: int, version: Manifest
) -> CircuitSpec:
    """Return the circuit of a cell.

    Raises:
        StateMismatchError: The version of the cell belongs to another circuit.
    """
    if stage >= len(specs) or specs[stage].fingerprint != version.fingerprint:
        raise StateMismatchError(
            f"cell {cell} of stage {stage} belongs to another circuit than this version compiles "
            "the views to: use the version that wrote the state"
        )
    return specs[stage]
