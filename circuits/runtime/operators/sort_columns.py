"""Sort columns: integers computed from codes, such that their order is the order of the values.

A trace sorts its rows by integers. If the codes have the order of their values, one sort column
suffices. It is computed from the code by a bijection of int64. The bijection wraps around, so NULL,
the least code, is at the requested end:

============ ============== ===============
..           NULLs first    NULLs last
============ ============== ===============
ascending    code           code - 1
descending   -code          -code - 1
============ ============== ===============

The sort column determines the code, so the trace need not store the code as well. The codes of
strings do not have the order of the strings. Their sort columns are the first bytes of the string,
so different strings may have equal sort columns: they tie. Rows that tie are ordered by the `ranks`
of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.arrow_types import is_nested
from circuits.types.codecs.arrow_buffers import NULL, expand_encoding
from circuits.types.codecs.codec import Codec
from circuits.types.codecs.intervals import INTERVAL
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.zset import Int64Array

__all__ = ["OrderedColumn"]

_NO_CODES: Final[Int64Array] = np.empty(0, np.int64)


@dataclass(frozen=True)
class OrderedColumn:
    """A column by which rows are ordered; computes the sort columns from its codes.

    Args:
        column: The position of the column in the rows.
        codec: The codec of the column.
        descending: True to order from the greatest value to the least.
        nulls_first: True to order NULL before all values, in either direction.
    """

    column: int
    codec: Codec
    descending: bool = False
    nulls_first: bool = False

    @cached_property
    def width(self) -> int:
        """The number of sort columns that are computed from the column."""
        return len(self._compute(_NO_CODES)[0])

    @cached_property
    def is_exact(self) -> bool:
        """True if codes with equal sort columns are equal."""
        return self._compute(_NO_CODES)[1]

    def sort_columns(self, codes: Int64Array) -> Sequence[Int64Array]:
        """Return the sort columns of these codes."""
        return self._compute(codes)[0]

    def codes_of(self, sort_column: Int64Array) -> Int64Array:
        """Return the codes that have this sort column; only for an ordered codec."""
        if self.descending:
            return -sort_column if self.nulls_first else ~sort_column
        return sort_column if self.nulls_first else sort_column + 1

    def ranks(self, codes: Int64Array) -> Int64Array:
        """Return integers in the order of the values of these codes.

        Sorts the values, unless the codes have their order.
        """
        if self.codec.ordered:
            (sort_column,) = self.sort_columns(codes)
            return sort_column
        if is_nested(self.codec.type) or self.codec.type == INTERVAL:
            # Arrow cannot sort nested values and intervals.
            value_ranks = self.codec.ranks(codes)
            if self.descending:
                value_ranks = ~value_ranks
            null_rank = NULL if self.nulls_first else ~NULL
            return np.where(codes == NULL, null_rank, value_ranks)
        distinct_codes, positions = np.unique(codes, return_inverse=True)
        values = expand_encoding(self.codec.decode(distinct_codes))
        if isinstance(values, pa.ExtensionArray):  # VARIANT and ENUM, whose texts decide ties
            values = values.storage
        order = pc.array_sort_indices(
            values,
            order="descending" if self.descending else "ascending",
            null_placement="at_start" if self.nulls_first else "at_end",
        ).to_numpy()
        ranks = np.empty(len(distinct_codes), np.int64)
        ranks[order] = np.arange(len(distinct_codes))
        return ranks[positions]

    def _compute(self, codes: Int64Array) -> tuple[Sequence[Int64Array], bool]:
        """Return the sort columns of these codes, and the value of ``is_exact``."""
        if not self.codec.ordered:
            return self.codec.sort_keys(
                codes, descending=self.descending, nulls_first=self.nulls_first
            )
        if self.descending:
            return [-codes if self.nulls_first else ~codes], True
        return [codes if self.nulls_first else codes - 1], True
