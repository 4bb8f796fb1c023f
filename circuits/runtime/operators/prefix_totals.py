"""Prefix totals: counts and exact sums of a column over the rows before any row of a partition.

::

    totals(Z)[partition, slot, row] = Z[row] * number of the slot for the row

    slot          number
    digit d of x  digit d of x, see `exact_sum`
    count of x    1 where x is not NULL

The numbers are weights of a trace, sorted by partition, slot and row. Runs store running sums of
their weights, so the total before a row is one search per run (`dbsp_wcoj.storage.row_ranges`).

Cost: O(digits) rows of state per row; O(slots log N) per read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from circuits.runtime.operators.exact_sum import DIGITS, ExactSum
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.window_functions import Totals
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["PrefixTotals"]

_COUNT: Final = DIGITS - 1  # no number has this digit
_INTEGER_DIGITS: Final = 3  # of a 64-bit integer


class PrefixTotals:
    """The totals of some columns.

    Args:
        order: The layout of the rows.
        columns: The columns of the input whose values are counted, and True if they are also
            added up.
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
        keys = order.keys
        self.coded_columns: Mapping[int, Codec] = {
            column + (column >= keys): codec for column, codec in order.coded_columns.items()
        }

    def prepare(self, stored: ZSet, codes: Int64Array) -> TraceStep | None:
        """Stage the change of the totals.

        Args:
            stored: The change of the rows, in the layout of the trace of rows.
            codes: The same rows in the columns of the input.
        """
        keys, weights = self._order.keys, stored.weight_array
        parts: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        for number, (column, exact) in enumerate(self._sums.items()):
            present = np.flatnonzero(codes[column] != NULL)
            slot = number * DIGITS
            parts.append((present, np.full(len(present), slot + _COUNT), weights[present]))
            if exact is not None:
                digits = exact.split(codes[column, present], weights[present])
                parts.append((present[digits.sum_indices], slot + digits.digits, digits.amounts))
        if not parts:
            return None
        row, slots, amounts = (np.concatenate(part) for part in zip(*parts, strict=True))
        rows = stored.row_array[:, row]
        change = consolidated_rows(
            np.concatenate((rows[:keys], slots[np.newaxis], rows[keys:])), amounts
        )
        return self.trace.prepare(change) if len(change) else None

    def before(
        self, rows: Int64Array, old: Int64Array, new: Int64Array, step: TraceStep | None
    ) -> tuple[Totals, Totals]:
        """Return the totals over the rows before some rows, without and with a step.

        Args:
            rows: The rows in the layout of the trace of rows.
            old: The number of rows before each of them in its partition, without the step.
            new: The same with the step.
            step: The staged step.
        """
        totals = Totals(old), Totals(new)
        keys, n = self._order.keys, rows.shape[1]
        ranges = RowRanges(self.trace, step)
        for number, (column, exact) in enumerate(self._sums.items()):
            digits = [] if exact is None else range(_digits_of(exact))
            slots = [number * DIGITS + digit for digit in (*digits, _COUNT)]
            row = np.tile(rows, len(slots))
            slot_row = np.repeat(slots, n)[np.newaxis]
            bottom = ranges.seek(np.concatenate((row[:keys], slot_row)))
            here = ranges.seek(np.concatenate((row[:keys], slot_row, row[keys:])))
            for result, amounts in zip(
                totals, (here.old - bottom.old, here.new - bottom.new), strict=True
            ):
                by_slot = amounts.reshape(len(slots), n)
                result.counts[column] = by_slot[-1]
                result.sums[column] = {
                    digit: by_slot[digit] for digit in digits if by_slot[digit].any()
                }
        return totals


def _digits_of(exact: ExactSum) -> int:
    return _COUNT if exact.floating or not exact.codec.ordered else _INTEGER_DIGITS
