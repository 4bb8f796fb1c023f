"""The Arrow types of SQL type names.

The widths are those of DuckDB: ``INT`` has 32 bits, a ``TIMESTAMP`` counts microseconds,
``DECIMAL`` alone is ``DECIMAL(18, 3)``, in dialect spark ``DECIMAL(10, 0)``. As in DuckDB, the
length in ``VARCHAR(n)`` or ``VARBINARY(n)`` has no effect.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.json_values import struct_json_kind
from circuits.sql.syntax.parsing import NAME_IN_TEXT
from circuits.sql.syntax.remedies import type_remedy
from circuits.sql.syntax.source import SqlSource
from circuits.types.arrow_types import SQL_TYPES
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.enum_type import EnumType

__all__ = ["PADDED_TEXTS", "arrow_type", "has_required_field", "interval_fields"]

ARROW_TYPES: Final[dict[exp.DType, pa.DataType]] = {
    **{exp.DType[name]: type for name, type in SQL_TYPES.items()},
    # A number that PostgreSQL draws from a sequence; here it is a column of the input.
    exp.DType.SMALLSERIAL: pa.int16(),
    exp.DType.SERIAL: pa.int32(),
    exp.DType.BIGSERIAL: pa.int64(),
    exp.DType.NAME: pa.string(),
}
# Names of DuckDB that sqlglot does not know.
DUCKDB_TYPES: Final[dict[str, pa.DataType]] = {
    "integral": pa.int32(),
    "nvarchar": pa.string(),
    "oid": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
}


# The precision and the scale of DECIMAL without parameters, in DuckDB and in Spark.
DEFAULT_DECIMAL: Final = (18, 3)
DEFAULT_DECIMAL_OF_SPARK: Final = (10, 0)
MAX_PRECISION: Final = 38

#: Types of texts whose values PostgreSQL pads with blanks, which have no meaning.
PADDED_TEXTS: Final = frozenset({exp.DType.CHAR, exp.DType.NCHAR, exp.DType.BPCHAR})
# Types whose parameter is a length, which has no effect.
SIZED_TYPES: Final = frozenset(
    {
        *(*PADDED_TEXTS, exp.DType.VARCHAR, exp.DType.NVARCHAR),
        *(exp.DType.TEXT, exp.DType.BINARY, exp.DType.VARBINARY),
    }
)
# Timestamps without a time zone, whose parameter is the number of digits of a second.
WALL_CLOCK_TYPES: Final = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ})

#: A HUGEINT has 128 bits, up to 1.7e38; here it has 38 digits.
HUGEINT: Final = pa.decimal128(MAX_PRECISION, 0)


#: What may follow the type of a field of a struct. NOT NULL is not checked.
FIELD_CONSTRAINTS: Final = (exp.NotNullColumnConstraint, exp.CommentColumnConstraint)


def has_required_field(node: exp.DataType) -> bool:
    """Return whether a type has a field with NOT NULL, such as ``STRUCT(a INT NOT NULL)``."""
    constraints = node.find_all(exp.NotNullColumnConstraint)
    return any(not constraint.args.get("allow_null") for constraint in constraints)


def arrow_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the target type of a CAST.

    Raises:
        SqlError: A decimal has no such precision.
        UnsupportedSqlError: No column can have the type.
    """
    source.allow_arguments(node, "this", "expressions", "nested", "values", "kind")
    kind = node.this
    if isinstance(kind, exp.Interval):
        return _interval_type(source, kind)
    if source.types and not node.expressions:
        name = node.args.get("kind")
        if kind != exp.DType.USERDEFINED:  # a name that sqlglot knows, such as POINT
            name = node.meta.get(NAME_IN_TEXT, "")
        name = name.name if isinstance(name, exp.Identifier) else str(name)
        declared = _declared_type(source, node, name)
        if declared is not None:
            return declared
    if kind in (exp.DType.ARRAY, exp.DType.LIST, exp.DType.STRUCT, exp.DType.MAP):
        return _nested_type(source, node)
    if kind in (exp.DType.JSON, exp.DType.JSONB):
        return pa.string()
    if kind == exp.DType.DECIMAL:
        return _decimal_type(source, node)
    if kind in (exp.DType.ENUM, exp.DType.ENUM8, exp.DType.ENUM16) and node.expressions:
        return _enum_type(source, node)
    if kind == exp.DType.INT128 and not source.is_spark:
        return HUGEINT
    if all(isinstance(parameter, exp.DataTypeParam) for parameter in node.expressions):
        for parameter in node.expressions:
            _read_parameter(source, parameter)  # an error about it precedes one about the type
        is_sized = len(node.expressions) == 1 or (kind in PADDED_TEXTS and source.is_postgres)
        if kind in SIZED_TYPES and is_sized:
            return pa.binary() if "BINARY" in kind.name else pa.string()
        if kind in WALL_CLOCK_TYPES and len(node.expressions) == 1 and not source.is_spark:
            return _timestamp_type(source, node)
    if kind == exp.DType.INTERVAL and source.is_spark:
        raise source.unsupported(
            node, "type INTERVAL", "write INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND"
        )
    if kind not in ARROW_TYPES or node.expressions or node.args.get("nested"):
        types = ", ".join(sorted([*(type.value for type in ARROW_TYPES), "DECIMAL(p, s)"]))
        name = node.meta.get(NAME_IN_TEXT) or source.text_of(node)
        if not source.is_spark and str(name).lower() in DUCKDB_TYPES:
            return DUCKDB_TYPES[str(name).lower()]
        remedy = type_remedy(str(name)) or f"types: {types}"
        raise source.unsupported(node, f"type {name}", remedy)
    return ARROW_TYPES[kind]


def json_kind_of_type(source: SqlSource, node: exp.DataType) -> str:
    """Return the kind of JSON of the values of a type, as in `circuits.plan.json_values`.

    That of PostgreSQL's type of normalised JSON is "jsonb".
    """
    parts = [part for part in node.expressions if isinstance(part, exp.DataType | exp.ColumnDef)]
    types = [part if isinstance(part, exp.DataType) else part.kind for part in parts]
    kinds = ["" if type is None else json_kind_of_type(source, type) for type in types]
    if node.this in (exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP) and kinds:
        return kinds[-1]
    if node.this == exp.DType.STRUCT:
        return struct_json_kind(dict(enumerate(kinds)))
    if node.this not in (exp.DType.JSON, exp.DType.JSONB):
        return ""
    return "jsonb" if source.is_postgres and node.this == exp.DType.JSONB else "json"


def interval_fields(kind: exp.Interval) -> tuple[str, str]:
    """Return the first and the last field of a type such as ``INTERVAL YEAR TO MONTH``."""
    unit = kind.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return unit.this.name.upper(), unit.expression.name.upper()
    return (unit.name.upper(),) * 2 if unit is not None else ("", "")


def _interval_type(source: SqlSource, kind: exp.Interval) -> pa.DataType:
    """Return the type of ``INTERVAL YEAR TO MONTH`` or ``INTERVAL DAY TO SECOND``.

    In dialect spark, these are two types; in others, the fields have no effect.
    """
    source.mark_read(kind)
    has_months = interval_fields(kind)[0] in ("YEAR", "MONTH")
    return INTERVAL if has_months or not source.is_spark else pa.duration("us")


def _declared_type(source: SqlSource, node: exp.DataType, name: str) -> pa.DataType | None:
    """Return a type that CREATE TYPE declares; None if it declares no type of this name."""
    text = source.types.get(name.casefold())
    if text is None:
        return None
    definition = f"STRUCT{text}" if text.startswith("(") else text
    declared: exp.Expr | None = None
    table = f"CREATE TABLE t (c {definition})"
    with suppress(SqlError):
        declared = SqlSource(table, "duckdb").parse()[0].find(exp.DataType)
    if not isinstance(declared, exp.DataType):
        raise source.unsupported(
            node, f"the definition of type {name}", "write AS (name TYPE, ...)"
        )
    shift = source.text.find(text) - table.find(text)  # errors point to the definition
    for part in declared.walk():
        part.meta.update(
            {key: part.meta[key] + shift for key in ("start", "end") if key in part.meta}
        )
    inner = SqlSource(source.text, source.dialect)
    # Without the type itself, which cannot contain itself.
    inner.types = {key: value for key, value in source.types.items() if key != name.casefold()}
    return arrow_type(inner, declared)


def _timestamp_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the type of ``TIMESTAMP(digits)``, with the unit that DuckDB gives it."""
    digits = _read_parameter(source, node.expressions[0])
    for unit, limit in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9)):
        if digits <= limit:
            return pa.timestamp(unit)
    raise source.error(node, f"a timestamp has at most 9 digits of a second, not {digits}")


def _decimal_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the type of ``DECIMAL``, ``DECIMAL(precision)`` or ``DECIMAL(precision, scale)``."""
    parameters = [_read_parameter(source, parameter) for parameter in node.expressions]
    precision, scale = DEFAULT_DECIMAL_OF_SPARK if source.is_spark else DEFAULT_DECIMAL
    if parameters:
        precision, scale = (*parameters, 0)[:2]
    if len(parameters) > 2 or not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        name = node.meta.get(NAME_IN_TEXT) or node.sql()
        raise source.error(
            node, f"invalid type {name}; precision is 1 to {MAX_PRECISION}, scale 0 to precision"
        )
    return pa.decimal128(precision, scale)


def _nested_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the type of ``INT[]``, ``INT[3]``, ``STRUCT(a INT)`` or ``MAP(VARCHAR, INT)``."""
    kind, parts = node.this, node.expressions
    if kind == exp.DType.STRUCT:
        fields = []
        for part in parts:
            if not isinstance(part, exp.ColumnDef):
                raise source.unsupported(node, "a struct without names", "name its fields")
            source.allow_arguments(part, "this", "kind", "constraints")
            for constraint in part.args.get("constraints") or []:
                if not isinstance(constraint.kind, FIELD_CONSTRAINTS):
                    construct = source.describe(constraint.kind).removesuffix(" COLUMN CONSTRAINT")
                    raise source.unsupported(part, f"{construct} of a field", "leave it out")
                source.mark_read(constraint)
            fields.append((part.name, arrow_type(source, part.args["kind"])))
        return pa.struct(fields)
    text = str(node.meta.get(NAME_IN_TEXT, ""))
    if text.endswith("]") and len(parts) == 1:
        # Errors about the type of the elements show it as it was written.
        parts[0].meta.setdefault(NAME_IN_TEXT, text.rpartition("[")[0].strip())
    types = [arrow_type(source, part) for part in parts if isinstance(part, exp.DataType)]
    if len(types) != (2 if kind == exp.DType.MAP else 1):
        raise source.unsupported(
            node, f"type {kind.value} of {len(types)} types", "write INT[] or MAP(VARCHAR, INT)"
        )
    if kind == exp.DType.MAP:
        return pa.map_(*types)
    sizes = node.args.get("values") or []
    return pa.list_(*types, *(_read_size(source, size) for size in sizes))


def _enum_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the type of ``ENUM ('a', 'b')``."""
    labels = []
    for label in node.expressions:
        if not isinstance(label, exp.Literal) or not label.is_string:
            raise source.unsupported(node, "a label of an ENUM that is no text", "write ENUM ('a')")
        source.allow_arguments(label, "this", "is_string")
        if label.this in labels:
            raise source.error(node, f"the label {label.this!r} occurs twice in an ENUM")
        labels.append(label.this)
    return EnumType(labels)


def _read_size(source: SqlSource, node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or not node.is_int:
        raise source.error(node, f"{node.sql()} is not a number of elements")
    source.allow_arguments(node, "this", "is_string")
    return int(node.this)


def _read_parameter(source: SqlSource, node: exp.Expr) -> int:
    source.allow_arguments(node, "this")
    if not isinstance(node, exp.DataTypeParam) or not node.this.is_int:
        raise source.error(node, f"{node.sql()} is not a number of digits")
    return int(node.this.this)
