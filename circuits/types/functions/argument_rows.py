"""Helpers of kernels: repeat scalars for all rows, group rows, restore the order of rows.

Many Arrow functions require a pattern, a length or a character set to be one constant.
``by_constants`` turns such a function into a kernel: it groups the rows by the parameters that are
columns, and calls the function once per distinct combination of parameters. So the cost is one call
per distinct combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Kernel, Values
from circuits.types.functions.length_limits import MAX_COLUMN_BYTES, MAX_COLUMN_ELEMENTS
from circuits.types.functions.type_rules import is_text

__all__ = [
    "array_function",
    "by_constants",
    "fill_rows",
    "fit_precision",
    "map_distinct",
    "relabel_scale",
    "row_count",
    "scatter_rows",
    "unscaled_digits",
]


def row_count(arguments: Sequence[Values]) -> int:
    """Return the number of rows of the arguments of a kernel, of which at least one is an array."""
    return max(len(values) for values in arguments if isinstance(values, pa.Array))


def fill_rows(values: Values, rows: int) -> pa.Array:
    """Return a scalar repeated for every row; return an array unchanged.

    Raises:
        ArrowCapacityError: The scalar is a list, and its copies would have too many elements.
    """
    if isinstance(values, pa.ListScalar) and values.is_valid:
        elements = len(values) * rows
        if elements > MAX_COLUMN_ELEMENTS:
            raise pa.ArrowCapacityError(
                f"{elements:,} elements in {rows:,} lists, and a column has up to "
                f"{MAX_COLUMN_ELEMENTS:,}"
            )
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def scatter_rows(positions: Sequence[pa.Array], parts: Sequence[pa.Array]) -> pa.Array:
    """Return one array with the values of each part at its positions.

    All positions together are 0 … n-1, each once.
    """
    # Empty parts are left out, because Arrow cannot concatenate empty lists of structs of NULLs
    # with others.
    indices = [index for index, part in enumerate(parts) if len(part)] or [0]
    if len(indices) == 1:
        return parts[indices[0]]
    positions, parts = [positions[i] for i in indices], [parts[i] for i in indices]
    all_positions = np.concatenate([part_positions.to_numpy() for part_positions in positions])
    order = np.empty(len(all_positions), np.int64)
    order[all_positions] = np.arange(len(all_positions))
    return pa.concat_arrays(parts).take(pa.array(order))


def unscaled_digits(decimals: pa.Array) -> pa.Array:
    """Return the decimals without their decimal point: the same digits with scale 0."""
    return relabel_scale(decimals, decimals.type.precision, 0)


def relabel_scale(decimals: pa.Array, precision: int, scale: int) -> pa.Array:
    """Return the same digits with another precision and scale, without any conversion."""
    decimal_type = pa.decimal128 if decimals.type.bit_width == 128 else pa.decimal256
    return pa.Array.from_buffers(
        decimal_type(precision, scale), len(decimals), decimals.buffers(), offset=decimals.offset
    )


def fit_precision(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast decimals to a decimal or integer type; ArrowInvalid if one has too many digits.

    Arrow drops the high bits of a decimal that it scales up within 128 bits (38 digits). So scaling
    up is done in 256 bits (76 digits), after a check that the digits leave room for the new ones.
    """
    source = decimals.type
    added_digits = target.scale - source.scale if pa.types.is_decimal(target) else 0
    if added_digits > 0 and source.precision + added_digits > 38:
        max_digits = 76 - added_digits
        wide = pa.decimal256(76, source.scale)
        decimals = pc.cast(decimals, wide) if source != wide else decimals
        if source.precision > max_digits:
            _check_digits(decimals, max_digits, target)
            decimals = relabel_scale(decimals, max_digits, source.scale)
        decimals = pc.cast(decimals, pa.decimal256(76, target.scale))
    return pc.cast(decimals, target)


def _check_digits(decimals: pa.Array, digits: int, target: pa.DataType) -> None:
    nines = pa.array([10**digits - 1], pa.decimal256(76, 0))
    greatest = relabel_scale(nines, 76, decimals.type.scale)[0]
    is_too_long = pc.fill_null(pc.greater(pc.abs(decimals), greatest), False)
    if pc.any(is_too_long).as_py():
        raise pa.ArrowInvalid(f"{decimals.filter(is_too_long)[0]} does not fit {target}")


def map_distinct(
    array: pa.Array, function: Callable[[Any], Any], data_type: pa.DataType
) -> pa.Array:
    """Call a Python function once for each distinct value; the result for NULL is NULL."""
    encoded = pc.dictionary_encode(array)
    results = pa.array([function(value) for value in encoded.dictionary.to_pylist()], data_type)
    return results.take(encoded.indices)


def array_function(
    function: Callable[..., Any], result_type: pa.DataType, *, null_value: int = 0
) -> Callable[..., pa.Array]:
    """Convert a function of int64 or float64 numpy arrays to a function of Arrow columns.

    Args:
        function: Gets dates as days and timestamps as microseconds. It returns an array, or an
            array and a mask of invalid rows, whose results become NULL.
        result_type: The type of the result.
        null_value: The value that the function gets for each argument of a row with NULL, such
            that it does not fail. The result of such a row is NULL.
    """

    def apply(*columns: pa.Array) -> pa.Array:
        valid = np.ones(len(columns[0]), np.bool_)
        for column in columns:
            valid &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        arrays = []
        for column in columns:
            if pa.types.is_date(column.type):
                column = pc.cast(column, pa.int32())
            if not pa.types.is_floating(column.type):
                column = pc.cast(column, pa.int64())
            if not valid.all():  # also where only another argument is NULL
                column = pc.if_else(pa.array(valid), column, null_value)
            arrays.append(column.to_numpy(zero_copy_only=False))
        values = function(*arrays)
        if isinstance(values, tuple):
            values, invalid = values
            valid &= ~invalid
        if not pa.types.is_temporal(result_type):
            return pa.array(values, result_type, mask=~valid)
        integers = pa.array(values.astype(np.int64), pa.int64(), mask=~valid)
        if pa.types.is_date(result_type):
            integers = pc.cast(integers, pa.int32())
        return integers.cast(result_type)

    return apply


def by_constants(function: Callable[..., pa.Array]) -> Kernel:
    """Return a kernel for ``function(column, parameter, …)``, whose parameters are Python values.

    If a parameter is NULL, the result is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        column, parameters = fill_rows(arguments[0], rows), arguments[1:]
        if all(isinstance(parameter, pa.Scalar) for parameter in parameters):
            return apply(column, [parameter.as_py() for parameter in parameters], result_type)
        if rows == 0:
            return pa.nulls(0, result_type)
        columns = [pc.dictionary_encode(fill_rows(p, rows), "encode") for p in parameters]
        sizes = [len(c.dictionary) for c in columns]
        # The number of the combination of parameters of each row.
        numbers = np.ravel_multi_index([c.indices.to_numpy() for c in columns], sizes)
        order = np.argsort(numbers, kind="stable")
        distinct_numbers, starts = np.unique(numbers[order], return_index=True)
        bounds = [*starts.tolist(), rows]
        combinations = zip(*np.unravel_index(distinct_numbers, sizes), strict=True)
        positions, parts, total_bytes = [], [], 0
        for i, codes in enumerate(combinations):  # one code per parameter
            positions.append(pa.array(order[bounds[i] : bounds[i + 1]]))
            pairs = zip(columns, codes, strict=True)
            constants = [c.dictionary[int(code)].as_py() for c, code in pairs]
            parts.append(apply(column.take(positions[-1]), constants, result_type))
            total_bytes += parts[-1].nbytes
            if total_bytes > MAX_COLUMN_BYTES and is_text(result_type):
                raise pa.ArrowCapacityError(
                    f"more than {MAX_COLUMN_BYTES:,} bytes of text in a column"
                )
        return scatter_rows(positions, parts)

    def apply(column: pa.Array, constants: list[Any], data_type: pa.DataType) -> pa.Array:
        if any(constant is None for constant in constants):
            return pa.nulls(len(column), data_type)
        result = function(column, *constants)
        return result if result.type == data_type else pc.cast(result, data_type)

    return kernel
