"""Values of type VARIANT and their codes: each is a canonical JSON text in the dictionary of texts.

A VARIANT is any JSON value. Two values are equal if and only if their canonical texts are equal:

- An object has its members in the order of their names, each name once.
- There are no blanks between the parts.
- A number shows its type, as Spark reads JSON: ``1`` is an integer, or a decimal without fraction
  beyond 64 bits; ``1.5`` is a decimal, without zeros at its end; ``1.5E0`` is a double. A number of
  more than 38 digits is a double.

JSON's ``null`` is a value, which is not NULL.

Cost: O(bytes of the distinct texts) in Python, about a microsecond per JSON value in them, and the
cost of strings (`circuits.types.codecs.strings`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import SchemaError
from circuits.types.arrow_types import VARIANT
from circuits.types.codecs.arrow_buffers import (
    BoolArray,
    Int64Array,
    check_dictionary_codes,
    strings_array,
)
from circuits.types.codecs.strings import Strings

__all__ = ["Variants", "canonical_texts", "read_variant", "write_variant"]

_BLANKS: Final = " \t\n\r"
_MAX_DIGITS: Final = 38
#: A number that every reader takes for infinity; JSON has no other.
_INFINITY: Final = "1E999"


def _read_integer(text: str) -> int | float:
    return int(text) if len(text.lstrip("-")) <= _MAX_DIGITS else float(text)


def _read_fraction(text: str) -> Decimal | float:
    if "e" in text or "E" in text:
        return float(text)
    _, digits, exponent = Decimal(text).as_tuple()
    if len(digits) > _MAX_DIGITS or -int(exponent) > _MAX_DIGITS:
        return float(text)
    value = Decimal(text).normalize()
    return value if value else Decimal(0)  # no decimal is -0


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} occurs twice in an object")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_members,
    parse_int=_read_integer,
    parse_float=_read_fraction,
    parse_constant=_refuse_constant,
)


def read_variant(text: str) -> Any:
    """Return the value at the start of a JSON text; the text after it is ignored, as in Spark.

    Numbers are `int`, `Decimal` and `float`, as the types of the numbers.

    Raises:
        ValueError: The text does not begin with JSON, or a name occurs twice in an object.

    >>> read_variant('{"b": 1.50, "a": [1e2, null]}')
    {'b': Decimal('1.5'), 'a': [100.0, None]}
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    following = text[end : end + 1]
    is_scalar = not isinstance(value, dict | list | str)
    if is_scalar and following not in _BLANKS:
        raise ValueError(f"unexpected {following!r} after {text[start:end]}")
    return value


def write_variant(value: Any) -> str:
    """Return the canonical text of a value.

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
        if abs(value) == float("inf"):
            return _INFINITY if value > 0 else f"-{_INFINITY}"
        sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
        first, *others = map(str, digits)
        power = int(exponent) + len(others)
        return f"{'-' * sign}{first}.{''.join(others) or 0}E{power if value else 0}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if "." in text else f"{text}.0"
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text
    return json.dumps(value, ensure_ascii=False)


def canonical_texts(texts: pa.Array) -> pa.Array:
    """Return JSON texts in their canonical form; NULL for NULL.

    Raises:
        ArrowInvalid: A text is not JSON.

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


@dataclass(frozen=True)
class Variants(Strings):
    """The coding of VARIANT: the canonical texts, in the dictionary of texts."""

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values; see `Strings.encode`.

        Raises:
            SchemaError: A text is not JSON.
        """
        try:
            texts = canonical_texts(array.storage)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{error}; correct it, or declare the column a STRING") from error
        return super().encode(texts, valid, adding=adding)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the values of codes.

        Raises:
            SchemaError: A code is not in the dictionary.
        """
        check_dictionary_codes(codes, valid, len(self.dictionary), self.type)
        texts = strings_array(pa.string(), *self.dictionary.gather(codes), valid)
        return pa.ExtensionArray.from_storage(VARIANT, texts)
