"""Release of deltas: a large step frees the rows of a node once all nodes that read them have run.

A small step keeps all deltas until it ends. In a load that would be the rows of all nodes at once:
for the 22 views of TPC-H, several times the size of the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate

__all__ = ["ReadersLeft"]


class ReadersLeft:
    """For each node whose delta can be freed within a step, the nodes that have not read it yet.

    These are the nodes that only operators read. The deltas of inputs, views, and integrals are
    needed after the step, and a recursion reads those of other nodes in each iteration.

    Args:
        nodes: The nodes of the graph.
        readers: For each node, the nodes outside of recursions that read its delta.
        views: The positions of the views.

    >>> left = ReadersLeft([], [], {})
    >>> left.end([])
    []
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        readers: Sequence[Collection[int]],
        views: Mapping[str, int],
    ) -> None:
        kept = {*views.values()}
        for node in nodes:
            if node.is_nested:
                kept.update(node.inputs)
        self._left = {
            position: set(readers[position])
            for position, node in enumerate(nodes)
            if node.operator is not None
            and not node.is_nested
            and not isinstance(node.operator, Integrate)
            and position not in kept
        }
        self._inputs = [node.inputs for node in nodes]

    def end(self, positions: Collection[int]) -> list[int]:
        """Note that these nodes have run; return the inputs that nobody reads any more.

        Several threads may call this: the last reader of a node returns it, perhaps two of them.
        """
        unread = []
        for position in positions:
            for source in self._inputs[position]:
                left = self._left.get(source)
                if left is not None:
                    left.discard(position)
                    if not left:
                        unread.append(source)
        return unread
