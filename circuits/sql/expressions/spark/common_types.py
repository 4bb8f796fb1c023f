"""The type to which dialect spark casts operands of different types, as Spark does in ANSI mode.

============================================ =====================================================
operands                                     common type
============================================ =====================================================
a text and integers                          BIGINT
a text and other numbers                     DOUBLE
a text and a boolean, a date or a timestamp  that of the other operand
a FLOAT and a number of another type         DOUBLE
a decimal and an integer or another decimal  a decimal with the most digits of both on each side of
                                             the point; of more than 38, the last ones are dropped
a date or a TIMESTAMP_NTZ, and a TIMESTAMP   TIMESTAMP
============================================ =====================================================

It applies to comparisons, CASE, `coalesce` and its relatives, lists, and set operations. A text
that is no such value is an error of the step. Literals are cast by the functions themselves, except
next to decimals: an INT has 10 digits there, also the literal 0.

Reference: `AnsiTypeCoercion` in Spark 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.errors import FunctionError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions import common_type
from circuits.types.functions.type_rules import (
    digits_of,
    is_interval,
    is_number,
    is_temporal,
    is_text,
)

__all__ = ["cast_to_common_type", "widened_type"]

_MAX_DIGITS: Final = 38
_MOMENT: Final = pa.timestamp("us", "UTC")
# The functions whose arguments get one type; those of CASE include conditions, which do not.
_UNIFYING_FUNCTIONS: Final = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "same", "in"}
    | {"case", "coalesce", "greatest", "least", "make_list"}
)
# Of these, the functions whose result has the common type.
_RESULT_FUNCTIONS: Final = frozenset({"case", "coalesce", "greatest", "least", "make_list"})
# Of these, the functions that take no texts next to other values.
_STRICT_FUNCTIONS: Final = frozenset({"greatest", "least"})


def widened_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the common type of some types in Spark.

    Raises:
        FunctionError: They have none.

    >>> widened_type([pa.int32(), pa.string()])
    DataType(int64)
    >>> widened_type([pa.date32(), pa.timestamp("us", "UTC")])
    TimestampType(timestamp[us, tz=UTC])
    """
    known = [type for type in types if not arrow.is_null(type)] or [pa.null()]
    # Spark begins with the texts.
    return reduce(_widen, sorted(known, key=lambda type: not is_text(type)))


def _widen(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if is_text(left) and is_number(right):
        return pa.int64() if arrow.is_integer(right) else pa.float64()
    if is_text(left) and (is_temporal(right) or arrow.is_boolean(right)):
        return right
    pair = (left, right)
    if left != right and all(map(is_interval, pair)):
        raise FunctionError(
            "an interval of months and one of days or shorter units have no common type; "
            "compare or combine intervals of one kind"
        )
    if all(map(is_temporal, pair)) and any(arrow.is_timestamp(t) and t.tz for t in pair):
        return _MOMENT
    if all(map(is_number, pair)) and any(map(arrow.is_decimal, pair)):
        return common_type(pair) if any(map(arrow.is_floating, pair)) else _wider_decimal(pair)
    return common_type(pair)


def _wider_decimal(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the common type of decimals and integers: at most 38 digits, whole ones first."""
    # A BIGINT has at most 19 digits, and 20 in Spark.
    digits = [(20, 0) if type == pa.int64() else digits_of(type) for type in types]
    scale = max(scale for _, scale in digits)
    precision = max(precision - scale for precision, scale in digits) + scale
    excess = max(precision - _MAX_DIGITS, 0)
    return pa.decimal128(precision - excess, max(scale - excess, 0))


def cast_to_common_type(
    clause: Clause, node: exp.Expr, function: str, arguments: Sequence[Expression]
) -> tuple[Expression, ...]:
    """Return the arguments of a function with those casts that the function does not do itself."""
    if function not in _UNIFYING_FUNCTIONS:
        return tuple(arguments)
    count = len(arguments)
    is_value = [function != "case" or n % 2 == 1 or n == count - 1 for n in range(count)]
    values = [part for part, is_unified in zip(arguments, is_value, strict=True) if is_unified]
    # The functions cast literals to the type of the other arguments, except next to decimals, which
    # Spark compares with a text as DOUBLE: 1.5 = '1.50d'.
    is_strict = function in _STRICT_FUNCTIONS
    has_decimal = not is_strict and any(arrow.is_decimal(value.type) for value in values)
    types = [
        value.type
        for value in values
        if has_decimal or not (is_text(value.type) and _is_literal(value))
    ]
    has_mixed_text = not is_strict and (
        any(map(is_text, types)) and not all(is_text(type) or arrow.is_null(type) for type in types)
    )
    has_moment = any(arrow.is_timestamp(type) and type.tz is not None for type in types)
    numbers = {type for type in types if is_number(type)}
    # The literal 0.1 would be compared as the FLOAT that is nearest to it.
    has_float = pa.float32() in numbers and len(numbers) > 1
    has_mixed_decimal = (
        function in _RESULT_FUNCTIONS and any(map(arrow.is_decimal, numbers)) and len(numbers) > 1
    )
    has_two_intervals = INTERVAL in types and any(map(arrow.is_duration, types))
    is_mixed = has_mixed_text or has_mixed_decimal or has_moment or has_float or has_two_intervals
    if not is_mixed:
        return tuple(arguments)
    with clause.source.errors_at(node):
        target = widened_type(types)
    return tuple(
        _cast(clause, node, part, target, casts_literals=has_decimal) if is_unified else part
        for part, is_unified in zip(arguments, is_value, strict=True)
    )


def _is_literal(value: Expression) -> bool:
    return isinstance(value, Literal)


def _cast(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    target: pa.DataType,
    *,
    casts_literals: bool,
) -> Expression:
    is_cast = value.type == target or arrow.is_null(value.type)
    is_literal_text = not casts_literals and _is_literal(value) and is_text(value.type)
    return value if is_cast or is_literal_text else spark_cast(clause, node, value, target)
