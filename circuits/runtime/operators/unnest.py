"""Unnest: one row per element of the list or map in the last column.

::

    Q(Z)[x, e, i]  =  Σ over lists l with element e at position i of Z[x, l],   so   Q^Δ = Q

An example stream, with positions from 1::

    delta     {1 | [a, b]: +1}                   {1 | [a, b]: -1, 2 | []: +1}
    unnest    {1 | a, 1: +1,  1 | b, 2: +1}      {1 | a, 1: -1,  1 | b, 2: -1}

The code of a list refers to the codes of its elements (`circuits.types.codecs.nested`), which are
the codes of the new column: no value is decoded. It has no state. Cost: O(elements of the delta),
and their sort.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.plan.unnest import Unnest
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import NULL, Codecs
from circuits.types.codecs.nested import Nested
from dbsp_wcoj import ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["UnnestOperator"]


class UnnestOperator:
    """Replaces the list in the last column by its elements, one row each."""

    def __init__(self, plan: Unnest, codecs: Codecs) -> None:
        coding = codecs.codec(plan.input.fields[-1].type).coding
        assert isinstance(coding, Nested) and not coding.is_struct
        self._coding = coding
        self._arity = len(plan.fields)
        self._first_position = plan.first_position
        self._outer = plan.outer

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Unnest a Z-set; LimitError if the rows exceed the limit of bytes."""
        return self._unnest(inputs[0], budget)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Unnest a delta.

        Raises:
            LimitError: The rows exceed the step's limit of bytes.
        """
        return self._unnest(deltas[0], context.budget), None

    def _unnest(self, zset: ZSet, budget: Budget | None) -> ZSet:
        if not len(zset):
            return ZSet.empty(self._arity)
        counts, elements = self._coding.words(np.ascontiguousarray(zset.row_array[-1]))
        repeats = np.maximum(counts, 1) if self._outer else counts
        total = int(repeats.sum())
        if budget is not None:
            budget.add_bytes(total * (self._arity + 1) * 8)
        lists = np.repeat(np.arange(len(counts)), repeats)
        other_columns = len(zset.row_array) - 1
        rows = np.empty((self._arity, total), np.int64)
        rows[:other_columns] = zset.row_array[:other_columns, lists]
        positions = np.arange(total) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        width = elements.shape[1]  # 2 for the keys and values of a map
        is_element = counts[lists] > 0  # False for the row that ``outer`` keeps
        if self._outer:
            rows[other_columns:, ~is_element] = NULL
        rows[other_columns : other_columns + width, is_element] = elements.T
        if self._first_position is not None:
            rows[-1, is_element] = positions[is_element] + self._first_position
        return consolidated_rows(rows, zset.weight_array[lists])
