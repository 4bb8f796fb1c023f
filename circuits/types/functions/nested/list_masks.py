"""Masks and codes of the elements of lists, which the kernels of lists share.

A kernel works on the elements of all lists of a column at once
(`circuits.types.codecs.nested.Lists`). A mask has one bool per element, or one per list. To compare
elements of any type, they are first encoded as codes; NULL equals NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, list_array

__all__ = [
    "array_with_nulls",
    "encode_together",
    "filter_elements",
    "has_any",
    "is_first_occurrence",
    "is_pair_in",
    "null_mask",
    "set_nulls",
    "valid_all",
]


def null_mask(array: pa.Array) -> BoolArray:
    """Return a mask of the values that are NULL."""
    mask: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def valid_all(arrays: Sequence[pa.Array]) -> BoolArray | None:
    """Return a mask of the rows in which no array is NULL; None if there is no NULL."""
    masks = [
        array.is_valid().to_numpy(zero_copy_only=False) for array in arrays if array.null_count
    ]
    return np.logical_and.reduce(masks) if masks else None


def array_with_nulls(values: npt.NDArray[Any], valid: BoolArray | None) -> pa.Array:
    """Return numbers or bools as an Arrow array, with NULL where the mask ``valid`` is false."""
    return pa.array(values, mask=None if valid is None else ~valid)


def set_nulls(array: pa.Array, valid: BoolArray | None) -> pa.Array:
    """Return the array with NULL where the mask ``valid`` is false."""
    if valid is None:
        return array
    return pc.if_else(pa.array(valid), array, pa.scalar(None, array.type))


def has_any(lists: Lists, mask: BoolArray) -> BoolArray:
    """Return a mask of the lists that have an element for which ``mask`` is true."""
    result: BoolArray = np.bincount(lists.owners[mask], minlength=len(lists.lengths)) > 0
    return result


def filter_elements(lists: Lists, is_kept: BoolArray, data_type: pa.DataType) -> pa.Array:
    """Return the lists with only the elements for which the mask ``is_kept`` is true."""
    lengths = np.bincount(lists.owners[is_kept], minlength=len(lists.lengths))
    return list_array(data_type, lengths, [lists.values.filter(pa.array(is_kept))], lists.valid)


def encode_together(*arrays: pa.Array) -> list[Int64Array]:
    """Encode arrays of one type, so that equal values have equal codes."""
    codec = Codecs().codec(arrays[0].type)
    return [codec.encode(array) for array in arrays]


def is_first_occurrence(lists: Lists, codes: Int64Array) -> BoolArray:
    """Return a mask of the elements that differ from all earlier elements of their list."""
    order = np.lexsort((lists.positions, codes, lists.owners))
    owners, sorted_codes = lists.owners[order], codes[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (owners[1:] != owners[:-1]) | (sorted_codes[1:] != sorted_codes[:-1])
    result = np.empty(len(order), np.bool_)
    result[order] = is_first
    return result


def is_pair_in(
    rows: Int64Array, codes: Int64Array, other_rows: Int64Array, other_codes: Int64Array
) -> BoolArray:
    """Return a mask of the pairs of a row and a code that are among the other pairs."""
    # Number the codes from 0, so that a row and the number of its code fit one integer.
    _, numbers = np.unique(np.concatenate([codes, other_codes]), return_inverse=True)
    code_count = int(numbers.max(initial=0)) + 1
    pairs = np.concatenate([rows, other_rows]) * code_count + numbers
    is_in: BoolArray = np.isin(pairs[: len(codes)], pairs[len(codes) :])
    return is_in
