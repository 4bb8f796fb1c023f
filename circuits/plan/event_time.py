"""EventTime: the rows of an input with one more column, the event time that is computed from them.

::

    event_time(Z)[x, f(x)]  =  Z[x]

``CREATE TABLE t (ms BIGINT, ts AS to_timestamp_ltz(ms, 3), WATERMARK FOR ts AS ts - ...)`` has the
plan ``EventTime(Scan(t), f)`` below the Map of its other computed columns. The input computes ``f``
too, and rejects the rows whose time is before the watermark (`circuits.inputs.checked_input`). So
the watermark is a frontier of the new column (`circuits.runtime.state_bounds`).

The node is a Map, but one that rewrite rules do not merge with others: a merged expression such as
``date_trunc('hour', f(x))`` reads no column that has a frontier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from circuits.plan.columns import Field, Fields
from circuits.plan.expression_text import label
from circuits.plan.expressions import Expression, may_be_null
from circuits.plan.frontier import ColumnBounds
from circuits.plan.node import PlanNode, UnaryNode
from circuits.plan.traversal import iter_nodes
from dbsp_wcoj.cached_property import cached_property

__all__ = ["EventTime", "event_times"]


@dataclass(frozen=True)
class EventTime(UnaryNode):
    """The rows of the input, and their event time as the last column.

    Attributes:
        relation: The name of the input relation.
        name: The name of the new column.
        expression: The event time, over the columns of the input.
    """

    relation: str
    name: str
    expression: Expression

    is_linear: ClassVar[bool] = True

    @cached_property
    def fields(self) -> Fields:
        nullable = may_be_null(self.expression, self.input.is_nullable)
        return (*self.input.fields, Field(self.name, self.expression.type, nullable))

    def key(self) -> tuple[object, ...]:
        return self.relation, self.expression

    def label(self) -> str:
        names = [field.name for field in self.input.fields]
        return f"event time {self.name} = {label(self.expression, names)}"

    def bounds_of_changes(self, inputs: Sequence[ColumnBounds], position: int) -> ColumnBounds:
        return inputs[0]

    def _may_be_null(self, column: int) -> bool:
        if column < len(self.input.fields):
            return self.input.is_nullable(column)
        return may_be_null(self.expression, self.input.is_nullable)


def event_times(plans: Mapping[str, PlanNode]) -> dict[str, EventTime]:
    """Return the computed event times of the inputs that some plans read, by the input's name."""
    nodes = iter_nodes(*plans.values())
    return {node.relation: node for node in nodes if isinstance(node, EventTime)}
