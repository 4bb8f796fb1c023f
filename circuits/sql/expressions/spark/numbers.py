"""Functions of numbers and bits in dialect spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Call, Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    call_of,
    check_count,
    coerce,
    constant,
    count_error,
)
from circuits.sql.expressions.spark.arithmetic import (
    INTEGER_DECIMALS,
    convert_operands,
    read_arithmetic,
    with_type_of_argument,
)
from circuits.sql.expressions.spark.operands import (
    is_int,
    to_number,
)

__all__ = ["BUILDERS", "low_bits", "shift", "try_arithmetic"]


def try_arithmetic(function: str) -> Builder:
    """Return the builder of ``try_multiply`` or a similar function: NULL instead of an error."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        if function.endswith("_ansi"):  # a division, which takes numbers only
            value = clause.call(node, function, *convert_operands(clause, node, *arguments))
        else:
            value = read_arithmetic(clause, node, function, *arguments)
        return _try_operation(clause, node, value, arguments)

    return build


def _try_operation(
    clause: Clause, node: exp.Expr, value: Expression, arguments: Arguments
) -> Expression:
    """Return NULL where an operation fails, an error where an argument of numbers fails.

    The right argument is not evaluated if the left one is NULL. With another argument than numbers,
    Spark tries the arguments, too.
    """
    tried = clause.call(node, "try", value)
    is_number = (arrow.is_integer, arrow.is_floating, arrow.is_decimal, arrow.is_null)
    if not all(any(check(argument.type) for check in is_number) for argument in arguments):
        return tried
    left, right = arguments
    for argument in (right, left):
        if isinstance(argument, Call) or (argument is left and isinstance(right, Call)):
            is_null = clause.call(node, "is_null", argument)
            tried = clause.call(node, "case", is_null, Literal(None, tried.type), tried)
    return tried


def _is_nan(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Read ``isnan``, which is false for NULL in Spark."""
    is_nan = clause.call(node, "is_nan", *coerce(clause, node, [value], "f"))
    return clause.call(node, "coalesce", is_nan, Literal(False, pa.bool_()))


def _nanvl(clause: Clause, node: exp.Expr, value: Expression, other: Expression) -> Expression:
    value, other = (_as_float(clause, node, part) for part in (value, other))
    return clause.call(node, "case", clause.call(node, "is_nan", value), other, value)


def _as_float(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a FLOAT, DOUBLE or NULL as it is, another value as a DOUBLE."""
    if arrow.is_floating(value.type) or arrow.is_null(value.type):
        return value
    return spark_cast(clause, node, value, pa.float64())


def _logarithm_builder(function: str, check: str = "null_unless_positive") -> Builder:
    """Return the builder of a logarithm, which is NULL outside its domain in Spark.

    Args:
        function: The function.
        check: The function that makes an argument outside the domain NULL.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        numbers = coerce(clause, node, arguments, "f" * len(arguments))
        return clause.call(node, function, *(clause.call(node, check, value) for value in numbers))

    return build


def _log(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    return _logarithm_builder("ln" if len(arguments) == 1 else "log")(clause, node, arguments)


def _rounding_builder(exact_function: str, float_function: str) -> Builder:
    """Return the builder of ``round`` or ``bround``.

    Args:
        exact_function: The function for integers and decimals.
        float_function: The function for floats, which rounds their shortest decimal text.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = to_number(clause, node, arguments[0])
        digits = arguments[1] if len(arguments) > 1 else integer_literal(0)
        function = float_function if arrow.is_floating(value.type) else exact_function
        rounded = clause.call(node, function, value, digits)
        count = digits.value if isinstance(digits, Literal) else None
        if not arrow.is_decimal(value.type) or not isinstance(count, int):
            return rounded
        return clause.call(node, "cast", rounded, type=_rounded_type(value.type, count))

    return build


def _whole_number_builder(function: str, digits_function: str) -> Builder:
    """Return the builder of ``ceil`` or ``floor``, whose result for a float is a BIGINT.

    Args:
        function: The function of a number.
        digits_function: The function of a number and a number of digits after the point.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not 1 <= len(arguments) <= 2:
            raise count_error(clause, node, "1 to 2")
        value = to_number(clause, node, arguments[0])
        if len(arguments) == 2:
            value = _as_decimal(clause, node, value)
            digits = arguments[1].value if isinstance(arguments[1], Literal) else None
            if not isinstance(digits, int):
                raise clause.source.error(
                    node, f"the digits of {node.name.lower()}() are a constant integer"
                )
            rounded = clause.call(node, digits_function, value, arguments[1])
            target = _rounded_type(value.type, digits)
            return clause.call(node, "cast", rounded, type=target)
        rounded = clause.call(node, function, value)
        if arrow.is_floating(rounded.type):
            is_nan = clause.call(node, "is_nan", rounded)
            rounded = clause.call(node, "case", is_nan, Literal(0.0, rounded.type), rounded)
            return clause.call(node, "cast", rounded, type=pa.int64())
        if arrow.is_decimal(value.type) and value.type.scale > 0:
            return clause.call(node, "cast", rounded, type=_rounded_type(value.type, 0))
        return rounded

    return build


#: The decimal types to which numbers are cast where Spark needs a decimal.
_DECIMALS: Final = {
    **INTEGER_DECIMALS,
    **{pa.float32(): pa.decimal128(14, 7), pa.float64(): pa.decimal128(30, 15)},
    pa.null(): pa.decimal128(38, 18),
}


def _as_decimal(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a number as a decimal; NULL for NaN and the infinities."""
    target = _DECIMALS.get(value.type, value.type)
    if arrow.is_floating(value.type):
        is_finite = clause.call(node, "is_finite", value)
        value = clause.call(node, "case", is_finite, value, Literal(None, value.type))
    return spark_cast(clause, node, value, target)


def _rounded_type(data_type: pa.DataType, digits: int) -> pa.DataType:
    """Return the type of a decimal rounded to a number of digits after the point."""
    whole_digits = data_type.precision - data_type.scale + 1  # 9.5 rounds to 10
    if digits < 0:
        return pa.decimal128(min(38, max(whole_digits, 1 - digits)), 0)
    scale = min(data_type.scale, digits)
    return pa.decimal128(min(38, whole_digits + scale), scale)


def _two_number_builder(function: str) -> Builder:
    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        numbers = coerce(clause, node, arguments, "nn")
        return clause.call(node, function, *convert_operands(clause, node, *numbers))

    return build


def _positive(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return to_number(clause, node, value)


def _shift_builder(function: str) -> Builder:
    """Return the builder of a shift."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 2:
            raise count_error(clause, node, "2")
        return shift(clause, node, function, arguments)

    return build


def shift(clause: Clause, node: exp.Expr, function: str, arguments: Arguments) -> Expression:
    """Return a shift of Spark: an INT keeps its 32 bits, and the distance counts modulo 32."""
    value, distance = coerce(clause, node, arguments, "ii")
    if not is_int(value):
        return clause.call(node, function, value, distance)
    distance = clause.call(node, "bit_and_of", distance, integer_literal(31))
    if function == "shift_right_unsigned":
        value = clause.call(node, "bit_and_of", value, integer_literal(2**32 - 1))
    shifted = clause.call(node, function, value, distance)
    if function == "shift_right":
        return clause.call(node, "cast", shifted, type=pa.int32())
    return clause.call(node, "cast", low_bits(clause, node, shifted, 32), type=pa.int32())


def low_bits(clause: Clause, node: exp.Expr, value: Expression, bits: int) -> Expression:
    """Return the number that the low bits of an integer are, with a sign: (low ^ 2**b) - 2**b."""
    sign = integer_literal(2 ** (bits - 1))
    low = clause.call(node, "bit_and_of", value, integer_literal(2**bits - 1))
    return clause.call(node, "subtract", clause.call(node, "bit_xor_of", low, sign), sign)


def _sign(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return the sign as a DOUBLE; that of NaN is NaN."""
    number = to_number(clause, node, value)
    sign = clause.call(node, "cast", clause.call(node, "sign", number), type=pa.float64())
    if not arrow.is_floating(number.type):
        return sign
    return clause.call(node, "case", clause.call(node, "is_nan", number), number, sign)


def _atan2(clause: Clause, node: exp.Expr, y: Expression, x: Expression) -> Expression:
    """Read ``atan2``. Spark adds 0.0 to both numbers, so that -0.0 is the same as 0.0."""
    zero = Literal(0.0, pa.float64())
    numbers = coerce(clause, node, [y, x], "ff")
    return clause.call(
        node, "atan2", *(clause.call(node, "add", number, zero) for number in numbers)
    )


def _bit_count(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    if arrow.is_boolean(value.type):
        value = clause.call(node, "cast", value, type=pa.int64())
    return clause.call(node, "bit_count", value)


def _bit_get(clause: Clause, node: exp.Expr, value: Expression, position: Expression) -> Expression:
    number, position = coerce(clause, node, [value, position], "ii")
    if arrow.is_null(number.type):
        return Literal(None, pa.int8())
    if not arrow.is_integer(number.type):
        raise clause.source.error(node, f"bit_get() of a {number.type}; it takes an integer")
    last_position = integer_literal(number.type.bit_width - 1)
    return clause.call(node, "get_bit", number, position, last_position)


BUILDERS: Final[dict[str, Builder]] = {
    "factorial": call_of("factorial"),
    "e": constant(Literal(2.718281828459045, pa.float64())),
    "sec": call_of("sec"),
    "csc": call_of("csc"),
    "hypot": call_of("hypot"),
    "atan2": check_count(2, _atan2),
    "rint": call_of("rint"),
    "expm1": call_of("expm1"),
    "exp": call_of("exp", kinds="f"),
    "sqrt": call_of("sqrt", kinds="f"),
    "pow": call_of("power", kinds="ff"),
    "power": call_of("power", kinds="ff"),
    "ln": _logarithm_builder("ln"),
    "log": _log,
    "log2": _logarithm_builder("log2"),
    "log10": _logarithm_builder("log10"),
    "log1p": _logarithm_builder("log1p", "null_unless_above_minus_one"),
    "round": with_type_of_argument(_rounding_builder("round", "round_text_half_up")),
    "bround": with_type_of_argument(_rounding_builder("round_half_even", "round_text_half_even")),
    "ceil": _whole_number_builder("ceil", "round_up"),
    "ceiling": _whole_number_builder("ceil", "round_up"),
    "floor": _whole_number_builder("floor", "round_down"),
    "mod": _two_number_builder("modulo_ansi"),
    "pmod": _two_number_builder("positive_modulo"),
    "positive": check_count(1, _positive),
    "negative": with_type_of_argument(call_of("negate", kinds="n")),
    "abs": with_type_of_argument(call_of("abs", kinds="n")),
    "sign": check_count(1, _sign),
    "bitmap_bit_position": call_of("bitmap_bit_position"),
    "bitmap_bucket_number": call_of("bitmap_bucket_number"),
    "bitmap_count": call_of("bitmap_count"),
    "conv": call_of("convert_base"),
    "width_bucket": call_of("width_bucket"),
    "shiftleft": _shift_builder("shift_left"),
    "shiftright": _shift_builder("shift_right"),
    "shiftrightunsigned": _shift_builder("shift_right_unsigned"),
    "bit_count": check_count(1, _bit_count),
    "bit_get": check_count(2, _bit_get),
    "getbit": check_count(2, _bit_get),
    "nanvl": check_count(2, _nanvl),
    "isnan": check_count(1, _is_nan),
    "try_multiply": try_arithmetic("multiply"),
    "try_divide": try_arithmetic("divide_ansi"),
    "try_mod": try_arithmetic("modulo_ansi"),
    "signum": check_count(1, _sign),
}
