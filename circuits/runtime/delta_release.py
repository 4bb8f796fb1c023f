"""Release of deltas: a large step frees the rows of a node once all nodes that read them have run.

A small step keeps all deltas until it ends. In a load that would be the rows of all nodes at once:
for the 22 views of TPC-H, several times the size of the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate

__all__ = ["UnreadDeltas"]


class UnreadDeltas:
    """The deltas that can be freed within a step, and which nodes have not read them yet.

    These are the deltas that only operators read. Those of inputs, views, and integrals are needed
    after the step, and a recursion reads those of other nodes in each iteration.

    Args:
        nodes: The nodes of the graph.
        readers: For each node, the nodes outside of recursions that read its delta.
        views: The position of each view, by its name.
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
        self._readers_left = {
            position: set(readers[position])
            for position, node in enumerate(nodes)
            if node.operator is not None
            and not node.is_nested
            and not isinstance(node.operator, Integrate)
            and position not in kept
        }
        self._inputs = [node.inputs for node in nodes]

    def end(self, positions: Collection[int]) -> list[int]:
        """Note that these nodes have run; return the nodes whose deltas nobody reads any more.

        Several threads may call this. Two of them may then get the same node; to free its delta
        twice does no harm.

        Complexity:
            O(inputs of these nodes).
        """
        unread = []
        for position in positions:
            for source in self._inputs[position]:
                left = self._readers_left.get(source)
                if left is not None:
                    left.discard(position)
                    if not left:
                        unread.append(source)
        return unread
