"""Sort columns: the integers by which a trace keeps codes in the order of their values.

Where codes order as values do, one column does, made of the code by a bijection of int64 (which
wraps, so that NULL, the least code, goes to the end that is asked for):

============ ============== ===============
..           NULLs first    NULLs last
============ ============== ===============
ascending    code           code - 1
descending   -code          -code - 1
============ ============== ===============

So the code need not be kept beside it. Other codecs (texts) give sort columns that may tie; rows
tied in them are put in order by looking at the values, by their `ranks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow.compute as pc

from circuits.types.codecs.arrow_buffers import plain
from circuits.types.codecs.codec import Codec
from dbsp_wcoj.zset import Int64Array

__all__ = ["SortColumn"]

_NOTHING: Final[Int64Array] = np.empty(0, np.int64)


@dataclass(frozen=True)
class SortColumn:
    """How one column takes part in an order.

    Args:
        column: Its position in the rows.
        codec: Its codec.
        descending: From the greatest value down.
        nulls_first: NULL comes before all values, whatever the direction.
    """

    column: int
    codec: Codec
    descending: bool = False
    nulls_first: bool = False

    @cached_property
    def width(self) -> int:
        """How many sort columns it needs."""
        return len(self._given(_NOTHING)[0])

    @cached_property
    def exact(self) -> bool:
        """Whether codes with equal sort columns are equal."""
        return self._given(_NOTHING)[1]

    def keys(self, codes: Int64Array) -> Sequence[Int64Array]:
        """The sort columns of some codes."""
        return self._given(codes)[0]

    def codes(self, keys: Int64Array) -> Int64Array:
        """The codes that have these keys; for an ordered codec."""
        if self.descending:
            return -keys if self.nulls_first else ~keys
        return keys if self.nulls_first else keys + 1

    def ranks(self, codes: Int64Array) -> Int64Array:
        """Integers that order as the values of these codes do; found by sorting the values."""
        known, places = np.unique(codes, return_inverse=True)
        order = pc.array_sort_indices(
            plain(self.codec.decode(known)),
            order="descending" if self.descending else "ascending",
            null_placement="at_start" if self.nulls_first else "at_end",
        ).to_numpy()
        ranks = np.empty(len(known), np.int64)
        ranks[order] = np.arange(len(known))
        return ranks[places]

    def _given(self, codes: Int64Array) -> tuple[Sequence[Int64Array], bool]:
        if not self.codec.ordered:
            return self.codec.sort_keys(
                codes, descending=self.descending, nulls_first=self.nulls_first
            )
        if self.descending:
            return [-codes if self.nulls_first else ~codes], True
        return [codes if self.nulls_first else codes - 1], True
