"""DDL: the columns of a relation as a text, ``src long, dst long, at timestamp not null``.

The words are those of Spark and of SQL; the result is an Arrow schema, without a JVM. Only flat
types are known, as relations have no others.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from streaming.errors import EventsError

__all__ = ["schema_of_ddl"]

TYPES: Final = {
    **dict.fromkeys(("tinyint", "byte", "int8"), pa.int8()),
    **dict.fromkeys(("smallint", "short", "int16"), pa.int16()),
    **dict.fromkeys(("int", "integer", "int32"), pa.int32()),
    **dict.fromkeys(("bigint", "long", "int64"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    **dict.fromkeys(("string", "text", "varchar"), pa.string()),
    **dict.fromkeys(("binary", "blob"), pa.binary()),
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_COLUMN: Final = re.compile(
    r"""\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*:?\s+(?P<type>\w+)
        (?:\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?
        (?P<required>\s+not\s+null)?\s*(?:,|$)""",
    re.VERBOSE | re.IGNORECASE,
)


def schema_of_ddl(text: str) -> pa.Schema:
    """The schema that a text declares.

    Raises:
        EventsError: The text is no list of columns with types.

    >>> schema_of_ddl("nr long not null, price decimal(9, 2), `the item` string")
    nr: int64 not null
    price: decimal128(9, 2)
    the item: string
    """
    place, fields = 0, []
    while place < len(text):
        found = _COLUMN.match(text, place)
        if found is None:
            raise EventsError(
                f"schema {text!r}: {text[place:].strip()!r} is no column; write NAME TYPE, "
                "NAME TYPE, as in 'src long, dst long'"
            )
        name = found["quoted"] or found["name"]
        fields.append(pa.field(name, _type(text, found), nullable=found["required"] is None))
        place = found.end()
    if not fields:
        raise EventsError(f"schema {text!r} has no columns; write NAME TYPE, NAME TYPE")
    return pa.schema(fields)


def _type(text: str, found: re.Match[str]) -> pa.DataType:
    name = found["type"].lower()
    if name in ("decimal", "dec", "numeric"):
        return pa.decimal128(int(found["precision"] or 10), int(found["scale"] or 0))
    if name not in TYPES:
        raise EventsError(
            f"schema {text!r}: there is no type {found['type']!r}; there are "
            f"{', '.join(TYPES)} and decimal(p, s)"
        )
    return TYPES[name]
