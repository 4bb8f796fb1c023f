"""Row hash: a hash of 64 bits for each row of int64 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["hash_rows"]

Int64Array = npt.NDArray[np.int64]

# The factors of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
_FACTORS: Final = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


def hash_rows(columns: Sequence[Int64Array], rows: int) -> Int64Array:
    """Return a hash of each row, which depends on the order of the columns; O(columns * rows).

    >>> first, second = np.array([1, 2]), np.array([2, 1])
    >>> len({*hash_rows([first, second], 2).tolist(), *hash_rows([second, second], 2).tolist()})
    4
    """
    hashes = np.full(rows, _FACTORS[0])
    for column in columns:
        hashes = (hashes ^ column.view(np.uint64)) * _FACTORS[0]
        hashes ^= hashes >> np.uint64(32)
        hashes *= _FACTORS[1]
        hashes ^= hashes >> np.uint64(29)
    return hashes.view(np.int64)
