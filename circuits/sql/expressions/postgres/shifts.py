"""The operators ``<<`` and ``>>`` as in PostgreSQL.

::

    -1 << 1       -2: a number may be negative, and may lose bits
    1 << 33       2: an int keeps its 32 bits, and the distance counts modulo 32
    1::int8 << 33 8589934592
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.expressions.postgres.numbers import bits_of
from circuits.sql.expressions.spark.numbers import low_bits

__all__ = ["READERS"]


def _shift_reader(function: str) -> Reader:
    """Return the reader of ``a << b`` or ``a >> b``: a keeps its bits, and b counts modulo them."""

    def read(clause: Clause, node: exp.Binary) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "requires_int128")
        value, distance = clause.read(node.left), clause.read(node.right)
        if not pa.types.is_integer(value.type) or (bits := bits_of(node.left, value)) == 64:
            return clause.call(node, function, value, distance)
        distance = clause.call(node, "bit_and_of", distance, integer_literal(31))
        shifted = clause.call(node, function, value, distance)
        return shifted if function == "shift_right" else low_bits(clause, node, shifted, bits)

    return read


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.BitwiseLeftShift: _shift_reader("shift_left"),
    exp.BitwiseRightShift: _shift_reader("shift_right"),
}
