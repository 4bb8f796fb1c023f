"""The schema of a JSON text, as the text of a type of Spark: ``STRUCT<a: BIGINT, b: STRING>``."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

#: An inferred type: its name; the number of digits of a DECIMAL; a list with the type of the
#: elements of an ARRAY; or the types of the fields of a STRUCT. None stands for null, which has
#: every type.
_Type = None | str | int | list[Any] | dict[str, Any]
_MAX_DIGITS = 38
_LONG_DIGITS = 20  # Spark's digits of a BIGINT


def _schema_of_json(text: str) -> str:
    return _write(_infer(json.loads(text, parse_float=Decimal)))


def _infer(value: Any) -> _Type:
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            if -(2**63) <= value < 2**63:
                return "BIGINT"
            digits = len(str(abs(value)))
            return digits if digits <= _MAX_DIGITS else "DOUBLE"
        case Decimal() | float():
            return "DOUBLE"
        case dict():
            return {name: _infer(part) for name, part in sorted(value.items()) if name}
        case list():
            element: _Type = None
            for part in value:
                element = _merge(element, _infer(part))
            return [element]
        case _:
            return "STRING"


def _merge(left: _Type, right: _Type) -> _Type:
    """Return the type that has the values of two types: STRING, if no other type has them."""
    if left is None or left == right:
        return right
    if right is None:
        return left
    if isinstance(left, dict) and isinstance(right, dict):
        names = sorted({*left, *right})
        return {name: _merge(left.get(name), right.get(name)) for name in names}
    if isinstance(left, list) and isinstance(right, list):
        return [_merge(left[0], right[0])]
    if "DOUBLE" in (left, right) and _is_number(left) and _is_number(right):
        return "DOUBLE"
    if _is_number(left) and _is_number(right):  # a decimal with the digits of both
        return max(side if isinstance(side, int) else _LONG_DIGITS for side in (left, right))
    return "STRING"


def _is_number(data_type: _Type) -> bool:
    return isinstance(data_type, int) or data_type in ("BIGINT", "DOUBLE")


def _write(data_type: _Type) -> str:
    match data_type:
        case None:
            return "STRING"
        case int():
            return f"DECIMAL({data_type},0)"
        case list():
            return f"ARRAY<{_write(data_type[0])}>"
        case dict():
            # As in Spark, a field whose type is a STRUCT without fields is left out.
            fields = ((name, part) for name, part in data_type.items() if part != {})
            return (
                f"STRUCT<{', '.join(f'{_quote(name)}: {_write(part)}' for name, part in fields)}>"
            )
        case _:
            return data_type


def _quote(name: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None
    return name if is_plain else f"`{name.replace('`', '``')}`"


# In a signature, t is a text.
FUNCTIONS = (
    Function(
        "schema_of_json",
        "the type of the JSON text a",
        Signature("t", pa.string()),
        per_distinct_row(_schema_of_json),
    ),
)
