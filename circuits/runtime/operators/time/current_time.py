"""Current time: one row with the time of the step.

::

    now[t] = {time of step t},   so   now^Δ[t] = {time of step t} - {time of step t - 1}

An example of three steps; the second one has the time of the first one, so it changes nothing::

    time of the step    100     100       106
    output              +100    nothing   -100 +106

The operator has no state: the circuit stores the time of the step before. A step costs O(1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from circuits.errors import CircuitError, EvaluationError
from circuits.plan.current_time import NOW_TYPE
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet

__all__ = ["CurrentTimeOperator"]


class CurrentTimeOperator:
    """Inserts a row with the time of the step, and deletes that of the step before."""

    def __init__(self, codecs: Codecs) -> None:
        self._codec = codecs.codec(NOW_TYPE)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Raise an error: a query of the stored rows has no time.

        Raises:
            EvaluationError: Always.
        """
        raise EvaluationError("now() has a value only in a step: put it in a view")

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the change of the row since the step before.

        Raises:
            CircuitError: The step has no time.
        """
        now, before = context.now, context.previous_now
        if now is None:
            raise CircuitError("a view reads now(): give the time of the step, step(..., now=...)")
        if before is None:
            return self._row(now), None
        return self._row(now) - self._row(before), None

    def _row(self, time: int) -> ZSet:
        """Return the row of a time, in microseconds since 1970 in UTC."""
        codes = self._codec.encode(pa.array([time], NOW_TYPE))
        return ZSet.from_columns([codes], np.ones(1, np.int64))
