"""Functions that put the elements of lists into an order: sort, sorted positions, reverse.

Cost: O(elements * log) to sort, O(elements) to reverse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from circuits.types.codecs.arrow_buffers import Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, list_array, ranks
from circuits.types.functions.function import Function, Kernel, Values
from circuits.types.functions.nested.list_masks import null_mask
from circuits.types.functions.nested.list_rules import SAME_TYPE_RULE, list_rule

__all__ = ["FUNCTIONS"]


def _sorted_elements(lists: Lists, *, descending: bool, nulls_first: bool) -> Int64Array:
    """Return the indices of the elements in ``lists.values``, in the order of each list's values.

    Equal elements stay in their order.
    """
    keys = ranks(lists.values, Codecs())  # 0 to len(keys)
    keys = -keys if descending else keys
    keys[null_mask(lists.values)] = -len(keys) - 1 if nulls_first else len(keys) + 1
    return np.lexsort((lists.positions, keys, lists.owners))


def _sort(*, descending: bool, nulls_first: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        order = _sorted_elements(lists, descending=descending, nulls_first=nulls_first)
        values = lists.values.take(pa.array(order))
        return list_array(result_type, lists.lengths, [values], lists.valid)

    return kernel


def _sorted_positions(*, descending: bool, nulls_first: bool) -> Kernel:
    """Return a kernel for the positions of the elements in the order of their values, from 1."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        order = _sorted_elements(lists, descending=descending, nulls_first=nulls_first)
        positions = pa.array(lists.positions[order] + 1, pa.int64())
        return list_array(result_type, lists.lengths, [positions], lists.valid)

    return kernel


def _reverse(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    ends = np.repeat(lists.starts + lists.lengths - 1, lists.lengths)
    values = lists.values.take(pa.array(ends - lists.positions))
    return list_array(result_type, lists.lengths, [values], lists.valid)


# The suffix of the names of the functions for each direction and place of NULL.
_SORT_ORDERS = {
    "": (False, False),
    "_nulls_first": (False, True),
    "_desc": (True, False),
    "_desc_nulls_first": (True, True),
}

FUNCTIONS = (
    *(
        Function(
            f"list_sort{suffix}",
            f"the list a sorted {'down' if descending else 'up'}wards, NULL "
            f"{'first' if nulls_first else 'last'}",
            SAME_TYPE_RULE,
            _sort(descending=descending, nulls_first=nulls_first),
        )
        for suffix, (descending, nulls_first) in _SORT_ORDERS.items()
    ),
    *(
        Function(
            f"list_grade_up{suffix}",
            f"the positions of the elements of a in {'falling' if descending else 'rising'} order, "
            f"NULL {'first' if nulls_first else 'last'}",
            list_rule(lambda data_type: pa.list_(pa.int64())),
            _sorted_positions(descending=descending, nulls_first=nulls_first),
        )
        for suffix, (descending, nulls_first) in _SORT_ORDERS.items()
    ),
    Function(
        "list_reverse", "the list a from the last element to the first", SAME_TYPE_RULE, _reverse
    ),
)
