"""Window functions: ``f(...) OVER (PARTITION BY ... ORDER BY ... frame)`` as `Window` nodes.

While the expressions of a SELECT are read, each call becomes a placeholder column. When the rows of
the SELECT are complete (grouped, and filtered by HAVING), ``plan`` adds the arguments of the calls
as columns, and one Window node for each pair of partition and order. The placeholders are then
replaced by the columns of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import Column, Expression, Literal, substitute
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.plan.window import RANKING, WHOLE_PARTITION, Frame, MonthShift, Window, WindowCall
from circuits.sql.aggregation.aggregate_calls import read_aggregate
from circuits.sql.aggregation.aggregate_reader import PrimitiveAggregate
from circuits.sql.aggregation.grouping import FIRST_WINDOW
from circuits.sql.binding.clause import REFUSE_WINDOW, Clause
from circuits.sql.binding.ordering import SortKey, order_columns, read_order
from circuits.sql.binding.scope import is_correlated
from circuits.sql.expressions.constants import read_constant
from circuits.sql.expressions.intervals import is_interval_sum, read_interval_sum
from circuits.sql.syntax.source import SqlSource
from circuits.types.arrow_types import value_type

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
_EXCLUSIONS: Final = {
    "NO OTHERS": "none",
    "CURRENT ROW": "current row",
    "GROUP": "group",
    "TIES": "ties",
}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1000, "us": 1}
_DAY_MICROSECONDS: Final = 86_400_000_000


@dataclass(frozen=True)
class _Call:
    """A call as it was read: a `WindowCall` with expressions in place of columns.

    ``number`` is the constant argument of lag, lead, nth_value and ntile, else 1.
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

    @property
    def expressions(self) -> tuple[Expression, ...]:
        keys = (*self.order, *self.within)
        return (*self.partition, *(key.expression for key in keys), *self.arguments)

    def map(self, change: Callable[[Expression], Expression]) -> _Call:
        return replace(
            self,
            partition=tuple(map(change, self.partition)),
            order=tuple(key.map(change) for key in self.order),
            arguments=tuple(map(change, self.arguments)),
            within=tuple(key.map(change) for key in self.within),
        )


class Windows:
    """The window functions of one SELECT.

    Args:
        named: The windows of its WINDOW clause, by name without case.
    """

    def __init__(self, named: Mapping[str, exp.Window]) -> None:
        self._named = named
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
            return Column(FIRST_WINDOW + self._calls.index(call), call.type)

        return self._read_call(inner, node, register)

    def check_all_used(self, source: SqlSource) -> None:
        """Refuse a window that no function uses, because its names have not been checked."""
        for name, window in self._named.items():
            if name not in self._used:
                raise source.unsupported(
                    window, f"window {window.name!r}, which no function uses,", "remove it"
                )

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
        calls = [replace(call, partition=(*domain_columns, *call.partition)) for call in calls]
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
        window_call = WindowCall(
            call.function,
            tuple(map(values.index, call.arguments)),
            call.type,
            "",
            call.frame,
            call.number,
            call.ignore_nulls,
            call.distinct,
            order_columns(call.within, values),
            call.options,
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
        frame = self._read_frame(clause, node, spec, varying or order)
        if varying or frame.mode != "range" or not frame.has_offset:
            order = varying
        if spec is None and not order:
            frame = WHOLE_PARTITION
        function, ignore_nulls = node.this, False
        if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
            source.allow_arguments(function, "this")
            ignore_nulls = isinstance(function, exp.IgnoreNulls)
            function = function.this
        name = _RANKING_FUNCTIONS.get(type(function)) or _VALUE_FUNCTIONS.get(type(function))
        if isinstance(function, exp.Anonymous):
            name = _FUNCTIONS_BY_NAME.get(function.name.lower())
        if isinstance(function, exp.Filter) and type(function.this) in (
            *_RANKING_FUNCTIONS,
            *_VALUE_FUNCTIONS,
        ):
            raise source.error(function, "FILTER is for aggregates; use CASE in the argument")
        if name is None:  # the function is an aggregate, or unknown
            # The function, its arguments and type are replaced for each aggregate of the call.
            base = _Call(partition, order, "", (), pa.null(), frame, 1, False, False)

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

            return read_aggregate(clause, node.this, register_primitive, order)
        parts = self._function_arguments(clause, function)
        call = _Call(partition, order, name, (), pa.null(), frame, 1, ignore_nulls, False)
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
        number = 1
        if name == "ntile":
            number = self._read_count(clause, node, parts, index=0)
        elif parts:
            raise clause.source.error(node, f"{name}() takes no arguments")
        if call.ignore_nulls:
            raise clause.source.unsupported(node, f"IGNORE NULLS of {name}()")
        type_ = pa.float64() if name in ("percent_rank", "cume_dist") else pa.int64()
        return replace(call, type=type_, frame=WHOLE_PARTITION, number=number)

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
        number = 1
        if name in ("lag", "lead"):
            number = self._read_count(clause, node, parts, index=1, default=1, signed=True)
            if len(parts) == 3:
                default = clause.read(parts[2])
                if default.type != value.type:
                    default = clause.call(parts[2], "cast", default, type=value.type)
                arguments.append(default)
        elif name == "nth_value":
            number = self._read_count(clause, node, parts, index=1)
        frame = WHOLE_PARTITION if name in ("lag", "lead") else call.frame
        return replace(
            call, arguments=tuple(arguments), type=arguments[0].type, frame=frame, number=number
        )

    def _function_arguments(self, clause: Clause, node: exp.Expr) -> list[exp.Expr]:
        """The arguments of a call in their order."""
        if isinstance(node, exp.Anonymous):
            clause.source.allow_arguments(node, "this", "expressions")
            return list(node.expressions)
        names = ("this", "offset", "default")
        clause.source.allow_arguments(node, *names)
        return [part for name in names if isinstance(part := node.args.get(name), exp.Expr)]

    def _read_count(
        self,
        clause: Clause,
        node: exp.Expr,
        parts: list[exp.Expr],
        *,
        index: int,
        default: int | None = None,
        signed: bool = False,
    ) -> int:
        """Return the constant integer argument at an index, or ``default`` if it is not given."""
        if len(parts) <= index:
            if default is not None:
                return default
            raise clause.source.error(node, "an argument is missing: a whole number")
        value = read_constant(clause, parts[index])
        number = value.value if isinstance(value, Literal) else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise clause.source.unsupported(
                parts[index], "a number of rows that is not a constant", "write a whole number"
            )
        if number < 1 and not signed:
            raise clause.source.error(parts[index], f"{number}: write a whole number from 1 on")
        return number

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

    def _read_frame(
        self,
        clause: Clause,
        node: exp.Window,
        spec: exp.WindowSpec | None,
        order: tuple[SortKey, ...],
    ) -> Frame:
        if spec is None:
            return Frame()
        source = clause.source
        source.allow_arguments(spec, "kind", "start", "start_side", "end", "end_side", "exclude")
        mode = str(spec.args.get("kind")).lower()
        if mode not in ("rows", "range", "groups"):
            raise source.unsupported(node, f"a frame of {mode.upper()}", "write ROWS or RANGE")
        start = self._read_bound(clause, node, spec, "start", mode, order)
        end = self._read_bound(clause, node, spec, "end", mode, order)
        exclude = spec.args.get("exclude")
        exclusion = str(exclude.name if isinstance(exclude, exp.Expr) else exclude or "NO OTHERS")
        if exclusion.upper() not in _EXCLUSIONS:
            raise source.unsupported(node, f"EXCLUDE {exclusion}")
        start_shift = start if isinstance(start, MonthShift) else None
        end_shift = end if isinstance(end, MonthShift) else None
        first = start.reach if isinstance(start, MonthShift) else start
        last = end.reach if isinstance(end, MonthShift) else end
        # Bounds on one side, 1 PRECEDING AND 3 PRECEDING, make a frame without rows.
        is_one_side = spec.args.get("start_side") == spec.args.get("end_side")
        if not is_one_side and first is not None and last is not None and first > last:
            raise source.error(node, "the frame ends before it starts; exchange its bounds")
        return Frame(
            mode,  # type: ignore[arg-type]
            first,
            last,
            _EXCLUSIONS[exclusion.upper()],  # type: ignore[arg-type]
            start_shift,
            end_shift,
        )

    def _read_bound(
        self,
        clause: Clause,
        node: exp.Window,
        spec: exp.WindowSpec,
        name: str,
        mode: str,
        order: tuple[SortKey, ...],
    ) -> int | float | MonthShift | None:
        source = clause.source
        bound = spec.args.get(name)
        side = str(spec.args.get(f"{name}_side") or "").upper()
        if bound is None or bound == "CURRENT ROW":
            return 0
        if bound == "UNBOUNDED":
            required_side = "PRECEDING" if name == "start" else "FOLLOWING"
            if side != required_side:
                raise source.error(node, f"a frame cannot {name} with UNBOUNDED {side}")
            return None
        sign = -1 if side == "PRECEDING" else 1
        if isinstance(bound, exp.Interval) or mode == "range":
            offset = self._range_offset(clause, node, bound, order)
            if isinstance(offset, MonthShift):
                return replace(offset, months=sign * offset.months, ticks=sign * offset.ticks)
            return sign * offset
        value = read_constant(clause, bound)
        number = value.value if isinstance(value, Literal) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise source.unsupported(
                bound, "this number of rows in a frame", "write a whole number that is not negative"
            )
        return sign * number

    def _range_offset(
        self, clause: Clause, node: exp.Window, bound: exp.Expr, order: tuple[SortKey, ...]
    ) -> int | float | MonthShift:
        """Return the offset of a RANGE frame as a difference of codes of the order column."""
        source = clause.source
        if len(order) != 1:
            raise source.error(node, "RANGE with an offset needs an ORDER BY of one column")
        type_ = value_type(order[0].expression.type)
        if is_interval_sum(bound):
            return self._interval_offset(clause, bound, type_)
        value = read_constant(clause, bound)
        number = value.value if isinstance(value, Literal) else None
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            raise source.unsupported(bound, "an offset that is not a constant", "write a number")
        if number < 0:
            raise source.error(bound, f"offset {number}: write a number that is not negative")
        if pa.types.is_floating(type_):
            return float(number)
        if pa.types.is_date(type_):
            number = number * (86_400_000 if pa.types.is_date64(type_) else 1)
        elif pa.types.is_decimal(type_) and type_.precision <= 18:
            number = number * 10**type_.scale
        elif not pa.types.is_integer(type_):
            raise source.unsupported(
                bound, f"RANGE with an offset over {type_}", "order by a number, a date or a time"
            )
        if number != int(number):
            raise source.unsupported(
                bound, f"offset {number} over {type_}", "cast the ORDER BY to a double"
            )
        return int(number)

    def _interval_offset(
        self, clause: Clause, bound: exp.Expr, type_: pa.DataType
    ) -> int | MonthShift:
        source = clause.source
        months, days, micros = read_interval_sum(clause, bound)
        total = days * _DAY_MICROSECONDS + micros
        ticks_per_day = 1
        if pa.types.is_date32(type_):
            number, remainder = divmod(total, _DAY_MICROSECONDS)
        elif pa.types.is_timestamp(type_) and type_.unit == "ns":
            number, remainder = total * 1000, 0
            ticks_per_day = _DAY_MICROSECONDS * 1000
        elif pa.types.is_timestamp(type_):
            number, remainder = divmod(total, _MICROSECONDS[type_.unit])
            ticks_per_day = _DAY_MICROSECONDS // _MICROSECONDS[type_.unit]
        else:
            raise source.error(
                bound, f"an INTERVAL in a frame ordered by a value of type {type_}; write a number"
            )
        if remainder:
            raise source.unsupported(
                bound, f"an interval finer than {type_}", "cast the ORDER BY to TIMESTAMP"
            )
        if number < 0 or months < 0:
            raise source.error(bound, "an interval of a frame must not be negative")
        return MonthShift(months, number, ticks_per_day) if months else number
