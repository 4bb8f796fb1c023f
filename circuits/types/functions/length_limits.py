"""Limits of the texts that functions make: computed before any memory is taken.

``repeat(s, 3000000000)`` of one row would take 3 GB, and fail somewhere in an allocation. Here the
lengths of the results are added up first. A text beyond `MAX_STRING_BYTES` is the fault of its row,
which is found and put aside like any other row without a value. A column beyond
`MAX_COLUMN_BYTES`, of texts which are each short enough, is the fault of no row: the micro-batch
is too large.

The limit is far above what rows of change feeds hold, and low enough that more than a hundred
texts of this length fit one Arrow column of strings, whose offsets have 32 bits.

Cost: O(rows); nothing where the arguments are too short for any text to reach the limit.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Values

__all__ = ["MAX_COLUMN_BYTES", "MAX_STRING_BYTES", "byte_lengths", "check_lengths", "upper_bound"]

#: Bytes (UTF-8) of a text that a function makes.
MAX_STRING_BYTES: Final = 16 * 2**20
#: Bytes of all texts of one column that a function makes in a step: what Arrow's strings can hold.
MAX_COLUMN_BYTES: Final = 2**31 - 2

Lengths: TypeAlias = npt.NDArray[np.int64]


def byte_lengths(values: Values, rows: int) -> Lengths:
    """Return the bytes of each text, 0 for NULL."""
    if isinstance(values, pa.Scalar):
        return np.full(rows, upper_bound(values, 1), np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy(), np.int64)


def upper_bound(values: Values, rows: int) -> int:
    """Return a number of bytes that the texts of a column, or a scalar's copies, do not exceed."""
    if isinstance(values, pa.Scalar):
        return rows * (len(values.as_buffer()) if values.is_valid else 0)
    return int(values.nbytes)


def check_lengths(lengths: Lengths) -> None:
    """Check the bytes of the texts that a function is about to make, each at most 2**62.

    Raises:
        ArrowInvalid: One is too long.
        ArrowCapacityError: All together are too long, though each is short enough.
    """
    if not len(lengths):
        return
    longest = int(lengths.max())
    if longest > MAX_STRING_BYTES:
        raise pa.ArrowInvalid(
            f"the result would be longer than {MAX_STRING_BYTES:,} bytes, which is the limit of "
            "texts that functions make"
        )
    total = int(lengths.sum())
    if total > MAX_COLUMN_BYTES:
        raise pa.ArrowCapacityError(
            f"{total:,} bytes of text in {len(lengths):,} rows, and a column has up to "
            f"{MAX_COLUMN_BYTES:,}"
        )
