"""Nodes: the classes of plan nodes, logical and physical.

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
TemporalFilter     the rows that a comparison with the current time selects
Fixpoint           a solution of recursive equations (`circuits.plan.fixpoint`)
RecursiveReference the rows of a recursive relation within its own recursion
Join               physical plans only: an N-way join, by shared variables
RecursiveDistinct  physical plans only: which derived rows a recursion keeps
RowIdEncode        physical plans only: several columns replaced by one code, the row id
RowIdDecode        physical plans only: row ids replaced by the columns that they encode
PartialAggregate   physical plans only: the values that an aggregate adds up, moved into weights
FinalAggregate     physical plans only: the aggregates, from partial aggregates after a join
================== ==========================================================================

INTERSECT [ALL], EXCEPT, IN, NOT EXISTS, right joins and HAVING are composed of these. Front ends
emit them in the order of the text. `circuits.plan.rewrite` makes one N-way join of each connected
part of CrossJoin, Filter, Semijoin and OuterJoin. A physical plan is a DAG: equal parts are one
operator.

Each class defines its inputs, structural key, label, linearity, partitioning and nullability
(`circuits.plan.node`), so most code does not enumerate the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from circuits.plan.columns import LINEAR_FUNCTIONS, AggregateCall, Field, Fields, Order
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    conjuncts,
    excludes_null,
    label,
    may_be_null,
    substitute,
)
from circuits.plan.fixpoint import Fixpoint, RecursiveDistinct, RecursiveReference
from circuits.plan.frontier import NEVER, ColumnBounds, Frontier, apply_function, least, shifted
from circuits.plan.monotone_functions import constant_shift, monotone_argument
from circuits.plan.node import BinaryNode, LeafNode, NaryNode, PlanNode, UnaryNode
from circuits.plan.temporal_filter import TemporalFilter

__all__ = [
    "Aggregate",
    "AggregateCall",
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
    "PlanNode",
    "Positive",
    "RecursiveDistinct",
    "RecursiveReference",
    "RowIdDecode",
    "RowIdEncode",
    "Scan",
    "Semijoin",
    "TemporalFilter",
    "TopK",
    "Union",
    "Values",
    "VariableComparison",
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
        return f"input {self.relation}({_names(self.fields)})"

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
        raise IndexError(f"column {column} is beyond the columns of the inputs")


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
        return self.implied_bounds(inputs[0])

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        bounds = self.input.implied_bounds(bounds)
        pairs = list(_ordered_columns(conjuncts([self.predicate])))
        return _close_bounds(bounds, pairs)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column) and not any(
            excludes_null(part, column) for part in conjuncts([self.predicate])
        )


@dataclass(frozen=True)
class Map(UnaryNode):
    """One column per expression over the input's columns; equal result rows add up."""

    expressions: tuple[Expression, ...]
    names: tuple[str, ...]

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        pairs = zip(self.names, self.expressions, strict=True)
        return tuple(Field(name, expression.type) for name, expression in pairs)

    def key(self) -> tuple[object, ...]:
        return (self.expressions,)

    def label(self) -> str:
        names = [f.name for f in self.input.fields]
        return f"map {', '.join(label(e, names) for e in self.expressions) or '()'}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        bounds = {}
        for column, expression in enumerate(self.expressions):
            argument = monotone_argument(expression)
            if argument is not None and argument.index in inputs[0]:
                function = substitute(expression, lambda read: Column(0, read.type))
                bounds[column] = apply_function(inputs[0][argument.index], function)
        return bounds

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        known: dict[int, Frontier] = {}
        for column, frontier in bounds.items():
            shift = constant_shift(self.expressions[column])
            if shift is not None:
                base, ticks = shift
                known.setdefault(base.index, shifted(frontier, -ticks, base.type))
        known_below = self.bounds_of_changes([self.input.implied_bounds(known)], 0)
        return {**known_below, **bounds}

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
    def paths(self) -> int:
        """The number of copies of a filter that is pushed through this and deeper unions."""
        return sum(map(_paths, self.inputs))

    @cached_property
    def fields(self) -> Fields:
        columns = zip(*(plan.fields for plan in self.inputs), strict=True)
        return tuple(
            replace(first, nullable=any(field.nullable for field in (first, *others)))
            for first, *others in columns
        )

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return _common_bounds(inputs)

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

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.implied_bounds(bounds)

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

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.implied_bounds(bounds)

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
        return keys + tuple(Field(call.name, call.type) for call in self.aggregates)

    def key(self) -> tuple[object, ...]:
        return self.keys, tuple(call.key() for call in self.aggregates)

    def label(self) -> str:
        fields = self.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.aggregates)
        return f"aggregate {aggregates}" + _by([fields[key] for key in self.keys])

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
        return _of_keys(inputs[0], self.keys)

    def _may_be_null(self, column: int) -> bool:
        if column < len(self.keys):
            return self.input.is_nullable(self.keys[column])
        return self.aggregates[column - len(self.keys)].function != "count"


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
        return {key: inputs[0][key] for key in self.keys if key in inputs[0]}

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return self.input.implied_bounds(bounds)

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)


@dataclass(frozen=True)
class VariableComparison:
    """``left op right`` between two variables of a join, by their codes."""

    left: int
    op: str
    right: int


@dataclass(frozen=True)
class Join(NaryNode):
    """All combinations of rows that agree on their shared variables.

    Column ``c`` of input ``i`` is bound to the variable ``variables[i][c]``. NULL agrees with NULL:
    a rule that implements SQL's ``=`` filters NULLs out first. Weights multiply, and are summed
    over the variables that are not in ``head``. The variables in ``head`` are the columns of the
    result.
    """

    variables: tuple[tuple[int, ...], ...]
    comparisons: tuple[VariableComparison, ...]
    head: tuple[int, ...]

    @cached_property
    def fields(self) -> Fields:
        bound: dict[int, Field] = {}
        for plan, variables in zip(self.inputs, self.variables, strict=True):
            for field, variable in zip(plan.fields, variables, strict=True):
                bound.setdefault(variable, field)
        return tuple(bound[variable] for variable in self.head)

    def key(self) -> tuple[object, ...]:
        comparisons = tuple((c.left, c.op, c.right) for c in self.comparisons)
        return self.variables, comparisons, self.head

    def label(self) -> str:
        return f"join of {len(self.inputs)} relations"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        # A changed result contains a changed row of some input.
        by_input = [self._bounds_with(changed, inputs) for changed in range(len(inputs))]
        by_variable = _common_bounds(by_input)
        return {
            column: by_variable[variable]
            for column, variable in enumerate(self.head)
            if variable in by_variable
        }

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        known = {self.head[column]: frontier for column, frontier in bounds.items()}
        by_variable = self._close_variables(known)
        return {c: by_variable[v] for c, v in enumerate(self.head) if v in by_variable}

    def needed_rows(self, inputs: Sequence[ColumnBounds]) -> Sequence[ColumnBounds]:
        # A stored row is read when a row of another input changes and both agree.
        needed = []
        for reader, variables in enumerate(self.variables):
            others = [self._bounds_with(i, inputs) for i in range(len(inputs)) if i != reader]
            common = _common_bounds(others)
            needed.append({c: common[v] for c, v in enumerate(variables) if v in common})
        return needed

    def _bounds_with(self, changed: int, inputs: Sequence[ColumnBounds]) -> ColumnBounds:
        """Return bounds of the variables in results that contain a changed row of an input."""
        variables = self.variables[changed]
        known: dict[int, Frontier] = {}
        for column, frontier in inputs[changed].items():
            known.setdefault(variables[column], frontier)
        return self._close_variables(known)

    def _close_variables(self, known: Mapping[int, Frontier]) -> ColumnBounds:
        """Return the bounds that follow for all variables from the bounds of some.

        NULL is in no comparison, because it is filtered out before
        (`circuits.plan.rewrite.conditions`).
        """
        pairs = []
        for comparison in self.comparisons:
            if comparison.op in ("<", "<="):
                pairs.append((comparison.left, comparison.right))
            elif comparison.op in (">", ">="):
                pairs.append((comparison.right, comparison.left))
        bounds = dict(known)
        size = -1
        while size < len(bounds):
            size = len(bounds)
            bounds = dict(_close_bounds(bounds, pairs))
            for plan, variables in zip(self.inputs, self.variables, strict=True):
                local = {c: bounds[v] for c, v in enumerate(variables) if v in bounds}
                for column, frontier in plan.implied_bounds(local).items():
                    bounds.setdefault(variables[column], frontier)
        return bounds

    def _may_be_null(self, column: int) -> bool:
        variable = self.head[column]
        return all(
            plan.is_nullable(variables.index(variable))
            for plan, variables in zip(self.inputs, self.variables, strict=True)
            if variable in variables
        )


@dataclass(frozen=True)
class RowIdEncode(UnaryNode):
    """The first ``kept`` columns, then one code (the row id) for the values of all others."""

    kept: int

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept], Field("row_id", pa.int64(), nullable=False))

    @property
    def encoded(self) -> Fields:
        """The columns that the row id encodes."""
        return self.input.fields[self.kept :]

    def key(self) -> tuple[object, ...]:
        return (self.kept,)

    def label(self) -> str:
        return f"row id of {_names(self.encoded)}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return _first_columns(inputs[0], self.kept)

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return _first_columns(
            self.input.implied_bounds(_first_columns(bounds, self.kept)), self.kept
        )

    def _may_be_null(self, column: int) -> bool:
        return column < self.kept and self.input.is_nullable(column)


@dataclass(frozen=True)
class RowIdDecode(UnaryNode):
    """The input with row ids decoded: ``row_ids`` has pairs of a column and its encoder."""

    row_ids: tuple[tuple[int, RowIdEncode], ...]

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        encoders = dict(self.row_ids)
        fields: list[Field] = []
        for column, field in enumerate(self.input.fields):
            fields.extend(encoders[column].encoded if column in encoders else (field,))
        return tuple(fields)

    @property
    def references(self) -> tuple[PlanNode, ...]:
        return tuple(encoder for _, encoder in self.row_ids)

    def key(self) -> tuple[object, ...]:
        return (tuple(column for column, _ in self.row_ids),)

    def label(self) -> str:
        return f"columns of row ids: {'; '.join(_names(e.encoded) for _, e in self.row_ids)}"


@dataclass(frozen=True)
class PartialAggregate(UnaryNode):
    """The first ``kept`` columns and a ``slot``; the weights are the values to be added up.

    The slot tells the aggregates apart (`circuits.runtime.operators.aggregates.partial_aggregate`).
    Their arguments are among the other columns of the input. All of them are linear (count, sum,
    avg), and none is DISTINCT.
    """

    kept: int
    aggregates: tuple[AggregateCall, ...]

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept], Field("slot", pa.int64(), nullable=False))

    def key(self) -> tuple[object, ...]:
        return self.kept, tuple(call.key() for call in self.aggregates)

    def label(self) -> str:
        fields = self.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.aggregates)
        return f"partial {aggregates}" + _by(fields[: self.kept])

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return _first_columns(inputs[0], self.kept)

    def implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return _first_columns(
            self.input.implied_bounds(_first_columns(bounds, self.kept)), self.kept
        )

    def _may_be_null(self, column: int) -> bool:
        return column < self.kept and self.input.is_nullable(column)


@dataclass(frozen=True)
class FinalAggregate(UnaryNode):
    """The aggregates of ``partial`` by the first ``keys`` columns of the input, from its slots."""

    keys: int
    partial: PartialAggregate

    state_unit: ClassVar[str] = "groups"

    @cached_property
    def fields(self) -> Fields:
        calls = self.partial.aggregates
        return self.input.fields[: self.keys] + tuple(Field(c.name, c.type) for c in calls)

    def key(self) -> tuple[object, ...]:
        types = tuple(field.type for field in self.partial.input.fields)
        return self.keys, types, tuple(call.key() for call in self.partial.aggregates)

    def label(self) -> str:
        fields = self.partial.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.partial.aggregates)
        return f"final {aggregates}" + _by(self.input.fields[: self.keys])

    @property
    def partitioning(self) -> tuple[int, ...]:
        return tuple(range(self.keys))

    @property
    def state_limit(self) -> str:
        return "" if self.keys else "one group"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return _of_keys(inputs[0], range(self.keys))


def columns(plan: PlanNode) -> tuple[Column, ...]:
    """The columns of a plan as expressions.

    >>> columns(Scan("e", (Field("src", pa.int64()),)))
    (Column(index=0, type=DataType(int64)),)
    """
    return tuple(Column(index, field.type) for index, field in enumerate(plan.fields))


def _of_keys(bounds: ColumnBounds, keys: Sequence[int]) -> ColumnBounds:
    """Return the bounds of columns that become the first columns of the result."""
    return {new: bounds[old] for new, old in enumerate(keys) if old in bounds}


def _first_columns(bounds: ColumnBounds, count: int) -> ColumnBounds:
    """Return the bounds of the first columns."""
    return {column: bound for column, bound in bounds.items() if column < count}


def _common_bounds(alternatives: Sequence[ColumnBounds]) -> ColumnBounds:
    """Return the bounds of the columns that have one in each of the alternatives."""
    if not alternatives:
        return {}
    common = set(alternatives[0]).intersection(*alternatives[1:])
    return {c: least(bounds[c] for bounds in alternatives) for c in sorted(common)}


def _close_bounds(bounds: ColumnBounds, pairs: Sequence[tuple[int, int]]) -> ColumnBounds:
    """Return the bounds that follow if the second column of each pair is not before the first."""
    known = dict(bounds)
    size = -1
    while size < len(known):
        size = len(known)
        for low, high in pairs:
            if low in known:
                known.setdefault(high, known[low])
    return known


def _ordered_columns(conditions: Iterable[Expression]) -> Iterator[tuple[int, int]]:
    """Yield pairs of columns of which the second is not before the first, by some conditions.

    Floats are left out: 0.0 and -0.0 are equal values with different codes.
    """
    for part in conditions:
        match part:
            case Call(function, (Column(first, type), Column(second, other))) if type == other:
                if pa.types.is_floating(type):
                    continue
                if function in ("lt", "le", "eq"):
                    yield first, second
                if function in ("gt", "ge", "eq"):
                    yield second, first


def _paths(plan: PlanNode) -> int:
    while isinstance(plan, Filter | Map | Negate):
        plan = plan.input
    return plan.paths if isinstance(plan, Union) else 1


def _with_nulls(fields: Fields) -> Fields:
    return tuple(replace(field, nullable=True) for field in fields)


def _names(fields: Fields) -> str:
    return ", ".join(field.name for field in fields)


def _by(keys: Sequence[Field]) -> str:
    return f" by {', '.join(key.name for key in keys)}" if keys else ""
