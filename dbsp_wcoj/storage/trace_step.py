"""A step of a trace: the delta of one relation, staged; and several that are laid on each other.

A staged step is a run in each column order and changes nothing until it is committed. Steps can be
laid on the trace first, one on top of the other, so that the next one is made as if they had
happened (`dbsp_wcoj.storage.trace.Trace.push_overlay`): the iterations of a recursion within one
step. Lifted again, their sum is one staged step like any other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.storage.arena import FEW
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array, ZSet, accumulate, consolidated_rows

if TYPE_CHECKING:
    from dbsp_wcoj.storage.trace import Trace

__all__ = ["ColumnOrder", "Overlaid", "TraceStep", "order_array", "run_in_order"]

ColumnOrder = tuple[int, ...]


def run_in_order(zset: ZSet, order: ColumnOrder) -> Run:
    """The run of a non-empty Z-set in a column order."""
    return Run.of(zset, order_array(order))


@cache
def order_array(order: ColumnOrder) -> Int64Array:
    """A column order as kernels read it."""
    return np.array(order, np.int64)


class TraceStep:
    """The delta of one step of one relation: its run in each order, not yet part of the trace."""

    __slots__ = ("_arena", "_delta", "_runs", "_version", "compact", "trace")

    def __init__(self, trace: Trace, delta: ZSet) -> None:
        """Stage a non-empty delta of ``trace``, arranged as the trace is."""
        self._delta: ZSet | None = delta
        # Whether a sum of runs might leave int64, so that only one run may be left.
        self.compact = False
        self.trace = trace
        self._version = trace.version
        # Where the runs are, if they are in an arena.
        self._arena = trace.arena if len(delta) <= FEW else None
        if self._arena is None:
            self._runs = {order: run_in_order(delta, order) for order in trace.orders}
        else:
            self._runs = self._arena.runs_of(delta)

    @staticmethod
    def of_runs(trace: Trace, runs: dict[ColumnOrder, Run]) -> TraceStep:
        """Stage a delta that is there as non-empty runs, one for each order of the trace."""
        step = TraceStep.__new__(TraceStep)
        step._delta, step._runs, step._arena = None, runs, None
        step.compact, step.trace, step._version = False, trace, trace.version
        return step

    @property
    def delta(self) -> ZSet:
        """The rows of the step."""
        if self._delta is None:
            order, run = next(iter(self._runs.items()))
            columns, weights = run.read()
            rows = np.empty_like(columns)
            rows[list(order)] = columns
            self._delta = consolidated_rows(rows, weights)
        return self._delta

    def run(self, order: ColumnOrder) -> Run:
        """The delta's run in a column order, built once."""
        run = self._runs.get(order)
        if run is None:
            run = self._runs[order] = run_in_order(self.delta, order)
        return run

    @property
    def changes(self) -> tuple[TraceStep, ...]:
        """The traces that change: this one (what several staged steps list together)."""
        return (self,)

    @property
    def runs(self) -> dict[ColumnOrder, Run]:
        """The delta's run in each order that the trace is arranged in."""
        return {order: self.run(order) for order in self.trace.orders}

    def commit(self) -> None:
        """Make the delta part of the trace.

        Raises:
            DbspWcojError: The trace has changed since the step was prepared.
        """
        trace = self.trace
        if trace.version != self._version:
            raise DbspWcojError(
                f"step prepared at version {self._version}, but the trace is at version "
                f"{trace.version}; prepare it again"
            )
        trace.version += 1
        arena = None if self.compact else self._arena
        if arena is not None and arena is trace.arena and arena.add(self._runs):
            return
        for order, arrangement in trace._arrangements.items():
            if self.compact:
                arrangement.spine.compact()
            arrangement.spine.append(self.run(order))
            if self.compact:
                arrangement.spine.compact()


class Overlaid(NamedTuple):
    """Steps that were laid on a trace, and what their runs have become, by column order."""

    trace: Trace
    steps: list[TraceStep]
    runs: dict[ColumnOrder, list[Run]]

    def total(self) -> TraceStep | None:
        """The sum of the steps as one staged step; None if it has no rows.

        Raises:
            WeightOverflowError: The weight of a row would leave int64.

        Complexity:
            Amortised O(log steps) row copies per row and arrangement, most made while laying.
        """
        steps, trace = self.steps, self.trace
        if len(steps) == 1:
            return steps[0]
        if not self.runs or sum([len(step.delta) for step in steps]) <= FEW:
            delta = accumulate([step.delta for step in steps], trace.arity)
            return trace.prepare(delta) if len(delta) else None
        summed = {order: Run.sum_of(of) for order, of in self.runs.items() if of}
        summed = {order: run for order, run in summed.items() if run.rows}
        return trace.checked(TraceStep.of_runs(trace, summed)) if summed else None
