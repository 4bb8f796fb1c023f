"""Late materialization: one code, the row id, for all columns that a join only passes through.

A join neither compares these columns nor joins on them. Encoding replaces their values by one code
before the join, and decoding restores the values after it::

    encode(Z)[k, c]  =  Z[k, v]  where c is the code of v;   decode(encode(Z)) = Z
    both are linear (a bijection of rows), so each is its own incremental form

An example stream of rows (key | name, age), where the join reads the key::

    delta     {1 | ann, 30: +1}   {2 | bob, 41: +1}   {1 | ann, 30: -1}
    encoded   {1 | 0: +1}         {2 | 1: +1}         {1 | 0: -1}

So a join binds one variable for all these columns, and an arrangement has one column for all of
them. A code is never used for other values. Values that no row of the state has any more are
removed from the dictionary (`circuits.state.dictionary_sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.row_batch import UnsortedRows
from dbsp_wcoj import ZSet
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["RowIdDecodeOperator", "RowIdEncodeOperator"]


class RowIdEncodeOperator:
    """Replaces all columns after the first ``kept_count`` ones by one code.

    Args:
        kept_count: The number of columns that remain unchanged.
        encoded_count: The number of columns that are replaced; by default that of the first rows.

    >>> encode = RowIdEncodeOperator(1)
    >>> zset = ZSet.from_rows([(1, 5, 6), (2, 5, 6), (1, 7, 8)])
    >>> encoded = encode.evaluate([zset])
    >>> encoded.to_dict()
    {(1, 0): 1, (1, 1): 1, (2, 0): 1}
    >>> RowIdDecodeOperator([(1, encode)]).evaluate([encoded]) == zset
    True
    """

    def __init__(self, kept_count: int, encoded_count: int | None = None) -> None:
        self.kept_count = kept_count
        self.dictionary = Interner(words=encoded_count)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Encode a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return ZSet.empty(self.kept_count + 1)
        rows = np.empty((self.kept_count + 1, len(zset)), np.int64)
        rows[:-1] = zset.row_array[: self.kept_count]
        encoded = np.ascontiguousarray(zset.row_array[self.kept_count :])
        self.dictionary.intern_rows(encoded, rows[-1])
        return consolidated_rows(rows, zset.weight_array)  # the weights are not written to

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Encode a delta."""
        return self.evaluate(deltas), None


class RowIdDecodeOperator:
    """Replaces row ids by the columns that they encode.

    Args:
        row_ids: Pairs of a column with row ids and the operator that encoded it.
        width: The number of columns of an empty result.
    """

    def __init__(self, row_ids: Sequence[tuple[int, RowIdEncodeOperator]], width: int = 0) -> None:
        self._encoders = dict(row_ids)
        self._width = width

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Decode a Z-set."""
        (zset,) = inputs
        if not len(zset):
            return ZSet.empty(self._width)
        return consolidated_rows(self._decode(zset), zset.weight_array.copy())

    def decode_unsorted(self, zset: ZSet) -> UnsortedRows:
        """Decode a Z-set that has rows, without sorting them; they differ from each other."""
        rows = self._decode(zset)
        # Different row ids have different columns. But a join that keeps rows without a match uses
        # NULL as a row id, and its columns are those of a row in which all of them are NULL.
        if any([zset.row_array[column].min() < 0 for column in self._encoders]):
            sorted_rows = consolidated_rows(rows, zset.weight_array.copy())
            return UnsortedRows(sorted_rows.row_array, sorted_rows.weight_array)
        return UnsortedRows(rows, zset.weight_array)

    def _decode(self, zset: ZSet) -> Int64Array:
        """Return the decoded columns, in the order of the rows."""
        parts = []
        for column, codes in enumerate(zset.row_array):
            encoder = self._encoders.get(column)
            parts.append(codes[np.newaxis] if encoder is None else encoder.dictionary.rows(codes))
        return np.concatenate(parts)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Decode a delta."""
        return self.evaluate(deltas), None
