"""Registry: the factory of the operator that executes each class of plan nodes.

To add an operator, write a node class (`circuits.plan.node`) and an operator class
(`circuits.runtime.operators.operator`), then register a factory for the node here. Rewriting,
common-subexpression elimination, state, explain and recursion then work without further changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from circuits.errors import CircuitError
from circuits.plan.current_time import CurrentTime
from circuits.plan.event_time import EventTime
from circuits.plan.node import PlanNode
from circuits.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Map,
    Negate,
    Positive,
    RecursiveDistinct,
    TemporalFilter,
    TopK,
    Union,
    Values,
    columns,
)
from circuits.plan.physical_nodes import (
    FinalAggregate,
    Join,
    NumberedTopK,
    PartialAggregate,
    RowIdDecode,
    RowIdEncode,
)
from circuits.plan.single_row import SingleRow
from circuits.plan.time_windows import HoppingWindows, LatestTime, SessionBound
from circuits.plan.unnest import Unnest
from circuits.plan.user_call import UserCall
from circuits.plan.window import Window
from circuits.plan.window_close import WindowClose
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.aggregates.partial_aggregate import (
    FinalAggregateOperator,
    PartialAggregateOperator,
)
from circuits.runtime.operators.distinct import DistinctOperator, one_if_positive, positive_part
from circuits.runtime.operators.join import JoinOperator, JoinOptions
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.runtime.operators.linear import (
    FilterOperator,
    MapOperator,
    NegateOperator,
    UnionOperator,
)
from circuits.runtime.operators.operator import Operator
from circuits.runtime.operators.recursive_distinct import RecursiveBagOperator, RecursiveSetOperator
from circuits.runtime.operators.recursive_min_max import RecursiveMinMaxOperator
from circuits.runtime.operators.single_row import SingleRowOperator
from circuits.runtime.operators.time.current_time import CurrentTimeOperator
from circuits.runtime.operators.time.hopping_windows import HoppingWindowsOperator
from circuits.runtime.operators.time.latest_time import LatestTimeOperator
from circuits.runtime.operators.time.session_bound import SessionBoundOperator
from circuits.runtime.operators.time.temporal_filter import TemporalFilterOperator
from circuits.runtime.operators.time.window_close import WindowCloseOperator
from circuits.runtime.operators.top_k import NumberedTopKOperator, TopKOperator
from circuits.runtime.operators.unnest import UnnestOperator
from circuits.runtime.operators.user_call import UserCallOperator
from circuits.runtime.operators.values import ValuesOperator
from circuits.runtime.operators.windows.window import WindowOperator
from circuits.types.codecs.codec import Codecs, dictionary_columns
from dbsp_wcoj import Relations

__all__ = ["BUDGETED_OPERATORS", "OperatorContext", "OperatorRegistry", "builtin_operators"]

Node = TypeVar("Node", bound=PlanNode)

#: The operators whose `evaluate` also takes a `Budget` (the limits of a step), because one input
#: row can become many rows or a large value.
BUDGETED_OPERATORS = (
    AggregateOperator,
    HoppingWindowsOperator,
    JoinOperator,
    MapOperator,
    NumberedTopKOperator,
    UnnestOperator,
    WindowOperator,
)


@dataclass(frozen=True)
class OperatorContext:
    """The parts of a graph that operators are built from.

    Attributes:
        codecs: Encode values as int64 codes.
        relations: The traces that joins share.
        join_options: The options of joins.
        inputs: The names of the traces of the node's inputs in ``relations``.
        references: The operators of the nodes, other than inputs, that the plan node refers to
            (`PlanNode.references`).
    """

    codecs: Codecs
    relations: Relations
    join_options: JoinOptions
    inputs: tuple[str, ...] = ()
    references: tuple[Operator | None, ...] = ()


#: Builds the operator of a node.
OperatorFactory = Callable[[Any, OperatorContext], Operator]


@dataclass(frozen=True)
class OperatorRegistry:
    """Factories of operators, by the class of the plan node.

    Attributes:
        factories: The factory of each node class.
        joins: The node classes whose operators read the shared traces of their inputs.
    """

    factories: Mapping[type[PlanNode], OperatorFactory] = field(default_factory=dict)
    joins: frozenset[type[PlanNode]] = frozenset()

    def with_operator(
        self,
        node: type[Node],
        factory: Callable[[Node, OperatorContext], Operator],
        *,
        reads_relations: bool = False,
    ) -> OperatorRegistry:
        """Return a registry with one more factory.

        Args:
            node: The class of the node.
            factory: Builds the operator of a node.
            reads_relations: True if the operator looks up rows in the shared traces of its inputs;
                the graph then stores these traces.

        Raises:
            CircuitError: A node class of this name is registered already. Names must differ,
                because structural hashes contain them (`circuits.plan.structural_hash`).
        """
        if any(registered.__name__ == node.__name__ for registered in self.factories):
            raise CircuitError(
                f"a plan node {node.__name__} is registered already: choose another class name"
            )
        joins = self.joins | {node} if reads_relations else self.joins
        return OperatorRegistry({**self.factories, node: factory}, joins)

    def operator(self, plan: PlanNode, context: OperatorContext) -> Operator:
        """Build the operator that executes a node.

        Raises:
            CircuitError: No operator is registered for the class of the node.
        """
        factory = self.factories.get(type(plan))
        if factory is None:
            raise CircuitError(
                f"no operator executes a plan node {type(plan).__name__}: register one "
                "(circuits.runtime.operators.registry)"
            )
        return factory(plan, context)


def _filter(plan: Filter, context: OperatorContext) -> Operator:
    return FilterOperator(plan.predicate, plan.input.fields, context.codecs)


def _map(plan: Map, context: OperatorContext) -> Operator:
    return MapOperator(plan.expressions, plan.input.fields, context.codecs)


def _event_time(plan: EventTime, context: OperatorContext) -> Operator:
    expressions = (*columns(plan.input), plan.expression)
    return MapOperator(expressions, plan.input.fields, context.codecs)


def _join(plan: Join, context: OperatorContext) -> Operator:
    return JoinOperator(plan, context.inputs, context.relations, context.join_options)


def _row_id_encode(plan: RowIdEncode, context: OperatorContext) -> Operator:
    return RowIdEncodeOperator(plan.kept_count, len(plan.encoded))


def _row_id_decode(plan: RowIdDecode, context: OperatorContext) -> Operator:
    encoders = _encoders(context.references)
    columns = [column for column, _ in plan.row_ids]
    return RowIdDecodeOperator([*zip(columns, encoders, strict=True)], len(plan.fields))


def _encoders(operators: Sequence[Operator | None]) -> list[RowIdEncodeOperator]:
    encoders = [operator for operator in operators if isinstance(operator, RowIdEncodeOperator)]
    assert len(encoders) == len(operators)
    return encoders


def _recursive_distinct(plan: RecursiveDistinct, context: OperatorContext) -> Operator:
    mode = plan.mode
    if mode.kind == "set":
        return RecursiveSetOperator(len(plan.fields))
    if mode.kind == "bag":
        return RecursiveBagOperator()
    assert mode.column is not None
    # The codes of the values have the order of the values, so they need no dictionary.
    key_codecs = dictionary_columns([context.codecs.codec(field.type) for field in plan.fields])
    return RecursiveMinMaxOperator(
        len(plan.fields),
        mode.column,
        least=mode.kind == "min",
        keeps_null=mode.keeps_null,
        key_codecs=key_codecs,
    )


#: The factory of each node class of physical plans. The nodes Scan (an input), RecursiveReference
#: and Fixpoint have no operator: the graph and its nested circuits compute their rows.
_FACTORIES: dict[type[PlanNode], OperatorFactory] = {
    Values: lambda plan, context: ValuesOperator(plan, context.codecs),
    Filter: _filter,
    Map: _map,
    EventTime: _event_time,
    Union: lambda plan, context: UnionOperator(len(plan.fields)),
    Negate: lambda plan, context: NegateOperator(),
    Distinct: lambda plan, context: DistinctOperator(len(plan.fields), one_if_positive),
    Positive: lambda plan, context: DistinctOperator(len(plan.fields), positive_part),
    RecursiveDistinct: _recursive_distinct,
    Aggregate: lambda plan, context: AggregateOperator(plan, context.codecs),
    TopK: lambda plan, context: TopKOperator(plan, context.codecs),
    NumberedTopK: lambda plan, context: NumberedTopKOperator(plan, context.codecs),
    CurrentTime: lambda plan, context: CurrentTimeOperator(context.codecs),
    TemporalFilter: lambda plan, context: TemporalFilterOperator(plan, context.codecs),
    SingleRow: lambda plan, context: SingleRowOperator(plan, context.codecs),
    Window: lambda plan, context: WindowOperator(plan, context.codecs),
    PartialAggregate: lambda plan, context: PartialAggregateOperator(plan, context.codecs),
    FinalAggregate: lambda plan, context: FinalAggregateOperator(plan, context.codecs),
    Unnest: lambda plan, context: UnnestOperator(plan, context.codecs),
    UserCall: lambda plan, context: UserCallOperator(plan, context.codecs),
    RowIdEncode: _row_id_encode,
    RowIdDecode: _row_id_decode,
    Join: _join,
    HoppingWindows: lambda plan, context: HoppingWindowsOperator(plan),
    SessionBound: lambda plan, context: SessionBoundOperator(plan, context.codecs),
    WindowClose: lambda plan, context: WindowCloseOperator(len(plan.fields)),
    LatestTime: lambda plan, context: LatestTimeOperator(plan, context.codecs),
}


def builtin_operators() -> OperatorRegistry:
    """The operators of this library."""
    return OperatorRegistry(_FACTORIES, frozenset({Join}))
