"""Transfer: the state of operators as tables of values, out of one circuit and into another.

::

    a join          the rows of each relation that it reads, unpacked
    other operators the rows of each of their traces, as they are laid out there

Codes that a table gave (`circuits.types.codecs.codec`) mean something in their own circuit only, so
they leave as values and get new codes where they come in; all other codes, sort columns and slots
say the same everywhere and are carried as they are. Which columns of a trace are of which kind the
operators know (``coded``). So state can be divided among circuits, or put together from several, by
any of its columns: that is how it moves between the cells of a grid
(`streaming.distributed.migration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from circuits.circuit import Circuit
from circuits.errors import SnapshotError
from circuits.plan.nodes import Fields
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.schema import WEIGHT, Schema
from circuits.state.circuit_state import State, StateStep, Strings, whole_state
from circuits.state.registry import operator_trace, relation_trace
from circuits.types.codecs.codec import Codec, dictionary_columns
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.generic_join import view_to_zset
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.zset import consolidated_rows, to_storable

__all__ = [
    "OperatorState",
    "StateImport",
    "coded_columns",
    "import_states",
    "operator_of",
    "relation_of",
    "state_of",
    "tables_of",
]

#: A table for each relation of a join, or for each trace; None for a relation that is not kept.
OperatorState = tuple[pa.Table | None, ...]


def operator_of(circuit: Circuit) -> int:
    """The number of the one operator of a circuit that keeps state.

    Raises:
        SnapshotError: There are several, or none.
    """
    nodes = circuit.graph.nodes
    found = [
        number
        for number, node in enumerate(nodes)
        if isinstance(node.operator, JoinOperator) or len(_traces_of(node))
    ]
    if len(found) != 1:
        raise SnapshotError(f"{len(found)} operators of the circuit keep state: give one of one")
    return found[0]


def state_of(circuit: Circuit, number: int) -> OperatorState:
    """The state of an operator: rows and ``weight``, columns by position.

    Args:
        circuit: Where the operator is.
        number: Its place among the nodes of the circuit's graph.

    Complexity:
        O(rows).
    """
    graph = circuit.graph
    node = graph.nodes[number]
    if isinstance(node.operator, JoinOperator):
        return tuple(_relation_rows(circuit, graph.nodes[below]) for below in node.inputs)
    coded = coded_columns(circuit, number)
    return tuple(map(_trace_rows, _traces_of(node), coded))


def relation_of(circuit: Circuit, name: str) -> pa.Table | None:
    """The rows of an input that its rules, or joins, keep; None if nobody does."""
    (node,) = (n for n in circuit.graph.nodes if n.operator is None and n.name == name)
    return _relation_rows(circuit, node)


def tables_of(circuit: Circuit) -> dict[str, Strings]:
    """The values of the codecs' tables, in the order of their codes."""
    interners = circuit.codecs.interners
    return {name: table.arena() for name, table in interners.items() if len(table)}


def import_states(circuit: Circuit, tables: Mapping[str, Strings]) -> Circuit:
    """A circuit without state, in which these values have the codes that they had."""
    circuit.load(State(0, {}, {name: [strings] for name, strings in tables.items()}))
    return circuit


def coded_columns(circuit: Circuit, number: int) -> tuple[Mapping[int, Codec], ...]:
    """Of each trace of an operator the columns whose codes are those of a table."""
    node = circuit.graph.nodes[number]
    found = getattr(node.operator, "coded", None)
    if found is not None:
        return tuple(found)
    # Distinct and the like keep rows as they are.
    return (dictionary_columns([circuit.codecs.codec(field.type) for field in node.plan.fields]),)


class StateImport:
    """A circuit, without state so far, that is given the state of operator after operator.

    Args:
        circuit: It may have values in its tables, whose codes stay.
        steps: How many steps are said to have made the state.
        marks: Those of its inputs' rules.
    """

    def __init__(self, circuit: Circuit, *, steps: int, marks: Mapping[str, int]) -> None:
        self._circuit = circuit
        self._steps = steps
        self._marks = marks
        self._traces: dict[str, ZSet] = {}

    @property
    def _graph(self) -> Graph:
        return self._circuit.graph

    def give(self, number: int, state: OperatorState) -> None:
        """Take the state of an operator, as `state_of` gives that of one like it.

        Raises:
            SnapshotError: A relation that another operator reads, too, came with other rows.
        """
        node = self._graph.nodes[number]
        if isinstance(node.operator, JoinOperator):
            for below, table in zip(node.inputs, state, strict=True):
                self._relation(self._graph.nodes[below], table)
            return
        traces = self._graph.traces
        coded = coded_columns(self._circuit, number)
        for index, (table, columns) in enumerate(zip(state, coded, strict=True)):
            assert table is not None
            name = operator_trace(node.state_name, index)
            self._traces[name] = _rows_of(table, columns, traces[name].arity)

    def give_relation(self, name: str, table: pa.Table | None) -> None:
        """Take the rows of an input.

        Raises:
            SnapshotError: As `give`.
        """
        (node,) = (n for n in self._graph.nodes if n.operator is None and n.name == name)
        self._relation(node, table)

    def filled(self) -> StateStep:
        """The circuit has the state now; return it as one step from nothing, to be written.

        Raises:
            SnapshotError: The state of an operator is missing.
        """
        needed = {name for name, trace in self._graph.traces.items() if trace.orders}
        missing = needed - self._traces.keys()
        if missing:
            raise SnapshotError(f"the state lacks {', '.join(sorted(missing))}: give all of it")
        traces = {}
        for name in self._graph.traces:
            zset = self._traces.get(name)
            some = zset is not None and len(zset) and self._graph.traces[name].orders
            order = tuple(range(self._graph.traces[name].arity))
            traces[name] = {order: [build_run(zset, order)]} if some and zset else {}
        tables = {
            name: [table.arena()]
            for name, table in self._graph.registry.tables.items()
            if len(table)
        }
        self._circuit.load(State(max(self._steps - 1, 0), traces, tables, self._marks))
        return whole_state(self._graph)

    def _relation(self, node: Node, table: pa.Table | None) -> None:
        name = relation_trace(node.state_name)
        if table is None or name not in self._graph.traces:
            return
        operator = node.operator
        packed = isinstance(operator, RowIdEncodeOperator)
        fields = self._graph.nodes[node.inputs[0]].plan.fields if packed else node.plan.fields
        schema = _schema(fields)
        zset = schema.to_zset(table.rename_columns(schema.arrow.names), self._circuit.codecs)
        if isinstance(operator, RowIdEncodeOperator):
            zset = operator.evaluate([zset])
        zset = to_storable(zset)
        known = self._traces.setdefault(name, zset)
        if known is not zset and known != zset:
            raise SnapshotError(
                f"{name} has {len(known)} rows for one operator and {len(zset)} others, or other "
                "ones, for another: the parts of the state are not of one moment"
            )


def _traces_of(node: Node) -> tuple[Trace, ...]:
    return tuple(getattr(node.operator, "traces", ()))


def _relation_rows(circuit: Circuit, node: Node) -> pa.Table | None:
    graph = circuit.graph
    trace = graph.traces.get(relation_trace(node.state_name))
    if trace is None or not trace.orders:
        return None
    zset, fields = view_to_zset(trace, len(node.plan.fields)), node.plan.fields
    if isinstance(node.operator, RowIdEncodeOperator):
        fields = graph.nodes[node.inputs[0]].plan.fields
        kept = len(node.plan.fields) - 1
        zset = RowIdDecodeOperator([(kept, node.operator)], len(fields)).evaluate([zset])
    return _schema(fields).to_table(zset, circuit.codecs)


def _schema(fields: Fields) -> Schema:
    return Schema("state", tuple(replace(f, name=f"c{k}") for k, f in enumerate(fields)))


def _trace_rows(trace: Trace, coded: Mapping[int, Codec]) -> pa.Table:
    zset = ZSet.empty(trace.arity) if trace.is_empty else trace.to_zset()
    columns = [
        coded[place].decode(np.ascontiguousarray(row)) if place in coded else pa.array(row)
        for place, row in enumerate(zset.rows)
    ]
    names = [*(f"c{place}" for place in range(trace.arity)), WEIGHT]
    return pa.table([*columns, pa.array(zset.weights)], names)


def _rows_of(table: pa.Table, coded: Mapping[int, Codec], arity: int) -> ZSet:
    rows = np.empty((arity, table.num_rows), np.int64)
    for place in range(arity):
        column = table.column(place)
        rows[place] = coded[place].encode(column) if place in coded else column.to_numpy()
    return consolidated_rows(rows, table.column(WEIGHT).to_numpy().copy())
