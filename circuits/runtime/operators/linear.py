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
from functools import reduce

import numpy as np
import pyarrow as pa

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.plan.nodes import Fields
from circuits.runtime.evaluation import evaluate
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.predicates import truth
from circuits.runtime.row_batch import RowBatch, keeps_codes
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.zset import Int64Array, accumulate, consolidated_rows

__all__ = ["FilterOperator", "MapOperator", "NegateOperator", "UnionOperator"]


class FilterOperator:
    """Outputs the rows for which a predicate is true."""

    def __init__(self, predicate: Expression, fields: Fields, codecs: Codecs) -> None:
        self.predicate = predicate
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in fields]

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Filter a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return zset
        batch = RowBatch(zset, self._columns, self._codecs)
        passing = np.flatnonzero(truth(self.predicate, batch).true)
        if len(passing) == len(zset):
            return zset
        return ZSet(np.ascontiguousarray(zset.row_array[:, passing]), zset.weight_array[passing])

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Filter a delta."""
        return self.evaluate(deltas), None


class MapOperator:
    """Evaluates expressions for each row; the weights of equal results are added."""

    def __init__(self, expressions: Sequence[Expression], fields: Fields, codecs: Codecs) -> None:
        self.expressions = tuple(expressions)
        self._codecs = codecs
        self._columns = [codecs.codec(field.type) for field in fields]

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Map a Z-set."""
        (zset,) = inputs
        return self._map(zset, None)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Map a delta.

        Raises:
            LimitError: The values exceed the step's limit of bytes.
        """
        (delta,) = deltas
        return self._map(delta, context.budget), None

    def _map(self, zset: ZSet, budget: Budget | None) -> ZSet:
        if not len(zset):
            return ZSet.empty(len(self.expressions))
        batch = RowBatch(zset, self._columns, self._codecs)
        rows = np.empty((len(self.expressions), len(zset)), np.int64)
        for column, expression in enumerate(self.expressions):
            rows[column] = self._codes(expression, batch, budget)
        return consolidated_rows(rows, zset.weight_array.copy())

    def _codes(
        self, expression: Expression, batch: RowBatch, budget: Budget | None
    ) -> Int64Array | int:
        """Return the code of an expression for each row, or one code for all rows."""
        match expression:
            case Column(index):
                return batch.codes(index)
            case Literal(None):
                return NULL
            case Call("cast", (inner,), type) if keeps_codes(inner.type, type, self._codecs):
                return self._codes(inner, batch, budget)
            case Call("is_true"):
                return truth(expression, batch).true.astype(np.int64)
            case Call("greatest", arguments, type) if self._is_ordered(arguments, type):
                # NULL is the least code, so the maximum of the codes ignores it.
                codes = [self._codes(inner, batch, budget) for inner in arguments]
                return reduce(np.maximum, codes)
        values = evaluate(expression, batch, batch.rows)
        if budget is not None:
            budget.add_bytes(values.nbytes)
        return self._codecs.codec(expression.type).encode(values)

    def _is_ordered(self, arguments: Sequence[Expression], type: pa.DataType) -> bool:
        """True if the codes of the arguments have the order of their values."""
        return self._codecs.codec(type).ordered and all(a.type == type for a in arguments)


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
