"""State summary: rows, runs and bytes of each arrangement of a circuit, in memory or on disk."""

from __future__ import annotations

import re
from typing import Any, Final

from circuits import Circuit
from circuits.runtime.graph import Graph
from circuits.runtime.operators.integrate import Integrate
from circuits.state.registry import operator_trace, relation_trace
from streaming.sink.metrics import BatchMetrics

__all__ = ["arrangements_of", "arrangements_on_disk"]

_LABEL_WITH_ORDER: Final = re.compile(r"(.*) \[([\d,]*)\]")


def arrangements_of(circuit: Circuit) -> list[dict[str, Any]]:
    """Return rows, runs and bytes of each arrangement, for JSON, as of the last commit.

    The list is empty if this process has never stepped the circuit: its state is then in another
    process, or there is none.

    Complexity:
        O(arrangements · log rows).
    """
    arrangements: list[dict[str, Any]] = []
    state = circuit.committed
    if not state.steps:
        return arrangements
    labels = _trace_labels(circuit.graph)
    for name in state.traces:
        for arrangement in state.trace(name).arrangements:
            runs = arrangement.spine.runs
            arrangements.append(
                {
                    "name": labels.get(name, name),
                    "order": list(arrangement.order),
                    "rows": sum(run.rows for run in runs),
                    "runs": len(runs),
                    "bytes": sum(run.nbytes for run in runs),
                }
            )
    return arrangements


def arrangements_on_disk(metrics: BatchMetrics) -> list[dict[str, Any]]:
    """Return rows and bytes from the metrics of written state, for a circuit on executors.

    >>> metrics = BatchMetrics(0, False, {}, {}, 0, 0, {}, 0, {"stage 1 relation e [1,0]": (3, 99)})
    >>> arrangements_on_disk(metrics)
    [{'name': 'stage 1 relation e', 'order': [1, 0], 'rows': 3, 'runs': None, 'bytes': 99}]
    """
    arrangements = []
    for label, (rows, size) in metrics.arrangements.items():
        match = _LABEL_WITH_ORDER.fullmatch(label)
        order = [int(column) for column in match[2].split(",") if column] if match else []
        name = match[1] if match else label
        entry = {"name": name, "order": order, "rows": rows, "runs": None, "bytes": size}
        arrangements.append(entry)
    return arrangements


def _trace_labels(graph: Graph) -> dict[str, str]:
    """Name traces as `Circuit.explain` names operators, and materialized views by their names."""
    views = {number: name for name, number in graph.views.items()}
    labels = {}
    for node in graph.nodes:
        labels[relation_trace(node.state_name)] = f"relation {node.name}"
        for index, _ in enumerate(getattr(node.operator, "traces", ())):
            label = f"operator {node.name} {index}"
            if isinstance(node.operator, Integrate):
                (child,) = node.inputs
                view = views.get(child)
                label = f"view {view}" if view else f"input {graph.nodes[child].name}"
            labels[operator_trace(node.state_name, index)] = label
    return labels
