"""Linear operators: filter, map, union, negate. Each is its own incremental form.

::

    Q(a + b) = Q(a) + Q(b),   so   Q^Δ = Q

    filter[p](Z)[x] = Z[x] if p(x) is TRUE else 0
    map[f](Z)[y]    = Σ over x with f(x) = y of Z[x]
    union(Y, Z)     = Y + Z
    negate(Z)       = -Z

An example stream through ``filter[x > 1]`` and through ``map[x / 2]`` (whole numbers):

    delta     {1: +1, 2: +1}    {2: -1, 3: +2}
    filter    {2: +1}           {2: -1, 3: +2}
    map       {0: +1, 1: +1}    {1: +1}

They have no state. A step computes O(|d|) values of each expression for a delta of |d| rows. A map
also sorts its result.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, theorem 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from circuits.plan.expressions import Column, Expression, Literal, share_subexpressions
from circuits.plan.nodes import Fields
from circuits.runtime.code_evaluation import CodeEvaluator
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.predicates import true_rows
from circuits.runtime.row_batch import RowBatch, Rows, UnsortedRows
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.zset import Int64Array, accumulate, add_in_order, consolidated_rows

__all__ = ["FilterOperator", "MapOperator", "NegateOperator", "UnionOperator"]

# Z-sets of at least so many rows may be projected in slices.
MIN_SLICED_MAP_ROWS: Final = 1 << 18
SLICE_ROWS: Final = 1 << 15
# The least number of rows per result for which slices pay off.
MIN_ROWS_PER_RESULT: Final = 2


class FilterOperator:
    """Outputs the rows for which a predicate is true."""

    def __init__(self, predicate: Expression, fields: Fields, codecs: Codecs) -> None:
        self.predicate = predicate
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in fields]
        self._names = [field.name for field in fields]

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Filter a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return zset
        passing = self.passing(zset)
        if len(passing) == len(zset):
            return zset
        return ZSet(zset.row_array.take(passing, axis=1), zset.weight_array.take(passing))

    def passing(self, rows: Rows) -> Int64Array:
        """Return the positions of the rows for which the predicate is true; there are rows."""
        batch = RowBatch(rows, self._columns, self._codecs, self._names)
        return true_rows(self.predicate, batch).nonzero()[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Filter a delta."""
        return self.evaluate(deltas), None


class MapOperator:
    """Evaluates expressions for each row; the weights of equal results are added.

    Attributes:
        expressions: The expressions; equal parts are the same object.
        columns: The columns to copy if all expressions are columns; None otherwise.
    """

    def __init__(self, expressions: Sequence[Expression], fields: Fields, codecs: Codecs) -> None:
        self.expressions = share_subexpressions(expressions)
        copied = [e.index for e in self.expressions if isinstance(e, Column)]
        is_projection = bool(copied) and len(copied) == len(self.expressions)
        self.columns = np.array(copied, np.int64) if is_projection else None
        self._can_be_sliced = all(isinstance(e, Column | Literal) for e in self.expressions)
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in fields]
        self._names = [field.name for field in fields]

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Map a Z-set; LimitError if the values exceed the limit of bytes."""
        (zset,) = inputs
        return self._map(zset, budget)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Map a delta.

        Raises:
            LimitError: The values exceed the step's limit of bytes.
        """
        (delta,) = deltas
        return self._map(delta, context.budget), None

    def map_unsorted(self, rows: ZSet | UnsortedRows, budget: Budget | None) -> UnsortedRows:
        """Map rows, at least one, without sorting the results; as `evaluate` otherwise.

        No two of the rows may cancel out, because an expression may fail for a row.
        """
        if self.columns is not None:
            results = rows.row_array.take(self.columns, axis=0)
        else:
            results = self.compute(rows, budget)
        return UnsortedRows(results, rows.weight_array)

    def _map(self, zset: ZSet, budget: Budget | None) -> ZSet:
        if not len(zset):
            return ZSet.empty(len(self.expressions))
        if self._can_be_sliced and len(zset) >= MIN_SLICED_MAP_ROWS:
            slices = self._map_slices(zset, budget)
            if slices is not None:
                return add_in_order(slices, len(self.expressions))
        return consolidated_rows(
            self.map_unsorted(zset, budget).row_array, zset.weight_array.copy()
        )

    def _map_slices(self, zset: ZSet, budget: Budget | None) -> list[ZSet] | None:
        """Map a large Z-set slice by slice, in arrays that fit in the cache.

        Returns:
            The results of the slices. None if those of one slice do not follow those before, as a
            projection to the first columns does, or if the first slice has few equal results.
        """
        results: list[ZSet] = []
        for start in range(0, len(zset), SLICE_ROWS):
            rows = slice(start, start + SLICE_ROWS)
            part = ZSet(zset.row_array[:, rows], zset.weight_array[rows])
            unsorted = self.map_unsorted(part, budget)
            try:
                result = consolidated_rows(unsorted.row_array, part.weight_array.copy())
            except WeightOverflowError:  # the sum of all slices may be smaller
                return None
            if not results and len(result) * MIN_ROWS_PER_RESULT > SLICE_ROWS:
                return None
            if not len(result):
                continue
            if results:
                last = tuple(results[-1].row_array[:, -1].tolist())
                if last > tuple(result.row_array[:, 0].tolist()):
                    return None
            results.append(result)
        return results

    def compute(self, rows: Rows, budget: Budget | None) -> Int64Array:
        """Return a new array of the results for each row, in the order of the rows."""
        evaluator = CodeEvaluator(RowBatch(rows, self._columns, self._codecs, self._names), budget)
        results = np.empty((len(self.expressions), len(rows)), np.int64)
        for column, expression in enumerate(self.expressions):
            results[column] = evaluator.codes(expression)
        return results


class UnionOperator:
    """Adds its inputs."""

    def __init__(self, arity: int) -> None:
        self._arity = arity

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Add Z-sets."""
        return accumulate([zset for zset in inputs if len(zset)], self._arity)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Add deltas."""
        return self.evaluate(deltas), None


class NegateOperator:
    """Negates the weight of every row."""

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Negate a Z-set."""
        return -inputs[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Negate a delta."""
        return self.evaluate(deltas), None
