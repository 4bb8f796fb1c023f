"""Temporal filter: the rows that a comparison with the current time selects.

Let v(x) be the value of a row x, b the bound at the time of a step, and b⁻ that of the step before.
The bound never decreases. The state W has the rows that the bound has yet to pass, v(x) >= b⁻::

    v(x) < bound     Q^Δ(d) = d[v < b] + W[b⁻ <= v < b]      rows that the bound has passed enter
    v(x) >= bound    Q^Δ(d) = d[v >= b] - W[b⁻ <= v < b]     and here they leave
    both             W'     = W - W[b⁻ <= v < b] + d[v >= b]

``<=`` and ``>`` are the same with the next greater bound, because values are integers (codes). An
example stream for ``ts > now - 10``::

    now         100           104      106      120
    input       +95 +103 +89           +97      +111
    output      +95 +103               +97 -95  +111 -97 -103

State: one trace, sorted by value. A row leaves it when the bound passes it, so it contains only
rows that the clock will still insert or delete.

A step costs O(|d| log N) for its delta. In every step, even without a delta, two binary searches
per run find the rows that the bound passes (`dbsp_wcoj.storage.range_scan`), at O(1) for each.

Alternative considered: a predicate that is evaluated again for all rows in each step, which costs
the whole relation per step.

Reference: Materialize documentation, temporal filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.errors import CircuitError, EvaluationError
from circuits.plan.current_time import NOW_TYPE
from circuits.plan.expressions import Column, Expression
from circuits.plan.monotone_functions import monotone_argument
from circuits.plan.temporal_filter import TemporalFilter
from circuits.runtime.evaluation import evaluate
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.row_batch import RowBatch
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codecs, dictionary_columns
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["TemporalFilterOperator"]

_MIN_CODE: Final = NULL + 1


class TemporalFilterOperator:
    """Selects rows by a comparison of a value with the current time."""

    def __init__(self, plan: TemporalFilter, codecs: Codecs) -> None:
        fields = plan.input.fields
        self.plan = plan
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in fields]
        self._names = [field.name for field in fields]
        self._value_codec = codecs.codec(plan.value.type)
        assert self._value_codec.ordered
        # For ``<=`` and ``>``, the bound has passed the value that equals it, so add 1 to it.
        self._shift = int(plan.comparison in ("le", "gt"))
        self._enters = plan.comparison in ("lt", "le")
        self.trace = Trace(len(fields) + 1)
        self.traces = (self.trace,)
        self.coded_columns = (dictionary_columns([self._value_codec, *self._columns]),)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Raise an error: a query of the stored rows has no time.

        Raises:
            EvaluationError: Always.
        """
        raise EvaluationError(
            "now() has a value only in a step: put the condition in a view, and query the view"
        )

    def select(self, zset: ZSet, now: int) -> ZSet:
        """Return the rows of a whole Z-set that are selected at a time."""
        values = self._values(zset)
        is_passed = values < self._bound(now)
        return _select(zset, (is_passed if self._enters else ~is_passed) & (values != NULL))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the change of the selected rows by the delta and by the time that has passed.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if context.now is None:
            raise CircuitError("a view reads now(): give the time of the step, step(..., now=...)")
        bound = self._bound(context.now)
        stored_rows = self._find_passed_rows(context.previous_now, bound)
        values = self._values(delta)
        is_passed, is_pending = (values < bound) & (values != NULL), values >= bound
        pending = _select(delta, is_pending)
        change = -stored_rows
        if len(pending):
            rows = np.concatenate((values[None, is_pending], pending.row_array))
            change = change + consolidated_rows(rows, pending.weight_array.copy())
        staged = self.trace.prepare(change) if len(change) else None
        # A stored row is (value, columns of the input).
        passed = consolidated_rows(
            np.ascontiguousarray(stored_rows.row_array[1:]), stored_rows.weight_array.copy()
        )
        if self._enters:
            return _select(delta, is_passed) + passed, staged
        return pending - passed, staged

    def _find_passed_rows(self, previous_now: int | None, bound: int) -> ZSet:
        """Return the rows of the state that the bound passes in this step."""
        low = _MIN_CODE if previous_now is None else self._bound(previous_now)
        if bound <= low:
            return ZSet.empty(self.trace.arity)
        return range_scan(self.trace, tuple(range(self.trace.arity)), low, bound - 1)

    def _bound(self, now: int) -> int:
        """Return the code of the least value that the bound has not passed at a time."""
        # The bound is an expression over the time, with its time zone or without.
        time = pa.array([now], NOW_TYPE).cast(_type_of_now(self.plan.bound))
        values = evaluate(self.plan.bound, [time], 1, ["now"])
        return int(self._value_codec.encode(values)[0]) + self._shift

    def _values(self, zset: ZSet) -> Int64Array:
        """Return the code of the value of each row."""
        value = self.plan.value
        if not len(zset):
            return np.empty(0, np.int64)
        batch = RowBatch(zset, self._columns, self._codecs, self._names)
        if isinstance(value, Column):
            return batch.codes(value.index)
        codes: Int64Array = self._value_codec.encode(
            evaluate(value, batch, batch.rows, self._names)
        )
        return codes


def _type_of_now(bound: Expression) -> pa.DataType:
    """Return the type of the time in a function of it."""
    argument = monotone_argument(bound)
    assert argument is not None
    return argument.type


def _select(zset: ZSet, mask: BoolArray) -> ZSet:
    if mask.all():
        return zset
    return ZSet(np.ascontiguousarray(zset.row_array[:, mask]), zset.weight_array[mask])
