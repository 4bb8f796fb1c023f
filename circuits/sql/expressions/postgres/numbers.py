"""Functions of numbers as in PostgreSQL.

::

    round(2.5::float8)   2: a float is rounded half to even; a numeric half up, to 3
    round(avg(f))        2: the average of floats is a float, and that of integers a numeric
    (5 / 2.0)::int       3: the quotient is a numeric in PostgreSQL, although it is a float here
    to_hex(-1)           ffffffff
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.sql.binding.clause import AGGREGATES_FLOATS, Clause, Reader, is_aggregate
from circuits.sql.expressions.literals import integer_literal, string_literal

__all__ = ["READERS", "READERS_BY_NAME", "bits_of", "is_numeric", "unlimited_numeric"]

_NUMERIC_FUNCTIONS: Final = (
    *(exp.Avg, exp.Extract, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance),
    exp.VariancePop,
)
_FLOAT_TYPES: Final = (exp.DType.DOUBLE, exp.DType.FLOAT)


def is_numeric(clause: Clause, node: exp.Expr, value: Expression) -> bool:
    """Return whether PostgreSQL has the type numeric for an expression that is a float here.

    These are fields of dates; averages, deviations and variances of other numbers than floats; and
    quotients. With a float beside it, such as a column, an aggregate of floats or a cast, the
    expression is a float. A column of floats counts as a float, because it is not known whether it
    was a numeric.
    """
    parts = list(map(_function_of, node.walk(prune=_has_own_type)))
    if any(_is_float_part(part) for part in parts):
        return False
    if not any(isinstance(part, _NUMERIC_FUNCTIONS) for part in parts):
        return not _reads_float(value)
    columns = [part for part in parts if isinstance(part, exp.Column)]
    return not any(pa.types.is_floating(clause.read(column).type) for column in columns)


def _has_own_type(node: exp.Expr) -> bool:
    """Return whether the parts of a node do not decide whether it is a float in PostgreSQL."""
    return isinstance(node, exp.Cast | exp.Extract | exp.Query | exp.Window) or is_aggregate(node)


def _function_of(node: exp.Expr) -> exp.Expr:
    """Return the function of a node without its FILTER and OVER; else the node itself."""
    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return node


def _is_float_part(node: exp.Expr) -> bool:
    """Return whether a node is a cast to a float, or an aggregate of floats."""
    if isinstance(node, exp.Cast):
        return node.to.this in _FLOAT_TYPES
    return bool(node.meta.get(AGGREGATES_FLOATS))


def _reads_float(value: Expression) -> bool:
    """Return whether an expression reads a column of floats."""
    if isinstance(value, Call):
        return not pa.types.is_decimal(value.type) and any(map(_reads_float, value.arguments))
    return isinstance(value, Column) and bool(pa.types.is_floating(value.type))


def unlimited_numeric(given: pa.DataType) -> pa.DataType:
    """Return the type of a cast to ``numeric`` without a precision, which keeps all digits.

    A float has 15 digits in PostgreSQL, so 15 of them after the point keep those of all numbers
    from 0.1 on; a text may have more.
    """
    if pa.types.is_decimal(given):
        return given
    return pa.decimal128(20, 0) if pa.types.is_integer(given) else pa.decimal128(38, 15)


def _read_round(clause: Clause, node: exp.Round) -> Expression:
    value, *digits = clause.read_arguments(node, "this", "decimals")
    is_float = pa.types.is_floating(value.type) and not is_numeric(clause, node.this, value)
    if is_float and not digits:
        return clause.call(node, "round_half_even", value, integer_literal(0))
    if pa.types.is_floating(value.type) and digits:
        # PostgreSQL rounds to digits only a numeric, which has the decimal digits of the float.
        return clause.call(node, "round_text_half_up", value, *digits)
    return clause.call(node, "round", value, *digits)


def bits_of(node: exp.Expr, value: Expression) -> int:
    """Return the number of bits of an integer in PostgreSQL, where a short constant has 32.

    A constant that is cast has the bits of the type.
    """
    while isinstance(node, exp.Paren | exp.Neg | exp.BitwiseNot):
        node = node.this
    if isinstance(value, Literal) and value.value is not None and not isinstance(node, exp.Cast):
        return 32 if -(2**31) <= value.value < 2**31 else 64
    return int(value.type.bit_width)


_INTEGER_OPERATORS: Final = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
)


def _bits_of_operands(clause: Clause, node: exp.Expr) -> int:
    """Return the bits of an integer in PostgreSQL; an operator has those of its wider operand."""
    is_constant = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Paren | exp.Neg | exp.BitwiseNot) and not is_constant:
        return _bits_of_operands(clause, node.this)
    if isinstance(node, _INTEGER_OPERATORS):
        return max(_bits_of_operands(clause, side) for side in (node.left, node.right))
    return bits_of(node, clause.read(node))


def _read_hex(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``to_hex(i)``; a negative number has the digits of its two's complement."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, "to_hex() takes 1 argument")
    value = clause.read(node.expressions[0])
    if not pa.types.is_integer(value.type):
        raise clause.source.error(
            node, f"to_hex() takes an integer, not {value.type}; write encode(x, 'hex') for bytes"
        )
    if _bits_of_operands(clause, node.expressions[0]) <= 32:
        value = clause.call(node, "bit_and_of", value, integer_literal(2**32 - 1))
    return clause.call(node, "lower", clause.call(node, "hex_integer", value))


def _read_null_count(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``num_nulls(a, b, ...)`` or ``num_nonnulls(a, b, ...)``."""
    name = node.name.lower()
    if not node.expressions:
        raise clause.source.error(node, f"{name}() takes at least 1 argument")
    is_null = [clause.call(part, "is_null", clause.read(part)) for part in node.expressions]
    if name == "num_nonnulls":
        is_null = [clause.call(node, "not", part) for part in is_null]
    count, *others = (clause.call(node, "cast", part, type=pa.int32()) for part in is_null)
    for other in others:
        count = clause.call(node, "add", count, other)
    return clause.call(node, "cast", count, type=pa.int32())


def _check_domain(clause: Clause, node: exp.Expr, function: str, value: Expression) -> Expression:
    """Return a square root or logarithm, which is an error outside of its domain."""
    what = "square root" if function == "sqrt" else "logarithm"
    limits = [("lt", f"cannot take {what} of a negative number")]
    if function != "sqrt":
        limits.append(("eq", f"cannot take {what} of zero"))
    result = clause.call(node, function, value)
    arguments: list[Expression] = []
    for comparison, message in limits:
        error = clause.call(node, "raise_error", string_literal(message))
        arguments += [
            clause.call(node, comparison, value, integer_literal(0)),
            clause.call(node, "cast", error, type=result.type),
        ]
    return clause.call(node, "case", *arguments, result)


def _checked_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        (value,) = clause.read_arguments(node, "this")
        return _check_domain(clause, node, function, value)

    return read


def _read_log(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``log(x)``, to base ten, or ``log(base, x)``."""
    values = [clause.read(part) for part in node.expressions]
    if not 1 <= len(values) <= 2:
        raise clause.source.error(node, f"{node.name}() takes a number, or a base and a number")
    if len(values) == 1:
        return _check_domain(clause, node, "log10", values[0])
    logarithms = [_check_domain(clause, node, "ln", value) for value in values]
    quotient = clause.call(node, "divide", *reversed(logarithms))
    # The logarithm of an exact power is a whole number, which the quotient may miss.
    base, value = (clause.call(node, "cast", value, type=pa.float64()) for value in values)
    whole = clause.call(node, "round", quotient)
    is_power = clause.call(node, "eq", clause.call(node, "power", base, whole), value)
    result = clause.call(node, "case", is_power, whole, quotient)
    is_one = clause.call(node, "eq", base, integer_literal(1))
    error = clause.call(node, "raise_error", string_literal("division by zero"))
    error = clause.call(node, "cast", error, type=result.type)
    return clause.call(node, "case", is_one, error, result)


def _read_scale(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``scale(x)``, the digits after the point; those of a computation may differ here."""
    argument = node.expressions[0].unnest() if len(node.expressions) == 1 else None
    if not isinstance(argument, exp.Column | exp.Cast | exp.Literal):
        raise clause.source.unsupported(
            node, "scale() of a computation", "take a column, a literal or a CAST"
        )
    value = clause.read(argument)
    if not pa.types.is_decimal(value.type) and not pa.types.is_integer(value.type):
        raise clause.source.error(node, f"scale() of a {value.type}; it takes a numeric")
    digits = value.type.scale if pa.types.is_decimal(value.type) else 0
    is_null = clause.call(node, "is_null", value)
    scale = clause.call(node, "case", is_null, Literal(None, pa.int64()), integer_literal(digits))
    return clause.call(node, "cast", scale, type=pa.int32())


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Ln: _checked_reader("ln"),
    exp.Sqrt: _checked_reader("sqrt"),
    exp.Round: _read_round,
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "log": _read_log,
    "log10": _read_log,
    "num_nonnulls": _read_null_count,
    "num_nulls": _read_null_count,
    "scale": _read_scale,
    "to_hex": _read_hex,
}
