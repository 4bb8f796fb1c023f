"""Drawings of a graph: a tree per view, and a Mermaid flowchart of all operators.

Both show the physical plan that runs: one line, or box, per operator, with the rows that it has
emitted and the time that it has taken in all steps. An operator that several others read is drawn
once.
"""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.nodes import Scan
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator

__all__ = ["draw_mermaid", "draw_tree"]


def draw_tree(state: CircuitVersion) -> str:
    """A tree per view, then the plan of each join."""
    graph = state.graph
    lines = []
    seen: set[int] = set()
    for name, number in graph.views.items():
        lines.append(name)
        lines.extend(_branch(state, number, "", True, seen))
    relations = state.relations()
    for node in graph.nodes:
        if isinstance(node.operator, JoinOperator):
            lines += ["", f"{node.name}: {node.operator.delta_query.explain(relations)}"]
    return "\n".join(lines)


def draw_mermaid(state: CircuitVersion) -> str:
    """A flowchart; paste it where Mermaid is drawn."""
    graph = state.graph
    lines = ["flowchart TD"]
    for number, node in enumerate(graph.nodes):
        if isinstance(node.operator, Integrate):
            continue
        text = f"{node_label(graph, node)}\n{_done(state, number)}".replace('"', "#quot;").replace(
            "\n", "<br/>"
        )
        lines.append(f'    n{number}["{text}"]')
        lines += [f"    n{below} --> n{number}" for below in dict.fromkeys(node.inputs)]
    for index, (name, number) in enumerate(graph.views.items()):
        quoted = name.replace('"', "#quot;")
        lines += [f'    v{index}(["{quoted}"])', f"    n{number} --> v{index}"]
    return "\n".join(lines)


def node_label(graph: Graph, node: Node) -> str:
    """One line that says what an operator does."""
    if isinstance(node.operator, JoinOperator):
        return str(node.operator.query)
    found = node.plan.label()
    if isinstance(node.plan, Scan) and node.plan.relation in graph.checked_inputs:
        return f"{found} with {graph.checked_inputs[node.plan.relation].options}"
    return found


def _branch(
    state: CircuitVersion, number: int, indent: str, last: bool, seen: set[int]
) -> Iterator[str]:
    graph = state.graph
    node = graph.nodes[number]
    again = number in seen and bool(node.inputs)
    name = "" if isinstance(node.plan, Scan) else f"{node.name} "
    line = f"{indent}{'└─ ' if last else '├─ '}{name}{node_label(graph, node)}"
    yield f"{line}  (drawn above)" if again else f"{line}  [{_done(state, number)}]"
    if again:
        return
    seen.add(number)
    deeper = indent + ("   " if last else "│  ")
    below = list(dict.fromkeys(node.inputs))
    for place, inner in enumerate(below):
        yield from _branch(state, inner, deeper, place == len(below) - 1, seen)


def _done(state: CircuitVersion, number: int) -> str:
    rows, seconds = (state.rows[number], state.seconds[number]) if state.rows else (0, 0.0)
    return f"rows {rows:,}, {seconds * 1e3:.2f} ms"
