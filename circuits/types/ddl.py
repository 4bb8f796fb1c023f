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
    place, fields = 0, []
    while place < len(text):
        found = _COLUMN.match(text, place)
        if found is None:
            raise SchemaError(
                f"schema {text!r}: {text[place:].strip()!r} is no column; write NAME TYPE, "
                "NAME TYPE, as in 'src long, dst long'"
            )
        fields.append(_field(text, found["quoted"] or found["name"], found))
        place = found.end()
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
    found = _ONE_TYPE.match(text)
    if found is None:
        raise SchemaError(
            f"column {name!r}: {text!r} is no type; write the name of one, as in 'bigint' or "
            "'decimal(9, 2)'"
        )
    return _field(text, name, found)


def _field(text: str, name: str, found: re.Match[str]) -> pa.Field:
    return pa.field(name, _type(text, found), nullable=found["required"] is None)


def _type(text: str, found: re.Match[str]) -> pa.DataType:
    name = found["type"].lower()
    if name in _DECIMALS:
        precision, scale = int(found["precision"] or 10), int(found["scale"] or 0)
        if not 0 <= scale <= precision <= _MAX_PRECISION or not precision:
            raise SchemaError(
                f"schema {text!r}: there is no type {name}({precision}, {scale}); the precision is "
                f"1 to {_MAX_PRECISION}, the scale 0 to the precision"
            )
        return pa.decimal128(precision, scale)
    if name not in DDL_TYPES:
        raise SchemaError(
            f"schema {text!r}: there is no type {found['type']!r}; there are "
            f"{', '.join(DDL_TYPES)} and decimal(p, s)"
        )
    if found["precision"] is not None and (name != "varchar" or found["scale"] is not None):
        raise SchemaError(
            f"schema {text!r}: the type {found['type']} takes no numbers in parentheses: leave "
            "them out"
        )
    return DDL_TYPES[name]
