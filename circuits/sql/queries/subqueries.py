"""Subqueries in conditions: EXISTS, IN, comparisons with ANY and ALL, and scalar subqueries.

A *membership* condition becomes a semijoin, or an antijoin if it is negated. A scalar subquery is
joined, so that its value is a column::

    EXISTS (q)          Semijoin(plan, q)
    x IN (q)            Semijoin(plan, q, x = q.y)
    x NOT IN (q)        Semijoin(plan, q, x = q.y or x is null or q.y is null, anti)
    x < ALL (q)         Semijoin(plan, q, x >= q.y or x is null or q.y is null, anti)
    x < (SELECT max(y) FROM s WHERE s.k = r.k)
                        OuterJoin(plan, Aggregate(s by k), r.k = k), then x < max

A correlated condition of the subquery (one that names outer columns, see
`circuits.sql.binding.scope`) becomes a part of the join predicate. If the subquery aggregates, the
condition must be an equality, whose inner side becomes a key of the aggregate (Galindo-Legaria and
Joshi, Orthogonal Optimization of Subqueries and Aggregation, SIGMOD 2001). Rows without a match get
the value of the aggregate over no rows: NULL, and 0 for ``count``.

Any other correlated subquery is planned for all values of the outer columns that it names
(`circuits.sql.queries.decorrelation`). A scalar subquery that can have several rows passes through
a `SingleRow`, which fails if it does.

A membership condition as a value, as in ``SELECT EXISTS (q)``, is a left join with the set of the
matching rows, and a test if there is a match. The value of ``x IN (q)`` is::

    CASE WHEN x = q.y for some row THEN TRUE
         WHEN x = q.y is NULL for some row THEN NULL   (left out if neither side can be NULL)
         ELSE FALSE END

To support another kind of membership condition, extend `is_membership`, `plan_semijoin` and
`read_membership`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Distinct,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    TopK,
    Union,
    Values,
    columns,
)
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.single_row import SingleRow
from circuits.plan.window import Window
from circuits.sql.aggregation.grouping import ONE_ROW, Grouping, is_grouped, is_padded_aggregate
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import (
    FIRST_OUTER_COLUMN,
    is_correlated,
    is_outer_column,
    shift_columns,
)
from circuits.sql.binding.select_builder import SelectBuilder, SubqueryValue
from circuits.sql.expressions.list_comparisons import is_list_comparison
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.queries.decorrelation import filter_all, links_between, plan_correlated_query
from circuits.sql.syntax.source import CorrelatedSqlError
from circuits.types.functions import call

__all__ = [
    "add_condition_keys",
    "is_membership",
    "join_scalar",
    "plan_semijoin",
    "read_membership",
    "read_scalar",
]

# For each comparison: the function for ANY, and its negation for ALL.
COMPARISONS: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("eq", "ne"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.NEQ: ("ne", "eq"),
}
HOW_TO_CORRELATE: Final = "correlate it by conditions of its WHERE, joined by AND"

RowCount = typing.Literal["one", "at most one"]


@dataclass(frozen=True)
class _Subquery:
    """A subquery; the expressions are over the columns of ``plan`` and over outer columns."""

    plan: PlanNode
    outputs: tuple[Expression, ...]
    correlated_conditions: tuple[Expression, ...] = ()


def is_membership(node: exp.Expr) -> bool:
    """Return whether a condition is EXISTS, IN, or a comparison with ANY or ALL of a subquery."""
    node = _strip_parentheses(node)
    if isinstance(node, exp.Not):
        return is_membership(node.this)
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return _subquery_of_in(node) is not None
    is_comparison = type(node) in COMPARISONS and not is_list_comparison(node)
    return is_comparison and isinstance(node.args["expression"], exp.Any | exp.All)


def _subquery_of_in(node: exp.In) -> exp.Expr | None:
    """Return the subquery of IN; None for a list of values.

    sqlglot parses ``x IN (VALUES ...)`` as a list whose only item is the VALUES.
    """
    query, items = node.args.get("query"), node.expressions
    if query is not None:
        return None if items else query
    is_values = len(items) == 1 and isinstance(items[0], exp.Values)
    return items[0] if is_values else None


def plan_semijoin(
    builder: SelectBuilder, clause: Clause, node: exp.Expr, negated: bool = False
) -> PlanNode:
    """Return the rows for which a membership condition is true."""
    node = _strip_parentheses(node)
    source = builder.source
    if isinstance(node, exp.Not):
        source.allow_arguments(node, "this")
        return plan_semijoin(builder, clause, node.this, not negated)
    if isinstance(node, exp.Exists):
        source.allow_arguments(node, "this")
        inner = _read_subquery(builder, node.this, exists=True)
        return _build_semijoin(builder, clause, node, inner, (), negated)
    if isinstance(node, exp.In) and (query := _subquery_of_in(node)) is not None:
        source.allow_arguments(node, "this", "query", "expressions")
        return _plan_comparison(builder, clause, node, query, "eq", is_all=False, negated=negated)
    source.allow_arguments(node, "this", "expression")
    quantifier = node.args["expression"]
    source.allow_arguments(quantifier, "this")
    any_function, all_function = COMPARISONS[type(node)]
    is_all = isinstance(quantifier, exp.All)
    function = all_function if is_all else any_function
    return _plan_comparison(
        builder, clause, node, quantifier.this, function, is_all=is_all, negated=negated
    )


def _plan_comparison(
    builder: SelectBuilder,
    clause: Clause,
    node: exp.Expr,
    query: exp.Expr,
    function: str,
    *,
    is_all: bool,
    negated: bool,
) -> PlanNode:
    """Return the rows for which ``x < ANY (query)`` or ``x < ALL (query)`` is true.

    ANY and NOT ALL are semijoins: a row exists for which ``function`` is true. ALL and NOT ANY are
    antijoins: no row exists for which ``function`` is true or NULL. For ``< ALL``, the function is
    ``>=``.
    """
    if not isinstance(_strip_parentheses(query), exp.Query | exp.Values):
        raise builder.source.unsupported(query, "ANY or ALL of a list", "use IN")
    inner = _read_subquery(builder, query)
    is_anti = is_all != negated
    left = [node.this]
    if isinstance(node.this, exp.Tuple):
        builder.source.allow_arguments(node.this, "expressions")
        if function != "eq":
            raise builder.source.unsupported(
                node.this,
                "this comparison of rows with a subquery",
                "use EXISTS with a condition per column; IN and = ANY compare rows",
            )
        left = node.this.expressions
    if len(left) != len(inner.outputs):
        raise builder.source.error(
            query, f"the subquery has {len(inner.outputs)} columns, {len(left)} are compared"
        )
    values = [clause.read(part) for part in left]
    width = builder.width
    conditions = []
    for value, output in zip(values, inner.outputs, strict=True):
        other = _number_over_join(output, width)
        condition = clause.call(node, function, value, other)
        if is_anti:
            nulls = [clause.call(node, "is_null", side) for side in (value, other)]
            condition = clause.call(node, "or", condition, *nulls)
        conditions.append(condition)
    return _build_semijoin(builder, clause, node, inner, conditions, is_anti)


def _build_semijoin(
    builder: SelectBuilder,
    clause: Clause,
    node: exp.Expr,
    inner: _Subquery,
    conditions: Sequence[Expression],
    anti: bool,
) -> PlanNode:
    width = builder.width
    parts = [_number_over_join(part, width) for part in inner.correlated_conditions]
    parts += conditions
    if any(is_correlated(part) for part in parts):
        raise builder.source.correlated(
            node, "a condition that spans three queries", "compare columns of the two nearest"
        )
    return Semijoin(builder.plan, inner.plan, _conjoin(clause, node, parts), anti)


def join_scalar(builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
    """Return the builder's plan joined to a scalar subquery, and the value of the subquery."""
    try:
        return _join_simple_scalar(builder, node)
    except CorrelatedSqlError:
        return _read_correlated_scalar(builder, node).join(builder.plan, _unchanged)


def read_scalar(builder: SelectBuilder, node: exp.Expr) -> SubqueryValue:
    """Return the value of a scalar subquery, which the caller joins to its groups of rows."""
    environment = builder.environment.without_outer_scope(builder.scope)
    one_row_builder = SelectBuilder(environment, ONE_ROW)
    try:
        plan, value = _join_simple_scalar(one_row_builder, node)
    except CorrelatedSqlError:
        return _read_correlated_scalar(builder, node)
    # The subquery is joined to one row, so the join has one row even if the subquery has none.
    return _ScalarValue(plan, value, (), always_has_row=True)


def _unchanged(expression: Expression) -> Expression:
    return expression


@dataclass(frozen=True)
class _ScalarValue:
    """A scalar subquery: at most one row for each combination of the outer values that it names.

    Args:
        plan: The columns of the outer values, then that of the value of the subquery.
        value: The value of the subquery, over ``plan``.
        outer_values: The outer values, over the plan of the enclosing query.
        always_has_row: True if each combination has a row.
    """

    plan: PlanNode
    value: Expression
    outer_values: tuple[Expression, ...]
    always_has_row: bool

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def join(
        self, plan: PlanNode, rewrite: Callable[[Expression], Expression]
    ) -> tuple[PlanNode, Expression]:
        width = len(plan.fields)
        outer_values = [rewrite(value) for value in self.outer_values]
        links = links_between(outer_values, columns(self.plan)[: len(outer_values)], width)
        value = shift_columns(self.value, width)
        if self.always_has_row:
            return filter_all(CrossJoin((plan, self.plan)), links), value
        return OuterJoin(plan, self.plan, _conjunction(links)), value


def _read_correlated_scalar(builder: SelectBuilder, node: exp.Expr) -> _ScalarValue:
    query = _strip_parentheses(node)
    correlated = plan_correlated_query(builder, query)
    width = correlated.width
    _check_one_column(builder, node, len(correlated.plan.fields) - width)
    plan, always_has_row = _with_single_row(correlated.plan, width)
    return _ScalarValue(plan, columns(plan)[width], correlated.outer_values, always_has_row)


def _with_single_row(plan: PlanNode, key_width: int) -> tuple[PlanNode, bool]:
    """Return a plan that fails if a key has several rows, and whether every key has a row.

    Args:
        plan: The rows.
        key_width: The number of its first columns that are the key; 0 for a single row in total.
    """
    row_count = _count_rows(plan, key_width)
    if row_count is None:
        names = tuple(field.name for field in plan.fields[:key_width])
        return SingleRow(plan, key_width, names), False
    return plan, row_count == "one" and not key_width


def _check_one_column(builder: SelectBuilder, node: exp.Expr, count: int) -> None:
    if count != 1:
        raise builder.source.error(node, f"a scalar subquery has one column, not {count}")


def _join_simple_scalar(builder: SelectBuilder, node: exp.Expr) -> tuple[PlanNode, Expression]:
    """Join a scalar subquery that is not correlated, or is a single aggregate.

    Raises:
        CorrelatedSqlError: It is correlated in another form.
    """
    source = builder.source
    query = _strip_parentheses(node)
    clause = builder.clause("a scalar subquery")
    if isinstance(query, exp.Select) and is_grouped(query) and len(query.expressions) == 1:
        other_clauses = (
            *("group", "having", "distinct", "qualify"),
            *("limit", "offset", "order", "with_"),
        )
        if not any(query.args.get(name) for name in other_clauses):
            return _join_aggregate(builder, clause, query)
    if not isinstance(query, exp.Query):
        raise source.unsupported(node, f"{query.key.upper()} as a value")
    inner = _read_subquery(builder, query, may_correlate=False)
    _check_one_column(builder, node, len(inner.outputs))
    value = _number_over_join(inner.outputs[0], builder.width)
    plan, always_has_row = _with_single_row(inner.plan, 0)
    if always_has_row:
        return CrossJoin((builder.plan, plan)), value
    return OuterJoin(builder.plan, plan, Literal(True, pa.bool_())), value


def read_membership(builder: SelectBuilder, clause: Clause, node: exp.Expr) -> SubqueryValue:
    """Return the truth value of EXISTS, IN, or a comparison with ANY or ALL of a subquery.

    Args:
        builder: The rows of the enclosing query.
        clause: The clause of the condition, which reads the compared value.
        node: The condition.
    """
    source = builder.source
    if isinstance(node, exp.Exists):
        source.allow_arguments(node, "this")
        return _Membership(_read_subquery(builder, node.this, exists=True), (), False)
    is_all, function = False, "eq"
    if isinstance(node, exp.In):
        source.allow_arguments(node, "this", "query", "expressions")
        query = _subquery_of_in(node)
        assert query is not None
    else:
        source.allow_arguments(node, "this", "expression")
        quantifier = node.args["expression"]
        source.allow_arguments(quantifier, "this")
        query, is_all = quantifier.this, isinstance(quantifier, exp.All)
        function = COMPARISONS[type(node)][is_all]
    if not isinstance(_strip_parentheses(query), exp.Query | exp.Values):
        raise source.unsupported(query, "ANY or ALL of a list", "use IN")
    inner = _read_subquery(builder, query)
    left = [node.this]
    if isinstance(node.this, exp.Tuple):
        source.allow_arguments(node.this, "expressions")
        if function != "eq":
            raise source.unsupported(
                node.this,
                "this comparison of rows with a subquery",
                "use EXISTS with a condition per column; IN and = ANY compare rows",
            )
        left = node.this.expressions
    if len(left) != len(inner.outputs):
        raise source.error(
            query, f"the subquery has {len(inner.outputs)} columns, {len(left)} are compared"
        )
    values = [clause.read(part) for part in left]
    if any(map(is_correlated, values)):
        raise source.correlated(node, "a condition that spans three queries")
    values = [shift_columns(value, FIRST_OUTER_COLUMN) for value in values]
    comparisons = tuple(
        clause.call(node, function, value, output)
        for value, output in zip(values, inner.outputs, strict=True)
    )
    return _Membership(inner, comparisons, is_all)


@dataclass(frozen=True)
class _Membership:
    """A membership condition as a value.

    It is EXISTS if there are no ``comparisons``. Otherwise it is true if all of them are true for
    some row of the subquery (ANY), or with ``negated`` for none.

    Columns of the enclosing query, and placeholders of its aggregates, are numbered from
    ``FIRST_OUTER_COLUMN`` on.
    """

    inner: _Subquery
    comparisons: tuple[Expression, ...]
    negated: bool

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def join(
        self, plan: PlanNode, rewrite: Callable[[Expression], Expression]
    ) -> tuple[PlanNode, Expression]:
        width = len(plan.fields)

        def renumber(column: Column) -> Expression:
            if column.index >= FIRST_OUTER_COLUMN:
                return rewrite(Column(column.index - FIRST_OUTER_COLUMN, column.type))
            return Column(column.index + width, column.type)

        inner = self.inner.plan
        links = [substitute(part, renumber) for part in self.inner.correlated_conditions]
        comparisons = [substitute(part, renumber) for part in self.comparisons]
        joined, value = _join_flag(plan, inner, [*links, *comparisons], width)
        true_or_null, can_be_null = [], False  # each comparison, or that one of its sides is NULL
        for comparison in comparisons:
            assert isinstance(comparison, Call)
            nulls = [
                call("is_null", side)
                for side in comparison.arguments
                if _is_nullable_side(plan, inner, side, width)
            ]
            can_be_null = can_be_null or bool(nulls)
            true_or_null.append(call("or", comparison, *nulls) if nulls else comparison)
        if can_be_null:
            joined, is_null = _join_flag(joined, inner, [*links, *true_or_null], width)
            null, false = Literal(None, pa.bool_()), Literal(False, pa.bool_())
            value = call("case", value, Literal(True, pa.bool_()), is_null, null, false)
        return joined, call("not", value) if self.negated else value


def _is_nullable_side(plan: PlanNode, inner: PlanNode, side: Expression, width: int) -> bool:
    """Return whether a side of a comparison can be NULL."""
    used = columns_of(side)
    if all(column < width for column in used):
        return is_nullable(plan, side)
    if all(column >= width for column in used):
        return is_nullable(inner, shift_columns(side, -width))
    return True


def _join_flag(
    plan: PlanNode, inner: PlanNode, conditions: Sequence[Expression], inner_start: int
) -> tuple[PlanNode, Expression]:
    """Join a flag to each row: whether a row of ``inner`` fulfils the conditions.

    If all conditions on both sides are equalities, the rows are joined to the distinct inner sides
    of the equalities. Otherwise they are joined to the distinct outer values for which a semijoin
    finds a row of ``inner``.

    Args:
        plan: The rows.
        inner: The rows of the subquery.
        conditions: Over the first columns of ``plan``, and those of ``inner`` from
            ``inner_start`` on.
        inner_start: The number of the first column of ``inner`` in the conditions.
    """
    width = len(plan.fields)
    true = Literal(True, pa.bool_())
    pairs: list[tuple[str, Expression, Expression]] = []
    filters: list[Expression] = []
    only_equalities = True
    for part in conjuncts(conditions):
        if all(column >= inner_start for column in columns_of(part)):
            filters.append(shift_columns(part, -inner_start))
        elif pair := _split_equality(part, inner_start):
            pairs.append(pair)
        else:
            only_equalities = False
    if only_equalities:
        sides = tuple(dict.fromkeys(side for _, _, side in pairs))
        names = tuple(f"key_{number}" for number in range(len(sides)))
        marked = Map(filter_all(inner, filters), (*sides, true), (*names, "found"))
        links = [
            call(function, left, Column(width + sides.index(side), side.type))
            for function, left, side in pairs
        ]
        plan = OuterJoin(plan, Distinct(marked), _conjunction(links))
        return plan, _is_found(width + len(sides))
    used = sorted({c for part in conditions for c in columns_of(part) if c < inner_start})
    keys = [columns(plan)[column] for column in used]
    names = tuple(plan.fields[column].name for column in used)
    rows: PlanNode = Distinct(Map(plan, tuple(keys), names)) if keys else ONE_ROW

    def renumber(column: Column) -> Column:
        if column.index < inner_start:
            return Column(used.index(column.index), column.type)
        return Column(column.index - inner_start + len(used), column.type)

    predicate = _conjunction([substitute(part, renumber) for part in conditions])
    matching = Semijoin(rows, inner, predicate)
    marked = Map(matching, (*columns(matching), true), (*names, "found"))
    links = links_between(keys, columns(matching), width)
    return OuterJoin(plan, marked, _conjunction(links)), _is_found(width + len(used))


def _is_found(index: int) -> Expression:
    return call("not", call("is_null", Column(index, pa.bool_())))


def _split_equality(part: Expression, width: int) -> tuple[str, Expression, Expression] | None:
    """Return the function, the left and the inner side of an equality; None if it is another."""
    if not (isinstance(part, Call) and part.function in ("eq", "same")):
        return None
    for left, inner in (part.arguments, part.arguments[::-1]):
        inner_columns = columns_of(inner)
        is_inner = bool(inner_columns) and all(column >= width for column in inner_columns)
        if is_inner and all(column < width for column in columns_of(left)):
            return part.function, left, shift_columns(inner, -width)
    return None


def _count_rows(plan: PlanNode, key_width: int = 0) -> RowCount | None:
    """Return whether a plan always has one row, or at most one; None if it can have several.

    Args:
        plan: The rows.
        key_width: If not 0, count the rows of each combination of values of so many first columns.
    """
    own_keys = tuple(range(key_width))
    if isinstance(plan, Window):
        return _count_rows(plan.input, key_width)
    if isinstance(plan, Map):
        if plan.expressions[:key_width] != columns(plan.input)[:key_width]:
            return None
        return _count_rows(plan.input, key_width)
    if isinstance(plan, Filter):
        return "at most one" if _count_rows(plan.input, key_width) else None
    if isinstance(plan, Aggregate):
        return "one" if plan.keys == own_keys else None
    if isinstance(plan, Union) and is_padded_aggregate(plan, key_width):
        return "one"
    if isinstance(plan, TopK):
        limits_to_one = plan.keys == own_keys and plan.limit is not None and plan.limit <= 1
        return "at most one" if limits_to_one or _count_rows(plan.input, key_width) else None
    if isinstance(plan, Values) and len(plan.rows) == 1 and not key_width:
        return "one"
    return None


def _join_aggregate(
    builder: SelectBuilder, clause: Clause, query: exp.Select
) -> tuple[PlanNode, Expression]:
    """Join a single aggregate, grouped by the inner sides of its correlated equalities."""
    source = builder.source
    source.allow_arguments(query, "expressions", "from_", "joins", "where")
    inner = builder.queries.read_from_and_where(builder.environment, query, builder.scope)
    item = query.expressions[0]
    if isinstance(item, exp.Alias):
        source.allow_arguments(item, "this", "alias")
        item = item.this
    grouping = Grouping(inner)
    value = grouping.clause("SELECT").read(item)
    conditions = [
        add_condition_keys(grouping, condition_node, condition)
        for condition_node, condition in inner.correlated_conditions
    ]
    plan = grouping.build_plan()
    value = grouping.rewrite_over_groups(item, value)
    width = builder.width
    if not conditions:
        return CrossJoin((builder.plan, plan)), _number_over_join(value, width)

    def count_no_rows_as_zero(column: Column) -> Expression:
        joined_column = _number_over_join(column, width)
        if not is_outer_column(column.index) and grouping.is_count(column.index):
            return clause.call(query, "coalesce", joined_column, integer_literal(0))
        return joined_column

    value = substitute(value, count_no_rows_as_zero)
    conditions = [grouping.rewrite_over_groups(query, condition) for condition in conditions]
    parts = [_number_over_join(condition, width) for condition in conditions]
    if any(map(is_correlated, parts)):
        raise source.correlated(query, "a condition that spans three queries", HOW_TO_CORRELATE)
    return OuterJoin(builder.plan, plan, _conjoin(clause, query, parts)), value


def add_condition_keys(grouping: Grouping, node: exp.Expr, condition: Expression) -> Expression:
    """Make the inner side of a correlated equality a key of the groups; return the new equality.

    Raises:
        UnsupportedSqlError: The condition is not an equality of an inner with an outer value.
    """
    if all(map(is_outer_column, columns_of(condition))):
        return condition
    if isinstance(condition, Call) and condition.function in ("eq", "same"):
        for inner, outer in (condition.arguments, condition.arguments[::-1]):
            outer_columns = columns_of(outer)
            is_all_outer = bool(outer_columns) and all(map(is_outer_column, outer_columns))
            if is_all_outer and not is_correlated(inner):
                return Call(condition.function, (grouping.add_key(inner), outer), condition.type)
    raise grouping.source.correlated(
        node,
        "a correlated condition below an aggregate that does not equate an inner with an outer "
        "value",
        "join the tables and aggregate the join",
    )


def _read_subquery(
    builder: SelectBuilder, query: exp.Expr, *, exists: bool = False, may_correlate: bool = True
) -> _Subquery:
    """Return a subquery, with its correlated conditions.

    Raises:
        CorrelatedSqlError: It is correlated, and ``may_correlate`` is False.
    """
    try:
        subquery = _read_simple_subquery(builder, query, exists)
    except CorrelatedSqlError:
        if not may_correlate:
            raise
    else:
        has_conditions = bool(subquery.correlated_conditions)
        if may_correlate or not (has_conditions or any(map(is_correlated, subquery.outputs))):
            return subquery
        raise builder.source.correlated(query, "a correlated scalar subquery")
    correlated = plan_correlated_query(builder, _strip_parentheses(query))
    plan = correlated.derived.plan
    keys = columns(plan)[: correlated.width]
    outer = [shift_columns(value, FIRST_OUTER_COLUMN) for value in correlated.outer_values]
    conditions = tuple(call("same", *pair) for pair in zip(outer, keys, strict=True))
    return _Subquery(plan, columns(plan)[correlated.width :], conditions)


def _read_simple_subquery(builder: SelectBuilder, query: exp.Expr, exists: bool) -> _Subquery:
    """Return a subquery whose correlated conditions are those of its WHERE.

    Raises:
        CorrelatedSqlError: It is correlated in another form.
    """
    query = _strip_parentheses(query)
    environment = builder.environment
    if not isinstance(query, exp.Select):
        environment = environment.without_outer_scope(builder.scope)
        plan = environment.queries.plan_query(environment, query).plan
        return _Subquery(plan, columns(plan))
    selection = builder.queries.read_selection(environment, query, builder.scope)
    if not selection.correlated_conditions and not any(map(is_correlated, selection.outputs)):
        plan = builder.queries.finish_selection(selection).plan
        return _Subquery(plan, columns(plan))
    for name in ("qualify", "limit", "offset"):
        part = query.args.get(name)
        if part is None or (exists and name == "limit" and _is_positive_limit(part)):
            continue
        raise builder.source.correlated(
            part, f"{name.upper()} in a correlated subquery", HOW_TO_CORRELATE, word=name
        )
    distinct = query.args.get("distinct")
    if distinct is not None:
        if distinct.args.get("on"):
            raise builder.source.correlated(query, "DISTINCT ON in a correlated subquery")
        builder.source.refuse_arguments(distinct)
    # DISTINCT and ORDER BY do not change whether there is a row.
    return _Subquery(selection.plan, selection.outputs, selection.correlated_conditions)


def _is_positive_limit(node: exp.Expr) -> bool:
    """Return whether a LIMIT leaves at least one row, so that it does not change EXISTS."""
    if not isinstance(node, exp.Limit) or _set_arguments(node) != ["expression"]:
        return False
    count = node.expression
    return isinstance(count, exp.Literal) and count.is_int and int(count.this) > 0


def _number_over_join(expression: Expression, width: int) -> Expression:
    """Renumber the columns of an expression of a subquery for the join with the enclosing query.

    The join has the ``width`` columns of the enclosing query first, then those of the subquery.
    """

    def renumber(column: Column) -> Column:
        if is_outer_column(column.index):
            return Column(column.index - FIRST_OUTER_COLUMN, column.type)
        return Column(column.index + width, column.type)

    return substitute(expression, renumber)


def _conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of conditions; TRUE if there are none."""
    if not parts:
        return Literal(True, pa.bool_())
    return parts[0] if len(parts) == 1 else call("and", *parts)


def _conjoin(clause: Clause, node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of conditions; an error of their types points to ``node``."""
    if not parts:
        return Literal(True, pa.bool_())
    return parts[0] if len(parts) == 1 else clause.call(node, "and", *parts)


def _strip_parentheses(node: exp.Expr) -> exp.Expr:
    """Return the node inside of parentheses that have no alias and no clause of their own."""
    while isinstance(node, exp.Paren | exp.Subquery) and _set_arguments(node) == ["this"]:
        node = node.this
    return node


def _set_arguments(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value not in (None, False, [])]
