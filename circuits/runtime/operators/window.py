"""Window functions: one more column per call, computed from the rows around each row.

::

    window(Z)    = per partition the rows of positive weight in order, a row of weight w as w rows;
                   each with the results of the calls
    window^Δ(d)  = window(I(d)) - window(z⁻¹(I(d)))      for the partitions of rows of d only

An example stream, ``row_number() OVER (PARTITION BY k ORDER BY x)`` of rows (k, x)::

    delta     {(7,3): +1, (7,5): +1}        {(7,4): +1}
    output    {(7,3,1): +1, (7,5,2): +1}    {(7,4,2): +1, (7,5,2): -1, (7,5,3): +1}

State: the rows, once, in the order (partition, sort columns, other columns); see `RowOrder`.

Cost: a step reads the changed partitions as a whole and writes the rows whose results differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.window import Window
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.window_functions import WindowFunctions
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["WindowOperator"]


class WindowOperator:
    """The rows of the input with the results of window functions.

    Args:
        plan: The node; `circuits.plan.window.Window` defines the result.
        codecs: The codes of values.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Order, Scan
    >>> from circuits.plan.window import WindowCall
    >>> plan = Window(
    ...     Scan("r", (Field("x", pa.int64()),)),
    ...     partition=(),
    ...     order=(Order(0),),
    ...     calls=(WindowCall("row_number", (), pa.int64(), "n"),),
    ... )
    >>> WindowOperator(plan, Codecs()).evaluate([ZSet.from_rows([(5,), (3,), (5,)])])
    ZSet({(3, 1): 1, (5, 2): 1, (5, 3): 1})
    """

    def __init__(self, plan: Window, codecs: Codecs) -> None:
        self.arity = len(plan.fields)
        self._order = RowOrder(plan.input.fields, plan.partition, plan.order, codecs)
        self._functions = WindowFunctions(plan, codecs)
        self._rows = Trace(self._order.width)
        self.traces = (self._rows,)
        self.coded = (self._order.coded,)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The result for a whole Z-set."""
        (zset,) = inputs
        stored = self._order.to_trace(zset)
        starts = self._order.group_starts(stored.row_array)
        places = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(stored))))
        return consolidated_rows(*self._results(places, stored.row_array, stored.weight_array))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The change of the rows of the partitions in the delta.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
            EvaluationError: A sum does not fit the type of the result.
        """
        (delta,) = deltas
        if not len(delta):
            return ZSet.empty(self.arity), None
        stored = self._order.to_trace(delta)
        step = self._rows.prepare(stored)
        keys = self._order.keys
        prefixes = stored.row_array[:keys, self._order.group_starts(stored.row_array)]
        found = prefix_lookup(self._rows, prefixes, step=step)
        rows = np.concatenate((prefixes[:, found.places], found.rows))
        old, old_weights = self._results(found.places, rows, found.old)
        new, new_weights = self._results(found.places, rows, found.new)
        change = consolidated_rows(
            np.concatenate((old, new), axis=1), np.concatenate((-old_weights, new_weights))
        )
        return change, step

    def _results(
        self, places: Int64Array, rows: Int64Array, weights: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """The rows with their results, and their weights.

        Args:
            places: The number of each row's partition.
            rows: Rows of whole partitions in the layout of the trace.
            weights: Their weights.
        """
        order = self._order.sort_positions(places, rows)
        # A row of weight w is w rows of weight 1.
        order = np.repeat(order, np.maximum(weights[order], 0))
        places = places[order]
        codes = self._order.to_input(rows[:, order])
        begins: BoolArray = np.concatenate(
            (np.ones(min(len(places), 1), np.bool), places[1:] != places[:-1])
        )
        results = self._functions.results(codes, begins)
        return np.concatenate((codes, results)), np.ones(len(order), np.int64)
