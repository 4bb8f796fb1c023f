"""Arrow types: the table of column types, with everything that depends on the type.

::

    type_row(type)      the row of a type, found by Arrow's type id
    family_of(type)     its family: code that differs between types dispatches on this
    DDL_TYPES           name in a schema text -> type
    SQL_TYPES           name in a CAST -> type

To add a type, add one row here, and if its family is new also a coding, which maps its values to
int64 codes (`circuits.types.codecs.codec`). A type without a row, such as a union, cannot be the
type of a column. Lists, structs and maps contain other types (`part_types`); their conversions are
those of the parts (`with_parts`).

Several rows may have one type id, for example timestamps with different units. Types with this id
have the properties of the first of these rows. The names in a row mean its own type. The names of
DDL are those of Spark, together with Arrow's own names and DuckDB's names of unsigned integers. The
names of SQL are those of sqlglot; they mean types of the same width as in DuckDB.

This package must not import Spark. `streaming.sources.change_feeds.physical_types` maps the
types ``lake_type`` of this table to Spark types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from circuits.types.enum_type import EnumType

__all__ = [
    "DDL_TYPES",
    "NUMBERS",
    "SQL_TYPES",
    "VARIANT",
    "Family",
    "TypeRow",
    "empty_table",
    "family_of",
    "field_order",
    "has_enum",
    "has_variant",
    "is_nested",
    "matched_part_types",
    "name_types",
    "part_types",
    "type_name",
    "type_row",
    "value_type",
    "with_parts",
]


class Family(Enum):
    """A group of types that differ in width, unit or layout only."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    INTERVAL = "interval"
    DICTIONARY = "dictionary"
    NESTED = "nested"
    VARIANT = "variant"
    ENUM = "enum"
    UNSUPPORTED = "unsupported"


#: The type VARIANT: any JSON value, with the types of numbers (`circuits.types.codecs.variants`).
VARIANT: Final = pa.json_(pa.string())

#: The families with arithmetic; a boolean is not a number.
NUMBERS: Final = frozenset({Family.INTEGER, Family.FLOAT, Family.DECIMAL})

TypeChange = Callable[[pa.DataType], pa.DataType]


def _unchanged(type: pa.DataType) -> pa.DataType:
    return type


@dataclass(frozen=True)
class TypeRow:
    """The properties of a type.

    Attributes:
        type: The type, or for a type with parameters one example of it.
        family: The family of the type.
        dtype: The numpy type of the values, for types whose codes are numbers of up to 64 bits.
        digits: For integers, the precision of a decimal that can represent every value.
        kernel_type: Returns the type in which kernels compute; Arrow has few kernels for some
            types.
        lake_type: Returns the type of a column in Delta Lake or Spark that can represent every
            value: text for a time of day or an interval, an integer for a duration. The exceptions
            are decimals of more than 38 digits, for which neither has a type.
        ddl: The names in a schema text.
        sql: The names in a CAST, as sqlglot calls them.
    """

    type: pa.DataType
    family: Family
    dtype: str = ""
    digits: int = 0
    kernel_type: TypeChange = _unchanged
    lake_type: TypeChange = _unchanged
    ddl: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()


def _always(type: pa.DataType) -> TypeChange:
    """Return a function that returns ``type`` for every type."""
    return lambda _: type


def _decimal128(type: pa.DataType) -> pa.DataType:
    return pa.decimal128(type.precision, type.scale)


def _lake_decimal(type: pa.DataType) -> pa.DataType:
    """Return a decimal with a scale from 0 on, and with at most 38 digits, the limit of Spark.

    A negative scale becomes 0, and the digits that it leaves out are added: the values of
    ``decimal(3, -2)``, such as 12300, are in ``decimal(5, 0)``.
    """
    scale = max(type.scale, 0)
    digits = type.precision + scale - type.scale
    return pa.decimal128(min(38, max(digits, scale)), scale)


def _lake_timestamp(type: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", None if type.tz is None else "UTC")


def _kernel_parts(type: pa.DataType) -> pa.DataType:
    return with_parts(type, [type_row(part).kernel_type(part) for part in part_types(type)])


def _lake_parts(type: pa.DataType) -> pa.DataType:
    return with_parts(type, [type_row(part).lake_type(part) for part in part_types(type)])


_TO_TEXT, _TO_BYTES, _TO_DAY = _always(pa.string()), _always(pa.binary()), _always(pa.date32())
_TO_LARGE_TEXT, _TO_LARGE_BYTES = _always(pa.large_string()), _always(pa.large_binary())


def _timestamp(type: pa.DataType, ddl: str, *sql: str) -> TypeRow:
    return TypeRow(type, Family.TIMESTAMP, "i8", lake_type=_lake_timestamp, ddl=(ddl,), sql=sql)


# Error messages list the names in this order.
_ROWS: Final = (
    TypeRow(pa.int8(), Family.INTEGER, "i1", 3, ddl=("tinyint", "byte", "int8"), sql=("TINYINT",)),
    TypeRow(
        pa.int16(), Family.INTEGER, "i2", 5, ddl=("smallint", "short", "int16"), sql=("SMALLINT",)
    ),
    TypeRow(pa.int32(), Family.INTEGER, "i4", 10, ddl=("int", "integer", "int32"), sql=("INT",)),
    TypeRow(pa.int64(), Family.INTEGER, "i8", 19, ddl=("bigint", "long", "int64"), sql=("BIGINT",)),
    TypeRow(
        pa.uint8(),
        Family.INTEGER,
        "u1",
        3,
        lake_type=_always(pa.int16()),
        ddl=("utinyint", "uint8"),
        sql=("UTINYINT",),
    ),
    TypeRow(
        pa.uint16(),
        Family.INTEGER,
        "u2",
        5,
        lake_type=_always(pa.int32()),
        ddl=("usmallint", "uint16"),
        sql=("USMALLINT",),
    ),
    TypeRow(
        pa.uint32(),
        Family.INTEGER,
        "u4",
        10,
        lake_type=_always(pa.int64()),
        ddl=("uinteger", "uint32"),
        sql=("UINT",),
    ),
    TypeRow(
        pa.uint64(),
        Family.INTEGER,
        "u8",
        20,
        lake_type=_always(pa.decimal128(20, 0)),
        ddl=("ubigint", "uint64"),
        sql=("UBIGINT",),
    ),
    TypeRow(
        pa.float16(),
        Family.FLOAT,
        "f2",
        kernel_type=_always(pa.float32()),
        lake_type=_always(pa.float32()),
    ),
    TypeRow(pa.float32(), Family.FLOAT, "f4", ddl=("float", "real", "float32"), sql=("FLOAT",)),
    TypeRow(pa.float64(), Family.FLOAT, "f8", ddl=("double", "float64"), sql=("DOUBLE",)),
    TypeRow(
        pa.string(),
        Family.STRING,
        lake_type=_TO_TEXT,
        ddl=("string", "text", "varchar", "uuid"),
        sql=("TEXT", "VARCHAR", "UUID"),
    ),
    TypeRow(pa.large_string(), Family.STRING, lake_type=_TO_TEXT, ddl=("large_string",)),
    TypeRow(pa.string_view(), Family.STRING, kernel_type=_TO_LARGE_TEXT, lake_type=_TO_TEXT),
    TypeRow(
        pa.binary(),
        Family.BINARY,
        lake_type=_TO_BYTES,
        ddl=("binary", "blob"),
        sql=("BINARY", "VARBINARY"),
    ),
    TypeRow(pa.large_binary(), Family.BINARY, lake_type=_TO_BYTES),
    TypeRow(pa.binary_view(), Family.BINARY, kernel_type=_TO_LARGE_BYTES, lake_type=_TO_BYTES),
    TypeRow(pa.binary(1), Family.BINARY, kernel_type=_TO_LARGE_BYTES, lake_type=_TO_BYTES),
    TypeRow(pa.bool_(), Family.BOOLEAN, "?", ddl=("boolean", "bool"), sql=("BOOLEAN",)),
    TypeRow(
        pa.date32(), Family.DATE, "i4", lake_type=_TO_DAY, ddl=("date", "date32"), sql=("DATE",)
    ),
    TypeRow(pa.date64(), Family.DATE, "i8", lake_type=_TO_DAY),
    TypeRow(pa.time32("s"), Family.TIME, "i4", lake_type=_TO_TEXT),
    TypeRow(pa.time64("us"), Family.TIME, "i8", lake_type=_TO_TEXT, ddl=("time",), sql=("TIME",)),
    TypeRow(
        pa.timestamp("us", "UTC"),
        Family.TIMESTAMP,
        "i8",
        lake_type=_lake_timestamp,
        ddl=("timestamp", "timestamp_ltz", "timestamptz"),
        sql=("TIMESTAMPTZ", "TIMESTAMPLTZ"),
    ),
    _timestamp(pa.timestamp("us"), "timestamp_ntz", "TIMESTAMP", "TIMESTAMPNTZ"),
    _timestamp(pa.timestamp("s"), "timestamp_s", "TIMESTAMP_S"),
    _timestamp(pa.timestamp("ms"), "timestamp_ms", "TIMESTAMP_MS"),
    _timestamp(pa.timestamp("ns"), "timestamp_ns", "TIMESTAMP_NS"),
    TypeRow(pa.duration("us"), Family.DURATION, "i8", lake_type=_always(pa.int64())),
    TypeRow(
        pa.month_day_nano_interval(),
        Family.INTERVAL,
        lake_type=_TO_TEXT,
        ddl=("interval",),
        sql=("INTERVAL",),
    ),
    TypeRow(pa.decimal32(9, 0), Family.DECIMAL, kernel_type=_decimal128, lake_type=_lake_decimal),
    TypeRow(pa.decimal64(18, 0), Family.DECIMAL, kernel_type=_decimal128, lake_type=_lake_decimal),
    TypeRow(pa.decimal128(38, 0), Family.DECIMAL, lake_type=_lake_decimal),
    TypeRow(pa.decimal256(76, 0), Family.DECIMAL, lake_type=_lake_decimal),
    TypeRow(pa.null(), Family.NULL, lake_type=_TO_TEXT),
    TypeRow(
        VARIANT,
        Family.VARIANT,
        kernel_type=_TO_TEXT,
        lake_type=_TO_TEXT,
        ddl=("variant",),
        sql=("VARIANT",),
    ),
    *(
        TypeRow(type, Family.NESTED, kernel_type=_kernel_parts, lake_type=_lake_parts)
        for type in (
            pa.list_(pa.null()),
            pa.large_list(pa.null()),
            pa.list_(pa.null(), 1),
            pa.struct([]),
            pa.map_(pa.string(), pa.null()),
        )
    ),
    TypeRow(
        pa.dictionary(pa.int32(), pa.string()),
        Family.DICTIONARY,
        kernel_type=lambda type: type_row(type.value_type).kernel_type(type.value_type),
        lake_type=lambda type: type_row(type.value_type).lake_type(type.value_type),
    ),
)
_BY_ID: Final[dict[int, TypeRow]] = {row.type.id: row for row in reversed(_ROWS)}
_ENUM: Final = TypeRow(EnumType([]), Family.ENUM, kernel_type=_TO_TEXT, lake_type=_TO_TEXT)
_UNSUPPORTED: Final = TypeRow(pa.null(), Family.UNSUPPORTED)

#: The types by their lower-case names in a schema text, except decimals, which have parameters.
DDL_TYPES: Final[dict[str, pa.DataType]] = {name: row.type for row in _ROWS for name in row.ddl}
#: The types by sqlglot's names in a CAST, except decimals, which have parameters.
SQL_TYPES: Final[dict[str, pa.DataType]] = {name: row.type for row in _ROWS for name in row.sql}


def type_row(type: pa.DataType) -> TypeRow:
    """Return the properties of a type; O(1).

    >>> type_row(pa.uint16()).lake_type(pa.uint16()), type_row(pa.timestamp("ns")).dtype
    (DataType(int32), 'i8')
    """
    if type.id == VARIANT.id and type != VARIANT:
        return _ENUM if isinstance(type, EnumType) else _UNSUPPORTED
    return _BY_ID.get(type.id, _UNSUPPORTED)


def family_of(type: pa.DataType) -> Family:
    """Return the family of a type; `Family.UNSUPPORTED` if no column can have the type.

    >>> family_of(pa.large_string()).value, family_of(pa.list_(pa.int8())).value
    ('string', 'nested')
    """
    return type_row(type).family


def value_type(type: pa.DataType) -> pa.DataType:
    """Return the type itself, or for a dictionary type the type of its values.

    >>> value_type(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    while family_of(type) is Family.DICTIONARY:
        type = type.value_type
    return type


def is_nested(type: pa.DataType) -> bool:
    """Return True for a list, a struct or a map."""
    return family_of(type) is Family.NESTED


def type_name(type: pa.DataType) -> str:
    """Return the name of a type for messages: that of Arrow, or VARIANT.

    >>> type_name(pa.list_(VARIANT))
    'list<item: VARIANT>'
    """
    return name_types(str(type))


def name_types(message: str) -> str:
    """Return a message in which Arrow's names of VARIANT and ENUM are those of SQL."""
    return message.replace(str(VARIANT), "VARIANT").replace(str(_ENUM.type), "ENUM")


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; pyarrow's own fails for lists of an extension type.

    >>> empty_table(pa.schema({"a": pa.list_(VARIANT)})).num_rows
    0
    """
    return pa.table([pa.nulls(0, field.type) for field in schema], schema)


def has_variant(type: pa.DataType) -> bool:
    """Return True for VARIANT, and for a nested type that contains it.

    >>> has_variant(pa.list_(VARIANT)), has_variant(pa.list_(pa.string()))
    (True, False)
    """
    if is_nested(type):
        return any(map(has_variant, part_types(type)))
    return family_of(type) is Family.VARIANT


def has_enum(type: pa.DataType) -> bool:
    """Return True for an ENUM, and for a nested type that contains one."""
    if is_nested(type):
        return any(map(has_enum, part_types(type)))
    return family_of(type) is Family.ENUM


def part_types(type: pa.DataType) -> list[pa.DataType]:
    """Return the types in a nested type: of the elements, of the fields, or of keys and values.

    >>> part_types(pa.map_(pa.string(), pa.list_(pa.int8())))
    [DataType(string), ListType(list<item: int8>)]
    """
    if pa.types.is_struct(type):
        return [field.type for field in type]
    if pa.types.is_map(type):
        return [type.key_type, type.item_type]
    return [type.value_type]


def field_order(source: pa.DataType, target: pa.DataType) -> list[int]:
    """Return the position in a struct of each field of another struct with as many fields.

    If both have the same names, whatever their case and order, fields of one name belong together,
    as in DuckDB; else those of one position.

    >>> field_order(pa.struct({"a": pa.int8(), "b": pa.int8()}), pa.struct({"B": pa.int8(),
    ...     "a": pa.int8()}))
    [1, 0]
    """
    names = [field.name.casefold() for field in source]
    target_names = [field.name.casefold() for field in target]
    if len(set(names)) < len(names) or sorted(names) != sorted(target_names):
        return list(range(len(names)))
    return [names.index(name) for name in target_names]


def matched_part_types(source: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
    """Return the types in a nested type, in the order of those in another one of its kind."""
    parts = part_types(source)
    if not pa.types.is_struct(source):
        return parts
    return [parts[position] for position in field_order(source, target)]


def with_parts(type: pa.DataType, parts: Sequence[pa.DataType]) -> pa.DataType:
    """Return a nested type of the same kind with other parts, in its usual layout.

    >>> with_parts(pa.large_list(pa.int8()), [pa.int64()])
    ListType(list<item: int64>)
    """
    if pa.types.is_struct(type):
        return pa.struct(list(zip((field.name for field in type), parts, strict=True)))
    if pa.types.is_map(type):
        return pa.map_(*parts)
    return pa.list_(*parts)
