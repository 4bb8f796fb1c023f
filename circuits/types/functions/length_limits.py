"""Length limits of the texts and lists that functions return, checked before they are made.

``repeat(s, 3000000000)`` of one row would need 3 GB, and some allocation would fail. Therefore the
lengths of the results are computed first. A text longer than `MAX_STRING_BYTES` is an error of its
row, which is handled like any other row whose evaluation fails. If all texts of a column together
exceed `MAX_COLUMN_BYTES` and each of them is short enough, no row is at fault: the micro-batch is
too large.

`MAX_STRING_BYTES` is far above the length of values in change feeds. An Arrow column of strings,
whose offsets have 32 bits, can hold more than a hundred texts of this length.

Lists have the same limits, counted in elements: `MAX_LIST_ELEMENTS` and `MAX_COLUMN_ELEMENTS`.

`check_result` checks the texts of every function after they are made, so a function whose results
are at most a few times as long as its arguments needs no check of its own.

Cost: O(rows). Functions skip the check if their arguments are too short to reach the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Values
from circuits.types.functions.type_rules import is_text

__all__ = [
    "MAX_COLUMN_BYTES",
    "MAX_COLUMN_ELEMENTS",
    "MAX_LIST_ELEMENTS",
    "MAX_STRING_BYTES",
    "byte_lengths",
    "check_lengths",
    "check_list_lengths",
    "check_result",
    "upper_bound",
]

#: Maximum bytes (UTF-8) of a text that a function returns.
MAX_STRING_BYTES: Final = 16 * 2**20
#: Maximum bytes of one column of texts that a function returns in a step: the limit of Arrow.
MAX_COLUMN_BYTES: Final = 2**31 - 2
#: Maximum number of elements of a list that a function returns.
MAX_LIST_ELEMENTS: Final = 16 * 2**20
#: Maximum number of elements of one column of lists that a function returns in a step.
MAX_COLUMN_ELEMENTS: Final = 2**28

Lengths: TypeAlias = npt.NDArray[np.int64]


def byte_lengths(values: Values, rows: int) -> Lengths:
    """Return the number of bytes of each text, 0 for NULL."""
    if isinstance(values, pa.Scalar):
        return np.full(rows, _scalar_bytes(values), np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy(), np.int64)


def upper_bound(values: Values, rows: int) -> int:
    """Return an upper bound of the bytes of a column, or of ``rows`` copies of a scalar."""
    if isinstance(values, pa.Scalar):
        return rows * _scalar_bytes(values)
    return int(values.nbytes)


def _scalar_bytes(text: pa.Scalar) -> int:
    return len(text.as_buffer()) if text.is_valid else 0


def check_lengths(lengths: Lengths) -> None:
    """Check the lengths of the texts that a function will return.

    Args:
        lengths: The bytes of each text; the caller ensures that no product overflowed.

    Raises:
        ArrowInvalid: A text is too long.
        ArrowCapacityError: No text is too long, but all texts together are.
    """
    if not len(lengths):
        return
    longest = int(lengths.max())
    if longest > MAX_STRING_BYTES:
        raise pa.ArrowInvalid(
            f"the result would be longer than {MAX_STRING_BYTES:,} bytes, which is the limit of "
            "texts that functions return"
        )
    total = int(lengths.sum())
    if total > MAX_COLUMN_BYTES:
        raise pa.ArrowCapacityError(
            f"{total:,} bytes of text in {len(lengths):,} rows, and a column has up to "
            f"{MAX_COLUMN_BYTES:,}"
        )


def check_list_lengths(lengths: npt.NDArray[Any]) -> None:
    """Check the lengths of the lists that a function will return.

    Args:
        lengths: The number of elements of each list; floats if it may exceed 64 bits.

    Raises:
        ArrowInvalid: A list is too long.
        ArrowCapacityError: No list is too long, but all lists together are.
    """
    if not len(lengths):
        return
    if lengths.max() > MAX_LIST_ELEMENTS:
        raise pa.ArrowInvalid(
            f"the result would have more than {MAX_LIST_ELEMENTS:,} elements, which is the limit "
            "of lists that functions return"
        )
    total = float(lengths.sum(dtype=np.float64))
    if total > MAX_COLUMN_ELEMENTS:
        raise pa.ArrowCapacityError(
            f"{total:,.0f} elements in {len(lengths):,} lists, and a column has up to "
            f"{MAX_COLUMN_ELEMENTS:,}"
        )


def check_result(result: Values, arguments: Sequence[Values]) -> None:
    """Check the lengths of the texts that a function has returned.

    A text that is not longer than the longest argument is valid, whatever its length.

    Raises:
        ArrowInvalid: A text is too long.
    """
    if not isinstance(result, pa.Array) or result.nbytes <= MAX_STRING_BYTES:
        return
    if not is_text(result.type):
        return
    longest = int(byte_lengths(result, len(result)).max())
    if longest <= MAX_STRING_BYTES:
        return
    texts = [values for values in arguments if is_text(values.type)]
    if longest > max((_longest(values) for values in texts), default=0):
        check_lengths(np.array([longest]))


def _longest(values: Values) -> int:
    return int(byte_lengths(values, 1 if isinstance(values, pa.Scalar) else len(values)).max())
