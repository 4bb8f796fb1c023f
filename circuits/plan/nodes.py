"""Nodes: the classes of plan nodes that front ends make.

A plan is a tree of frozen nodes over bags (relations in which rows may repeat); shared parts make
it a DAG. ``SELECT src FROM e WHERE dst = 1`` is, in short,
``Map(Filter(Scan("e"), dst = 1), src)``. SQL and Datalog are translated to plans, and circuits are
built from them. Each node has ``fields``, the names and Arrow types of its columns. Columns are
addressed by position; the columns of several inputs are numbered consecutively, first input first.
A filter, join, semijoin or outer join keeps the rows for which the predicate is TRUE, not FALSE or
NULL.

================== ==========================================================================
Scan               the rows of an input, or of another view
Values             constant rows
CrossJoin          all combinations; weights multiply
Filter             the rows for which the predicate is true
Map                expressions of each row (project, rename, compute)
Semijoin           the left rows that match a right row; with ``anti`` those that match none
OuterJoin          a join that keeps unmatched rows, padded with NULLs: of the left or of both sides
Union              the sum of the inputs (UNION ALL)
Negate             every weight negated
Distinct           weight 1 where the weight is positive
Positive           the rows of positive weight (EXCEPT ALL is Positive of a + Negate of b)
Aggregate          per key one row: the key, then the aggregates; without keys always one row
TopK               per key the first rows in an order
CurrentTime        one row: the time of the step
TemporalFilter     the rows that a comparison with the current time selects
Fixpoint           a solution of recursive equations (`circuits.plan.fixpoint`)
RecursiveReference the rows of a recursive relation within its own recursion
================== ==========================================================================

INTERSECT [ALL], EXCEPT, IN, NOT EXISTS, right joins and HAVING are composed of these. Front ends
emit them in the order of the text. `circuits.plan.rewrite` makes one N-way join of each connected
part of CrossJoin, Filter, Semijoin and OuterJoin (`circuits.plan.physical_nodes`). Nodes with rules
of their own have files beside this one.

Each class defines its inputs, key, label, linearity, partitioning and nullability
(`circuits.plan.node`), so most code does not enumerate the classes. Its ``bounds_of_changes`` gives
the frontiers of its columns: lower bounds of the rows that later steps change
(`circuits.plan.frontier`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from circuits.plan.bounds import (
    add_implied_bounds,
    bounds_of_keys,
    common_bounds,
    has_ordered_codes,
    keep_bounds,
    ordered_columns,
)
from circuits.plan.columns import (
    LINEAR_FUNCTIONS,
    AggregateCall,
    Field,
    Fields,
    Order,
    join_names,
    label_keys,
)
from circuits.plan.current_time import CurrentTime
from circuits.plan.expression_text import label
from circuits.plan.expressions import (
    Column,
    Expression,
    conjuncts,
    excludes_null,
    may_be_null,
    substitute,
)
from circuits.plan.fixpoint import Fixpoint, RecursiveDistinct, RecursiveReference
from circuits.plan.frontier import NEVER, ColumnBounds, Frontier, apply_function, shifted
from circuits.plan.json_values import JSON_KEEPING_AGGREGATES, common_json_kind, json_kind_of
from circuits.plan.monotone_functions import constant_shift, monotone_argument
from circuits.plan.node import BinaryNode, LeafNode, NaryNode, PlanNode, UnaryNode
from circuits.plan.temporal_filter import TemporalFilter
from dbsp_wcoj.cached_property import cached_property

__all__ = [
    "Aggregate",
    "AggregateCall",
    "CrossJoin",
    "CurrentTime",
    "Distinct",
    "Field",
    "Fields",
    "Filter",
    "Fixpoint",
    "Map",
    "Negate",
    "Order",
    "OuterJoin",
    "PlanNode",
    "Positive",
    "RecursiveDistinct",
    "RecursiveReference",
    "Scan",
    "Semijoin",
    "TemporalFilter",
    "TopK",
    "Union",
    "Values",
    "columns",
]


@dataclass(frozen=True)
class Scan(LeafNode):
    """The rows of the relation or view of this name."""

    relation: str
    fields: Fields

    is_linear: ClassVar[bool] = True

    def key(self) -> tuple[object, ...]:
        return (self.relation,)

    def label(self) -> str:
        return f"input {self.relation}({join_names(self.fields)})"

    def _may_be_null(self, column: int) -> bool:
        return self.fields[column].nullable


@dataclass(frozen=True)
class Values(LeafNode):
    """Constant rows, inserted in the first step; ``SELECT 1 AS x`` is one row."""

    fields: Fields
    rows: tuple[tuple[Any, ...], ...]

    def key(self) -> tuple[object, ...]:
        return tuple(field.type for field in self.fields), self.rows

    def label(self) -> str:
        return f"values: {len(self.rows)} rows"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return dict.fromkeys(range(len(self.fields)), NEVER)


@dataclass(frozen=True)
class CrossJoin(NaryNode):
    """All combinations of the rows of the inputs."""

    @cached_property
    def fields(self) -> Fields:
        return tuple(field for plan in self.inputs for field in plan.fields)

    def key(self) -> tuple[object, ...]:
        return ()

    def label(self) -> str:
        return "cross join"

    def _may_be_null(self, column: int) -> bool:
        for plan in self.inputs:
            if column < len(plan.fields):
                return plan.is_nullable(column)
            column -= len(plan.fields)
        raise IndexError("the column is beyond the columns of the inputs")


@dataclass(frozen=True)
class Filter(UnaryNode):
    """The rows for which ``predicate`` (boolean, over the input's columns) is true."""

    predicate: Expression

    is_linear: ClassVar[bool] = True

    def key(self) -> tuple[object, ...]:
        return (self.predicate,)

    def label(self) -> str:
        return f"filter {label(self.predicate, [f.name for f in self.input.fields])}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return self.with_implied_bounds(inputs[0])

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        bounds = self.input.with_implied_bounds(bounds)
        pairs = list(ordered_columns(conjuncts([self.predicate])))
        return add_implied_bounds(bounds, pairs)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column) and not any(
            excludes_null(part, column) for part in conjuncts([self.predicate])
        )


@dataclass(frozen=True)
class Map(UnaryNode):
    """One column per expression over the input's columns; equal result rows add up.

    ``json_kinds`` are the kinds of JSON of the columns; if empty, the expressions decide.
    """

    expressions: tuple[Expression, ...]
    names: tuple[str, ...]
    json_kinds: tuple[str, ...] = field(default=(), compare=False, repr=False)

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        input_fields, kinds = self.input.fields, self.json_kinds
        return tuple(
            Field(
                name,
                expression.type,
                json_kind=kinds[index] if kinds else json_kind_of(expression, input_fields),
            )
            for index, (name, expression) in enumerate(
                zip(self.names, self.expressions, strict=True)
            )
        )

    def key(self) -> tuple[object, ...]:
        return (self.expressions,)

    def label(self) -> str:
        names = [f.name for f in self.input.fields]
        return f"map {', '.join(label(e, names) for e in self.expressions) or '()'}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        bounds = {}
        for column, expression in enumerate(self.expressions):
            argument = monotone_argument(expression)
            if argument is None or argument.index not in inputs[0]:
                continue
            if isinstance(expression, Column) or has_ordered_codes(expression.type):
                function = substitute(expression, lambda read: Column(0, read.type))
                bounds[column] = apply_function(inputs[0][argument.index], function)
        return bounds

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        # A bound of x + c implies one of x, which may imply bounds of other columns.
        input_bounds: dict[int, Frontier] = {}
        for column, frontier in bounds.items():
            shift = constant_shift(self.expressions[column])
            if shift is not None:
                base, ticks = shift
                input_bounds.setdefault(base.index, shifted(frontier, -ticks, base.type))
        implied = self.bounds_of_changes([self.input.with_implied_bounds(input_bounds)], 0)
        return {**implied, **bounds}

    def _may_be_null(self, column: int) -> bool:
        return may_be_null(self.expressions[column], self.input.is_nullable)


@dataclass(frozen=True)
class Semijoin(BinaryNode):
    """The left rows that match at least one right row; with ``anti`` those that match none.

    Rows match if ``predicate``, over the left and then the right columns, is true. Each row keeps
    its weight on the left.
    ``x NOT IN (q)`` is the anti form with ``x = q OR x IS NULL OR q IS NULL``.
    """

    predicate: Expression
    anti: bool = False

    @property
    def fields(self) -> Fields:
        return self.left.fields

    def key(self) -> tuple[object, ...]:
        return self.predicate, self.anti

    def label(self) -> str:
        names = [f.name for f in (*self.left.fields, *self.right.fields)]
        return f"{'antijoin' if self.anti else 'semijoin'} on {label(self.predicate, names)}"

    def _may_be_null(self, column: int) -> bool:
        return self.left.is_nullable(column)


@dataclass(frozen=True)
class OuterJoin(BinaryNode):
    """A left or full outer join; a right join is a left join with exchanged sides, and a Map."""

    predicate: Expression
    kind: Literal["left", "full"] = "left"

    @cached_property
    def fields(self) -> Fields:
        left = self.left.fields if self.kind == "left" else _with_nulls(self.left.fields)
        return left + _with_nulls(self.right.fields)

    def key(self) -> tuple[object, ...]:
        return self.predicate, self.kind

    def label(self) -> str:
        names = [f.name for f in (*self.left.fields, *self.right.fields)]
        return f"{self.kind} join on {label(self.predicate, names)}"


@dataclass(frozen=True)
class Union(NaryNode):
    """The sum of the inputs, which have the same types; the first names the columns."""

    is_linear: ClassVar[bool] = True
    is_commutative: ClassVar[bool] = True

    @cached_property
    def pushed_copies(self) -> int:
        """The copies that pushing a filter below this union, and unions below it, would make."""
        return sum(map(_count_pushed_copies, self.inputs))

    @cached_property
    def fields(self) -> Fields:
        columns = zip(*(plan.fields for plan in self.inputs), strict=True)
        return tuple(
            replace(
                first,
                nullable=any(part.nullable for part in (first, *others)),
                json_kind=common_json_kind(part.json_kind for part in (first, *others)),
            )
            for first, *others in columns
        )

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return common_bounds(inputs)

    def key(self) -> tuple[object, ...]:
        return ()

    def label(self) -> str:
        return "union"

    def _may_be_null(self, column: int) -> bool:
        return any(plan.is_nullable(column) for plan in self.inputs)


@dataclass(frozen=True)
class Negate(UnaryNode):
    """Every weight negated."""

    is_linear: ClassVar[bool] = True

    def key(self) -> tuple[object, ...]:
        return ()

    def label(self) -> str:
        return "negate"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return inputs[0]

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.with_implied_bounds(bounds)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)


@dataclass(frozen=True)
class _RowwiseNode(UnaryNode):
    """A node that decides for each distinct row separately, by its weight."""

    def key(self) -> tuple[object, ...]:
        return ()

    @property
    def partitioning(self) -> tuple[int, ...]:
        return tuple(range(len(self.fields)))

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return inputs[0]

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.with_implied_bounds(bounds)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)


@dataclass(frozen=True)
class Distinct(_RowwiseNode):
    """Each row of positive weight once; NULL is the same as NULL."""

    def label(self) -> str:
        return "distinct"


@dataclass(frozen=True)
class Positive(_RowwiseNode):
    """The rows of positive weight, with that weight."""

    def label(self) -> str:
        return "positive"


@dataclass(frozen=True)
class Aggregate(UnaryNode):
    """One row per key that has rows (sum of weights positive); without keys always one row."""

    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]

    state_unit: ClassVar[str] = "groups"

    @cached_property
    def fields(self) -> Fields:
        keys = tuple(self.input.fields[key] for key in self.keys)
        return keys + tuple(
            Field(
                call.name,
                call.type,
                json_kind=self.input.fields[call.argument].json_kind
                if call.function in JSON_KEEPING_AGGREGATES and call.argument is not None
                else "",
            )
            for call in self.aggregates
        )

    def key(self) -> tuple[object, ...]:
        return self.keys, tuple(call.key() for call in self.aggregates)

    def label(self) -> str:
        fields = self.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.aggregates)
        return f"aggregate {aggregates}" + label_keys([fields[key] for key in self.keys])

    @property
    def partitioning(self) -> tuple[int, ...]:
        return self.keys

    @property
    def state_limit(self) -> str:
        is_one_group = not self.keys and all(
            call.function in LINEAR_FUNCTIONS and not call.distinct for call in self.aggregates
        )
        return "one group" if is_one_group else ""

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return bounds_of_keys(inputs[0], self.keys)

    def _may_be_null(self, column: int) -> bool:
        if column < len(self.keys):
            return self.input.is_nullable(self.keys[column])
        call = self.aggregates[column - len(self.keys)]
        if self.keys and call.function in ("min", "max", "sum", "avg"):
            # A group has at least one row of positive weight, whose value the aggregate reads.
            return self.input.is_nullable(call.arguments[0])
        return call.function != "count"


@dataclass(frozen=True)
class TopK(UnaryNode):
    """Per key the rows at positions ``offset <= i < offset + limit`` in the order.

    A row of weight w takes w positions. Ties in ``order`` are resolved by the other columns from
    left to right, ascending, NULLs last, so the result is a function of the input. ``limit`` None
    means all rows from ``offset`` on.
    """

    keys: tuple[int, ...]
    order: tuple[Order, ...]
    limit: int | None
    offset: int = 0

    def key(self) -> tuple[object, ...]:
        order = tuple((o.column, o.descending, o.nulls_first) for o in self.order)
        return self.keys, order, self.limit, self.offset

    def label(self) -> str:
        fields = self.input.fields
        keys = ", ".join(fields[key].name for key in self.keys)
        limit = "all" if self.limit is None else str(self.limit)
        offset = f" after {self.offset}" if self.offset else ""
        order = ", ".join(order.label(fields) for order in self.order) or "any"
        return f"top {limit}{offset} in order {order}" + (f" per {keys}" if keys else "")

    @property
    def partitioning(self) -> tuple[int, ...]:
        return self.keys

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return keep_bounds(inputs[0], self.keys)

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.with_implied_bounds(bounds)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)


def columns(plan: PlanNode) -> tuple[Column, ...]:
    """The columns of a plan as expressions.

    >>> import pyarrow as pa
    >>> columns(Scan("e", (Field("src", pa.int64()),)))
    (Column(index=0, type=DataType(int64)),)
    """
    return tuple(Column(index, field.type) for index, field in enumerate(plan.fields))


def _count_pushed_copies(plan: PlanNode) -> int:
    while isinstance(plan, Filter | Map | Negate):
        plan = plan.input
    return plan.pushed_copies if isinstance(plan, Union) else 1


def _with_nulls(fields: Fields) -> Fields:
    return tuple(replace(field, nullable=True) for field in fields)
