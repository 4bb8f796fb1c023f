"""Functions of bytes: slice, pad, overlay, repeat, HMAC, and bytes as text with ``\\xHH`` escapes.

They are the functions of text with these names, but a position counts bytes. The escapes are those
of DuckDB; the functions with ``postgres`` in their names are PostgreSQL's casts.
"""

from __future__ import annotations

import codecs
import hmac
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Function, Values
from circuits.types.functions.length_limits import MAX_STRING_BYTES
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row
from circuits.types.functions.texts.encodings import as_bytes

__all__ = ["FUNCTIONS"]

_BYTES = pa.binary()
_HASHES = {"SHA-1": "sha1", "SHA1": "sha1", "SHA-224": "sha224", "SHA224": "sha224"} | {
    name: f"sha{bits}" for bits in (256, 384, 512) for name in (f"SHA-{bits}", f"SHA{bits}")
}


def _slice(value: str | bytes, start: int, length: int = 2**62) -> bytes:
    """Return bytes from a position, which counts from 1, or from the end if it is negative."""
    data = as_bytes(value)
    begin = len(data) + start if start < 0 else max(start - 1, 0)
    return data[max(begin, 0) : max(begin + length, 0)]


def _cut_and_padding(value: str | bytes, length: int, pad: str | bytes) -> tuple[bytes, bytes]:
    """Return up to ``length`` bytes of a value, and the padding that they lack."""
    data, padding = as_bytes(value), as_bytes(pad)
    if length > MAX_STRING_BYTES:
        raise ValueError(f"{length} bytes; the maximum is {MAX_STRING_BYTES:,}")
    missing = max(length - len(data), 0)
    return data[: max(length, 0)], (padding * (missing // max(len(padding), 1) + 1))[:missing]


def _pad_left(value: str | bytes, length: int, pad: str | bytes = b"\0") -> bytes:
    cut, padding = _cut_and_padding(value, length, pad)
    return padding + cut


def _pad_right(value: str | bytes, length: int, pad: str | bytes = b"\0") -> bytes:
    cut, padding = _cut_and_padding(value, length, pad)
    return cut + padding


def _overlay(value: str | bytes, new: str | bytes, start: int, length: int = -1) -> bytes:
    data, new_data = as_bytes(value), as_bytes(new)
    length = len(new_data) if length < 0 else length
    return _slice(data, 1, start - 1) + new_data + _slice(data, start + length)


def _hmac(key: str | bytes, message: str | bytes, name: str = "SHA-256") -> bytes:
    hash_name = _HASHES.get(name.upper())
    if hash_name is None:
        raise ValueError(f"no hash {name!r}; there are {', '.join(_HASHES)}")
    return hmac.digest(as_bytes(key), as_bytes(message), hash_name)


_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2}))?")
#: The printable ASCII characters that need no escape.
_PLAIN_BYTES = frozenset(range(32, 127)) - frozenset(b"\\'\"")
_TEXT_OF_BYTE = [chr(byte) if byte in _PLAIN_BYTES else f"\\x{byte:02X}" for byte in range(256)]


def _unescape(text: str) -> bytes:
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII; write other bytes as \\xHH, or use encode()")

    def replace(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            raise ValueError(f"{text!r} has a backslash without xHH after it")
        return bytes.fromhex(match[1].decode())

    return _ESCAPE.sub(replace, text.encode())


def escape_bytes(value: str | bytes) -> str:
    """Return bytes as a text of printable ASCII characters and ``\\xHH`` escapes.

    >>> print(escape_bytes(b"a'\\xff"))
    a\\x27\\xFF
    """
    return "".join(_TEXT_OF_BYTE[byte] for byte in as_bytes(value))


_POSTGRES_ESCAPE = re.compile(rb"\\(?:(\\)|([0-3][0-7]{2}))?")


def _postgres_bytes(text: str) -> bytes:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])

    def replace(match: re.Match[bytes]) -> bytes:
        if match[1] is None and match[2] is None:
            raise ValueError(f"{text!r} has a backslash without three octal digits after it")
        return match[1] or bytes([int(match[2], 8)])

    return _POSTGRES_ESCAPE.sub(replace, text.encode())


def _concat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    parts = [pc.cast(values, _BYTES) for values in arguments]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES))


def _get_byte(value: str | bytes, position: int) -> int:
    data = as_bytes(value)
    if not 0 <= position < len(data):
        raise ValueError(f"no byte {position}; there are {len(data)}, from 0 on")
    return data[position]


def _repeat(value: str | bytes, count: int) -> bytes:
    data = as_bytes(value)
    if len(data) * count > MAX_STRING_BYTES:
        raise ValueError(f"{len(data) * count} bytes; the maximum is {MAX_STRING_BYTES:,}")
    return data * max(count, 0)


def _decode_utf8(value: str | bytes, errors: str = "strict") -> str:
    if isinstance(value, str):
        return value
    if errors not in ("strict", "replace", "ignore"):
        raise ValueError(f"{errors!r} is not strict, replace or ignore")
    return value.decode("utf-8", _QUESTION_MARKS if errors == "replace" else errors)


def _replace_character(error: UnicodeError) -> tuple[str, int]:
    """Replace each byte of a character that is not UTF-8 by a question mark.

    As in DuckDB, the first byte says how many bytes the character has.
    """
    assert isinstance(error, UnicodeDecodeError)
    first = error.object[error.start]
    sizes = ((0xC0, 1), (0xE0, 2), (0xF0, 3), (0xF8, 4))
    size = next((size for bound, size in sizes if first < bound), 1)
    end = min(error.start + size, len(error.object))
    return "?" * (end - error.start), end


_QUESTION_MARKS = "dbsp_wcoj.question_marks"
codecs.register_error(_QUESTION_MARKS, _replace_character)


# In a signature, i is an integer, t a text and y a text or bytes; parameters after | are optional,
# and * repeats the last one.
FUNCTIONS = (
    Function(
        "unescape_bytes",
        "the bytes of an ASCII text, in which \\xHH stands for a byte; an error for other texts",
        Signature("t", _BYTES),
        per_distinct_row(_unescape),
    ),
    Function(
        "escape_bytes",
        "bytes as a text: printable ASCII characters, and \\xHH for the others",
        Signature("y", pa.string()),
        per_distinct_row(escape_bytes),
    ),
    Function(
        "postgres_bytes",
        "the bytes that PostgreSQL reads: \\x and hexadecimal digits, or a text with octal escapes",
        Signature("t", _BYTES),
        per_distinct_row(_postgres_bytes),
    ),
    Function(
        "postgres_bytes_text",
        "bytes as PostgreSQL writes them: \\x and hexadecimal digits",
        Signature("y", pa.string()),
        per_distinct_row(lambda value: f"\\x{as_bytes(value).hex()}"),
    ),
    Function("bytes_concat", "the bytes of all arguments", Signature("y|y*", _BYTES), _concat),
    Function(
        "bytes_repeat",
        "the bytes a b times",
        Signature("yi", _BYTES),
        per_distinct_row(_repeat),
    ),
    Function(
        "decode_utf8",
        "the text of UTF-8 bytes; b is how other bytes are treated: strict, replace or ignore",
        Signature("y|t", pa.string()),
        per_distinct_row(_decode_utf8),
    ),
    Function(
        "get_byte",
        "the byte of a at position b, which counts from 0",
        Signature("yi", pa.int64()),
        per_distinct_row(_get_byte),
    ),
    Function(
        "bytes_reverse",
        "the bytes a in the opposite order",
        Signature("y", _BYTES),
        column_kernel(pc.binary_reverse),
    ),
    Function(
        "bytes_slice",
        "c bytes of a from position b",
        Signature("yi|i", _BYTES),
        per_distinct_row(_slice),
    ),
    Function(
        "bytes_lpad",
        "b bytes: a, with c (or zeros) before it",
        Signature("yi|y", _BYTES),
        per_distinct_row(_pad_left),
    ),
    Function(
        "bytes_rpad",
        "b bytes: a, with c (or zeros) after it",
        Signature("yi|y", _BYTES),
        per_distinct_row(_pad_right),
    ),
    Function(
        "bytes_overlay",
        "a with b in place of d bytes from position c",
        Signature("yyi|i", _BYTES),
        per_distinct_row(_overlay),
    ),
    Function(
        "hmac",
        "the HMAC of the message b with the key a and the hash c",
        Signature("yy|t", _BYTES),
        per_distinct_row(_hmac),
    ),
)
