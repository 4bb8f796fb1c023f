"""State sizes: the rows that each operator keeps, and which bound keeps them from growing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from circuits.inputs.checked_input import CheckedInput
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operator_names import operator_kind
from circuits.runtime.operators.integrate import Integrate
from circuits.state.registry import operator_trace, relation_trace

__all__ = ["UNBOUNDED", "StateSize", "describe_state", "state_sizes"]

#: The bound of state that grows as long as rows are inserted.
UNBOUNDED = "nothing bounds it: it grows with its input"


class StateSize(NamedTuple):
    """The rows that one operator keeps as its state, or the rows of its output that joins read.

    Attributes:
        operator: The name of the input or operator, as in `Circuit.explain`.
        kind: The kind of the operator, and what the state is.
        bound: The rows that it keeps; `UNBOUNDED` if it grows for ever.
        rows: The number of stored rows, with those that are deleted but not merged away yet.
    """

    operator: str
    kind: str
    bound: str
    rows: int


def state_sizes(state: CircuitVersion) -> list[StateSize]:
    """Return the state of all operators, in the order in which they run; O(runs)."""
    graph = state.graph
    return [
        size
        for position, node in enumerate(graph.nodes)
        for size in (
            *_relation_sizes(state, position, node),
            *_operator_sizes(state, position, node),
        )
    ]


def describe_state(state: CircuitVersion) -> list[str]:
    """Return a line per operator with state, for explain.

    There are no lines if no input has an event time: most bounds are bounds of an event time.
    """
    inputs = state.graph.checked_inputs.values()
    if not any(checked.options.time_column is not None for checked in inputs):
        return []
    return [
        f"{size.operator} {size.kind}: {size.bound}  [{size.rows:,} rows]"
        for size in state_sizes(state)
    ]


def _relation_sizes(state: CircuitVersion, position: int, node: Node) -> Iterator[StateSize]:
    version = state.traces.get(relation_trace(node.state_name))
    if version is None or not version.trace.orders:
        return  # no join reads the relation
    graph = state.graph
    bounds = graph.state_bounds
    bound = None if bounds is None else bounds.relation_bounds.get(position)
    checked = graph.checked_inputs.get(node.name) if node.operator is None else None
    text = UNBOUNDED
    if bound is not None:
        text = f"rows with {bound.label()}"
    elif checked is not None and checked.options.retain is not None:
        text = _retention_text(checked)
    yield StateSize(node.name, "rows that joins read", text, version.trace.rows)


def _operator_sizes(state: CircuitVersion, position: int, node: Node) -> Iterator[StateSize]:
    traces = getattr(node.operator, "traces", ())
    if node.operator is None or not traces:
        return
    rows = sum(state.trace(operator_trace(node.state_name, i)).rows for i in range(len(traces)))
    if isinstance(node.operator, Integrate):
        yield StateSize(node.name, "materialized", "all rows, as requested", rows)
        return
    yield StateSize(
        node.name,
        operator_kind(node.plan),
        _operator_bound(state.graph, position, node),
        rows,
    )


def _operator_bound(graph: Graph, position: int, node: Node) -> str:
    bounds = graph.state_bounds
    if bounds is not None and position in bounds.operators:
        return f"{node.plan.state_unit} with {bounds.operators[position][0].label()}"
    if bounds is not None and position in bounds.final_row_columns:
        # The operator keeps the rows that are not final yet.
        return f"rows with {bounds.final_row_columns[position].label()}"
    if bounds is not None and position in bounds.sessions:
        return f"sessions that end at or after {bounds.sessions[position].frontier.label()}"
    return node.plan.state_limit or UNBOUNDED


def _retention_text(checked: CheckedInput) -> str:
    return f"retained rows, {checked.options.retain}"
