"""Drawing: the circuit as boxes and lines, and the work of each operator so far.

The fixed parts (boxes, labels, lines, positions) are sent once. Later events have only the rows and
the milliseconds of each operator, in the same order. The boxes are the operators of
``Circuit.explain``, followed by one box for each view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from circuits import Circuit
from circuits.plan.nodes import Scan
from circuits.runtime.graph import Graph
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.plan_drawing import node_label
from streaming.ui.layout import lay_out_graph

__all__ = ["Drawing"]


@dataclass(frozen=True)
class Drawing:
    """The drawing of a circuit.

    Attributes:
        picture: Boxes, lines and views as JSON values.
        numbers: The numbers of the operators with boxes in the graph.
    """

    picture: dict[str, Any]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, circuit: Circuit) -> Drawing:
        """Create the drawing of a circuit."""
        graph = circuit.graph
        numbers = [
            number
            for number, node in enumerate(graph.nodes)
            if not isinstance(node.operator, Integrate)
        ]
        views = {len(graph.nodes) + i: name for i, name in enumerate(graph.views)}
        ends = dict(zip(views, graph.views.values(), strict=True))
        edges = [(below, n) for n in numbers for below in dict.fromkeys(graph.nodes[n].inputs)]
        edges += [(below, box) for box, below in ends.items()]
        layout = lay_out_graph([*numbers, *views], edges)
        boxes = [_box(graph, number, layout.places[number]) for number in numbers]
        boxes += [
            {
                "kind": "view",
                "name": name,
                "label": "",
                "of": numbers.index(ends[box]),
                "given": name in circuit.outputs,
                "at": layout.places[box],
            }
            for box, name in views.items()
        ]
        place = {number: i for i, number in enumerate([*numbers, *views])}
        lines = [
            {"from": place[start], "to": place[end], "bends": layout.bends[start, end]}
            for start, end in edges
        ]
        names = {below: name for name, below in graph.views.items()}
        kept = {
            node.name: names[node.inputs[0]]
            for node in graph.nodes
            if isinstance(node.operator, Integrate) and node.inputs[0] in names
        }
        picture = {"boxes": boxes, "lines": lines, "widths": layout.widths, "kept": kept}
        return cls(picture, tuple(numbers))

    def operator_totals(self, circuit: Circuit) -> list[tuple[int, float]]:
        """Return output rows and milliseconds of each operator, over all steps of this process."""
        committed = circuit.committed
        if not committed.rows:
            return [(0, 0.0) for _ in self.numbers]
        return [(committed.rows[n], round(1000 * committed.seconds[n], 3)) for n in self.numbers]


def _box(graph: Graph, number: int, at: tuple[int, int]) -> dict[str, Any]:
    node = graph.nodes[number]
    kind = "input" if isinstance(node.plan, Scan) else type(node.plan).__name__.lower()
    return {"kind": kind, "name": node.name, "label": node_label(graph, node), "at": at}
