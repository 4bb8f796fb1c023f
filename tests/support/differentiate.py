"""Differentiate, D: the change since the previous step.

::

    D(s) = s - z⁻¹(s)

An example stream::

    input     {a: 1}   {a: 1, b: 2}   {b: 2}
    output    {a: 1}   {b: 2}         {a: -1}

D and I are inverses: D(I(s)) = I(D(s)) = s. State: one Z-set, in the delay.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, definition 2.15.
"""

from __future__ import annotations

from dbsp_wcoj import ZSet
from tests.support.delay import Delay

__all__ = ["Differentiate"]


class Differentiate:
    """Outputs the changes of its input.

    >>> differentiate = Differentiate(1)
    >>> [differentiate.step(ZSet.from_rows([(5,)] * n, arity=1)) for n in (1, 1, 3)]
    [ZSet({(5,): 1}), ZSet({}), ZSet({(5,): 2})]
    """

    def __init__(self, arity: int) -> None:
        self._delay = Delay(arity)

    def step(self, zset: ZSet) -> ZSet:
        """Return the value of this step minus the value of the previous step; O(|value|)."""
        return zset - self._delay.step(zset)
