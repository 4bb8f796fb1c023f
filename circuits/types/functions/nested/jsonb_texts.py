"""Texts of ``jsonb``, as PostgreSQL writes them.

An object has one member of each name, the last one, in the order of the lengths of the names and
then of their bytes. Numbers keep their digits, and have no exponent::

    '{"bb": 1e2, "a": 1.50, "a": [2]}'     {"a": [2], "bb": 100}

Cost: O(bytes of the distinct texts) in Python.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_INDENT: Final = "    "


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


def _parse(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the text is no JSON: {error}") from None


def _members(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))


def _write(value: Any, blank: str) -> str:
    """Return a value as JSON, with a blank or nothing after each comma and colon."""
    if isinstance(value, dict):
        members = (
            f"{_write(name, '')}:{blank}{_write(part, blank)}" for name, part in _members(value)
        )
        return f"{{{f',{blank}'.join(members)}}}"
    if isinstance(value, list):
        return f"[{f',{blank}'.join(_write(part, blank) for part in value)}]"
    if isinstance(value, Decimal):
        return f"{value if value else abs(value):f}"  # a numeric has no -0
    return json.dumps(value, ensure_ascii=False)


def _indent(value: Any, margin: str = "\n") -> str:
    """Return a value with each member and element on its own line."""
    inner = margin + _INDENT
    if isinstance(value, dict):
        parts = [f"{_write(name, '')}: {_indent(part, inner)}" for name, part in _members(value)]
        return "{" + ",".join(inner + part for part in parts) + margin + "}"
    if isinstance(value, list):
        return "[" + ",".join(inner + _indent(part, inner) for part in value) + margin + "]"
    return _write(value, "")


def _canonical(text: str) -> str:
    return _write(_parse(text), "")


def _text(text: str) -> str:
    return _write(_parse(text), " ")


def _pretty(text: str) -> str:
    return _indent(_parse(text))


# In a signature, t is a text.
FUNCTIONS = (
    Function(
        "jsonb_of_text",
        "the JSON text a with its members in the order of PostgreSQL's jsonb",
        Signature("t", pa.string()),
        per_distinct_row(_canonical),
    ),
    Function(
        "jsonb_text",
        "the JSON text a as PostgreSQL writes a jsonb",
        Signature("t", pa.string()),
        per_distinct_row(_text),
    ),
    Function(
        "jsonb_pretty",
        "the JSON text a with indents, as PostgreSQL writes a jsonb",
        Signature("t", pa.string()),
        per_distinct_row(_pretty),
    ),
)
