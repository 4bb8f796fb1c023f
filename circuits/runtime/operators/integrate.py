"""Integrate, I: the sum of a stream so far.

::

    I(s) = s + z⁻¹(I(s))

An example stream::

    input     {a: 1}   {b: 2}         {a: -1}
    output    {a: 1}   {a: 1, b: 2}   {b: 2}

The sum is stored as a trace, so the cost of a step is proportional to its delta. The whole sum is
computed on request. This operator materializes views.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, definition 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence

from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.generic_join import relation_to_zset
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import to_storable

__all__ = ["Integrate"]


class Integrate:
    """Stores the sum of a stream of Z-sets.

    >>> integrate = Integrate(1)
    >>> for x in (5, 6, 5):
    ...     integrate.step(ZSet.from_rows([(x,)]))
    >>> integrate.total
    ZSet({(5,): 2, (6,): 1})
    """

    def __init__(self, arity: int, order: ColumnOrder | None = None) -> None:
        """Begin with the empty sum.

        Args:
            arity: The number of columns.
            order: The column order of the trace; by default the order of the columns.
        """
        self._arity = arity
        # A row without columns is stored with one column of zeros (`to_storable`).
        self.trace = Trace(max(arity, 1), None if order is None else [order])
        self.traces = (self.trace,)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Return the input, because a materialized view has the same rows as the view."""
        return inputs[0]

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the delta unchanged, and stage its addition to the total.

        Raises:
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        return delta, self.trace.prepare(to_storable(delta)) if len(delta) else None

    def step(self, delta: ZSet) -> None:
        """Add one delta; O(|delta| log N), amortised."""
        if len(delta):
            self.trace.update(to_storable(delta))

    @property
    def total(self) -> ZSet:
        """The sum so far; O(N)."""
        return relation_to_zset(self.trace, self._arity)
