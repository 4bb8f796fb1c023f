"""Aggregates of the elements of one list: counts, sums, extremes, statistics, bits.

The result is NULL if the list is NULL. NULL elements are skipped, except by ``list_length``,
``list_first`` and ``list_last``. The result of a list without elements to aggregate is NULL; its
counts are 0.

Cost: O(elements), and O(elements * log) for the extremes, the median and the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, ranks
from circuits.types.functions.argument_rows import relabel_scale, unscaled_digits
from circuits.types.functions.casting.casts import convert
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
from circuits.types.functions.nested.list_masks import null_mask
from circuits.types.functions.nested.list_rules import require_lists, type_null_lists
from circuits.types.functions.numbers.interpolation import (
    Floats,
    interpolate_floats,
    interpolate_integers,
)
from circuits.types.functions.type_rules import is_number, is_temporal

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()
_FLOAT: Final = pa.float64()
_TypeTest = Callable[[pa.DataType], bool]
# Its arguments: the lists; `present`, the mask of their elements that are not NULL; and the type of
# the result.
_Aggregate = Callable[[Lists, BoolArray, pa.DataType], pa.Array]


def _rule(is_accepted: _TypeTest, description: str, result: pa.DataType | None) -> Rule:
    """Return the rule of an aggregate of a list.

    Args:
        is_accepted: Tests the type of the elements.
        description: The accepted elements, for the message.
        result: The type of the result; None for the type of the elements.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1, 1)
        require_lists(name, arguments, 1)
        typed = type_null_lists(arguments)
        element_type = typed[0].type.value_type
        if not arrow.is_null(element_type) and not is_accepted(element_type):
            raise argument_error(name, arguments, f"it takes a list of {description}")
        return typed, result or element_type

    return rule


def _is_any(data_type: pa.DataType) -> bool:
    return True


def _is_integer(data_type: pa.DataType) -> bool:
    return bool(arrow.is_integer(data_type))


def _is_boolean(data_type: pa.DataType) -> bool:
    return bool(arrow.is_boolean(data_type))


def _kernel(aggregate: _Aggregate) -> Kernel:
    """Return a kernel that aggregates each list; the result for NULL is NULL."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        lists = Lists.of(arguments[0])
        result = aggregate(lists, ~null_mask(lists.values), result_type)
        result = result if result.type == result_type else convert(result, result_type)
        if lists.valid is None:
            return result
        return pc.if_else(pa.array(lists.valid), result, pa.scalar(None, result_type))

    return kernel


def _length(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    return pa.array(lists.lengths)


def _count(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    counts = np.bincount(lists.owners[present], minlength=len(lists.lengths))
    return pa.array(counts.astype(np.int64))


def _element_kernel(*, last: bool, skip_nulls: bool) -> Kernel:
    """Return a kernel for the first or the last element, of those that are not NULL or of all."""

    def element(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
        candidates = np.flatnonzero(present) if skip_nulls else np.arange(len(present))
        owners = lists.owners[candidates]
        indices = np.zeros(len(lists.lengths), np.int64)  # the element of each list
        is_missing = np.ones(len(lists.lengths), np.bool_)
        # If several elements are assigned to one list, numpy keeps the last one.
        order = slice(None) if last else slice(None, None, -1)
        indices[owners[order]] = candidates[order]
        is_missing[owners] = False
        return lists.values.take(pa.array(indices, mask=is_missing))

    return _kernel(element)


def _group_aggregate(
    lists: Lists, element_type: pa.DataType, function: str, options: Any = None
) -> pa.Array:
    """Return a grouped aggregate of Arrow, with one group per list.

    Args:
        lists: The lists.
        element_type: The type to which the elements are cast first.
        function: The name of the aggregate.
        options: Its options.
    """
    count = len(lists.lengths)
    values = convert(lists.values, element_type)
    # One row with NULL per list, so that every list has a group.
    table = pa.table(
        {
            "row": np.concatenate([np.arange(count), lists.owners]),
            "value": pa.concat_arrays([pa.nulls(count, element_type), values]),
        }
    )
    groups = table.group_by("row", use_threads=False)
    result = groups.aggregate([("value", function, options)]).sort_by("row")
    return result.column(f"value_{function}").combine_chunks()


def _arrow_kernel(function: str, element_type: pa.DataType, options: Any = None) -> Kernel:
    """Return a kernel for a grouped aggregate of Arrow; see `_group_aggregate`."""
    return _kernel(
        lambda lists, present, result_type: _group_aggregate(lists, element_type, function, options)
    )


def _sum(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    # Arrow's sum of integers wraps around, and its sum of decimals may have too many digits; the
    # sum of wider decimals is exact, and its cast is checked.
    element_type = result_type
    if arrow.is_integer(result_type):
        element_type = pa.decimal128(38, 0)
    elif arrow.is_decimal(result_type):
        element_type = pa.decimal256(76, result_type.scale)
    return _group_aggregate(lists, element_type, "sum").cast(result_type)


def _bits(operation: np.ufunc, identity: int) -> Kernel:
    """Return a kernel that combines the bits of integers.

    Args:
        operation: The bitwise operation of two integers.
        identity: The integer that leaves every other unchanged.
    """

    def aggregate(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
        totals = np.full(len(lists.lengths), identity, np.int64)
        owners = lists.owners[present]
        operation.at(totals, owners, convert(lists.values, _INT).filter(pa.array(present)))
        is_empty = np.bincount(owners, minlength=len(totals)) == 0
        return pa.array(totals, mask=is_empty)

    return _kernel(aggregate)


def _sorted_present(lists: Lists, present: BoolArray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Sort the elements of each list that are not NULL.

    Returns:
        For each of these elements, its index in ``lists.values`` and the row of its list; list
        after list, and sorted within a list. For each list, the number of these elements.
    """
    present_indices = np.flatnonzero(present)
    keys = ranks(lists.values, Codecs())[present_indices]
    order = np.lexsort((keys, lists.owners[present_indices]))
    owners = lists.owners[present_indices][order]
    return present_indices[order], owners, np.bincount(owners, minlength=len(lists.lengths))


def _sum_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    typed, element_type = _NUMBERS_RULE(name, arguments, target_type)
    if arrow.is_floating(element_type):
        return typed, _FLOAT
    if arrow.is_decimal(element_type):
        return typed, pa.decimal128(38, element_type.scale)
    return typed, _INT


def _extreme(*, greatest: bool) -> Kernel:
    """Return a kernel for the least or the greatest element; of equal ones, the first."""

    def extreme(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
        present_indices = np.flatnonzero(present)
        keys = ranks(lists.values, Codecs())[present_indices]
        owners = lists.owners[present_indices]
        order = np.lexsort((-keys if greatest else keys, owners))
        rows, first = np.unique(owners[order], return_index=True)
        indices = np.zeros(len(lists.lengths), np.int64)
        indices[rows] = present_indices[order[first]]
        is_missing = np.ones(len(lists.lengths), np.bool_)
        is_missing[rows] = False
        return lists.values.take(pa.array(indices, mask=is_missing))

    return _kernel(extreme)


# The median of longer decimals is a DOUBLE, as that of `quantile_cont` over rows.
_MAX_KEPT_PRECISION: Final = 18


def _median_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, element_type = _ELEMENT_RULE(name, arguments, target_type)
    if arrow.is_date(element_type):
        return typed, pa.timestamp("us")
    if arrow.is_time32(element_type):
        return typed, pa.time64("us")
    keeps_type = arrow.is_decimal(element_type) and element_type.precision <= _MAX_KEPT_PRECISION
    keeps_type = keeps_type or arrow.is_float32(element_type)
    return typed, _FLOAT if is_number(element_type) and not keeps_type else element_type


def _median(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    """Return the middle element, or the mean of two middle ones; the lower of those without a mean.

    Numbers and times have a mean. As in DuckDB, that of decimals has their type, without its
    further digits, and that of dates is a timestamp.
    """
    present_indices, _, counts = _sorted_present(lists, present)
    starts = np.cumsum(counts) - counts
    is_empty = counts == 0
    if not len(present_indices):
        return pa.nulls(len(counts), result_type)
    # The two middle elements are the same one for an odd count. The index of an empty list is not
    # used, but must be valid.
    last = len(present_indices) - 1
    low_indices = present_indices[np.minimum(starts + np.maximum(counts - 1, 0) // 2, last)]
    high_indices = present_indices[np.minimum(starts + counts // 2, last)]
    low = lists.values.take(pa.array(low_indices, mask=is_empty))
    high = lists.values.take(pa.array(high_indices, mask=is_empty))
    share = np.where(low_indices == high_indices, 0.0, 0.5)
    if is_number(result_type) and not arrow.is_decimal(result_type):
        numbers = interpolate_floats(_doubles_of(low), _doubles_of(high), share)
        return pa.array(numbers, mask=is_empty).cast(result_type)
    is_time = is_temporal(result_type) or arrow.is_time(result_type)
    if not (arrow.is_decimal(result_type) or is_time or arrow.is_duration(result_type)):
        return low
    low, high = convert(low, result_type), convert(high, result_type)
    middle = interpolate_integers(_integers_of(low), _integers_of(high), share, result_type)
    if arrow.is_decimal(result_type):
        decimals = pc.cast(pa.array(middle, mask=is_empty), pa.decimal128(19, 0))
        return relabel_scale(decimals, result_type.precision, result_type.scale)
    return pa.array(middle, mask=is_empty).cast(result_type)


def _doubles_of(values: pa.Array) -> Floats:
    """Return numbers as floats, NULL as 0."""
    return np.asarray(pc.fill_null(convert(values, _FLOAT), 0).to_numpy(zero_copy_only=False))


def _integers_of(values: pa.Array) -> Int64Array:
    """Return the whole numbers of values: the digits of decimals, or the units of times.

    NULL is 0.
    """
    if arrow.is_decimal(values.type):
        values = unscaled_digits(values)
    return np.asarray(pc.fill_null(values.cast(_INT), 0).to_numpy(zero_copy_only=False))


def _mean(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    """Return the mean of numbers; the sum of integers and of decimals is exact."""
    element_type = lists.values.type
    if arrow.is_floating(element_type) or arrow.is_null(element_type):
        return _group_aggregate(lists, _FLOAT, "mean")
    counts = _count(lists, present, _INT).to_numpy()
    if arrow.is_decimal(element_type):
        total = _group_aggregate(lists, pa.decimal256(76, element_type.scale), "sum")
        sums, unit = _doubles_of(unscaled_digits(total)), 10.0**element_type.scale
    else:
        # The sums of the high and of the low 32 bits are exact, and their sum is rounded once, if
        # a list has less than two million elements.
        is_unsigned = arrow.is_uint64(element_type)
        integers = lists.values if is_unsigned else convert(lists.values, _INT)
        numbers = pc.fill_null(integers, 0).to_numpy(zero_copy_only=False)
        high = _sums((numbers >> 32).astype(np.int64), lists)
        low = _sums((numbers & (2**32 - 1)).astype(np.int64), lists)
        sums, unit = np.asarray(high * 2.0**32 + low, np.float64), 1.0
    with np.errstate(invalid="ignore"):
        return pa.array(sums / (counts * unit), mask=counts == 0)


def _sums(numbers: Int64Array, lists: Lists) -> Int64Array:
    """Return the sum of the numbers of each list."""
    ends = np.cumsum(lists.lengths)
    totals = np.concatenate([[0], np.cumsum(numbers)])
    return np.asarray(totals[ends] - totals[ends - lists.lengths])


def _mode(lists: Lists, present: BoolArray, result_type: pa.DataType) -> pa.Array:
    present_indices, owners, counts = _sorted_present(lists, present)
    keys = ranks(lists.values, Codecs())[present_indices]
    is_first = np.ones(len(present_indices), np.bool_)
    is_first[1:] = (owners[1:] != owners[:-1]) | (keys[1:] != keys[:-1])
    # A run is a sequence of equal elements of one sorted list.
    run_starts = np.flatnonzero(is_first)
    run_lengths = np.diff(np.append(run_starts, len(present_indices)))
    # The longest run of each list, and of several the one with the least value.
    order = np.lexsort((run_starts, -run_lengths, owners[run_starts]))
    rows, first = np.unique(owners[run_starts][order], return_index=True)
    indices = np.zeros(len(counts), np.int64)
    indices[rows] = present_indices[run_starts[order][first]]
    return lists.values.take(pa.array(indices, mask=counts == 0))


def _deviation_function(name: str, function: str, ddof: int, description: str) -> Function:
    return Function(
        name,
        description,
        _FLOAT_RULE,
        _arrow_kernel(function, _FLOAT, pc.VarianceOptions(ddof=ddof, min_count=1)),
    )


_COUNT_RULE = _rule(_is_any, "", _INT)
_ELEMENT_RULE = _rule(_is_any, "", None)
_NUMBERS_RULE = _rule(is_number, "numbers", None)
_FLOAT_RULE = _rule(is_number, "numbers", _FLOAT)

FUNCTIONS = (
    Function("list_length", "the number of elements of a", _COUNT_RULE, _kernel(_length)),
    Function(
        "list_count",
        "the number of elements of the list a that are not NULL",
        _COUNT_RULE,
        _kernel(_count),
    ),
    Function(
        "list_min", "the least element of the list a", _ELEMENT_RULE, _extreme(greatest=False)
    ),
    Function(
        "list_max", "the greatest element of the list a", _ELEMENT_RULE, _extreme(greatest=True)
    ),
    Function("list_sum", "the sum of the elements of the list a", _sum_rule, _kernel(_sum)),
    Function(
        "list_avg",
        "the mean of the elements of the list a",
        _FLOAT_RULE,
        _kernel(_mean),
    ),
    Function(
        "list_first",
        "the first element of the list a",
        _ELEMENT_RULE,
        _element_kernel(last=False, skip_nulls=False),
    ),
    Function(
        "list_last",
        "the last element of the list a",
        _ELEMENT_RULE,
        _element_kernel(last=True, skip_nulls=False),
    ),
    Function(
        "list_any_value",
        "the first element of the list a that is not NULL",
        _ELEMENT_RULE,
        _element_kernel(last=False, skip_nulls=True),
    ),
    Function(
        "list_product",
        "the product of the numbers of the list a, as a float64",
        _FLOAT_RULE,
        _arrow_kernel("product", _FLOAT, pc.ScalarAggregateOptions(min_count=1)),
    ),
    Function(
        "list_bool_and",
        "true if all conditions of the list a are true",
        _rule(_is_boolean, "conditions", pa.bool_()),
        _arrow_kernel("all", pa.bool_(), pc.ScalarAggregateOptions(min_count=1)),
    ),
    Function(
        "list_bool_or",
        "true if a condition of the list a is true",
        _rule(_is_boolean, "conditions", pa.bool_()),
        _arrow_kernel("any", pa.bool_(), pc.ScalarAggregateOptions(min_count=1)),
    ),
    *(
        Function(
            f"list_bit_{name}",
            f"the {text} of the bits of the integers of the list a",
            _rule(_is_integer, "integers", _INT),
            _bits(operation, identity),
        )
        for name, text, operation, identity in (
            ("and", "conjunction", np.bitwise_and, -1),
            ("or", "disjunction", np.bitwise_or, 0),
            ("xor", "exclusive or", np.bitwise_xor, 0),
        )
    ),
    _deviation_function("list_var_pop", "variance", 0, "the variance of the numbers of the list a"),
    _deviation_function(
        "list_var_samp",
        "variance",
        1,
        "the variance of the list a as a sample; NULL for one number",
    ),
    _deviation_function("list_stddev_pop", "stddev", 0, "the standard deviation of the list a"),
    _deviation_function(
        "list_stddev_samp",
        "stddev",
        1,
        "the standard deviation of the list a as a sample; NULL for one number",
    ),
    Function(
        "list_median",
        "the middle element of the sorted list a, or the mean of the two middle numbers or times",
        _median_rule,
        _kernel(_median),
    ),
    Function(
        "list_mode",
        "the most frequent element of the list a; of several, the least",
        _ELEMENT_RULE,
        _kernel(_mode),
    ),
)
