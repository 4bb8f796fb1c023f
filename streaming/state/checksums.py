"""Checksums: encode and decode small files that consist of a line of JSON and its checksum.

The second line has the CRC-32 of the first::

    {"a":1}
    crc32 561bacaf

The manifests and the other small files of the state directory have this format. The checksum
detects a file that was cut short or changed by accident. It does not prove who wrote the file, so
the content is untrusted: the JSON must be strict (no NaN, no repeated key, bounded nesting and
numbers), and the ``parse_`` functions check each value before it is used.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from streaming.errors import StateDamagedError

__all__ = [
    "checksum_of",
    "decode_checked",
    "encode_checked",
    "parse_count",
    "parse_int64",
    "parse_items",
    "parse_text",
    "parse_texts",
]

#: Counts, sizes and ids are smaller than this, so that the sum of two of them fits int64.
MAX_COUNT: Final = 2**62
MAX_INT: Final = 2**63


def encode_checked(body: Mapping[str, Any]) -> bytes:
    """Encode an object as a line of JSON and a line with its checksum.

    >>> encode_checked({"a": 1})
    b'{"a":1}\\ncrc32 561bacaf\\n'
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    line = text.encode(errors="surrogatepass")
    return line + f"\ncrc32 {zlib.crc32(line):08x}\n".encode()


def checksum_of(data: bytes) -> int:
    """Compute the checksum of a file that `encode_checked` wrote, in O(bytes)."""
    return zlib.crc32(data.partition(b"\n")[0])


def decode_checked(data: bytes, name: str) -> dict[str, Any]:
    """Decode a file that `encode_checked` wrote.

    Args:
        data: The bytes of the file.
        name: The name of the file, for messages.

    Raises:
        StateDamagedError: The file was cut short or changed, or is not an object of strict JSON.
    """
    line, _, checksum_line = data.partition(b"\n")
    if checksum_line != f"crc32 {zlib.crc32(line):08x}\n".encode():
        raise StateDamagedError(
            f"{name} ({len(data)} bytes) does not have the checksum that it was written with: it "
            "was cut short or changed; restore the state directory from a copy, or delete it "
            "together with the checkpoint"
        )
    try:
        body = json.loads(line, object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StateDamagedError(
            f"{name} is not valid JSON ({type(error).__name__}: {error}): restore the "
            "state directory from a copy, or delete it together with the checkpoint"
        ) from error
    if not isinstance(body, dict):
        raise StateDamagedError(
            f"{name} holds a {type(body).__name__}, not an object: restore the state directory "
            "from a copy, or delete it together with the checkpoint"
        )
    return body


def parse_int64(value: Any) -> int:
    """Return the value if it is an int64.

    Raises:
        ValueError: The value is not an int64.
    """
    if type(value) is not int or not -MAX_INT <= value < MAX_INT:
        raise ValueError(f"{str(value)[:50]!r} is not an int64")
    return value


def parse_count(value: Any) -> int:
    """Return the value if it is an integer from 0 to 2**62 - 1.

    Raises:
        ValueError: The value is not an integer in this range.
    """
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        raise ValueError(f"{str(value)[:50]!r} is not an integer from 0 to 2**62 - 1")
    return value


def parse_text(value: Any) -> str:
    """Return the value if it is a string.

    Raises:
        ValueError: The value is not a string.
    """
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:50]!r} is not a string")
    return value


def parse_texts(value: Any) -> tuple[str, ...]:
    """Return the value as a tuple if it is a list of strings.

    Raises:
        ValueError: The value is not a list of strings.
    """
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:50]!r} is not a list")
    return tuple(parse_text(text) for text in value)


def parse_items(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a JSON object as pairs of name and value.

    Raises:
        ValueError: The value is not an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:50]!r} is not an object")
    return list(value.items())


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, after checking that its keys are unique."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _refuse_constant(name: str) -> float:
    """Raise an error for NaN and infinity, which strict JSON does not have."""
    raise ValueError(f"{name} is not a number of JSON")
