"""Comparisons: NULL if a side is NULL, and a total order on all other values.

Floats: NaN = NaN, NaN is greater than all others, -0.0 = 0.0. Text and bytes compare by bytes.
Columns of different types whose equal values have equal codes, such as two integer types or two
text types, are compared without a cast, so that a join can compare their codes. Intervals with
months are in the order of their lengths, but only those of equal parts are equal; the comparisons
of SQL compare ``interval_key`` instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Column, Expression, Literal
from circuits.types.arrow_types import is_nested
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.intervals import INTERVAL, interval_bytes
from circuits.types.codecs.nested import ranks
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import adapt, cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import common_type, is_binary, is_text, kernel_type

__all__ = ["FUNCTIONS", "compare", "same"]


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    left, right = _type_nulls(adapt(arguments))
    target = common_type((left.type, right.type))
    if name in ("lt", "le", "gt", "ge") and "map<" in str(target):
        raise argument_error(name, arguments, "maps have no order; compare their parts")
    return tuple(_cast_unless_same_codes(side, target) for side in (left, right)), pa.bool_()


def _in_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, None)
    value, *items = _type_nulls(adapt(arguments))
    if not all(isinstance(item, Literal) for item in items):
        raise argument_error(name, arguments, "the items must be literals; use eq and or")
    target = common_type(argument.type for argument in (value, *items))
    return tuple(cast_to(argument, target) for argument in (value, *items)), pa.bool_()


def _type_nulls(arguments: Arguments) -> Arguments:
    if all(arrow.is_null(argument.type) for argument in arguments):
        return tuple(cast_to(argument, pa.bool_()) for argument in arguments)
    return arguments


def _cast_unless_same_codes(side: Expression, target: pa.DataType) -> Expression:
    """Return a column unchanged if its codes are those of ``target``; cast other sides."""
    if isinstance(side, Column) and _has_same_codes(side.type, target):
        return side
    return cast_to(side, target)


def _has_same_codes(left: pa.DataType, right: pa.DataType) -> bool:
    """Return True if equal values of both types have equal codes (`Codec.code_space`)."""
    if arrow.is_integer(left) and arrow.is_integer(right):
        return bool(arrow.is_uint64(left) == arrow.is_uint64(right))
    if arrow.is_decimal(left) and arrow.is_decimal(right):
        are_narrow = (left.precision <= 18, right.precision <= 18)
        return bool(left.scale == right.scale and are_narrow[0] == are_narrow[1])
    if arrow.is_timestamp(left) and arrow.is_timestamp(right):
        return bool(left.unit == right.unit and (left.tz is None) == (right.tz is None))
    return left == right or any(
        is_kind(left) and is_kind(right) for is_kind in (is_text, is_binary)
    )


def _cast_to_common(arguments: Sequence[Values]) -> list[Values]:
    if len({argument.type for argument in arguments}) == 1:
        return list(arguments)
    target = kernel_type(common_type(argument.type for argument in arguments))
    return [_convert_values(argument, target) for argument in arguments]


def _convert_values(values: Values, target: pa.DataType) -> Values:
    if isinstance(values, pa.Scalar):
        return convert(pa.repeat(values, 1), target)[0]
    return convert(values, target)


def compare(name: str, left: Values, right: Values) -> Values:
    """Evaluate eq, ne, lt, le, gt or ge in the total order of the module docstring."""
    left, right = _cast_to_common((left, right))
    if name in ("gt", "ge"):
        return compare("lt" if name == "gt" else "le", right, left)
    if name == "ne":
        return pc.invert(compare("eq", left, right))
    if name == "le":
        return pc.invert(compare("lt", right, left))
    if is_nested(left.type):
        return _compare_nested(name, left, right)
    if left.type == INTERVAL:
        rows = row_count((left, right))
        return compare(name, *(interval_bytes(fill_rows(side, rows)) for side in (left, right)))
    result = (pc.equal if name == "eq" else pc.less)(left, right)
    if not arrow.is_floating(left.type):
        return result
    # Arrow's comparisons with NaN are false. In the total order, NaN on the right is equal to NaN
    # and greater than every other value.
    right_nan, left_nan = pc.is_nan(right), pc.is_nan(left)
    nan_result = pc.and_(right_nan, left_nan if name == "eq" else pc.invert(left_nan))
    return pc.or_(result, nan_result)


def _compare_nested(name: str, left: Values, right: Values) -> Values:
    """Evaluate eq or lt of lists, structs or maps; a NULL inside them is the greatest value."""
    rows = row_count((left, right))
    sides = [fill_rows(values, rows) for values in (left, right)]
    both = pa.concat_arrays(sides)
    keys = Codecs().codec(both.type).encode(both) if name == "eq" else ranks(both, Codecs())
    left_keys, right_keys = keys[:rows], keys[rows:]
    is_null = pc.or_(sides[0].is_null(), sides[1].is_null())
    result = pa.array(left_keys == right_keys if name == "eq" else left_keys < right_keys)
    return pc.if_else(is_null, None, result)


def same(left: Values, right: Values) -> Values:
    """Evaluate IS NOT DISTINCT FROM: NULL is the same as NULL, and the result is never NULL."""
    nulls = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(compare("eq", left, right), False), nulls)


def _kernel(name: str) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        return compare(name, *arguments)

    return kernel


def _same(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return same(*arguments)


def _in(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    value, *items = arguments
    not_null = [item for item in items if item.is_valid]
    values = pa.array([item.as_py() for item in not_null], value.type)
    if arrow.is_floating(value.type):
        # is_in distinguishes -0.0 from 0.0; adding 0.0 turns both into 0.0.
        value, values = pc.add(value, 0.0), pc.add(values, pa.scalar(0.0, values.type))
    is_in = pc.is_in(value, value_set=values)
    is_unknown = pc.is_null(value)
    if len(not_null) < len(items):
        is_unknown = pc.or_(is_unknown, pc.invert(is_in))
    return pc.if_else(is_unknown, None, is_in)


_SIGNS: dict[str, str] = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

FUNCTIONS = (
    *(Function(name, f"a {sign} b", _rule, _kernel(name)) for name, sign in _SIGNS.items()),
    Function("same", "a IS NOT DISTINCT FROM b, never NULL", _rule, _same),
    Function(
        "in", "true if a equals one of the other arguments, which are literals", _in_rule, _in
    ),
)
