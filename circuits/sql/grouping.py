"""GROUP BY: keys, aggregates, and expressions over them.

An expression of the SELECT list or HAVING is read over the rows of FROM, with a placeholder column
for each aggregate. Then the plan is made: Map (keys, then arguments), Aggregate, and beside it the
scalar subqueries of these clauses. ``rewrite_over_groups`` then rewrites each
expression over that plan: from the top of the expression down, a part that equals a key becomes the
column of the key.
``FILTER (WHERE c)`` is ``CASE WHEN c THEN argument END``, since aggregates leave NULL out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    CrossJoin,
    Map,
    Plan,
    Values,
)
from circuits.sql.expressions import NULL, Clause, integer, is_aggregate
from circuits.sql.rows import Rows
from circuits.sql.scope import OUTER, is_correlated, is_outer, shift_columns
from circuits.types import functions

__all__ = ["ONE_ROW", "Grouping", "has_aggregate", "is_grouped", "own_nodes", "read_aggregate_call"]

# Column numbers of placeholders for keys, aggregates and scalar subqueries, until the plan is made.
KEY: Final = 2 * OUTER
CALL: Final = 3 * OUTER
VALUE: Final = 4 * OUTER
# Placeholders of window functions (`circuits.sql.windows`) have numbers from here on.
WINDOW: Final = 5 * OUTER
ONLY_OVER_WINDOWS: Final = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
)
ONE_ROW: Final = Values((), ((),))

AGGREGATES: Final[dict[type[exp.Expr], AggregateFunction]] = {
    exp.Avg: "avg",
    exp.Count: "count",
    exp.Max: "max",
    exp.Min: "min",
    exp.Sum: "sum",
}


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a tree without those of queries, and without window functions in it.

    The arguments, PARTITION BY and ORDER BY of a window function are included.
    """
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, exp.Query):
            continue
        if isinstance(part, exp.Window):
            function = part.this
            while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                todo += [
                    child for child in function.iter_expressions() if child is not function.this
                ]
                function = function.this
            todo += function.iter_expressions()
            todo += [child for child in part.iter_expressions() if child is not part.this]
            continue
        yield part
        todo += part.iter_expressions()


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression calls an aggregate of this query."""
    return any(map(is_aggregate, own_nodes(node)))


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT aggregates its rows."""
    if select.args.get("group") or select.args.get("having"):
        return True
    parts = [*select.expressions, select.args.get("order"), select.args.get("qualify")]
    return any(part is not None and has_aggregate(part) for part in parts)


class Grouping:
    """The groups of some rows, while the expressions over them are read."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.source = rows.source
        self.keys: list[Expression] = []
        self._calls: list[tuple[AggregateFunction, Expression | None, bool, pa.DataType]] = []
        self._values: list[tuple[Plan, Expression]] = []

    def clause(self, name: str) -> Clause:
        """Return the clause of expressions over the groups, which are read with placeholders."""
        return Clause(
            self.source,
            name,
            self.rows.column,
            aggregate=self._read_aggregate,
            scalar=self._read_scalar,
        )

    def key(self, expression: Expression) -> Column:
        """Return the placeholder of a key; add the key if it is new."""
        if expression not in self.keys:
            self.keys.append(expression)
        return Column(KEY + self.keys.index(expression), expression.type)

    def plan(self) -> Plan:
        """Return the plan of the groups: keys, aggregates, values of scalar subqueries."""
        arguments = list(dict.fromkeys(c[1] for c in self._calls if c[1] is not None))
        fields = self.rows.plan.fields
        names = [
            fields[key.index].name if isinstance(key, Column) else f"key_{number}"
            for number, key in enumerate(self.keys)
        ]
        names += [f"argument_{number}" for number in range(len(arguments))]
        rows = Map(self.rows.plan, (*self.keys, *arguments), tuple(names))
        calls = tuple(
            AggregateCall(
                function,
                None if argument is None else len(self.keys) + arguments.index(argument),
                type_,
                f"{function}_{number}",
                distinct,
            )
            for number, (function, argument, distinct, type_) in enumerate(self._calls)
        )
        groups: Plan = Aggregate(rows, tuple(range(len(self.keys))), calls)
        return CrossJoin((groups, *(plan for plan, _ in self._values))) if self._values else groups

    def is_count(self, index: int) -> bool:
        """Return whether a column of the plan is a count, which is 0 over no rows."""
        number = index - len(self.keys)
        return 0 <= number < len(self._calls) and self._calls[number][0] == "count"

    def rewrite_over_groups(self, node: exp.Expr, expression: Expression) -> Expression:
        """Return the expression over the plan of the groups.

        Raises:
            SqlError: It reads a column that is no key, outside of an aggregate.
        """
        if not isinstance(expression, Literal) and expression in self.keys:
            return Column(self.keys.index(expression), expression.type)
        if isinstance(expression, Call):
            parts = tuple(self.rewrite_over_groups(node, part) for part in expression.arguments)
            return Call(expression.function, parts, expression.type)
        if not isinstance(expression, Column) or is_outer(expression.index):
            return expression
        if expression.index >= WINDOW:
            return expression
        index, type_ = expression.index, expression.type
        if KEY <= index < CALL:
            return Column(index - KEY, type_)
        if CALL <= index < VALUE:
            return Column(len(self.keys) + index - CALL, type_)
        if index >= VALUE:
            number = index - VALUE
            before = [len(plan.fields) for plan, _ in self._values[:number]]
            width = len(self.keys) + len(self._calls) + sum(before)
            return shift_columns(self._values[number][1], width)
        raise self._ungrouped_error(node, expression)

    def _ungrouped_error(self, node: exp.Expr, column: Column) -> Exception:
        name = self.rows.plan.fields[column.index].name
        place = node
        for part in node.find_all(exp.Column):
            if part.name.casefold() == name.casefold():
                place = part
        return self.source.error(
            place,
            f"column {name!r} is neither in GROUP BY nor in an aggregate; add it to GROUP BY, or "
            f"take max({name})",
        )

    def _read_aggregate(self, clause: Clause, node: exp.Expr) -> Expression:
        function, argument, distinct, type_ = read_aggregate_call(
            self.rows.clause("an aggregate"), node
        )
        if argument is not None and is_correlated(argument):
            raise self.source.unsupported(
                node, "an aggregate of columns of the enclosing query", "aggregate in a join"
            )
        call = (function, argument, distinct and function not in ("min", "max"), type_)
        if call not in self._calls:
            self._calls.append(call)
        return Column(CALL + self._calls.index(call), type_)

    def _read_scalar(self, clause: Clause, node: exp.Expr) -> Expression:
        """Join a subquery of one value for all groups beside them."""
        apart = self.rows.environment.without_outer_columns(self.rows.scope)
        alone = Rows(apart, ONE_ROW)
        value = alone.join_scalar_subquery(clause, node)
        self._values.append((alone.plan, value))
        return Column(VALUE + len(self._values) - 1, value.type)


def read_aggregate_call(
    clause: Clause, node: exp.Expr
) -> tuple[AggregateFunction, Expression | None, bool, pa.DataType]:
    """Return function, argument (None: count of rows), DISTINCT and result type of an aggregate.

    Args:
        clause: The clause of its argument and of its FILTER.
        node: The call.
    """
    source, condition = clause.source, None
    if isinstance(node, exp.Filter):
        source.accept(node, "this", "expression")
        source.accept(node.expression, "this")
        condition = clause.predicate(node.expression.this)
        node = node.this
    argument, distinct = _read_argument(clause, node)
    function = "avg" if isinstance(node, exp.Anonymous) else AGGREGATES[type(node)]
    if condition is not None:
        counted = integer(1) if argument is None else argument
        argument = clause.call(node, "case", condition, counted, NULL)
    with source.function(node):
        type_ = functions.aggregate_type(function, argument and argument.type)
    return function, argument, distinct, type_


def _read_argument(clause: Clause, node: exp.Expr) -> tuple[Expression | None, bool]:
    """Return the argument of an aggregate (None: count of rows), and whether it is DISTINCT."""
    source = clause.source
    if isinstance(node, exp.Anonymous) and is_aggregate(node):
        source.accept(node, "this", "expressions")
        argument = node.expressions[0] if len(node.expressions) == 1 else None
        if argument is None:
            raise source.error(node, f"{node.name}() takes one argument")
    elif type(node) in AGGREGATES:
        source.accept(node, "this", *(["big_int"] if isinstance(node, exp.Count) else []))
        argument = node.this
    else:
        known = "there are: count, sum, avg, min, max, each with FILTER (WHERE ...)"
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            # sqlglot parses the any_value() of DuckDB as one of these, too.
            known_inside = isinstance(node.this, tuple(AGGREGATES))
            if known_inside:
                raise source.unsupported(node, "IGNORE NULLS", "they are left out anyway")
            node = node.this
        word = source.written_name(node)
        if isinstance(node, ONLY_OVER_WINDOWS) and not isinstance(node.parent, exp.Window):
            raise source.error(node, f"{word}() needs a window; write {word}(...) OVER (...)")
        raise source.unsupported(node, f"aggregate {word}()", known, word)
    if argument is None or isinstance(argument, exp.Star):
        if not isinstance(node, exp.Count):
            raise source.error(
                node,
                f"{source.written_name(node)}() needs a column; only count() can do without",
            )
        if argument is not None:
            source.accept(argument)
        return None, False
    if not isinstance(argument, exp.Distinct):
        return clause.read(argument), False
    source.accept(argument, "expressions")
    if len(argument.expressions) != 1 or isinstance(argument.expressions[0], exp.Star):
        raise source.unsupported(
            node, "DISTINCT of several columns", "count the rows of a SELECT DISTINCT in FROM"
        )
    return clause.read(argument.expressions[0]), True
