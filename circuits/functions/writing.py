"""Values written as text, in the way that DuckDB writes them.

Floats have a point or an exponent (``1.0``, ``1e+16``, ``nan``, ``inf``), timestamps a space and no
trailing zeros in their fraction, decimals all digits of their scale.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.functions.rows import unscaled

__all__ = ["write_text"]


def write_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values as text of type ``target``; ArrowInvalid for bytes that are no UTF-8."""
    source = values.type
    if arrow.is_floating(source):
        return _float(values, target)
    if arrow.is_decimal(source) and source.scale > 6:
        return _decimal(values, target)
    if arrow.is_timestamp(source):
        return _timestamp(values, target)
    if arrow.is_time(source):
        return _trimmed(pc.cast(values, target))
    return pc.cast(values, target)


def _float(values: pa.Array, target: pa.DataType) -> pa.Array:
    """By numpy, whose shortest digits have an exponent where DuckDB's have one."""
    shown = values.to_numpy(zero_copy_only=False).astype(str)
    return pc.if_else(pc.is_valid(values), pa.array(shown, target), pa.scalar(None, target))


def _decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Arrow writes small values of a scale above 6 as ``1E-7``; so the point is put in here."""
    scale = values.type.scale
    positive = pc.abs(values)
    digits = pc.utf8_lpad(pc.cast(unscaled(positive), target), scale + 1, "0")
    before = pc.utf8_slice_codeunits(digits, 0, -scale)
    after = pc.utf8_slice_codeunits(digits, -scale, None)
    sign = pc.if_else(pc.equal(positive, values), pa.scalar("", target), pa.scalar("-", target))
    text = pc.binary_join_element_wise(before, after, pa.scalar(".", target))
    return pc.binary_join_element_wise(sign, text, pa.scalar("", target))


def _timestamp(values: pa.Array, target: pa.DataType) -> pa.Array:
    zone = values.type.tz is not None
    if zone:
        values = pc.cast(values, pa.timestamp(values.type.unit))
    text = _trimmed(pc.cast(values, target))
    return (
        pc.binary_join_element_wise(text, *(pa.scalar(s, target) for s in ("+00", "")))
        if zone
        else text
    )


def _trimmed(text: pa.Array) -> pa.Array:
    whole = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.replace_substring_regex(whole, r"(\.\d*?)0+$", r"\1")
