"""Membership conditions: EXISTS, IN, comparisons with ANY and ALL, as conditions and as values.

A condition becomes a semijoin, or an antijoin if it is negated::

    EXISTS (q)          Semijoin(plan, q)
    x IN (q)            Semijoin(plan, q, x = q.y)
    x NOT IN (q)        Semijoin(plan, q, x = q.y or x is null or q.y is null, anti)
    x < ALL (q)         Semijoin(plan, q, x >= q.y or x is null or q.y is null, anti)

As a value, as in ``SELECT EXISTS (q)``, it is a left join with the set of the matching rows, and a
test if there is a match. The value of ``x IN (q)`` is::

    CASE WHEN x = q.y for some row THEN TRUE
         WHEN x = q.y is NULL for some row THEN NULL   (left out if neither side can be NULL)
         ELSE FALSE END

To support another kind, extend `is_membership`, `plan_semijoin` and `read_membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    shift_columns,
    substitute,
)
from circuits.plan.nodes import (
    Distinct,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    columns,
)
from circuits.plan.rewrite.nullability import is_nullable
from circuits.sql.aggregation.grouping import ONE_ROW
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import (
    FIRST_OUTER_COLUMN,
    is_correlated,
)
from circuits.sql.binding.select_builder import SelectBuilder, SubqueryValue
from circuits.sql.expressions.list_comparisons import is_list_comparison
from circuits.sql.expressions.row_comparisons import compare_parts, is_row
from circuits.sql.queries.decorrelation import filter_all, links_between
from circuits.sql.queries.subqueries import (
    Subquery,
    number_over_join,
    read_subquery,
)
from circuits.sql.syntax.nodes import strip_parentheses
from circuits.types.functions import call, conjunction

__all__ = ["is_membership", "plan_semijoin", "read_membership"]


# For each comparison: the function for ANY, and its negation for ALL.
_COMPARISONS: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("eq", "ne"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.NEQ: ("ne", "eq"),
}


def is_membership(node: exp.Expr) -> bool:
    """Return whether a condition is EXISTS, IN, or a comparison with ANY or ALL of a subquery."""
    node = strip_parentheses(node)
    if isinstance(node, exp.Not):
        return is_membership(node.this)
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return _subquery_of_in(node) is not None
    is_comparison = type(node) in _COMPARISONS and not is_list_comparison(node)
    return is_comparison and _quantified_query(node) is not None


def _quantified_query(node: exp.Expr) -> exp.Expr | None:
    """Return the operand of ANY or ALL in a comparison; None if the comparison has neither.

    ``(a, b) = (SELECT max(x), max(y) FROM t)``, whose subquery always has one row, is a comparison
    with ANY row of it.
    """
    right = node.args["expression"]
    if isinstance(right, exp.Any | exp.All):
        operand: exp.Expr = right.this
        return operand
    query = strip_parentheses(right)
    if not isinstance(query, exp.Select) or len(query.expressions) < 2:
        return None
    return query if _has_one_row(query) else None


def _has_one_row(query: exp.Select) -> bool:
    """Return whether all items of a SELECT aggregate all of its rows, so that it has one row."""
    filters = ("group", "having", "qualify", "limit", "offset")
    return not any(query.args.get(name) for name in filters) and all(
        isinstance(item.unalias(), exp.AggFunc) for item in query.expressions
    )


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
    node = strip_parentheses(node)
    source = builder.source
    if isinstance(node, exp.Not):
        source.allow_arguments(node, "this")
        return plan_semijoin(builder, clause, node.this, not negated)
    if isinstance(node, exp.Exists):
        source.allow_arguments(node, "this")
        inner = read_subquery(builder, node.this, exists=True)
        return _build_semijoin(builder, node, inner, (), negated)
    return _plan_comparison(builder, clause, node, negated=negated)


class _Comparison(NamedTuple):
    """``x IN (query)``, ``x < ANY (query)`` or ``x < ALL (query)``.

    Attributes:
        left: The nodes of the compared values; several for a row ``(x, y)``.
        inner: The subquery, with a column for each compared value.
        function: The comparison of a value with a column; for ALL, its negation.
        is_all: True for ALL.
    """

    left: list[exp.Expr]
    inner: Subquery
    function: str
    is_all: bool


def _read_comparison(builder: SelectBuilder, node: exp.Expr) -> _Comparison:
    """Read IN, or a comparison with ANY or ALL; the nodes of the compared values are not read."""
    source = builder.source
    query: exp.Expr | None
    is_all, function = False, "eq"
    if isinstance(node, exp.In):
        source.allow_arguments(node, "this", "query", "expressions")
        query = _subquery_of_in(node)
        assert query is not None
    else:
        source.allow_arguments(node, "this", "expression")
        quantifier = node.args["expression"]
        if isinstance(quantifier, exp.Any | exp.All):
            source.allow_arguments(quantifier, "this")
        query, is_all = _quantified_query(node), isinstance(quantifier, exp.All)
        assert query is not None
        function = _COMPARISONS[type(node)][is_all]
    if not isinstance(strip_parentheses(query), exp.Query | exp.Values):
        raise source.unsupported(query, "ANY or ALL of a list", "use IN")
    inner = read_subquery(builder, query)
    row = strip_parentheses(node.this)
    left = [node.this]
    if is_row(source, row):
        source.allow_arguments(row, "this", "expressions")
        if function == "ne" and not source.is_postgres:
            raise source.unsupported(
                row,
                "this comparison of rows with a subquery",
                "use EXISTS with a condition per column; all except <> ANY and = ALL compare rows",
            )
        left = row.expressions
    if len(left) != len(inner.outputs):
        raise source.error(
            query, f"the subquery has {len(inner.outputs)} columns, {len(left)} are compared"
        )
    return _Comparison(left, inner, function, is_all)


def _plan_comparison(
    builder: SelectBuilder, clause: Clause, node: exp.Expr, *, negated: bool
) -> PlanNode:
    """Return the rows for which IN, or a comparison with ANY or ALL, is true.

    ANY and NOT ALL are semijoins: a row exists for which the function of the `_Comparison` is true.
    ALL and NOT ANY are antijoins: no row exists for which it is true or NULL.
    """
    left, inner, function, is_all = _read_comparison(builder, node)
    is_anti = is_all != negated
    values = [clause.read(part) for part in left]
    width = builder.width
    others = [number_over_join(output, width) for output in inner.outputs]
    conditions = []
    for condition, sides in _compare(clause, node, function, values, others):
        if is_anti:
            nulls = [clause.call(node, "is_null", side) for side in sides]
            condition = clause.call(node, "or", condition, *nulls)
        conditions.append(condition)
    return _build_semijoin(builder, node, inner, conditions, is_anti)


def _compare(
    clause: Clause,
    node: exp.Expr,
    function: str,
    values: Sequence[Expression],
    others: Sequence[Expression],
) -> list[tuple[Expression, tuple[Expression, ...]]]:
    """Return conditions that are all true if a value or a row compares with another one.

    With each condition are the values that are NULL if the condition is NULL.
    """
    if function == "eq" or len(values) == 1:
        pairs = list(zip(values, others, strict=True))
        return [(clause.call(node, function, *pair), pair) for pair in pairs]
    condition = compare_parts(clause, node, function, values, others)
    return [(condition, (condition,) if clause.source.is_postgres else ())]


def _build_semijoin(
    builder: SelectBuilder,
    node: exp.Expr,
    inner: Subquery,
    conditions: Sequence[Expression],
    anti: bool,
) -> PlanNode:
    width = builder.width
    parts = [number_over_join(part, width) for part in inner.correlated_conditions]
    parts += conditions
    if any(is_correlated(part) for part in parts):
        raise builder.source.correlated(
            node, "a condition that spans three queries", "compare columns of the two nearest"
        )
    return Semijoin(builder.plan, inner.plan, conjunction(parts), anti)


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
        return _Membership(read_subquery(builder, node.this, exists=True), (), is_all=False)
    left, inner, function, is_all = _read_comparison(builder, node)
    values = [clause.read(part) for part in left]
    if any(map(is_correlated, values)):
        raise source.correlated(node, "a condition that spans three queries")
    values = [shift_columns(value, FIRST_OUTER_COLUMN) for value in values]
    comparisons = tuple(_compare(clause, node, function, values, inner.outputs))
    return _Membership(inner, comparisons, is_all)


@dataclass(frozen=True)
class _Membership:
    """A membership condition as a value.

    It is EXISTS if there are no ``comparisons``. Otherwise it is true if some row of the subquery
    makes all of them true (IN, ANY); with ``is_all``, if no row does (ALL). With each comparison
    are the values that are NULL if it is NULL.

    Columns of the enclosing query are numbered from ``FIRST_OUTER_COLUMN`` on. Placeholders of its
    aggregates (`circuits.sql.aggregation.grouping`) have still greater numbers.
    """

    inner: Subquery
    comparisons: tuple[tuple[Expression, tuple[Expression, ...]], ...]
    is_all: bool

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    @property
    def json_kind(self) -> str:
        return ""

    def join(
        self, plan: PlanNode, rewrite: Callable[[Expression], Expression]
    ) -> tuple[PlanNode, Expression]:
        """Implement `SubqueryValue.join`."""
        width = len(plan.fields)

        def renumber(column: Column) -> Expression:
            if column.index >= FIRST_OUTER_COLUMN:
                return rewrite(Column(column.index - FIRST_OUTER_COLUMN, column.type))
            return Column(column.index + width, column.type)

        inner = self.inner.plan
        links = [substitute(part, renumber) for part in self.inner.correlated_conditions]
        comparisons = [substitute(part, renumber) for part, _ in self.comparisons]
        joined, value = _join_flag(plan, inner, [*links, *comparisons], width)
        true_or_null = []  # for each comparison: it is true, or a side of it is NULL
        can_be_null = False
        for comparison, (_, sides) in zip(comparisons, self.comparisons, strict=True):
            nulls = [
                call("is_null", side)
                for side in (substitute(side, renumber) for side in sides)
                if _is_nullable_side(plan, inner, side, width)
            ]
            can_be_null = can_be_null or bool(nulls)
            true_or_null.append(call("or", comparison, *nulls) if nulls else comparison)
        if can_be_null:
            joined, is_null = _join_flag(joined, inner, [*links, *true_or_null], width)
            null, false = Literal(None, pa.bool_()), Literal(False, pa.bool_())
            value = call("case", value, Literal(True, pa.bool_()), is_null, null, false)
        return joined, call("not", value) if self.is_all else value


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

    If each condition reads only ``inner`` or is an equality of an outer and an inner value, the
    rows are joined to the distinct inner sides of the equalities. Otherwise they are joined to the
    distinct outer values for which a semijoin finds a row of ``inner``.

    Args:
        plan: The rows.
        inner: The rows of the subquery.
        conditions: Over the first columns of ``plan``, and those of ``inner`` from
            ``inner_start`` on.
        inner_start: The number of the first column of ``inner`` in the conditions.
    """
    width = len(plan.fields)
    true = Literal(True, pa.bool_())
    equalities: list[tuple[str, Expression, Expression]] = []  # function, outer and inner side
    filters: list[Expression] = []
    only_equalities = True
    for part in conjuncts(conditions):
        if all(column >= inner_start for column in columns_of(part)):
            filters.append(shift_columns(part, -inner_start))
        elif equality := _split_equality(part, inner_start):
            equalities.append(equality)
        else:
            only_equalities = False
    if only_equalities:
        sides = tuple(dict.fromkeys(side for _, _, side in equalities))
        names = column_names(sides, inner.fields)
        flagged = Map(filter_all(inner, filters), (*sides, true), (*names, "found"))
        links = [
            call(function, left, Column(width + sides.index(side), side.type))
            for function, left, side in equalities
        ]
        plan = OuterJoin(plan, Distinct(flagged), conjunction(links))
        return plan, _is_found(width + len(sides))
    used = sorted({c for part in conditions for c in columns_of(part) if c < inner_start})
    keys = [columns(plan)[column] for column in used]
    names = tuple(plan.fields[column].name for column in used)
    rows: PlanNode = Distinct(Map(plan, tuple(keys), names)) if keys else ONE_ROW

    def renumber(column: Column) -> Column:
        if column.index < inner_start:
            return Column(used.index(column.index), column.type)
        return Column(column.index - inner_start + len(used), column.type)

    predicate = conjunction([substitute(part, renumber) for part in conditions])
    matching = Semijoin(rows, inner, predicate)
    flagged = Map(matching, (*columns(matching), true), (*names, "found"))
    links = links_between(keys, columns(matching), width)
    return OuterJoin(plan, flagged, conjunction(links)), _is_found(width + len(used))


def _is_found(index: int) -> Expression:
    return call("not", call("is_null", Column(index, pa.bool_())))


def _split_equality(part: Expression, width: int) -> tuple[str, Expression, Expression] | None:
    """Return the function and both sides of an equality; None for any other condition."""
    if not (isinstance(part, Call) and part.function in ("eq", "same")):
        return None
    for left, inner in (part.arguments, part.arguments[::-1]):
        inner_columns = columns_of(inner)
        is_inner = bool(inner_columns) and all(column >= width for column in inner_columns)
        if is_inner and all(column < width for column in columns_of(left)):
            return part.function, left, shift_columns(inner, -width)
    return None
