"""Names of state: what `explain`, `inspect`, the live page and metrics call each part of the state.

::

    e[1,0]                rows of the input e by its columns 1 and 0, which joins read
    #3f0c2a[0]            the same for the rows that an operator emits
    #3f0c2a.state[0,1]    rows that an operator keeps for itself; .state2, .state3 if it has more
    best.rows[0,1]        the rows of a materialized view or input
    #3f0c2a.row_ids       a dictionary of row ids
    text                  any other dictionary, by its kind of values

The part before the dot is the name of an input, a view or an operator
(`circuits.runtime.operator_names`). The files of a state directory have longer names
(`circuits.state.registry`), from which `StateNames.part` finds these.

An arrangement is a trace in one column order. It takes memory for the views that read it: those
with a join that reads this order, or that need the operator which keeps the rows for itself.
`StateNames.views_of` returns these views.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from circuits.plan.nodes import Scan
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operator_names import operator_kind
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.state.registry import operator_trace, relation_trace, row_ids_dictionary
from dbsp_wcoj.planning.explain import arrangement_name
from dbsp_wcoj.storage.trace import ColumnOrder

__all__ = ["ArrangementSize", "StateNames", "StatePart", "arrangement_sizes", "node_label"]


#: By the name of a node: the positions of the nodes that read its rows, with the column orders.
Readers = Mapping[str, Sequence[tuple[int, Collection[ColumnOrder]]]]


class StatePart(NamedTuple):
    """A trace or a dictionary of a circuit.

    Attributes:
        name: Its name, without a column order.
        operator: The name of the input or operator that it belongs to.
        kind: The kind of this operator; "view" for the rows of a materialized view.
        description: The work of the operator in one line.
        views: The views that depend on the operator.
    """

    name: str
    operator: str
    kind: str
    description: str
    views: tuple[str, ...]


class StateNames:
    """The names of the state of a graph, and the views that each part takes memory for.

    Args:
        graph: The operators.

    >>> from circuits import compile_sql
    >>> circuit = compile_sql(
    ...     "CREATE VIEW best AS SELECT src, max(dst) AS m FROM e GROUP BY src;"
    ...     "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src",
    ...     {"e": "src BIGINT NOT NULL, dst BIGINT NOT NULL"},
    ... )
    >>> names = StateNames(circuit.graph)
    >>> names.part("relation e").description
    'input e(src, dst)'
    >>> names.views_of("relation e", (1, 0))
    ('paths',)
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._views = graph.views_of()
        self._stored_names = {node.name: relation_trace(node.state_name) for node in graph.nodes}
        self._parts: dict[str, StatePart] = {}
        for position, node in enumerate(graph.nodes):
            self._add_parts(position, node)

    def part(self, stored_name: str) -> StatePart | None:
        """Return the part with this name in `circuits.state.registry`; None if there is none."""
        return self._parts.get(stored_name)

    def name(self, stored_name: str, order: ColumnOrder | None = None) -> str:
        """Return the name of an arrangement; without an order, that of a trace or a dictionary.

        A name that is not in this graph, such as a dictionary of values, does not change.

        >>> from circuits import compile_sql
        >>> circuit = compile_sql("SELECT src FROM e", {"e": "src bigint"})
        >>> StateNames(circuit.graph).name("relation e", (1, 0))
        'e[1,0]'
        """
        part = self._parts.get(stored_name)
        name = stored_name if part is None else part.name
        return name if order is None else arrangement_name(name, order)

    def views_of(
        self, stored_name: str, order: ColumnOrder, readers: Readers | None = None
    ) -> tuple[str, ...]:
        """Return the views for which an arrangement is kept, in the order of the program.

        Any thread may call this. Joins are planned again when relations grow, so the result may
        change between steps.

        Args:
            stored_name: The trace.
            order: The column order.
            readers: The result of `readers`, if several arrangements are asked for.
        """
        part = self._parts.get(stored_name)
        if part is None:
            return ()
        if stored_name != self._stored_names[part.operator]:
            return part.views  # the operator keeps it for itself
        reading: set[str] = set()
        planned: set[str] = set()
        all_readers = self.readers() if readers is None else readers
        for position, orders in all_readers.get(part.operator, ()):
            planned.update(self._views[position])
            if order in orders:
                reading.update(self._views[position])
        # No reader of this order: it is kept so that other orders can be built from it.
        views = reading or planned or part.views
        return tuple(name for name in self._graph.views if name in views)

    def readers(self) -> Readers:
        """Return the nodes that read the rows of each node now, with their column orders."""
        graph = self._graph
        readers: dict[str, list[tuple[int, Collection[ColumnOrder]]]] = {}
        for position, node in enumerate(graph.nodes):
            if isinstance(node.operator, JoinOperator):
                for name, orders in node.operator.delta_query.column_orders().items():
                    readers.setdefault(name, []).append((position, orders))
            elif node.name in graph.checked_inputs:
                orders = graph.checked_inputs[node.name].orders
                readers.setdefault(node.name, []).append((position, orders))
        return readers

    def _add_parts(self, position: int, node: Node) -> None:
        graph, views = self._graph, self._views[position]
        kind, description = operator_kind(node.plan), node_label(graph, node)
        part = StatePart(node.name, node.name, kind, description, views)
        self._parts[relation_trace(node.state_name)] = part
        self._parts[row_ids_dictionary(node.state_name)] = part._replace(
            name=f"{node.name}.row_ids"
        )
        if isinstance(node.operator, Integrate):
            (child,) = node.inputs
            view_names = tuple(name for name, root in graph.views.items() if root == child)
            source = view_names[0] if view_names else graph.nodes[child].name
            self._parts[operator_trace(node.state_name, 0)] = StatePart(
                f"{source}.rows",
                node.name,
                "view" if view_names else "input",
                f"materialized {'view' if view_names else 'input'} {source}",
                view_names or self._views[child],
            )
            return
        for index, _ in enumerate(getattr(node.operator, "traces", ())):
            number = index + 1 if index else ""
            name = operator_trace(node.state_name, index)
            self._parts[name] = part._replace(name=f"{node.name}.state{number}")


class ArrangementSize(NamedTuple):
    """The size of an arrangement in memory.

    Attributes:
        part: The trace.
        order: The column order.
        views: The views for which it is kept.
        runs: The rows of each of its sorted runs, with rows that are deleted but not merged away.
        bytes: The bytes of its runs.
    """

    part: StatePart
    order: ColumnOrder
    views: tuple[str, ...]
    runs: tuple[int, ...]
    bytes: int

    @property
    def name(self) -> str:
        """The name of the arrangement."""
        return arrangement_name(self.part.name, self.order)


def arrangement_sizes(state: CircuitVersion) -> list[ArrangementSize]:
    """Return the size of each arrangement; any thread may call this.

    Complexity:
        O(operators · views + arrangements · log rows).
    """
    names = StateNames(state.graph)
    readers = names.readers()
    sizes = []
    for stored_name in state.traces:
        part = names.part(stored_name)
        if part is None:
            continue
        for arrangement in state.trace(stored_name).arrangements:
            runs = arrangement.spine.runs
            sizes.append(
                ArrangementSize(
                    part,
                    arrangement.order,
                    names.views_of(stored_name, arrangement.order, readers),
                    tuple(run.rows for run in runs),
                    arrangement.spine.nbytes,
                )
            )
    return sizes


def node_label(graph: Graph, node: Node) -> str:
    """Describe the work of an operator in one line."""
    if isinstance(node.operator, JoinOperator):
        return str(node.operator.query)
    label = node.plan.label()
    if isinstance(node.plan, Scan) and node.plan.relation in graph.checked_inputs:
        return f"{label} with {graph.checked_inputs[node.plan.relation].options}"
    return label
