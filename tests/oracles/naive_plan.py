"""The oracle of relational plans: each node evaluated from its docstring, by nested loops.

A bag is a ``Counter`` from rows (tuples of Python values, None for NULL) to weights, without zeros.
Joins try all pairs, sums are exact (`Fraction`), nothing is incremental. Only the expressions are
evaluated by the engine's own `circuits.runtime.evaluation`, which has DuckDB for its oracle.

Rows are canonical: every NaN is the one object ``math.nan`` (a Counter then finds it), -0.0 is 0.0.
Compare with rows from elsewhere by ``bag(rows)``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from circuits.plan.expressions import Expression
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Distinct,
    Filter,
    Map,
    Negate,
    OuterJoin,
    PlanNode,
    Positive,
    Scan,
    Semijoin,
    TopK,
    Union,
    Values,
)
from circuits.plan.physical_nodes import NumberedTopK
from circuits.plan.window import Window, WindowCall
from circuits.runtime.evaluation import evaluate
from tests.oracles.naive_aggregates import NAIVE_AGGREGATES, naive_aggregate

WIDE = Context(prec=100)

Row = tuple[Any, ...]
Relation = Iterable[Row] | Mapping[Row, int]


def evaluate_plan(plan: PlanNode, relations: Mapping[str, Relation]) -> Counter[Row]:
    """Compute the rows of a plan with their weights.

    A relation is a list in which a row of weight n occurs n times, or a mapping from rows to
    weights.
    """

    def inputs(*plans: PlanNode) -> list[Counter[Row]]:
        return [evaluate_plan(p, relations) for p in plans]

    match plan:
        case Scan():
            return bag(relations[plan.relation])
        case Values():
            return bag(plan.rows)
        case CrossJoin():
            return cross_join(inputs(*plan.inputs))
        case Filter():
            return filter_rows(evaluate_plan(plan.input, relations), plan.predicate, types(plan))
        case Map():
            rows = evaluate_plan(plan.input, relations)
            values = [compute(e, list(rows), types(plan.input)) for e in plan.expressions]
            mapped = zip(*values, strict=True) if values else [()] * len(rows)
            return sum_weights(zip(mapped, rows.values(), strict=True))
        case Semijoin():
            left, right = inputs(plan.left, plan.right)
            with_right = rows_with_partner(left, right, plan)[0]
            return Counter({r: w for r, w in left.items() if (r in with_right) != plan.anti})
        case OuterJoin():
            return outer_join(plan, *inputs(plan.left, plan.right))
        case Union():
            parts = inputs(*plan.inputs)
            return sum_weights(pair for part in parts for pair in part.items())
        case Negate():
            return Counter({r: -w for r, w in evaluate_plan(plan.input, relations).items()})
        case Distinct():
            return Counter({r: 1 for r, w in evaluate_plan(plan.input, relations).items() if w > 0})
        case Positive():
            return Counter({r: w for r, w in evaluate_plan(plan.input, relations).items() if w > 0})
        case Aggregate():
            return aggregate_groups(plan, evaluate_plan(plan.input, relations))
        case NumberedTopK():
            return number_top_rows(plan, evaluate_plan(plan.input, relations))
        case TopK():
            return top_rows(plan, evaluate_plan(plan.input, relations))
        case Window():
            return add_window_values(plan, evaluate_plan(plan.input, relations))
    raise AssertionError(f"no such node: {plan}")


def bag(rows: Relation) -> Counter[Row]:
    """Return the canonical rows with their weights."""
    return sum_weights(rows.items() if isinstance(rows, Mapping) else ((row, 1) for row in rows))


def sum_weights(pairs: Iterable[tuple[Sequence[Any], int]]) -> Counter[Row]:
    """Sum the weights of equal rows; drop zeros."""
    answer: Counter[Row] = Counter()
    for row, weight in pairs:
        answer[tuple(map(canonical, row))] += weight
    return Counter({row: weight for row, weight in answer.items() if weight})


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


def types(plan: PlanNode) -> list[pa.DataType]:
    return [field.type for field in plan.fields]


def compute(
    expression: Expression, rows: list[Row], column_types: Sequence[pa.DataType]
) -> list[Any]:
    """Compute the expression for each row."""
    arrays = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(column_types)]
    result: list[Any] = evaluate(expression, arrays, len(rows)).to_pylist()
    return result


def filter_rows(
    rows: Counter[Row], predicate: Expression, column_types: Sequence[pa.DataType]
) -> Counter[Row]:
    truth = compute(predicate, list(rows), column_types)
    candidates = zip(rows.items(), truth, strict=True)
    return Counter({row: weight for (row, weight), is_true in candidates if is_true is True})


def cross_join(inputs: Sequence[Counter[Row]]) -> Counter[Row]:
    return sum_weights(
        (sum((row for row, _ in combination), ()), math.prod(w for _, w in combination))
        for combination in itertools.product(*(rows.items() for rows in inputs))
    )


def rows_with_partner(
    left: Counter[Row], right: Counter[Row], plan: Semijoin | OuterJoin
) -> tuple[set[Row], set[Row]]:
    """Return the left rows that match a right row of positive weight, and the reverse."""
    pairs = [(left_row, right_row) for left_row in left for right_row in right]
    column_types = types(plan.left) + types(plan.right)
    truth = compute(plan.predicate, [a + b for a, b in pairs], column_types)
    matches = [pair for pair, holds in zip(pairs, truth, strict=True) if holds is True]
    return {a for a, b in matches if right[b] > 0}, {b for a, b in matches if left[a] > 0}


def outer_join(plan: OuterJoin, left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    inner = filter_rows(cross_join([left, right]), plan.predicate, types(plan))
    with_right, with_left = rows_with_partner(left, right, plan)
    nulls_left, nulls_right = (None,) * len(plan.left.fields), (None,) * len(plan.right.fields)
    unmatched = [(row + nulls_right, w) for row, w in left.items() if row not in with_right]
    if plan.kind == "full":
        unmatched += [(nulls_left + row, w) for row, w in right.items() if row not in with_left]
    return sum_weights([*inner.items(), *unmatched])


def aggregate_groups(plan: Aggregate, rows: Counter[Row]) -> Counter[Row]:
    groups: dict[Row, Counter[Row]] = {} if plan.keys else {(): Counter()}
    for row, weight in rows.items():
        key = tuple(row[k] for k in plan.keys)
        groups.setdefault(key, Counter())[row] = weight
    return bag(
        key + tuple(aggregate(call, group) for call in plan.aggregates)
        for key, group in groups.items()
        if not plan.keys or sum(group.values()) > 0
    )


def aggregate(call: AggregateCall, group: Counter[Row]) -> Any:
    """Compute one aggregate of one group; the result is checked against its type."""
    if call.argument is None:
        return sum(group.values())
    if call.function in NAIVE_AGGREGATES:
        return canonical(naive_aggregate(call, group))
    column = call.argument
    values = sum_weights(((row[column],), weight) for row, weight in group.items())
    counts = {value: weight for (value,), weight in values.items() if value is not None}
    if call.distinct:
        counts = {value: 1 for value, weight in counts.items() if weight > 0}
    count = sum(counts.values())
    if call.function == "count":
        return count
    if call.function in ("min", "max"):
        present = [value for value, weight in counts.items() if weight > 0]
        choose = min if call.function == "min" else max
        return choose(present, key=rank, default=None)
    if count == 0:
        return None
    total = exact_sum(counts)
    if call.function == "avg":
        total = to_float(total / count)
    elif pa.types.is_decimal(call.type):
        assert isinstance(total, Fraction)
        scaled = total * 10**call.type.scale
        return Decimal(scaled.numerator).scaleb(-call.type.scale, WIDE)
    elif pa.types.is_integer(call.type):
        total = int(total)
    return pa.scalar(
        to_float(total) if pa.types.is_floating(call.type) else total, call.type
    ).as_py()


def exact_sum(counts: Mapping[Any, int]) -> Fraction | float:
    """Sum value times weight: a Fraction, or nan or an infinity if a value is one."""
    special = [v for v in counts if isinstance(v, float) and not math.isfinite(v)]
    if special:
        return sum(v * counts[v] for v in special)
    return sum((Fraction(value) * weight for value, weight in counts.items()), Fraction(0))


def to_float(total: Fraction | float) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.copysign(math.inf, total)


def rank(value: Any) -> tuple[bool, Any]:
    """Return a sort key of a value of a column: NaN is after all numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def top_rows(plan: TopK, rows: Counter[Row]) -> Counter[Row]:
    answer: Counter[Row] = Counter()
    for group in top_rows_by_group(plan, rows):
        answer.update(group)
    return answer


def number_top_rows(plan: NumberedTopK, rows: Counter[Row]) -> Counter[Row]:
    answer: Counter[Row] = Counter()
    for group in top_rows_by_group(plan, rows):
        answer.update((*row, number) for number, row in enumerate(group, 1))
    return answer


def top_rows_by_group(plan: TopK, rows: Counter[Row]) -> Iterator[list[Row]]:
    """Yield the selected rows of each group in order, a row of weight w as w rows."""
    groups: dict[Row, list[tuple[Row, int]]] = {}
    for row, weight in rows.items():
        if weight > 0:
            groups.setdefault(tuple(row[k] for k in plan.keys), []).append((row, weight))
    stop = None if plan.limit is None else plan.offset + plan.limit
    for group in groups.values():
        ordered = sorted_rows(plan, group)
        positions = itertools.chain.from_iterable(itertools.repeat(r, w) for r, w in ordered)
        yield list(itertools.islice(positions, plan.offset, stop))


def add_window_values(plan: Window, rows: Counter[Row]) -> Counter[Row]:
    """Add the results of the calls to each row of positive weight, once for each unit of weight."""
    partitions: dict[Row, list[tuple[Row, int]]] = {}
    for row, weight in rows.items():
        if weight > 0:
            partitions.setdefault(tuple(row[k] for k in plan.partition), []).append((row, weight))
    answer: list[Row] = []
    for partition in partitions.values():
        ordered = [row for row, weight in sorted_rows(plan, partition) for _ in range(weight)]
        results = [
            [window_value(plan, call, ordered, position) for call in plan.calls]
            for position in range(len(ordered))
        ]
        answer += [(*row, *values) for row, values in zip(ordered, results, strict=True)]
    return bag(answer)


def window_value(plan: Window, call: WindowCall, rows: list[Row], position: int) -> Any:
    """Compute one call for the row at a position of an ordered partition."""
    keys = [tuple(row[order.column] for order in plan.order) for row in rows]
    first = keys.index(keys[position])
    size, peers = len(rows), keys.count(keys[position])
    if call.number_column is not None:
        number = rows[position][call.number_column]
        if number is None:
            return None
        call = replace(call, number=number, number_column=None)
    match call.function:
        case "row_number":
            return position + 1
        case "rank":
            return first + 1
        case "dense_rank":
            return len(set(keys[: first + 1]))
        case "percent_rank":
            return first / (size - 1) if size > 1 else 0.0
        case "cume_dist":
            return (first + peers) / size
        case "ntile":
            buckets = [i for i in range(call.number) for _ in range(bucket_size(call, i, size))]
            return buckets[position] + 1
        case "lag" | "lead":
            return neighbour(call, rows, position)
    frame = [
        i
        for i in frame_positions(plan, call, keys, position)
        if not is_excluded(call, keys, position, i)
    ]
    values = [rows[i][call.arguments[0]] for i in frame] if call.arguments else []
    if call.function in ("first_value", "last_value", "nth_value"):
        if call.ignore_nulls:
            values = [value for value in values if value is not None]
        index = {"first_value": 0, "last_value": len(values) - 1}.get(
            call.function, call.number - 1
        )
        return values[index] if 0 <= index < len(values) else None
    group = Counter(rows[i] for i in frame)
    argument = call.arguments[0] if call.arguments else None
    return aggregate(
        AggregateCall(call.function, argument, call.type, call.name, call.distinct), group
    )


def bucket_size(call: WindowCall, bucket: int, size: int) -> int:
    return size // call.number + (bucket < size % call.number)


def neighbour(call: WindowCall, rows: list[Row], position: int) -> Any:
    """Compute lag or lead: go row by row; with IGNORE NULLS, rows of NULL are not counted."""
    steps = call.number if call.function == "lag" else -call.number
    direction = -1 if steps > 0 else 1
    column = call.arguments[0]
    other, remaining = position, abs(steps)
    while remaining:
        other += direction
        if not 0 <= other < len(rows):
            return rows[position][call.arguments[1]] if len(call.arguments) > 1 else None
        if not (call.ignore_nulls and rows[other][column] is None):
            remaining -= 1
    return rows[other][column]


def frame_positions(plan: Window, call: WindowCall, keys: list[Row], position: int) -> list[int]:
    """Return the positions from the start to the end of a frame, before exclusions."""
    frame = call.frame
    groups = list(dict.fromkeys(keys))
    group = groups.index(keys[position])

    def reaches(other: int, bound: float | None, *, is_start: bool) -> bool:
        """Return whether a position is not before the start, or not after the end."""
        if bound is None:
            return True
        sign = 1 if is_start else -1
        if frame.mode == "rows":
            return sign * (other - position - bound) >= 0
        if frame.mode == "groups" or bound == 0 or keys[position][0] is None:
            group_distance = bound if frame.mode == "groups" else 0
            return sign * (groups.index(keys[other]) - group - group_distance) >= 0
        (order,) = plan.order
        (value,), (current,) = keys[other], keys[position]
        if value is None:
            return order.nulls_first != is_start
        distance = current - value if order.descending else value - current
        if isinstance(distance, timedelta):
            distance = distance.days
        return bool(sign * (distance - bound) >= 0)

    return [
        other
        for other in range(len(keys))
        if reaches(other, frame.start, is_start=True) and reaches(other, frame.end, is_start=False)
    ]


def is_excluded(call: WindowCall, keys: list[Row], position: int, other: int) -> bool:
    match call.frame.exclude:
        case "current row":
            return other == position
        case "group":
            return keys[other] == keys[position]
        case "ties":
            return keys[other] == keys[position] and other != position
    return False


def sorted_rows(plan: TopK | Window, rows: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    """Sort the rows by stable sorts, the least important column first."""
    for column in reversed(range(len(plan.input.fields))):
        rows = sort_by(rows, column, descending=False, nulls_first=False)
    for order in reversed(plan.order):
        rows = sort_by(
            rows, order.column, descending=order.descending, nulls_first=order.nulls_first
        )
    return rows


def sort_by(
    rows: list[tuple[Row, int]], column: int, *, descending: bool, nulls_first: bool
) -> list[tuple[Row, int]]:
    nulls = [pair for pair in rows if pair[0][column] is None]
    others = [pair for pair in rows if pair[0][column] is not None]
    others.sort(key=lambda pair: rank(pair[0][column]), reverse=descending)
    return nulls + others if nulls_first else others + nulls
