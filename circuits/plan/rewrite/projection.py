"""Projection: push filters and projections towards the leaves of a plan while it is built.

Both are linear, so they commute with Union and Negate, and a map of a map is one map. A plan that
reads two of twenty columns of a union of relations therefore keeps two columns of each relation. A
filter or projection stays above a union that would copy it more than `MAX_PUSHED_COPIES` times, so
plans grow linearly with the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Final

import pyarrow as pa
from pyarrow import types

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    column_reads,
    columns_of,
    substitute,
)
from circuits.plan.nodes import (
    Aggregate,
    Filter,
    Map,
    Negate,
    PlanNode,
    TemporalFilter,
    Union,
    columns,
)
from circuits.plan.physical_nodes import NumberedTopK, PartialAggregate
from circuits.plan.rewrite.numbered_rows import without_numbers
from circuits.plan.time_windows import HoppingWindows, TimeNode
from circuits.plan.window import Window
from circuits.types.functions import call

__all__ = ["push_filter", "push_projection"]

# Copies of a filter or projection below a union. Without a limit, each filter above a chain of
# unions that share their inputs would double the plan.
MAX_PUSHED_COPIES: Final = 16


def push_projection(
    plan: PlanNode, expressions: Sequence[Expression], names: Sequence[str] | None = None
) -> PlanNode:
    """Return a plan whose columns are these expressions over the columns of ``plan``."""
    outputs = tuple(expressions)
    if outputs == columns(plan):
        return plan
    if names is None:
        names = column_names(outputs, plan.fields)
    match plan:
        case Union(inputs, memo=memo) if plan.pushed_copies <= MAX_PUSHED_COPIES:
            key = "projection", outputs, tuple(names)
            if key not in memo:
                memo[key] = Union(tuple(push_projection(p, outputs, names) for p in inputs))
            pushed: PlanNode = memo[key]
            return pushed
        case Negate(input):
            return Negate(push_projection(input, outputs, names))
        case Map(input, inner):
            merged = tuple(substitute(e, inner) for e in outputs)
            if _reads_each_once(outputs, inner):
                return push_projection(input, merged, names)
        case Aggregate():
            return _prune_aggregates(plan, outputs, tuple(names))
        case Window():
            return _prune_calls(plan, outputs, tuple(names))
        case NumberedTopK():
            if all(len(plan.input.fields) not in columns_of(e) for e in outputs):
                return push_projection(without_numbers(plan), outputs, names)
        case TimeNode():
            return _prune_input(plan, outputs, tuple(names))
        case Filter(TimeNode() as inner, predicate):
            return _prune_below_filter(inner, predicate, outputs, tuple(names))
    return Map(plan, outputs, tuple(names))


def push_filter(plan: PlanNode, predicate: Expression) -> PlanNode:
    """Return a plan with the rows of ``plan`` for which the predicate is true."""
    match plan:
        case Union(inputs, memo=memo) if plan.pushed_copies <= MAX_PUSHED_COPIES:
            key = "filter", predicate
            if key not in memo:
                memo[key] = Union(tuple(push_filter(p, predicate) for p in inputs))
            pushed: PlanNode = memo[key]
            return pushed
        case Negate(input):
            return Negate(push_filter(input, predicate))
        case TemporalFilter(input):
            return replace(plan, input=push_filter(input, predicate))
        case Map(input, inner, names) if all(
            isinstance(inner[i], Column) for i in columns_of(predicate)
        ):
            return Map(push_filter(input, substitute(predicate, inner)), inner, names)
        case PartialAggregate(input, kept_count) if all(
            i < kept_count for i in columns_of(predicate)
        ):
            return replace(plan, input=push_filter(input, predicate))
        case Window(window_input, partition) if all(i in partition for i in columns_of(predicate)):
            # A partition is kept or removed as a whole.
            return replace(plan, input=push_filter(window_input, predicate))
    return Filter(plan, predicate)


def _reads_each_once(outputs: Sequence[Expression], inner: Sequence[Expression]) -> bool:
    """Return True if merging two maps computes no expression twice."""
    computed = [i for e in outputs for i in column_reads(e) if not isinstance(inner[i], Column)]
    return len(computed) == len(set(computed))


def _prune_aggregates(
    plan: Aggregate, outputs: tuple[Expression, ...], names: tuple[str, ...]
) -> PlanNode:
    """Return a projection of an aggregate, without the aggregate functions that it does not read.

    If only the keys are read, all functions are kept. Most often a semijoin or an outer join reads
    the keys while another node reads results too, and both can then share one aggregate.
    """
    key_count = len(plan.keys)
    columns_read = {i for e in outputs for i in columns_of(e)}
    kept_aggregates = [i for i in range(len(plan.aggregates)) if key_count + i in columns_read]
    if len(kept_aggregates) in (0, len(plan.aggregates)):
        return Map(plan, outputs, names)
    new_index = {key_count + i: key_count + k for k, i in enumerate(kept_aggregates)}
    pruned = Aggregate(plan.input, plan.keys, tuple(plan.aggregates[i] for i in kept_aggregates))
    expressions = tuple(
        substitute(e, lambda c: Column(new_index.get(c.index, c.index), c.type)) for e in outputs
    )
    return Map(pruned, expressions, names)


def _prune_calls(plan: Window, outputs: tuple[Expression, ...], names: tuple[str, ...]) -> PlanNode:
    """Return a projection of a window without the calls that it does not read."""
    width = len(plan.input.fields)
    columns_read = {i for e in outputs for i in columns_of(e)}
    kept_calls = [i for i in range(len(plan.calls)) if width + i in columns_read]
    if not kept_calls:
        return push_projection(plan.input, outputs, names)
    if len(kept_calls) == len(plan.calls):
        return Map(plan, outputs, names)
    new_index = {width + i: width + k for k, i in enumerate(kept_calls)}
    expressions = tuple(
        substitute(e, lambda c: Column(new_index.get(c.index, c.index), c.type)) for e in outputs
    )
    return Map(replace(plan, calls=tuple(plan.calls[i] for i in kept_calls)), expressions, names)


def _prune_input(
    plan: TimeNode, outputs: tuple[Expression, ...], names: tuple[str, ...]
) -> PlanNode:
    """Return a projection of a `TimeNode` whose first input has only the columns that are read.

    If the time column of hopping windows is not read by the projection, its values are rounded
    down to the start of their pane (`_pane`), so that more rows are equal.
    """
    rows = plan.inputs[0]
    new_column = len(rows.fields)  # the column that the node appends
    columns_read = {column for e in outputs for column in columns_of(e)}
    kept_columns = sorted(columns_read.difference([new_column]) | plan.read_columns())
    input_columns: list[Expression] = [columns(rows)[i] for i in kept_columns]
    if isinstance(plan, HoppingWindows) and plan.time not in columns_read:
        input_columns[kept_columns.index(plan.time)] = _pane(plan)
    if tuple(input_columns) == columns(rows):
        return Map(plan, outputs, names)
    new_indices = {old: new for new, old in enumerate(kept_columns)}
    pruned = plan.over_columns(push_projection(rows, input_columns), new_indices)
    new_indices[new_column] = len(kept_columns)
    expressions = tuple(
        substitute(e, lambda c: Column(new_indices[c.index], c.type)) for e in outputs
    )
    return pruned if expressions == columns(pruned) else Map(pruned, expressions, names)


def _pane(plan: HoppingWindows) -> Expression:
    """Return the start of the pane of each time.

    All times of a pane are in the same windows. So rows that differ only in times of one pane
    become one row before they are repeated for each window.

    Reference: Li, Maier, Tufte, Papadimos, Tucker. No Pane, No Gain: Efficient Evaluation of
    Sliding-Window Aggregates over Data Streams. SIGMOD Record 34(1), 2005.
    """
    time = columns(plan.input)[plan.time]
    if time.type != pa.int64() and not types.is_timestamp(time.type):
        return time
    size = gcd(plan.size, plan.slide)
    amounts = (Literal(size, pa.int64()), Literal(plan.offset % size, pa.int64()))
    match plan.input:
        case Map(_, expressions) if isinstance(inner := expressions[plan.time], Call):
            if (inner.function, inner.arguments[1:]) == ("time_bucket", amounts):
                return time  # the times are the starts of panes already
    return call("time_bucket", time, *amounts)


def _prune_below_filter(
    plan: TimeNode, predicate: Expression, outputs: tuple[Expression, ...], names: tuple[str, ...]
) -> PlanNode:
    """Return a projection of a filter of a `TimeNode`, over only the columns that both read."""
    columns_read = sorted({column for e in (*outputs, predicate) for column in columns_of(e)})
    if len(columns_read) == len(plan.fields):
        return Map(Filter(plan, predicate), outputs, names)
    new_indices = {old: new for new, old in enumerate(columns_read)}

    def to_new_index(column: Column) -> Column:
        return Column(new_indices[column.index], column.type)

    pruned = push_projection(plan, [columns(plan)[index] for index in columns_read])
    filtered = Filter(pruned, substitute(predicate, to_new_index))
    expressions = tuple(substitute(e, to_new_index) for e in outputs)
    if expressions == columns(filtered):
        return filtered
    return Map(filtered, expressions, names)
