"""Parse columns of text as values of another type, in the formats of DuckDB.

ASCII white space around a number is ignored. Arrow's parsers read most columns. A column for which
they fail is parsed with regular expressions. Examples are the integers ``1.5``, ``1e3`` and
``1_000``, and decimals with more fractional digits than the scale of their type. Dates and times
are parsed by `circuits.types.functions.casting.time_parsing`.

A text of more than `MAX_VALUE_BYTES` raises an error before any parser reads it, because Arrow's
parser of decimals terminates the process for fractions of ten million digits.

Deviations from DuckDB: ``0b11`` and ``+-1`` are not numbers; an exponent is exact in a decimal
(DuckDB does not accept ``149e-2`` as DECIMAL(4, 2)).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.excerpt import excerpt
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.argument_rows import fit_precision
from circuits.types.functions.casting.interval_texts import read_intervals
from circuits.types.functions.casting.long_decimals import MAX_ARROW_CHARACTERS, read_long_decimals
from circuits.types.functions.casting.time_parsing import read_date, read_time, read_timestamp
from circuits.types.functions.type_rules import is_text

__all__ = ["MAX_VALUE_BYTES", "read_text"]

#: Maximum bytes of a text that is parsed as a value, without surrounding blanks.
MAX_VALUE_BYTES: Final = 1000

_BLANK_CHARACTERS = " \t\n\v\f\r"
_TRUE = pa.array(["true", "t", "yes", "y", "1"])
_FALSE = pa.array(["false", "f", "no", "n", "0"])
_NUMBER = r"^[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?$"


def read_text(values: pa.Array, target: pa.DataType, *, lenient: bool = False) -> pa.Array:
    """Parse a column of text.

    Args:
        values: The texts.
        target: The type of the result.
        lenient: If True, a text that is not a valid date, timestamp or time becomes NULL.

    Raises:
        ArrowInvalid: A text is not a value of type ``target``.
    """
    if is_text(target) or arrow.is_binary(target) or arrow.is_large_binary(target):
        return pc.cast(values, target)
    _check_lengths(values, target)
    if arrow.is_boolean(target):
        return _parse_booleans(values)
    if arrow.is_date(target):
        return pc.cast(read_date(values, lenient=lenient), target)
    if arrow.is_timestamp(target):
        return read_timestamp(values, target, lenient=lenient)
    if target == INTERVAL:
        return read_intervals(values, lenient=lenient)
    if arrow.is_time(target):
        return read_time(values, target, lenient=lenient)
    values = pc.utf8_trim(values, characters=_BLANK_CHARACTERS)
    if arrow.is_decimal(target):
        return _parse_decimals(values, target, str(target))
    try:
        return pc.cast(values, target)
    except pa.ArrowInvalid:
        if arrow.is_integer(target):
            integers = _parse_decimals(values, pa.decimal256(76, 0), str(target))
            return pc.cast(integers, target)
        if arrow.is_floating(target):
            return pc.cast(_remove_underscores(values), target)
        raise


def _check_lengths(values: pa.Array, target: pa.DataType) -> None:
    if values.nbytes <= MAX_VALUE_BYTES:
        return
    is_too_long = pc.greater(pc.binary_length(values), MAX_VALUE_BYTES)
    if pc.any(is_too_long).as_py():  # the text may have surrounding blanks
        is_too_long = pc.greater(pc.binary_length(pc.utf8_trim_whitespace(values)), MAX_VALUE_BYTES)
    if pc.any(is_too_long).as_py():
        text = values.filter(is_too_long)[0].as_py()
        raise pa.ArrowInvalid(
            f"{excerpt(text, 60)} cannot be parsed as {target}: it has more than "
            f"{MAX_VALUE_BYTES} bytes"
        )


def _parse_booleans(values: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(values)
    is_true = pc.is_in(lower, value_set=_TRUE.cast(values.type))
    is_known = pc.or_(is_true, pc.is_in(lower, value_set=_FALSE.cast(values.type)))
    _check_all_valid(values, pc.or_(is_known, pc.is_null(values)), "bool")
    return pc.if_else(pc.is_valid(values), is_true, None)


def _remove_underscores(values: pa.Array) -> pa.Array:
    """Return the texts; remove the underscores between digits from those that are numbers."""
    if not pc.any(pc.match_substring(values, "_")).as_py():
        return values
    is_number_text = pc.match_substring_regex(values, _NUMBER)
    return pc.if_else(is_number_text, pc.replace_substring(values, "_", ""), values)


def _parse_decimals(values: pa.Array, target: pa.DataType, type_name: str) -> pa.Array:
    """Parse decimals, rounded half away from zero.

    Values are parsed in 256 bits, because Arrow's parser of 128 bits drops the bits that do not
    fit. Long texts and texts with an exponent are parsed one by one.
    """
    integer_digits = target.precision - target.scale
    if integer_digits > 0:
        fraction = rf"(\.\d{{1,{target.scale}}})?" if target.scale else ""
        pattern = rf"^-?\d{{1,{integer_digits}}}{fraction}$"
        fits_target = pc.fill_null(pc.match_substring_regex(values, pattern), True)
        if pc.all(fits_target, min_count=0).as_py():
            return pc.cast(values, target)
    is_number = pc.match_substring_regex(values, _NUMBER)
    _check_all_valid(values, pc.or_(is_number, pc.is_null(values)), type_name)
    texts = pc.replace_substring_regex(_remove_underscores(values), r"^\+", "")
    is_inexact = _is_inexact(texts)
    if pc.any(is_inexact).as_py():
        without_inexact = pc.if_else(is_inexact, pa.scalar(None, texts.type), texts)
        parsed = read_long_decimals(texts.filter(is_inexact), target, type_name)
        return pc.replace_with_mask(
            _parse_decimals(without_inexact, target, type_name), is_inexact, parsed
        )
    # The first digit after the scale decides how to round, so the digits after it are cut off.
    scale = min(target.scale + 1, 75)
    shortened = pc.replace_substring_regex(texts, rf"(\.\d{{0,{scale}}})\d*$", r"\1")
    parsed = pc.cast(shortened, pa.decimal256(76, scale))
    rounded = pc.round(parsed, ndigits=target.scale, round_mode="half_towards_infinity")
    return fit_precision(pc.cast(rounded, pa.decimal256(76, target.scale)), target)


def _is_inexact(values: pa.Array) -> pa.Array:
    """Return a mask of the texts whose digits Arrow's parser may drop or overflow silently."""
    has_exponent = pc.match_substring_regex(values, "[eE]")
    is_long = pc.greater(pc.binary_length(values), MAX_ARROW_CHARACTERS)
    return pc.fill_null(pc.or_(has_exponent, is_long), False)


def _check_all_valid(values: pa.Array, valid: pa.Array, type_name: str) -> None:
    if not pc.all(valid, min_count=0).as_py():
        text = pc.filter(values, pc.invert(valid))[0].as_py()
        raise pa.ArrowInvalid(f"{excerpt(text)} cannot be parsed as {type_name}")
