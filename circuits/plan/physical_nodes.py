"""Physical nodes: the plan nodes that only rewrite rules make (`circuits.plan.rewrite`).

================ =====================================================================
Join             an N-way join, by shared variables
RowIdEncode      several columns replaced by one code, the row id
RowIdDecode      row ids replaced by the columns that they encode
PartialAggregate rows whose weights are the quantities that an aggregate adds up
FinalAggregate   the aggregates, from partial aggregates after a join
NumberedTopK     a TopK whose rows have their numbers
================ =====================================================================

`RecursiveDistinct` is one as well, and lives with the other nodes of recursions
(`circuits.plan.fixpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from circuits.plan.bounds import (
    bounds_of_first,
    bounds_of_keys,
    common_bounds,
)
from circuits.plan.columns import (
    AggregateCall,
    Field,
    Fields,
    join_names,
    label_keys,
    with_unique_names,
)
from circuits.plan.frontier import ColumnBounds, Frontier, shifted
from circuits.plan.node import NaryNode, PlanNode, UnaryNode
from circuits.plan.nodes import TopK
from dbsp_wcoj.cached_property import cached_property

__all__ = [
    "FinalAggregate",
    "Join",
    "NumberedTopK",
    "PartialAggregate",
    "RowIdDecode",
    "RowIdEncode",
    "VariableComparison",
]


@dataclass(frozen=True)
class VariableComparison:
    """``left op right + shift`` between two variables of a join, by their codes.

    For timestamps, the shift is a number of ticks of their unit.
    """

    left: int
    op: str
    right: int
    shift: int = 0


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
        return with_unique_names([bound[variable] for variable in self.head])

    def key(self) -> tuple[object, ...]:
        # Without a shift, as in states that were written before comparisons had one.
        comparisons = tuple(
            (c.left, c.op, c.right, c.shift) if c.shift else (c.left, c.op, c.right)
            for c in self.comparisons
        )
        return self.variables, comparisons, self.head

    def label(self) -> str:
        return f"join of {len(self.inputs)} relations"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        # A changed result contains a changed row of some input.
        by_input = [self._bounds_of_matches(changed, inputs) for changed in range(len(inputs))]
        by_variable = common_bounds(by_input)
        return {
            column: by_variable[variable]
            for column, variable in enumerate(self.head)
            if variable in by_variable
        }

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        known_bounds = {self.head[column]: frontier for column, frontier in bounds.items()}
        by_variable = self._close_variables(known_bounds)
        return {c: by_variable[v] for c, v in enumerate(self.head) if v in by_variable}

    def needed_bounds(self, inputs: Sequence[ColumnBounds]) -> Sequence[ColumnBounds]:
        # A stored row is read when a row of another input changes and both agree.
        needed = []
        for number, variables in enumerate(self.variables):
            others = [i for i in range(len(inputs)) if i != number]
            common = common_bounds([self._bounds_of_matches(i, inputs) for i in others])
            needed.append({c: common[v] for c, v in enumerate(variables) if v in common})
        return needed

    def _bounds_of_matches(self, changed: int, inputs: Sequence[ColumnBounds]) -> ColumnBounds:
        """Return bounds of the variables in results that contain a changed row of one input."""
        variables = self.variables[changed]
        known_bounds: dict[int, Frontier] = {}
        for column, frontier in inputs[changed].items():
            known_bounds.setdefault(variables[column], frontier)
        return self._close_variables(known_bounds)

    def _close_variables(self, known_bounds: Mapping[int, Frontier]) -> ColumnBounds:
        """Return the bounds that follow for all variables from the bounds of some.

        NULL is in no comparison, because it is filtered out before
        (`circuits.plan.rewrite.conditions`).
        """
        # Each is low, high and a number of ticks, where low + ticks <= high.
        orders: list[tuple[int, int, int]] = []
        for comparison in self.comparisons:
            if comparison.op in ("<", "<="):
                orders.append((comparison.left, comparison.right, -comparison.shift))
            elif comparison.op in (">", ">="):
                orders.append((comparison.right, comparison.left, comparison.shift))
        bounds = dict(known_bounds)
        size = -1
        while size < len(bounds):
            size = len(bounds)
            for low, high, ticks in orders:
                if low in bounds and high not in bounds:
                    bounds[high] = shifted(bounds[low], ticks, self._types[low])
            for plan, variables in zip(self.inputs, self.variables, strict=True):
                by_column = {c: bounds[v] for c, v in enumerate(variables) if v in bounds}
                for column, frontier in plan.with_implied_bounds(by_column).items():
                    bounds.setdefault(variables[column], frontier)
        return bounds

    @cached_property
    def _types(self) -> Mapping[int, pa.DataType]:
        """The type of each variable."""
        return {
            variable: field.type
            for plan, variables in zip(self.inputs, self.variables, strict=True)
            for field, variable in zip(plan.fields, variables, strict=True)
        }

    def _may_be_null(self, column: int) -> bool:
        variable = self.head[column]
        return all(
            plan.is_nullable(variables.index(variable))
            for plan, variables in zip(self.inputs, self.variables, strict=True)
            if variable in variables
        )


@dataclass(frozen=True)
class _FirstColumnsNode(UnaryNode):
    """A node whose first ``kept_count`` columns are those of its input; the others have no NULL."""

    kept_count: int

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return bounds_of_first(inputs[0], self.kept_count)

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return bounds_of_first(
            self.input.with_implied_bounds(bounds_of_first(bounds, self.kept_count)),
            self.kept_count,
        )

    def _may_be_null(self, column: int) -> bool:
        return column < self.kept_count and self.input.is_nullable(column)


@dataclass(frozen=True)
class RowIdEncode(_FirstColumnsNode):
    """The first ``kept_count`` columns, then one code (the row id) for the values of all others."""

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept_count], Field("row_id", pa.int64(), nullable=False))

    @property
    def encoded(self) -> Fields:
        """The columns that the row id encodes."""
        return self.input.fields[self.kept_count :]

    def key(self) -> tuple[object, ...]:
        return (self.kept_count,)

    def label(self) -> str:
        return f"row id of {join_names(self.encoded)}"


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
        return with_unique_names(fields)

    @property
    def references(self) -> tuple[PlanNode, ...]:
        return tuple(encoder for _, encoder in self.row_ids)

    def key(self) -> tuple[object, ...]:
        return (tuple(column for column, _ in self.row_ids),)

    def label(self) -> str:
        return f"columns of row ids: {'; '.join(join_names(e.encoded) for _, e in self.row_ids)}"


@dataclass(frozen=True)
class PartialAggregate(_FirstColumnsNode):
    """The first ``kept_count`` columns and a ``slot``; the weight is the quantity to add up.

    The slot says which quantity it is, a count or a sum
    (`circuits.runtime.operators.aggregates.partial_aggregate`). The arguments of the aggregates are
    among the other columns of the input. All aggregates are linear (count, sum, avg), and none is
    DISTINCT.
    """

    aggregates: tuple[AggregateCall, ...]

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        return (*self.input.fields[: self.kept_count], Field("slot", pa.int64(), nullable=False))

    def key(self) -> tuple[object, ...]:
        return self.kept_count, tuple(call.key() for call in self.aggregates)

    def label(self) -> str:
        fields = self.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.aggregates)
        return f"partial {aggregates}" + label_keys(fields[: self.kept_count])


@dataclass(frozen=True)
class FinalAggregate(UnaryNode):
    """The aggregates of ``partial``, by the first ``key_count`` columns of the input."""

    key_count: int
    partial: PartialAggregate

    state_unit: ClassVar[str] = "groups"

    @cached_property
    def fields(self) -> Fields:
        calls = self.partial.aggregates
        return self.input.fields[: self.key_count] + tuple(Field(c.name, c.type) for c in calls)

    def key(self) -> tuple[object, ...]:
        types = tuple(field.type for field in self.partial.input.fields)
        return self.key_count, types, tuple(call.key() for call in self.partial.aggregates)

    def label(self) -> str:
        fields = self.partial.input.fields
        aggregates = ", ".join(call.label(fields) for call in self.partial.aggregates)
        return f"final {aggregates}" + label_keys(self.input.fields[: self.key_count])

    @property
    def partitioning(self) -> tuple[int, ...]:
        return tuple(range(self.key_count))

    @property
    def state_limit(self) -> str:
        return "" if self.key_count else "one group"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return bounds_of_keys(inputs[0], range(self.key_count))


@dataclass(frozen=True)
class NumberedTopK(TopK):
    """The rows of a `TopK`, and a last column with the number of each among the rows of its group.

    The numbers are 1, 2, … in the order. A row that is selected w times is w rows.
    """

    number_name: str = "row_number"

    @cached_property
    def fields(self) -> Fields:
        number = Field(self.number_name, pa.int64(), nullable=False)
        return with_unique_names((*self.input.fields, number))

    def label(self) -> str:
        return f"numbered {super().label()}"

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        return super().with_implied_bounds(bounds_of_first(bounds, len(self.input.fields)))

    def _may_be_null(self, column: int) -> bool:
        return column < len(self.input.fields) and super()._may_be_null(column)
