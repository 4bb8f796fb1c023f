"""Single row: checks that no group has a second row.

::

    single(Z)      = Z                     if Σ weights of each group <= 1, else an error
    single^Δ(d)    = d                     the check reads the groups of rows of d only

An example stream of rows (key, x)::

    input     {(7,3): +1}    {(7,3): -1, (7,5): +1}    {(7,6): +1}
    output    {(7,3): +1}    {(7,3): -1, (7,5): +1}    an error that names the group 7

State: one trace with the number of rows of each group. Cost: O(|d| log N) for N groups. A group is
checked at the end of a step, so a step may delete its row and insert another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from circuits.errors import EvaluationError
from circuits.plan.single_row import SingleRow
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows, to_storable

__all__ = ["SingleRowOperator"]


class SingleRowOperator:
    """Passes the rows on, and counts those of each group.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Field, Scan
    >>> number = pa.int64()
    >>> plan = SingleRow(Scan("r", (Field("key", number), Field("x", number))), 1, ("key",))
    >>> SingleRowOperator(plan, Codecs()).evaluate([ZSet.from_rows([(7, 3), (7, 5)])])
    Traceback (most recent call last):
    ...
    circuits.errors.EvaluationError: a scalar subquery has 2 rows for key = 7; ...
    """

    # The trace has the keys only, so old groups can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: SingleRow, codecs: Codecs) -> None:
        self._key_count = plan.key_count
        self._names = plan.names
        self._codecs = [codecs.codec(field.type) for field in plan.fields[: plan.key_count]]
        self.trace = Trace(max(plan.key_count, 1))
        self.traces = (self.trace,)
        self.coded_columns = (dictionary_columns(self._codecs),)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return the rows of a whole Z-set.

        Raises:
            EvaluationError: A group has several rows.
        """
        (zset,) = inputs
        groups = self._count(zset)
        self._check(groups, groups.weights)
        return zset

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the delta of the rows, and stage the counts of their groups.

        Raises:
            EvaluationError: A group has several rows after the step.
            WeightOverflowError: The number of rows of a group would leave int64.
        """
        (delta,) = deltas
        groups = self._count(delta)
        if not len(groups):
            return delta, None
        staged = self.trace.prepare(groups)  # raises on overflow, so the sum below cannot wrap
        self._check(groups, self.trace.weights_of(groups) + groups.weights)
        return delta, staged

    def _count(self, zset: ZSet) -> ZSet:
        """Return the groups of some rows, with the number of rows as the weight."""
        keys = zset.row_array[: self._key_count]
        if not self._key_count:
            keys = np.zeros((1, len(zset)), np.int64)
        return to_storable(consolidated_rows(np.ascontiguousarray(keys), zset.weight_array.copy()))

    def _check(self, groups: ZSet, counts: Int64Array) -> None:
        surplus = np.flatnonzero(counts > 1)
        if not len(surplus):
            return
        first = int(surplus[0])
        values = [
            f"{name} = {codec.decode(groups.row_array[key, first : first + 1])[0].as_py()!r}"
            for key, (name, codec) in enumerate(zip(self._names, self._codecs, strict=True))
        ]
        group = f" for {', '.join(values)}" if values else ""
        raise EvaluationError(
            f"a scalar subquery has {int(counts[first])} rows{group}; select one of them, "
            "as by max(x) or LIMIT 1"
        )
