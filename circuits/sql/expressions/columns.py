"""Columns, arithmetic, CASE, and the constructs whose meaning depends on the clause.

The clause (`circuits.sql.binding.clause`) gives the values of columns, aggregates, scalar
subqueries and window functions.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.current_time import is_local_timestamp
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.mixed_types import cast_text_for_equality
from circuits.sql.expressions.spark.arithmetic import (
    convert_operands,
    divide_months,
    read_arithmetic,
)
from circuits.sql.syntax.collations import is_byte_order
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.type_rules import is_interval, is_number

__all__ = ["READERS"]


def _read_column(clause: Clause, node: exp.Column) -> Expression:
    if isinstance(node.this, exp.Star):
        raise clause.source.unsupported(node, f"'*' in {clause.name}", "name the columns")
    try:
        return clause.read_column(clause, node)
    except SqlError as error:
        is_unknown = _is_truth_value(clause, node)
        if not (is_local_timestamp(node) or is_unknown) or "unknown column" not in str(error):
            raise
    if is_unknown:
        clause.source.mark_read(node)
        return Literal(None, pa.bool_())
    # Spark's dialect of sqlglot parses LOCALTIMESTAMP as a column.
    clause.source.mark_read(node)
    local = exp.Localtimestamp()
    local.meta.update(node.this.meta)
    return clause.read(local)


def _is_truth_value(clause: Clause, node: exp.Column) -> bool:
    """Return whether a name is UNKNOWN, which is a truth value in Flink and Feldera."""
    is_word = isinstance(node.this, exp.Identifier) and not node.this.args.get("quoted")
    has_word = clause.source.is_spark or clause.source.is_postgres
    return has_word and is_word and not node.table and node.name.upper() == "UNKNOWN"


def _read_parentheses(clause: Clause, node: exp.Paren) -> Expression:
    clause.source.allow_arguments(node, "this")
    return clause.read(node.this)


def _read_collation(clause: Clause, node: exp.Collate) -> Expression:
    """Read ``x COLLATE "C"``: texts are compared by their bytes, which is the order here.

    Other collations are replaced in comparisons and keys (`circuits.sql.syntax.collations`).
    """
    clause.source.allow_arguments(node, "this", "expression")
    name = node.expression.name
    if not is_byte_order(name, is_spark=clause.source.is_spark):
        known = "UTF8_LCASE" if clause.source.is_spark else "NOCASE, NOACCENT"
        raise clause.source.unsupported(
            node,
            f"COLLATE {name} here",
            f"only comparisons and keys of ORDER BY, GROUP BY, DISTINCT and PARTITION BY take "
            f"{known}; elsewhere write lower(x)",
        )
    clause.source.mark_read(node.expression)
    return clause.read(node.this)


def _read_product(clause: Clause, node: exp.Mul) -> Expression:
    """Read ``*`` of numbers, or of a number and an interval."""
    left, right = clause.read_arguments(node, "this", "expression")
    if clause.source.is_spark:
        return read_arithmetic(clause, node, "multiply", left, right)
    for interval, number in ((left, right), (right, left)):
        if is_interval(interval.type):
            value = clause.call(node, "cast", interval, type=INTERVAL)
            return clause.call(node, "multiply_interval", value, number)
    return clause.call(node, "multiply", left, right)


def _read_division(clause: Clause, node: exp.Div) -> Expression:
    """Read ``/``: division by zero is an error in Spark and PostgreSQL, else NULL.

    It keeps the fraction. But in dialects such as PostgreSQL's, integers have an integer quotient.
    """
    clause.source.allow_arguments(node, "this", "expression", "safe", "typed")
    sides = _read_operands(clause, node)
    # sqlglot marks the dialects whose quotient of integers is an integer as typed.
    if node.args.get("typed") and all(pa.types.is_integer(side.type) for side in sides):
        return clause.call(node, "int_divide", *sides)
    if clause.source.is_spark and sides[0].type == INTERVAL:
        return divide_months(clause, node, *sides)
    if clause.source.is_spark and pa.types.is_duration(sides[0].type):
        return clause.call(node, "divide_interval", *sides)
    if is_interval(sides[0].type) and not clause.source.is_spark:
        value = clause.call(node, "cast", sides[0], type=INTERVAL)
        return clause.call(node, "divide_interval", value, sides[1])
    if clause.source.is_spark:
        return clause.call(node, "divide_ansi", *convert_operands(clause, node, *sides))
    return clause.call(node, "divide", *sides)


def _read_operands(clause: Clause, node: exp.Binary) -> tuple[Expression, Expression]:
    """Read dividend and divisor: zero is an error in PostgreSQL and Materialize, not in RisingWave.

    A dividend that is NULL has no error.
    """
    dividend, divisor = clause.read(node.left), clause.read(node.right)
    has_errors = clause.source.is_postgres and clause.source.dialect != "risingwave"
    if not has_errors or not is_number(divisor.type):
        return dividend, divisor
    if isinstance(divisor, Literal) and divisor.value:
        return dividend, divisor
    is_wrong = clause.call(node.right, "eq", divisor, integer_literal(0))
    if not isinstance(dividend, Literal):
        has_value = clause.call(node.left, "not", clause.call(node.left, "is_null", dividend))
        is_wrong = clause.call(node, "and", is_wrong, has_value)
    error = clause.call(node.right, "raise_error", string_literal("division by zero"))
    error = clause.call(node.right, "cast", error, type=divisor.type)
    return dividend, clause.call(node.right, "case", is_wrong, error, divisor)


def _read_modulo(clause: Clause, node: exp.Mod) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    sides = _read_operands(clause, node)
    if clause.source.is_spark:
        return clause.call(node, "modulo_ansi", *convert_operands(clause, node, *sides))
    return clause.call(node, "modulo", *sides)


def _read_integer_division(clause: Clause, node: exp.IntDiv) -> Expression:
    if clause.source.is_spark:
        arguments = clause.read_arguments(node, "this", "expression")
        return clause.call(node, "int_divide_ansi", *convert_operands(clause, node, *arguments))
    clause.source.allow_arguments(node, "this", "expression")
    sides = _read_operands(clause, node)
    value = clause.call(node, "int_divide", *sides)
    if pa.types.is_integer(value.type) or clause.source.dialect != "duckdb":
        return value
    # DuckDB keeps the fraction, and divides a FLOAT by a number other than a DOUBLE as FLOATs.
    quotient = clause.call(node, "divide", *sides)
    types = {side.type for side in sides}
    if pa.float32() in types and pa.float64() not in types:
        quotient = clause.call(node, "cast", quotient, type=pa.float32())
    return quotient


def _read_case(clause: Clause, node: exp.Case) -> Expression:
    clause.source.allow_arguments(node, "this", "ifs", "default")
    compared = clause.read(node.this) if node.this else None  # CASE compared WHEN ...
    arguments: list[Expression] = []  # condition, value, condition, value, ...
    for branch in node.args["ifs"]:
        clause.source.allow_arguments(branch, "this", "true")
        if compared is None:
            arguments.append(clause.read_condition(branch.this))
        else:
            sides = cast_text_for_equality(clause, branch, compared, clause.read(branch.this))
            arguments.append(clause.call(branch, "eq", *sides))
        arguments.append(clause.read(branch.args["true"]))
    default = node.args.get("default")
    arguments.append(clause.read(default) if default else NULL)
    return clause.call(node, "case", *arguments)


def _read_if(clause: Clause, node: exp.If) -> Expression:
    clause.source.allow_arguments(node, "this", "true", "false")
    condition = clause.read_condition(node.this)
    value = clause.read(node.args["true"])
    otherwise = node.args.get("false")
    return clause.call(
        node, "case", condition, value, clause.read(otherwise) if otherwise else NULL
    )


def _read_subquery(clause: Clause, node: exp.Subquery) -> Expression:
    return clause.read_scalar(clause, node)


def _read_aggregate(clause: Clause, node: exp.Expr) -> Expression:
    return clause.read_aggregate(clause, node)


def _read_window(clause: Clause, node: exp.Expr) -> Expression:
    return clause.read_window(clause, node)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Case: _read_case,
    exp.Column: _read_column,
    exp.Div: _read_division,
    exp.Filter: _read_aggregate,
    exp.If: _read_if,
    exp.IgnoreNulls: _read_aggregate,
    exp.IntDiv: _read_integer_division,
    exp.Mod: _read_modulo,
    exp.Mul: _read_product,
    exp.Collate: _read_collation,
    exp.Paren: _read_parentheses,
    exp.RespectNulls: _read_aggregate,
    exp.Subquery: _read_subquery,
    exp.Window: _read_window,
    exp.WithinGroup: _read_aggregate,
}
