"""Window close: emit each row once, when a column of it is before its frontier.

With the frontier f before a step and f' after it, the rows W that wait, and the delta d::

    close^Δ(d)  =  (W + d)[column < f']
    W'          =  (W + d)[column >= f']

An example stream of rows (window, count), where the frontier is the start of the open window::

    frontier     0                     10                        20
    delta        (0, 1): +1            (0, 1): -1, (0, 2): +1    (10, 7): +1
    output                             (0, 2): +1                (10, 7): +1

No later delta has a row before the frontier, so what is emitted is final, and nothing is deleted.

State: the rows that wait. Cost: O(|d| log N), and O(1) per emitted row.
"""

from __future__ import annotations

from collections.abc import Sequence

from circuits.errors import EvaluationError
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.trace_limits import limited_delta
from dbsp_wcoj import Trace, ZSet

__all__ = ["WindowCloseOperator"]


class WindowCloseOperator:
    """Emits rows when they are final.

    Args:
        arity: The number of columns; at least one.
    """

    def __init__(self, arity: int) -> None:
        self.trace = Trace(arity)
        self.traces = (self.trace,)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Raise an error: a query of the stored rows has no watermark.

        Raises:
            EvaluationError: Always.
        """
        raise EvaluationError(
            "EMIT ON WINDOW CLOSE has a meaning only in a view: leave it out of the query"
        )

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the rows that the step closes.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        output = ZSet.empty(self.trace.arity)
        closing = context.closing
        if closing is not None:
            # W' - W; by the equations above, the output is d - (W' - W).
            change = limited_delta(
                self.trace, closing.column, delta, closing.previous_limit, closing.limit
            )
            delta, output = change, delta - change
        return output, self.trace.prepare(delta) if len(delta) else None
