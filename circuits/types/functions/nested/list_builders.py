"""Functions that build lists: of their arguments, of numbers, of copies, and of parts of a text.

DuckDB and Spark build sequences of numbers differently, so there are several functions, and the
code that reads the SQL dialect chooses one. Cost: O(elements of the result).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.codecs.nested import element_positions, list_array
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import cast_to, unify
from circuits.types.functions.exact_integers import distance, magnitude
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.length_limits import MAX_LIST_ELEMENTS, check_list_lengths
from circuits.types.functions.nested.list_masks import valid_all
from circuits.types.functions.signatures import per_distinct_row
from circuits.types.functions.type_rules import is_text

__all__ = ["FUNCTIONS"]

_INT: Final = pa.int64()


def _make_list_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    if not arguments:
        # A kernel needs an argument to know the number of rows, so a call without any gets a NULL.
        return (Literal(None, pa.bool_()),), pa.list_(pa.null())
    typed, element_type = unify(arguments)
    return typed, pa.list_(element_type)


def _make_list(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    # The call had no arguments: see the type rule.
    if arrow.is_null(result_type.value_type) and arrow.is_boolean(arguments[0].type):
        return list_array(result_type, np.zeros(rows, np.int64), [pa.nulls(0)], None)
    columns = [convert(fill_rows(values, rows), result_type.value_type) for values in arguments]
    width = len(columns)
    # The columns are concatenated; element j of row i is at i + rows * j.
    positions = np.arange(rows)[:, np.newaxis] + rows * np.arange(width)
    values = pa.concat_arrays(columns).take(pa.array(positions.reshape(-1)))
    return list_array(result_type, np.full(rows, width, np.int64), [values], None)


def _sequence_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 3)
    if not all(arrow.is_integer(a.type) or arrow.is_null(a.type) for a in arguments):
        raise argument_error(name, arguments, "it takes integers")
    return tuple(cast_to(a, _INT) for a in arguments), pa.list_(_INT)


def _sequence(*, exclusive: bool, strict: bool) -> Kernel:
    """Return a kernel for the numbers from a start to a stop by a step.

    Args:
        exclusive: If True, the stop is not part of the list.
        strict: If True, as in Spark, the default step leads to the stop (1 or -1), and a step in
            the wrong direction is an error. A step of 0 is an error unless start and stop are
            equal. If False, as in DuckDB, the default step is 1, a step in the wrong direction
            gives an empty list, and a step of 0 is always an error.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        valid = valid_all(arrays)
        start, stop = (pc.fill_null(array, 0).to_numpy() for array in arrays[:2])
        if len(arrays) == 3:
            step = pc.fill_null(arrays[2], 1).to_numpy()
        else:
            step = np.where((stop < start) & strict, -1, 1)
        is_zero = step == 0
        # A step leads to the stop, or there is nothing to go.
        leads = np.where(step < 0, stop <= start, stop >= start)
        is_wrong = ~leads | (is_zero & (start != stop)) if strict else is_zero
        if (is_wrong if valid is None else is_wrong & valid).any():
            raise pa.ArrowInvalid("the step does not lead from the start to the stop")
        nonzero_step = np.where(is_zero, 1, step)
        steps, remainder = np.divmod(distance(start, stop), magnitude(nonzero_step))
        # A sum with these steps, which are more than a list may have, does not overflow.
        steps = np.minimum(steps, MAX_LIST_ELEMENTS + 1).astype(np.int64)
        lengths = steps + (remainder != 0) if exclusive else steps + 1
        lengths = np.where(leads if valid is None else leads & valid, lengths, 0)
        check_list_lengths(lengths)
        # A product may wrap around, but the sum with the start is between start and stop, so it
        # wraps back.
        offsets = element_positions(lengths) * np.repeat(nonzero_step, lengths)
        values = np.repeat(start, lengths) + offsets
        return list_array(result_type, lengths, [pa.array(values)], valid)

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
    rows = row_count(arguments)
    items, requested = (fill_rows(values, rows) for values in arguments)
    lengths = np.maximum(pc.fill_null(requested, 0).to_numpy(), 0)
    check_list_lengths(lengths)
    values = items.take(pa.array(np.repeat(np.arange(rows), lengths)))
    return list_array(result_type, lengths, [values], valid_all([requested]))


def _split_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    if not all(is_text(part.type) or arrow.is_null(part.type) for part in arguments):
        raise argument_error(name, arguments, "it takes a text and a separator")
    if name == "split_regex" and not isinstance(arguments[1], Literal):
        raise argument_error(name, arguments, "it takes a text and a constant separator")
    return tuple(cast_to(a, pa.string()) for a in arguments), pa.list_(pa.string())


def _split(*, regex: bool) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        values, separator = fill_rows(arguments[0], rows), arguments[1]
        if not regex and (isinstance(separator, pa.Array) or not separator.is_valid):
            return _split_by_rows([values, separator], result_type)
        pattern = separator.as_py() if isinstance(separator, pa.Scalar) else separator[0].as_py()
        if pattern is None:
            return pa.nulls(rows, result_type)
        if pattern == "":
            return _characters(values.cast(pa.string()), result_type)
        split = pc.split_pattern_regex if regex else pc.split_pattern
        return split(values, pattern).cast(result_type)

    return kernel


def _parts(text: str | None, separator: str | None) -> list[str] | None:
    """Return the parts of a text; as in DuckDB, a separator that is NULL separates nothing."""
    if text is None or separator is None:
        return None if text is None else [text]
    return text.split(separator) if separator else list(text) or [""]


_split_by_rows: Final = per_distinct_row(_parts, nulls=True)


def _characters(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Split texts into their characters, by the bytes at which UTF-8 characters start."""
    lengths = pc.fill_null(pc.utf8_length(values), 0).cast(_INT).to_numpy()
    texts = pc.fill_null(values, "")
    joined = pc.binary_join(
        list_array(pa.list_(pa.string()), np.array([len(texts)], np.int64), [texts], None),
        "",
    )
    utf8 = np.frombuffer(joined[0].as_buffer() or b"", np.uint8)
    starts = np.flatnonzero((utf8 & 0xC0) != 0x80)
    offsets = np.append(starts, len(utf8)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(utf8)]
    characters = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    lists = list_array(data_type, lengths, [characters], valid_all([values]))
    # As in DuckDB, the parts of an empty text are one empty text, not none.
    is_empty = pc.fill_null(pc.equal(values, ""), False)
    return pc.if_else(is_empty, pa.scalar([""], data_type), lists)


FUNCTIONS = (
    Function("make_list", "the list of the arguments", _make_list_rule, _make_list),
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
    Function("list_repeat", "a list of b elements, each of them a", _repeat_rule, _repeat),
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
