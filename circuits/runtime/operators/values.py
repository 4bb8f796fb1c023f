"""Values: constant rows, which the first step inserts.

::

    values(t) = Z for every t,   so   values^Δ(0) = Z,  values^Δ(t > 0) = 0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from circuits.plan.nodes import Values
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet

__all__ = ["ValuesOperator"]


class ValuesOperator:
    """Outputs the rows of a `Values` node.

    Attributes:
        rows: The rows.
    """

    def __init__(self, plan: Values, codecs: Codecs) -> None:
        if plan.fields:
            columns = [
                codecs.codec(field.type).encode(pa.array([row[i] for row in plan.rows], field.type))
                for i, field in enumerate(plan.fields)
            ]
            self.rows = ZSet.from_columns(columns, np.ones(len(plan.rows), np.int64))
        else:
            self.rows = ZSet.scalar(len(plan.rows))

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return all rows."""
        return self.rows

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return all rows in the first step, and no rows later."""
        return (self.rows if context.first else ZSet.empty(self.rows.arity)), None
