"""GROUP BY: keys, aggregates, and expressions over them.

The SELECT list, HAVING and ORDER BY of a grouped query are read first, over the plan of FROM and
WHERE. Each call of an aggregate becomes a placeholder column. For ``SELECT k + 1, sum(x) * 2 FROM t
GROUP BY k``::

    read         k + 1, <aggregate 0> * 2
    build_plan   Aggregate(Map(t, (k, x)), keys=(#0,), sum(#1))
    rewrite      #0 + 1, #1 * 2

``rewrite_over_groups`` replaces each placeholder, and each part of an expression that equals a key,
by a column of the Aggregate. `circuits.sql.aggregation.aggregate_calls` reads the calls.

GROUPING SETS, ROLLUP and CUBE are the union of one Aggregate per set over the same rows, with NULL
for the keys that a set leaves out. ``grouping()`` is a constant column of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import Call, Column, Expression, Literal, columns_of
from circuits.plan.json_values import JSON_KEEPING_AGGREGATES
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Fields,
    Map,
    Order,
    PlanNode,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.sql.aggregation.aggregate_calls import read_aggregate
from circuits.sql.aggregation.aggregate_reader import CALL_WRAPPERS, PrimitiveAggregate
from circuits.sql.binding.clause import Clause, Reader, is_aggregate
from circuits.sql.binding.interval_keys import normalize_interval
from circuits.sql.binding.scope import (
    END_OF_GROUP_VALUES,
    FIRST_AGGREGATE,
    FIRST_GROUPING,
    FIRST_KEY,
    FIRST_SUBQUERY,
    FIRST_WINDOW,
    NOW_COLUMN,
    ROW_NUMBER_COLUMN,
    is_correlated,
    is_outer_column,
)
from circuits.sql.binding.select_builder import SelectBuilder, SubqueryValue
from circuits.sql.expressions.current_time import (
    add_truth_columns,
    read_timed_condition,
    reads_now,
)
from circuits.sql.expressions.literals import integer_literal
from circuits.types import functions

__all__ = [
    "ONE_ROW",
    "Grouping",
    "aggregate_call",
    "has_aggregate",
    "is_group_value",
    "is_grouped",
    "is_padded_aggregate",
    "is_window_value",
]

#: The plan of a SELECT without FROM: one row without columns.
ONE_ROW: Final = Values((), ((),))


def _own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a tree that this query evaluates over its groups.

    Subqueries are left out. Of a call of a window function, the function itself is left out, as it
    is not an aggregate of the query; its arguments, PARTITION BY and ORDER BY are included.
    """
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Query):
            continue
        if isinstance(part, exp.Window):
            function = part.this
            while isinstance(function, CALL_WRAPPERS):
                pending += [
                    child for child in function.iter_expressions() if child is not function.this
                ]
                function = function.this
            pending += function.iter_expressions()
            pending += [child for child in part.iter_expressions() if child is not part.this]
            continue
        yield part
        pending += part.iter_expressions()


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression calls an aggregate of this query."""
    return any(map(is_aggregate, _own_nodes(node)))


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT aggregates its rows."""
    if select.args.get("group") or select.args.get("having"):
        return True
    parts = [*select.expressions, select.args.get("order"), select.args.get("qualify")]
    return any(part is not None and has_aggregate(part) for part in parts)


def is_group_value(column: int) -> bool:
    """Return whether a column number is the placeholder of a value over the groups."""
    return FIRST_AGGREGATE <= column < END_OF_GROUP_VALUES


def is_window_value(column: int) -> bool:
    """Return whether a column number is the placeholder of a window function."""
    return FIRST_WINDOW <= column < FIRST_GROUPING or column == ROW_NUMBER_COLUMN


class Grouping:
    """The keys, aggregates and scalar subqueries of a grouped SELECT, while it is read.

    The columns of the plan are the keys, the aggregates, the values of ``grouping()``, and those of
    the subqueries.
    """

    def __init__(self, builder: SelectBuilder, *, has_sets: bool = False) -> None:
        self.builder = builder
        # True if the clause has GROUPING SETS, ROLLUP or CUBE, which are read after the list.
        self._has_sets = has_sets
        # The outer values of correlated subqueries, each with the node that stands for their rows.
        self._outer_values: list[tuple[PlanNode, tuple[Expression, ...]]] = []
        self.source = builder.source
        self.keys: list[Expression] = []
        self._aggregates: list[PrimitiveAggregate] = []
        # The numbers of the keys in each set of GROUPING SETS, ROLLUP or CUBE; None for a plain
        # GROUP BY.
        self._sets: list[frozenset[int]] | None = None
        # The keys that a set may leave out: those of GROUP BY. Outer values are in every set.
        self._optional_keys: frozenset[int] = frozenset()
        # For each call of ``grouping()``, a function that returns `_groupings` of the call. It is
        # called when all keys are known.
        self._pending_groupings: list[Callable[[], tuple[int, ...]]] = []
        # For each call of ``grouping()``, the numbers of the keys that are its arguments.
        self._groupings: list[tuple[int, ...]] = []
        self._subqueries: list[SubqueryValue] = []
        self._subquery_values: list[Expression] = []
        # A correlated query is grouped for each combination of outer values (its domain).
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

    def add_sets(self, sets: Sequence[frozenset[int]]) -> None:
        """Group by each of these sets; a set contains the numbers of its keys."""
        self._sets = list(sets)
        self._optional_keys = frozenset(range(len(self.builder.domain_columns), len(self.keys)))

    @property
    def has_subqueries(self) -> bool:
        """True if an expression over the groups has a subquery, which is joined to the groups."""
        return bool(self._subqueries)

    @property
    def has_set_without_keys(self) -> bool:
        """True if a set of ROLLUP, CUBE or GROUPING SETS has no keys, so that it is one group."""
        return self._sets is not None and any(not keys & self._optional_keys for keys in self._sets)

    def build_plan(self, node: exp.Expr | None = None, *, has_group_by: bool = False) -> PlanNode:
        """Return the plan of the groups: keys, aggregates, values of scalar subqueries.

        Args:
            node: The SELECT, for errors.
            has_group_by: True if an input without rows has no groups; otherwise it has one.
        """
        self._groupings = [read() for read in self._pending_groupings]
        if self._groupings and self._sets is None:
            self.add_sets([frozenset(range(len(self.keys)))])
        groups: PlanNode
        if self._sets is None:
            aggregate = self._aggregate(range(len(self.keys)), self._aggregates)
            groups = aggregate
            domain = self.builder.domain
            if domain is not None and not has_group_by:
                groups = pad_aggregate(aggregate, domain.plan)
        else:
            groups = self._union_of_sets(self._sets, self._aggregates)
        error_node = node if node is not None else exp.Null()
        for subquery in self._subqueries:
            groups, value = subquery.join(
                groups, lambda expression: self.rewrite_over_groups(error_node, expression)
            )
            self._subquery_values.append(value)
        if not self._outer_values:
            return groups
        return _replace_nodes(
            groups,
            {id(node): self._outer_rows(node, values) for node, values in self._outer_values},
        )

    def _union_of_sets(
        self, sets: Sequence[frozenset[int]], aggregates: Sequence[PrimitiveAggregate]
    ) -> PlanNode:
        """Return the groups of all sets: the keys, aggregates, and values of ``grouping()``."""
        keys_of_all_sets = frozenset(range(len(self.keys))) - self._optional_keys
        parts = [self._grouping_set(keys | keys_of_all_sets, aggregates) for keys in sets]
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def _aggregate(
        self,
        keys: Sequence[int],
        aggregates: Sequence[PrimitiveAggregate],
        *constants: Expression,
    ) -> Aggregate:
        """Return the aggregates, grouped by constants and by some of the keys."""
        arguments = list(dict.fromkeys(v for call in aggregates for v in call.expressions))
        expressions = [*constants, *map(self._key_value, keys)]
        names = column_names([*expressions, *arguments], self.builder.plan.fields)
        inputs = Map(self.builder.plan, (*expressions, *arguments), names)
        positions = {value: len(expressions) + number for number, value in enumerate(arguments)}
        calls = tuple(aggregate_call(call, positions, inputs.fields) for call in aggregates)
        return Aggregate(inputs, tuple(range(len(expressions))), calls)

    def _key_value(self, number: int) -> Expression:
        """Return the expression of a key, which has equal codes for equal values."""
        # The columns of the domain are compared with those of the outer rows by their codes.
        is_domain_column = number < len(self.builder.domain_columns)
        return self.keys[number] if is_domain_column else normalize_interval(self.keys[number])

    def _grouping_set(
        self, keys: frozenset[int], aggregates: Sequence[PrimitiveAggregate]
    ) -> PlanNode:
        """Return the groups by some of the keys; the others are NULL.

        A set without keys is one group even if the input has no rows; in a correlated query, one
        for each combination of outer values. In Spark an input without rows has no group: there,
        the set is grouped by a constant.
        """
        key_numbers = sorted(keys)
        constants = [integer_literal(0)] if self.source.is_spark and not key_numbers else []
        aggregate = self._aggregate(key_numbers, aggregates, *constants)
        groups: PlanNode = aggregate
        domain = self.builder.domain
        if domain is not None and not self.source.is_spark and not keys & self._optional_keys:
            groups = pad_aggregate(aggregate, domain.plan)
        group_columns = columns(groups)[len(constants) :]
        key_columns: list[Expression] = [
            group_columns[key_numbers.index(number)] if number in keys else Literal(None, key.type)
            for number, key in enumerate(self.keys)
        ]
        flags = [integer_literal(_grouping_number(numbers, keys)) for numbers in self._groupings]
        names = list(column_names(self.keys, self.builder.plan.fields))
        names += [field.name for field in groups.fields[len(aggregate.keys) :]]
        names += ["grouping()"] * len(flags)
        results = group_columns[len(key_numbers) :]
        return Map(groups, (*key_columns, *results, *flags), tuple(names))

    def is_count(self, index: int) -> bool:
        """Return whether a column of the plan is a count, which is 0 for an empty group."""
        number = index - len(self.keys)
        is_aggregate_column = 0 <= number < len(self._aggregates)
        return is_aggregate_column and self._aggregates[number].function == "count"

    def rewrite_over_groups(self, node: exp.Expr, expression: Expression) -> Expression:
        """Rewrite an expression with placeholders to one over the columns of `build_plan`.

        Args:
            node: The syntax tree of the expression, for errors.
            expression: An expression that a clause of `clause` has read.

        Raises:
            SqlError: It has a column that is neither a key nor in an aggregate.
        """
        # A key that is a constant is NULL in the grouping sets that leave it out. Without grouping
        # sets it is the constant.
        is_constant = isinstance(expression, Literal) and self._sets is None
        if not is_constant and expression in self.keys:
            return Column(self.keys.index(expression), expression.type)
        if isinstance(expression, Call):
            arguments = tuple(self.rewrite_over_groups(node, a) for a in expression.arguments)
            return Call(expression.function, arguments, expression.type)
        if not isinstance(expression, Column) or is_outer_column(expression.index):
            return expression
        index, type_ = expression.index, expression.type
        if index == NOW_COLUMN:
            return expression
        if index < FIRST_KEY:
            raise self._ungrouped_error(node, expression)
        if index < FIRST_AGGREGATE:
            return Column(index - FIRST_KEY, type_)
        if index < FIRST_SUBQUERY:
            return Column(len(self.keys) + index - FIRST_AGGREGATE, type_)
        if index < FIRST_WINDOW:
            return self._subquery_values[index - FIRST_SUBQUERY]
        if index < FIRST_GROUPING or index == ROW_NUMBER_COLUMN:
            return expression
        return Column(len(self.keys) + len(self._aggregates) + index - FIRST_GROUPING, type_)

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
        """Return the value of a call over placeholders; add its aggregates if they are new."""
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self._read_grouping(node)

        self._expand_counted_star(node)
        is_timed = reads_now(node)

        def register(call: PrimitiveAggregate) -> Expression:
            if is_timed:
                call = call.map(lambda value: add_truth_columns(self.builder, node, value))
            self._check_own_columns(node, call)
            if call not in self._aggregates:
                self._aggregates.append(call)
            value = Column(FIRST_AGGREGATE + self._aggregates.index(call), call.type)
            if call.function in JSON_KEEPING_AGGREGATES and call.arguments:
                self.builder.json_kinds[value.index] = self.builder.json_kind(call.arguments[0])
            return value

        def read(**options: Reader) -> Expression:
            return read_aggregate(self.builder.clause("an aggregate", **options), node, register)

        if is_timed:
            return read_timed_condition(lambda read_now: read(read_now=read_now))
        return read()

    def _expand_counted_star(self, node: exp.Expr) -> None:
        """Replace ``*`` in ``count(DISTINCT *)`` of Spark by the columns of FROM."""
        while isinstance(node, CALL_WRAPPERS):
            node = node.this
        distinct = node.this if isinstance(node, exp.Count) else None
        if not self.source.is_spark or not isinstance(distinct, exp.Distinct):
            return
        if len(distinct.expressions) == 1 and isinstance(distinct.expressions[0], exp.Star):
            star = distinct.expressions[0]
            self.source.refuse_arguments(star)
            names = (
                exp.column(column.name, table=column.table or None, quoted=True)
                for column in self.builder.scope_columns
                if not column.is_shadowed
            )
            distinct.set("expressions", list(names))

    def _read_grouping(self, node: exp.Expr) -> Expression:
        """Read ``grouping(a, b)``: a bit for each key, 1 where its set leaves the key out."""
        self.source.allow_arguments(node, "expressions")
        clause = self.builder.clause("grouping()")
        values = [clause.read(part) for part in node.expressions]
        outer = frozenset(self.builder.domain_columns)
        if any(value in outer or is_correlated(value) for value in values):
            raise self.source.unsupported(
                node,
                "grouping() of keys of the enclosing query",
                "call it in the enclosing query, in FROM",
            )
        self._pending_groupings.append(lambda: self._grouped_keys(node, values))
        flags = Column(FIRST_GROUPING + len(self._pending_groupings) - 1, pa.int64())
        if self.source.is_spark and isinstance(node, exp.Grouping):
            return clause.call(node, "cast", flags, type=pa.int8())
        return flags

    def _grouped_keys(self, node: exp.Expr, values: list[Expression]) -> tuple[int, ...]:
        """Return the numbers of the keys that are the arguments of a call of ``grouping()``."""
        if not self.keys:
            raise self.source.error(node, "grouping() needs a GROUP BY")
        if not values:
            return tuple(range(len(self.keys)))
        for value in values:
            if value not in self.keys:
                raise self.source.error(node, "an argument of grouping() is not in GROUP BY")
        return tuple(self.keys.index(value) for value in values)

    def _check_own_columns(self, node: exp.Expr, call: PrimitiveAggregate) -> None:
        """Raise an error if an aggregate reads outer columns in a form that is not supported.

        An aggregate of outer columns only belongs to the enclosing query. Any other aggregate may
        read them only in a plan for all outer values, where they are columns of the domain.
        """
        domain_columns = {c for value in self.builder.domain_columns for c in columns_of(value)}
        used = {column for value in call.expressions for column in columns_of(value)}
        if used and all(column in domain_columns or is_outer_column(column) for column in used):
            raise self.source.unsupported(
                node,
                "an aggregate of columns of the enclosing query only",
                "aggregate in the enclosing query",
            )
        if any(map(is_correlated, call.expressions)):
            raise self.source.correlated(
                node, "an aggregate of columns of the enclosing query", "aggregate in a join"
            )

    def _read_scalar(self, clause: Clause, node: exp.Expr) -> Expression:
        """Return the placeholder of a scalar subquery, which is joined to the groups."""
        return self._add_subquery(self.builder.queries.read_scalar(self._outer_builder, node))

    def _read_membership(self, clause: Clause, node: exp.Expr) -> Expression:
        """Return the placeholder of EXISTS or IN, whose value is joined to the groups."""
        queries = self.builder.queries
        return self._add_subquery(queries.read_membership(self._outer_builder, clause, node))

    @property
    def _outer_builder(self) -> SelectBuilder:
        """The builder for subqueries, which are joined to the groups."""
        if not self._has_sets:
            return self.builder
        return self.builder.with_outer_rows(self._add_outer_rows)

    def _add_outer_rows(self, values: tuple[Expression, ...]) -> PlanNode:
        """Return a node that stands for the values of all groups until `build_plan`.

        Each of its columns can be NULL, as a key is in the sets that leave it out.
        """
        names = column_names(values, self.builder.plan.fields)
        nulls = Map(ONE_ROW, tuple(Literal(None, value.type) for value in values), names)
        node = Union((Map(self.builder.plan, values, names), nulls))
        self._outer_values.append((node, values))
        return node

    def _outer_rows(self, node: PlanNode, values: Sequence[Expression]) -> PlanNode:
        """Return the values of all groups.

        A value that is not a key is NULL here: the subquery does not use it, because otherwise its
        join raises an error.
        """
        keys = self._union_of_sets(list(dict.fromkeys(self._sets or ())), ())
        values_of_keys = tuple(
            Column(self.keys.index(value), value.type)
            if value in self.keys
            else Literal(None, value.type)
            for value in values
        )
        return Map(keys, values_of_keys, tuple(field.name for field in node.fields))

    def _add_subquery(self, subquery: SubqueryValue) -> Expression:
        self._subqueries.append(subquery)
        value = Column(FIRST_SUBQUERY + len(self._subqueries) - 1, subquery.type)
        self.builder.json_kinds[value.index] = subquery.json_kind
        return value


def pad_aggregate(groups: Aggregate, domain: PlanNode) -> PlanNode:
    """Add a row to an aggregate for each row of the domain that is not among its groups.

    Such a row has the aggregates of an empty input: NULL, and 0 for ``count``.

    Args:
        groups: An aggregate whose keys are the columns of the domain.
        domain: The combinations of outer values (`circuits.sql.queries.decorrelation`).
    """
    if not groups.keys:
        return groups
    keys = len(groups.keys)
    empty_aggregate = Aggregate(Values(groups.input.fields, ()), (), groups.aggregates)
    equalities = [
        functions.call("same", column, Column(column.index + keys, column.type))
        for column in columns(domain)
    ]
    missing = Semijoin(domain, groups, functions.conjunction(equalities), anti=True)
    return Union((groups, CrossJoin((missing, empty_aggregate))))


def is_padded_aggregate(plan: Union, keys: int) -> bool:
    """Return whether a union is the result of `pad_aggregate` for this number of keys."""
    groups, *others = plan.inputs
    if not (isinstance(groups, Aggregate) and len(groups.keys) == keys and len(others) == 1):
        return False
    padding = others[0]
    if not (isinstance(padding, CrossJoin) and isinstance(padding.inputs[0], Semijoin)):
        return False
    return padding.inputs[0].anti and padding.inputs[0].right is groups


def aggregate_call(
    aggregate: PrimitiveAggregate, positions: Mapping[Expression, int], fields: Fields
) -> AggregateCall:
    """Return the call of a primitive aggregate over columns.

    Args:
        aggregate: The aggregate, over expressions.
        positions: The column of each expression.
        fields: The columns.
    """
    arguments = [positions[value] for value in aggregate.arguments]
    orders: dict[int, Order] = {}
    for key in aggregate.order:
        column = positions[key.expression]
        orders.setdefault(column, Order(column, key.descending, key.nulls_first))
    return AggregateCall(
        aggregate.function,
        arguments[0] if arguments else None,
        aggregate.type,
        "",
        aggregate.distinct,
        tuple(arguments[1:]),
        tuple(orders.values()),
        aggregate.options,
    ).named_by_text(fields)


def _replace_nodes(plan: PlanNode, replacements: Mapping[int, PlanNode]) -> PlanNode:
    """Return a plan in which nodes are replaced, in time linear in its number of nodes.

    Args:
        plan: The plan.
        replacements: The new nodes, by the ``id`` of the old ones.
    """
    results = dict(replacements)

    def replace(node: PlanNode) -> PlanNode:
        if id(node) not in results:
            inputs = tuple(map(replace, node.inputs))
            is_same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
            results[id(node)] = node if is_same else node.with_inputs(inputs)
        return results[id(node)]

    return replace(plan)


def _grouping_number(numbers: Sequence[int], keys: frozenset[int]) -> int:
    """Return the bits of the keys that are left out; the first one is the highest.

    >>> _grouping_number((0, 1), frozenset({1}))
    2
    """
    bits = 0
    for number in numbers:
        bits = 2 * bits + (number not in keys)
    return bits
