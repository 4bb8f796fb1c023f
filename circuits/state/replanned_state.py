"""Replanned state: load the state of views that another version computed by another plan.

A trace is named by the structural hash of the plan of its rows
(`circuits.plan.structural_hash`). If a new version of this library compiles the same text to
another plan, the stored state has some of the traces of the new plan, above all the materialized
inputs, and lacks the others. The traces that it has are loaded, and the change of the program
(`circuits.state.program_change`) computes the others.

Rows before a watermark may have been dropped from a stored trace, by a bound that depends on the
old plan (`circuits.runtime.state_bounds`). So if an input has an event time that bounds the state,
only the materialized relations are loaded, which keep their rows.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.circuit import Circuit
from circuits.runtime.graph import Graph
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.state.circuit_state import State
from circuits.state.registry import is_row_ids, operator_trace, relation_trace, row_ids_dictionary

__all__ = ["load_replanned_state"]


def load_replanned_state(circuit: Circuit, state: State) -> set[str]:
    """Load the parts of a state that a circuit also has.

    Args:
        circuit: A circuit of the same views and inputs, without rows.
        state: The state of another plan of them.

    Returns:
        The traces of the circuit that do not have their rows.

    Raises:
        SnapshotError: The state does not fit.
    """
    graph = circuit.graph
    needed = {name for name, trace in graph.traces.items() if trace.orders}
    lacking = needed - state.traces.keys()
    if graph.state_bounds is not None:
        lacking |= needed - _materialized_traces(graph)
    row_ids = set()
    for node in graph.nodes:
        if isinstance(node.operator, RowIdEncodeOperator):
            trace, dictionary = relation_trace(node.state_name), row_ids_dictionary(node.state_name)
            if dictionary not in state.dictionaries:
                lacking |= needed & {trace}
            if trace not in lacking:
                row_ids.add(dictionary)
    traces = {
        name: dict.fromkeys(graph.traces[name].orders, ())
        if name in lacking
        else state.traces[name]
        for name in needed
    }
    names = [name for name in state.dictionaries if not is_row_ids(name) or name in row_ids]
    circuit.load(
        replace(
            state,
            traces=traces,
            dictionaries={name: state.dictionaries[name] for name in names},
            lengths={name: state.lengths[name] for name in names if name in state.lengths},
        )
    )
    return lacking


def _materialized_traces(graph: Graph) -> set[str]:
    """Return the traces of the relations that are kept whole."""
    return {
        operator_trace(node.state_name, 0)
        for node in graph.nodes
        if isinstance(node.operator, Integrate)
    }
