"""Outputs: the target of each view, and the mode in which its changes are written.

::

    ViewSink(circuit, [Output("waiting", SqlTarget(connect), mode="upsert", keys=["nr"])])

A circuit is a compiled set of views. A target is the external table or the files that the sink
writes the changes of a view to. A published table contains these changes for one micro-batch.

The sink stores each published table in the state directory before it writes it to the target. The
metadata of the table's schema contains the output mode. Therefore the sink detects that a
micro-batch is replayed after its mode was changed, and raises an error: a target must not receive
one micro-batch in two modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from circuits import Circuit, UnknownViewError
from circuits.schema import WEIGHT
from circuits.types.arrow_types import empty_table
from dbsp_wcoj.cached_property import cached_property
from streaming.errors import TargetError
from streaming.state.version_summary import PublishedTable
from streaming.targets.frame import FrameTarget, is_read_from_files, takes_whole_views
from streaming.targets.output_mode import MODE_KEY, Mode, OutputMode, PostStepReader
from streaming.targets.target import (
    ParallelTarget,
    PartwiseTarget,
    RecordingTarget,
    ReplacingTarget,
    Target,
    ViewDelta,
)

__all__ = [
    "OnDelta",
    "Output",
    "OutputRouting",
    "Outputs",
    "list_outputs",
    "route_outputs",
]

#: A function that is called with the changes of a view in a micro-batch, and its batch id; and with
#: ``is_whole``, if it has such a parameter (`streaming.targets.frame`).
OnDelta = Callable[..., object]


@dataclass(frozen=True)
class Output:
    """One view, its target and its output mode.

    Attributes:
        view: An output of the circuit.
        target: A `Target`, or a function ``(frame, batch_id)`` or ``(frame, batch_id, is_whole)``.
            Without a target the changes are only in the state directory and in ``ViewSink.last``.
        mode: ``"delta"``: the changed rows with weights. ``"upsert"``: for each key that the
            micro-batch changes, its current row (weight 1), or a tombstone (weight -1) if the key
            was deleted; every key must have one row. ``"append"``: the new rows without weights,
            of a view that loses no rows. ``"complete"``: the whole view after each micro-batch,
            for small views.
        keys: The key columns, in mode ``"upsert"``.

    Raises:
        TargetError: The target is neither a target nor a function, the mode is unknown, or the keys
            do not fit the mode.

    >>> Output("waiting", mode="upsert", keys=["nr"]).output_mode.needs_view
    True
    """

    view: str
    target: Target | OnDelta | None = None
    mode: Mode = "delta"
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self.output_mode.keys)
        if not (self.target is None or callable(self.target) or isinstance(self.target, Target)):
            raise TargetError(
                f"view {self.view!r}: {self.target!r} is not a target: give an object with a "
                "method write(delta), or a function of a frame and a batch id"
            )

    @cached_property
    def output_mode(self) -> OutputMode:
        """The mode with its keys."""
        return OutputMode(self.mode, self.keys)

    @property
    def accepts_slices(self) -> bool:
        """True if the initial content of the view can be written in several micro-batches."""
        if self.mode == "complete":
            return False
        target = self.target
        if callable(target):
            return takes_whole_views(target)
        return target is None or (isinstance(target, ReplacingTarget) and target.replaces_views)

    @property
    def writes_in_parallel(self) -> bool:
        """True if a thread may write this view while others write other views."""
        return isinstance(self.target, ParallelTarget) and self.target.writes_in_parallel

    @property
    def target_name(self) -> str:
        """The kind of the target, for messages."""
        if self.target is None:
            return "no target"
        name = getattr(self.target, "__name__", "a function") if callable(self.target) else ""
        return name or type(self.target).__name__


#: The argument ``outputs`` of a sink: one target for all views, or a list of outputs.
Outputs = Iterable[Output] | Target | OnDelta | None


@dataclass(frozen=True)
class OutputRouting:
    """The outputs of a sink by view.

    A view without an output has mode ``delta``, and its changes are not written to a target.
    """

    outputs: Mapping[str, Output]

    def output_of(self, view: str) -> Output:
        """Return the output of a view."""
        return self.outputs.get(view) or Output(view)

    def with_further(self, other: OutputRouting | None) -> OutputRouting:
        """Return these outputs, and those of views that have none here."""
        return self if other is None else OutputRouting({**other.outputs, **self.outputs})

    def tables(
        self, deltas: Mapping[str, pa.Table], after: Callable[[str], PostStepReader]
    ) -> dict[str, pa.Table]:
        """Return the table to publish for each view, in its output mode.

        Args:
            deltas: The delta of each view: changed rows with nonzero weights, each row once.
            after: Returns a reader of a materialized view as it is after the step.

        Raises:
            TargetError: A view in mode ``upsert`` does not have one row per key.
        """
        tables = {}
        for view, delta in deltas.items():
            mode = self.output_of(view).output_mode
            tables[view] = mode.publish(view, delta, after(view) if mode.needs_view else None)
        return tables

    def publish(
        self,
        view: str,
        batch_id: int,
        table: PublishedTable,
        *,
        state_id: str,
        files: tuple[str, ...],
        previous: int | None,
        session: SparkSession | None,
        is_repeated: bool = False,
    ) -> None:
        """Write a published table to the target of its view, if the view has one.

        An error of the target is raised unchanged.

        Args:
            view: The view.
            batch_id: The micro-batch.
            table: The table. One in files is read only if the target needs it in this process.
            state_id: As for `ViewDelta`.
            files: As for `ViewDelta`.
            previous: As for `ViewDelta`.
            session: Makes the DataFrame for a target that is a function; None if there is none.
            is_repeated: True if the micro-batch may have been published before. Then a table in
                files is not read if the target holds the micro-batch.

        Raises:
            TargetError: The micro-batch is replayed, and was published in another mode before.
        """
        output = self.output_of(view)
        if output.target is None:
            return
        mode, stored = output.output_mode, table.schema.metadata[MODE_KEY].decode()
        if stored != str(mode):
            raise TargetError(
                f"view {view!r}: micro-batch {batch_id} was published as {stored} and is replayed "
                f"in a sink that publishes it as {mode}: start the query once with the earlier "
                "mode, and change the mode after that"
            )
        if is_repeated and not isinstance(table, pa.Table):
            held = self.last_batch(view, table.schema.remove_metadata(), state_id)
            if held is not None and held >= batch_id:
                return
        read_parts: Callable[[], Iterator[pa.Table]] | None = None
        if isinstance(table, pa.Table):
            rows = table
        elif callable(output.target) and is_read_from_files(table.schema, mode.mode, files):
            rows = table.schema.empty_table()  # the frame reads the files
        elif (
            isinstance(output.target, PartwiseTarget)
            and output.target.reads_parts
            and len(table.checksums) > 1
        ):
            rows, read_parts = table.schema.empty_table(), table.read_parts
        else:
            rows = table.read()
        delta = ViewDelta(
            view,
            batch_id,
            rows.replace_schema_metadata(None),
            mode.mode,
            tuple(mode.keys),
            state_id=state_id,
            files=files,
            previous=previous,
            read_parts=read_parts,
        )
        if callable(output.target):
            assert session is not None
            FrameTarget(output.target, session).write(delta)
        else:
            output.target.write(delta)

    def last_batch(self, view: str, columns: pa.Schema, state_id: str) -> int | None:
        """Return the last micro-batch of a view that its target holds.

        Returns:
            The result of `RecordingTarget.last_batch`; None if the target does not know it, or
            receives the whole view with each micro-batch.

        Raises:
            TargetError: The target cannot be read.
        """
        output = self.output_of(view)
        if output.mode == "complete" or not isinstance(output.target, RecordingTarget):
            return None
        return output.target.last_batch(
            ViewDelta(
                view,
                0,
                empty_table(columns),
                output.mode,
                tuple(output.keys),
                state_id=state_id,
            )
        )


def route_outputs(circuit: Circuit, outputs: Outputs) -> OutputRouting:
    """Check the outputs of a sink against its circuit.

    Raises:
        UnknownViewError: An output names a view that is not an output of the circuit.
        TargetError: A view has two outputs, a key is not a column of its view, or the view is not
            materialized and its mode needs it.
    """
    by_view: dict[str, Output] = {}
    for output in list_outputs(circuit.outputs, outputs):
        if output.view not in circuit.outputs:
            raise UnknownViewError(
                f"outputs: {output.view!r} is not an output of the circuit; outputs are "
                f"{', '.join(circuit.outputs)}"
            )
        if output.view in by_view:
            raise TargetError(
                f"outputs: view {output.view!r} has two outputs: give one, whose target writes to "
                "both places"
            )
        _check_mode(circuit, output)
        by_view[output.view] = output
    return OutputRouting(by_view)


def list_outputs(views: Sequence[str], outputs: Outputs) -> list[Output]:
    """Return the outputs of views; a single target is that of each of them.

    Raises:
        TargetError: ``outputs`` is neither a list of outputs nor a target.
    """
    if outputs is None:
        return []
    if isinstance(outputs, Iterable) and not isinstance(outputs, str | Mapping | Target):
        listed = list(outputs)
        if all(isinstance(output, Output) for output in listed):
            return listed
    elif callable(outputs) or isinstance(outputs, Target):
        return [Output(view, outputs) for view in views]
    raise TargetError(
        f"outputs is {outputs!r}: give a list of Output(view, target), or one target or function "
        "for all views"
    )


def _check_mode(circuit: Circuit, output: Output) -> None:
    view, mode = output.view, output.output_mode
    mode.check(view, [name for name in circuit.schema(view).arrow.names if name != WEIGHT])
    if mode.needs_view and view not in circuit.materialized:
        raise TargetError(
            f"view {view!r}: output mode {mode.mode!r} needs the whole view, and the view is not "
            f"materialized: compile the circuit with materialize=[{view!r}]"
        )
