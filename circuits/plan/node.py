"""PlanNode: the interface of all plan nodes; rules, graph and explain need no list of node types.

A node class answers every question about its nodes. `PlanNode.key` and `PlanNode.label` are
abstract, so a node class without them cannot be instantiated: a missing key would merge operators
that differ. The other defaults are safe for any node: not linear, not partitionable, every column
nullable and without a frontier.

Subclass `LeafNode`, `UnaryNode`, `BinaryNode` or `NaryNode` by the number of inputs. Then register
the operator that executes the node (`circuits.runtime.operators.registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from circuits.plan.bounds import keep_bounds
from circuits.plan.columns import Fields
from circuits.plan.frontier import ColumnBounds
from dbsp_wcoj.cached_property import cached_property

__all__ = ["BinaryNode", "LeafNode", "NaryNode", "PlanNode", "UnaryNode"]


class PlanNode(ABC):
    """A plan: a node with its inputs, which are plans. Nodes are frozen dataclasses.

    Attributes:
        is_linear: True if the node computes f(a + b) = f(a) + f(b) in all inputs together.
        is_commutative: True if the order of the inputs does not affect the rows.
        reads_now: True if the rows depend on the time of the step, so that they can change in a
            step without changed inputs.
        reads_watermarks: True if the rows depend on the watermarks after the step, so that these,
            too, can change the rows.
        state_unit: The unit in which explain counts the state of the operator, such as "groups".
        state_limit: A limit of the state that holds for any input, for explain; or empty.
    """

    is_linear: ClassVar[bool] = False
    is_commutative: ClassVar[bool] = False
    reads_now: ClassVar[bool] = False
    reads_watermarks: ClassVar[bool] = False
    state_unit: ClassVar[str] = "rows"

    @property
    def state_limit(self) -> str:
        return ""

    if TYPE_CHECKING:  # some nodes have properties of these names, others dataclass fields

        @property
        @abstractmethod
        def fields(self) -> Fields:
            """The columns of the rows: names, types, and which of them contain no NULL."""

        @property
        @abstractmethod
        def inputs(self) -> tuple[PlanNode, ...]:
            """The plans whose rows the node reads, in order."""

    @abstractmethod
    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        """The same node over other inputs; their number is unchanged."""

    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """The parameters that decide which rows the node computes from its inputs.

        Two nodes of one class with equal keys and equal inputs are one operator
        (`circuits.plan.structural_hash`). Names of columns are not part of the key.
        """

    @abstractmethod
    def label(self) -> str:
        """One line that says what the node computes, with names of columns, for explain."""

    @property
    def references(self) -> tuple[PlanNode, ...]:
        """Nodes whose operators this operator calls, without reading their rows."""
        return ()

    @property
    def partitioning(self) -> tuple[int, ...] | None:
        """Columns by which the rows of the only input can be divided into parts.

        Rows with different values in these columns do not affect each other's results, so the node
        can be computed for each part alone, and the results added up. None if there are no such
        columns. A linear node needs none: any partition will do.
        """
        return None

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        """Return the frontiers of the columns: bounds of all rows that later steps change.

        Args:
            inputs: The frontiers of the columns of each input.
            position: The position of the node in its graph.
        """
        return {}

    def with_implied_bounds(self, bounds: ColumnBounds) -> ColumnBounds:
        """Return the bounds, and those that follow from how the columns are computed.

        For example, if ``b`` is computed as ``a + 10``, a bound of ``b`` implies one of ``a``.
        """
        return bounds

    def needed_bounds(self, inputs: Sequence[ColumnBounds]) -> Sequence[ColumnBounds]:
        """Return, for each input, bounds of the rows that later steps need.

        The result has a bound for some columns of each input. An input row with a column before its
        bound is not needed: the state may drop the row, and published results stay right.

        Args:
            inputs: The frontiers of the columns of each input.
        """
        keys = self.partitioning
        if keys is None or len(inputs) != 1:
            return [{} for _ in inputs]
        # The node computes each part (the rows with equal keys) by itself. A part whose key is
        # before the frontier never changes again.
        return [keep_bounds(inputs[0], keys)]

    def is_nullable(self, column: int) -> bool:
        """Return False if the column never contains NULL; computed once per node and column."""
        nullable = self.memo.get(column)
        if nullable is None:
            nullable = self.memo[column] = self._may_be_null(column)
        return bool(nullable)

    def _may_be_null(self, column: int) -> bool:
        return True

    @cached_property
    def memo(self) -> dict[object, Any]:
        """A cache for results that rules derive from the node, which several parents may share."""
        return {}


class LeafNode(PlanNode):
    """A node without inputs."""

    @property
    def inputs(self) -> tuple[PlanNode, ...]:
        return ()

    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        assert not inputs
        return self


@dataclass(frozen=True)
class UnaryNode(PlanNode):
    """A node over one input; by default with the columns of the input."""

    input: PlanNode

    @property
    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.input,)

    @property
    def fields(self) -> Fields:
        return self.input.fields

    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        (input,) = inputs
        return replace(self, input=input)


@dataclass(frozen=True)
class BinaryNode(PlanNode):
    """A node over a left and a right input."""

    left: PlanNode
    right: PlanNode

    @property
    def inputs(self) -> tuple[PlanNode, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        left, right = inputs
        return replace(self, left=left, right=right)


@dataclass(frozen=True)
class NaryNode(PlanNode):
    """A node over any number of inputs."""

    inputs: tuple[PlanNode, ...]

    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        return replace(self, inputs=tuple(inputs))
