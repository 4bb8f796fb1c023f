"""Unread columns: drop columns from the inputs of user-defined functions if nothing reads them.

The operator of a call stores its rows, so a narrower input is less state.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.plan.expressions import Column, Expression, Literal, columns_of
from circuits.plan.nodes import (
    CrossJoin,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    TemporalFilter,
    Union,
    columns,
)
from circuits.plan.structural_hash import PlanHasher
from circuits.plan.traversal import iter_nodes
from circuits.plan.user_call import UserCall

__all__ = ["drop_unread_columns"]


def drop_unread_columns(plan: PlanNode) -> PlanNode:
    """Return the plan in which the input of each call has only the columns that are read.

    Each of several equal calls keeps the columns that any of them needs. So they remain equal.
    """
    hasher = PlanHasher()
    order = list(iter_nodes(plan))
    if not any(isinstance(node, UserCall) for node in order):
        return plan
    # The columns of each node that some node above it reads, by the structural hash of the node.
    columns_read: dict[str, set[int]] = {hasher.hash(plan): set(range(len(plan.fields)))}
    for node in reversed(order):
        needed = columns_read.setdefault(hasher.hash(node), set())
        for input, used in zip(node.inputs, _input_columns_read(node, needed), strict=True):
            columns_read.setdefault(hasher.hash(input), set()).update(used)
    rebuilt: dict[int, PlanNode] = {}
    for node in order:
        inputs = [rebuilt[id(input)] for input in node.inputs]
        is_same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        result = node if is_same else node.with_inputs(inputs)
        if isinstance(result, UserCall):
            result = _narrow(result, columns_read[hasher.hash(node)])
        rebuilt[id(node)] = result
    return rebuilt[id(plan)]


def _input_columns_read(node: PlanNode, needed: set[int]) -> list[set[int]]:
    """Return the columns of each input that a node reads, if ``needed`` of its columns are read."""
    widths = [len(input.fields) for input in node.inputs]
    match node:
        case Map(_, expressions):
            return [
                {
                    column
                    for position, expression in enumerate(expressions)
                    if position in needed or not isinstance(expression, Column)
                    for column in columns_of(expression)
                }
            ]
        case Filter(_, predicate):
            return [needed | columns_of(predicate)]
        case TemporalFilter(_, value):
            return [needed | columns_of(value)]
        case UserCall(arguments=arguments):
            result_column = widths[0]
            return [(needed | set(arguments)) - {result_column}]
        case CrossJoin():
            used = needed
        case Semijoin(_, _, predicate):
            used = {c for c in needed if c < widths[0]} | columns_of(predicate)
        case OuterJoin(_, _, predicate):
            used = needed | columns_of(predicate)
        case Union():
            return [set(needed) for _ in widths]
        case _:
            return [set(range(width)) for width in widths]
    starts = [sum(widths[:number]) for number in range(len(widths))]
    return [
        {column - start for column in used if start <= column < start + width}
        for start, width in zip(starts, widths, strict=True)
    ]


def _narrow(node: UserCall, columns_read: set[int]) -> PlanNode:
    """Return a call over the columns that are read, and above it NULL in place of the others."""
    width = len(node.input.fields)
    kept_columns = sorted(
        {column for column in columns_read if column < width} | set(node.arguments)
    )
    if len(kept_columns) == width:
        return node
    fields = node.input.fields
    names = tuple(fields[column].name for column in kept_columns)
    input = Map(node.input, tuple(columns(node.input)[c] for c in kept_columns), names)
    narrow = replace(node, input=input, arguments=tuple(map(kept_columns.index, node.arguments)))
    values: list[Expression] = [
        Column(kept_columns.index(column), field.type)
        if column in kept_columns
        else Literal(None, field.type)
        for column, field in enumerate(fields)
    ]
    values.append(Column(len(kept_columns), node.function.returns))
    return Map(narrow, tuple(values), tuple(field.name for field in node.fields))
