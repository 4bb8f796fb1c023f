"""The files of one cell: open its circuit with a version of its state, export it, and write it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from circuits.circuit import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.state.migration import (
    OperatorState,
    StateImport,
    export_recursion,
    export_state,
    find_recursion,
    find_stateful_operator,
    recursion_nodes,
)
from streaming.distributed.planning.stages import Stage
from streaming.errors import StateDamagedError, StateMismatchError
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest
from streaming.state.verified_files import read_state
from streaming.state.writer import Writer

__all__ = ["check_written", "export_cell", "open_cell", "require_cells", "write_cell"]


def open_cell(
    files: Files,
    spec: CircuitSpec,
    manifest_bytes: bytes,
    cell: str,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Circuit:
    """Return the circuit of a cell with its state; O(bytes of its files), which are mapped.

    Args:
        files: The state directory.
        spec: The circuit.
        manifest_bytes: The checksummed manifest of the cell.
        cell: The cell, for the message.
        limits: The values of the bounds of its state. Rows of joins before them are dropped,
            because other cells may have dropped their copies (`planning.stage_bounds`).

    Raises:
        StateDamagedError: A file is missing or damaged.
        StateMismatchError: The cell belongs to another circuit.
    """
    manifest = read_cell_manifest(manifest_bytes)
    circuit = Circuit(spec)
    if manifest.fingerprint != circuit.fingerprint:
        raise StateMismatchError(
            f"{cell} belongs to another circuit than this version compiles the views to: use the "
            "version that wrote the state; or convert the state with that version, dbsp-wcoj "
            "rescale STATE --embedded"
        )
    circuit.load(read_state(files, manifest))
    bounds = circuit.graph.state_bounds
    if bounds is not None and limits:
        bounds.given = limits
        bounds.drop_relation_rows()
    return circuit


def export_cell(stage: Stage, circuit: Circuit) -> OperatorState:
    """Return the state of a cell; O(rows)."""
    if stage.is_recursive:
        return export_recursion(circuit, _nodes_of_recursion(circuit))
    return export_state(circuit, find_stateful_operator(circuit))


def write_cell(
    files: Files,
    stage: Stage,
    spec: CircuitSpec,
    state: OperatorState,
    *,
    stem: str,
    state_id: str,
    batch_id: int,
    steps: int,
    watermarks: Mapping[str, int] = MappingProxyType({}),
) -> bytes:
    """Write the state of a cell to new files; return its checksummed manifest.

    Args:
        files: The state directory.
        stage: The stage.
        spec: The circuit of its cells.
        state: The state, as `export_cell` returns it.
        stem: An unused beginning of the names of the files.
        state_id: The id of the state directory.
        batch_id: The version.
        steps: The number of steps that produced the state.
        watermarks: Those of its manifest.

    Raises:
        OSError: The file system failed; the files are removed.
    """
    circuit = Circuit(spec)
    state_import = StateImport(circuit, steps=steps, watermarks=watermarks)
    if stage.is_recursive:
        state_import.add_recursion(_nodes_of_recursion(circuit), state)
    else:
        state_import.add_operator(find_stateful_operator(circuit), state)
    step = state_import.finish()
    writer = Writer(files, None, stem)
    try:
        writer.add(step)
        manifest = writer.make_manifest(
            step, batch_id, state_id=state_id, fingerprint=circuit.fingerprint
        )
    except BaseException:
        writer.undo()
        raise
    return manifest.encode()


def check_written(stage: Stage, written: OperatorState, read_back: OperatorState) -> None:
    """Check that the number of rows and their weights are the same when they are read back.

    Raises:
        StateDamagedError: They differ.
    """
    for written_table, read_table in zip(written, read_back, strict=True):
        if written_table is None or read_table is None:
            continue
        sums = [_count(table) for table in (written_table, read_table)]
        if sums[0] != sums[1]:
            raise StateDamagedError(
                f"stage {stage.number}: {sums[0]} rows and weights were written and {sums[1]} are "
                "read back: nothing was changed; try again"
            )


def require_cells(stage: Stage, count: int, manifests: Mapping[int, bytes]) -> None:
    """Check that a version has a state of each cell of a stage.

    Raises:
        StateDamagedError: A cell is missing.
    """
    missing = set(range(count)) - manifests.keys()
    if missing:
        raise StateDamagedError(
            f"stage {stage.number} has {count} cells, and the version has no state of "
            f"{', '.join(map(str, sorted(missing)))}: restore the state directory from a copy"
        )


def _count(table: pa.Table) -> tuple[int, int]:
    """Return the number of rows, and the sum of their weights, which may exceed 64 bits."""
    weights = table.column(table.num_columns - 1).to_numpy()
    high, low = weights >> 32, weights & 0xFFFFFFFF
    return table.num_rows, (int(high.sum()) << 32) + int(low.sum())


def _nodes_of_recursion(circuit: Circuit) -> list[tuple[int, bool]]:
    """Return the nodes of the recursion of a cell."""
    return recursion_nodes(circuit.graph, find_recursion(circuit.graph))
