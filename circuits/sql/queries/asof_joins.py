"""ASOF joins and temporal joins: each left row with the latest right row of its key at its time.

::

    a ASOF [LEFT] JOIN t ON a.k = t.k AND a.ts >= t.ts       DuckDB; also >, <=, <, RIGHT, FULL
    a ASOF [LEFT] JOIN t USING (k, ts)                       the last column is compared by >=
    a ASOF JOIN t MATCH_CONDITION (a.ts >= t.ts) ON ...      Snowflake, whose join keeps left rows
    a [LEFT] JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k  Flink; t has one timestamp column

In a temporal join, the other conditions are about the row that was valid at the time: if it does
not fulfil them, the left row has no match. In an ASOF join, conditions on one side choose the rows
among which the match is searched.

A view of the latest row of each key (``ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1``)
has, as in Flink, all rows that it is selected from as versions (`with_all_versions`). Other views
that keep some rows of each key are refused, also below a join, and so are groups whose time is an
aggregate: their earlier rows are lost.

The plan: `LatestTime` finds the time of the match, and an ordinary join by the keys and this time
finds the right row. Of several right rows with equal keys and times, the first one in the order of
their columns is joined. Right rows of negative weight are never a match: the times are those of the
rows that can be joined.

`LatestTime` searches by codes, so it needs a type whose codes have the order of the values. The
codes of texts and of decimals with more than 18 digits do not. For them, a window finds the time:
the greatest right time up to the left row, among the left and right rows of the key together. A
change then computes all rows of its key again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    shift_columns,
    substitute,
)
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Filter,
    Map,
    Negate,
    Order,
    OuterJoin,
    PlanNode,
    Scan,
    Semijoin,
    TopK,
    Union,
    columns,
)
from circuits.plan.time_windows import LatestTime
from circuits.plan.window import Frame, Window, WindowCall
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import (
    FIRST_OUTER_COLUMN,
    ScopeColumn,
    exchange_sides,
    is_correlated,
)
from circuits.sql.binding.select_builder import conjuncts_of
from circuits.sql.queries.window_columns import with_columns
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.arrow_types import is_nested
from circuits.types.codecs.codec import Codecs

__all__ = [
    "AsofJoin",
    "Match",
    "join_asof",
    "read_match",
    "read_system_time",
    "with_all_versions",
]

_TRUE: Final = Literal(True, pa.bool_())
_EXCHANGED: Final = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}
_ADVICE: Final = "write equalities and one comparison, as ON a.k = t.k AND a.ts >= t.ts"

_RANKINGS: Final = ("row_number", "rank", "dense_rank")
_LATEST_VIEW: Final = "FOR SYSTEM_TIME AS OF a view that keeps some rows of each key"
_LATEST_ADVICE: Final = (
    "join the table that it is selected from; or select the latest row of each key by "
    "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1 alone, compare each k with =, and "
    "write other conditions in ON"
)


@dataclass(frozen=True)
class Match:
    """The condition of an as-of join; left and right expressions are each over one side's columns.

    Attributes:
        left_keys: Compared with ``right_keys`` by ``=``.
        right_keys: The keys of the right side.
        left_time: Compared with ``right_time``.
        right_time: The time of the right side.
        comparison: ``ge``, ``gt``, ``le`` or ``lt``, with the left time first.
        others: The other conditions of a temporal join, over the columns of both sides.
    """

    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    left_time: Expression
    right_time: Expression
    comparison: str
    others: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class AsofJoin:
    """Two plans and the condition between them.

    Attributes:
        left: The rows that are joined.
        right: The rows that they are joined to.
        match: The condition.
        kind: ``inner``, ``left``, ``right`` or ``full``: the sides whose rows without a match are
            kept.
    """

    left: PlanNode
    right: PlanNode
    match: Match
    kind: str


class _SideComparison(NamedTuple):
    """A comparison of a value of the left side with one of the right side, over its own columns."""

    left: Expression
    right: Expression
    function: str


def read_system_time(source: SqlSource, node: exp.Expr) -> exp.Expr | None:
    """Return the time of ``FOR SYSTEM_TIME AS OF time``; None if a table has none."""
    version = node.args.get("version")
    if not isinstance(version, exp.Version):
        return None
    if str(version.args.get("kind")).upper() != "AS OF":
        raise source.unsupported(
            node, "this version of a table", "write FOR SYSTEM_TIME AS OF a.ts"
        )
    source.allow_arguments(version, "this", "kind", "expression")
    time: exp.Expr = version.expression
    return time


def read_match(
    clause: Clause,
    join: exp.Join,
    width: int,
    equalities: Sequence[Expression],
    system_time: exp.Expr | None,
    right: Sequence[ScopeColumn],
    outer_columns: Collection[int] = (),
) -> Match:
    """Read the condition of an as-of join.

    Args:
        clause: A clause over the columns of both sides.
        join: The join.
        width: The number of columns of the left side.
        equalities: Those of USING, in its order.
        system_time: The time of FOR SYSTEM_TIME AS OF.
        right: The columns of the right side.
        outer_columns: The columns of the left side with the values of an enclosing query. In a
            temporal join, a comparison with only such a value is like one with a constant: it is a
            condition of the row that was valid at the time, and no key.
    """
    source = clause.source
    keys: list[tuple[Expression, Expression]] = []
    others: list[Expression] = []
    time_comparison: _SideComparison | None = None
    for node, condition in _read_conditions(clause, join, width, equalities, system_time, right):
        comparison = _split_comparison(condition, width)
        one_sided = _one_sided_key(condition, width)
        is_key = (
            one_sided is None
            and comparison is not None
            and comparison.function == "eq"
            and not columns_of(comparison.left) <= set(outer_columns)
        )
        if system_time is not None and node is not system_time and not is_key:
            others.append(condition)
            continue
        if one_sided is not None:
            keys.append(one_sided)
            continue
        if comparison is None or comparison.function not in ("eq", *_EXCHANGED):
            raise source.unsupported(node, "this condition of an ASOF join", _ADVICE)
        if comparison.function == "eq":
            keys.append((comparison.left, comparison.right))
        elif time_comparison is not None:
            raise source.unsupported(node, "a second comparison in an ASOF join", _ADVICE)
        else:
            time_comparison = comparison
    if time_comparison is None:
        raise source.error(join.this, f"ASOF JOIN without a comparison of times; {_ADVICE}")
    left_time, right_time, function = time_comparison
    if is_nested(left_time.type):
        raise source.unsupported(
            join.this,
            f"an ASOF join by values of type {left_time.type}",
            "compare times, numbers or texts",
        )
    return Match(
        tuple(left for left, _ in keys),
        tuple(right for _, right in keys),
        left_time,
        right_time,
        function,
        tuple(others),
    )


def with_all_versions(
    join: AsofJoin, views: Mapping[str, PlanNode], source: SqlSource, node: exp.Expr
) -> AsofJoin:
    """Return a temporal join; a right side of only the latest row of each key gets all rows.

    The version at a time is searched by the keys of the view. Other equalities are conditions of
    that version.

    Args:
        join: The join.
        views: The plans of the views that its right side may scan.
        source: The text, for errors.
        node: The right side, which errors point to.

    Raises:
        UnsupportedSqlError: The right side has lost earlier versions, and they cannot be found.
    """
    match = join.match
    if not any(
        _has_lost_rows(join.right, column, views) for column in columns_of(match.right_time)
    ):
        return join
    side = _follow_views(join.right, views)
    latest, time = side.plan, substitute(match.right_time, side.sources)
    if not isinstance(latest, TopK):
        raise source.unsupported(node, _LATEST_VIEW, _LATEST_ADVICE)
    latest_columns = columns(latest)
    order = _order_in_group(latest)
    is_ordered_by_time = len(order) == 1 and latest_columns[order[0].column] == time
    partition = {latest_columns[key] for key in latest.keys}
    sources_of_keys = [substitute(key, side.sources) for key in match.right_keys]
    if (
        not is_ordered_by_time
        or side.is_filtered
        or latest.limit != 1
        or latest.offset
        or not partition <= set(sources_of_keys)
        or _has_lost_rows(latest.input, order[0].column, views)
    ):
        raise source.unsupported(node, _LATEST_VIEW, _LATEST_ADVICE)
    left_width = len(join.left.fields)
    left_keys: list[Expression] = []
    right_keys: list[Expression] = []
    others = list(match.others)
    pairs = zip(match.left_keys, match.right_keys, sources_of_keys, strict=True)
    for left, right, source_of_key in pairs:
        if source_of_key in partition:
            left_keys.append(left)
            right_keys.append(right)
        else:
            others.append(functions.call("eq", left, shift_columns(right, left_width)))
    match = replace(
        match, left_keys=tuple(left_keys), right_keys=tuple(right_keys), others=tuple(others)
    )
    names = tuple(field.name for field in join.right.fields)
    return replace(join, right=Map(latest.input, tuple(side.sources), names), match=match)


class _FollowedView(NamedTuple):
    """The plan below the scans of views, the maps and the filters of a plan.

    Attributes:
        plan: The plan below.
        sources: The columns of the plan above, over the columns of the plan below.
        is_filtered: True if there is a filter between the two.
    """

    plan: PlanNode
    sources: Sequence[Expression]
    is_filtered: bool


def _follow_views(plan: PlanNode, views: Mapping[str, PlanNode]) -> _FollowedView:
    sources: Sequence[Expression] = columns(plan)
    is_filtered, followed = False, set[str]()
    while True:
        if isinstance(plan, Scan) and plan.relation in views and plan.relation not in followed:
            followed.add(plan.relation)
            plan = views[plan.relation]
        elif isinstance(plan, Map):
            expressions = plan.expressions
            sources = [substitute(expression, expressions) for expression in sources]
            plan = plan.input
        elif isinstance(plan, Filter):
            is_filtered, plan = True, plan.input
        else:
            return _FollowedView(plan, sources, is_filtered)


def _has_lost_rows(
    plan: PlanNode,
    time: int,
    views: Mapping[str, PlanNode],
    *,
    is_filtered: bool = False,
    followed: frozenset[str] = frozenset(),
) -> bool:
    """Return whether later rows replace the earlier rows of a plan.

    Only the nodes that the times come from are examined: a join of all versions with the latest
    row of another table has all versions.

    Args:
        plan: The plan.
        time: The column with the time of a version.
        views: The plans of the views that it may scan.
        is_filtered: True if the rows of the plan are filtered.
        followed: The views whose plans contain this plan.
    """

    def follow(part: PlanNode, column: int, *, has_filter: bool = is_filtered) -> bool:
        return _has_lost_rows(part, column, views, is_filtered=has_filter, followed=followed)

    match plan:
        case Scan(relation) if relation in views and relation not in followed:
            followed |= {relation}
            return follow(views[relation], time)
        case Map(input, expressions):
            read = columns_of(expressions[time])
            return any(follow(input, column) for column in read)
        case Filter(input):
            return follow(input, time, has_filter=True)
        case Window(input):
            if is_filtered and _keeps_latest_ranks(plan):
                return True
            return time < len(input.fields) and follow(input, time)
        case TopK(input):
            order = _order_in_group(plan)
            # In ascending order of the time, earlier rows never leave the view.
            is_ascending = [(part.column, part.descending) for part in order] == [(time, False)]
            return (bool(order) and not is_ascending) or follow(input, time)
        case Aggregate(input, keys, aggregates):
            if time < len(keys):
                return follow(input, keys[time])
            # With a time among the keys, it is a view of periods, one row for each.
            has_periods = any(arrow.is_temporal(input.fields[key].type) for key in keys)
            return not has_periods and aggregates[time - len(keys)].function != "min"
        case Semijoin(left):
            return follow(left, time)
        case Union(inputs):
            return any(follow(input, time) for input in inputs)
        case CrossJoin() | OuterJoin():
            for input in plan.inputs:
                if time < len(input.fields):
                    return follow(input, time)
                time -= len(input.fields)
        case _ if len(plan.inputs) == 1:  # it passes on the columns of its input
            (input,) = plan.inputs
            return time < len(input.fields) and follow(input, time)
    return False


def _order_in_group(latest: TopK) -> list[Order]:
    """Return the order of the rows of a group: without the keys, which are equal in it."""
    return [part for part in latest.order if part.column not in latest.keys]


def _keeps_latest_ranks(window: Window) -> bool:
    """Return whether a window numbers rows from the latest on, for a filter by the numbers."""
    is_ranking = any(call.function in _RANKINGS for call in window.calls)
    return is_ranking and any(order.descending for order in window.order)


def _one_sided_key(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return a condition on the rows of one side as a key that equals TRUE; None for others."""
    columns_read = columns_of(condition)
    truth = functions.call("is_true", condition)
    if columns_read and all(column < width for column in columns_read):
        return truth, _TRUE
    if columns_read and all(width <= column < FIRST_OUTER_COLUMN for column in columns_read):
        return _TRUE, shift_columns(truth, -width)
    return None


def _read_conditions(
    clause: Clause,
    join: exp.Join,
    width: int,
    equalities: Sequence[Expression],
    system_time: exp.Expr | None,
    right: Sequence[ScopeColumn],
) -> list[tuple[exp.Expr, Expression]]:
    """Return the conditions of an as-of join, each with the node that errors point to.

    The arguments are those of `read_match`.
    """
    conditions: list[tuple[exp.Expr, Expression]] = []
    on, match_condition = join.args.get("on"), join.args.get("match_condition")
    if system_time is not None:
        condition = _read_system_time_condition(clause, join, system_time, right, width)
        conditions.append((system_time, condition))
    elif equalities and match_condition is None:
        last = equalities[-1]
        assert isinstance(last, Call)
        conditions.append((join.this, functions.call("ge", *last.arguments)))
        equalities = equalities[:-1]
    if match_condition is not None:
        conditions.append((match_condition, clause.read_condition(match_condition)))
    if on is not None:
        conditions += [(node, clause.read_condition(node)) for node in conjuncts_of(on)]
    conditions += [(join.this, equality) for equality in equalities]
    return conditions


_CURRENT_TIMES: Final = ("PROCTIME()", "NOW()", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP()")


def _read_system_time_condition(
    clause: Clause,
    join: exp.Join,
    system_time: exp.Expr,
    right: Sequence[ScopeColumn],
    width: int,
) -> Expression:
    timestamps = [column for column in right if arrow.is_timestamp(column.value.type)]
    has_date = any(arrow.is_date(column.value.type) for column in right)
    is_current = clause.source.text_of(system_time).upper() in _CURRENT_TIMES
    if is_current or not (timestamps or has_date):
        raise clause.source.unsupported(
            join.this,
            "FOR SYSTEM_TIME AS OF the processing time",
            "write a plain JOIN, whose rows follow the changes of the table; or, for the row that "
            "was valid at a time, ASOF JOIN ... ON a.k = t.k AND a.ts >= t.ts",
        )
    if len(timestamps) != 1:
        raise clause.source.unsupported(
            join.this,
            f"FOR SYSTEM_TIME AS OF a table with {len(timestamps)} timestamp columns",
            "write ASOF JOIN ... ON a.k = t.k AND a.ts >= t.ts with the time of its versions",
        )
    right_time = shift_columns(timestamps[0].value, width)
    return clause.call(system_time, "ge", clause.read(system_time), right_time)


def _split_comparison(condition: Expression, width: int) -> _SideComparison | None:
    """Return a comparison of the two sides of a join; None for any other condition."""
    if not isinstance(condition, Call) or len(condition.arguments) != 2:
        return None
    first, second = condition.arguments
    function = condition.function
    if is_correlated(condition):
        return None
    if any(index >= width for index in columns_of(first)):
        first, second = second, first
        function = _EXCHANGED.get(function, function)
    is_split = all(index < width for index in columns_of(first)) and all(
        index >= width for index in columns_of(second)
    )
    return _SideComparison(first, shift_columns(second, -width), function) if is_split else None


def join_asof(join: AsofJoin) -> PlanNode:
    """Return the plan of an as-of join: the columns of the left side, then those of the right."""
    match = join.match
    left, (left_time, *left_keys) = with_columns(join.left, [match.left_time, *match.left_keys])
    right, (right_time, *right_keys) = with_columns(
        join.right, [match.right_time, *match.right_keys]
    )
    order = (*right_keys, right_time)
    right_columns = columns(right)
    names = tuple(right.fields[index].name for index in order)
    # The first right row of each key and time, with weight 1 if any row has a positive weight.
    first_rows = TopK(right, tuple(dict.fromkeys(order)), (), 1)
    right_times = Map(first_rows, tuple(right_columns[index] for index in order), names)
    strict, forwards = match.comparison in ("gt", "lt"), match.comparison in ("le", "lt")
    matched: PlanNode
    if Codecs().codec(match.left_time.type).ordered:
        matched = LatestTime(
            left, right_times, tuple(left_keys), left_time, strict=strict, forwards=forwards
        )
    else:
        matched = _latest_in_window(
            left, right_times, left_keys, left_time, strict=strict, forwards=forwards
        )
    width = len(matched.fields)
    matched_time = width - 1
    product = CrossJoin((matched, first_rows))
    both = columns(product)
    predicate = functions.conjunction(
        [
            functions.call("eq", both[left_column], both[width + right_column])
            for left_column, right_column in zip((*left_keys, matched_time), order, strict=True)
        ]
        + [_over_product(other, len(join.left.fields), width) for other in match.others]
    )
    joined: PlanNode = Filter(product, predicate)
    if join.kind in ("left", "full"):
        joined = OuterJoin(matched, first_rows, predicate)
    left_width, right_width = len(join.left.fields), len(join.right.fields)
    kept = (*both[:left_width], *both[width : width + right_width])
    names = tuple(joined.fields[column.index].name for column in kept)
    rows = Map(joined, kept, names)
    if join.kind not in ("right", "full"):
        return rows
    # `first_rows` has one right row of each key and time. It is joined if a left row matches; all
    # other right rows are without a match, also those of the same key and time.
    is_found = exchange_sides(predicate, width, len(first_rows.fields))
    found = Semijoin(first_rows, matched, is_found)
    unmatched = Union((right, Negate(found)))
    padding = (Literal(None, field.type) for field in join.left.fields)
    return Union((rows, Map(unmatched, (*padding, *columns(unmatched)[:right_width]), names)))


def _over_product(condition: Expression, left_width: int, matched_width: int) -> Expression:
    """Return a condition over both sides of a join, where the left side has further columns."""
    added = matched_width - left_width

    def shift(column: Column) -> Expression:
        is_right = left_width <= column.index < FIRST_OUTER_COLUMN
        return Column(column.index + added, column.type) if is_right else column

    return functions.call("is_true", substitute(condition, shift))


def _latest_in_window(
    left: PlanNode,
    right_times: PlanNode,
    keys: Sequence[int],
    time: int,
    *,
    strict: bool,
    forwards: bool,
) -> PlanNode:
    """Return the left rows with the time of their match; the arguments are those of `LatestTime`.

    ::

        max(right time) OVER (PARTITION BY keys ORDER BY time RANGE UNBOUNDED PRECEDING)
    """
    width, key_count = len(left.fields), len(keys)
    left_columns, right_columns = columns(left), columns(right_times)
    data_type = right_columns[-1].type
    # Both sides have these columns: those of the left side, the keys, the time, the time of a
    # right row, and whether the row is a left row.
    names = (
        *(field.name for field in left.fields),
        *(left.fields[key].name for key in keys),
        *(left.fields[time].name, "right time", "is left"),
    )
    left_rows = Map(
        left,
        (
            *left_columns,
            *(left_columns[key] for key in keys),
            *(left_columns[time], Literal(None, data_type), Literal(True, pa.bool_())),
        ),
        names,
    )
    padding = (Literal(None, field.type) for field in left.fields)
    is_right = Literal(False, pa.bool_())
    right_rows = Map(right_times, (*padding, *right_columns, right_columns[-1], is_right), names)
    partition = tuple(range(width, width + key_count))
    own_time, right_time = width + key_count, width + key_count + 1
    call = WindowCall(
        "max",
        (right_time,),
        data_type,
        "latest time",
        Frame("range", None, 0, "group" if strict else "none"),
    )
    if forwards:
        call = replace(call, function="min", name="earliest time")
    order = Order(own_time, descending=forwards)
    rows: PlanNode = Window(Union((left_rows, right_rows)), partition, (order,), (call,))
    *_, left_time, _, is_left, found_time = columns(rows)
    rows = Filter(rows, is_left)
    # A row without a time, which is ordered last, has no match.
    has_time = functions.call("not", functions.call("is_null", left_time))
    matched_time = functions.call("case", has_time, found_time, Literal(None, data_type))
    outputs = (*columns(rows)[:width], matched_time)
    return Map(rows, outputs, (*names[:width], call.name))
