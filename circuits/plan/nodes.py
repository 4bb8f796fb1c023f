"""Relational plans: what SQL and Datalog are translated to, and what circuits are made from.

A plan is a tree (shared parts make it a DAG) of frozen nodes over bags: each node has ``fields``
(names and Arrow types) and a meaning on Z-sets. Columns are addressed by position; the columns of
several inputs are numbered through, first input first. A row stays in a filter, join, semijoin or
outer join iff the predicate is TRUE, not FALSE or NULL.

========== ==========================================================================
Scan       the rows of an input, or of another view
Values     constant rows
Cross      all combinations; weights multiply
Filter     the rows for which the predicate is true
Map        expressions of each row (project, rename, compute); equal results add up
Semi       the left rows that have (anti: that have no) right row with the predicate true
Outer      left: Cross + Filter, and left rows without partner beside NULLs; full: both sides
Union      the sum of the inputs (UNION ALL)
Negate     every weight negated
Distinct   weight 1 where the weight is positive
Positive   the weight where it is positive (EXCEPT ALL is Positive of Union of a and Negate of b)
Aggregate  per key one row: the key, then the aggregates; without keys always exactly one row
TopK       per key the first rows in an order
Fixpoint   a solution of recursive equations (`circuits.plan.fixpoint`)
Recur      the rows of a recursive name within its own recursion
Join       lowered plans only: an N-way join, by shared variables
Settle     lowered plans only: what is kept of derived rows in a recursion
Pack       lowered plans only: some columns as one code, the payload of their row
Unpack     lowered plans only: the columns of payloads again
Spread     lowered plans only: values to be added up, as weights
Totals     lowered plans only: an aggregate of what was spread before a join
========== ==========================================================================

INTERSECT [ALL], EXCEPT, IN, NOT EXISTS, right joins and HAVING are made of these. Front ends emit
them as they read; `circuits.plan.rewrite` makes one N-way join of each connected part of Cross,
Filter, Semi and Outer. A lowered plan is a DAG: equal parts are one operator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from circuits.plan.columns import AggregateCall, AggregateFunction, Field, Fields, Order
from circuits.plan.expressions import Column, Expression
from circuits.plan.fixpoint import Fixpoint, RecursiveDistinct, RecursiveReference

__all__ = [
    "Aggregate",
    "AggregateCall",
    "AggregateFunction",
    "Between",
    "Branching",
    "CrossJoin",
    "Distinct",
    "Field",
    "Fields",
    "Filter",
    "FinalAggregate",
    "Fixpoint",
    "Join",
    "Map",
    "Negate",
    "Order",
    "OuterJoin",
    "PartialAggregate",
    "Plan",
    "Positive",
    "RecursiveDistinct",
    "RecursiveReference",
    "RowIdDecode",
    "RowIdEncode",
    "Scan",
    "Semijoin",
    "TopK",
    "Union",
    "Values",
    "columns",
]


@dataclass(frozen=True)
class Scan:
    """The rows of the relation or view of this name."""

    relation: str
    fields: Fields


@dataclass(frozen=True)
class Values:
    """Constant rows, there from the first step on; ``SELECT 1 AS x`` is one of them."""

    fields: Fields
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class CrossJoin:
    """All combinations of the rows of the inputs."""

    inputs: tuple[Plan, ...]

    @cached_property
    def fields(self) -> Fields:
        return tuple(field for plan in self.inputs for field in plan.fields)


@dataclass(frozen=True)
class Filter:
    """The rows for which ``predicate`` (boolean, over the input's columns) is true."""

    input: Plan
    predicate: Expression

    @property
    def fields(self) -> Fields:
        return self.input.fields


@dataclass(frozen=True)
class Map:
    """One column per expression over the input's columns."""

    input: Plan
    expressions: tuple[Expression, ...]
    names: tuple[str, ...]

    @cached_property
    def fields(self) -> Fields:
        pairs = zip(self.names, self.expressions, strict=True)
        return tuple(Field(name, expression.type) for name, expression in pairs)


@dataclass(frozen=True)
class Semijoin:
    """The left rows for which some (``anti``: no) right row makes ``predicate`` true.

    The predicate is over the left columns, then the right ones. Weights are those of the left.
    ``x NOT IN (q)`` is the anti form with ``x = q OR x IS NULL OR q IS NULL``.
    """

    left: Plan
    right: Plan
    predicate: Expression
    anti: bool = False

    @property
    def fields(self) -> Fields:
        return self.left.fields


@dataclass(frozen=True)
class OuterJoin:
    """Left or full outer join; a right one is a left one with the sides exchanged and a Map."""

    left: Plan
    right: Plan
    predicate: Expression
    kind: Literal["left", "full"] = "left"

    @cached_property
    def fields(self) -> Fields:
        left = self.left.fields if self.kind == "left" else _with_nulls(self.left.fields)
        return left + _with_nulls(self.right.fields)


class Branching:
    """A node of several inputs that plans share, so that rewriting it path by path is exponential.

    ``memo`` holds what was derived of the node, so that each result is made once for all paths.
    """

    @cached_property
    def memo(self) -> dict[object, Any]:
        return {}


@dataclass(frozen=True)
class Union(Branching):
    """The sum of the inputs, which have the same types; the first names the columns."""

    inputs: tuple[Plan, ...]

    @cached_property
    def paths(self) -> int:
        """The number of copies of a filter that is pushed through unions and linear nodes below."""
        return sum(map(_paths, self.inputs))

    @cached_property
    def fields(self) -> Fields:
        columns = zip(*(plan.fields for plan in self.inputs), strict=True)
        return tuple(
            replace(first, nullable=any(field.nullable for field in (first, *others)))
            for first, *others in columns
        )


@dataclass(frozen=True)
class Negate:
    """Every weight negated."""

    input: Plan

    @property
    def fields(self) -> Fields:
        return self.input.fields


@dataclass(frozen=True)
class Distinct:
    """Each row of positive weight once; NULL is the same as NULL."""

    input: Plan

    @property
    def fields(self) -> Fields:
        return self.input.fields


@dataclass(frozen=True)
class Positive:
    """The rows of positive weight, with that weight."""

    input: Plan

    @property
    def fields(self) -> Fields:
        return self.input.fields


@dataclass(frozen=True)
class Aggregate:
    """One row per key that has rows (sum of weights positive); without keys always one row."""

    input: Plan
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]

    @cached_property
    def fields(self) -> Fields:
        keys = tuple(self.input.fields[key] for key in self.keys)
        return keys + tuple(Field(call.name, call.type) for call in self.aggregates)


@dataclass(frozen=True)
class TopK:
    """Per key the rows at positions ``offset <= i < offset + limit`` in the order.

    A row of weight w takes w positions. Ties are decided by the other columns, ascending, NULLs
    last, first to last column, so that the result is a function of the input. ``limit`` None: all
    from ``offset`` on.
    """

    input: Plan
    keys: tuple[int, ...]
    order: tuple[Order, ...]
    limit: int | None
    offset: int = 0

    @property
    def fields(self) -> Fields:
        return self.input.fields


@dataclass(frozen=True)
class Between:
    """``left op right`` between two variables, by their codes."""

    left: int
    op: str
    right: int


@dataclass(frozen=True)
class Join(Branching):
    """All combinations of rows that agree on their shared variables.

    Column ``c`` of input ``i`` is bound to the variable ``variables[i][c]``; NULL agrees with NULL
    (who wants SQL's ``=`` filters NULLs out before). Weights multiply, and are summed over the
    variables that are not in ``head``, of which the rest is the columns of the result.
    """

    inputs: tuple[Plan, ...]
    variables: tuple[tuple[int, ...], ...]
    comparisons: tuple[Between, ...]
    head: tuple[int, ...]

    @cached_property
    def fields(self) -> Fields:
        bound: dict[int, Field] = {}
        for plan, variables in zip(self.inputs, self.variables, strict=True):
            for field, variable in zip(plan.fields, variables, strict=True):
                bound.setdefault(variable, field)
        return tuple(bound[variable] for variable in self.head)


@dataclass(frozen=True)
class RowIdEncode:
    """The first ``kept`` columns, then one code for the values of all others together."""

    input: Plan
    kept: int

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept], Field("payload", pa.int64(), nullable=False))

    @property
    def packed(self) -> Fields:
        """The columns that the code stands for."""
        return self.input.fields[self.kept :]


@dataclass(frozen=True)
class RowIdDecode:
    """Each column ``c`` of ``payloads``, as ``(c, pack)``, replaced by the columns in the code."""

    input: Plan
    payloads: tuple[tuple[int, RowIdEncode], ...]

    @cached_property
    def fields(self) -> Fields:
        packs = dict(self.payloads)
        found: list[Field] = []
        for column, field in enumerate(self.input.fields):
            found.extend(packs[column].packed if column in packs else (field,))
        return tuple(found)


@dataclass(frozen=True)
class PartialAggregate:
    """The first ``kept`` columns and a ``slot``: what the aggregates add up, as weights.

    The calls' arguments are among the other columns; all are linear and none is distinct.
    """

    input: Plan
    kept: int
    aggregates: tuple[AggregateCall, ...]

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept], Field("slot", pa.int64(), nullable=False))


@dataclass(frozen=True)
class FinalAggregate:
    """The aggregates of ``spread``, of rows of ``keys`` columns and a slot."""

    input: Plan
    keys: int
    spread: PartialAggregate

    @cached_property
    def fields(self) -> Fields:
        calls = self.spread.aggregates
        return self.input.fields[: self.keys] + tuple(Field(c.name, c.type) for c in calls)


Plan = (
    Scan
    | Values
    | CrossJoin
    | Filter
    | Map
    | Semijoin
    | OuterJoin
    | Union
    | Negate
    | Distinct
    | Positive
    | Aggregate
    | TopK
    | Fixpoint
    | RecursiveReference
    | Join
    | RowIdEncode
    | RowIdDecode
    | RecursiveDistinct
    | PartialAggregate
    | FinalAggregate
)


def columns(plan: Plan) -> tuple[Column, ...]:
    """The columns of a plan as expressions.

    >>> columns(Scan("e", (Field("src", pa.int64()),)))
    (Column(index=0, type=DataType(int64)),)
    """
    return tuple(Column(index, field.type) for index, field in enumerate(plan.fields))


def _paths(plan: Plan) -> int:
    while isinstance(plan, Filter | Map | Negate):
        plan = plan.input
    return plan.paths if isinstance(plan, Union) else 1


def _with_nulls(fields: Fields) -> Fields:
    return tuple(replace(field, nullable=True) for field in fields)
