"""Checks and masks of text: Luhn digits, quotes, masked characters, valid UTF-8, UUIDs."""

from __future__ import annotations

import re

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]


def _luhn_check(text: str) -> bool:
    if not text or not (text.isascii() and text.isdigit()):
        return False
    total = 0
    for index, character in enumerate(reversed(text)):
        digit = int(character) * (2 if index % 2 else 1)
        total += digit - 9 * (digit > 9)  # the sum of the digits, for 10 to 18
    return total % 10 == 0


def _mask(
    text: str | None,
    upper: str | None = "X",
    lower: str | None = "x",
    digit: str | None = "n",
    other: str | None = None,
) -> str | None:
    if text is None:
        return None

    def mask_character(character: str) -> str:
        if character.isupper():
            replacement = upper
        elif character.islower():
            replacement = lower
        else:
            replacement = digit if character.isdigit() else other
        return character if replacement is None else replacement

    return "".join(map(mask_character, text))


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _make_valid(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _validate(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def _try_validate(value: str | bytes) -> str | None:
    try:
        return _validate(value)
    except UnicodeDecodeError:
        return None


def _uuid_text(text: str) -> str:
    is_braced = text.startswith("{") and text.endswith("}")
    digits = (text[1:-1] if is_braced else text).replace("-", "").lower()
    if not _UUID_DIGITS.fullmatch(digits):
        raise pa.ArrowInvalid(f"{text!r} is not a UUID")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_UUID_DIGITS = re.compile("[0-9a-f]{32}")
_TEXT = pa.string()

# In a signature, t is a text and y a text or bytes; parameters after | are optional.
FUNCTIONS = (
    Function(
        "luhn_check",
        "true if the last digit of a is its Luhn check digit",
        Signature("t", pa.bool_()),
        per_distinct_row(_luhn_check),
    ),
    Function(
        "mask",
        "a with capital letters, small letters, digits and others replaced by b to e",
        Signature("t|tttt", _TEXT),
        per_distinct_row(_mask, nulls=True),
    ),
    Function(
        "uuid_text",
        "a UUID in its usual form: small letters, and hyphens after 8, 12, 16 and 20 digits",
        Signature("t", _TEXT),
        per_distinct_row(_uuid_text),
    ),
    Function("quote", "a in single quotes", Signature("t", _TEXT), per_distinct_row(_quote)),
    Function(
        "make_valid_utf8",
        "the text of bytes, with U+FFFD for what is not UTF-8",
        Signature("y", _TEXT),
        per_distinct_row(_make_valid),
    ),
    Function(
        "validate_utf8",
        "the text of bytes; an error if they are not UTF-8",
        Signature("y", _TEXT),
        per_distinct_row(_validate),
    ),
    Function(
        "try_validate_utf8",
        "the text of bytes; NULL if they are not UTF-8",
        Signature("y", _TEXT),
        per_distinct_row(_try_validate),
    ),
)
