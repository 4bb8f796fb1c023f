"""Encodings of text and bytes: hexadecimal, base 64, character sets, URLs, number bases.

Each function runs once per distinct value. Deviation from Java: a character that a character set
does not have is replaced by ``?`` when encoding and by U+FFFD when decoding.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS", "as_bytes"]

_TEXT, _BYTES, _INT = pa.string(), pa.binary(), pa.int64()
_CHARACTER_SETS: Final = (
    *("us-ascii", "iso-8859-1", "utf-8", "utf-16", "utf-16be", "utf-16le"),
    "utf-32",
)
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD_VALUES: Final = 2**64  # the number of values of 64 bits


def as_bytes(value: str | bytes) -> bytes:
    """Return bytes unchanged, and a text as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def _hex_integer(value: int) -> str:
    return f"{value % _WORD_VALUES:X}"


def _hex(value: str | bytes) -> str:
    return as_bytes(value).hex().upper()


def _unhex(value: str) -> bytes | None:
    padded = "0" * (len(value) % 2) + value
    return bytes.fromhex(padded) if re.fullmatch("[0-9a-fA-F]*", padded) else None


def _base64(value: str | bytes) -> str:
    return base64.b64encode(as_bytes(value)).decode()


def _unbase64(value: str) -> bytes:
    try:
        digits = re.sub(r"\s", "", value)
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{value!r} is not base 64: {error}") from None


def _character_set(name: str) -> str:
    lower = name.lower()
    if lower not in _CHARACTER_SETS:
        supported = ", ".join(_CHARACTER_SETS)
        raise ValueError(f"no character set {name!r}; there are {supported}")
    return "utf-32-be" if lower == "utf-32" else lower


def _encode(value: str, name: str) -> bytes:
    if name.lower() == "utf-16":
        return b"\xfe\xff" + value.encode("utf-16-be") if value else b""
    return value.encode(_character_set(name), "replace")


def _decode(value: str | bytes, name: str) -> str:
    if name.lower() == "utf-16":
        data = as_bytes(value)
        is_little_endian = data.startswith(b"\xff\xfe")
        data = data[2:] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data
        return data.decode("utf-16-le" if is_little_endian else "utf-16-be", "replace")
    return as_bytes(value).decode(_character_set(name), "replace")


def _url_encode(value: str) -> str:
    return quote_plus(value, safe="*").replace("~", "%7E")


def _url_decode(value: str) -> str:
    if re.search(r"%(?![0-9a-fA-F]{2})", value):
        raise ValueError(f"{value!r} has an incomplete escape")
    return unquote_plus(value)


def _percent_encode(value: str) -> str:
    return quote(value, safe="-_.~")


def _percent_decode(value: str) -> str:
    return unquote(value)


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    if re.search(r"[\s\"<>\\^`{|}]", url):
        raise ValueError(f"{url!r} is no URL")
    url_parts = urlsplit(url)
    query = url_parts.query or None
    match part:
        case "QUERY" if key is not None:
            match = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", query or "")
            return match[1] if match else None
        case _ if key is not None:
            return None
        case "HOST":
            host = url_parts.netloc.rpartition("@")[2]
            end = host.find("]") + 1 if host.startswith("[") else host.find(":")
            return (host[:end] if end > 0 else host) or None
        case "PATH":
            return url_parts.path
        case "QUERY":
            return query
        case "REF":
            return url_parts.fragment or None
        case "PROTOCOL":
            return url_parts.scheme or None
        case "FILE":
            return url_parts.path + (f"?{query}" if query else "")
        case "AUTHORITY":
            return url_parts.netloc or None
        case "USERINFO":
            return url_parts.netloc.rpartition("@")[0] or None
        case _:
            return None


def _try_parse_url(url: str, part: str, key: str | None = None) -> str | None:
    try:
        return _parse_url(url, part, key)
    except ValueError:
        return None


def _binary_digits(value: int) -> str:
    return f"{value % _WORD_VALUES:b}"


def _convert_base(value: str, source: int, target: int) -> str | None:
    """Return a number in another base; characters from the first non-digit on are ignored.

    A negative ``target`` stands for signed numbers, as in Hive and Spark; else the result is
    unsigned, with 64 bits.
    """
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36):
        return None
    text = value.strip()
    if not text:
        return None
    is_negative = text.startswith("-")
    number = 0
    for character in text[is_negative:].upper():
        digit = _DIGITS.find(character)
        if not 0 <= digit < source:
            break
        number = number * source + digit
    if number >= _WORD_VALUES:
        raise ValueError(f"{value!r} in base {source} does not fit 64 bits")
    if is_negative and target > 0:
        # Unsigned: the two's complement. Below the least int64 it is 2**64 - 1, as in Java.
        number = -number % _WORD_VALUES if number < _WORD_VALUES // 2 else _WORD_VALUES - 1
    has_minus = False
    if target < 0:
        # A number of 2**63 or more is the negative number with the same 64 bits.
        signed = -number if is_negative else number
        signed = signed - _WORD_VALUES if signed >= _WORD_VALUES // 2 else signed
        has_minus, number = signed < 0, abs(signed)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, abs(target))
        digits = _DIGITS[digit] + digits
    return "-" + digits if has_minus else digits


def _from_hexadecimal_or_raise(value: str) -> bytes:
    decoded = _unhex(value)
    if decoded is None:
        raise ValueError(f"{value!r} is not hexadecimal")
    return decoded


def _from_base32(value: str) -> bytes:
    return base64.b32decode(value)


def _is_utf8(value: str | bytes) -> bool:
    try:
        as_bytes(value).decode()
    except UnicodeDecodeError:
        return False
    return True


def _function(
    name: str, description: str, parameters: str, result: pa.DataType, function: Callable[..., Any]
) -> Function:
    return Function(name, description, Signature(parameters, result), per_distinct_row(function))


# In a signature, i is an integer, t a text and y a text or bytes; parameters after | are optional.
FUNCTIONS = (
    _function("hex", "the bytes of a in hexadecimal", "y", _TEXT, _hex),
    _function("hex_integer", "the 64 bits of an integer in hexadecimal", "i", _TEXT, _hex_integer),
    _function(
        "unhex", "the bytes of a hexadecimal text; NULL for other texts", "t", _BYTES, _unhex
    ),
    _function(
        "from_hex",
        "the bytes of a hexadecimal text; an error for other texts",
        "t",
        _BYTES,
        _from_hexadecimal_or_raise,
    ),
    _function("base64", "the bytes of a in base 64", "y", _TEXT, _base64),
    _function("unbase64", "the bytes of a text in base 64", "t", _BYTES, _unbase64),
    _function(
        "base32",
        "the bytes of a in base 32",
        "y",
        _TEXT,
        lambda value: base64.b32encode(as_bytes(value)).decode(),
    ),
    _function("unbase32", "the bytes of a text in base 32", "t", _BYTES, _from_base32),
    _function("encode", "the bytes of a in the character set b", "tt", _BYTES, _encode),
    _function("decode", "the text of bytes in the character set b", "yt", _TEXT, _decode),
    _function("is_valid_utf8", "true if the bytes of a are UTF-8", "y", pa.bool_(), _is_utf8),
    _function(
        "url_encode",
        "a, encoded as in a web form: a space is +, other special characters are %XX",
        "t",
        _TEXT,
        _url_encode,
    ),
    _function("url_decode", "a with the escapes of a URL replaced", "t", _TEXT, _url_decode),
    _function(
        "percent_encode", "a with all but A-Z a-z 0-9 - _ . ~ escaped", "t", _TEXT, _percent_encode
    ),
    _function("percent_decode", "a with its % escapes replaced", "t", _TEXT, _percent_decode),
    _function(
        "parse_url",
        "part b of a URL (HOST, PATH, QUERY, ...), or parameter c of its query",
        "tt|t",
        _TEXT,
        _parse_url,
    ),
    _function(
        "try_parse_url",
        "as parse_url; NULL for a text that is no URL",
        "tt|t",
        _TEXT,
        _try_parse_url,
    ),
    _function(
        "binary_digits", "the 64 bits of an integer as binary digits", "i", _TEXT, _binary_digits
    ),
    _function("convert_base", "number a of base b in base c", "tii", _TEXT, _convert_base),
)
