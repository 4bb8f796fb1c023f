"""Functions that change JSON texts: PostgreSQL's ``||`` and ``-``, without nulls, with indents.

::

    {"a": 1} || {"b": 2}      {"a":1,"b":2}: the members of both; the second ones count
    [1] || 2                  [1,2]: other values are arrays of one element
    {"a": 1, "b": 2} - 'a'    {"b":2}
    ["a", "b"] - 0            ["b"]

A text that is no JSON gives NULL, and is an error for ``||`` and ``-``. Of two members of a name,
the last one counts for ``||`` and ``-``, as in PostgreSQL; ``json_pretty`` and ``json_strip_nulls``
write both, as DuckDB. Each function runs once per distinct row of arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.function import Function, Kernel
from circuits.types.functions.nested.json_texts import MISSING, members_of, parse_json, write_json
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_TEXT: Final = pa.string()
_INDENT: Final = "    "
_parse: Final = partial(parse_json, keeps_all_members=False)


def _concatenate(left: str, right: str) -> str:
    values = _parse(left), _parse(right)
    if MISSING in values:
        raise ValueError("an operand of || is no JSON")
    if all(isinstance(value, dict) for value in values):
        return write_json({**values[0], **values[1]})
    lists = [value if isinstance(value, list) else [value] for value in values]
    return write_json(lists[0] + lists[1])


def _delete_name(text: str, name: str) -> str:
    """Remove the member of an object, or all equal strings of an array."""
    value = _parse(text)
    if isinstance(value, dict):
        return write_json({key: part for key, part in value.items() if key != name})
    if isinstance(value, list):
        return write_json([part for part in value if part != name])
    raise _deletion_error(value)


def _delete_position(text: str, position: int) -> str:
    """Remove the element at a position; one before 0 counts from the end."""
    value = _parse(text)
    if not isinstance(value, list):
        raise _deletion_error(value)
    if -len(value) <= position < len(value):
        del value[position]
    return write_json(value)


def _deletion_error(value: Any) -> ValueError:
    kind = "an object" if isinstance(value, dict) else "a scalar"
    kind = "a text that is no JSON" if value is MISSING else kind
    return ValueError(f"nothing can be deleted from {kind} in this way")


def _strip_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return members_of(
            [(name, _strip_nulls(part)) for name, part in value.items() if part is not None]
        )
    return [_strip_nulls(part) for part in value] if isinstance(value, list) else value


def _indent(value: Any, margin: str = "\n") -> str:
    """Return a value as JSON with its parts in lines of their own, as DuckDB writes it."""
    inner = margin + _INDENT
    if isinstance(value, dict) and value:
        members = (f"{write_json(name)}: {_indent(part, inner)}" for name, part in value.items())
        return "{" + inner + f",{inner}".join(members) + margin + "}"
    if isinstance(value, list) and value:
        return "[" + inner + f",{inner}".join(_indent(part, inner) for part in value) + margin + "]"
    return write_json(value)


def _kernel(parse: Callable[[str], Any], write: Callable[[Any], str]) -> Kernel:
    def convert(text: str) -> str | None:
        value = parse(text)
        return None if value is MISSING else write(value)

    return per_distinct_row(convert)


# In a signature, t is a text and i an integer.
FUNCTIONS = (
    Function(
        "json_concat",
        "the members or elements of the JSON texts a and b, as PostgreSQL's ||",
        Signature("tt", _TEXT),
        per_distinct_row(_concatenate),
    ),
    Function(
        "json_delete_name",
        "the JSON text a without the member, or the strings, b",
        Signature("tt", _TEXT),
        per_distinct_row(_delete_name),
    ),
    Function(
        "json_delete_position",
        "the JSON array a without the element at the position b, from 0 on",
        Signature("ti", _TEXT),
        per_distinct_row(_delete_position),
    ),
    Function(
        "json_strip_nulls",
        "the JSON text a without the members that are null",
        Signature("t", _TEXT),
        _kernel(parse_json, lambda value: write_json(_strip_nulls(value))),
    ),
    Function(
        "last_json_strip_nulls",
        "the JSON text a without the members that are null; of two members of a name, the last one",
        Signature("t", _TEXT),
        _kernel(_parse, lambda value: write_json(_strip_nulls(value))),
    ),
    Function(
        "json_pretty",
        "the JSON text a with indents",
        Signature("t", _TEXT),
        _kernel(parse_json, _indent),
    ),
)
