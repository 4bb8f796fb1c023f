"""Routes: which target each view's changes go to, and in which form.

What was given out is stored with the form that it has, in the metadata of its schema, since a
micro-batch may come again to a sink that is to give it out in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, UnknownViewError
from circuits.schema import WEIGHT
from streaming.errors import TargetError
from streaming.sink.output_modes import Output, PostStepReader
from streaming.targets.frame import FrameTarget
from streaming.targets.target import Target, ViewDelta

__all__ = ["OnDelta", "OutputRouting", "routes_of"]

OnDelta = Callable[[DataFrame, int], object]

FORM: Final = b"dbsp_wcoj.output"


@dataclass(frozen=True)
class OutputRouting:
    """Targets and output modes by view.

    Attributes:
        targets: What takes the changes of a view: a target, or a function ``(frame, batch_id)``.
        outputs: The form of a view's changes, where it is not the delta.
    """

    targets: Mapping[str, OnDelta | Target]
    outputs: Mapping[str, Output]

    def tables(
        self, deltas: Mapping[str, pa.Table], after: Callable[[str], PostStepReader]
    ) -> dict[str, pa.Table]:
        """What a step gives out, by view.

        Args:
            deltas: The consolidated delta of each view.
            after: The whole of a materialized view after the step.

        Raises:
            TargetError: A view does not have one row per key, as its output says.
        """
        tables = {}
        for view, delta in deltas.items():
            output = self.outputs.get(view, Output())
            table = output.table(view, delta, after(view) if output.needs_view else None)
            tables[view] = table.replace_schema_metadata({FORM: str(output)})
        return tables

    def kind_of(self, view: str) -> str:
        """The target of a view, for messages."""
        target = self.targets.get(view)
        if target is None:
            return "no target"
        name = getattr(target, "__name__", "a function") if callable(target) else ""
        return name or type(target).__name__

    def publish(
        self,
        view: str,
        batch_id: int,
        table: pa.Table,
        *,
        state_id: str,
        files: tuple[str, ...],
        session: SparkSession,
    ) -> None:
        """Give a view's changes to its target, if it has one; what that raises passes through.

        Raises:
            TargetError: They were given out in another form before.
        """
        target = self.targets.get(view)
        if target is None:
            return
        output = self.outputs.get(view, Output())
        form = table.schema.metadata[FORM].decode()
        if form != str(output):
            raise TargetError(
                f"view {view!r}: micro-batch {batch_id} was given out by {form} and comes again, "
                f"now to be given out by {output}: start the query once more as it was, and change "
                "the output after that"
            )
        table = table.replace_schema_metadata(None)
        delta = ViewDelta(
            view, batch_id, table, output.mode, output.keys, state_id=state_id, files=files
        )
        if callable(target):
            FrameTarget(target, session).write(delta)
        else:
            target.write(delta)


def routes_of(
    circuit: Circuit,
    on_delta: OnDelta | Target | Mapping[str, OnDelta | Target] | None,
    outputs: Mapping[str, Output],
) -> OutputRouting:
    """The routes of a circuit's outputs, checked.

    Raises:
        UnknownViewError: A name is that of no output.
        TargetError: A mode does not go with its view, or the view is not materialized for it.
    """
    targets: dict[str, OnDelta | Target] = {}
    if isinstance(on_delta, Mapping):
        _check_names(circuit, "on_delta", on_delta)
        targets = dict(on_delta)
    elif on_delta is not None:
        targets = dict.fromkeys(circuit.outputs, on_delta)
    _check_names(circuit, "outputs", outputs)
    for view, output in outputs.items():
        columns = [name for name in circuit.schema(view).arrow.names if name != WEIGHT]
        output.check(view, columns)
        if output.needs_view and view not in circuit.materialized:
            raise TargetError(
                f"view {view!r} is to be given out by {output.mode}(), which needs all of it, and "
                f"is not materialized: make the circuit with materialize=[{view!r}]"
            )
    return OutputRouting(targets, dict(outputs))


def _check_names(circuit: Circuit, role: str, names: Mapping[str, object]) -> None:
    for name in names:
        if name not in circuit.outputs:
            raise UnknownViewError(
                f"{role}: {name!r} is no output of the circuit; outputs are "
                f"{', '.join(circuit.outputs)}"
            )
