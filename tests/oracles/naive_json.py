"""JSON of values, written row by row in Python, to compare `json_columns` with."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested.json_texts import write_json
from circuits.types.functions.numbers.number_formats import java_float

__all__ = ["duckdb_json", "spark_json"]

_EPOCH = date(1970, 1, 1)


def duckdb_json(array: pa.Array) -> list[str | None]:
    return [
        None if value is None else write_json(_to_json_value(value, array.type))
        for value in array.to_pylist()
    ]


def spark_json(array: pa.Array) -> list[str | None]:
    return [None if value is None else _write(value, array.type) for value in array.to_pylist()]


def _to_json_value(value: Any, data_type: pa.DataType) -> Any:
    """Return an Arrow value as a value that JSON can represent."""
    if value is None:
        return None
    if arrow.is_struct(data_type):
        return {field.name: _to_json_value(value[field.name], field.type) for field in data_type}
    if arrow.is_map(data_type):
        return {str(key): _to_json_value(item, data_type.item_type) for key, item in value}
    if is_nested(data_type):
        return [_to_json_value(item, data_type.value_type) for item in value]
    if isinstance(value, float | Decimal):  # in DuckDB, NaN and Infinity have no quotes
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        text = value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
        # As in DuckDB, an offset of whole hours has no minutes: +00.
        has_offset = isinstance(value, datetime) and value.tzinfo is not None
        return text.removesuffix(":00") if has_offset else text
    return value


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
    if isinstance(value, datetime):
        epoch = datetime(1970, 1, 1, tzinfo=value.tzinfo and UTC)
        return str((value - epoch) // timedelta(microseconds=1))
    if isinstance(value, date):
        return str((value - _EPOCH).days)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _float_text(value, type_) if isinstance(value, float) else str(value)


def _float_text(value: float, type_: pa.DataType) -> str:
    return java_float(value, str(np.float32(value) if arrow.is_float32(type_) else value))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
