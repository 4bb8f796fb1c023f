"""Rows of a kernel's arguments: scalars repeated, parts put back in place, parameters grouped.

Many Arrow functions take a pattern, a length or a character set as one constant. ``by_constants``
makes a kernel of such a function: parameters that are columns are grouped, and the function is
called once per distinct combination, for its rows. Cost: one call per distinct combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Kernel, Values
from circuits.types.functions.length_limits import MAX_COLUMN_BYTES
from circuits.types.functions.type_rules import is_text

__all__ = [
    "by_constants",
    "fill_rows",
    "fit_precision",
    "relabel_scale",
    "scatter_rows",
    "unscaled_digits",
]


def fill_rows(values: Values, rows: int) -> pa.Array:
    """A scalar as often as there are rows; an array as it is."""
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def scatter_rows(places: Sequence[pa.Array], parts: Sequence[pa.Array]) -> pa.Array:
    """The values of the parts at their places, which together are 0 … n-1, each once."""
    if len(parts) == 1:
        return parts[0]
    positions = np.concatenate([place.to_numpy() for place in places])
    order = np.empty(len(positions), np.int64)
    order[positions] = np.arange(len(positions))
    return pa.concat_arrays(parts).take(pa.array(order))


def unscaled_digits(decimals: pa.Array) -> pa.Array:
    """The decimals without their point: the same digits, of scale 0."""
    return relabel_scale(decimals, decimals.type.precision, 0)


def relabel_scale(decimals: pa.Array, precision: int, scale: int) -> pa.Array:
    """The same digits, said to have another precision and scale."""
    make = pa.decimal128 if decimals.type.bit_width == 128 else pa.decimal256
    return pa.Array.from_buffers(
        make(precision, scale), len(decimals), decimals.buffers(), offset=decimals.offset
    )


def fit_precision(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    """Decimals in a decimal or integer type; ArrowInvalid for one that has too many digits.

    Arrow drops the high bits of a decimal that it scales up within 128 bits, so that is done in
    256, where the digits are counted.
    """
    source = decimals.type
    more = target.scale - source.scale if pa.types.is_decimal(target) else 0
    if more > 0 and source.precision + more > 38:
        room = 76 - more
        wide = pa.decimal256(76, source.scale)
        decimals = pc.cast(decimals, wide) if source != wide else decimals
        if source.precision > room:
            _check_digits(decimals, room, target)
            decimals = relabel_scale(decimals, room, source.scale)
        decimals = pc.cast(decimals, pa.decimal256(76, target.scale))
    return pc.cast(decimals, target)


def _check_digits(decimals: pa.Array, digits: int, target: pa.DataType) -> None:
    most = relabel_scale(pa.array([10**digits - 1], pa.decimal256(76, 0)), 76, decimals.type.scale)
    over = pc.fill_null(pc.greater(pc.abs(decimals), most[0]), False)
    if pc.any(over).as_py():
        raise pa.ArrowInvalid(f"{decimals.filter(over)[0]} does not fit {target}")


def by_constants(function: Callable[..., pa.Array]) -> Kernel:
    """A kernel of ``function(column, parameter, …)``, whose parameters are Python values.

    A NULL among the parameters makes the result NULL.
    """

    def kernel(arguments: Sequence[Values], of: pa.DataType) -> Values:
        rows = max(len(values) for values in arguments if isinstance(values, pa.Array))
        column, parameters = fill_rows(arguments[0], rows), arguments[1:]
        if all(isinstance(parameter, pa.Scalar) for parameter in parameters):
            return apply_kernel(column, [parameter.as_py() for parameter in parameters], of)
        if rows == 0:
            return pa.nulls(0, of)
        columns = [pc.dictionary_encode(fill_rows(p, rows), "encode") for p in parameters]
        sizes = [len(c.dictionary) for c in columns]
        codes = np.ravel_multi_index([c.indices.to_numpy() for c in columns], sizes)
        order = np.argsort(codes, kind="stable")
        distinct, starts = np.unique(codes[order], return_index=True)
        bounds = [*starts.tolist(), rows]
        places, parts, made = [], [], 0
        for i, combination in enumerate(zip(*np.unravel_index(distinct, sizes), strict=True)):
            place = pa.array(order[bounds[i] : bounds[i + 1]])
            pairs = zip(columns, combination, strict=True)
            constants = [c.dictionary[int(code)].as_py() for c, code in pairs]
            places.append(place)
            parts.append(apply_kernel(column.take(place), constants, of))
            made += parts[-1].nbytes
            if made > MAX_COLUMN_BYTES and is_text(of):
                raise pa.ArrowCapacityError(
                    f"more than {MAX_COLUMN_BYTES:,} bytes of text in a column"
                )
        return scatter_rows(places, parts)

    def apply_kernel(column: pa.Array, constants: list[Any], of: pa.DataType) -> pa.Array:
        if any(constant is None for constant in constants):
            return pa.nulls(len(column), of)
        result = function(column, *constants)
        return result if result.type == of else pc.cast(result, of)

    return kernel
