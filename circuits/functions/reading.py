"""Text read as values of another type, by whole columns, as generously as DuckDB does.

Around the text white space is ignored. Well-formed columns take Arrow's parsers; only where these
fail is the text taken apart by regular expressions: ``1.5`` and ``1e3`` as integers, digits
beyond a decimal's scale, ``2024-1-5`` as a date.

A text of more than `MAX_VALUE_CHARACTERS` spells no value of another type, and no parser sees it:
Arrow's parser of decimals ends the process for fractions of ten million digits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.excerpt import excerpt
from circuits.functions.long_decimals import MAX_ARROW_CHARACTERS, read_long_decimals
from circuits.functions.types import is_text

__all__ = ["MAX_VALUE_CHARACTERS", "read_text"]

#: Characters of a text that is read as a number, a time or a boolean, without blanks around it.
MAX_VALUE_CHARACTERS: Final = 1000

_TRUE = pa.array(["true", "t", "yes", "y", "1"])
_FALSE = pa.array(["false", "f", "no", "n", "0"])
_NUMBER = r"^(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?(?:[eE](?P<power>[+-]?\d+))?$"
_DATE = r"^(?P<year>\d{1,6})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})(?:[T ].*)?$"


def read_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values that a column of text spells; ArrowInvalid if one is no ``target``."""
    if is_text(target) or arrow.is_binary(target) or arrow.is_large_binary(target):
        return pc.cast(values, target)
    values = pc.utf8_trim_whitespace(values)
    _check_lengths(values, target)
    if arrow.is_boolean(target):
        return _boolean(values)
    try:
        if arrow.is_time(target):
            return _time(values, target)
        if arrow.is_decimal(target) and pc.any(_is_inexact(values)).as_py():
            return _decimal(values, target)
        return pc.cast(values, target)
    except pa.ArrowInvalid:
        if arrow.is_integer(target):
            return pc.cast(_decimal(values, pa.decimal256(76, 0), str(target)), target)
        if arrow.is_decimal(target):
            return _decimal(values, target)
        if arrow.is_date(target):
            return pc.cast(_date(values), target)
        if arrow.is_timestamp(target) and target.tz is not None:  # without an offset: local time
            local = pc.cast(values, pa.timestamp(target.unit))
            return pc.assume_timezone(local, target.tz)
        raise


def _check_lengths(values: pa.Array, target: pa.DataType) -> None:
    if values.nbytes <= MAX_VALUE_CHARACTERS:
        return
    long = pc.greater(pc.binary_length(values), MAX_VALUE_CHARACTERS)
    if pc.any(long).as_py():
        wrong = values.filter(long)[0].as_py()
        raise pa.ArrowInvalid(
            f"{excerpt(wrong, 60)} is no {target}: texts of more than {MAX_VALUE_CHARACTERS} bytes "
            "are not read as values"
        )


def _boolean(values: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(values)
    true = pc.is_in(lower, value_set=_TRUE.cast(values.type))
    known = pc.or_(true, pc.is_in(lower, value_set=_FALSE.cast(values.type)))
    _all_valid(values, pc.or_(known, pc.is_null(values)), "bool")
    return pc.if_else(pc.is_valid(values), true, None)


def _time(values: pa.Array, target: pa.DataType) -> pa.Array:
    day = pc.binary_join_element_wise(pa.scalar("1970-01-01", values.type), values, "T")
    return pc.cast(pc.cast(day, pa.timestamp(target.unit)), target)


def _decimal(values: pa.Array, target: pa.DataType, wanted: str = "") -> pa.Array:
    """Decimals rounded half away from zero; exponents move the point, digit for digit."""
    long = _is_inexact(values)
    if pc.any(long).as_py():
        short = pc.if_else(long, pa.scalar(None, values.type), values)
        read = read_long_decimals(values.filter(long), target, wanted or str(target))
        return pc.replace_with_mask(_decimal(short, target, wanted), long, read)
    parts = pc.extract_regex(values, pattern=_NUMBER)
    valid = pc.or_(pc.is_valid(parts), pc.is_null(values))
    _all_valid(values, valid, wanted or str(target))
    shown = pc.replace_substring_regex(values, r"^\+", "")
    scale = target.scale + 1
    cut = pc.replace_substring_regex(shown, rf"(\.\d{{0,{scale}}})\d*$", r"\1")
    return _rounded(pc.cast(cut, pa.decimal256(76, scale)), target)


def _is_inexact(values: pa.Array) -> pa.Array:
    """Whether Arrow's parser of decimals may drop digits, or wrap around, without an error."""
    scientific = pc.match_substring_regex(values, "[eE]")
    long = pc.greater(pc.binary_length(values), MAX_ARROW_CHARACTERS)
    return pc.fill_null(pc.or_(scientific, long), False)


def _rounded(values: pa.Array, target: pa.DataType) -> pa.Array:
    mode = "half_towards_infinity"
    return pc.cast(pc.round(values, ndigits=target.scale, round_mode=mode), target)


def _date(values: pa.Array) -> pa.Array:
    parts = pc.extract_regex(values, pattern=_DATE)
    _all_valid(values, pc.or_(pc.is_valid(parts), pc.is_null(values)), "date")
    year, month, day = (
        pc.fill_null(pc.cast(pc.struct_field(parts, name), pa.int64()), 1).to_numpy()
        for name in ("year", "month", "day")
    )
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    days = first + (day - 1)
    right = (month >= 1) & (month <= 12) & (day >= 1) & (days.astype("datetime64[M]") == first)
    _all_valid(values, pa.array(right), "date")
    array = pa.array(days.astype(np.int64).astype(np.int32), pa.int32())
    return pc.if_else(pc.is_valid(values), array.view(pa.date32()), None)


def _all_valid(values: pa.Array, valid: pa.Array, wanted: str) -> None:
    if not pc.all(valid, min_count=0).as_py():
        wrong = pc.filter(values, pc.invert(valid))[0].as_py()
        raise pa.ArrowInvalid(f"{excerpt(wrong)} is no {wanted}")
