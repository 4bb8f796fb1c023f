"""The Arrow types of SQL type names.

The widths are those of DuckDB: ``INT`` has 32 bits, a ``TIMESTAMP`` counts microseconds,
``DECIMAL`` alone is ``DECIMAL(18, 3)``. As in DuckDB, the length in ``VARCHAR(n)`` has no effect.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.sql.parsing import WRITTEN
from circuits.sql.source import SqlSource

__all__ = ["arrow_type"]

ARROW_TYPES: Final[dict[exp.DType, pa.DataType]] = {
    exp.DType.BIGINT: pa.int64(),
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.DATE: pa.date32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.INT: pa.int32(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.TEXT: pa.string(),
    exp.DType.TIME: pa.time64("us"),
    exp.DType.TIMESTAMP: pa.timestamp("us"),
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    exp.DType.TIMESTAMP_MS: pa.timestamp("ms"),
    exp.DType.TIMESTAMP_NS: pa.timestamp("ns"),
    exp.DType.TIMESTAMP_S: pa.timestamp("s"),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.UBIGINT: pa.uint64(),
    exp.DType.UINT: pa.uint32(),
    exp.DType.USMALLINT: pa.uint16(),
    exp.DType.UTINYINT: pa.uint8(),
    exp.DType.VARBINARY: pa.binary(),
    exp.DType.VARCHAR: pa.string(),
}


def arrow_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    """Return the target type of a CAST.

    Raises:
        SqlError: A decimal has no such precision.
        UnsupportedSqlError: No column can have the type.
    """
    source.accept(node, "this", "expressions", "nested")
    kind = node.this
    plain = all(isinstance(parameter, exp.DataTypeParam) for parameter in node.expressions)
    parameters = [_read_parameter(source, each) for each in node.expressions] if plain else []
    if kind == exp.DType.DECIMAL:
        precision, scale, *more = [*parameters, 0, 0] if parameters else [18, 3]
        if not 0 <= scale <= precision <= 38 or not precision or any(more):
            name = node.meta.get(WRITTEN) or node.sql()
            raise source.error(node, f"no type {name}; precision is 1 to 38, scale 0 to precision")
        return pa.decimal128(precision, scale)
    if kind not in ARROW_TYPES or node.expressions or node.args.get("nested"):
        known = ", ".join(sorted([*(known.value for known in ARROW_TYPES), "DECIMAL(p, s)"]))
        name = node.meta.get(WRITTEN) or node.sql(dialect=source.dialect)
        raise source.unsupported(node, f"type {name}", f"there are: {known}")
    return ARROW_TYPES[kind]


def _read_parameter(source: SqlSource, node: exp.Expr) -> int:
    source.accept(node, "this")
    if not isinstance(node, exp.DataTypeParam) or not node.this.is_int:
        raise source.error(node, f"{node.sql()} is no number of digits")
    return int(node.this.this)
