"""Migration: move the state of operators from one circuit to another.

The state is exported as tables of values::

    a join             a table of the rows of each relation that it reads; the columns that a row
                       id replaces are in the table again
    another operator   a table of the rows of each of its traces, with the columns of the trace

Codes of a dictionary (`circuits.types.codecs.codec`) are valid in their own circuit only. The
export decodes them to values and the import assigns new codes. All other numbers in a trace are the
same in every circuit and are copied unchanged. The attribute ``coded_columns`` of an operator lists
the columns with codes of dictionaries. So state can be divided among circuits, or merged from
several, by any of its columns. The circuits on Spark executors exchange state in this way
(`streaming.distributed.migration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from circuits.circuit import Circuit
from circuits.errors import SnapshotError
from circuits.plan.nodes import Fields, Scan, TopK
from circuits.plan.traversal import read_relations
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.operators.top_k import TopKOperator
from circuits.schema import WEIGHT, Schema
from circuits.state.circuit_state import State, StateStep, whole_state
from circuits.state.coded_columns import operator_coded_columns
from circuits.state.registry import operator_trace, relation_trace
from circuits.types.codecs.codec import Codec, Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.generic_join import relation_to_zset
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder, build_run
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.zset import consolidated_rows, to_storable

__all__ = [
    "OperatorState",
    "RecursionNode",
    "StateImport",
    "coded_columns",
    "export_dictionaries",
    "export_recursion",
    "export_relation",
    "export_selected_rows",
    "export_state",
    "find_integral",
    "find_recursion",
    "find_stateful_operator",
    "import_dictionaries",
    "recursion_nodes",
    "top_k_input_columns",
]

#: A table for each relation of a join, or for each trace; None for a relation without a trace.
OperatorState = tuple[pa.Table | None, ...]

#: The position of a node of a recursion, and whether it is an input of it. None for a node without
#: state that only some circuits of the recursion have.
RecursionNode = tuple[int | None, bool]


def find_stateful_operator(circuit: Circuit) -> int:
    """Return the node number of the only operator of a circuit that has state.

    Raises:
        SnapshotError: The number of operators with state is not one.
    """
    nodes = circuit.graph.nodes
    stateful = [
        number
        for number, node in enumerate(nodes)
        if isinstance(node.operator, JoinOperator) or len(_traces_of(node))
    ]
    if len(stateful) != 1:
        raise SnapshotError(
            f"{len(stateful)} operators of the circuit have state: give a circuit with exactly one "
            "such operator"
        )
    return stateful[0]


def find_integral(circuit: Circuit, name: str) -> int:
    """Return the node number of the operator that keeps the rows of a materialized relation.

    Args:
        circuit: The circuit.
        name: A materialized view or input.
    """
    graph = circuit.graph
    position = graph.views.get(name)
    if position is None:
        position = next(
            n for n, node in enumerate(graph.nodes) if node.operator is None and node.name == name
        )
    return next(
        number
        for number, node in enumerate(graph.nodes)
        if isinstance(node.operator, Integrate) and node.inputs == (position,)
    )


def export_state(circuit: Circuit, number: int) -> OperatorState:
    """Return the state of an operator as tables of rows with ``weight``, columns by position.

    Args:
        circuit: The circuit of the operator.
        number: The position of the operator among the nodes of the circuit's graph.

    Complexity:
        O(rows).
    """
    graph = circuit.graph
    node = graph.nodes[number]
    if isinstance(node.operator, JoinOperator):
        return tuple(_relation_rows(circuit, graph.nodes[position]) for position in node.inputs)
    coded = coded_columns(circuit, number)
    return tuple(_trace_rows(*part) for part in zip(_traces_of(node), coded, strict=True))


def export_recursion(circuit: Circuit, nodes: Sequence[RecursionNode]) -> OperatorState:
    """Return the state of all operators of a recursion, in the order of its nodes.

    It includes the rows of the inputs and views that the recursion reads, if it keeps them.

    Args:
        circuit: The circuit.
        nodes: The nodes of the recursion (`recursion_nodes`).

    Complexity:
        O(rows).
    """
    state: list[pa.Table | None] = []
    for position, is_outside in nodes:
        if position is None:
            state.append(None)
            continue
        node = circuit.graph.nodes[position]
        state.append(_relation_rows(circuit, node))
        if not is_outside:
            coded = coded_columns(circuit, position)
            state += [_trace_rows(*part) for part in zip(_traces_of(node), coded, strict=True)]
    return tuple(state)


def export_selected_rows(circuit: Circuit, number: int) -> pa.Table:
    """Return the rows that a top-k selects, as `export_state` returns those of its first trace.

    Args:
        circuit: The circuit.
        number: The position of the node of the top-k.

    Complexity:
        O(rows of the state).
    """
    operator = circuit.graph.nodes[number].operator
    assert isinstance(operator, TopKOperator)
    return _exported(operator.select_stored(), coded_columns(circuit, number)[0])


def top_k_input_columns(plan: TopK, rows: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of the input of a top-k, from exported rows of its first trace.

    Columns with codes of dictionaries are values, the others are codes.

    Args:
        plan: The top-k.
        rows: The rows, as `export_state` returns them.
    """
    fields = plan.input.fields
    order = RowOrder(fields, plan.keys, plan.order, Codecs(), sorts_ties=True)
    columns = []
    for position in range(len(fields)):
        stored, sort_column = order.find_column(position)
        column = rows.column(stored)
        if sort_column is not None:
            column = pa.chunked_array([pa.array(sort_column.codes_of(column.to_numpy()))])
        columns.append(column)
    return columns


def find_recursion(graph: Graph) -> int:
    """Return the position of the node of a recursion, in a graph with one, and the inner ones."""
    return max(graph.nested_circuits)


def recursion_nodes(graph: Graph, number: int) -> list[tuple[int, bool]]:
    """Return the positions of the nodes of a recursion, and whether each is an input of it.

    The inputs are the relations and views that the recursion reads. The order follows from the plan
    of the recursion.

    Args:
        graph: The graph.
        number: The position of the node of a relation of the recursion.
    """
    inputs = {node.name: n for n, node in enumerate(graph.nodes) if isinstance(node.plan, Scan)}
    read = read_relations(graph.nodes[number].plan)
    outside = {inputs[name] if name in inputs else graph.views[name] for name in read}
    found: dict[int, bool] = {}
    pending = [number]
    while pending:
        position = pending.pop()
        if position in found:
            continue
        found[position] = position in outside
        if position not in outside:
            nested = graph.nested_circuits.get(position)
            further = graph.nodes[position].inputs if nested is None else nested.results
            pending += reversed(further)
    return [*found.items()]


def export_relation(circuit: Circuit, name: str) -> pa.Table | None:
    """Return the rows of an input if a join or an option of the input keeps them, else None."""
    (node,) = (n for n in circuit.graph.nodes if n.operator is None and n.name == name)
    return _relation_rows(circuit, node)


def export_dictionaries(circuit: Circuit) -> dict[str, CodedStrings]:
    """Return the values of the codecs' dictionaries, in the order of their codes."""
    interners = circuit.codecs.interners
    return {name: interner.arena() for name, interner in interners.items() if len(interner)}


def import_dictionaries(circuit: Circuit, dictionaries: Mapping[str, CodedStrings]) -> Circuit:
    """Load dictionaries into a circuit without state; the values keep their codes."""
    circuit.load(State(0, {}, {name: [strings] for name, strings in dictionaries.items()}))
    return circuit


def coded_columns(circuit: Circuit, number: int) -> tuple[Mapping[int, Codec], ...]:
    """Return, for each trace of an operator, the columns whose codes belong to a dictionary."""
    return operator_coded_columns(circuit.graph.nodes[number], circuit.codecs)


class StateImport:
    """Imports the states of operators, one by one, into a circuit without state.

    Args:
        circuit: The circuit. Its dictionaries may have values, which keep their codes.
        steps: The number of steps to record for the state.
        watermarks: The watermarks of the inputs.
    """

    def __init__(self, circuit: Circuit, *, steps: int, watermarks: Mapping[str, int]) -> None:
        self._circuit = circuit
        self._steps = steps
        self._watermarks = watermarks
        self._traces: dict[str, ZSet] = {}

    @property
    def _graph(self) -> Graph:
        return self._circuit.graph

    def add_operator(self, number: int, state: OperatorState) -> None:
        """Add the state of an operator, exported from an equal operator by `export_state`.

        Raises:
            SnapshotError: Another operator reads the same relation and its state has other rows.
        """
        node = self._graph.nodes[number]
        if isinstance(node.operator, JoinOperator):
            for position, table in zip(node.inputs, state, strict=True):
                self._add_rows(self._graph.nodes[position], table)
            return
        self._add_traces(node, number, state)

    def _add_traces(self, node: Node, number: int, state: Sequence[pa.Table | None]) -> None:
        traces = self._graph.traces
        coded = coded_columns(self._circuit, number)
        for index, (table, columns) in enumerate(zip(state, coded, strict=True)):
            assert table is not None
            name = operator_trace(node.state_name, index)
            self._traces[name] = _rows_of(table, columns, traces[name].arity)

    def add_recursion(self, nodes: Sequence[RecursionNode], state: OperatorState) -> None:
        """Add the state of a recursion, exported from an equal recursion by `export_recursion`.

        Args:
            nodes: The nodes of the recursion (`recursion_nodes`).
            state: The state.

        Raises:
            SnapshotError: The recursion has other operators, or another operator reads the same
                relation and its state has other rows.
        """
        counts = [
            0 if position is None or outside else len(_traces_of(self._graph.nodes[position]))
            for position, outside in nodes
        ]
        if len(nodes) + sum(counts) != len(state):
            raise SnapshotError(
                f"the recursion has {len(nodes) + sum(counts)} parts of state, and {len(state)} "
                "are given: give the state of an equal recursion"
            )
        tables = iter(state)
        for (position, _), count in zip(nodes, counts, strict=True):
            rows = next(tables)
            if position is None:
                continue
            node = self._graph.nodes[position]
            self._add_rows(node, rows)
            if count:
                self._add_traces(node, position, [next(tables) for _ in range(count)])

    def add_relation(self, name: str, table: pa.Table | None) -> None:
        """Add the rows of an input.

        Raises:
            SnapshotError: As `add_operator`.
        """
        (node,) = (n for n in self._graph.nodes if n.operator is None and n.name == name)
        self._add_rows(node, table)

    def finish(self) -> StateStep:
        """Load the state into the circuit, and return it for a store that has no state yet.

        Raises:
            SnapshotError: The state of an operator is missing.
        """
        needed = {name for name, trace in self._graph.traces.items() if trace.orders}
        missing = needed - self._traces.keys()
        if missing:
            raise SnapshotError(
                f"the state lacks {', '.join(sorted(missing))}: add the states of all operators"
            )
        traces: dict[str, dict[ColumnOrder, list[Run]]] = {}
        for name in self._graph.traces:
            zset = self._traces.get(name)
            order = tuple(range(self._graph.traces[name].arity))
            traces[name] = {}
            if zset is not None and len(zset) and self._graph.traces[name].orders:
                traces[name] = {order: [build_run(zset, order)]}
        dictionaries = {
            name: [dictionary.arena()]
            for name, dictionary in self._graph.registry.dictionaries.items()
            if len(dictionary)
        }
        # `whole_state` returns the number of the next step, so the circuit starts one step earlier.
        self._circuit.load(State(max(self._steps - 1, 0), traces, dictionaries, self._watermarks))
        return whole_state(self._graph)

    def _add_rows(self, node: Node, table: pa.Table | None) -> None:
        name = relation_trace(node.state_name)
        if table is None or name not in self._graph.traces:
            return
        operator = node.operator
        encoded = isinstance(operator, RowIdEncodeOperator)
        fields = self._graph.nodes[node.inputs[0]].plan.fields if encoded else node.plan.fields
        schema = _schema(fields)
        zset = schema.to_zset(table.rename_columns(schema.arrow.names), self._circuit.codecs)
        if isinstance(operator, RowIdEncodeOperator):
            zset = operator.evaluate([zset])
        zset = to_storable(zset)
        first_rows = self._traces.setdefault(name, zset)  # of the first operator that reads them
        if first_rows is not zset and first_rows != zset:
            raise SnapshotError(
                f"two operators have different rows of {name} ({len(first_rows)} and {len(zset)} "
                "rows): export all states at the same step"
            )


def _traces_of(node: Node) -> tuple[Trace, ...]:
    return tuple(getattr(node.operator, "traces", ()))


def _relation_rows(circuit: Circuit, node: Node) -> pa.Table | None:
    graph = circuit.graph
    trace = graph.traces.get(relation_trace(node.state_name))
    if trace is None or not trace.orders:
        return None
    zset, fields = relation_to_zset(trace, len(node.plan.fields)), node.plan.fields
    if isinstance(node.operator, RowIdEncodeOperator):
        fields = graph.nodes[node.inputs[0]].plan.fields
        row_id_column = len(node.plan.fields) - 1
        row_ids = [(row_id_column, node.operator)]
        zset = RowIdDecodeOperator(row_ids, len(fields)).evaluate([zset])
    return _schema(fields).to_table(zset, circuit.codecs)


def _schema(fields: Fields) -> Schema:
    return Schema("state", tuple(replace(f, name=f"c{k}") for k, f in enumerate(fields)))


def _trace_rows(trace: Trace, coded: Mapping[int, Codec]) -> pa.Table:
    return _exported(ZSet.empty(trace.arity) if trace.is_empty else trace.to_zset(), coded)


def _exported(zset: ZSet, coded: Mapping[int, Codec]) -> pa.Table:
    columns = [
        coded[index].decode(np.ascontiguousarray(codes)) if index in coded else pa.array(codes)
        for index, codes in enumerate(zset.rows)
    ]
    names = [*(f"c{index}" for index in range(zset.arity)), WEIGHT]
    return pa.table([*columns, pa.array(zset.weights)], names)


def _rows_of(table: pa.Table, coded: Mapping[int, Codec], arity: int) -> ZSet:
    rows = np.empty((arity, table.num_rows), np.int64)
    for index in range(arity):
        column = table.column(index)
        rows[index] = coded[index].encode(column) if index in coded else column.to_numpy()
    return consolidated_rows(rows, table.column(WEIGHT).to_numpy().copy())
