"""Text next to values of other types, where DuckDB casts one of them without a CAST.

================================== =============================================
equality of a text and a value     the text is cast to the type of the value
UNION, EXCEPT, INTERSECT           the values are cast to text
================================== =============================================

Everything else needs a CAST, as in DuckDB; in dialect spark, see `circuits.sql.expressions.spark`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.types.functions.type_rules import is_number, is_temporal, is_text

__all__ = ["cast_text_for_equality", "is_mix_of_text"]


def _is_castable(type: pa.DataType) -> bool:
    return is_number(type) or is_temporal(type) or arrow.is_boolean(type)


def cast_text_for_equality(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> tuple[Expression, Expression]:
    """Return the sides of an equality, where a text is cast to the type of the other side.

    A literal text is not cast here: the function of the comparison casts it.
    """
    if clause.source.is_spark:
        return left, right
    return _cast_text(clause, node, left, right), _cast_text(clause, node, right, left)


def _cast_text(clause: Clause, node: exp.Expr, value: Expression, other: Expression) -> Expression:
    if isinstance(value, Literal) or not is_text(value.type) or not _is_castable(other.type):
        return value
    return clause.call(node, "cast", value, type=other.type)


def is_mix_of_text(types: Sequence[pa.DataType]) -> bool:
    """Return whether some types are text, and all others can be cast to text or are NULL."""
    others = [type for type in types if not is_text(type) and not arrow.is_null(type)]
    return any(map(is_text, types)) and bool(others) and all(map(_is_castable, others))
