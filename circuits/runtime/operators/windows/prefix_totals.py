"""Prefix totals: counts and exact sums of columns over the rows of a partition before a given row.

::

    totals(Z)[partition, slot, row] = Z[row] * amount(slot, row)

    slot                       amount
    digit d of the sum of x    digit d of the row's x, see `exact_sum`
    count of x                 1 if the row's x is not NULL, else 0

The products are the weights of a trace, sorted by partition, slot and row. Runs store running sums
of their weights, so the total before a row is one search per run (`dbsp_wcoj.storage.row_ranges`).
Each column has `MAX_DIGITS` slots, the last of which is its count.

Cost: O(digits) rows of state per row; O(slots log N) per read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from circuits.runtime.operators.aggregates.exact_sum import MAX_DIGITS, ExactSum
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.windows.window_functions import Totals
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["PrefixTotals"]

_COUNT: Final = MAX_DIGITS - 1  # the slot of the count; no digit of a sum has this position
_INTEGER_DIGITS: Final = 3  # a sum of 64-bit integers has at most this many digits


class PrefixTotals:
    """The totals of some columns.

    Args:
        order: The layout of the rows.
        columns: The columns of the input whose values are counted; True for those whose values are
            also added up.
        codecs: The codecs of all columns of the input.
    """

    def __init__(
        self, order: RowOrder, columns: Mapping[int, bool], codecs: Sequence[Codec]
    ) -> None:
        self._order = order
        self._sums = {
            column: ExactSum(codecs[column]) if is_summed else None
            for column, is_summed in columns.items()
        }
        self.trace = Trace(order.width + 1)
        # In this trace the slot follows the key columns and moves the later columns by one.
        self.coded_columns: Mapping[int, Codec] = {
            column if column < order.key_count else column + 1: codec
            for column, codec in order.coded_columns.items()
        }

    def prepare(self, stored: ZSet, codes: Int64Array) -> TraceStep | None:
        """Stage the change of the totals.

        Args:
            stored: The change of the rows, in the layout of the trace of rows.
            codes: The same rows in the columns of the input.
        """
        key_count, weights = self._order.key_count, stored.weight_array
        parts: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        for position, (column, column_sum) in enumerate(self._sums.items()):
            valid_rows = np.flatnonzero(codes[column] != NULL)
            first_slot = position * MAX_DIGITS
            parts.append(
                (valid_rows, np.full(len(valid_rows), first_slot + _COUNT), weights[valid_rows])
            )
            if column_sum is not None:
                digits = column_sum.split(codes[column, valid_rows], weights[valid_rows])
                parts.append(
                    (valid_rows[digits.sum_indices], first_slot + digits.positions, digits.amounts)
                )
        if not parts:
            return None
        indices, slots, amounts = (np.concatenate(part) for part in zip(*parts, strict=True))
        rows = stored.row_array[:, indices]
        change = consolidated_rows(
            np.concatenate((rows[:key_count], slots[np.newaxis], rows[key_count:])), amounts
        )
        return self.trace.prepare(change) if len(change) else None

    def before(
        self, rows: Int64Array, old: Int64Array, new: Int64Array, step: TraceStep | None
    ) -> tuple[Totals, Totals]:
        """Return the totals before given rows, without and with a staged step.

        Args:
            rows: The given rows, in the layout of the trace of rows.
            old: For each of them, the number of rows before it in its partition, without the step.
            new: The same with the step.
            step: The staged step.
        """
        old_totals, new_totals = Totals(old), Totals(new)
        key_count, n = self._order.key_count, rows.shape[1]
        ranges = RowRanges(self.trace, step)
        for position, (column, column_sum) in enumerate(self._sums.items()):
            digits = range(0 if column_sum is None else _digit_count(column_sum))
            slots = [position * MAX_DIGITS + digit for digit in (*digits, _COUNT)]
            tiled_rows = np.tile(rows, len(slots))
            slot_row = np.repeat(slots, n)[np.newaxis]
            slot_keys = np.concatenate((tiled_rows[:key_count], slot_row))
            # ``old`` and ``new`` of a position are the sums of the weights of all rows before it.
            start = ranges.seek(slot_keys)
            end = ranges.seek(np.concatenate((slot_keys, tiled_rows[key_count:])))
            for totals, amounts in (
                (old_totals, end.old - start.old),
                (new_totals, end.new - start.new),
            ):
                by_slot = amounts.reshape(len(slots), n)
                totals.counts[column] = by_slot[-1]
                totals.sums[column] = {
                    digit: by_slot[digit] for digit in digits if by_slot[digit].any()
                }
        return old_totals, new_totals


def _digit_count(column_sum: ExactSum) -> int:
    """Return how many digits the sum of a column may have."""
    return _COUNT if column_sum.is_floating or not column_sum.codec.ordered else _INTEGER_DIGITS
