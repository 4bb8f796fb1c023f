"""Given inputs: rows that the caller of `ViewSink.add_view` gives, until the change is committed.

::

    add_view(backfill={"orders": frame})   rows as of the last micro-batch
    each later micro-batch                 its accepted rows are added to them
    change at once, or slices              read them (`circuits.state.given_rows`)

The rows are read once, in the call of `add_view`. A change that waits for an earlier one, or whose
new views are computed in slices, is made some micro-batches later. So the deltas of these inputs
are added after each commit. If a commit was missed, the rows no longer belong to the state, and the
change fails with an error instead of computing wrong views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuits import Circuit, ProgramChangeError
from circuits.state.given_rows import GivenRows
from dbsp_wcoj.storage.trace import TraceStep
from streaming.engine.engine import StagedBatch
from streaming.state.program_change import ChangeOptions, check_backfill

__all__ = ["GivenInputs"]


class GivenInputs:
    """The given rows of a change.

    Args:
        options: The options of the change; its DataFrames are read.
        circuit: The circuit of the sink, with the columns of the inputs.

    Attributes:
        options: As given, with `GivenRows` instead of DataFrames and tables.

    Raises:
        ProgramChangeError: A name is not an input, or rows are neither a DataFrame nor a table.
    """

    def __init__(self, options: ChangeOptions, circuit: Circuit) -> None:
        check_backfill(options, circuit.inputs)
        tables = options.with_tables().backfill
        self._rows: Mapping[str, GivenRows] = {
            name: GivenRows(circuit.inputs[name], table) for name, table in tables.items()
        }
        self.options = replace(options, backfill=self._rows, backfill_batch_id=None)
        self._is_assigned = options.backfill_batch_id is not None
        self._batch_id = options.backfill_batch_id

    def assign_batch(self, batch_id: int | None) -> None:
        """Assign the rows to the micro-batch after which they are; later calls check that it is so.

        Args:
            batch_id: The last micro-batch of the state; None before the first one.

        Raises:
            ProgramChangeError: They are those after another micro-batch.
        """
        if not self._is_assigned:
            self._is_assigned, self._batch_id = True, batch_id
        if self._rows and batch_id != self._batch_id:
            raise ProgramChangeError(
                f"the rows that backfill gives are those {_describe_version(self._batch_id)}, "
                f"and the state is that {_describe_version(batch_id)}: micro-batches were "
                "committed while the rows were read, or the sink has loaded its state again; pause "
                "the stream, and request the change again with the rows after the last micro-batch"
            )

    def add(self, staged: StagedBatch, previous: int | None) -> list[TraceStep]:
        """Add the rows of a micro-batch, after its commit.

        Args:
            staged: The micro-batch.
            previous: The micro-batch before it; None if it is the first one.

        Returns:
            The steps of the traces of the rows.

        Raises:
            ProgramChangeError: The rows are not those after ``previous``.
            CircuitError: Columns that no view has read so far do not fit their schema.

        Complexity:
            O(rows of the micro-batch).
        """
        self.assign_batch(previous)
        steps = []
        for name, rows in self._rows.items():
            delta = staged.accepted_rows(name)
            step = None if delta is None else rows.add(delta)
            if step is not None:
                steps.append(step)
        self._batch_id = staged.batch_id
        return steps


def _describe_version(batch_id: int | None) -> str:
    return "before the first micro-batch" if batch_id is None else f"after micro-batch {batch_id}"
