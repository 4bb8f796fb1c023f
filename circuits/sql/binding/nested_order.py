"""The order of structs and lists in dialect spark, where NULL within them is the least value.

The engine orders NULL within nested values last, as DuckDB does. So Spark's order of values is the
engine's order of their *order keys*, in which a flag is in front of each part::

    struct(1, NULL)     struct(true, 1, false, NULL)
    array(1, NULL)      array(struct(true, 1), struct(false, NULL))
"""

from __future__ import annotations

import pyarrow as pa

from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.binding.scope import FIRST_KEY_PARAMETER
from circuits.types import functions
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list

__all__ = ["has_order_key", "order_key", "value_of_key"]

_NULL = Literal(None, pa.null())


def has_order_key(type_: pa.DataType) -> bool:
    """Return whether a type is a struct or a list, with no map within it."""
    if pa.types.is_struct(type_):
        return all(_is_orderable(field.type) for field in type_)
    return is_list(type_) and _is_orderable(type_.value_type)


def _is_orderable(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_) or has_order_key(type_)


def order_key(value: Expression, level: int = 0) -> Expression:
    """Return a value whose order is that of Spark; a value that is not nested as it is.

    Args:
        value: A value for whose type `has_order_key` is true, or a part of one.
        level: The number of lists around the value.
    """
    call = functions.call
    if pa.types.is_struct(value.type):
        parts = [
            part
            for number in range(value.type.num_fields)
            for part in _key_fields(number, _field(value, number), level)
        ]
        return call("case", call("is_null", value), _NULL, call("make_struct", *parts))
    if not is_list(value.type):
        return value
    first = FIRST_KEY_PARAMETER + 2 * level
    element = Column(first, value.type.value_type)
    body = call("make_struct", *_key_fields(0, element, level + 1))
    return lambda_call("list_transform", value, body, (first, first + 1))


def value_of_key(key: Expression, type_: pa.DataType, level: int = 0) -> Expression:
    """Return the value with an order key: the inverse of `order_key`.

    Args:
        key: The order key.
        type_: The type of the value.
        level: The number of lists around the value.
    """
    call = functions.call
    if pa.types.is_struct(type_):
        parts: list[Expression] = []
        for number, field in enumerate(type_):
            part = value_of_key(_field(key, 2 * number + 1), field.type, level)
            parts += [Literal(field.name, pa.string()), part]
        return call("case", call("is_null", key), _NULL, call("make_struct", *parts))
    if not is_list(type_):
        return key
    first = FIRST_KEY_PARAMETER + 2 * level
    element = _field(Column(first, key.type.value_type), 1)
    body = value_of_key(element, type_.value_type, level + 1)
    return lambda_call("list_transform", key, body, (first, first + 1))


def _key_fields(number: int, value: Expression, level: int) -> tuple[Expression, ...]:
    """Return the arguments of `make_struct` for a part: two names, each with its value.

    The first value is the flag, true unless the part is NULL; the second one is its order key.
    """
    flag = functions.call("not", functions.call("is_null", value))
    names = (Literal(f"{kind}{number}", pa.string()) for kind in ("flag", "value"))
    return (next(names), flag, next(names), order_key(value, level))


def _field(value: Expression, number: int) -> Expression:
    return functions.call("struct_field", value, Literal(number + 1, pa.int64()))
