"""Lists, structs and maps that DuckDB reads from texts: the inverse of `nested_texts`.

::

    [1, NULL, 'a, b']     a list
    {a: 1, 'b c': x}      a struct; a name that is missing is NULL
    (1, x)                a struct by position; a part that is missing is NULL
    {k=1, l=NULL}         a map

A part is in single or double quotes, in which a backslash escapes the next character, or has none;
blanks around it are left out. NULL without quotes is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.arrow_types import is_nested
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.signatures import per_distinct_row
from circuits.types.functions.type_rules import is_text

__all__ = ["FUNCTIONS"]

_BLANKS: Final = " \t\n\r\v\f"
_CLOSING: Final = {"[": "]", "{": "}", "(": ")"}


def _text_parts_type(data_type: pa.DataType) -> pa.DataType:
    """Return a type in which all parts that are not nested are texts.

    >>> _text_parts_type(pa.list_(pa.struct([("a", pa.int32())])))
    ListType(list<item: struct<a: string>>)
    """
    if is_list(data_type):
        return pa.list_(_text_parts_type(data_type.value_type))
    if arrow.is_map(data_type):
        key, item = map(_text_parts_type, (data_type.key_type, data_type.item_type))
        return pa.map_(key, item)
    if arrow.is_struct(data_type):
        return pa.struct([(field.name, _text_parts_type(field.type)) for field in data_type])
    return pa.string()


def _characters(text: str) -> Iterator[tuple[int, str, bool]]:
    """Return each position, its character, and whether quotes or a backslash protect it.

    Raises:
        ValueError: A quote is not closed.
    """
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        if quote and character == "\\" and position + 1 < len(text):
            yield position, "", True
            position += 1
            yield position, text[position], True
        elif quote and character == quote:
            quote = ""
            yield position, "", True
        elif not quote and character in "\"'":
            quote = character
            yield position, "", True
        else:
            yield position, character, bool(quote)
        position += 1
    if quote:
        raise ValueError(f"a quote {quote} is not closed")


def _split(text: str, separator: str, closing: str, limit: int = -1) -> list[str]:
    """Return the parts of a text between separators outside of quotes and brackets.

    A closing bracket that closes no other is a character as any other, except for ``closing``, the
    end of the value whose parts these are.

    Raises:
        ValueError: A quote or a bracket is not closed, or ``closing`` closes no bracket.
    """
    parts: list[str] = []
    closings: list[str] = []
    begin = 0
    for position, character, is_protected in _characters(text):
        if is_protected:
            continue
        if character in _CLOSING:
            closings.append(_CLOSING[character])
        elif closings and character == closings[-1]:
            closings.pop()
        elif character == closing and not closings:
            raise ValueError(f"{character} closes no bracket")
        elif character == separator and not closings and len(parts) != limit:
            parts.append(text[begin:position])
            begin = position + 1
    if closings:
        raise ValueError(f"{closings[-1]} is missing")
    return [*parts, text[begin:]]


def _text_of_part(part: str) -> str | None:
    """Return a part that is not nested: without its quotes, or NULL."""
    if part.upper() == "NULL":
        return None
    if part[:1] in _CLOSING:
        return part
    return "".join(character for _, character, _ in _characters(part))


def _name_of_part(part: str) -> str:
    return "".join(character for _, character, _ in _characters(part.strip(_BLANKS)))


def _inside(text: str, opening: str) -> list[str]:
    """Return the parts between the outer brackets of a text.

    Raises:
        ValueError: The text does not begin and end with these brackets.
    """
    if not (len(text) > 1 and text[0] == opening and text[-1] == _CLOSING[opening]):
        raise ValueError(f"{opening}...{_CLOSING[opening]} is missing")
    inside = text[1:-1]
    return _split(inside, ",", _CLOSING[opening]) if inside.strip(_BLANKS) else []


def _read_struct(text: str, data_type: pa.StructType) -> dict[str, Any]:
    fields = {field.name: field.type for field in data_type}
    if text.startswith("("):
        parts = _inside(text, "(")
        if len(parts) > len(fields):
            raise ValueError(f"it has {len(parts)} parts for {len(fields)} fields")
        pairs = zip(parts, fields.items(), strict=False)
        return dict.fromkeys(fields) | {
            name: _read_part(part, type) if part.strip(_BLANKS) else None
            for part, (name, type) in pairs
        }
    values: dict[str, Any] = dict.fromkeys(fields)
    for part in _inside(text, "{"):
        written, *value = _split(part, ":", "}", limit=1)
        name = _name_of_part(written)
        if name not in fields or not value:
            raise ValueError(
                f"{part.strip(_BLANKS)} is no field of the struct; its fields are "
                f"{', '.join(fields)}"
            )
        values[name] = _read_part(value[0], fields[name])
    return values


def _read_map(text: str, data_type: pa.MapType) -> list[tuple[Any, Any]]:
    entries: list[tuple[Any, Any]] = []
    for part in _inside(text, "{"):
        key, *value = _split(part, "=", "}", limit=1)
        if not value:
            raise ValueError(f"{part.strip(_BLANKS)} has no value")
        entries.append(
            (_read_part(key, data_type.key_type), _read_part(value[0], data_type.item_type))
        )
    if not _are_unique([key for key, _ in entries], data_type.key_type):
        raise ValueError("a key of the map is NULL, or not unique")
    return entries


def _are_unique(keys: list[Any], data_type: pa.DataType) -> bool:
    """Return whether keys, with texts as parts, are valid and distinct in the type of the keys."""
    values = convert(pa.array(keys, _text_parts_type(data_type)), data_type)
    return values.null_count == 0 and len(set(map(repr, values.to_pylist()))) == len(keys)


def _read_part(text: str, data_type: pa.DataType) -> Any:
    part = text.strip(_BLANKS)
    if not is_nested(data_type):
        return _text_of_part(part)
    if part.upper() == "NULL":
        return None
    if is_list(data_type):
        return [_read_part(element, data_type.value_type) for element in _inside(part, "[")]
    if arrow.is_map(data_type):
        return _read_map(part, data_type)
    return _read_struct(part, data_type)


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 3)
    text, parts, *size = arguments
    if not is_text(text.type) or not isinstance(parts, Literal) or not is_nested(parts.type):
        raise argument_error(name, arguments, "it takes a text, and a NULL of the nested type")
    if size and not (isinstance(size[0], Literal) and arrow.is_integer(size[0].type)):
        raise argument_error(name, arguments, "the number of elements of the list is constant")
    return arguments, _text_parts_type(parts.type)


def _kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    text, parts, *sizes = arguments
    # The kernel type of a list of a fixed size has no size.
    size = sizes[0].as_py() if sizes else None

    kind = "map" if arrow.is_map(parts.type) else "list" if is_list(parts.type) else "struct"

    def read(text: str) -> Any:
        try:
            if text.strip(_BLANKS).upper() == "NULL":
                raise ValueError("NULL as a text is no nested value; write NULL without quotes")
            value = _read_part(text, parts.type)
            if size is not None and len(value) != size:
                raise ValueError(f"it has {len(value)} elements, not {size}")
        except ValueError as error:
            raise ValueError(f"{text!r} is not a {kind}: {error}") from None
        return value

    return per_distinct_row(read)([text], result_type)


FUNCTIONS = (
    Function(
        "nested_of_text",
        "the list, struct or map that the text a describes, with texts as parts",
        _rule,
        _kernel,
    ),
)
