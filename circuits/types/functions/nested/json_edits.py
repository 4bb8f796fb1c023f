"""Functions that edit and print JSON, and read it by a path.

They are PostgreSQL's operators ``||``, ``-``, ``#-``, ``#>`` and ``#>>`` of JSON and functions such
as jsonb_set, and DuckDB's json_pretty. JSON values are strings here::

    {"a": 1} || {"b": 2}      {"a":1,"b":2}
    {"a": 1} || {"a": 2}      {"a":2}: of two members of one name, that of the second object
    [1] || 2                  [1,2]: a value that is not an array is an array of one element
    {"a": 1, "b": 2} - 'a'    {"b":2}
    ["a", "b"] - 0            ["b"]
    {"a": [1]} #- '{a,0}'     {"a":[]}

A *path* is a list of steps, each of which is a string: the name of a member of an object, or a
position in an array, from 0. A negative position counts from the end; a position has at most 9
digits. An edit changes nothing if a step before the last one leads to no object or array. It fails
if a step in an array is not a position, or if the whole value is not an object or array.

Strings that are not valid JSON: ``#>``, ``#>>``, ``json_pretty`` and ``json_strip_nulls`` return
NULL, and all other functions raise an error.

If an object has two members of one name, ``json_pretty`` and ``json_strip_nulls`` write both, as
DuckDB does. The other functions keep only the last one, as PostgreSQL does.

Cost: each function runs once per distinct row of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    argument_error,
)
from circuits.types.functions.nested.json_texts import (
    DUCKDB_RULES,
    MISSING,
    POSTGRES_RULES,
    members_of,
    parse_json,
    write_json,
)
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_TEXT: Final = pa.string()
_PATH: Final = pa.list_(_TEXT)
_POSITION: Final = re.compile(r"[+-]?\d{1,9}")
_INDENT: Final = "    "
_parse: Final = partial(parse_json, rules=POSTGRES_RULES)


def _concatenate(left: str, right: str) -> str:
    values = _parse(left), _parse(right)
    if MISSING in values:
        raise ValueError("an operand of || is no JSON")
    if all(isinstance(value, dict) for value in values):
        return write_json({**values[0], **values[1]})
    lists = [value if isinstance(value, list) else [value] for value in values]
    return write_json(lists[0] + lists[1])


def _delete_name(text: str, name: str) -> str:
    """Remove the member with this name of an object, or all strings equal to it of an array."""
    value = _parse(text)
    if isinstance(value, dict):
        return write_json({key: part for key, part in value.items() if key != name})
    if isinstance(value, list):
        return write_json([part for part in value if part != name])
    raise _deletion_error(value)


def _delete_position(text: str, position: int) -> str:
    """Remove the element at a position of an array; a negative one counts from the end."""
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


def _value_at(text: str, path: list[str | None]) -> Any:
    """Return the value at a path; ``MISSING`` if a step leads nowhere or the text is not JSON."""
    value = _parse(text)
    for step in path:
        if step is None:
            return MISSING
        if isinstance(value, dict):
            value = value.get(step, MISSING)
        elif isinstance(value, list) and _POSITION.fullmatch(step):
            position = int(step)
            is_inside = -len(value) <= position < len(value)
            value = value[position] if is_inside else MISSING
        else:
            return MISSING
    return value


def _json_at(text: str, path: list[str | None]) -> str | None:
    value = _value_at(text, path)
    return None if value is MISSING else write_json(value)


def _text_at(text: str, path: list[str | None]) -> str | None:
    value = _value_at(text, path)
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else write_json(value)


# Changes an object or array in place. The arguments are this object or array, and the name or
# position in it that is the last step of the path.
Edit = Callable[[Any, str | int], None]


def _edit(text: str, path: list[str | None], edit: Edit) -> str:
    """Return a JSON text in which the value at a path has been edited.

    Raises:
        ValueError: The text is not a JSON object or array, the path has a NULL, or a step in an
            array is not a position.
    """
    root = _parse(text)
    if not isinstance(root, dict | list):
        raise ValueError("a path cannot be edited in a text that is no JSON object or array")
    if None in path:
        raise ValueError("a path has no NULL")
    parent: Any = root
    steps = [str(step) for step in path]
    for step in steps[:-1]:
        key = _key_in(parent, step)
        if isinstance(parent, list):
            is_inside = -len(parent) <= int(key) < len(parent)
            parent = parent[int(key)] if is_inside else None
        else:
            parent = parent.get(key)
        if not isinstance(parent, dict | list):
            return write_json(root)
    if steps:
        edit(parent, _key_in(parent, steps[-1]))
    return write_json(root)


def _key_in(parent: Any, step: str) -> str | int:
    """Return a step as a name in an object, or as a position in an array."""
    if isinstance(parent, dict):
        return step
    if not _POSITION.fullmatch(step):
        raise ValueError(f"the step {step!r} of a path is no position in an array")
    return int(step)


def _parse_new(new: str) -> Any:
    value = _parse(new)
    if value is MISSING:
        raise ValueError("the new value is no JSON")
    return value


def _set(text: str, path: list[str | None], new: str, creates: bool = True) -> str:
    value = _parse_new(new)

    def edit(parent: Any, key: str | int) -> None:
        if isinstance(parent, dict):
            if creates or key in parent:
                parent[key] = value
        elif -len(parent) <= int(key) < len(parent):
            parent[key] = value
        elif creates:
            parent.insert(len(parent) if int(key) >= 0 else 0, value)

    return _edit(text, path, edit)


def _insert(text: str, path: list[str | None], new: str, after: bool = False) -> str:
    value = _parse_new(new)

    def edit(parent: Any, key: str | int) -> None:
        if isinstance(parent, dict):
            if key in parent:
                raise ValueError(f"the member {key!r} exists; replace it with jsonb_set()")
            parent[key] = value
            return
        position = int(key) + len(parent) if int(key) < 0 else int(key)
        is_inside = 0 <= position < len(parent)
        parent.insert(max(0, position) + (after and is_inside), value)

    return _edit(text, path, edit)


def _delete_path(text: str, path: list[str | None]) -> str:
    def edit(parent: Any, key: str | int) -> None:
        if isinstance(parent, dict):
            parent.pop(key, None)
        elif -len(parent) <= int(key) < len(parent):
            del parent[int(key)]

    return _edit(text, path, edit)


def _path_rule(pattern: str) -> Rule:
    """Return the type rule of a function whose second argument is a path."""
    signature = Signature(pattern, _TEXT)

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        if len(arguments) < 2 or arguments[1].type != _PATH:
            raise argument_error(name, arguments, "argument 2 is a path, as '{a,0}'")
        return signature(name, arguments, target_type)

    return rule


def _strip_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return members_of(
            [(name, _strip_nulls(part)) for name, part in value.items() if part is not None]
        )
    return [_strip_nulls(part) for part in value] if isinstance(value, list) else value


def _indent(value: Any, margin: str = "\n") -> str:
    """Return a value as JSON with each member and element on its own line, as DuckDB does.

    Args:
        value: The parsed JSON.
        margin: A line break and the indent of the line in which the value begins.
    """
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


# In a signature, t is a string, i an integer, b a boolean and v any value; here v is a path.
# Arguments after | are optional.
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
        "json_at_path",
        "the value at the path b of the JSON text a, as JSON",
        _path_rule("tv"),
        per_distinct_row(_json_at),
    ),
    Function(
        "json_text_at_path",
        "the value at the path b of the JSON text a, as a text",
        _path_rule("tv"),
        per_distinct_row(_text_at),
    ),
    Function(
        "json_set",
        "the JSON text a with the value c at the path b, which is added unless d is false",
        _path_rule("tvt|b"),
        per_distinct_row(_set),
    ),
    Function(
        "json_insert",
        "the JSON text a with the value c before the path b, or after it if d",
        _path_rule("tvt|b"),
        per_distinct_row(_insert),
    ),
    Function(
        "json_delete_path",
        "the JSON text a without the value at the path b",
        _path_rule("tv"),
        per_distinct_row(_delete_path),
    ),
    Function(
        "json_strip_nulls",
        "the JSON text a without the members that are null",
        Signature("t", _TEXT),
        _kernel(
            partial(parse_json, rules=DUCKDB_RULES), lambda value: write_json(_strip_nulls(value))
        ),
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
        _kernel(partial(parse_json, rules=DUCKDB_RULES), _indent),
    ),
)
