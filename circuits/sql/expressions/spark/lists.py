"""Functions of lists in dialect spark, composed of functions that both dialects have."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    call_of,
    check_count,
    coerce,
    count_error,
)
from circuits.types.functions.nested.list_rules import is_list

__all__ = ["BUILDERS", "unless_null"]

_ZERO: Final = integer_literal(0)
_ONE: Final = integer_literal(1)


def unless_null(
    clause: Clause, node: exp.Expr, value: Expression, *arguments: Expression
) -> Expression:
    """Return a value, or NULL if one of the arguments is NULL."""
    if not arguments:
        return value
    tests = [clause.call(node, "is_null", argument) for argument in arguments]
    condition = tests[0] if len(tests) == 1 else clause.call(node, "or", *tests)
    return clause.call(node, "case", condition, NULL, value)


def _arrays_zip(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``arrays_zip``; a field has the name of its column, or else its number."""
    if not arguments:
        raise count_error(clause, node, "1 or more")
    arguments = [
        clause.call(node, "cast", argument, type=pa.list_(pa.null()))
        if pa.types.is_null(argument.type)
        else argument
        for argument in arguments
    ]
    zipped = clause.call(node, "list_zip", *arguments)
    names = [
        part.name if isinstance(part, exp.Column | exp.Dot) else str(number)
        for number, part in enumerate(node.expressions)
    ]
    if len({name.casefold() for name in names}) < len(names):
        raise clause.source.unsupported(
            node, "arrays_zip() of columns of one name", "rename one of them in a subquery in FROM"
        )
    types = [argument.type.value_type for argument in arguments]
    named_type = pa.list_(pa.struct(list(zip(names, types, strict=True))))
    renamed = clause.call(node, "cast", zipped, type=named_type)
    return unless_null(clause, node, renamed, *arguments)


def _array_insert(
    clause: Clause, node: exp.Expr, values: Expression, position: Expression, item: Expression
) -> Expression:
    """Read ``array_insert``; a position beyond an end fills the gap with NULL.

    ::

        p = position, or length + 2 + position if it is negative
        array_insert = values[1 : p - 1], NULL..., item, NULL..., values[p : length]
    """
    if not is_list(values.type):
        raise clause.source.error(
            node, f"array_insert() takes a list, not a value of {values.type}"
        )
    (position,) = coerce(clause, node, [position], "i")

    def call(function: str, *arguments: Expression) -> Expression:
        return clause.call(node, function, *arguments)

    def nulls(count: Expression) -> Expression:
        return call("list_repeat", Literal(None, item.type), call("greatest", count, _ZERO))

    length = call("length", values)
    error = call("raise_error", string_literal("the position of array_insert() is 0"))
    zero_error = clause.call(node, "cast", error, type=pa.int64())
    from_end = call("add", call("add", length, integer_literal(2)), position)
    p = call(
        "case",
        *(call("eq", position, _ZERO), zero_error),
        *(call("lt", position, _ZERO), from_end),
        position,
    )
    count_before = call("subtract", p, _ONE)
    parts = (
        call("list_slice", values, _ONE, call("greatest", count_before, _ZERO)),
        nulls(call("subtract", count_before, length)),
        call("make_list", item),
        nulls(call("subtract", _ONE, p)),
        call("list_slice", values, call("greatest", p, _ONE), length),
    )
    return unless_null(clause, node, call("list_concat_or_null", *parts), values, position)


BUILDERS: Final[dict[str, Builder]] = {
    "array_insert": check_count(3, _array_insert),
    "arrays_zip": _arrays_zip,
    "map_concat": call_of("map_concat"),
}
