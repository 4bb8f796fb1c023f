"""Delay, z⁻¹: the input of the previous step.

::

    z⁻¹(s)[0] = 0,   z⁻¹(s)[t] = s[t - 1]

An example stream::

    input     {a: 1}   {b: 2}    {}
    output    {}       {a: 1}    {b: 2}

Delay is linear and time-invariant, so it is its own incremental form. State: one Z-set.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, definition 2.5.
"""

from __future__ import annotations

from dbsp_wcoj import ZSet

__all__ = ["Delay"]


class Delay:
    """Outputs its input one step later.

    >>> delay = Delay(1)
    >>> [delay.step(ZSet.from_rows([(x,)])) for x in (5, 6)]
    [ZSet({}), ZSet({(5,): 1})]
    """

    def __init__(self, arity: int) -> None:
        self._last = ZSet.empty(arity)

    def step(self, zset: ZSet) -> ZSet:
        """Store the value of this step and return the value of the previous step; O(1)."""
        last, self._last = self._last, zset
        return last
