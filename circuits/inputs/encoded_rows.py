"""EncodedRows: the rows of a large table as codes, in the order of the table.

A Z-set is sorted by all its columns. For a large table, sorting takes longer than encoding, and
operators that read the rows in slices, or all of them as one slice, do not need it
(`circuits.runtime.linear_stage`). So the rows are sorted only if somebody needs the Z-set.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp_wcoj import ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.zset import Int64Array, unit_weights

__all__ = ["MIN_SLICED_STAGE_ROWS", "MIN_UNSORTED_ROWS", "EncodedRows"]

#: A table with fewer rows is sorted at once.
MIN_UNSORTED_ROWS = 1 << 12
#: Fewer rows are one slice: more slices would not save time or memory.
MIN_SLICED_STAGE_ROWS = 1 << 17


class EncodedRows:
    """Rows in any order, of positive weights; a row may occur more than once.

    Args:
        columns: The codes of each column; at least one column.
        weights: The weights; None if each is 1.

    >>> import numpy as np
    >>> EncodedRows([np.array([2, 1, 2])], None).zset
    ZSet({(1,): 1, (2,): 2})
    """

    def __init__(self, columns: Sequence[Int64Array], weights: Int64Array | None) -> None:
        self.columns = columns
        self._weights = weights

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def has_unit_weights(self) -> bool:
        """True if the weight of each row is known to be 1."""
        return self._weights is None

    @property
    def weights(self) -> Int64Array:
        """The weights; nobody may write to them."""
        return self.weights_of(0, len(self))

    def weights_of(self, start: int, stop: int) -> Int64Array:
        """Return the weights of some rows; nobody may write to them."""
        return unit_weights(stop - start) if self._weights is None else self._weights[start:stop]

    @cached_property
    def zset(self) -> ZSet:
        """The rows as a Z-set.

        Raises:
            WeightOverflowError: The sum of the weights of a row leaves int64.
        """
        return ZSet.from_columns(self.columns, self._weights)
