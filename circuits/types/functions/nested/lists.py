"""Functions that read lists. A kernel works on all elements of a column at once.

A kernel reads a column of lists as an array of all elements and the length of each list
(`circuits.types.codecs.nested.Lists`). To compare elements of any type, it first encodes them as
codes; NULL equals NULL.

The result is NULL if the list is NULL, unless the description of the function says otherwise. Where
DuckDB and Spark differ, there are two functions, and the reader of the SQL dialect chooses one.

Cost: O(elements), and O(elements * log) where elements are sorted or compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, list_array, ranks, struct_array
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
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
from circuits.types.functions.length_limits import byte_lengths, check_lengths
from circuits.types.functions.nested.list_rules import (
    is_list,
    item_rule,
    list_rule,
    lists_rule,
    require_lists,
    type_null_lists,
    valid_all,
)
from circuits.types.functions.type_rules import is_number, is_text

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type


def _same_type(data_type: pa.DataType) -> pa.DataType:
    return pa.list_(data_type.value_type)


def _encode_all(arrays: Sequence[pa.Array]) -> list[Int64Array]:
    """Encode arrays of one type, so that equal values have equal codes."""
    codec = Codecs().codec(arrays[0].type)
    return [codec.encode(array) for array in arrays]


def _length(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return pa.array(lists.lengths, mask=None if lists.valid is None else ~lists.valid)


def _element(base: int, *, from_end: bool, strict: bool) -> Kernel:
    """Return a kernel for the element at a position.

    Args:
        base: The position of the first element.
        from_end: True if position -1 is the last element.
        strict: True if a position without an element is an error; else the result is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        array, numbers = (fill_rows(values, rows) for values in arguments)
        lists = Lists.of(array)
        positions = pc.fill_null(numbers, base).to_numpy()
        offsets = positions - base
        if from_end:
            offsets = np.where(positions < 0, lists.lengths + positions, offsets)
        exists = (offsets >= 0) & (offsets < lists.lengths) & ((positions >= base) | from_end)
        valid = valid_all([array, numbers])
        if strict:
            is_missing = ~exists if valid is None else ~exists & valid
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


def _match_elements(arguments: Sequence[Values]) -> tuple[Lists, BoolArray, pa.Array, pa.Array]:
    """Compare the elements of lists with the item of their row.

    Returns:
        The lists of the first argument, a mask of their elements that equal the item, and both
        arguments as arrays.
    """
    rows = row_count(arguments)
    array, items = (fill_rows(values, rows) for values in arguments)
    lists = Lists.of(array)
    element_codes, item_codes = _encode_all([lists.values, items])
    return lists, element_codes == item_codes[lists.owners], array, items


def _has_any(lists: Lists, mask: BoolArray) -> BoolArray:
    """Return a mask of the lists that have an element for which ``mask`` is true."""
    has_any: BoolArray = np.bincount(lists.owners[mask], minlength=len(lists.lengths)) > 0
    return has_any


def _null_mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _contains(*, null_if_unknown: bool) -> Kernel:
    """Return a kernel that tests whether a list has an element.

    Args:
        null_if_unknown: If True, the result is NULL for a list with NULL that does not have the
            element, as in Spark.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists, is_equal, array, items = _match_elements(arguments)
        contains = _has_any(lists, is_equal)
        valid = valid_all([array, items])
        if null_if_unknown:
            is_unknown = ~contains & _has_any(lists, _null_mask(lists.values))
            valid = ~is_unknown if valid is None else valid & ~is_unknown
        return pa.array(contains, mask=None if valid is None else ~valid)

    return kernel


def _position(*, missing: int | None) -> Kernel:
    """Return a kernel for the first position of an element, from 1.

    Args:
        missing: The result for a list without the element; None for NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists, is_equal, array, items = _match_elements(arguments)
        matches = np.flatnonzero(is_equal)
        rows, first = np.unique(lists.owners[matches], return_index=True)
        result = np.full(len(lists.lengths), missing or 0, np.int64)
        result[rows] = lists.positions[matches[first]] + 1
        valid = valid_all([array, items]) if missing is not None else valid_all([array])
        if missing is None:
            has_match = np.zeros(len(result), np.bool_)
            has_match[rows] = True
            valid = has_match if valid is None else has_match & valid
        return pa.array(result, mask=None if valid is None else ~valid)

    return kernel


def _filter_elements(lists: Lists, kept: BoolArray, data_type: pa.DataType) -> pa.Array:
    """Return the lists with only the elements for which the mask ``kept`` is true."""
    lengths = np.bincount(lists.owners[kept], minlength=len(lists.lengths))
    return list_array(data_type, lengths, [lists.values.filter(pa.array(kept))], lists.valid)


def _first_of_each(lists: Lists, codes: Int64Array) -> BoolArray:
    """Return a mask of the elements that differ from all earlier elements of their list."""
    order = np.lexsort((lists.positions, codes, lists.owners))
    owners, sorted_codes = lists.owners[order], codes[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (owners[1:] != owners[:-1]) | (sorted_codes[1:] != sorted_codes[:-1])
    result = np.empty(len(order), np.bool_)
    result[order] = is_first
    return result


def _distinct(*, keep_nulls: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        kept = _first_of_each(lists, _encode_all([lists.values])[0])
        return _filter_elements(
            lists, kept if keep_nulls else kept & ~_null_mask(lists.values), result_type
        )

    return kernel


def _compact(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return _filter_elements(lists, ~_null_mask(lists.values), result_type)


def _remove(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists, is_equal, array, items = _match_elements(arguments)
    remaining = _filter_elements(lists, ~is_equal, result_type)
    return _with_nulls(remaining, valid_all([array, items]))


def _with_nulls(array: pa.Array, valid: BoolArray | None) -> pa.Array:
    """Return the array with NULL where the mask ``valid`` is false."""
    if valid is None:
        return array
    return pc.if_else(pa.array(valid), array, pa.scalar(None, array.type))


def _sort(*, descending: bool, nulls_first: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        keys = ranks(lists.values, Codecs())
        is_null = _null_mask(lists.values)
        keys = -keys if descending else keys
        keys[is_null] = -len(keys) - 1 if nulls_first else len(keys) + 1
        order = np.lexsort((lists.positions, keys, lists.owners))
        values = lists.values.take(pa.array(order))
        return list_array(result_type, lists.lengths, [values], lists.valid)

    return kernel


def _reverse(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    ends = np.repeat(lists.starts + lists.lengths - 1, lists.lengths)
    values = lists.values.take(pa.array(ends - lists.positions))
    return list_array(result_type, lists.lengths, [values], lists.valid)


def _concat(*, skip_nulls: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        columns = [Lists.of(array) for array in arrays]
        order = np.argsort(np.concatenate([lists.owners for lists in columns]), kind="stable")
        values = pa.concat_arrays([lists.values for lists in columns]).take(pa.array(order))
        lengths = np.sum([lists.lengths for lists in columns], axis=0)
        valid = valid_all(arrays)
        if valid is not None and skip_nulls:
            valid = ~np.logical_and.reduce([_null_mask(array) for array in arrays])
        return _with_nulls(list_array(result_type, lengths, [values], None), valid)

    return kernel


def _add_item(*, first: bool, skip_nulls: bool) -> Kernel:
    """Return a kernel that adds an element at the start or at the end."""
    concat = _concat(skip_nulls=skip_nulls)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        array, items = (fill_rows(values, rows) for values in arguments)
        single = list_array(
            result_type, np.ones(rows, np.int64), [convert(items, result_type.value_type)], None
        )
        return concat([single, array] if first else [array, single], result_type)

    return kernel


def _slice(*, by_length: bool) -> Kernel:
    """Return a kernel for a range of the elements of a list.

    The second argument is the position of the first element of the range. Position 1 is the first
    element of the list, position -1 the last.

    Args:
        by_length: If True, as in Spark, the third argument is the number of elements, and position
            0 and a negative number are errors. If False, as in DuckDB, it is the position of the
            last element, and the range is cut off at the ends of the list.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        lists, valid = Lists.of(arrays[0]), valid_all(arrays)
        begin, end_or_length = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
        if by_length:
            for is_wrong, fault in (
                (begin == 0, "position 0"),
                (end_or_length < 0, "a negative length"),
            ):
                if (is_wrong if valid is None else is_wrong & valid).any():
                    raise pa.ArrowInvalid(f"{fault} of a slice")
            low = np.where(begin < 0, lists.lengths + begin, begin - 1)
            is_outside = low < 0
            high = np.where(is_outside, 0, np.minimum(low + end_or_length, lists.lengths))
            low = np.where(is_outside, 0, low)
        else:
            low = np.where(
                begin < 0, np.maximum(lists.lengths + begin, 0), np.maximum(begin - 1, 0)
            )
            high = np.where(
                end_or_length < 0,
                lists.lengths + end_or_length + 1,
                np.minimum(end_or_length, lists.lengths),
            )
        positions, owners = lists.positions, lists.owners
        kept = (positions >= low[owners]) & (positions < high[owners])
        return _with_nulls(_filter_elements(lists, kept, result_type), valid)

    return kernel


def _flatten(*, null_if_inner_null: bool) -> Kernel:
    """Return a kernel that concatenates the lists in a list.

    Args:
        null_if_inner_null: If True, the result is NULL if one of the inner lists is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        outer = Lists.of(arguments[0])
        lengths = np.zeros(len(outer.lengths), np.int64)
        if arrow.is_null(outer.values.type):
            elements = pa.nulls(0, result_type.value_type)
        else:
            inner = Lists.of(outer.values)
            np.add.at(lengths, outer.owners, inner.lengths)
            elements = inner.values
        flat = list_array(result_type, lengths, [elements], outer.valid)
        return (
            _with_nulls(flat, ~_has_any(outer, _null_mask(outer.values)))
            if null_if_inner_null
            else flat
        )

    return kernel


def _set_operation(name: str) -> Kernel:
    """Return a kernel for ``union``, ``except`` or ``intersect`` of two lists.

    Each element occurs once in the result, in the order of the first appearance.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        valid = valid_all(arrays)
        if name == "union":
            lists = Lists.of(_concat(skip_nulls=False)(arrays, result_type))
            return _filter_elements(
                lists, _first_of_each(lists, _encode_all([lists.values])[0]), result_type
            )
        left, right = (Lists.of(array) for array in arrays)
        left_codes, right_codes = _encode_all([left.values, right.values])
        kept = _first_of_each(left, left_codes)
        is_in_right = _is_pair_in(left.owners, left_codes, right.owners, right_codes)
        kept &= is_in_right if name == "intersect" else ~is_in_right
        return _with_nulls(_filter_elements(left, kept, result_type), valid)

    return kernel


def _zip_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, None)
    require_lists(name, arguments, len(arguments))
    typed = type_null_lists(arguments)
    fields = [(str(index), a.type.value_type) for index, a in enumerate(typed)]
    return typed, pa.list_(pa.struct(fields))


def _zip(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Pair the elements of lists by position; a shorter or NULL list is filled up with NULL."""
    rows = row_count(arguments)
    columns = [Lists.of(fill_rows(values, rows)) for values in arguments]
    lengths = np.max([lists.lengths for lists in columns], axis=0)
    owners = np.repeat(np.arange(rows), lengths)
    positions = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    fields = []
    for lists in columns:
        is_missing = positions >= lists.lengths[owners]
        indices = np.where(is_missing, 0, lists.starts[owners] + positions)
        fields.append(lists.values.take(pa.array(indices, mask=is_missing)))
    structs = struct_array(result_type.value_type, fields, None, len(owners))
    return list_array(result_type, lengths, [structs], None)


def _is_pair_in(
    rows: Int64Array, codes: Int64Array, other_rows: Int64Array, other_codes: Int64Array
) -> BoolArray:
    """Return a mask of the pairs of a row and a code that are among the other pairs."""
    _, ids = np.unique(np.concatenate([codes, other_codes]), return_inverse=True)
    width = int(ids.max(initial=0)) + 1
    pair_ids, other_ids = ids[: len(codes)], ids[len(codes) :]
    is_in: BoolArray = np.isin(rows * width + pair_ids, other_rows * width + other_ids)
    return is_in


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
        left_codes, right_codes = _encode_all([left.values, right.values])
        left_nulls, right_nulls = _null_mask(left.values), _null_mask(right.values)
        is_shared = _is_pair_in(left.owners, left_codes, right.owners, right_codes) & ~left_nulls
        overlaps, valid = _has_any(left, is_shared), valid_all(arrays)
        if null_if_unknown:
            has_null = _has_any(left, left_nulls) | _has_any(right, right_nulls)
            is_unknown = ~overlaps & has_null & (left.lengths > 0) & (right.lengths > 0)
            valid = ~is_unknown if valid is None else valid & ~is_unknown
        return pa.array(overlaps, mask=None if valid is None else ~valid)

    return kernel


def _contains_all(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    left, right = (Lists.of(array) for array in arrays)
    left_codes, right_codes = _encode_all([left.values, right.values])
    is_in_left = _is_pair_in(right.owners, right_codes, left.owners, left_codes)
    is_missing = ~is_in_left & ~_null_mask(right.values)
    valid = valid_all(arrays)
    return pa.array(~_has_any(right, is_missing), mask=None if valid is None else ~valid)


def _aggregate_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    require_lists(name, arguments, 1)
    typed = type_null_lists(arguments)
    element_type = typed[0].type.value_type
    if name in ("list_min", "list_max"):
        return typed, element_type
    if not is_number(element_type) and not arrow.is_null(element_type):
        raise argument_error(name, arguments, "it takes a list of numbers")
    if name == "list_avg" or arrow.is_floating(element_type):
        return typed, pa.float64()
    if arrow.is_decimal(element_type):
        return typed, pa.decimal128(38, element_type.scale)
    return typed, _INT


def _extreme(*, last: bool) -> Kernel:
    """Return a kernel for the least (or, if last, the greatest) element that is not NULL."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        present = np.flatnonzero(~_null_mask(lists.values))
        keys = ranks(lists.values, Codecs())[present]
        owners = lists.owners[present]
        order = np.lexsort((-keys if last else keys, owners))
        non_empty, first = np.unique(owners[order], return_index=True)
        positions = np.zeros(len(lists.lengths), np.int64)
        is_missing = np.ones(len(lists.lengths), np.bool_)
        positions[non_empty], is_missing[non_empty] = present[order][first], False
        return lists.values.take(pa.array(positions, mask=is_missing))

    return kernel


def _sum(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _aggregate(arguments, result_type, "sum")


def _average(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _aggregate(arguments, result_type, "mean")


def _aggregate(arguments: Sequence[Values], data_type: pa.DataType, function: str) -> pa.Array:
    """Return Arrow's aggregate of each list; NULL for a list without numbers."""
    lists = Lists.of(arguments[0])
    values = convert(lists.values, data_type)
    # One row with NULL per list, so that every list has a group.
    rows = np.concatenate([np.arange(len(lists.lengths)), lists.owners])
    values = pa.concat_arrays([pa.nulls(len(lists.lengths), data_type), values])
    if function == "sum" and arrow.is_integer(data_type):
        values = convert(values, pa.decimal128(38, 0))
    groups = pa.table({"row": rows, "value": values}).group_by("row", use_threads=False)
    result = groups.aggregate([("value", function)]).sort_by("row")
    column = result.column(f"value_{function}").combine_chunks()
    return column if column.type == data_type else pc.cast(column, data_type)


def _join_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 3)
    require_lists(name, arguments, 1)
    values, *texts = arguments
    if not all(is_text(a.type) or arrow.is_null(a.type) for a in texts):
        raise argument_error(name, arguments, "the separator is a text")
    strings = cast_to(type_null_lists((values,))[0], pa.list_(pa.string()))
    return (strings, *(cast_to(text, pa.string()) for text in texts)), pa.string()


def _join(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Join texts. NULL elements are left out, or replaced by the third argument if there is one."""
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, separators = Lists.of(arrays[0]), arrays[1]
    values = lists.values.cast(pa.string())
    if len(arrays) == 3:
        values = pc.coalesce(values, arrays[2].take(pa.array(lists.owners)))
    kept = ~_null_mask(values)
    lengths = np.bincount(lists.owners[kept], minlength=rows)
    _check_joined(values, separators, lists.owners, rows)
    texts = list_array(pa.list_(pa.string()), lengths, [values.filter(pa.array(kept))], lists.valid)
    return _with_nulls(pc.binary_join(texts, separators), valid_all(arrays))


def _check_joined(values: pa.Array, separators: pa.Array, owners: Any, rows: int) -> None:
    """Check the lengths of joined texts; a list with n texts has up to n separators."""
    separator_bytes = byte_lengths(separators, rows)
    lengths = byte_lengths(values, len(values)) + separator_bytes[owners]
    totals = np.bincount(owners, weights=lengths, minlength=rows).astype(np.int64)
    check_lengths(np.maximum(totals - separator_bytes, 0))


_LENGTH_RULE = list_rule(lambda data_type: _INT)
_SAME_TYPE_RULE = list_rule(_same_type)


def _flatten_type(data_type: pa.DataType) -> pa.DataType:
    inner_type = data_type.value_type
    return pa.list_(inner_type.value_type if is_list(inner_type) else pa.null())


def _flatten_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, result = list_rule(_flatten_type)(name, arguments, target_type)
    inner_type = typed[0].type.value_type
    if not is_list(inner_type) and not arrow.is_null(inner_type):
        raise argument_error(name, arguments, "it takes a list of lists")
    return typed, result


def _variants(
    name: str, description: str, rule: Rule, make_kernel: Any
) -> tuple[Function, Function]:
    """Return a function as in DuckDB, and its variant that is NULL in more cases, as in Spark.

    Args:
        name: The name of the first function.
        description: Its description.
        rule: The rule of both.
        make_kernel: Returns the kernel; its argument is True for Spark.
    """
    return (
        Function(name, description, rule, make_kernel(False)),
        Function(f"{name}_or_null", f"{description}; as in Spark", rule, make_kernel(True)),
    )


_POSITION_RULE = list_rule(_value_type, 2)

FUNCTIONS = (
    Function("list_length", "the number of elements of a", _LENGTH_RULE, _length),
    Function(
        "list_element",
        "element b of the list a; 1 is the first, -1 the last, NULL without one",
        _POSITION_RULE,
        _element(1, from_end=True, strict=False),
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
    *_variants(
        "list_contains",
        "true if the list a has the element b",
        item_rule(pa.bool_()),
        lambda spark: _contains(null_if_unknown=spark),
    ),
    Function(
        "list_position",
        "the position of b in the list a, from 1; NULL without one",
        item_rule(_INT),
        _position(missing=None),
    ),
    Function(
        "list_position_or_zero",
        "the position of b in the list a, from 1; 0 without one",
        item_rule(_INT),
        _position(missing=0),
    ),
    Function(
        "list_distinct",
        "the different elements of the list a, without NULL",
        _SAME_TYPE_RULE,
        _distinct(keep_nulls=False),
    ),
    Function(
        "list_distinct_with_null",
        "the different elements of the list a, with NULL",
        _SAME_TYPE_RULE,
        _distinct(keep_nulls=True),
    ),
    *(
        Function(
            f"list_sort{'_desc' if descending else ''}{'_nulls_first' if nulls_first else ''}",
            f"the list a sorted {'down' if descending else 'up'}wards, NULL "
            f"{'first' if nulls_first else 'last'}",
            _SAME_TYPE_RULE,
            _sort(descending=descending, nulls_first=nulls_first),
        )
        for descending in (False, True)
        for nulls_first in (False, True)
    ),
    Function(
        "list_reverse", "the list a from the last element to the first", _SAME_TYPE_RULE, _reverse
    ),
    Function(
        "list_compact", "the elements of the list a that are not NULL", _SAME_TYPE_RULE, _compact
    ),
    Function(
        "list_concat",
        "the elements of all lists; a list that is NULL has none",
        lists_rule(),
        _concat(skip_nulls=True),
    ),
    Function(
        "list_concat_or_null",
        "the elements of all lists; NULL if a list is NULL",
        lists_rule(),
        _concat(skip_nulls=False),
    ),
    *_variants(
        "list_append",
        "the list a with the element b after it",
        item_rule(),
        lambda spark: _add_item(first=False, skip_nulls=not spark),
    ),
    *_variants(
        "list_prepend",
        "the list a with the element b before it",
        item_rule(),
        lambda spark: _add_item(first=True, skip_nulls=not spark),
    ),
    Function("list_remove", "the list a without the elements equal to b", item_rule(), _remove),
    Function(
        "list_slice",
        "the elements b to c of the list a, from 1; -1 is the last",
        list_rule(_same_type, 3),
        _slice(by_length=False),
    ),
    Function(
        "list_slice_length",
        "c elements of the list a, from element b on, from 1; -1 is the last",
        list_rule(_same_type, 3),
        _slice(by_length=True),
    ),
    *_variants(
        "list_flatten",
        "the elements of the lists in the list a",
        _flatten_rule,
        lambda spark: _flatten(null_if_inner_null=spark),
    ),
    *(
        Function(f"list_{name}", text, lists_rule(), _set_operation(name))
        for name, text in (
            ("union", "the different elements of the lists a and b"),
            ("except", "the different elements of the list a that b does not have"),
            ("intersect", "the different elements of the list a that b has"),
        )
    ),
    *_variants(
        "list_overlaps",
        "true if the lists a and b share an element",
        lists_rule(pa.bool_()),
        lambda spark: _overlap(null_if_unknown=spark),
    ),
    Function(
        "list_contains_all",
        "true if the list a has all elements of the list b",
        lists_rule(pa.bool_()),
        _contains_all,
    ),
    Function(
        "list_zip",
        "the list of structs of the elements at each position; NULL where a list is too short",
        _zip_rule,
        _zip,
    ),
    Function("list_min", "the least element of the list a", _aggregate_rule, _extreme(last=False)),
    Function(
        "list_max", "the greatest element of the list a", _aggregate_rule, _extreme(last=True)
    ),
    Function("list_sum", "the sum of the elements of the list a", _aggregate_rule, _sum),
    Function("list_avg", "the mean of the elements of the list a", _aggregate_rule, _average),
    Function(
        "list_join",
        "the texts of the list a with the text b in between; NULL is left out, or becomes c",
        _join_rule,
        _join,
    ),
)
