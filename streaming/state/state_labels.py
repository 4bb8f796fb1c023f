"""State labels: describe each part of a circuit's state by the operator that keeps it.

The state of an operator is stored under the hash of its plan (`circuits.state.registry`). A label
names the operator in words, and the views that use it::

    operator #3f0c2a7d9b1e 0   ->   aggregate max(dst) by src       in view a
    relation e                 ->   rows of input e(src, dst)       in views a, b
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from circuits import Circuit
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.plan_drawing import node_label
from circuits.state.registry import operator_trace, relation_trace, row_ids_dictionary

__all__ = ["StateLabel", "describe_state", "operator_labels", "state_labels"]

#: `describe_state` cuts a longer label.
MAX_LABEL_CHARACTERS: Final = 60
# The names `operator #HASH NUMBER`, `relation #HASH` and `row ids #HASH`, with the hash of a plan.
_STATE_NAME: Final = re.compile(r"(?:operator|relation|row ids) (?P<hash>#\w+(?: \d+)?)")


class StateLabel(NamedTuple):
    """A description of a part of the state, and the views that use it."""

    text: str
    views: tuple[str, ...]


def operator_labels(circuit: Circuit) -> list[StateLabel]:
    """Return the label of each operator of a circuit, in the order of the nodes of its graph."""
    graph = circuit.graph
    views_of = graph.views_of()
    labels = []
    for number, node in enumerate(graph.nodes):
        if isinstance(node.operator, Integrate):
            # Its state is the rows of its input, so the label names the input or its view.
            number = node.inputs[0]
            views = [name for name, view_node in graph.views.items() if view_node == number]
            label = node_label(graph, graph.nodes[number])
            text = f"materialized {f'view {views[0]}' if views else label}"
        else:
            text = node_label(graph, node)
        labels.append(StateLabel(text, views_of[number]))
    return labels


def state_labels(circuit: Circuit) -> dict[str, StateLabel]:
    """Return the label of each trace and each dictionary of row ids, by the name of the state.

    >>> from circuits import compile_sql
    >>> import pyarrow as pa
    >>> edges = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> circuit = compile_sql("SELECT src, max(dst) AS m FROM e GROUP BY src", {"e": edges})
    >>> state_labels(circuit)["relation e"]
    StateLabel(text='rows of input e(src, dst)', views=('view',))
    """
    labels: dict[str, StateLabel] = {}
    operators = operator_labels(circuit)
    for node, (text, views) in zip(circuit.graph.nodes, operators, strict=True):
        name = node.state_name
        labels[relation_trace(name)] = StateLabel(f"rows of {text}", views)
        labels[row_ids_dictionary(name)] = StateLabel(f"row ids of {text}", views)
        for index, _ in enumerate(getattr(node.operator, "traces", ())):
            part = f", part {index + 1}" if index else ""
            labels[operator_trace(name, index)] = StateLabel(f"{text}{part}", views)
    return labels


def describe_state(name: str, labels: Mapping[str, StateLabel]) -> str:
    """Return the name of a part of the state with a label instead of its kind.

    The hash stays in the name, because two operators may have the same label. A name without a
    hash (an input or a dictionary) and a name without a label (a stage of cells) do not change.

    Args:
        name: The name of a trace or of a dictionary, which may be followed by a column order.
        labels: The labels of the circuit (`state_labels`).

    >>> labels = {"operator #3f0c 0": StateLabel("aggregate max(dst) by src", ("a",))}
    >>> describe_state("operator #3f0c 0 [1,0]", labels)
    'aggregate max(dst) by src #3f0c 0 [1,0]'
    >>> describe_state("relation e [0,1]", labels)
    'relation e [0,1]'
    """
    match = _STATE_NAME.match(name)
    label = labels.get(match[0]) if match else None
    if match is None or label is None:
        return name
    text = label.text
    if len(text) > MAX_LABEL_CHARACTERS:
        text = f"{text[:MAX_LABEL_CHARACTERS]}…"
    return f"{text} {name[match.start('hash') :]}"
