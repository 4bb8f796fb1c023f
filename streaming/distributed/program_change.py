"""Program change in cells: a distributed sink starts with other views, or changes its views.

::

    old version in cells -> gathered: the old circuit in the driver has the whole state
        -> changed as in one process: parts are reused, computed or dropped
        -> scattered: files of the cells, and the state of the driver's circuit

The next micro-batch commits the change: its manifest is the first one that names the new files
(`streaming.state.program_change`). Until then, the version of the old views is the newest one, and
the next start repeats the change. It also removes the files of a change that was not committed.

Cost: memory of the driver for the whole state, once; all of it is read and written again. The grids
are chosen from the state, as in rescaling.

Alternative considered: to move only the state of changed stages. The number of a stage and the
relations that it exchanges may change with any view, and a change is rare.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from circuits import Circuit
from circuits.state.program_change import ProgramChange
from streaming.distributed.cell_state import CellState
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.program_change import (
    ChangeOptions,
    PendingChange,
    change_program,
    plan_change,
)
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = ["change_cells", "plan_cell_change"]


def plan_cell_change(
    files: Files, manifest: Manifest, circuit: Circuit, options: ChangeOptions
) -> ProgramChange:
    """Compare the program of a version, in cells or not, with that of a circuit.

    The arguments and the errors are those of `streaming.state.program_change.plan_change`.
    """
    if manifest.cells is None:
        return plan_change(files, manifest, circuit, options)
    return plan_change(files, manifest, circuit, options, load=_gather(files, manifest))


def change_cells(
    files: Files,
    manifest: Manifest,
    circuit: Circuit,
    options: ChangeOptions,
    *,
    dropped: Collection[str] = (),
    keys: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> PendingChange:
    """Write the state of a version in cells for a circuit of other views.

    Args:
        files: The directory.
        manifest: The version.
        circuit: The new program.
        options: What the change may do.
        dropped: The views that are removed on purpose.
        keys: The keys of the new views in mode ``upsert``, which assign their rows to cells.

    Returns:
        The change. Its manifest names the new files, and no version does so far.

    Raises:
        StateMismatchError: The change drops something that ``options`` do not allow.
        ProgramChangeError: Rows that are needed are neither kept nor given.
        StateError: A file is damaged, or the disk failed. Nothing remains of the new files.
    """
    assert manifest.cells is not None
    # The keys of their outputs, so that the next micro-batch moves no row again.
    columns_of_views: dict[str, Collection[str]] = dict(keys)

    def load(old: Circuit) -> None:
        cell_state = CellState(files, manifest.state_id, old)
        cell_state.gather(manifest, manifest.steps + 1)
        columns_of_views.update(cell_state.columns_of_views(manifest))

    pending = change_program(files, manifest, circuit, options, None, load=load, dropped=dropped)
    cell_state = CellState(files, manifest.state_id, circuit)
    stem = f"{DATA}/{manifest.batch_id:020}-{uuid.uuid4().hex[:12]}"
    writer = Writer(files, None, stem)
    try:
        step, cells = cell_state.scatter(
            manifest.cells.count, manifest.batch_id, manifest.steps, columns_of_views
        )
        writer.add(step)
        written = writer.make_manifest(step, manifest.batch_id, state_id="", fingerprint="")
    except BaseException:
        writer.undo()
        cell_state.undo()
        raise
    after = replace(
        pending.manifest,
        traces=written.traces,
        dictionaries=written.dictionaries,
        dictionary_lengths=written.dictionary_lengths,
        watermarks=written.watermarks,
        plans=written.plans,
        values_after_sweep=written.values_after_sweep,
        files=written.files,
        outputs={},
        cells=cells,
    )
    return replace(pending, manifest=after)


def _gather(files: Files, manifest: Manifest) -> Callable[[Circuit], object]:
    """Return a function that loads a version in cells into a circuit."""
    return lambda old: CellState(files, manifest.state_id, old).gather(manifest, manifest.steps + 1)
