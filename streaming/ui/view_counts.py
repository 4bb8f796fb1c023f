"""Tally: the numbers of a view that are drawn over time.

A view that is one row for all, as ``SELECT count(*), max(price) ...`` without GROUP BY, is drawn by
the numbers in it; any other by how many rows it has, duplicates counted. Both follow from deltas.
Where they begin is known of a view that is materialized, or empty at first. Of another one, which
had a state before this process, the number of rows is unknown: then it is None, ``is_partial`` says
so, and ``change`` says by how many rows it changed since. A sum of weights that is negative is no
number of rows, and None as well.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from circuits import Circuit
from circuits.plan.nodes import Aggregate, Filter, FinalAggregate, Map
from circuits.runtime.graph import Graph
from circuits.schema import WEIGHT
from dbsp_wcoj.storage.run import Run
from streaming.ui.row_texts import Int64Array, is_number, weights_of

__all__ = ["ViewCounts", "is_single"]

MAX_NUMBERS: Final = 4


class ViewCounts:
    """The numbers of one view, step by step.

    Args:
        circuit: The circuit, at the state before the first delta that is counted.
        view: One of its outputs.
    """

    def __init__(self, circuit: Circuit, view: str) -> None:
        self._circuit = circuit
        self._view = view
        self._weights: dict[int, tuple[Run, int]] = {}
        self._is_kept = view in circuit.materialized
        schema = circuit.schema(view).arrow
        self._columns = [f.name for f in schema if f.name != WEIGHT and is_number(f.type)][
            :MAX_NUMBERS
        ]
        self.is_single = bool(self._columns) and is_single(circuit.graph, view)
        #: What the numbers are.
        self.names = self._columns if self.is_single else ["rows"]
        #: Whether the number of rows is unknown, as the view is not kept and was not empty.
        self.is_partial = False
        #: Rows inserted less rows deleted since this process began, where it is unknown.
        self.change = 0
        self._found: list[float | None] = [None] * len(self.names)
        self._total = 0
        self._is_begun = False
        self._was_stepped = circuit.graph.steps > 0

    def take(
        self, table: pa.Table, weights: Int64Array, mode: str, *, batch_id: int, replayed: bool
    ) -> list[float | None]:
        """The numbers after a micro-batch; None is unknown, or NULL.

        Args:
            table: What the view gave out; its step is committed.
            weights: Its weights.
            mode: In which form (`streaming.targets.output_mode`).
            batch_id: The micro-batch.
            replayed: Whether it had been given out before.

        Complexity:
            O(rows given out); once also O(rows of the view), where it is materialized and holds
            rows that were there before.
        """
        is_first, self._is_begun = not self._is_begun, True
        if is_first and not self.is_single and not self._is_kept:
            self.is_partial = batch_id > 0 or self._was_stepped
        if self.is_single:
            self._take_row(table, weights, mode, is_first=is_first)
        elif mode == "complete":
            self._found, self.is_partial = _rows(int(weights.sum())), False
        elif self._is_kept:
            self._take_kept(weights, mode, is_first=is_first, replayed=replayed)
        elif is_first or not replayed:
            self.change += int(weights.sum())
            self._found = [None] if self.is_partial else _rows(self.change)
        return self._found

    def _take_kept(self, weights: Int64Array, mode: str, *, is_first: bool, replayed: bool) -> None:
        if is_first or mode == "upsert":
            self._total = self._whole()
        elif not replayed:
            self._total += int(weights.sum())
        self._found = _rows(self._total)

    def _take_row(self, table: pa.Table, weights: Int64Array, mode: str, *, is_first: bool) -> None:
        if not table.num_rows and is_first and self._is_kept:
            table = self._circuit.views[self._view]
            weights = weights_of(table)
        comes = np.flatnonzero(weights > 0)
        if len(comes):
            place = int(comes[0])
            self._found = [_number(table.column(name)[place].as_py()) for name in self._columns]
        elif len(weights) or mode == "complete":  # the row is gone, as by HAVING
            self._found = [None] * len(self.names)

    def _whole(self) -> int:
        """The sum of all weights of the view; a run is added up once."""
        known, self._weights = self._weights, {}
        trace = self._circuit.views.trace(self._view)
        for run in trace.arrangements[0].spine.runs:
            found = known.get(id(run)) or (run, int(run.read()[1].sum()))
            self._weights[id(run)] = found
        return sum(weight for _, weight in self._weights.values())


def is_single(graph: Graph, view: str) -> bool:
    """Whether a view is the one row of an aggregate over everything."""
    number = graph.views[view]
    while True:
        match graph.nodes[number].plan:
            case Map() | Filter():
                (number,) = graph.nodes[number].inputs
            case Aggregate(_, keys, _):
                return not keys
            case FinalAggregate(_, keys, _):
                return not keys
            case _:
                return False


def _rows(total: int) -> list[float | None]:
    """A number of rows; a sum of weights below zero is none."""
    return [total if total >= 0 else None]


def _number(value: Any) -> float | None:
    return None if value is None else value if isinstance(value, int) else float(value)
