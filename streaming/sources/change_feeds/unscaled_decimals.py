"""Unscaled decimals: base64 of the bytes of an integer, as Kafka Connect and Debezium write them.

::

    "AMg="                             the integer 200; 2.00 of scale 2
    {"scale": 1, "value": "AMg="}      20.0, if each value has its own scale

The integer is big-endian and in two's complement. The schema of an event defines which columns have
this encoding. Without a schema, a text of digits only is ambiguous: "1234" is a number, and the
base64 of -2658824. Any other text is either a number or base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from streaming.sources.change_feeds.sql_expressions import literal, row, shorten_text, with_binding
from streaming.sources.change_feeds.text_values import (
    MAX_NUMBER_BYTES,
    NUMBER_PATTERN,
    Encoding,
    mark_rounded,
    scalar_kind,
)

__all__ = ["NumberCell", "may_be_bytes", "number_texts"]


def may_be_bytes(type: pa.DataType) -> bool:
    """Return whether some producers send values of the type as the bytes of a number."""
    wide = types.is_integer(type) and type.bit_width == 64
    return bool(types.is_decimal(type) or wide)


class NumberCell(NamedTuple):
    """SQL expressions of a cell of a number.

    Attributes:
        variant: The value, as VARIANT.
        description: The event's description of the column: a struct with ``bytes`` and ``scale``,
            or NULL.
        scale: The scale of a column without a description.
    """

    variant: str
    description: str
    scale: str


def number_texts(cells: Sequence[NumberCell], encoding: Encoding, has_long_number: str) -> str:
    """Return the texts of the cells of numbers, as an array in their order.

    The formula is long, so the expression contains it once for all cells.

    Args:
        cells: The cells.
        encoding: The encodings that the events do not define.
        has_long_number: As for `streaming.sources.change_feeds.text_values.mark_rounded`.
    """
    structs = ", ".join(_number_struct(cell, encoding, has_long_number) for cell in cells)
    ambiguous = literal(", a number and the base64 of another (Encoding(decimals=...) says which),")
    unscaled = _decode_unscaled("n.text", "n.scale")
    decoded = (
        f"CASE WHEN n.is_ambiguous THEN concat(n.text, {ambiguous}) WHEN n.is_bytes THEN "
        f"coalesce({unscaled}, concat('base64 ', n.text)) ELSE n.text END"
    )
    return f"transform(array({structs}), n -> {decoded})"


def _number_struct(cell: NumberCell, encoding: Encoding, has_long_number: str) -> str:
    """Return a struct of the text of a cell, its scale, and whether it is the bytes of a number."""
    variant, description = cell.variant, cell.description
    full_text = f"CAST({variant} AS STRING)"
    is_short = f"octet_length({full_text}) <= {MAX_NUMBER_BYTES}"
    text = shorten_text(full_text, MAX_NUMBER_BYTES)
    inner, own_scale = (
        f"try_variant_get({variant}, '$.{name}', '{type}')"
        for name, type in (("value", "string"), ("scale", "int"))
    )
    inner = shorten_text(inner, MAX_NUMBER_BYTES)
    is_text = f"{is_short} AND {scalar_kind(variant, text)} = 'STRING'"
    is_bytes = f"{is_text} AND coalesce({description}.bytes, {_is_bytes(text, encoding)})"
    is_ambiguous = f"{is_text} AND {description}.bytes IS NULL AND {_is_ambiguous(text, encoding)}"
    return row(
        {
            "text": f"coalesce({inner}, {mark_rounded(variant, text, has_long_number)})",
            "is_bytes": f"{inner} IS NOT NULL OR coalesce({is_bytes}, false)",
            "is_ambiguous": f"coalesce({is_ambiguous}, false)",
            "scale": f"coalesce({own_scale}, {description}.scale, {cell.scale})",
        }
    )


def _is_bytes(text: str, encoding: Encoding) -> str:
    """Return the SQL condition that the text of a number is the base64 of its bytes."""
    if encoding.decimals == "either":
        return f"NOT {text} RLIKE {literal(NUMBER_PATTERN)}"
    return str(encoding.decimals == "base64").lower()


def _is_ambiguous(text: str, encoding: Encoding) -> str:
    """Return the SQL condition that the text is a number, and the base64 of another number."""
    if encoding.decimals != "either":
        return "false"
    number = f"{text} RLIKE '^[0-9eE+]+$' AND {text} RLIKE {literal(NUMBER_PATTERN)}"
    return f"(length({text}) % 4 = 0 AND {number})"


def _decode_unscaled(text: str, scale: str) -> str:
    """Return the text of a number, given its scale and the base64 of its two's complement.

    NULL for more than 16 bytes and for an invalid base64, also if only the padding is missing.
    """
    # For a negative number the bits are inverted, which gives its absolute value less one.
    wide = "right(concat(repeat(if(minus, 'F', '0'), 32), bytes_hex), 32)"
    inverted = f"translate({wide}, '0123456789ABCDEF', 'FEDCBA9876543210')"
    high, low = (
        f"CAST(try_cast(conv({half}(digits, 16), 16, 10) AS DECIMAL(20, 0)) AS DECIMAL(38, 0))"
        for half in ("left", "right")
    )
    shifted = f"try_multiply({high}, CAST('{2**64}' AS DECIMAL(20, 0)))"
    one_if_negative = "CAST(if(minus, 1, 0) AS DECIMAL(38, 0))"
    whole = f"CAST(try_add(try_add({shifted}, {low}), {one_if_negative}) AS STRING)"
    padded = f"if(length(whole) > {scale}, whole, lpad(whole, {scale} + 1, '0'))"
    with_point = (
        f"concat(if(minus, '-', ''), left(padded, length(padded) - greatest({scale}, 0)), "
        f"if({scale} > 0, concat('.', right(padded, {scale})), repeat('0', -{scale})))"
    )
    body = with_binding("padded", padded, with_point)
    body = with_binding("whole", whole, body)
    body = with_binding("digits", f"if(minus, {inverted}, {wide})", body)
    body = with_binding("minus", "left(bytes_hex, 1) RLIKE '[89A-F]'", body)
    fits = f"length(bytes_hex) BETWEEN 1 AND 32 AND {scale} BETWEEN -99 AND 99"
    bytes_hex = f"hex(try_to_binary(if(length({text}) % 4 = 0, {text}, NULL), 'base64'))"
    return with_binding("bytes_hex", bytes_hex, f"CASE WHEN {fits} THEN {body} END")
