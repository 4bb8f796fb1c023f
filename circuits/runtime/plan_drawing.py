"""Drawings of a graph: a tree per view, and a Mermaid flowchart of all operators.

Both show the physical plan. Each operator has one line or one box, with the number of rows that it
has emitted and the time that it has taken in all steps. An operator that several others read is
drawn once; other trees refer to it. Below the trees are the plans of the joins, and the
arrangements with their sizes and the views that need them.
"""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.nodes import Scan
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.state_names import ArrangementSize, arrangement_sizes, node_label
from circuits.runtime.state_sizes import describe_state
from dbsp_wcoj.planning.explain import describe_runs

__all__ = ["draw_mermaid", "draw_tree"]


def draw_tree(state: CircuitVersion) -> str:
    """Draw a tree per view, the plans of joins, the arrangements, and the bounds of the state."""
    graph = state.graph
    lines = []
    drawn: set[int] = set()
    for name, position in graph.views.items():
        lines.append(name)
        lines.extend(_draw_branch(state, position, "", True, drawn))
    relations = state.relations()
    for node in graph.nodes:
        if isinstance(node.operator, JoinOperator):
            plan = node.operator.delta_query.explain(relations, arrangements=False)
            lines += ["", f"{node.name}: {plan}"]
    arrangements = arrangement_sizes(state)
    if arrangements:
        lines += ["", "arrangements", *map(_describe_arrangement, arrangements)]
    sizes = describe_state(state)
    if sizes:
        lines += ["", "state", *(f"   {line}" for line in sizes)]
    return "\n".join(lines)


def draw_mermaid(state: CircuitVersion) -> str:
    """Draw a flowchart of all operators, as Mermaid text."""
    graph = state.graph
    lines = ["flowchart TD"]
    for position, node in enumerate(graph.nodes):
        if isinstance(node.operator, Integrate):
            continue
        text = f"{node_label(graph, node)}\n{_work_text(state, position)}"
        text = text.replace('"', "#quot;").replace("\n", "<br/>")
        lines.append(f'    n{position}["{text}"]')
        lines += [f"    n{i} --> n{position}" for i in dict.fromkeys(node.inputs)]
    for index, (name, position) in enumerate(graph.views.items()):
        quoted = name.replace('"', "#quot;")
        lines += [f'    v{index}(["{quoted}"])', f"    n{position} --> v{index}"]
    return "\n".join(lines)


def _describe_arrangement(size: ArrangementSize) -> str:
    views, runs = ", ".join(size.views), describe_runs(size.runs)
    return f"  {size.name} for {views}  {runs}; {size.bytes:,} bytes"


def _draw_branch(
    state: CircuitVersion, position: int, indent: str, is_last: bool, drawn: set[int]
) -> Iterator[str]:
    graph = state.graph
    node = graph.nodes[position]
    is_drawn = position in drawn and bool(node.inputs)
    name = "" if isinstance(node.plan, Scan) else f"{node.name} "
    line = f"{indent}{'└─ ' if is_last else '├─ '}{name}{node_label(graph, node)}"
    yield f"{line}  (drawn above)" if is_drawn else f"{line}  [{_work_text(state, position)}]"
    if is_drawn:
        return
    drawn.add(position)
    child_indent = indent + ("   " if is_last else "│  ")
    children = list(dict.fromkeys(node.inputs))
    for index, child in enumerate(children):
        yield from _draw_branch(state, child, child_indent, index == len(children) - 1, drawn)


def _work_text(state: CircuitVersion, position: int) -> str:
    rows, seconds = (state.rows[position], state.seconds[position]) if state.rows else (0, 0.0)
    return f"rows {rows:,}, {seconds * 1e3:.2f} ms"
