"""Execution modes: run the circuit of a sink in this process or on Spark's executors.

A circuit with a recursion runs embedded in either mode, because each of its iterations would be an
exchange of few rows between all cells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, Literal

from circuits import Circuit
from streaming.distributed.engine import DistributedEngine
from streaming.engine.engine import EmbeddedEngine, Engine
from streaming.errors import StateError, StreamingError, TargetError
from streaming.sink.output import Output
from streaming.state.memory_store import InMemoryStore
from streaming.state.open_files import open_files
from streaming.state.store import Store

__all__ = [
    "EXECUTION_MODES",
    "ExecutionMode",
    "check_outputs",
    "make_engine",
    "resolve_mode",
]

log = logging.getLogger(__name__)

ExecutionMode = Literal["embedded", "distributed"]
EXECUTION_MODES: Final = ("embedded", "distributed")


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


def resolve_mode(
    circuit: Circuit, mode: ExecutionMode, cells: int | None
) -> tuple[ExecutionMode, int | None]:
    """Return the mode and the number of cells that a circuit can run in; warn if they change."""
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


def make_engine(
    circuit: Circuit,
    *,
    mode: ExecutionMode,
    cells: int | None,
    state_dir: Any,
    state_mode: int,
    keep: int,
) -> Engine:
    """Create the engine of a sink; the arguments are those of `streaming.ViewSink`.

    Raises:
        StreamingError: There is no such mode, ``cells`` does not fit it, or the circuit cannot be
            distributed.
        StateError: ``keep`` or the location are invalid, or distributed state has no location.
    """
    if mode not in EXECUTION_MODES:
        raise StreamingError(f"mode={mode!r} is none of {', '.join(EXECUTION_MODES)}")
    if mode == "distributed":
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
        files = open_files(state_dir, state_mode)
        return DistributedEngine(circuit, cells=cells, files=files, keep=keep)
    if cells is not None:
        raise StreamingError(
            f"cells={cells} in mode 'embedded', which has none: give mode='distributed' as well"
        )
    if state_dir is None:
        return EmbeddedEngine(circuit, InMemoryStore(circuit))
    return EmbeddedEngine(circuit, Store(open_files(state_dir, state_mode), circuit, keep=keep))
