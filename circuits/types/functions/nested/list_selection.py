"""Functions that select elements of lists: by position, by a mask, or as a slice.

The result is NULL if the list is NULL. Where DuckDB and Spark differ, there are two functions, and
the SQL front end chooses the one of the dialect.

Cost: O(elements of the arguments and of the result).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.nested import Lists, element_positions, list_array
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
from circuits.types.functions.length_limits import check_list_lengths
from circuits.types.functions.nested.list_masks import (
    filter_elements,
    null_mask,
    set_nulls,
    valid_all,
)
from circuits.types.functions.nested.list_rules import (
    SAME_TYPE_RULE,
    list_rule,
    require_lists,
    type_null_lists,
)
from circuits.types.functions.type_rules import common_type

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()


def _same_type(data_type: pa.DataType) -> pa.DataType:
    return pa.list_(data_type.value_type)


def _element(base: int, *, from_end: bool, strict: bool, accepts_zero: bool = True) -> Kernel:
    """Return a kernel for the element at a position.

    Args:
        base: The position of the first element.
        from_end: True if position -1 is the last element.
        strict: True if a position without an element is an error; else the result is NULL.
        accepts_zero: False if position 0 is an error, also where it is not one otherwise.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        array, numbers = (fill_rows(values, rows) for values in arguments)
        lists = Lists.of(array)
        positions = pc.fill_null(numbers, base).to_numpy()
        offsets = positions - base
        if from_end:
            offsets = np.where(positions < 0, lists.lengths + positions, offsets)
        exists = (offsets >= 0) & (offsets < lists.lengths)
        valid = valid_all([array, numbers])
        if strict or not accepts_zero:
            is_missing = ~exists if strict else positions == 0
            is_missing = is_missing if valid is None else is_missing & valid
            if is_missing.any():
                row = int(is_missing.argmax())
                raise pa.ArrowInvalid(
                    f"position {positions[row]} of a list with {lists.lengths[row]} elements"
                )
        if valid is not None:
            exists &= valid
        indices = pa.array(np.where(exists, lists.starts + offsets, 0), mask=~exists)
        return lists.values.take(indices)

    return kernel


def _compact(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return filter_elements(lists, ~null_mask(lists.values), result_type)


def _select_elements(
    lists: Lists, owners: Int64Array, positions: Int64Array, valid: BoolArray | None
) -> pa.Array:
    """Return lists of elements of other lists; NULL where a list is too short.

    Args:
        lists: The lists with the elements.
        owners: For each element of the result, the row of its list; in rising order.
        positions: For each element of the result, its position in that list, from 0.
        valid: A mask of the rows whose result is not NULL; None if no result is NULL.
    """
    if valid is not None:
        is_kept = valid[owners]
        owners, positions = owners[is_kept], positions[is_kept]
    is_missing = (positions < 0) | (positions >= lists.lengths[owners])
    indices = np.where(is_missing, 0, lists.starts[owners] + positions)
    values = lists.values.take(pa.array(indices, mask=is_missing))
    lengths = np.bincount(owners, minlength=len(lists.lengths))
    return list_array(pa.list_(lists.values.type), lengths, [values], valid)


def _selector_rule(selector_type: pa.DataType, description: str) -> Rule:
    """Return the rule of a list, and of a second list that says which of its elements to take.

    Args:
        selector_type: The type of the elements of the second list; any integers are cast to int64.
        description: The elements of the second list, for errors.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        require_lists(name, arguments, 2)
        values, selectors = type_null_lists(arguments)
        element_type = selectors.type.value_type
        is_accepted = element_type == selector_type or (
            arrow.is_integer(element_type) and arrow.is_integer(selector_type)
        )
        if not is_accepted and not arrow.is_null(element_type):
            raise argument_error(name, arguments, f"the second list has {description}")
        return (values, cast_to(selectors, pa.list_(selector_type))), _same_type(values.type)

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
    is_true = mask.values.to_numpy(zero_copy_only=False)
    owners, positions = mask.owners[is_true], mask.positions[is_true]
    return _select_elements(lists, owners, positions, valid_all(arrays))


def _resize_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 3)
    require_lists(name, arguments, 1)
    (values,) = type_null_lists(arguments[:1])
    size = arguments[1]
    if not arrow.is_integer(size.type) and not arrow.is_null(size.type):
        raise argument_error(name, arguments, "the length is an integer")
    element_type = values.type.value_type
    if arrow.is_null(element_type):
        element_type = common_type([element_type, *(a.type for a in arguments[2:])])
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
    if lists.valid is not None:
        lengths = np.where(lists.valid, lengths, 0)
    check_list_lengths(lengths)
    owners, positions = np.repeat(np.arange(rows), lengths), element_positions(lengths)
    if not items:
        return _select_elements(lists, owners, positions, lists.valid)
    is_added = positions >= lists.lengths[owners]
    # The elements of all lists, and after them the item that is added to each list.
    candidates = pa.concat_arrays([lists.values, items[0]])
    indices = np.where(is_added, len(lists.values) + owners, lists.starts[owners] + positions)
    return list_array(result_type, lengths, [candidates.take(pa.array(indices))], lists.valid)


def _slice_bounds(
    lengths: Int64Array, first: Int64Array, last: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the offsets, from 0, at which the elements ``first`` to ``last`` begin and end.

    Position 1 is the first element of a list, position -1 the last. A slice that reaches beyond the
    list is cut off. If the end is at or before the begin, the slice is empty.
    """
    begin = np.where(first < 0, lengths + first, np.minimum(first, lengths + 1) - 1)
    end = np.where(last < 0, lengths + last + 1, last)
    return np.maximum(begin, 0), np.clip(end, 0, lengths)


def _elements_between(
    lists: Lists, begin: Int64Array, end: Int64Array, data_type: pa.DataType
) -> pa.Array:
    """Return the elements of each list from the offset ``begin`` to before ``end``."""
    positions, owners = lists.positions, lists.owners
    is_between = (positions >= begin[owners]) & (positions < end[owners])
    return filter_elements(lists, is_between, data_type)


def _slice(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists = Lists.of(arrays[0])
    first, last = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
    bounds = _slice_bounds(lists.lengths, first, last)
    return set_nulls(_elements_between(lists, *bounds, result_type), valid_all(arrays))


def _slice_by_length(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Return a slice, as in Spark: from the position of its first element, with a length.

    The slice is empty if its first element is before the list. Position 0 and a negative length are
    errors.
    """
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, valid = Lists.of(arrays[0]), valid_all(arrays)
    first, length = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
    for is_wrong, fault in ((first == 0, "position 0"), (length < 0, "a negative length")):
        if (is_wrong if valid is None else is_wrong & valid).any():
            raise pa.ArrowInvalid(f"{fault} of a slice")
    begin = np.where(first < 0, lists.lengths + first, np.minimum(first - 1, lists.lengths))
    end = np.where(begin < 0, 0, begin + np.minimum(length, lists.lengths))
    return set_nulls(_elements_between(lists, begin, end, result_type), valid)


def _slice_by_step(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Take every n-th element of a slice; with a negative step, from the end of the slice."""
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, valid = Lists.of(arrays[0]), valid_all(arrays)
    first, last, step = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
    is_zero = step == 0
    if (is_zero if valid is None else is_zero & valid).any():
        raise pa.ArrowInvalid("the step of a slice is 0")
    # A longer step has the same effect as one beyond all elements, and no sum with that overflows.
    longest = int(lists.lengths.max(initial=1))
    step = np.clip(np.where(is_zero, 1, step), -longest, longest)
    is_backward = step < 0
    begin, end = _slice_bounds(
        lists.lengths, np.where(is_backward, last, first), np.where(is_backward, first, last)
    )
    step_size = np.abs(step)
    counts = np.maximum((end - begin + step_size - 1) // step_size, 0)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    owners = np.repeat(np.arange(rows), counts)
    start = np.where(is_backward, end - 1, begin)
    offsets = start[owners] + element_positions(counts) * step[owners]
    return _select_elements(lists, owners, offsets, valid)


_POSITION_RULE = list_rule(lambda data_type: data_type.value_type, 2)

FUNCTIONS = (
    Function(
        "list_element",
        "element b of the list a; 1 is the first, -1 the last, NULL without one",
        _POSITION_RULE,
        _element(1, from_end=True, strict=False),
    ),
    Function(
        "list_element_not_zero",
        "element b of the list a; 1 is the first, -1 the last, 0 an error, NULL without one",
        _POSITION_RULE,
        _element(1, from_end=True, strict=False, accepts_zero=False),
    ),
    Function(
        "list_element_strict",
        "element b of the list a; 1 is the first, -1 the last, an error without one",
        _POSITION_RULE,
        _element(1, from_end=True, strict=True),
    ),
    Function(
        "list_get",
        "element b of the list a; 0 is the first, NULL without one",
        _POSITION_RULE,
        _element(0, from_end=False, strict=False),
    ),
    Function(
        "list_get_strict",
        "element b of the list a; 0 is the first, an error without one",
        _POSITION_RULE,
        _element(0, from_end=False, strict=True),
    ),
    Function(
        "list_compact", "the elements of the list a that are not NULL", SAME_TYPE_RULE, _compact
    ),
    Function(
        "list_select",
        "the elements of the list a at the positions b, from 1; NULL without one",
        _selector_rule(_INT, "integers"),
        _select,
    ),
    Function(
        "list_where",
        "the elements of the list a for which the list of conditions b is true",
        _selector_rule(pa.bool_(), "conditions"),
        _where,
    ),
    Function(
        "list_resize",
        "the first b elements of the list a, filled up with c or NULL",
        _resize_rule,
        _resize,
    ),
    Function(
        "list_slice",
        "the elements b to c of the list a, from 1; -1 is the last",
        list_rule(_same_type, 3),
        _slice,
    ),
    Function(
        "list_slice_length",
        "c elements of the list a, from element b on, from 1; -1 is the last",
        list_rule(_same_type, 3),
        _slice_by_length,
    ),
    Function(
        "list_slice_step",
        "every d-th of the elements b to c of the list a; from c to b if d is negative",
        list_rule(_same_type, 4),
        _slice_by_step,
    ),
)
