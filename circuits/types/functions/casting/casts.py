"""Casts: if the target type cannot represent a value, ``cast`` fails and ``try_cast`` returns NULL.

As in DuckDB, a float is rounded to the nearest integer, half to even. A decimal or a text with a
decimal point cast to an integer, a float cast to a decimal, and a timestamp cast to a coarser unit
are rounded half away from zero. A cast of a timestamp to a date drops the time.

Bytes and text are cast to each other as UTF-8. The casts of SQL in dialect duckdb, which have
``\\x`` escapes, are the functions ``unescape_bytes`` and ``escape_bytes``.

Deviations from DuckDB: a timestamp with a zone is cast to one without as the local time of its own
zone, not of a session. A float cast to a decimal of more than 18 digits is exact (in DuckDB, 2.5
becomes 2.49999999999999969 in DECIMAL(38, 29)). ``true`` cannot be cast to a decimal without digits
before the point (DuckDB returns the least decimal above zero).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.errors import EvaluationError, FunctionError
from circuits.excerpt import shorten
from circuits.plan.expressions import Literal
from circuits.types.arrow_types import field_order, is_nested, matched_part_types, part_types
from circuits.types.codecs.arrow_buffers import valid_of
from circuits.types.codecs.intervals import INTERVAL, interval_array
from circuits.types.codecs.nested import list_array, list_parts, struct_array
from circuits.types.functions.argument_rows import fit_precision, relabel_scale, unscaled_digits
from circuits.types.functions.casting.all_years import assume_timezone, local_timestamp
from circuits.types.functions.casting.text_formatting import write_text
from circuits.types.functions.casting.text_parsing import read_text
from circuits.types.functions.casting.time_units import PER_SECOND, convert_unit, time_of_day
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import (
    check_variant_cast,
    is_binary,
    is_interval,
    is_number,
    is_text,
    kernel_type,
)

__all__ = ["FUNCTIONS", "cast_scalar", "convert", "round_half_away"]

_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values to ``target``, a type without a dictionary encoding (`kernel_type`).

    Raises:
        ArrowInvalid: ``target`` cannot represent a value.
    """
    source = values.type
    if source == target:
        return values
    if arrow.is_null(source):
        return pa.nulls(len(values), target)
    if is_nested(source) and is_nested(target):
        return _convert_parts(values, target, convert)
    if is_text(source):
        return read_text(values, target)
    if is_text(target):
        return write_text(values, target)
    if target == INTERVAL:
        return _duration_to_interval(values)
    if arrow.is_boolean(target):
        return pc.not_equal(values, pa.scalar(0, source))
    if arrow.is_boolean(source):
        return convert(pc.cast(values, pa.int8()), target)
    if arrow.is_decimal(target) or arrow.is_integer(target):
        return _to_exact(values, target)
    if arrow.is_timestamp(target):
        return _to_timestamp(values, target)
    if arrow.is_timestamp(source) and source.tz is not None:
        return convert(_local(values), target)
    if arrow.is_timestamp(source) and arrow.is_date32(target):
        return convert_unit(values, target)
    if arrow.is_timestamp(source) and arrow.is_time(target):
        return time_of_day(values, target)
    if arrow.is_floating(target):
        return _to_float(values, target)
    may_lose_digits = arrow.is_time(target) or arrow.is_duration(target)  # of a coarser unit
    return pc.cast(values, target, safe=not may_lose_digits)


def _duration_to_interval(values: pa.Array) -> pa.Array:
    """Return durations as intervals of whole days and a rest with the same sign."""
    ticks = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy()
    ticks_per_day = 86_400 * PER_SECOND[values.type.unit]
    days = np.sign(ticks) * (np.abs(ticks) // ticks_per_day)
    rest = (ticks - days * ticks_per_day) * (10**9 // PER_SECOND[values.type.unit])
    return interval_array(np.zeros_like(days), days, rest, valid_of(values))


def _convert_parts(
    values: pa.Array, target: pa.DataType, convert_part: Callable[..., pa.Array]
) -> pa.Array:
    """Cast the parts of nested values of one kind; `field_order` matches the fields."""
    valid = None
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
    if arrow.is_struct(target):
        fields = values.flatten()
        pairs = zip(field_order(values.type, target), target, strict=True)
        columns = [convert_part(fields[position], field.type) for position, field in pairs]
        return struct_array(target, columns, valid, len(values))
    counts, parts = list_parts(values)
    columns = [convert_part(*pair) for pair in zip(parts, part_types(target), strict=True)]
    return list_array(target, counts, columns, valid)


def _to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    if arrow.is_decimal(values.type):
        values = _decimal_to_float(values)
    result = pc.cast(values, target, safe=False)
    if arrow.is_floating(values.type):
        is_overflow = pc.and_(pc.is_inf(result), pc.is_finite(values))
        if pc.any(is_overflow).as_py():
            raise pa.ArrowInvalid(f"{values.filter(is_overflow)[0]} is out of range of {target}")
    return result


def _decimal_to_float(values: pa.Array) -> pa.Array:
    """Divide the digits by a power of ten if both are exact in a float64; else parse their text.

    Arrow's own cast rounds twice: it returns 3.5380000000000003 for 3.538.
    """
    scale = values.type.scale
    digits = pc.cast(unscaled_digits(values), pa.float64())
    quotient = pc.divide(digits, 10.0**scale)
    is_inexact = pc.or_(pc.greater(pc.abs(digits), 2.0**53), scale > 22)  # 10**22 is exact
    is_inexact = pc.fill_null(is_inexact, False)
    if scale == 0 or not pc.any(is_inexact).as_py():
        return quotient
    parsed = pc.cast(pc.cast(values.filter(is_inexact), pa.string()), pa.float64())
    return pc.replace_with_mask(quotient, is_inexact, parsed)


def _to_exact(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast numbers to an integer or decimal type, rounded as the module docstring says."""
    source = values.type
    if arrow.is_integer(target):
        if arrow.is_floating(source):
            values = pc.round(values, round_mode="half_to_even")
        elif arrow.is_decimal(source) and source.scale > 0:
            values = round_half_away(values, 0)
        return pc.cast(values, target)
    if arrow.is_floating(source):
        return _float_to_decimal(values, target)
    if arrow.is_integer(source):
        digits = 20 if arrow.is_uint64(source) else 19
        values = pc.cast(values, pa.decimal128(digits, 0))
    elif source.scale > target.scale:
        values = round_half_away(values, target.scale)
    return fit_precision(values, target)


def _float_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Multiply by a power of ten, as a float64, and round half away from zero, as DuckDB does.

    If the target has more than 18 digits and the product more than 53 bits, the exact digits of the
    float are used instead; DuckDB's are inexact.
    """
    floats = pc.cast(values, pa.float64())
    product = pc.multiply(floats, 10.0**target.scale)
    whole = pc.round(product, round_mode="half_towards_infinity")
    is_in_range = pc.less(pc.abs(product), 2.0**63 if target.precision <= 18 else 2.0**53)
    is_in_range = pc.fill_null(is_in_range, True)
    digits = pc.cast(pc.if_else(is_in_range, whole, 0.0), pa.int64())
    # 256 bits hold the digits with any scale of the target; the cast checks its precision.
    from_product = relabel_scale(pc.cast(digits, pa.decimal256(19, 0)), 76, target.scale)
    result = pc.cast(from_product, target)
    if pc.all(is_in_range, min_count=0).as_py():
        return result
    from_exact_digits = pc.cast(floats.filter(pc.invert(is_in_range)), target)
    return pc.replace_with_mask(result, pc.invert(is_in_range), from_exact_digits)


def round_half_away(values: pa.Array, digits: int) -> pa.Array:
    """Round half away from zero; in a wider decimal, so that 9.99 can become 10.00."""
    source = values.type
    wide = pa.decimal256(min(source.precision + 1, 76), source.scale)
    return pc.round(pc.cast(values, wide), ndigits=digits, round_mode="half_towards_infinity")


def _to_timestamp(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    zone = source.tz if arrow.is_timestamp(source) else None
    if zone is None and target.tz is not None:
        local = convert_unit(values, pa.timestamp(target.unit))
        return local.view(target) if target.tz == "UTC" else assume_timezone(local, target.tz)
    if zone is not None and target.tz is None:
        values = _local(values)
    return convert_unit(values, target)


def _local(values: pa.Array) -> pa.Array:
    """Return the local time of timestamps with a zone, as timestamps without a zone."""
    if values.type.tz == "UTC":
        return values.view(pa.timestamp(values.type.unit))
    return local_timestamp(values)


def cast_scalar(literal: Literal, target: pa.DataType) -> pa.Scalar:
    """Return the value of a literal in another type.

    Raises:
        EvaluationError: The type cannot represent the value.
    """
    try:
        array = pa.array([literal.value], literal.type).cast(kernel_type(literal.type))
        return convert(array, kernel_type(target)).cast(target)[0]
    except _FAILURES as error:
        raise EvaluationError(
            f"{shorten(str(literal))} of type {literal.type} cannot be cast to {target}: "
            f"{shorten(str(error))}"
        ) from error


def _try_convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values; return NULL where `convert` fails.

    The failing values are found by bisection, so that runs of valid values are cast in one call. Of
    nested values the parts that fail become NULL; a map with a key that fails is NULL.
    """
    if is_nested(values.type) and is_nested(target):
        if arrow.is_map(target):
            values = _drop_maps_with_uncastable_keys(values, target.key_type)
        return _convert_parts(values, target, _try_convert)
    try:
        if is_text(values.type):
            return read_text(values, target, lenient=True)
        return convert(values, target)
    except _FAILURES:
        if len(values) == 1:
            return pa.nulls(1, target)
    half = len(values) // 2
    parts = [_try_convert(part, target) for part in (values[:half], values[half:])]
    return pa.concat_arrays(parts)


def _drop_maps_with_uncastable_keys(maps: pa.Array, key_type: pa.DataType) -> pa.Array:
    """Return the maps, with NULL for those that have a key which ``key_type`` cannot represent."""
    counts, (keys, _) = list_parts(maps)
    is_uncastable = _try_convert(keys, key_type).is_null().to_numpy(zero_copy_only=False)
    rows = np.arange(len(maps))
    has_uncastable_key = np.isin(rows, np.repeat(rows, counts)[is_uncastable])
    return maps.take(pa.array(rows, mask=has_uncastable_key))


def _cast_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return convert(arguments[0], result_type)


def _try_cast_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    if is_nested(arguments[0].type):  # Arrow has no dictionary encoding of nested types
        return _try_convert(arguments[0], result_type)
    distinct = pc.dictionary_encode(arguments[0])
    if isinstance(distinct, pa.DictionaryArray):
        return _try_convert(distinct.dictionary, result_type).take(distinct.indices)
    return _try_convert(arguments[0], result_type)


def _cast_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    if target_type is None:
        raise argument_error(name, arguments, "it needs the target type, as type=...")
    check_variant_cast(arguments[0].type, target_type)
    source, target = kernel_type(arguments[0].type), kernel_type(target_type)
    if not _is_allowed(source, target):
        fix = _cast_advice(source, target)
        raise FunctionError(f"a {arguments[0].type} cannot be cast to {target_type}; {fix}")
    return arguments, target_type


def _cast_advice(source: pa.DataType, target: pa.DataType) -> str:
    """Say what to write instead of a cast that does not exist."""
    if is_nested(source):
        return "cast their parts"
    if is_nested(target):
        if is_text(source):
            return "read a JSON text by from_json()"
        return "build it of its parts, as [a, b] or {'name': a}"
    return "cast to string first"


def _is_allowed(source: pa.DataType, target: pa.DataType) -> bool:
    if source == target or any(
        is_source(source) and is_target(target) for is_source, is_target in _ALLOWED_CASTS
    ):
        return True
    if arrow.is_null(source):
        return True
    if not (is_nested(source) and is_nested(target)):
        return False
    if arrow.is_map(source) != arrow.is_map(target):
        return False
    if arrow.is_struct(source) != arrow.is_struct(target):
        return False
    if len(part_types(source)) != len(part_types(target)):
        return False
    return all(map(_is_allowed, matched_part_types(source, target), part_types(target)))


_TypeTest = Callable[[pa.DataType], bool]


def _is_castable(data_type: pa.DataType) -> bool:
    return not arrow.is_nested(data_type) and not arrow.is_null(data_type)


def _is_number_or_bool(data_type: pa.DataType) -> bool:
    return is_number(data_type) or bool(arrow.is_boolean(data_type))


def _is_date_or_timestamp(data_type: pa.DataType) -> bool:
    return bool(arrow.is_date(data_type) or arrow.is_timestamp(data_type))


_ALLOWED_CASTS: tuple[tuple[_TypeTest, _TypeTest], ...] = (
    (arrow.is_null, _is_castable),
    (is_text, _is_castable),
    (_is_castable, is_text),
    (_is_number_or_bool, _is_number_or_bool),
    (_is_date_or_timestamp, _is_date_or_timestamp),
    (arrow.is_timestamp, arrow.is_time),
    (arrow.is_time, arrow.is_time),
    (arrow.is_duration, is_interval),
    (is_binary, is_binary),
)

FUNCTIONS = (
    Function(
        "cast",
        "a as another type; an error if that type has no such value",
        _cast_rule,
        _cast_kernel,
    ),
    Function(
        "try_cast",
        "a as another type; NULL if that type has no such value",
        _cast_rule,
        _try_cast_kernel,
    ),
)
