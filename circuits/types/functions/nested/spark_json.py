"""``to_json`` of Spark: numbers as Java writes them, times in ISO 8601 with three digits.

=================== ==================================================================
a float             ``1.0E7``, ``0.1``; NaN and Infinity as texts
a decimal           ``1.50``, ``1.000E-7``
a timestamp         ``"2020-01-02T03:04:05.123Z"``, without the Z if it has no zone
a field of a struct left out if it is NULL
a key of a map      a text; a date is its days, a timestamp its microseconds, since 1970
=================== ==================================================================

Cost: a call of Python per value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested
from circuits.types.functions.function import Function, Values
from circuits.types.functions.nested.json_texts import python_values, to_json_rule
from circuits.types.functions.numbers.number_formats import java_float

__all__ = ["FUNCTIONS"]

_EPOCH: Final = date(1970, 1, 1)


def _to_json(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = arguments[0]
    texts = [None if value is None else _write(value, array.type) for value in python_values(array)]
    return pa.array(texts, pa.string())


def _write(value: Any, type_: pa.DataType) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    if arrow.is_struct(type_):
        parts = [
            f"{_quote(field.name)}:{_write(value[field.name], field.type)}"
            for field in type_
            if value[field.name] is not None
        ]
        return f"{{{','.join(parts)}}}"
    if arrow.is_map(type_):
        parts = [
            f"{_quote(_key(key, type_.key_type))}:{_write(item, type_.item_type)}"
            for key, item in value
        ]
        return f"{{{','.join(parts)}}}"
    if is_nested(type_):
        return f"[{','.join(_write(item, type_.value_type) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = _float_text(value, type_)
        return text if math.isfinite(value) else _quote(text)
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return _quote(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return _quote(value.isoformat(timespec="milliseconds"))
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return _quote(f"{text}Z")
    return _quote(value if isinstance(value, str) else value.isoformat())


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


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


FUNCTIONS = (
    Function(
        "to_json_without_null",
        "the value a as JSON, without fields that are NULL; as in Spark",
        to_json_rule,
        _to_json,
    ),
)
