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
from circuits.types.arrow_types import SQL_TYPES

__all__ = ["arrow_type"]

ARROW_TYPES: Final[dict[exp.DType, pa.DataType]] = {
    exp.DType[name]: type for name, type in SQL_TYPES.items()
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
