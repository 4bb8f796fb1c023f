"""Lists as texts in PostgreSQL, in both directions: ``{1,NULL,"a b"}``, ``{{1},{2,3}}``.

An element is in double quotes if it is empty, NULL as a word, or contains a brace, a comma, a
quote, a backslash or a blank; a backslash precedes a quote or backslash in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.codecs.nested import list_array, list_parts
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.text_formatting import with_whole_digit
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.numbers.number_formats import postgres_float_texts
from circuits.types.functions.signatures import per_distinct_row
from circuits.types.functions.type_rules import is_binary, is_interval, is_text, kernel_type

__all__ = ["FUNCTIONS", "list_of_text"]

_TEXT: Final = pa.string()
# PostgreSQL's blanks. The class \s has others, which differ between Python and RE2.
_BLANKS: Final = " \t\n\r\v\f"
_NEEDS_QUOTES: Final = rf'[{{}}",\\{_BLANKS}]|^$|^(?i:null)$'
_TOKEN: Final = re.compile(
    rf'[{_BLANKS}]*(?:([{{}},])|"((?:[^"\\]|\\.)*)"|((?:[^{{}}",\\]|\\.)+))', re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
# The blanks after an element that has no quotes; those before it belong to no token. An escaped
# blank is part of the element.
_ELEMENT: Final = re.compile(rf"((?:\\.|[^\\])*?)[{_BLANKS}]*", re.DOTALL)


def _list_texts(values: pa.Array) -> pa.Array:
    """Return lists as texts; NULL stays NULL."""
    counts, parts = list_parts(values)
    elements = pc.fill_null(_element_texts(parts[0]), "NULL")
    joined = pc.binary_join(list_array(pa.list_(_TEXT), counts, [elements], None), ",")
    texts = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(values.is_valid(), pc.cast(texts, _TEXT), pa.scalar(None, _TEXT))


def _element_texts(values: pa.Array) -> pa.Array:
    if is_list(values.type):
        return _list_texts(values)
    if arrow.is_boolean(values.type):
        return pc.if_else(values, "t", "f")
    if arrow.is_floating(values.type):
        return postgres_float_texts(values)
    if arrow.is_decimal(values.type):
        values = with_whole_digit(values)
    decoded = values.cast(kernel_type(values.type))  # without a dictionary encoding
    texts = pc.cast(convert(decoded, pa.large_string()), _TEXT)
    escaped = pc.replace_substring_regex(texts, r'(["\\])', r"\\\1")
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, _NEEDS_QUOTES), quoted, texts)


def _text_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not _has_text(arguments[0].type):
        raise argument_error(
            name, arguments, "it takes a list of texts, numbers, dates, times or lists of them"
        )
    return arguments, _TEXT


def _has_text(data_type: pa.DataType) -> bool:
    if not is_list(data_type):
        return False
    element = data_type.value_type
    is_other = arrow.is_nested(element) or is_binary(element) or is_interval(element)
    return _has_text(element) or not is_other


def _text_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(_list_texts(arguments[0]), result_type)


def _read_list(text: str, depth: int) -> list[Any]:
    """Return the list that a text describes, with texts as elements.

    Args:
        text: The text.
        depth: The number of levels of lists.

    Raises:
        ValueError: The text is not a list of this depth.

    >>> _read_list('{1, NULL, "a \\\\" b"}', 1)
    ['1', None, 'a " b']
    >>> _read_list("{{1},{2,3}}", 2)
    [['1'], ['2', '3']]
    >>> _read_list("{NULL,{1}}", 2)  # as this module writes it; PostgreSQL has no such array
    [None, ['1']]
    """
    error = ValueError(f"{text!r} is not a list such as {'{' * depth}1,2{'}' * depth}")
    levels: list[list[Any]] = []
    position, end = 0, len(text.rstrip(_BLANKS))
    result: list[Any] | None = None
    expects_element = True
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or result is not None:
            raise error
        position = match.end()
        sign, quoted, plain = match.groups()
        if sign == "{" and expects_element and len(levels) < depth:
            levels.append([])
        elif sign == "}" and levels and (not expects_element or not levels[-1]):
            closed = levels.pop()
            if levels:
                levels[-1].append(closed)
            else:
                result = closed
            expects_element = False
        elif sign == "," and levels and not expects_element:
            expects_element = True
        elif sign is None and expects_element and levels:
            match_of_word = _ELEMENT.fullmatch(plain or "")
            word = match_of_word[1] if match_of_word else ""
            if quoted is None and not word:
                raise error
            is_null = quoted is None and word.upper() == "NULL"
            if len(levels) < depth and not is_null:
                raise error
            levels[-1].append(None if is_null else _ESCAPE.sub(r"\1", quoted or word))
            expects_element = False
        else:
            raise error
    if result is None:
        raise error
    return result


def _list_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    depth = arguments[1]
    if not is_text(arguments[0].type) or not isinstance(depth, Literal):
        raise argument_error(name, arguments, "it takes a text and the number of levels")
    return arguments, _list_type(depth.value)


def list_of_text(texts: pa.Array | pa.ChunkedArray, depth: int) -> pa.Array:
    """Return texts such as ``{1,2}`` as lists of texts.

    Raises:
        ArrowInvalid: A text is not a list of this depth.
    """
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return _list_kernel([column, pa.scalar(depth)], _list_type(depth))


def _list_type(depth: int) -> pa.DataType:
    """Return the type of lists of texts with so many levels."""
    result = _TEXT
    for _ in range(depth):
        result = pa.list_(result)
    return result


_list_kernel = per_distinct_row(_read_list)

FUNCTIONS = (
    Function(
        "postgres_list_text", "the list a as text, as in PostgreSQL", _text_rule, _text_kernel
    ),
    Function(
        "postgres_list",
        "the list that the text a of PostgreSQL describes",
        _list_rule,
        _list_kernel,
    ),
)
