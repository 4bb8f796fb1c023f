"""Parts of bytes: as the functions of text with these names, but a position counts bytes."""

from __future__ import annotations

import hmac

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.function import Function
from circuits.types.functions.length_limits import MAX_STRING_BYTES
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_BYTES = pa.binary()
_HASHES = {"SHA-1": "sha1", "SHA1": "sha1", "SHA-224": "sha224", "SHA224": "sha224"} | {
    name: f"sha{bits}" for bits in (256, 384, 512) for name in (f"SHA-{bits}", f"SHA{bits}")
}


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


# Each function is also called with text, which stands for its UTF-8 bytes: y in a signature is text
# or bytes, i an integer.


def _slice(value: bytes, start: int, length: int = 2**62) -> bytes:
    """Return bytes from a position, which counts from 1, or from the end if it is negative."""
    value = _as_bytes(value)
    begin = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    return value[max(begin, 0) : max(begin + length, 0)]


def _padding(value: bytes, length: int, pad: bytes) -> tuple[bytes, bytes]:
    value, pad = _as_bytes(value), _as_bytes(pad)
    if length > MAX_STRING_BYTES:
        raise ValueError(f"{length} bytes; the maximum is {MAX_STRING_BYTES:,}")
    missing = max(length - len(value), 0)
    return value[: max(length, 0)], (pad * (missing // max(len(pad), 1) + 1))[:missing]


def _pad_left(value: bytes, length: int, pad: bytes = b"\0") -> bytes:
    kept, added = _padding(value, length, pad)
    return added + kept


def _pad_right(value: bytes, length: int, pad: bytes = b"\0") -> bytes:
    kept, added = _padding(value, length, pad)
    return kept + added


def _overlay(value: bytes, new: bytes, start: int, length: int = -1) -> bytes:
    value, new = _as_bytes(value), _as_bytes(new)
    length = len(new) if length < 0 else length
    return value[: max(start - 1, 0)] + new + value[max(start - 1, 0) + length :]


def _concat(*parts: pa.Array) -> pa.Array:
    parts = tuple(pc.cast(part, _BYTES) for part in parts)
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES))


def _hmac(key: str | bytes, message: str | bytes, name: str = "SHA-256") -> bytes:
    hash_name = _HASHES.get(name.upper())
    if hash_name is None:
        raise ValueError(f"no hash {name!r}; there are {', '.join(_HASHES)}")
    return hmac.digest(_as_bytes(key), _as_bytes(message), hash_name)


FUNCTIONS = (
    Function(
        "bytes_concat",
        "the arguments, which are bytes, joined",
        Signature("yy*", _BYTES),
        column_kernel(_concat),
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
