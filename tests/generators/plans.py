"""Random relational plans over two small relations of integers and NULLs, and random steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from circuits.plan.expressions import Column, Expression, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Distinct,
    Field,
    Filter,
    Map,
    Negate,
    Order,
    OuterJoin,
    PlanNode,
    Positive,
    Scan,
    Semijoin,
    TopK,
    Union,
    Values,
    columns,
)
from circuits.plan.window import RANKING, Frame, Window, WindowCall
from circuits.types.codecs.codec import NULL
from circuits.types.functions import call
from dbsp_wcoj import ZSet

INT = pa.int64()
RELATIONS = {
    "r": (Field("a", INT), Field("b", INT)),
    "s": (Field("c", INT), Field("d", INT), Field("e", INT)),
}
VALUES = [None, 0, 1, 2]
Row = tuple[int | None, ...]
Draw = Callable[[st.SearchStrategy], object]


def integer_expression(draw, width: int) -> Expression:
    """An integer expression over ``width`` columns."""
    kind = draw(st.integers(0, 9))
    column = Column(draw(st.integers(0, width - 1)), INT)
    if kind <= 6:
        return column
    if kind == 7:
        return Literal(draw(st.sampled_from(VALUES)), INT)
    other = Column(draw(st.integers(0, width - 1)), INT)
    return call("coalesce", column, other) if kind == 8 else call("add", column, other)


def predicate(draw, width: int, depth: int = 2) -> Expression:
    """A condition over ``width`` columns."""
    kind = draw(st.integers(0, 9))
    if depth and kind == 0:
        return call("not", predicate(draw, width, depth - 1))
    if depth and kind <= 2:
        parts = [predicate(draw, width, depth - 1) for _ in range(2)]
        return call("and" if kind == 1 else "or", *parts)
    if kind == 3:
        return call("is_null", integer_expression(draw, width))
    name = draw(st.sampled_from(["eq", "eq", "eq", "ne", "lt", "ge", "same"]))
    return call(name, integer_expression(draw, width), integer_expression(draw, width))


def join_condition(draw, left: int, right: int) -> Expression:
    """A condition between two plans, most often an equality of their columns."""
    parts = [
        call(
            "eq",
            Column(draw(st.integers(0, left - 1)), INT),
            Column(left + draw(st.integers(0, right - 1)), INT),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    if not parts or draw(st.integers(0, 3)) == 0:
        parts.append(predicate(draw, left + right, 1))
    return parts[0] if len(parts) == 1 else call("and", *parts)


def resize(draw, plan: PlanNode, width: int) -> PlanNode:
    """Return ``width`` columns of the plan, drawn with repetition; the plan itself if it fits."""
    if len(plan.fields) == width:
        return plan
    return make_map(
        [Column(draw(st.integers(0, len(plan.fields) - 1)), INT) for _ in range(width)], plan
    )


def make_map(expressions: list[Expression], plan: PlanNode) -> Map:
    return Map(plan, tuple(expressions), tuple(f"m{i}" for i in range(len(expressions))))


@st.composite
def plans(draw, depth: int = 3) -> PlanNode:
    """A plan of one or more integer columns; its result has no negative weight."""
    kind = draw(st.integers(0, 14)) if depth else 0
    if kind == 0:
        if draw(st.integers(0, 12)) == 0:
            rows = draw(st.lists(st.tuples(*[st.sampled_from(VALUES)] * 2), max_size=2))
            return Values((Field("v", INT), Field("w", INT)), tuple(rows))
        name = draw(st.sampled_from(list(RELATIONS)))
        return Scan(name, RELATIONS[name])
    plan = draw(plans(depth - 1))
    width = len(plan.fields)
    if kind <= 2:
        return Filter(plan, predicate(draw, width))
    if kind == 3:
        return make_map(
            [integer_expression(draw, width) for _ in range(draw(st.integers(1, 3)))], plan
        )
    if kind == 4:
        return Distinct(plan)
    if kind == 5:
        return _draw_aggregate(draw, plan)
    if kind == 6:
        order = tuple(
            Order(draw(st.integers(0, width - 1)), draw(st.booleans()), draw(st.booleans()))
            for _ in range(draw(st.integers(0, 2)))
        )
        keys = (draw(st.integers(0, width - 1)),) if draw(st.booleans()) else ()
        limit = draw(st.sampled_from([None, 1, 2]))
        return TopK(plan, keys, order, limit, draw(st.integers(0, 1)))
    if kind == 14:
        return draw(windows(plan))
    other = draw(plans(depth - 1 if kind % 2 else 0))
    other_width = len(other.fields)
    if kind <= 8:
        inputs = [plan, other] + ([draw(plans(0))] if draw(st.booleans()) else [])
        inputs = [resize(draw, part, min(2, len(part.fields))) for part in inputs]
        cross = CrossJoin(tuple(inputs))
        widths = [len(part.fields) for part in inputs]
        joined = Filter(cross, join_condition(draw, widths[0], sum(widths[1:])))
        if len(widths) == 3:
            joined = Filter(joined, join_condition(draw, sum(widths[:2]), widths[2]))
        total = sum(widths)
        two_columns = [Column(draw(st.integers(0, total - 1)), INT) for _ in range(2)]
        return make_map(two_columns, joined) if draw(st.booleans()) else joined
    if kind <= 10:
        return Semijoin(
            plan, other, join_condition(draw, width, other_width), anti=draw(st.booleans())
        )
    if kind == 11:
        left, right = (resize(draw, part, min(2, len(part.fields))) for part in (plan, other))
        widths = len(left.fields), len(right.fields)
        side = "full" if draw(st.integers(0, 3)) == 0 else "left"
        return OuterJoin(left, right, join_condition(draw, *widths), side)
    smaller = min(width, other_width)
    left, right = (resize(draw, part, smaller) for part in (plan, other))
    if kind == 12:
        return Union((left, right))
    return Positive(Union((left, Negate(right))))


@st.composite
def windows(draw, plan: PlanNode, *, fractions: bool = False) -> Window:
    """A window over a plan of integer columns; with ``fractions`` some results are doubles."""
    width = len(plan.fields)
    column = st.integers(0, width - 1)
    partition = tuple(draw(st.lists(column, max_size=1)))
    order = tuple(
        Order(position, draw(st.booleans()), draw(st.booleans()))
        for position in draw(st.lists(column, unique=True, max_size=2))
    )
    functions = [
        *("row_number", "rank", "dense_rank", "ntile", "lag", "lead"),
        *("first_value", "last_value", "nth_value", "count", "sum", "min", "max"),
        *(("percent_rank", "cume_dist", "avg") if fractions else ()),
    ]
    calls = []
    for position in range(draw(st.integers(1, 2))):
        function = draw(st.sampled_from(functions))
        arguments = (draw(column),)
        number = 1
        if function in RANKING or (function == "count" and draw(st.booleans())):
            arguments = ()
        if function in ("lag", "lead"):
            number = draw(st.integers(-1, 3))
            arguments += (draw(column),) if draw(st.booleans()) else ()
        elif function in ("nth_value", "ntile"):
            number = draw(st.integers(1, 3))
        number_column = None
        if function in ("lag", "lead", "nth_value") and draw(st.integers(0, 3)) == 0:
            number, number_column = 1, draw(column)
        is_value = function in ("lag", "lead", "first_value", "last_value", "nth_value")
        is_aggregate = function in ("count", "sum", "avg")
        calls.append(
            WindowCall(
                function,
                arguments,
                pa.float64() if function in ("percent_rank", "cume_dist", "avg") else INT,
                f"w{position}",
                draw(frames(len(order))),
                number,
                is_value and draw(st.booleans()),
                is_aggregate and bool(arguments) and draw(st.integers(0, 3)) == 0,
                number_column=number_column,
            )
        )
    return Window(plan, partition, order, tuple(calls))


@st.composite
def frames(draw, order_columns: int) -> Frame:
    """A frame that is valid for a window with ``order_columns`` columns in its ORDER BY."""
    mode = draw(st.sampled_from(["rows", "rows", "range", "groups"]))
    distance = st.sampled_from([0] if mode == "range" and order_columns != 1 else [-2, -1, 0, 1, 2])
    start, end = draw(st.one_of(st.none(), distance)), draw(st.one_of(st.none(), distance))
    if start is not None and end is not None and start > end:
        start, end = end, start
    exclude = draw(st.sampled_from(["none", "none", "current row", "group", "ties"]))
    return Frame(mode, start, end, exclude)


def _draw_aggregate(draw, plan: PlanNode) -> PlanNode:
    width = len(plan.fields)
    keys = tuple(range(draw(st.integers(0, min(2, width)))))
    calls = []
    for position in range(draw(st.integers(1, 2))):
        function = draw(st.sampled_from(["count", "count", "sum", "min", "max"]))
        argument = draw(st.integers(0, width - 1))
        is_star = function == "count" and draw(st.booleans())
        distinct = not is_star and draw(st.booleans())
        calls.append(
            AggregateCall(function, None if is_star else argument, INT, f"g{position}", distinct)
        )
    return Aggregate(plan, keys, tuple(calls))


class History:
    """The current rows of the relations, and random changes after which no weight is negative."""

    def __init__(self) -> None:
        self.rows = {name: Counter() for name in RELATIONS}

    def change(self, draw) -> dict[str, ZSet]:
        """Draw one step: a Z-set for some of the relations."""
        deltas = {}
        for name, fields in RELATIONS.items():
            rows, weights = [], []
            for _ in range(draw(st.integers(0, 3))):
                present = sorted(self.rows[name], key=repr)
                if present and draw(st.booleans()):
                    row = draw(st.sampled_from(present))
                    weight = -draw(st.integers(1, self.rows[name][row]))
                else:
                    row = draw(st.tuples(*[st.sampled_from(VALUES)] * len(fields)))
                    weight = draw(st.integers(1, 2))
                self.rows[name][row] += weight
                self.rows[name] += Counter()  # drops zeros
                rows.append(row)
                weights.append(weight)
            if rows:
                deltas[name] = encode(rows, weights)
        return deltas

    def lists(self) -> dict[str, list[Row]]:
        return {name: list(rows.elements()) for name, rows in self.rows.items()}


def encode(rows: list[Row], weights: list[int]) -> ZSet:
    """Encode rows of integers and NULLs."""
    columns = zip(*rows, strict=True)
    codes = [[NULL if value is None else value for value in column] for column in columns]
    return ZSet.from_columns([np.array(c, np.int64) for c in codes], np.array(weights))


def decode(zset: ZSet) -> Counter:
    """Decode rows of integers and NULLs."""
    rows = Counter()
    for row, weight in zset:
        rows[tuple(None if value == NULL else value for value in row)] = weight
    return rows


def identity(plan: PlanNode) -> Map:
    """Wrap the plan in a map that changes nothing."""
    return make_map(list(columns(plan)), plan)
