"""VARIANT: canonical JSON texts of values, and their codes in the dictionary of strings.

A VARIANT is any JSON value. Two values are equal if and only if their canonical texts are equal:

- An object has its members in the order of their names, each name once.
- There are no blanks between the parts.
- A number shows its type, as Spark reads JSON: ``1`` is an integer (beyond 64 bits, Spark's type is
  a decimal), ``1.5`` a decimal, without zeros at its end, and ``1.5E0`` a double. A number of more
  than 38 digits is a double.
- A double that is -0.0 is 0.0, as in columns of DOUBLE. Spark keeps the sign.

JSON's ``null`` is a value, which is not NULL.

A value is nested at most `MAX_DEPTH` levels deep. With Python's limit of recursion instead, which
depends on the caller, a text could be a value when its row is inserted, and none when the row is
deleted.

Cost: O(bytes of the distinct texts) in Python, about a microsecond per JSON value in them; in
addition, the cost of strings (`circuits.types.codecs.strings`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import SchemaError
from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.strings import Strings

__all__ = [
    "MAX_DEPTH",
    "Variants",
    "canonical_texts",
    "is_variant_text",
    "read_variant",
    "refuse_constant",
    "strip_zeros",
    "write_variant",
]

#: Objects and arrays in one another. The functions that write a value use two frames of Python for
#: each of them, of the 1,000 that Python has.
MAX_DEPTH: Final = 200
_BLANKS: Final = " \t\n\r"
_MAX_DIGITS: Final = 38
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"
#: A number that every reader takes for infinity; JSON has no other.
_INFINITY: Final = "1E999"
# Decimals of up to 76 digits are exact in it; Python's default context rounds to 28.
_EXACT: Final = Context(prec=76)


def strip_zeros(value: Decimal) -> Decimal:
    """Return a decimal without zeros at its end; 0 for -0, which no decimal of SQL is.

    >>> strip_zeros(Decimal("-1.50")), strip_zeros(Decimal("-0.00"))
    (Decimal('-1.5'), Decimal('0'))
    """
    return value.normalize(_EXACT) if value else Decimal(0)


def _read_integer(text: str) -> int | float:
    return int(text) if len(text.lstrip("-")) <= _MAX_DIGITS else float(text)


def _read_fraction(text: str) -> Decimal | float:
    if "e" in text or "E" in text:
        return float(text)
    _, digits, exponent = Decimal(text).as_tuple()
    if len(digits) > _MAX_DIGITS or -int(exponent) > _MAX_DIGITS:
        return float(text)
    return strip_zeros(Decimal(text))


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, times in counts.items() if times > 1)
        raise ValueError(f"the name {repeated!r} occurs twice in an object")
    return members


def _check_depth(text: str, value: Any) -> None:
    """Raise `ValueError` if a value is nested too deeply; linear in the text."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = (part for part in level if isinstance(part, dict | list))
        level = [
            part
            for parts in nested
            for part in (parts.values() if isinstance(parts, dict) else parts)
        ]
    if any(isinstance(part, dict | list) for part in level):
        raise ValueError(_TOO_DEEP)


def refuse_constant(name: str) -> Any:
    """Raise ValueError for ``NaN`` and ``Infinity``, which Python's parser of JSON accepts."""
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_members,
    parse_int=_read_integer,
    parse_float=_read_fraction,
    parse_constant=refuse_constant,
)


def read_variant(text: str) -> Any:
    """Return the value at the start of a JSON text; the text after it is ignored, as in Spark.

    An integer, decimal or double is an `int`, `Decimal` or `float`. A number, ``true``, ``false``
    and ``null`` must end at a blank or at the end of the text.

    Raises:
        ValueError: The text does not begin with JSON, a name occurs twice in an object, or the
            value is nested more than `MAX_DEPTH` levels deep.

    >>> read_variant('{"b": 1.50, "a": [1e2, null]}')
    {'b': Decimal('1.5'), 'a': [100.0, None]}
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(text, value)
    following = text[end : end + 1]
    is_scalar = not isinstance(value, dict | list | str)
    if is_scalar and following not in _BLANKS:
        raise ValueError(f"unexpected {following!r} after {text[start:end]}")
    return value


def write_variant(value: Any) -> str:
    """Return the canonical text of a value.

    Raises:
        ValueError: A number is NaN, or a string has half of a surrogate pair.

    >>> write_variant(read_variant('{"b": 1.50, "a": [1e2, null, 1.0, 1]}'))
    '{"a":[1.0E2,null,1.0,1],"b":1.5}'
    """
    if isinstance(value, dict):
        # As in Spark, the order is that of UTF-16.
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        members = (f"{write_variant(name)}:{write_variant(value[name])}" for name in names)
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(write_variant, value))}]"
    if isinstance(value, float):
        if value != value:
            raise ValueError("NaN is not JSON")
        if not value:
            return "0.0E0"  # also for -0.0
        if abs(value) == float("inf"):
            return _INFINITY if value > 0 else f"-{_INFINITY}"
        sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
        first, *others = map(str, digits)
        power = int(exponent) + len(others)
        return f"{'-' * sign}{first}.{''.join(others) or 0}E{power}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if "." in text else f"{text}.0"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("a string has half of a surrogate pair") from None
    return json.dumps(value, ensure_ascii=False)


def canonical_texts(texts: pa.Array) -> pa.Array:
    """Return JSON texts in their canonical form; NULL for NULL.

    Raises:
        ArrowInvalid: A text is not the JSON of a VARIANT; see `read_variant`.

    >>> canonical_texts(pa.array(['{"b": 1, "a": 2}', None])).to_pylist()
    ['{"a":2,"b":1}', None]
    """
    encoded = pc.dictionary_encode(texts)
    canonical = []
    for text in encoded.dictionary.to_pylist():
        try:
            canonical.append(write_variant(read_variant(text)))
        except ValueError as error:
            raise pa.ArrowInvalid(f"{text[:100]!r} is not a VARIANT: {error}") from None
    return pa.array(canonical, pa.string()).take(encoded.indices)


def is_variant_text(text: str) -> bool:
    """Return True if a text is the JSON of a VARIANT; see `read_variant`."""
    try:
        write_variant(read_variant(text))
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Variants(Strings):
    """The coding of VARIANT: the canonical texts, in the dictionary of texts."""

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values; see `Strings.encode`.

        Raises:
            SchemaError: A text is not the JSON of a VARIANT; see `read_variant`.
        """
        try:
            texts = canonical_texts(array.storage)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{error}; correct it, or declare the column a STRING") from error
        return super().encode(texts, valid, adding=adding)
