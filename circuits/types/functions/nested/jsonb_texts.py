"""Texts of ``jsonb``, as PostgreSQL writes them.

Of the members with one name, an object keeps the last one. It has its members in the order of the
lengths of their names in bytes, and then of the bytes. Numbers keep their digits, also zeros at the
end, and have no exponent::

    '{"bb": 1e2, "a": 1.50, "a": [2]}'     {"a": [2], "bb": 100}

As in PostgreSQL, a number has at most `MAX_DIGITS` digits before the point and `MAX_SCALE` after
it.

Cost: O(bytes of the distinct texts and of the results) in Python.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from circuits.types.codecs.variants import refuse_constant
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_INDENT: Final = "    "
#: PostgreSQL's limits of a NUMERIC.
MAX_DIGITS: Final = 131_072
MAX_SCALE: Final = 16_383


def _read_number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        raise ValueError(f"a number has the exponent of {text[:100]}") from None
    if number.adjusted() >= MAX_DIGITS and number:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits before the point")
    exponent = number.as_tuple().exponent
    if -int(exponent) > MAX_SCALE:
        raise ValueError(f"a number has more than {MAX_SCALE} digits after the point")
    return number


_DECODER: Final = json.JSONDecoder(
    parse_float=_read_number, parse_int=_read_number, parse_constant=refuse_constant
)


def _parse(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise ValueError(f"the text is no jsonb: {error}") from None


def _members(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise ValueError("a string has the character \\u0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a string has half of a surrogate pair") from None


def _write(value: Any, blank: str) -> str:
    """Return a value as JSON, with ``blank`` after each comma and colon."""
    if isinstance(value, dict):
        members = (
            f"{_write(name, '')}:{blank}{_write(part, blank)}" for name, part in _members(value)
        )
        return f"{{{f',{blank}'.join(members)}}}"
    if isinstance(value, list):
        return f"[{f',{blank}'.join(_write(part, blank) for part in value)}]"
    if isinstance(value, Decimal):
        return f"{value if value else value.copy_abs():f}"  # a NUMERIC has no -0
    if isinstance(value, str):
        _check_characters(value)
    return json.dumps(value, ensure_ascii=False)


def _indent(value: Any, margin: str = "\n") -> str:
    """Return a value with each member and element on its own line, which begins with ``margin``."""
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
