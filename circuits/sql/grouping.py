"""GROUP BY: keys, aggregates, and expressions over them.

An expression of the SELECT list or HAVING is read over the rows of FROM, with a placeholder column
for each aggregate (`circuits.sql.aggregate_calls`). Then the plan is made: Map (keys, then
arguments), Aggregate, and beside it the scalar subqueries of these clauses. Then
``rewrite_over_groups`` rewrites each expression over that plan: from the top of the expression
down, a part that equals a key becomes the column of the key.

GROUPING SETS, ROLLUP and CUBE are the union of one Aggregate per set over the same rows, with NULL
for the keys that a set leaves out. ``grouping()`` is a constant column of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Map,
    Order,
    PlanNode,
    Union,
    Values,
    columns,
)
from circuits.sql.aggregate_calls import AggregateTerm, read_aggregate
from circuits.sql.expressions import Clause, integer, is_aggregate
from circuits.sql.rows import Rows
from circuits.sql.scope import OUTER, is_correlated, is_outer, shift_columns

__all__ = [
    "ONE_ROW",
    "Grouping",
    "aggregate_call",
    "has_aggregate",
    "is_grouped",
    "own_nodes",
]

# Column numbers of placeholders for keys, aggregates and scalar subqueries, until the plan is made.
KEY: Final = 2 * OUTER
CALL: Final = 3 * OUTER
VALUE: Final = 4 * OUTER
GROUPING: Final = 6 * OUTER
ONE_ROW: Final = Values((), ((),))


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a tree without those of queries and window functions in it."""

    def is_foreign(part: exp.Expr) -> bool:
        return isinstance(part, exp.Query | exp.Window)

    yield from (part for part in node.walk(prune=is_foreign) if not is_foreign(part))


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
        # The keys of each grouping set, by number; None if there is one group per combination of
        # all keys. Keys outside of ``_set_keys`` are in every set.
        self._sets: list[frozenset[int]] | None = None
        self._set_keys: frozenset[int] = frozenset()
        self._groupings: list[tuple[int, ...]] = []
        self._pending_groupings: list[Callable[[], tuple[int, ...]]] = []
        self._calls: list[AggregateTerm] = []
        self._values: list[tuple[PlanNode, Expression]] = []

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

    def add_sets(self, sets: Sequence[frozenset[int]]) -> None:
        """Group by several sets of keys, which are given by their numbers."""
        self._sets = list(sets)
        self._set_keys = frozenset(range(len(self.keys)))

    def plan(self) -> PlanNode:
        """Return the plan of the groups: keys, aggregates, values of scalar subqueries."""
        self._groupings = [read() for read in self._pending_groupings]
        if self._groupings and self._sets is None:
            self.add_sets([frozenset(range(len(self.keys)))])
        groups: PlanNode
        if self._sets is None:
            groups = self._aggregate(range(len(self.keys)))
        else:
            always = frozenset(range(len(self.keys))) - self._set_keys
            parts = [self._grouping_set(keys | always) for keys in self._sets]
            groups = parts[0] if len(parts) == 1 else Union(tuple(parts))
        return CrossJoin((groups, *(plan for plan, _ in self._values))) if self._values else groups

    def _aggregate(self, keys: Sequence[int]) -> Aggregate:
        """Return the aggregates by some of the keys."""
        values = [
            value
            for call in self._calls
            for value in (*call.arguments, *(key.expression for key in call.order))
        ]
        arguments = list(dict.fromkeys(values))
        fields = self.rows.plan.fields
        expressions = [self.keys[number] for number in keys]
        names = [
            fields[key.index].name if isinstance(key, Column) else f"key_{number}"
            for number, key in zip(keys, expressions, strict=True)
        ]
        names += [f"argument_{number}" for number in range(len(arguments))]
        rows = Map(self.rows.plan, (*expressions, *arguments), tuple(names))
        places = {value: len(keys) + number for number, value in enumerate(arguments)}
        calls = tuple(
            aggregate_call(call, f"{call.function}_{number}", places)
            for number, call in enumerate(self._calls)
        )
        return Aggregate(rows, tuple(range(len(keys))), calls)

    def _grouping_set(self, keys: frozenset[int]) -> PlanNode:
        """Return the groups by some of the keys; the others are NULL."""
        kept = sorted(keys)
        groups = self._aggregate(kept)
        own = columns(groups)
        key_columns: list[Expression] = [
            own[kept.index(number)] if number in keys else Literal(None, key.type)
            for number, key in enumerate(self.keys)
        ]
        flags = [integer(_grouping_number(numbers, keys)) for numbers in self._groupings]
        names = [f"key_{number}" for number in range(len(self.keys))]
        for position, number in enumerate(kept):
            names[number] = groups.fields[position].name
        names += [field.name for field in groups.fields[len(kept) :]]
        names += [f"grouping_{number}" for number in range(len(flags))]
        return Map(groups, (*key_columns, *own[len(kept) :], *flags), tuple(names))

    def is_count(self, index: int) -> bool:
        """Return whether a column of the plan is a count, which is 0 over no rows."""
        number = index - len(self.keys)
        return 0 <= number < len(self._calls) and self._calls[number].function == "count"

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
        index, type_ = expression.index, expression.type
        if KEY <= index < CALL:
            return Column(index - KEY, type_)
        if CALL <= index < VALUE:
            return Column(len(self.keys) + index - CALL, type_)
        if index >= GROUPING:
            return Column(len(self.keys) + len(self._calls) + index - GROUPING, type_)
        if index >= VALUE:
            number = index - VALUE
            before = [len(plan.fields) for plan, _ in self._values[:number]]
            flags = 0 if self._sets is None else len(self._groupings)
            width = len(self.keys) + len(self._calls) + flags + sum(before)
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
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self._read_grouping(node)

        def register(call: AggregateTerm) -> Expression:
            values = (*call.arguments, *(key.expression for key in call.order))
            if any(map(is_correlated, values)):
                raise self.source.unsupported(
                    node, "an aggregate of columns of the enclosing query", "aggregate in a join"
                )
            if call not in self._calls:
                self._calls.append(call)
            return Column(CALL + self._calls.index(call), call.type)

        return read_aggregate(self.rows.clause("an aggregate"), node, register)

    def _read_grouping(self, node: exp.Expr) -> Expression:
        """Read ``grouping(a, b)``: a bit for each key, 1 where its set leaves the key out."""
        source = self.source
        source.accept(node, "expressions")
        clause = self.rows.clause("grouping()")
        self._pending_groupings.append(
            lambda: self._add_grouping(node, [clause.read(part) for part in node.expressions])
        )
        number = len(self._pending_groupings) - 1
        return Column(GROUPING + number, pa.int64())

    def _add_grouping(self, node: exp.Expr, values: list[Expression]) -> tuple[int, ...]:
        if self._sets is None and not self.keys:  # no GROUP BY
            raise self.source.error(node, "grouping() needs a GROUP BY")
        if not values:
            return tuple(sorted(self._set_keys))
        for value in values:
            if value not in self.keys:
                raise self.source.error(node, "an argument of grouping() is not in GROUP BY")
        return tuple(self.keys.index(value) for value in values)

    def _read_scalar(self, clause: Clause, node: exp.Expr) -> Expression:
        """Join a subquery of one value for all groups beside them."""
        apart = self.rows.environment.without_outer_columns(self.rows.scope)
        alone = Rows(apart, ONE_ROW)
        value = alone.join_scalar_subquery(clause, node)
        self._values.append((alone.plan, value))
        return Column(VALUE + len(self._values) - 1, value.type)


def aggregate_call(
    term: AggregateTerm, name: str, places: Mapping[Expression, int]
) -> AggregateCall:
    """Return the call of a primitive aggregate over columns.

    Args:
        term: The aggregate, over expressions.
        name: The name of its result.
        places: The column of each expression.
    """
    arguments = [places[value] for value in term.arguments]
    order: dict[int, Order] = {}
    for key in term.order:
        column = places[key.expression]
        order.setdefault(column, Order(column, key.descending, key.nulls_first))
    return AggregateCall(
        term.function,
        arguments[0] if arguments else None,
        term.type,
        name,
        term.distinct,
        tuple(arguments[1:]),
        tuple(order.values()),
        term.options,
    )


def _grouping_number(numbers: Sequence[int], keys: frozenset[int]) -> int:
    """Return the bits of the keys that are left out; the first one is the highest.

    >>> _grouping_number((0, 1), frozenset({1}))
    2
    """
    bits = 0
    for number in numbers:
        bits = 2 * bits + (number not in keys)
    return bits
