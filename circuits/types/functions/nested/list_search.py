"""Functions that compare the elements of a list with one value: contains, position, remove.

The result is NULL if the list or the value is NULL. Only ``list_position`` looks for a NULL: it
returns the position of the first NULL in the list. DuckDB and Spark differ in the result for a
value that is not in the list. Therefore ``list_contains`` and ``list_position`` have a second
function for Spark, and the SQL front end chooses the one of the dialect.

Cost: O(elements).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.nested import Lists
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.function import Function, Kernel, Values
from circuits.types.functions.nested.list_masks import (
    array_with_nulls,
    encode_together,
    filter_elements,
    has_any,
    null_mask,
    set_nulls,
    valid_all,
)
from circuits.types.functions.nested.list_rules import item_rule

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()


def _match_elements(arguments: Sequence[Values]) -> tuple[Lists, BoolArray, list[pa.Array]]:
    """Compare the elements of lists with the value of their row.

    Returns:
        The lists of the first argument, a mask of their elements that equal the second argument,
        and both arguments as arrays.
    """
    rows = row_count(arguments)
    array, items = (fill_rows(values, rows) for values in arguments)
    lists = Lists.of(array)
    element_codes, item_codes = encode_together(lists.values, items)
    return lists, element_codes == item_codes[lists.owners], [array, items]


def _contains(*, null_if_unknown: bool) -> Kernel:
    """Return a kernel that tests whether a list has an element.

    Args:
        null_if_unknown: If True, the result is NULL for a list with NULL that does not have the
            element, as in Spark.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists, is_equal, arrays = _match_elements(arguments)
        contains = has_any(lists, is_equal)
        valid = valid_all(arrays)
        if null_if_unknown:
            is_unknown = ~contains & has_any(lists, null_mask(lists.values))
            valid = ~is_unknown if valid is None else valid & ~is_unknown
        return array_with_nulls(contains, valid)

    return kernel


def _first_positions(lists: Lists, is_equal: BoolArray) -> Int64Array:
    """Return the position of the first equal element of each list, from 1; 0 if there is none."""
    matches = np.flatnonzero(is_equal)
    rows, first = np.unique(lists.owners[matches], return_index=True)
    positions = np.zeros(len(lists.lengths), np.int64)
    positions[rows] = lists.positions[matches[first]] + 1
    return positions


def _position(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists, is_equal, _ = _match_elements(arguments)
    positions = _first_positions(lists, is_equal)
    return pa.array(positions, mask=positions == 0)


def _position_or_zero(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists, is_equal, arrays = _match_elements(arguments)
    return array_with_nulls(_first_positions(lists, is_equal), valid_all(arrays))


def _remove(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists, is_equal, arrays = _match_elements(arguments)
    return set_nulls(filter_elements(lists, ~is_equal, result_type), valid_all(arrays))


FUNCTIONS = (
    Function(
        "list_contains",
        "true if the list a has the element b",
        item_rule(pa.bool_()),
        _contains(null_if_unknown=False),
    ),
    Function(
        "list_contains_or_null",
        "true if the list a has the element b; as in Spark",
        item_rule(pa.bool_()),
        _contains(null_if_unknown=True),
    ),
    Function(
        "list_position",
        "the position of b in the list a, from 1; NULL without one",
        item_rule(_INT),
        _position,
    ),
    Function(
        "list_position_or_zero",
        "the position of b in the list a, from 1; 0 without one",
        item_rule(_INT),
        _position_or_zero,
    ),
    Function("list_remove", "the list a without the elements equal to b", item_rule(), _remove),
)
