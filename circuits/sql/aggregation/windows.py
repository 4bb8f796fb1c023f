"""Window functions: ``f(...) OVER (PARTITION BY ... ORDER BY ... frame)`` as `Window` nodes.

While the expressions of a SELECT are read, each call becomes a placeholder column. When the rows of
the SELECT are complete (grouped, and filtered by HAVING), ``plan`` adds the arguments of the calls
as columns, and one Window node for each pair of partition and order. The placeholders are then
replaced by the columns of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import Column, Expression, Literal, substitute
from circuits.plan.json_values import JSON_KEEPING_AGGREGATES
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.plan.window import RANKING, WHOLE_PARTITION, Frame, Window, WindowCall
from circuits.sql.aggregation.aggregate_calls import read_aggregate
from circuits.sql.aggregation.aggregate_reader import PrimitiveAggregate
from circuits.sql.aggregation.frames import read_frame
from circuits.sql.binding.clause import REFUSE_WINDOW, Clause
from circuits.sql.binding.interval_keys import normalize_interval
from circuits.sql.binding.ordering import (
    SortKey,
    order_columns,
    read_argument_order,
    read_order,
    reverse_order,
)
from circuits.sql.binding.scope import FIRST_WINDOW, is_correlated
from circuits.sql.expressions.casts import cast_by_dialect
from circuits.sql.expressions.constants import read_constant
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.types.functions import aggregate_type
from circuits.types.functions.casting.coercion import unify

__all__ = ["Windows"]

_RANKING_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.CumeDist: "cume_dist",
    exp.DenseRank: "dense_rank",
    exp.Ntile: "ntile",
    exp.PercentRank: "percent_rank",
    exp.Rank: "rank",
    exp.RowNumber: "row_number",
}
_VALUE_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.AnyValue: "first_value",
    exp.First: "first_value",
    exp.FirstValue: "first_value",
    exp.Lag: "lag",
    exp.Last: "last_value",
    exp.LastValue: "last_value",
    exp.Lead: "lead",
    exp.NthValue: "nth_value",
}
# By the name in the text, for the functions that have no class in sqlglot.
_FUNCTIONS_BY_NAME: Final = {
    name: name for name in (*_RANKING_FUNCTIONS.values(), *_VALUE_FUNCTIONS.values())
} | {
    "arbitrary": "first_value",
    "first": "first_value",
    "last": "last_value",
}
# Without a frame, these functions read the whole partition in Snowflake.
_POSITIONAL_FUNCTIONS: Final = ("first_value", "last_value", "nth_value")


@dataclass(frozen=True)
class _Call:
    """A call as it was read: a `WindowCall` with expressions in place of columns.

    ``number`` is the constant argument of lag, lead, nth_value and ntile, else 1. ``row_numbers``
    is this argument if it is no constant. ``bounds`` are the start and the end of the frame of each
    row, if they are no constants (`circuits.sql.aggregation.frames`).
    """

    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    frame: Frame
    number: int
    ignore_nulls: bool
    distinct: bool
    within: tuple[SortKey, ...] = ()
    options: tuple[Any, ...] = ()
    bounds: tuple[Expression | None, Expression | None] = (None, None)
    row_numbers: Expression | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        keys = (*self.order, *self.within)
        numbers = (value for value in (*self.bounds, self.row_numbers) if value is not None)
        return (*self.partition, *(key.expression for key in keys), *self.arguments, *numbers)

    def map(self, change: Callable[[Expression], Expression]) -> _Call:
        start, end = self.bounds
        return replace(
            self,
            partition=tuple(map(change, self.partition)),
            order=tuple(key.map(change) for key in self.order),
            arguments=tuple(map(change, self.arguments)),
            within=tuple(key.map(change) for key in self.within),
            bounds=(start and change(start), end and change(end)),
            row_numbers=self.row_numbers and change(self.row_numbers),
        )


class Windows:
    """The window functions of one SELECT.

    Args:
        named: The windows of its WINDOW clause, by name without case.
        json_kinds: Receives the kind of JSON of each placeholder that has one.
    """

    def __init__(self, named: Mapping[str, exp.Window], json_kinds: dict[int, str]) -> None:
        self._named = named
        self._json_kinds = json_kinds
        self._calls: list[_Call] = []
        self._used: set[str] = set()
        # The columns of the result of ``plan``, by the number of a placeholder, or of a column of
        # the rows that ``plan`` was given.
        self._result_columns: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def read(self, clause: Clause, node: exp.Window) -> Expression:
        """Return the placeholder of a window function.

        Raises:
            SqlError: The function does not take these arguments, or the frame is not valid.
            UnsupportedSqlError: The function or a part of its window is not supported.
        """
        inner = replace(
            clause, name=f"the window function in {clause.name}", read_window=REFUSE_WINDOW
        )

        def register(call: _Call) -> Expression:
            if any(map(is_correlated, call.expressions)):
                raise clause.source.correlated(
                    node,
                    "a window function of columns of the enclosing query",
                    "name these columns in WHERE only",
                )
            if call not in self._calls:
                self._calls.append(call)
            value = Column(FIRST_WINDOW + self._calls.index(call), call.type)
            if call.function in JSON_KEEPING_AGGREGATES and call.arguments:
                self._json_kinds[value.index] = clause.json_kind(call.arguments[0])
            return value

        return self._read_call(inner, node, register)

    def check_unused(self, clause: Clause) -> None:
        """Check the names of columns in the windows that no function uses."""
        for name, window in self._named.items():
            if name not in self._used:
                for column in window.find_all(exp.Column):
                    clause.read(column)
                clause.source.mark_read(window)

    def plan(
        self,
        plan: PlanNode,
        over_groups: Callable[[Expression], Expression],
        columns_read: Collection[int],
        domain_columns: Sequence[Expression] = (),
    ) -> PlanNode:
        """Return the rows of a plan with the results of all calls as further columns.

        Args:
            plan: The rows.
            over_groups: Rewrites an expression of a call over the rows: over the groups if the
                SELECT is grouped, else unchanged.
            columns_read: The columns of the rows that other expressions read. All others are
                dropped, since a window stores its rows.
            domain_columns: In a correlated subquery, the columns that have the values of the
                enclosing query. Every partition is divided by them.
        """
        calls = [call.map(over_groups) for call in self._calls]
        calls = [
            replace(
                call,
                partition=(*domain_columns, *map(normalize_interval, call.partition)),
                order=tuple(key.map(normalize_interval) for key in call.order),
            )
            for call in calls
        ]
        values: list[Expression] = [c for c in columns(plan) if c.index in columns_read]
        self._result_columns = {
            value.index: position
            for position, value in enumerate(values)
            if isinstance(value, Column)
        }
        read_by_calls = dict.fromkeys(value for call in calls for value in call.expressions)
        values += [value for value in read_by_calls if value not in values]
        if tuple(values) != columns(plan):
            plan = Map(plan, tuple(values), column_names(values, plan.fields))
        first_result = len(values)
        for partition, order in dict.fromkeys((call.partition, call.order) for call in calls):
            numbers = [
                number
                for number, call in enumerate(calls)
                if (call.partition, call.order) == (partition, order)
            ]
            for number in numbers:
                self._result_columns[FIRST_WINDOW + number] = first_result
                first_result += 1
            plan = Window(
                plan,
                tuple(dict.fromkeys(map(values.index, partition))),
                order_columns(order, values),
                tuple(self._window_call(calls[number], values, plan) for number in numbers),
            )
        return plan

    def replace_placeholders(self, expression: Expression) -> Expression:
        """Rewrite an expression with placeholders over the rows that ``plan`` returned."""
        return substitute(
            expression,
            lambda column: Column(
                self._result_columns.get(column.index, column.index), column.type
            ),
        )

    @staticmethod
    def _window_call(call: _Call, values: list[Expression], plan: PlanNode) -> WindowCall:
        start, end = (values.index(bound) if bound is not None else None for bound in call.bounds)
        window_call = WindowCall(
            call.function,
            tuple(map(values.index, call.arguments)),
            call.type,
            "",
            replace(call.frame, start_column=start, end_column=end),
            call.number,
            call.ignore_nulls,
            call.distinct,
            order_columns(call.within, values),
            call.options,
            None if call.row_numbers is None else values.index(call.row_numbers),
        )
        return replace(window_call, name=window_call.text(plan.fields))

    def _read_call(
        self, clause: Clause, node: exp.Window, register: Callable[[_Call], Expression]
    ) -> Expression:
        source = clause.source
        partition_by, order_by, spec = self.window_parts(clause, node)
        partition = tuple(clause.read(key) for key in partition_by)
        order = read_order(source, order_by, clause.read) if order_by is not None else ()
        # A constant orders nothing, but the offset of a RANGE frame needs one column.
        varying = tuple(key for key in order if not isinstance(key.expression, Literal))
        partition = tuple(key for key in partition if not isinstance(key, Literal))
        frame, bounds, order = read_frame(clause, node, spec, varying, order, order_by)
        if spec is None and not order:
            frame = WHOLE_PARTITION
        function, ignore_nulls, filter_node = node.this, None, None
        while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            if isinstance(function, exp.Filter):
                filter_node = function
            else:
                source.allow_arguments(function, "this")
                ignore_nulls = isinstance(function, exp.IgnoreNulls)
            function = function.this
        name = _RANKING_FUNCTIONS.get(type(function)) or _VALUE_FUNCTIONS.get(type(function))
        if isinstance(function, exp.Anonymous):
            name = _FUNCTIONS_BY_NAME.get(function.name.lower())
        if ignore_nulls is None:
            ignore_nulls = isinstance(function, exp.AnyValue) and not source.is_spark
        if name is not None and filter_node is not None:
            if not _is_also_aggregate(clause, function, name):
                raise source.error(
                    filter_node, "FILTER is for aggregates; use CASE in the argument"
                )
            name = None
        # The function, its arguments and type are replaced for each aggregate of the call.
        base = _Call(partition, order, "", (), pa.null(), frame, 1, False, False, bounds=bounds)

        def register_primitive(aggregate: PrimitiveAggregate) -> Expression:
            call = replace(
                base,
                function=aggregate.function,
                arguments=aggregate.arguments,
                type=aggregate.type,
                distinct=aggregate.distinct,
                within=aggregate.order,
                options=aggregate.options,
            )
            return register(call)

        is_positional = name in _POSITIONAL_FUNCTIONS and not isinstance(function, exp.AnyValue)
        if spec is None and source.dialect == "snowflake" and is_positional:
            base = replace(base, frame=WHOLE_PARTITION, bounds=(None, None))
        if name is None:  # the function is an aggregate, or unknown
            return read_aggregate(clause, node.this, register_primitive, order)
        parts, argument_order = self._function_arguments(clause, function)
        call = replace(base, function=name, ignore_nulls=ignore_nulls)
        if argument_order is not None:
            keys = self._read_argument_order(clause, function, argument_order)
            if name in _POSITIONAL_FUNCTIONS:
                call = self._read_value_call(clause, function, name, parts, call)
                return _value_in_order(clause, function, call, keys, register_primitive)
            call = self._order_partition(clause, function, call, keys)
        if name not in RANKING:
            return register(self._read_value_call(clause, function, name, parts, call))
        rank = register(self._read_ranking_call(clause, function, name, parts, call))
        if source.is_spark and rank.type == pa.int64():
            rank = clause.call(function, "cast", rank, type=pa.int32())
        return rank

    def _read_ranking_call(
        self, clause: Clause, node: exp.Expr, name: str, parts: list[exp.Expr], call: _Call
    ) -> _Call:
        """Read row_number, rank, dense_rank, percent_rank, cume_dist or ntile."""
        if name == "ntile":
            call = self._with_number(clause, node, parts, 0, call)
        elif parts:
            raise clause.source.error(node, f"{name}() takes no arguments")
        if call.ignore_nulls:
            raise clause.source.unsupported(node, f"IGNORE NULLS of {name}()")
        type_ = pa.float64() if name in ("percent_rank", "cume_dist") else pa.int64()
        return replace(call, type=type_, frame=WHOLE_PARTITION, bounds=(None, None))

    def _read_value_call(
        self, clause: Clause, node: exp.Expr, name: str, parts: list[exp.Expr], call: _Call
    ) -> _Call:
        """Read lag, lead, first_value, last_value or nth_value."""
        source = clause.source
        max_arguments = {"lag": 3, "lead": 3, "nth_value": 2}.get(name, 1)
        if not 1 <= len(parts) <= max_arguments:
            raise source.error(
                node,
                f"{name}() takes 1 to {max_arguments} arguments, not {len(parts)}"
                if max_arguments > 1
                else f"{name}() takes 1 argument, not {len(parts)}",
            )
        value = clause.read(parts[0])
        arguments = [value]
        if name in ("lag", "lead"):
            if len(parts) > 1:
                call = self._with_number(clause, node, parts, 1, call)
            if len(parts) == 3:
                arguments = self._unify_default(clause, parts[2], value)
            call = replace(call, frame=WHOLE_PARTITION, bounds=(None, None))
        elif name == "nth_value":
            call = self._with_number(clause, node, parts, 1, call)
        return replace(call, arguments=tuple(arguments), type=arguments[0].type)

    @staticmethod
    def _unify_default(clause: Clause, node: exp.Expr, value: Expression) -> list[Expression]:
        """Return a value of lag or lead and its default, in one type.

        Spark and DuckDB cast the default to the type of the value. PostgreSQL casts both to their
        common type.
        """
        default = clause.read(node)
        if default.type == value.type:
            return [value, default]
        if clause.source.is_spark or clause.source.dialect == "duckdb":
            return [value, cast_by_dialect(clause, node, default, value.type, lenient=False)]
        with clause.source.errors_at(node):
            return list(unify((value, default))[0])

    def _function_arguments(
        self, clause: Clause, node: exp.Expr
    ) -> tuple[list[exp.Expr], exp.Order | None]:
        """Return the arguments of a call, and the ORDER BY after the last one."""
        if isinstance(node, exp.Anonymous):
            clause.source.allow_arguments(node, "this", "expressions")
            parts = list(node.expressions)
        else:
            names = ("this", "offset", "default")
            values = [node.args.get(name) for name in names] + node.expressions
            clause.source.allow_arguments(node, *names, "expressions")
            parts = [value for value in values if isinstance(value, exp.Expr)]
        if not parts or not isinstance(order := parts[-1], exp.Order):
            return parts, None
        parts[-1:] = [] if order.this is None else [order.this]
        return parts, order

    @staticmethod
    def _read_argument_order(
        clause: Clause, node: exp.Expr, order: exp.Order
    ) -> tuple[SortKey, ...]:
        """Return the ORDER BY in the brackets of a call, which only DuckDB has."""
        source = clause.source
        if source.is_spark:
            name = source.name_in_text(node).lower()
            raise source.error(order, f"{name}() takes no ORDER BY; write it in OVER (...)")
        return read_argument_order(source, order, clause.read)

    @staticmethod
    def _order_partition(
        clause: Clause, node: exp.Expr, call: _Call, keys: tuple[SortKey, ...]
    ) -> _Call:
        """Return a call over its partition in another order; its frame must be the partition."""
        name = clause.source.name_in_text(node).lower()
        if call.function == "dense_rank":
            raise clause.source.error(node, f"{name}() takes no ORDER BY; write it in OVER (...)")
        if call.frame != WHOLE_PARTITION:
            raise clause.source.unsupported(
                node,
                f"{name}() with an ORDER BY in its brackets over a part of a partition",
                "write the ORDER BY in OVER (...) only, or add the frame ROWS BETWEEN UNBOUNDED "
                "PRECEDING AND UNBOUNDED FOLLOWING",
            )
        # Rows that are equal in the new order keep that of the window, unless they have one rank.
        is_rank = call.function in ("rank", "percent_rank", "cume_dist")
        return replace(call, order=keys if is_rank else (*keys, *call.order))

    @staticmethod
    def _with_number(
        clause: Clause, node: exp.Expr, parts: list[exp.Expr], index: int, call: _Call
    ) -> _Call:
        """Return a call with the whole number that is the argument at an index."""
        source = clause.source
        if len(parts) <= index:
            raise source.error(node, "an argument is missing: a whole number")
        part = parts[index]
        is_signed = call.function in ("lag", "lead")
        value = read_constant(clause, part)
        number = value.value if isinstance(value, Literal) else None
        if isinstance(number, int) and not isinstance(number, bool):
            if number >= 1 or is_signed:
                return replace(call, number=number)
            if source.is_spark or call.function == "ntile":
                raise source.error(part, f"{number}: write a whole number from 1 on")
        if source.is_spark:
            raise source.error(
                part, f"the number of {call.function}() is not a constant; write a whole number"
            )
        numbers = value if isinstance(value, Literal) else clause.read(part)
        if not (pa.types.is_integer(numbers.type) or pa.types.is_null(numbers.type)):
            raise source.error(
                part, f"the number of {call.function}() is a whole number, not a {numbers.type}"
            )
        numbers = clause.call(part, "cast", numbers, type=pa.int64())
        if call.function == "ntile":
            error = clause.call(
                part, "raise_error", string_literal("the number of ntile() is below 1")
            )
            error = clause.call(part, "cast", error, type=pa.int64())
            is_below = clause.call(part, "lt", numbers, integer_literal(1))
            numbers = clause.call(part, "case", is_below, error, numbers)
        return replace(call, row_numbers=numbers)

    def window_parts(
        self, clause: Clause, node: exp.Window, referring: tuple[str, ...] = ()
    ) -> tuple[list[exp.Expr], exp.Order | None, exp.WindowSpec | None]:
        """Return PARTITION BY, ORDER BY and frame, with those of the window that it names.

        ``referring`` has the names of the windows that led to this one, to find a cycle.
        """
        clause.source.allow_arguments(
            node, "this", "partition_by", "order", "spec", "alias", "over"
        )
        partition = list(node.args.get("partition_by") or ())
        order, spec = node.args.get("order"), node.args.get("spec")
        alias = node.args.get("alias")
        if alias is None:
            return partition, order, spec
        name = alias.name.casefold()
        named = self._named.get(name)
        if named is None or name in referring:
            known = ", ".join(self._named) or "none"
            raise clause.source.error(
                node, f"unknown window {alias.name!r}; in the WINDOW clause: {known}", alias.name
            )
        self._used.add(name)
        base_partition, base_order, base_spec = self.window_parts(clause, named, (*referring, name))
        if partition and base_partition:
            raise clause.source.error(
                node, f"window {alias.name!r} has a PARTITION BY already; leave one out"
            )
        if order is not None and base_order is not None:
            raise clause.source.error(
                node, f"window {alias.name!r} has an ORDER BY already; leave one out"
            )
        return partition or base_partition, order or base_order, spec or base_spec


def _is_also_aggregate(clause: Clause, node: exp.Expr, name: str) -> bool:
    """Return whether a window function is also an aggregate, which takes FILTER.

    In Spark these are first, last and any_value; in other systems only any_value.
    """
    if clause.source.is_spark:
        return name in ("first_value", "last_value")
    return isinstance(node, exp.AnyValue) or node.name.lower() == "arbitrary"


def _value_in_order(
    clause: Clause,
    node: exp.Expr,
    call: _Call,
    order: tuple[SortKey, ...],
    register: Callable[[PrimitiveAggregate], Expression],
) -> Expression:
    """Return first_value, last_value or nth_value of a frame whose rows have another order."""
    (value,) = call.arguments
    # A primitive aggregate leaves out the rows in which a further argument is NULL.
    arguments = (value, value) if call.ignore_nulls else (value,)
    if call.function == "last_value":
        order = reverse_order(order)
    function = "list" if call.function == "nth_value" else "first"
    with clause.source.errors_at(node):
        type_ = aggregate_type(function, *(argument.type for argument in arguments))
    result = register(PrimitiveAggregate(function, arguments, type_, False, order, ()))
    if function == "first":
        return result
    number = integer_literal(call.number) if call.row_numbers is None else call.row_numbers
    is_valid = clause.call(node, "ge", number, integer_literal(1))
    return clause.call(
        node, "case", is_valid, clause.call(node, "list_element", result, number), NULL
    )
