"""Graph node: one operator, recursion or input of a graph, and one step of it on deltas.

An observer (`dbsp_wcoj.observer`) sees each operator as a phase, named after its class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from circuits.phases import GRAPH
from circuits.plan.nodes import PlanNode, Scan
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.operator import Operator, Result, StepContext
from dbsp_wcoj import ZSet
from dbsp_wcoj.observer import OBSERVERS, PLAN, current_observer

__all__ = ["Node", "operator_phase", "prepare_node"]


@dataclass
class Node:
    """A node of a graph.

    Attributes:
        name: The name of an input or operator (`circuits.runtime.operator_names`).
        state_name: The name of an input, or ``#`` and the first digits of ``hash``. It names the
            state of the node on disk.
        hash: The structural hash of the plan (`circuits.plan.structural_hash`).
        plan: The plan that it computes.
        inputs: The positions of the nodes that it reads.
        operator: Computes the rows; None for inputs, recursive references and fixpoints.
        is_arranged: True if the graph keeps its rows in a trace, because a join reads them, or the
            check of an input (`Graph.add_checked_input`).
        is_nested: True if a nested circuit runs it.
        empty: The empty Z-set of its arity.
    """

    name: str
    state_name: str
    hash: str
    plan: PlanNode
    inputs: tuple[int, ...]
    operator: Operator | None
    is_arranged: bool = False
    is_nested: bool = False
    empty: ZSet = field(init=False)

    def __post_init__(self) -> None:
        self.empty = ZSet.empty(len(self.plan.fields))

    @property
    def is_input(self) -> bool:
        """True for an input relation."""
        return self.operator is None and isinstance(self.plan, Scan)


def prepare_node(
    position: int,
    node: Node,
    deltas: Sequence[ZSet],
    context: StepContext,
    rows: int = 0,
    prepare: Callable[[Sequence[ZSet], StepContext], Result] | None = None,
    release_inputs: Callable[[], None] | None = None,
) -> Result:
    """Compute the delta of a node from the deltas of its inputs, and the change of its state.

    The delta is also staged in ``context.shared`` if the node is arranged.

    Args:
        position: The position of the node, for errors about limits.
        node: A node with an operator.
        deltas: The deltas of its inputs.
        context: The step that is computed.
        rows: The rows that the node has emitted in earlier iterations of the step.
        prepare: Computes the result; by default, the operator does.
        release_inputs: Frees the deltas of the inputs. It is called before the delta is sorted for
            the trace, which may need much memory.
    """
    assert node.operator is not None
    budget = context.budget
    if rows or budget.has_deadline:
        budget.start_operator(position, rows)
    else:
        budget.operator = position
    observer = current_observer() if OBSERVERS else None
    if observer is not None:
        observer.begin_phase(operator_phase(type(node.operator)))
    try:
        delta, staged = (prepare or node.operator.prepare)(deltas, context)
    finally:
        if observer is not None:
            observer.end_phase(0)  # the input rows are not counted here
    new_rows = len(delta.weight_array)
    budget.finish_operator(rows + new_rows, len(delta.row_array), new_rows)
    if release_inputs is not None:
        release_inputs()
    if node.is_arranged and new_rows:
        context.shared.add(node.name, delta)
    return delta, staged


@cache
def operator_phase(kind: type[Operator]) -> str:
    """The phase in which operators of a class prepare a step.

    >>> from circuits.runtime.operators.aggregates.partial_aggregate import PartialAggregateOperator
    >>> operator_phase(PartialAggregateOperator)
    'partial aggregate'
    """
    if issubclass(kind, JoinOperator):
        return PLAN  # the operator itself only plans; its terms report their own phase, the join
    if issubclass(kind, Integrate):
        return GRAPH  # it only passes its input to a trace
    return " ".join(re.findall("[A-Z][a-z]*", kind.__name__.removesuffix("Operator"))).lower()
