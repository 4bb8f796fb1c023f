"""Quotients and remainders. Division by zero is NULL for all types.

DuckDB does the same if ``ieee_floating_point_ops`` and ``error_on_division_by_zero`` are off.
Deviations: ``int_divide`` of floats and decimals drops the fraction (DuckDB keeps it), the
remainder of the least integer divided by -1 is 0 (DuckDB: an overflow), and remainders of decimals
are exact at any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import Arguments, Function, TypedArguments, Values
from circuits.types.functions.numbers.arithmetic import arithmetic_rule, as_numbers

__all__ = ["FUNCTIONS", "int_divide", "modulo", "null_if_zero", "zero_of"]


def _divide_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    operands = as_numbers(name, arguments, 2, 2)
    return tuple(cast_to(argument, pa.float64()) for argument in operands), pa.float64()


def _int_divide_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    operands = as_numbers(name, arguments, 2, 2)
    are_integers = all(arrow.is_integer(argument.type) for argument in operands)
    target = pa.int64() if are_integers else pa.float64()
    return tuple(cast_to(argument, target) for argument in operands), target


def zero_of(data_type: pa.DataType) -> pa.Scalar:
    """Return zero in a type of numbers."""
    return pa.scalar(Decimal(0) if arrow.is_decimal(data_type) else 0, data_type)


def null_if_zero(divisor: Values) -> Values:
    """Return the divisors, with NULL in place of zero."""
    is_zero = pc.equal(divisor, zero_of(divisor.type))
    return pc.if_else(is_zero, pa.scalar(None, divisor.type), divisor)


def _divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    left, right = arguments
    return pc.divide(left, null_if_zero(right))


def int_divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Kernel of the whole part of a quotient."""
    left, right = arguments
    if arrow.is_floating(result_type):
        return pc.trunc(pc.divide(left, null_if_zero(right)))
    return pc.divide_checked(left, null_if_zero(right))


def modulo(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Kernel of the remainder of a quotient."""
    left, right = arguments
    if not arrow.is_decimal(result_type):
        return pc.remainder(left, null_if_zero(right))
    wide = pa.decimal256(76, result_type.scale)
    return pc.cast(
        pc.remainder(pc.cast(left, wide), null_if_zero(pc.cast(right, wide))), result_type
    )


FUNCTIONS = (
    Function("divide", "a / b as a float64, NULL where b is 0", _divide_rule, _divide),
    Function(
        "int_divide", "the integer part of a / b, NULL where b is 0", _int_divide_rule, int_divide
    ),
    Function(
        "modulo",
        "the remainder of a / b, with the sign of a; NULL where b is 0",
        arithmetic_rule,
        modulo,
    ),
)
