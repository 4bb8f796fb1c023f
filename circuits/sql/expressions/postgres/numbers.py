"""Functions of numbers as in PostgreSQL.

::

    round(2.5::float8)   2: half to even; round(2.5) of a numeric is 3
    to_hex(-1)           ffffffff
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import integer_literal

__all__ = ["READERS", "READERS_BY_NAME"]


def _read_round(clause: Clause, node: exp.Round) -> Expression:
    value, *digits = clause.read_arguments(node, "this", "decimals")
    if pa.types.is_floating(value.type) and not digits:
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
