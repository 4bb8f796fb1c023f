"""Pack and unpack: columns that a join only carries along, as one code, the payload of their row.

::

    pack(Z)[k, c]     = Z[k, v]  where c is the code of v;   unpack(pack(Z)) = Z
    pack, unpack are linear (a renaming of rows), so each is its own incremental form

An example stream of rows (key | name, age), kept column first::

    delta     {1 | ann, 30: +1}   {2 | bob, 41: +1}   {1 | ann, 30: -1}
    packed    {1 | 0: +1}         {2 | 1: +1}         {1 | 0: -1}

So a join binds one variable for all of them, and an arrangement has one column for all. A code is
never given again; the table grows with the different payloads that there ever were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import ZSet
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["RowIdDecodeOperator", "RowIdEncodeOperator"]


class RowIdEncodeOperator:
    """The first ``kept`` columns, then the code of the others.

    Args:
        kept: How many columns stay as they are.
        words: How many others there are; by default as many as the first rows have.

    >>> pack = RowIdEncodeOperator(1)
    >>> zset = ZSet.from_rows([(1, 5, 6), (2, 5, 6), (1, 7, 8)])
    >>> packed = pack.evaluate([zset])
    >>> packed.to_dict()
    {(1, 0): 1, (1, 1): 1, (2, 0): 1}
    >>> RowIdDecodeOperator([(1, pack)]).evaluate([packed]) == zset
    True
    """

    def __init__(self, kept: int, words: int | None = None) -> None:
        self.kept = kept
        self.table = Interner(words=words)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Pack a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return ZSet.empty(self.kept + 1)
        rows = np.empty((self.kept + 1, len(zset)), np.int64)
        rows[: self.kept] = zset.row_array[: self.kept]
        rows[self.kept] = self.table.intern_rows(np.ascontiguousarray(zset.row_array[self.kept :]))
        return consolidated_rows(rows, zset.weight_array.copy())

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Pack a delta."""
        return self.evaluate(deltas), None


class RowIdDecodeOperator:
    """Columns of codes, replaced by what the codes stand for.

    Args:
        payloads: Pairs of a column and what packed it.
        width: The number of columns of the result; only asked for where there are no rows.
    """

    def __init__(self, payloads: Sequence[tuple[int, RowIdEncodeOperator]], width: int = 0) -> None:
        self._payloads = dict(payloads)
        self._width = width

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Unpack a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return ZSet.empty(self._width)
        parts = []
        for column, codes in enumerate(zset.row_array):
            pack = self._payloads.get(column)
            parts.append(codes[np.newaxis] if pack is None else pack.table.rows(codes))
        return consolidated_rows(np.concatenate(parts), zset.weight_array.copy())

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Unpack a delta."""
        return self.evaluate(deltas), None
