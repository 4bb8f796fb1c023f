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

The state of cells cannot be compacted by this command. Each cell merges its parts and removes its
unused values in its steps.

Memory: the state, and twice the largest arrangement. Disk: the old and the new files together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.circuit_state import whole_state
from circuits.state.dictionary_sweep import DictionarySweeper
from circuits.user_functions import UserFunction
from streaming.errors import StateDamagedError, StateError
from streaming.state.files import AtomicFiles, Files
from streaming.state.manifest import MANIFESTS, Manifest
from streaming.state.ownership import check_owner, raise_if_replaced
from streaming.state.verified_files import read_state
from streaming.state.version_rewrite import (
    VersionRewrite,
    lock_for_rewrite,
    read_newest_definition,
)
from streaming.state.versions import DATA, OUTPUTS, Versions
from streaming.state.writer import Writer

__all__ = ["CompactionResult", "StoredSize", "compact_state"]


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
        runs = [parts for orders in newest.traces.values() for parts in orders.values()]
        dictionaries = list(newest.dictionaries.values())
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
) -> CompactionResult:
    """Remove unused values, merge all parts, and remove all versions but the newest.

    Args:
        files: The directory. If it has no file mode, new files get the mode of the old ones.
        spec: The views of a circuit that was built from plans; None to compile the text in
            the directory.
        functions: The user-defined functions that the text calls, by name.

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, it is distributed, a file is missing or damaged, the text
            of the views is missing, or the disk failed; the version is unchanged.
    """
    with lock_for_rewrite(files, "compact") as locked:
        circuit = Circuit(spec or read_newest_definition(locked, functions))
        rewrite = VersionRewrite.begin(locked, circuit)
        try:
            return _compact(rewrite, circuit)
        except (OSError, StateDamagedError):
            raise_if_replaced(locked, rewrite.owner)
            raise


def _compact(rewrite: VersionRewrite, circuit: Circuit) -> CompactionResult:
    files, before = rewrite.files, rewrite.before
    if before.cells is not None:
        raise StateError(
            f"{files.location} is distributed over {before.cells.count} cells, and only a state in "
            f"one process can be compacted: run dbsp-wcoj rescale {files.location} --embedded, "
            f"then this command, then dbsp-wcoj rescale {files.location} --cells "
            f"{before.cells.count}"
        )
    size_before = StoredSize.of(files, before)
    circuit.load(read_state(files, before))
    DictionarySweeper(circuit.graph).sweep_all(circuit.committed)
    state = whole_state(circuit.graph)
    state = replace(state, compacted=frozenset(state.orders))  # one run for each arrangement
    writer = Writer(files, None, rewrite.new_stem())
    try:
        writer.add(state)
        written = writer.make_manifest(state, before.batch_id, state_id="", fingerprint="")
        outputs = {name: before.files[name] for names in before.outputs.values() for name in names}
        after = replace(
            before,
            traces=written.traces,
            # A dictionary without values remains, so that its codes are not used again.
            dictionaries={**dict.fromkeys(before.dictionaries, ()), **written.dictionaries},
            files={**written.files, **outputs},
            values_after_sweep=written.values_after_sweep,
        )
        read_state(files, after)
        staged = rewrite.stage(after)
    except BaseException:
        writer.undo()
        raise
    rewrite.commit(staged)
    if isinstance(files, AtomicFiles):
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
