"""Functions of lists. A kernel works on all elements of a column at once.

A column of lists is the array of all elements, and the number of elements of each list
(`circuits.types.codecs.nested.Lists`). Where elements are compared, they are encoded as codes
first, so that elements of any type can be compared, and NULL equals NULL.

A function is NULL if its list is NULL, unless its description says otherwise. Where DuckDB and
Spark differ, there are two functions, and the reader of the SQL dialect chooses one.

Cost: O(elements), and O(elements * log) where elements are sorted or compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, list_array, ranks, struct_array
from circuits.types.functions.argument_rows import fill_rows
from circuits.types.functions.casts import convert
from circuits.types.functions.coercion import cast_to, unify
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
from circuits.types.functions.type_rules import common_type, is_number, is_text

__all__ = ["FUNCTIONS", "is_list", "rows_of", "valid_all"]

#: A step fails rather than make more elements from one column.
MAX_ELEMENTS: Final = 2**31 - 1
_INT: Final = pa.int64()


def is_list(data_type: pa.DataType) -> bool:
    """Return True for a list of any layout."""
    return bool(
        arrow.is_list(data_type)
        or arrow.is_large_list(data_type)
        or arrow.is_fixed_size_list(data_type)
    )


def rows_of(arguments: Sequence[Values]) -> int:
    """Return the number of rows of the arguments of a kernel, one of which is an array."""
    return max(len(values) for values in arguments if isinstance(values, pa.Array))


def valid_all(arrays: Sequence[pa.Array]) -> BoolArray | None:
    """Return a mask of the rows in which no array is NULL; None if there is no NULL."""
    if not any(array.null_count for array in arrays):
        return None
    valid = np.ones(len(arrays[0]), np.bool_)
    for array in arrays:
        if array.null_count:
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
    return valid


# Rules


def _lists(arguments: Arguments, name: str, count: int) -> None:
    for argument in arguments[:count]:
        if not is_list(argument.type) and not arrow.is_null(argument.type):
            raise argument_error(name, arguments, "it takes a list")


def _typed(arguments: Arguments) -> Arguments:
    """Return the arguments with a list of NULLs where the type of a list is unknown."""
    nothing = pa.list_(pa.null())
    return tuple(cast_to(a, nothing) if arrow.is_null(a.type) else a for a in arguments)


def _list_rule(result: Callable[[pa.DataType], pa.DataType], count: int = 1) -> Rule:
    """Return the rule of a function of one list, and of ``count - 1`` integers."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, count, count)
        _lists(arguments, name, 1)
        first, *numbers = arguments
        (first,) = _typed((first,))
        for number in numbers:
            if not arrow.is_integer(number.type) and not arrow.is_null(number.type):
                raise argument_error(name, arguments, "positions and counts are integers")
        return (first, *(cast_to(number, _INT) for number in numbers)), result(first.type)

    return rule


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type


def _same_type(data_type: pa.DataType) -> pa.DataType:
    return pa.list_(data_type.value_type)


def _item_rule(result: pa.DataType | None = None, *, first: bool = False) -> Rule:
    """Return the rule of a function of a list and an element, which get a common type."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        values, item = arguments[::-1] if first else arguments
        _lists((values,), name, 1)
        (values,) = _typed((values,))
        element = common_type((values.type.value_type, item.type))
        made = cast_to(values, pa.list_(element)), cast_to(item, element)
        return made, result or pa.list_(element)

    return rule


def _lists_rule(result: pa.DataType | None = None) -> Rule:
    """Return the rule of a function of several lists, which get a common type."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1 if result is None else 2, None)
        _lists(arguments, name, len(arguments))
        typed = _typed(arguments)
        element = common_type(a.type.value_type for a in typed)
        target = pa.list_(element)
        return tuple(cast_to(a, target) for a in typed), result or target

    return rule


def _make_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    if not arguments:
        return (Literal(None, pa.bool_()),), pa.list_(pa.null())
    cast, element = unify(arguments)
    return cast, pa.list_(element)


# Kernels


def _codes(arrays: Sequence[pa.Array]) -> list[Int64Array]:
    """Return codes of the values of arrays of one type: equal values have equal codes."""
    codec = Codecs().codec(arrays[0].type)
    return [codec.encode(array) for array in arrays]


def _make(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    if arrow.is_null(result_type.value_type) and arrow.is_boolean(arguments[0].type):
        return list_array(result_type, np.zeros(rows, np.int64), [pa.nulls(0)], None)
    columns = [convert(fill_rows(values, rows), result_type.value_type) for values in arguments]
    width = len(columns)
    places = np.arange(rows)[:, np.newaxis] + rows * np.arange(width)
    values = pa.concat_arrays(columns).take(pa.array(places.reshape(-1)))
    return list_array(result_type, np.full(rows, width, np.int64), [values], None)


def _length(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return pa.array(lists.counts, mask=None if lists.valid is None else ~lists.valid)


def _element(base: int, *, from_end: bool, strict: bool) -> Kernel:
    """Return a kernel for the element at a position.

    Args:
        base: The position of the first element.
        from_end: True if position -1 is the last element.
        strict: True if a position without an element is an error; else the result is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        array, positions = (fill_rows(values, rows) for values in arguments)
        lists = Lists.of(array)
        given = pc.fill_null(positions, base).to_numpy()
        places = given - base
        if from_end:
            places = np.where(given < 0, lists.counts + given, places)
        found = (places >= 0) & (places < lists.counts) & ((given >= base) | from_end)
        valid = valid_all([array, positions])
        if strict:
            wrong = ~found if valid is None else ~found & valid
            if wrong.any():
                row = int(wrong.argmax())
                raise pa.ArrowInvalid(
                    f"position {given[row]} of a list with {lists.counts[row]} elements"
                )
        if valid is not None:
            found &= valid
        at = pa.array(np.where(found, lists.starts + places, 0), mask=~found)
        return lists.values.take(at)

    return kernel


def _matches(arguments: Sequence[Values]) -> tuple[Lists, BoolArray, pa.Array, pa.Array]:
    """Return the lists of the first argument, and which elements equal the second argument."""
    rows = rows_of(arguments)
    array, items = (fill_rows(values, rows) for values in arguments)
    lists = Lists.of(array)
    elements, wanted = _codes([lists.values, items])
    return lists, elements == wanted[lists.rows], array, items


def _any_of(lists: Lists, mask: BoolArray) -> BoolArray:
    """Return for each list whether the mask is true for one of its elements."""
    found: BoolArray = np.bincount(lists.rows[mask], minlength=len(lists.counts)) > 0
    return found


def _nulls(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _contains(*, unknown: bool) -> Kernel:
    """Return a kernel for whether a list has an element.

    Args:
        unknown: True if a list with NULL that has not the element gives NULL, as in Spark.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists, equal, array, items = _matches(arguments)
        found = _any_of(lists, equal)
        valid = valid_all([array, items])
        if unknown:
            undecided = ~found & _any_of(lists, _nulls(lists.values))
            valid = ~undecided if valid is None else valid & ~undecided
        return pa.array(found, mask=None if valid is None else ~valid)

    return kernel


def _position(*, missing: int | None) -> Kernel:
    """Return a kernel for the position of an element; ``missing`` is the result without one."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists, equal, array, items = _matches(arguments)
        hits = np.flatnonzero(equal)
        rows, first = np.unique(lists.rows[hits], return_index=True)
        result = np.full(len(lists.counts), missing or 0, np.int64)
        result[rows] = lists.places[hits[first]] + 1
        valid = valid_all([array, items]) if missing is not None else valid_all([array])
        if missing is None:
            found = np.zeros(len(result), np.bool_)
            found[rows] = True
            valid = found if valid is None else found & valid
        return pa.array(result, mask=None if valid is None else ~valid)

    return kernel


def _keep(lists: Lists, kept: BoolArray, data_type: pa.DataType) -> pa.Array:
    """Return the lists with only the elements of a mask."""
    counts = np.bincount(lists.rows[kept], minlength=len(lists.counts))
    return list_array(data_type, counts, [lists.values.filter(pa.array(kept))], lists.valid)


def _first_of_each(lists: Lists, codes: Int64Array) -> BoolArray:
    """Return a mask of the elements that no earlier element of their list equals."""
    order = np.lexsort((lists.places, codes, lists.rows))
    rows, sorted_codes = lists.rows[order], codes[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (rows[1:] != rows[:-1]) | (sorted_codes[1:] != sorted_codes[:-1])
    mask = np.empty(len(order), np.bool_)
    mask[order] = first
    return mask


def _distinct(*, nulls: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        kept = _first_of_each(lists, _codes([lists.values])[0])
        return _keep(lists, kept if nulls else kept & ~_nulls(lists.values), result_type)

    return kernel


def _compact(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    return _keep(lists, ~_nulls(lists.values), result_type)


def _remove(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists, equal, array, items = _matches(arguments)
    kept = _keep(lists, ~equal, result_type)
    return _with_nulls(kept, valid_all([array, items]))


def _with_nulls(array: pa.Array, valid: BoolArray | None) -> pa.Array:
    if valid is None:
        return array
    return pc.if_else(pa.array(valid), array, pa.scalar(None, array.type))


def _sort(*, descending: bool, nulls_first: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        keys = ranks(lists.values, Codecs())
        is_null = _nulls(lists.values)
        keys = -keys if descending else keys
        keys[is_null] = -len(keys) - 1 if nulls_first else len(keys) + 1
        order = np.lexsort((lists.places, keys, lists.rows))
        values = lists.values.take(pa.array(order))
        return list_array(result_type, lists.counts, [values], lists.valid)

    return kernel


def _reverse(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    ends = np.repeat(lists.starts + lists.counts - 1, lists.counts)
    values = lists.values.take(pa.array(ends - lists.places))
    return list_array(result_type, lists.counts, [values], lists.valid)


def _concat(*, skip_nulls: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        lists = [Lists.of(array) for array in arrays]
        order = np.argsort(np.concatenate([each.rows for each in lists]), kind="stable")
        values = pa.concat_arrays([each.values for each in lists]).take(pa.array(order))
        counts = np.sum([each.counts for each in lists], axis=0)
        valid = valid_all(arrays)
        if valid is not None and skip_nulls:
            valid = np.logical_or.reduce([_mask_of(array) for array in arrays])
        made = list_array(result_type, counts, [values], None)
        return _with_nulls(made, valid)

    return kernel


def _mask_of(array: pa.Array) -> BoolArray:
    mask: BoolArray = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _add_item(*, first: bool, skip_nulls: bool) -> Kernel:
    """Return a kernel that adds an element at the start or at the end."""
    concat = _concat(skip_nulls=skip_nulls)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        array, items = (fill_rows(values, rows) for values in arguments)
        single = list_array(
            result_type, np.ones(rows, np.int64), [convert(items, result_type.value_type)], None
        )
        return concat([single, array] if first else [array, single], result_type)

    return kernel


def _slice(*, by_length: bool) -> Kernel:
    """Return a kernel for the elements from a position on, to a position or of a number.

    Position 1 is the first element, position -1 the last. With ``by_length``, as in Spark, position
    0 and a negative number of elements are errors; else, as in DuckDB, the range is cut off at the
    ends of the list.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        lists, valid = Lists.of(arrays[0]), valid_all(arrays)
        begin, other = (pc.fill_null(array, 1).to_numpy() for array in arrays[1:])
        if by_length:
            for wrong, what in ((begin == 0, "position 0"), (other < 0, "a negative length")):
                if (wrong if valid is None else wrong & valid).any():
                    raise pa.ArrowInvalid(f"{what} of a slice")
            low = np.where(begin < 0, lists.counts + begin, begin - 1)
            outside = low < 0
            high = np.where(outside, 0, np.minimum(low + other, lists.counts))
            low = np.where(outside, 0, low)
        else:
            low = np.where(begin < 0, np.maximum(lists.counts + begin, 0), np.maximum(begin - 1, 0))
            high = np.where(other < 0, lists.counts + other + 1, np.minimum(other, lists.counts))
        places, owners = lists.places, lists.rows
        kept = (places >= low[owners]) & (places < high[owners])
        return _with_nulls(_keep(lists, kept, result_type), valid)

    return kernel


def _flatten(*, nulls: bool) -> Kernel:
    """Return a kernel that joins lists of lists; with ``nulls`` a NULL list makes it NULL."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        outer = Lists.of(arguments[0])
        if arrow.is_null(outer.values.type):
            counts = np.zeros(len(outer.counts), np.int64)
            made = list_array(
                result_type, counts, [pa.nulls(0, result_type.value_type)], outer.valid
            )
        else:
            inner = Lists.of(outer.values)
            counts = np.zeros(len(outer.counts), np.int64)
            np.add.at(counts, outer.rows, inner.counts)
            made = list_array(result_type, counts, [inner.values], outer.valid)
        unknown = _any_of(outer, _nulls(outer.values)) if nulls else None
        return made if unknown is None else _with_nulls(made, ~unknown)

    return kernel


def _set_operation(name: str) -> Kernel:
    """Return a kernel for union, except or intersect: elements in the order of appearance."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        valid = valid_all(arrays)
        if name == "union":
            lists = Lists.of(_concat(skip_nulls=False)(arrays, result_type))
            return _keep(lists, _first_of_each(lists, _codes([lists.values])[0]), result_type)
        left, right = (Lists.of(array) for array in arrays)
        codes, others = _codes([left.values, right.values])
        kept = _first_of_each(left, codes)
        found = _is_pair_in(left.rows, codes, right.rows, others)
        kept &= found if name == "intersect" else ~found
        return _with_nulls(_keep(left, kept, result_type), valid)

    return kernel


def _zip_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, None)
    _lists(arguments, name, len(arguments))
    typed = _typed(arguments)
    fields = [(str(place), a.type.value_type) for place, a in enumerate(typed)]
    return typed, pa.list_(pa.struct(fields))


def _zip(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Pair the elements of lists by position; shorter lists, and NULL, are filled with NULL."""
    rows = rows_of(arguments)
    lists = [Lists.of(fill_rows(values, rows)) for values in arguments]
    counts = np.max([each.counts for each in lists], axis=0)
    owners = np.repeat(np.arange(rows), counts)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = []
    for each in lists:
        missing = places >= each.counts[owners]
        at = np.where(missing, 0, each.starts[owners] + places)
        columns.append(each.values.take(pa.array(at, mask=missing)))
    structs = struct_array(result_type.value_type, columns, None, len(owners))
    return list_array(result_type, counts, [structs], None)


def _is_pair_in(
    rows: Int64Array, codes: Int64Array, other_rows: Int64Array, other_codes: Int64Array
) -> BoolArray:
    """Return which pairs of a row and a code are among other pairs."""
    _, numbers = np.unique(np.concatenate([codes, other_codes]), return_inverse=True)
    width = int(numbers.max(initial=0)) + 1
    mine, others = numbers[: len(codes)], numbers[len(codes) :]
    found: BoolArray = np.isin(rows * width + mine, other_rows * width + others)
    return found


def _overlap(*, unknown: bool) -> Kernel:
    """Return a kernel for whether lists share an element that is not NULL."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        left, right = (Lists.of(array) for array in arrays)
        codes, others = _codes([left.values, right.values])
        shared = _is_pair_in(left.rows, codes, right.rows, others) & ~_nulls(left.values)
        found, valid = _any_of(left, shared), valid_all(arrays)
        if unknown:
            has_null = _any_of(left, _nulls(left.values)) | _any_of(right, _nulls(right.values))
            undecided = ~found & has_null & (left.counts > 0) & (right.counts > 0)
            valid = ~undecided if valid is None else valid & ~undecided
        return pa.array(found, mask=None if valid is None else ~valid)

    return kernel


def _contains_all(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    left, right = (Lists.of(array) for array in arrays)
    codes, others = _codes([left.values, right.values])
    missing = ~_is_pair_in(right.rows, others, left.rows, codes) & ~_nulls(right.values)
    valid = valid_all(arrays)
    return pa.array(~_any_of(right, missing), mask=None if valid is None else ~valid)


def _aggregate_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    _lists(arguments, name, 1)
    typed = _typed(arguments)
    element = typed[0].type.value_type
    if name in ("list_min", "list_max"):
        return typed, element
    if not is_number(element) and not arrow.is_null(element):
        raise argument_error(name, arguments, "it takes a list of numbers")
    if name == "list_avg" or arrow.is_floating(element):
        return typed, pa.float64()
    if arrow.is_decimal(element):
        return typed, pa.decimal128(38, element.scale)
    return typed, _INT


def _extreme(*, last: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        present = np.flatnonzero(~_nulls(lists.values))
        keys = ranks(lists.values, Codecs())[present]
        owners = lists.rows[present]
        order = np.lexsort((-keys if last else keys, owners))
        rows, first = np.unique(owners[order], return_index=True)
        places = np.zeros(len(lists.counts), np.int64)
        missing = np.ones(len(lists.counts), np.bool_)
        places[rows], missing[rows] = present[order][first], False
        return lists.values.take(pa.array(places, mask=missing))

    return kernel


def _sum(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _grouped(arguments, result_type, "sum")


def _average(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return _grouped(arguments, result_type, "mean")


def _grouped(arguments: Sequence[Values], data_type: pa.DataType, function: str) -> pa.Array:
    """Return Arrow's aggregate of each list; NULL for a list without numbers."""
    lists = Lists.of(arguments[0])
    values = convert(lists.values, data_type)
    # One row with NULL per list, so that every list has a group.
    rows = np.concatenate([np.arange(len(lists.counts)), lists.rows])
    values = pa.concat_arrays([pa.nulls(len(lists.counts), data_type), values])
    if function == "sum" and arrow.is_integer(data_type):
        values = convert(values, pa.decimal128(38, 0))
    groups = pa.table({"row": rows, "value": values}).group_by("row", use_threads=False)
    result = groups.aggregate([("value", function)]).sort_by("row")
    found = result.column(f"value_{function}").combine_chunks()
    return found if found.type == data_type else pc.cast(found, data_type)


def _join_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 3)
    _lists(arguments, name, 1)
    values, *texts = arguments
    if not all(is_text(a.type) or arrow.is_null(a.type) for a in texts):
        raise argument_error(name, arguments, "the separator is a text")
    made = cast_to(_typed((values,))[0], pa.list_(pa.string()))
    return (made, *(cast_to(text, pa.string()) for text in texts)), pa.string()


def _join(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Join texts; NULL elements are replaced by the third argument, or left out."""
    rows = rows_of(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    lists, separators = Lists.of(arrays[0]), arrays[1]
    values = lists.values.cast(pa.string())
    if len(arrays) == 3:
        values = pc.coalesce(values, arrays[2].take(pa.array(lists.rows)))
    kept = ~_nulls(values)
    counts = np.bincount(lists.rows[kept], minlength=rows)
    texts = list_array(pa.list_(pa.string()), counts, [values.filter(pa.array(kept))], lists.valid)
    return _with_nulls(pc.binary_join(texts, separators), valid_all(arrays))


def _sequence_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 3)
    if not all(arrow.is_integer(a.type) or arrow.is_null(a.type) for a in arguments):
        raise argument_error(name, arguments, "it takes integers")
    return tuple(cast_to(a, _INT) for a in arguments), pa.list_(_INT)


def _sequence(*, exclusive: bool, strict: bool) -> Kernel:
    """Return a kernel for the numbers from a start to a stop by a step.

    Without a step, it is 1, and -1 downwards if ``strict``, as in Spark, where a step in the wrong
    direction is an error. Else such a step gives an empty list, as in DuckDB.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        valid = valid_all(arrays)
        start, stop = (pc.fill_null(array, 0).to_numpy() for array in arrays[:2])
        if len(arrays) == 3:
            step = pc.fill_null(arrays[2], 1).to_numpy()
        else:
            step = np.where((stop < start) & strict, -1, 1)
        zero = step == 0
        wrong = (((stop - start) * np.sign(step) < 0) | (zero & (start != stop))) & strict
        wrong |= zero & (not strict)
        if (wrong if valid is None else wrong & valid).any():
            raise pa.ArrowInvalid("the step does not lead from the start to the stop")
        # The distance may exceed int64; floats suffice to find that there are too many elements.
        safe = np.where(zero, 1, step)
        estimate = (stop.astype(float) - start) / safe
        if len(estimate) and np.maximum(estimate, 0).sum() > MAX_ELEMENTS:
            raise pa.ArrowInvalid("a sequence of more than 2,147,483,647 elements")
        distance = (stop - start) * np.sign(safe)
        width = np.abs(safe)
        counts = (distance + width - 1) // width if exclusive else distance // width + 1
        counts = np.maximum(counts, 0)
        if valid is not None:
            counts = np.where(valid, counts, 0)
        starts = np.cumsum(counts) - counts
        places = np.arange(int(counts.sum())) - np.repeat(starts, counts)
        values = np.repeat(start, counts) + places * np.repeat(safe, counts)
        return list_array(result_type, counts, [pa.array(values)], valid)

    return kernel


def _repeat_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    item, count = arguments
    if not arrow.is_integer(count.type) and not arrow.is_null(count.type):
        raise argument_error(name, arguments, "the number of elements is an integer")
    return (item, cast_to(count, _INT)), pa.list_(item.type)


def _repeat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    items, numbers = (fill_rows(values, rows) for values in arguments)
    counts = np.maximum(pc.fill_null(numbers, 0).to_numpy(), 0)
    if float(counts.sum(dtype=np.float64)) > MAX_ELEMENTS:
        raise pa.ArrowInvalid("lists of more than 2,147,483,647 elements")
    values = items.take(pa.array(np.repeat(np.arange(rows), counts)))
    return list_array(result_type, counts, [values], valid_all([numbers]))


def _split_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, pattern = arguments
    if not (is_text(value.type) or arrow.is_null(value.type)) or not isinstance(pattern, Literal):
        raise argument_error(name, arguments, "it takes a text and a constant separator")
    return tuple(cast_to(a, pa.string()) for a in arguments), pa.list_(pa.string())


def _split(*, regex: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = rows_of(arguments)
        values, separator = fill_rows(arguments[0], rows), arguments[1]
        pattern = separator.as_py() if isinstance(separator, pa.Scalar) else separator[0].as_py()
        if pattern is None:
            return pa.nulls(rows, result_type)
        if pattern == "":
            return _characters(values.cast(pa.string()), result_type)
        split = pc.split_pattern_regex if regex else pc.split_pattern
        return split(values, pattern).cast(result_type)

    return kernel


def _characters(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Split texts into their characters, by the bytes at which UTF-8 characters start."""
    counts = pc.fill_null(pc.utf8_length(values), 0).cast(_INT).to_numpy()
    texts = pc.fill_null(values, "")
    joined = pc.binary_join(
        list_array(pa.list_(pa.string()), np.array([len(texts)], np.int64), [texts], None),
        "",
    )
    data = np.frombuffer(joined[0].as_buffer() or b"", np.uint8)
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    offsets = np.append(starts, len(data)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    characters = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    made = list_array(data_type, counts, [characters], valid_all([values]))
    empty = pc.fill_null(pc.equal(values, ""), False)
    return pc.if_else(empty, pa.scalar([""], data_type), made)


def _function(name: str, description: str, rule: Rule, kernel: Kernel) -> Function:
    return Function(name, description, rule, kernel)


_INTEGER = _list_rule(lambda data_type: _INT)
_SAME = _list_rule(_same_type)


def _flatten_type(data_type: pa.DataType) -> pa.DataType:
    inner = data_type.value_type
    return pa.list_(inner.value_type if is_list(inner) else pa.null())


def _flatten_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, result = _list_rule(_flatten_type)(name, arguments, target_type)
    inner = typed[0].type.value_type
    if not is_list(inner) and not arrow.is_null(inner):
        raise argument_error(name, arguments, "it takes a list of lists")
    return typed, result


def _variants(name: str, description: str, rule: Rule, make: Any) -> tuple[Function, Function]:
    """Return a function and the one that is NULL, or fails, in more cases, as in Spark."""
    return (
        Function(name, description, rule, make(False)),
        Function(f"{name}_or_null", f"{description}; as in Spark", rule, make(True)),
    )


_AT = _list_rule(_value_type, 2)

FUNCTIONS = (
    Function("make_list", "the list of the arguments", _make_rule, _make),
    Function("list_length", "the number of elements of a", _INTEGER, _length),
    Function(
        "list_element",
        "element b of the list a; 1 is the first, -1 the last, NULL without one",
        _AT,
        _element(1, from_end=True, strict=False),
    ),
    Function(
        "list_element_strict",
        "element b of the list a; 1 is the first, -1 the last, an error without one",
        _AT,
        _element(1, from_end=True, strict=True),
    ),
    Function(
        "list_get",
        "element b of the list a; 0 is the first, NULL without one",
        _AT,
        _element(0, from_end=False, strict=False),
    ),
    Function(
        "list_get_strict",
        "element b of the list a; 0 is the first, an error without one",
        _AT,
        _element(0, from_end=False, strict=True),
    ),
    *_variants(
        "list_contains",
        "true if the list a has the element b",
        _item_rule(pa.bool_()),
        lambda spark: _contains(unknown=spark),
    ),
    Function(
        "list_position",
        "the position of b in the list a, from 1; NULL without one",
        _item_rule(_INT),
        _position(missing=None),
    ),
    Function(
        "list_position_or_zero",
        "the position of b in the list a, from 1; 0 without one",
        _item_rule(_INT),
        _position(missing=0),
    ),
    Function(
        "list_distinct",
        "the different elements of the list a, without NULL",
        _SAME,
        _distinct(nulls=False),
    ),
    Function(
        "list_distinct_with_null",
        "the different elements of the list a, with NULL",
        _SAME,
        _distinct(nulls=True),
    ),
    *(
        Function(
            f"list_sort{'_desc' if descending else ''}{'_nulls_first' if nulls_first else ''}",
            f"the list a sorted {'down' if descending else 'up'}wards, NULL "
            f"{'first' if nulls_first else 'last'}",
            _SAME,
            _sort(descending=descending, nulls_first=nulls_first),
        )
        for descending in (False, True)
        for nulls_first in (False, True)
    ),
    Function("list_reverse", "the list a from the last element to the first", _SAME, _reverse),
    Function("list_compact", "the elements of the list a that are not NULL", _SAME, _compact),
    Function(
        "list_concat",
        "the elements of all lists; a list that is NULL has none",
        _lists_rule(),
        _concat(skip_nulls=True),
    ),
    Function(
        "list_concat_or_null",
        "the elements of all lists; NULL if a list is NULL",
        _lists_rule(),
        _concat(skip_nulls=False),
    ),
    *_variants(
        "list_append",
        "the list a with the element b after it",
        _item_rule(),
        lambda spark: _add_item(first=False, skip_nulls=not spark),
    ),
    *_variants(
        "list_prepend",
        "the list a with the element b before it",
        _item_rule(),
        lambda spark: _add_item(first=True, skip_nulls=not spark),
    ),
    Function("list_remove", "the list a without the elements equal to b", _item_rule(), _remove),
    Function(
        "list_slice",
        "the elements b to c of the list a, from 1; -1 is the last",
        _list_rule(_same_type, 3),
        _slice(by_length=False),
    ),
    Function(
        "list_slice_length",
        "c elements of the list a, from element b on, from 1; -1 is the last",
        _list_rule(_same_type, 3),
        _slice(by_length=True),
    ),
    *_variants(
        "list_flatten",
        "the elements of the lists in the list a",
        _flatten_rule,
        lambda spark: _flatten(nulls=spark),
    ),
    *(
        Function(f"list_{name}", text, _lists_rule(), _set_operation(name))
        for name, text in (
            ("union", "the different elements of the lists a and b"),
            ("except", "the different elements of the list a that b does not have"),
            ("intersect", "the different elements of the list a that b has"),
        )
    ),
    *_variants(
        "list_overlaps",
        "true if the lists a and b share an element",
        _lists_rule(pa.bool_()),
        lambda spark: _overlap(unknown=spark),
    ),
    Function(
        "list_contains_all",
        "true if the list a has all elements of the list b",
        _lists_rule(pa.bool_()),
        _contains_all,
    ),
    Function(
        "list_zip",
        "the list of structs of the elements of the lists at each position, or NULL",
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
    Function(
        "series",
        "the numbers from a to b, with b, by steps of c",
        _sequence_rule,
        _sequence(exclusive=False, strict=False),
    ),
    Function(
        "series_before",
        "the numbers from a to b, without b, by steps of c",
        _sequence_rule,
        _sequence(exclusive=True, strict=False),
    ),
    Function(
        "sequence",
        "the numbers from a to b, with b, up- or downwards; as in Spark",
        _sequence_rule,
        _sequence(exclusive=False, strict=True),
    ),
    Function("list_repeat", "the list that has the element a b times", _repeat_rule, _repeat),
    Function(
        "split",
        "the parts of the text a between the separators b",
        _split_rule,
        _split(regex=False),
    ),
    Function(
        "split_regex",
        "the parts of the text a between matches of the pattern b",
        _split_rule,
        _split(regex=True),
    ),
)
