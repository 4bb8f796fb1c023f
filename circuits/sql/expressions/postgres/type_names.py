"""``pg_typeof(x)``: the name that a type has in PostgreSQL, as a text.

::

    pg_typeof(1)          integer
    pg_typeof(avg(i))     numeric, although it is a float here
    pg_typeof(ARRAY['a']) text[]
    pg_typeof('a')        unknown
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.postgres.numbers import bits_of, is_numeric
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.enum_type import EnumType
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_interval

__all__ = ["READERS_BY_NAME"]

_INTEGERS: Final = {16: "smallint", 32: "integer", 64: "bigint"}
_NAMES: Final = {
    **{"bool": "boolean", "float": "real", "double": "double precision", "string": "text"},
    **{"large_string": "text", "binary": "bytea", "large_binary": "bytea", "date32[day]": "date"},
    **{"int16": "smallint", "int32": "integer", "int64": "bigint", "int8": "smallint"},
}


def _read_type_name(clause: Clause, node: exp.Anonymous) -> Expression:
    if len(node.expressions) != 1:
        raise clause.source.error(node, "pg_typeof() takes 1 argument")
    argument = node.expressions[0]
    value = clause.read(argument)
    inner = argument.unnest()
    if pa.types.is_null(value.type) or (isinstance(inner, exp.Literal) and inner.is_string):
        return string_literal("unknown")
    if kind := clause.json_kind(value):
        return string_literal(kind)
    if isinstance(inner, exp.Cast) and inner.to.this in _WRITTEN_TYPES:
        return string_literal(_WRITTEN_TYPES[inner.to.this])
    if pa.types.is_integer(value.type):
        if not isinstance(inner, exp.Literal | exp.Neg | exp.Cast | exp.Column):
            raise clause.source.unsupported(
                node, "pg_typeof() of a computed integer", "take a column, a literal or a CAST"
            )
        return string_literal(_INTEGERS.get(bits_of(argument, value), "smallint"))
    is_computed_list = is_list(value.type) and not isinstance(inner, exp.Cast | exp.Column)
    if is_computed_list and "int" in str(value.type):
        raise clause.source.unsupported(
            node, "pg_typeof() of a list of computed integers", "take a column, or cast it"
        )
    if pa.types.is_float64(value.type) and is_numeric(clause, argument, value):
        return string_literal("numeric")
    return string_literal(_name_of(clause, node, value.type))


#: Types that are texts here.
_WRITTEN_TYPES: Final = {
    **{exp.DType.VARCHAR: "character varying", exp.DType.CHAR: "character"},
    **{exp.DType.UUID: "uuid", exp.DType.BPCHAR: "character"},
    **{exp.DType.JSON: "json", exp.DType.JSONB: "jsonb"},
}


def _name_of(clause: Clause, node: exp.Expr, data_type: pa.DataType) -> str:
    if is_list(data_type):
        return _name_of(clause, node, data_type.value_type).removesuffix("[]") + "[]"
    if pa.types.is_decimal(data_type):
        return "numeric"
    if pa.types.is_timestamp(data_type):
        return f"timestamp with{'' if data_type.tz else 'out'} time zone"
    if pa.types.is_time(data_type):
        return "time without time zone"
    if data_type == INTERVAL or is_interval(data_type) or pa.types.is_duration(data_type):
        return "interval"
    if pa.types.is_struct(data_type):
        return "record"
    name = _NAMES.get(str(data_type))
    if name is None or isinstance(data_type, EnumType):
        raise clause.source.unsupported(node, f"pg_typeof() of {data_type}", "cast the value")
    return name


READERS_BY_NAME: Final[dict[str, Reader]] = {"pg_typeof": _read_type_name}
