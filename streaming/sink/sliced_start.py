"""Sliced start: a sink that starts with other views than its state directory, and with a limit.

::

    views of the directory    the sink starts with them, as if it had been given them
    views that were given     requested as a change that is computed in slices

Given rows of another micro-batch than the last one are not used, as in a start without a limit,
also when the job starts again before the change is made.

Nobody has the future of this change, so the micro-batch in which it fails raises the error
(`RequestedChange.raises_errors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from circuits import Circuit
from streaming.errors import StateMismatchError, TargetError
from streaming.sink.given_inputs import GivenInputs
from streaming.sink.output import Output, OutputRouting, route_outputs
from streaming.sink.view_changes import ReplaceViews, RequestedChange
from streaming.state.program_change import (
    ChangeOptions,
    check_sliced_start,
    current_options,
    find_other_program,
)

__all__ = ["SlicedStart", "find_sliced_start"]


class SlicedStart(NamedTuple):
    """How a sink starts.

    Attributes:
        circuit: A circuit of the views of the state directory, without rows.
        routing: The outputs of those views that the new program has, too.
        request: The change to the new program.
    """

    circuit: Circuit
    routing: OutputRouting
    request: RequestedChange


def find_sliced_start(
    circuit: Circuit, outputs: Sequence[Output], state_dir: Any, change: ChangeOptions
) -> SlicedStart | None:
    """Return how a sink starts if its state directory has other views; otherwise None.

    Args:
        circuit: The new program; it gets no rows.
        outputs: Its outputs.
        state_dir: The state directory.
        change: The options of the change.

    Raises:
        StateMismatchError: The change is not possible in slices.
        StateError: The directory cannot be read, or its views cannot be compiled again.
    """
    new = circuit.spec
    stored = find_other_program(state_dir, new)
    if stored is None:
        return None
    change = current_options(change, state_dir)
    check_sliced_start(stored, new, change)
    # Limits and formulas are those of the new program.
    options = replace(
        new.options,
        outputs=stored.options.outputs,
        materialize=stored.options.materialize,
    )
    old = circuit.with_spec(replace(stored, options=options))
    try:
        routing = route_outputs(old, [output for output in outputs if output.view in old.outputs])
    except TargetError as error:
        raise StateMismatchError(
            f"the earlier views go on while the new ones are computed in slices, and {error}; or "
            "leave out rows_per_batch and seconds_per_batch (--slice-seconds)"
        ) from error
    request = RequestedChange(
        ReplaceViews(new, outputs), GivenInputs(change, old), raises_errors=True
    )
    return SlicedStart(old, routing, request)
