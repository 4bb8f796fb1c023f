"""DDL: parse a schema that is given as text, such as ``nr BIGINT NOT NULL, item STRING``.

The type names are in `circuits.types.arrow_types`. They are those of Spark's DDL, parsed
without a JVM: ``TIMESTAMP`` is a timestamp in UTC, ``TIMESTAMP_NTZ`` has no time zone, and
``DECIMAL`` without numbers is ``DECIMAL(10, 0)``. Arrow's own names (``int64``, ``uint8``,
``float64``) and DuckDB's names of unsigned integers are accepted as well. The length in
``VARCHAR(n)`` is accepted and ignored. Relations have flat columns only, so there are no nested
types.

The type names in a CAST of a query depend on the dialect of the query (`circuits.sql.types`).
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

_TYPE: Final = r"""(?P<type>\w+)
        (?:\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?
        (?:\s+(?P<required>not\s+)?null)?\s*"""
_FLAGS: Final = re.VERBOSE | re.IGNORECASE
_COLUMN: Final = re.compile(
    rf"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*:?\s+{_TYPE}(?:,|$)", _FLAGS
)
_ONE_TYPE: Final = re.compile(rf"\s*{_TYPE}$", _FLAGS)


def schema_of_ddl(text: str) -> pa.Schema:
    """Parse a list of columns with types into a schema.

    Raises:
        SchemaError: ``text`` is not a list of columns with types, or a type is unknown.

    >>> schema_of_ddl("nr BIGINT NOT NULL, price decimal(9, 2), `the item` string")
    nr: int64 not null
    price: decimal128(9, 2)
    the item: string
    """
    position, fields = 0, []
    while position < len(text):
        column = _COLUMN.match(text, position)
        if column is None:
            raise SchemaError(
                f"schema {text!r}: invalid column {text[position:].strip()!r}; write NAME TYPE, "
                "NAME TYPE, as in 'src long, dst long'"
            )
        fields.append(_field(text, column["quoted"] or column["name"], column))
        position = column.end()
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
    match = _ONE_TYPE.match(text)
    if match is None:
        raise SchemaError(
            f"column {name!r}: invalid type {text!r}; write the name of a type, as in 'bigint' or "
            "'decimal(9, 2)'"
        )
    return _field(text, name, match)


def _field(text: str, name: str, match: re.Match[str]) -> pa.Field:
    return pa.field(name, _type(text, match), nullable=match["required"] is None)


def _type(text: str, match: re.Match[str]) -> pa.DataType:
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
            f"{', '.join(DDL_TYPES)}, decimal(p, s)"
        )
    if match["precision"] is not None and (name != "varchar" or match["scale"] is not None):
        raise SchemaError(
            f"schema {text!r}: the type {match['type']} has no parameters: remove the parentheses"
        )
    return DDL_TYPES[name]
