"""Comparisons of rows: ``(a, b) = (c, d)``, ``(a, b) < (c, d)``, ``(a, b) IN ((1, 2), (3, 4))``.

As in DuckDB and Spark, a row is a value whose parts are compared from left to right. In a row, NULL
equals NULL, and it is greater than all other values (less in Spark). So the result is never NULL.

In PostgreSQL, a comparison with a part that is NULL is NULL if it decides the result::

    (1, NULL) = (1, 2)   NULL        (1, NULL) = (2, 2)   false
    (1, NULL) < (2, 0)   true        (1, NULL) < (1, 2)   NULL

A row that is compared with a struct, such as a column, is a struct, too. NULL equals NULL within
structs; a comparison with a struct that is NULL is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.syntax.source import SqlSource
from circuits.types.functions import conjunction

__all__ = ["compare_parts", "compare_rows", "is_row", "read_parts"]

# By comparison: the result for equal rows, and whether to compare the exchanged sides by "less".
_COMPARISONS: Final = {
    "lt": (False, False),
    "le": (True, False),
    "gt": (False, True),
    "ge": (True, True),
}


def is_row(source: SqlSource, node: exp.Expr) -> bool:
    """Return whether a node is a row of several values: ``(a, b)``, in PostgreSQL ``ROW(a, b)``."""
    if isinstance(node, exp.Anonymous) and source.is_postgres:
        return node.name.lower() == "row" and bool(node.expressions)
    return isinstance(node, exp.Tuple)


def compare_rows(clause: Clause, node: exp.Expr, function: str, right: exp.Expr) -> Expression:
    """Return a comparison of ``node.this`` with another row.

    Args:
        clause: The clause of the comparison.
        node: The node that errors point to, with the left row.
        function: One of eq, ne, same, lt, le, gt, ge.
        right: The right row. One of the sides may be a struct instead.

    Raises:
        SqlError: A side is neither a row nor a struct, or the sides have different lengths.
    """
    nodes = [_without_parentheses(clause, side) for side in (node.this, right)]
    if all(is_row(clause.source, side) for side in nodes):
        sides = [read_parts(clause, side) for side in nodes]
        _check_lengths(clause, node, *map(len, sides))
        return compare_parts(clause, node, function, *sides)
    # One side is a struct, such as a column. Then both are compared as structs, also in PostgreSQL.
    values = [clause.read(side) for side in nodes]
    if not all(pa.types.is_struct(value.type) for value in values):
        raise clause.source.error(node, "a row is compared with a single value")
    _check_lengths(clause, node, *(value.type.num_fields for value in values))
    return clause.call(node, function, *values)


def compare_parts(
    clause: Clause,
    node: exp.Expr,
    function: str,
    left: Sequence[Expression],
    right: Sequence[Expression],
) -> Expression:
    """Return a comparison of rows of the same length, given their values.

    Args:
        clause: The clause of the comparison.
        node: The node that errors point to.
        function: One of eq, ne, same, lt, le, gt, ge.
        left: The values of the left row.
        right: The values of the right row.
    """
    if clause.source.is_postgres and function != "same":
        return _compare_with_nulls(clause, node, function, left, right)
    pairs = list(zip(left, right, strict=True))
    if function in ("eq", "ne", "same"):
        equal = conjunction([_same(clause, node, *pair) for pair in pairs])
        return clause.call(node, "not", equal) if function == "ne" else equal
    is_true_if_equal, is_exchanged = _COMPARISONS[function]
    result: Expression = Literal(is_true_if_equal, pa.bool_())
    for pair in reversed(pairs):
        less = _less(clause, node, *(reversed(pair) if is_exchanged else pair))
        same = _same(clause, node, *pair)
        result = clause.call(node, "or", less, clause.call(node, "and", same, result))
    return result


def _without_parentheses(clause: Clause, side: exp.Expr) -> exp.Expr:
    while isinstance(side, exp.Paren):
        clause.source.allow_arguments(side, "this")
        side = side.this
    return side


def _check_lengths(clause: Clause, node: exp.Expr, left: int, right: int) -> None:
    if left != right:
        raise clause.source.error(node, f"a row of {left} values is compared with a row of {right}")


def read_parts(clause: Clause, row: exp.Expr) -> list[Expression]:
    """Return the values of a row."""
    clause.source.allow_arguments(row, "this", "expressions")
    return [clause.read(value) for value in row.expressions]


def _compare_with_nulls(
    clause: Clause,
    node: exp.Expr,
    function: str,
    left: Sequence[Expression],
    right: Sequence[Expression],
) -> Expression:
    """Return a comparison of rows as in PostgreSQL."""
    pairs = list(zip(left, right, strict=True))
    equal = [clause.call(node, "eq", *pair) for pair in pairs]
    if function in ("eq", "ne"):
        same = conjunction(equal)
        return clause.call(node, "not", same) if function == "ne" else same
    strict = "lt" if function in ("lt", "le") else "gt"
    result = clause.call(node, function, *pairs[-1])
    for pair, is_equal in reversed([*zip(pairs[:-1], equal[:-1], strict=True)]):
        rest = clause.call(node, "and", is_equal, result)
        result = clause.call(node, "or", clause.call(node, strict, *pair), rest)
    return result


def _same(clause: Clause, node: exp.Expr, left: Expression, right: Expression) -> Expression:
    return clause.call(node, "same", left, right)


def _less(clause: Clause, node: exp.Expr, left: Expression, right: Expression) -> Expression:
    """Return whether a value is less than another one in the order of rows."""
    true, false = Literal(True, pa.bool_()), Literal(False, pa.bool_())
    left_null = clause.call(node, "is_null", left)
    right_null = clause.call(node, "is_null", right)
    null_branches = (  # of CASE: condition, value, condition, value
        (right_null, false, left_null, true)
        if clause.source.is_spark
        else (left_null, false, right_null, true)
    )
    return clause.call(node, "case", *null_branches, clause.call(node, "lt", left, right))
