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
from circuits.sql.binding.clause import Clause, Reader, is_aggregate
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.postgres.numbers import bits_of, is_numeric
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.enum_type import EnumType
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_interval, is_text

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
    kind, leaf = clause.json_kind(value), _leaf_type(value.type)
    if kind and is_text(leaf):
        return string_literal(f"{kind}[]" if is_list(value.type) else kind)
    if isinstance(inner, exp.Cast) and (written := _written_name(inner.to)):
        return string_literal(written)
    if pa.types.is_integer(value.type):
        return string_literal(_name_of_integer(clause, node, inner, value))
    is_plain = isinstance(inner, exp.Cast | exp.Column)
    if is_list(value.type) and not is_plain and _is_number(leaf):
        raise clause.source.unsupported(
            node, "pg_typeof() of a list of computed numbers", "take a column, or cast it"
        )
    if pa.types.is_float64(value.type) and not is_plain:
        return string_literal(_name_of_float(clause, node, inner, value))
    return string_literal(_name_of(clause, node, value.type))


def _name_of_integer(clause: Clause, node: exp.Expr, operand: exp.Expr, value: Expression) -> str:
    """Return the type of an integer; a minus does not change that of a column or a cast."""
    while isinstance(operand, exp.Neg | exp.Paren):
        operand = operand.this
    if not isinstance(operand, exp.Literal | exp.Cast | exp.Column):
        raise clause.source.unsupported(
            node, "pg_typeof() of a computed integer", "take a column, a literal or a CAST"
        )
    if not isinstance(operand, exp.Literal):
        value = clause.read(operand)
    return _INTEGERS.get(bits_of(operand, value), "smallint")


def _name_of_float(clause: Clause, node: exp.Expr, argument: exp.Expr, value: Expression) -> str:
    """Return the type of a number that is a float here, but maybe a numeric in PostgreSQL."""
    if isinstance(argument, exp.Anonymous) and argument.name.casefold() in _FLOAT_FUNCTIONS:
        return "double precision"
    if isinstance(argument, _FUNCTIONS_OF_INTEGERS):
        parts = [part for part in argument.args.values() if isinstance(part, exp.Expr)]
        if all(pa.types.is_integer(clause.read(part).type) for part in parts):
            return "double precision"
    is_known = all(map(_is_known_part, argument.walk(prune=_has_type)))
    if not is_known:
        raise clause.source.unsupported(node, "pg_typeof() of a computed number", "cast the value")
    return "numeric" if is_numeric(clause, argument, value) else "double precision"


def _is_known_part(node: exp.Expr) -> bool:
    """Return whether `is_numeric` knows the type of a part of an expression."""
    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    if is_aggregate(node):
        return isinstance(node.this, exp.Column | exp.Cast)
    return isinstance(node, _KNOWN_PARTS)


def _has_type(node: exp.Expr) -> bool:
    own_types = (exp.Cast, exp.Column, exp.Window, exp.Filter)
    return isinstance(node, own_types) or is_aggregate(node)


#: Functions that return a float for all numbers.
_FLOAT_FUNCTIONS: Final = frozenset(
    ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "pi", "cbrt", "degrees", "radians")
)
#: Functions that return a numeric only for a numeric.
_FUNCTIONS_OF_INTEGERS: Final = (exp.Sqrt, exp.Ln, exp.Exp, exp.Pow)
_KNOWN_PARTS: Final = (
    *(exp.Cast, exp.Column, exp.Literal, exp.Paren, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div),
)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def _leaf_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the elements of a list, at its deepest level, or the type itself."""
    while is_list(data_type):
        data_type = data_type.value_type
    return data_type


def _written_name(written: exp.DataType) -> str | None:
    """Return the name of a type, or of lists of a type, that is a text here."""
    if written.this != exp.DType.ARRAY:
        return _WRITTEN_TYPES.get(written.this)
    element = written.expressions[0] if written.expressions else None
    name = _written_name(element) if isinstance(element, exp.DataType) else None
    return name and name.removesuffix("[]") + "[]"


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
