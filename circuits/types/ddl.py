"""DDL: parse a schema that is given as text, such as ``nr BIGINT NOT NULL, item STRING``.

The type names are in `circuits.types.arrow_types`. They are those of Spark's DDL, parsed
without a JVM: ``TIMESTAMP`` is a timestamp in UTC, ``TIMESTAMP_NTZ`` has no time zone, and
``DECIMAL`` without numbers is ``DECIMAL(10, 0)``. Arrow's own names (``int64``, ``uint8``,
``float64``) and DuckDB's names of unsigned integers are accepted as well. The length in
``VARCHAR(n)`` is accepted and ignored. Nested types are written as in Spark (``ARRAY<INT>``,
``STRUCT<a: INT, b: STRING>``, ``MAP<STRING, INT>``) or as in DuckDB (``INT[]``,
``STRUCT(a INT, b VARCHAR)``, ``MAP(VARCHAR, INT)``).

The type names in a CAST of a query depend on the dialect of the query
(`circuits.sql.syntax.types`).
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from circuits.errors import SchemaError
from circuits.types.arrow_types import DDL_TYPES

__all__ = ["field_of", "schema_of_ddl"]

_DECIMALS: Final = ("decimal", "dec", "numeric")
# Arrow's decimal128 has at most this many digits.
_MAX_PRECISION: Final = 38

_FLAGS: Final = re.VERBOSE | re.IGNORECASE
_NAME: Final = r"(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))"
_COLUMN: Final = re.compile(rf"\s*{_NAME}\s*(?::\s*|\s)\s*(?P<type>\S.*?)\s*$", _FLAGS | re.DOTALL)
# A type and perhaps NULL or NOT NULL.
_TYPE_AND_NULLABILITY: Final = re.compile(
    r"(?P<type>.*?)(?:\s+(?P<required>not\s+)?null)?\s*$", _FLAGS | re.DOTALL
)
_FLAT_TYPE: Final = re.compile(
    r"""\s*(?P<type>\w+)
        (?:\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?\s*$""",
    _FLAGS,
)
_LIST_SUFFIX: Final = re.compile(
    r"(?P<type>.*\S)\s*\[\s*(?P<size>\d*)\s*\]\s*$", _FLAGS | re.DOTALL
)
_NESTED_TYPE: Final = re.compile(
    r"\s*(?P<kind>array|struct|map)\s*(?P<open>[<(])(?P<inner>.*)(?P<close>[>)])\s*$",
    _FLAGS | re.DOTALL,
)
_BRACKETS: Final = {"<": ">", "(": ")", "[": "]"}
_MAX_DEPTH: Final = 64


def schema_of_ddl(text: str) -> pa.Schema:
    """Parse a list of columns with types into a schema.

    Raises:
        SchemaError: ``text`` is not a list of columns with types, or a type is unknown.

    >>> schema_of_ddl("nr BIGINT NOT NULL, price decimal(9, 2), `the item` string")
    nr: int64 not null
    price: decimal128(9, 2)
    the item: string
    >>> schema_of_ddl("tags ARRAY<STRING>, at STRUCT<x: INT, y: INT>, n MAP<STRING, INT>").types
    [ListType(list<item: string>), StructType(struct<x: int32, y: int32>), \
MapType(map<string, int32>)]
    """
    fields = []
    for part in _split(text):
        column = _COLUMN.match(part)
        if column is None:
            raise SchemaError(
                f"schema {text!r}: invalid column {part.strip()!r}; write NAME TYPE, "
                "NAME TYPE, as in 'src long, dst long'"
            )
        fields.append(_field(text, column["quoted"] or column["name"], column["type"]))
    if not fields:
        raise SchemaError(f"schema {text!r} has no columns; write NAME TYPE, NAME TYPE")
    return pa.schema(fields)


def field_of(name: str, text: str) -> pa.Field:
    """Return a field with this name and the type that ``text`` declares.

    Raises:
        SchemaError: ``text`` is not a type, or the type is unknown.

    >>> field_of("price", "decimal(9, 2)"), field_of("nr", "BIGINT NOT NULL")
    (pyarrow.Field<price: decimal128(9, 2)>, pyarrow.Field<nr: int64 not null>)
    """
    return _field(text, name, text, f"column {name!r}: invalid type {text!r}")


def _field(text: str, name: str, type: str, error_start: str = "", depth: int = 0) -> pa.Field:
    """Parse the type of a column or of a field of a struct.

    Args:
        text: The whole text of the user, for errors.
        name: The name of the field.
        type: The type, possibly followed by NULL or NOT NULL.
        error_start: The beginning of an error message; by default it names this column.
        depth: The number of types around this one.
    """
    match = _TYPE_AND_NULLABILITY.match(type)
    assert match is not None
    error_start = error_start or f"schema {text!r}: invalid column {f'{name} {type}'!r}"
    data_type = _type(text, match["type"], error_start, depth)
    return pa.field(name, data_type, nullable=match["required"] is None)


def _type(text: str, type_text: str, error_start: str, depth: int) -> pa.DataType:
    """Return the type that ``type_text`` names, flat or nested; ``text`` is the whole text."""
    if depth > _MAX_DEPTH:
        raise SchemaError(f"{error_start}; the type is nested more than {_MAX_DEPTH} levels deep")
    suffix = _LIST_SUFFIX.match(type_text)
    if suffix is not None:
        element = _type(text, suffix["type"], error_start, depth + 1)
        return pa.list_(element, int(suffix["size"])) if suffix["size"] else pa.list_(element)
    nested = _NESTED_TYPE.match(type_text)
    if nested is not None and _BRACKETS[nested["open"]] == nested["close"]:
        return _nested_type(text, nested, error_start, depth + 1)
    match = _FLAT_TYPE.match(type_text)
    if match is None:
        raise SchemaError(
            f"{error_start}; write the name of a type, as in 'bigint', 'decimal(9, 2)', "
            "'array<int>', 'struct<a: int, b: string>' or 'map<string, int>'"
        )
    return _flat_type(text, match)


def _nested_type(text: str, match: re.Match[str], error_start: str, depth: int) -> pa.DataType:
    kind, parts = match["kind"].lower(), _split(match["inner"])
    if kind == "struct":
        fields = []
        for part in parts:
            column = _COLUMN.match(part)
            if column is None:
                raise SchemaError(
                    f"{error_start}; write a field as NAME: TYPE, not {part.strip()!r}"
                )
            name = column["quoted"] or column["name"]
            fields.append(_field(text, name, column["type"], error_start, depth))
        return pa.struct(fields)
    if len(parts) != (2 if kind == "map" else 1):
        example = "map<string, int>" if kind == "map" else "array<int>"
        raise SchemaError(
            f"{error_start}; {kind} has {len(parts)} types; write it as in {example!r}"
        )
    types = [_type(text, part, error_start, depth) for part in parts]
    return pa.map_(*types) if kind == "map" else pa.list_(*types)


def _split(text: str) -> list[str]:
    """Split a list at the commas that are not within brackets or backquotes."""
    parts, start, depth, quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif character in _BRACKETS:
            depth += 1
        elif character in _BRACKETS.values():
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    remainder = text[start:]
    return [*parts, remainder] if remainder.strip() else parts


def _flat_type(text: str, match: re.Match[str]) -> pa.DataType:
    name = match["type"].lower()
    if name in _DECIMALS:
        precision, scale = int(match["precision"] or 10), int(match["scale"] or 0)
        if not 0 <= scale <= precision <= _MAX_PRECISION or not precision:
            raise SchemaError(
                f"schema {text!r}: invalid type {name}({precision}, {scale}); the precision is "
                f"1 to {_MAX_PRECISION}, the scale 0 to the precision"
            )
        return pa.decimal128(precision, scale)
    if name not in DDL_TYPES:
        raise SchemaError(
            f"schema {text!r}: unknown type {match['type']!r}; types: "
            f"{', '.join(DDL_TYPES)}, decimal(p, s), array<t>, struct<name: t>, map<k, v>"
        )
    if match["precision"] is not None and (name != "varchar" or match["scale"] is not None):
        raise SchemaError(
            f"schema {text!r}: the type {match['type']} has no parameters: remove the parentheses"
        )
    return DDL_TYPES[name]
