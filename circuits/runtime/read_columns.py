"""Read columns: the columns of an input that the operators of a graph read.

Values of a column that no operator reads need no codes (`circuits.schema.Schema.encode_table`), and
rows that differ only in such columns are one row. Maps and filters read the columns of their
expressions, and a filter passes all columns on. Every other operator is assumed to read all columns
of its input.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from circuits.plan.expressions import columns_of
from circuits.plan.nodes import Filter, Map
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate

__all__ = ["read_columns"]


def read_columns(
    nodes: Sequence[Node],
    published: Collection[int],
    position: int,
    readers: Collection[int] | None = None,
) -> frozenset[int]:
    """Return the columns of one node that the nodes after it read.

    Args:
        nodes: The nodes of a graph, each after its inputs.
        published: The positions of nodes of which all columns are read, such as views.
        position: The position of the node.
        readers: The positions of the nodes that read; None for all.

    Complexity:
        O(nodes + expressions).
    """
    width = len(nodes[position].plan.fields)
    columns: set[int] = set()
    same_columns = {position}  # the node, and filters over it: they have the same columns
    for reader, node in enumerate(nodes):
        if readers is not None and reader not in readers:
            continue
        if not same_columns.isdisjoint(node.inputs):
            if node.operator is None or isinstance(node.operator, Integrate):
                columns.update(range(width))
            elif isinstance(node.plan, Map):
                columns.update(*map(columns_of, node.plan.expressions))
            elif isinstance(node.plan, Filter):
                columns.update(columns_of(node.plan.predicate))
                same_columns.add(reader)
            else:
                columns.update(range(width))
    if any(node in published or nodes[node].is_arranged for node in same_columns):
        columns.update(range(width))
    return frozenset(columns)
