"""Kept rows: the nodes of a graph of which the state has all rows, and where they are.

::

    a node that a join reads       the shared trace of its rows
    a materialized relation        the trace of its `Integrate`
    DISTINCT, EXCEPT               the trace of the rows that go in
    rows behind a row id           the shared trace of late materialization, decoded
    some columns of an input       the rows of a map that only selects columns

Results of joins and aggregates are not kept as such, unless a view that has them is materialized. A
trace from which rows before a watermark are dropped (`circuits.runtime.state_bounds`) does not
count. Neither does a materialized view over an input with ``on_expiry="keep"``: it has results of
expired rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from circuits.plan.expressions import Column
from circuits.plan.nodes import Map
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.distinct import DistinctOperator
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.state.registry import operator_trace, relation_trace
from circuits.state.reuse import is_partial
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.generic_join import relation_to_zset
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["KeptRows", "StoredRows", "find_dependents"]


@dataclass(frozen=True)
class StoredRows:
    """All rows of a node, with all or some of its columns, in a trace.

    Attributes:
        name: The name of the trace.
        trace: The trace.
        columns: The positions, in the node, of the columns that ``rows`` returns, in their order.
        decode: Returns rows of the trace, or a delta of it, with these columns; O(rows).
    """

    name: str
    trace: Trace
    columns: tuple[int, ...]
    decode: Callable[[ZSet], ZSet]

    def rows(self) -> ZSet:
        """Return all rows; O(rows)."""
        return self.decode(relation_to_zset(self.trace, self.trace.arity))


class KeptRows:
    """Finds all rows of the nodes of a graph in its state.

    Args:
        graph: A graph with its state.
        lacking: The traces that do not have their rows.
    """

    def __init__(self, graph: Graph, lacking: Collection[str] = ()) -> None:
        self._graph = graph
        self._lacking = lacking
        self._readers: dict[int, list[int]] = {}
        for position, node in enumerate(graph.nodes):
            for i in node.inputs:
                self._readers.setdefault(i, []).append(position)
        self._nodes_with_expired_results = find_dependents(
            graph,
            [name for name, input in graph.checked_inputs.items() if input.keeps_results],
        )

    def find(self, position: int) -> StoredRows | None:
        """Return all rows of a node; None if the state does not have them."""
        graph, node = self._graph, self._graph.nodes[position]
        if node.is_nested:
            return None
        if not is_partial(graph, position):
            stored = self._stored(position, relation_trace(node.state_name))
            if stored is not None:
                return stored
        for reader in self._readers.get(position, ()):
            stored = self._rows_of_reader(position, reader)
            if stored is not None:
                return stored
        return None

    def find_columns(self, position: int) -> Sequence[StoredRows]:
        """Return where the state has the rows of an input, with all or some of its columns."""
        whole = self.find(position)
        found = [] if whole is None else [whole]
        for reader in self._readers.get(position, ()):
            columns = selected_columns(self._graph.nodes[reader])
            stored = None if columns is None else self.find(reader)
            if columns is not None and stored is not None:
                found.append(StoredRows(stored.name, stored.trace, columns, stored.decode))
        return found

    def _rows_of_reader(self, position: int, reader: int) -> StoredRows | None:
        """Return the rows of a node from the state of a node that reads it."""
        graph, node = self._graph, self._graph.nodes[reader]
        operator, width = node.operator, len(graph.nodes[position].plan.fields)
        if node.is_nested:
            return None
        if isinstance(operator, Integrate):
            if position in self._nodes_with_expired_results and reader not in graph.retained:
                return None
            return self._stored(position, operator_trace(node.state_name, 0))
        if isinstance(operator, DistinctOperator):
            bounds = graph.state_bounds
            if bounds is not None and reader in bounds.operators:
                return None
            return self._stored(position, operator_trace(node.state_name, 0))
        if isinstance(operator, RowIdEncodeOperator) and not is_partial(graph, reader):
            name = relation_trace(node.state_name)
            trace = self._trace(name)
            if trace is None:
                return None
            decode = RowIdDecodeOperator([(operator.kept_count, operator)], width)
            return StoredRows(
                name, trace, tuple(range(width)), lambda rows: decode.evaluate([rows])
            )
        return None

    def _stored(self, position: int, name: str) -> StoredRows | None:
        trace = self._trace(name)
        if trace is None:
            return None
        width = len(self._graph.nodes[position].plan.fields)
        return StoredRows(
            name, trace, tuple(range(width)), lambda rows: _without_columns(rows, width)
        )

    def _trace(self, name: str) -> Trace | None:
        """Return a trace that has its rows; None without one."""
        trace = None if name in self._lacking else self._graph.traces.get(name)
        return trace if trace is not None and trace.orders else None


def _without_columns(rows: ZSet, width: int) -> ZSet:
    """Return rows of a trace; the trace of a relation without columns has one."""
    if width or not rows.arity:
        return rows
    return consolidated_rows(np.empty((0, len(rows)), np.int64), rows.weight_array.copy())


def selected_columns(node: Node) -> tuple[int, ...] | None:
    """Return the columns that a map selects, each once; None for any other node."""
    if not isinstance(node.plan, Map) or isinstance(node.operator, Integrate):
        return None
    columns = [e.index for e in node.plan.expressions if isinstance(e, Column)]
    if len(columns) < len(node.plan.expressions) or len(set(columns)) < len(columns):
        return None
    return tuple(columns)


def find_dependents(graph: Graph, inputs: Collection[str]) -> set[int]:
    """Return the positions of the nodes that depend on some inputs, but not of these inputs."""
    reached: set[int] = set()
    roots = {i for i, node in enumerate(graph.nodes) if node.is_input and node.name in inputs}
    for position, node in enumerate(graph.nodes):
        if not reached.union(roots).isdisjoint(node.inputs):
            reached.add(position)
    return reached
