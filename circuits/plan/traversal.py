"""Traversal of plans, which are DAGs: a subquery that several nodes read is one node."""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.node import PlanNode
from circuits.plan.nodes import Scan

__all__ = ["iter_nodes", "read_relations"]


def iter_nodes(*roots: PlanNode) -> Iterator[PlanNode]:
    """Yield the nodes of plans, each object once and after its inputs.

    The traversal does not recurse, so a plan can be deeper than Python's stack.

    Complexity:
        O(nodes + edges).
    """
    visited: set[int] = set()
    pending = [(root, False) for root in reversed(roots)]
    while pending:
        node, is_after_inputs = pending.pop()
        if is_after_inputs:
            yield node
        elif id(node) not in visited:
            visited.add(id(node))
            pending.append((node, True))
            pending += [(input, False) for input in reversed(node.inputs)]


def read_relations(plan: PlanNode) -> set[str]:
    """Return the names of the inputs and views that a plan reads.

    Complexity:
        O(nodes + edges).
    """
    return {node.relation for node in iter_nodes(plan) if isinstance(node, Scan)}
