"""Format values as text, in the format of DuckDB.

Floats have a point or an exponent (``1.0``, ``1e+16``, ``nan``, ``inf``). Timestamps have a space
and no trailing zeros in their fraction. Decimals have all digits of their scale, and no zero before
the point if their type has no digit there. A date before the year 1 is formatted as
``0044-03-15 (BC)``. The greatest date or timestamp is ``infinity``, and its negative ``-infinity``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.excerpt import excerpt
from circuits.types.arrow_types import is_nested, part_types, with_parts
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.argument_rows import unscaled_digits
from circuits.types.functions.casting.interval_texts import write_intervals
from circuits.types.functions.casting.time_units import PER_SECOND, is_infinite, ticks_of

__all__ = ["format_scalar", "format_unrepresentable", "with_whole_digit", "write_text"]

_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31


def write_text(values: pa.Array, target: pa.DataType, *, signed_years: bool = False) -> pa.Array:
    """Return values as text.

    Args:
        values: Values that are not nested.
        target: The type of the texts.
        signed_years: True for the years of Spark and Java: 0 and -1 are the years before 1, the
            year 10000 has a plus sign, and no date is infinite.

    Raises:
        ArrowInvalid: Bytes are not UTF-8.
    """
    source = values.type
    if arrow.is_floating(source):
        return _format_floats(values, target)
    if arrow.is_decimal(source) and (source.scale > 6 or source.scale == source.precision):
        return _format_decimals(values, target)
    if arrow.is_date(source):
        return _format_unusual_years(values, pc.cast(values, target), target, signed_years)
    if arrow.is_timestamp(source):
        texts = _format_timestamps(values, target)
        return _format_unusual_years(values, texts, target, signed_years)
    if source == INTERVAL:
        return write_intervals(values, target)
    if arrow.is_time(source):
        return _strip_trailing_zeros(pc.cast(values, target))
    return pc.cast(values, target)


def format_scalar(scalar: pa.Scalar) -> str:
    """Return a value as text for error messages.

    If Python cannot represent the value, for example a date in the year 20000, `write_text` formats
    it.
    """
    try:
        return excerpt(scalar.as_py())
    except (ValueError, OverflowError):
        return repr(write_text(pa.repeat(scalar, 1), pa.string())[0].as_py())


def format_unrepresentable(table: pa.Table) -> pa.Table:
    """Return the table with dates and timestamps as text in columns that Python cannot represent.

    In a list, struct or map, a date that Python cannot represent is a text that says so.

    >>> days = pa.array([3 * 10**6], pa.int32()).view(pa.date32())
    >>> format_unrepresentable(pa.table({"d": days})).to_pylist()
    [{'d': '10183-09-21'}]
    """
    for index, column in enumerate(table.columns):
        has_parts = is_nested(column.type)
        if not (has_parts or arrow.is_date32(column.type) or arrow.is_timestamp(column.type)):
            continue
        try:
            column.to_pylist()
        except (ValueError, OverflowError):
            target = _with_text_times(column.type)
            write = pa.Array.cast if has_parts else write_text
            texts = pa.chunked_array([write(chunk, target) for chunk in column.chunks], target)
            table = table.set_column(index, table.column_names[index], texts)
    return table


def _with_text_times(type: pa.DataType) -> pa.DataType:
    """Return a type with texts in place of dates and timestamps."""
    if is_nested(type):
        return with_parts(type, [_with_text_times(part) for part in part_types(type)])
    return pa.string() if arrow.is_date32(type) or arrow.is_timestamp(type) else type


def _format_floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Format floats with numpy, which uses an exponent for the same values as DuckDB."""
    floats = values.to_numpy(zero_copy_only=False)
    texts = floats.astype(str)
    if floats.dtype == np.float32:
        # For a float32, numpy writes 1e+10, and DuckDB writes all digits up to 1e+16.
        needs_digits = np.char.find(texts, "e+") >= 0
        needs_digits &= np.abs(floats) < np.float32(1e16)
        digit_texts = [
            np.format_float_positional(value, trim="0") for value in floats[needs_digits]
        ]
        texts = texts.astype(object)
        texts[needs_digits] = digit_texts
    return pc.if_else(pc.is_valid(values), pa.array(texts, target), pa.scalar(None, target))


def _format_decimals(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Insert the point into the digits: Arrow formats small values of scale > 6 as ``1E-7``."""
    scale = values.type.scale
    positive = pc.abs(values)
    digits = pc.utf8_lpad(pc.cast(unscaled_digits(positive), target), scale + 1, "0")
    before = pc.utf8_slice_codeunits(digits, 0, -scale)
    if scale == values.type.precision:
        before = pc.replace_substring(before, "0", "")
    after = pc.utf8_slice_codeunits(digits, -scale, None)
    sign = pc.if_else(pc.equal(positive, values), pa.scalar("", target), pa.scalar("-", target))
    text = pc.binary_join_element_wise(before, after, pa.scalar(".", target))
    return pc.binary_join_element_wise(sign, text, pa.scalar("", target))


def with_whole_digit(values: pa.Array) -> pa.Array:
    """Return decimals in a type with a digit before the point: the text is ``0.5``, not ``.5``."""
    scale = values.type.scale
    if scale != values.type.precision:
        return values
    return pc.cast(values, pa.decimal128(scale + 1, scale) if scale < 38 else pa.decimal256(39, 38))


def _format_timestamps(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type.tz is None:
        return _strip_trailing_zeros(pc.cast(values, target))
    utc = pc.cast(values, pa.timestamp(values.type.unit))
    text = _strip_trailing_zeros(pc.cast(utc, target))
    return pc.binary_join_element_wise(text, pa.scalar("+00", target), pa.scalar("", target))


def _format_unusual_years(
    values: pa.Array, text: pa.Array, target: pa.DataType, signed_years: bool
) -> pa.Array:
    """Return the text with years outside 1 to 9999 and infinities in the format of the system."""
    data_type = values.type
    ticks = ticks_of(values)
    days = ticks // _ticks_per_day(data_type)
    unusual = (days < _FIRST_DAY) | (days > _LAST_DAY) | is_infinite(ticks, data_type)
    if not unusual.any():
        return text
    formatted = [_format_timestamp(int(tick), data_type, signed_years) for tick in ticks[unusual]]
    return pc.replace_with_mask(text, pa.array(unusual), pa.array(formatted, target))


def _ticks_per_day(data_type: pa.DataType) -> int:
    """Return the units of a date or timestamp type in a day; the unit of a date64 is 1 ms."""
    if arrow.is_timestamp(data_type):
        return 86_400 * PER_SECOND[data_type.unit]
    return 1 if arrow.is_date32(data_type) else 86_400_000


def _format_timestamp(tick: int, data_type: pa.DataType, signed_years: bool) -> str:
    """Format a date or timestamp of any year."""
    if not signed_years and bool(is_infinite(np.array([tick]), data_type)[0]):
        return "infinity" if tick > 0 else "-infinity"
    days, ticks_of_day = divmod(tick, _ticks_per_day(data_type))
    date = np.datetime64(days, "D")
    month = date.astype("datetime64[M]")
    year = int(month.astype("datetime64[Y]").astype(np.int64)) + 1970
    month_of_year = int(month.astype(np.int64)) % 12 + 1
    day = int((date - month.astype("datetime64[D]")).astype(np.int64)) + 1
    era = "" if year > 0 or signed_years else " (BC)"
    if signed_years:
        year_text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    else:
        year_text = f"{year if year > 0 else 1 - year:04}"
    text = f"{year_text}-{month_of_year:02}-{day:02}{era}"
    if not arrow.is_timestamp(data_type):
        return text
    per_second = PER_SECOND[data_type.unit]
    seconds, fraction = divmod(ticks_of_day, per_second)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f"{fraction:0{len(str(per_second)) - 1}}".rstrip("0") if fraction else ""
    zone = "" if data_type.tz is None else "+00"
    return f"{text} {clock}{'.' if digits else ''}{digits}{zone}"


def _strip_trailing_zeros(text: pa.Array) -> pa.Array:
    without_zero_fraction = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.replace_substring_regex(without_zero_fraction, r"(\.\d*?)0+$", r"\1")
