"""Functions that select elements of lists by position, by a mask, by a step, or by their order.

Cost: O(elements of the arguments and of the result), and O(elements * log) for ``list_grade_up``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.arrow_buffers import Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, list_array, ranks
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import (
    list_rule,
    require_lists,
    type_null_lists,
    valid_all,
)
from circuits.types.functions.type_rules import common_type

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()
# A kernel that would create more elements than this in one column raises an error.
MAX_ELEMENTS: Final = 2**31 - 1


def _select_elements(
    lists: Lists, owners: Int64Array, positions: Int64Array, valid: np.ndarray | None
) -> pa.Array:
    """Return lists of elements of other lists; NULL where a list is too short.

    Args:
        lists: The lists with the elements.
        owners: The list of each element of the result, in rising order.
        positions: Its position in that list, from 0.
        valid: A mask of the lists that are not NULL; None if all are not.
    """
    if valid is not None:
        kept = valid[owners]
        owners, positions = owners[kept], positions[kept]
    is_missing = (positions < 0) | (positions >= lists.lengths[owners])
    indices = np.where(is_missing, 0, lists.starts[owners] + positions)
    values = lists.values.take(pa.array(indices, mask=is_missing))
    lengths = np.bincount(owners, minlength=len(lists.lengths))
    return list_array(pa.list_(lists.values.type), lengths, [values], valid)


def _pair_rule(element: pa.DataType, elements: str) -> Rule:
    """Return the rule of a list, and of a second list that says which of its elements to take.

    Args:
        element: The type of the elements of the second list; any integers are cast to int64.
        elements: Its name, for errors.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        require_lists(name, arguments, 2)
        values, other = type_null_lists(arguments)
        given = other.type.value_type
        is_accepted = arrow.is_integer(given) if arrow.is_integer(element) else given == element
        if not is_accepted and not arrow.is_null(given):
            raise argument_error(name, arguments, f"the second list has {elements}")
        result = pa.list_(values.type.value_type)
        return (values, cast_to(other, pa.list_(element))), result

    return rule


def _select(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, selected = (Lists.of(array) for array in arrays)
    if selected.values.null_count:
        raise pa.ArrowInvalid("a position of the second list is NULL")
    positions = selected.values.to_numpy() - 1
    return _select_elements(lists, selected.owners, positions, valid_all(arrays))


def _where(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, mask = (Lists.of(array) for array in arrays)
    if mask.values.null_count:
        raise pa.ArrowInvalid("a condition of the second list is NULL")
    kept = mask.values.to_numpy(zero_copy_only=False)
    return _select_elements(lists, mask.owners[kept], mask.positions[kept], valid_all(arrays))


def _resize_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 3)
    require_lists(name, arguments, 1)
    (values,) = type_null_lists(arguments[:1])
    size = arguments[1]
    if not arrow.is_integer(size.type) and not arrow.is_null(size.type):
        raise argument_error(name, arguments, "the length is an integer")
    element_type = common_type([values.type.value_type, *(a.type for a in arguments[2:])])
    target = pa.list_(element_type)
    added = tuple(cast_to(item, element_type) for item in arguments[2:])
    return (cast_to(values, target), cast_to(size, _INT), *added), target


def _resize(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    array, sizes, *items = (fill_rows(values, rows) for values in arguments)
    lists = Lists.of(array)
    lengths = pc.fill_null(sizes, 0).to_numpy()  # as in DuckDB, the length NULL is 0
    if (lengths < 0).any():
        raise pa.ArrowInvalid(f"a list of {lengths.min()} elements")
    if float(lengths.sum(dtype=np.float64)) > MAX_ELEMENTS:
        raise pa.ArrowInvalid("lists of more than 2,147,483,647 elements")
    if lists.valid is not None:
        lengths = np.where(lists.valid, lengths, 0)
    owners = np.repeat(np.arange(rows), lengths)
    positions = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if not items:
        return _select_elements(lists, owners, positions, lists.valid)
    is_added = positions >= lists.lengths[owners]
    sources = pa.concat_arrays([lists.values, items[0]])
    indices = np.where(is_added, len(lists.values) + owners, lists.starts[owners] + positions)
    return list_array(result_type, lengths, [sources.take(pa.array(indices))], lists.valid)


def _slice_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    return list_rule(lambda data_type: pa.list_(data_type.value_type), 4)(
        name, arguments, target_type
    )


def _slice_by_step(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Take every n-th element of a slice; of a negative step, from the end of the slice."""
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, valid = Lists.of(arrays[0]), valid_all(arrays)
    begin, end, step = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
    is_zero = step == 0
    if (is_zero if valid is None else is_zero & valid).any():
        raise pa.ArrowInvalid("the step of a slice is 0")
    step = np.where(is_zero, 1, step)
    first, last = np.where(step < 0, end, begin), np.where(step < 0, begin, end)
    low = np.where(first < 0, np.maximum(lists.lengths + first, 0), np.maximum(first - 1, 0))
    high = np.where(last < 0, lists.lengths + last + 1, np.minimum(last, lists.lengths))
    step_size = np.abs(step)
    counts = np.maximum((high - low + step_size - 1) // step_size, 0)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    owners = np.repeat(np.arange(rows), counts)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.where(step < 0, high - 1, low)
    return _select_elements(lists, owners, start[owners] + numbers * step[owners], valid)


def _sorted_positions(*, descending: bool, nulls_first: bool) -> Kernel:
    """Return a kernel for the positions of the elements in the order of their values, from 1."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        keys = ranks(lists.values, Codecs())
        keys = -keys if descending else keys
        is_null = lists.values.is_null().to_numpy(zero_copy_only=False)
        keys[is_null] = -len(keys) - 1 if nulls_first else len(keys) + 1
        order = np.lexsort((lists.positions, keys, lists.owners))
        positions = pa.array(lists.positions[order] + 1, _INT)
        return list_array(result_type, lists.lengths, [positions], lists.valid)

    return kernel


FUNCTIONS = (
    Function(
        "list_select",
        "the elements of the list a at the positions b, from 1; NULL without one",
        _pair_rule(_INT, "integers"),
        _select,
    ),
    Function(
        "list_where",
        "the elements of the list a for which the list of conditions b is true",
        _pair_rule(pa.bool_(), "conditions"),
        _where,
    ),
    Function(
        "list_resize",
        "the first b elements of the list a, filled up with c or NULL",
        _resize_rule,
        _resize,
    ),
    Function(
        "list_slice_step",
        "every d-th of the elements b to c of the list a; of a negative d, from c to b",
        _slice_rule,
        _slice_by_step,
    ),
    *(
        Function(
            f"list_grade_up{'_desc' if descending else ''}{'_nulls_first' if nulls_first else ''}",
            f"the positions of the elements of a in {'falling' if descending else 'rising'} order, "
            f"NULL {'first' if nulls_first else 'last'}",
            list_rule(lambda data_type: pa.list_(_INT)),
            _sorted_positions(descending=descending, nulls_first=nulls_first),
        )
        for descending in (False, True)
        for nulls_first in (False, True)
    ),
)
