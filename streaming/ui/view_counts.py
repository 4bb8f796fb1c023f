"""View counts: the numbers of a view that are drawn over time.

For a view of one row, such as ``SELECT count(*), max(price) ...`` without GROUP BY, these are the
numbers in that row. For any other view it is the number of rows, with duplicates. Both are computed
from deltas. Their initial value is known if the view is materialized, or empty at first. Otherwise
the view had a state before this process, and the number of rows is unknown: it is None,
``is_partial`` is True, and ``change`` is the change of the number of rows since this process began.
A negative sum of weights is not a number of rows, so it is None as well.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from circuits import Circuit
from circuits.plan.nodes import Aggregate, Filter, Map
from circuits.plan.physical_nodes import FinalAggregate
from circuits.runtime.graph import Graph
from circuits.schema import WEIGHT
from dbsp_wcoj.storage.run import Run
from streaming.ui.row_texts import Int64Array, is_number, weights_of

__all__ = ["ViewCounts", "is_single"]

MAX_NUMBERS: Final = 4


class ViewCounts:
    """The numbers of one view after each step.

    Args:
        circuit: The circuit, at the state before the first counted delta.
        view: The name of an output.
        is_new: True if the view was empty before its first delta, although the circuit has state.
    """

    def __init__(self, circuit: Circuit, view: str, *, is_new: bool = False) -> None:
        self._circuit = circuit
        self._view = view
        # By the `id` of a run of the view: the run, and the sum of its weights.
        self._run_sums: dict[int, tuple[Run, int]] = {}
        self._is_materialized = view in circuit.materialized
        schema = circuit.schema(view).arrow
        self._columns = [f.name for f in schema if f.name != WEIGHT and is_number(f.type)][
            :MAX_NUMBERS
        ]
        #: True if the view is the single row of an aggregate, with numbers in it.
        self.is_single = bool(self._columns) and is_single(circuit.graph, view)
        #: The names of the numbers.
        self.names = self._columns if self.is_single else ["rows"]
        #: True if the number of rows is unknown: the view is not materialized and was not empty.
        self.is_partial = False
        #: The inserted rows minus the deleted rows since this process began.
        self.change = 0
        self._numbers: list[float | None] = [None] * len(self.names)
        self._total = 0
        self._has_begun = False
        self._is_new = is_new
        self._was_stepped = circuit.graph.steps > 0

    def continue_with(self, circuit: Circuit) -> None:
        """Continue with the same view of another circuit, which has its state."""
        self._circuit = circuit
        self._run_sums.clear()

    def update(
        self, table: pa.Table, weights: Int64Array, mode: str, *, batch_id: int, replayed: bool
    ) -> list[float | None]:
        """Add a micro-batch and return the numbers after it; None is unknown, or NULL.

        Args:
            table: The published table of the view; its step is committed.
            weights: The weights of the table's rows.
            mode: The output mode (`streaming.targets.output_mode`).
            batch_id: The micro-batch.
            replayed: True if the table was published before.

        Complexity:
            O(published rows); once also O(rows of the view), if it is materialized and was not
            empty at first.
        """
        is_first, self._has_begun = not self._has_begun, True
        # A replayed table was counted when it was published. But if it is the first table here, an
        # earlier process published it, and this process has not counted it yet.
        was_counted = replayed and not is_first
        if is_first and not self.is_single and not self._is_materialized:
            self.is_partial = not self._is_new and (batch_id > 0 or self._was_stepped)
        if self.is_single:
            self._update_row(table, weights, mode, is_first=is_first)
        elif mode == "complete":
            self._numbers, self.is_partial = _row_count(int(weights.sum())), False
        elif self._is_materialized:
            self._update_total(weights, mode, is_first=is_first, was_counted=was_counted)
        elif not was_counted:
            self.change += int(weights.sum())
            self._numbers = [None] if self.is_partial else _row_count(self.change)
        return self._numbers

    def _update_total(
        self, weights: Int64Array, mode: str, *, is_first: bool, was_counted: bool
    ) -> None:
        if is_first or mode == "upsert":
            self._total = self._sum_weights()
        elif not was_counted:
            self._total += int(weights.sum())
        self._numbers = _row_count(self._total)

    def _update_row(
        self, table: pa.Table, weights: Int64Array, mode: str, *, is_first: bool
    ) -> None:
        if not table.num_rows and is_first and self._is_materialized:
            table = self._circuit.views[self._view]
            weights = weights_of(table)
        inserted = np.flatnonzero(weights > 0)
        if len(inserted):
            row = int(inserted[0])
            self._numbers = [_number(table.column(name)[row].as_py()) for name in self._columns]
        elif len(weights) or mode == "complete":  # the row was deleted, for example by HAVING
            self._numbers = [None] * len(self.names)

    def _sum_weights(self) -> int:
        """Return the sum of all weights of the view; the sum of each run is computed once."""
        previous, self._run_sums = self._run_sums, {}
        trace = self._circuit.views.trace(self._view)
        for run in trace.arrangements[0].spine.runs:
            # Storing the run keeps it alive, so no other run can get its id.
            self._run_sums[id(run)] = previous.get(id(run)) or (run, int(run.read()[1].sum()))
        return sum(weight for _, weight in self._run_sums.values())


def is_single(graph: Graph, view: str) -> bool:
    """Return whether a view is the single row of an aggregate without GROUP BY."""
    number = graph.views[view]
    while True:
        match graph.nodes[number].plan:
            case Map() | Filter():
                (number,) = graph.nodes[number].inputs
            case Aggregate(_, keys, _):
                return not keys
            case FinalAggregate(_, key_count, _):
                return key_count == 0
            case _:
                return False


def _row_count(total: int) -> list[float | None]:
    """Return a sum of weights as a number of rows; None if it is negative."""
    return [total if total >= 0 else None]


def _number(value: Any) -> float | None:
    return value if value is None or isinstance(value, int) else float(value)
