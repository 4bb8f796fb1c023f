"""Functions of JSON texts that look at many values of a text: paths with wildcards, containment.

A path is a JSON array of steps as in `circuits.types.functions.nested.json_texts`. The step null is
the wildcard ``[*]``, which stands for the elements of an array; true is ``.*``, the values of an
object.

In Spark, ``get_json_object`` with a wildcard returns one text: the only match, or an array of the
matches. Its nesting follows the evaluation of Hive, which Spark repeats (`_SparkMatches`).

Cost: O(bytes of the distinct texts) in Python.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.argument_rows import fill_rows, map_distinct, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.json_texts import (
    DUCKDB_RULES,
    MISSING,
    POSTGRES_RULES,
    JsonFloat,
    JsonRules,
    RepeatedMembers,
    members_of,
    parse_document,
    parse_json_prefix,
    path_rule,
    steps_of,
    text_of,
    type_of,
    write_json,
)
from circuits.types.functions.signatures import per_distinct_row
from circuits.types.functions.type_rules import is_text

__all__ = ["FUNCTIONS"]

Step = str | int | bool | None
_PLAIN_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _matches(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    """Yield the values at a path, in the order of the text."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    parts: Iterable[Any]
    if step is None:
        parts = value if isinstance(value, list) else []
    elif step is True:
        parts = value.values() if isinstance(value, dict) else []
    elif isinstance(step, int):
        is_in_range = isinstance(value, list) and -len(value) <= step < len(value)
        parts = [value[step]] if is_in_range else []
    else:
        parts = [value[step]] if isinstance(value, dict) and step in value else []
    for part in parts:
        yield from _matches(part, rest)


def _matches_kernel(read: Callable[[Any], str | None]) -> Kernel:
    """Return a kernel of the list of ``read(value)`` for each match of a path."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = fill_rows(arguments[0], row_count(arguments))
        steps = steps_of(arguments)

        def find(text: str) -> list[str | None] | None:
            value = parse_document(text, DUCKDB_RULES)
            if steps is None:
                return None
            return [read(part) for part in _matches(value, steps)]

        return map_distinct(array, find, result_type)

    return kernel


class _Style(enum.Enum):
    """How a match is written: a text without quotes, with quotes, or an array as its elements."""

    RAW = 1
    QUOTED = 2
    FLATTENED = 3


def _spark_matches(value: Any, steps: Sequence[Step], style: _Style) -> tuple[bool, list[str]]:
    """Return whether a path has a match, and the texts that Spark writes for it.

    This is ``JsonPathEvaluator.evaluatePath`` of Spark, which writes the texts to a generator.
    """
    if not steps:
        if style is _Style.RAW and isinstance(value, str):
            return True, [value]
        if style is _Style.FLATTENED and isinstance(value, list):
            return _spark_parts(value, (), style)
        return True, [write_json(value)]
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if not isinstance(value, RepeatedMembers):
            is_found = isinstance(value, dict) and value.get(step) is not None
            return _spark_matches(value[step], rest, style) if is_found else (False, [])
        parts = [part for name, part in value.items() if name == step and part is not None]
        # The first member in which the rest of the path has a match.
        matches = (_spark_matches(part, rest, style) for part in parts)
        return next((match for match in matches if match[0]), (False, []))
    if not isinstance(value, list):
        return False, []
    if step is not None:
        is_before_wildcard = bool(rest) and rest[0] is None
        if not 0 <= step < len(value):
            return False, []
        return _spark_matches(value[step], rest, _Style.QUOTED if is_before_wildcard else style)
    if rest and rest[0] is None:
        is_found, texts = _spark_parts(value, rest[1:], _Style.FLATTENED)
        return is_found, [f"[{','.join(texts)}]"]
    if style is _Style.QUOTED:
        is_found, texts = _spark_parts(value, rest, style)
        return is_found, [f"[{','.join(texts)}]"]
    inner = _Style.QUOTED if style is _Style.RAW else style
    found = [_spark_matches(part, rest, inner) for part in value]
    joined = ",".join(text for _, texts in found for text in texts)
    count = sum(is_found for is_found, _ in found)
    if count == 0:
        return False, []
    return True, [f"[{joined}]" if count > 1 else joined]


def _spark_parts(
    values: Sequence[Any], steps: Sequence[Step], style: _Style
) -> tuple[bool, list[str]]:
    found = [_spark_matches(value, steps, style) for value in values]
    return any(is_found for is_found, _ in found), [text for _, texts in found for text in texts]


def _spark_object(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))
    steps = steps_of(arguments) or []

    def find(text: str) -> str | None:
        value = parse_json_prefix(text)
        if value is MISSING:
            return None
        is_found, texts = _spark_matches(value, steps, _Style.RAW)
        return "".join(texts) if is_found else None

    return map_distinct(array, find, result_type)


_ENTRY_TYPE: Final = pa.struct(
    [
        *((name, pa.string()) for name in ("key", "value", "type", "atom")),
        *((name, pa.uint64()) for name in ("id", "parent")),
        *((name, pa.string()) for name in ("fullkey", "path")),
    ]
)


def _entries(value: Any, steps: Sequence[str | int]) -> list[dict[str, Any]]:
    """Return the members of the value at a path as rows, as json_each() of DuckDB does."""
    number = 0  # of the value among the values and keys of the text
    path = "$"
    for step in steps:
        parts = _numbered_parts(value, number)
        key = step
        if isinstance(key, int) and key < 0 and isinstance(value, list):
            key += len(value)
        found = next((part for part in parts if part[0] == key), None)
        if found is None or isinstance(step, int) is not isinstance(value, list):
            return []
        path += _step_text(step)
        _, number, value = found
    if not isinstance(value, dict | list):
        return [_entry(None, value, number, path, path)]
    return [
        _entry(str(key), part, part_number, path + _step_text(key), path)
        for key, part_number, part in _numbered_parts(value, number)
    ]


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f'."{step}"'


def _numbered_parts(value: Any, number: int) -> Iterator[tuple[str | int, int, Any]]:
    """Yield the key, the number and the value of each part of a value with a number."""
    number += 1
    is_object = isinstance(value, dict)
    items = value.items() if is_object else enumerate(value if isinstance(value, list) else ())
    for key, part in items:
        number += is_object
        yield key, number, part
        number += _count(part)


def _count(value: Any) -> int:
    """Return the number of values and keys in a value, with itself."""
    if isinstance(value, dict):
        return 1 + sum(1 + _count(part) for part in value.values())
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def _entry(key: str | None, value: Any, number: int, full_key: str, path: str) -> dict[str, Any]:
    text = write_json(value)
    is_atom = not isinstance(value, dict | list) and value is not None
    return {
        "key": key,
        "value": text,
        "type": type_of(value),
        "atom": text if is_atom else None,
        "id": number,
        "parent": None,
        "fullkey": full_key,
        "path": path,
    }


def _entries_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))
    steps = steps_of(arguments)

    def find(text: str) -> list[dict[str, Any]] | None:
        value = parse_document(text, DUCKDB_RULES)
        return None if steps is None else _entries(value, steps)

    return map_distinct(array, find, result_type)


def _is_part(value: Any, part: Any) -> bool:
    """Return whether DuckDB's json_contains() finds a part in a value, at any depth."""
    if _includes(value, part):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_part(inner, part) for inner in parts)


def _includes(value: Any, part: Any) -> bool:
    """Return whether a value has all members, or elements, of a part."""
    if isinstance(value, dict) and isinstance(part, dict):
        return all(key in value and _includes(value[key], inner) for key, inner in part.items())
    if isinstance(value, list) and isinstance(part, list):
        return all(any(_includes(inner, wanted) for inner in value) for wanted in part)
    return type(value) is type(part) and bool(value == part)


def _includes_in_postgres(value: Any, part: Any) -> bool:
    """Return whether ``value @> part`` of PostgreSQL: an array also includes its scalars."""
    if isinstance(value, list) and not isinstance(part, dict | list):
        part = [part]
    return _includes_numbers(value, part)


def _includes_numbers(value: Any, part: Any) -> bool:
    """As `_includes`, but 1 equals 1.0."""
    if isinstance(value, dict) and isinstance(part, dict):
        return all(
            key in value and _includes_numbers(value[key], inner) for key, inner in part.items()
        )
    if isinstance(value, list) and isinstance(part, list):
        return all(any(_includes_numbers(inner, wanted) for inner in value) for wanted in part)
    if isinstance(value, bool) or isinstance(part, bool):
        return value is part
    return not isinstance(value, dict | list) and bool(_exact(value) == _exact(part))


def _exact(value: Any) -> Any:
    """Return a value; a number with all its digits, which a float may not have."""
    return Decimal(value.text) if isinstance(value, JsonFloat) else value


def _texts_rule(result: pa.DataType) -> Rule:
    """Return the rule of a function of two JSON texts."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        if not all(is_text(part.type) or pa.types.is_null(part.type) for part in arguments):
            raise argument_error(name, arguments, "it takes JSON texts: cast them to string")
        return tuple(cast_to(part, pa.string()) for part in arguments), result

    return rule


def _of_pair(compute: Callable[[Any, Any], Any], rules: JsonRules) -> Kernel:
    """Return a kernel of two JSON values; the result is NULL if one is NULL."""
    parse = partial(parse_document, rules=rules)

    def find(text: str, other: str) -> Any:
        values = parse(text), parse(other)
        return None if MISSING in values else compute(*values)

    return per_distinct_row(find)


def _patch(target: Any, patch: Any) -> Any:
    """Return a value with a merge patch (RFC 7396), as DuckDB does it.

    The members that the patch names come last. A patch of a value that is no object is the result,
    with its nulls.
    """
    if not isinstance(target, dict) or not isinstance(patch, dict):
        return patch
    result = [(key, part) for key, part in target.items() if key not in patch]
    for key, part in patch.items():
        if part is not None:
            old = target.get(key)
            is_object = isinstance(part, dict)
            old = old if isinstance(old, dict) or not is_object else {}
            result.append((key, _patch(old, part)))
    return members_of(result)


FUNCTIONS = (
    Function(
        "json_matches",
        "the values at the path b with wildcards in the JSON text a, as JSON",
        path_rule(pa.list_(pa.string())),
        _matches_kernel(write_json),
    ),
    Function(
        "json_match_texts",
        "the values at the path b with wildcards in the JSON text a; strings without their quotes",
        path_rule(pa.list_(pa.string())),
        _matches_kernel(text_of),
    ),
    Function(
        "spark_json_matches",
        "the match of the path b with wildcards in the JSON text a, or the array of the matches",
        path_rule(pa.string()),
        _spark_object,
    ),
    Function(
        "json_entries",
        "the members of the JSON value at the path b in a, with their types and paths",
        path_rule(pa.list_(_ENTRY_TYPE)),
        _entries_kernel,
    ),
    Function(
        "json_contains",
        "true if the JSON text b, or all its members, are at some place in the JSON text a",
        _texts_rule(pa.bool_()),
        _of_pair(_is_part, DUCKDB_RULES),
    ),
    Function(
        "json_includes",
        "true if the JSON text a has all members of b, as a @> b in PostgreSQL",
        _texts_rule(pa.bool_()),
        _of_pair(_includes_in_postgres, POSTGRES_RULES),
    ),
    Function(
        "json_merge_patch",
        "the JSON text a with the patch b of RFC 7396",
        _texts_rule(pa.string()),
        _of_pair(lambda target, patch: write_json(_patch(target, patch)), DUCKDB_RULES),
    ),
)
