"""Snapshot: all state of a circuit as one value, to restore later or in another process.

A snapshot has the rows of every trace (each relation that operators keep), the dictionaries, and a
fingerprint (hash) of the views and inputs. The options of the joins (formula, arrangements,
threads) are not part of it, because the same state is valid for all of them. So equal states have
equal snapshots, regardless of their history. Restoring a snapshot builds the arrangements again.
For large state, use `circuits.state.circuit_state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from circuits.errors import SnapshotError
from circuits.runtime.circuit_version import CircuitVersion
from circuits.state.circuit_state import State
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.zset import Int64Array

__all__ = ["Snapshot", "open_snapshot", "take_snapshot"]

FORMAT_VERSION: Final = 9


@dataclass(frozen=True)
class Snapshot:
    """The state of a circuit after ``steps`` steps.

    Attributes:
        format: The version of this layout.
        fingerprint: The fingerprint of the views and inputs (`circuits.circuit_spec`).
        steps: The number of steps that led to the state.
        traces: The rows, of shape ``(columns, n)``, and the weights of each trace.
        dictionaries: The values of each nonempty dictionary, with their codes.
        watermarks: The watermarks of the inputs.
    """

    format: int
    fingerprint: str
    steps: int
    traces: Mapping[str, tuple[Int64Array, Int64Array]]
    dictionaries: Mapping[str, CodedStrings]
    watermarks: Mapping[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The size of the rows, weights and values."""
        rows = sum(rows.nbytes + weights.nbytes for rows, weights in self.traces.values())
        return rows + sum(
            strings.offsets.nbytes + strings.data.nbytes for strings in self.dictionaries.values()
        )

    def state(self) -> State:
        """Return the state in the form that a circuit loads, with one run per trace."""
        traces = {}
        for name, (rows, weights) in self.traces.items():
            order = tuple(range(len(rows)))
            is_empty = len(weights) == 0
            traces[name] = {} if is_empty else {order: [build_run(ZSet(rows, weights), order)]}
        dictionaries = {name: [strings] for name, strings in self.dictionaries.items()}
        return State(self.steps, traces, dictionaries, self.watermarks)


def take_snapshot(version: CircuitVersion, fingerprint: str) -> Snapshot:
    """Return the snapshot of a version of a circuit."""
    traces = {}
    for name in version.traces:
        trace = version.trace(name)
        zset = ZSet.empty(trace.arity) if trace.is_empty else trace.to_zset()
        traces[name] = (zset.row_array, zset.weight_array)
    return Snapshot(
        FORMAT_VERSION,
        fingerprint,
        version.steps,
        traces,
        version.dictionaries(),
        dict(version.watermarks),
    )


def open_snapshot(snapshot: Snapshot, fingerprint: str) -> State:
    """Return the state of a snapshot, after a check of its format and fingerprint.

    Raises:
        SnapshotError: The snapshot has another format, or belongs to other views or inputs.
    """
    if not isinstance(snapshot, Snapshot):
        raise SnapshotError(
            f"the argument must be a Snapshot, not {type(snapshot).__name__}: give the value that "
            "snapshot() returned, unpickled"
        )
    if snapshot.format != FORMAT_VERSION:
        raise SnapshotError(
            f"the snapshot has format {snapshot.format}, this version reads {FORMAT_VERSION}: "
            "use the version that wrote it"
        )
    if snapshot.fingerprint != fingerprint:
        raise SnapshotError(
            f"the snapshot belongs to views with fingerprint {snapshot.fingerprint}, these have "
            f"{fingerprint}: compile the text and schemas that it was taken with"
        )
    return snapshot.state()
