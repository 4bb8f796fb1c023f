"""Functions that combine lists: concatenate, add an element, flatten, zip, join to a text.

Where DuckDB and Spark differ for NULL, there are two functions, and the SQL front end chooses the
one of the dialect.

Cost: O(elements of the result), and O(elements * log) to concatenate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.nested import Lists, element_positions, list_array, struct_array
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.length_limits import byte_lengths, check_lengths
from circuits.types.functions.nested.list_masks import (
    filter_elements,
    has_any,
    null_mask,
    set_nulls,
    valid_all,
)
from circuits.types.functions.nested.list_rules import (
    is_list,
    item_rule,
    list_rule,
    require_lists,
    type_null_lists,
    unified_lists_rule,
)
from circuits.types.functions.type_rules import is_text

__all__ = ["FUNCTIONS", "concat_lists"]


def concat_lists(
    arrays: Sequence[pa.Array], valid: BoolArray | None, result_type: pa.DataType
) -> pa.Array:
    """Concatenate the lists of each row; a list that is NULL has no elements.

    Args:
        arrays: Columns of lists of type ``result_type``.
        valid: A mask of the rows whose result is not NULL; None if no result is NULL.
        result_type: The type of the result.
    """
    columns = [Lists.of(array) for array in arrays]
    order = np.argsort(np.concatenate([lists.owners for lists in columns]), kind="stable")
    values = pa.concat_arrays([lists.values for lists in columns]).take(pa.array(order))
    lengths = np.sum([lists.lengths for lists in columns], axis=0)
    return set_nulls(list_array(result_type, lengths, [values], None), valid)


def _concat(*, skip_nulls: bool) -> Kernel:
    """Return a kernel that concatenates lists.

    Args:
        skip_nulls: If True, a list that is NULL counts as an empty list, as in DuckDB; the result
            is NULL only if every argument is a NULL without a type. If False, the result is NULL
            if a list is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [convert(fill_rows(values, rows), result_type) for values in arguments]
        valid = valid_all(arrays)
        if skip_nulls:
            # NULL without a type has been cast to a list of the type null.
            has_type = not pa.types.is_null(result_type.value_type)
            nulls = [null_mask(array) for array in arrays]
            valid = None if has_type else ~np.logical_and.reduce(nulls)
        return concat_lists(arrays, valid, result_type)

    return kernel


def _add_item(*, first: bool, skip_nulls: bool) -> Kernel:
    """Return a kernel that adds an element at the start or at the end.

    Args:
        first: True if the element is added at the start.
        skip_nulls: If True, a list that is NULL counts as an empty list; else the result is NULL.
    """
    concat = _concat(skip_nulls=skip_nulls)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        array, items = (fill_rows(values, rows) for values in arguments)
        item_lists = list_array(  # each with one element
            result_type, np.ones(rows, np.int64), [convert(items, result_type.value_type)], None
        )
        return concat([item_lists, array] if first else [array, item_lists], result_type)

    return kernel


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
        if null_if_inner_null:
            return set_nulls(flat, ~has_any(outer, null_mask(outer.values)))
        return flat

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
    owners, positions = np.repeat(np.arange(rows), lengths), element_positions(lengths)
    fields = []
    for lists in columns:
        is_missing = positions >= lists.lengths[owners]
        indices = np.where(is_missing, 0, lists.starts[owners] + positions)
        fields.append(lists.values.take(pa.array(indices, mask=is_missing)))
    structs = struct_array(result_type.value_type, fields, None, len(owners))
    return list_array(result_type, lengths, [structs], None)


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
    _check_joined(values, separators, lists.owners, rows)
    texts = filter_elements(
        Lists(lists.lengths, values, lists.valid), ~null_mask(values), pa.list_(pa.string())
    )
    return set_nulls(pc.binary_join(texts, separators), valid_all(arrays))


def _check_joined(values: pa.Array, separators: pa.Array, owners: Int64Array, rows: int) -> None:
    """Check the lengths of joined texts; n texts have at most n - 1 separators."""
    separator_bytes = byte_lengths(separators, rows)
    lengths = byte_lengths(values, len(values)) + separator_bytes[owners]
    totals = np.bincount(owners, weights=lengths, minlength=rows).astype(np.int64)
    check_lengths(np.maximum(totals - separator_bytes, 0))


FUNCTIONS = (
    Function(
        "list_concat",
        "the elements of all lists; a list that is NULL has none",
        unified_lists_rule(),
        _concat(skip_nulls=True),
    ),
    Function(
        "list_concat_or_null",
        "the elements of all lists; NULL if a list is NULL",
        unified_lists_rule(),
        _concat(skip_nulls=False),
    ),
    Function(
        "list_append",
        "the list a with the element b after it",
        item_rule(),
        _add_item(first=False, skip_nulls=True),
    ),
    Function(
        "list_append_or_null",
        "the list a with the element b after it; as in Spark",
        item_rule(),
        _add_item(first=False, skip_nulls=False),
    ),
    Function(
        "list_prepend",
        "the list a with the element b before it",
        item_rule(),
        _add_item(first=True, skip_nulls=True),
    ),
    Function(
        "list_prepend_or_null",
        "the list a with the element b before it; as in Spark",
        item_rule(),
        _add_item(first=True, skip_nulls=False),
    ),
    Function(
        "list_flatten",
        "the elements of the lists in the list a",
        _flatten_rule,
        _flatten(null_if_inner_null=False),
    ),
    Function(
        "list_flatten_or_null",
        "the elements of the lists in the list a; as in Spark",
        _flatten_rule,
        _flatten(null_if_inner_null=True),
    ),
    Function(
        "list_zip",
        "the list of structs of the elements at each position; NULL where a list is too short",
        _zip_rule,
        _zip,
    ),
    Function(
        "list_join",
        "the texts of the list a with the text b in between; NULL is left out, or becomes c",
        _join_rule,
        _join,
    ),
)
