"""``to_json`` of Spark: numbers as Java writes them, times in ISO 8601 with three digits.

=================== ==================================================================
a float             ``1.0E7``, ``0.1``; NaN and Infinity as texts
a decimal           ``1.50``, ``1.000E-7``
a timestamp         ``"2020-01-02T03:04:05.123Z"``, without the Z if it has no zone
a field of a struct left out if it is NULL
a key of a map      a text; a date is its days, a timestamp its microseconds, since 1970
=================== ==================================================================

Cost: that of `circuits.types.functions.nested.json_columns`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows
from circuits.types.functions.function import Function, Values
from circuits.types.functions.nested.json_columns import JsonStyle, json_column, quote_text
from circuits.types.functions.nested.json_texts import to_json_rule
from circuits.types.functions.numbers.number_formats import java_float

__all__ = ["FUNCTIONS"]

_EPOCH: Final = date(1970, 1, 1)


def _to_json(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return json_column(fill_rows(arguments[0], 1), _STYLE)


def _write_scalar(value: Any, type_: pa.DataType) -> str:
    """Return a value as JSON."""
    if isinstance(value, float):
        text = _float_text(value, type_)
        return text if math.isfinite(value) else quote_text(text)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return quote_text(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return quote_text(value.isoformat(timespec="milliseconds"))
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return quote_text(f"{text}Z")
    return quote_text(value.isoformat())


def _key(value: Any, type_: pa.DataType) -> str:
    """Return a key of a map as a text."""
    if isinstance(value, datetime):
        epoch = datetime(1970, 1, 1, tzinfo=value.tzinfo and UTC)
        return str((value - epoch) // timedelta(microseconds=1))
    if isinstance(value, date):
        return str((value - _EPOCH).days)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _float_text(value, type_) if isinstance(value, float) else str(value)


def _float_text(value: float, type_: pa.DataType) -> str:
    # str() of a float32 of numpy is its shortest text.
    return java_float(value, str(np.float32(value) if arrow.is_float32(type_) else value))


_STYLE: Final = JsonStyle.of_values(_write_scalar, _key, keeps_null_fields=False)

FUNCTIONS = (
    Function(
        "to_json_without_null",
        "the value a as JSON, without fields that are NULL; as in Spark",
        to_json_rule,
        _to_json,
    ),
)
