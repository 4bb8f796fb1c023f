"""Functions of numbers as in PostgreSQL.

::

    round(2.5::float8)   2: a float is rounded half to even; a numeric half up, to 3
    (5 / 2.0)::int       3: the quotient is a numeric in PostgreSQL, although it is a float here
    to_hex(-1)           ffffffff
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import integer_literal

__all__ = ["READERS", "READERS_BY_NAME", "is_numeric"]

_NUMERIC_FUNCTIONS: Final = (
    *(exp.Avg, exp.Extract, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance),
    exp.VariancePop,
)
_FLOAT_TYPES: Final = (exp.DType.DOUBLE, exp.DType.FLOAT)


def is_numeric(node: exp.Expr, value: Expression) -> bool:
    """Return whether PostgreSQL has the type numeric for an expression that is a float here.

    These are averages, deviations, variances and fields of dates; and quotients, unless they read a
    column of floats or a cast to a float. A column of floats counts as a float, because it is
    not known whether it was a numeric.
    """
    parts = list(node.walk())
    if any(isinstance(part, _NUMERIC_FUNCTIONS) for part in parts):
        return True
    is_cast = any(isinstance(part, exp.Cast) and part.to.this in _FLOAT_TYPES for part in parts)
    return not is_cast and not _reads_float(value)


def _reads_float(value: Expression) -> bool:
    """Return whether an expression reads a column of floats."""
    if isinstance(value, Call):
        return any(map(_reads_float, value.arguments))
    return isinstance(value, Column) and bool(pa.types.is_floating(value.type))


def _read_round(clause: Clause, node: exp.Round) -> Expression:
    value, *digits = clause.read_arguments(node, "this", "decimals")
    is_float = pa.types.is_floating(value.type) and not is_numeric(node.this, value)
    if is_float and not digits:
        return clause.call(node, "round_half_even", value, integer_literal(0))
    return clause.call(node, "round", value, *digits)


def _read_hex(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``to_hex(i)``; a negative number has the digits of its two's complement."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, "to_hex() takes 1 argument")
    value = clause.read(node.expressions[0])
    if not pa.types.is_integer(value.type):
        raise clause.source.error(
            node, f"to_hex() takes an integer, not {value.type}; write encode(x, 'hex') for bytes"
        )
    is_short = value.type.bit_width <= 32 or (
        isinstance(value, Literal) and value.value is not None and -(2**31) <= value.value < 2**31
    )
    if is_short:
        value = clause.call(node, "bit_and_of", value, integer_literal(2**32 - 1))
    return clause.call(node, "lower", clause.call(node, "hex_integer", value))


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.Round: _read_round}
READERS_BY_NAME: Final[dict[str, Reader]] = {"to_hex": _read_hex}
