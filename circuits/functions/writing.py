"""Values written as text, in the way that DuckDB writes them.

Floats have a point or an exponent (``1.0``, ``1e+16``, ``nan``, ``inf``), timestamps a space and no
trailing zeros in their fraction, decimals all digits of their scale.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

__all__ = ["write_text"]


def write_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values as text of type ``target``; ArrowInvalid for bytes that are no UTF-8."""
    source = values.type
    if arrow.is_floating(source):
        return _float(values, target)
    if arrow.is_timestamp(source):
        return _timestamp(values, target)
    if arrow.is_time(source):
        return _trimmed(pc.cast(values, target))
    return pc.cast(values, target)


def _float(values: pa.Array, target: pa.DataType) -> pa.Array:
    text = pc.cast(values, target)
    whole = pc.match_substring_regex(text, r"^-?\d+$")
    if pc.any(whole).as_py():
        text = pc.if_else(whole, pc.binary_join_element_wise(text, "0", "."), text)
    return text


def _timestamp(values: pa.Array, target: pa.DataType) -> pa.Array:
    zone = values.type.tz is not None
    if zone:
        values = pc.cast(values, pa.timestamp(values.type.unit))
    text = _trimmed(pc.cast(values, target))
    return pc.binary_join_element_wise(text, "+00", "") if zone else text


def _trimmed(text: pa.Array) -> pa.Array:
    whole = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.replace_substring_regex(whole, r"(\.\d*?)0+$", r"\1")
