"""Reuse: which state of a program the next version of the program keeps.

The name of an operator's state is the structural hash of its plan
(`circuits.plan.structural_hash`), so equal sub-plans of two programs have state of the same name.
But a hash contains the names of inputs and not their columns, because a plan reads columns by
position. This module computes, for each node of the new graph, the hash that its plan has in the
old program::

    input                        its hash, if it has the same columns
    map of an input              the hash of the map with the old positions of the columns that it
                                 reads, if all of these are in the old input with their types
    any other node               the hash over the old hashes of its inputs
    a node of a recursion        its hash, if all inputs of the recursion are unchanged

So an input with another column changes only the state of the operators that read this column, or
whole rows. If the old graph has a node of that hash, both nodes have equal rows, and the new one
takes over its state.

A trace from which rows before a watermark have been dropped (`circuits.runtime.state_bounds`) is
taken over only if the new graph drops rows by the same bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace

from circuits.plan.expressions import Column, Expression, columns_of, substitute
from circuits.plan.nodes import Filter, Fixpoint, Map
from circuits.plan.structural_hash import hash_values, structural_hash
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.runtime.operators.user_call import UserCallOperator
from circuits.state.registry import operator_trace, relation_trace, row_ids_dictionary

__all__ = ["Reuse", "is_partial"]

#: By the position of a column in a node of the new graph, its position in the old graph.
ColumnMap = Mapping[int, int]


class Reuse:
    """The nodes of two graphs that have equal rows, and the state that the new graph takes over.

    Args:
        old: The graph of the old program.
        new: The graph of the new program.
        lacking: The traces of the old graph that do not have their rows.

    Attributes:
        old: As given.
        new: As given.
        nodes: The position of the equal node of the old graph, by the position in the new graph.
        traces: The name of the old trace, by the name of the new trace that takes it over.

    Complexity:
        O(nodes + traces).
    """

    def __init__(self, old: Graph, new: Graph, lacking: Collection[str] = ()) -> None:
        self.old = old
        self.new = new
        self._lacking = lacking
        self._old_inputs = {node.name: node for node in old.nodes if node.is_input}
        self._hashes: list[str | None] = [None] * len(new.nodes)
        # Inputs whose columns are not those of the old input, and filters over them: the hash of
        # the old node, and the columns that both have.
        self._narrowed: dict[int, tuple[str, ColumnMap]] = {}
        for position, node in enumerate(new.nodes):
            if not node.is_nested:
                self._hashes[position] = self._old_hash(position, node)
        for circuit in new.recursions:
            if all(self._is_unchanged(position) for position in circuit.outside):
                for position in (*circuit.references, *circuit.order):
                    self._hashes[position] = new.nodes[position].hash
        old_positions = {node.hash: position for position, node in enumerate(old.nodes)}
        self.nodes = {
            position: old_positions[hash]
            for position, hash in enumerate(self._hashes)
            if hash is not None and hash in old_positions
        }
        self.traces = self._reused_traces()

    @property
    def joins(self) -> dict[str, str]:
        """By the state name of a new join: the state name of the equal old join."""
        joins = self.new.registry.joins
        return {
            self.new.nodes[position].state_name: self.old.nodes[old_position].state_name
            for position, old_position in self.nodes.items()
            if self.new.nodes[position].state_name in joins
        }

    @property
    def row_ids(self) -> set[str]:
        """The names of the dictionaries of row ids that equal nodes have under the same name."""
        return {
            row_ids_dictionary(self.new.nodes[position].state_name)
            for position, old_position in self.nodes.items()
            if isinstance(self.new.nodes[position].operator, RowIdEncodeOperator)
            and relation_trace(self.old.nodes[old_position].state_name) not in self._lacking
            and self.new.nodes[position].state_name == self.old.nodes[old_position].state_name
        }

    def share_row_ids(self) -> None:
        """Give the equal nodes of both graphs the same row ids; the new graph adds to them."""
        for position, old_position in self.nodes.items():
            encoder = self.new.nodes[position].operator
            old_encoder = self.old.nodes[old_position].operator
            if isinstance(encoder, RowIdEncodeOperator):
                assert isinstance(old_encoder, RowIdEncodeOperator)
                encoder.dictionary = old_encoder.dictionary
        self.new.forget_registry()

    def share_results(self) -> None:
        """Let a backfill use the stored results of user-defined functions.

        Without them, it would call the functions again, and its rows would not be those of the
        state that the new graph takes over. `end_sharing_results` ends this.
        """
        for position, old_position in self.nodes.items():
            operator = self.new.nodes[position].operator
            if isinstance(operator, UserCallOperator):
                old_node = self.old.nodes[old_position]
                assert isinstance(old_node.operator, UserCallOperator)
                results = old_node.operator.trace
                is_lacking = operator_trace(old_node.state_name, 0) in self._lacking
                operator.known_results = results if results.orders and not is_lacking else None

    def end_sharing_results(self) -> None:
        """Let the new graph use its own results only, from its first step on."""
        for node in self.new.nodes:
            if isinstance(node.operator, UserCallOperator):
                node.operator.known_results = None

    def _is_unchanged(self, position: int) -> bool:
        return self._hashes[position] == self.new.nodes[position].hash

    def _old_hash(self, position: int, node: Node) -> str | None:
        """Return the hash of a node in the old program; None if the old program cannot have it."""
        plan = node.plan
        if node.is_input:
            return self._old_hash_of_input(position, node)
        if isinstance(node.operator, Integrate):
            hash = self._hashes[node.inputs[0]]
            is_retained = position in self.new.retained
            return None if hash is None else hash_values("Integrate", hash, is_retained)
        if isinstance(plan, Fixpoint):
            circuit = self.new.nested_circuits[position]
            return node.hash if all(map(self._is_unchanged, circuit.outside)) else None
        narrowed = self._narrowed.get(node.inputs[0]) if len(node.inputs) == 1 else None
        if narrowed is not None and isinstance(plan, Filter | Map):
            return self._old_hash_of_narrowed(position, plan, *narrowed)
        if all(map(self._is_unchanged, node.inputs)):
            return node.hash
        inputs, references = [], []
        for i in node.inputs:
            inputs.append(self._hashes[i])
        for reference in plan.references:
            references.append(self._hashes[self.new.add(reference)])
        known_inputs = [hash for hash in inputs if hash is not None]
        known_references = [hash for hash in references if hash is not None]
        if len(known_inputs) < len(inputs) or len(known_references) < len(references):
            return None
        return structural_hash(plan, known_inputs, known_references)

    def _old_hash_of_input(self, position: int, node: Node) -> str | None:
        old = self._old_inputs.get(node.name)
        if old is None:
            return None
        old_columns = {field.name: index for index, field in enumerate(old.plan.fields)}
        columns = {}
        for index, field in enumerate(node.plan.fields):
            old_index = old_columns.get(field.name)
            if old_index is None:
                continue
            old_field = old.plan.fields[old_index]
            is_stricter = old_field.nullable and not field.nullable
            if old_field.type == field.type and not is_stricter:
                columns[index] = old_index
        is_same_width = len(columns) == len(old.plan.fields) == len(node.plan.fields)
        if is_same_width and all(index == old_index for index, old_index in columns.items()):
            return node.hash
        self._narrowed[position] = node.hash, columns
        return None

    def _old_hash_of_narrowed(
        self, position: int, plan: Filter | Map, hash: str, columns: ColumnMap
    ) -> str | None:
        """Return the old hash of a map over an input whose columns have changed.

        A filter has the same changed columns as its input, so it equals no old node. The hash of
        the old filter is recorded, for the maps over it.
        """
        expressions = plan.expressions if isinstance(plan, Map) else (plan.predicate,)
        if not set().union(*map(columns_of, expressions)) <= columns.keys():
            return None

        def old_column(column: Column) -> Expression:
            return Column(columns[column.index], column.type)

        if isinstance(plan, Map):
            mapped = tuple(substitute(expression, old_column) for expression in expressions)
            return structural_hash(replace(plan, expressions=mapped), (hash,))
        filtered = replace(plan, predicate=substitute(plan.predicate, old_column))
        self._narrowed[position] = structural_hash(filtered, (hash,)), columns
        return None

    def _reused_traces(self) -> dict[str, str]:
        """Return the old name of each new trace that takes over an old one."""
        reused = {}
        hash_of_new = self._hashes.__getitem__
        for position, old_position in self.nodes.items():
            node, old_node = self.new.nodes[position], self.old.nodes[old_position]
            pairs = []
            old_bound = _bound_of_relation(self.old, old_position, self._hash_of_old)
            if old_bound in (None, _bound_of_relation(self.new, position, hash_of_new)):
                pairs.append((relation_trace(node.state_name), relation_trace(old_node.state_name)))
            old_bound = _bound_of_operator(self.old, old_position, self._hash_of_old)
            if old_bound in (None, _bound_of_operator(self.new, position, hash_of_new)):
                count = len(getattr(node.operator, "traces", ()))
                pairs += [
                    (
                        operator_trace(node.state_name, index),
                        operator_trace(old_node.state_name, index),
                    )
                    for index in range(count)
                ]
            for name, old_name in pairs:
                trace, old_trace = self.new.traces.get(name), self.old.traces.get(old_name)
                if old_name in self._lacking:
                    continue
                if trace is not None and old_trace is not None and old_trace.orders:
                    assert trace.arity == old_trace.arity
                    reused[name] = old_name
        return reused

    def _hash_of_old(self, old_position: int) -> str:
        return self.old.nodes[old_position].hash


def is_partial(graph: Graph, position: int) -> bool:
    """Return True if the trace that joins read does not have all rows of a node any more."""
    return graph.state_bounds is not None and position in graph.state_bounds.relation_bounds


def _bound_of_relation(
    graph: Graph, position: int, hash_of_node: Callable[[int], str | None]
) -> Hashable | None:
    """Return by which bound rows of a node are dropped from its trace; None for none."""
    bound = None if graph.state_bounds is None else graph.state_bounds.relation_bounds.get(position)
    return None if bound is None else (bound.column, bound.frontier.key(hash_of_node))


def _bound_of_operator(
    graph: Graph, position: int, hash_of_node: Callable[[int], str | None]
) -> Hashable | None:
    """Return by which bounds rows are dropped from the traces of an operator; None for none."""
    bounds = graph.state_bounds
    if bounds is None:
        return None
    sessions = bounds.sessions.get(position)
    if sessions is not None:
        return sessions.frontier.key(hash_of_node)
    traces = bounds.operators.get(position, ())
    return tuple((bound.column, bound.frontier.key(hash_of_node)) for bound in traces) or None
