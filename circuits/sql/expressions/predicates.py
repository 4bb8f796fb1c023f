"""Conditions: comparisons, connectives, IS, IN, BETWEEN, LIKE.

EXISTS and IN with a subquery are semijoins if they are conditions, also inside AND, OR and NOT
(`circuits.sql.queries.disjunctions`). Inside any other expression each of them is a value: a column
that a join adds to the rows of the clause (`circuits.sql.queries.memberships`). The readers below
pass them to ``read_membership``, a function that each clause is given (`Clause`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.binding.scope import row_or_null
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.json_functions.queries import read_is_json
from circuits.sql.expressions.list_comparisons import (
    compare_with_list,
    is_list_comparison,
    read_in_list,
)
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.mixed_types import cast_text_for_equality
from circuits.sql.expressions.postgres.periods import overlap_periods
from circuits.sql.expressions.row_comparisons import compare_rows, is_row, read_parts
from circuits.sql.expressions.scalar_functions import read_operands
from circuits.types.functions import conjunction
from circuits.types.functions.texts.like_patterns import glob_to_regex
from circuits.types.functions.type_rules import is_interval, is_number, is_temporal, is_text

__all__ = ["READERS"]


def _comparison_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Binary) -> Expression:
        clause.source.allow_arguments(node, "this", "expression")
        if is_list_comparison(node):
            return compare_with_list(clause, node, function)
        if isinstance(node.right, exp.Any | exp.All):
            return clause.read_membership(clause, node)
        if is_row(clause.source, node.left) or is_row(clause.source, node.right):
            return compare_rows(clause, node, function, node.right)
        left, right = read_operands(clause, node)
        if function in ("eq", "ne", "same"):
            left, right = cast_text_for_equality(clause, node, left, right)
        return clause.call(node, function, left, right)

    return read


def _connective_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Connector) -> Expression:
        # ``a AND b AND c`` is nested to the left. A loop, because a chain of a thousand conditions
        # is a thousand levels deep.
        operands: list[exp.Expr] = []
        left: exp.Expr = node
        while isinstance(left, type(node)):
            clause.source.allow_arguments(left, "this", "expression")
            operands.append(left.right)
            left = left.left
        operands.append(left)
        conditions = [clause.read_condition(operand) for operand in reversed(operands)]
        return clause.call(node, function, *conditions)

    return read


def _read_not(clause: Clause, node: exp.Not) -> Expression:
    clause.source.allow_arguments(node, "this")
    return clause.call(node, "not", clause.read_condition(node.this))


def _read_is_distinct_from(clause: Clause, node: exp.NullSafeNEQ) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    if is_row(clause.source, node.this) or is_row(clause.source, node.expression):
        return clause.call(node, "not", compare_rows(clause, node, "same", node.expression))
    left, right = clause.read_arguments(node, "this", "expression")
    sides = cast_text_for_equality(clause, node, left, right)
    return clause.call(node, "not", clause.call(node, "same", *sides))


def _read_is(clause: Clause, node: exp.Is) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    row_values = None
    if isinstance(node.expression, exp.Null) and clause.source.is_postgres:
        row_values = _read_row(clause, node.this.unnest())
    if row_values is not None:
        if isinstance(node.parent, exp.Not):
            raise clause.source.unsupported(
                node, "IS NOT NULL of a row", "write IS NOT NULL of each value"
            )
        return conjunction([clause.call(node, "is_null", value) for value in row_values])
    if isinstance(node.expression, exp.Null):
        return clause.call(node, "is_null", clause.read(node.this))
    if isinstance(node.expression, exp.Boolean):
        condition = _read_truth_value(clause, node.this)
        if not node.expression.this:
            condition = clause.call(node, "not", condition)
        return clause.call(node, "is_true", condition)
    if isinstance(node.expression, exp.JSON):
        return read_is_json(clause, node)
    raise clause.source.unsupported(node.expression, f"IS {node.expression.sql()}")


def _read_row(clause: Clause, node: exp.Expr) -> Sequence[Expression] | None:
    """Return the values of a row, or of the row of a table that is named; None if it is neither."""
    if is_row(clause.source, node):
        return read_parts(clause, node)
    if not isinstance(node, exp.Column):
        return None
    value = clause.read(node)
    row = value
    if isinstance(value, Call) and value.function == "case":
        row = value.arguments[-1]
    if not isinstance(row, Call) or row.function != "make_struct":
        return None
    values = row.arguments[1::2]
    return values if value in (row, row_or_null(row, values)) else None


def _read_truth_value(clause: Clause, node: exp.Expr) -> Expression:
    """Return the operand of IS TRUE or IS FALSE as a condition.

    DuckDB accepts a number, which is true if it is not zero, and a text, which is cast to BOOLEAN.
    """
    if clause.source.is_spark:
        return clause.read_condition(node)
    value = clause.read(node)
    if is_number(value.type):
        return clause.call(node, "ne", value, integer_literal(0))
    if is_text(value.type):
        return clause.call(node, "cast", value, type=pa.bool_())
    return clause.read_condition(node)


def _read_between(clause: Clause, node: exp.Between) -> Expression:
    """Read ``x BETWEEN a AND b``; with SYMMETRIC, a may be greater than b."""
    clause.source.allow_arguments(node, "this", "low", "high", "symmetric")
    value, low, high = (clause.read(node.args[name]) for name in ("this", "low", "high"))

    def is_between(least: Expression, greatest: Expression) -> Expression:
        sides = clause.call(node, "ge", value, least), clause.call(node, "le", value, greatest)
        return clause.call(node, "and", *sides)

    if not node.args.get("symmetric"):
        return is_between(low, high)
    return clause.call(node, "or", is_between(low, high), is_between(high, low))


def _read_in(clause: Clause, node: exp.In) -> Expression:
    if node.args.get("query") or any(isinstance(e, exp.Values) for e in node.expressions):
        return clause.read_membership(clause, node)
    if node.args.get("field") is not None:
        return read_in_list(clause, node)
    clause.source.allow_arguments(node, "this", "expressions")
    if not node.expressions:
        raise clause.source.error(node, "IN () has no values; give it at least one")
    if is_row(clause.source, node.this):
        comparisons = [compare_rows(clause, node, "eq", item) for item in node.expressions]
        return _any_of(clause, node, comparisons)
    value = clause.read(node.this)
    items = [clause.read(item) for item in node.expressions]
    value, items = _cast_texts_for_membership(clause, node, value, items)
    if all(isinstance(item, Literal) for item in items):
        return clause.call(node, "in", value, *items)
    return _any_of(clause, node, [clause.call(node, "eq", value, item) for item in items])


def _any_of(clause: Clause, node: exp.Expr, conditions: list[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else clause.call(node, "or", *conditions)


def _cast_texts_for_membership(
    clause: Clause, node: exp.Expr, value: Expression, items: list[Expression]
) -> tuple[Expression, list[Expression]]:
    """Return the value and the items of IN, with texts cast to the type of the other side.

    Items that are texts are cast if the value is not a text. A value that is a text is cast if the
    items are numbers of one type.
    """
    if not is_text(value.type):
        pairs = [cast_text_for_equality(clause, node, value, item) for item in items]
        return value, [item for _, item in pairs]
    values = [item for item in items if item != NULL]
    if len({item.type for item in values}) == 1 and is_number(values[0].type):
        value, _ = cast_text_for_equality(clause, node, value, values[0])
    return value, items


def _read_exists(clause: Clause, node: exp.Exists) -> Expression:
    return clause.read_membership(clause, node)


def _like_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "negate")
        value, right = clause.read(node.this), node.args["expression"]
        if clause.source.is_spark and (is_number(value.type) or is_temporal(value.type)):
            value = spark_cast(clause, node, value, pa.string())
        if isinstance(right, exp.Any | exp.All):
            matches = _read_like_any(clause, node, function, value, right)
        else:
            matches = _build_like(clause, node, function, value, clause.read(right))
        return clause.call(node, "not", matches) if node.args.get("negate") else matches

    return read


def _build_like(
    clause: Clause, node: exp.Expr, function: str, value: Expression, pattern: Expression
) -> Expression:
    """Return LIKE without ESCAPE.

    The escape is the backslash in Spark and PostgreSQL; there is none in DuckDB.
    """
    if clause.source.is_spark or clause.source.is_postgres:
        return clause.call(node, function, value, pattern, string_literal("\\"))
    return clause.call(node, function, value, pattern)


def _read_like_any(
    clause: Clause, node: exp.Expr, function: str, value: Expression, right: exp.Any | exp.All
) -> Expression:
    """Read ``x LIKE ANY ('a%', 'b%')`` and ALL; NOT LIKE ANY is true if one does not match."""
    clause.source.allow_arguments(right, "this")
    patterns = right.this
    if not isinstance(patterns, exp.Tuple | exp.Paren):
        raise clause.source.unsupported(
            node, f"LIKE {right.key.upper()} of a list", "write ('a%', 'b%')"
        )
    clause.source.allow_arguments(patterns, "this", "expressions")
    parts = patterns.expressions if isinstance(patterns, exp.Tuple) else [patterns.this]
    if any(isinstance(part, exp.Array) for part in parts):  # LIKE ANY (ARRAY['a%', 'b%'])
        if len(parts) > 1:
            raise clause.source.unsupported(
                node, f"LIKE {right.key.upper()} of several lists", "write ('a%', 'b%')"
            )
        clause.source.allow_arguments(parts[0], "expressions", "bracket_notation")
        parts = parts[0].expressions
    conditions = [_build_like(clause, node, function, value, clause.read(part)) for part in parts]
    if len(conditions) == 1:
        return conditions[0]
    is_any = isinstance(right, exp.Any)
    if node.args.get("negate"):  # the reader negates the result
        is_any = not is_any
    return clause.call(node, "or" if is_any else "and", *conditions)


def _read_glob(clause: Clause, node: exp.Glob) -> Expression:
    """Read ``x GLOB 'a*'``; a constant pattern is checked here."""
    clause.source.allow_arguments(node, "this", "expression")
    value, pattern = clause.read_arguments(node, "this", "expression")
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        try:
            glob_to_regex(pattern.value)
        except pa.ArrowInvalid as error:
            raise clause.source.unsupported(
                node, f"the pattern {pattern.value!r} of GLOB", f"use regexp_matches(): {error}"
            ) from error
    return clause.call(node, "glob", value, pattern)


def _read_escape(clause: Clause, node: exp.Escape) -> Expression:
    """Read ``x [NOT] LIKE p ESCAPE c``.

    In the tree, NOT is below ESCAPE: ``Escape(Not(Like), c)``, or ``Escape(Like(negate), c)``.
    """
    clause.source.allow_arguments(node, "this", "expression")
    functions = {exp.Like: "like", exp.ILike: "ilike"}
    like, is_negated = node.this, isinstance(node.this, exp.Not)
    if is_negated:
        clause.source.allow_arguments(like, "this")
        like = like.this
    is_negated = is_negated or bool(like.args.get("negate"))
    if type(like) not in functions:
        raise clause.source.unsupported(node, f"ESCAPE after {like.key.upper()}")
    clause.source.allow_arguments(like, "this", "expression", "negate")
    value, pattern = clause.read(like.this), clause.read(like.expression)
    escape = clause.read(node.expression)
    matches = clause.call(node, functions[type(like)], value, pattern, escape)
    return clause.call(node, "not", matches) if is_negated else matches


def _read_overlaps(clause: Clause, node: exp.Overlaps) -> Expression:
    """Read ``(start, end) OVERLAPS (start, end)``. An end may be an interval, or before its start.

    In dialect spark, this is Flink's: the bounds belong to the period. In others it is
    PostgreSQL's: the end does not belong to it, unless it is also the start.
    """
    pairs = []
    for period in (node.this, node.expression):
        if not isinstance(period, exp.Tuple) or len(period.expressions) != 2:
            raise clause.source.error(node, "OVERLAPS compares two pairs: (start, end)")
        start, end = period.expressions
        values = clause.read(start), clause.read(end)
        if is_interval(values[1].type):
            end = exp.Add(this=start.copy(), expression=end.copy())
            end.meta.update(node.meta)
            values = values[0], clause.read(end)
        pairs.append(values)
    # No reader reads the pairs, and of an interval only a copy is read.
    clause.source.mark_read(node)
    if not clause.source.is_spark:
        return overlap_periods(clause, node, *pairs)
    bounds = []
    for values in pairs:
        is_ordered = clause.call(node, "le", *values)
        bounds += [clause.call(node, "case", is_ordered, *pair) for pair in (values, values[::-1])]
    first_start, first_end, second_start, second_end = bounds
    return clause.call(
        node,
        "and",
        clause.call(node, "ge", first_end, second_start),
        clause.call(node, "ge", second_end, first_start),
    )


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.And: _connective_reader("and"),
    exp.Between: _read_between,
    exp.EQ: _comparison_reader("eq"),
    exp.Escape: _read_escape,
    exp.Exists: _read_exists,
    exp.GT: _comparison_reader("gt"),
    exp.GTE: _comparison_reader("ge"),
    exp.Glob: _read_glob,
    exp.ILike: _like_reader("ilike"),
    exp.In: _read_in,
    exp.Is: _read_is,
    exp.LT: _comparison_reader("lt"),
    exp.LTE: _comparison_reader("le"),
    exp.Like: _like_reader("like"),
    exp.NEQ: _comparison_reader("ne"),
    exp.Not: _read_not,
    exp.NullSafeEQ: _comparison_reader("same"),
    exp.Overlaps: _read_overlaps,
    exp.NullSafeNEQ: _read_is_distinct_from,
    exp.Or: _connective_reader("or"),
}
