"""Weights: read a column of a stream as weights, and describe the invalid weights.

A weight is an integer of 64 bits; the column may have any type that can hold such an integer. NULL,
NaN, a fraction, or a string that is not an integer makes the row invalid.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.excerpt import MAX_EXCERPT_CHARACTERS
from streaming.sources.change_feeds.uncastable_rows import safe_cast

__all__ = ["excerpts", "invalid_weight_reasons", "parse_weights"]


def parse_weights(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return weights as int64, NULL if invalid; None if the type is not one of numbers or texts."""
    type = column.type
    if types.is_null(type):
        return column.cast(pa.int64())
    if types.is_integer(type):
        return safe_cast(column, pa.int64())[0]
    if types.is_floating(type):
        floats = column.cast(pa.float64())
        is_valid = pc.and_(pc.equal(pc.floor(floats), floats), pc.less(pc.abs(floats), 2.0**63))
        valid = pc.if_else(pc.fill_null(is_valid, False), floats, pa.scalar(None, pa.float64()))
        return valid.cast(pa.int64())
    if types.is_decimal(type):
        integers, _ = safe_cast(column, pa.decimal128(19, 0))
        return _decimals_to_int64(integers)
    if types.is_string(type) or types.is_large_string(type):
        is_valid = pc.match_substring_regex(column, r"^[+-]?[0-9]{1,19}$")
        valid = pc.if_else(pc.fill_null(is_valid, False), column, pa.scalar(None, type))
        without_plus = pc.replace_substring_regex(valid.cast(pa.string()), r"^\+", "")
        return _decimals_to_int64(without_plus.cast(pa.decimal128(19, 0)))
    return None


def _decimals_to_int64(decimals: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals without fraction as int64, NULL if out of range.

    -(2**63) is out of range: it is not a valid weight, because its negative is not an int64.
    """
    lowest, highest = (pa.scalar(str(n)).cast(pa.decimal128(19, 0)) for n in (1 - 2**63, 2**63 - 1))
    is_valid = pc.and_(pc.greater_equal(decimals, lowest), pc.less_equal(decimals, highest))
    valid = pc.if_else(pc.fill_null(is_valid, False), decimals, pa.scalar(None, decimals.type))
    return valid.cast(pa.int64())


def invalid_weight_reasons(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each value why it is not a weight.

    >>> invalid_weight_reasons(pa.chunked_array([[1.5]])).to_pylist()
    ['the weight is 1.5, weights are integers of 64 bits']
    """
    end = ", weights are integers of 64 bits"
    return pc.binary_join_element_wise("the weight is ", excerpts(column), end, "")


def excerpts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column for messages: a long text is cut, with its length.

    >>> excerpts(pa.chunked_array([[7, None]])).to_pylist()
    ['7', 'NULL']
    """
    texts = column.cast(pa.string())
    lengths = pc.utf8_length(texts)
    starts = pc.utf8_slice_codeunits(texts, 0, MAX_EXCERPT_CHARACTERS)
    cut = pc.binary_join_element_wise(starts, "… (", lengths.cast(pa.string()), " characters)", "")
    return pc.fill_null(
        pc.if_else(pc.greater(lengths, MAX_EXCERPT_CHARACTERS), cut, starts), "NULL"
    )
