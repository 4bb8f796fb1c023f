"""Execution modes: run the circuit of a sink in this process or on Spark's executors.

In mode "distributed" the joins and groups of the circuit are divided into cells, which run on the
executors (`streaming.distributed`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal

from circuits import Circuit
from streaming.distributed.engine import DistributedEngine
from streaming.engine.engine import EmbeddedEngine, Engine
from streaming.errors import StateError, StreamingError
from streaming.state.memory_store import InMemoryStore
from streaming.state.open_files import open_files
from streaming.state.program_change import ChangeOptions
from streaming.state.records.dead_letter_files import DeadLetterRetention
from streaming.state.store import Store
from streaming.state.view_definitions import check_definition

__all__ = [
    "EXECUTION_MODES",
    "ExecutionMode",
    "make_engine",
]

ExecutionMode = Literal["embedded", "distributed"]
EXECUTION_MODES: Final = ("embedded", "distributed")


def make_engine(
    circuit: Circuit,
    *,
    mode: ExecutionMode,
    cells: int | None,
    pin_cells: bool,
    state_dir: Any,
    state_mode: int,
    keep: int,
    change: ChangeOptions,
    clock: Callable[[], datetime],
    dead_letters: DeadLetterRetention,
    last_batch: Callable[[str], int | None],
    memory_limit: int | None,
) -> Engine:
    """Create the engine of a sink; the arguments are those of `streaming.ViewSink`.

    ``last_batch`` is as for `streaming.state.store.Store`.

    Raises:
        StreamingError: The mode is unknown, ``cells`` does not fit it, or the circuit cannot be
            distributed.
        StateError: ``keep`` or the location are invalid, distributed state has no location, or
            there is a memory limit for state that is not on a local disk, or distributed.
        StateMismatchError: The state directory has views in another dialect, or with other
            user-defined functions.
    """
    if mode not in EXECUTION_MODES:
        raise StreamingError(f"mode={mode!r}: it must be one of {', '.join(EXECUTION_MODES)}")
    if memory_limit is not None and (mode == "distributed" or state_dir is None):
        raise StateError(
            f"memory_limit={memory_limit}: only mode='embedded' with a state directory has files "
            "that can be mapped: give ViewSink(state_dir=...) as well, or no limit"
        )
    if mode == "distributed":
        if state_dir is None:
            raise StateError(
                "mode='distributed' needs a directory for the state that driver and executors "
                "share: give ViewSink(state_dir=...)"
            )
        if cells is None:
            raise StreamingError(
                "mode='distributed' without cells: give ViewSink(cells=...), a few for each core "
                "of the executors"
            )
        files = open_files(state_dir, state_mode)
        check_definition(files, circuit.spec)
        return DistributedEngine(
            circuit,
            cells=cells,
            files=files,
            keep=keep,
            dead_letters=dead_letters,
            change=change,
            pin_cells=pin_cells,
        )
    if pin_cells:
        raise StreamingError(
            "pin_cells=True: only mode='distributed' has cells; give it as well, or omit pin_cells"
        )
    if cells is not None:
        raise StreamingError(
            f"cells={cells}: only mode='distributed' has cells; give it as well, or omit cells"
        )
    if state_dir is None:
        return EmbeddedEngine(circuit, InMemoryStore(circuit))
    files = open_files(state_dir, state_mode)
    check_definition(files, circuit.spec)
    store = Store(
        files,
        circuit,
        keep=keep,
        change=change,
        clock=clock,
        dead_letters=dead_letters,
        last_batch=last_batch,
        memory_limit=memory_limit,
    )
    return EmbeddedEngine(circuit, store)
