"""Functions that treat lists as sets: distinct elements, union, intersection, overlap.

NULL equals NULL, except in ``list_overlaps`` and ``list_contains_all``, which ignore it. The
elements of a result are in the order of their first occurrence. The result is NULL if a list is
NULL.

Cost: O(elements * log).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.nested import Lists
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.function import Function, Kernel, Values
from circuits.types.functions.nested.list_combination import concat_lists
from circuits.types.functions.nested.list_masks import (
    array_with_nulls,
    encode_together,
    filter_elements,
    has_any,
    is_first_occurrence,
    is_pair_in,
    null_mask,
    set_nulls,
    valid_all,
)
from circuits.types.functions.nested.list_rules import SAME_TYPE_RULE, unified_lists_rule

__all__ = ["FUNCTIONS"]


def _distinct_mask(lists: Lists) -> BoolArray:
    (codes,) = encode_together(lists.values)
    return is_first_occurrence(lists, codes)


def _distinct(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return filter_elements(lists, _distinct_mask(lists) & ~null_mask(lists.values), result_type)


def _distinct_with_null(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return filter_elements(lists, _distinct_mask(lists), result_type)


def _union(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
    lists = Lists.of(concat_lists(arrays, valid_all(arrays), result_type))
    return filter_elements(lists, _distinct_mask(lists), result_type)


def _elements_by_membership(*, in_right: bool) -> Kernel:
    """Return a kernel for the distinct elements of the left list that are in the right list.

    Args:
        in_right: If False, the elements that are not in the right list.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        left, right = (Lists.of(array) for array in arrays)
        left_codes, right_codes = encode_together(left.values, right.values)
        is_in_right = is_pair_in(left.owners, left_codes, right.owners, right_codes)
        is_kept = is_first_occurrence(left, left_codes) & (is_in_right == in_right)
        return set_nulls(filter_elements(left, is_kept, result_type), valid_all(arrays))

    return kernel


def _overlap(*, null_if_unknown: bool) -> Kernel:
    """Return a kernel that tests whether two lists share an element that is not NULL.

    Args:
        null_if_unknown: If True, the result is NULL for lists that share no element, if one of them
            has NULL and none is empty, as in Spark.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        left, right = (Lists.of(array) for array in arrays)
        left_codes, right_codes = encode_together(left.values, right.values)
        left_nulls, right_nulls = null_mask(left.values), null_mask(right.values)
        is_shared = is_pair_in(left.owners, left_codes, right.owners, right_codes) & ~left_nulls
        overlaps, valid = has_any(left, is_shared), valid_all(arrays)
        if null_if_unknown:
            has_null = has_any(left, left_nulls) | has_any(right, right_nulls)
            is_unknown = ~overlaps & has_null & (left.lengths > 0) & (right.lengths > 0)
            valid = ~is_unknown if valid is None else valid & ~is_unknown
        return array_with_nulls(overlaps, valid)

    return kernel


def _contains_all(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    left, right = (Lists.of(array) for array in arrays)
    left_codes, right_codes = encode_together(left.values, right.values)
    is_in_left = is_pair_in(right.owners, right_codes, left.owners, left_codes)
    is_missing = ~is_in_left & ~null_mask(right.values)
    return array_with_nulls(~has_any(right, is_missing), valid_all(arrays))


FUNCTIONS = (
    Function(
        "list_distinct",
        "the different elements of the list a, without NULL",
        SAME_TYPE_RULE,
        _distinct,
    ),
    Function(
        "list_distinct_with_null",
        "the different elements of the list a, with NULL",
        SAME_TYPE_RULE,
        _distinct_with_null,
    ),
    Function(
        "list_union", "the different elements of the lists a and b", unified_lists_rule(), _union
    ),
    Function(
        "list_except",
        "the different elements of the list a that b does not have",
        unified_lists_rule(),
        _elements_by_membership(in_right=False),
    ),
    Function(
        "list_intersect",
        "the different elements of the list a that b has",
        unified_lists_rule(),
        _elements_by_membership(in_right=True),
    ),
    Function(
        "list_overlaps",
        "true if the lists a and b share an element",
        unified_lists_rule(pa.bool_()),
        _overlap(null_if_unknown=False),
    ),
    Function(
        "list_overlaps_or_null",
        "true if the lists a and b share an element; as in Spark",
        unified_lists_rule(pa.bool_()),
        _overlap(null_if_unknown=True),
    ),
    Function(
        "list_contains_all",
        "true if the list a has all elements of the list b",
        unified_lists_rule(pa.bool_()),
        _contains_all,
    ),
)
