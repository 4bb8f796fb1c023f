"""Scalar expressions: syntax trees to `circuits.plan.expressions`.

A table has one reader per kind of node. A node of another kind is an error, and so is an argument
of a node that its reader does not name. The clause that contains the expression (``Clause``) gives
the values of columns, aggregates and subqueries, so the same readers serve WHERE, HAVING, the
SELECT list and join conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa
from sqlglot import exp

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.runtime.evaluation import evaluate
from circuits.sql.aggregate_names import AGGREGATE_NAMES
from circuits.sql.parsing import WRITTEN
from circuits.sql.source import SYMBOLS, SqlSource
from circuits.sql.types import arrow_type
from circuits.types import functions

__all__ = ["NULL", "READERS", "Clause", "check_spark_text", "integer", "is_aggregate", "text"]

NULL: Final = Literal(None, pa.null())
INT64: Final = range(-(2**63), 2**63)


def _unsupported(construct: str, advice: str = "") -> Callable[[Clause, exp.Expr], Expression]:
    def refuse(clause: Clause, node: exp.Expr) -> Expression:
        raise clause.source.unsupported(node, f"{construct} in {clause.name}", advice)

    return refuse


Hook = Callable[["Clause", Any], Expression]
NO_AGGREGATE: Final = _unsupported(
    "an aggregate function", "use HAVING, or aggregate in a query in FROM"
)
NO_SCALAR: Final = _unsupported("a scalar subquery")
NO_WINDOW: Final = _unsupported("a window function")


@dataclass(frozen=True)
class Clause:
    """A clause that contains expressions, with functions that give the values of its columns.

    Args:
        source: The text, for errors.
        name: The name of the clause in errors, as ``WHERE``.
        column: Returns the value of a column.
        aggregate: Returns the value of a call of an aggregate function.
        scalar: Returns the value of a subquery of one row and column.
        window: Returns the value of a window function.
    """

    source: SqlSource
    name: str
    column: Hook
    aggregate: Hook = NO_AGGREGATE
    scalar: Hook = NO_SCALAR
    window: Hook = NO_WINDOW

    def read(self, node: exp.Expr) -> Expression:
        """Return the expression of a syntax tree.

        Raises:
            SqlError: A name is unknown, or a function does not take arguments of these types.
            UnsupportedSqlError: A construct is not supported.
        """
        reader = READERS.get(type(node))
        if reader is not None:
            return reader(self, node)
        return self.aggregate(self, node) if is_aggregate(node) else self.unknown(node)

    def unknown(self, node: exp.Expr) -> NoReturn:
        """Refuse a node that has no reader."""
        word = str(node.meta.get(WRITTEN, ""))
        raise self.source.unsupported(node, self._describe(node), _known_functions(node), word)

    def predicate(self, node: exp.Expr) -> Expression:
        """Return the expression of a condition, which is of type bool."""
        read = self.read(node)
        if pa.types.is_null(read.type):
            return Literal(None, pa.bool_())
        if not pa.types.is_boolean(read.type):
            raise self.source.error(
                node, f"{self.name} needs a condition, not a value of type {read.type}; compare it"
            )
        return read

    def call(
        self, node: exp.Expr, name: str, *arguments: Expression, type: pa.DataType | None = None
    ) -> Expression:
        """Return a call of a function; errors point to ``node``."""
        with self.source.function(node):
            if type is None:
                return functions.call(name, *arguments)
            return functions.call(name, *arguments, type=type)

    def all(self, node: exp.Expr, *names: str) -> tuple[Expression, ...]:
        """Return the arguments of a node that are set, in order of ``names``; refuse others."""
        self.source.accept(node, *names)
        return tuple(self.read(node.args[name]) for name in names if node.args.get(name))

    def _describe(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Func) and (WRITTEN in node.meta or not _is_operator(node)):
            return f"function {self.source.written_name(node)}()"
        if isinstance(node, exp.Query):
            return f"a subquery in {self.name}"
        return f"{self.source.construct(node)} in {self.name}"


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether the node itself is a call of an aggregate function."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in AGGREGATE_NAMES
    if isinstance(node, exp.Any):
        # sqlglot has the same node for the function and for ``x = ANY (SELECT ...)``.
        is_query = isinstance(node.this, exp.Query | exp.Tuple)
        return not is_query and not isinstance(node.parent, exp.Predicate)
    return isinstance(
        node, exp.AggFunc | exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup
    )


def _is_operator(node: exp.Expr) -> bool:
    """Return whether the text has an operator where sqlglot has a function."""
    return isinstance(node, exp.Binary) or type(node) in SYMBOLS


def _known_functions(node: exp.Expr) -> str:
    if not isinstance(node, exp.Func) or (_is_operator(node) and WRITTEN not in node.meta):
        return ""
    names = {
        kind.sql_name().lower()
        for kind in READERS
        if issubclass(kind, exp.Func) and not issubclass(kind, exp.Binary | exp.Anonymous)
    }
    return "there are: " + ", ".join(sorted(names))


def integer(value: int) -> Literal:
    """Return an integer constant."""
    return Literal(value, pa.int64())


def text(value: str) -> Literal:
    """Return a text constant."""
    return Literal(value, pa.string())


Reader = Hook


def _read_column(clause: Clause, node: exp.Column) -> Expression:
    if isinstance(node.this, exp.Star):
        raise clause.source.unsupported(node, f"'*' in {clause.name}", "name the columns")
    return clause.column(clause, node)


def _read_literal(clause: Clause, node: exp.Literal) -> Expression:
    clause.source.accept(node, "this", "is_string")
    written = node.this
    if node.is_string:
        return text(written)
    return _parse_number(clause, node, written)


def _parse_number(clause: Clause, node: exp.Expr, written: str) -> Literal:
    try:
        value = Decimal(written)
    except ArithmeticError:
        raise clause.source.error(node, f"{written!r} is no number") from None
    if "e" in written.lower():
        return Literal(float(written), pa.float64())
    if "." not in written:
        if int(value) not in INT64:
            raise clause.source.error(
                node, f"integer {written} does not fit 64 bits; write it as a decimal, with .0"
            )
        return integer(int(value))
    digits = value.as_tuple()
    scale = -int(digits.exponent)
    precision = max(len(digits.digits), scale + 1)
    if precision > 38:
        return Literal(float(written), pa.float64())
    return Literal(value, pa.decimal128(precision, scale))


def _read_boolean(clause: Clause, node: exp.Boolean) -> Expression:
    clause.source.accept(node, "this")
    return Literal(bool(node.this), pa.bool_())


def _read_null(clause: Clause, node: exp.Null) -> Expression:
    return NULL


def _read_brackets(clause: Clause, node: exp.Paren) -> Expression:
    clause.source.accept(node, "this")
    return clause.read(node.this)


def _read_negation(clause: Clause, node: exp.Neg) -> Expression:
    clause.source.accept(node, "this")
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _parse_number(clause, node, "-" + node.this.this)
    return clause.call(node, "negate", clause.read(node.this))


def _read_operator(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        return clause.call(node, function, *clause.all(node, "this", "expression"))

    return read


def _read_division(clause: Clause, node: exp.Div) -> Expression:
    """True division; division by zero gives NULL, in "safe" dialects and in all others."""
    if node.args.get("typed"):
        raise clause.source.unsupported(
            node,
            f"the division of whole numbers in {clause.source.dialect}",
            "write it with dialect='duckdb' or 'spark', where / keeps the fraction",
        )
    clause.source.accept(node, "this", "expression", "safe")
    return clause.call(node, "divide", clause.read(node.left), clause.read(node.right))


def _integer_divide(clause: Clause, node: exp.IntDiv) -> Expression:
    value = clause.call(node, "int_divide", *clause.all(node, "this", "expression"))
    if not pa.types.is_integer(value.type):
        # DuckDB keeps the fraction; other systems drop it.
        raise clause.source.unsupported(
            node, f"// with a result of type {value.type}", "write a / b, or trunc(a / b)"
        )
    return value


def _read_cast(clause: Clause, node: exp.Cast) -> Expression:
    """CAST, TRY_CAST and ``::``; sqlglot parses a CAST of Spark as a TryCast, too."""
    lenient = isinstance(node, exp.TryCast)
    if lenient and clause.source.is_spark:
        lenient = bool(node.args.get("safe"))
    clause.source.accept(node, "this", "to", *(("safe",) if lenient else ()))
    target = arrow_type(clause.source, node.to)
    value = clause.read(node.this)
    if clause.source.is_spark:
        value = _apply_spark_cast_rules(clause, node, value, target)
        if lenient and _is_invalid_spark_integer(value, target):
            return Literal(None, target)
    made = clause.call(node, "try_cast" if lenient else "cast", value, type=target)
    if clause.source.is_spark and _is_invalid_spark_integer(value, target):
        raise clause.source.error(node, f"{value} is no {target}; correct it, or use TRY_CAST")
    if isinstance(value, Literal) and isinstance(made, Call):
        # A value without a Python equivalent stays a call; a call that cannot be evaluated is an
        # error.
        try:
            evaluate(made, (), 1)
        except EvaluationError:
            raise clause.source.error(
                node, f"{value} is no {target}; correct it, or use TRY_CAST"
            ) from None
    return made


def _apply_spark_cast_rules(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType
) -> Expression:
    """Return the value to cast, so that the result is that of Spark: fractions are cut off."""
    of = value.type
    fractional = pa.types.is_floating(of) or pa.types.is_decimal(of)
    if pa.types.is_integer(target) and fractional:
        return clause.call(node, "trunc", value)
    if pa.types.is_string(target):
        check_spark_text(clause, node, value)
    return value


def _is_invalid_spark_integer(value: Expression, target: pa.DataType) -> bool:
    """Return whether Spark refuses to cast a literal text to an integer: ``'1.5'``, ``'1e3'``."""
    written = value.value if isinstance(value, Literal) else None
    if not isinstance(written, str) or not pa.types.is_integer(target):
        return False
    return re.fullmatch(r"\s*[+-]?\d+\s*", written) is None


def check_spark_text(clause: Clause, node: exp.Expr, value: Expression) -> None:
    """Refuse a float as text, because Spark formats it differently: ``1.0E10``, ``NaN``."""
    if clause.source.is_spark and pa.types.is_floating(value.type):
        raise clause.source.unsupported(
            node, "a float as text in dialect spark", "cast it to a decimal first, or round it"
        )


def _read_case(clause: Clause, node: exp.Case) -> Expression:
    clause.source.accept(node, "this", "ifs", "default")
    subject = clause.read(node.this) if node.this else None
    parts: list[Expression] = []
    for branch in node.args["ifs"]:
        clause.source.accept(branch, "this", "true")
        if subject is None:
            parts.append(clause.predicate(branch.this))
        else:
            parts.append(clause.call(branch, "eq", subject, clause.read(branch.this)))
        parts.append(clause.read(branch.args["true"]))
    default = node.args.get("default")
    return clause.call(node, "case", *parts, clause.read(default) if default else NULL)


def _read_if(clause: Clause, node: exp.If) -> Expression:
    clause.source.accept(node, "this", "true", "false")
    otherwise = node.args.get("false")
    return clause.call(
        node,
        "case",
        clause.predicate(node.this),
        clause.read(node.args["true"]),
        clause.read(otherwise) if otherwise else NULL,
    )


def _read_subquery(clause: Clause, node: exp.Subquery) -> Expression:
    return clause.scalar(clause, node)


def _read_aggregate(clause: Clause, node: exp.Expr) -> Expression:
    return clause.aggregate(clause, node)


def _read_window(clause: Clause, node: exp.Expr) -> Expression:
    return clause.window(clause, node)


# `predicates`, `scalar_functions` and `dates` add their readers.
READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Add: _read_operator("add"),
    exp.Boolean: _read_boolean,
    exp.Case: _read_case,
    exp.Cast: _read_cast,
    exp.Column: _read_column,
    exp.Div: _read_division,
    exp.Filter: _read_aggregate,
    exp.If: _read_if,
    exp.IgnoreNulls: _read_aggregate,
    exp.IntDiv: _integer_divide,
    exp.Literal: _read_literal,
    exp.Mod: _read_operator("modulo"),
    exp.Mul: _read_operator("multiply"),
    exp.Neg: _read_negation,
    exp.Null: _read_null,
    exp.Paren: _read_brackets,
    exp.RespectNulls: _read_aggregate,
    exp.Sub: _read_operator("subtract"),
    exp.Subquery: _read_subquery,
    exp.TryCast: _read_cast,
    exp.Window: _read_window,
    exp.WithinGroup: _read_aggregate,
}
