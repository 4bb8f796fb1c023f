"""Types of expressions: families of types, the common type of two types, types of aggregates.

The common type of two types can represent every value of both:

- for two integers, the wider type;
- for an integer and a decimal, a decimal with enough digits for both;
- for a float and any other number, float64 (the only case that loses digits, as in SQL);
- for two timestamps, the type with the finer unit;
- for a duration and an interval with months, the interval;
- for the null type and another type, the other type.

Text is never a number or a date, and a bool is never a number; that needs an explicit cast.

Deviations from DuckDB: the common type of uint64 and a signed integer is decimal(20, 0), not a
128-bit integer; decimals that together need more than 38 digits become decimal256 (DuckDB drops
digits); the common type of an integer and a float32 is float64; a timestamp with a zone and one
without have no common type, since there is no session zone.

Arrow has few kernels for some types, such as decimal64. `kernel_type` returns the type to which
values of such a type are cast before a kernel computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final, cast

import pyarrow as pa
from pyarrow import types as arrow

from circuits.errors import FunctionError
from circuits.types.arrow_types import (
    NUMBERS,
    Family,
    family_of,
    has_enum,
    has_variant,
    is_nested,
    matched_part_types,
    part_types,
    type_name,
    type_row,
    value_type,
    with_parts,
)
from circuits.types.codecs.intervals import INTERVAL

__all__ = [
    "aggregate_type",
    "check_variant_cast",
    "common_type",
    "decimal_type",
    "digits_of",
    "is_binary",
    "is_interval",
    "is_number",
    "is_row_without_names",
    "is_temporal",
    "is_text",
    "kernel_type",
]

_SIGNED = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_UNITS = ("s", "ms", "us", "ns")


def is_text(data_type: pa.DataType) -> bool:
    """Return True for a string type."""
    return family_of(data_type) is Family.STRING


def is_row_without_names(data_type: pa.DataType) -> bool:
    """Return True for the type of ``row(a, b)`` in DuckDB, whose fields have no names there."""
    if not pa.types.is_struct(data_type):
        return False
    names = [field.name for field in data_type]
    return bool(names) and names == [f"element{number}" for number in range(1, len(names) + 1)]


def is_binary(data_type: pa.DataType) -> bool:
    """Return True for a binary type."""
    return family_of(data_type) is Family.BINARY


def is_number(data_type: pa.DataType) -> bool:
    """Return True for an integer, a decimal or a float; a bool is not a number."""
    return family_of(data_type) in NUMBERS


def is_temporal(data_type: pa.DataType) -> bool:
    """Return True for a date or a timestamp."""
    return family_of(data_type) in (Family.DATE, Family.TIMESTAMP)


def is_interval(data_type: pa.DataType) -> bool:
    """Return True for an interval with months, and for a duration, which has none."""
    return data_type == INTERVAL or bool(arrow.is_duration(data_type))


def check_variant_cast(source: pa.DataType, target: pa.DataType) -> None:
    """Check that a cast between layouts does not change a VARIANT into its text, or back.

    Raises:
        FunctionError: One type contains VARIANT, and the other one is not the same type.
    """
    if arrow.is_null(source) or source == target:
        return
    if is_nested(source) and is_nested(target):
        for parts in zip(part_types(source), part_types(target), strict=False):
            check_variant_cast(*parts)
        return
    if has_variant(source) or has_variant(target) or has_enum(target):
        raise FunctionError(
            f"a {type_name(source)} is not converted to {type_name(target)} here; "
            "use CAST, or to_json() for the text of a VARIANT"
        )


def kernel_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which kernels compute with values of a type.

    >>> kernel_type(pa.decimal64(15, 2)), kernel_type(pa.string_view()), kernel_type(pa.int8())
    (Decimal128Type(decimal128(15, 2)), DataType(large_string), DataType(int8))
    """
    return type_row(data_type).kernel_type(data_type)


def digits_of(data_type: pa.DataType) -> tuple[int, int]:
    """Return precision and scale of the decimal that can represent an integer or decimal type."""
    if arrow.is_decimal(data_type):
        return data_type.precision, data_type.scale
    digits = type_row(data_type).digits
    if not digits:
        raise KeyError(data_type)
    return digits, 0


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the decimal type with this precision and scale, of 128 bits if they suffice."""
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type to which values of all these types are cast to compare or combine them.

    >>> common_type([pa.int32(), pa.null(), pa.decimal128(10, 2)])
    Decimal128Type(decimal128(12, 2))

    Raises:
        FunctionError: The types have no common type, for example text and numbers, or ``types`` is
            empty.
    """
    types = list(types)
    if not types:
        raise FunctionError("a common type needs at least one type")
    return reduce(_common, types)


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right or arrow.is_null(right):
        return left
    if arrow.is_null(left):
        return right
    if arrow.is_dictionary(left) or arrow.is_dictionary(right):
        return _common(value_type(left), value_type(right))
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_text(left) and is_text(right):
        large = kernel_type(left) == pa.large_string() or kernel_type(right) == pa.large_string()
        return pa.large_string() if large else pa.string()
    if is_binary(left) and is_binary(right):
        large = arrow.is_large_binary(left) or arrow.is_large_binary(right)
        return pa.large_binary() if large else pa.binary()
    if is_temporal(left) and is_temporal(right):
        return _common_temporal(left, right)
    if arrow.is_time(left) and arrow.is_time(right):
        return _time(_finer(left.unit, right.unit))
    if arrow.is_duration(left) and arrow.is_duration(right):
        return pa.duration(_finer(left.unit, right.unit))
    if is_interval(left) and is_interval(right):
        return INTERVAL
    if is_nested(left) and is_nested(right):
        nested = _common_nested(left, right)
        if nested is not None:
            return nested
    raise FunctionError(
        f"{left} and {right} have no common type; cast one of them to the type of the other"
    )


def _common_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the common type of two nested types of one kind, with the fields of the first."""
    kinds = [
        (arrow.is_struct(data_type), arrow.is_map(data_type), len(part_types(data_type)))
        for data_type in (left, right)
    ]
    if kinds[0] != kinds[1]:
        return None
    pairs = zip(part_types(left), matched_part_types(right, left), strict=True)
    return with_parts(left, [_common(*pair) for pair in pairs])


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if arrow.is_floating(left) or arrow.is_floating(right):
        narrow = {pa.float16(), pa.float32()}
        return pa.float32() if {left, right} <= narrow else pa.float64()
    if arrow.is_integer(left) and arrow.is_integer(right):
        if arrow.is_signed_integer(left) == arrow.is_signed_integer(right):
            return left if left.bit_width > right.bit_width else right
        signed, other = (left, right) if arrow.is_signed_integer(left) else (right, left)
        size = max(signed.bit_width, 2 * other.bit_width) // 8
        return _SIGNED[size] if size <= 8 else pa.decimal128(20, 0)
    (precision, scale), (other_precision, other_scale) = digits_of(left), digits_of(right)
    larger_scale = max(scale, other_scale)
    digits = max(precision - scale, other_precision - other_scale) + larger_scale
    if digits > 76:
        raise FunctionError(
            f"the common type of {left} and {right} needs {digits} digits, a decimal has at most "
            "76; cast one of them to a smaller decimal or to double"
        )
    return decimal_type(digits, larger_scale)


def _common_temporal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if arrow.is_date(left) and arrow.is_date(right):
        return pa.date32()
    zones = {_zone(left), _zone(right)}
    if None in zones and len(zones) > 1:
        raise FunctionError(
            f"{left} and {right} have no common type: one has a time zone, the other has none; "
            "cast one of them"
        )
    units = [data_type.unit for data_type in (left, right) if arrow.is_timestamp(data_type)]
    zone = _zone(left) if arrow.is_timestamp(left) else _zone(right)
    return pa.timestamp(reduce(_finer, units), zone)


def _zone(data_type: pa.DataType) -> str | None:
    return cast("str | None", data_type.tz) if arrow.is_timestamp(data_type) else None


def _finer(left: str, right: str) -> str:
    return max(left, right, key=_UNITS.index)


def _time(unit: str) -> pa.DataType:
    return (pa.time32 if unit in ("s", "ms") else pa.time64)(unit)


def aggregate_type(function: str, *arguments: pa.DataType | None) -> pa.DataType:
    """Return the type of an aggregate; ``count(*)`` has no argument, or None.

    ============== ==================================================================
    count          the number of rows, or of those whose arguments are not NULL
    sum, avg       the exact sum of numbers, and the mean
    min, max       the least and the greatest value
    comoment       the sum of the products of the deviations of two floats from their means
    moment         the sum of the third or fourth powers of the deviations of a float from its mean
    bit_and, ...   the bits of integers; also bit_or, bit_xor
    first          the first value, in an order
    mode           the most frequent value
    quantile_cont  the value at a fraction of the way from first to last, interpolated
    quantile_disc  the first value at which a fraction of the values is reached
    product        the product of floats
    string_agg     the texts, with a separator
    list           the values, as a list
    ============== ==================================================================

    >>> aggregate_type("sum", pa.decimal64(15, 2))
    Decimal128Type(decimal128(38, 2))

    Raises:
        FunctionError: The aggregate does not exist, or does not accept this type.
    """
    if function == "count":
        return pa.int64()
    argument = arguments[0] if arguments else None
    if function not in _AGGREGATES:
        raise FunctionError(
            f"unknown aggregate {function!r}; aggregates: {', '.join(('count', *_AGGREGATES))}"
        )
    if argument is None:
        raise FunctionError(f"{function}() needs a column; only count(*) has none")
    result = _AGGREGATES[function](value_type(argument))
    if result is None:
        accepted = _ACCEPTED_ARGUMENTS.get(function, "numbers")
        raise FunctionError(
            f"{function}({argument}) does not exist; {function} takes {accepted}: cast the column "
            "to one"
        )
    return argument if function in _RESULT_HAS_ARGUMENT_TYPE else result


def _sum_type(argument: pa.DataType) -> pa.DataType | None:
    if arrow.is_integer(argument) or arrow.is_null(argument):
        return pa.int64()
    if arrow.is_floating(argument):
        return pa.float64()
    if arrow.is_decimal(argument):
        wide = argument.bit_width == 256
        return pa.decimal256(76, argument.scale) if wide else pa.decimal128(38, argument.scale)
    return None


def _avg_type(argument: pa.DataType) -> pa.DataType | None:
    return pa.float64() if is_number(argument) or arrow.is_null(argument) else None


def _float_type(argument: pa.DataType) -> pa.DataType | None:
    return pa.float64() if arrow.is_float64(argument) else None


def _integer_type(argument: pa.DataType) -> pa.DataType | None:
    return argument if arrow.is_integer(argument) else None


def _interpolated_type(argument: pa.DataType) -> pa.DataType | None:
    fits_word = arrow.is_decimal(argument) and argument.precision <= 18  # 64 bits
    is_float = arrow.is_floating(argument)
    is_time = arrow.is_temporal(argument) and argument != INTERVAL
    return argument if is_float or fits_word or is_time else None


def _argument_type(argument: pa.DataType) -> pa.DataType:
    return argument


def _ordered_type(argument: pa.DataType) -> pa.DataType | None:
    return None if has_variant(argument) or has_enum(argument) else argument


# The result also has the dictionary encoding of the argument, which the functions below do not see.
_RESULT_HAS_ARGUMENT_TYPE: Final = frozenset(("min", "max", "first", "mode", "quantile_disc"))
_AGGREGATES: Final[dict[str, Callable[[pa.DataType], pa.DataType | None]]] = {
    "sum": _sum_type,
    "avg": _avg_type,
    "min": _ordered_type,
    "max": _ordered_type,
    "comoment": _float_type,
    "moment": _float_type,
    "bit_and": _integer_type,
    "bit_or": _integer_type,
    "bit_xor": _integer_type,
    "first": _argument_type,
    "mode": _argument_type,
    "quantile_cont": _interpolated_type,
    "quantile_disc": _argument_type,
    "product": _float_type,
    "string_agg": lambda argument: pa.string() if arrow.is_string(argument) else None,
    "list": lambda argument: pa.list_(argument),
}
# The arguments of functions that do not take numbers, for messages.
_ACCEPTED_ARGUMENTS: Final = {
    "bit_and": "integers",
    "bit_or": "integers",
    "bit_xor": "integers",
    "comoment": "doubles",
    "moment": "doubles",
    "product": "doubles",
    "max": "values with an order, which VARIANT has not",
    "min": "values with an order, which VARIANT has not",
    "quantile_cont": "numbers and times",
    "string_agg": "texts",
}
