"""Casts: ``cast`` fails for a value that the target cannot hold, ``try_cast`` gives NULL for it.

As in DuckDB a float becomes an integer by rounding to the nearest, half to even; a decimal, a text
with a point, and a float that becomes a decimal, half away from zero; so does a timestamp in a
coarser unit. A timestamp becomes a date by dropping the time.

Deviations from DuckDB: bytes and text become each other as UTF-8, without ``\\x`` escapes; a
timestamp with a zone becomes one without by the wall clock of its own zone, not of a session; a
float in a decimal of more than 18 digits is exact (DuckDB says 2.5 is 2.49999999999999969 in
DECIMAL(38, 29)), and true fits no decimal without digits before the point (DuckDB makes it the
least one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.errors import EvaluationError, FunctionError
from circuits.excerpt import shorten
from circuits.plan.expressions import Literal
from circuits.types.functions.argument_rows import fit_precision, relabel_scale, unscaled_digits
from circuits.types.functions.function import Arguments, Function, Typed, Values, refuse, require
from circuits.types.functions.text_formatting import write_text
from circuits.types.functions.text_parsing import read_text
from circuits.types.functions.time_units import clock_of, convert_unit
from circuits.types.functions.type_rules import is_binary, is_number, is_text, plain

__all__ = ["FUNCTIONS", "cast_scalar", "convert", "round_half_away"]

_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values in the (plain) type ``target``; ArrowInvalid if one of them has no value there."""
    source = values.type
    if source == target:
        return values
    if arrow.is_null(source):
        return pa.nulls(len(values), target)
    if is_text(source):
        return read_text(values, target)
    if is_text(target):
        return write_text(values, target)
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
        return clock_of(values, target)
    if arrow.is_floating(target):
        return _to_float(values, target)
    return pc.cast(values, target, safe=not (arrow.is_time(target) or arrow.is_duration(target)))


def _to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    if arrow.is_decimal(values.type):
        values = _decimal_to_float(values)
    result = pc.cast(values, target, safe=False)
    if arrow.is_floating(values.type):
        lost = pc.and_(pc.is_inf(result), pc.is_finite(values))
        if pc.any(lost).as_py():
            raise pa.ArrowInvalid(f"{values.filter(lost)[0]} is out of range of {target}")
    return result


def _decimal_to_float(values: pa.Array) -> pa.Array:
    """The digits divided by a power of ten, both exact in a float64; else by their text.

    Arrow's own cast rounds twice: it makes 3.5380000000000003 of 3.538.
    """
    scale = values.type.scale
    digits = pc.cast(unscaled_digits(values), pa.float64())
    quotient = pc.divide(digits, 10.0**scale)
    long = pc.or_(pc.greater(pc.abs(digits), 2.0**53), scale > 22)
    long = pc.fill_null(long, False)
    if scale == 0 or not pc.any(long).as_py():
        return quotient
    exact = pc.cast(pc.cast(values.filter(long), pa.string()), pa.float64())
    return pc.replace_with_mask(quotient, long, exact)


def _to_exact(values: pa.Array, target: pa.DataType) -> pa.Array:
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
    """Half away from zero, of the product with a power of ten in a float64, as in DuckDB.

    Beyond 53 bits and 18 digits the float's own digits, all exact, where DuckDB's drift.
    """
    floats = pc.cast(values, pa.float64())
    product = pc.multiply(floats, 10.0**target.scale)
    whole = pc.round(product, round_mode="half_towards_infinity")
    exact = pc.less(pc.abs(product), 2.0**63 if target.precision <= 18 else 2.0**53)
    exact = pc.fill_null(exact, True)
    digits = pc.cast(pc.if_else(exact, whole, 0.0), pa.int64())
    near = relabel_scale(pc.cast(digits, pa.decimal256(19, 0)), 76, target.scale)
    result = pc.cast(near, target)
    if pc.all(exact, min_count=0).as_py():
        return result
    far = pc.cast(floats.filter(pc.invert(exact)), target)
    return pc.replace_with_mask(result, pc.invert(exact), far)


def round_half_away(values: pa.Array, digits: int) -> pa.Array:
    """Half away from zero; in a wider decimal, where 9.99 has room to become 10.00."""
    source = values.type
    wide = pa.decimal256(min(source.precision + 1, 76), source.scale)
    return pc.round(pc.cast(values, wide), ndigits=digits, round_mode="half_towards_infinity")


def _to_timestamp(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    zone = source.tz if arrow.is_timestamp(source) else None
    if zone is None and target.tz is not None:
        local = convert_unit(values, pa.timestamp(target.unit))
        return local.view(target) if target.tz == "UTC" else pc.assume_timezone(local, target.tz)
    if zone is not None and target.tz is None:
        values = _local(values)
    return convert_unit(values, target)


def _local(values: pa.Array) -> pa.Array:
    """The clock of a timestamp's zone, as a timestamp without one."""
    if values.type.tz == "UTC":
        return values.view(pa.timestamp(values.type.unit))
    return pc.local_timestamp(values)


def cast_scalar(literal: Literal, target: pa.DataType) -> pa.Scalar:
    """The value of a literal in another type.

    Raises:
        EvaluationError: It has none there.
    """
    try:
        array = pa.array([literal.value], literal.type).cast(plain(literal.type))
        return convert(array, plain(target)).cast(target)[0]
    except _FAILURES as error:
        raise EvaluationError(
            f"{shorten(str(literal))} of type {literal.type} has no value of type {target}: "
            f"{shorten(str(error))}"
        ) from error


def _lenient(values: pa.Array, target: pa.DataType) -> pa.Array:
    """NULL where `convert` fails; found by halving, so that good stretches stay whole columns."""
    try:
        if is_text(values.type):
            return read_text(values, target, lenient=True)
        return convert(values, target)
    except _FAILURES:
        if len(values) == 1:
            return pa.nulls(1, target)
    half = len(values) // 2
    parts = [_lenient(part, target) for part in (values[:half], values[half:])]
    return pa.concat_arrays(parts)


def _cast_kernel(arguments: Sequence[Values], of: pa.DataType) -> Values:
    return convert(arguments[0], of)


def _try_cast_kernel(arguments: Sequence[Values], of: pa.DataType) -> Values:
    distinct = pc.dictionary_encode(arguments[0])
    if isinstance(distinct, pa.DictionaryArray):
        return _lenient(distinct.dictionary, of).take(distinct.indices)
    return _lenient(arguments[0], of)


def _cast_rule(name: str, arguments: Arguments, of: pa.DataType | None) -> Typed:
    require(name, arguments, 1, 1)
    if of is None:
        raise refuse(name, arguments, "it needs the type to cast to, as type=...")
    source, target = plain(arguments[0].type), plain(of)
    if not any(test(source) and other(target) for test, other in _POSSIBLE) and source != target:
        raise FunctionError(f"a {arguments[0].type} cannot be cast to {of}; cast to string first")
    return arguments, of


_Test = Callable[[pa.DataType], bool]


def _anything(of: pa.DataType) -> bool:
    return not arrow.is_nested(of) and not arrow.is_null(of)


def _number(of: pa.DataType) -> bool:
    return is_number(of) or bool(arrow.is_boolean(of))


def _clock(of: pa.DataType) -> bool:
    return bool(arrow.is_date(of) or arrow.is_timestamp(of))


_POSSIBLE: tuple[tuple[_Test, _Test], ...] = (
    (arrow.is_null, _anything),
    (is_text, _anything),
    (_anything, is_text),
    (_number, _number),
    (_clock, _clock),
    (arrow.is_timestamp, arrow.is_time),
    (arrow.is_time, arrow.is_time),
    (arrow.is_duration, arrow.is_duration),
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
