"""A clause with expressions (WHERE, the SELECT list, ON), and how to read them.

A *reader* is a function that turns one kind of syntax-tree node into an expression of
`circuits.plan.expressions`. `circuits.sql.expressions.readers` lists all readers; ``Clause.read``
looks up the reader of a node. The readers of columns, aggregates, subqueries and windows ask the
clause, because WHERE, HAVING and ON differ only in these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import UnsupportedSqlError
from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.binding.aggregate_names import AGGREGATE_NAMES, AGGREGATE_WORDS
from circuits.sql.binding.enums import (
    EXTREMES,
    adapt_enums,
    enum_of_position,
    is_enum,
    sort_enum_list,
)
from circuits.sql.binding.interval_keys import INTERVAL_COMPARISONS, lengths_of_intervals
from circuits.sql.binding.nested_order import has_order_key, order_key
from circuits.sql.binding.scope import FIRST_PARAMETER, LEVEL_COLUMNS
from circuits.sql.binding.time_zones import add_time_zones
from circuits.sql.syntax.parsing import NAME_IN_TEXT
from circuits.sql.syntax.remedies import function_remedy
from circuits.sql.syntax.source import SYMBOLS, SqlSource
from circuits.types import functions
from circuits.types.arrow_types import VARIANT, has_variant, is_nested, part_types
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list

__all__ = [
    "AGGREGATES_FLOATS",
    "NOW_ADVICE",
    "REFUSE_COLUMN",
    "REFUSE_WINDOW",
    "WINDOW_ADVICE",
    "Clause",
    "Reader",
    "ReaderTable",
    "call_function",
    "is_aggregate",
    "no_json_kind",
    "now_error",
]

#: The key of ``meta`` of an aggregate function with an argument that is a float.
AGGREGATES_FLOATS: Final = "aggregates_floats"
#: The functions that depend on the order of values.
ORDERING_FUNCTIONS: Final = frozenset({"lt", "le", "gt", "ge", "list_min", "list_max"})
# Functions whose value is another one in each call.
_RANDOM_FUNCTIONS: Final = frozenset(
    (
        *("gen_random_uuid", "monotonically_increasing_id", "nextval", "rand", "randn", "random"),
        *("randstr", "setseed", "shuffle", "uniform", "uuid", "uuidv4", "uuidv7"),
    )
)
_COMPARISONS: Final = frozenset({"lt", "le", "gt", "ge"})
_EQUALITIES: Final = frozenset({"eq", "ne", "same", "in"})
# The functions of lists that order the elements, and return some of them.
_ELEMENT_ORDERS: Final = frozenset(
    (
        *("list_min", "list_max", "list_sort", "list_sort_nulls_first"),
        *("list_sort_desc", "list_sort_desc_nulls_first"),
    )
)

Reader = Callable[["Clause", Any], Expression]
# Casts the arguments of a function, which is named, before a call.
ArgumentCast = Callable[["Clause", exp.Expr, str, Sequence[Expression]], tuple[Expression, ...]]

_PYTHON_ADVICE: Final = "functions={...} adds functions of Python"


def _keep_arguments(
    clause: Clause, node: exp.Expr, function: str, arguments: Sequence[Expression]
) -> tuple[Expression, ...]:
    """Return the arguments of a call without casts."""
    return tuple(arguments)


class _MissingArgumentError(Exception):
    """A call lacks an argument that its reader reads; the call is the place of the error."""


@dataclass(frozen=True)
class ReaderTable:
    """The reader of each construct of an expression.

    Args:
        by_class: By the class of the syntax-tree node.
        by_name: By the lower-case name of a function, for all dialects except spark. These are the
            functions that have no class in sqlglot, and those whose meaning depends on the dialect
            (`circuits.sql.syntax.parsing`); their calls are ``exp.Anonymous`` nodes.
        spark_by_name: The same for dialect spark.
        postgres_by_class: By class: constructs with another meaning in PostgreSQL and the engines
            that follow it.
        postgres_by_name: The same by name.
        spark_results: For dialect spark, by name or class: the integer type that the result of a
            function has in Spark. Its kernel returns int64, so the result is cast.
        postgres_results: The same for PostgreSQL and the engines that follow it.
        spark_casts: Returns the arguments of a call with the implicit casts of Spark.
    """

    by_class: Mapping[type[exp.Expr], Reader]
    by_name: Mapping[str, Reader]
    spark_by_name: Mapping[str, Reader]
    postgres_by_class: Mapping[type[exp.Expr], Reader] = field(default_factory=dict)
    postgres_by_name: Mapping[str, Reader] = field(default_factory=dict)
    spark_results: Mapping[str | type[exp.Expr], pa.DataType] = field(default_factory=dict)
    postgres_results: Mapping[str | type[exp.Expr], pa.DataType] = field(default_factory=dict)
    spark_casts: ArgumentCast = _keep_arguments

    def find(
        self, node: exp.Expr, *, is_spark: bool = False, is_postgres: bool = False
    ) -> Reader | None:
        """Return the reader of a node; None if its construct is not supported."""
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if is_postgres and name in self.postgres_by_name:
                return self.postgres_by_name[name]
            return (self.spark_by_name if is_spark else self.by_name).get(name)
        if is_postgres and type(node) in self.postgres_by_class:
            return self.postgres_by_class[type(node)]
        return self.by_class.get(type(node))

    def function_names(self, *, is_spark: bool) -> Iterable[str]:
        """Return the SQL names of the scalar functions of a dialect, for error messages."""
        by_class = {
            kind.sql_name().lower()
            for kind in self.by_class
            if issubclass(kind, exp.Func) and not issubclass(kind, exp.Binary)
        }
        return by_class | (self.spark_by_name if is_spark else self.by_name).keys()


def _refusing_reader(construct: str, advice: str = "") -> Reader:
    """Return a reader that raises an error: the clause does not support the construct."""

    def refuse(clause: Clause, node: exp.Expr) -> Expression:
        raise clause.source.unsupported(node, f"{construct} in {clause.name}", advice)

    return refuse


#: How an error explains a refused use of the current time.
NOW_ADVICE: Final = (
    "compare it with a timestamp in WHERE, as in WHERE ts > now() - INTERVAL '1 hour'; or make it "
    "a column, as in FROM (SELECT *, now() AS time FROM t), whose rows all change in every step"
)
REFUSE_AGGREGATE: Final = _refusing_reader(
    "an aggregate function", "use HAVING, or aggregate in a query in FROM"
)
#: For a clause whose expressions have been read.
REFUSE_COLUMN: Final = _refusing_reader("a column")
REFUSE_SCALAR: Final = _refusing_reader("a scalar subquery")
REFUSE_MEMBERSHIP: Final = _refusing_reader("EXISTS, IN, ANY or ALL of a subquery")
WINDOW_ADVICE: Final = "filter with QUALIFY, or compute it in a query in FROM and use its name here"
REFUSE_WINDOW: Final = _refusing_reader("a window function", WINDOW_ADVICE)
REFUSE_GENERATOR: Final = _refusing_reader(
    "unnest() or explode()", "use it in FROM, as FROM t, UNNEST(t.a) AS u(x)"
)


def now_error(source: SqlSource, node: exp.Expr, place: str) -> UnsupportedSqlError:
    """Return the error that the current time is not supported at a place."""
    name = source.name_in_text(node)
    if isinstance(node, exp.Anonymous):
        name = f"function {name}()"
    return source.unsupported(node, f"{name} in {place}", NOW_ADVICE)


def _refuse_now(clause: Clause, node: exp.Expr) -> Expression:
    """Raise an error: the clause does not support the current time."""
    raise now_error(clause.source, node, clause.name)


def no_json_kind(value: Expression) -> str:
    """Return that the texts in a value are not known to be JSON."""
    return ""


@dataclass(frozen=True)
class Clause:
    """A clause that contains expressions.

    Args:
        source: The text, for errors.
        readers: The readers of all constructs.
        name: The name of the clause in errors, as ``WHERE``.
        read_column: Returns the value of a column.
        read_aggregate: Returns the value of a call of an aggregate function.
        read_scalar: Returns the value of a subquery that has one row and one column.
        read_window: Returns the value of a window function.
        read_now: Returns the current time.
        read_generator: Returns the value of a function that makes several rows from each row.
        parameters: The columns that stand for the parameters of lambdas, by lower-case name.
        lambda_depth: The number of lambdas around the expressions.
        read_membership: Returns the value of EXISTS, IN, ANY or ALL of a subquery.
        json_kind: Returns "json" or "jsonb" if the texts in a value are JSON, else "".
    """

    source: SqlSource
    readers: ReaderTable
    name: str
    read_column: Reader
    read_aggregate: Reader = REFUSE_AGGREGATE
    read_scalar: Reader = REFUSE_SCALAR
    read_window: Reader = REFUSE_WINDOW
    read_now: Reader = _refuse_now
    read_generator: Reader = REFUSE_GENERATOR
    parameters: Mapping[str, Column] = field(default_factory=dict)
    lambda_depth: int = 0
    read_membership: Reader = REFUSE_MEMBERSHIP
    json_kind: Callable[[Expression], str] = no_json_kind

    @property
    def first_parameter(self) -> int:
        """The number of the first parameter of a lambda in the clause."""
        return FIRST_PARAMETER + self.lambda_depth * LEVEL_COLUMNS

    def read(self, node: exp.Expr) -> Expression:
        """Return the expression of a syntax tree.

        Raises:
            SqlError: A name is unknown, or a function does not take arguments of these types.
            UnsupportedSqlError: A construct is not supported.
        """
        if node is None:
            raise _MissingArgumentError
        if isinstance(node, exp.Anonymous):
            self.source.allow_arguments(node, "this", "expressions")
        reader = self.readers.find(
            node, is_spark=self.source.is_spark, is_postgres=self.source.is_postgres
        )
        if reader is not None:
            try:
                value = reader(self, node)
            except (_MissingArgumentError, KeyError) as error:
                # sqlglot leaves out the names of arguments that a call does not have.
                is_other = isinstance(error, KeyError) and (
                    error.args[0] not in node.arg_types or error.args[0] in node.args
                )
                if is_other:
                    raise
                name = self.source.name_in_text(node)
                raise self.source.error(node, f"{name}() needs another argument") from None
            return self._as_dialect_type(node, value)
        if is_aggregate(node):
            return self.read_aggregate(self, node)
        word = str(node.meta.get(NAME_IN_TEXT, ""))
        raise self.source.unsupported(
            node, self._describe(node), self._suggest_functions(node), word
        )

    def _as_dialect_type(self, node: exp.Expr, value: Expression) -> Expression:
        """Return an integer result of a function in the type that it has in the dialect."""
        if self.source.is_spark:
            results = self.readers.spark_results
        elif self.source.is_postgres:
            results = self.readers.postgres_results
        else:
            return value
        name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node)
        target = results.get(name)
        if target is None or value.type == target or not pa.types.is_integer(value.type):
            return value
        return self.call(node, "cast", value, type=target)

    def read_condition(self, node: exp.Expr) -> Expression:
        """Return the expression of a condition, which is of type bool."""
        condition = self.read(node)
        if pa.types.is_null(condition.type):
            return Literal(None, pa.bool_())
        if not pa.types.is_boolean(condition.type):
            raise self.source.error(
                node,
                f"{self.name} needs a condition, not a value of type {condition.type}; compare it",
            )
        return condition

    def read_arguments(self, node: exp.Expr, *names: str) -> tuple[Expression, ...]:
        """Return the arguments of a node that are set, in the order of ``names``.

        Raises:
            UnsupportedSqlError: Another argument is set.
        """
        self.source.allow_arguments(node, *names)
        return tuple(self.read(node.args[name]) for name in names if node.args.get(name))

    def call(
        self, node: exp.Expr, name: str, *arguments: Expression, type: pa.DataType | None = None
    ) -> Expression:
        """Return a call of a function; errors point to ``node``.

        In dialect spark, an order of nested lists is an error, because NULL within them has
        another place there; comparisons compare order keys.
        """
        if name in _ELEMENT_ORDERS:
            sorted_list = sort_enum_list(
                arguments[0], lambda positions: self.call(node, name, positions, *arguments[1:])
            )
            if sorted_list is not None:
                return sorted_list
        if any(is_enum(argument.type) for argument in arguments):
            types = [argument.type for argument in arguments if is_enum(argument.type)]
            arguments = adapt_enums(self.source, node, name, arguments)
            if name in EXTREMES and any(pa.types.is_integer(part.type) for part in arguments):
                position = call_function(self.source, node, name, *arguments)
                return enum_of_position(position, types[0])
        if self.source.is_postgres:
            arguments = add_time_zones(name, arguments)
            if name in _EQUALITIES:
                arguments = self._with_jsonb_literals(arguments)
        is_refused = name in (INTERVAL_COMPARISONS if self.source.is_spark else _COMPARISONS)
        if is_refused and any(has_variant(argument.type) for argument in arguments):
            self.source.refuse_order(node, VARIANT, "a comparison")
        if name in _COMPARISONS and self.source.is_spark:
            arguments = tuple(
                order_key(part) if has_order_key(part.type) else part for part in arguments
            )
        if (name in ORDERING_FUNCTIONS and name not in _COMPARISONS) or name.startswith(
            "list_sort"
        ):
            for argument in arguments:
                ordered_type = argument.type
                if name.startswith("list_") and is_nested(ordered_type):
                    ordered_type = part_types(ordered_type)[0]
                self.source.refuse_order(node, ordered_type, "the order")
        if self.source.is_spark:
            arguments = self.readers.spark_casts(self, node, name, arguments)
        if name == "nullif" and (self.source.is_spark or arguments[0].type == INTERVAL):
            value, other = arguments
            equal = self.call(node, "eq", value, other)
            return self.call(node, "case", equal, Literal(None, value.type), value)
        return call_function(self.source, node, name, *arguments, type=type)

    def _with_jsonb_literals(self, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
        """Return the arguments of a comparison, with texts beside a jsonb as jsonb."""
        if not any(self.json_kind(argument) == "jsonb" for argument in arguments):
            return tuple(arguments)
        return tuple(
            functions.call("jsonb_of_text", part)
            if isinstance(part, Literal) and isinstance(part.value, str)
            else part
            for part in arguments
        )

    def field(self, node: exp.Expr, value: Expression, name: str) -> Expression:
        """Return the field of a struct.

        In dialect spark, also the value of a key of a map, and of a list of structs the list of
        their fields.
        """
        literal = Literal(name, pa.string())
        if self.source.is_spark and pa.types.is_map(value.type):
            return self.call(node, "map_value", value, literal)
        is_list_of_structs = is_list(value.type) and pa.types.is_struct(value.type.value_type)
        if self.source.is_spark and is_list_of_structs:
            first = self.first_parameter
            part = self.field(node, Column(first, value.type.value_type), name)
            with self.source.errors_at(node):
                return lambda_call("list_transform", value, part, (first, first + 1))
        if value.type == VARIANT:
            subscript = f"v:{name}" if self.source.is_spark else f"v['{name}']"
            raise self.source.unsupported(node, "a field of a VARIANT", f"write {subscript}")
        if not pa.types.is_struct(value.type):
            raise self.source.error(
                node, f"{node.sql()!r}: a value of type {value.type} has no fields"
            )
        return self.call(node, "struct_field", value, literal)

    def _describe(self, node: exp.Expr) -> str:
        if _is_function_call(node):
            return f"function {self.source.name_in_text(node)}()"
        if isinstance(node, exp.Query):
            return f"a subquery in {self.name}"
        return f"{self.source.describe(node)} in {self.name}"

    def _suggest_functions(self, node: exp.Expr) -> str:
        """Return advice that names similar functions; empty if the node is not a function."""
        if not _is_function_call(node):
            return ""
        if self.source.name_in_text(node).lower() in _RANDOM_FUNCTIONS:
            return (
                "its value would differ when the rows are deleted; compute it before, as a column"
            )
        remedy = function_remedy(self.source.name_in_text(node), is_spark=self.source.is_spark)
        if remedy:
            return remedy
        name = self.source.name_in_text(node).lower()
        if name in AGGREGATE_WORDS:  # a window function; aggregates are read before
            return f"it needs a window; write {name}(...) OVER (...)"
        functions_of_rows = self.readers.function_names(is_spark=self.source.is_spark)
        names = sorted({*functions_of_rows, *AGGREGATE_WORDS} - {name})
        similar = get_close_matches(name, names, n=3)
        if similar:
            return f"did you mean {' or '.join(similar)}? {_PYTHON_ADVICE}"
        return f"docs/reference/functions.md lists the functions; {_PYTHON_ADVICE}"


def call_function(
    source: SqlSource,
    node: exp.Expr,
    name: str,
    *arguments: Expression,
    type: pa.DataType | None = None,
) -> Expression:
    """Return a call of a function of `circuits.types.functions`; errors point to ``node``."""
    with source.errors_at(node, name):
        if name in INTERVAL_COMPARISONS:
            arguments = lengths_of_intervals(arguments)
        if type is None:
            value = functions.call(name, *arguments)
        else:
            value = functions.call(name, *arguments, type=type)
    if is_nested(value.type) and INTERVAL in part_types(value.type):
        raise source.unsupported(node, "an interval in a list, struct or map", "cast it to a text")
    return value


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether the node itself is a call of an aggregate function."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in AGGREGATE_NAMES
    if isinstance(node, exp.Any):
        # sqlglot has the same node for the function and for ``x = ANY (SELECT ...)``.
        is_quantifier = isinstance(node.this, exp.Query | exp.Tuple)
        return not is_quantifier and not isinstance(node.parent, exp.Predicate)
    return isinstance(
        node, exp.AggFunc | exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup
    )


def _is_function_call(node: exp.Expr) -> bool:
    """Return whether the text calls a function; sqlglot also has functions for operators."""
    if not isinstance(node, exp.Func):
        return False
    is_operator = isinstance(node, exp.Binary) or type(node) in SYMBOLS
    return NAME_IN_TEXT in node.meta or not is_operator
