"""Coded strings: byte strings with their codes in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CodedStrings", "concatenate_strings"]

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class CodedStrings(NamedTuple):
    """Some strings of an interner.

    Attributes:
        offsets: n + 1 ascending integers, the first of which is 0.
        data: String i is ``data[offsets[i] : offsets[i + 1]]``.
        codes: The codes, ascending.
    """

    offsets: Int64Array
    data: Bytes
    codes: Int64Array


def concatenate_strings(parts: Sequence[CodedStrings]) -> CodedStrings:
    """Return the strings of all parts, in their order; O(strings and bytes).

    >>> first = CodedStrings(np.array([0, 1]), np.array([97], np.uint8), np.array([0]))
    >>> data = np.array([98, 99, 100], np.uint8)
    >>> second = CodedStrings(np.array([0, 2, 3]), data, np.array([4, 7]))
    >>> [array.tolist() for array in concatenate_strings([first, second])]
    [[0, 1, 3, 4], [97, 98, 99, 100], [0, 4, 7]]
    """
    starts = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)]).tolist()
    offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
    return CodedStrings(
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([np.empty(0, np.uint8), *(p.data[: p.offsets[-1]] for p in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.codes for part in parts)]),
    )
