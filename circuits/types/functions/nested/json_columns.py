"""JSON columns: write a column as JSON, one part of its type after another.

::

    {"a": [1, 2]}     a list: its elements are written as one column, and joined by commas
                      a struct, a map: its fields, or keys and items, likewise
                      an integer, a boolean, a text without escapes: Arrow writes the column
                      another scalar: the style writes the column

A `JsonStyle` says how scalars and keys are written, because SQL dialects differ in that.
`map_values` writes them by a function of Python, which is called once for each distinct value.

Cost: O(values) in Arrow, what the style costs, and a call of Python per distinct text with
characters that JSON escapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.json_values import field_json_kind
from circuits.types.arrow_types import is_nested
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.functions.type_rules import is_row_without_names, is_text

__all__ = ["JsonStyle", "json_column", "map_values", "quote_text", "quote_texts"]

#: The characters that JSON escapes.
_ESCAPED = r'["\\\x00-\x1f]'


def _unchanged(texts: pa.Array) -> pa.Array:
    return texts


@dataclass(frozen=True)
class JsonStyle:
    """How a dialect writes JSON.

    Attributes:
        write_scalars: Returns the values of an array of scalars as JSON; NULL for NULL. Not called
            for integers, booleans, texts and columns of NULL.
        write_keys: Returns the keys of maps as texts, which are quoted then; not called for texts.
        keeps_null_fields: False to omit the fields of structs that are NULL.
        writes_rows_as_lists: True to write a struct whose fields have no names as a list.
        write_documents: Returns texts of JSON without blanks.
    """

    write_scalars: Callable[[pa.Array], pa.Array]
    write_keys: Callable[[pa.Array], pa.Array]
    keeps_null_fields: bool = True
    writes_rows_as_lists: bool = False
    write_documents: Callable[[pa.Array], pa.Array] = _unchanged

    @staticmethod
    def of_values(
        write_scalar: Callable[[Any, pa.DataType], str],
        write_key: Callable[[Any, pa.DataType], str],
        *,
        keeps_null_fields: bool,
    ) -> JsonStyle:
        """Return the style that writes scalars and keys by functions of a value and its type."""
        return JsonStyle(
            lambda array: map_values(array, lambda value: write_scalar(value, array.type)),
            lambda array: map_values(array, lambda value: write_key(value, array.type)),
            keeps_null_fields,
        )


def json_column(array: pa.Array, style: JsonStyle, kind: str = "") -> pa.Array:
    """Return each value of an array as JSON; NULL for NULL.

    Args:
        array: The values.
        style: How values are written that are no JSON.
        kind: Which texts in the values are JSON, as in `circuits.plan.json_values`. They are not
            quoted.

    Raises:
        pa.ArrowInvalid: It contains a date or timestamp that Python cannot represent.
    """
    array = expand_encoding(array)
    if arrow.is_struct(array.type):
        texts = _write_structs(array, style, kind)
    elif arrow.is_map(array.type):
        texts = _write_maps(array, style, kind)
    elif is_nested(array.type):
        texts = _write_lists(array, style, kind)
    elif kind and is_text(array.type):
        return array if kind == "jsonb" else style.write_documents(array)
    else:
        return _write_scalars(array, style)
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def quote_text(text: str) -> str:
    """Return a text as JSON.

    >>> quote_text('a "b"')
    '"a \\\\"b\\\\""'
    """
    return json.dumps(text, ensure_ascii=False)


def _write_structs(array: pa.Array, style: JsonStyle, kind: str) -> pa.Array:
    is_list = style.writes_rows_as_lists and is_row_without_names(array.type)
    start, end = "[]" if is_list else "{}"
    members = []
    for index, field in enumerate(array.type):
        texts = json_column(array.field(index), style, field_json_kind(kind, index))
        name = "," if is_list else f",{quote_text(field.name)}:"
        member = _join(name, pc.fill_null(texts, "null"))
        if not style.keeps_null_fields:
            member = pc.if_else(texts.is_valid(), member, "")
        members.append(member)
    if not members:
        return pa.repeat(pa.scalar(start + end), len(array))
    # Each member begins with a comma, and the first comma is left out.
    return _join(start, pc.utf8_slice_codeunits(_join(*members), 1), end)


def _write_maps(array: pa.Array, style: JsonStyle, kind: str) -> pa.Array:
    first, count = _element_range(array)
    keys, items = (part.slice(first, count) for part in (array.keys, array.items))
    keys = expand_encoding(keys)
    if not is_text(keys.type):
        keys = style.write_keys(keys)
    entries = _join(quote_texts(keys), ":", pc.fill_null(json_column(items, style, kind), "null"))
    return _join("{", _join_elements(array, entries), "}")


def _write_lists(array: pa.Array, style: JsonStyle, kind: str) -> pa.Array:
    if arrow.is_fixed_size_list(array.type):
        array = _with_offsets(array)
    first, count = _element_range(array)
    elements = json_column(array.values.slice(first, count), style, kind)
    elements = pc.fill_null(elements, "null")
    return _join("[", _join_elements(array, elements), "]")


def _with_offsets(array: pa.FixedSizeListArray) -> pa.LargeListArray:
    """Return lists of a fixed size as lists with offsets, without NULL."""
    # Arrow's cast makes invalid arrays of lists of the type null.
    size = array.type.list_size
    elements = array.values.slice(array.offset * size, len(array) * size)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * size
    return pa.LargeListArray.from_arrays(pa.array(offsets), elements)


def _element_range(array: pa.Array) -> tuple[int, int]:
    """Return the position of the first element in the buffer, and the number of elements."""
    offsets = array.offsets
    first = offsets[0].as_py()
    return first, offsets[-1].as_py() - first


def _join_elements(array: pa.Array, texts: pa.Array) -> pa.Array:
    """Join the texts of the elements of each list by commas."""
    offsets = pc.subtract(array.offsets, array.offsets[0])
    is_large = arrow.is_large_list(array.type)
    kind = pa.LargeListArray if is_large else pa.ListArray
    return pc.binary_join(kind.from_arrays(offsets, texts), ",")


def _write_scalars(array: pa.Array, style: JsonStyle) -> pa.Array:
    type_ = array.type
    if arrow.is_null(type_):
        return pa.nulls(len(array), pa.string())
    if arrow.is_integer(type_) or arrow.is_boolean(type_):
        return array.cast(pa.string())
    if is_text(type_):
        return quote_texts(array)
    return style.write_scalars(array)


def quote_texts(texts: pa.Array) -> pa.Array:
    """Return each text as JSON; NULL for NULL."""
    texts = texts.cast(pa.string())
    quoted = _join('"', texts, '"')
    is_escaped = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if not pc.any(is_escaped).as_py():
        return quoted
    return pc.replace_with_mask(
        quoted, is_escaped, map_values(texts.filter(is_escaped), quote_text)
    )


def map_values(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    """Call a function for each distinct value, or each nested value; the result for NULL is NULL.

    0.0 and -0.0 are distinct.

    Raises:
        pa.ArrowInvalid: The array contains a date or timestamp that Python cannot represent.
    """
    type_ = array.type
    if is_nested(type_):  # keys of a map, which Arrow cannot compare
        texts = [None if value is None else write(value) for value in _python_values(array)]
        return pa.array(texts, pa.string())
    if arrow.is_floating(type_):
        array = array.view(pa.type_for_alias(f"int{type_.bit_width}"))
    encoded = pc.dictionary_encode(array)
    values = _python_values(encoded.dictionary.view(type_))
    return pa.array([write(value) for value in values], pa.string()).take(encoded.indices)


def _python_values(array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist()
    except OverflowError as error:
        raise pa.ArrowInvalid(f"a date outside of the years 1 to 9999: {error}") from error
    return values


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
