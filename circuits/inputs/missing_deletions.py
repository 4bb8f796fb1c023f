"""Missing deletions: count the rows of an input that are deleted more often than they exist.

::

    missing = |{x : d[x] < 0 and Z[x] + d[x] < 0}|          Z: the input, d: its delta in the step

An input without options is a Z-set, in which a weight may be negative: the deletion of a row that
was never inserted cancels a later insertion of that row. This is right if deltas arrive out of
order. Otherwise it is an error of the source that would stay unnoticed, so such rows are counted.

An example stream, one row ``x``::

    given       -1   +1   +1   -2
    relation     0   -1    0    1
    missing      1    0    0    1

Weights are looked up in existing traces (the rows that joins and materialized relations keep): in
the trace of the input itself, if a join reads it unchanged or it is materialized, else in traces of
its filters and projections, which most joins read. The weight of a projected row is the sum of the
weights of its input rows; if the sum is negative, so is at least one of these weights. The count is
exact for an input with a trace of its own, and a lower bound otherwise. For an input that feeds
only an aggregate or a DISTINCT, for example, there is no trace and no count.

Cost: O(log N) for each row of negative weight and each trace. No trace is built for this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from circuits.plan.nodes import Filter, Map, PlanNode, Scan
from circuits.plan.physical_nodes import RowIdEncode
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import Operator
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.zset import to_storable

__all__ = ["MissingRowCounter", "count_missing_rows"]


class CountedNode(Protocol):
    """The attributes of `circuits.runtime.graph_node.Node` that this module reads."""

    name: str
    plan: PlanNode
    inputs: tuple[int, ...]
    operator: Operator | None
    is_arranged: bool
    is_nested: bool


@dataclass(frozen=True)
class MissingRowCounter:
    """Counts deleted rows that do not exist, in the traces of a graph.

    Attributes:
        node_count: The number of nodes of the graph.
        inputs: The position of each input that is counted.
        traces: Per input, the nodes whose deltas are looked up, each with the trace.
    """

    node_count: int
    inputs: Mapping[str, int]
    traces: Mapping[str, Sequence[tuple[int, Trace]]]

    @cached_property
    def counted_nodes(self) -> frozenset[int]:
        """The nodes whose deltas are looked up."""
        return frozenset(number for traces in self.traces.values() for number, _ in traces)

    @staticmethod
    def of(
        nodes: Sequence[CountedNode], relations: Mapping[str, Trace], keyed: Collection[str]
    ) -> MissingRowCounter:
        """Find the traces of a graph.

        Args:
            nodes: Its nodes, in order.
            relations: The traces of the nodes that are arranged, by name.
            keyed: The inputs with keys; they are left out.
        """
        # The input from which a node selects rows or columns, by the index of the node. The trace
        # of the input itself is full; the trace of a filter or projection is partial.
        input_of_node: dict[int, str] = {}
        full_traces: dict[str, list[tuple[int, Trace]]] = {}
        partial_traces: dict[str, list[tuple[int, Trace]]] = {}
        for number, node in enumerate(nodes):
            child = node.inputs[0] if len(node.inputs) == 1 else -1  # the only input, if any
            if isinstance(node.operator, Integrate):
                if child in input_of_node:
                    traces = full_traces if nodes[child].operator is None else partial_traces
                    traces.setdefault(input_of_node[child], []).append((child, node.operator.trace))
                continue
            if node.operator is None and isinstance(node.plan, Scan) and node.name not in keyed:
                input_of_node[number] = node.name
            elif (
                isinstance(node.plan, Filter | Map | RowIdEncode)
                and child in input_of_node
                and not node.is_nested
            ):
                input_of_node[number] = input_of_node[child]
            if number in input_of_node and node.is_arranged and node.name in relations:
                traces = full_traces if node.operator is None else partial_traces
                traces.setdefault(input_of_node[number], []).append((number, relations[node.name]))
        # One full trace gives the exact count; without one, all partial traces are looked up.
        first_full_traces = {name: traces[:1] for name, traces in full_traces.items()}
        all_traces = {**partial_traces, **first_full_traces}
        inputs = {
            name: number
            for number, name in input_of_node.items()
            if nodes[number].operator is None and name in all_traces
        }
        return MissingRowCounter(len(nodes), inputs, all_traces)

    def count(self, deltas: Sequence[ZSet]) -> dict[str, int]:
        """Count the missing rows of each input by the deltas of all nodes, before they are applied.

        An input without a trace is not in the result.
        """
        missing = {}
        for name, traces in self.traces.items():
            missing[name] = 0
            # Most steps only insert rows. The delta of an input is empty if its rows are taken in
            # slices (`EncodedRows`), and then it has no negative weights.
            weights = deltas[self.inputs[name]].weight_array
            if len(weights) and weights.min() < 0:
                counts = [count_missing_rows(deltas[number], trace) for number, trace in traces]
                missing[name] = max(counts)
        return missing


def count_missing_rows(delta: ZSet, trace: Trace) -> int:
    """Return how many rows of a delta would leave a relation with a negative weight.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(7,), (8,)]))
    >>> count_missing_rows(ZSet.from_rows([(7,), (8,), (9,), (5,)], [-2, -1, -1, 1]), trace)
    2
    """
    weights = delta.weight_array
    (deleted,) = (weights < 0).nonzero()
    if not len(deleted) or not trace.orders:
        return 0
    rows = delta if len(delta.row_array) else to_storable(delta)
    if len(deleted) < len(weights):
        weights = weights[deleted]
        rows = ZSet(rows.row_array.take(deleted, axis=1), weights)
    existing = trace.weights_of(rows)
    # A negative weight is replaced by 0 before the addition, so that the sum cannot leave int64.
    after = np.maximum(existing, 0) + weights
    return int(np.count_nonzero((existing < 0) | (after < 0)))
