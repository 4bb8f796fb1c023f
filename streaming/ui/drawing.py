"""Drawing: the circuit as boxes and lines, and the work of each operator so far.

The fixed parts (boxes, labels, lines, positions) are sent to the page once. Later events contain
only the rows and the milliseconds of each operator, in the same order. The boxes are the operators
of ``Circuit.explain``, followed by one box for each view. An `Integrate` node has no box: it only
stores the rows of a materialized relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from circuits import Circuit
from circuits.runtime.graph import Graph
from circuits.runtime.operator_names import operator_kind
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.state_names import node_label
from streaming.ui.layout import lay_out_graph

__all__ = ["Drawing"]


@dataclass(frozen=True)
class Drawing:
    """The drawing of a circuit.

    Attributes:
        picture: Boxes, lines, and the number of positions in each layer, as JSON values.
        numbers: For each operator with a box, its number in the graph.
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
        # The boxes of views are numbered after the operators.
        views = {len(graph.nodes) + i: name for i, name in enumerate(graph.views)}
        operator_of_view = dict(zip(views, graph.views.values(), strict=True))
        edges = [(start, n) for n in numbers for start in dict.fromkeys(graph.nodes[n].inputs)]
        edges += [(operator, box) for box, operator in operator_of_view.items()]
        layout = lay_out_graph([*numbers, *views], edges)
        boxes = [_box(graph, number, layout.positions[number]) for number in numbers]
        boxes += [
            {
                "kind": "view",
                "name": name,
                "label": "",
                "operator": numbers.index(operator_of_view[box]),
                "published": name in circuit.outputs,
                "position": layout.positions[box],
            }
            for box, name in views.items()
        ]
        index_of = {number: i for i, number in enumerate([*numbers, *views])}
        lines = [
            {"from": index_of[start], "to": index_of[end], "bends": layout.bends[start, end]}
            for start, end in edges
        ]
        picture = {"boxes": boxes, "lines": lines, "widths": layout.widths}
        return cls(picture, tuple(numbers))

    def operator_totals(self, circuit: Circuit) -> list[tuple[int, float]]:
        """Return output rows and milliseconds of each operator, over all steps of this process."""
        committed = circuit.committed
        if not committed.rows:
            return [(0, 0.0) for _ in self.numbers]
        return [(committed.rows[n], round(1000 * committed.seconds[n], 3)) for n in self.numbers]


def _box(graph: Graph, number: int, position: tuple[int, int]) -> dict[str, Any]:
    node = graph.nodes[number]
    return {
        "kind": operator_kind(node.plan),
        "name": node.name,
        "label": node_label(graph, node),
        "position": position,
    }
