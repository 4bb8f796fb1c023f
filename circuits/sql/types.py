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
    source.accept(node, "this", "expressions", "nested", "values")
    kind = node.this
    if kind in (exp.DType.ARRAY, exp.DType.LIST, exp.DType.STRUCT, exp.DType.MAP):
        return _nested_type(source, node)
    if kind == exp.DType.JSON:
        return pa.string()
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


def _nested_type(source: SqlSource, node: exp.DataType) -> pa.DataType:
    kind, parts = node.this, node.expressions
    if kind == exp.DType.STRUCT:
        fields = []
        for part in parts:
            if not isinstance(part, exp.ColumnDef):
                raise source.unsupported(node, "a struct without names", "name its fields")
            source.accept(part, "this", "kind", "constraints")
            fields.append((part.name, arrow_type(source, part.args["kind"])))
        return pa.struct(fields)
    types = [arrow_type(source, part) for part in parts if isinstance(part, exp.DataType)]
    if len(types) != (2 if kind == exp.DType.MAP else 1):
        raise source.unsupported(
            node, f"type {kind.value} of {len(types)} types", "write INT[] or MAP(VARCHAR, INT)"
        )
    if kind == exp.DType.MAP:
        return pa.map_(*types)
    sizes = node.args.get("values") or []
    return pa.list_(*types, *(_read_size(source, size) for size in sizes))


def _read_size(source: SqlSource, node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or not node.is_int:
        raise source.error(node, f"{node.sql()} is no number of elements")
    source.accept(node, "this", "is_string")
    return int(node.this)


def _read_parameter(source: SqlSource, node: exp.Expr) -> int:
    source.accept(node, "this")
    if not isinstance(node, exp.DataTypeParam) or not node.this.is_int:
        raise source.error(node, f"{node.sql()} is no number of digits")
    return int(node.this.this)
