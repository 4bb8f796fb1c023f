"""GROUP BY: keys, aggregates, and expressions over them.

The SELECT list, HAVING and ORDER BY of a grouped query are read first, over the plan of FROM and
WHERE. Each call of an aggregate becomes a placeholder column. For ``SELECT k + 1, sum(x) * 2 FROM t
GROUP BY k``::

    read         k + 1, <aggregate 0> * 2
    build_plan   Aggregate(Map(t, (k, x)), keys=(#0,), sum(#1))
    rewrite      #0 + 1, #1 * 2

``rewrite_over_groups`` replaces the largest parts that equal a key, and the placeholders, by
columns of the Aggregate. ``FILTER (WHERE c)`` is ``CASE WHEN c THEN argument END``, because
aggregates ignore NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal, columns_of
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    CrossJoin,
    Map,
    PlanNode,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.sql.clause import Clause, is_aggregate
from circuits.sql.literals import NULL, integer_literal
from circuits.sql.scope import FIRST_OUTER_COLUMN, is_correlated, is_outer_column
from circuits.sql.select_builder import SelectBuilder, SubqueryValue
from circuits.types import functions

__all__ = ["ONE_ROW", "Grouping", "has_aggregate", "is_grouped", "is_padded_aggregate"]

# Placeholders are columns, numbered from these values on, beyond the columns of any plan.
FIRST_KEY: Final = 2 * FIRST_OUTER_COLUMN
FIRST_AGGREGATE: Final = 3 * FIRST_OUTER_COLUMN
FIRST_SUBQUERY: Final = 4 * FIRST_OUTER_COLUMN

#: The plan of a SELECT without FROM: one row without columns.
ONE_ROW: Final = Values((), ((),))

AGGREGATES: Final[dict[type[exp.Expr], AggregateFunction]] = {
    exp.Avg: "avg",
    exp.Count: "count",
    exp.Max: "max",
    exp.Min: "min",
    exp.Sum: "sum",
}


def _own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a tree, except those of queries and window functions in it."""

    def is_other_context(part: exp.Expr) -> bool:
        return isinstance(part, exp.Query | exp.Window)

    yield from (part for part in node.walk(prune=is_other_context) if not is_other_context(part))


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression calls an aggregate of this query."""
    return any(map(is_aggregate, _own_nodes(node)))


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT aggregates its rows."""
    if select.args.get("group") or select.args.get("having"):
        return True
    parts = [*select.expressions, select.args.get("order"), select.args.get("qualify")]
    return any(part is not None and has_aggregate(part) for part in parts)


class _Aggregate(NamedTuple):
    """A call of an aggregate; without an ``argument``, it counts rows."""

    function: AggregateFunction
    argument: Expression | None
    distinct: bool
    type: pa.DataType


class Grouping:
    """The keys, aggregates and scalar subqueries of a grouped SELECT, while it is read.

    The columns of the plan are the keys, then the aggregates, then those of the subqueries.
    """

    def __init__(self, builder: SelectBuilder) -> None:
        self.builder = builder
        self.source = builder.source
        self.keys: list[Expression] = []
        self._aggregates: list[_Aggregate] = []
        self._subqueries: list[SubqueryValue] = []
        self._subquery_values: list[Expression] = []
        for column in builder.domain_columns:
            self.add_key(column)

    def clause(self, name: str) -> Clause:
        """Return a clause of expressions over the groups, with placeholders for aggregates."""
        return self.builder.clause(
            name,
            read_aggregate=self._read_aggregate,
            read_scalar=self._read_scalar,
            read_membership=self._read_membership,
        )

    def add_key(self, expression: Expression) -> Column:
        """Return the placeholder of a key; add the key if it is new."""
        if expression not in self.keys:
            self.keys.append(expression)
        return Column(FIRST_KEY + self.keys.index(expression), expression.type)

    def build_plan(self, node: exp.Expr | None = None) -> PlanNode:
        """Return the plan of the groups: keys, aggregates, values of scalar subqueries.

        Args:
            node: The SELECT, for errors.
        """
        arguments = [call.argument for call in self._aggregates if call.argument is not None]
        arguments = list(dict.fromkeys(arguments))
        fields = self.builder.plan.fields
        names = [
            fields[key.index].name if isinstance(key, Column) else f"key_{number}"
            for number, key in enumerate(self.keys)
        ]
        names += [f"argument_{number}" for number in range(len(arguments))]
        inputs = Map(self.builder.plan, (*self.keys, *arguments), tuple(names))
        calls = tuple(
            AggregateCall(
                call.function,
                None if call.argument is None else len(self.keys) + arguments.index(call.argument),
                call.type,
                f"{call.function}_{number}",
                call.distinct,
            )
            for number, call in enumerate(self._aggregates)
        )
        groups: PlanNode = Aggregate(inputs, tuple(range(len(self.keys))), calls)
        domain = self.builder.domain
        if domain is not None and len(self.keys) == len(self.builder.domain_columns):
            is_by_clause = node is not None and node.args.get("group")
            groups = groups if is_by_clause else pad_aggregate(groups, domain.plan)
        error_node = node if node is not None else exp.Null()
        for subquery in self._subqueries:
            groups, value = subquery.join(
                groups, lambda expression: self.rewrite_over_groups(error_node, expression)
            )
            self._subquery_values.append(value)
        return groups

    def is_count(self, index: int) -> bool:
        """Return whether a column of the plan is a count, which is 0 for an empty group."""
        number = index - len(self.keys)
        is_aggregate_column = 0 <= number < len(self._aggregates)
        return is_aggregate_column and self._aggregates[number].function == "count"

    def rewrite_over_groups(self, node: exp.Expr, expression: Expression) -> Expression:
        """Return an expression, read by ``clause``, over the plan of the groups.

        Raises:
            SqlError: It has a column that is neither a key nor in an aggregate.
        """
        if not isinstance(expression, Literal) and expression in self.keys:
            return Column(self.keys.index(expression), expression.type)
        if isinstance(expression, Call):
            arguments = tuple(self.rewrite_over_groups(node, a) for a in expression.arguments)
            return Call(expression.function, arguments, expression.type)
        if not isinstance(expression, Column) or is_outer_column(expression.index):
            return expression
        index, type_ = expression.index, expression.type
        if index < FIRST_KEY:
            raise self._ungrouped_error(node, expression)
        if index < FIRST_AGGREGATE:
            return Column(index - FIRST_KEY, type_)
        if index < FIRST_SUBQUERY:
            return Column(len(self.keys) + index - FIRST_AGGREGATE, type_)
        return self._subquery_values[index - FIRST_SUBQUERY]

    def _ungrouped_error(self, node: exp.Expr, column: Column) -> Exception:
        name = self.builder.plan.fields[column.index].name
        error_node = node
        for part in node.find_all(exp.Column):
            if part.name.casefold() == name.casefold():
                error_node = part
        return self.source.error(
            error_node,
            f"column {name!r} is neither in GROUP BY nor in an aggregate; add it to GROUP BY, or "
            f"take max({name})",
        )

    def _read_aggregate(self, clause: Clause, node: exp.Expr) -> Expression:
        """Return the placeholder of an aggregate; add the aggregate if it is new."""
        source, condition = self.source, None
        argument_clause = self.builder.clause("an aggregate")
        if isinstance(node, exp.Filter):
            source.allow_arguments(node, "this", "expression")
            source.allow_arguments(node.expression, "this")
            condition = argument_clause.read_condition(node.expression.this)
            node = node.this
        argument, distinct = self._read_argument(argument_clause, node)
        function = "avg" if isinstance(node, exp.Anonymous) else AGGREGATES[type(node)]
        if condition is not None:
            counted = integer_literal(1) if argument is None else argument
            argument = argument_clause.call(node, "case", condition, counted, NULL)
        if argument is not None and is_correlated(argument):
            if all(map(is_outer_column, columns_of(argument))):
                raise self._outer_aggregate_error(node)
            raise source.correlated(
                node, "an aggregate of columns of the enclosing query", "aggregate in a join"
            )
        domain_columns = {c.index for c in self.builder.domain_columns if isinstance(c, Column)}
        if argument is not None and columns_of(argument):
            if columns_of(argument) <= domain_columns:
                raise self._outer_aggregate_error(node)
        with source.errors_at(node):
            type_ = functions.aggregate_type(function, argument and argument.type)
        distinct = distinct and function not in ("min", "max")
        aggregate = _Aggregate(function, argument, distinct, type_)
        if aggregate not in self._aggregates:
            self._aggregates.append(aggregate)
        return Column(FIRST_AGGREGATE + self._aggregates.index(aggregate), type_)

    def _read_argument(self, clause: Clause, node: exp.Expr) -> tuple[Expression | None, bool]:
        """Return the argument of an aggregate (None for ``count(*)``), and if it is DISTINCT."""
        source = self.source
        if isinstance(node, exp.Anonymous) and is_aggregate(node):
            source.allow_arguments(node, "this", "expressions")
            argument = node.expressions[0] if len(node.expressions) == 1 else None
            if argument is None:
                raise source.error(node, f"{node.name}() takes one argument")
        elif type(node) in AGGREGATES:
            source.allow_arguments(
                node, "this", *(["big_int"] if isinstance(node, exp.Count) else [])
            )
            argument = node.this
        else:
            if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
                if isinstance(node.this, tuple(AGGREGATES)):
                    raise source.unsupported(
                        node, "IGNORE NULLS", "leave it out: these aggregates ignore NULL"
                    )
                node = node.this  # sqlglot puts IgnoreNulls around DuckDB's any_value(), too
            word = source.name_in_text(node)
            aggregates = "aggregates: count, sum, avg, min, max, each with FILTER (WHERE ...)"
            raise source.unsupported(node, f"aggregate {word}()", aggregates, word)
        if argument is None or isinstance(argument, exp.Star):
            if not isinstance(node, exp.Count):
                raise source.error(
                    node,
                    f"{source.name_in_text(node)}() needs a column; only count() does not",
                )
            if argument is not None:
                source.allow_arguments(argument)
            return None, False
        if not isinstance(argument, exp.Distinct):
            return clause.read(argument), False
        source.allow_arguments(argument, "expressions")
        if len(argument.expressions) != 1 or isinstance(argument.expressions[0], exp.Star):
            raise source.unsupported(
                node, "DISTINCT of several columns", "count the rows of a SELECT DISTINCT in FROM"
            )
        return clause.read(argument.expressions[0]), True

    def _outer_aggregate_error(self, node: exp.Expr) -> Exception:
        return self.source.unsupported(
            node,
            "an aggregate of columns of the enclosing query only",
            "aggregate in the enclosing query",
        )

    def _read_scalar(self, clause: Clause, node: exp.Expr) -> Expression:
        """Return the placeholder of a scalar subquery, which is joined to the groups."""
        return self._add_subquery(self.builder.queries.read_scalar(self.builder, node))

    def _read_membership(self, clause: Clause, node: exp.Expr) -> Expression:
        """Return the placeholder of EXISTS or IN, whose value is joined to the groups."""
        return self._add_subquery(self.builder.queries.read_membership(self.builder, clause, node))

    def _add_subquery(self, subquery: SubqueryValue) -> Expression:
        self._subqueries.append(subquery)
        return Column(FIRST_SUBQUERY + len(self._subqueries) - 1, subquery.type)


def pad_aggregate(groups: PlanNode, domain: PlanNode) -> PlanNode:
    """Return an aggregate by the columns of a domain, with a row for each of its rows.

    A row without a group has the aggregates of no rows.
    """
    assert isinstance(groups, Aggregate)
    if not groups.keys:
        return groups
    keys = len(groups.keys)
    calls = tuple(
        replace(call, argument=None if call.argument is None else call.argument - keys)
        for call in groups.aggregates
    )
    of_no_rows = Aggregate(Values(groups.input.fields[keys:], ()), (), calls)
    links = [
        functions.call("same", column, Column(column.index + keys, column.type))
        for column in columns(domain)
    ]
    predicate = links[0] if keys == 1 else functions.call("and", *links)
    missing = Semijoin(domain, groups, predicate, anti=True)
    return Union((groups, CrossJoin((missing, of_no_rows))))


def is_padded_aggregate(plan: Union, keys: int) -> bool:
    """Return whether a union is the result of `pad_aggregate` for this number of keys."""
    groups, *others = plan.inputs
    if not (isinstance(groups, Aggregate) and len(groups.keys) == keys and len(others) == 1):
        return False
    padding = others[0]
    if not (isinstance(padding, CrossJoin) and isinstance(padding.inputs[0], Semijoin)):
        return False
    return padding.inputs[0].anti and padding.inputs[0].right is groups
