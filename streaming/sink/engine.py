"""Engine: what turns a prepared micro-batch into deltas of views, and where its state is.

::

    Embedded       the circuit in this process, with a store of versions or in memory only
    Distributed    cells on Spark's executors, below a driver's circuit    (`streaming.distributed`)

A circuit with a recursion is embedded whatever is asked for (`place_of`): its rounds would each be
an exchange of few rows between all cells.

A sink is the same over both: it prepares a step of the engine's circuit, asks the engine what the
views give for it, writes that as the next version and commits the step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from circuits import Circuit, CircuitStep
from streaming.errors import StateError, StreamingError, TargetError
from streaming.sink.output import Output
from streaming.state.cell_versions import CellVersions
from streaming.state.files import files_of
from streaming.state.memory_store import InMemoryStore
from streaming.state.store import Store
from streaming.targets.output_mode import PostStepReader

__all__ = [
    "EXECUTION_MODES",
    "EmbeddedEngine",
    "Engine",
    "ExecutionMode",
    "StepOutput",
    "check_outputs",
    "engine_of",
    "place_of",
]

log = logging.getLogger(__name__)

ExecutionMode = Literal["embedded", "distributed"]
EXECUTION_MODES: Final = ("embedded", "distributed")


@dataclass(frozen=True)
class StepOutput:
    """What the views give for a step that is not committed yet.

    Attributes:
        deltas: The consolidated delta of each output.
        after: The whole of a materialized view after the step.
        cells: What cells have written, if there are any.
    """

    deltas: Mapping[str, pa.Table]
    after: Callable[[str], PostStepReader]
    cells: CellVersions | None = None


class Engine(Protocol):
    """Where a circuit runs."""

    @property
    def circuit(self) -> Circuit:
        """What takes the rows."""
        ...

    @property
    def versions(self) -> Store | InMemoryStore:
        """Its state."""
        ...

    def answer(self, step: CircuitStep, batch_id: int, frame: DataFrame) -> StepOutput:
        """What the views give for a step of ``circuit``.

        Args:
            step: The step, prepared.
            batch_id: The micro-batch.
            frame: Its rows, of which the session may be needed.
        """
        ...

    def explain(self) -> str:
        """What runs, as text."""
        ...


class EmbeddedEngine:
    """A circuit in this process.

    Args:
        circuit: The views.
        versions: Their state.
    """

    def __init__(self, circuit: Circuit, versions: Store | InMemoryStore) -> None:
        self.circuit = circuit
        self.versions = versions

    def answer(self, step: CircuitStep, batch_id: int, frame: DataFrame) -> StepOutput:
        """What the step gives itself."""
        return StepOutput(step.outputs, step.after)

    def explain(self) -> str:
        """The operators, with what they have done so far."""
        return self.circuit.explain()


def check_outputs(mode: ExecutionMode, outputs: Iterable[Output]) -> None:
    """Refuse output modes that the execution mode does not support.

    Raises:
        TargetError: An output needs the whole view, and the cells keep only parts of it.
    """
    for output in outputs:
        if mode == "distributed" and output.output_mode.needs_view:
            raise TargetError(
                f"view {output.view!r}: output mode {output.mode!r} needs the whole view, and in "
                "mode 'distributed' no view is whole in one place: use output mode 'delta' with a "
                "target that keeps the view, or ViewSink(mode='embedded')"
            )


def place_of(
    circuit: Circuit, mode: ExecutionMode, cells: int | None
) -> tuple[ExecutionMode, int | None]:
    """Where a circuit runs that is asked to run in a mode, with so many cells."""
    if mode == "distributed" and circuit.recursions:
        names = ", ".join(repr(name) for of in circuit.recursions for name in of)
        log.warning(
            "mode='distributed': the recursion of %s is not spread over executors, so the circuit "
            "runs embedded, with its state in the driver; views without it can have a sink of "
            "their own",
            names,
        )
        return "embedded", None
    return mode, cells


def engine_of(
    circuit: Circuit,
    *,
    mode: ExecutionMode,
    cells: int | None,
    state_dir: Any,
    state_mode: int,
    keep: int,
) -> Engine:
    """The engine of a sink, as `streaming.ViewSink` says.

    Raises:
        StreamingError: There is no such mode, ``cells`` does not go with it, or the circuit cannot
            be distributed.
        StateError: ``keep`` or the location are not what they should be, or the state is
            distributed and has no place.
    """
    if mode not in EXECUTION_MODES:
        raise StreamingError(f"mode={mode!r} is none of {', '.join(EXECUTION_MODES)}")
    if mode == "distributed":
        from streaming.distributed.engine import DistributedEngine  # only where it is needed

        if state_dir is None:
            raise StateError(
                "mode='distributed' has its state in files that driver and executors share, and "
                "there is no place for them: give ViewSink(state_dir=...)"
            )
        if cells is None:
            raise StreamingError(
                "mode='distributed' without cells: give ViewSink(cells=...), a few for each core "
                "of the executors"
            )
        files = files_of(state_dir, state_mode)
        return DistributedEngine(circuit, cells=cells, files=files, keep=keep)
    if cells is not None:
        raise StreamingError(
            f"cells={cells} in mode 'embedded', which has none: give mode='distributed' as well"
        )
    if state_dir is None:
        return EmbeddedEngine(circuit, InMemoryStore(circuit))
    return EmbeddedEngine(circuit, Store(files_of(state_dir, state_mode), circuit, keep=keep))
